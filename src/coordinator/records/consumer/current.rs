//! `ConsumerGroupCurrentMemberAssignmentKey` (version 8) and `ConsumerGroupCurrentMemberAssignmentValue` (version 0): what a member owns now,
//! and how far it is on its way to its target.
//!
//! ```text
//! key    group text · member text
//! value  epoch i32 · previous epoch i32 · state i8 · assigned [topic] · to be revoked [topic]
//! topic  id uuid · partitions [i32] · tag 0: the epoch at which each was assigned [i32] (KIP-1251)
//! ```

use super::{begin, open};
use crate::{
    codec::{Malformed, Reader},
    coordinator::records::{TooLong, compact},
    group::{
        CurrentAssignment, Epoch,
        consumer::{MemberState, Owned},
    },
    types::PartitionIndex,
};
use bytes::{BufMut, Bytes};

pub fn encode(value: &CurrentAssignment) -> Result<Vec<u8>, TooLong> {
    let mut out = begin();
    out.put_i32(value.member_epoch.0);
    out.put_i32(value.previous_member_epoch.0);
    out.put_i8(value.state.code());
    put_owned(&mut out, &value.assigned)?;
    put_owned(&mut out, &value.pending_revocation)?;
    compact::put_no_tags(&mut out);
    Ok(out)
}

fn put_owned(out: &mut Vec<u8>, owned: &Owned) -> Result<(), TooLong> {
    compact::put_len(out, owned.len())?;
    for (id, of_topic) in owned {
        compact::put_topic_id(out, *id);
        compact::put_len(out, of_topic.len())?;
        of_topic.keys().for_each(|partition| out.put_i32(partition.0));
        let mut epochs = Vec::with_capacity(of_topic.len().saturating_mul(4).saturating_add(4));
        compact::put_len(&mut epochs, of_topic.len())?;
        of_topic.values().for_each(|epoch| epochs.put_i32(epoch.0));
        compact::put_tag(out, &epochs)?;
    }
    Ok(())
}

pub fn decode(bytes: Bytes) -> Result<CurrentAssignment, Malformed> {
    let mut reader = open(&bytes)?;
    let member_epoch = Epoch(reader.i32()?);
    let current = CurrentAssignment {
        member_epoch,
        previous_member_epoch: Epoch(reader.i32()?),
        state: MemberState::from_code(reader.i8()?),
        assigned: owned(&mut reader, member_epoch)?,
        pending_revocation: owned(&mut reader, member_epoch)?,
    };
    reader.skip_tagged_fields()?;
    Ok(current)
}

/// Records of before KIP-1251 don't say since when: since the member's epoch then.
fn owned(reader: &mut Reader, otherwise: Epoch) -> Result<Owned, Malformed> {
    let mut all = Owned::new();
    for _ in 0..reader.array_len(compact::TOPIC_BYTES_MIN)? {
        let id = reader.topic_id()?;
        let indexes = compact::i32s(reader)?;
        let mut epochs = Vec::new();
        reader.tagged_fields(|tag, field| {
            if tag == 0 {
                epochs = compact::i32s(&mut Reader::new(field, true))?;
            }
            Ok(())
        })?;
        let epochs = epochs.into_iter().map(Epoch).chain(std::iter::repeat(otherwise));
        if !indexes.is_empty() {
            all.entry(id).or_default().extend(indexes.into_iter().map(PartitionIndex).zip(epochs));
        }
    }
    Ok(all)
}
