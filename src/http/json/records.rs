//! `/api/topics/{topic}/partitions/{partition}/records`: a page of a partition, for people to read. A batch that can't be decoded is shown as
//! that, and what lies behind it is read: nobody is told less of a partition because of what one producer sent.

use super::{
    super::view::{self, Header, Record},
    Asked, Failed, Json,
    bytes::shown,
};
use crate::{
    log::{Isolation, PartitionLog},
    record::{BatchHeader, BatchRecords, Compression, EndTxnMarker, TimestampType},
    types::{Offset, PartitionIndex},
};
use axum::http::StatusCode;
use std::{collections::VecDeque, fmt::Display};

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 200;
/// What one answer shows of keys, values and headers.
const SHOWN_BYTES_MAX: usize = 1 << 20;
/// What is read of the log for one page, and at once.
const READ_BYTES_MAX: usize = 32 << 20;
const READ_BYTES: usize = 1 << 20;
/// What a batch may be decompressed to.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;
/// What the batches of one page are decompressed to together: a few kilobytes can be made to hold that much. Enough for [`BACK_MIN`] batches.
const PAGE_DECOMPRESSED_BYTES_MAX: usize = BACK_MIN * DECOMPRESSED_BYTES_MAX;
/// How far back the latest records are looked for at first.
const BACK_MIN: usize = 16;
/// Headers of a record that are shown.
const HEADERS_MAX: usize = 100;

pub(super) fn page(asked: &Asked<'_>) -> Result<Json, Failed> {
    let Some(topic) = asked.image.topic(asked.name(0)) else { return Err(Failed::not_found("topic")) };
    let partition = asked.name(1).parse().map(PartitionIndex).map_err(|_| Failed::bad("the partition is no number"))?;
    let Some(log) = asked.broker.context.logs.get(topic.id, partition) else { return Err(Failed::not_found("partition")) };
    let limit = asked.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    if limit == 0 {
        // Its `next` would be where it began, for ever.
        return Err(Failed::bad("limit has to be 1 or more"));
    }
    let from = asked.number("from")?.map(Offset);
    let marks = log.watermarks();
    let (log_start, end) = (marks.log_start, marks.high_watermark);
    let page = match from {
        Some(from) => read(&log, from.clamp(log_start, end), limit, end, Keep::First)?,
        None => latest(&log, log_start, end, limit)?,
    };
    let first = page.records.front().map_or(page.next, |record| Offset(record.offset));
    let previous = (first > log_start).then(|| first.plus(-i64::try_from(limit).unwrap_or(0)).max(log_start).0);
    Json::of(&view::Records {
        now_ms: asked.now.0,
        topic: topic.name.to_string(),
        partition: partition.0,
        log_start: log_start.0,
        end: end.0,
        next: page.next.0,
        previous,
        truncated: page.truncated,
        records: page.records.into(),
    })
}

/// Which records of a stretch are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    First,
    Last,
}

struct Page {
    keep: Keep,
    limit: usize,
    records: VecDeque<Record>,
    /// What they show.
    bytes: usize,
    /// What their batches, and those that were passed over, were decompressed to.
    decompressed: usize,
    next: Offset,
    /// Fewer than asked for, because they are so large.
    truncated: bool,
    /// So much was read that the rest of the stretch was left.
    cut_short: bool,
}

/// The last records: where compaction has left few, from further back; where they are large, no further back than can be read at once.
fn latest(log: &PartitionLog, log_start: Offset, end: Offset, limit: usize) -> Result<Page, Failed> {
    const STEPS: usize = 40;
    let mut back = i64::try_from(BACK_MIN.min(limit)).unwrap_or(i64::MAX).max(1);
    let mut best: Option<Page> = None;
    for _ in 0..STEPS {
        let from = end.plus(-back).max(log_start);
        let page = read(log, from, limit, end, Keep::Last)?;
        if page.cut_short
            && let Some(best) = best
        {
            return Ok(Page { truncated: true, ..best });
        }
        if page.records.len() >= limit || from == log_start || page.truncated {
            return Ok(page);
        }
        best = Some(page);
        back = back.saturating_mul(2);
    }
    best.map_or_else(|| read(log, log_start, limit, end, Keep::Last), Ok)
}

/// Records from an offset on, up to another one.
fn read(log: &PartitionLog, from: Offset, limit: usize, end: Offset, keep: Keep) -> Result<Page, Failed> {
    let failed = |error: &dyn Display| Failed(StatusCode::INTERNAL_SERVER_ERROR, format!("can't read the partition: {error}"));
    let mut page =
        Page { keep, limit, records: VecDeque::new(), bytes: 0, decompressed: 0, next: from, truncated: false, cut_short: false };
    let mut left = READ_BYTES_MAX;
    while page.next < end {
        let slice = log.read(page.next, READ_BYTES, true, Isolation::ReadUncommitted).map_err(|error| failed(&error))?;
        if slice.len == 0 {
            break;
        }
        left = left.saturating_sub(slice.len);
        let bytes = slice.bytes().map_err(|error| failed(&error))?;
        let (mut rest, before) = (&bytes[..], page.next);
        while let Some(header) = BatchHeader::parse(rest)
            && let Some((batch, after)) = header.size().and_then(|size| rest.split_at_checked(size))
        {
            rest = after;
            if !page.take(&header, batch, end) {
                return Ok(page);
            }
            page.next = page.next.max(header.next_offset());
            if page.decompressed >= PAGE_DECOMPRESSED_BYTES_MAX && page.next < end {
                (page.cut_short, page.truncated) = (true, true);
                return Ok(page);
            }
        }
        page.cut_short = left == 0 && page.next < end;
        if page.next == before || left == 0 {
            break;
        }
    }
    page.truncated |= page.cut_short;
    Ok(page)
}

impl Page {
    /// Takes a batch's records; false once it is full.
    fn take(&mut self, header: &BatchHeader, batch: &[u8], end: Offset) -> bool {
        let (mut unread, last) = (header.base_offset, header.last_offset());
        if last < self.next {
            return true;
        }
        let opened = match BatchRecords::open(batch, DECOMPRESSED_BYTES_MAX) {
            Ok(opened) => opened,
            Err(error) => {
                self.decompressed = self.decompressed.saturating_add(DECOMPRESSED_BYTES_MAX);
                return self.take_unreadable(header, unread, batch.len(), end, &error);
            }
        };
        if header.compression() != Some(Compression::None) {
            self.decompressed = self.decompressed.saturating_add(opened.body().len());
        }
        for record in opened.iter() {
            let record = match record {
                Ok(record) if (unread..=last).contains(&record.offset) => record,
                // Followed, it would lead past other batches, or past the end, where no page gets by.
                Ok(record) => {
                    return self.take_unreadable(header, unread, batch.len(), end, &format!("a record has offset {}", record.offset.0));
                }
                Err(error) => return self.take_unreadable(header, unread, batch.len(), end, &error),
            };
            unread = record.offset.plus(1);
            if record.offset >= self.next && !self.push(view_of(header, &record), unread, end) {
                return false;
            }
        }
        true
    }

    /// Takes what is left of a batch, from `first` on, as one item that says why it can't be read.
    fn take_unreadable(&mut self, header: &BatchHeader, first: Offset, size_bytes: usize, end: Offset, error: &dyn Display) -> bool {
        let last = header.last_offset();
        // Where the last record has bytes behind it, no offset is left.
        let first = first.min(last);
        let item = Record {
            offset: first.0,
            last_offset: Some(last.0),
            error: Some(error.to_string()),
            timestamp_ms: header.max_timestamp.0,
            timestamp_type: timestamp_type(header),
            size_bytes,
            kind: "unreadable".to_owned(),
            marker: None,
            key: None,
            value: None,
            headers: Vec::new(),
        };
        self.push(item, last.plus(1), end)
    }

    /// Takes an item, after which `next` comes; false once the page is full.
    fn push(&mut self, item: Record, next: Offset, end: Offset) -> bool {
        if item.offset >= end.0 || self.keep == Keep::First && self.records.len() >= self.limit {
            return false;
        }
        let bytes = bytes_of(&item);
        if self.keep == Keep::First && self.bytes.saturating_add(bytes) > SHOWN_BYTES_MAX {
            self.truncated = true;
            return false;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.next = next;
        self.records.push_back(item);
        while self.records.len() > self.limit || self.bytes > SHOWN_BYTES_MAX {
            self.truncated |= self.bytes > SHOWN_BYTES_MAX;
            let Some(first) = self.records.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(bytes_of(&first));
        }
        true
    }
}

/// What a record shows.
fn bytes_of(record: &Record) -> usize {
    let texts = [&record.key, &record.value].into_iter().flatten().map(|bytes| bytes.text.len());
    let headers = record.headers.iter().map(|header| header.key.len().saturating_add(header.value.as_ref().map_or(0, |v| v.text.len())));
    texts.chain(headers).chain(record.error.as_ref().map(String::len)).fold(0, usize::saturating_add)
}

fn timestamp_type(header: &BatchHeader) -> String {
    match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
    .to_owned()
}

fn view_of(header: &BatchHeader, record: &crate::record::Record<'_>) -> Record {
    let is_control = header.is_control();
    let marker = record.key.filter(|_| is_control).and_then(|key| EndTxnMarker::decode(key, record.value.unwrap_or_default()));
    let sizes = [record.key, record.value].into_iter().flatten().map(<[u8]>::len);
    let headers = record.headers.take(HEADERS_MAX);
    Record {
        offset: record.offset.0,
        last_offset: None,
        error: None,
        timestamp_ms: record.timestamp.0,
        timestamp_type: timestamp_type(header),
        size_bytes: sizes.fold(0, usize::saturating_add),
        kind: if is_control { "control" } else { "record" }.to_owned(),
        marker: marker.map(|marker| if marker.commit { "COMMIT" } else { "ABORT" }.to_owned()),
        key: record.key.filter(|_| !is_control).map(shown),
        value: record.value.filter(|_| !is_control).map(shown),
        headers: headers.map(|(key, value)| Header { key: String::from_utf8_lossy(key).into_owned(), value: value.map(shown) }).collect(),
    }
}

#[cfg(test)]
mod tests;
