//! Decompression that never goes beyond a cap, and compression in the forms that Kafka's clients read and Kafka itself writes:
//! gzip, snappy (framed as xerial's snappy-java does; raw blocks are read too), LZ4 frames and zstd.
//!
//! What a peer sends decides how much work is done, never how much memory is taken: that grows with the bytes that come out, up to the cap.

use super::Compression;
use std::{
    borrow::Cow,
    io::{self, Read, Write},
};

/// What snappy-java puts before its blocks: magic, version 1, compatible with version 1. Only the magic is compared, as it does.
const XERIAL_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
const XERIAL_MAGIC_BYTES: usize = 8;
/// snappy-java's block size.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// A copy of 64 bytes takes three in the densest of snappy's encodings; a block that claims more than this is lying.
const SNAPPY_RATIO_MAX: usize = 22;
/// What a buffer for decompressed bytes starts with, at most.
const FIRST_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Why bytes could not be decompressed or compressed.
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    #[error("{0:?} data is malformed")]
    Malformed(Compression, #[source] io::Error),
    #[error("{0:?} data decompresses to more than {1} bytes")]
    TooLarge(Compression, usize),
}

/// Decompresses all of `bytes`; an error if that gives more than `max` bytes. Uncompressed bytes come back as they are.
pub fn decompress_capped(codec: Compression, bytes: &[u8], max: usize) -> Result<Cow<'_, [u8]>, CompressionError> {
    match codec {
        Compression::None if bytes.len() > max => Err(CompressionError::TooLarge(codec, max)),
        Compression::None => Ok(Cow::Borrowed(bytes)),
        Compression::Gzip => read_capped(codec, flate2::read::MultiGzDecoder::new(bytes), bytes.len(), max).map(Cow::Owned),
        Compression::Snappy => decompress_snappy(bytes, max).map(Cow::Owned),
        Compression::Lz4 => read_capped(codec, lz4_flex::frame::FrameDecoder::new(bytes), bytes.len(), max).map(Cow::Owned),
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(|e| CompressionError::Malformed(codec, e))?;
            read_capped(codec, decoder, bytes.len(), max).map(Cow::Owned)
        }
    }
}

/// Reads to the end or one byte beyond the cap.
fn read_capped(codec: Compression, reader: impl Read, compressed: usize, max: usize) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::with_capacity(compressed.saturating_mul(2).min(FIRST_BUFFER_BYTES_MAX).min(max));
    let bound = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(bound).read_to_end(&mut out).map_err(|e| CompressionError::Malformed(codec, e))?;
    if out.len() > max { Err(CompressionError::TooLarge(codec, max)) } else { Ok(out) }
}

fn decompress_snappy(bytes: &[u8], max: usize) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::new();
    let framed = XERIAL_HEADER.get(..XERIAL_MAGIC_BYTES).is_some_and(|magic| bytes.starts_with(magic));
    if !framed {
        decompress_snappy_block(bytes, max, &mut out)?;
        return Ok(out);
    }
    let cut = |what: &'static str| CompressionError::Malformed(Compression::Snappy, io::Error::new(io::ErrorKind::UnexpectedEof, what));
    let mut rest = bytes.get(XERIAL_HEADER.len()..).ok_or_else(|| cut("the header is cut short"))?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk().ok_or_else(|| cut("a block's length is cut short"))?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let (block, after) = after.split_at_checked(length).ok_or_else(|| cut("a block is cut short"))?;
        decompress_snappy_block(block, max, &mut out)?;
        rest = after;
    }
    Ok(out)
}

/// Appends one raw block's bytes.
fn decompress_snappy_block(block: &[u8], max: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let bad = |e: snap::Error| CompressionError::Malformed(Compression::Snappy, e.into());
    let start = out.len();
    let claimed = snap::raw::decompress_len(block).map_err(bad)?;
    let end = start.checked_add(claimed).filter(|end| *end <= max).ok_or(CompressionError::TooLarge(Compression::Snappy, max))?;
    if claimed > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        let lie = io::Error::new(io::ErrorKind::InvalidData, "a block claims more bytes than it can hold");
        return Err(CompressionError::Malformed(Compression::Snappy, lie));
    }
    out.resize(end, 0);
    let place = out.get_mut(start..).unwrap_or_default();
    let written = snap::raw::Decoder::new().decompress(block, place).map_err(bad)?;
    out.truncate(start.saturating_add(written));
    Ok(())
}

/// Compresses `bytes`. `level` is gzip's (1 to 9, else its default) or zstd's; snappy has none, and for LZ4 ours is always the fast one:
/// the frames differ from Kafka's at its level 9 in size alone.
pub fn compress(codec: Compression, level: i32, bytes: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let compressed = match codec {
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip => compress_gzip(level, bytes),
        Compression::Snappy => compress_snappy(bytes),
        Compression::Lz4 => compress_lz4(bytes),
        Compression::Zstd => zstd::stream::encode_all(bytes, level),
    };
    compressed.map_err(|e| CompressionError::Malformed(codec, e))
}

fn compress_gzip(level: i32, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let level =
        u32::try_from(level).ok().filter(|l| (1..=9).contains(l)).map_or_else(flate2::Compression::default, flate2::Compression::new);
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 2), level);
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn compress_snappy(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() / 2);
    out.extend_from_slice(&XERIAL_HEADER);
    let mut encoder = snap::raw::Encoder::new();
    for chunk in bytes.chunks(XERIAL_BLOCK_BYTES) {
        let block = encoder.compress_vec(chunk).map_err(io::Error::from)?;
        out.extend_from_slice(&u32::try_from(block.len()).map_err(io::Error::other)?.to_be_bytes());
        out.extend_from_slice(&block);
    }
    Ok(out)
}

/// A frame as Kafka's Java writes it: independent blocks of 64 KB, no checksums but the header's.
fn compress_lz4(bytes: &[u8]) -> io::Result<Vec<u8>> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::with_capacity(bytes.len() / 2));
    encoder.write_all(bytes)?;
    encoder.finish().map_err(io::Error::from)
}
