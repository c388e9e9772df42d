//! An hour of a shop's life in a minute, by a clock that the test sets: orders, payments and clicks come in, and five groups read them, each in
//! the way that somebody has seen theirs go. What the console and the dashboard show of it is what they show of an hour that has passed.
//!
//! | group | how it reads |
//! | --- | --- |
//! | `search-indexer` | keeps up |
//! | `billing` | too slowly, for most of the hour: it ends 38 minutes behind |
//! | `fraud-check` | keeps up but for one partition, which takes no step for 21 minutes |
//! | `recommendations` | is new, began at the earliest record, and catches up |
//! | `nightly-report` | stopped a day ago |
//!
//! One partition of `orders` is hot, and `billing` changes a worker half-way.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::batch::{Batch, Record};
use crate::clock::{Clock, ms_ago};
use crate::prometheus::Past;
use crate::seat::{Seat, commit_alone};
use crate::steady::create;
use crate::wire::Client;
use crate::{Broker, api, http};

const DAY: Duration = Duration::from_secs(86_400);
/// A minute more than is shown, so that rates are there from its beginning on.
const HOUR: Duration = Duration::from_secs(61 * 60);
/// How far the clock goes at once, and from scrape to scrape.
const STEP: Duration = Duration::from_secs(15);
const MINUTE_MS: i64 = 60_000;
const WEEK_MS: &str = "604800000";

/// A topic: its partitions' records in a second.
const TOPICS: [(&str, &[f64]); 3] =
    [("orders", &[0.4, 0.4, 4.0, 0.4, 0.4, 0.4]), ("payments", &[1.0, 1.0, 1.0]), ("clicks", &[3.0, 3.2, 2.9, 3.1])];
/// The partition that stands still.
const STUCK: (&str, i32) = ("payments", 1);
const STOPPED: &str = "nightly-report";

type Ends = BTreeMap<(&'static str, i32), i64>;

/// The shop, at some moment of its hour or, once that is over, soon after.
pub struct Shop {
    pub broker: Broker,
    clock: Clock,
    client: Client,
    /// Where the partitions ended, by when.
    past: Vec<(i64, Ends)>,
    ends: Ends,
    /// Parts of records that are owed.
    owed: BTreeMap<(&'static str, i32), f64>,
    seats: BTreeMap<&'static str, Vec<Seat>>,
    /// When the hour ends, in milliseconds since 1970.
    end_ms: i64,
    /// How long the hour has taken: by so much its clock is behind.
    late: Duration,
    sent: usize,
}

impl Shop {
    /// A day ago: the topics are made, and a group reads its last.
    ///
    /// # Errors
    /// If the broker doesn't start or refuses anything.
    pub fn open() -> Result<Self> {
        let clock = Clock::ago(DAY)?;
        let broker = Broker::start_by(&clock, &[("group.initial.rebalance.delay.ms", "0")])?;
        let mut client = broker.connect()?;
        for (topic, rates) in TOPICS {
            // What nobody reads of it for an hour is lost.
            let short = [("retention.ms", "3600000"), ("segment.ms", "600000")];
            let configs = if topic == STUCK.0 { &short[..] } else { &[("retention.ms", WEEK_MS)] };
            ensure!(create(&mut client, topic, i32::try_from(rates.len())?, configs)? == 0);
        }
        let end_ms = ms_ago(Duration::ZERO);
        let mut shop = Self {
            broker,
            clock,
            client,
            past: Vec::new(),
            ends: Ends::new(),
            owed: BTreeMap::new(),
            seats: BTreeMap::new(),
            end_ms,
            late: Duration::ZERO,
            sent: 0,
        };
        shop.sell(ms_ago(DAY), STEP, &["orders"])?;
        let offsets: Vec<_> = shop.ends.iter().map(|((topic, partition), end)| (*topic, *partition, end / 2)).collect();
        commit_alone(&mut shop.client, STOPPED, &offsets)?;
        Ok(shop)
    }

    /// The hour, a step after the other; what a Prometheus would have scraped of it.
    ///
    /// # Errors
    /// If the broker refuses anything.
    pub fn pass_the_hour(&mut self) -> Result<Past> {
        let mut past = Past::default();
        self.end_ms = ms_ago(Duration::ZERO);
        let mut left = HOUR;
        self.clock.set_ago(left)?;
        self.take_seats("search-indexer", &["indexer-1", "indexer-2"], "orders")?;
        self.take_seats("billing", &["billing-worker-1", "billing-worker-2"], "orders")?;
        self.take_seats("fraud-check", &["fraud-check-1"], "payments")?;
        while let Some(next) = left.checked_sub(STEP) {
            left = next;
            let now_ms = self.end_ms - i64::try_from(left.as_millis())?;
            self.late = Duration::from_millis(u64::try_from(ms_ago(Duration::ZERO) - self.end_ms)?);
            self.clock.set_ago(left + self.late)?;
            if left == Duration::from_secs(30 * 60) {
                let mut workers = self.seats.remove("billing").context("they are there")?;
                workers.pop().context("there are two")?.leave()?;
                workers[0].wait_for(6)?;
                self.seats.insert("billing", workers);
                self.take_seats("billing", &["billing-worker-3"], "orders")?;
            }
            if left == Duration::from_secs(20 * 60) {
                self.take_seats("recommendations", &["recommender"], "clicks")?;
            }
            self.sell(now_ms, STEP, &["orders", "payments", "clicks"])?;
            self.read(now_ms)?;
            // At this pace the broker's own rounds, a second apart, come too seldom: who asks for a group has its records looked up.
            for group in self.seats.keys().chain([&STOPPED]) {
                api::group(&self.broker, group)?;
            }
            let scraped = http::get(self.broker.http().context("HTTP is on")?, "/metrics")?;
            ensure!(scraped.status == 200, "a scrape was answered {}", scraped.status);
            past.scraped(now_ms, scraped.body);
        }
        Ok(past)
    }

    /// What comes and is read in so long. The clock goes on at its own pace.
    ///
    /// # Errors
    /// If the broker refuses anything.
    pub fn go_on(&mut self, passed: Duration) -> Result<()> {
        let now_ms = ms_ago(self.late);
        self.sell(now_ms, passed, &["orders", "payments", "clicks"])?;
        self.read(now_ms)
    }

    fn take_seats(&mut self, group: &'static str, names: &[&str], topic: &str) -> Result<()> {
        let partitions = TOPICS.iter().find(|(name, _)| *name == topic).map_or(0, |(_, rates)| rates.len());
        let seats = self.seats.entry(group).or_default();
        for name in names {
            seats.push(Seat::take(self.broker.kafka(), group, name, &[(topic.to_owned(), i32::try_from(partitions)?)])?);
            for seat in &*seats {
                seat.wait_for(partitions / seats.len())?;
            }
        }
        Ok(())
    }

    /// Sends what comes in so long.
    fn sell(&mut self, now_ms: i64, passed: Duration, topics: &[&str]) -> Result<()> {
        for (topic, rates) in TOPICS.into_iter().filter(|(topic, _)| topics.contains(topic)) {
            let mut data = Vec::new();
            for (partition, rate) in (0..).zip(rates) {
                let owed = self.owed.entry((topic, partition)).or_default();
                *owed += rate * passed.as_secs_f64();
                let count = *owed as usize;
                *owed -= count as f64;
                if count > 0 {
                    data.push(
                        PartitionProduceData::default().with_index(partition).with_records(Some(batch(topic, now_ms, self.sent, count))),
                    );
                    *self.ends.entry((topic, partition)).or_default() += i64::try_from(count)?;
                    self.sent += count;
                }
            }
            if data.is_empty() {
                continue;
            }
            let data = TopicProduceData::default().with_name(TopicName(StrBytes::from_static_str(topic))).with_partition_data(data);
            let answer =
                self.client.ask(9, &ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![data]))?;
            let codes = answer.responses.iter().flat_map(|topic| &topic.partition_responses).map(|partition| partition.error_code);
            ensure!(codes.clone().all(|code| code == 0), "{topic}: {:?}", codes.collect::<Vec<_>>());
        }
        self.past.push((now_ms, self.ends.clone()));
        Ok(())
    }

    /// Each group commits as far as it has come by now.
    fn read(&self, now_ms: i64) -> Result<()> {
        let minutes = (now_ms - self.end_ms) as f64 / MINUTE_MS as f64;
        for (group, seats) in &self.seats {
            let behind = |minutes: f64| now_ms - (minutes * MINUTE_MS as f64) as i64;
            // As far as the clock of the group is behind ours.
            let upto = match *group {
                "billing" => behind(((minutes + 44.0) * 38.3 / 44.0).max(0.0)),
                "recommendations" => behind((41.0 - (minutes + 20.0) * 1.6).max(0.0)),
                _ => now_ms,
            };
            let stuck = self.as_of(now_ms.min(self.end_ms - 21 * MINUTE_MS - 20_000));
            let ends = self.as_of(upto);
            for seat in seats {
                let owned = ends.iter().filter(|((topic, partition), _)| seat.owns(topic, *partition));
                let offsets: Vec<_> = owned
                    .map(|((topic, partition), end)| {
                        let end = if *group == "fraud-check" && (*topic, *partition) == STUCK { stuck[&STUCK] } else { *end };
                        ((*topic).to_owned(), *partition, end)
                    })
                    .collect();
                seat.commit_all(&offsets)?;
            }
        }
        Ok(())
    }

    /// Where the partitions ended then; all of them began with the hour.
    fn as_of(&self, at_ms: i64) -> Ends {
        let next = self.past.partition_point(|(when, _)| *when <= at_ms);
        let end = |nth: Option<usize>, partition: (&str, i32)| nth.and_then(|nth| self.past.get(nth)?.1.get(&partition)).copied();
        let time = |nth: usize| self.past.get(nth).map(|(when, _)| *when);
        let last = next.checked_sub(1);
        // What came in a step came evenly.
        let part = match (last.and_then(time), time(next)) {
            (Some(from), Some(to)) if to > from => (at_ms - from) as f64 / (to - from) as f64,
            _ => 0.0,
        };
        let of = |partition: (&'static str, i32)| {
            let from = end(last, partition).unwrap_or(0);
            from + ((end(Some(next), partition).unwrap_or(from) - from) as f64 * part) as i64
        };
        self.ends.keys().map(|partition| (*partition, of(*partition))).collect()
    }
}

fn batch(topic: &str, now_ms: i64, first: usize, count: usize) -> Bytes {
    let record = |nth: usize| {
        let value = format!("{{\"{topic}\":{nth},\"total\":{}.50,\"currency\":\"EUR\"}}", nth % 190 + 9);
        let headers = vec![("trace".to_owned(), Some(format!("4bf92f{nth:x}").into_bytes()))];
        Record { key: Some(format!("customer-{}", nth % 97).into_bytes()), value: Some(value.into_bytes()), headers, ..Record::default() }
    };
    Batch::of(now_ms, &(first..first + count).map(record).collect::<Vec<_>>()).encode()
}
