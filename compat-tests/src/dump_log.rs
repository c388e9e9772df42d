//! Apache Kafka's own `DumpLogSegments` as the judge of a data directory: of its segments (every record decoded), indexes, producer
//! snapshots and transaction indexes. It changes nothing there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::run;
use crate::tools;

const CLASS: &str = "org.apache.kafka.tools.DumpLogSegments";
const WAIT: Duration = Duration::from_secs(100);

/// What it must never say: the beginnings of its complaints, on whichever stream.
const COMPLAINTS: &[&str] = &[
    "Mismatches in",
    "Non-consecutive offsets in",
    " is followed by ",
    "Found timestamp mismatch in",
    "Found out of order timestamp in",
    "The following indexed offsets are not found in the log",
    "isvalid: false",
    "isValid: false",
    "invalid bytes at the end of",
    "Ignoring unknown file",
    "Exception",
    "Could not",
    "Corrupt",
    "corrupt",
];

/// What it found.
#[derive(Debug, Default)]
pub struct Dumped {
    /// Records (and control records) by directory, as `TOPIC-N`.
    pub records: BTreeMap<String, usize>,
    /// How many files of each suffix it accepted.
    pub files: BTreeMap<String, usize>,
    /// Producers in the newest snapshots' lines.
    pub producer_entries: usize,
}

/// Shows it every file of the partitions below `data` whose directories are named `TOPIC-N` for one of `topics`.
///
/// # Errors
/// If there is no such file, or it complains of one, with its words.
pub fn check(data: &Path, topics: &[&str]) -> Result<Dumped> {
    check_files(data, topics, Gaps::Refused)
}

/// [`check`] of topics that were compacted: that offsets are missing is no complaint, that they go back is one.
///
/// # Errors
/// As [`check`].
pub fn check_compacted(data: &Path, topics: &[&str]) -> Result<Dumped> {
    check_files(data, topics, Gaps::Allowed)
}

/// Whether offsets may be missing between records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gaps {
    Refused,
    Allowed,
}

fn check_files(data: &Path, topics: &[&str], gaps: Gaps) -> Result<Dumped> {
    let files = files_of(data, topics)?;
    ensure!(!files.is_empty(), "no files of {topics:?} in {}", data.display());
    let mut dumped = Dumped::default();
    let everything = dump(&["--deep-iteration", "--print-data-log"], &files, gaps)?;
    count(&everything, &mut dumped);
    let shown: usize = dumped.files.values().sum();
    ensure!(shown == files.len(), "it dumped {shown} of {} files", files.len());
    let indexes: Vec<PathBuf> = files.into_iter().filter(|file| matches!(suffix(file), "index" | "timeindex")).collect();
    let sanity = dump(&["--index-sanity-check"], &indexes, gaps)?;
    let accepted = sanity.lines().filter(|line| line.ends_with("passed sanity check.") || line.ends_with("is empty.")).count();
    ensure!(accepted == indexes.len(), "{accepted} of {} indexes passed its sanity check:\n{sanity}", indexes.len());
    dump(&["--verify-index-only"], &indexes, gaps)?;
    Ok(dumped)
}

/// What it prints of `files`, records and their data included, whether it complains or not.
///
/// # Errors
/// If it ends with an error.
pub fn print(files: &[PathBuf]) -> Result<String> {
    let list = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(",");
    let output = run(tools::java(CLASS)?.args(["--deep-iteration", "--print-data-log", "--files", &list]), &[], WAIT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn files_of(data: &Path, topics: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for partition in fs::read_dir(data).with_context(|| format!("read {}", data.display()))? {
        let partition = partition?.path();
        let name = partition.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.rsplit_once('-').is_some_and(|(topic, _)| topics.contains(&topic)) {
            continue;
        }
        for file in fs::read_dir(&partition)? {
            let file = file?.path();
            if matches!(suffix(&file), "log" | "index" | "timeindex" | "snapshot" | "txnindex") {
                files.push(file);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn suffix(file: &Path) -> &str {
    file.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default()
}

fn dump(options: &[&str], files: &[PathBuf], gaps: Gaps) -> Result<String> {
    let list = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(",");
    let Output { stdout, stderr, .. } = run(tools::java(CLASS)?.args(options).args(["--files", &list]), &[], WAIT)?;
    let (said, errors) = (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned());
    // Records' own text may contain anything, so only lines that can't be records are held against the list.
    let complaint = |line: &&str| !line.starts_with("| ") && COMPLAINTS.iter().any(|complaint| line.contains(complaint));
    if let Some(at) = said.lines().position(|line| complaint(&line)) {
        let of = said.lines().take(at).filter(|line| line.starts_with("Dumping ")).last();
        bail!("{} {}: {}", options.join(" "), of.unwrap_or_default(), said.lines().skip(at).take(5).collect::<Vec<_>>().join("\n"));
    }
    let errors = if gaps == Gaps::Allowed { without_gaps(&errors) } else { without_first_offsets(&errors) };
    ensure!(!errors.iter().any(complaint), "{}\n{}", options.join(" "), errors.join("\n"));
    Ok(said)
}

/// Kafka 4.4's tool starts each file as if the record before had offset -1, and so complains of every segment that doesn't begin at 0:
/// that a file's first record has the offset of the file's name is no complaint. Pairs after the first one are.
fn without_first_offsets(errors: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut lines = errors.lines().peekable();
    while let Some(line) = lines.next() {
        let first = line.strip_prefix("Non-consecutive offsets in ").and_then(|file| {
            let base: i64 = Path::new(file).file_stem()?.to_str()?.parse().ok()?;
            Some(format!("-1 is followed by {base}"))
        });
        if first.as_deref().is_some_and(|first| lines.peek().is_some_and(|next| next.trim() == first)) {
            lines.next();
            if lines.peek().is_some_and(|next| next.contains(" is followed by ")) {
                kept.push(line);
            }
        } else {
            kept.push(line);
        }
    }
    kept
}

/// What it says of missing offsets left out, but not of any that go back.
fn without_gaps(errors: &str) -> Vec<&str> {
    let ascends = |line: &str| {
        let pair = line.trim().split_once(" is followed by ");
        pair.and_then(|(a, b)| Some(a.parse::<i64>().ok()? < b.parse::<i64>().ok()?)).unwrap_or(false)
    };
    errors.lines().filter(|line| !line.starts_with("Non-consecutive offsets in ") && !ascends(line)).collect()
}

fn count(said: &str, dumped: &mut Dumped) {
    let mut partition = String::new();
    for line in said.lines() {
        if let Some(file) = line.strip_prefix("Dumping ").map(Path::new) {
            partition = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            *dumped.files.entry(suffix(file).to_owned()).or_default() += 1;
        } else if line.starts_with("| offset: ") {
            *dumped.records.entry(partition.clone()).or_default() += 1;
        } else if line.starts_with("producerId: ") {
            dumped.producer_entries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{without_first_offsets, without_gaps};

    #[test]
    fn gaps_are_forgiven_and_steps_back_are_not() {
        let said = "Non-consecutive offsets in /d/t-0/00000000000000000146.log\n  -1 is followed by 147\n  150 is followed by 152";
        assert!(without_gaps(said).is_empty());
        assert_eq!(without_gaps("Non-consecutive offsets in /d\n  9 is followed by 9"), ["  9 is followed by 9"]);
    }

    #[test]
    fn only_a_first_record_at_the_segments_base_is_forgiven() {
        let forgiven = "Non-consecutive offsets in /d/t-0/00000000000000000146.log\n  -1 is followed by 146";
        assert!(without_first_offsets(forgiven).is_empty());
        for bad in [
            "Non-consecutive offsets in /d/t-0/00000000000000000146.log\n  -1 is followed by 147",
            "Non-consecutive offsets in /d/t-0/00000000000000000146.log\n  -1 is followed by 146\n  150 is followed by 152",
            "Non-consecutive offsets in /d/t-0/00000000000000000146.log\n  150 is followed by 152\n  -1 is followed by 146",
        ] {
            assert!(without_first_offsets(bad).iter().any(|line| line.starts_with("Non-consecutive")), "{bad}");
        }
    }
}
