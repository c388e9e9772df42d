//! JoinGroup: who comes, who comes back, and who may not (`GroupMetadataManager.classicGroupJoin`).

use super::{Cause, Joined, Member, Note, Protocol, State, Who, command::Join, draft::Draft};
use crate::{
    group::{InstanceId, beats::Beats, subscription},
    types::{ErrorCode, Millis},
};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc};

/// A new member whose JoinGroup waits sends no heartbeats. If it is gone, this is when we take note; a live one tries again.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1000;
/// Members that were given an id and have not come back with it: what a group holds of them.
const PENDING_JOINS_MAX: usize = 10_000;

impl Draft<'_> {
    pub fn join(&mut self, join: &Join) {
        let known = !join.member_id.is_empty();
        if !self.group.has_room_for(&join.member_id, self.settings) {
            if known {
                self.remove(&join.member_id);
                self.maybe_complete_join();
            }
            return self.refuse_join(join.ticket, ErrorCode::GroupMaxSizeReached, &"".into());
        }
        if !self.group.has_room_for_metadata(join) {
            return self.refuse_join(join.ticket, ErrorCode::GroupMaxSizeReached, &join.member_id);
        }
        if !self.group.supports(&join.protocol_type, &join.protocols) {
            return self.refuse_join(join.ticket, ErrorCode::InconsistentGroupProtocol, &join.member_id);
        }
        match (&join.instance_id, known) {
            (_, true) => self.join_again(join),
            (Some(instance_id), false) => match self.group.statics.get(instance_id).cloned() {
                Some(old) => self.replace_static(join, instance_id, &old),
                None => self.add(join, &join.fresh_id),
            },
            (None, false) if join.requires_known_member_id => self.give_id(join),
            (None, false) => self.add(join, &join.fresh_id),
        }
    }

    /// KIP-394: one who never sees this answer leaves no member behind that others wait for.
    fn give_id(&mut self, join: &Join) {
        if self.group.pending_joins.len() >= PENDING_JOINS_MAX {
            return self.refuse_join(join.ticket, ErrorCode::GroupMaxSizeReached, &"".into());
        }
        let ends = self.now.steady.plus(join.session_timeout_ms.into());
        self.group.pending_joins.insert(join.fresh_id.clone(), ends);
        self.refuse_join(join.ticket, ErrorCode::MemberIdRequired, &join.fresh_id);
    }

    fn add(&mut self, join: &Join, id: &Arc<str>) {
        self.group.pending_joins.remove(id);
        if self.group.members.is_empty() {
            self.group.protocol_type = Some(join.protocol_type.clone());
        }
        if self.group.leader.is_none() {
            self.group.leader = Some(id.clone());
        }
        if let Some(delay) = self.group.join_timer.as_mut().and_then(|timer| timer.initial.as_mut()) {
            delay.member_added = true;
        }
        self.group.insert(Member {
            id: id.clone(),
            instance_id: join.instance_id.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            protocols: join.protocols.clone(),
            assignment: Bytes::new(),
            awaiting_join: Some(join.ticket),
            awaiting_sync: None,
            is_new: true,
            session_ends: self.now.steady.plus(NEW_MEMBER_JOIN_TIMEOUT_MS),
            beats: Beats::default(),
        });
        let who = self.who(id);
        self.rebalance_or_complete_join(Cause::Joined { who, reason: join.reason.clone() });
    }

    /// One who has an id: a member, or one who was just given it.
    fn join_again(&mut self, join: &Join) {
        let id = &join.member_id;
        if join.instance_id.is_none() && self.group.pending_joins.contains_key(id) {
            return self.add(join, id);
        }
        if let Err(error) = self.group.check_member(id, join.instance_id.as_ref()) {
            return self.refuse_join(join.ticket, error, id);
        }
        self.edit(id, |member| member.beats.joins());
        let same = self.group.member(id).is_some_and(|member| member.protocols == join.protocols);
        let (who, reason) = (self.who(id), join.reason.clone());
        match self.group.state {
            // Perhaps it did not get its answer.
            State::CompletingRebalance if same => self.reply_generation(join),
            // A follower that has nothing new gets its assignment with SyncGroup. A leader wants a rebalance: what it assigns has changed.
            State::Stable if same && !self.group.is_leader(id) => self.reply_generation(join),
            State::Stable if same => self.update(join, Cause::LeaderRejoined { who, reason }),
            State::PreparingRebalance => self.update(join, Cause::Joined { who, reason }),
            State::CompletingRebalance | State::Stable => self.update(join, Cause::MetadataChanged { who, reason }),
            State::Empty => self.refuse_join(join.ticket, ErrorCode::UnknownMemberId, id),
        }
    }

    fn reply_generation(&mut self, join: &Join) {
        let joined = self.group.joined(&join.member_id);
        self.reply_join(join.ticket, joined);
    }

    fn update(&mut self, join: &Join, cause: Cause) {
        self.take_over(&join.member_id, join);
        self.rebalance_or_complete_join(cause);
    }

    /// The member is as this JoinGroup says, and waits for its answer.
    fn take_over(&mut self, id: &Arc<str>, join: &Join) {
        let Some(old) = self.group.members.get(id).cloned() else { return };
        self.group.count_protocols(&old, false);
        self.edit(id, |member| {
            member.protocols = join.protocols.clone();
            member.rebalance_timeout_ms = join.rebalance_timeout_ms;
            member.session_timeout_ms = join.session_timeout_ms;
        });
        if let Some(new) = self.group.members.get(id).cloned() {
            self.group.count_protocols(&new, true);
        }
        self.await_join(id, join.ticket);
    }

    /// A static member came back without its id: it takes the place of its former self, which is fenced (KIP-345). If nothing else has
    /// changed there is no rebalance. It has if it subscribes to other topics: Kafka goes by the protocol alone, and what the member is new to
    /// is read by nobody until something else makes the group rebalance.
    fn replace_static(&mut self, join: &Join, instance_id: &InstanceId, old_id: &Arc<str>) {
        let new_id = &join.fresh_id;
        let Some(old) = self.group.members.get(old_id).cloned() else { return };
        let led = self.group.is_leader(old_id);
        let same_topics =
            self.group.protocol.as_ref().is_none_or(|protocol| subscribe_to_the_same(&old.protocols, &join.protocols, protocol));
        self.complete_join(old_id, Joined::error(ErrorCode::FencedInstanceId, old_id.clone()));
        self.complete_sync(old_id, super::Synced::error(ErrorCode::FencedInstanceId));
        if old.session_deadline().is_some_and(|ends| ends > self.now.steady) && old.client_host != join.client_host {
            self.notes.push(Note::Fenced {
                group: self.id.clone(),
                instance: instance_id.clone(),
                old: old.who(),
                new: Who {
                    member: new_id.clone(),
                    instance: Some(instance_id.clone()),
                    client_id: join.client_id.clone(),
                    host: join.client_host.clone(),
                },
            });
        }
        self.rename(old_id, new_id, join);
        if led {
            self.group.leader = Some(new_id.clone());
        }
        self.keep_alive(new_id);
        self.take_over(new_id, join);
        match self.group.state {
            State::Stable if !same_topics => {
                let who = self.who(new_id);
                self.prepare(Cause::MetadataChanged { who, reason: join.reason.clone() });
            }
            // Nothing is unread that came while the leader was away, or that this member was to let go of, and to join again, when it went (seed 1814).
            State::Stable if self.group.select_protocol() == self.group.protocol && !self.group.leaves_unread(self.topics) => {
                self.resume_static(join, new_id, old_id, led);
            }
            State::Stable | State::CompletingRebalance => {
                let who = self.who(new_id);
                self.prepare(Cause::StaticMemberReplaced { who });
            }
            State::PreparingRebalance | State::Empty => self.maybe_complete_join(),
        }
    }

    /// The member keeps its place, its timeouts and its assignment under its new id.
    fn rename(&mut self, old_id: &Arc<str>, new_id: &Arc<str>, join: &Join) {
        let Some((place, _, member)) = self.group.members.shift_remove_full(old_id) else { return };
        let mut member = Arc::unwrap_or_clone(member);
        member.id = new_id.clone();
        (member.client_id, member.client_host) = (join.client_id.clone(), join.client_host.clone());
        (member.awaiting_join, member.awaiting_sync, member.is_new) = (None, None, false);
        member.session_ends = Millis(i64::MAX);
        member.beats = Beats::default();
        if let Some(instance_id) = &member.instance_id {
            self.group.statics.insert(instance_id.clone(), new_id.clone());
        }
        if self.group.pending_syncs.remove(old_id) {
            self.group.pending_syncs.insert(new_id.clone());
        }
        self.group.members.shift_insert(place, new_id.clone(), Arc::new(member));
    }

    /// No rebalance: the new id is written, and the member goes on. A leader is told not to assign (KIP-814); a client too old for that
    /// believes that it is no leader, since the one named is its former self.
    fn resume_static(&mut self, join: &Join, new_id: &Arc<str>, old_id: &Arc<str>, led: bool) {
        let mut joined = self.group.joined(new_id);
        if join.supports_skipping_assignment {
            joined.skip_assignment = led;
        } else {
            joined.members = Vec::new();
            if led {
                joined.leader = old_id.clone();
            }
        }
        if led {
            self.group.unled = !join.supports_skipping_assignment;
        }
        self.complete_join(new_id, joined);
        self.store();
    }
}

/// Whether two of a member's lists of protocols name the same topics under `protocol`. Metadata of which one can't be read as a subscription
/// says nothing about topics.
fn subscribe_to_the_same(old: &[Protocol], new: &[Protocol], protocol: &str) -> bool {
    let topics = |all: &[Protocol]| {
        let metadata = &all.iter().find(|one| &*one.name == protocol)?.metadata;
        subscription::topics(metadata).map(BTreeSet::from_iter)
    };
    match (topics(old), topics(new)) {
        (Some(old), Some(new)) => old == new,
        _ => true,
    }
}
