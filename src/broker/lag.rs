//! The thread that keeps the lag up to date: a sweep over groups and partitions, and the look-ups that they are owed, every second.
#![allow(clippy::disallowed_methods, reason = "a shell: a thread that sleeps until it is told to end")]

use super::cleaner::Stop;
use crate::{
    api::Context,
    config::LagMetricsConfig,
    lag::{
        families::{self, MetricsSettings},
        filter::Filter,
        sampler::Sight,
    },
    telemetry::Exposition,
};
use anyhow::Context as _;
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// From one round to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause where look-ups had to be left for the next round.
const PAUSE_BUSY: Duration = Duration::from_millis(100);
/// A round that takes long is followed by a pause of so many times that: the lag takes a small part of a core, however many groups there are.
const PAUSE_FACTOR: u32 = 4;

/// The running thread.
pub struct Rounds {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

impl Rounds {
    pub fn start(context: &Arc<Context>) -> anyhow::Result<Self> {
        let stop = Arc::<Stop>::default();
        let (context, told) = (context.clone(), stop.clone());
        let thread = thread::Builder::new().name("lag".to_owned()).spawn(move || run(&context, &told));
        Ok(Self { stop, thread: thread.context("start the thread of the lag")? })
    }

    /// Ends it; blocks until the round that it's at has ended.
    pub fn stop(self) {
        self.stop.set();
        if self.thread.join().is_err() {
            tracing::error!("the thread of the lag had panicked");
        }
    }
}

fn run(context: &Context, stop: &Stop) {
    loop {
        let begun = Instant::now();
        let image = context.image();
        let is_busy = context.lag.round(&sight(context, &image));
        let pause = if is_busy { PAUSE_BUSY } else { INTERVAL };
        if stop.sleep(pause.max(begun.elapsed().saturating_mul(PAUSE_FACTOR))) {
            return;
        }
    }
}

fn sight<'a>(context: &'a Context, image: &'a crate::cluster::Image) -> Sight<'a> {
    Sight { image, logs: &context.logs, groups: &context.groups, transactions: &context.transactions, now: context.now() }
}

/// Writes the families of the lag.
pub fn render(out: &mut Exposition, context: &Context, settings: &MetricsSettings) {
    let image = context.image();
    let sight = sight(context, &image);
    families::render(out, &context.lag.view(&sight), &image, sight.now, settings);
}

/// The settings from their keys.
pub fn metrics_settings(config: &LagMetricsConfig) -> anyhow::Result<MetricsSettings> {
    Ok(MetricsSettings {
        max_series: config.max_series,
        groups: Filter::new(&config.group_include, &config.group_exclude).context("the patterns of groups")?,
        topics: Filter::new(&config.topic_include, &config.topic_exclude).context("the patterns of topics")?,
        kafka_lag_exporter: config.kafka_lag_exporter,
    })
}
