//! What is wrong is found, and where it is; what a crash explains is noted only; what is sound isn't complained of.

use super::*;
use crate::{
    config::TopicConfig,
    log::{LogError, LogSettings, Logs, Origin, PartitionLog, PartitionSpec, Proof, io::sim::SimDisk},
    record::{BatchBuilder, Compression, EndTxnMarker, builder::end_txn_batch},
    types::*,
};
use bytes::Bytes;
use std::sync::Arc;

const NOW: Millis = Millis(1_700_000_000_000);
const ID: TopicId = TopicId(uuid::Uuid::from_u128(7));
const DIR: &str = "/d";

fn open(disk: &SimDisk) -> (Logs, Arc<PartitionLog>) {
    let settings = LogSettings { dirs: vec![DIR.into()], ..LogSettings::default() };
    let logs = Logs::lock(Arc::new(disk.clone()), settings).unwrap();
    let config = Arc::new(TopicConfig { segment_bytes: 2_000, index_interval_bytes: 200, ..TopicConfig::default() });
    let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) };
    logs.open_all(vec![PartitionSpec { topic, topic_id: ID, config, leader_epoch: LeaderEpoch(3) }], NOW).unwrap();
    let log = logs.get(ID, PartitionIndex(0)).unwrap();
    (logs, log)
}

fn batch(i: i64, builder: BatchBuilder) -> Bytes {
    builder.record(Millis(NOW.0 + i), Some(b"key"), Some(&[b'v'; 90])).record(Millis(NOW.0 + i), None, Some(b"w")).build().unwrap()
}

/// Several segments: plain batches of every codec, an idempotent producer, a committed and an aborted transaction.
fn fill(log: &PartitionLog) {
    let codecs = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    for (i, codec) in (0..40).zip(codecs.into_iter().cycle()) {
        log.append(NOW, batch(i, BatchBuilder::new(codec)), Origin::Client).unwrap();
        let idempotent = BatchBuilder::new(Compression::None).producer(ProducerId(1), ProducerEpoch(0), i as i32 * 2);
        log.append(NOW, batch(i, idempotent), Origin::Client).unwrap();
    }
    for (producer, commit) in [(ProducerId(2), true), (ProducerId(3), false)] {
        let builder = BatchBuilder::new(Compression::None).producer(producer, ProducerEpoch(0), 0).transactional();
        log.append(NOW, batch(50, builder), Origin::CoordinatorInTransaction(Proof::Unchecked)).unwrap();
        let marker = EndTxnMarker { commit, coordinator_epoch: 0 };
        log.append(NOW, end_txn_batch(producer, ProducerEpoch(0), marker, NOW), Origin::Coordinator).unwrap();
    }
}

fn cleanly_left() -> SimDisk {
    let disk = SimDisk::new(1);
    let (logs, log) = open(&disk);
    fill(&log);
    logs.close(NOW).unwrap();
    disk
}

fn verified(disk: &SimDisk) -> Verified {
    verify(disk, Path::new(DIR), 2).unwrap()
}

/// All names of a suffix in the partition, in order.
fn named(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    let dir = Path::new("/d/t-0");
    disk.list(dir).unwrap().into_iter().filter(|e| e.name.ends_with(suffix)).map(|e| dir.join(e.name)).collect()
}

#[test]
fn a_directory_that_was_left_cleanly_is_sound() {
    let found = verified(&cleanly_left());
    assert_eq!(found.findings, []);
    assert!(found.clean && found.segments > 5);
    assert_eq!((found.partitions, found.batches), (1, 84));
}

#[test]
fn a_directory_in_use_is_refused() {
    let disk = SimDisk::new(1);
    let (logs, _log) = open(&disk);
    assert!(matches!(verify(&disk, Path::new(DIR), 1), Err(LogError::Locked(_))));
    drop(logs);
    assert!(verify(&disk, Path::new(DIR), 1).is_ok());
}

#[test]
fn what_a_crash_leaves_is_noted_and_no_more() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (logs, log) = open(&disk);
        fill(&log);
        if seed % 3 == 0 {
            (0..4).for_each(|minute| logs.tick(Millis(NOW.0 + minute * 60_000)));
            log.append(NOW, batch(90, BatchBuilder::new(Compression::None)), Origin::Client).unwrap();
        }
        for disk in [disk.process_crash(), disk.power_loss()] {
            let found = verified(&disk);
            assert!(!found.clean && found.is_sound(), "seed {seed}: {:#?}", found.findings);
            // It changed nothing and holds nothing: the broker opens as if it had never been there.
            drop(open(&disk));
        }
    }
}

/// Each fault by what it does, the file that is to blame and a piece of what is said.
type Fault = (&'static str, fn(&SimDisk) -> PathBuf, &'static str);

fn corrupt(disk: &SimDisk, path: PathBuf, edit: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    disk.corrupt(&path, edit);
    path
}

const FAULTS: &[Fault] = &[
    ("a turned bit in a record", |disk| corrupt(disk, named(disk, ".log")[1].clone(), |b| b[100] ^= 1), "CRC is wrong"),
    ("an end that is cut off", |disk| corrupt(disk, named(disk, ".log").pop().unwrap(), |b| b.truncate(b.len() - 5)), "cut short"),
    ("zeros at the end", |disk| corrupt(disk, named(disk, ".log")[0].clone(), |b| b.extend([0; 200])), "zeros at byte"),
    ("rubbish at the end", |disk| corrupt(disk, named(disk, ".log")[0].clone(), |b| b.extend([9; 200])), "at byte"),
    (
        "batches of another segment",
        |disk| {
            let first = disk.read(&named(disk, ".log")[0]).unwrap();
            corrupt(disk, named(disk, ".log")[2].clone(), |b| *b = first)
        },
        "came before it",
    ),
    ("an epoch that goes back", |disk| corrupt(disk, named(disk, ".log")[0].clone(), |b| b[15] = 9), "older than"),
    (
        "a record count that lies",
        |disk| {
            corrupt(disk, named(disk, ".log")[0].clone(), |b| {
                b[60] = 1;
                let size = 12 + u32::from_be_bytes(b[8..12].try_into().unwrap()) as usize;
                let crc = crate::record::header::batch_crc(&b[..size]);
                b[17..21].copy_from_slice(&crc.to_be_bytes());
            })
        },
        "bytes over",
    ),
    (
        "an index entry that points elsewhere",
        |disk| corrupt(disk, named(disk, ".index")[1].clone(), |b| b[7] ^= 1),
        "no batch begins there",
    ),
    ("an index entry of another offset", |disk| corrupt(disk, named(disk, ".index")[1].clone(), |b| b[3] ^= 1), "the batch there ends at"),
    ("index entries out of order", |disk| corrupt(disk, named(disk, ".index")[1].clone(), |b| b[0] = 1), "out of order"),
    (
        "a time index entry of another time",
        |disk| corrupt(disk, named(disk, ".timeindex")[1].clone(), |b| b[7] ^= 1),
        "largest timestamp is",
    ),
    (
        "a time index entry of another offset",
        |disk| corrupt(disk, named(disk, ".timeindex")[1].clone(), |b| b[11] ^= 1),
        "no batch ends at",
    ),
    ("half an index entry", |disk| corrupt(disk, named(disk, ".timeindex")[0].clone(), |b| b.push(1)), "out of order"),
    (
        "a transaction index that is gone",
        |disk| {
            let path = named(disk, ".txnindex").remove(0);
            disk.remove_file(&path).unwrap();
            path
        },
        "lacks the transaction of producer 3",
    ),
    ("a transaction of another producer", |disk| corrupt(disk, named(disk, ".txnindex")[0].clone(), |b| b[9] ^= 1), "no abort marker"),
    ("a transaction index of another version", |disk| corrupt(disk, named(disk, ".txnindex")[0].clone(), |b| b[1] = 7), "unknown version"),
    ("a turned bit in a snapshot", |disk| corrupt(disk, named(disk, ".snapshot")[0].clone(), |b| b[8] ^= 1), ""),
    (
        "epochs that aren't the batches'",
        |disk| corrupt(disk, "/d/t-0/leader-epoch-checkpoint".into(), |b| *b = b"0\n1\n2 0\n".to_vec()),
        "epoch 3",
    ),
    ("epochs that can't be read", |disk| corrupt(disk, "/d/t-0/leader-epoch-checkpoint".into(), |b| *b = b"x".to_vec()), ""),
    ("metadata without an id", |disk| corrupt(disk, "/d/t-0/partition.metadata".into(), |b| b.truncate(10)), "no topic id"),
    (
        "a segment that is gone",
        |disk| {
            disk.remove_file(&named(disk, ".log").pop().unwrap()).unwrap();
            "/d/t-0".into()
        },
        "durable up to",
    ),
    (
        "a checkpoint that can't be read",
        |disk| corrupt(disk, "/d/recovery-point-offset-checkpoint".into(), |b| b[0] = b'7'),
        "unknown version",
    ),
];

#[test]
fn planted_faults_are_found_where_they_are() {
    for (name, plant, said) in FAULTS {
        let disk = cleanly_left();
        let path = plant(&disk);
        let found = verified(&disk);
        assert!(!found.is_sound(), "{name}: nothing is said to be wrong");
        let blamed = found.findings.iter().any(|f| f.severity == Severity::Wrong && f.path == path && f.what.contains(said));
        assert!(blamed, "{name}: {} isn't blamed for {said:?}: {:#?}", path.display(), found.findings);
    }
}

#[test]
fn after_a_crash_only_what_was_durable_is_wrong() {
    let disk = SimDisk::new(1);
    let (logs, log) = open(&disk);
    fill(&log);
    logs.tick(NOW);
    let last = named(&disk, ".log").pop().unwrap();
    let disk = disk.process_crash();
    disk.corrupt(&last, |b| b.truncate(b.len() - 5));
    let found = verified(&disk);
    assert!(found.is_sound() && found.findings.iter().any(|f| f.what.contains("cut short")), "{:#?}", found.findings);
    disk.corrupt(&named(&disk, ".log")[0], |b| b[100] ^= 1);
    assert!(!verified(&disk).is_sound());
}

#[test]
fn a_dump_says_all_fields_and_checks() {
    let disk = cleanly_left();
    let mut out = Vec::new();
    let options = DumpOptions { records: true, data: true };
    for suffix in [".log", ".index", ".timeindex", ".txnindex", ".snapshot"] {
        for path in named(&disk, suffix) {
            assert_eq!(dump(&disk, &path, options, &mut out).unwrap(), [], "{}", path.display());
        }
    }
    let said = String::from_utf8(out).unwrap();
    assert_eq!(said.lines().filter(|line| line.starts_with("baseOffset: ")).count(), 84);
    assert_eq!(said.lines().filter(|line| line.starts_with("| offset: ")).count(), 166);
    for line in [
        "Log starting offset: 0",
        "| offset: 0 CreateTime: 1700000000000 keySize: 3 valueSize: 90 sequence: -1 headerKeys: [] key: key payload: vvvvvvvvvv",
        "| offset: 5 CreateTime: 1700000000001 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: w",
        "endTxnMarker: ABORT coordinatorEpoch: 0",
        "version: 0 producerId: 3 firstOffset: 163 lastOffset: 165 lastStableOffset: 166",
        "producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1700000000039 ",
    ] {
        assert!(said.lines().any(|l| l.contains(line)), "{line}");
    }
    let log = named(&disk, ".log").remove(0);
    disk.corrupt(&log, |b| b[100] ^= 1);
    let (mut out, index) = (Vec::new(), named(&disk, ".index").remove(0));
    let found = dump(&disk, &log, options, &mut out).unwrap();
    assert!(found.len() == 1 && found[0].what.starts_with("batch of offsets 0 to 1 at byte 0: its CRC"), "{found:?}");
    assert!(String::from_utf8_lossy(&out).contains("isvalid: false"));
    disk.corrupt(&index, |b| b[7] ^= 1);
    assert_eq!(dump(&disk, &index, options, &mut out).unwrap().len(), 1);
    let unknown = Path::new("/d/t-0/leader-epoch-checkpoint");
    assert_eq!(dump(&disk, unknown, options, &mut out).unwrap()[0].severity, Severity::Wrong);
}
