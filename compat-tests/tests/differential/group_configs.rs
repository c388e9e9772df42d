//! Configs that a consumer group has of its own: set, refused, described, listed, and what its members are told by them.

use anyhow::Result;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest, ListConfigResourcesRequest};
use kafka_protocol::protocol::Message;

use crate::alter::{APPEND, DELETE, Op, SET, SUBTRACT, change, resource};
use crate::consumer_groups::{heartbeat, join};
use crate::groups::coordinated;
use crate::requests::text;
use crate::side::{Side, compare};

/// `ConfigResource.Type`.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;
const TYPES: [i8; 6] = [0, TOPIC, BROKER, 8, 16, GROUP];

/// Kafka's controller answers before its brokers know: the look is at what is `expected`, once it is there.
fn look(side: &mut Side, label: &str, group: &str, key: &str, expected: Option<&str>) -> Result<()> {
    let resource = DescribeConfigsResource::default().with_resource_type(GROUP).with_resource_name(text(group));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource.with_configuration_keys(None)]);
    side.wait_for(label, |side| {
        let answer = side.ask(4, &request)?;
        let mut configs = answer.results.iter().flat_map(|result| &result.configs);
        // `DescribeConfigsResponse.ConfigSource`: 8 is a group's own.
        let set = configs.find(|config| &*config.name == key && config.config_source == 8).and_then(|config| config.value.as_deref());
        Ok(set == expected)
    })?;
    for version in DescribeConfigsRequest::VERSIONS.min..=DescribeConfigsRequest::VERSIONS.max {
        side.step(format!("what it has after {label}"), version, &request)?;
    }
    side.step(format!("with synonyms after {label}"), 4, &request.with_include_synonyms(true))?;
    Ok(())
}

/// The groups of this script among the resources of each type, and of all.
fn listed(side: &mut Side, label: &str, prefix: &str) -> Result<()> {
    for version in ListConfigResourcesRequest::VERSIONS.min..=ListConfigResourcesRequest::VERSIONS.max {
        // Version 0 knows only client metrics, which there are none of.
        let asked: Vec<Vec<i8>> = if version == 0 {
            vec![Vec::new()]
        } else {
            TYPES.iter().map(|kind| vec![*kind]).chain([Vec::new(), vec![GROUP, BROKER], vec![GROUP, 99]]).collect()
        };
        for types in asked {
            let request = ListConfigResourcesRequest::default().with_resource_types(types.clone());
            side.step_with(format!("resources {types:?} after {label}"), version, &request, |answer| {
                answer.config_resources.retain(|found| {
                    found.resource_type != TOPIC && (found.resource_type != GROUP || found.resource_name.starts_with(prefix))
                });
            })?;
        }
    }
    Ok(())
}

#[test]
fn are_set_and_taken_back() {
    compare(|side| {
        coordinated(side, "gc-set")?;
        listed(side, "nothing", "gc-set")?;
        for version in IncrementalAlterConfigsRequest::VERSIONS.min..=IncrementalAlterConfigsRequest::VERSIONS.max {
            let group = format!("gc-set-{version}");
            let alter = |ops: &[Op<'_>]| change(vec![resource(GROUP, &group, ops)]);
            look(side, "nothing", &group, "consumer.session.timeout.ms", None)?;
            side.step("a trial", version, &alter(&[("consumer.session.timeout.ms", SET, Some("46000"))]).with_validate_only(true))?;
            side.step(
                "set",
                version,
                &alter(&[("consumer.session.timeout.ms", SET, Some("46000")), ("consumer.heartbeat.interval.ms", SET, Some("7000"))]),
            )?;
            look(side, "set", &group, "consumer.heartbeat.interval.ms", Some("7000"))?;
            listed(side, "set", "gc-set")?;
            let joined = side.quiet_beat(1, &join(&group, "me", &["gc-nowhere"]))?;
            let told = side.quiet_beat(1, &heartbeat(&group, "me", joined.member_epoch))?.heartbeat_interval_ms;
            // In a group that has just changed ours asks for heartbeats sooner.
            side.note("a member comes at least so often", format!("{}", (1..=7_000).contains(&told)));
            side.beat("it leaves", 1, &heartbeat(&group, "me", -1))?;
            side.step("an interval of its assignments", version, &alter(&[("consumer.assignment.interval.ms", SET, Some("2000"))]))?;
            look(side, "an interval", &group, "consumer.assignment.interval.ms", Some("2000"))?;
            side.step(
                "taken back",
                version,
                &alter(&[("consumer.heartbeat.interval.ms", DELETE, None), ("consumer.assignment.interval.ms", DELETE, None)]),
            )?;
            look(side, "taken back", &group, "consumer.heartbeat.interval.ms", None)?;
            side.step("the last taken back", version, &alter(&[("consumer.session.timeout.ms", DELETE, None)]))?;
            look(side, "all taken back", &group, "consumer.session.timeout.ms", None)?;
            listed(side, "all taken back", "gc-set")?;
        }
        Ok(())
    });
}

#[test]
fn are_refused() {
    compare(|side| {
        coordinated(side, "gc-bad")?;
        for version in IncrementalAlterConfigsRequest::VERSIONS.min..=IncrementalAlterConfigsRequest::VERSIONS.max {
            let alter = |ops: &[Op<'_>]| change(vec![resource(GROUP, "gc-bad", ops)]);
            let cases: &[(&str, i8, Option<&str>)] = &[
                ("no.such.config", SET, Some("1")),
                ("retention.ms", SET, Some("1")),
                ("", SET, Some("1")),
                ("consumer.session.timeout.ms", SET, None),
                ("consumer.session.timeout.ms", SET, Some("")),
                ("consumer.session.timeout.ms", SET, Some("soon")),
                ("consumer.session.timeout.ms", SET, Some("44999")),
                ("consumer.session.timeout.ms", SET, Some("60001")),
                ("consumer.session.timeout.ms", SET, Some("0")),
                ("consumer.session.timeout.ms", SET, Some("99999999999")),
                ("consumer.heartbeat.interval.ms", SET, Some("4999")),
                ("consumer.heartbeat.interval.ms", SET, Some("15001")),
                ("consumer.assignment.interval.ms", SET, Some("-1")),
                ("consumer.assignment.interval.ms", SET, Some("15001")),
                ("consumer.session.timeout.ms", APPEND, Some("46000")),
                ("consumer.session.timeout.ms", SUBTRACT, Some("46000")),
                ("no.such.config", DELETE, None),
            ];
            for case in cases {
                side.step(format!("{case:?}"), version, &alter(&[*case]))?;
            }
            let twice = [("consumer.session.timeout.ms", SET, Some("46000")), ("consumer.session.timeout.ms", DELETE, None)];
            side.step("the same twice", version, &alter(&twice))?;
            side.step(
                "a group without a name",
                version,
                &change(vec![resource(GROUP, "", &[("consumer.session.timeout.ms", SET, Some("46000"))])]),
            )?;
            side.step("nothing", version, &alter(&[]))?;
        }
        look(side, "all that", "gc-bad", "consumer.session.timeout.ms", None)?;
        let named = |name: &str| DescribeConfigsResource::default().with_resource_type(GROUP).with_resource_name(text(name));
        for (what, resource) in [
            ("a group without a name", named("").with_configuration_keys(None)),
            ("some", named("gc-bad").with_configuration_keys(Some(vec![text("consumer.session.timeout.ms"), text("no.such.config")]))),
            ("none", named("gc-bad").with_configuration_keys(Some(Vec::new()))),
        ] {
            side.step(format!("describe {what}"), 4, &DescribeConfigsRequest::default().with_resources(vec![resource]))?;
        }
        Ok(())
    });
}
