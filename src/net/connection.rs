//! One connection: the loop that reads, handles and writes, and the bounds that hold it.
#![allow(clippy::disallowed_methods, reason = "a shell: it measures requests with the monotonic clock")]

use super::{
    Answer, Answered, ConnectionInfo, Hold, Refusal, Service,
    inbound::{Frame, Inbound, Next, Received},
    memory::{Memory, Reserved},
    outbox::Outbox,
};
use crate::{
    codec::Reply,
    telemetry::{CloseReason, RequestTimes},
    types::ErrorCode,
};
use std::{
    collections::VecDeque,
    future::{Future, pending},
    io,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Sleep, sleep_until},
};

/// After so many reads in a row that found bytes, other connections have their turn: a fast producer must not keep a thread for itself.
const READS_PER_TURN: u32 = 8;

/// The bounds of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `connections.max.idle.ms`; `None` is no limit.
    pub idle: Option<Duration>,
    /// Requests handled whose answers have not left.
    pub pending_max: usize,
    /// Encoded answers waiting in memory before no further request is handled.
    pub out_bytes_max: usize,
    /// How long a frame waits for memory before its connection is closed: frames that are half there hold memory that others wait for.
    pub memory_wait: Duration,
    /// How long a frame may take to arrive while others wait for the memory that it holds, and a second more for each
    /// [`PACE_BYTES_PER_SECOND`] of it.
    pub frame_time: Duration,
    /// How long answers are still waited for after the peer's last byte: it may only have closed its sending half.
    pub end_wait: Duration,
}

/// See [`Limits::frame_time`].
const PACE_BYTES_PER_SECOND: usize = 8 << 20;
/// How often a frame's pace is looked at while no bytes come.
const PACE_INTERVAL: Duration = Duration::from_secs(1);

impl Limits {
    pub const DEFAULT: Self = Self {
        idle: Some(Duration::from_secs(600)),
        pending_max: 32,
        out_bytes_max: 1 << 20,
        memory_wait: Duration::from_secs(30),
        frame_time: Duration::from_secs(5),
        end_wait: Duration::from_secs(30),
    };
}

type Waiting = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>;

/// A handled request whose answer has not been put into the outbox.
struct Slot {
    answer: Result<Result<Reply, Refusal>, Waiting>,
    meta: Meta,
    /// See [`Answer::Acting`].
    acting: bool,
    /// See [`Answer::Held`].
    held: Option<Box<dyn Hold>>,
}

struct Meta {
    api: usize,
    error: ErrorCode,
    request_bytes: usize,
    response_bytes: usize,
    queue: Duration,
    work: Duration,
    handled: Instant,
    answered: Instant,
    _memory: Option<Reserved>,
}

/// What made the loop go on.
enum Wake {
    Readable(io::Result<()>),
    Writable(io::Result<()>),
    Answered(Result<Reply, Refusal>),
    Memory(usize, Reserved),
    MemoryTimeout,
    Pace,
    Idle,
    Stop,
}

/// Serves a connection until it ends; never longer than `stop` allows once that is set: answers under way are still written.
pub async fn serve<S: Service>(
    stream: TcpStream,
    info: Arc<ConnectionInfo>,
    service: Arc<S>,
    memory: Memory,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) -> CloseReason {
    let mut connection = Connection {
        stream,
        info,
        service,
        memory,
        limits,
        inbound: Inbound::default(),
        slots: VecDeque::new(),
        outbox: Outbox::default(),
        wanted: None,
        more: false,
        full: false,
        ended: None,
        held_since: Instant::now(),
        stopping: false,
        read_at: Instant::now(),
        active: Instant::now(),
    };
    match connection.run(&mut stop).await {
        Ok(reason) => reason,
        Err(End::Io(error)) => match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => CloseReason::Client,
            _ => {
                tracing::debug!(peer = %connection.info.peer, %error, "connection failed");
                CloseReason::Io
            }
        },
        Err(End::Refused { frame, refusal }) => {
            connection.service.refused(&connection.info, &frame, &refusal);
            match refusal {
                Refusal::Unacknowledged(_) => CloseReason::AcksZeroFailed,
                _ => CloseReason::BadRequest,
            }
        }
    }
}

/// Why the loop breaks off.
enum End {
    Io(io::Error),
    Refused { frame: Vec<u8>, refusal: Refusal },
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

struct Connection<S> {
    stream: TcpStream,
    info: Arc<ConnectionInfo>,
    service: Arc<S>,
    memory: Memory,
    limits: Limits,
    inbound: Inbound,
    slots: VecDeque<Slot>,
    outbox: Outbox<Meta>,
    /// The frame under way needs so much memory that was not there.
    wanted: Option<usize>,
    /// The last read did not empty the socket.
    more: bool,
    /// Frames may be left in the buffer for which there was no room.
    full: bool,
    /// When the peer's last byte came, if no more will.
    ended: Option<tokio::time::Instant>,
    /// Since when the frame under way holds memory, if it does.
    held_since: Instant,
    stopping: bool,
    /// When the last bytes came: what a request's queue time counts from.
    read_at: Instant,
    active: Instant,
}

impl<S: Service> Connection<S> {
    async fn run(&mut self, stop: &mut watch::Receiver<bool>) -> Result<CloseReason, End> {
        let idle = sleep_until(self.idle_deadline());
        let pace = sleep_until(tokio::time::Instant::now());
        tokio::pin!(idle, pace);
        let mut turns = 0_u32;
        loop {
            self.handle_frames()?;
            self.check_pace()?;
            self.collect()?;
            let written = self.write()?;
            if self.outbox.is_empty() && self.slots.is_empty() {
                if self.stopping {
                    return Ok(CloseReason::Shutdown);
                }
                if self.ended.is_some() && !self.full {
                    return Ok(CloseReason::Client);
                }
            }
            // Answers that left made room for frames that are there already: no byte of the peer's will tell of them.
            if self.full && self.may_go_on() && !self.stopping {
                take_turns(&mut turns).await;
                continue;
            }
            if written && self.more && self.may_go_on() && self.wanted.is_none() && !self.stopping {
                match self.read()? {
                    Received::End => {
                        idle.as_mut().reset(self.idle_deadline());
                        continue;
                    }
                    Received::More | Received::All => {
                        take_turns(&mut turns).await;
                        continue;
                    }
                    Received::Nothing => {}
                }
            }
            self.inbound.rest();
            match self.wait(idle.as_mut(), pace.as_mut(), stop).await {
                Wake::Readable(ready) => {
                    ready?;
                    if self.read()? == Received::End {
                        idle.as_mut().reset(self.idle_deadline());
                    }
                }
                Wake::Writable(ready) => ready?,
                Wake::Answered(answer) => {
                    if let Some(slot) = self.slots.front_mut() {
                        slot.meta.answered = Instant::now();
                        slot.answer = Ok(answer);
                    }
                }
                Wake::Memory(bytes, reserved) => {
                    self.wanted = None;
                    self.held_since = Instant::now();
                    self.inbound.reserve_room(bytes, reserved);
                }
                Wake::Pace => pace.as_mut().reset(tokio::time::Instant::now() + PACE_INTERVAL),
                Wake::MemoryTimeout => return Err(self.refuse(Refusal::OutOfMemory(self.limits.memory_wait))),
                Wake::Idle if self.idle_deadline() <= tokio::time::Instant::now() => {
                    return Ok(if self.ended.is_some() { CloseReason::Client } else { CloseReason::Idle });
                }
                Wake::Idle => idle.as_mut().reset(self.idle_deadline()),
                Wake::Stop => self.stopping = true,
            }
        }
    }

    async fn wait(&mut self, idle: Pin<&mut Sleep>, pace: Pin<&mut Sleep>, stop: &mut watch::Receiver<bool>) -> Wake {
        let may_read = self.wanted.is_none() && self.may_go_on() && !self.stopping && self.ended.is_none();
        let (memory, wanted, memory_wait) = (&self.memory, self.wanted, self.limits.memory_wait);
        let stream = &self.stream;
        let front = self.slots.front_mut().and_then(|slot| slot.answer.as_mut().err());
        tokio::select! {
            biased;
            ready = stream.writable(), if !self.outbox.is_empty() => Wake::Writable(ready),
            answer = async { match front { Some(waiting) => waiting.await, None => pending().await } } => Wake::Answered(answer),
            ready = stream.readable(), if may_read => Wake::Readable(ready),
            got = reserve(memory, wanted) => Wake::Memory(wanted.unwrap_or(0), got),
            () = tokio::time::sleep(memory_wait), if wanted.is_some() => Wake::MemoryTimeout,
            () = pace, if self.inbound.holds().is_some() => Wake::Pace,
            () = idle => Wake::Idle,
            _ = stop.wait_for(|stop| *stop), if !self.stopping => Wake::Stop,
        }
    }

    /// Handles the frames that are whole, as long as there is room for their answers.
    fn handle_frames(&mut self) -> Result<(), End> {
        self.full = false;
        while self.wanted.is_none() && !self.stopping {
            if !self.may_go_on() {
                self.full = true;
                return Ok(());
            }
            match self.inbound.next(self.service.as_ref(), &self.memory) {
                Ok(Next::Frame(frame)) => self.handle(frame)?,
                Ok(Next::Read) => return Ok(()),
                // The rest of this frame will not come.
                Ok(Next::Reserved | Next::Memory(_)) if self.ended.is_some() => return Ok(()),
                Ok(Next::Reserved) => self.held_since = Instant::now(),
                Ok(Next::Memory(bytes)) => self.wanted = Some(bytes),
                Err(refusal) => return Err(self.refuse(refusal)),
            }
        }
        Ok(())
    }

    /// Refuses a frame that holds memory for too long while others wait for it.
    fn check_pace(&self) -> Result<(), End> {
        let Some(len) = self.inbound.holds().filter(|_| self.memory.is_contended()) else { return Ok(()) };
        let seconds = u64::try_from(len / PACE_BYTES_PER_SECOND).unwrap_or(u64::MAX);
        let after = self.limits.frame_time.saturating_add(Duration::from_secs(seconds));
        if self.held_since.elapsed() < after {
            return Ok(());
        }
        Err(self.refuse(Refusal::Slow { len, after }))
    }

    fn handle(&mut self, frame: Frame) -> Result<(), End> {
        let started = Instant::now();
        // Kept for the log line of a refusal: a slice that shares the frame's memory.
        let beginning = frame.bytes.slice(..frame.bytes.len().min(512));
        let mut reserved = frame.reserved;
        let (mut held, mut acting) = (None, false);
        // Answers that are held back go before this request's.
        self.slots.iter_mut().filter_map(|slot| slot.held.take()).for_each(Hold::interrupt);
        let request_bytes = frame.bytes.len();
        let (api, answer) = self.service.handle(&self.info, frame.bytes);
        let handled = Instant::now();
        let answer = match answer {
            Ok(Answer::Ready(reply)) => Ok(Ok(reply)),
            Ok(Answer::Later(waiting)) => Err(waiting),
            Ok(Answer::Acting(waiting)) => {
                acting = true;
                Err(waiting)
            }
            Ok(Answer::Parked(waiting)) => {
                reserved = None;
                Err(waiting)
            }
            Ok(Answer::Held(waiting, hold)) => {
                (reserved, held) = (None, Some(hold));
                Err(waiting)
            }
            Err(refusal) => return Err(End::Refused { frame: beginning.to_vec(), refusal }),
        };
        let meta = Meta {
            api,
            error: ErrorCode::None,
            request_bytes,
            response_bytes: 0,
            queue: started.saturating_duration_since(self.read_at),
            work: handled.saturating_duration_since(started),
            handled,
            answered: handled,
            _memory: reserved,
        };
        self.slots.push_back(Slot { answer, meta, acting, held });
        // Answers that are there leave at once, so that a long pipeline doesn't pile up.
        self.collect()
    }

    /// Moves answers that are there, in order, into the outbox.
    fn collect(&mut self) -> Result<(), End> {
        while self.slots.front().is_some_and(|slot| slot.answer.is_ok()) {
            let Some(Slot { answer: Ok(answer), mut meta, .. }) = self.slots.pop_front() else { break };
            match answer {
                Ok(reply) => {
                    meta.error = reply.error;
                    meta.response_bytes = reply.len();
                    self.outbox.push(reply.segments, meta);
                }
                Err(refusal) => return Err(End::Refused { frame: Vec::new(), refusal }),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<bool, End> {
        let service = &self.service;
        let active = &mut self.active;
        let done = self.outbox.write(&self.stream, |meta| {
            let now = Instant::now();
            *active = now;
            let times = RequestTimes {
                queue: meta.queue,
                work: meta.work,
                wait: meta.answered.saturating_duration_since(meta.handled),
                send: now.saturating_duration_since(meta.answered),
            };
            let Meta { api, error, request_bytes, response_bytes, .. } = meta;
            service.sent(&Answered { api, error, times, request_bytes, response_bytes });
        })?;
        Ok(done)
    }

    /// Whether the next request may be handled: the last one has done its work, and there is room for another answer.
    fn may_go_on(&self) -> bool {
        if self.slots.back().is_some_and(|slot| slot.acting && slot.answer.is_err()) {
            return false;
        }
        let waiting: usize = self.slots.iter().filter_map(|slot| slot.answer.as_ref().ok()?.as_ref().ok()).map(Reply::len).sum();
        self.slots.len() < self.limits.pending_max && self.outbox.memory_bytes() + waiting < self.limits.out_bytes_max
    }

    fn read(&mut self) -> io::Result<Received> {
        let received = self.inbound.read(&self.stream)?;
        self.more = received == Received::More;
        match received {
            Received::More | Received::All => {
                self.read_at = Instant::now();
                self.active = self.read_at;
            }
            Received::Nothing => {}
            // What was asked for is still answered, as far as the peer may want to read it; nobody is held back for it any longer.
            Received::End => {
                self.ended = Some(tokio::time::Instant::now());
                self.slots.iter_mut().for_each(|slot| drop(slot.held.take()));
            }
        }
        Ok(received)
    }

    fn idle_deadline(&self) -> tokio::time::Instant {
        if let Some(ended) = self.ended {
            return ended + self.limits.end_wait;
        }
        // A connection whose client waits for an answer of ours is not idle.
        let since = if self.slots.is_empty() { self.active } else { Instant::now() };
        let idle = self.limits.idle.unwrap_or(Duration::from_secs(365 * 86_400));
        tokio::time::Instant::from_std(since) + idle
    }

    fn refuse(&self, refusal: Refusal) -> End {
        End::Refused { frame: self.inbound.unread().iter().take(512).copied().collect(), refusal }
    }
}

/// Lets other connections have their turn now and then.
async fn take_turns(turns: &mut u32) {
    *turns = turns.wrapping_add(1);
    if turns.is_multiple_of(READS_PER_TURN) {
        tokio::task::yield_now().await;
    }
}

async fn reserve(memory: &Memory, wanted: Option<usize>) -> Reserved {
    match wanted {
        Some(bytes) => memory.reserve(bytes).await,
        None => pending().await,
    }
}
