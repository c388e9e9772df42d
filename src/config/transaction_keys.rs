//! The keys of transactions and their producers: a part of the table in `keys`.

use super::key::{
    Importance::{High, Low, Medium},
    Key,
    Kind::{Boolean, Int},
    Valid::{Any, AtLeast},
};

pub const KEYS: &[Key] = &[
    Key::new(
        "transaction.max.timeout.ms",
        Int,
        Some("900000"),
        AtLeast(1),
        High,
        "The longest transaction.timeout.ms a producer may ask for.",
    ),
    Key::new("transactional.id.expiration.ms", Int, Some("604800000"), AtLeast(1), High, "When an unused transactional id is forgotten."),
    Key::new(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Int,
        Some("10000"),
        AtLeast(1),
        Low,
        "How often transactions whose time is up are looked for, and aborted.",
    ),
    Key::new(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Int,
        Some("3600000"),
        AtLeast(1),
        Low,
        "How often transactional ids that expired are looked for.",
    ),
    Key::new("transaction.partition.verification.enable", Boolean, Some("true"), Any, Low, "Asks whether a batch's transaction is known.")
        .dynamic(),
    Key::new("transaction.state.log.num.partitions", Int, Some("50"), AtLeast(1), High, "The partitions of __transaction_state."),
    Key::new(
        "transaction.state.log.replication.factor",
        Int,
        Some("3"),
        AtLeast(1),
        High,
        "Its replicas: as many as there are brokers for.",
    ),
    Key::new("transaction.state.log.min.isr", Int, Some("2"), AtLeast(1), High, "Its min.insync.replicas."),
    Key::new("transaction.state.log.segment.bytes", Int, Some("104857600"), AtLeast(1_048_576), High, "Its segment.bytes."),
    Key::new(
        "producer.id.expiration.ms",
        Int,
        Some("86400000"),
        AtLeast(1),
        Low,
        "How long a partition remembers an idempotent producer that is silent.",
    )
    .dynamic(),
    Key::new(
        "add.partitions.to.txn.retry.backoff.ms",
        Int,
        Some("20"),
        AtLeast(0),
        Medium,
        "How long a Produce of the flow of transaction.version 2 waits before it asks again whether the last transaction's markers are written.",
    ),
    Key::new(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Int,
        Some("100"),
        AtLeast(0),
        Medium,
        "After so long it asks no more, and answers CONCURRENT_TRANSACTIONS.",
    ),
];
