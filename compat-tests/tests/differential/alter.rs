//! IncrementalAlterConfigs and AlterConfigs of topics, and what DescribeConfigs says then.

use anyhow::Result;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, alter_configs_request};
use kafka_protocol::protocol::Message;

use crate::requests::text;
use crate::side::{Side, compare};

/// `ConfigResource.Type`.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// `AlterConfigOp.OpType`.
pub const SET: i8 = 0;
pub const DELETE: i8 = 1;
pub const APPEND: i8 = 2;
pub const SUBTRACT: i8 = 3;

pub type Op<'a> = (&'a str, i8, Option<&'a str>);

pub fn resource(kind: i8, name: &str, ops: &[Op<'_>]) -> AlterConfigsResource {
    let config =
        |(key, op, value): &Op<'_>| AlterableConfig::default().with_name(text(key)).with_config_operation(*op).with_value(value.map(text));
    AlterConfigsResource::default().with_resource_type(kind).with_resource_name(text(name)).with_configs(ops.iter().map(config).collect())
}

pub fn change(resources: Vec<AlterConfigsResource>) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest::default().with_resources(resources)
}

pub fn replace(kind: i8, name: &str, configs: &[(&str, Option<&str>)]) -> AlterConfigsRequest {
    let config = |(key, value): &(&str, Option<&str>)| {
        alter_configs_request::AlterableConfig::default().with_name(text(key)).with_value(value.map(text))
    };
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.iter().map(config).collect());
    AlterConfigsRequest::default().with_resources(vec![resource])
}

/// Kafka's controller answers before its brokers know: the look at the end is at what `expected` says, once it does.
fn look(side: &mut Side, label: &str, topic: &str, key: &str, expected: Option<&str>) -> Result<()> {
    let resource = DescribeConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text(topic));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource.with_configuration_keys(None)]);
    for _ in 0..600 {
        let answer = side.ask(4, &request)?;
        let mut configs = answer.results.iter().flat_map(|result| &result.configs);
        let set = configs.find(|config| &*config.name == key && config.config_source == 1).and_then(|config| config.value.as_deref());
        if set == expected {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    side.step(format!("what it has after {label}"), 4, &request).map(drop)
}

#[test]
fn of_a_topic() {
    compare(|side| {
        for version in IncrementalAlterConfigsRequest::VERSIONS.min..=IncrementalAlterConfigsRequest::VERSIONS.max {
            let name = format!("altered-{version}");
            side.topic(&name, 1, &[("flush.ms", "777")])?;
            let alter = |ops: &[Op<'_>]| change(vec![resource(TOPIC, &name, ops)]);
            let dry = alter(&[("retention.ms", SET, Some("1000000"))]).with_validate_only(true);
            side.step("a trial", version, &dry)?;
            side.step("set", version, &alter(&[("retention.ms", SET, Some("2000000")), ("segment.bytes", SET, Some("1048576"))]))?;
            look(side, "set", &name, "retention.ms", Some("2000000"))?;
            side.step("append", version, &alter(&[("cleanup.policy", APPEND, Some("compact"))]))?;
            look(side, "append", &name, "cleanup.policy", Some("delete,compact"))?;
            side.step("append again", version, &alter(&[("cleanup.policy", APPEND, Some("compact,delete"))]))?;
            side.step("subtract", version, &alter(&[("cleanup.policy", SUBTRACT, Some("delete,no.such"))]))?;
            look(side, "subtract", &name, "cleanup.policy", Some("compact"))?;
            let unset = [("retention.ms", DELETE, None), ("segment.ms", DELETE, None), ("no.such.config", DELETE, None)];
            side.step("delete, also what isn't set", version, &alter(&unset))?;
            look(side, "delete", &name, "retention.ms", None)?;
            side.step("nothing of it", version, &alter(&[]))?;
            side.step("no resources", version, &change(Vec::new()))?;
        }
        Ok(())
    });
}

#[test]
fn wrongly() {
    compare(|side| {
        side.topic("altered-wrongly", 1, &[])?;
        side.topic("altered-beside", 1, &[])?;
        for version in IncrementalAlterConfigsRequest::VERSIONS.min..=IncrementalAlterConfigsRequest::VERSIONS.max {
            let cases: &[(&str, &[Op<'_>])] = &[
                ("an unknown config", &[("no.such.config", SET, Some("1"))]),
                ("no number", &[("retention.ms", SET, Some("soon"))]),
                ("out of range", &[("segment.ms", SET, Some("0"))]),
                ("one good, one bad", &[("flush.ms", SET, Some("5")), ("segment.ms", SET, Some("0"))]),
                ("no policy", &[("cleanup.policy", SET, Some("burn"))]),
                ("append to what is no list", &[("retention.ms", APPEND, Some("1"))]),
                ("subtract from what is no list", &[("retention.ms", SUBTRACT, Some("1"))]),
                ("append to an unknown config", &[("no.such.config", APPEND, Some("1"))]),
                ("append what can't be", &[("cleanup.policy", APPEND, Some("burn"))]),
                ("append nothing", &[("cleanup.policy", APPEND, Some(""))]),
                ("no value", &[("retention.ms", SET, None), ("cleanup.policy", APPEND, None)]),
                ("one config twice", &[("retention.ms", SET, Some("1")), ("retention.ms", DELETE, None)]),
                ("conflicting lags", &[("min.compaction.lag.ms", SET, Some("10")), ("max.compaction.lag.ms", SET, Some("9"))]),
            ];
            for (label, ops) in cases {
                side.step(*label, version, &change(vec![resource(TOPIC, "altered-wrongly", ops)]))?;
                let dry = change(vec![resource(TOPIC, "altered-wrongly", ops)]).with_validate_only(true);
                side.step(format!("{label}, as a trial"), version, &dry)?;
            }
            let set = &[("flush.ms", SET, Some("5"))];
            let bad = &[("segment.ms", SET, Some("0"))];
            for name in ["altered-nowhere", "a b", "", "."] {
                side.step(format!("the topic {name:?}"), version, &change(vec![resource(TOPIC, name, set)]))?;
                side.step(format!("a bad value of the topic {name:?}"), version, &change(vec![resource(TOPIC, name, bad)]))?;
            }
            let twice = vec![resource(TOPIC, "altered-wrongly", set), resource(TOPIC, "altered-wrongly", &[])];
            side.step("one topic twice", version, &change(twice))?;
            let both = vec![resource(TOPIC, "altered-wrongly", bad), resource(TOPIC, "altered-beside", set)];
            side.step("one is fine, the other isn't", version, &change(both))?;
            side.step("another broker", version, &change(vec![resource(BROKER, "7", set)]))?;
            side.step("a broker that is no number", version, &change(vec![resource(BROKER, "one", set)]))?;
            side.step("of a broker what can't change", version, &change(vec![resource(BROKER, "1", &[("node.id", SET, Some("2"))])]))?;
            for kind in [0, 1, 3, 99] {
                side.step(format!("resources of type {kind}"), version, &change(vec![resource(kind, "x", set)]))?;
            }
        }
        look(side, "all that", "altered-beside", "flush.ms", Some("5"))?;
        look(side, "all that", "altered-wrongly", "flush.ms", None)
    });
}

#[test]
fn all_at_once() {
    compare(|side| {
        for version in AlterConfigsRequest::VERSIONS.min..=AlterConfigsRequest::VERSIONS.max {
            let name = format!("replaced-{version}");
            side.topic(&name, 1, &[("flush.ms", "777"), ("segment.ms", "888")])?;
            let alter = |configs: &[(&str, Option<&str>)]| replace(TOPIC, &name, configs);
            side.step("a trial", version, &alter(&[("retention.ms", Some("1000000"))]).with_validate_only(true))?;
            side.step("what stays and what comes", version, &alter(&[("flush.ms", Some("777")), ("retention.ms", Some("2000000"))]))?;
            look(side, "that", &name, "retention.ms", Some("2000000"))?;
            side.step("a bad one", version, &alter(&[("retention.ms", Some("soon"))]))?;
            side.step("an unknown one", version, &alter(&[("no.such.config", Some("1"))]))?;
            side.step("no value", version, &alter(&[("retention.ms", None)]))?;
            side.step("one twice", version, &alter(&[("retention.ms", Some("1")), ("retention.ms", Some("2"))]))?;
            side.step("a topic that isn't there", version, &replace(TOPIC, "replaced-nowhere", &[("flush.ms", Some("1"))]))?;
            side.step("a topic without a name", version, &replace(TOPIC, "", &[("flush.ms", Some("1"))]))?;
            side.step("another broker", version, &replace(BROKER, "7", &[]))?;
            for kind in [0, 3, 8, 99] {
                side.step(format!("resources of type {kind}"), version, &replace(kind, "1", &[]))?;
            }
            look(side, "what was refused", &name, "retention.ms", Some("2000000"))?;
            side.step("nothing at all", version, &alter(&[]))?;
            look(side, "nothing at all", &name, "retention.ms", None)?;
        }
        Ok(())
    });
}
