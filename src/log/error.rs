//! What appends and reads can fail with, and the one table from there to Kafka's error codes.

use crate::types::{ErrorCode, Offset, ProducerEpoch, ProducerId, TopicPartition};
use std::{io, path::PathBuf};

/// One record that is to blame for a batch's refusal (`RecordError` in Produce answers from version 8 on, KIP-467).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// The record's place in the batch, from 0.
    pub batch_index: i32,
    pub message: Option<String>,
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("corrupt batch: {0}")]
    Corrupt(String),
    #[error("magic {0} is not supported; only record batches of magic 2 are")]
    UnsupportedMagic(i8),
    #[error("invalid record: {message}")]
    InvalidRecord { message: String, records: Vec<RecordError> },
    #[error("a batch of {size} bytes is larger than max.message.bytes ({max})")]
    TooLarge { size: usize, max: usize },
    #[error("a batch of {size} bytes does not fit in a segment of {segment_bytes} bytes")]
    LargerThanSegment { size: usize, segment_bytes: usize },
    #[error("timestamp out of range: {message}")]
    InvalidTimestamp { message: String, records: Vec<RecordError> },
    #[error("unsupported compression: {0}")]
    UnsupportedCompression(String),
    #[error("producer {producer_id} sent sequence {got} where {expected} was due")]
    OutOfOrderSequence { producer_id: ProducerId, got: i32, expected: i32 },
    #[error("producer {producer_id} with epoch {got} is fenced by epoch {current}")]
    FencedProducer { producer_id: ProducerId, got: ProducerEpoch, current: ProducerEpoch },
    #[error("transaction coordinator of epoch {got} is fenced by epoch {current} for producer {producer_id}")]
    FencedCoordinator { producer_id: ProducerId, got: i32, current: i32 },
    #[error("invalid transactional write: {0}")]
    InvalidTxnState(String),
    #[error("the partition takes no writes until it is recovered: {0}")]
    Offline(String),
    #[error("no room in the data directory {}", .0.display())]
    NoRoom(PathBuf),
    #[error("the log was truncated to end at {0} meanwhile")]
    Truncated(Offset),
    #[error("write the log: {0}")]
    Io(#[source] io::Error),
}

impl From<&AppendError> for ErrorCode {
    fn from(error: &AppendError) -> Self {
        match error {
            AppendError::Corrupt(_) => Self::CorruptMessage,
            AppendError::UnsupportedMagic(_) => Self::UnsupportedForMessageFormat,
            AppendError::InvalidRecord { .. } => Self::InvalidRecord,
            AppendError::TooLarge { .. } => Self::MessageTooLarge,
            AppendError::LargerThanSegment { .. } => Self::RecordListTooLarge,
            AppendError::InvalidTimestamp { .. } => Self::InvalidTimestamp,
            AppendError::UnsupportedCompression(_) => Self::UnsupportedCompressionType,
            AppendError::OutOfOrderSequence { .. } => Self::OutOfOrderSequenceNumber,
            AppendError::FencedProducer { .. } => Self::InvalidProducerEpoch,
            AppendError::FencedCoordinator { .. } => Self::TransactionCoordinatorFenced,
            AppendError::InvalidTxnState(_) => Self::InvalidTxnState,
            AppendError::Truncated(_) => Self::NotLeaderOrFollower,
            AppendError::Offline(_) | AppendError::NoRoom(_) | AppendError::Io(_) => Self::KafkaStorageError,
        }
    }
}

/// Why the logs could not be opened, made or closed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the data directory {} is in use by another process", .0.display())]
    Locked(PathBuf),
    #[error("no data directory is given")]
    NoDirectory,
    #[error("{}: {what}", path.display())]
    Unreadable { path: PathBuf, what: String },
    #[error("partition {0} exists already")]
    Exists(TopicPartition),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a log was not truncated.
#[derive(Debug, thiserror::Error)]
pub enum TruncateError {
    #[error("offset {target} is below the log's start ({log_start})")]
    BelowStart { target: Offset, log_start: Offset },
    #[error("the partition is offline: {0}")]
    Offline(String),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("truncate the log: {0}")]
    Io(#[from] io::Error),
}

/// Why a partition was not moved to another data directory.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("the topic's name is too long for a directory that a copy is made in")]
    NameTooLong,
    #[error("{} is none of log.dirs", .0.display())]
    NoDirectory(PathBuf),
    #[error("the data directory {} is offline", .0.display())]
    DirectoryOffline(PathBuf),
    #[error("there is no such partition here")]
    NoPartition,
    #[error("the partition is offline: {0}")]
    Offline(String),
    #[error("{0}")]
    GivenUp(String),
    #[error("copy the partition: {0}")]
    Io(#[from] io::Error),
}

impl From<&MoveError> for ErrorCode {
    fn from(error: &MoveError) -> Self {
        match error {
            MoveError::NameTooLong => Self::InvalidTopicException,
            MoveError::NoDirectory(_) => Self::LogDirNotFound,
            MoveError::NoPartition | MoveError::GivenUp(_) => Self::ReplicaNotAvailable,
            MoveError::DirectoryOffline(_) | MoveError::Offline(_) | MoveError::Io(_) => Self::KafkaStorageError,
        }
    }
}

/// Why records were not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsError {
    #[error("records of the partition can not be deleted: its cleanup.policy is compact without delete")]
    Policy,
    #[error("offset {before} is outside of 0 to the high watermark ({high_watermark})")]
    OutOfRange { before: Offset, high_watermark: Offset },
    #[error("the partition is offline: {0}")]
    Offline(String),
    #[error("write the logs' start offsets: {0}")]
    Checkpoint(String),
}

impl From<&DeleteRecordsError> for ErrorCode {
    fn from(error: &DeleteRecordsError) -> Self {
        match error {
            DeleteRecordsError::Policy => Self::PolicyViolation,
            DeleteRecordsError::OutOfRange { .. } => Self::OffsetOutOfRange,
            DeleteRecordsError::Offline(_) | DeleteRecordsError::Checkpoint(_) => Self::KafkaStorageError,
        }
    }
}

/// Why a read got nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("offset {asked} is outside of {log_start} to {log_end}")]
    OutOfRange { asked: Offset, log_start: Offset, log_end: Offset },
    #[error("the partition is offline: {0}")]
    Offline(String),
    #[error("read the log: {0}")]
    Io(#[source] io::Error),
}

impl From<&ReadError> for ErrorCode {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::OutOfRange { .. } => Self::OffsetOutOfRange,
            ReadError::Offline(_) | ReadError::Io(_) => Self::KafkaStorageError,
        }
    }
}
