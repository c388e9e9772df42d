//! Real input: the checksums that dpkg keeps of every installed file, each line a record keyed by its package; and what must be true
//! of them when they are read back. It reads `/var/lib/dpkg/info` and nothing else of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::run;

const INFO: &str = "/var/lib/dpkg/info";
const SUFFIX: &str = ".md5sums";
const WAIT: Duration = Duration::from_secs(60);

/// A package's name and its lines, in the order of its file.
pub type Packages = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// All packages with at least one line.
///
/// # Errors
/// If the files can't be read, or this is no Debian.
pub fn packages() -> Result<Packages> {
    let mut all = Packages::new();
    for entry in fs::read_dir(INFO).with_context(|| format!("read {INFO}"))? {
        let path = entry?.path();
        let Some(package) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX)) else { continue };
        let lines = lines_of(&path)?;
        if !lines.is_empty() {
            all.insert(package.as_bytes().to_vec(), lines);
        }
    }
    ensure!(!all.is_empty(), "no package in {INFO}");
    Ok(all)
}

fn lines_of(path: &Path) -> Result<Vec<Vec<u8>>> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Deals the packages out to `hands` producers, so that all lines of a package go through one of them.
pub fn deal(packages: &Packages, hands: usize) -> Vec<Packages> {
    let mut dealt = vec![Packages::new(); hands];
    for (number, (package, lines)) in packages.iter().enumerate() {
        dealt[number % hands].insert(package.clone(), lines.clone());
    }
    dealt
}

/// How many lines, so how many records.
pub fn count(packages: &Packages) -> usize {
    packages.values().map(Vec::len).sum()
}

/// Lines `KEY TAB VALUE` for a line producer.
pub fn as_input(packages: &Packages) -> Vec<Vec<u8>> {
    let record = |package: &Vec<u8>, line: &Vec<u8>| [package.as_slice(), b"\t", line.as_slice(), b"\n"].concat();
    packages.iter().flat_map(|(package, lines)| lines.iter().map(move |line| record(package, line))).collect()
}

/// A record as a consumer saw it.
#[derive(Debug)]
pub struct Seen {
    pub partition: i32,
    pub offset: i64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Reads every partition of `topic` from its start to its end, by kcat.
///
/// # Errors
/// If kcat fails, or shows something else than records.
pub fn read_back(bootstrap: &str, topic: &str) -> Result<Vec<Seen>> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-C", "-q", "-e", "-o", "beginning", "-f", "%p\t%o\t%k\t%s\n", "-b", bootstrap, "-t", topic]);
    let output = run(&mut kcat, &[], WAIT)?;
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(seen).collect()
}

fn seen(line: &[u8]) -> Result<Seen> {
    let mut parts = line.splitn(4, |byte| *byte == b'\t');
    let mut part = || parts.next().with_context(|| format!("no record: {}", String::from_utf8_lossy(line)));
    Ok(Seen {
        partition: std::str::from_utf8(part()?)?.parse()?,
        offset: std::str::from_utf8(part()?)?.parse()?,
        key: part()?.to_vec(),
        value: part()?.to_vec(),
    })
}

/// Holds what was read to what was sent: nothing lost, nothing twice, a package's lines in one partition and in the order of its
/// file, and the offsets of each partition without a gap.
///
/// # Errors
/// With the first few differences.
pub fn compare(sent: &Packages, read: &[Seen]) -> Result<()> {
    let mut differences = gaps(read);
    let mut by_key: BTreeMap<&[u8], Vec<&Seen>> = BTreeMap::new();
    for record in read {
        by_key.entry(&record.key).or_default().push(record);
    }
    for (package, lines) in sent {
        let mut records = by_key.remove(package.as_slice()).unwrap_or_default();
        records.sort_by_key(|record| (record.partition, record.offset));
        differences.extend(difference(package, lines, &records));
    }
    differences.extend(by_key.keys().map(|key| format!("{} was never sent", String::from_utf8_lossy(key))));
    if !differences.is_empty() {
        let shown = differences.iter().take(10).map(String::as_str).collect::<Vec<_>>().join("\n");
        bail!("{} of {} records; {} differences:\n{shown}", read.len(), count(sent), differences.len());
    }
    Ok(())
}

fn gaps(read: &[Seen]) -> Vec<String> {
    let mut offsets: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for record in read {
        offsets.entry(record.partition).or_default().push(record.offset);
    }
    let mut gaps = Vec::new();
    for (partition, offsets) in &mut offsets {
        offsets.sort_unstable();
        if let Some((expected, found)) = (0_i64..).zip(offsets.iter()).find(|(expected, found)| expected != *found) {
            gaps.push(format!("partition {partition}: offset {found} instead of {expected}"));
        }
    }
    gaps
}

fn difference(package: &[u8], lines: &[Vec<u8>], records: &[&Seen]) -> Option<String> {
    let name = String::from_utf8_lossy(package);
    let partition = records.first().map(|record| record.partition);
    if let Some(other) = records.iter().find(|record| Some(record.partition) != partition) {
        return Some(format!("{name} is in partitions {partition:?} and {}", other.partition));
    }
    let at = lines.iter().zip(records).position(|(line, record)| *line != record.value);
    match at.or((lines.len() != records.len()).then_some(lines.len().min(records.len()))) {
        None => None,
        Some(at) => {
            let sent = lines.get(at).map(|line| String::from_utf8_lossy(line));
            let got = records.get(at).map(|record| (record.partition, record.offset, String::from_utf8_lossy(&record.value)));
            Some(format!("{name}: {} of {} lines; line {at} is {sent:?}, read {got:?}", records.len(), lines.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Packages {
        Packages::from([(b"a".to_vec(), vec![b"1".to_vec(), b"2".to_vec()]), (b"b".to_vec(), vec![b"3".to_vec()])])
    }

    fn record(partition: i32, offset: i64, key: &str, value: &str) -> Seen {
        Seen { partition, offset, key: key.into(), value: value.into() }
    }

    fn complaint(read: &[Seen]) -> String {
        compare(&sent(), read).expect_err("they differ").to_string()
    }

    #[test]
    fn what_was_sent_is_accepted_however_the_partitions_interleave() {
        compare(&sent(), &[record(1, 0, "b", "3"), record(0, 0, "a", "1"), record(0, 1, "a", "2")]).expect("equal");
    }

    #[test]
    fn each_kind_of_damage_is_seen() {
        assert!(complaint(&[record(0, 0, "a", "1"), record(1, 0, "b", "3")]).contains("1 of 2 lines"), "lost");
        let twice = [record(0, 0, "a", "1"), record(0, 1, "a", "1"), record(0, 2, "a", "2"), record(1, 0, "b", "3")];
        assert!(complaint(&twice).contains("3 of 2 lines"), "twice");
        assert!(complaint(&[record(0, 0, "a", "2"), record(0, 1, "a", "1"), record(1, 0, "b", "3")]).contains("line 0"), "out of order");
        assert!(complaint(&[record(0, 0, "a", "1"), record(1, 0, "a", "2"), record(1, 1, "b", "3")]).contains("partitions"), "moved");
        assert!(complaint(&[record(0, 0, "a", "1"), record(0, 2, "a", "2"), record(1, 0, "b", "3")]).contains("offset 2"), "gap");
        let strange = [record(0, 0, "a", "1"), record(0, 1, "a", "2"), record(1, 0, "b", "3"), record(1, 1, "c", "4")];
        assert!(complaint(&strange).contains("never sent"), "strange");
    }

    #[test]
    fn dealing_loses_nothing_and_splits_no_package() {
        let dealt = deal(&sent(), 2);
        assert_eq!(dealt.iter().map(count).sum::<usize>(), count(&sent()));
        assert!(dealt[0].keys().all(|key| !dealt[1].contains_key(key)));
    }
}
