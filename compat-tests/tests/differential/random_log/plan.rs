//! What a random sequence is made of. Nothing in it is of one broker: a topic is a number, a producer one too, and what an answer gave (ids,
//! epochs, sessions, sequences) is said by where it comes from. So a sequence can be made from a seed alone, printed, and shortened.

use compat_tests::driver::Codec;

/// A topic: one of the sequence's own, or none that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Slot(usize),
    Nowhere,
    /// A name that no topic can have.
    Impossible,
}

/// A producer: one of the sequence's own, changed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    pub slot: usize,
    pub id: Id,
    pub epoch: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    Own,
    None,
    Nobody,
    /// That of another of the sequence.
    Of(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// This much later than its own.
    Own(i16),
    Of(i16),
}

/// A first sequence number, by what the partition has taken from the producer so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// What comes next, and so much more.
    Next(i32),
    /// That of the batch so many back.
    Again(usize),
    Of(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub timestamp_delta: i64,
    pub key: Option<u8>,
    pub value_bytes: Option<usize>,
    pub headers: u8,
}

/// What is wrong, or only unusual, with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    Crc,
    Magic(i8),
    /// Into attributes.
    Bits(i16),
    Count(i32),
    LastOffset(i32),
    CountAndLastOffset(i32),
    /// A length of its own.
    Length(i32),
    MaxTimestamp(i64),
    NoTimestamps,
    BaseOffset(i64),
    LeaderEpoch(i32),
    CutTo(usize),
    BytesAfter,
    /// Two batches.
    Twice,
    /// No bytes at all.
    Empty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub partition: i32,
    pub items: Vec<Item>,
    pub codec: Codec,
    pub base_timestamp: i64,
    pub flaw: Flaw,
    pub by: Option<(Who, Sequence)>,
    pub transactional: bool,
}

/// A place in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Of(i64),
    /// Before its end, as the answers told of it.
    End(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub partition: i32,
    pub from: Place,
    pub bytes_max: i32,
    pub leader_epoch: i32,
    pub last_epoch: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    None,
    New,
    /// This one, with its next epoch and so much more.
    Next(usize, i32),
    End(usize),
    /// One that nobody has, with this epoch.
    Nobody(i32),
    /// A new one in place of this.
    Instead(usize),
}

/// A key of IncrementalAlterConfigs, its operation and value.
pub type Change = (&'static str, i8, Option<&'static str>);
/// Topics with something of their partitions.
pub type Of<T> = Vec<(At, Vec<T>)>;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Create {
        topic: usize,
        version: i16,
        partitions: i32,
        configs: Vec<(&'static str, &'static str)>,
        dry: bool,
    },
    Delete {
        topic: At,
        version: i16,
        by_id: bool,
    },
    Widen {
        topic: At,
        version: i16,
        count: i32,
        dry: bool,
    },
    Alter {
        topic: At,
        version: i16,
        changes: Vec<Change>,
        dry: bool,
    },
    Produce {
        version: i16,
        acks: i16,
        transactional: Option<usize>,
        to: Of<Written>,
    },
    Fetch {
        version: i16,
        session: Session,
        isolation: i8,
        bytes_max: i32,
        from: Of<Read>,
        forget: Of<i32>,
    },
    /// All of a partition, with as many requests as it takes.
    ReadAll {
        topic: usize,
        partition: i32,
        isolation: i8,
    },
    ListOffsets {
        version: i16,
        isolation: i8,
        of: Of<(i32, i64, i32)>,
    },
    Epochs {
        version: i16,
        of: Of<(i32, i32, i32)>,
    },
    DeleteRecords {
        version: i16,
        below: Of<(i32, Place)>,
    },
    Producers {
        of: Of<i32>,
    },
    Init {
        version: i16,
        slot: usize,
        keep: Option<Who>,
        timeout_ms: i32,
    },
    AddPartitions {
        version: i16,
        transactions: Vec<(Who, bool, Of<i32>)>,
    },
    AddOffsets {
        version: i16,
        who: Who,
    },
    CommitOffsets {
        version: i16,
        who: Who,
        member: Option<(i32, &'static str)>,
        of: Of<(i32, i64)>,
    },
    CommittedOffsets {
        version: i16,
        stable: bool,
    },
    End {
        version: i16,
        who: Who,
        commit: bool,
    },
    Transactions {
        slots: Vec<usize>,
    },
    ListTransactions {
        version: i16,
        states: Vec<&'static str>,
        producer: Option<usize>,
        pattern: Option<&'static str>,
    },
    LogDirs {
        version: i16,
        of: Option<Of<i32>>,
    },
    Partitions {
        of: Vec<At>,
        limit: i32,
        cursor: Option<(At, i32)>,
    },
    Configs {
        version: i16,
        of: Vec<At>,
        keys: Option<Vec<&'static str>>,
        synonyms: bool,
    },
    Metadata {
        version: i16,
        of: Vec<At>,
        by_id: bool,
    },
}

impl Step {
    pub fn name(&self) -> String {
        format!("{self:?}").split(' ').next().unwrap_or_default().to_owned()
    }

    /// The same with a little less in it, in each way that there is.
    pub fn simpler(&self) -> Vec<Self> {
        match self.clone() {
            Self::Create { topic, version, partitions, configs, dry } => {
                (0..configs.len()).map(|nth| Self::Create { topic, version, partitions, configs: without(&configs, nth), dry }).collect()
            }
            Self::Alter { topic, version, changes, dry } => {
                (0..changes.len()).map(|nth| Self::Alter { topic, version, changes: without(&changes, nth), dry }).collect()
            }
            Self::Produce { version, acks, transactional, to } => {
                fewer(&to).into_iter().map(|to| Self::Produce { version, acks, transactional, to }).collect()
            }
            Self::Fetch { version, session, isolation, bytes_max, from, forget } => fewer(&from)
                .into_iter()
                .map(|from| Self::Fetch { version, session, isolation, bytes_max, from, forget: forget.clone() })
                .collect(),
            Self::ListOffsets { version, isolation, of } => {
                fewer(&of).into_iter().map(|of| Self::ListOffsets { version, isolation, of }).collect()
            }
            Self::DeleteRecords { version, below } => {
                fewer(&below).into_iter().map(|below| Self::DeleteRecords { version, below }).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn without<T: Clone>(all: &[T], nth: usize) -> Vec<T> {
    let mut all = all.to_vec();
    all.remove(nth);
    all
}

/// A topic less, or a partition less of one; something stays.
fn fewer<T: Clone>(of: &Of<T>) -> Vec<Of<T>> {
    let topics = (0..of.len()).filter(|_| of.len() > 1).map(|nth| without(of, nth));
    let partitions = of.iter().enumerate().flat_map(|(nth, (_, partitions))| {
        (0..partitions.len()).filter(|_| partitions.len() > 1).map(move |left_out| {
            let mut fewer = of.clone();
            fewer[nth].1.remove(left_out);
            fewer
        })
    });
    topics.chain(partitions).collect()
}
