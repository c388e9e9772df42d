//! A transactional producer's way to its coordinator, by hand.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kafka_protocol::messages::{FindCoordinatorRequest, InitProducerIdRequest, ProducerId, TransactionalId};

use crate::wire::Client;

/// Errors after which clients try again: loading, not available, not the coordinator, the last transaction's markers are being written.
const RETRIABLE: [i16; 4] = [14, 15, 16, 51];
const WAIT: Duration = Duration::from_secs(60);
const BETWEEN: Duration = Duration::from_millis(1);

/// Asks again while the answer is an error of those. `ask` gives the error code and the rest of the answer.
///
/// # Errors
/// If `ask` fails, another error is answered, or it goes on for a minute.
pub fn again<R>(mut ask: impl FnMut() -> Result<(i16, R)>) -> Result<R> {
    let deadline = Instant::now() + WAIT;
    loop {
        match ask()? {
            (0, answer) => return Ok(answer),
            (code, _) if RETRIABLE.contains(&code) && Instant::now() < deadline => thread::sleep(BETWEEN),
            (code, _) => bail!("answered {code}"),
        }
    }
}

/// Finds the coordinator (the broker that `client` is connected to), and gets the producer id and epoch of `id`.
///
/// # Errors
/// As [`again`].
pub fn init(client: &mut Client, id: &TransactionalId, timeout_ms: i32) -> Result<(i64, i16)> {
    let find = FindCoordinatorRequest::default().with_key(id.0.clone()).with_key_type(1);
    again(|| Ok((client.ask(2, &find)?.error_code, ())))?;
    let init = InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    again(|| {
        let answer = client.ask(4, &init)?;
        Ok((answer.error_code, (answer.producer_id.0, answer.producer_epoch)))
    })
}
