//! The one way that small files are replaced: written beside, synced, renamed, the directory synced. A crash leaves the old or the new one.

use super::{Disk, OpenMode, name_path};
use std::{io, path::Path};

/// Replaces `path` by `contents`, durably. Leaves `PATH.tmp` behind only if it fails or crashes; the next call overwrites it.
pub fn write_atomically(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let write = || {
        let file = disk.open(temporary, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[io::IoSlice::new(contents)], 0)?;
        file.sync()?;
        disk.rename(temporary, path)?;
        disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
    };
    write().map_err(|e| name_path(path, e))
}
