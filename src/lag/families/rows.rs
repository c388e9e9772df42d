//! Families of partitions that groups read: most of a scrape, in a table of numbers that is written as it is sent.

use super::Row;
use crate::{
    lag::partition::Reading,
    telemetry::{
        exposition::{CommonLabels, Later, write_head, write_numbered},
        names::{self, Metric},
    },
    types::{Millis, TopicName},
};

/// A family: its metric, what it is for a row, and how that is written.
struct Column {
    metric: &'static Metric,
    value: fn(&Row<'_>, Millis) -> Option<i64>,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    Offsets,
    Milliseconds,
}

impl Column {
    const fn offsets(metric: &'static Metric, value: fn(&Row<'_>, Millis) -> Option<i64>) -> Self {
        Self { metric, value, unit: Unit::Offsets }
    }

    const fn times(metric: &'static Metric, value: fn(&Row<'_>, Millis) -> Option<i64>) -> Self {
        Self { metric, value, unit: Unit::Milliseconds }
    }
}

const COLUMNS: [Column; 7] = [
    Column::offsets(&names::GROUP_CURRENT_OFFSET, |row, _| row.reader.commit.map(|commit| commit.offset.0.max(0))),
    Column::offsets(&names::GROUP_LAG, |row, _| Some(row.behind.records)),
    // One that nobody reads any more would be behind for ever.
    Column::times(&names::GROUP_LAG_SECONDS, |row, _| row.behind.ms.filter(|_| row.reader.reading != Reading::Abandoned)),
    Column::times(&names::GROUP_EVENT_LAG_SECONDS, |row, _| row.behind.event_ms.filter(|_| row.reader.reading != Reading::Abandoned)),
    Column::times(&names::GROUP_OLDEST, |row, _| row.behind.first.map(|first| first.timestamp.0).filter(|at| *at >= 0)),
    Column::times(&names::GROUP_MARGIN, |row, _| row.behind.margin_ms),
    Column::times(&names::GROUP_COMMIT_AGE, |row, now| row.reader.commit.map(|commit| now.0.saturating_sub(commit.at.0).max(0))),
];

/// In the place of a number that isn't there; none is negative.
const ABSENT: i64 = -1;

/// A partition's numbers; 64 bytes, and there may be hundreds of thousands.
struct Numbers {
    /// Where its labels stand.
    labels: u32,
    partition: i32,
    values: [i64; COLUMNS.len()],
}

/// The table, and how far it is written.
#[derive(Default)]
pub struct Rows {
    /// Of each group and topic.
    labels: Vec<CommonLabels>,
    rows: Vec<Numbers>,
    column: usize,
    next: usize,
    /// The family has its head.
    begun: bool,
}

impl Rows {
    /// All rows of a group, topic by topic.
    pub fn take(&mut self, of_group: &[Row<'_>], now: Millis) {
        let mut current: Option<&TopicName> = None;
        for row in of_group {
            if current.is_none_or(|topic| !std::ptr::eq(topic, row.topic)) {
                current = Some(row.topic);
                self.labels.push(CommonLabels::of(&names::GROUP_LAG, &[row.group, row.topic.as_str()]));
            }
            let labels = self.labels.len().saturating_sub(1);
            let values = COLUMNS.each_ref().map(|column| (column.value)(row, now).unwrap_or(ABSENT));
            self.rows.push(Numbers { labels: u32::try_from(labels).unwrap_or(u32::MAX), partition: row.reader.partition.0, values });
        }
    }
}

impl Later for Rows {
    fn write(&mut self, text: &mut String, bytes: usize) {
        while text.len() < bytes
            && let Some(column) = COLUMNS.get(self.column)
        {
            let Some(row) = self.rows.get(self.next) else {
                (self.column, self.next, self.begun) = (self.column.saturating_add(1), 0, false);
                continue;
            };
            self.next = self.next.saturating_add(1);
            let value = row.values.get(self.column).copied().unwrap_or(ABSENT);
            let Some(labels) = self.labels.get(row.labels as usize).filter(|_| value != ABSENT) else { continue };
            if !self.begun {
                self.begun = true;
                write_head(text, column.metric);
            }
            match column.unit {
                Unit::Offsets => write_numbered(text, column.metric, labels, row.partition, &value),
                Unit::Milliseconds => write_numbered(text, column.metric, labels, row.partition, &Millis(value)),
            }
        }
    }
}
