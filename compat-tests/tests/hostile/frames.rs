//! Sends each frame of `fixtures/hostile/`, and its like at full size, and looks what comes of it.

use crate::{
    fixtures::{self, BOMB_TOPIC, Expect, Fixture},
    requests::REQUESTS,
    victim::{LOOKING_TOPICS, Outcome, Victim},
    wire::Noise,
};
use std::{collections::BTreeMap, env, fs, path::PathBuf};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hostile")
}

/// What the repository holds, by name.
fn committed() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory()).expect("read fixtures/hostile");
    let paths = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.extension().is_some_and(|e| e == "bin"));
    paths.map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("read a fixture"))).collect()
}

#[test]
fn the_fixtures_are_fresh() {
    let made: BTreeMap<String, Vec<u8>> = fixtures::all().into_iter().map(|f| (f.name, f.bytes)).collect();
    assert_eq!(made.len(), fixtures::all().len(), "two fixtures have one name");
    if env::var_os("HIGHWATER_UPDATE_FIXTURES").is_some() {
        fs::create_dir_all(directory()).expect("make fixtures/hostile");
        for name in committed().keys().filter(|name| !made.contains_key(*name)) {
            fs::remove_file(directory().join(format!("{name}.bin"))).expect("remove a fixture");
        }
        for (name, bytes) in &made {
            fs::write(directory().join(format!("{name}.bin")), bytes).expect("write a fixture");
        }
        return;
    }
    let committed = committed();
    let stale: Vec<_> = made.iter().filter(|(name, bytes)| committed.get(*name) != Some(bytes)).map(|(name, _)| name).collect();
    let extra: Vec<_> = committed.keys().filter(|name| !made.contains_key(*name)).collect();
    assert!(stale.is_empty() && extra.is_empty(), "stale: {stale:?}, unknown: {extra:?}; HIGHWATER_UPDATE_FIXTURES=1 writes them anew");
}

/// What makes a lying request hostile is the lie and nothing else.
#[test]
fn correct_requests_are_answered() {
    let victim = Victim::start();
    let silent: Vec<_> = REQUESTS
        .iter()
        .filter_map(|request| match victim.connect().ask(&request.frame()) {
            Outcome::Answer(_) => None,
            outcome => Some(format!("{} v{}: {outcome:?}", request.name, request.version)),
        })
        .collect();
    assert_eq!(silent, Vec::<String>::new());
    victim.ends_well();
}

/// Sends a frame on a connection of its own; what is wrong with the outcome, if something is.
fn send(victim: &Victim, fixture: &Fixture, bytes: &[u8]) -> Result<(), String> {
    let mut socket = victim.connect();
    let sent = socket.send(bytes);
    if matches!(fixture.expect, Expect::ClosedAtEnd | Expect::Anything) {
        socket.end();
    }
    let outcome = if sent.is_ok() { socket.receive() } else { Outcome::Closed };
    let fine = match (fixture.expect, &outcome) {
        // Apache Kafka lets exceptions through here and there: it answers UNKNOWN_SERVER_ERROR, or nothing at all.
        (Expect::Anything, Outcome::Silence) if victim.is_apaches() => true,
        (Expect::Produced(_), Outcome::Answer(answer)) if victim.is_apaches() && produced(answer) == Some(-1) => true,
        (_, Outcome::Silence) => false,
        (Expect::Anything, _) => true,
        (Expect::Closed | Expect::ClosedAtEnd, outcome) => *outcome == Outcome::Closed,
        (Expect::Answered, Outcome::Answer(_)) => true,
        (Expect::ApiVersionsUnsupported, Outcome::Answer(answer)) => api_versions_unsupported(answer),
        (Expect::Produced(codes), Outcome::Answer(answer)) => produced(answer).is_some_and(|code| codes.contains(&code)),
        (_, Outcome::Closed) => false,
    };
    let code = match (&fixture.expect, &outcome) {
        (Expect::Produced(_), Outcome::Answer(answer)) => produced(answer),
        _ => None,
    };
    if fine { Ok(()) } else { Err(format!("{}: {:?}, not {}", fixture.name, fixture.expect, shown(&outcome, code))) }
}

fn shown(outcome: &Outcome, code: Option<i16>) -> String {
    match (outcome, code) {
        (_, Some(code)) => format!("produced with {code}"),
        (Outcome::Answer(answer), _) => format!("an answer of {} bytes", answer.len()),
        (outcome, _) => format!("{outcome:?}"),
    }
}

/// The first partition's error of a Produce answer of version 8.
fn produced(answer: &[u8]) -> Option<i16> {
    // Correlation id, one topic, its name, one partition, its index.
    let name = usize::from(u16::from_be_bytes(*answer.get(8..)?.first_chunk()?));
    answer.get(10 + name + 8..)?.first_chunk().map(|code| i16::from_be_bytes(*code))
}

/// The body has the form of version 0: error 35 and at least what versions ApiVersions itself has.
fn api_versions_unsupported(answer: &[u8]) -> bool {
    let Some((head, keys)) = answer.split_at_checked(10) else { return false };
    let count = i32::from_be_bytes([head[6], head[7], head[8], head[9]]);
    head[..6] == [0, 0, 0, 7, 0, 35] && keys.len() == 6 * count as usize && keys.chunks(6).any(|entry| entry[..2] == [0, 18])
}

/// What the broker may take for any of the frames, none of which is larger than 300 KB.
const GROWTH_MIB: u64 = 64;
/// What it may take for a bomb: it looks into as much as 64 times `max.message.bytes`, in a buffer that grows by doubling.
const BOMB_GROWTH_MIB: u64 = 160;

#[test]
fn every_frame_is_refused_or_answered_and_others_are_served() {
    let mut victim = Victim::start();
    let committed = committed();
    let mut wrong = Vec::new();
    for fixture in fixtures::all() {
        // These keep Apache Kafka busy for half a minute; and it has no limit by API.
        if victim.is_apaches() && (fixture.name.starts_with("many-") || fixture.name == "length-of-records-for-metadata") {
            continue;
        }
        let bytes = &committed[&fixture.name];
        if fixture.name.starts_with("bomb-") {
            for (topic, _) in LOOKING_TOPICS {
                let name = format!("{} on {topic}", fixture.name);
                let aimed = replace(bytes, BOMB_TOPIC.as_bytes(), topic.as_bytes());
                wrong.extend(send(&victim, &fixture, &aimed).err().map(|e| format!("{e}, on {topic}")));
                wrong.extend(victim.grown_at_most(BOMB_GROWTH_MIB, &name).err());
                victim.serves_others(&name);
            }
        } else {
            wrong.extend(send(&victim, &fixture, bytes).err());
            wrong.extend(victim.grown_at_most(GROWTH_MIB, &fixture.name).err());
            victim.serves_others(&fixture.name);
        }
    }
    assert!(wrong.is_empty(), "{} frames:\n{}", wrong.len(), wrong.join("\n"));
    victim.ends_well();
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|w| w == from).expect("the topic's name");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

/// Elements of one byte on the wire, as many as a frame holds that no honest client would send.
#[test]
fn large_frames_of_small_elements_stay_in_their_budget() {
    let mut victim = Victim::start();
    let mut wrong = Vec::new();
    // Just below the limit for requests without records.
    for (name, bytes) in fixtures::amplified((8 << 20) - 100) {
        let mut socket = victim.connect();
        if socket.send(&bytes).is_ok() {
            socket.end();
            assert_ne!(socket.receive(), Outcome::Silence, "{name} of 8 MiB");
        }
        wrong.extend(victim.grown_at_most(128, name).err());
        victim.serves_others(name);
    }
    assert!(wrong.is_empty(), "{} frames:\n{}", wrong.len(), wrong.join("\n"));
    victim.ends_well();
}

/// Correct requests with a few bytes changed at random: seeds are fixed, so a failure comes again.
#[test]
fn mutated_requests_are_refused_or_answered() {
    let mut victim = Victim::start();
    for (nth, request) in REQUESTS.iter().enumerate() {
        for seed in 0..60 {
            let mut noise = Noise::new(nth as u64 * 1000 + seed);
            let mut bytes = request.frame();
            for _ in 0..1 + noise.below(4) {
                // The length and the API key stay, so that the bytes reach the API.
                let at = 6 + noise.below(bytes.len() - 6);
                bytes[at] = noise.next() as u8;
            }
            let mut socket = victim.connect();
            if socket.send(&bytes).is_ok() {
                socket.end();
                assert_ne!(socket.receive(), Outcome::Silence, "{} v{} with seed {seed}: {bytes:?}", request.name, request.version);
            }
        }
        victim.serves_others(request.name);
    }
    victim.grown_at_most(GROWTH_MIB, "mutated requests").unwrap_or_else(|e| panic!("{e}"));
    victim.ends_well();
}
