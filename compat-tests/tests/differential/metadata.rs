//! Metadata in all versions and forms.

use anyhow::Result;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::{Message, VersionRange};

use crate::requests::{NOBODY, named, text};
use crate::side::compare;

const VERSIONS: VersionRange = MetadataRequest::VERSIONS;

/// Of all topics, those of the script.
fn only(prefix: &'static str) -> impl Fn(&mut MetadataResponse) {
    move |answer| answer.topics.retain(|topic| topic.name.as_ref().is_some_and(|name| name.starts_with(prefix)))
}

#[test]
fn all_topics_or_none() {
    compare(|side| {
        side.topic("meta-all-1", 1, &[])?;
        side.topic("meta-all-2", 3, &[])?;
        for version in VERSIONS.min..=VERSIONS.max {
            if version >= 1 {
                let all = MetadataRequest::default().with_topics(None);
                side.step_with("all topics", version, &all, only("meta-all-"))?;
            }
            // In version 0 an empty array means all.
            let empty = MetadataRequest::default().with_topics(Some(Vec::new()));
            side.step_with("an empty array", version, &empty, only("meta-all-"))?;
        }
        Ok(())
    });
}

#[test]
fn topics_by_name() {
    compare(|side| {
        side.topic("meta-named", 2, &[])?;
        side.topic("meta-other", 1, &[])?;
        for version in VERSIONS.min..=VERSIONS.max {
            let ask = |names: &[&str]| {
                MetadataRequest::default()
                    .with_topics(Some(names.iter().map(|name| named(name)).collect()))
                    .with_allow_auto_topic_creation(version < 4)
            };
            side.step("one", version, &ask(&["meta-named"]))?;
            side.step("two", version, &ask(&["meta-named", "meta-other"]))?;
            side.step("the same twice", version, &ask(&["meta-named", "meta-named"]))?;
            if version >= 4 {
                side.step("one that isn't there", version, &ask(&["meta-nowhere"]))?;
                side.step("one of two is there", version, &ask(&["meta-named", "meta-nowhere"]))?;
            }
            for name in ["", ".", "..", "a b", "a/b", "größe"] {
                side.step(format!("the name {name:?}"), version, &ask(&[name]))?;
            }
            if version >= 4 {
                side.step("a name of 249 bytes", version, &ask(&[&"n".repeat(249)]))?;
            }
            side.step("a name of 250 bytes", version, &ask(&[&"n".repeat(250)]))?;
        }
        Ok(())
    });
}

#[test]
fn topics_by_id() {
    compare(|side| {
        let id = side.topic("meta-id", 2, &[])?;
        let by_id = |id| MetadataRequestTopic::default().with_topic_id(id).with_name(None);
        let ask =
            |topics: Vec<MetadataRequestTopic>| MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false);
        for version in 10..=VERSIONS.max {
            side.step("by its id", version, &ask(vec![by_id(id)]))?;
            side.step("an id of nobody", version, &ask(vec![by_id(NOBODY)]))?;
            side.step("two ids", version, &ask(vec![by_id(NOBODY), by_id(id)]))?;
            side.step("its id twice", version, &ask(vec![by_id(id), by_id(id)]))?;
            side.step("id and name", version, &ask(vec![by_id(id).with_name(Some(crate::requests::topic_name("meta-id")))]))?;
            side.step("an id and another's name", version, &ask(vec![by_id(id), named("meta-id")]))?;
            // From version 12 on Kafka trips over it, with an unknown server error.
            if version < 12 {
                side.step("neither", version, &ask(vec![MetadataRequestTopic::default().with_name(None)]))?;
            }
        }
        Ok(())
    });
}

#[test]
fn authorized_operations() {
    compare(|side| {
        side.topic("meta-auth", 1, &[])?;
        for version in 8..=VERSIONS.max {
            let ask = MetadataRequest::default()
                .with_topics(Some(vec![named("meta-auth"), named("meta-nowhere")]))
                .with_allow_auto_topic_creation(false)
                .with_include_topic_authorized_operations(true)
                .with_include_cluster_authorized_operations(version <= 10);
            side.step("both", version, &ask)?;
        }
        Ok(())
    });
}

/// A topic is made on first use, with the broker's defaults. (Kafka answers with an error until it is there, we at once: only the end counts.)
#[test]
fn auto_creation() {
    compare(|side| {
        for version in [0, 4, VERSIONS.max] {
            let name = format!("meta-auto-{version}");
            let ask = MetadataRequest::default().with_topics(Some(vec![named(&name)])).with_allow_auto_topic_creation(true);
            side.ask(version, &ask)?;
            side.wait_for_partitions(&name, 1)?;
            side.step("made", version, &ask)?;
        }
        for name in ["a b", "", "."] {
            let ask = MetadataRequest::default().with_topics(Some(vec![named(name)])).with_allow_auto_topic_creation(true);
            side.step(format!("of the name {:?}", text(name)), 9, &ask)?;
        }
        Result::Ok(())
    });
}
