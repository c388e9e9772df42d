//! What clients may do to groups' configs: from an image and changes to records and a reply. Changes nothing.
//!
//! A group need not be there to have configs (`GroupConfigManager`): they wait for it, and stay when it goes.

use super::{
    admin::{AdminError, Decision},
    alter_configs::ConfigChange,
    image::Image,
    record::Record,
};
use crate::config::{GroupDefaults, group_keys};
use std::collections::BTreeMap;

/// A group whose configs change; all or none of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupChange {
    pub group: String,
    pub change: ConfigChange,
}

impl Image {
    /// Changes the configs of some groups, each of which is named once. Those that are refused don't hinder the others.
    pub fn decide_alter_groups(&self, defaults: &GroupDefaults, changes: &[GroupChange]) -> Decision<Vec<Result<(), AdminError>>> {
        let mut records = Vec::new();
        let mut decide = |change: &GroupChange| {
            let current = self.group_overrides(&change.group);
            let overrides =
                change.change.on(current.cloned().unwrap_or_default(), |name| group_keys::find(name).map(|group| &group.key))?;
            if change.group.is_empty() {
                return Err(AdminError::Request("Default group resources are not allowed.".to_owned()));
            }
            defaults.resolve(&overrides)?;
            if current.is_none_or(|current| *current != overrides) && (current.is_some() || !overrides.is_empty()) {
                records.push(Record::GroupConfigs { group: change.group.clone(), overrides });
            }
            Ok(())
        };
        let reply = changes.iter().map(&mut decide).collect();
        Decision { records, reply }
    }

    /// The configs that were set on a group.
    pub fn group_overrides(&self, group: &str) -> Option<&BTreeMap<String, String>> {
        self.groups.get(group)
    }

    /// Every group that has configs of its own.
    pub fn groups_with_configs(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.groups.iter().map(|(group, overrides)| (group.as_str(), overrides))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::alter_configs::ConfigOp, *};
    use crate::{
        cluster::{Cluster, disk::MemoryDisk},
        config::ServerConfig,
        log::io::Disk,
    };
    use std::sync::Arc;

    fn set(group: &str, key: &str, value: Option<&str>) -> GroupChange {
        let op = value.map_or(ConfigOp::Delete, |value| ConfigOp::Set(value.to_owned()));
        GroupChange { group: group.to_owned(), change: ConfigChange::Incremental(vec![(key.to_owned(), op)]) }
    }

    #[test]
    fn a_groups_configs_are_kept_until_they_are_unset() {
        const SESSION: &str = "consumer.session.timeout.ms";
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let open = || Cluster::open(disk.clone(), &ServerConfig::default()).unwrap();
        let shown = |cluster: &Cluster| cluster.image().group_overrides("g").and_then(|all| all.get(SESSION)).cloned();
        let cluster = open();
        assert_eq!(cluster.alter_groups(&[set("g", SESSION, Some("50000"))], true), [Ok(())]);
        assert_eq!(shown(&cluster), None, "a trial");
        assert_eq!(cluster.alter_groups(&[set("g", SESSION, Some("50000"))], false), [Ok(())]);
        assert_eq!(shown(&cluster).as_deref(), Some("50000"));
        drop(cluster);
        let cluster = open();
        assert_eq!(shown(&cluster).as_deref(), Some("50000"));
        assert_eq!(cluster.alter_groups(&[set("g", SESSION, None)], false), [Ok(())]);
        assert_eq!(cluster.image().groups_with_configs().count(), 0);
        let why = |change| cluster.alter_groups(&[change], false).remove(0).unwrap_err().to_string();
        assert_eq!(why(set("", SESSION, Some("50000"))), "Default group resources are not allowed.");
        assert_eq!(why(set("g", "segment.ms", Some("1"))), "Unknown group config name: segment.ms");
        assert!(why(set("g", SESSION, Some("1"))).contains("group.consumer.min.session.timeout.ms"));
    }
}
