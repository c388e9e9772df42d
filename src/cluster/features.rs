//! Features of the cluster (KIP-584): which versions of a protocol this build has, and at which level the cluster uses them. What a level
//! means is its owner's business; a client finds it in ApiVersions and speaks accordingly.
//!
//! Level 0 is the behaviour without the feature. A feature whose level was never set is at its default.

use super::{admin::Decision, image::Image, record::Record};
use std::{collections::BTreeMap, fmt};

/// A feature that this build has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    pub name: &'static str,
    /// The highest level; the lowest is 0.
    pub max: i16,
    /// The level of a cluster that never set one.
    pub default: i16,
}

/// How transactions end (KIP-890): 1 for records that have room for it, 2 for an epoch of its own for each transaction.
pub const TRANSACTION_VERSION: Feature = Feature { name: "transaction.version", max: 2, default: 2 };

/// Which protocols groups have: 1 for the one of KIP-848 beside the classic one. Clients ask for its APIs, not for this; Kafka's tools show it.
pub const GROUP_VERSION: Feature = Feature { name: "group.version", max: 1, default: 1 };

/// Every feature, by name.
pub const FEATURES: &[Feature] = &[GROUP_VERSION, TRANSACTION_VERSION];

/// The levels that were set, by name, and how often that was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    pub epoch: i64,
    pub set: BTreeMap<String, i16>,
}

impl Levels {
    /// A feature's level now.
    pub fn of(&self, feature: &Feature) -> i16 {
        // What a newer build set is as high as this one goes.
        self.set.get(feature.name).map_or(feature.default, |level| (*level).clamp(0, feature.max))
    }
}

/// `FeatureUpdate.UpgradeType`, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeType {
    Unknown,
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

impl UpgradeType {
    pub fn from_code(code: i8) -> Self {
        match code {
            1 => Self::Upgrade,
            2 => Self::SafeDowngrade,
            3 => Self::UnsafeDowngrade,
            _ => Self::Unknown,
        }
    }
}

/// A feature's new level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeatureUpdate {
    pub name: String,
    pub level: i16,
    pub upgrade_type: UpgradeType,
}

/// Why levels are not set; the words are Kafka's (`FeatureControlManager`).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid update version {level} for feature {name}. {why}")]
pub struct InvalidUpdate {
    pub name: String,
    pub level: i16,
    pub why: String,
}

/// The levels that a feature can have.
struct Range(i16);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { write!(f, "0") } else { write!(f, "0-{}", self.0) }
    }
}

impl Image {
    /// The level of `transaction.version`.
    pub fn transaction_version(&self) -> i16 {
        self.features.of(&TRANSACTION_VERSION)
    }

    /// Sets features' levels: all or none.
    pub fn decide_update_features(&self, updates: &[FeatureUpdate]) -> Decision<Result<(), InvalidUpdate>> {
        let mut levels = self.features.clone();
        for update in updates {
            if let Err(why) = self.check(update) {
                let error = InvalidUpdate { name: update.name.clone(), level: update.level, why };
                return Decision { records: Vec::new(), reply: Err(error) };
            }
            levels.set.insert(update.name.clone(), update.level);
        }
        if levels.set == self.features.set {
            return Decision { records: Vec::new(), reply: Ok(()) };
        }
        levels.epoch = levels.epoch.saturating_add(1);
        Decision { records: vec![Record::Features { levels }], reply: Ok(()) }
    }

    fn check(&self, update: &FeatureUpdate) -> Result<(), String> {
        let FeatureUpdate { name, level, upgrade_type } = update;
        if *upgrade_type == UpgradeType::Unknown {
            return Err("The controller does not support the given upgrade type.".to_owned());
        }
        if *level < 0 {
            return Err("A feature version cannot be less than 0.".to_owned());
        }
        let controller = format!("Local controller {}", self.node_id);
        let Some(feature) = FEATURES.iter().find(|feature| feature.name == name) else {
            // Level 0 of a feature that isn't there is what there is.
            return if *level == 0 { Ok(()) } else { Err(format!("{controller} does not support this feature.")) };
        };
        if *level > feature.max {
            return Err(format!("{controller} only supports versions {}", Range(feature.max)));
        }
        let now = self.features.of(feature);
        let upgrades = *upgrade_type == UpgradeType::Upgrade;
        if *level < now && upgrades {
            let why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.";
            return Err(why.to_owned());
        }
        if *level > now && !upgrades {
            return Err("Can't downgrade to a newer version.".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::{Cluster, disk::MemoryDisk},
        config::ServerConfig,
    };
    use std::sync::Arc;

    fn update(name: &str, level: i16, upgrade_type: UpgradeType) -> FeatureUpdate {
        FeatureUpdate { name: name.to_owned(), level, upgrade_type }
    }

    fn open(disk: &Arc<MemoryDisk>) -> Cluster {
        Cluster::open(disk.clone(), &ServerConfig::default()).unwrap()
    }

    #[test]
    fn levels_are_set_all_or_none_and_outlive_restarts() {
        let disk = Arc::new(MemoryDisk::default());
        let cluster = open(&disk);
        let level = |cluster: &Cluster| cluster.image().features.of(&TRANSACTION_VERSION);
        assert_eq!((level(&cluster), cluster.image().features.epoch), (2, 0));
        let down = update("transaction.version", 0, UpgradeType::SafeDowngrade);
        cluster.update_features(std::slice::from_ref(&down), true).unwrap();
        assert_eq!(level(&cluster), 2, "only tried");
        cluster.update_features(&[down.clone(), update("no.such", 1, UpgradeType::Upgrade)], false).unwrap_err();
        assert_eq!(level(&cluster), 2);
        cluster.update_features(std::slice::from_ref(&down), false).unwrap();
        cluster.update_features(&[down], false).unwrap();
        assert_eq!((level(&cluster), cluster.image().features.epoch), (0, 1), "the second one changed nothing");
        drop(cluster);
        let again = open(&disk);
        assert_eq!((level(&again), again.image().features.epoch), (0, 1));
        let mut image = Image::new(String::new(), again.image().node_id);
        again.image().to_records().iter().for_each(|record| image.apply(&crate::config::TopicDefaults::default(), record));
        assert_eq!(image.features, again.image().features, "from a snapshot too");
    }

    #[test]
    fn what_cannot_be_is_refused_in_kafkas_words() {
        let cluster = open(&Arc::default());
        let why = |name, level, how| cluster.update_features(&[update(name, level, how)], false).unwrap_err().to_string();
        let node = cluster.image().node_id;
        let t = TRANSACTION_VERSION.name;
        assert_eq!(
            why(t, 3, UpgradeType::Upgrade),
            format!("Invalid update version 3 for feature transaction.version. Local controller {node} only supports versions 0-2")
        );
        assert!(why(t, 1, UpgradeType::Upgrade).ends_with("either safe or unsafe downgrade."));
        assert!(why(t, -1, UpgradeType::Upgrade).ends_with("A feature version cannot be less than 0."));
        assert!(why(t, 1, UpgradeType::Unknown).ends_with("does not support the given upgrade type."));
        assert!(why("no.such", 1, UpgradeType::Upgrade).ends_with("does not support this feature."));
        cluster.update_features(&[update(t, 1, UpgradeType::UnsafeDowngrade)], false).unwrap();
        assert!(why(t, 2, UpgradeType::SafeDowngrade).ends_with("Can't downgrade to a newer version."));
    }
}
