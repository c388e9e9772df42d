//! Groups as the runtime runs them.

use super::super::{
    machine::{Key, Machine, Steps},
    records::{self, Read, TooLong},
};
use crate::{
    codec::{Malformed, header::client_id_text},
    group::{Decision, Groups, Note, Now, Record, Reply, Settings, Volatile, names},
    types::{Millis, ProducerId},
};
use std::convert::Infallible;

impl Machine for Groups {
    type Settings = Settings;
    type Record = Record;
    type Volatile = Volatile;
    type Reply = Reply;
    type Note = Note;
    type Effect = Infallible;

    const PLURAL: &'static str = "groups";
    const ANSWERS_WAIT: bool = false;

    fn new(settings: Settings) -> Self {
        Self::new(settings)
    }

    fn encode(&self, record: &Record) -> Result<(Vec<u8>, Option<Vec<u8>>), TooLong> {
        records::encode(record)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Read, Malformed> {
        records::decode(key, value)
    }

    fn keys(&self) -> Vec<Key> {
        self.iter().map(|(id, _)| id.clone()).collect()
    }

    fn apply(&mut self, record: &Record) {
        self.apply(record);
    }

    fn apply_all(&mut self, records: &[Record]) {
        self.apply_all(records);
    }

    fn apply_pending(&mut self, producer: ProducerId, record: &Record) {
        self.apply_pending(producer, record);
    }

    fn end_transaction(&mut self, producer: ProducerId, commit: bool) {
        self.end_transaction(producer, commit);
    }

    fn apply_volatile(&mut self, change: Volatile) -> Option<Key> {
        let changed = change.rearms().cloned();
        self.apply_volatile(change);
        changed
    }

    fn tell(&mut self, now: Now, note: &Note) {
        log_note(note);
        self.tell(now, note);
    }

    fn decide_loaded(&self, now: Now, key: &Key) -> Steps<Self> {
        self.decide_loaded(now, key).into()
    }

    fn decide_tick(&self, now: Now, key: &Key) -> Steps<Self> {
        self.decide_tick(now, key).into()
    }

    fn next_deadline(&self, key: &str) -> Option<Millis> {
        self.next_deadline(key)
    }
}

impl<R> From<Decision<R>> for Steps<Groups, R> {
    fn from(decision: Decision<R>) -> Self {
        let Decision { reply, records, volatile, replies, notes, records_may_fail } = decision;
        let volatile = volatile.into_iter().collect();
        Self { volatile, notes, replies, records_may_fail, ..Self::write(reply, records) }
    }
}

fn log_note(note: &Note) {
    let group = client_id_text(Some(note.group().as_bytes()));
    match note {
        Note::Preparing { generation, members, cause, .. } => {
            tracing::info!(group, generation = generation.0, members, %cause, "a group rebalances");
        }
        Note::Generation { generation, members, removed, last, .. } => {
            let last = last.as_ref().map(ToString::to_string).unwrap_or_default();
            let removed = names(removed);
            tracing::info!(group, generation = generation.0, members, removed, last, "all members have joined, or their time is up");
        }
        Note::Stable { generation, members, .. } => {
            tracing::info!(group, generation = generation.0, members, "a group is stable");
        }
        Note::Empty { generation, .. } => tracing::info!(group, generation = generation.0, "a group is empty"),
        Note::Fenced { old, new, .. } => tracing::warn!(
            group, %old, %new,
            "a second process has joined with group.instance.id of a member that was alive; the first one is fenced"
        ),
        // Its story has them.
        Note::Moved { .. } | Note::LetGo { .. } => {}
        Note::NobodyJoined { .. } => tracing::warn!(group, "nobody has joined again in time"),
    }
}
