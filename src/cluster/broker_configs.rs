//! What clients may do to brokers' configs while they run: from an image and changes to records and a reply. Changes nothing.
//!
//! A broker judges its own configs, and those of all brokers as they would be its own (`ConfigAdminManager.validateBrokerConfigChange`).

use super::{
    admin::{AdminError, Decision},
    alter_configs::ConfigChange,
    image::Image,
    record::Record,
};
use crate::{
    config::{ServerConfig, keys},
    types::BrokerId,
};

/// A broker whose configs change, or all of them (`None`); all or none of the configs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerChange {
    pub broker: Option<BrokerId>,
    pub change: ConfigChange,
}

impl Image {
    /// Changes the configs of brokers, each of which is named once. Those that are refused don't hinder the others.
    pub fn decide_alter_brokers(&self, server: &ServerConfig, changes: &[BrokerChange]) -> Decision<Vec<Result<(), AdminError>>> {
        let mut records = Vec::new();
        let mut decide = |BrokerChange { broker, change }: &BrokerChange| {
            let current = self.broker_configs.get(broker).cloned().unwrap_or_default();
            let overrides = change.on(current.clone(), keys::find)?;
            let mut then = self.layers();
            match broker {
                None => then.all_brokers = Some(&overrides),
                Some(_) => then.own = Some(&overrides),
            }
            server.check_layers(&overrides, self.layers(), then).map_err(|error| AdminError::Request(error.to_string()))?;
            if overrides != current {
                records.push(Record::BrokerConfigs { broker: *broker, overrides });
            }
            Ok(())
        };
        let reply = changes.iter().map(&mut decide).collect();
        Decision { records, reply }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::alter_configs::ConfigOp, *};
    use crate::{
        cluster::{Cluster, NewTopic, disk::MemoryDisk},
        log::io::Disk,
    };
    use std::sync::Arc;

    const RETENTION: &str = "log.retention.ms";

    fn set(broker: Option<i32>, key: &str, value: Option<&str>) -> BrokerChange {
        let op = value.map_or(ConfigOp::Delete, |value| ConfigOp::Set(value.to_owned()));
        BrokerChange { broker: broker.map(BrokerId), change: ConfigChange::Incremental(vec![(key.to_owned(), op)]) }
    }

    #[test]
    fn topics_go_by_what_brokers_are_set_to_at_once_and_after_a_restart() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let server = ServerConfig::default();
        let open = || {
            let cluster = Cluster::open(disk.clone(), &server).unwrap();
            cluster.register([]);
            cluster
        };
        let retention = |cluster: &Cluster, topic: &str| cluster.image().topic(topic).unwrap().config.retention_ms;
        let cluster = open();
        cluster.create_topics(&[NewTopic::with_defaults("t"), NewTopic::with_defaults("own")], false);
        cluster.alter_topic_config("own", &[("retention.ms".to_owned(), Some("77".to_owned()))], false).unwrap();
        let alter = |cluster: &Cluster, change| cluster.alter_brokers(&[change], false).remove(0).map_err(|error| error.to_string());
        assert_eq!(alter(&cluster, set(None, RETENTION, Some("5"))), Ok(()));
        assert_eq!((retention(&cluster, "t"), retention(&cluster, "own")), (5, 77));
        assert_eq!(cluster.alter_brokers(&[set(Some(1), RETENTION, Some("6"))], true), [Ok(())]);
        assert_eq!(retention(&cluster, "t"), 5, "a trial");
        assert_eq!(alter(&cluster, set(Some(1), RETENTION, Some("6"))), Ok(()));
        assert_eq!(retention(&cluster, "t"), 6);
        drop(cluster);
        let cluster = open();
        assert_eq!((retention(&cluster, "t"), retention(&cluster, "own")), (6, 77));
        cluster.create_topics(&[NewTopic::with_defaults("new")], false);
        assert_eq!(retention(&cluster, "new"), 6);
        assert_eq!(alter(&cluster, set(Some(1), RETENTION, None)), Ok(()));
        assert_eq!((retention(&cluster, "t"), retention(&cluster, "new")), (5, 5));
        assert_eq!(alter(&cluster, set(None, RETENTION, None)), Ok(()));
        assert_eq!(retention(&cluster, "t"), 604_800_000);
        assert_eq!(cluster.image().broker_configs.len(), 0);
        assert_eq!(alter(&cluster, set(None, "node.id", Some("2"))), Err("Cannot update these configs dynamically: [node.id]".to_owned()));
        assert!(alter(&cluster, set(None, "log.cleaner.threads", Some("3"))).unwrap_err().contains("more than double the current value 1"));
        let append = ConfigChange::Incremental(vec![("log.cleanup.policy".to_owned(), ConfigOp::Append("compact".to_owned()))]);
        assert_eq!(alter(&cluster, BrokerChange { broker: None, change: append }), Ok(()));
        assert!(cluster.image().topic("t").unwrap().config.cleanup_compact);
    }
}
