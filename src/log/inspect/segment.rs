//! Reads a segment's log file from end to end and checks every byte: lengths, CRCs, offsets, and each batch's records.

use super::{
    super::{
        index::TimestampOffset,
        io::DiskFile,
        model::relative,
        partition::marker_of,
        scan::{self, Found, Walk, WalkError},
        segment::scan_buffer,
    },
    Findings, Severity,
};
use crate::{
    record::{BatchHeader, BatchRecords, EndTxnMarker, HEADER_BYTES, header::batch_crc},
    types::{LeaderEpoch, Millis, Offset, ProducerId},
};
use std::io;

/// A batch may decompress to so much.
pub(super) const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// One batch as it is read.
pub(super) struct Batch<'a> {
    pub found: Found,
    pub bytes: &'a [u8],
    pub is_valid: bool,
}

/// What other files say of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BatchFacts {
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub position: u64,
    pub max_timestamp: Millis,
    pub leader_epoch: LeaderEpoch,
    pub producer_id: ProducerId,
    pub is_transactional: bool,
    pub is_control: bool,
    /// A control batch that ends a transaction.
    pub marker: Option<EndTxnMarker>,
}

/// All batches of a segment, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SegmentFacts {
    pub base: Offset,
    /// After the last batch.
    pub end: Offset,
    pub batches: Vec<BatchFacts>,
    /// Bytes of whole batches, and of the file.
    pub good_bytes: u64,
    pub bytes: u64,
    /// Where the first thing was found that a start would cut at.
    pub cut_at: Option<Offset>,
}

impl SegmentFacts {
    /// The batch that begins at `position`.
    pub fn at(&self, position: u64) -> Option<&BatchFacts> {
        self.batches.binary_search_by_key(&position, |b| b.position).ok().and_then(|i| self.batches.get(i))
    }

    /// The batch that holds `offset`.
    pub fn of(&self, offset: Offset) -> Option<&BatchFacts> {
        let i = self.batches.partition_point(|b| b.last_offset < offset);
        self.batches.get(i).filter(|b| b.base_offset <= offset)
    }
}

/// Reads a whole log file, calls `see` for each batch, and notes what is wrong.
pub(super) fn read(
    file: &dyn DiskFile,
    base: Offset,
    findings: &mut Findings<'_>,
    see: &mut dyn FnMut(&Batch<'_>) -> io::Result<()>,
) -> io::Result<SegmentFacts> {
    let bytes = file.len()?;
    let mut facts = SegmentFacts { base, end: base, batches: Vec::new(), good_bytes: 0, bytes, cut_at: None };
    let mut buf = scan_buffer(bytes);
    let mut walk = Walk::new(file, 0, bytes, &mut buf);
    loop {
        let found = match walk.next_batch() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(facts),
            Err(WalkError::Io(error)) => return Err(error),
            Err(WalkError::Bad { position, what }) => {
                let zeros = is_zeros(file, position, bytes)?;
                // Room that was reserved (preallocate), or that a power loss left.
                let what = if zeros { "zeros".to_owned() } else { what.to_string() };
                findings.wrong(format!("{what} at byte {position}, after offset {}; {} bytes", facts.end, bytes.saturating_sub(position)));
                facts.cut_at.get_or_insert(facts.end);
                return Ok(facts);
            }
        };
        let batch_bytes = scan::read_batch(file, &found)?;
        let is_valid = batch_crc(&batch_bytes) == found.header.crc;
        check(&found, &batch_bytes, is_valid, &mut facts, findings);
        see(&Batch { found, bytes: &batch_bytes, is_valid })?;
        facts.good_bytes = found.end();
    }
}

fn is_zeros(file: &dyn DiskFile, mut from: u64, to: u64) -> io::Result<bool> {
    let mut buf = vec![0; 64 << 10];
    while from < to {
        let n = file.read_at(&mut buf, from)?;
        if n == 0 || buf.get(..n).unwrap_or_default().iter().any(|b| *b != 0) {
            return Ok(n == 0);
        }
        from = from.saturating_add(n as u64);
    }
    Ok(true)
}

fn check(found: &Found, bytes: &[u8], is_valid: bool, facts: &mut SegmentFacts, findings: &mut Findings<'_>) {
    let header = &found.header;
    let at = format!("batch of offsets {} to {} at byte {}", header.base_offset, header.last_offset(), found.position);
    let mut cut = |facts: &mut SegmentFacts, what: String| {
        findings.wrong(format!("{at}: {what}"));
        facts.cut_at.get_or_insert(facts.end);
    };
    if !is_valid {
        cut(facts, "its CRC is wrong".to_owned());
    }
    if header.base_offset < facts.end {
        let end = facts.end;
        cut(facts, format!("offsets up to {end} came before it"));
    }
    if relative(facts.base, header.last_offset()).is_none() {
        cut(facts, "its offsets don't belong to this segment".to_owned());
    }
    let last_epoch = facts.batches.last().map_or(LeaderEpoch::NONE, |b| b.leader_epoch);
    if header.leader_epoch < last_epoch {
        findings.wrong(format!("{at}: its leader epoch {} is older than the {last_epoch} before it", header.leader_epoch));
    }
    if is_valid {
        match records(header, bytes) {
            Ok(largest) if !header.is_control() && largest.is_some_and(|t| t > header.max_timestamp) => {
                findings
                    .add(Severity::Note, format!("{at}: a record is later than the batch's largest timestamp {}", header.max_timestamp));
            }
            Ok(_) => {}
            Err(what) => findings.wrong(format!("{at}: {what}")),
        }
    }
    let marker = if is_valid { marker_of(header, bytes.get(HEADER_BYTES..).unwrap_or_default()) } else { None };
    facts.end = facts.end.max(header.next_offset());
    facts.batches.push(BatchFacts {
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        position: found.position,
        max_timestamp: header.max_timestamp,
        leader_epoch: header.leader_epoch,
        producer_id: header.producer_id,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
        marker,
    });
}

/// Decodes all records; the largest of their timestamps.
fn records(header: &BatchHeader, bytes: &[u8]) -> Result<Option<Millis>, String> {
    let records = BatchRecords::open(bytes, DECOMPRESSED_BYTES_MAX).map_err(|e| e.to_string())?;
    let (mut last, mut largest) = (header.base_offset.plus(-1), None);
    for record in records.iter() {
        let record = record.map_err(|e| e.to_string())?;
        if record.offset <= last || record.offset > header.last_offset() {
            return Err(format!("record of offset {} comes after {last}", record.offset));
        }
        last = record.offset;
        largest = largest.max(Some(record.timestamp));
    }
    Ok(largest)
}

/// Where a time index entry's timestamp comes from: the batch that ends at its offset.
pub(super) fn time_of(facts: &SegmentFacts, entry: TimestampOffset) -> Option<&BatchFacts> {
    facts.of(entry.offset).filter(|batch| batch.last_offset == entry.offset)
}
