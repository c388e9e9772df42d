//! Counts the batches that a client really sent, from the files that the broker keeps: the headers of every batch of a partition
//! directory. It never decodes a record.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// What a partition's `.log` files hold.
#[derive(Debug, Default, Clone, Copy)]
pub struct Batches {
    pub count: u64,
    pub records: u64,
    pub bytes: u64,
}

impl Batches {
    /// Bytes of the mean batch, header included.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}

/// Offset of a v2 batch's `[batch length]`, of its `[records count]`, and the bytes before what the length counts.
const LENGTH_AT: usize = 8;
const COUNT_AT: usize = 57;
const BEFORE_LENGTH: u64 = 12;

/// Reads the batch headers of all segments in `partition`, a directory `TOPIC-N`.
pub fn count(partition: &Path) -> Result<Batches> {
    let mut found = Batches::default();
    for entry in fs::read_dir(partition).with_context(|| format!("read {}", partition.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            count_segment(&path, &mut found)?;
        }
    }
    Ok(found)
}

fn count_segment(path: &Path, found: &mut Batches) -> Result<()> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut at = 0;
    while at < end {
        let mut header = [0_u8; COUNT_AT + 4];
        file.read_exact_at(&mut header, at).with_context(|| format!("batch header at {at} of {}", path.display()))?;
        let length = int(&header, LENGTH_AT);
        let records = int(&header, COUNT_AT);
        ensure!(length > 0 && records > 0, "no batch at {at} of {}", path.display());
        let bytes = BEFORE_LENGTH + u64::from(length.unsigned_abs());
        found.count += 1;
        found.records += u64::from(records.unsigned_abs());
        found.bytes += bytes;
        at += bytes;
    }
    Ok(())
}

fn int(header: &[u8; COUNT_AT + 4], at: usize) -> i32 {
    i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}
