//! Fetch sessions (KIP-227): made, gone on with, changed, ended, and everything wrong with them.

use anyhow::Result;
use compat_tests::batch::Batch;
use kafka_protocol::messages::fetch_request::{FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest};
use kafka_protocol::protocol::Message;

use crate::requests::{THEN, Topic, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, fetch, fetch_topic, from, topic_name};
use crate::side::{Side, compare};

/// Three partitions, two with a record.
fn filled(side: &mut Side, name: &str) -> Result<Topic> {
    let topic = Topic::new(name, side.topic(name, 3, &[])?);
    for partition in [0, 1] {
        append(side, &topic, partition)?;
    }
    Ok(topic)
}

fn append(side: &mut Side, topic: &Topic, partition: i32) -> Result<()> {
    side.append(topic, partition, &Batch::of_values(THEN, &[b"a record"]))
}

/// A request of session `id` with its `epoch`; -1 is none or the last, 0 a new one.
fn of_session(version: i16, id: i32, epoch: i32, topics: Vec<FetchTopic>) -> FetchRequest {
    fetch(version, topics).with_session_id(id).with_session_epoch(epoch)
}

fn forget(version: i16, topic: &Topic, partitions: &[i32]) -> Vec<ForgottenTopic> {
    let forgotten = ForgottenTopic::default().with_partitions(partitions.to_vec());
    vec![if version >= 13 { forgotten.with_topic_id(topic.id) } else { forgotten.with_topic(topic_name(&topic.name)) }]
}

#[test]
fn a_session() {
    compare(|side| {
        for version in 7..=FetchRequest::VERSIONS.max {
            let topic = filled(side, &format!("session-{version}"))?;
            let asked = |partitions| vec![fetch_topic(version, &topic, partitions)];
            let all = vec![from(0, 0), from(1, 0), from(2, 0)];
            let id = side.answer("made", version, &of_session(version, 0, 0, asked(all)))?.session_id;
            side.note("it has an id", format!("{}", id != 0));
            side.step("both have records still", version, &of_session(version, id, 1, Vec::new()))?;
            side.step("one goes on", version, &of_session(version, id, 2, asked(vec![from(0, 1)])))?;
            side.step("the other goes on", version, &of_session(version, id, 3, asked(vec![from(1, 1)])))?;
            side.step("nothing new", version, &of_session(version, id, 4, Vec::new()))?;
            append(side, &topic, 2)?;
            side.step("a record in 2", version, &of_session(version, id, 5, Vec::new()))?;
            side.step("2 goes on", version, &of_session(version, id, 6, asked(vec![from(2, 1)])))?;
            append(side, &topic, 0)?;
            append(side, &topic, 1)?;
            let forgotten = of_session(version, id, 7, Vec::new()).with_forgotten_topics_data(forget(version, &topic, &[0]));
            side.step("0 is forgotten", version, &forgotten)?;
            side.step("0 is back", version, &of_session(version, id, 8, asked(vec![from(0, 1), from(1, 2)])))?;
            let replaced = of_session(version, id, 9, asked(vec![from(0, 2)])).with_forgotten_topics_data(forget(version, &topic, &[0]));
            side.step("0 is forgotten and asked for at once", version, &replaced)?;
            side.step("out of range", version, &of_session(version, id, 10, asked(vec![from(1, 77)])))?;
            side.step("still out of range", version, &of_session(version, id, 11, Vec::new()))?;
            side.step("an unknown partition", version, &of_session(version, id, 12, asked(vec![from(9, 0)])))?;
            side.step("still an unknown partition", version, &of_session(version, id, 13, Vec::new()))?;
            side.step("ended", version, &of_session(version, id, -1, asked(vec![from(0, 0)])))?;
            side.step("gone on with after its end", version, &of_session(version, id, 14, Vec::new()))?;
        }
        Ok(())
    });
}

#[test]
fn wrong_sessions() {
    compare(|side| {
        for version in 7..=FetchRequest::VERSIONS.max {
            let topic = filled(side, &format!("session-wrong-{version}"))?;
            let asked = || vec![fetch_topic(version, &topic, vec![from(0, 0)])];
            side.step("an unknown id", version, &of_session(version, 123_456_789, 1, asked()))?;
            side.step("an unknown id to be ended", version, &of_session(version, 123_456_789, -1, asked()))?;
            side.step("an unknown id with epoch 0", version, &of_session(version, 123_456_789, 0, asked()))?;
            side.step("no id, epoch 1", version, &of_session(version, 0, 1, asked()))?;
            side.step("a negative id", version, &of_session(version, -5, 1, asked()))?;
            let id = side.answer("made", version, &of_session(version, 0, 0, asked()))?.session_id;
            side.step("a later epoch", version, &of_session(version, id, 2, Vec::new()))?;
            side.step("epoch 1", version, &of_session(version, id, 1, Vec::new()))?;
            side.step("epoch 1 again", version, &of_session(version, id, 1, Vec::new()))?;
            side.step("epoch -2", version, &of_session(version, id, -2, Vec::new()))?;
            side.step("epoch 2", version, &of_session(version, id, 2, Vec::new()))?;
            side.step("made anew in its place", version, &of_session(version, id, 0, asked()))?;
            side.step("the old one", version, &of_session(version, id, 3, Vec::new()))?;
            side.step("made with nothing", version, &of_session(version, 0, 0, Vec::new()))?;
        }
        Ok(())
    });
}

/// A session outlives its connection, and a topic in it that is deleted.
#[test]
fn a_session_without_its_topic() {
    compare(|side| {
        for version in [7, 12, 13, FetchRequest::VERSIONS.max] {
            let name = format!("session-gone-{version}");
            let topic = filled(side, &name)?;
            let asked = vec![fetch_topic(version, &topic, vec![from(0, 1), from(1, 1)])];
            let id = side.answer("made", version, &of_session(version, 0, 0, asked))?.session_id;
            append(side, &topic, 0)?;
            let mut other = side.connect()?;
            let mut answer = other.ask(version, &of_session(version, id, 1, Vec::new()))?;
            crate::masks::Masked::mask(&mut answer);
            side.note(format!("v{version} on another connection"), format!("{answer:#?}"));
            side.ask(5, &DeleteTopicsRequest::default().with_topic_names(vec![topic_name(&name)]).with_timeout_ms(30_000))?;
            side.wait_until_gone(&name)?;
            for (label, epoch) in [("its topic is deleted", 2), ("its topic is deleted still", 3)] {
                side.step_with(label, version, &of_session(version, id, epoch, Vec::new()), |answer| {
                    for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                        // Kafka's sessions remember the name that belonged to the id; ours says that nothing has the id. Clients ask for
                        // Metadata after either.
                        if partition.error_code == UNKNOWN_TOPIC_ID {
                            partition.error_code = UNKNOWN_TOPIC_OR_PARTITION;
                        }
                    }
                })?;
            }
        }
        Ok(())
    });
}
