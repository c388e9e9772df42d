//! The heartbeats of classic members, and for how long the answer to one may be held back.
//!
//! A classic member hears that its group rebalances from the answer to a heartbeat, and the protocol has no other way to tell it. So an answer
//! that would say nothing is held back: while it is here, its member hears of a rebalance at once. But not for as long as the client's
//! interval, which the protocol never tells: it is learned from the heartbeats that come.

use super::{Generation, GroupId, Identity, InstanceId, MemberId, Ticket};
use crate::types::Millis;

/// Larger groups are not held: each look at a group's deadlines goes through its members, and with held answers there is one by heartbeat.
const MEMBERS_MAX: usize = 1_000;
/// The assignor of Kafka Streams. Its consumers close without leaving their group, and closing waits for every answer.
const STREAMS_ASSIGNOR: &str = "stream";
/// A client may come so much later than it means to, and a quarter of its interval: threads of clients that send heartbeats look at the clock
/// a few times a second.
const LATE_MS: i64 = 500;

/// Answers leave up to so much earlier, together with others.
const TOGETHER_MS_MAX: i64 = 100;

/// A heartbeat whose answer is held back, and whose it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Held {
    pub ticket: Ticket,
    pub since: Millis,
    pub until: Millis,
    pub generation: Generation,
    /// It says its instance id, too.
    pub is_named: bool,
}

impl Held {
    /// What its sender said of itself.
    pub fn identity(&self, group: &GroupId, member_id: &MemberId, instance_id: Option<&InstanceId>) -> Identity {
        let instance_id = instance_id.filter(|_| self.is_named).cloned();
        Identity { group: group.clone(), member_id: member_id.clone(), instance_id, generation: self.generation }
    }
}

/// Whether, and for how long at the most, an answer may be held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub session_timeout_ms: i64,
    /// `group.classic.heartbeat.hold.max.ms`.
    pub max_ms: i64,
}

/// Whether heartbeats may be held back in a group of so many members, of one that speaks this protocol.
pub(super) fn may_hold(members: usize, protocol: Option<&str>) -> bool {
    members <= MEMBERS_MAX && protocol != Some(STREAMS_ASSIGNOR)
}

/// What is known of a member's heartbeats.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Beats {
    /// The shortest time from one to the next: the client's interval, or a little more.
    interval_ms: Option<i64>,
    /// When the last one came.
    came: Option<Millis>,
    /// It has joined again since, and may have waited for that.
    joined: bool,
    /// Its connection ended while an answer was held for twice as long: perhaps it had given up on that.
    bearable_ms: Option<i64>,
    pub(super) held: Option<Held>,
}

impl Beats {
    /// One comes. The client's interval is no longer than what lies between two, whether the first of them was held or not. If more lies between
    /// them than a client is late, then what is known is too short; or it is too long, for clients skip a heartbeat while they wait for the
    /// answer to the one before. Either way it is measured anew, with one that is not held.
    fn comes(&mut self, now: Millis) {
        let joined = std::mem::take(&mut self.joined);
        if let Some(came) = self.came.replace(now) {
            let gap_ms = now.0.saturating_sub(came.0).max(0);
            let is_late = |known: i64| !joined && gap_ms > known.saturating_add(known / 4).saturating_add(LATE_MS);
            self.interval_ms = match self.interval_ms {
                Some(known) if is_late(known) => None,
                Some(known) => Some(known.min(gap_ms)),
                None => Some(gap_ms),
            };
        }
    }

    pub(super) fn interval_ms(&self) -> Option<i64> {
        self.interval_ms
    }

    /// When the next one is due; the interval is `usual_ms` if it isn't known. `None` if none has come yet.
    pub(super) fn next(&self, usual_ms: i64) -> Option<Millis> {
        Some(self.came?.plus(self.interval_ms.unwrap_or(usual_ms)))
    }

    /// Its member joins.
    pub(super) fn joins(&mut self) {
        self.joined = true;
    }

    /// For how long the answer to the one that has just come may be held back; 0 is not at all: most of the interval. So that the next one is
    /// here in time however its client counts, from one to the next or from the answer, hold and interval together are no more than the middle
    /// between the interval and the session timeout.
    fn hold_ms(&self, bounds: Bounds) -> i64 {
        let Some(interval_ms) = self.interval_ms else { return 0 };
        let spare_ms = bounds.session_timeout_ms.saturating_sub(interval_ms) / 2;
        let most_ms = interval_ms.saturating_sub(interval_ms / 10);
        most_ms.min(bounds.max_ms).min(spare_ms).min(self.bearable_ms.unwrap_or(i64::MAX)).max(0)
    }

    /// One comes, and its answer is held back if it has a ticket and that may be. An earlier one that was held: nobody reads its answer any more,
    /// but it may hold up a connection.
    pub(super) fn heard(&mut self, now: Millis, ticket: Option<Ticket>, from: &Identity, bounds: Bounds) -> Option<Held> {
        let earlier = self.held.take();
        self.comes(now);
        if let Some(ticket) = ticket {
            self.hold(now, ticket, from, bounds);
        }
        earlier
    }

    fn hold(&mut self, now: Millis, ticket: Ticket, from: &Identity, bounds: Bounds) {
        let hold_ms = self.hold_ms(bounds);
        if hold_ms > 0 {
            let (generation, is_named) = (from.generation, from.instance_id.is_some());
            // Many answers that leave at one time cost less than each at its own.
            let step_ms = (hold_ms / 20).clamp(1, TOGETHER_MS_MAX);
            let until = now.plus(hold_ms);
            let until = Millis(until.0.saturating_sub(until.0.rem_euclid(step_ms)));
            self.held = Some(Held { ticket, since: now, until, generation, is_named });
        }
    }

    /// The one that is held is answered: another request waits behind it, or its connection is `gone`, and then a client that does not wait for
    /// long would do the same again.
    pub(super) fn release(&mut self, now: Millis, gone: bool) -> Option<Held> {
        let held = self.held.take()?;
        if gone {
            self.bearable_ms = Some(now.0.saturating_sub(held.since.0).max(0) / 2);
            self.came = None;
        }
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { session_timeout_ms: 45_000, max_ms: 8_000 };

    /// Comes at these times; for how long it may be held then.
    fn after(times: &[i64]) -> i64 {
        let mut beats = Beats::default();
        times.iter().for_each(|at| beats.comes(Millis(*at)));
        beats.hold_ms(BOUNDS)
    }

    #[test]
    fn the_interval_is_learned_from_two_that_come() {
        assert_eq!((after(&[]), after(&[0])), (0, 0));
        assert_eq!((after(&[0, 3_000]), after(&[0, 1_000])), (2_700, 900));
        assert_eq!(after(&[0, 3_400, 6_400, 9_900]), 2_700, "a client is late, but never early");
        assert_eq!(after(&[0, 20_000]), 8_000, "never longer than its bound");
        assert_eq!((after(&[0, 0]), after(&[0, 200]), after(&[5, 0])), (0, 180, 0));
    }

    #[test]
    fn what_was_wrong_is_measured_anew() {
        assert_eq!(after(&[0, 10_000, 13_000]), 2_700, "it was paused at first");
        assert_eq!(after(&[0, 3_000, 3_100, 6_100]), 0, "one came early");
        assert_eq!(after(&[0, 3_000, 3_100, 6_100, 9_100]), 2_700);
        assert_eq!(after(&[0, 3_500, 9_500, 12_500]), 2_700, "it was held for too long, and skipped one");
        let mut beats = Beats::default();
        [0, 3_000].into_iter().for_each(|at| beats.comes(Millis(at)));
        beats.joins();
        beats.comes(Millis(30_000));
        assert_eq!(beats.hold_ms(BOUNDS), 2_700, "it waited for others to join");
    }

    #[test]
    fn clients_that_count_from_the_answer_keep_their_sessions() {
        for (interval_ms, session_timeout_ms) in [(3_000, 6_000), (5_900, 6_000), (3_000, 10_000), (10_000, 45_000), (500, 6_000)] {
            let (mut beats, mut now) = (Beats::default(), 0);
            let bounds = Bounds { session_timeout_ms, max_ms: i64::MAX };
            let mut held = 0;
            for _ in 0..50 {
                beats.comes(Millis(now));
                let hold_ms = beats.hold_ms(bounds);
                assert!(hold_ms + interval_ms <= (session_timeout_ms + interval_ms) / 2, "{hold_ms} of {session_timeout_ms}");
                held += i64::from(hold_ms > 0);
                now += hold_ms + interval_ms;
            }
            assert!(held > 10, "{interval_ms}: {held}");
        }
    }

    #[test]
    fn one_whose_connection_ends_is_held_for_half_as_long() {
        let mut beats = Beats::default();
        [0, 9_000].into_iter().for_each(|at| beats.comes(Millis(at)));
        let held =
            |since| Some(Held { ticket: Ticket(1), since: Millis(since), until: Millis(0), generation: Generation(1), is_named: false });
        beats.held = held(9_000);
        assert!(beats.release(Millis(14_000), true).is_some() && beats.release(Millis(14_000), true).is_none());
        assert_eq!(beats.hold_ms(BOUNDS), 2_500);
        beats.comes(Millis(14_100));
        assert_eq!(beats.hold_ms(BOUNDS), 2_500, "it tries again at once, which says nothing of its interval");
        beats.held = held(14_100);
        assert!(beats.release(Millis(15_000), false).is_some());
        assert_eq!(beats.hold_ms(BOUNDS), 2_500, "another request came");
    }
}
