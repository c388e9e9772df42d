//! The records that each client sends, and the comparison of what came back with what was sent. No client or broker is started here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Partitions of a topic in these tests; the last one stays empty.
pub const PARTITIONS: i32 = 4;

/// Headers in their order: names may repeat, values may be null.
pub type Headers = Vec<(String, Option<Vec<u8>>)>;

/// A record to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `None`: the client chooses.
    pub partition: Option<i32>,
    /// Milliseconds; `None`: the time of sending.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

/// A record as a client read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

/// What a client's interface can express.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// A name, another, and the first again, in that order. (kafkajs takes headers as an object.)
    pub headers_in_any_order: bool,
    /// A header's value that is null.
    pub null_headers: bool,
}

impl Abilities {
    /// Everything that the protocol has.
    pub const ALL: Self = Self { headers_in_any_order: true, null_headers: true };
}

/// Old enough that no clock gives it, so that a timestamp which isn't kept shows.
const LONG_AGO: i64 = 1_500_000_000_000;

/// Records for explicit partitions: 0 has every combination of null, empty, text and bytes; 1 many records that fill and compress
/// batches, their timestamps out of order; 2 a record near the limit of a message; 3 nothing.
pub fn placed(abilities: Abilities) -> Vec<Record> {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let fields: [Option<Vec<u8>>; 4] = [None, Some(Vec::new()), Some("Grüße, 世界".into()), Some(all_bytes)];
    let headers = header_sets(abilities);
    let mut records = Vec::new();
    for key in &fields {
        for value in &fields {
            let nth = records.len();
            records.push(Record {
                partition: Some(0),
                timestamp: Some(LONG_AGO + 1_000 * i64::try_from(nth).unwrap_or(0)),
                key: key.clone(),
                value: value.clone(),
                headers: headers[nth % headers.len()].clone(),
            });
        }
    }
    for headers in headers {
        records.push(Record { partition: Some(0), timestamp: Some(1), key: Some(b"k".into()), value: Some(b"v".into()), headers });
    }
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for nth in 0..400_usize {
        let mut value = format!("line {nth} of a file that compresses well, well, well ").into_bytes();
        value.extend(noise.bytes(nth % 97));
        records.push(Record {
            partition: Some(1),
            timestamp: Some(LONG_AGO + i64::from(noise.byte()) * 60_000),
            key: Some(format!("key-{}", nth % 17).into_bytes()),
            value: Some(value),
            headers: Vec::new(),
        });
    }
    for value in [b"before".to_vec(), noise.bytes(900 * 1024), b"after".to_vec()] {
        records.push(Record { partition: Some(2), timestamp: Some(LONG_AGO), key: None, value: Some(value), headers: Vec::new() });
    }
    records
}

/// Records whose partition the client chooses by their key.
pub fn keyed() -> Vec<Record> {
    let record = |nth: i32| Record {
        partition: None,
        timestamp: Some(LONG_AGO + i64::from(nth)),
        key: Some(format!("key-{}", nth % 23).into_bytes()),
        value: Some(format!("value {nth}").into_bytes()),
        headers: Vec::new(),
    };
    (0..300).map(record).collect()
}

fn header_sets(abilities: Abilities) -> Vec<Headers> {
    let header = |name: &str, value: &[u8]| (name.to_owned(), Some(value.to_vec()));
    let mut sets = vec![
        Vec::new(),
        vec![header("one", b"1")],
        vec![header("empty", b""), header("bytes", &[0, 255, 10, 61, 44])],
        vec![header("twice", b"a"), header("twice", b"b"), header("Größe", "ñ".as_bytes())],
    ];
    if abilities.headers_in_any_order {
        sets.push(vec![header("a", b"1"), header("b", b"2"), header("a", b"3"), header("", b"no name")]);
    }
    if abilities.null_headers {
        sets.push(vec![("null".to_owned(), None), header("after", b"null")]);
    }
    sets
}

/// A generator of bytes that don't compress, the same in every run (xorshift).
struct Noise(u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.to_le_bytes()[3]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}

/// The lines that a client's `produce` reads.
pub fn to_lines(records: &[Record]) -> Vec<u8> {
    let mut lines = String::new();
    for record in records {
        let headers: Vec<Value> = record.headers.iter().map(|(name, value)| json!([name, to_text(value.as_deref())])).collect();
        let line = json!({
            "partition": record.partition,
            "timestamp": record.timestamp,
            "key": to_text(record.key.as_deref()),
            "value": to_text(record.value.as_deref()),
            "headers": headers,
        });
        let _ = writeln!(lines, "{line}");
    }
    lines.into_bytes()
}

/// The lines that a client's `consume` writes.
///
/// # Errors
/// If one isn't what the contract says.
pub fn from_lines(lines: &[u8]) -> Result<Vec<Received>> {
    std::str::from_utf8(lines)?.lines().map(|line| received(line).with_context(|| line.chars().take(200).collect::<String>())).collect()
}

fn received(line: &str) -> Result<Received> {
    let line: Value = serde_json::from_str(line)?;
    let number = |name: &str| line[name].as_i64().with_context(|| format!("no {name}"));
    let headers = line["headers"].as_array().context("no headers")?;
    let header = |pair: &Value| -> Result<_> { Ok((pair[0].as_str().context("no name")?.to_owned(), from_text(&pair[1])?)) };
    Ok(Received {
        partition: i32::try_from(number("partition")?)?,
        offset: number("offset")?,
        timestamp: number("timestamp")?,
        key: from_text(&line["key"])?,
        value: from_text(&line["value"])?,
        headers: headers.iter().map(header).collect::<Result<_>>()?,
    })
}

fn to_text(data: Option<&[u8]>) -> Option<String> {
    data.map(|data| STANDARD.encode(data))
}

fn from_text(text: &Value) -> Result<Option<Vec<u8>>> {
    match text {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(STANDARD.decode(text)?)),
        other => bail!("neither null nor a string: {other}"),
    }
}

/// That `received` is exactly `sent`: in each partition the same records in the same order, at offsets 0, 1, 2…
///
/// Timestamps are compared where the record had one.
///
/// # Errors
/// With the first difference.
pub fn expect_exactly(sent: &[Record], received: &[Received]) -> Result<()> {
    let mut expected: BTreeMap<i32, Vec<&Record>> = BTreeMap::new();
    for record in sent {
        expected.entry(record.partition.context("a record without a partition")?).or_default().push(record);
    }
    let found = by_partition(received)?;
    ensure!(
        expected.keys().eq(found.keys()),
        "records in partitions {:?}, not {:?}",
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (partition, expected) in &expected {
        let found = &found[partition];
        for (nth, (sent, received)) in expected.iter().zip(found).enumerate() {
            same(sent, received).with_context(|| format!("record {nth} of partition {partition}"))?;
        }
        ensure!(expected.len() == found.len(), "{} records in partition {partition}, not {}", found.len(), expected.len());
    }
    Ok(())
}

/// That `received` is exactly `sent`, wherever the client put each key: all of a key in one partition, in the order of sending.
///
/// # Errors
/// With the first difference.
pub fn expect_keyed(sent: &[Record], received: &[Received]) -> Result<()> {
    by_partition(received)?;
    ensure!(sent.len() == received.len(), "{} records, not {}", received.len(), sent.len());
    let mut expected: BTreeMap<&Option<Vec<u8>>, Vec<&Record>> = BTreeMap::new();
    for record in sent {
        expected.entry(&record.key).or_default().push(record);
    }
    for (key, expected) in expected {
        let mut found: Vec<&Received> = received.iter().filter(|record| &record.key == key).collect();
        found.sort_by_key(|record| (record.partition, record.offset));
        let name = show(key.as_deref());
        ensure!(found.len() == expected.len(), "{} records of key {name}, not {}", found.len(), expected.len());
        ensure!(found.iter().all(|record| record.partition == found[0].partition), "key {name} is in more than one partition");
        for (sent, received) in expected.iter().zip(found) {
            same(sent, received).with_context(|| format!("key {name}, offset {}", received.offset))?;
        }
    }
    Ok(())
}

/// By partition, in the order in which the client gave them, which has to be that of the offsets, from 0, without gaps.
fn by_partition(received: &[Received]) -> Result<BTreeMap<i32, Vec<&Received>>> {
    let mut found: BTreeMap<i32, Vec<&Received>> = BTreeMap::new();
    for record in received {
        let partition = found.entry(record.partition).or_default();
        let expected = i64::try_from(partition.len())?;
        ensure!(record.offset == expected, "partition {}: offset {} where {expected} should be", record.partition, record.offset);
        partition.push(record);
    }
    Ok(found)
}

fn same(sent: &Record, received: &Received) -> Result<()> {
    let (key, value) = (show(received.key.as_deref()), show(received.value.as_deref()));
    ensure!(sent.key == received.key, "key {key}, not {}", show(sent.key.as_deref()));
    ensure!(sent.value == received.value, "value {value}, not {}", show(sent.value.as_deref()));
    ensure!(sent.headers == received.headers, "headers {:?}, not {:?}", received.headers, sent.headers);
    if let Some(timestamp) = sent.timestamp {
        ensure!(timestamp == received.timestamp, "timestamp {}, not {timestamp}", received.timestamp);
    }
    Ok(())
}

fn show(data: Option<&[u8]>) -> String {
    match data {
        None => "null".to_owned(),
        Some(data) => format!("\"{}\" ({} bytes)", data[..data.len().min(40)].escape_ascii(), data.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_received(records: &[Record]) -> Vec<Received> {
        let mut next = BTreeMap::new();
        let received = |record: &Record| {
            let partition = record.partition.unwrap_or(0);
            let offset = next.entry(partition).or_insert(0);
            *offset += 1;
            Received {
                partition,
                offset: *offset - 1,
                timestamp: record.timestamp.unwrap_or(0),
                key: record.key.clone(),
                value: record.value.clone(),
                headers: record.headers.clone(),
            }
        };
        records.iter().map(received).collect()
    }

    #[test]
    fn a_difference_is_found() {
        let sent = placed(Abilities::ALL);
        let received = as_received(&sent);
        expect_exactly(&sent, &received).unwrap();
        expect_keyed(&keyed(), &as_received(&keyed())).unwrap();
        let changes: [fn(&mut Vec<Received>); 6] = [
            |all| drop(all.pop()),
            |all| all.swap(0, 1),
            |all| all[0].key = Some(Vec::new()),
            |all| all[5].timestamp += 1,
            |all| all[2].headers.reverse(),
            |all| all.push(all[0].clone()),
        ];
        for (nth, change) in changes.iter().enumerate() {
            let mut changed = received.clone();
            change(&mut changed);
            assert!(expect_exactly(&sent, &changed).is_err(), "change {nth}");
        }
    }

    #[test]
    fn lines_keep_null_and_empty_apart() {
        let line = br#"{"partition":1,"offset":2,"timestamp":3,"key":null,"value":"","headers":[["h",null]]}"#;
        let found = from_lines(line).unwrap();
        assert_eq!((&found[0].key, &found[0].value), (&None, &Some(Vec::new())));
        assert_eq!(found[0].headers, vec![("h".to_owned(), None)]);
    }
}
