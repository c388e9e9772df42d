//! What opening a partition does with the files of a swap that a crash cut short (`LogLoader.completeSwapOperations`): see `swap`.

use super::super::{
    LogError,
    files::{self, Kind, Stage},
    io::{DiskFile, Entry, OpenMode},
    scan::Walk,
    segment::{Place, remove_if_there, scan_buffer},
};
use crate::types::Offset;
use std::{io, sync::Arc};

/// Ends what a crash interrupted: a cleaner's complete segments (`.swap`) take the place of those that they cover; what is marked for removal
/// goes. True if anything changed. Files of `.cleaned` are half-written, and any `.swap` at or above one belongs to a split that wasn't complete.
pub(in super::super) fn finish_replacements(place: &Arc<Place>, listing: &[Entry]) -> Result<bool, LogError> {
    let staged: Vec<_> =
        listing.iter().filter_map(|e| files::parse(&e.name).map(|(offset, kind, stage)| (&e.name, offset, kind, stage))).collect();
    if staged.iter().all(|(.., stage)| *stage == Stage::Live) {
        return Ok(false);
    }
    let path = |name: &str| place.dir.join(name);
    let cleaned_from = staged.iter().filter(|(.., stage)| *stage == Stage::Cleaned).map(|(_, offset, ..)| *offset).min();
    let is_valid_swap = |offset: Offset| cleaned_from.is_none_or(|from| offset < from);
    // Swaps that aren't complete go before what tells that they aren't: another crash may end this.
    for gone in [Stage::Swap, Stage::Cleaned, Stage::Deleted] {
        for (name, offset, ..) in staged.iter().filter(|(.., stage)| *stage == gone) {
            if gone != Stage::Swap || !is_valid_swap(*offset) {
                remove_if_there(&*place.disk, &path(name))?;
            }
        }
    }
    let swaps: Vec<_> = staged.iter().filter(|(_, offset, _, stage)| *stage == Stage::Swap && is_valid_swap(*offset)).collect();
    let logs = swaps.iter().filter(|(_, _, kind, _)| *kind == Kind::Log);
    let from = logs.clone().map(|(_, offset, ..)| *offset).min();
    let mut to = None;
    for (name, offset, ..) in logs {
        to = to.max(Some(end_of_file(&*place.disk.open(&path(name), OpenMode::Read)?, *offset)?));
    }
    if let (Some(from), Some(to)) = (from, to) {
        // The snapshot where the new segment begins stays: of producers whose records were removed before nothing else tells.
        let is_replaced = |offset: Offset, kind| (from..to).contains(&offset) && !(kind == Kind::Snapshot && offset == from);
        for (name, ..) in staged.iter().filter(|(_, offset, kind, stage)| *stage == Stage::Live && is_replaced(*offset, *kind)) {
            remove_if_there(&*place.disk, &path(name))?;
        }
    }
    for (name, offset, kind, _) in swaps {
        place.disk.rename(&path(name), &place.path(*offset, *kind))?;
    }
    place.disk.sync_dir(&place.dir)?;
    Ok(true)
}

/// The offset after the last batch of a whole log file.
fn end_of_file(file: &dyn DiskFile, base: Offset) -> Result<Offset, LogError> {
    let mut buf = scan_buffer(file.len()?);
    let mut walk = Walk::new(file, 0, file.len()?, &mut buf);
    let mut end = base;
    while let Some(batch) = walk.next_batch().map_err(io::Error::from)? {
        end = batch.header.next_offset();
    }
    Ok(end)
}
