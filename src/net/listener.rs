//! Accepting connections, within `max.connections` and `max.connections.per.ip`.
#![allow(clippy::disallowed_methods, reason = "a shell: it spawns the connections' tasks, and stops them")]

use super::{
    ConnectionInfo, ListenerInfo, Service,
    connection::{Limits, serve},
    memory::Memory,
};
use crate::telemetry::RejectReason;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

/// Failures to accept are logged once in so many: some ten seconds.
const FAILURES_PER_LINE: u32 = 200;
/// How long accepting rests after an error that a retry at once would only meet again (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long answers under way may take once the broker stops. Who reads none of them does not keep the logs from being closed.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);

/// What the kernel may hold of answers to one connection (it doubles the value). Left to itself it lets a queue grow to 4 MB, which no
/// cache holds: a consumer's bytes then cost the broker twice the CPU of what they cost at 512 KB to 800 KB, measured with
/// `compat-tests/bench`. Kafka's own limit is 100 KB (doubled, too).
const SEND_BUFFER_BYTES: usize = 320 << 10;

/// Shared by all listeners of the broker.
pub struct Door {
    /// `max.connections`: a permit for each; at the limit accepting waits, as in Kafka.
    permits: Arc<Semaphore>,
    per_address: Mutex<HashMap<IpAddr, usize>>,
    per_address_max: usize,
    pub memory: Memory,
    pub limits: Limits,
}

impl Door {
    pub fn new(connections_max: usize, per_address_max: usize, memory: Memory, limits: Limits) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS))),
            per_address: Mutex::new(HashMap::new()),
            per_address_max,
            memory,
            limits,
        }
    }

    /// Counts a connection of this address; `None` if it has its share already.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Entered> {
        let mut counts = self.per_address.lock();
        let count = counts.entry(address).or_insert(0);
        if *count >= self.per_address_max {
            if *count == 0 {
                counts.remove(&address);
            }
            return None;
        }
        *count += 1;
        Some(Entered { door: self.clone(), address })
    }
}

/// One counted connection.
struct Entered {
    door: Arc<Door>,
    address: IpAddr,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.door.per_address.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Accepts and serves until `stop` is set, then waits for the connections' answers.
pub async fn accept<S: Service>(
    listener: TcpListener,
    info: Arc<ListenerInfo>,
    service: Arc<S>,
    door: Arc<Door>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut failures = 0_u32;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = next(&listener, &door) => accepted,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                let Some(entered) = door.enter(peer.ip()) else {
                    service.turned_away(peer, RejectReason::MaxConnectionsPerIp);
                    continue;
                };
                service.opened();
                let info = Arc::new(ConnectionInfo::new(peer, info.clone()));
                let (service, door, stop) = (service.clone(), door.clone(), stop.clone());
                connections.spawn(async move {
                    let reason = serve(stream, info, service.clone(), door.memory.clone(), door.limits, stop).await;
                    service.closed(reason);
                    drop((entered, permit));
                });
            }
            Err(error) => {
                if failures.is_multiple_of(FAILURES_PER_LINE) {
                    tracing::warn!(%error, listener = info.name, "cannot accept a connection; is the limit of open files (ulimit -n) too low?");
                }
                failures = failures.wrapping_add(1);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let answered = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIMEOUT, answered).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut connections off whose clients don't read their answers");
        connections.shutdown().await;
    }
}

async fn next(listener: &TcpListener, door: &Door) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = door.permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                stream.set_nodelay(true)?;
                rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
                return Ok((stream, peer, permit));
            }
            // The peer was gone before it was accepted.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => return Err(e),
        }
    }
}
