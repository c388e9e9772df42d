//! The simulated broker: the real state machine of the coordinator on simulated logs, and what the shell around it does, step by step, so
//! that a crash may come between any two.

use super::{
    Bug,
    partition::{Partition, Payload, header},
};
use crate::{
    coordinator::records::{Read, transaction},
    group::{Commit, CommitPartition, Generation, Identity, Now},
    log::{AppendError, Origin, Proof, verification::Guard},
    record::EndTxnMarker,
    sim::Random,
    txn::*,
    types::*,
};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

/// Which of the broker's logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Disk {
    /// A partition of `__transaction_state`.
    State(usize),
    /// Any other partition.
    Partition(usize),
}

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Ask {
    Init { expected: Option<ProducerIdAndEpoch> },
    Add { partitions: Vec<usize> },
    Produce { partition: usize, sequence: i32, payload: Vec<super::partition::Value> },
    CommitOffset { offset: i64 },
    End { commit: bool },
    FetchOffset,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub client: usize,
    pub slot: usize,
    pub version: TransactionVersion,
    pub producer: ProducerIdAndEpoch,
    pub ask: Ask,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Producer(ProducerIdAndEpoch),
    Offset(i64),
}

/// What goes on when a sync is done, or by itself.
#[derive(Clone, Debug)]
pub enum Then {
    Reply { client: usize, request: u64, answer: Result<Answer, ErrorCode> },
    Append { request: Request, guard: Option<Guard> },
    WriteMarkers { job: u64 },
    WriteMarker { job: u64, partition: usize },
    MarkerLasts { job: u64, partition: usize },
    Complete { job: u64 },
}

struct Shard {
    records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    synced: usize,
    machine: Option<Transactions>,
}

/// A transaction that is ending.
struct Job {
    shard: usize,
    ending: Ending,
    left: BTreeSet<usize>,
    unsynced: BTreeSet<usize>,
}

pub struct Settings {
    pub slots: usize,
    pub partitions: usize,
    pub version: TransactionVersion,
    /// `flush.messages=1`: answers wait for syncs, and power may be lost.
    pub syncs: bool,
    pub bug: Option<Bug>,
}

pub struct Broker {
    pub settings: Settings,
    pub up: bool,
    /// Counts its starts: what was under way before one is gone.
    pub life: u32,
    shards: Vec<Shard>,
    pub partitions: Vec<Partition>,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
    next_producer: Cell<i64>,
    /// Syncs that are asked for, and what waits for each.
    pub syncing: Vec<(Disk, usize, Then)>,
    asked: BTreeSet<(Disk, usize)>,
    /// What is to go on by itself.
    pub ready: Vec<Then>,
    pub now: Millis,
    /// How often something has fenced the producer of each transactional id.
    pub fences: Vec<u32>,
    /// The count when a request was answered with a producer.
    pub granted: BTreeMap<u64, u32>,
}

pub const TIMEOUT_MS: i32 = 8_000;
pub const SHARDS: usize = 2;

fn name(slot: usize) -> TransactionalId {
    format!("tx-{slot}").into()
}

impl Broker {
    pub fn new(settings: Settings) -> Self {
        let shard = |_| Shard { records: Vec::new(), synced: 0, machine: None };
        let mut partitions: Vec<_> = (0..settings.partitions).map(|_| Partition::default()).collect();
        // Then a topic that may be deleted, and the groups' offsets.
        partitions.push(Partition::default());
        partitions.push(Partition::of_groups());
        partitions.iter_mut().for_each(|partition| partition.bug = settings.bug);
        let fences = vec![0; settings.slots];
        Self {
            settings,
            up: true,
            life: 0,
            shards: (0..SHARDS).map(shard).collect(),
            partitions,
            jobs: BTreeMap::new(),
            next_job: 0,
            next_producer: Cell::new(1_000),
            syncing: Vec::new(),
            asked: BTreeSet::new(),
            ready: Vec::new(),
            now: Millis(1_000_000),
            fences,
            granted: BTreeMap::new(),
        }
    }

    /// The partition of the topic that may be deleted.
    pub fn scrap(&self) -> usize {
        self.settings.partitions
    }

    /// The partition of the groups.
    pub fn offsets(&self) -> usize {
        self.settings.partitions + 1
    }

    pub fn name_of(&self, partition: usize) -> TopicPartition {
        let (topic, index) = match partition {
            p if p == self.scrap() => ("scrap", 0),
            p if p == self.offsets() => ("__consumer_offsets", 0),
            p => ("out", p),
        };
        TopicPartition { topic: TopicName::new(topic).unwrap(), partition: PartitionIndex(index as i32) }
    }

    fn index_of(&self, partition: &TopicPartition) -> usize {
        match partition.topic.as_str() {
            "scrap" => self.scrap(),
            "__consumer_offsets" => self.offsets(),
            _ => partition.partition.0 as usize,
        }
    }

    /// A transactional id starts at this epoch.
    pub fn seed_epoch(&mut self, slot: usize, epoch: i16) {
        let producer = ProducerIdAndEpoch { id: self.fresh().unwrap(), epoch: ProducerEpoch(epoch) };
        let metadata = Metadata {
            producer,
            previous_producer_id: producer.id,
            next_producer_id: ProducerId::NONE,
            timeout_ms: TIMEOUT_MS,
            state: State::Empty,
            partitions: BTreeSet::new(),
            started_at: Millis::NONE,
            updated_at: self.now,
            client_version: TransactionVersion::V0,
        };
        let record = Record { id: name(slot), value: Some(metadata) };
        let encoded = transaction::encode(&record, self.settings.version).unwrap();
        let shard = &mut self.shards[slot % SHARDS];
        shard.records.push(encoded);
        shard.synced = shard.records.len();
    }

    fn fresh(&self) -> Result<ProducerId, ErrorCode> {
        Ok(ProducerId(self.next_producer.replace(self.next_producer.get() + 1)))
    }

    // Decisions.

    fn machine(&self, slot: usize) -> Result<&Transactions, ErrorCode> {
        self.shards[slot % SHARDS].machine.as_ref().ok_or(ErrorCode::CoordinatorLoadInProgress)
    }

    /// Makes a decision so; the reply goes on as `then` says once it is committed.
    fn enact<R>(&mut self, shard: usize, decision: Decision<R>, then: impl FnOnce(&mut Self, R) -> Option<Then>) {
        let Decision { reply, mut records, volatile, mut endings } = decision;
        self.plant(&mut records, &mut endings);
        let at = &mut self.shards[shard];
        for record in &records {
            at.records.push(transaction::encode(record, self.settings.version).unwrap());
            at.machine.as_mut().unwrap().apply(record);
        }
        volatile.iter().for_each(|change| at.machine.as_mut().unwrap().apply_volatile(change));
        let until = at.records.len();
        let is_end = !endings.is_empty();
        let next = then(self, reply);
        for ending in endings {
            let job = self.job(shard, ending);
            let go = Then::WriteMarkers { job };
            if self.settings.bug == Some(Bug::MarkersBeforeTheDecisionLasts) {
                self.ready.push(go)
            } else {
                self.after(Disk::State(shard), until, go)
            }
        }
        if let Some(next) = next {
            let early = is_end && self.settings.bug == Some(Bug::AnswersBeforeTheDecisionLasts);
            if early { self.ready.push(next) } else { self.after(Disk::State(shard), until, next) }
        }
    }

    /// Bugs that a decision could have.
    fn plant(&self, records: &mut [Record], endings: &mut [Ending]) {
        if self.settings.bug != Some(Bug::EndsDoNotBump) {
            return;
        }
        for metadata in records.iter_mut().filter_map(|record| record.value.as_mut()) {
            if metadata.state.ending().is_some() && metadata.client_version.bumps_epochs() {
                metadata.producer.epoch.0 -= 1;
                endings.iter_mut().for_each(|ending| ending.producer.epoch.0 -= 1);
                endings.iter_mut().for_each(|ending| ending.version = TransactionVersion::V0);
            }
        }
    }

    fn job(&mut self, shard: usize, ending: Ending) -> u64 {
        self.next_job += 1;
        let left = ending.partitions.iter().map(|partition| self.index_of(partition)).collect();
        self.jobs.insert(self.next_job, Job { shard, ending, left, unsynced: BTreeSet::new() });
        self.next_job
    }

    /// Goes on once so many entries of a log are durable.
    fn after(&mut self, disk: Disk, until: usize, then: Then) {
        if self.settings.syncs && self.synced(disk) < until {
            self.syncing.push((disk, until, then));
        } else {
            self.ready.push(then);
        }
    }

    fn synced(&self, disk: Disk) -> usize {
        match disk {
            Disk::State(shard) => self.shards[shard].synced,
            Disk::Partition(partition) => self.partitions[partition].synced,
        }
    }

    /// Whether such a sync has to be begun.
    pub fn asked(&mut self, disk: Disk, until: usize) -> bool {
        self.asked.insert((disk, until))
    }

    /// A sync that was begun when the log had so many entries is done.
    pub fn sync_done(&mut self, disk: Disk, until: usize) {
        match disk {
            Disk::State(shard) => self.shards[shard].synced = self.shards[shard].synced.max(until),
            Disk::Partition(partition) => self.partitions[partition].synced = self.partitions[partition].synced.max(until),
        }
        let synced = self.synced(disk);
        let (done, left) = std::mem::take(&mut self.syncing).into_iter().partition(|(d, until, _)| *d == disk && *until <= synced);
        self.syncing = left;
        let done: Vec<(Disk, usize, Then)> = done;
        self.ready.extend(done.into_iter().map(|(_, _, then)| then));
    }

    // Requests.

    pub fn handle(&mut self, request: Request) {
        let (slot, shard, producer) = (request.slot, request.slot % SHARDS, self.believed(&request));
        let (client, id) = (request.client, request.id);
        let reply = |answer| Then::Reply { client, request: id, answer };
        let machine = match self.machine(slot) {
            Ok(machine) => machine,
            Err(error) if !matches!(request.ask, Ask::FetchOffset | Ask::Produce { .. } | Ask::CommitOffset { .. }) => {
                return self.ready.push(reply(Err(error)));
            }
            Err(_) => return self.handle_partition(request),
        };
        match &request.ask {
            Ask::Init { expected } => {
                let init = InitProducerId { id: name(slot), timeout_ms: TIMEOUT_MS, expected: *expected };
                let mut decision = machine.decide_init(self.now, &init, &|| self.fresh());
                if self.settings.bug == Some(Bug::SuccessorsGetTheSameEpoch) {
                    self.reuse(slot, &mut decision);
                }
                if expected.is_none() {
                    self.fences[slot] += 1;
                }
                self.granted.entry(id).or_insert(self.fences[slot]);
                self.enact(shard, decision, |_, answer| Some(reply(answer.map(Answer::Producer))));
            }
            Ask::Add { partitions } => {
                let decision = machine.decide_add_partitions(self.now, &self.adding(&request, producer, partitions));
                self.enact(shard, decision, |_, error| Some(reply(done_or(error))));
            }
            Ask::End { commit } => {
                let end = EndTxn { id: name(slot), producer, commit: *commit, client_version: request.version };
                let decision = machine.decide_end(self.now, &end, &|| self.fresh());
                self.enact(shard, decision, |_, answer| Some(reply(answer.map(Answer::Producer))));
            }
            Ask::Produce { .. } | Ask::CommitOffset { .. } | Ask::FetchOffset => self.handle_partition(request),
        }
    }

    fn adding(&self, request: &Request, producer: ProducerIdAndEpoch, partitions: &[usize]) -> AddPartitions {
        let partitions = partitions.iter().map(|partition| self.name_of(*partition)).collect();
        AddPartitions { id: name(request.slot), producer, partitions, client_version: request.version }
    }

    /// The producer as which the coordinator takes a request.
    fn believed(&self, request: &Request) -> ProducerIdAndEpoch {
        let current = self.machine(request.slot).ok().and_then(|machine| machine.get(&name(request.slot)).map(|t| t.metadata().producer));
        match current {
            Some(current) if self.settings.bug == Some(Bug::EpochsAreNotChecked) && current.id == request.producer.id => current,
            _ => request.producer,
        }
    }

    fn reuse(&self, slot: usize, decision: &mut Decision<Result<ProducerIdAndEpoch, ErrorCode>>) {
        let Some(current) = self.machine(slot).ok().and_then(|machine| machine.get(&name(slot)).map(|t| t.metadata().producer)) else {
            return;
        };
        if let (Ok(producer), [Record { value: Some(metadata), .. }]) = (&mut decision.reply, &mut decision.records[..])
            && producer.id == current.id
        {
            (*producer, metadata.producer) = (current, current);
        }
    }

    /// Requests to a partition: a transaction is verified, or in the new flow extended, before its first batch there.
    fn handle_partition(&mut self, request: Request) {
        let (client, id, slot) = (request.client, request.id, request.slot);
        let reply = |answer| Then::Reply { client, request: id, answer };
        let (partition, sequence) = match &request.ask {
            Ask::Produce { partition, sequence, .. } => (*partition, *sequence),
            Ask::CommitOffset { .. } => (self.offsets(), -1),
            _ => {
                let answer = self.fetch_offset(slot);
                return self.ready.push(reply(answer));
            }
        };
        if self.partitions[partition].is_gone {
            return self.ready.push(reply(Err(ErrorCode::UnknownTopicOrPartition)));
        }
        let producer = request.producer;
        let known = self.partitions[partition].states.entry(producer.id);
        let goes_on = known.is_some_and(|entry| entry.current_txn_first_offset.is_some() && entry.epoch == producer.epoch);
        if goes_on || self.settings.bug == Some(Bug::NothingIsVerified) && !request.version.bumps_epochs() {
            if partition == self.offsets() {
                return self.append(request, None);
            }
            return self.ready.push(Then::Append { request, guard: None });
        }
        let machine = match self.machine(slot) {
            Ok(machine) => machine,
            Err(error) => return self.ready.push(reply(Err(error))),
        };
        if request.version.bumps_epochs() {
            let decision = machine.decide_add_partitions(self.now, &self.adding(&request, self.believed(&request), &[partition]));
            let guard = self.partitions[partition].verifications.begin(self.now, producer.id, producer.epoch, sequence, true);
            let go = |error| match error {
                ErrorCode::None => Then::Append { request, guard: Some(guard) },
                error => reply(Err(error)),
            };
            self.enact(slot % SHARDS, decision, |_, error| Some(go(error)));
            return;
        }
        let verify = VerifyPartitions { id: name(slot), producer: self.believed(&request), partitions: vec![self.name_of(partition)] };
        let verified = machine.verify(&verify).map(|errors| errors[0]);
        let guard = self.partitions[partition].verifications.begin(self.now, producer.id, producer.epoch, sequence, false);
        match verified {
            // Offsets have no sequence that could tell them late: they are appended in one go.
            Ok(ErrorCode::None) if partition == self.offsets() => self.append(request, Some(guard)),
            Ok(ErrorCode::None) => self.ready.push(Then::Append { request, guard: Some(guard) }),
            Ok(error) | Err(error) => self.ready.push(reply(Err(error))),
        }
    }

    fn append(&mut self, request: Request, guard: Option<Guard>) {
        let Request { client, id, slot, producer, .. } = request;
        let reply = |answer| Then::Reply { client, request: id, answer };
        let unchecked = self.settings.bug == Some(Bug::NothingIsVerified) && guard.is_none();
        let proof = guard.map_or(if unchecked { Proof::Unchecked } else { Proof::Missing }, Proof::Guarded);
        let (partition, header, payload, origin) = match request.ask {
            Ask::Produce { partition, sequence, payload } => {
                let header = header(producer, sequence, payload.len() as i32, false);
                (partition, header, Payload::Values(payload), Origin::ClientInTransaction(proof))
            }
            Ask::CommitOffset { offset } => {
                let partition = self.offsets();
                let groups = self.partitions[partition].groups.as_ref().unwrap();
                let decision = groups.decide_commit_in_transaction(Now { wall: self.now, steady: self.now }, &commit(slot, offset));
                let Some(record) = decision.records.into_iter().next() else {
                    return self.ready.push(reply(Err(ErrorCode::UnknownServerError)));
                };
                (partition, header(producer, -1, 1, false), Payload::Offset(record), Origin::CoordinatorInTransaction(proof))
            }
            _ => return,
        };
        if self.partitions[partition].is_gone {
            return self.ready.push(reply(Err(ErrorCode::UnknownTopicOrPartition)));
        }
        match self.partitions[partition].append(header, payload, origin) {
            Ok(until) => self.after(Disk::Partition(partition), until, reply(Ok(Answer::Done))),
            Err(error) => self.ready.push(reply(Err(code(&error)))),
        }
    }

    fn fetch_offset(&self, slot: usize) -> Result<Answer, ErrorCode> {
        let groups = self.partitions[self.offsets()].groups.as_ref().unwrap();
        let group = format!("g-{slot}");
        if groups.is_unstable(&group, "in", PartitionIndex(0)) {
            return Err(ErrorCode::UnstableOffsetCommit);
        }
        Ok(Answer::Offset(groups.committed(&group, "in", PartitionIndex(0)).map_or(0, |committed| committed.offset.0)))
    }

    pub fn committed_offset(&self, slot: usize) -> Result<Answer, ErrorCode> {
        self.fetch_offset(slot)
    }

    // Ends.

    /// The next step of something that was under way.
    pub fn step(&mut self, then: Then, chance: &mut Random) {
        match then {
            Then::Reply { .. } => {}
            Then::Append { request, guard } => self.append(request, guard),
            Then::WriteMarkers { job } => {
                let Some(at) = self.jobs.get(&job) else { return };
                let left: Vec<_> = at.left.iter().copied().collect();
                if left.is_empty() {
                    self.ready.push(Then::Complete { job });
                }
                self.ready.extend(left.into_iter().map(|partition| Then::WriteMarker { job, partition }));
            }
            Then::WriteMarker { job, partition } => self.write_marker(job, partition, chance),
            Then::MarkerLasts { job, partition } => {
                let Some(at) = self.jobs.get_mut(&job) else { return };
                at.unsynced.remove(&partition);
                let early = self.settings.bug == Some(Bug::CompletesWithTheFirstMarker);
                if at.unsynced.is_empty() && at.left.is_empty() || early {
                    self.ready.push(Then::Complete { job });
                }
            }
            Then::Complete { job } => {
                let Some(at) = self.jobs.remove(&job) else { return };
                let Some(machine) = self.shards[at.shard].machine.as_ref() else { return };
                let decision = machine.decide_complete(self.now, &at.ending);
                self.enact(at.shard, decision, |_, ()| None);
            }
        }
    }

    fn write_marker(&mut self, job: u64, partition: usize, chance: &mut Random) {
        let Some(at) = self.jobs.get(&job) else { return };
        // Its log takes no writes just now.
        if chance.one_in(20) {
            return self.ready.push(Then::WriteMarker { job, partition });
        }
        let Ending { producer, commit, version, .. } = at.ending;
        let marker = EndTxnMarker { commit, coordinator_epoch: self.life as i32 };
        let origin = Origin::Marker { transaction_version: version.0 };
        let log = &mut self.partitions[partition];
        let appended = if log.is_gone { None } else { log.append(header(producer, -1, 1, true), Payload::Marker(marker), origin).ok() };
        let at = self.jobs.get_mut(&job).unwrap();
        at.left.remove(&partition);
        at.unsynced.insert(partition);
        let lasts = Then::MarkerLasts { job, partition };
        match appended {
            Some(until) => self.after(Disk::Partition(partition), until, lasts),
            // Gone, or written before.
            None => self.ready.push(lasts),
        }
    }

    /// Transactions whose time is up.
    pub fn time_out(&mut self) {
        for shard in 0..SHARDS {
            let Some(machine) = &self.shards[shard].machine else { continue };
            let mut overdue = machine.overdue(self.now);
            overdue.sort();
            for id in overdue {
                let machine = self.shards[shard].machine.as_ref().unwrap();
                let Ok(mut decision) = machine.decide_timeout(self.now, &id, &|| self.fresh()) else { continue };
                if self.settings.bug == Some(Bug::TimeoutsDoNotFence) {
                    let current = machine.get(&id).unwrap().metadata().producer;
                    decision.records.iter_mut().filter_map(|r| r.value.as_mut()).for_each(|metadata| metadata.producer = current);
                    decision.endings.iter_mut().for_each(|ending| ending.producer = current);
                    decision.endings.iter_mut().for_each(|ending| ending.version = TransactionVersion::V0);
                }
                let slot: usize = id.trim_start_matches("tx-").parse().unwrap();
                self.fences[slot] += 1;
                self.enact(shard, decision, |_, ()| None);
            }
        }
    }

    // Crashes.

    /// It is gone; with `power`, so is what was not synced.
    pub fn crash(&mut self, power: bool, chance: &mut Random) {
        (self.up, self.life) = (false, self.life + 1);
        (self.syncing, self.ready, self.jobs) = (Vec::new(), Vec::new(), BTreeMap::new());
        self.asked.clear();
        for shard in &mut self.shards {
            shard.machine = None;
            if power {
                let keep = chance.between(shard.synced as i64, shard.records.len() as i64) as usize;
                shard.records.truncate(keep);
            }
            shard.synced = shard.records.len();
        }
        for partition in &mut self.partitions {
            let keep = if power { chance.between(partition.synced as i64, partition.len() as i64) as usize } else { partition.len() };
            partition.recover(keep);
        }
    }

    /// What lives is what the records say, but for what they have no place for: the last epoch and, in version 0, the previous id.
    pub fn check_replay(&self) -> Result<(), String> {
        for shard in self.shards.iter().filter(|shard| shard.machine.is_some()) {
            let replayed = self.replay(shard);
            let said = |of: &Transactions| {
                let mut all: Vec<_> = of.iter().map(|(id, t)| (id.clone(), self.written(t.metadata()))).collect();
                all.sort_by(|a, b| a.0.cmp(&b.0));
                all
            };
            let (live, replayed) = (said(shard.machine.as_ref().unwrap()), said(&replayed));
            if live != replayed {
                return Err(format!("replay differs: {live:?} became {replayed:?}"));
            }
        }
        Ok(())
    }

    fn written(&self, metadata: &Metadata) -> Metadata {
        let has_place = self.settings.version >= TransactionVersion::V1;
        let previous_producer_id = if has_place { metadata.previous_producer_id } else { ProducerId::NONE };
        Metadata { previous_producer_id, ..metadata.clone() }
    }

    fn replay(&self, shard: &Shard) -> Transactions {
        let settings = crate::txn::Settings { transaction_version: self.settings.version, ..crate::txn::Settings::default() };
        let mut machine = Transactions::new(settings);
        for (key, value) in &shard.records {
            let Read::Known(record) = transaction::decode(key, value.as_deref()).unwrap() else { panic!("a record that is not known") };
            machine.apply(&record);
        }
        machine
    }

    /// A shard of the coordinator is loaded.
    pub fn load(&mut self, shard: usize) {
        if !self.up || self.shards[shard].machine.is_some() {
            return;
        }
        let mut machine = self.replay(&self.shards[shard]);
        if self.settings.bug == Some(Bug::RestartsForgetTheNextId) {
            let ids: Vec<_> = machine.iter().map(|(id, t)| (id.clone(), t.metadata().clone())).collect();
            for (id, metadata) in ids {
                machine.apply(&Record { id, value: Some(Metadata { next_producer_id: ProducerId::NONE, ..metadata }) });
            }
        }
        let mut endings: Vec<_> = machine.iter().filter_map(|(id, transaction)| transaction.metadata().ending(id)).collect();
        endings.sort_by(|a, b| a.id.cmp(&b.id));
        self.shards[shard].machine = Some(machine);
        for mut ending in endings {
            if self.settings.bug == Some(Bug::RestartsForgetAPartition) {
                ending.partitions.pop_first();
            }
            if self.settings.bug == Some(Bug::RestartsAbort) {
                ending.commit = false;
            }
            let job = self.job(shard, ending);
            self.ready.push(Then::WriteMarkers { job });
        }
    }

    /// Every transactional id is at rest, and so is every partition.
    pub fn is_quiet(&self) -> bool {
        let at_rest = |shard: &Shard| shard.machine.as_ref().is_some_and(|m| m.iter().all(|(_, t)| t.metadata().state.is_at_rest()));
        self.up && self.shards.iter().all(at_rest) && self.partitions.iter().filter(|p| !p.is_gone).all(|p| p.last_stable() == p.end())
    }

    pub fn describe(&self) -> String {
        let ids = self
            .shards
            .iter()
            .flat_map(|shard| shard.machine.iter().flat_map(|m| m.iter().map(|(id, t)| format!("{id}: {:?}", t.metadata()))));
        let open = self.partitions.iter().enumerate().map(|(i, p)| {
            format!("partition {i}: stable {} of {}, open {:?}", p.last_stable(), p.end(), p.states.ongoing().collect::<Vec<_>>())
        });
        let mut lines: Vec<_> = ids.chain(open).collect();
        lines.sort();
        lines.join("\n")
    }
}

fn done_or(error: ErrorCode) -> Result<Answer, ErrorCode> {
    if error == ErrorCode::None { Ok(Answer::Done) } else { Err(error) }
}

fn commit(slot: usize, offset: i64) -> Commit {
    let partition = TopicPartition { topic: TopicName::new("in").unwrap(), partition: PartitionIndex(0) };
    let (leader_epoch, metadata) = (LeaderEpoch::NONE, "".into());
    Commit {
        from: Identity { group: format!("g-{slot}").into(), member_id: "".into(), instance_id: None, generation: Generation(-1) },
        retention_ms: -1,
        tells_missing_group: true,
        partitions: vec![CommitPartition { partition, offset: Offset(offset), leader_epoch, metadata }],
    }
}

fn code(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::FencedProducer { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidTxnState(_) => ErrorCode::InvalidTxnState,
        other => panic!("{other}"),
    }
}
