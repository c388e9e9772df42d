//! Record batches that lie, and batches that are small until they are decompressed.

use crate::wire::{Body, frame, zigzag};

/// All records are of 2020-09-13: long ago, but not refused for it.
const TIMESTAMP: i64 = 1_600_000_000_000;

/// A batch whose every field can be wrong; the CRC is right unless the test breaks it.
#[derive(Clone)]
pub struct Batch {
    /// What the length says, if not the truth.
    pub length: Option<i32>,
    pub magic: i8,
    pub crc_flip: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer: (i64, i16, i32),
    pub count: i32,
    pub records: Vec<u8>,
}

impl Batch {
    /// One record with this value.
    pub fn of(value: &[u8]) -> Self {
        Self::with(record(Some(b"k"), value), 1)
    }

    pub fn with(records: Vec<u8>, count: i32) -> Self {
        Self {
            length: None,
            magic: 2,
            crc_flip: 0,
            attributes: 0,
            last_offset_delta: count.saturating_sub(1),
            base_timestamp: TIMESTAMP,
            max_timestamp: TIMESTAMP,
            producer: (-1, -1, -1),
            count,
            records,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut covered = Body::new(false, None);
        covered.i16(self.attributes);
        covered.i32(self.last_offset_delta);
        covered.i64(self.base_timestamp);
        covered.i64(self.max_timestamp);
        covered.i64(self.producer.0);
        covered.i16(self.producer.1);
        covered.i32(self.producer.2);
        covered.i32(self.count);
        covered.raw(&self.records);
        let covered = covered.finish();
        let mut batch = Body::new(false, None);
        batch.i64(0);
        batch.i32(self.length.unwrap_or(covered.len() as i32 + 9));
        batch.i32(-1);
        batch.i8(self.magic);
        batch.i32((crc32c::crc32c(&covered) ^ self.crc_flip) as i32);
        batch.raw(&covered);
        batch.finish()
    }
}

/// A record's bytes, its length first.
pub fn record(key: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0];
    body.extend(zigzag(key.map_or(-1, |k| k.len() as i64)));
    body.extend(key.unwrap_or_default());
    body.extend(zigzag(value.len() as i64));
    body.extend(value);
    body.push(0);
    [zigzag(body.len() as i64), body].concat()
}

/// A Produce request of version 8 (acks 1) with one partition's records.
pub fn produce(topic: &str, records: Option<&[u8]>) -> Vec<u8> {
    let mut b = Body::new(false, None);
    b.null_text();
    b.i16(1);
    b.i32(1500);
    b.array(1);
    b.text(topic);
    b.array(1);
    b.i32(0);
    b.blob(records);
    frame(0, 8, false, &b.finish())
}

/// What stands before a huge value of zeros in its record, and the number of zeros that follow (the count of headers is one too).
fn bomb(zeros: usize) -> (Vec<u8>, usize) {
    let key = b"bomb";
    let mut head = vec![0, 0, 0];
    head.extend(zigzag(key.len() as i64));
    head.extend(key);
    head.extend(zigzag(zeros as i64));
    let length = head.len() + zeros + 1;
    ([zigzag(length as i64), head].concat(), zeros + 1)
}

fn bomb_batch(codec: i16, records: Vec<u8>) -> Vec<u8> {
    Batch { attributes: codec, ..Batch::with(records, 1) }.encode()
}

/// 256 MiB in 260 KB: a stored block, then one of codes of two bits for 258 zeros.
pub fn gzip_bomb() -> Vec<u8> {
    const MATCH: usize = 258;
    let (head, zeros) = bomb(MATCH * ((256 << 20) / MATCH));
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.push(0); // not the last, stored
    out.extend((head.len() as u16).to_le_bytes());
    out.extend((!(head.len() as u16)).to_le_bytes());
    out.extend(&head);
    let mut bits = Bits::default();
    bits.put(0b101, 3); // the last, dynamic codes
    bits.put(29, 5); // 286 literals and lengths
    bits.put(0, 5); // 1 distance
    bits.put(14, 4); // 18 lengths of code lengths, in deflate's own order
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1] {
        bits.put(
            match symbol {
                18 => 1,
                1 | 2 => 2,
                _ => 0,
            },
            3,
        );
    }
    // Codes, first bit first: 18 is 0, 1 is 10, 2 is 11.
    let (repeat, one, two) = ((0, 1), (0b01, 2), (0b11, 2));
    bits.code(two); // literal 0
    for run in [138, 117] {
        bits.code(repeat);
        bits.put(run - 11, 7);
    }
    bits.code(two); // the block's end
    bits.code(repeat);
    bits.put(28 - 11, 7);
    bits.code(one); // length 258
    bits.code(one); // distance 1
    bits.code((0b01, 2)); // a zero
    for _ in 0..(zeros - 1) / MATCH {
        bits.code((0, 1));
        bits.code((0, 1));
    }
    bits.code((0b11, 2));
    out.extend(bits.finish());
    let mut crc = flate2::Crc::new();
    crc.update(&head);
    let chunk = vec![0; 1 << 20];
    let mut left = zeros;
    while left > 0 {
        let n = left.min(chunk.len());
        crc.update(&chunk[..n]);
        left -= n;
    }
    out.extend(crc.sum().to_le_bytes());
    out.extend(((head.len() + zeros) as u32).to_le_bytes());
    bomb_batch(1, out)
}

/// Deflate's bits, lowest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u64, bits: u32) {
        self.held |= value << self.count;
        self.count += bits;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn code(&mut self, (value, bits): (u64, u32)) {
        self.put(value, bits);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes
    }
}

/// 1 GiB in 32 KB: blocks that are one byte, repeated.
pub fn zstd_bomb() -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let (head, zeros) = bomb((1 << 30) - 1);
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    out.extend(&((head.len() as u32) << 3).to_le_bytes()[..3]);
    out.extend(&head);
    let mut left = zeros;
    while left > 0 {
        let n = left.min(BLOCK);
        left -= n;
        let block = u32::from(left == 0) | 1 << 1 | (n as u32) << 3;
        out.extend(&block.to_le_bytes()[..3]);
        out.push(0);
    }
    bomb_batch(4, out)
}

/// 64 MiB in 260 KB: blocks of 4 MiB that are one long match.
pub fn lz4_bomb() -> Vec<u8> {
    const BLOCK: usize = 4 << 20;
    let (head, zeros) = bomb((64 << 20) - 100);
    let mut out = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    let mut left = zeros;
    let mut literals = head;
    while left > 0 {
        let n = left.min(BLOCK - literals.len());
        left -= n;
        // Literals and a zero, a match of what is left but five, five literals at the end.
        literals.push(0);
        let long = n - 1 - 5;
        let block = lz4_sequence(&literals, long);
        out.extend((block.len() as u32).to_le_bytes());
        out.extend(block);
        literals.clear();
    }
    out.extend([0; 4]);
    bomb_batch(3, out)
}

fn lz4_sequence(literals: &[u8], length: usize) -> Vec<u8> {
    let nibble = |n: usize| n.min(15) as u8;
    let rest = |out: &mut Vec<u8>, n: usize| {
        if n >= 15 {
            out.extend(vec![255; (n - 15) / 255]);
            out.push(((n - 15) % 255) as u8);
        }
    };
    let mut block = vec![nibble(literals.len()) << 4 | nibble(length - 4)];
    rest(&mut block, literals.len());
    block.extend(literals);
    block.extend([1, 0]);
    rest(&mut block, length - 4);
    block.push(5 << 4);
    block.extend([0; 5]);
    block
}

/// 4 MiB in 200 KB, as a raw block: copies of 64 bytes are snappy's longest.
pub fn snappy_bomb() -> Vec<u8> {
    let (head, zeros) = bomb((4 << 20) - 1);
    let mut body = Body::new(true, None);
    body.varint((head.len() + zeros) as u64);
    let mut out = body.finish();
    snappy_literal(&mut out, &[&head[..], &[0]].concat());
    let mut left = zeros - 1;
    while left > 0 {
        let n = left.min(64);
        left -= n;
        out.extend([(n as u8 - 1) << 2 | 2, 1, 0]);
    }
    bomb_batch(2, out)
}

fn snappy_literal(out: &mut Vec<u8>, literal: &[u8]) {
    out.push((literal.len() as u8 - 1) << 2);
    out.extend(literal);
}

/// A raw block whose length says 4 GiB.
pub fn snappy_length_lie() -> Vec<u8> {
    let mut body = Body::new(true, None);
    body.varint(u64::from(u32::MAX));
    let mut out = body.finish();
    snappy_literal(&mut out, b"abc");
    bomb_batch(2, out)
}

/// The framing of Java's library, with a block whose length is such.
pub fn snappy_framed_lie(length: i32) -> Vec<u8> {
    let mut out = vec![0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
    out.extend(length.to_be_bytes());
    out.extend([3, 8, b'a', b'b', b'c']);
    bomb_batch(2, out)
}

/// A frame that asks for a window of 2 GiB.
pub fn zstd_window_lie() -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3];
    out.extend(&(1u32 | 4 << 3).to_le_bytes()[..3]);
    out.extend(b"abcd");
    bomb_batch(4, out)
}

/// A frame that says that it holds 2^63 bytes.
pub fn zstd_content_size_lie() -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1110_0000];
    out.extend((1u64 << 63).to_le_bytes());
    out.extend(&(1u32 | 4 << 3).to_le_bytes()[..3]);
    out.extend(b"abcd");
    bomb_batch(4, out)
}

/// Blocks of 4 MiB whose length says 2 GiB.
pub fn lz4_block_lie() -> Vec<u8> {
    let mut out = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    out.extend(0x7fff_ffffu32.to_le_bytes());
    out.extend(b"abcd");
    bomb_batch(3, out)
}
