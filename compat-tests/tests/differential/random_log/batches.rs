//! A sequence's batches: as they are written, with every codec and flaw, and as they are read back, record by record, so that what another
//! compressor made of them doesn't count.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use compat_tests::batch::{self, Batch, Record};
use compat_tests::driver::Codec;
use flate2::Compression;

use super::plan::{Flaw, Item, Written};

const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
/// What Java's snappy streams begin with: a magic, a version and the oldest version that reads it.
const XERIAL: &[u8] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

fn record(nth: usize, item: &Item) -> Record {
    let header = |header: u8| (format!("h{header}"), (header > 0).then(|| vec![header; 3]));
    Record {
        timestamp_delta: item.timestamp_delta,
        key: item.key.map(|key| vec![b'k', b'0' + key]),
        value: item.value_bytes.map(|bytes| vec![b'a' + u8::try_from(nth).unwrap_or(0); bytes]),
        headers: (0..item.headers).map(header).collect(),
    }
}

/// The bytes of what is written by a producer with this id, epoch and sequence, if any.
pub fn encode(written: &Written, by: Option<(i64, i16, i32)>) -> Result<Bytes> {
    let records: Vec<Record> = written.items.iter().enumerate().map(|(nth, item)| record(nth, item)).collect();
    let mut batch = Batch::of(written.base_timestamp, &records);
    if let Some((id, epoch, sequence)) = by {
        batch = batch.from_producer(id, epoch, sequence);
    }
    batch.records = compress(written.codec, &batch.records)?;
    batch.header.attributes |= written.codec.id();
    batch.header.attributes |= if written.transactional { TRANSACTIONAL } else { 0 };
    let header = &mut batch.header;
    match written.flaw {
        Flaw::Magic(magic) => header.magic = magic,
        Flaw::Bits(bits) => header.attributes |= bits,
        Flaw::Count(more) => header.record_count += more,
        Flaw::LastOffset(more) => header.last_offset_delta += more,
        Flaw::CountAndLastOffset(more) => {
            (header.record_count, header.last_offset_delta) = (header.record_count + more, header.last_offset_delta + more)
        }
        Flaw::MaxTimestamp(more) => header.max_timestamp += more,
        Flaw::NoTimestamps => (header.base_timestamp, header.max_timestamp) = (-1, -1),
        Flaw::BaseOffset(offset) => header.base_offset = offset,
        Flaw::LeaderEpoch(epoch) => header.partition_leader_epoch = epoch,
        _ => {}
    }
    let mut bytes = BytesMut::from(&batch.encode()[..]);
    match written.flaw {
        Flaw::Crc => bytes[17] ^= 1,
        Flaw::Length(length) => bytes[8..12].copy_from_slice(&length.to_be_bytes()),
        Flaw::CutTo(length) => bytes.truncate(length),
        Flaw::BytesAfter => bytes.put_slice(b"after"),
        Flaw::Twice => bytes.extend_from_within(..),
        Flaw::Empty => bytes.clear(),
        _ => {}
    }
    Ok(bytes.freeze())
}

fn compress(codec: Codec, bytes: &[u8]) -> Result<Bytes> {
    Ok(match codec {
        Codec::None => Bytes::copy_from_slice(bytes),
        Codec::Gzip => {
            let mut into = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
            into.write_all(bytes)?;
            into.finish()?.into()
        }
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(bytes)?.into(),
        Codec::Lz4 => {
            let mut into = lz4_flex::frame::FrameEncoder::new(Vec::new());
            into.write_all(bytes)?;
            into.finish()?.into()
        }
        Codec::Zstd => zstd::stream::encode_all(bytes, 3)?.into(),
    })
}

fn decompress(attributes: i16, bytes: &Bytes) -> Result<Bytes> {
    let mut out = Vec::new();
    match attributes & 7 {
        0 => return Ok(bytes.clone()),
        1 => drop(flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out)?),
        2 => out = snappy(bytes)?,
        3 => drop(lz4_flex::frame::FrameDecoder::new(&bytes[..]).read_to_end(&mut out)?),
        4 => out = zstd::stream::decode_all(&bytes[..])?,
        codec => bail!("codec {codec}"),
    }
    Ok(out.into())
}

fn snappy(bytes: &Bytes) -> Result<Vec<u8>> {
    let mut decoder = snap::raw::Decoder::new();
    let Some(mut blocks) = bytes.strip_prefix(XERIAL) else { return Ok(decoder.decompress_vec(bytes)?) };
    let mut out = Vec::new();
    while blocks.has_remaining() {
        let length = usize::try_from(blocks.get_i32())?;
        let block = blocks.get(..length).context("a snappy block that is cut short")?;
        out.extend(decoder.decompress_vec(block)?);
        blocks.advance(length);
    }
    Ok(out)
}

/// All that `records` of a Fetch answer has in whole batches: a last part of one is left out, as clients do. `producer` gives an id its name,
/// `now` says what is a time at which a broker wrote.
pub fn describe(records: Bytes, producer: impl Fn(i64) -> i64, now: impl Fn(i64) -> i64, is_recompressed: bool) -> Result<String> {
    let mut text = String::new();
    for batch in batch::read(records)? {
        let mut header = batch.header.clone();
        header.producer_id = producer(header.producer_id);
        let (base, stamped) = (header.base_timestamp, now(header.max_timestamp) != header.max_timestamp);
        // Where Kafka compresses anew, records count from the first one's time; here from the base that the producer chose.
        header.base_timestamp = if is_recompressed { 0 } else { now(base) };
        header.max_timestamp = now(header.max_timestamp);
        writeln!(text, "{header:?}")?;
        let mut bytes = decompress(header.attributes, &batch.records).with_context(|| format!("{header:?}"))?;
        while bytes.has_remaining() {
            let length = usize::try_from(varint(&mut bytes)?)?;
            ensure!(bytes.len() >= length, "a record that is cut short");
            let record = read(bytes.split_to(length), base, header.attributes & CONTROL != 0)?;
            // Where the broker stamps the batch, the times of its records count for nothing.
            let time = if stamped { 0 } else { record.0 };
            writeln!(text, "  {} at {time}: {}", record.1, record.2)?;
        }
    }
    Ok(text)
}

/// Its time, its offset in the batch, and the rest in words.
fn read(mut bytes: Bytes, base_timestamp: i64, is_control: bool) -> Result<(i64, i64, String)> {
    ensure!(bytes.has_remaining(), "a record without bytes");
    let attributes = bytes.get_i8();
    let (time, offset) = (base_timestamp.wrapping_add(varint(&mut bytes)?), varint(&mut bytes)?);
    let (key, value) = (nullable(&mut bytes)?, nullable(&mut bytes)?);
    let mut headers = Vec::new();
    for _ in 0..varint(&mut bytes)? {
        headers.push((nullable(&mut bytes)?, nullable(&mut bytes)?));
    }
    ensure!(bytes.is_empty(), "{} bytes after a record", bytes.len());
    let shown = |bytes: &Option<Bytes>| match bytes {
        Some(bytes) if is_control => format!("{bytes:?}"),
        Some(bytes) => format!("{:?}*{}", bytes.slice(..bytes.len().min(4)), bytes.len()),
        None => "null".to_owned(),
    };
    Ok((time, offset, format!("attributes {attributes} {} {} {headers:?}", shown(&key), shown(&value))))
}

fn nullable(bytes: &mut Bytes) -> Result<Option<Bytes>> {
    let Ok(length) = usize::try_from(varint(bytes)?) else { return Ok(None) };
    ensure!(bytes.len() >= length, "a record that is cut short");
    Ok(Some(bytes.split_to(length)))
}

/// Zigzag, seven bits a byte.
fn varint(bytes: &mut Bytes) -> Result<i64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        ensure!(bytes.has_remaining(), "a number that is cut short");
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    bail!("a number of more than 10 bytes")
}
