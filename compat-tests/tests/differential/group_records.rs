//! What is left of groups of every kind in `__consumer_offsets`, read with Apache Kafka's generated classes, byte for byte as they would write
//! it: the last record of each key has the same fields. Monitors read the topic so (Burrow, kminion), and so does a Kafka that takes over.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use compat_tests::console;
use compat_tests::seat::commit_alone;
use kafka_protocol::messages::DeleteGroupsRequest;
use serde_json::Value;

use crate::consumer_groups::{LEAVE, STATIC_LEAVE, commit as commit_as, given, heard_of, heartbeat, join, owning, settled};
use crate::groups::{self, coordinated, gid, leave, sync};
use crate::requests::text;
use crate::side::{Side, compare};

const TOPIC: &str = "gr-topic";

/// Fields whose value is chance, or each broker's own: when something was, the hash of a topic's metadata, and which metadata an expression was
/// resolved against.
const CHANCE: &[&str] =
    &["commitTimestamp", "expireTimestamp", "currentStateTimestamp", "assignmentTimestamp", "timestamp", "metadataHash", "version"];

/// Takes out what differs for a reason.
fn as_both_have_it(record: &mut Value) {
    match record["type"].as_str() {
        // Ours are of version 3, which monitors know; Kafka's are of 4, which has the topic's id too.
        Some("OFFSET_COMMIT") if record["version"].as_i64() >= Some(3) => {
            record["version"] = Value::from("3 or 4");
            if let Some(fields) = record["value"].as_object_mut() {
                fields.remove("topicId");
            }
        }
        // Of a member whose epoch stays Kafka forgets the one before. Ours keeps it, so that an answer that was lost fences nobody.
        Some("CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT") if !record["value"].is_null() => {
            record["value"]["previousMemberEpoch"] = Value::from("an epoch");
        }
        _ => {}
    }
}

/// Takes chance out of a value: what it says stays, as whether it says anything.
fn masked(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if CHANCE.contains(&name.as_str())
                    && value.as_i64().is_some_and(|number| number > 0 || name == "metadataHash" && number != 0)
                {
                    *value = Value::from("chance");
                } else if name == "topicId" {
                    *value = Value::from("id");
                } else {
                    masked(value);
                }
            }
        }
        Value::Array(all) => {
            all.iter_mut().for_each(masked);
            // Kafka's orders are those of hash tables.
            all.sort_by_key(Value::to_string);
        }
        Value::String(text) => *text = without_uuid(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A classic member's id ends in a random one.
fn without_uuid(text: &str) -> String {
    const UUID: usize = 36;
    let start = text.len().checked_sub(UUID).filter(|start| text.is_char_boundary(*start));
    match start {
        Some(start) if text[start..].bytes().filter(|byte| *byte == b'-').count() == 4 => format!("{}id", &text[..start]),
        _ => text.to_owned(),
    }
}

/// Notes the last record of each key of this script's groups.
fn note_records(side: &mut Side) -> Result<()> {
    let mut last = BTreeMap::new();
    for mut record in console::offsets_records(&side.address().to_string())? {
        let is_ours = record["key"]["groupId"].as_str().or(record["key"]["group"].as_str()).is_some_and(|group| group.starts_with("gr-"));
        if !is_ours {
            continue;
        }
        as_both_have_it(&mut record);
        masked(&mut record["key"]);
        masked(&mut record["value"]);
        let key = format!("{} {}", record["type"].as_str().context("a type")?, record["key"]);
        let value = format!("v{} {}", record["version"], serde_json::to_string_pretty(&record["value"])?);
        last.insert(key, (record["value"].is_null(), value));
    }
    // A key whose last record is a tombstone is as one that never was.
    for (key, (_, value)) in last.into_iter().filter(|(_, (gone, _))| !gone) {
        side.note(key, value);
    }
    Ok(())
}

fn classic(side: &mut Side, group: &str, instance: Option<&str>) -> Result<(String, i32)> {
    coordinated(side, group)?;
    let (id, generation) = groups::member(side, 5, group, instance)?;
    let synced = sync(5, group, &id, generation).with_group_instance_id(instance.map(text));
    side.ask(5, &synced)?;
    Ok((id.to_string(), generation))
}

fn consumer(side: &mut Side, group: &str) -> Result<i32> {
    coordinated(side, group)?;
    heard_of(side, group, TOPIC, 4)?;
    let (epoch, owned) = settled(side, group, "a", &[TOPIC], 4)?;
    side.quiet_beat(1, &heartbeat(group, "a", epoch).with_topic_partitions(owning(&owned)))?;
    side.ask(9, &commit_as(group, "a", epoch, TOPIC))?;
    Ok(epoch)
}

#[test]
fn are_kafkas_byte_for_byte() {
    compare(|side| {
        let id = side.topic(TOPIC, 4, &[])?;
        coordinated(side, "gr-simple")?;
        commit_alone(&mut side.connect()?, "gr-simple", &[(TOPIC, 0, 3), (TOPIC, 3, 1)])?;

        let (id_of, generation) = classic(side, "gr-classic", Some("one"))?;
        let commit = groups::commit(8, "gr-classic", TOPIC, &id_of, generation, "words").with_group_instance_id(Some(text("one")));
        side.ask(8, &commit)?;
        let kept = groups::commit(3, "gr-retained", TOPIC, "", -1, "kept").with_retention_time_ms(1_000_000_000);
        coordinated(side, "gr-retained")?;
        side.ask(3, &kept)?;
        let (id_of, _) = classic(side, "gr-classic-left", None)?;
        side.ask(5, &leave(5, "gr-classic-left", &[(&id_of, None)]))?;

        consumer(side, "gr-stable")?;
        consumer(side, "gr-left")?;
        side.quiet_beat(1, &heartbeat("gr-left", "a", LEAVE))?;
        consumer(side, "gr-deleted")?;
        side.quiet_beat(1, &heartbeat("gr-deleted", "a", LEAVE))?;
        side.ask(2, &DeleteGroupsRequest::default().with_groups_names(vec![gid("gr-deleted")]))?;

        // Another has come, and the first is to let go of some.
        let epoch = consumer(side, "gr-revoking")?;
        side.quiet_beat(1, &join("gr-revoking", "b", &[TOPIC]).with_rack_id(Some(text("rack"))).with_server_assignor(Some(text("range"))))?;
        side.quiet_beat(1, &heartbeat("gr-revoking", "a", epoch))?;

        coordinated(side, "gr-static")?;
        heard_of(side, "gr-static", TOPIC, 4)?;
        let one = |asked: kafka_protocol::messages::ConsumerGroupHeartbeatRequest| asked.with_instance_id(Some(text("one")));
        side.quiet_beat(1, &one(join("gr-static", "a", &[TOPIC])))?;
        side.quiet_beat(1, &one(heartbeat("gr-static", "a", STATIC_LEAVE)))?;

        coordinated(side, "gr-regex")?;
        heard_of(side, "gr-regex", TOPIC, 4)?;
        let regex = || join("gr-regex", "a", &[]).with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text("gr-top.*")));
        side.wait_for("the expression is resolved", |side| {
            let answer = side.quiet_beat(1, &regex())?;
            Ok(given(&answer).is_some_and(|given| given.iter().any(|(topic, _)| *topic == id)))
        })?;
        note_records(side)
    });
}
