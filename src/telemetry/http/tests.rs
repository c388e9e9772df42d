//! The HTTP listener over real sockets.

use super::*;
use crate::telemetry::{
    events::{Events, RequestTimes},
    samples::{TopicSample, render_topics},
};
use crate::types::ErrorCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    sync::oneshot,
    task::JoinHandle,
};

/// More lines than are held at once.
struct Many(usize);

const MANY: usize = 100_000;

impl Later for Many {
    fn write(&mut self, text: &mut String, bytes: usize) {
        while self.0 < MANY && text.len() < bytes {
            text.push_str(&format!("many{{nth=\"{}\"}} 1\n", self.0));
            self.0 += 1;
        }
    }
}

#[derive(Default)]
struct Fake {
    ready: AtomicBool,
}

impl Source for Fake {
    fn ready(&self) -> Result<(), String> {
        if self.ready.load(Ordering::SeqCst) { Ok(()) } else { Err("the logs are being recovered".into()) }
    }

    fn render(&self, out: &mut Exposition) {
        render_topics(out, [TopicSample { partitions: 2, ..TopicSample::of("orders") }]);
        out.later(Many(0));
        out.later(Many(MANY - 3));
    }
}

struct Server {
    address: std::net::SocketAddr,
    source: Arc<Fake>,
    events: Events,
    /// What the answers of `/gated` wait for, and what they leave when they begin to.
    gate: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    async fn start_within(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let registry = Registry::new().unwrap();
        let events = Events::new(&registry, ["Metadata"]);
        let source = Arc::new(Fake::default());
        let (stop, stopped) = oneshot::channel();
        let (gate, waiting) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let gated = {
            let (gate, waiting) = (gate.clone(), waiting.clone());
            async move || {
                waiting.add_permits(1);
                gate.acquire().await.unwrap().forget();
                "let through"
            }
        };
        let pages = Router::new().route("/", get(async || "a page")).route("/gated", get(gated));
        let task = tokio::spawn(serve_within(limits, listener, registry, source.clone(), pages, async {
            let _ = stopped.await;
        }));
        Self { address, source, events, gate, waiting, stop, task }
    }

    async fn start() -> Self {
        Self::start_within(LIMITS).await
    }

    /// Sends bytes and reads until the server closes.
    async fn exchange(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")).await
    }
}

#[tokio::test]
async fn health_is_not_readiness() {
    let server = Server::start().await;
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let not_ready = server.get("/readyz").await;
    assert!(not_ready.starts_with("HTTP/1.1 503 "), "{not_ready}");
    assert!(not_ready.ends_with("\r\n\r\nnot ready: the logs are being recovered\n"), "{not_ready}");
    server.source.ready.store(true, Ordering::SeqCst);
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn metrics_hold_counters_histograms_and_what_is_read_at_the_scrape() {
    let server = Server::start().await;
    server.events.request_done(0, ErrorCode::None, RequestTimes::default());
    let answer = server.get("/metrics").await;
    assert!(answer.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    for line in [
        "# TYPE highwater_requests_total counter",
        "highwater_requests_total{api=\"Metadata\",error=\"NONE\"} 1",
        "# TYPE highwater_request_duration_seconds histogram",
        "highwater_request_stage_duration_seconds_bucket{api=\"Metadata\",stage=\"send\",le=\"+Inf\"} 1",
        "highwater_topic_partitions{topic=\"orders\"} 2",
        "# TYPE highwater_build_info gauge",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(answer.lines().any(|l| l == line), "{line} in\n{answer}");
    }
    let heads: Vec<_> = answer.lines().filter(|l| l.starts_with("# TYPE")).collect();
    let distinct: std::collections::BTreeSet<_> = heads.iter().collect();
    assert_eq!(heads.len(), distinct.len(), "a family has its head once");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_and_head_has_no_body() {
    let server = Server::start().await;
    assert!(server.get("/nothing").await.starts_with("HTTP/1.1 404 "));
    assert!(server.get("/").await.ends_with("a page"));
    for path in ["/metrics", "/healthz", "/"] {
        let answer = server.exchange(&format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
    let head = server.exchange("HEAD /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn a_head_has_a_size() {
    let server = Server::start().await;
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
    let answer = server.exchange(&long).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "x: 1\r\n".repeat(HEADERS_MAX + 1));
    let answer = server.exchange(&many).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(server.exchange("\u{0}\u{1}\u{2} not http at all\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"), "others are served");
}

#[tokio::test]
async fn clients_that_send_half_a_head_are_closed_and_free_their_places() {
    let limits = Limits { connections: 3, head: Duration::from_millis(20), ..LIMITS };
    let server = Server::start_within(limits).await;
    let mut silent = Vec::new();
    for _ in 0..limits.connections {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /metr").await.unwrap();
        silent.push(stream);
    }
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
    for mut stream in silent {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "closed without being served");
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    let limits = Limits { connections: 1, connection: Duration::from_millis(50), ..LIMITS };
    let server = Server::start_within(limits).await;
    let mut deaf = TcpStream::connect(server.address).await.unwrap();
    while deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await.is_ok() {}
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"), "its place is free");
}

#[tokio::test]
async fn stopping_ends_idle_connections_and_refuses_new_ones() {
    let server = Server::start().await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    server.stop.send(()).unwrap();
    server.task.await.unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"ok\n"));
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn what_is_written_as_it_is_sent_comes_whole_and_in_order() {
    let server = Server::start().await;
    // HTTP/1.0 has no chunks: the body is what comes until the end.
    let answer = server.exchange("GET /metrics HTTP/1.0\r\n\r\n").await;
    let nths: Vec<usize> =
        answer.lines().filter_map(|line| line.strip_prefix("many{nth=\"")?.strip_suffix("\"} 1")).map(|nth| nth.parse().unwrap()).collect();
    assert!(nths.iter().copied().eq((0..MANY).chain(MANY - 3..MANY)), "{} lines", nths.len());
    assert!(answer.lines().any(|line| line.starts_with("process_cpu_seconds_total ")) && answer.ends_with('\n'));
}

/// Neither a head's nor a connection's deadline frees a place.
const ENDLESS: Limits = Limits { connections: 8, head: Duration::from_hours(1), connection: Duration::from_hours(1) };
const PROBE: &str = "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";

/// A connection that has sent this and has read its first answer's first bytes.
async fn answered(server: &Server, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // So little that the answer of a scrape doesn't fit on the way.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    stream
}

/// What is left to read of a connection, to its end.
async fn rest(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    String::from_utf8(rest).unwrap()
}

async fn probes_are_answered(server: &Server) {
    for _ in 0..3 {
        // Not closed by the client: the next one doesn't find its place free.
        drop(answered(server, PROBE).await);
        assert!(server.get("/healthz").await.ends_with("ok\n"));
    }
}

#[tokio::test]
async fn idle_connections_make_room() {
    let server = Server::start_within(ENDLESS).await;
    let mut idle = Vec::new();
    for _ in 0..3 * ENDLESS.connections {
        idle.push(answered(&server, PROBE).await);
    }
    probes_are_answered(&server).await;
}

#[tokio::test]
async fn half_requests_make_room() {
    let server = Server::start_within(ENDLESS).await;
    let mut halves = Vec::new();
    for _ in 0..3 * ENDLESS.connections {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(b"GET /metr").await;
        halves.push(stream);
    }
    probes_are_answered(&server).await;
}

#[tokio::test]
async fn slow_readers_make_room() {
    let server = Server::start_within(ENDLESS).await;
    let mut slow = Vec::new();
    for _ in 0..2 * ENDLESS.connections {
        slow.push(answered(&server, &"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n".repeat(4)).await);
    }
    probes_are_answered(&server).await;
}

#[tokio::test]
async fn the_one_that_has_been_idle_for_longest_goes_and_the_others_stay() {
    let server = Server::start_within(Limits { connections: 3, ..ENDLESS }).await;
    let mut gated = TcpStream::connect(server.address).await.unwrap();
    gated.write_all(b"GET /gated HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
    server.waiting.acquire().await.unwrap().forget();
    let first = answered(&server, PROBE).await;
    let mut second = answered(&server, PROBE).await;
    let third = answered(&server, PROBE).await;
    assert!(rest(first).await.ends_with("ok\n"), "closed after its answer");
    second.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(rest(second).await.ends_with("a page"), "it came later and stays");
    drop(third);
    server.gate.add_permits(1);
    assert!(rest(gated).await.ends_with("let through"), "it came first, but was not idle");
}

#[tokio::test]
async fn where_all_wait_for_their_answers_a_probe_is_answered_all_the_same() {
    let server = Server::start_within(ENDLESS).await;
    let mut gated = Vec::new();
    for _ in 0..ENDLESS.connections {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /gated HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
        server.waiting.acquire().await.unwrap().forget();
        gated.push(stream);
    }
    probes_are_answered(&server).await;
    server.gate.add_permits(ENDLESS.connections);
    assert!(rest(gated.remove(0)).await.ends_with("let through"));
    assert_eq!(rest(gated.pop().unwrap()).await, "", "the last one gave its place");
}
