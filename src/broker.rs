//! Builds the parts and starts and stops them in named phases: data directories locked → metadata → logs → groups → listeners →
//! ready; and back.
#![allow(clippy::disallowed_methods, reason = "a shell: it reads the clock and spawns the broker's tasks, and stops them")]

mod cleaner;
mod follow;
mod lag;
mod mover;
pub(crate) mod transactions;

use crate::{
    api::{
        Context,
        context::{ContextService, Parts},
    },
    cluster::{Change, Cluster, FoundPartition, Image, PRODUCER_ID_SEEN_MAX, Publisher, Topic, Verdict},
    config::{HostPort, Listener, ServerConfig},
    coordinator::{CoordinatorSettings, GroupCoordinator, OFFSETS_TOPIC},
    group::{self, Assignor, Assignors, MigrationPolicy},
    http as pages,
    lag::families::MetricsSettings,
    log::{
        Compactor, LogSettings, Logs, PartitionSpec,
        io::{Disk, RealDisk},
    },
    net::{
        ListenerInfo,
        connection::Limits,
        listener::{Door, accept},
        memory::Memory,
    },
    telemetry::{Exposition, PartitionSample, Registry, Source, TopicSample, http, samples},
    types::{Clock, LeaderEpoch, Millis, PartitionIndex, TopicPartition},
};
use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// How often the logs' clockwork runs: rolling and flushing by time, deletions that are due.
const TICK: Duration = Duration::from_millis(500);
/// Kafka's default of `queued.max.request.bytes` is no bound; this one holds then, as far as one request fits.
const MEMORY_BYTES_DEFAULT: usize = 512 << 20;

/// The system's wall clock.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Where a started broker can be reached.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    pub kafka: Vec<String>,
    pub http: Vec<String>,
    pub data: Vec<PathBuf>,
}

/// A running broker.
pub struct Broker {
    context: Arc<Context>,
    stop: watch::Sender<bool>,
    kafka: JoinSet<()>,
    clockwork: JoinSet<()>,
    cleaner: Arc<cleaner::Cleaner>,
    lag: lag::Rounds,
    mover: mover::Mover,
    http: JoinSet<()>,
    http_stop: watch::Sender<bool>,
}

impl Broker {
    /// Starts it; when this returns it is ready. Fails with what to do about it.
    pub async fn start(config: ServerConfig) -> anyhow::Result<(Self, Ready)> {
        raise_descriptor_limit();
        let config = Arc::new(config);
        warn_of_replicas(&config);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let registry = Registry::new().context("set up metrics")?;
        let source = Arc::new(BrokerSource::new(&config)?);
        let (http_stop, http_stopped) = watch::channel(false);
        let (http, http_addresses) = serve_http(&config, &registry, source.clone(), http_stopped).await?;
        // Bound before the logs are opened, so that a port in use is said at once; accepting waits until the broker is ready.
        let listeners = bind(&config.listeners).await?;
        let (stop, stopping) = watch::channel(false);
        let opened = {
            let (config, clock, registry) = (config.clone(), clock.clone(), registry.clone());
            tokio::task::spawn_blocking(move || open(config, clock, &registry, stopping)).await??
        };
        let context = Arc::new(opened);
        context.cluster.register(endpoints(&listeners));
        let mut kafka = JoinSet::new();
        let door = Arc::new(door(&config));
        let mut ready = Ready { http: http_addresses, data: config.log_dirs.clone(), ..Ready::default() };
        for (listener, info) in listeners {
            ready.kafka.push(printable(&info, listener.local_addr()?));
            kafka.spawn(accept(listener, info, Arc::new(ContextService(context.clone())), door.clone(), stop.subscribe()));
        }
        let mut clockwork = JoinSet::new();
        clockwork.spawn(tick(context.clone(), stop.subscribe()));
        run_groups(&context, &stop, &mut clockwork);
        transactions::run(&context, &stop, &mut clockwork);
        let cleaner = cleaner::Cleaner::start(&context)?;
        let mover = mover::Mover::start(&context)?;
        clockwork.spawn(follow::follow(context.clone(), cleaner.clone(), mover.shared(), stop.subscribe()));
        let _ = source.compactor.set(cleaner.compactor().clone());
        let lag = lag::Rounds::start(&context)?;
        source.pages.open(pages::Broker { context: context.clone(), http: ready.http.clone() });
        let _ = source.context.set(context.clone());
        source.ready.store(true, Ordering::Release);
        Ok((Self { context, stop, kafka, clockwork, cleaner, lag, mover, http, http_stop }, ready))
    }

    /// Listeners close → requests under way answer → logs sync and mark a clean stop → HTTP ends.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let _ = self.stop.send(true);
        while self.kafka.join_next().await.is_some() {}
        while self.clockwork.join_next().await.is_some() {}
        let (context, cleaner, lag, mover) = (self.context.clone(), self.cleaner, self.lag, self.mover);
        let close = move || {
            lag.stop();
            mover.stop();
            cleaner.stop();
            context.logs.close(context.now())
        };
        let closed = tokio::task::spawn_blocking(close).await?;
        let _ = self.http_stop.send(true);
        while self.http.join_next().await.is_some() {}
        closed.context("close the logs")
    }
}

/// Each partition in use and each connection holds a descriptor, as long as there are some; what a login shell allows is a thousand.
fn raise_descriptor_limit() {
    const ENOUGH: u64 = 10_000;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some() && current != maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        raised.unwrap_or_else(|error| tracing::warn!(%error, "can't raise the limit of open files to its hard limit"));
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < ENOUGH) {
        tracing::warn!(
            limit,
            "few files may be open at once (RLIMIT_NOFILE): with many partitions in use they are closed and opened again; raise its hard limit"
        );
    }
}

/// Half of the descriptors are for segments; the others for connections, what is being sent, and files that are open for a moment.
fn open_segments_max() -> usize {
    let half = getrlimit(Resource::Nofile).current.map(|limit| limit / 2);
    half.and_then(|half| usize::try_from(half).ok()).unwrap_or(usize::MAX)
}

/// Settings of a cluster that one broker can't meet: said at once, not when the first topic is refused.
fn warn_of_replicas(config: &ServerConfig) {
    if config.default_replication_factor > 1 {
        tracing::warn!(
            "default.replication.factor is {}: with one broker, topics that don't ask for 1 can't be created",
            config.default_replication_factor
        );
    }
}

/// The phases that touch the disk: lock, metadata, logs.
fn open(config: Arc<ServerConfig>, clock: Arc<dyn Clock>, registry: &Registry, stopping: watch::Receiver<bool>) -> anyhow::Result<Context> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let settings = LogSettings {
        dirs: config.log_dirs.clone(),
        producer_id_expiration_ms: config.producer_id_expiration_ms,
        recovery_threads: config.num_recovery_threads_per_data_dir,
        checkpoint_interval_ms: config.log_flush_offset_checkpoint_interval_ms,
        min_free_bytes: config.log_dir_min_free_bytes,
        retention_check_interval_ms: config.log_retention_check_interval_ms,
        initial_task_delay_ms: config.log_initial_task_delay_ms,
        open_files_max: open_segments_max(),
        ..LogSettings::default()
    };
    let logs = Logs::lock(disk.clone(), settings).context("take the data directories (log.dirs)")?;
    let cluster = Arc::new(Cluster::open(disk, &config)?);
    if cluster.journal_cut_bytes > 0 {
        tracing::warn!(bytes = cluster.journal_cut_bytes, "cut an unfinished change off the metadata journal; it was not acknowledged");
    }
    let dynamic = config.with_layers(cluster.image().layers())?;
    logs.go_by(dynamic.producer_id_expiration_ms, dynamic.num_recovery_threads_per_data_dir);
    settle(&logs, &cluster, clock.now())?;
    let logs = Arc::new(logs);
    let groups = Arc::new(GroupCoordinator::new(coordinator_settings(&config), logs.clone(), clock.clone()));
    groups.open(&cluster.image());
    let load_threads = dynamic.num_recovery_threads_per_data_dir;
    let (transactions, markers) = transactions::build(&config.transactions, load_threads, &cluster, &logs, &groups, &clock);
    cluster.publish_to(Arc::new(LogsPublisher { logs: logs.clone(), groups: groups.clone(), clock: clock.clone() }));
    Ok(Context::new(Parts { config, cluster, logs, clock, groups, transactions, markers }, registry, stopping))
}

fn coordinator_settings(config: &ServerConfig) -> CoordinatorSettings {
    CoordinatorSettings {
        groups: group::Settings {
            group_min_session_timeout_ms: config.group_min_session_timeout_ms,
            group_max_session_timeout_ms: config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
            group_classic_heartbeat_hold_max_ms: config.group_classic_heartbeat_hold_max_ms,
            group_max_size: config.group_max_size,
            offset_metadata_max_bytes: config.offset_metadata_max_bytes,
            offsets_retention_ms: config.offsets_retention_minutes.saturating_mul(60_000),
            ..consumer_settings(config)
        },
        group_defaults: config.group_consumer.defaults.clone(),
        offsets_topic_num_partitions: config.offsets_topic_num_partitions,
        offsets_topic_replication_factor: config.offsets_topic_replication_factor,
        offsets_topic_segment_bytes: config.offsets_topic_segment_bytes,
        offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
        load_threads: config.num_recovery_threads_per_data_dir,
    }
}

/// The settings of groups that speak KIP-848's protocol; the rest are the defaults.
fn consumer_settings(config: &ServerConfig) -> group::Settings {
    let consumer = &config.group_consumer;
    let defaults = consumer.defaults.resolve_stored(&BTreeMap::new());
    let mut assignors = consumer.assignors.iter().filter_map(|name| Assignor::from_name(name));
    let default = assignors.next().unwrap_or(Assignor::Uniform);
    let policy = MigrationPolicy::ALL.into_iter().find(|policy| policy.name() == consumer.migration_policy);
    group::Settings {
        group_consumer_session_timeout_ms: defaults.session_timeout_ms,
        group_consumer_heartbeat_interval_ms: defaults.heartbeat_interval_ms,
        group_consumer_assignment_interval_ms: defaults.assignment_interval_ms,
        group_consumer_max_size: consumer.max_size,
        group_consumer_assignors: Assignors { default, other: assignors.next() },
        group_consumer_migration_policy: policy.unwrap_or_default(),
        ..group::Settings::default()
    }
}

/// Adopts, deletes or sets aside the directories that are there, and opens every partition that the metadata names.
fn settle(logs: &Logs, cluster: &Cluster, now: Millis) -> anyhow::Result<()> {
    let found = logs.found()?;
    let judged: Vec<_> = found.iter().map(as_judged).collect();
    let known = cluster.image();
    let verdicts = cluster.adopt(&judged).context("take over the topics found in the data directories")?;
    for (partition, verdict) in found.iter().zip(verdicts) {
        match verdict {
            Verdict::Belongs(id) if known.topic_by_id(id).is_none() => {
                tracing::info!(dir = %partition.dir.display(), "took over a partition that the metadata did not know; its topic keeps everything (retention.ms=-1) until its configs are set");
            }
            Verdict::Belongs(_) | Verdict::Kafkas => {}
            Verdict::Remove => logs.delete_found(partition, now)?,
            Verdict::Stray(why) => {
                tracing::warn!(dir = %partition.dir.display(), "not a partition of any topic: {why}");
                logs.move_stray(partition)?;
            }
        }
    }
    let deleted: Vec<_> = cluster.image().deleting.keys().copied().collect();
    cluster.forget(&deleted)?;
    cluster.broker_started(!logs.was_clean())?;
    let there: HashSet<_> = found.iter().map(|partition| &partition.topic).collect();
    let image = cluster.image();
    let specs = image.topics().flat_map(|topic| specs(topic, PartitionIndex(0)));
    logs.open_all(specs.filter(|spec| there.contains(&spec.topic) || may_make(&known, spec, logs.was_clean())).collect(), now)?;
    let ids = logs.partitions().into_iter().flat_map(|log| log.producers()).map(|producer| producer.producer_id);
    let highest = ids.filter(|id| id.0 <= PRODUCER_ID_SEEN_MAX).max();
    highest.map_or(Ok(()), |highest| cluster.producer_seen(highest)).context("note the producer ids that the logs know")
}

/// Whether a partition without a directory gets an empty one. After a crash that may be a creation cut short; after a clean stop its
/// directory was there, and an empty one in its place would pass for the lost one.
fn may_make(known: &Image, spec: &PartitionSpec, clean: bool) -> bool {
    let was_there = known.topic_by_id(spec.topic_id).is_some_and(|topic| topic.partition(spec.topic.partition).is_some());
    match (was_there, clean) {
        (false, _) => true,
        (true, false) => {
            tracing::warn!(partition = %spec.topic, "has no directory in log.dirs: it begins empty. If a disk is not mounted, stop the broker and mount it");
            true
        }
        (true, true) => {
            tracing::error!(
                partition = %spec.topic,
                "its directory is in none of log.dirs and the partition stays offline: mount or restore it and start again, or delete the topic"
            );
            false
        }
    }
}

fn as_judged(found: &crate::log::FoundPartition) -> FoundPartition {
    let newest_epoch = Some(found.newest_epoch).filter(|epoch| *epoch != LeaderEpoch::NONE);
    FoundPartition { topic: found.topic.clone(), topic_id: found.topic_id, newest_epoch }
}

/// The partitions of a topic from `first` on, as the logs need them.
fn specs(topic: &Topic, first: PartitionIndex) -> impl Iterator<Item = PartitionSpec> + '_ {
    topic.indexed().filter(move |(partition, _)| *partition >= first).map(|(partition, state)| PartitionSpec {
        topic: TopicPartition { topic: topic.name.clone(), partition },
        topic_id: topic.id,
        config: topic.config.clone(),
        leader_epoch: state.leader_epoch,
    })
}

/// Puts changes of the metadata into effect on the logs and the groups.
struct LogsPublisher {
    logs: Arc<Logs>,
    groups: Arc<GroupCoordinator>,
    clock: Arc<dyn Clock>,
}

impl Publisher for LogsPublisher {
    fn publish(&self, change: &Change) -> Result<(), String> {
        let now = self.clock.now();
        let done = match change {
            Change::Created { topic, first } => {
                // Those that fail are tried again, unless the topic is taken back.
                specs(topic, *first).map(|spec| self.logs.create(spec, now).map(drop)).fold(Ok(()), Result::and)
            }
            Change::Configured { topic } => {
                self.logs.configure(topic.id, &topic.config);
                Ok(())
            }
            Change::Deleted { topic } => {
                let deleted = self.logs.delete_topic(topic.id, now).map(|_| ());
                if topic.name.as_str() != OFFSETS_TOPIC {
                    self.groups.topic_deleted(&topic.name);
                }
                deleted
            }
        };
        done.map_err(|e| e.to_string())
    }
}

fn door(config: &ServerConfig) -> Door {
    let memory_bytes =
        config.queued_max_request_bytes.unwrap_or(MEMORY_BYTES_DEFAULT.max(config.socket_request_max_bytes.saturating_mul(2)));
    let limits = Limits { idle: config.connections_max_idle_ms.map(Duration::from_millis), ..Limits::DEFAULT };
    Door::new(config.max_connections, config.max_connections_per_ip, Memory::new(memory_bytes), limits)
}

/// Binds every listener; port 0 becomes the port that was free.
async fn bind(listeners: &[Listener]) -> anyhow::Result<Vec<(TcpListener, Arc<ListenerInfo>)>> {
    let mut bound = Vec::new();
    for listener in listeners {
        let socket = bind_one(&listener.bind).await.with_context(|| {
            format!("listen on {}://{} (set listeners to an address and port that this machine has free)", listener.name, listener.bind)
        })?;
        let port = if listener.advertised.port == 0 { socket.local_addr()?.port() } else { listener.advertised.port };
        let info = ListenerInfo { name: listener.name.clone(), advertised_host: listener.advertised.host.clone(), advertised_port: port };
        bound.push((socket, Arc::new(info)));
    }
    Ok(bound)
}

async fn bind_one(at: &HostPort) -> std::io::Result<TcpListener> {
    if at.host.is_empty() {
        return TcpListener::bind(("0.0.0.0", at.port)).await;
    }
    TcpListener::bind((at.host.as_str(), at.port)).await
}

fn endpoints(listeners: &[(TcpListener, Arc<ListenerInfo>)]) -> BTreeMap<String, HostPort> {
    let endpoint = |info: &ListenerInfo| HostPort { host: info.advertised_host.clone(), port: info.advertised_port };
    listeners.iter().map(|(_, info)| (info.name.clone(), endpoint(info))).collect()
}

/// What a user types to reach a listener: the advertised address.
fn printable(info: &ListenerInfo, bound: SocketAddr) -> String {
    let host = if info.advertised_host.is_empty() { bound.ip().to_string() } else { info.advertised_host.clone() };
    HostPort { host, port: info.advertised_port }.to_string()
}

async fn serve_http(
    config: &ServerConfig,
    registry: &Registry,
    source: Arc<BrokerSource>,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<(JoinSet<()>, Vec<String>)> {
    let (mut tasks, mut addresses) = (JoinSet::new(), Vec::new());
    for at in &config.http_listeners {
        let listener = bind_one(at)
            .await
            .with_context(|| format!("listen for HTTP on {at} (set http.listeners to another address, or to nothing to turn it off)"))?;
        addresses.push(HostPort { host: at.host.clone(), port: listener.local_addr()?.port() }.to_string());
        let mut stopped = stopped.clone();
        tasks.spawn(http::serve(listener, registry.clone(), source.clone(), source.pages.router(), async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }));
    }
    Ok((tasks, addresses))
}

/// Loads the groups while clients are already served, and runs their clocks until the broker stops.
fn run_groups(context: &Context, stop: &watch::Sender<bool>, clockwork: &mut JoinSet<()>) {
    let groups = &context.groups;
    // Told first of what there is, so that the groups' members are not taken to read topics that aren't.
    groups.learn(&|| context.image());
    clockwork.spawn(groups.clone().run_learning(context.cluster.clone(), stop.subscribe()));
    let loading = groups.clone();
    clockwork.spawn_blocking(move || loading.load());
    let (timers, stopping) = (groups.clone(), stop.subscribe());
    clockwork.spawn(async move { timers.run_timers(stopping).await });
    clockwork.spawn(groups.clone().run_expiry(stop.subscribe()));
}

/// The logs' clockwork, until the broker stops.
async fn tick(context: Arc<Context>, mut stopping: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let at_work = context.clone();
        let chores = move || {
            at_work.logs.tick(at_work.now());
            at_work.groups.sweep(|topic| at_work.cluster.look().topic(topic.as_str()).is_some());
        };
        if let Err(error) = tokio::task::spawn_blocking(chores).await {
            tracing::error!(%error, "the logs' clockwork failed");
        }
    }
}

/// What HTTP reads of the broker.
struct BrokerSource {
    context: OnceLock<Arc<Context>>,
    compactor: OnceLock<Arc<Compactor>>,
    ready: AtomicBool,
    lag_metrics: MetricsSettings,
    pages: pages::Pages,
}

impl BrokerSource {
    fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let lag_metrics = lag::metrics_settings(&config.lag_metrics)?;
        Ok(Self {
            context: OnceLock::new(),
            compactor: OnceLock::new(),
            ready: AtomicBool::new(false),
            lag_metrics,
            pages: pages::Pages::default(),
        })
    }
}

impl Source for BrokerSource {
    fn ready(&self) -> Result<(), String> {
        match (self.ready.load(Ordering::Acquire), self.context.get()) {
            (true, Some(context)) if *context.stopping.borrow() => Err("the broker is stopping".to_owned()),
            (true, Some(_)) => Ok(()),
            _ => Err("the broker is starting: it opens its logs".to_owned()),
        }
    }

    fn render(&self, out: &mut Exposition) {
        let Some(context) = self.context.get() else { return };
        let logs = context.logs.partitions();
        samples::render_partitions(
            out,
            logs.iter().map(|log| {
                let marks = log.watermarks();
                PartitionSample {
                    topic: log.topic().topic.as_str(),
                    partition: log.topic().partition,
                    log_start: marks.log_start,
                    last_stable: marks.last_stable,
                    high_watermark: marks.high_watermark,
                    log_end: marks.log_end,
                    size_bytes: log.size_bytes(),
                    segments: log.segment_count() as u64,
                }
            }),
        );
        let mut topics: BTreeMap<&str, TopicSample<'_>> = BTreeMap::new();
        for log in &logs {
            let name = log.topic().topic.as_str();
            let sample = topics.entry(name).or_insert_with(|| TopicSample::of(name));
            let stats = log.stats();
            sample.partitions += 1;
            sample.received_bytes += stats.bytes_in.load(Ordering::Relaxed);
            sample.received_records += stats.records_in.load(Ordering::Relaxed);
            sample.sent_bytes += stats.bytes_out.load(Ordering::Relaxed);
            sample.sent_records += stats.records_out.load(Ordering::Relaxed);
        }
        samples::render_topics(out, topics.into_values());
        lag::render(out, context, &self.lag_metrics);
        if let Some(compactor) = self.compactor.get() {
            samples::render_compaction(out, &cleaner::sample(compactor));
        }
    }
}
