//! A correct request of each API, in a plain and in a flexible version, whose every length can be made a lie.

use crate::wire::{Body, Lie, Noise, Place, frame};

/// The topic that correct requests are about.
pub const TOPIC: &str = "hostile-plain";

/// A topic of many partitions: named often, it makes a large answer of a small request.
pub const WIDE_TOPIC: &str = "hostile-wide";

/// A request that the broker answers if nothing is changed in it.
pub struct Request {
    pub name: &'static str,
    pub key: i16,
    pub version: i16,
    pub flexible: bool,
    write: fn(&mut Body, i16),
}

impl Request {
    const fn new(name: &'static str, key: i16, version: i16, flexible: bool, write: fn(&mut Body, i16)) -> Self {
        Self { name, key, version, flexible, write }
    }

    pub fn frame(&self) -> Vec<u8> {
        frame(self.key, self.version, self.flexible, &self.body(None).finish())
    }

    fn body(&self, lie: Option<(Place, Lie)>) -> Body {
        let mut body = Body::new(self.flexible, lie);
        (self.write)(&mut body, self.version);
        body
    }

    /// The frame with a lie in it; `None` if it has no such place.
    pub fn lying(&self, place: Place, lie: Lie) -> Option<Vec<u8>> {
        let body = self.body(Some((place, lie)));
        body.lied.then(|| frame(self.key, self.version, self.flexible, &body.finish()))
    }

    /// Every place and lie that this request has, with the name of each.
    pub fn lies(&self) -> Vec<(String, Vec<u8>)> {
        let mut lies = Vec::new();
        let kinds = [Place::Array(0), Place::Text(0), Place::Blob(0), Place::Tags(0), Place::TagSize(0)];
        let values = [("max", Lie::Max), ("negative", Lie::Negative)];
        for place in kinds {
            let kind = place.name();
            for nth in 0.. {
                let lying = |(value, lie): &(&'static str, Lie)| Some((*value, self.lying(place.nth(nth), *lie)?));
                let frames: Vec<_> = values.iter().filter_map(lying).collect();
                if frames.is_empty() {
                    break;
                }
                lies.extend(
                    frames.into_iter().map(|(value, bytes)| (format!("{}-v{}-{kind}-{nth}-{value}", self.name, self.version), bytes)),
                );
            }
        }
        lies
    }

    /// The frame with its body replaced by noise.
    pub fn noise(&self, seed: u64) -> Vec<u8> {
        let mut noise = Noise::new(seed);
        let len = 1 + noise.below(200);
        frame(self.key, self.version, self.flexible, &noise.bytes(len))
    }
}

/// One or two versions of each API.
pub const REQUESTS: &[Request] = &[
    Request::new("api-versions", 18, 3, true, api_versions),
    Request::new("metadata", 3, 8, false, metadata),
    Request::new("metadata", 3, 12, true, metadata),
    Request::new("produce", 0, 8, false, produce),
    Request::new("produce", 0, 9, true, produce),
    Request::new("fetch", 1, 11, false, fetch),
    Request::new("fetch", 1, 12, true, fetch),
    Request::new("list-offsets", 2, 5, false, list_offsets),
    Request::new("list-offsets", 2, 6, true, list_offsets),
    Request::new("offset-for-leader-epoch", 23, 3, false, offset_for_leader_epoch),
    Request::new("offset-for-leader-epoch", 23, 4, true, offset_for_leader_epoch),
    Request::new("create-topics", 19, 4, false, create_topics),
    Request::new("create-topics", 19, 5, true, create_topics),
    Request::new("delete-topics", 20, 3, false, delete_topics),
    Request::new("delete-topics", 20, 6, true, delete_topics),
    Request::new("create-partitions", 37, 1, false, create_partitions),
    Request::new("create-partitions", 37, 2, true, create_partitions),
    Request::new("describe-configs", 32, 2, false, describe_configs),
    Request::new("describe-configs", 32, 4, true, describe_configs),
    Request::new("describe-cluster", 60, 0, true, describe_cluster),
    Request::new("describe-topic-partitions", 75, 0, true, describe_topic_partitions),
    Request::new("init-producer-id", 22, 1, false, init_producer_id),
    Request::new("init-producer-id", 22, 2, true, init_producer_id),
    Request::new("find-coordinator", 10, 2, false, find_coordinator),
    Request::new("find-coordinator", 10, 4, true, find_coordinator),
    Request::new("join-group", 11, 5, false, join_group),
    Request::new("join-group", 11, 9, true, join_group),
    Request::new("sync-group", 14, 3, false, sync_group),
    Request::new("sync-group", 14, 5, true, sync_group),
    Request::new("heartbeat", 12, 3, false, heartbeat),
    Request::new("heartbeat", 12, 4, true, heartbeat),
    Request::new("leave-group", 13, 3, false, leave_group),
    Request::new("leave-group", 13, 5, true, leave_group),
    Request::new("offset-commit", 8, 7, false, offset_commit),
    Request::new("offset-commit", 8, 9, true, offset_commit),
    Request::new("offset-fetch", 9, 5, false, offset_fetch),
    Request::new("offset-fetch", 9, 9, true, offset_fetch),
    Request::new("offset-delete", 47, 0, false, offset_delete),
    Request::new("describe-groups", 15, 4, false, describe_groups),
    Request::new("describe-groups", 15, 5, true, describe_groups),
    Request::new("list-groups", 16, 5, true, list_groups),
    Request::new("delete-groups", 42, 1, false, delete_groups),
    Request::new("delete-groups", 42, 2, true, delete_groups),
    Request::new("consumer-group-heartbeat", 68, 0, true, consumer_group_heartbeat),
    Request::new("consumer-group-heartbeat", 68, 1, true, consumer_group_heartbeat),
    Request::new("consumer-group-describe", 69, 1, true, describe_groups),
    Request::new("list-config-resources", 74, 1, true, list_config_resources),
    Request::new("add-partitions-to-txn", 24, 2, false, add_partitions_to_txn),
    Request::new("add-partitions-to-txn", 24, 3, true, add_partitions_to_txn),
    Request::new("add-partitions-to-txn", 24, 5, true, add_partitions_to_txn),
    Request::new("add-offsets-to-txn", 25, 2, false, add_offsets_to_txn),
    Request::new("add-offsets-to-txn", 25, 4, true, add_offsets_to_txn),
    Request::new("end-txn", 26, 2, false, end_txn),
    Request::new("end-txn", 26, 5, true, end_txn),
    Request::new("write-txn-markers", 27, 1, true, write_txn_markers),
    Request::new("txn-offset-commit", 28, 2, false, txn_offset_commit),
    Request::new("txn-offset-commit", 28, 4, true, txn_offset_commit),
    Request::new("alter-replica-log-dirs", 34, 1, false, alter_replica_log_dirs),
    Request::new("alter-replica-log-dirs", 34, 2, true, alter_replica_log_dirs),
    Request::new("update-features", 57, 0, true, update_features),
    Request::new("update-features", 57, 1, true, update_features),
    Request::new("describe-producers", 61, 0, true, describe_producers),
    Request::new("describe-transactions", 65, 0, true, describe_transactions),
    Request::new("list-transactions", 66, 2, true, list_transactions),
];

/// The group that correct requests are about. It has no members: a join is answered with an id, and nobody comes back with it.
const GROUP: &str = "hostile-group";

fn api_versions(b: &mut Body, _: i16) {
    b.text("hostile");
    b.text("1.0");
    b.tags();
}

fn metadata(b: &mut Body, version: i16) {
    b.array(1);
    if version >= 10 {
        b.raw(&[0; 16]);
    }
    b.text(TOPIC);
    b.tags();
    b.i8(0); // no auto-creation
    if version <= 10 {
        b.i8(0);
    }
    b.i8(0);
    b.tags();
}

fn produce(b: &mut Body, _: i16) {
    b.null_text();
    b.i16(1);
    b.i32(1500);
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.blob(Some(&crate::batches::Batch::of(b"v").encode()));
    b.tags();
    b.tags();
    b.tags();
}

fn fetch(b: &mut Body, _: i16) {
    b.i32(-1);
    b.i32(0); // does not wait
    b.i32(1);
    b.i32(1 << 20);
    b.i8(0);
    b.i32(0);
    b.i32(-1);
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.i32(-1);
    b.i64(0);
    if b.flexible {
        b.i32(-1);
    }
    b.i64(-1);
    b.i32(1 << 20);
    b.tags();
    b.tags();
    b.array(1); // forgotten
    b.text(TOPIC);
    b.array(1);
    b.i32(1);
    b.tags();
    b.text("rack");
    b.tags();
}

fn list_offsets(b: &mut Body, _: i16) {
    b.i32(-1);
    b.i8(0);
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.i32(-1);
    b.i64(-1);
    b.tags();
    b.tags();
    b.tags();
}

fn offset_for_leader_epoch(b: &mut Body, _: i16) {
    b.i32(-2);
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.i32(-1);
    b.i32(0);
    b.tags();
    b.tags();
    b.tags();
}

fn create_topics(b: &mut Body, _: i16) {
    b.array(1);
    b.text("hostile-validated");
    b.i32(-1);
    b.i16(-1);
    b.array(1); // assignments
    b.i32(0);
    b.array(1);
    b.i32(1);
    b.tags();
    b.array(1); // configs
    b.text("retention.ms");
    b.text("1000");
    b.tags();
    b.tags();
    b.i32(1500);
    b.i8(1); // validate only
    b.tags();
}

fn delete_topics(b: &mut Body, version: i16) {
    b.array(1);
    b.text("hostile-nonexistent");
    if version >= 6 {
        b.raw(&[0; 16]);
        b.tags();
    }
    b.i32(1500);
    b.tags();
}

fn create_partitions(b: &mut Body, _: i16) {
    b.array(1);
    b.text(TOPIC);
    b.i32(3);
    b.array(1); // assignments
    b.array(1);
    b.i32(1);
    b.tags();
    b.tags();
    b.i32(1500);
    b.i8(1); // validate only
    b.tags();
}

fn describe_configs(b: &mut Body, version: i16) {
    b.array(1);
    b.i8(2);
    b.text(TOPIC);
    b.array(1);
    b.text("retention.ms");
    b.tags();
    b.i8(1);
    if version >= 3 {
        b.i8(0);
    }
    b.tags();
}

fn describe_cluster(b: &mut Body, _: i16) {
    b.i8(0);
    b.tags();
}

fn describe_topic_partitions(b: &mut Body, _: i16) {
    b.array(1);
    b.text(TOPIC);
    b.tags();
    b.i32(100);
    b.i8(-1); // no cursor
    b.tags();
}

fn init_producer_id(b: &mut Body, _: i16) {
    b.null_text();
    b.i32(60_000);
    b.tags();
}

fn find_coordinator(b: &mut Body, version: i16) {
    if version < 4 {
        b.text(GROUP);
        b.i8(0);
    } else {
        b.i8(0);
        b.array(1);
        b.text(GROUP);
    }
    b.tags();
}

fn join_group(b: &mut Body, version: i16) {
    b.text(GROUP);
    b.i32(6_000);
    b.i32(1_500);
    b.text("");
    b.null_text();
    b.text("consumer");
    b.array(1);
    b.text("range");
    b.blob(Some(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"));
    b.tags();
    if version >= 8 {
        b.text("why");
    }
    b.tags();
}

fn sync_group(b: &mut Body, version: i16) {
    b.text(GROUP);
    b.i32(1);
    b.text("nobody");
    b.null_text();
    if version >= 5 {
        b.text("consumer");
        b.text("range");
    }
    b.array(1);
    b.text("nobody");
    b.blob(Some(b"all"));
    b.tags();
    b.tags();
}

fn heartbeat(b: &mut Body, _: i16) {
    b.text(GROUP);
    b.i32(1);
    b.text("nobody");
    b.null_text();
    b.tags();
}

fn leave_group(b: &mut Body, version: i16) {
    b.text(GROUP);
    b.array(1);
    b.text("nobody");
    b.text("nowhere");
    if version >= 5 {
        b.text("why");
    }
    b.tags();
    b.tags();
}

fn offset_commit(b: &mut Body, _: i16) {
    b.text(GROUP);
    b.i32(-1);
    b.text("");
    b.null_text();
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.i64(3);
    b.i32(-1);
    b.text("mine");
    b.tags();
    b.tags();
    b.tags();
}

fn offset_fetch(b: &mut Body, version: i16) {
    if version >= 8 {
        b.array(1);
    }
    b.text(GROUP);
    if version >= 9 {
        b.null_text();
        b.i32(-1);
    }
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.tags();
    b.tags();
    if version >= 8 {
        b.i8(0);
        b.tags();
    }
}

fn offset_delete(b: &mut Body, _: i16) {
    b.text(GROUP);
    b.array(1);
    b.text("hostile-nonexistent");
    b.array(1);
    b.i32(0);
}

fn describe_groups(b: &mut Body, _: i16) {
    b.array(1);
    b.text(GROUP);
    b.i8(0);
    b.tags();
}

fn consumer_group_heartbeat(b: &mut Body, version: i16) {
    b.text("hostile-consumers");
    b.text("hostile-member");
    b.i32(0);
    b.null_text();
    b.null_text();
    b.i32(30_000);
    b.array(1);
    b.text(TOPIC);
    if version >= 1 {
        b.text("");
    }
    b.null_text();
    b.array(0);
    b.tags();
}

fn list_config_resources(b: &mut Body, _: i16) {
    b.array(2);
    b.i8(2);
    b.i8(32);
    b.tags();
}

fn list_groups(b: &mut Body, _: i16) {
    b.array(1);
    b.text("Stable");
    b.array(1);
    b.text("classic");
    b.tags();
}

fn delete_groups(b: &mut Body, _: i16) {
    b.array(1);
    b.text("hostile-nobody");
    b.tags();
}

/// A transaction that nobody began, of a producer that nobody is.
fn transaction(b: &mut Body) {
    b.text("hostile-transaction");
    b.i64(1 << 40);
    b.i16(0);
}

/// One topic with the partition 0.
fn one_topic(b: &mut Body) {
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.tags();
}

fn add_partitions_to_txn(b: &mut Body, version: i16) {
    if version >= 4 {
        b.array(1);
    }
    transaction(b);
    if version >= 4 {
        b.i8(1); // verifies only
    }
    one_topic(b);
    if version >= 4 {
        b.tags();
    }
    b.tags();
}

fn add_offsets_to_txn(b: &mut Body, _: i16) {
    transaction(b);
    b.text(GROUP);
    b.tags();
}

fn end_txn(b: &mut Body, _: i16) {
    transaction(b);
    b.i8(1);
    b.tags();
}

fn write_txn_markers(b: &mut Body, _: i16) {
    b.array(1);
    b.i64(1 << 40);
    b.i16(0);
    b.i8(1);
    one_topic(b);
    b.i32(0);
    b.tags();
    b.tags();
}

fn txn_offset_commit(b: &mut Body, version: i16) {
    b.text("hostile-transaction");
    b.text(GROUP);
    b.i64(1 << 40);
    b.i16(0);
    if version >= 3 {
        b.i32(-1);
        b.text("");
        b.null_text();
    }
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.i64(3);
    b.i32(-1);
    b.text("mine");
    b.tags();
    b.tags();
    b.tags();
}

fn alter_replica_log_dirs(b: &mut Body, _: i16) {
    b.array(1);
    b.text("/hostile-nowhere");
    one_topic(b);
    b.tags();
    b.tags();
}

fn update_features(b: &mut Body, version: i16) {
    b.i32(1500);
    b.array(1);
    b.text("hostile.version");
    b.i16(1);
    b.i8(1); // a downgrade is allowed, or this is an upgrade
    b.tags();
    if version >= 1 {
        b.i8(1); // validate only
    }
    b.tags();
}

fn describe_producers(b: &mut Body, _: i16) {
    one_topic(b);
    b.tags();
}

fn describe_transactions(b: &mut Body, _: i16) {
    b.array(1);
    b.text("hostile-transaction");
    b.tags();
}

fn list_transactions(b: &mut Body, _: i16) {
    b.array(1);
    b.text("Ongoing");
    b.array(1);
    b.i64(1 << 40);
    b.i64(-1);
    b.text("hostile-.*");
    b.tags();
}
