//! The HTTP listener: `/metrics`, `/healthz`, `/readyz`, and the pages that are handed to it. GET and HEAD only; no request's body is read.
//!
//! A client can hold one of a few connections for a bounded time and nothing else: the head of a request has a size and a deadline,
//! an answer a deadline, and scrapes are rendered one at a time, beside the threads that serve Kafka clients. Where all connections are
//! taken, the one that has been idle for longest makes room, so that a probe is answered whatever others do.

mod places;

use super::{
    exposition::{CONTENT_TYPE, Exposition, Later},
    process,
    registry::Registry,
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::{
    body::{Body as Frames, Frame},
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use places::{Activity, Noted, Places};
use std::{
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context as Task, Poll},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};

/// The bytes that a request's head may have (hyper allows no less).
const HEAD_BYTES_MAX: usize = 8192;
/// Its header fields.
const HEADERS_MAX: usize = 64;
/// How long requests in flight may take once the listener stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause after `accept` failed, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What HTTP clients may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections served at once; one more closes the idlest of them.
    connections: usize,
    /// How long a client may take to send a head; also how long a connection may be idle.
    head: Duration,
    /// How long a connection may live: a client that reads its answer slowly holds that answer no longer.
    connection: Duration,
}

const LIMITS: Limits = Limits { connections: 32, head: Duration::from_secs(10), connection: Duration::from_secs(60) };

/// Where the listener reads the broker's state.
pub trait Source: Send + Sync + 'static {
    /// Whether clients are served; if not, why not, in a line.
    fn ready(&self) -> Result<(), String>;

    /// Writes the families that are read at the scrape: topics, partitions. May block for as long as that takes.
    fn render(&self, out: &mut Exposition);
}

#[derive(Clone)]
struct Context {
    registry: Registry,
    source: Arc<dyn Source>,
    scrape: Arc<Semaphore>,
}

/// Serves until `stop` is done, then lets requests in flight finish for a short while.
/// `pages` answer what isn't served here.
pub async fn serve(listener: TcpListener, registry: Registry, source: Arc<dyn Source>, pages: Router, stop: impl Future<Output = ()>) {
    serve_within(LIMITS, listener, registry, source, pages, stop).await;
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    registry: Registry,
    source: Arc<dyn Source>,
    pages: Router,
    stop: impl Future<Output = ()>,
) {
    let router = router(Context { registry, source, scrape: Arc::new(Semaphore::new(1)) }, pages);
    let (stopping, stopped) = watch::channel(false);
    let mut places = Places::new(limits.connections);
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            true = places.ended() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => places.serve(|activity| connection(Noted { stream, activity }, limits, router.clone(), stopped.clone())).await,
                Err(error) => {
                    tracing::warn!(%error, "accept an HTTP connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let _ = stopping.send(true);
    let _ = timeout(STOP_TIMEOUT, async { while places.ended().await {} }).await;
}

async fn connection(stream: Noted<TcpStream>, limits: Limits, router: Router, mut stopped: watch::Receiver<bool>) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (activity, router) = (stream.activity.clone(), TowerToHyperService::new(router));
    let service = service_fn(move |request| Activity::answer(activity.clone(), router.call(request)));
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let deadline = sleep(limits.connection);
    let mut served = pin!(served);
    let mut deadline = pin!(deadline);
    let result = tokio::select! {
        result = &mut served => Some(result),
        () = &mut deadline => return,
        () = async { let _ = stopped.wait_for(|stopped| *stopped).await; } => None,
    };
    let result = match result {
        Some(result) => result,
        None => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

fn router(context: Context, pages: Router) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback_service(pages)
        .with_state(context)
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(context): State<Context>) -> Response {
    match context.source.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

/// The text of a scrape. Renders on a blocking thread, one scrape at a time: thousands of partitions take milliseconds.
async fn metrics(State(context): State<Context>) -> Response {
    let Ok(turn) = context.scrape.clone().acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let rendered = tokio::task::spawn_blocking(move || {
        // Held until it is rendered, also where the connection is closed before.
        let _turn = turn;
        render(&context.registry, context.source.as_ref())
    })
    .await;
    match rendered {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], Body::new(text)).into_response(),
        Err(error) => {
            tracing::error!(%error, "render the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn render(registry: &Registry, source: &dyn Source) -> Text {
    let mut out = Exposition::after(registry.render());
    source.render(&mut out);
    process::render(&mut out);
    let (text, later) = out.into_parts();
    Text { ready: Some(text.into()), later }
}

/// The text of a scrape as it is sent: tens of megabytes where there are hundreds of thousands of series, of which a bit is held at a time.
struct Text {
    ready: Option<Bytes>,
    later: Vec<Box<dyn Later>>,
}

impl Text {
    /// What is written at once; it takes less than a millisecond.
    const PIECE_BYTES: usize = 256 << 10;
    /// A piece ends with a whole line.
    const ROOM_BYTES: usize = 8 << 10;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        let mut piece = String::new();
        while let Some(families) = self.later.first_mut() {
            piece.reserve(Self::PIECE_BYTES.saturating_add(Self::ROOM_BYTES));
            families.write(&mut piece, Self::PIECE_BYTES);
            if piece.len() >= Self::PIECE_BYTES {
                break;
            }
            self.later.remove(0);
        }
        (!piece.is_empty()).then(|| piece.into())
    }
}

impl Frames for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests;
