//! Where the programs are that `compat-tests/install` put there. It installs nothing itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// The folder `compat-tests`.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The path of a part below `.tools`.
///
/// # Errors
/// If it isn't installed.
pub fn installed(part: &str) -> Result<PathBuf> {
    let path = home().join(".tools").join(part);
    ensure!(path.exists(), "{part} isn't there: compat-tests/install puts it there");
    Ok(path)
}

/// The released broker: `HIGHWATER_BIN`, or what `cargo build --release` made.
///
/// # Errors
/// If there is none.
pub fn highwater() -> Result<PathBuf> {
    let path = match std::env::var_os("HIGHWATER_BIN") {
        Some(path) => PathBuf::from(path),
        None => home().join("../target/release/highwater"),
    };
    ensure!(path.exists(), "no {}: `cargo build --release` makes it, or set HIGHWATER_BIN", path.display());
    Ok(path)
}

/// A JVM that runs `class` of the Maven jars, or of our own `clients/java`.
///
/// The flags make a short life cheap; they change nothing of what the programs do.
///
/// # Errors
/// If the jars aren't installed.
pub fn java(class: &str) -> Result<Command> {
    let jars = installed("java/jars")?;
    let classes = installed("java/classes")?;
    let mut command = Command::new("java");
    command
        .args(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(format!("{}:{}/*", classes.display(), jars.display()))
        .arg(class);
    Ok(command)
}

/// Apache Kafka's broker, with the JVM settings of its own start script and at most 400 MB of heap.
///
/// # Errors
/// If the jars aren't installed.
pub fn kafka_jvm(class: &str) -> Result<Command> {
    let jars = installed("java/jars")?;
    let mut command = Command::new("java");
    command
        .args(["-Xmx400m", "-Xms128m", "-XX:+UseG1GC", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"])
        .arg("-cp")
        .arg(format!("{}/*", jars.display()))
        .arg(class);
    Ok(command)
}
