//! The connection loop against a service of the tests' own: order, backpressure, refusals, stopping.

use super::{connection::Limits, listener::*, memory::Memory, *};
use crate::codec::Segment;
use bytes::{BufMut, BytesMut};
use parking_lot::Mutex;
use std::net::Ipv4Addr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
    task::JoinHandle,
};

/// Key 0 echoes; key 1 answers when the test says so; key 2 is refused; key 5 acts when the test says so.
#[derive(Default)]
struct Echo {
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    handled: Mutex<Vec<i32>>,
    refused: Mutex<Vec<String>>,
    sent: Mutex<usize>,
    /// Of each answer that was held back: whether another request came, or else the connection went.
    let_go: Arc<Mutex<Vec<bool>>>,
}

struct Held(oneshot::Sender<()>);

impl Hold for Held {
    fn interrupt(self: Box<Self>) {
        self.0.send(()).unwrap();
    }
}

fn echo(frame: &Bytes) -> Reply {
    let mut out = BytesMut::new();
    out.put_i32(frame.len() as i32);
    let (head, tail) = frame.split_at(frame.len() / 2);
    out.put_slice(head);
    let segments = vec![Segment::Bytes(out.freeze()), Segment::Bytes(Bytes::copy_from_slice(tail))];
    Reply { segments, error: ErrorCode::None }
}

impl Service for Echo {
    fn frame_bytes_max(&self, _: Option<Prelude>) -> usize {
        8 << 20
    }
    fn handle(&self, _: &Arc<ConnectionInfo>, frame: Bytes) -> (usize, Result<Answer, Refusal>) {
        let prelude = Prelude::peek(&frame).unwrap();
        self.handled.lock().push(prelude.correlation_id);
        let answer = match prelude.api_key {
            0 => Ok(Answer::Ready(echo(&frame))),
            1 => {
                let (tx, rx) = oneshot::channel();
                self.waiting.lock().push(tx);
                Ok(Answer::Later(Box::pin(async move {
                    let _ = rx.await;
                    Ok(echo(&frame))
                })))
            }
            5 => {
                let (tx, rx) = oneshot::channel();
                self.waiting.lock().push(tx);
                Ok(Answer::Acting(Box::pin(async move {
                    let _ = rx.await;
                    Ok(echo(&frame))
                })))
            }
            3 => Ok(Answer::Parked(Box::pin(std::future::pending()))),
            4 => {
                // Answered when the other part is let go of.
                let (hold, let_go) = oneshot::channel();
                let all = self.let_go.clone();
                let answer = async move {
                    let interrupted = let_go.await.is_ok();
                    all.lock().push(interrupted);
                    Ok(echo(&frame))
                };
                Ok(Answer::Held(Box::pin(answer), Box::new(Held(hold))))
            }
            key => Err(Refusal::UnknownApi(key)),
        };
        (0, answer)
    }
    fn sent(&self, _: &Answered) {
        *self.sent.lock() += 1;
    }
    fn refused(&self, _: &ConnectionInfo, _: &[u8], refusal: &Refusal) {
        self.refused.lock().push(refusal.to_string());
    }
    fn opened(&self) {}
    fn closed(&self, _: CloseReason) {}
    fn turned_away(&self, _: SocketAddr, _: RejectReason) {}
}

struct Server {
    service: Arc<Echo>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    memory: Memory,
}

#[allow(clippy::disallowed_methods)]
async fn start(limits: Limits, per_address_max: usize, memory_bytes: usize) -> Server {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let info = Arc::new(ListenerInfo { name: "PLAINTEXT".into(), advertised_host: "h".into(), advertised_port: 1 });
    let (stop, stopped) = watch::channel(false);
    let service = Arc::new(Echo::default());
    let memory = Memory::new(memory_bytes);
    let door = Arc::new(Door::new(100, per_address_max, memory.clone(), limits));
    let task = tokio::spawn(accept(listener, info, service.clone(), door, stopped));
    Server { service, address, stop, task, memory }
}

fn request(key: i16, correlation_id: i32, body_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(8 + body_bytes as i32);
    frame.put_i16(key);
    frame.put_i16(0);
    frame.put_i32(correlation_id);
    frame.resize(12 + body_bytes, correlation_id as u8);
    frame
}

async fn answer(stream: &mut TcpStream) -> Option<(i32, usize)> {
    let len = stream.read_i32().await.ok()?;
    let mut frame = vec![0; len as usize];
    stream.read_exact(&mut frame).await.ok()?;
    let id = Prelude::peek(&frame)?.correlation_id;
    assert!(frame[8..].iter().all(|b| *b == id as u8), "the bytes of request {id}");
    Some((id, frame.len()))
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn answers_keep_the_order_of_requests_while_later_ones_are_handled() {
    let server = start(Limits::DEFAULT, 10, 1 << 20).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let pipelined = [request(0, 1, 3), request(1, 2, 0), request(0, 3, 90_000), request(1, 4, 20_000), request(0, 5, 1)].concat();
    client.write_all(&pipelined).await.unwrap();
    assert_eq!(answer(&mut client).await, Some((1, 11)));
    until(|| server.service.handled.lock().len() == 5).await;
    let mut waiting = std::mem::take(&mut *server.service.waiting.lock());
    waiting.pop().unwrap().send(()).unwrap(); // the fourth is done before the second
    waiting.pop().unwrap().send(()).unwrap();
    for (id, len) in [(2, 8), (3, 90_008), (4, 20_008), (5, 9)] {
        assert_eq!(answer(&mut client).await, Some((id, len)));
    }
    until(|| *server.service.sent.lock() == 5).await;
    until(|| server.memory.used_bytes() == 0).await;
}

#[tokio::test]
async fn a_request_that_finds_no_memory_waits_for_it() {
    let server = start(Limits::DEFAULT, 10, 64 << 10).await;
    let mut holder = TcpStream::connect(server.address).await.unwrap();
    holder.write_all(&request(1, 1, 60_000)).await.unwrap();
    until(|| server.service.handled.lock().len() == 1).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&request(0, 2, 40_000)).await.unwrap();
    let mut small = TcpStream::connect(server.address).await.unwrap();
    small.write_all(&request(0, 3, 10)).await.unwrap();
    assert_eq!(answer(&mut small).await, Some((3, 18)), "small requests pass");
    assert_eq!(*server.service.handled.lock(), [1, 3]);
    server.service.waiting.lock().pop().unwrap().send(()).unwrap();
    assert_eq!(answer(&mut client).await, Some((2, 40_008)));
}

#[tokio::test]
async fn what_was_read_at_once_is_handled_as_room_comes() {
    // Slots run out, behind an answer that waits and behind none; so does room for answers.
    let limits = Limits { pending_max: 4, out_bytes_max: 64 << 10, ..Limits::DEFAULT };
    for (first, others, padding) in [(1, 4, 5), (1, 13, 5), (1, 60, 5), (5, 60, 5), (0, 60, 5), (1, 60, 9_000), (0, 60, 9_000)] {
        let server = start(limits, 10, 64 << 20).await;
        let mut client = TcpStream::connect(server.address).await.unwrap();
        let frames: Vec<_> = (1..=others).map(|id| request(0, id, padding)).collect();
        client.write_all(&[request(first, 0, 5), frames.concat()].concat()).await.unwrap();
        if first != 0 {
            until(|| !server.service.waiting.lock().is_empty()).await;
            // Whatever else there is room for is handled, and nothing more can come.
            let expected = if first == 5 { 1 } else { 4 };
            until(|| server.service.handled.lock().len() == expected).await;
            server.service.waiting.lock().pop().unwrap().send(()).unwrap();
        }
        for id in 0..=others {
            assert_eq!(answer(&mut client).await.map(|(id, _)| id), Some(id), "{first} {others} {padding}");
        }
    }
}

#[tokio::test]
async fn a_half_closed_client_gets_all_answers() {
    let limits = Limits { pending_max: 4, out_bytes_max: 64 << 10, ..Limits::DEFAULT };
    for first in [0, 1, 5] {
        let server = start(limits, 10, 64 << 20).await;
        let mut client = TcpStream::connect(server.address).await.unwrap();
        let frames: Vec<_> = (1..=40).map(|id| request(0, id, 200_000)).collect();
        let (mut reading, mut writing) = client.split();
        let write = async {
            writing.write_all(&[request(first, 0, 5), frames.concat(), request(0, 99, 100)[..50].to_vec()].concat()).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let read = async {
            if first != 0 {
                until(|| !server.service.waiting.lock().is_empty()).await;
                server.service.waiting.lock().pop().unwrap().send(()).unwrap();
            }
            let mut all = Vec::new();
            reading.read_to_end(&mut all).await.unwrap();
            all
        };
        let ((), all) = tokio::join!(write, read);
        assert_eq!(server.service.handled.lock().len(), 41);
        assert_eq!(all.len(), (4 + 8 + 5) + 40 * (4 + 8 + 200_000), "{first}");
        until(|| server.memory.used_bytes() == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_is_gone_is_not_waited_for_long() {
    let limits = Limits { end_wait: Duration::from_millis(20), ..Limits::DEFAULT };
    let server = start(limits, 1, 1 << 20).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&request(3, 1, 5)).await.unwrap();
    until(|| server.service.handled.lock().len() == 1).await;
    drop(client);
    // One connection an address: the next is served when the first is over.
    loop {
        let mut next = TcpStream::connect(server.address).await.unwrap();
        if next.write_all(&request(0, 2, 5)).await.is_ok() && answer(&mut next).await.is_some() {
            break;
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_held_back_keeps_nobody_waiting() {
    let server = start(Limits::DEFAULT, 10, 64 << 10).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&request(4, 1, 5)).await.unwrap();
    until(|| server.service.handled.lock().len() == 1).await;
    let mut early = [0];
    assert!(client.try_read(&mut early).is_err(), "it is answered at once");
    client.write_all(&request(0, 2, 7)).await.unwrap();
    assert_eq!(answer(&mut client).await, Some((1, 13)));
    assert_eq!(answer(&mut client).await, Some((2, 15)));
    client.write_all(&request(4, 3, 5)).await.unwrap();
    until(|| server.service.handled.lock().len() == 3).await;
    client.shutdown().await.unwrap();
    assert_eq!(answer(&mut client).await, Some((3, 13)), "it may only have closed its sending half");
    assert_eq!(*server.service.let_go.lock(), [true, false]);
}

#[tokio::test]
async fn nothing_of_a_connection_overtakes_a_request_that_is_still_acting() {
    let server = start(Limits::DEFAULT, 10, 1 << 20).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&[request(1, 1, 5), request(5, 2, 5), request(0, 3, 5), request(0, 4, 400_000)].concat()).await.unwrap();
    until(|| server.service.handled.lock().len() == 2).await;
    let mut other = TcpStream::connect(server.address).await.unwrap();
    other.write_all(&request(0, 9, 5)).await.unwrap();
    assert_eq!(answer(&mut other).await, Some((9, 13)), "other connections go on");
    server.service.waiting.lock().remove(0).send(()).unwrap();
    assert_eq!(answer(&mut client).await, Some((1, 13)));
    assert_eq!(*server.service.handled.lock(), [1, 2, 9]);
    server.service.waiting.lock().pop().unwrap().send(()).unwrap();
    for (id, len) in [(2, 13), (3, 13), (4, 400_008)] {
        assert_eq!(answer(&mut client).await, Some((id, len)));
    }
}

#[tokio::test]
async fn who_is_parked_holds_no_memory() {
    let server = start(Limits::DEFAULT, 10, 64 << 10).await;
    let mut parked = TcpStream::connect(server.address).await.unwrap();
    parked.write_all(&request(3, 1, 60_000)).await.unwrap();
    until(|| server.service.handled.lock().len() == 1).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&request(0, 2, 60_000)).await.unwrap();
    assert_eq!(answer(&mut client).await, Some((2, 60_008)));
}

#[tokio::test]
async fn what_is_no_request_closes_the_connection_with_one_line() {
    let server = start(Limits::DEFAULT, 10, 1 << 20).await;
    for hostile in [vec![0x7f, 0xff, 0xff, 0xff], vec![0xff; 12], vec![0; 4], request(2, 1, 5), vec![0, 0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(&hostile).await.unwrap();
        let mut rest = Vec::new();
        if hostile.len() == 4 && hostile[0] == 0x7f {
            // Nothing is known of it yet but a length: it is judged when its API is known.
            client.write_all(&[0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
        }
        let _ = client.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
    }
    until(|| server.service.refused.lock().len() == 5).await;
}

#[tokio::test]
async fn idle_connections_go_and_waiting_ones_stay() {
    let limits = Limits { idle: Some(Duration::from_millis(50)), ..Limits::DEFAULT };
    let server = start(limits, 10, 1 << 20).await;
    let mut waits = TcpStream::connect(server.address).await.unwrap();
    waits.write_all(&request(1, 1, 0)).await.unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(answer(&mut idle).await, None);
    server.service.waiting.lock().pop().unwrap().send(()).unwrap();
    assert_eq!(answer(&mut waits).await, Some((1, 8)));
}

#[tokio::test]
async fn stopping_answers_what_is_under_way() {
    let server = start(Limits::DEFAULT, 1, 1 << 20).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&request(1, 1, 0)).await.unwrap();
    until(|| server.service.handled.lock().len() == 1).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(answer(&mut second).await, None, "one connection an address");
    server.stop.send(true).unwrap();
    server.service.waiting.lock().pop().unwrap().send(()).unwrap();
    assert_eq!(answer(&mut client).await, Some((1, 8)));
    assert_eq!(answer(&mut client).await, None);
    server.task.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_reads_holds_no_more_than_its_bound() {
    let server = start(Limits { out_bytes_max: 64 << 10, ..Limits::DEFAULT }, 10, 64 << 20).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let frame = request(0, 7, 32_000);
    let writes = async {
        for _ in 0..2000 {
            client.write_all(&frame).await.unwrap();
        }
    };
    // The server stops reading, so the writes stall: time is stopped only after nothing moves any more.
    assert!(tokio::time::timeout(Duration::from_millis(500), writes).await.is_err());
    let handled = server.service.handled.lock().len();
    assert!(handled < 2000 && server.memory.used_bytes() <= 33 * 33_000, "{handled}");
}
