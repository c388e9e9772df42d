//! Many partitions in one broker. How fast they open and what they cost is for `compat-tests/bench/run --partitions`; here they're right.

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use compat_tests::steady::{self, Steady, Told};

use crate::verify;

const PARTITIONS: i32 = 800;
/// Every so manieth has records.
const EVERY: i32 = 40;
/// Descriptors besides those of partitions in use: sockets, the runtime's, standard streams.
const FILES_BESIDES: usize = 100;

#[test]
fn many_partitions_open_right_after_any_end_and_hold_few_files() -> Result<()> {
    let mut broker = Broker::start()?;
    ensure!(steady::create(&mut broker.connect()?, "many", PARTITIONS, &[])? == 0);
    let mut producers =
        (0..PARTITIONS).step_by(EVERY as usize).map(|i| Steady::new(broker.kafka(), "many", i)).collect::<Result<Vec<_>>>()?;
    for end in ["a clean stop", "kill -9", "kill -9", "a clean stop"] {
        for producer in &mut producers {
            ensure!(matches!(producer.send(500)?, Told::Acknowledged(_)));
        }
        let files = open_files(broker.pid())?;
        ensure!(files < producers.len() + FILES_BESIDES, "{files} files are open");
        if end == "kill -9" {
            broker.kill()?;
        } else {
            ensure!(broker.stop()?.success());
        }
        let said = verify(broker.data())?;
        ensure!(said.contains(&format!("{PARTITIONS} partitions, ")) && said.contains(" 0 wrong"), "{said}");
        broker.restart()?;
        let files = open_files(broker.pid())?;
        ensure!(files < FILES_BESIDES, "{files} files are open after {end}");
        producers.iter().try_for_each(Steady::verify).with_context(|| format!("after {end}"))?;
        let empty = steady::read(&mut broker.connect()?, "many", PARTITIONS - 1)?;
        ensure!(empty.is_empty(), "{} records in a partition that got none", empty.len());
        // The connection went with the process.
        for producer in &mut producers {
            let _ = producer.send(500)?;
        }
    }
    Ok(())
}

fn open_files(pid: u32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd")).context("count open files")?.count())
}
