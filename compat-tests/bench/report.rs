//! The figures of one broker, the least of several rounds, and the table that sets two brokers side by side.

use std::fmt;

/// What one round, or the least of all, shows of a broker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// CPU seconds per GB produced in 1 MB batches, in 10 KB batches, and consumed.
    pub large_s: f64,
    pub small_s: f64,
    pub consumed_s: f64,
    pub large_batch_bytes: f64,
    pub small_batch_bytes: f64,
    /// Seconds from start to the first answered Metadata.
    pub start_s: f64,
    pub resident_idle_mb: f64,
    pub resident_after_mb: f64,
}

impl Figures {
    pub fn keep_least(&mut self, seen: &Figures) {
        let first = self.large_batch_bytes == 0.0;
        let least = |have: f64, new: f64| if first { new } else { have.min(new) };
        self.large_s = least(self.large_s, seen.large_s);
        self.small_s = least(self.small_s, seen.small_s);
        self.consumed_s = least(self.consumed_s, seen.consumed_s);
        self.large_batch_bytes = seen.large_batch_bytes;
        self.small_batch_bytes = seen.small_batch_bytes;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CPU s/GB: {:.2} in batches of {:.0} B, {:.2} in batches of {:.0} B, {:.2} consumed",
            self.large_s, self.large_batch_bytes, self.small_s, self.small_batch_bytes, self.consumed_s
        )
    }
}

enum Limit {
    /// Of Apache Kafka's figure.
    Ratio(f64),
    /// Of our own.
    Absolute(f64),
    None,
}

struct Row {
    what: &'static str,
    highwater: f64,
    kafka: f64,
    limit: Limit,
}

/// Prints the table to stdout; false if a figure is above its limit.
pub fn print(highwater: &Figures, kafka: &Figures, rounds: u32) -> bool {
    let row = |what, figure: fn(&Figures) -> f64, limit| Row { what, highwater: figure(highwater), kafka: figure(kafka), limit };
    let rows = [
        row("broker CPU s per GB produced, 1 KB records in 1 MB batches", |f| f.large_s, Limit::Ratio(0.9)),
        row("broker CPU s per GB produced, 1 KB records in 10 KB batches", |f| f.small_s, Limit::Ratio(0.5)),
        row("broker CPU s per GB consumed, cached, large fetches", |f| f.consumed_s, Limit::Ratio(1.0)),
        row("s from start to the first answered Metadata", |f| f.start_s, Limit::Absolute(0.1)),
        row("MB resident, idle", |f| f.resident_idle_mb, Limit::Absolute(20.0)),
        row("MB resident, after the run", |f| f.resident_after_mb, Limit::None),
    ];
    println!("Least of {rounds} rounds; broker on one core, client on another.\n");
    println!("| what | highwater | Apache Kafka | ratio | limit | |\n| --- | ---: | ---: | ---: | ---: | --- |");
    let mut passed = true;
    for row in &rows {
        let ratio = row.highwater / row.kafka;
        let (limit, within) = match row.limit {
            Limit::Ratio(limit) => (format!("{limit} of Kafka's"), ratio <= limit),
            Limit::Absolute(limit) => (format!("{limit}"), row.highwater <= limit),
            Limit::None => (String::new(), true),
        };
        passed &= within;
        let verdict = if within { "" } else { "above the limit" };
        println!("| {} | {:.3} | {:.3} | {ratio:.2} | {limit} | {verdict} |", row.what, row.highwater, row.kafka);
    }
    passed
}
