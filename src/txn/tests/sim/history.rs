//! What must hold over a whole run, whatever happened in it.

use super::{
    app::{Attempt, Fate, INPUTS},
    broker::{Answer, Broker},
    partition::Value,
};
use std::collections::{BTreeMap, BTreeSet};

pub struct Checker {
    slots: usize,
    /// What a reader of committed records has got of each partition.
    seen: Vec<BTreeSet<(i64, Value)>>,
    stable: Vec<i64>,
}

impl Checker {
    pub fn new(slots: usize, partitions: usize) -> Self {
        Self { slots, seen: vec![BTreeSet::new(); partitions], stable: vec![0; partitions] }
    }

    /// After a loss of power the end of a log may be gone; what was read of it stays read.
    pub fn crashed(&mut self, power: bool) {
        if power {
            self.stable.fill(0);
        }
    }

    /// A reader of committed records looks at every partition.
    pub fn read(&mut self, broker: &Broker) -> Result<(), String> {
        if !broker.up {
            return Ok(());
        }
        for (index, (seen, stable)) in self.seen.iter_mut().zip(&mut self.stable).enumerate() {
            let partition = &broker.partitions[index];
            let now = partition.last_stable();
            if now < *stable {
                return Err(format!("the last stable offset of partition {index} went from {stable} back to {now}"));
            }
            *stable = now;
            seen.extend(partition.committed());
        }
        Ok(())
    }

    /// The run is over and quiet.
    pub fn finish(&mut self, broker: &Broker, attempts: &[Attempt]) -> Result<(), String> {
        broker.check_replay()?;
        self.read(broker)?;
        let last: Vec<Vec<(i64, Value)>> = broker.partitions.iter().take(self.seen.len()).map(|partition| partition.committed()).collect();
        for (index, (seen, last)) in self.seen.iter().zip(&last).enumerate() {
            let last: BTreeSet<_> = last.iter().map(|(_, value)| *value).collect();
            if let Some((offset, value)) = seen.iter().find(|(_, value)| !last.contains(value)) {
                return Err(format!("read from partition {index} at {offset}, and taken back: {value:?}"));
            }
        }
        check_transactions(attempts, &last)?;
        self.check_copies(broker, &last)
    }

    /// Every input is there once, in its order, and the groups know it.
    fn check_copies(&self, broker: &Broker, last: &[Vec<(i64, Value)>]) -> Result<(), String> {
        let mut copies: BTreeMap<(usize, i64), usize> = BTreeMap::new();
        for (index, values) in last.iter().enumerate() {
            let mut newest = vec![-1; self.slots];
            for (offset, value) in values {
                *copies.entry((value.slot, value.index)).or_default() += 1;
                if value.index <= newest[value.slot] {
                    return Err(format!("out of order in partition {index} at {offset}: {value:?} after {}", newest[value.slot]));
                }
                newest[value.slot] = value.index;
            }
        }
        for slot in 0..self.slots {
            for input in 0..INPUTS {
                match copies.get(&(slot, input)) {
                    None => return Err(format!("lost: input {input} of application {slot}")),
                    Some(1) => {}
                    Some(n) => return Err(format!("{n} times: input {input} of application {slot}")),
                }
            }
            if broker.committed_offset(slot) != Ok(Answer::Offset(INPUTS)) {
                return Err(format!("the group of application {slot} stands at {:?}", broker.committed_offset(slot)));
            }
        }
        Ok(())
    }
}

/// Each transaction is there as a whole or not at all, as its client was told.
fn check_transactions(attempts: &[Attempt], last: &[Vec<(i64, Value)>]) -> Result<(), String> {
    let mut visible: BTreeMap<u32, usize> = BTreeMap::new();
    last.iter().flatten().for_each(|(_, value)| *visible.entry(value.attempt).or_default() += 1);
    for (attempt, index) in attempts.iter().zip(0..) {
        let (there, all) = (visible.get(&index).copied().unwrap_or(0), attempt.values.len());
        let fits = match attempt.fate {
            Fate::Committed => there == all,
            Fate::Aborted => there == 0,
            Fate::Unknown => there == 0 || there == all,
        };
        if !fits {
            return Err(format!("of {all} records {there} are there: {attempt:?}"));
        }
    }
    Ok(())
}
