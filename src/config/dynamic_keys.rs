//! Keys that brokers have only while they run: they are set on one or on all of them, and never stand in a file (`QuotaConfig`). Apache Kafka's
//! `kafka-reassign-partitions --throttle` sets them, and takes them away when all is where it should be.

use super::{
    key::{Importance::Medium, Key, Kind::Long, Valid::AtLeast, markdown_table},
    keys::NEVER,
};

/// How many bytes a second moves between data directories copy, together.
pub(super) const MOVES: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

pub static KEYS: &[Key] = &[
    Key::new(
        "leader.replication.throttled.rate",
        Long,
        NEVER,
        AtLeast(0),
        Medium,
        "How many bytes a second a leader sends to followers whose replication is held back. Kept, but without effect with one broker.",
    )
    .dynamic(),
    Key::new(
        "follower.replication.throttled.rate",
        Long,
        NEVER,
        AtLeast(0),
        Medium,
        "How many bytes a second a follower takes whose replication is held back. Kept, but without effect with one broker.",
    )
    .dynamic(),
    Key::new(
        MOVES,
        Long,
        NEVER,
        AtLeast(0),
        Medium,
        "How many bytes a second partitions are copied at that move to another data directory, all together; 0 is as good as not at all.",
    )
    .dynamic(),
];

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// README's table of them.
pub fn markdown() -> String {
    let row = |key: &Key| {
        let default = if key.default == NEVER { "no bound" } else { key.default.unwrap_or("unset") };
        vec![format!("`{}`", key.name), key.kind.name().to_lowercase(), default.to_owned(), key.valid.describe(), key.doc.to_owned()]
    };
    markdown_table(&["key", "type", "default", "valid", "what it does"], KEYS.iter().map(row))
}
