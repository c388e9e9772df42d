//! DescribeConfigs of topics and brokers.

use anyhow::Result;
use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::protocol::Message;

use crate::requests::text;
use crate::side::compare;

/// `ConfigResource.Type`.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn resource(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResource {
    let keys = keys.map(|keys| keys.iter().map(|key| text(key)).collect());
    DescribeConfigsResource::default().with_resource_type(kind).with_resource_name(text(name)).with_configuration_keys(keys)
}

fn ask(resources: Vec<DescribeConfigsResource>) -> DescribeConfigsRequest {
    DescribeConfigsRequest::default().with_resources(resources)
}

#[test]
fn of_a_topic() {
    compare(|side| {
        side.topic("conf-plain", 1, &[])?;
        side.topic("conf-set", 1, &[("retention.ms", "86400000"), ("cleanup.policy", "compact"), ("compression.type", "zstd")])?;
        for version in DescribeConfigsRequest::VERSIONS.min..=DescribeConfigsRequest::VERSIONS.max {
            for name in ["conf-plain", "conf-set"] {
                side.step(format!("all of {name}"), version, &ask(vec![resource(TOPIC, name, None)]))?;
            }
            let some = Some(&["retention.ms", "segment.bytes", "no.such.config"][..]);
            side.step("some", version, &ask(vec![resource(TOPIC, "conf-set", some)]))?;
            side.step("an empty array of keys", version, &ask(vec![resource(TOPIC, "conf-set", Some(&[]))]))?;
            side.step("with synonyms", version, &ask(vec![resource(TOPIC, "conf-set", None)]).with_include_synonyms(true))?;
            if version >= 3 {
                side.step("with documentation", version, &ask(vec![resource(TOPIC, "conf-set", None)]).with_include_documentation(true))?;
            }
        }
        Ok(())
    });
}

#[test]
fn of_what_is_not_there() {
    compare(|side| {
        side.topic("conf-there", 1, &[])?;
        for version in DescribeConfigsRequest::VERSIONS.min..=DescribeConfigsRequest::VERSIONS.max {
            let key = Some(&["retention.ms"][..]);
            side.step("nothing", version, &ask(Vec::new()))?;
            side.step("an unknown topic", version, &ask(vec![resource(TOPIC, "conf-nowhere", None)]))?;
            side.step("names that can't be", version, &ask(vec![resource(TOPIC, "a b", None), resource(TOPIC, "", None)]))?;
            side.step(
                "one of two is there",
                version,
                &ask(vec![resource(TOPIC, "conf-nowhere", None), resource(TOPIC, "conf-there", key)]),
            )?;
            side.step("another broker", version, &ask(vec![resource(BROKER, "7", None)]))?;
            side.step("a broker that is no number", version, &ask(vec![resource(BROKER, "one", None)]))?;
            for kind in [0, 1, 3, 99] {
                side.step(format!("resources of type {kind}"), version, &ask(vec![resource(kind, "x", None)]))?;
            }
        }
        Result::Ok(())
    });
}

/// The keys that both have with the same meaning; the others of a broker are its own.
#[test]
fn of_a_broker() {
    const SHARED: &[&str] = &[
        "auto.create.topics.enable",
        "compression.type",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.segment.bytes",
        "max.connections",
        "producer.id.expiration.ms",
        "num.recovery.threads.per.data.dir",
        "transaction.partition.verification.enable",
        "max.connections.per.ip",
        "message.max.bytes",
        "node.id",
        "num.partitions",
        "queued.max.request.bytes",
        "socket.request.max.bytes",
        "no.such.config",
    ];
    compare(|side| {
        for version in DescribeConfigsRequest::VERSIONS.min..=DescribeConfigsRequest::VERSIONS.max {
            side.step("shared keys", version, &ask(vec![resource(BROKER, "1", Some(SHARED))]))?;
            let synonyms = ask(vec![resource(BROKER, "1", Some(SHARED))]).with_include_synonyms(true);
            side.step("shared keys with synonyms", version, &synonyms)?;
            // The defaults of all brokers: none are set.
            side.step("of all brokers", version, &ask(vec![resource(BROKER, "", None)]))?;
        }
        Result::Ok(())
    });
}
