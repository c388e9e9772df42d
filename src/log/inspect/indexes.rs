//! Index entries and producer snapshots: printed as `DumpLogSegments` does, and checked against the batches that they speak of.

use super::{
    super::{
        files::Kind,
        index::{OffsetIndex, TimeIndex},
        producer_state::{ProducerEntry, ProducerStates},
        txn_index::{self, AbortedTxn},
    },
    Findings,
    segment::{SegmentFacts, time_of},
};
use crate::types::Offset;
use std::io::{self, Write};

/// Checks an index's bytes, against its log's batches if they're given, and prints its entries if `out` is.
pub(super) fn check(
    kind: Kind,
    base: Offset,
    bytes: &[u8],
    facts: Option<&SegmentFacts>,
    findings: &mut Findings<'_>,
    mut out: Option<&mut dyn Write>,
) -> io::Result<()> {
    let mut line = |text: String| out.as_mut().map_or(Ok(()), |out| writeln!(out, "{text}"));
    match kind {
        Kind::OffsetIndex => {
            let log_bytes = facts.map_or(u64::MAX, |facts| facts.bytes);
            if let Err(broken) = OffsetIndex::decode(base, bytes, log_bytes) {
                findings.wrong(broken.to_string());
            }
            let index = OffsetIndex::decode_prefix(base, bytes, log_bytes);
            for entry in (0..index.len()).filter_map(|i| index.entry(i)) {
                line(format!("offset: {} position: {}", entry.last_offset, entry.position))?;
                let batch = facts.map(|facts| facts.at(entry.position.into()));
                match batch {
                    Some(Some(batch)) if batch.last_offset != entry.last_offset => findings.wrong(format!(
                        "entry of offset {} at byte {}: the batch there ends at {}",
                        entry.last_offset, entry.position, batch.last_offset
                    )),
                    Some(None) => {
                        findings.wrong(format!("entry of offset {} at byte {}: no batch begins there", entry.last_offset, entry.position))
                    }
                    _ => {}
                }
            }
        }
        Kind::TimeIndex => {
            if let Err(broken) = TimeIndex::decode(base, bytes) {
                findings.wrong(broken.to_string());
            }
            let index = TimeIndex::decode_prefix(base, bytes);
            for entry in (0..index.len()).filter_map(|i| index.entry(i)) {
                line(format!("timestamp: {} offset: {}", entry.timestamp, entry.offset))?;
                match facts.map(|facts| time_of(facts, entry)) {
                    Some(Some(batch)) if batch.max_timestamp != entry.timestamp => findings.wrong(format!(
                        "entry of time {} at offset {}: the batch's largest timestamp is {}",
                        entry.timestamp, entry.offset, batch.max_timestamp
                    )),
                    Some(None) => findings.wrong(format!("entry of time {}: no batch ends at offset {}", entry.timestamp, entry.offset)),
                    _ => {}
                }
            }
        }
        Kind::TxnIndex => {
            for txn in aborted(base, bytes, facts, findings) {
                line(format!(
                    "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                    txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
                ))?;
            }
        }
        Kind::Log | Kind::Snapshot => {}
    }
    Ok(())
}

/// The transaction index's entries; each ends at an abort marker of its producer.
pub(super) fn aborted(base: Offset, bytes: &[u8], facts: Option<&SegmentFacts>, findings: &mut Findings<'_>) -> Vec<AbortedTxn> {
    let entries = match txn_index::decode(bytes, base) {
        Ok(entries) => entries,
        Err(error) => {
            findings.wrong(error.to_string());
            return Vec::new();
        }
    };
    for txn in &entries {
        // A marker may be gone from a compacted log.
        let Some(batch) = facts.and_then(|facts| facts.of(txn.last_offset)) else { continue };
        if batch.producer_id != txn.producer_id || batch.marker.is_none_or(|marker| marker.commit) {
            findings.wrong(format!(
                "transaction of producer {} ends at offset {}, where no abort marker of it is",
                txn.producer_id, txn.last_offset
            ));
        }
    }
    entries
}

/// Checks a producer snapshot and prints its producers if `out` is given.
pub(super) fn snapshot(offset: Offset, bytes: &[u8], findings: &mut Findings<'_>, out: Option<&mut dyn Write>) -> io::Result<()> {
    let states = match ProducerStates::decode_snapshot(bytes, offset) {
        Ok(states) => states,
        Err(error) => {
            findings.wrong(error.to_string());
            return Ok(());
        }
    };
    let Some(out) = out else { return Ok(()) };
    states.entries().try_for_each(|entry| producer(entry, out))
}

fn producer(entry: &ProducerEntry, out: &mut dyn Write) -> io::Result<()> {
    let first = entry.current_txn_first_offset.map_or("OptionalLong.empty".to_owned(), |offset| format!("OptionalLong[{offset}]"));
    write!(
        out,
        "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {first} lastTimestamp: {} ",
        entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.last_timestamp
    )?;
    if let Some(batch) = entry.batches().first() {
        write!(
            out,
            "firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
            batch.first_sequence(),
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp
        )?;
    }
    writeln!(out)
}
