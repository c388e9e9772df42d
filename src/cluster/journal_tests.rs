//! The metadata journal: what it reads back, what it cuts off and what it refuses.

use super::{
    super::{disk::MemoryDisk, record::tests::any_record},
    *,
};
use proptest::{collection::vec, prelude::*};

const DIR: &str = "/meta";

fn open(disk: &MemoryDisk) -> Result<(Journal, Replay), JournalError> {
    // Whoever looks without opening sees the same.
    let checked = Journal::check(disk, Path::new(DIR));
    let opened = Journal::open(Arc::new(disk.clone()), Path::new(DIR));
    match (&checked, &opened) {
        (Ok(Some(checked)), Ok((_, opened))) => assert_eq!((&checked.records, checked.cut_bytes), (&opened.records, opened.cut_bytes)),
        (Ok(None), Ok((_, opened))) => assert!(opened.records.is_empty() && opened.cut_bytes == 0),
        (Err(checked), Err(opened)) => assert_eq!(checked.to_string(), opened.to_string()),
        (Err(checked), Ok(_)) => panic!("{checked}, and yet it opens"),
        (Ok(_), Err(JournalError::Io(_))) => {}
        (Ok(_), Err(opened)) => panic!("only an opening sees that {opened}"),
    }
    opened
}

fn path(file: &str) -> PathBuf {
    Path::new(DIR).join(file)
}

fn ids(n: i64) -> Vec<Record> {
    vec![Record::ProducerIds { next: n }]
}

/// A disk with this many changes of one record in its journal.
fn with_changes(n: i64) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (mut journal, _) = open(&disk).unwrap();
    (0..n).for_each(|i| journal.append(&ids(i)).unwrap());
    disk
}

proptest! {
    #[test]
    fn what_was_appended_is_replayed_with_and_without_a_snapshot(
        changes in vec(vec(any_record(), 0..4), 0..12), snapshot_at in any::<prop::sample::Index>(), keep_journal: bool
    ) {
        let disk = MemoryDisk::default();
        let (mut journal, _) = open(&disk).unwrap();
        let at = snapshot_at.index(changes.len() + 1);
        let mut kept = None;
        for (i, change) in changes.iter().enumerate() {
            if i == at {
                kept = Some(disk.read(&path(JOURNAL)).unwrap());
                // What the records of a snapshot are is the image's business: any will do.
                journal.snapshot(&changes[..i].concat()).unwrap();
            }
            journal.append(change).unwrap();
        }
        let (journal, replay) = open(&disk).unwrap();
        prop_assert_eq!(&replay.records, &changes.concat());
        prop_assert_eq!((journal.sequence, replay.cut_bytes), (changes.len() as u64, 0));
        // A crash after the snapshot was written and before the journal was emptied: nothing comes twice.
        if let Some(old) = kept.filter(|_| keep_journal) {
            disk.overwrite(&path(JOURNAL), |bytes| *bytes = old);
            prop_assert_eq!(open(&disk).unwrap().1.records, changes[..at].concat());
        }
    }

    #[test]
    fn a_crash_at_any_operation_keeps_what_was_acknowledged(fail_at in 1usize..40, power_loss: bool) {
        let disk = MemoryDisk::default();
        disk.fail_after(fail_at);
        let mut acknowledged = Vec::new();
        let mut tried = Vec::new();
        if let Ok((mut journal, _)) = open(&disk) {
            for i in 0..8 {
                tried.extend(ids(i));
                if journal.append(&ids(i)).is_err() {
                    break;
                }
                acknowledged.extend(ids(i));
                if i % 3 == 2 && journal.snapshot(&acknowledged).is_err() {
                    break;
                }
            }
        }
        let disk = if power_loss { disk.after_power_loss() } else { disk.after_kill() };
        let (mut journal, replay) = open(&disk).unwrap();
        let old_or_new = replay.records == acknowledged || replay.records == tried;
        prop_assert!(old_or_new, "{:?} is neither {acknowledged:?} nor {tried:?}", replay.records);
        journal.append(&ids(99)).unwrap();
        let expected = [replay.records, ids(99)].concat();
        prop_assert_eq!(open(&disk).unwrap().1.records, expected);
    }

    #[test]
    fn a_tail_cut_anywhere_is_cut_off(cut in any::<prop::sample::Index>()) {
        let disk = with_changes(5);
        let len = disk.read(&path(JOURNAL)).unwrap().len();
        let cut = cut.index(len + 1);
        disk.overwrite(&path(JOURNAL), |bytes| bytes.truncate(cut));
        let (mut journal, replay) = open(&disk).unwrap();
        let whole = cut.saturating_sub(FILE_HEADER_BYTES) / ((len - FILE_HEADER_BYTES) / 5);
        let expected: Vec<Record> = (0..whole as i64).flat_map(ids).collect();
        prop_assert_eq!(&replay.records, &expected);
        journal.append(&ids(9)).unwrap();
        prop_assert_eq!(open(&disk).unwrap().1.records, [expected, ids(9)].concat());
    }

    #[test]
    fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let disk = with_changes(5);
        let len = disk.read(&path(JOURNAL)).unwrap().len();
        let at = at.index(len);
        disk.overwrite(&path(JOURNAL), |bytes| bytes[at] ^= 1 << bit);
        match open(&disk) {
            // The last change looks like one that was not finished.
            Ok((_, replay)) => {
                prop_assert!(at >= len - (len - FILE_HEADER_BYTES) / 5);
                prop_assert_eq!(replay.records, (0..4).flat_map(ids).collect::<Vec<_>>());
            }
            Err(JournalError::Broken { .. } | JournalError::Foreign(_) | JournalError::Version { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn zeros_after_the_end_are_an_unfinished_change() {
    let disk = with_changes(2);
    disk.overwrite(&path(JOURNAL), |bytes| bytes.extend_from_slice(&[0; 100]));
    let (_, replay) = open(&disk).unwrap();
    assert_eq!((replay.records.len(), replay.cut_bytes), (2, 100));
}

#[test]
fn a_missing_change_is_an_error() {
    let disk = with_changes(3);
    disk.overwrite(&path(JOURNAL), |bytes| {
        let frame = (bytes.len() - FILE_HEADER_BYTES) / 3;
        bytes.drain(FILE_HEADER_BYTES + frame..FILE_HEADER_BYTES + 2 * frame);
    });
    assert!(matches!(open(&disk), Err(JournalError::Gap { last: 1, found: 3, .. })));
}

#[test]
fn a_broken_snapshot_is_an_error() {
    let disk = with_changes(3);
    open(&disk).unwrap().0.snapshot(&ids(2)).unwrap();
    disk.overwrite(&path(SNAPSHOT), |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert!(matches!(open(&disk), Err(JournalError::Broken { .. })));
}

#[test]
fn a_foreign_file_is_not_overwritten() {
    let disk = MemoryDisk::default();
    write_atomically(&disk, &path(JOURNAL), b"someone's notes").unwrap();
    assert!(matches!(open(&disk), Err(JournalError::Foreign(_))));
    assert_eq!(disk.read(&path(JOURNAL)).unwrap(), b"someone's notes");
    disk.overwrite(&path(JOURNAL), |bytes| *bytes = [&JOURNAL_MAGIC[..], &9u32.to_be_bytes()].concat());
    assert!(matches!(open(&disk), Err(JournalError::Version { version: 9, .. })));
}

#[test]
fn after_a_failed_write_that_could_not_be_taken_back_nothing_is_taken() {
    let disk = with_changes(1);
    let (mut journal, _) = open(&disk).unwrap();
    disk.fail_after(1);
    assert!(matches!(journal.append(&ids(2)), Err(JournalError::Io(_))));
    assert!(disk.has_failed());
    assert!(matches!(journal.append(&ids(3)), Err(JournalError::Poisoned(_))));
    assert!(matches!(journal.snapshot(&ids(3)), Err(JournalError::Poisoned(_))));
    assert!(!journal.wants_snapshot());
}

#[test]
fn a_snapshot_pays_once_the_journal_has_grown() {
    let disk = MemoryDisk::default();
    let (mut journal, _) = open(&disk).unwrap();
    let large = vec![Record::Cluster { cluster_id: "x".repeat(600_000) }];
    journal.append(&large).unwrap();
    assert!(!journal.wants_snapshot());
    journal.append(&large).unwrap();
    assert!(journal.wants_snapshot());
    journal.snapshot(&large).unwrap();
    assert!(!journal.wants_snapshot());
    assert_eq!(disk.read(&path(JOURNAL)).unwrap(), file_header(JOURNAL_MAGIC));
}
