//! kcat as Debian has it (librdkafka 2.0), which needs no program of ours: its command lines, and what it can't say. It never joins a group.
//!
//! It has one set of headers for all records of a command, sends no timestamps of the user's choice, and treats null and empty alike
//! within one command (`-Z`: both are null), so each run of records that are alike in this is a command of its own. It skips a record
//! of no key and an empty value, and sends no empty value next to a null key.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::corpus::{Headers, Received, Record};
use crate::driver::{Codec, WAIT};
use crate::process::run;

/// Between key and value, between records, and after a record's headers: bytes that stand nowhere in [`expressible`] records.
const KEY_END: &str = "\u{1}key\u{2}";
const RECORD_END: &str = "\u{1}record\u{2}";

/// Those of `records` that kcat can send, without their timestamps.
pub fn expressible(records: Vec<Record>) -> Vec<Record> {
    let value_of_header = |value: &Option<Vec<u8>>| {
        let bytes = value.as_deref().unwrap_or_default();
        !bytes.iter().any(|byte| [0, b',', b'='].contains(byte)) && bytes != b"NULL"
    };
    let is_expressible = |record: &Record| {
        let is_empty = |field: &Option<Vec<u8>>| field.as_ref().is_some_and(Vec::is_empty);
        let mixed = (record.key.is_none() && is_empty(&record.value)) || (is_empty(&record.key) && record.value.is_none());
        !mixed && record.headers.iter().all(|(name, value)| !name.is_empty() && value_of_header(value))
    };
    records.into_iter().filter(is_expressible).map(|record| Record { timestamp: None, ..record }).collect()
}

/// Sends `records`, as few commands as it takes.
///
/// # Errors
/// If kcat says that one wasn't acknowledged.
pub fn produce(bootstrap: &str, topic: &str, codec: Codec, records: &[Record]) -> Result<()> {
    let alike = |a: &Record, b: &Record| (a.partition, &a.headers, sends_null(a)) == (b.partition, &b.headers, sends_null(b));
    for run_of in records.chunk_by(alike) {
        let first = run_of.first().context("a run has a record")?;
        let mut command = kcat(bootstrap, topic);
        command.args(["-P", "-z", codec.name(), "-K", KEY_END, "-D", RECORD_END]);
        if let Some(partition) = first.partition {
            command.args(["-p", &partition.to_string()]);
        }
        if sends_null(first) {
            command.arg("-Z");
        }
        for (name, value) in &first.headers {
            let mut header = OsString::from(name);
            if let Some(value) = value {
                header.push("=");
                header.push(OsStr::from_bytes(value));
            }
            command.arg("-H").arg(header);
        }
        run(&mut command, &input(run_of), WAIT)?;
    }
    Ok(())
}

/// A null next to nothing empty: a tombstone. (A null key is written by leaving the separator out.)
fn sends_null(record: &Record) -> bool {
    record.value.is_none()
}

fn input(records: &[Record]) -> Vec<u8> {
    let mut input = Vec::new();
    for record in records {
        if record.key.is_some() || record.value.is_none() {
            input.extend_from_slice(record.key.as_deref().unwrap_or_default());
            input.extend_from_slice(KEY_END.as_bytes());
        }
        input.extend_from_slice(record.value.as_deref().unwrap_or_default());
        input.extend_from_slice(RECORD_END.as_bytes());
    }
    input
}

/// Reads all partitions to their ends.
///
/// # Errors
/// If kcat fails, or a record isn't one of the [`expressible`].
pub fn consume(bootstrap: &str, topic: &str) -> Result<Vec<Received>> {
    let format = format!("%p %o %T %K %S\n%k%s%h{RECORD_END}");
    let output = run(kcat(bootstrap, topic).args(["-C", "-e", "-q", "-o", "beginning", "-f", &format]), &[], WAIT)?;
    let mut rest = output.stdout.as_slice();
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (record, after) = received(rest).context("what kcat wrote")?;
        records.push(record);
        rest = after;
    }
    Ok(records)
}

fn received(bytes: &[u8]) -> Result<(Received, &[u8])> {
    let line_end = bytes.iter().position(|byte| *byte == b'\n').context("no end of line")?;
    let line = std::str::from_utf8(&bytes[..line_end])?;
    let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().context(line.to_owned())).collect::<Result<_>>()?;
    let [partition, offset, timestamp, key_length, value_length] = numbers[..] else { anyhow::bail!("{line}") };
    let mut rest = &bytes[line_end + 1..];
    let mut field = |length: i64| -> Result<Option<Vec<u8>>> {
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        ensure!(length <= rest.len(), "a field of {length} bytes");
        let (field, after) = rest.split_at(length);
        rest = after;
        Ok(Some(field.to_vec()))
    };
    // It says 0 for a key that is empty, and -1 for one that is null.
    let (key, value) = (field(key_length)?, field(value_length)?);
    let headers_end = rest.windows(RECORD_END.len()).position(|window| window == RECORD_END.as_bytes()).context("no end of record")?;
    let record = Received { partition: i32::try_from(partition)?, offset, timestamp, key, value, headers: headers(&rest[..headers_end])? };
    Ok((record, &rest[headers_end + RECORD_END.len()..]))
}

/// `name=value,name=value`, where a null is written as `NULL`.
fn headers(text: &[u8]) -> Result<Headers> {
    let mut headers = Vec::new();
    for header in text.split(|byte| *byte == b',').filter(|header| !header.is_empty()) {
        let equals = header.iter().position(|byte| *byte == b'=').context("a header without =")?;
        let value = &header[equals + 1..];
        let value = if value == b"NULL" { None } else { Some(value.to_vec()) };
        headers.push((String::from_utf8(header[..equals].to_vec())?, value));
    }
    Ok(headers)
}

fn kcat(bootstrap: &str, topic: &str) -> Command {
    let mut command = Command::new("kcat");
    command.args(["-b", bootstrap, "-t", topic]);
    command
}
