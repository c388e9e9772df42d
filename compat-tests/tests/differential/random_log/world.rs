//! One broker's side of a sequence, and the waiting that Apache Kafka needs: much of what it answers to it does afterwards.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest, DescribeTransactionsRequest, FetchRequest, FindCoordinatorRequest,
};

use super::generate::{PRODUCERS, TOPICS, TRANSACTIONAL_FROM};
use super::known::Known;
use super::plan::At;
use crate::alter;
use crate::groups::gid;
use crate::requests::{fetch, list_offsets, text, topic_name};
use crate::side::Side;
use crate::transactional::tid;

/// `ConfigResource.Type`.
pub const TOPIC: i8 = 2;
/// Kafka's `Errors` while a coordinator loads or is looked for.
pub const LOADING: [i16; 3] = [14, 15, 16];
pub struct World {
    pub side: Side,
    pub known: Known,
    /// So many topics were made only to wait for.
    barriers: usize,
}

impl World {
    /// The side of the broker at `address`; `prefix` begins the names of all that is made.
    pub fn new(address: SocketAddr, prefix: &str, is_faulty: bool) -> Result<Self> {
        let mut world = Self { side: Side::new(address)?, known: Known::new(prefix, is_faulty), barriers: 0 };
        world.coordinated()?;
        Ok(world)
    }

    /// Waits until the coordinators that the sequence asks have loaded: Kafka first makes their topics.
    fn coordinated(&mut self) -> Result<()> {
        let ids: Vec<String> = (TRANSACTIONAL_FROM..PRODUCERS + 1).map(|slot| self.known.transactional_id(slot)).collect();
        let group = self.known.group();
        let keys = |ids: &[String]| ids.iter().map(|id| text(id)).collect();
        let find = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(keys(&ids));
        let describe = DescribeTransactionsRequest::default().with_transactional_ids(ids.iter().map(|id| tid(id)).collect());
        let find_group = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(&group)]);
        let describe_group = DescribeGroupsRequest::default().with_groups(vec![gid(&group)]);
        self.side.wait_for("the coordinators have loaded", |side| {
            let found = side.ask(4, &find)?.coordinators.into_iter().chain(side.ask(4, &find_group)?.coordinators);
            let states = side.ask(0, &describe)?.transaction_states;
            let groups = side.ask(5, &describe_group)?.groups;
            let mut codes = found.map(|found| found.error_code).collect::<Vec<_>>();
            codes.extend(states.iter().map(|state| state.error_code).chain(groups.iter().map(|group| group.error_code)));
            Ok(codes.iter().all(|code| !LOADING.contains(code)))
        })
    }

    /// Asks where a partition ends.
    pub fn look_at_end(&mut self, slot: usize, partition: i32) -> Result<()> {
        let answer = self.side.ask(5, &list_offsets(&self.known.name(At::Slot(slot)), &[(partition, -1)]))?;
        let found = answer.topics.first().and_then(|topic| topic.partitions.first()).context("no offset")?;
        if found.error_code == 0 {
            self.known.ends.insert((slot, partition), found.offset);
        }
        Ok(())
    }

    /// Waits until no markers are being written: Kafka writes them after it has answered.
    pub fn settle(&mut self) -> Result<()> {
        let ids = (TRANSACTIONAL_FROM..PRODUCERS).map(|slot| tid(&self.known.transactional_id(slot))).collect();
        let describe = DescribeTransactionsRequest::default().with_transactional_ids(ids);
        self.side.wait_for("markers are written", |side| {
            let states = side.ask(0, &describe)?.transaction_states;
            Ok(states.iter().all(|state| !state.transaction_state.starts_with("Prepare") && !LOADING.contains(&state.error_code)))
        })
    }

    /// Waits until what was changed before is so in all parts of the broker: Kafka's controller answers first, and its broker follows change by
    /// change. What is seen as an effect of a change in the image of the metadata, and of another that was made after that, is done.
    pub fn barrier(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.barriers += 1;
            let name = self.barrier_name(self.barriers);
            self.side.topic(&name, 1, &[])?;
        }
        Ok(())
    }

    /// [`World::barrier`] after a change of a topic's configs.
    pub fn barrier_of_configs(&mut self, at: At) -> Result<()> {
        let (name, delay) = (self.known.name(at), (60_000 + self.barriers).to_string());
        let change = alter::change(vec![alter::resource(TOPIC, &name, &[("file.delete.delay.ms", alter::SET, Some(&delay))])]);
        self.side.ask(1, &change)?;
        let of = DescribeConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text(&name));
        let ask =
            DescribeConfigsRequest::default().with_resources(vec![of.with_configuration_keys(Some(vec![text("file.delete.delay.ms")]))]);
        self.side.wait_for("the configs are seen", |side| {
            let answer = side.ask(4, &ask)?;
            let mut configs = answer.results.iter().flat_map(|result| &result.configs);
            Ok(configs.any(|config| config.value.as_deref() == Some(&*delay)))
        })?;
        self.barriers += 1;
        let barrier = self.barrier_name(self.barriers);
        self.side.topic(&barrier, 1, &[]).map(drop)
    }

    fn barrier_name(&self, nth: usize) -> String {
        format!("{}-b{nth}", self.known.prefix())
    }

    /// Takes away what would be in the way of other sequences.
    pub fn clean_up(&mut self) -> Result<()> {
        let topics = (0..TOPICS).map(|slot| self.known.name(At::Slot(slot))).chain((1..=self.barriers).map(|nth| self.barrier_name(nth)));
        let names = topics.map(|name| topic_name(&name)).collect();
        self.side.ask(5, &DeleteTopicsRequest::default().with_topic_names(names).with_timeout_ms(30_000))?;
        for (id, _) in std::mem::take(&mut self.known.sessions) {
            let end: FetchRequest = fetch(12, Vec::new()).with_session_id(id).with_session_epoch(-1);
            self.side.ask(12, &end)?;
        }
        Ok(())
    }
}
