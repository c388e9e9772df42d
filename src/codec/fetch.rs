//! Fetch, versions 4 to 18: requests decoded by hand, answers written as segments so that records leave as ranges of files.
//!
//! Version 7 has sessions (KIP-227), 9 leader epochs (KIP-320), 12 is flexible and detects divergence (KIP-595), 13 names topics
//! by id (KIP-516), 15 moves the replica id into a tagged field (KIP-903), 16 adds node endpoints (KIP-951).

use super::{
    reader::{Malformed, Reader},
    reply::{EncodeError, Reply, ReplyHeader, Segment, finish_frame},
};
use crate::{
    log::io::{DiskFile, MemoryFile, read_exact_at},
    types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId},
};
use bytes::{BufMut, Bytes, BytesMut};
use std::{io, sync::Arc};

/// A decoded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// −1 for a consumer.
    pub replica_id: BrokerId,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// 1 is read_committed.
    pub isolation_level: i8,
    pub session_id: i32,
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    pub forgotten: Vec<ForgottenTopic>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTopic {
    /// UTF-8; empty from version 13 on.
    pub name: Bytes,
    /// Zero before version 13.
    pub id: TopicId,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPartition {
    pub index: PartitionIndex,
    pub current_leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub last_fetched_epoch: LeaderEpoch,
    pub log_start_offset: Offset,
    pub max_bytes: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenTopic {
    pub name: Bytes,
    pub id: TopicId,
    pub partitions: Vec<PartitionIndex>,
}

impl FetchRequest {
    /// Decodes a body of one of the versions 4 to 18.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, version >= 12);
        let mut replica_id = if version <= 14 { r.i32()? } else { -1 };
        let (max_wait_ms, min_bytes, max_bytes, isolation_level) = (r.i32()?, r.i32()?, r.i32()?, r.i8()?);
        let (session_id, session_epoch) = if version >= 7 { (r.i32()?, r.i32()?) } else { (0, -1) };
        let topics = topics(&mut r, version)?;
        let forgotten = if version >= 7 { forgotten(&mut r, version)? } else { Vec::new() };
        if version >= 11 {
            r.nullable_string()?; // the rack: one broker has no replica to prefer
        }
        r.tagged_fields(|tag, value| {
            if tag == 1 && version >= 15 {
                replica_id = Reader::new(value, true).i32()?;
            }
            Ok(())
        })?;
        r.finish()?;
        let replica_id = BrokerId(replica_id);
        Ok(Self { replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, forgotten })
    }
}

fn topic_key(r: &mut Reader, version: i16) -> Result<(Bytes, TopicId), Malformed> {
    Ok(if version >= 13 { (Bytes::new(), r.topic_id()?) } else { (r.string()?, TopicId::ZERO) })
}

fn topics(r: &mut Reader, version: i16) -> Result<Vec<FetchTopic>, Malformed> {
    let count = r.array_len(3)?;
    let mut topics = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        let (name, id) = topic_key(r, version)?;
        let count = r.array_len(16)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            let index = PartitionIndex(r.i32()?);
            let current_leader_epoch = LeaderEpoch(if version >= 9 { r.i32()? } else { -1 });
            let fetch_offset = Offset(r.i64()?);
            let last_fetched_epoch = LeaderEpoch(if version >= 12 { r.i32()? } else { -1 });
            let log_start_offset = Offset(if version >= 5 { r.i64()? } else { -1 });
            let max_bytes = r.i32()?;
            r.skip_tagged_fields()?;
            partitions.push(FetchPartition { index, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes });
        }
        r.skip_tagged_fields()?;
        topics.push(FetchTopic { name, id, partitions });
    }
    Ok(topics)
}

fn forgotten(r: &mut Reader, version: i16) -> Result<Vec<ForgottenTopic>, Malformed> {
    let count = r.array_len(3)?;
    let mut forgotten = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        let (name, id) = topic_key(r, version)?;
        let count = r.array_len(4)?;
        let partitions = (0..count).map(|_| r.i32().map(PartitionIndex)).collect::<Result<_, _>>()?;
        r.skip_tagged_fields()?;
        forgotten.push(ForgottenTopic { name, id, partitions });
    }
    Ok(forgotten)
}

/// An answer to be written.
#[derive(Default)]
pub struct FetchAnswer {
    pub error: ErrorCode,
    pub session_id: i32,
    pub topics: Vec<TopicAnswer>,
    /// Where the leaders named in `current_leader` are (version 16).
    pub endpoints: Vec<Endpoint>,
}

pub struct TopicAnswer {
    pub name: Bytes,
    pub id: TopicId,
    pub partitions: Vec<PartitionAnswer>,
}

/// A broker's address on the listener that the request came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub id: BrokerId,
    pub host: String,
    pub port: u16,
}

/// An aborted transaction that overlaps the records of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
}

/// A range of a segment file.
#[derive(Clone)]
pub struct FileRange {
    pub file: Arc<dyn DiskFile>,
    pub position: u64,
    pub len: usize,
}

impl FileRange {
    /// The same bytes, read now, so that the file need not stay open.
    pub fn held_in_memory(&self) -> io::Result<Self> {
        let mut bytes = vec![0; self.len];
        read_exact_at(self.file.as_ref(), &mut bytes, self.position)?;
        Ok(Self { file: Arc::new(MemoryFile(bytes)), position: 0, len: self.len })
    }
}

#[derive(Clone)]
pub struct PartitionAnswer {
    pub index: PartitionIndex,
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub last_stable: Offset,
    pub log_start: Offset,
    pub diverging: Option<(LeaderEpoch, Offset)>,
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
    /// `Some` for read_committed only.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Where there is nothing, an empty range is sent, never null: three brokers got this wrong.
    pub records: Option<FileRange>,
}

impl PartitionAnswer {
    /// An answer without records: Kafka's values for what is not known.
    pub fn error(index: PartitionIndex, error: ErrorCode) -> Self {
        let unknown = Offset(-1);
        Self {
            index,
            error,
            high_watermark: unknown,
            last_stable: unknown,
            log_start: unknown,
            diverging: None,
            current_leader: None,
            aborted: None,
            records: None,
        }
    }

    pub fn records_len(&self) -> usize {
        self.records.as_ref().map_or(0, |r| r.len)
    }
}

/// Ranges up to this size are copied into the answer: one `pread` costs less than a segment and a `sendfile` of their own.
pub const COPY_BYTES_MAX: usize = 16 << 10;

/// Writes an answer in `version`. Fails if a small range cannot be read or the answer is too long for a frame.
pub fn encode(header: ReplyHeader, answer: &FetchAnswer, version: i16) -> Result<Reply, EncodeError> {
    let mut w = Writer { flexible: version >= 12, version, part: BytesMut::with_capacity(512), segments: Vec::new(), first: None, more: 0 };
    header.start(&mut w.part);
    w.part.put_i32(0); // throttle time
    if version >= 7 {
        w.part.put_i16(answer.error.code());
        w.part.put_i32(answer.session_id);
    }
    w.array_len(answer.topics.len());
    let mut worst = answer.error;
    for topic in &answer.topics {
        if version >= 13 {
            w.part.put_u128(topic.id.0.as_u128());
        } else {
            w.string(&topic.name);
        }
        w.array_len(topic.partitions.len());
        for partition in &topic.partitions {
            if partition.error.is_error() {
                worst = partition.error;
            }
            w.partition(partition)?;
        }
        w.no_tagged_fields();
    }
    w.end(&answer.endpoints);
    let segments = w.finish()?;
    Ok(Reply { segments, error: worst })
}

struct Writer {
    flexible: bool,
    version: i16,
    /// What is being written; cut off before a file range.
    part: BytesMut,
    segments: Vec<Segment>,
    /// The first part, kept apart since the frame's length goes to its front.
    first: Option<BytesMut>,
    /// Bytes in `segments`.
    more: usize,
}

impl Writer {
    fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.part.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.part.put_u8(value as u8);
    }

    /// An answer's lengths come from bounded requests and configs: they fit in 31 bits, or [`finish_frame`] fails.
    fn long_len(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX >> 1);
        if self.flexible {
            self.uvarint(len.saturating_add(1));
        } else {
            self.part.put_u32(len);
        }
    }

    fn array_len(&mut self, len: usize) {
        self.long_len(len);
    }

    fn string(&mut self, text: &[u8]) {
        if self.flexible {
            self.long_len(text.len());
        } else {
            self.part.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        }
        self.part.put_slice(text);
    }

    fn no_tagged_fields(&mut self) {
        if self.flexible {
            self.part.put_u8(0);
        }
    }

    fn partition(&mut self, p: &PartitionAnswer) -> Result<(), EncodeError> {
        self.part.put_i32(p.index.0);
        self.part.put_i16(p.error.code());
        self.part.put_i64(p.high_watermark.0);
        self.part.put_i64(p.last_stable.0);
        if self.version >= 5 {
            self.part.put_i64(p.log_start.0);
        }
        self.aborted(p.aborted.as_deref());
        if self.version >= 11 {
            self.part.put_i32(-1); // preferred read replica
        }
        self.records(p.records.as_ref())?;
        if self.flexible {
            self.partition_tags(p);
        }
        Ok(())
    }

    fn aborted(&mut self, aborted: Option<&[AbortedTransaction]>) {
        match aborted {
            None if self.flexible => self.part.put_u8(0),
            None => self.part.put_i32(-1),
            Some(list) => {
                self.array_len(list.len());
                for txn in list {
                    self.part.put_i64(txn.producer_id.0);
                    self.part.put_i64(txn.first_offset.0);
                    self.no_tagged_fields();
                }
            }
        }
    }

    fn partition_tags(&mut self, p: &PartitionAnswer) {
        self.uvarint(u32::from(p.diverging.is_some()) + u32::from(p.current_leader.is_some()));
        if let Some((epoch, end)) = p.diverging {
            self.part.put_slice(&[0, 13]); // tag, size
            self.part.put_i32(epoch.0);
            self.part.put_i64(end.0);
            self.part.put_u8(0);
        }
        if let Some((leader, epoch)) = p.current_leader {
            self.part.put_slice(&[1, 9]);
            self.part.put_i32(leader.0);
            self.part.put_i32(epoch.0);
            self.part.put_u8(0);
        }
    }

    fn records(&mut self, range: Option<&FileRange>) -> Result<(), EncodeError> {
        let Some(range) = range else {
            self.long_len(0);
            return Ok(());
        };
        self.long_len(range.len);
        if range.len <= COPY_BYTES_MAX {
            let start = self.part.len();
            self.part.resize(start + range.len, 0);
            let into = self.part.get_mut(start..).unwrap_or_default();
            return read_exact_at(range.file.as_ref(), into, range.position).map_err(|e| EncodeError::from(&e));
        }
        self.cut();
        self.more += range.len;
        self.segments.push(Segment::File { file: range.file.clone(), position: range.position, len: range.len });
        Ok(())
    }

    /// Ends the part that is being written: a file range follows.
    fn cut(&mut self) {
        let part = std::mem::replace(&mut self.part, BytesMut::with_capacity(256));
        if self.first.is_none() {
            self.first = Some(part);
        } else if !part.is_empty() {
            self.more += part.len();
            self.segments.push(Segment::Bytes(part.freeze()));
        }
    }

    fn end(&mut self, endpoints: &[Endpoint]) {
        if !self.flexible {
            return;
        }
        if self.version < 16 || endpoints.is_empty() {
            self.part.put_u8(0);
            return;
        }
        let mut inner = Self { flexible: true, version: self.version, part: BytesMut::new(), segments: Vec::new(), first: None, more: 0 };
        inner.array_len(endpoints.len());
        for endpoint in endpoints {
            inner.part.put_i32(endpoint.id.0);
            inner.string(endpoint.host.as_bytes());
            inner.part.put_i32(endpoint.port.into());
            inner.part.put_slice(&[0, 0]); // no rack, no tagged fields
        }
        self.part.put_slice(&[1, 0]); // one tagged field, tag 0
        self.uvarint(u32::try_from(inner.part.len()).unwrap_or(0));
        self.part.put_slice(&inner.part);
    }

    fn finish(mut self) -> Result<Vec<Segment>, EncodeError> {
        self.cut();
        let mut first = self.first.unwrap_or_default();
        finish_frame(&mut first, self.more)?;
        let mut segments = Vec::with_capacity(self.segments.len() + 1);
        segments.push(Segment::Bytes(first.freeze()));
        segments.append(&mut self.segments);
        Ok(segments)
    }
}
