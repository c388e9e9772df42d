//! Pages of a real log that holds batches nobody can decode: clients' batches are stored as they came.

use super::*;
use crate::{
    config::TopicConfig,
    log::{LogSettings, Logs, Origin, PartitionSpec, io::RealDisk},
    record::{
        builder::{BatchBuilder, assemble},
        compression::compress,
    },
    types::{LeaderEpoch, Millis, TopicId, TopicName, TopicPartition},
};
use bytes::Bytes;
use std::sync::Arc;

const NOW: Millis = Millis(1_700_000_000_000);

/// A log of these batches.
fn log_of(dir: &std::path::Path, batches: impl IntoIterator<Item = Bytes>) -> (Logs, Arc<PartitionLog>) {
    let logs = Logs::lock(Arc::new(RealDisk), LogSettings { dirs: vec![dir.to_owned()], ..LogSettings::default() }).unwrap();
    let (topic_id, partition) = (TopicId(uuid::Uuid::from_u128(7)), PartitionIndex(0));
    let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition };
    let config = Arc::new(TopicConfig::default());
    logs.open_all(vec![PartitionSpec { topic, topic_id, config, leader_epoch: LeaderEpoch(0) }], NOW).unwrap();
    let log = logs.get(topic_id, partition).unwrap();
    for batch in batches {
        log.append(NOW, batch, Origin::Client).unwrap();
    }
    (logs, log)
}

/// A batch of three records, whole.
fn good() -> Bytes {
    (0..3).fold(BatchBuilder::new(Compression::Gzip), |batch, _| batch.record(NOW, None, Some(b"good"))).build().unwrap()
}

/// A batch whose header says so many records, over this body.
fn saying(records: i32, codec: Compression, body: &[u8]) -> Bytes {
    let mut header = BatchHeader::parse(&good()).unwrap();
    header.attributes = codec.bits();
    (header.record_count, header.last_offset_delta) = (records, records - 1);
    assemble(header, &compress(codec, 1, body).unwrap())
}

/// A record without key and value, `delta` (at most 63) after its batch's first offset.
fn bare(delta: u8) -> [u8; 7] {
    [12, 0, 0, delta * 2, 1, 1, 0]
}

/// Gzip that breaks off.
fn broken_gzip() -> Bytes {
    let whole = good();
    let header = BatchHeader::parse(&whole).unwrap();
    assemble(header, &whole[crate::record::HEADER_BYTES..whole.len() - 12])
}

/// What a page shows: the first and the last offset of each item, and whether it is unreadable.
fn items(page: &Page) -> Vec<(i64, i64, bool)> {
    let item = |record: &Record| {
        assert_eq!(record.kind == "unreadable", record.error.is_some());
        (record.offset, record.last_offset.unwrap_or(record.offset), record.error.is_some())
    };
    page.records.iter().map(item).collect()
}

/// All pages of so many items, from the log's start on.
fn pages(log: &PartitionLog, end: Offset, limit: usize) -> Vec<(i64, i64, bool)> {
    let (mut from, mut all) = (Offset(0), Vec::new());
    while from < end {
        let page = read(log, from, limit, end, Keep::First).unwrap();
        assert!(page.next > from, "stuck at {}", from.0);
        assert!(page.records.len() <= limit);
        all.extend(items(&page));
        from = page.next;
    }
    all
}

/// Three good records at 0, the batch from 3 to `last`, three good records behind it: read at once, page by page, and as the latest.
fn between_good_ones(bad: Bytes, shown: &[(i64, i64, bool)], why: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (_logs, log) = log_of(dir.path(), [good(), bad, good()]);
    let end = log.watermarks().high_watermark;
    let goods = |from: i64| (from..from + 3).map(|offset| (offset, offset, false));
    let expected: Vec<_> = goods(0).chain(shown.iter().copied()).chain(goods(end.0 - 3)).collect();
    let page = read(&log, Offset(0), 50, end, Keep::First).unwrap();
    assert_eq!(items(&page), expected);
    assert_eq!(page.next, end);
    let errors: Vec<_> = page.records.iter().filter_map(|record| record.error.as_deref()).collect();
    assert!(matches!(errors[..], [error] if error.contains(why)), "{errors:?}");
    assert_eq!(items(&latest(&log, Offset(0), end, 50).unwrap()), expected);
    assert_eq!(items(&latest(&log, Offset(0), end, 3).unwrap()), expected[expected.len() - 3..]);
    for limit in [1, 2, 4] {
        assert_eq!(pages(&log, end, limit), expected, "{limit} at a time");
    }
    // Asked from within the batch, it is shown whole.
    let within = read(&log, Offset(end.0 - 4), 50, end, Keep::First).unwrap();
    assert_eq!(items(&within), expected[expected.len() - 4..]);
}

#[test]
fn broken_gzip_is_shown_as_unreadable() {
    between_good_ones(broken_gzip(), &[(3, 5, true)], "Gzip data is malformed");
}

#[test]
fn a_batch_with_fewer_records_than_it_says_is_read_as_far_as_it_goes() {
    let body = [bare(0), bare(1)].concat();
    between_good_ones(saying(5, Compression::Gzip, &body), &[(3, 3, false), (4, 4, false), (5, 7, true)], "record 2 is malformed");
}

#[test]
fn a_record_that_leaves_its_batch_is_not_followed() {
    let body = [bare(0), bare(50), bare(2)].concat();
    between_good_ones(saying(3, Compression::Gzip, &body), &[(3, 3, false), (4, 5, true)], "a record has offset 53");
    between_good_ones(
        saying(3, Compression::Gzip, &[bare(1), bare(1), bare(2)].concat()),
        &[(4, 4, false), (5, 5, true)],
        "a record has offset 4",
    );
}

#[test]
fn what_decompresses_to_too_much_is_shown_as_unreadable() {
    let body = vec![0; DECOMPRESSED_BYTES_MAX + 1];
    between_good_ones(saying(2, Compression::Zstd, &body), &[(3, 4, true)], "decompresses to more than");
}

#[test]
fn bytes_behind_the_last_record_are_told_where_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let body = [bare(0), bare(1), bare(2)].concat();
    let (_logs, log) = log_of(dir.path(), [saying(2, Compression::Gzip, &body), good()]);
    let end = log.watermarks().high_watermark;
    let goods = [(2, 2, false), (3, 3, false), (4, 4, false)];
    let page = read(&log, Offset(0), 50, end, Keep::First).unwrap();
    assert_eq!(items(&page), [&[(0, 0, false), (1, 1, false), (1, 1, true)], &goods[..]].concat());
    assert_eq!(page.records[2].error.as_deref(), Some("the batch says 2 records and has bytes over"));
    assert_eq!(pages(&log, end, 1), [&[(0, 0, false), (1, 1, false)], &goods[..]].concat(), "an offset is not read twice");
}

#[test]
fn a_page_decompresses_so_much_and_leaves_the_rest_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let bomb = saying(1, Compression::Zstd, &vec![0; DECOMPRESSED_BYTES_MAX + 1]);
    let bombs = BACK_MIN + 2;
    let (_logs, log) = log_of(dir.path(), vec![bomb; bombs].into_iter().chain([good()]));
    let end = log.watermarks().high_watermark;
    let page = read(&log, Offset(0), 50, end, Keep::First).unwrap();
    assert!(page.truncated && page.records.len() == BACK_MIN, "{} items", page.records.len());
    assert_eq!(pages(&log, end, 50).len(), bombs + 3);
    let latest = latest(&log, Offset(0), end, 50).unwrap();
    assert!(latest.truncated && latest.next == end, "up to {}", latest.next.0);
}
