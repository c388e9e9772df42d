//! The record module as a whole: what Apache Kafka's Java client wrote reads back, what is built reads back, and hostile bytes harm nothing.

use super::{
    builder::{assemble, end_txn_batch},
    compression::{CompressionError, begins_like, compress, decompress_capped},
    header::batch_crc,
    varint::write_varint,
    *,
};
use crate::types::{LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId};
use proptest::prelude::*;

const CODECS: [Compression; 5] = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
const CAP: usize = 4 << 20;

/// A record that owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl From<Record<'_>> for Owned {
    fn from(record: Record) -> Self {
        let own = |b: Option<&[u8]>| b.map(<[u8]>::to_vec);
        let headers = record.headers.map(|(k, v)| (k.to_vec(), own(v))).collect();
        Self { timestamp: record.timestamp.0, key: own(record.key), value: own(record.value), headers }
    }
}

fn read(batch: &[u8]) -> Result<Vec<Owned>, RecordsError> {
    BatchRecords::open(batch, CAP)?.iter().map(|r| r.map(Owned::from)).collect()
}

fn build(compression: Compression, records: &[Owned]) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(compression);
    for r in records {
        let headers: Vec<_> = r.headers.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
        builder.append(Millis(r.timestamp), r.key.as_deref(), r.value.as_deref(), &headers);
    }
    builder.build().unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Three records as kafka-clients 4.4's `MemoryRecordsBuilder` wrote them, for producer 7 of epoch 2 from sequence 10 on.
const FROM_JAVA: [(Compression, &str); 5] = [
    (
        Compression::None,
        "00000000000000000000005fffffffff025a9a9aa30000000000020000018bcfe568000000018bcfe56805000000000000000700020000000a000000032c00\
         0000046b300e76616c756520300402680278026e011a000a02010e76616c756520310010001304046b320100",
    ),
    (
        Compression::Gzip,
        "00000000000000000000006effffffff027ce691770001000000020000018bcfe568000000018bcfe56805000000000000000700020000000a000000031f8b\
         08000000000000ffd361606060c936e02b4bcc294d55306061ca60aa60ca639462e06262840a1a32083008b3b0641b3132000058d1b9b42e000000",
    ),
    (
        Compression::Snappy,
        "000000000000000000000071ffffffff0252964b630002000000020000018bcfe568000000018bcfe56805000000000000000700020000000a000000038253\
         4e415050590000000001000000010000002c2e6c2c000000046b300e76616c756520300402680278026e011a000a02010d1528310010001304046b320100",
    ),
    (
        Compression::Lz4,
        "00000000000000000000006cffffffff020c064fe10003000000020000018bcfe568000000018bcfe56805000000000000000700020000000a000000030422\
         4d186040822c000000f30d2c000000046b300e76616c756520300402680278026e011a000a02011500b0310010001304046b32010000000000",
    ),
    (
        Compression::Zstd,
        "00000000000000000000006bffffffff0234805d670004000000020000018bcfe568000000018bcfe56805000000000000000700020000000a0000000328b5\
         2ffd00587001002c000000046b300e76616c756520300402680278026e011a000a02010e76616c756520310010001304046b320100010000",
    ),
];

fn javas_records() -> Vec<Owned> {
    let own = |text: &str| Some(text.as_bytes().to_vec());
    vec![
        Owned {
            timestamp: 1_700_000_000_000,
            key: own("k0"),
            value: own("value 0"),
            headers: vec![(b"h".to_vec(), own("x")), (b"n".to_vec(), None)],
        },
        Owned { timestamp: 1_700_000_000_005, key: None, value: own("value 1"), headers: vec![] },
        Owned { timestamp: 1_699_999_999_990, key: own("k2"), value: None, headers: vec![] },
    ]
}

#[test]
fn batches_of_the_java_client_read_back() {
    for (codec, hex) in FROM_JAVA {
        let batch = unhex(hex);
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!(header.compression(), Some(codec));
        assert_eq!(header.size(), Some(batch.len()));
        assert_eq!(header.crc, batch_crc(&batch), "{codec:?}");
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (ProducerId(7), ProducerEpoch(2), 10));
        assert_eq!(read(&batch).unwrap(), javas_records(), "{codec:?}");
        for other in CODECS.into_iter().filter(|c| !matches!(c, Compression::None | Compression::Snappy)) {
            assert_eq!(begins_like(other, &batch[HEADER_BYTES..]), other == codec, "{codec:?} as {other:?}");
        }
        assert!(begins_like(codec, &batch[HEADER_BYTES..]));
        assert!(codec == Compression::None || !begins_like(codec, b""));
    }
}

#[test]
fn an_uncompressed_batch_is_built_as_java_builds_it() {
    let mut builder = BatchBuilder::default().producer(ProducerId(7), ProducerEpoch(2), 10);
    for r in javas_records() {
        let headers: Vec<_> = r.headers.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
        builder.append(Millis(r.timestamp), r.key.as_deref(), r.value.as_deref(), &headers);
    }
    assert_eq!(builder.build().unwrap(), unhex(FROM_JAVA[0].1));
}

#[test]
fn lz4_and_snappy_are_framed_as_java_frames_them() {
    let lz4 = compress(Compression::Lz4, 9, b"a").unwrap();
    assert_eq!(lz4[..7], unhex(FROM_JAVA[3].1)[61..68], "magic, independent blocks of 64 KB, and the header's checksum");
    let snappy = compress(Compression::Snappy, 0, b"a").unwrap();
    assert_eq!(snappy[..16], unhex(FROM_JAVA[2].1)[61..77], "xerial's header");
}

#[test]
fn raw_snappy_is_read_too() {
    let text = b"librdkafka sends snappy without frames ".repeat(100);
    let raw = snap::raw::Encoder::new().compress_vec(&text).unwrap();
    assert_eq!(decompress_capped(Compression::Snappy, &raw, CAP).unwrap(), &text[..]);
}

#[test]
fn a_bomb_stops_at_the_cap() {
    let zeros = vec![0; 64 << 20];
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let bomb = compress(codec, 1, &zeros).unwrap();
        let refused = decompress_capped(codec, &bomb, 1 << 20);
        assert!(matches!(refused, Err(CompressionError::TooLarge(c, max)) if c == codec && max == 1 << 20), "{codec:?}");
        assert_eq!(decompress_capped(codec, &bomb, zeros.len()).unwrap().len(), zeros.len(), "{codec:?}: just at the cap");
        assert!(decompress_capped(codec, &bomb, zeros.len() - 1).is_err(), "{codec:?}: one beyond");
    }
    assert!(matches!(decompress_capped(Compression::None, &zeros, 5), Err(CompressionError::TooLarge(..))));
}

#[test]
fn a_lying_snappy_length_takes_no_memory() {
    // A raw block that claims 3 MB and holds one literal byte.
    let lie = [0x80, 0x80, 0xc0, 0x01, 0x00, b'a'];
    assert!(matches!(decompress_capped(Compression::Snappy, &lie, CAP), Err(CompressionError::Malformed(..))));
    let framed = [&unhex(FROM_JAVA[2].1)[61..77], &u32::MAX.to_be_bytes(), b"abc"].concat();
    assert!(matches!(decompress_capped(Compression::Snappy, &framed, CAP), Err(CompressionError::Malformed(..))));
}

#[test]
fn the_densest_snappy_is_no_lie() {
    let zeros = vec![0; CAP];
    let raw = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
    assert_eq!(decompress_capped(Compression::Snappy, &raw, CAP).unwrap().len(), CAP);
}

#[test]
fn an_empty_batch_reads_as_none() {
    let empty = BatchBuilder::default().build().unwrap();
    assert!(read(&empty).unwrap().is_empty());
    assert!(BatchRecords::open(&empty[..60], CAP).is_err());
}

/// A batch around raw record bytes that says `count` records.
fn batch_of(count: i32, records: &[u8]) -> bytes::Bytes {
    let built = BatchBuilder::default().record(Millis(5), None, Some(b"v")).build().unwrap();
    let header = BatchHeader { record_count: count, ..BatchHeader::parse(&built).unwrap() };
    assemble(header, records)
}

fn varints(values: &[i32]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|v| write_varint(&mut out, *v));
    out
}

#[test]
fn lying_counts_and_lengths_are_told() {
    let good = build(Compression::None, &javas_records());
    let records = &good[HEADER_BYTES..];
    let told = |count, records: &[u8]| read(&batch_of(count, records)).unwrap_err().to_string();
    assert_eq!(read(&batch_of(3, records)).unwrap().len(), 3);
    assert_eq!(told(2, records), "the batch says 2 records and has bytes over");
    assert_eq!(told(4, records), "record 3 is malformed: its length is no varint");
    assert_eq!(told(i32::MAX, records), "record 3 is malformed: its length is no varint");
    assert_eq!(told(-1, records), "the batch says -1 records and has bytes over");
    assert_eq!(told(1, &varints(&[-1])), "record 0 is malformed: its length is negative");
    assert_eq!(told(1, &varints(&[0])), "record 0 is malformed: it is empty");
    assert_eq!(told(1, &varints(&[i32::MAX])), "record 0 is malformed: it is longer than the batch");
    // Length, attributes, timestamp, offset, then the key's length and the value's.
    assert_eq!(told(1, &varints(&[6, 0, 0, 0, 40, -1, 0])), "record 0 is malformed: its key is longer than it");
    assert_eq!(told(1, &varints(&[6, 0, 0, 0, -1, 40, 0])), "record 0 is malformed: its value is longer than it");
    assert_eq!(told(1, &varints(&[6, 0, 0, 0, -1, -1, -3])), "record 0 is malformed: its header count does not fit its length");
    assert_eq!(told(1, &varints(&[7, 0, 0, 0, -1, -1, 1 << 12])), "record 0 is malformed: its header count does not fit its length");
    assert_eq!(told(1, &varints(&[8, 0, 0, 0, -1, -1, 1, -1, 0])), "record 0 is malformed: a header is longer than it");
    assert_eq!(told(1, &varints(&[8, 0, 0, 0, -1, -1, 0, 0, 0])), "record 0 is malformed: it has bytes over");
    assert_eq!(told(1, &varints(&[9, 0, 0, 0, -1, -1, 1, 0, -1, 0])), "record 0 is malformed: it has bytes over");
    assert_eq!(read(&batch_of(1, &varints(&[6, 0, 0, 0, -1, -1, 0]))).unwrap()[0].timestamp, 5);
}

#[test]
fn an_iteration_ends_at_its_first_error() {
    let batch = batch_of(3, &varints(&[6, 0, 0, 0, -1, -1, 0, 6, 0, 0]));
    let opened = BatchRecords::open(&batch, CAP).unwrap();
    let results: Vec<_> = opened.iter().map(|r| r.is_ok()).collect();
    assert_eq!(results, [true, false]);
}

#[test]
fn log_append_time_is_every_records_timestamp() {
    let batch = BatchBuilder::default()
        .base_offset(Offset(40))
        .leader_epoch(LeaderEpoch(3))
        .record(Millis(1), None, Some(b"a"))
        .record(Millis(2), None, Some(b"b"))
        .build_log_append_time(Millis(99))
        .unwrap();
    let opened = BatchRecords::open(&batch, CAP).unwrap();
    assert_eq!(opened.header().timestamp_type(), TimestampType::LogAppendTime);
    let seen: Vec<_> = opened.iter().map(|r| r.unwrap()).map(|r| (r.offset.0, r.timestamp.0)).collect();
    assert_eq!(seen, [(40, 99), (41, 99)]);
    assert_eq!(opened.header().leader_epoch, LeaderEpoch(3));
}

#[test]
fn a_marker_is_a_batch_of_its_own() {
    let marker = EndTxnMarker { commit: false, coordinator_epoch: 4 };
    let batch = end_txn_batch(ProducerId(7), ProducerEpoch(1), marker, Millis(50));
    let opened = BatchRecords::open(&batch, CAP).unwrap();
    let header = opened.header();
    assert!(header.is_control() && header.is_transactional() && header.crc == batch_crc(&batch));
    assert_eq!((header.base_sequence, header.record_count), (-1, 1));
    let record = opened.iter().next().unwrap().unwrap();
    assert_eq!(EndTxnMarker::decode(record.key.unwrap(), record.value.unwrap()), Some(marker));
}

fn any_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn any_records() -> impl Strategy<Value = Vec<Owned>> {
    let headers = prop::collection::vec((any_bytes(6), prop::option::of(any_bytes(6))), 0..3);
    let record = (0..1_i64 << 45, prop::option::of(any_bytes(20)), prop::option::of(any_bytes(200)), headers)
        .prop_map(|(timestamp, key, value, headers)| Owned { timestamp, key, value, headers });
    prop::collection::vec(record, 1..20)
}

fn any_codec() -> impl Strategy<Value = Compression> {
    prop::sample::select(CODECS.to_vec())
}

proptest! {
    #[test]
    fn what_is_built_reads_back(records in any_records(), codec in any_codec()) {
        let batch = build(codec, &records);
        let header = BatchHeader::parse(&batch).unwrap();
        prop_assert_eq!(header.size(), Some(batch.len()));
        prop_assert_eq!(header.crc, batch_crc(&batch));
        prop_assert_eq!(header.max_timestamp.0, records.iter().map(|r| r.timestamp).max().unwrap());
        prop_assert_eq!(read(&batch).unwrap(), records);
    }

    #[test]
    fn what_is_compressed_comes_back(bytes in any_bytes(5000), repeat in 1..60_usize, codec in any_codec(), level in -2..23_i32) {
        let bytes = bytes.repeat(repeat);
        let compressed = compress(codec, level.min(9), &bytes).unwrap();
        prop_assert_eq!(decompress_capped(codec, &compressed, bytes.len()).unwrap(), &bytes[..]);
    }

    /// Nothing panics or gives more than the cap, whatever comes, even behind the right magic.
    #[test]
    fn hostile_compressed_bytes_are_bounded(bytes in any_bytes(400), codec in any_codec(), keep in 0..20_usize) {
        let start = compress(codec, 1, b"some text that is some text").unwrap();
        for hostile in [bytes.clone(), [&start[..keep.min(start.len())], &bytes].concat()] {
            if let Ok(out) = decompress_capped(codec, &hostile, 1000) {
                prop_assert!(out.len() <= 1000);
            }
        }
    }

    #[test]
    fn hostile_batches_are_no_panic(bytes in any_bytes(200), count: i32, codec in any_codec()) {
        let _ = read(&bytes);
        let mut batch = batch_of(count, &bytes).to_vec();
        batch[22] = codec.bits() as u8;
        let _ = read(&batch);
    }

    /// One flipped bit in the records of an uncompressed batch reads as something or fails, but never beyond the batch.
    #[test]
    fn a_flipped_bit_is_no_panic(records in any_records(), at: prop::sample::Index, bit in 0..8_u32) {
        let mut batch = build(Compression::None, &records).to_vec();
        let at = at.index(batch.len());
        batch[at] ^= 1_u8 << bit;
        if let Ok(read) = read(&batch) {
            let bytes: usize = read.iter().map(|r| r.key.as_ref().map_or(0, Vec::len) + r.value.as_ref().map_or(0, Vec::len)).sum();
            prop_assert!(bytes <= batch.len());
        }
    }
}
