//! The hostile frames: what each is, its bytes, and what the broker does with it. `fixtures/hostile/NAME.bin` holds the bytes as they
//! go over the wire; a test compares them with what is made here (`HIGHWATER_UPDATE_FIXTURES=1` writes them anew).

use crate::{
    batches::{self, Batch, produce, record},
    requests::{REQUESTS, TOPIC, WIDE_TOPIC},
    wire::{Body, CLIENT_ID, Lie, Noise, frame, framed, zigzag},
};

/// The topic that bombs name; the test puts others of the same length in its place.
pub const BOMB_TOPIC: &str = "hostile-bombed";
/// A compacted topic.
pub const COMPACTED_TOPIC: &str = "hostile-keyed-";

/// Kafka's codes that produce answers carry here.
const UNKNOWN_SERVER_ERROR: i16 = -1;
const CORRUPT_MESSAGE: i16 = 2;
const INVALID_TIMESTAMP: i16 = 32;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

/// What the broker does with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Closes the connection at once, without an answer.
    Closed,
    /// Closes it without an answer once the client has ended its side: the frame is not whole.
    ClosedAtEnd,
    /// Answers ApiVersions with UNSUPPORTED_VERSION in the form of version 0.
    ApiVersionsUnsupported,
    /// Answers Produce with one of these codes.
    Produced(&'static [i16]),
    /// Answers something.
    Answered,
    /// Answers or closes.
    Anything,
}

pub struct Fixture {
    pub name: String,
    pub bytes: Vec<u8>,
    pub expect: Expect,
}

fn fixture(name: impl Into<String>, expect: Expect, bytes: Vec<u8>) -> Fixture {
    Fixture { name: name.into(), bytes, expect }
}

pub fn all() -> Vec<Fixture> {
    let mut all = lengths();
    all.extend(headers());
    all.extend(versions());
    all.extend(lies());
    all.extend(amplifiers());
    all.extend(wrong_batches());
    all.extend(wrong_headers());
    all.extend(wrong_records());
    all.extend(bombs());
    all.extend(noise());
    all
}

fn lengths() -> Vec<Fixture> {
    let metadata = REQUESTS.iter().find(|r| r.name == "metadata").map(crate::requests::Request::frame).unwrap_or_default();
    let with_length = |length: i32| [&length.to_be_bytes()[..], &metadata[4..]].concat();
    vec![
        fixture("length-max", Expect::Closed, with_length(i32::MAX)),
        fixture("length-max-alone", Expect::Closed, i32::MAX.to_be_bytes().to_vec()),
        fixture("length-over-socket-request-max", Expect::Closed, with_length(104_857_601)),
        fixture("length-of-records-for-metadata", Expect::Closed, with_length(100 << 20)),
        fixture("length-negative", Expect::Closed, with_length(-1)),
        fixture("length-min", Expect::Closed, with_length(i32::MIN)),
        fixture("length-zero", Expect::Closed, with_length(0)),
        fixture("length-of-half-a-header", Expect::Closed, with_length(4)),
        fixture("length-of-a-header-without-client-id", Expect::Closed, with_length(8)),
        fixture("truncated-length", Expect::ClosedAtEnd, vec![0, 0]),
        fixture("truncated-header", Expect::ClosedAtEnd, metadata[..9].to_vec()),
        fixture("truncated-body", Expect::ClosedAtEnd, metadata[..metadata.len() - 1].to_vec()),
        fixture("truncated-large-frame", Expect::ClosedAtEnd, [&(50i32 << 20).to_be_bytes()[..], &produce(TOPIC, None)[4..]].concat()),
        fixture("body-too-short", Expect::Closed, framed(&[&metadata[4..metadata.len() - 1]])),
        fixture("body-too-long", Expect::Anything, framed(&[&metadata[4..], &[0; 1000]])),
        fixture("http-request", Expect::Closed, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        fixture("tls-hello", Expect::Closed, [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &Noise::new(99).bytes(505)].concat()),
    ]
}

/// A frame whose header's client id has this length, with a few bytes behind.
fn client_id(length: i16) -> Vec<u8> {
    let mut b = Body::new(false, None);
    b.i16(3);
    b.i16(8);
    b.i32(7);
    b.i16(length);
    b.raw(CLIENT_ID.as_bytes());
    framed(&[&b.finish()])
}

fn headers() -> Vec<Fixture> {
    let tagged = |tags: &[u8]| {
        let mut b = Body::new(false, None);
        b.i16(3);
        b.i16(12);
        b.i32(7);
        b.text(CLIENT_ID);
        b.raw(tags);
        // The rest of a correct request.
        b.raw(&[1, 0, 0, 0]);
        framed(&[&b.finish()])
    };
    let mut many = Body::new(true, None);
    many.varint(20_000);
    for tag in 0..20_000 {
        many.varint(10_000 + tag);
        many.varint(0);
    }
    let mut large = Body::new(true, None);
    large.varint(1);
    large.varint(10_000);
    large.varint(50_000);
    large.raw(&[7; 50_000]);
    let varint = [0xff; 10];
    vec![
        fixture("client-id-length-max", Expect::Closed, client_id(i16::MAX)),
        fixture("client-id-length-negative", Expect::Closed, client_id(-2)),
        fixture("client-id-not-utf8", Expect::Anything, {
            let mut bytes = REQUESTS[1].frame();
            bytes[14..18].copy_from_slice(&[0xff, 0xfe, 0x0a, 0x1b]);
            bytes
        }),
        fixture("header-tags-max", Expect::Closed, tagged(&[0xff, 0xff, 0xff, 0xff, 0x0f])),
        fixture("header-tag-size-max", Expect::Closed, tagged(&[1, 9, 0xff, 0xff, 0xff, 0xff, 0x0f])),
        fixture("header-tags-endless-varint", Expect::Closed, tagged(&varint)),
        fixture("header-tags-many", Expect::Anything, tagged(&many.finish())),
        fixture("header-tag-large", Expect::Answered, tagged(&large.finish())),
    ]
}

fn versions() -> Vec<Fixture> {
    let empty = |key, version| frame(key, version, false, &[0; 16]);
    let mut all = vec![
        fixture("unknown-key-999", Expect::Closed, empty(999, 0)),
        fixture("unknown-key-max", Expect::Closed, empty(i16::MAX, i16::MAX)),
        fixture("unknown-key-negative", Expect::Closed, empty(-1, 0)),
        fixture("unknown-key-min", Expect::Closed, empty(i16::MIN, 0)),
        fixture("controlled-shutdown-key", Expect::Closed, empty(7, 0)),
        fixture("api-versions-v99", Expect::ApiVersionsUnsupported, frame(18, 99, true, &[1, 1, 0])),
        fixture("api-versions-v-max-with-noise", Expect::ApiVersionsUnsupported, frame(18, i16::MAX, true, &Noise::new(5).bytes(60))),
    ];
    for request in REQUESTS.iter().filter(|r| r.key != 18) {
        if all.iter().all(|f: &Fixture| f.name != format!("unknown-version-{}", request.name)) {
            all.push(fixture(format!("unknown-version-{}", request.name), Expect::Closed, empty(request.key, 99)));
            all.push(fixture(format!("negative-version-{}", request.name), Expect::Closed, empty(request.key, -1)));
        }
    }
    all
}

/// Every length of every request, lying.
fn lies() -> Vec<Fixture> {
    let lies = REQUESTS.iter().flat_map(crate::requests::Request::lies);
    let mut all: Vec<_> = lies.map(|(name, bytes)| fixture(format!("lie-{name}"), Expect::Closed, bytes)).collect();
    for fixture in &mut all {
        // Kafka reads −2 as null, and a null as empty or as everything, in some places.
        if fixture.name.ends_with("-negative") {
            fixture.expect = Expect::Anything;
        }
    }
    all.extend(REQUESTS.iter().filter_map(|request| {
        let bytes = request.lying(crate::wire::Place::Array(0), Lie::More(1000))?;
        Some(fixture(format!("lie-{}-v{}-array-0-thousand-more", request.name, request.version), Expect::Closed, bytes))
    }));
    all
}

/// Frames of about 64 KB whose elements take few bytes on the wire and many in memory.
pub fn amplifiers() -> Vec<Fixture> {
    amplified(64 << 10).into_iter().map(|(name, bytes)| fixture(name, Expect::Anything, bytes)).collect()
}

/// The same frames with about so many bytes each.
pub fn amplified(bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let repeat = |element: &[u8]| element.repeat(bytes / element.len());
    let plain = |key, version, before: &[u8], element: &[u8], after: &[u8]| {
        let count = (bytes / element.len()) as i32;
        frame(key, version, false, &[before, &count.to_be_bytes(), &repeat(element), after].concat())
    };
    let flexible = |key, version, before: &[u8], element: &[u8], after: &[u8]| {
        let mut count = Body::new(true, None);
        count.varint((bytes / element.len()) as u64 + 1);
        frame(key, version, true, &[before, &count.finish(), &repeat(element), after].concat())
    };
    let named = [&[0, WIDE_TOPIC.len() as u8], WIDE_TOPIC.as_bytes()].concat();
    vec![
        ("many-metadata-v8-empty-names", plain(3, 8, &[], &[0, 0], &[0, 0, 0])),
        ("many-metadata-v8-null-names", plain(3, 8, &[], &[0xff, 0xff], &[0, 0, 0])),
        ("many-metadata-v9-empty-names", flexible(3, 9, &[], &[1, 0], &[0, 0, 0, 0])),
        ("many-metadata-v9-null-names", flexible(3, 9, &[], &[0, 0], &[0, 0, 0, 0])),
        ("many-delete-topics-v3-empty-names", plain(20, 3, &[], &[0, 0], &1500i32.to_be_bytes())),
        ("many-delete-topics-v4-empty-names", flexible(20, 4, &[], &[1], &[0, 0, 5, 0xdc, 0])),
        ("many-create-topics-v5-empty-names", flexible(19, 5, &[], &[1, 0, 0, 0, 1, 0, 1, 1, 1, 0], &[0, 0, 5, 0xdc, 0, 0])),
        ("many-create-partitions-v2-empty-names", flexible(37, 2, &[], &[1, 0, 0, 0, 2, 0, 0], &[0, 0, 5, 0xdc, 0, 0])),
        ("many-describe-configs-v4-empty-names", flexible(32, 4, &[], &[2, 1, 0, 0], &[0, 0, 0])),
        ("many-describe-configs-v4-brokers", flexible(32, 4, &[], &[4, 2, b'1', 0, 0], &[1, 1, 0])),
        ("many-metadata-v8-one-name", plain(3, 8, &[], &named, &[0, 0, 0])),
        ("many-describe-configs-v2-one-topic", plain(32, 2, &[], &[&[2], &named[..], &[0xff; 4]].concat(), &[1])),
        ("many-describe-topic-partitions-v0-one-name", {
            let compact = [&[WIDE_TOPIC.len() as u8 + 1], WIDE_TOPIC.as_bytes(), &[0]].concat();
            flexible(75, 0, &[], &compact, &[0, 0, 7, 0xd0, 0xff, 0])
        }),
        ("many-list-offsets-v6-empty-topics", flexible(2, 6, &[0xff, 0xff, 0xff, 0xff, 0], &[1, 1, 0], &[0])),
        ("many-offset-for-leader-epoch-v4-empty-topics", flexible(23, 4, &[0xff, 0xff, 0xff, 0xfe], &[1, 1, 0], &[0])),
        ("many-describe-topic-partitions-v0-empty-names", flexible(75, 0, &[], &[1, 0], &[0, 0, 7, 0xd0, 0xff, 0])),
        ("many-produce-v9-empty-topics", flexible(0, 9, &[0, 0, 1, 0, 0, 5, 0xdc], &[1, 1, 0], &[0])),
        ("many-fetch-v12-empty-topics", {
            let before = [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255];
            flexible(1, 12, &before, &[1, 1, 0], &[1, 1, 0])
        }),
        ("many-fetch-v12-empty-forgotten", {
            let before = [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 1];
            flexible(1, 12, &before, &[1, 1, 0], &[1, 0])
        }),
    ]
}

const CORRUPT: &[i16] = &[CORRUPT_MESSAGE];
const INVALID: &[i16] = &[INVALID_RECORD];
const EITHER: &[i16] = &[CORRUPT_MESSAGE, INVALID_RECORD];

/// A Produce request with such a batch, and the codes that it may be answered with.
fn refused(name: &str, codes: &'static [i16], batch: Batch) -> Fixture {
    fixture(name, Expect::Produced(codes), produce(TOPIC, Some(&batch.encode())))
}

/// Batches whose bytes don't make one batch.
fn wrong_batches() -> Vec<Fixture> {
    let good = Batch::of(b"value");
    let raw = |name: &str, expect: Expect, bytes: &[u8]| fixture(name, expect, produce(TOPIC, Some(bytes)));
    let whole = good.encode();
    let length = |length: i32| Batch { length: Some(length), ..good.clone() };
    vec![
        refused("batch-bad-crc", CORRUPT, Batch { crc_flip: 1, ..good.clone() }),
        refused("batch-magic-0", INVALID, Batch { magic: 0, ..good.clone() }),
        refused("batch-magic-1", INVALID, Batch { magic: 1, ..good.clone() }),
        refused("batch-magic-3", CORRUPT, Batch { magic: 3, ..good.clone() }),
        refused("batch-magic-127", CORRUPT, Batch { magic: 127, ..good.clone() }),
        refused("batch-magic-negative", CORRUPT, Batch { magic: -1, ..good.clone() }),
        refused("batch-length-max", EITHER, length(i32::MAX)),
        refused("batch-length-negative", CORRUPT, length(-1)),
        refused("batch-length-min", CORRUPT, length(i32::MIN)),
        refused("batch-length-zero", CORRUPT, length(0)),
        refused("batch-length-below-a-header", EITHER, length(48)),
        refused("batch-length-one-more", EITHER, length(whole.len() as i32 - 11)),
        refused("batch-length-one-less", EITHER, length(whole.len() as i32 - 13)),
        raw("batch-none", Expect::Produced(INVALID), &[]),
        raw("batch-one-byte", Expect::Produced(EITHER), &whole[..1]),
        raw("batch-header-alone", Expect::Produced(EITHER), &whole[..61]),
        raw("batch-cut", Expect::Produced(EITHER), &whole[..whole.len() - 1]),
        raw("batch-and-a-tail", Expect::Answered, &[&whole[..], &[0; 8]].concat()),
        raw("batch-twice", Expect::Produced(INVALID), &[&whole[..], &whole].concat()),
        raw("batch-and-half-another", Expect::Answered, &[&whole[..], &whole[..40]].concat()),
        fixture("batch-null", Expect::Anything, produce(TOPIC, None)),
    ]
}

/// Batches whose header says what cannot be.
fn wrong_headers() -> Vec<Fixture> {
    let good = Batch::of(b"value");
    let delta = |last_offset_delta: i32| Batch { last_offset_delta, ..good.clone() };
    let time = |time: i64| Batch { base_timestamp: time, max_timestamp: time, ..good.clone() };
    let attributes = |attributes: i16| Batch { attributes, ..good.clone() };
    let codec: &[i16] = &[UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, CORRUPT_MESSAGE];
    let answered = |name: &str, batch: Batch| fixture(name, Expect::Answered, produce(TOPIC, Some(&batch.encode())));
    vec![
        refused("batch-count-zero", INVALID, Batch { count: 0, ..good.clone() }),
        refused("batch-count-negative", INVALID, Batch { count: -1, ..good.clone() }),
        refused("batch-count-max", INVALID, Batch { count: i32::MAX, last_offset_delta: i32::MAX - 1, ..good.clone() }),
        refused("batch-count-two-of-one", INVALID, Batch { count: 2, last_offset_delta: 1, ..good.clone() }),
        refused("batch-last-offset-delta-max", INVALID, delta(i32::MAX)),
        refused("batch-last-offset-delta-negative", INVALID, delta(-1)),
        refused("batch-codec-5", codec, attributes(5)),
        refused("batch-codec-7", codec, attributes(7)),
        refused("batch-control", INVALID, attributes(1 << 5)),
        refused("batch-timestamps-max", &[INVALID_TIMESTAMP, INVALID_RECORD], time(i64::MAX)),
        answered("batch-timestamps-min", time(i64::MIN)),
        answered("batch-producer-without-sequence", Batch { producer: (5, 0, -1), ..good.clone() }),
        answered("batch-producer-min", Batch { producer: (i64::MIN, i16::MIN, i32::MIN), ..good.clone() }),
        answered("batch-transactional-without-producer", attributes(1 << 4)),
    ]
}

/// Produce requests whose batch's header and CRC are right and whose records are not.
fn wrong_records() -> Vec<Fixture> {
    const INVALID: &[i16] = &[INVALID_RECORD, CORRUPT_MESSAGE];
    let one =
        |name: &str, records: Vec<u8>| fixture(name, Expect::Produced(INVALID), produce(TOPIC, Some(&Batch::with(records, 1).encode())));
    let good = record(Some(b"k"), b"v");
    let body = |parts: &[&[u8]]| {
        let body = parts.concat();
        [&zigzag(body.len() as i64)[..], &body].concat()
    };
    let head: &[u8] = &[0, 0, 0];
    let max = zigzag(i64::from(i32::MAX));
    let keyless = record(None, b"v");
    vec![
        one("record-length-max", [&max[..], &good[1..]].concat()),
        one("record-length-negative", [&zigzag(-1)[..], &good[1..]].concat()),
        one("record-length-endless-varint", vec![0xff; 20]),
        one("record-length-zero", vec![0; 8]),
        one("record-key-length-max", body(&[head, &max, b"k", &zigzag(1), b"v", &[0]])),
        one("record-value-length-max", body(&[head, &zigzag(-1), &max, b"v", &[0]])),
        one("record-headers-max", body(&[head, &zigzag(-1), &zigzag(-1), &max])),
        one("record-headers-negative", body(&[head, &zigzag(-1), &zigzag(-1), &zigzag(-1)])),
        one("record-header-key-null", body(&[head, &zigzag(-1), &zigzag(-1), &zigzag(1), &zigzag(-1), &zigzag(-1)])),
        one("record-header-key-length-max", body(&[head, &zigzag(-1), &zigzag(-1), &zigzag(1), &max, b"h"])),
        one("record-bytes-left-over", body(&[head, &zigzag(-1), &zigzag(1), b"v", &[0], &[0; 9]])),
        one("records-bytes-left-over", [&good[..], &[0; 9]].concat()),
        one("records-noise", Noise::new(11).bytes(300)),
        // Kafka takes it for a null.
        fixture("record-key-length-negative", Expect::Answered, {
            produce(TOPIC, Some(&Batch::with(body(&[head, &zigzag(-2), &zigzag(1), b"v", &[0]]), 1).encode()))
        }),
        fixture("record-key-null-compacted", Expect::Produced(EITHER), produce(COMPACTED_TOPIC, Some(&Batch::with(keyless, 1).encode()))),
    ]
}

/// What is small until it is decompressed, and compressed data that lies about its size.
fn bombs() -> Vec<Fixture> {
    let bomb = |name: &str, batch: Vec<u8>| fixture(format!("bomb-{name}"), Expect::Answered, produce(BOMB_TOPIC, Some(&batch)));
    let noise = |codec: i16| Batch { attributes: codec, ..Batch::with(Noise::new(codec as u64).bytes(500), 1) }.encode();
    vec![
        bomb("gzip-256-mib", batches::gzip_bomb()),
        bomb("zstd-1-gib", batches::zstd_bomb()),
        bomb("lz4-64-mib", batches::lz4_bomb()),
        bomb("snappy-4-mib", batches::snappy_bomb()),
        bomb("snappy-length-4-gib", batches::snappy_length_lie()),
        bomb("snappy-framed-length-max", batches::snappy_framed_lie(i32::MAX)),
        bomb("snappy-framed-length-negative", batches::snappy_framed_lie(-1)),
        bomb("zstd-window-2-gib", batches::zstd_window_lie()),
        bomb("zstd-content-size-max", batches::zstd_content_size_lie()),
        bomb("lz4-block-2-gib", batches::lz4_block_lie()),
        bomb("gzip-noise", noise(1)),
        bomb("snappy-noise", noise(2)),
        bomb("lz4-noise", noise(3)),
        bomb("zstd-noise", noise(4)),
    ]
}

/// Random bytes: as a frame, as a body, as a connection's first bytes.
fn noise() -> Vec<Fixture> {
    let mut all: Vec<_> =
        (0..8).map(|seed| fixture(format!("noise-stream-{seed}"), Expect::Anything, Noise::new(100 + seed).bytes(2000))).collect();
    all.extend((0..8).map(|seed| fixture(format!("noise-frame-{seed}"), Expect::Anything, framed(&[&Noise::new(200 + seed).bytes(500)]))));
    let bodies = REQUESTS.iter().enumerate().map(|(i, r)| (format!("noise-body-{}-v{}", r.name, r.version), r.noise(300 + i as u64)));
    all.extend(bodies.map(|(name, bytes)| fixture(name, Expect::Anything, bytes)));
    all
}
