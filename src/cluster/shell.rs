//! The shell around the metadata: one change at a time is decided, journalled and synced, put into effect and only then seen.
//!
//! Reads never wait. Changes block on the disk: callers on an event loop hand them to a blocking thread.

use super::{
    admin::{AdminError, Decision, MorePartitions, NewTopic, Settings},
    adopt::{FoundPartition, Verdict},
    alter_configs::{ConfigChange, ConfigOp, TopicChange},
    broker_configs::BrokerChange,
    features::{FeatureUpdate, InvalidUpdate},
    group_configs::GroupChange,
    image::{Broker, Image, Topic},
    journal::{Journal, JournalError},
    meta::{self, MetaError},
    record::Record,
};
use crate::{
    config::{HostPort, ServerConfig},
    log::io::Disk,
    types::{PartitionIndex, ProducerId, TopicId},
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    ops::Range,
    path::PathBuf,
    sync::{Arc, OnceLock},
};
use tokio::sync::watch;

/// An answer for each part of a request, in its order.
pub type Replies = Vec<Result<Arc<Topic>, AdminError>>;

/// Why the metadata can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error("the metadata journal is of cluster {journal}, the data directories are of cluster {directories}")]
    ClusterId { journal: String, directories: String },
    #[error("the metadata journal is in {}, not in {}: set metadata.log.dir to that directory, or name it first in log.dirs", there.display(), expected.display())]
    JournalElsewhere { there: PathBuf, expected: PathBuf },
    #[error("make {}: {error}", dir.display())]
    Dir { dir: PathBuf, error: std::io::Error },
}

/// Why features' levels were not set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpdateFeaturesError {
    #[error(transparent)]
    Invalid(#[from] InvalidUpdate),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// What a change means for the partitions' logs.
#[derive(Clone, Debug)]
pub enum Change {
    /// Partitions from `first` on are new. Told before the image shows them, so that they can be used as soon as they are seen.
    Created { topic: Arc<Topic>, first: PartitionIndex },
    /// Told after the image shows it.
    Configured { topic: Arc<Topic> },
    /// Told after the image no longer shows it.
    Deleted { topic: Arc<Topic> },
}

/// Who puts changes into effect: the broker, on its logs. Called while the next change waits, so it must not make one itself.
pub trait Publisher: Send + Sync {
    /// An error says why the change could not be put into effect; the client that asked for a creation is told.
    fn publish(&self, change: &Change) -> Result<(), String>;
}

/// The metadata, open.
pub struct Cluster {
    image: ArcSwap<Image>,
    shown: watch::Sender<Arc<Image>>,
    /// Whoever holds it may change the image.
    journal: Mutex<Journal>,
    /// The rest of the block of producer ids that this broker has taken.
    producer_ids: Mutex<Range<i64>>,
    settings: Settings,
    /// What the broker was started with.
    server: ServerConfig,
    publisher: OnceLock<Arc<dyn Publisher>>,
    /// Bytes of an unfinished change that were cut off the journal when it was opened.
    pub journal_cut_bytes: u64,
}

impl Cluster {
    /// Opens or founds the metadata. Makes the directories if they aren't there; checks and writes their `meta.properties`.
    pub fn open(disk: Arc<dyn Disk>, config: &ServerConfig) -> Result<Self, ClusterError> {
        let mut dirs = config.log_dirs.clone();
        dirs.push(config.metadata_log_dir.clone());
        for dir in &dirs {
            disk.create_dir_all(dir).map_err(|error| ClusterError::Dir { dir: dir.clone(), error })?;
        }
        // Founding a second history beside the first would lose topics' configs and give producer ids out again.
        if !Journal::is_in(&*disk, &config.metadata_log_dir)
            && let Some(there) = config.log_dirs.iter().find(|dir| Journal::is_in(&*disk, dir))
        {
            return Err(ClusterError::JournalElsewhere { there: there.clone(), expected: config.metadata_log_dir.clone() });
        }
        let of_directories = meta::cluster_id(&*disk, &dirs, config.node_id)?;
        let (mut journal, replay) = Journal::open(disk.clone(), &config.metadata_log_dir)?;
        let mut image = Image::new(String::new(), config.node_id);
        replay.records.iter().for_each(|record| image.apply(&config.topic_defaults, record));
        if image.cluster_id.is_empty() {
            let cluster_id = of_directories.clone().unwrap_or_else(|| random_id().to_string());
            let record = Record::Cluster { cluster_id };
            journal.append(std::slice::from_ref(&record))?;
            image.apply(&config.topic_defaults, &record);
        }
        if let Some(directories) = of_directories.filter(|id| *id != image.cluster_id) {
            return Err(ClusterError::ClusterId { journal: image.cluster_id, directories });
        }
        meta::write(&*disk, &dirs, &image.cluster_id, config.node_id, random_id)?;
        image.brokers.insert(config.node_id, Broker { rack: config.rack.clone(), ..Broker::default() });
        let image = Arc::new(image);
        let settings = Settings {
            num_partitions: config.num_partitions,
            default_replication_factor: config.default_replication_factor,
            topic_defaults: Arc::new(config.topic_defaults.clone()),
            group_defaults: config.group_consumer.defaults.clone(),
        };
        Ok(Self {
            image: ArcSwap::from(image.clone()),
            shown: watch::Sender::new(image),
            journal: Mutex::new(journal),
            producer_ids: Mutex::new(0..0),
            settings,
            server: config.clone(),
            publisher: OnceLock::new(),
            journal_cut_bytes: replay.cut_bytes,
        })
    }

    /// What is so now. Cheap, and safe to keep.
    pub fn image(&self) -> Arc<Image> {
        self.image.load_full()
    }

    /// What is so now, for a look: without touching a count that other threads share.
    pub fn look(&self) -> arc_swap::Guard<Arc<Image>> {
        self.image.load()
    }

    /// Every image that is shown from now on, as far as its reader keeps up.
    pub fn images(&self) -> watch::Receiver<Arc<Image>> {
        self.shown.subscribe()
    }

    fn show(&self, image: Arc<Image>) {
        self.image.store(image.clone());
        self.shown.send_replace(image);
    }

    /// From now on every change is told to this one. The first call counts.
    pub fn publish_to(&self, publisher: Arc<dyn Publisher>) {
        let _ = self.publisher.set(publisher);
    }

    /// Where clients reach this broker, by listener name, once its listeners are bound.
    pub fn register(&self, endpoints: impl IntoIterator<Item = (String, HostPort)>) {
        let _one_at_a_time = self.journal.lock();
        let mut image = Image::clone(&self.image());
        let node_id = image.node_id;
        image.brokers.entry(node_id).or_default().endpoints = endpoints.into_iter().collect();
        self.show(Arc::new(image));
    }

    /// Creates topics. With `validate_only` nothing is created, and the answers are what would be.
    pub fn create_topics(&self, topics: &[NewTopic], validate_only: bool) -> Replies {
        let ids: Vec<TopicId> = topics.iter().map(|_| random_id()).collect();
        let mut journal = self.journal.lock();
        let decision = self.look().decide_create_topics(&self.settings, topics, &ids);
        if validate_only {
            return decision.reply;
        }
        self.enact_creation(&mut journal, decision, |_| PartitionIndex(0))
    }

    /// Adds partitions. The answers are the topics as they were before.
    pub fn create_partitions(&self, topics: &[MorePartitions], validate_only: bool) -> Replies {
        let mut journal = self.journal.lock();
        let decision = self.look().decide_create_partitions(topics);
        if validate_only {
            return decision.reply;
        }
        let first = |before: &Topic| PartitionIndex(i32::try_from(before.partitions.len()).unwrap_or(i32::MAX));
        self.enact_creation(&mut journal, decision, first)
    }

    /// Deletes topics. The answers are what was deleted.
    pub fn delete_topics(&self, ids: &[TopicId]) -> Replies {
        let mut journal = self.journal.lock();
        let decision = self.look().decide_delete_topics(ids);
        let (reply, gone) = self.enact(&mut journal, decision, |topic| Change::Deleted { topic });
        if self.publisher.get().is_some()
            && let Err(error) = self.forget_in(&mut journal, &gone)
        {
            tracing::warn!(%error, "deleted topics are remembered until the next start");
        }
        reply
    }

    /// Sets and unsets configs of a topic; all or none.
    pub fn alter_topic_config(
        &self,
        name: &str,
        changes: &[(String, Option<String>)],
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let op = |value: &Option<String>| value.clone().map_or(ConfigOp::Delete, ConfigOp::Set);
        let change = ConfigChange::Incremental(changes.iter().map(|(key, value)| (key.clone(), op(value))).collect());
        let replies = self.alter_topics(&[TopicChange { name: name.to_owned(), change }], validate_only);
        replies.into_iter().next().unwrap_or(Err(AdminError::UnknownTopic))
    }

    /// Changes the configs of some topics, each of which is named once. The answers are the topics as they are then.
    pub fn alter_topics(&self, changes: &[TopicChange], validate_only: bool) -> Replies {
        let mut journal = self.journal.lock();
        let decision = self.look().decide_alter_topics(&self.settings.topic_defaults, changes);
        if validate_only {
            return decision.reply;
        }
        self.enact(&mut journal, decision, |topic| Change::Configured { topic }).0
    }

    /// Sets the levels of features; all or none.
    pub fn update_features(&self, updates: &[FeatureUpdate], validate_only: bool) -> Result<(), UpdateFeaturesError> {
        let mut journal = self.journal.lock();
        let Decision { records, reply } = self.look().decide_update_features(updates);
        reply?;
        if !validate_only {
            self.show(self.commit(&mut journal, &records)?);
        }
        Ok(())
    }

    /// Changes the configs of some groups, each of which is named once.
    pub fn alter_groups(&self, changes: &[GroupChange], validate_only: bool) -> Vec<Result<(), AdminError>> {
        let mut journal = self.journal.lock();
        let Decision { records, reply } = self.look().decide_alter_groups(&self.settings.group_defaults, changes);
        if validate_only || records.is_empty() {
            return reply;
        }
        match self.commit(&mut journal, &records) {
            Ok(image) => self.show(image),
            Err(error) => return reply.into_iter().map(|one| one.and(Err(error.clone()))).collect(),
        }
        reply
    }

    /// Changes the configs of brokers while they run, each of which is named once.
    pub fn alter_brokers(&self, changes: &[BrokerChange], validate_only: bool) -> Vec<Result<(), AdminError>> {
        let mut journal = self.journal.lock();
        let Decision { records, reply } = self.look().decide_alter_brokers(&self.server, changes);
        if validate_only || records.is_empty() {
            return reply;
        }
        let before = self.image();
        let image = match self.commit(&mut journal, &records) {
            Ok(image) => image,
            Err(error) => return reply.into_iter().map(|one| one.and(Err(error.clone()))).collect(),
        };
        self.show(image.clone());
        let is_changed = |topic: &&Arc<Topic>| before.topic_by_id(topic.id).is_some_and(|before| before.config != topic.config);
        for topic in image.topics().filter(is_changed) {
            if let Err(error) = self.publish(&Change::Configured { topic: topic.clone() }) {
                tracing::warn!(topic = %topic.name, error, "a change of a topic is not in effect until the next start");
            }
        }
        reply
    }

    /// A producer id that no one has had, and no one will. Blocks on the disk for one in a thousand.
    pub fn next_producer_id(&self) -> Result<ProducerId, AdminError> {
        let used_up = || AdminError::Storage("there are no more producer ids".to_owned());
        let mut block = self.producer_ids.lock();
        if block.is_empty() {
            let mut journal = self.journal.lock();
            let Decision { records, reply } = self.look().decide_producer_ids();
            let next = reply.ok_or_else(used_up)?;
            let image = self.commit(&mut journal, &records)?;
            self.show(image);
            *block = next;
        }
        block.next().map(ProducerId).ok_or_else(used_up)
    }

    /// Takes the directories that were found at the start into account; see [`Verdict`].
    pub fn adopt(&self, found: &[FoundPartition]) -> Result<Vec<Verdict>, AdminError> {
        let ids: Vec<TopicId> = found.iter().map(|_| random_id()).collect();
        let mut journal = self.journal.lock();
        let decision = self.look().decide_adopt(found, &ids);
        self.show(self.commit(&mut journal, &decision.records)?);
        Ok(decision.reply)
    }

    /// A producer with this id is known to the logs; see [`Image::decide_producer_seen`].
    pub fn producer_seen(&self, highest: ProducerId) -> Result<(), AdminError> {
        let mut journal = self.journal.lock();
        let decision = self.look().decide_producer_seen(highest);
        self.show(self.commit(&mut journal, &decision.records)?);
        Ok(())
    }

    /// This broker has started; `unclean` if it had not stopped in order.
    pub fn broker_started(&self, unclean: bool) -> Result<(), AdminError> {
        let mut journal = self.journal.lock();
        let decision = self.look().decide_broker_started(unclean);
        self.show(self.commit(&mut journal, &decision.records)?);
        Ok(())
    }

    /// The directories of these deleted topics are gone (or named so that no one takes them for a topic's).
    pub fn forget(&self, ids: &[TopicId]) -> Result<(), AdminError> {
        self.forget_in(&mut self.journal.lock(), ids)
    }

    fn forget_in(&self, journal: &mut Journal, ids: &[TopicId]) -> Result<(), AdminError> {
        let decision = self.look().decide_forget(ids);
        self.show(self.commit(journal, &decision.records)?);
        Ok(())
    }

    /// Journals a creation, has its directories made, and shows it. A topic that fails at that is seen for the moment until it is taken
    /// back; nothing can be written to it.
    fn enact_creation(&self, journal: &mut Journal, decision: Decision<Replies>, first: impl Fn(&Topic) -> PartitionIndex) -> Replies {
        let Decision { records, mut reply } = decision;
        let image = match self.commit(journal, &records) {
            Ok(image) => image,
            Err(error) => return refuse_all(reply, &error),
        };
        let mut undo = Vec::new();
        for one in &mut reply {
            let Ok(decided) = one else { continue };
            // The topic as it is with its new partitions.
            let topic = image.topic_by_id(decided.id).unwrap_or(decided).clone();
            let first = first(decided);
            if let Err(why) = self.publish(&Change::Created { topic: topic.clone(), first }) {
                if first == PartitionIndex(0) {
                    undo.push(topic);
                }
                *one = Err(AdminError::Storage(why));
            }
        }
        self.show(image);
        if !undo.is_empty() {
            self.undo(journal, undo);
        }
        reply
    }

    /// Takes back topics whose directories could not all be made: their creation is answered with an error, so they must not be there.
    fn undo(&self, journal: &mut Journal, topics: Vec<Arc<Topic>>) {
        let records: Vec<Record> = topics.iter().map(|topic| Record::Deleted { id: topic.id, name: topic.name.clone() }).collect();
        let decision = Decision { records, reply: topics.into_iter().map(Ok).collect() };
        let (reply, gone) = self.enact(journal, decision, |topic| Change::Deleted { topic });
        let failed = reply.into_iter().find_map(Result::err).or_else(|| self.forget_in(journal, &gone).err());
        if let Some(error) = failed {
            tracing::warn!(%error, "topics whose directories could not be made are taken back at the next start only");
        }
    }

    /// Journals a change of what is there, shows it, and has it put into effect. Also says for which topics that went well; where it
    /// didn't the change stands nevertheless, and the next start puts it into effect.
    fn enact(&self, journal: &mut Journal, decision: Decision<Replies>, change: impl Fn(Arc<Topic>) -> Change) -> (Replies, Vec<TopicId>) {
        let Decision { records, reply } = decision;
        match self.commit(journal, &records) {
            Ok(image) => self.show(image),
            Err(error) => return (refuse_all(reply, &error), Vec::new()),
        }
        let mut done = Vec::new();
        for topic in reply.iter().flatten() {
            match self.publish(&change(topic.clone())) {
                Ok(()) => done.push(topic.id),
                Err(error) => tracing::warn!(topic = %topic.name, error, "a change of a topic is not in effect until the next start"),
            }
        }
        (reply, done)
    }

    fn publish(&self, change: &Change) -> Result<(), String> {
        self.publisher.get().map_or(Ok(()), |publisher| publisher.publish(change))
    }

    /// Makes records durable and returns the image that has them; the caller shows it.
    fn commit(&self, journal: &mut Journal, records: &[Record]) -> Result<Arc<Image>, AdminError> {
        if records.is_empty() {
            return Ok(self.image());
        }
        journal.append(records).map_err(|error| AdminError::Storage(error.to_string()))?;
        let image = self.applied(&self.image(), records);
        if journal.wants_snapshot() {
            // The change is durable already; a snapshot that fails is tried again with the next one.
            if let Err(error) = journal.snapshot(&image.to_records()) {
                tracing::warn!(%error, "no snapshot of the metadata could be written");
            }
        }
        Ok(image)
    }

    fn applied(&self, image: &Image, records: &[Record]) -> Arc<Image> {
        let mut image = image.clone();
        records.iter().for_each(|record| image.apply(&self.settings.topic_defaults, record));
        Arc::new(image)
    }
}

/// No part of the request came to be.
fn refuse_all(reply: Replies, error: &AdminError) -> Replies {
    reply.into_iter().map(|one| one.and(Err(error.clone()))).collect()
}

/// Kafka's ids never print with a dash in front, which command lines take for an option.
fn random_id() -> TopicId {
    loop {
        let id = TopicId(uuid::Uuid::new_v4());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}
