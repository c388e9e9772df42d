//! A wall clock that a test sets, for a broker under Debian's libfaketime: a group that stopped yesterday stopped a day ago, and 38 minutes
//! pass when the test says so. The steady clock of timeouts goes on as it is.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Debian puts it below a folder named for the machine: `/usr/lib/x86_64-linux-gnu/faketime`.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A clock that is behind the real one by what was set last.
pub struct Clock {
    folder: TempDir,
    library: PathBuf,
}

impl Clock {
    /// Begins so long ago.
    ///
    /// # Errors
    /// If libfaketime isn't installed.
    pub fn ago(behind: Duration) -> Result<Self> {
        let folders = fs::read_dir(LIBRARIES)?.flatten().map(|entry| entry.path().join(LIBRARY));
        let library = folders.into_iter().find(|path| path.exists()).context("no libfaketime: compat-tests/install puts it there")?;
        let clock = Self { folder: TempDir::with_prefix("clock-test-")?, library };
        clock.set_ago(behind)?;
        Ok(clock)
    }

    /// From now on it is so long ago.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn set_ago(&self, behind: Duration) -> Result<()> {
        // Renamed, so that nobody reads half of it.
        let next = self.folder.path().join("next");
        fs::write(&next, format!("-{:.3}\n", behind.as_secs_f64()))?;
        Ok(fs::rename(next, self.file())?)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// What makes a program go by this clock.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let path = |path: &Path| path.as_os_str().to_owned();
        vec![
            ("LD_PRELOAD", path(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", path(&self.file())),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }
}

/// Milliseconds since 1970, so long ago by the real clock.
pub fn ms_ago(behind: Duration) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.saturating_sub(behind).as_millis()).unwrap_or(i64::MAX)
}
