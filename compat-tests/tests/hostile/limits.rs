//! Clients that take too much: that never read, that never finish a frame, that come in crowds, that stay and say nothing.

use crate::{
    batches::{Batch, produce, record},
    requests::TOPIC,
    victim::{Outcome, Socket, Victim, metadata},
    wire::{Body, frame},
};
use std::{collections::HashSet, time::Duration};

/// A Fetch of everything in the topic's first partition.
fn fetch_all() -> Vec<u8> {
    let mut b = Body::new(false, None);
    b.i32(-1);
    b.i32(0);
    b.i32(1);
    b.i32(i32::MAX);
    b.i8(0);
    b.i32(0);
    b.i32(-1);
    b.array(1);
    b.text(TOPIC);
    b.array(1);
    b.i32(0);
    b.i32(-1);
    b.i64(0);
    b.i64(-1);
    b.i32(i32::MAX);
    b.array(0);
    b.text("");
    frame(1, 11, false, &b.finish())
}

fn fill(victim: &Victim, batches: usize) {
    let batch = Batch::with(record(None, &vec![b'x'; 900_000]), 1).encode();
    let mut producer = victim.connect();
    for _ in 0..batches {
        let Outcome::Answer(answer) = producer.ask(&produce(TOPIC, Some(&batch))) else { panic!("fill the topic") };
        let at = 4 + 4 + 2 + TOPIC.len() + 4 + 4;
        assert_eq!(answer[at..at + 2], [0, 0], "fill the topic: {answer:?}");
    }
}

/// Sends until the broker takes no more, and reads nothing.
fn stuff(socket: &mut Socket, request: &[u8], times: usize) {
    socket.patience(Duration::from_millis(100));
    for _ in 0..times {
        if socket.send(request).is_err() {
            return;
        }
    }
}

#[test]
fn clients_that_never_read_hold_no_memory() {
    let mut victim = Victim::start();
    fill(&victim, 48);
    let (fetch, metadata) = (fetch_all(), metadata(TOPIC));
    let mut deaf: Vec<Socket> = (0..100).map(|_| victim.connect()).collect();
    for (nth, socket) in deaf.iter_mut().enumerate() {
        stuff(socket, if nth % 2 == 0 { &fetch } else { &metadata }, if nth % 2 == 0 { 50 } else { 20_000 });
    }
    victim.serves_others("100 clients that never read");
    victim.grown_at_most(160, "100 clients that never read").expect("bounded memory");
    drop(deaf);
    victim.serves_others("they went");
    victim.ends_well();
}

#[test]
fn half_frames_hold_little_memory() {
    let mut victim = Victim::start();
    let batch = Batch::of(&vec![b'x'; 900_000]).encode();
    let request = produce(TOPIC, Some(&batch));
    let mut slow: Vec<Socket> = (0..300).map(|_| victim.connect()).collect();
    for (nth, socket) in slow.iter_mut().enumerate() {
        let sent = [2, 10, 5_000, 100_000][nth % 4];
        socket.send(&request[..sent]).expect("send half a frame");
    }
    victim.serves_others("300 half frames");
    fill(&victim, 2);
    victim.grown_at_most(96, "300 half frames").expect("bounded memory");
    // They go on after all, and are served.
    for (nth, socket) in slow.iter_mut().enumerate().step_by(50) {
        let sent = [2, 10, 5_000, 100_000][nth % 4];
        assert!(matches!(socket.ask(&request[sent..]), Outcome::Answer(_)), "the rest of frame {nth}");
    }
    drop(slow);
    victim.ends_well();
}

/// With a budget for requests, these claim many times as much; some send so much of it that it is really held for them.
fn claims_do_not_starve_others(sent: usize) -> Victim {
    let mut victim = Victim::start_with(&[("socket.request.max.bytes", "33554432"), ("queued.max.request.bytes", "67108864")]);
    let claim = [&(30i32 << 20).to_be_bytes()[..], &produce(TOPIC, None)[4..], &vec![0; sent]].concat();
    let mut claiming: Vec<Socket> = (0..40).map(|_| victim.connect()).collect();
    for socket in &mut claiming {
        socket.send(&claim).expect("claim a large frame");
    }
    victim.serves_others("40 claims of 30 MiB");
    fill(&victim, 3);
    victim.grown_at_most(96, "40 claims of 30 MiB").expect("bounded memory");
    victim.holding = claiming;
    victim
}

#[test]
fn claimed_lengths_do_not_starve_others() {
    let victim = claims_do_not_starve_others(100);
    let large = Batch::of(&vec![b'x'; 20 << 20]).encode();
    assert!(matches!(victim.connect().ask(&produce(TOPIC, Some(&large))), Outcome::Answer(_)), "a large request of another client");
    victim.ends_well();
}

#[test]
fn stalled_frames_do_not_starve_others() {
    let mut victim = claims_do_not_starve_others(200_000);
    // Some two of them hold the memory that the others wait for: those are closed, whichever came first.
    victim.holding.iter().for_each(|socket| socket.patience(Duration::from_millis(100)));
    let mut closed = HashSet::new();
    for nth in (0..victim.holding.len()).cycle().take(600) {
        if victim.holding[nth].receive() == Outcome::Closed && closed.insert(nth) && closed.len() == 2 {
            break;
        }
    }
    assert_eq!(closed.len(), 2, "stalled frames hold their memory for ever");
    victim.serves_others("stalled frames");
    victim.ends_well();
}

fn is_served(socket: &mut Socket) -> bool {
    matches!(socket.ask(&metadata(TOPIC)), Outcome::Answer(_))
}

/// `max.connections`: at the limit accepting waits until one goes, as in Kafka.
#[test]
fn connections_wait_at_the_limit() {
    let victim = Victim::start_with(&[("max.connections", "8")]);
    let mut served: Vec<Socket> = (0..7).map(|_| victim.connect()).collect(); // the bystander is one too
    assert!(served.iter_mut().all(is_served));
    let mut waiting = victim.connect();
    waiting.patience(Duration::from_millis(300));
    assert_eq!(waiting.ask(&metadata(TOPIC)), Outcome::Silence, "a ninth connection is not served");
    served.pop();
    waiting.patience(Duration::from_secs(20));
    assert!(matches!(waiting.receive(), Outcome::Answer(_)), "it is served once another has gone");
    victim.ends_well();
}

/// `max.connections.per.ip`: the next one is closed.
#[test]
fn an_address_has_its_share_of_connections() {
    let mut victim = Victim::start_with(&[("max.connections.per.ip", "8")]);
    let mut served: Vec<Socket> = (0..7).map(|_| victim.connect()).collect();
    assert!(served.iter_mut().all(is_served));
    for _ in 0..20 {
        assert_eq!(victim.connect().ask(&metadata(TOPIC)), Outcome::Closed, "a ninth connection");
    }
    assert!(served.iter_mut().all(is_served));
    victim.serves_others("20 connections too many");
    served.clear();
    let mut again = (0..1000).map(|_| victim.connect()).find_map(|mut socket| is_served(&mut socket).then_some(socket));
    assert!(again.as_mut().is_some_and(is_served), "there is room again");
    victim.ends_well();
}

/// `connections.max.idle.ms`, for clients that say nothing and for those that say half of something.
#[test]
fn idle_connections_are_closed() {
    let mut victim = Victim::start_with(&[("connections.max.idle.ms", "1000")]);
    let mut silent = victim.connect();
    let mut rested = victim.connect();
    let mut half = victim.connect();
    assert!(is_served(&mut rested));
    half.send(&metadata(TOPIC)[..9]).expect("send half a frame");
    for (what, socket) in [("a silent", &mut silent), ("a rested", &mut rested), ("a half", &mut half)] {
        // The client beside is never idle for long.
        socket.patience(Duration::from_millis(200));
        let outcome = (0..100).find_map(|_| {
            victim.serves_others("a while");
            Some(socket.receive()).filter(|outcome| *outcome != Outcome::Silence)
        });
        assert_eq!(outcome, Some(Outcome::Closed), "{what} connection");
    }
    victim.serves_others("others were closed");
    victim.ends_well();
}
