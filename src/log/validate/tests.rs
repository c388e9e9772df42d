//! What is refused and with which code, what is rewritten, and that whatever is accepted is a sound batch.

use super::*;
use crate::{
    record::{
        BatchBuilder, EndTxnMarker,
        builder::{assemble, end_txn_batch},
        header::batch_crc,
        varint::write_varint,
    },
    types::{ErrorCode, LeaderEpoch, ProducerEpoch, ProducerId},
};
use proptest::prelude::*;

const NOW: Millis = Millis(1_700_000_000_000);
const CODECS: [Compression; 5] = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn config() -> TopicConfig {
    TopicConfig::default()
}

/// Three records, the newest in the middle.
fn batch(codec: Compression) -> Bytes {
    BatchBuilder::new(codec)
        .record(NOW, Some(b"a"), Some(b"first"))
        .record(NOW.plus(20), Some(b"b"), Some(b"second"))
        .record(NOW.plus(10), Some(b"c"), None)
        .build()
        .unwrap()
}

/// The batch with its header changed, and its CRC made right again.
fn changed(batch: &Bytes, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = BatchHeader::parse(batch).unwrap();
    change(&mut header);
    assemble(header, &batch[HEADER_BYTES..])
}

fn client(batch: &Bytes, config: &TopicConfig) -> Result<Accepted, AppendError> {
    validate(batch, config, NOW, Origin::Client)
}

fn code(batch: &Bytes, config: &TopicConfig) -> ErrorCode {
    client(batch, config).map_or_else(|e| ErrorCode::from(&e), |_| ErrorCode::None)
}

/// The batch that the log would write.
fn stored(accepted: &Accepted) -> Bytes {
    [&accepted.header.encode()[..], &accepted.records].concat().into()
}

fn assert_sound(accepted: &Accepted) {
    let bytes = stored(accepted);
    assert_eq!(accepted.header.size(), Some(bytes.len()));
    assert_eq!(accepted.size(), bytes.len());
    assert_eq!(accepted.header.crc, batch_crc(&bytes));
}

/// Offset, timestamp, key and value.
type Seen = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn records_of(batch: &[u8]) -> Vec<Seen> {
    let opened = BatchRecords::open(batch, 1 << 20).unwrap();
    let own = |b: Option<&[u8]>| b.map(<[u8]>::to_vec);
    opened.iter().map(|r| r.unwrap()).map(|r| (r.offset.0, r.timestamp.0, own(r.key), own(r.value))).collect()
}

#[test]
fn a_good_batch_is_taken_as_it_came() {
    for codec in CODECS {
        let batch = batch(codec);
        let accepted = client(&batch, &config()).unwrap();
        assert_eq!(stored(&accepted), batch, "{codec:?}");
        assert_eq!(accepted.records.as_ptr(), batch[HEADER_BYTES..].as_ptr(), "not copied");
        assert_eq!(accepted.log_append_time, Millis::NONE);
    }
}

#[test]
fn a_damaged_batch_is_corrupt() {
    let good = batch(Compression::None);
    for at in CRC_COVERS_FROM..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 4;
        assert_eq!(code(&bad.into(), &config()), ErrorCode::CorruptMessage, "byte {at}");
    }
    assert_eq!(code(&good.slice(..good.len() - 1), &config()), ErrorCode::CorruptMessage, "cut short");
    assert_eq!(code(&good.slice(..60), &config()), ErrorCode::CorruptMessage);
    assert_eq!(code(&Bytes::new(), &config()), ErrorCode::CorruptMessage);
}

#[test]
fn headers_that_lie_are_refused() {
    let good = batch(Compression::None);
    let refused = |change: fn(&mut BatchHeader)| code(&changed(&good, change), &config());
    assert_eq!(refused(|h| h.base_offset = Offset(1)), ErrorCode::InvalidRecord);
    assert_eq!(refused(|h| h.record_count = 2), ErrorCode::InvalidRecord);
    assert_eq!(refused(|h| h.record_count = 0), ErrorCode::InvalidRecord);
    assert_eq!(refused(|h| h.last_offset_delta = i32::MAX), ErrorCode::InvalidRecord);
    assert_eq!(refused(|h| (h.record_count, h.last_offset_delta) = (-1, -2)), ErrorCode::InvalidRecord);
    assert_eq!(refused(|h| (h.record_count, h.last_offset_delta) = (4, 3)), ErrorCode::InvalidRecord, "fewer records than said");
    assert_eq!(refused(|h| (h.record_count, h.last_offset_delta) = (2, 1)), ErrorCode::InvalidRecord, "more records than said");
    assert_eq!(refused(|h| (h.record_count, h.last_offset_delta) = (i32::MAX, i32::MAX - 1)), ErrorCode::InvalidRecord);
    assert_eq!(refused(|h| h.attributes = 1 << 5), ErrorCode::InvalidRecord, "a control batch");
    assert_eq!(refused(|h| h.producer_id = ProducerId(5)), ErrorCode::InvalidRecord, "an idempotent batch without a sequence");
    assert_eq!(refused(|h| h.attributes = 5), ErrorCode::UnsupportedCompressionType);
    assert_eq!(refused(|h| h.attributes = 1), ErrorCode::InvalidRecord, "no gzip");
    assert_eq!(refused(|h| h.magic = 1), ErrorCode::UnsupportedForMessageFormat);
}

#[test]
fn transactional_batches_need_a_producer() {
    let with = |producer| {
        changed(&batch(Compression::None), |h| {
            h.attributes = 1 << 4;
            (h.producer_id, h.producer_epoch, h.base_sequence) = (producer, ProducerEpoch(0), 0);
        })
    };
    assert_eq!(code(&with(ProducerId::NONE), &config()), ErrorCode::InvalidRecord);
    assert!(validate(&with(ProducerId(5)), &config(), NOW, Origin::Client).is_ok(), "whether it goes on in one the producer's state says");
}

#[test]
fn a_coordinator_writes_markers_and_never_recompresses_them() {
    let marker = end_txn_batch(ProducerId(5), ProducerEpoch(0), EndTxnMarker { commit: true, coordinator_epoch: 0 }, NOW);
    let config = TopicConfig { compression_type: CompressionType::Codec(Compression::Zstd), cleanup_compact: true, ..config() };
    let config = TopicConfig { max_message_bytes: 10, ..config };
    let accepted = validate(&marker, &config, NOW, Origin::Marker { transaction_version: 2 }).unwrap();
    assert_eq!(stored(&accepted), marker, "nor are they too large for a topic");
}

#[test]
fn a_replicated_batch_keeps_everything_but_must_be_whole() {
    let copied = changed(&batch(Compression::None), |h| {
        (h.base_offset, h.leader_epoch, h.last_offset_delta) = (Offset(900), LeaderEpoch(4), 50);
        h.set_log_append_time(Millis(5));
    });
    let config = TopicConfig { compression_type: CompressionType::Codec(Compression::Gzip), max_message_bytes: 10, ..config() };
    assert_eq!(stored(&validate(&copied, &config, NOW, Origin::Replication).unwrap()), copied);
    let torn = [&copied[..copied.len() - 1], b"x"].concat();
    assert!(matches!(validate(&torn.into(), &config, NOW, Origin::Replication), Err(AppendError::Corrupt(_))));
}

#[test]
fn sizes_are_bounded() {
    let batch = batch(Compression::None);
    let at = |max_message_bytes, segment_bytes| code(&batch, &TopicConfig { max_message_bytes, segment_bytes, ..config() });
    assert_eq!(at(batch.len(), batch.len()), ErrorCode::None);
    assert_eq!(at(batch.len() - 1, 1 << 30), ErrorCode::MessageTooLarge);
    assert_eq!(at(1 << 20, batch.len() - 1), ErrorCode::RecordListTooLarge);
}

#[test]
fn records_must_carry_their_place() {
    let mut records = Vec::new();
    for offset_delta in [0, 2] {
        for value in [6, 0, 0, offset_delta, -1, -1, 0] {
            write_varint(&mut records, value);
        }
    }
    let header = BatchHeader::parse(&batch(Compression::None)).unwrap();
    let gapped = assemble(BatchHeader { record_count: 2, last_offset_delta: 1, ..header }, &records);
    assert!(matches!(client(&gapped, &config()), Err(AppendError::InvalidRecord { .. })));
}

#[test]
fn a_wrong_max_timestamp_is_put_right() {
    let good = batch(Compression::None);
    let lying = changed(&good, |h| h.max_timestamp = NOW.plus(999_999));
    let accepted = client(&lying, &config()).unwrap();
    assert_sound(&accepted);
    assert_eq!(stored(&accepted), good);
    let compressed = changed(&batch(Compression::Lz4), |h| h.max_timestamp = NOW.plus(-5));
    let accepted = client(&compressed, &config()).unwrap();
    assert_sound(&accepted);
    assert_eq!(accepted.header.max_timestamp, NOW.plus(20), "older than the base timestamp can't be right");
}

fn record_errors(result: Result<Accepted, AppendError>) -> (ErrorCode, Vec<i32>) {
    let error = result.unwrap_err();
    let code = ErrorCode::from(&error);
    match error {
        AppendError::InvalidRecord { records, .. } | AppendError::InvalidTimestamp { records, .. } => {
            assert!(records.iter().all(|r| r.message.is_some()));
            (code, records.iter().map(|r| r.batch_index).collect())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn timestamps_out_of_bounds_are_blamed_on_their_records() {
    for codec in CODECS {
        let config = TopicConfig { message_timestamp_after_max_ms: 15, ..config() };
        assert_eq!(record_errors(client(&batch(codec), &config)), (ErrorCode::InvalidTimestamp, vec![1]), "{codec:?}");
        let config = TopicConfig { message_timestamp_after_max_ms: 20, ..config };
        assert_eq!(code(&batch(codec), &config), ErrorCode::None, "the bound is allowed");
        let config = TopicConfig { message_timestamp_before_max_ms: 5, ..config };
        let result = validate(&batch(codec), &config, NOW.plus(16), Origin::Client);
        assert_eq!(record_errors(result), (ErrorCode::InvalidTimestamp, vec![0, 2]), "{codec:?}");
    }
    let none = BatchBuilder::default().record(Millis::NONE, None, Some(b"v")).build().unwrap();
    let config = TopicConfig { message_timestamp_before_max_ms: 5, ..config() };
    assert_eq!(code(&none, &config), ErrorCode::None, "no timestamp is no bad one");
}

#[test]
fn a_compacted_topic_needs_keys() {
    let config = TopicConfig { cleanup_compact: true, ..config() };
    for codec in CODECS {
        let keyless = BatchBuilder::new(codec)
            .record(NOW, None, Some(b"v"))
            .record(NOW, Some(b""), Some(b"an empty key is a key"))
            .record(NOW, None, None)
            .build()
            .unwrap();
        assert_eq!(record_errors(client(&keyless, &config)), (ErrorCode::InvalidRecord, vec![0, 2]), "{codec:?}");
        assert_eq!(code(&batch(codec), &config), ErrorCode::None);
    }
}

#[test]
fn one_bad_timestamp_decides_the_code() {
    let config = TopicConfig { cleanup_compact: true, ..config() };
    let batch = BatchBuilder::default().record(NOW, None, None).record(NOW.plus(1 << 40), Some(b"k"), None).build().unwrap();
    assert_eq!(record_errors(client(&batch, &config)), (ErrorCode::InvalidTimestamp, vec![0, 1]));
}

#[test]
fn blame_is_bounded() {
    let mut builder = BatchBuilder::default();
    for _ in 0..5000 {
        builder.append(NOW, None, None, &[]);
    }
    let (_, blamed) = record_errors(client(&builder.build().unwrap(), &TopicConfig { cleanup_compact: true, ..config() }));
    assert_eq!(blamed.len(), RECORD_ERRORS_MAX);
}

#[test]
fn log_append_time_is_stamped_without_touching_the_records() {
    let config = TopicConfig { message_timestamp_type: TimestampType::LogAppendTime, message_timestamp_after_max_ms: 0, ..config() };
    for codec in CODECS {
        let batch = batch(codec);
        let later = NOW.plus(77);
        let accepted = validate(&batch, &config, later, Origin::Client).unwrap();
        assert_sound(&accepted);
        assert_eq!(accepted.log_append_time, later);
        assert_eq!(accepted.header.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(accepted.header.max_timestamp, later);
        assert_eq!(accepted.records.as_ptr(), batch[HEADER_BYTES..].as_ptr(), "not copied");
    }
}

#[test]
fn a_large_batchs_crc_is_carried_over() {
    let topic = TopicConfig { message_timestamp_type: TimestampType::LogAppendTime, ..config() };
    for size in [CARRIED_CRC_FROM_BYTES - 100, CARRIED_CRC_FROM_BYTES, 3 * CARRIED_CRC_FROM_BYTES + 1] {
        let value: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8).collect();
        let batch = BatchBuilder::default().record(NOW, None, Some(&value)).build().unwrap();
        assert_sound(&client(&batch, &topic).unwrap());
    }
}

#[test]
fn a_client_may_not_stamp_log_append_time() {
    let stamped = BatchBuilder::default().record(NOW, Some(b"a"), None).record(NOW, Some(b"b"), None).build_log_append_time(NOW).unwrap();
    let topic = TopicConfig { message_timestamp_type: TimestampType::LogAppendTime, ..config() };
    assert_eq!(record_errors(client(&stamped, &topic)), (ErrorCode::InvalidTimestamp, vec![0, 1]));
    let accepted = client(&stamped, &config()).unwrap();
    assert_sound(&accepted);
    assert_eq!(accepted.header.timestamp_type(), TimestampType::CreateTime, "under CreateTime the bit is taken off, as Kafka does");
}

#[test]
fn compression_type_recompresses() {
    for source in CODECS {
        for target in CODECS {
            let config = TopicConfig { compression_type: CompressionType::Codec(target), ..config() };
            let batch = batch(source);
            let accepted = client(&batch, &config).unwrap();
            assert_sound(&accepted);
            assert_eq!(accepted.header.compression(), Some(target));
            assert_eq!(records_of(&stored(&accepted)), records_of(&batch), "{source:?} to {target:?}");
            assert_eq!(source == target, stored(&accepted) == batch, "the same codec is left alone");
        }
    }
}

#[test]
fn attributes_without_a_meaning_stay_only_in_a_header_that_stays() {
    const UNKNOWN: i16 = 1 << 9;
    let changed = |batch: &Bytes| {
        let mut header = BatchHeader::parse(batch).unwrap();
        header.attributes |= UNKNOWN;
        let mut bytes = [&header.encode()[..], &batch[HEADER_BYTES..]].concat();
        header.crc = crate::record::header::batch_crc(&bytes);
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        Bytes::from(bytes)
    };
    let stamped = TopicConfig { message_timestamp_type: TimestampType::LogAppendTime, ..config() };
    let zstd = TopicConfig { compression_type: CompressionType::Codec(Compression::Zstd), ..config() };
    for (topic, stays) in [(config(), UNKNOWN), (stamped, 0), (zstd, 0)] {
        let accepted = client(&changed(&batch(Compression::None)), &topic).unwrap();
        assert_sound(&accepted);
        assert_eq!(accepted.header.attributes & UNKNOWN, stays, "{topic:?}");
    }
}

#[test]
fn a_record_that_decompresses_to_too_much_is_refused_where_that_is_bounded() {
    for codec in CODECS {
        // Attributes, two deltas, no key, a value with two bytes of length, and no headers.
        let batch = BatchBuilder::new(codec).record(NOW, None, Some(b"v")).record(NOW, None, Some(&[7; 1_000])).build().unwrap();
        let bound = |max_decompressed_message_bytes| TopicConfig { max_decompressed_message_bytes, ..config() };
        assert_eq!(code(&batch, &bound(1_007)), ErrorCode::None, "{codec:?}");
        let refused = if codec == Compression::None { ErrorCode::None } else { ErrorCode::InvalidRecord };
        assert_eq!(code(&batch, &bound(1_006)), refused, "{codec:?}: what is not compressed has max.message.bytes");
    }
}

#[test]
fn a_recompressed_batch_must_fit_too() {
    let bomb = BatchBuilder::new(Compression::Zstd).record(NOW, Some(b"k"), Some(&vec![0; 3 << 20])).build().unwrap();
    assert_eq!(code(&bomb, &config()), ErrorCode::None, "as it is it's small");
    let uncompressed = TopicConfig { compression_type: CompressionType::Codec(Compression::None), ..config() };
    assert_eq!(code(&bomb, &uncompressed), ErrorCode::MessageTooLarge);
}

#[test]
fn a_bomb_is_refused_at_the_cap() {
    let config = TopicConfig { cleanup_compact: true, max_message_bytes: 10_000, ..config() };
    assert_eq!(decompressed_bytes_max(&config), DECOMPRESSED_BYTES_FLOOR);
    let bomb = BatchBuilder::new(Compression::Zstd).record(NOW, Some(b"k"), Some(&vec![0; DECOMPRESSED_BYTES_FLOOR])).build().unwrap();
    assert!(bomb.len() < 10_000);
    let error = client(&bomb, &config).unwrap_err();
    assert_eq!(error.to_string(), "invalid record: Zstd data decompresses to more than 1048576 bytes");
    let largest = TopicConfig { max_message_bytes: usize::MAX, ..config };
    assert_eq!(decompressed_bytes_max(&largest), DECOMPRESSED_BYTES_MAX);
}

#[test]
fn a_produce_request_has_exactly_one_batch() {
    let one = batch(Compression::None);
    let two: Bytes = [&one[..], &one].concat().into();
    let partial: Bytes = [&one[..], &one[..40]].concat().into();
    assert_eq!(split_one_batch(&one, 9).unwrap(), one);
    assert_eq!(split_one_batch(&partial, 9).unwrap(), one, "an incomplete one after it is cut off");
    let refused = |records: &[u8]| ErrorCode::from(&split_one_batch(&Bytes::copy_from_slice(records), 9).unwrap_err());
    assert_eq!(refused(&two), ErrorCode::InvalidRecord);
    assert_eq!(refused(&[]), ErrorCode::InvalidRecord);
    assert_eq!(refused(&one[..one.len() - 1]), ErrorCode::InvalidRecord, "an incomplete one alone is none");
    assert_eq!(refused(&one[..12]), ErrorCode::InvalidRecord);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = one.to_vec();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        refused(&changed)
    };
    assert_eq!(with(16, &[1]), ErrorCode::InvalidRecord, "an old magic");
    assert_eq!(with(16, &[3]), ErrorCode::CorruptMessage, "an unknown magic");
    assert_eq!(with(8, &13_i32.to_be_bytes()), ErrorCode::CorruptMessage);
    assert_eq!(with(8, &i32::MIN.to_be_bytes()), ErrorCode::CorruptMessage);
    assert_eq!(with(8, &i32::MAX.to_be_bytes()), ErrorCode::InvalidRecord, "longer than what came");
    assert_eq!(with(8, &20_i32.to_be_bytes()), ErrorCode::CorruptMessage, "shorter than a header, and what follows is no batch");
}

#[test]
fn zstd_needs_produce_version_7() {
    let zstd = batch(Compression::Zstd);
    assert!(matches!(split_one_batch(&zstd, 6), Err(AppendError::UnsupportedCompression(_))));
    assert!(split_one_batch(&zstd, 7).is_ok());
    assert!(split_one_batch(&batch(Compression::Lz4), 3).is_ok());
}

fn any_config() -> impl Strategy<Value = TopicConfig> {
    let compression_type =
        prop_oneof![Just(CompressionType::Producer), prop::sample::select(CODECS.to_vec()).prop_map(CompressionType::Codec)];
    let timestamp_type = prop_oneof![Just(TimestampType::CreateTime), Just(TimestampType::LogAppendTime)];
    (compression_type, timestamp_type, any::<bool>(), prop_oneof![Just(i64::MAX), 0..1_000_000_i64]).prop_map(
        |(compression_type, message_timestamp_type, cleanup_compact, message_timestamp_before_max_ms)| TopicConfig {
            compression_type,
            message_timestamp_type,
            cleanup_compact,
            message_timestamp_before_max_ms,
            ..TopicConfig::default()
        },
    )
}

proptest! {
    /// Whatever is accepted is a sound batch with as many records as it says, each at its place.
    #[test]
    fn what_is_accepted_is_sound(
        config in any_config(), source in prop::sample::select(CODECS.to_vec()), stamps in prop::collection::vec(-2000..2000_i64, 1..30),
    ) {
        let mut builder = BatchBuilder::new(source);
        for stamp in &stamps {
            builder.append(NOW.plus(*stamp), Some(b"key"), Some(b"value"), &[(b"h", None)]);
        }
        let batch = builder.build().unwrap();
        match client(&batch, &config) {
            Ok(accepted) => {
                assert_sound(&accepted);
                let records = records_of(&stored(&accepted));
                prop_assert_eq!(records.len(), stamps.len());
                prop_assert_eq!(records.last().unwrap().0, accepted.header.last_offset().0);
                let newest = records.iter().map(|r| r.1).max().unwrap();
                prop_assert_eq!(accepted.header.max_timestamp, Millis(newest));
                prop_assert!(client(&changed(&stored(&accepted), |h| h.set_timestamp_type(TimestampType::CreateTime)), &config).is_ok());
            }
            Err(error) => {
                let oldest = stamps.iter().min().unwrap();
                prop_assert_eq!(ErrorCode::from(&error), ErrorCode::InvalidTimestamp);
                prop_assert!(-oldest > config.message_timestamp_before_max_ms);
            }
        }
    }

    /// Random bytes and random damage under a right CRC: refused or sound, never a panic.
    #[test]
    fn hostile_batches_are_refused_or_sound(
        config in any_config(), bytes: Vec<u8>, source in prop::sample::select(CODECS.to_vec()), at: prop::sample::Index, byte: u8,
    ) {
        let bytes = Bytes::from(bytes);
        let _ = split_one_batch(&bytes, 9);
        let _ = client(&bytes, &config);
        let mut damaged = batch(source).to_vec();
        let place = at.index(damaged.len());
        damaged[place] = byte;
        let _ = split_one_batch(&damaged.clone().into(), 9);
        let crc = batch_crc(&damaged);
        damaged[17..21].copy_from_slice(&crc.to_be_bytes());
        if let Ok(accepted) = client(&damaged.into(), &config) {
            assert_sound(&accepted);
        }
    }
}
