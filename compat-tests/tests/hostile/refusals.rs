//! What the log says of refused connections: who, what, and not too often.
#![allow(clippy::disallowed_methods, reason = "how many lines are too many depends on the time that passed")]

use crate::{
    requests::{REQUESTS, Request},
    victim::{Outcome, Victim},
    wire::{CLIENT_ID, Lie, Place, frame},
};

fn request(name: &str) -> &'static Request {
    REQUESTS.iter().find(|request| request.name == name).expect("a request of that name")
}

/// The broker's lines that name a peer.
fn lines_about(log: &str, peer: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(peer)).map(str::to_owned).collect()
}

#[test]
fn a_refused_connection_leaves_one_line() {
    let victim = Victim::start();
    let cases = [
        ("an unknown version", frame(3, 99, false, &[0; 16]), &["Metadata", "99"][..]),
        ("an unknown key", frame(999, 5, false, &[0; 16]), &["999", "5"]),
        ("a lying array", request("list-offsets").lying(Place::Array(0), Lie::Max).expect("an array"), &["ListOffsets", "5"]),
        ("a lying array of Produce", request("produce").lying(Place::Array(1), Lie::Max).expect("an array"), &["Produce", "8"]),
    ];
    for (what, bytes, words) in cases {
        let mut socket = victim.connect();
        let peer = socket.local().to_string();
        assert_eq!(socket.ask(&bytes), Outcome::Closed, "{what}");
        let lines = lines_about(&victim.log(), &peer);
        assert_eq!(lines.len(), 1, "{what}: {lines:?}");
        for word in words.iter().chain(&[CLIENT_ID]) {
            assert!(lines[0].contains(word), "{what}: no {word} in {}", lines[0]);
        }
    }
    victim.ends_well();
}

#[test]
fn a_flood_of_refused_connections_is_not_a_flood_of_lines() {
    let mut victim = Victim::start();
    let started = std::time::Instant::now();
    for _ in 0..2000 {
        assert_eq!(victim.connect().ask(&frame(3, 99, false, &[0; 16])), Outcome::Closed);
    }
    let seconds = started.elapsed().as_secs() + 2;
    let log = victim.log();
    let lines = log.lines().filter(|line| line.contains(CLIENT_ID)).count() as u64;
    assert!((1..=20 * seconds).contains(&lines), "{lines} lines in {seconds} s for 2000 refused connections");
    victim.serves_others("2000 refused connections");
    victim.ends_well();
}

/// A client's name is written so that it cannot forge lines or colours.
#[test]
fn a_clients_name_cannot_break_lines() {
    let victim = Victim::start();
    let mut bytes = frame(3, 99, false, &[0; 16]);
    let name = bytes.windows(CLIENT_ID.len()).position(|w| w == CLIENT_ID.as_bytes()).expect("the client id");
    bytes[name..name + CLIENT_ID.len()].copy_from_slice(b"\nforged\x1b[31m\0x");
    assert_eq!(victim.connect().ask(&bytes), Outcome::Closed);
    let log = victim.log();
    assert!(log.lines().all(|line| !line.starts_with("forged")) && !log.contains('\u{1b}') && !log.contains('\0'), "{log:?}");
    victim.ends_well();
}
