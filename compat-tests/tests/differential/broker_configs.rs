//! IncrementalAlterConfigs and AlterConfigs of brokers while they run, and what DescribeConfigs says then.
//!
//! Scripts share the brokers: what is set here, and really set, is of one broker and no topic's default, so that no other script sees it. What would
//! show elsewhere is only tried.

use anyhow::Result;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest};
use kafka_protocol::protocol::Message;

use crate::alter::{APPEND, DELETE, Op, SET, SUBTRACT, change, replace, resource};
use crate::requests::text;
use crate::side::{Side, compare};

/// `ConfigResource.Type` and `ConfigSource`.
const BROKER: i8 = 4;
const DYNAMIC_BROKER: i8 = 2;
const BACKOFF: &str = "log.cleaner.backoff.ms";

fn ask() -> DescribeConfigsRequest {
    let keys = [BACKOFF, "log.cleaner.threads", "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second"].map(text).to_vec();
    let resource = DescribeConfigsResource::default().with_resource_type(BROKER).with_resource_name(text("1"));
    DescribeConfigsRequest::default().with_resources(vec![resource.with_configuration_keys(Some(keys))]).with_include_synonyms(true)
}

/// Kafka's controller answers before its brokers know.
fn look(side: &mut Side, label: &str, expected: Option<&str>) -> Result<()> {
    for _ in 0..600 {
        let answer = side.ask(4, &ask())?;
        let mut configs = answer.results.iter().flat_map(|result| &result.configs);
        let set = configs.find(|config| &*config.name == BACKOFF && config.config_source == DYNAMIC_BROKER);
        if set.and_then(|config| config.value.as_deref()) == expected {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    side.step(format!("what it has after {label}"), 4, &ask()).map(drop)
}

#[test]
fn of_one_broker() {
    compare(|side| {
        for version in IncrementalAlterConfigsRequest::VERSIONS.min..=IncrementalAlterConfigsRequest::VERSIONS.max {
            let alter = |ops: &[Op<'_>]| change(vec![resource(BROKER, "1", ops)]);
            side.step("a trial", version, &alter(&[(BACKOFF, SET, Some("14999"))]).with_validate_only(true))?;
            let set = [
                (BACKOFF, SET, Some("14000")),
                ("log.cleaner.threads", SET, Some("2")),
                ("log.cleaner.io.buffer.size", SET, Some("600000")),
            ];
            side.step("set", version, &alter(&set))?;
            look(side, "set", Some("14000"))?;
            side.step("too many threads", version, &alter(&[("log.cleaner.threads", SET, Some("5"))]))?;
            side.step("no thread", version, &alter(&[("log.cleaner.threads", SET, Some("0"))]))?;
            side.step("nothing of it", version, &alter(&[]))?;
            side.step("one bad, one good", version, &alter(&[(BACKOFF, SET, Some("1")), ("log.cleaner.threads", SET, Some("many"))]))?;
            look(side, "what was refused", Some("14000"))?;
            side.step("unset", version, &alter(&[(BACKOFF, DELETE, None), ("log.cleaner.threads", DELETE, None)]))?;
            look(side, "unset", None)?;
            side.step("unset what isn't set", version, &alter(&[(BACKOFF, DELETE, None)]))?;
        }
        for version in AlterConfigsRequest::VERSIONS.min..=AlterConfigsRequest::VERSIONS.max {
            side.step("all that it has", version, &replace(BROKER, "1", &[(BACKOFF, Some("13000"))]))?;
            look(side, "all", Some("13000"))?;
            side.step("nothing", version, &replace(BROKER, "1", &[]))?;
            look(side, "nothing", None)?;
            side.step("what can't change", version, &replace(BROKER, "1", &[("node.id", Some("1"))]))?;
            side.step("a bad value", version, &replace(BROKER, "", &[(BACKOFF, Some("soon"))]))?;
        }
        Ok(())
    });
}

#[test]
fn tried_of_one_and_of_all() {
    compare(|side| {
        let cases: &[(&str, &[Op<'_>])] = &[
            ("retention", &[("log.retention.ms", SET, Some("1000"))]),
            ("for ever", &[("log.retention.ms", SET, Some("-1"))]),
            ("no retention", &[("log.retention.ms", SET, Some("0"))]),
            ("no number", &[("log.retention.ms", SET, Some("soon"))]),
            ("out of range", &[("log.segment.bytes", SET, Some("1"))]),
            ("hours", &[("log.retention.hours", SET, Some("1"))]),
            ("what can't change", &[("node.id", SET, Some("2"))]),
            ("one that can, one that can't", &[("log.retention.ms", SET, Some("1000")), ("num.partitions", SET, Some("2"))]),
            ("no policy", &[("log.cleanup.policy", SET, Some("burn"))]),
            ("append to a list", &[("log.cleanup.policy", APPEND, Some("compact"))]),
            ("subtract from a list", &[("log.cleanup.policy", SUBTRACT, Some("delete"))]),
            ("append to what is no list", &[("log.retention.ms", APPEND, Some("1"))]),
            ("too little memory", &[("log.cleaner.dedupe.buffer.size", SET, Some("1000"))]),
            ("how long producers are remembered", &[("producer.id.expiration.ms", SET, Some("5000"))]),
            ("that not at all", &[("producer.id.expiration.ms", SET, Some("0"))]),
            ("more threads that recover", &[("num.recovery.threads.per.data.dir", SET, Some("4"))]),
            ("too many threads that recover", &[("num.recovery.threads.per.data.dir", SET, Some("5"))]),
            ("no thread that recovers", &[("num.recovery.threads.per.data.dir", SET, Some("0"))]),
            ("whether transactions are verified", &[("transaction.partition.verification.enable", SET, Some("false"))]),
            ("that said badly", &[("transaction.partition.verification.enable", SET, Some("perhaps"))]),
            (
                "a throttle",
                &[("leader.replication.throttled.rate", SET, Some("5")), ("follower.replication.throttled.rate", SET, Some("0"))],
            ),
            ("a throttle of moves", &[("replica.alter.log.dirs.io.max.bytes.per.second", SET, Some("5"))]),
            ("a negative throttle", &[("replica.alter.log.dirs.io.max.bytes.per.second", SET, Some("-1"))]),
            ("no throttle", &[("leader.replication.throttled.rate", DELETE, None)]),
            ("append to a throttle", &[("leader.replication.throttled.rate", APPEND, Some("5"))]),
            ("no value", &[(BACKOFF, SET, None)]),
            ("one config twice", &[(BACKOFF, SET, Some("1")), (BACKOFF, DELETE, None)]),
        ];
        for version in IncrementalAlterConfigsRequest::VERSIONS.min..=IncrementalAlterConfigsRequest::VERSIONS.max {
            for name in ["1", ""] {
                for (label, ops) in cases {
                    let tried = change(vec![resource(BROKER, name, ops)]).with_validate_only(true);
                    side.step(format!("{label}, of the broker {name:?}"), version, &tried)?;
                }
            }
        }
        Ok(())
    });
}
