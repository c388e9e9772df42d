//! The connections that are served at once, and which of them goes when another one comes: a client that holds its place and waits,
//! or makes the listener wait, never keeps a probe out.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::{AbortHandle, Id, JoinSet},
};

/// What a connection has been doing. Steps of all connections are numbered, so that they can be told apart by age without a clock.
///
/// What a client sends is no step: a head that comes byte by byte is as idle as one that doesn't come.
pub(super) struct Activity {
    steps: Arc<AtomicU64>,
    /// When it came, last had a request read or answered, or took bytes of an answer.
    last: AtomicU64,
    /// A request was read and its answer is being made.
    answering: AtomicBool,
}

impl Activity {
    fn step(&self) {
        self.last.store(self.steps.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) async fn answer<T>(self: Arc<Self>, answer: impl Future<Output = T>) -> T {
        self.answering.store(true, Ordering::Relaxed);
        self.step();
        let answer = answer.await;
        self.answering.store(false, Ordering::Relaxed);
        self.step();
        answer
    }
}

struct Place {
    activity: Arc<Activity>,
    connection: AbortHandle,
}

/// The tasks of the connections.
pub(super) struct Places {
    max: usize,
    steps: Arc<AtomicU64>,
    tasks: JoinSet<()>,
    places: HashMap<Id, Place>,
}

impl Places {
    /// At most `max` connections, and one at least.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), steps: Arc::default(), tasks: JoinSet::new(), places: HashMap::new() }
    }

    /// Serves one more connection. Where all places are taken, one that has been idle for longest is closed first.
    pub(super) async fn serve<C: Future<Output = ()> + Send + 'static>(&mut self, connection: impl FnOnce(Arc<Activity>) -> C) {
        while self.places.len() >= self.max {
            if let Some(place) = self.idlest().and_then(|id| self.places.get(&id)) {
                place.connection.abort();
            }
            self.ended().await;
        }
        let activity = Arc::new(Activity { steps: self.steps.clone(), last: AtomicU64::new(0), answering: AtomicBool::new(false) });
        activity.step();
        let connection = self.tasks.spawn(connection(activity.clone()));
        self.places.insert(connection.id(), Place { activity, connection });
    }

    /// Waits for a connection's end; false if there is none.
    pub(super) async fn ended(&mut self) -> bool {
        let ended = self.tasks.join_next_with_id().await;
        match ended {
            Some(Ok((id, ()))) => self.places.remove(&id),
            Some(Err(error)) => self.places.remove(&error.id()),
            None => return false,
        };
        true
    }

    /// The one whose client has let the listener wait for longest. Those that wait for their answers come last, and of them the latest
    /// first: the others have theirs sooner.
    fn idlest(&self) -> Option<Id> {
        let key = |place: &Place| {
            let last = place.activity.last.load(Ordering::Relaxed);
            let answering = place.activity.answering.load(Ordering::Relaxed);
            (answering, if answering { u64::MAX.saturating_sub(last) } else { last })
        };
        self.places.iter().min_by_key(|(_, place)| key(place)).map(|(id, _)| *id)
    }
}

/// A connection's stream, which notes when its client takes bytes.
pub(super) struct Noted<S> {
    pub(super) stream: S,
    pub(super) activity: Arc<Activity>,
}

impl<S> Noted<S> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.activity.step();
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(task, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(task, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(task, bytes);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}
