//! Joins of tables, by foreign key and with a global one, and results that are held back until their window is over.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use compat_tests::corpus::Record;
use compat_tests::driver::{Client, Codec};
use compat_tests::streams::Application;

use crate::input::{self, Numbers, window};
use crate::{SESSION, broker, make_topics, wait_until};

pub const TOPICS: [&str; 3] = ["customers", "orders", "items"];
pub const OUTPUTS: [&str; 3] = ["ordered", "named", "last"];
const CUSTOMERS: u64 = 7;
const ITEMS: u64 = 5;
const ORDERS: u64 = 40;
/// Orders that are placed, changed or deleted.
const CHANGES: usize = 300;
const STEP_MS: i64 = 150;
/// Later than the others by more than the windows' grace (`Streams.GRACE`), and less than an hour ahead of the clock.
const MUCH_LATER_MS: i64 = 50 * 60 * 1_000;

/// Key, value and time.
type Change = (String, Option<String>, i64);

/// Orders, each CUSTOMER:ITEM or deleted; every fifth change is of a customer's name instead.
fn changes(epoch: i64) -> (Vec<Change>, Vec<Change>) {
    let mut numbers = Numbers::new(11);
    let (mut orders, mut customers) = (Vec::new(), Vec::new());
    for (number, at) in (0..CHANGES).zip((epoch..).step_by(usize::try_from(STEP_MS).unwrap_or(1))) {
        let customer = format!("c{}", numbers.below(CUSTOMERS));
        if number % 5 == 0 {
            customers.push((customer, Some(format!("name{number}")), at));
        } else {
            let order = format!("o{}", numbers.below(ORDERS));
            let value = (numbers.below(8) != 0).then(|| format!("{customer}:i{}", numbers.below(ITEMS)));
            orders.push((order, value, at));
        }
    }
    (orders, customers)
}

fn write(bootstrap: &str, topic: &str, changes: &[Change]) -> Result<()> {
    let record = |(key, value, timestamp): &Change| Record {
        timestamp: Some(*timestamp),
        key: Some(key.clone().into_bytes()),
        value: value.clone().map(String::into_bytes),
        ..Record::default()
    };
    // By the client that Streams itself partitions by.
    Client::Java.produce(bootstrap, topic, Codec::None, &changes.iter().map(record).collect::<Vec<_>>())
}

fn latest(changes: impl IntoIterator<Item = (String, Option<String>)>) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    for (key, value) in changes {
        match value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
    }
    table
}

#[test]
fn joins_of_tables_and_results_of_closed_windows_are_exact() -> Result<()> {
    let mut broker = broker()?;
    make_topics(&broker, &[&TOPICS[..], &OUTPUTS].concat())?;
    let bootstrap = broker.bootstrap();
    let epoch = input::epoch_ms()?;
    let items: Vec<Change> = (0..ITEMS).map(|item| (format!("i{item}"), Some(format!("item{item}")), epoch)).collect();
    write(&bootstrap, "items", &items)?;
    let application = Application::new("tables", "tables", &[("processing.guarantee", "exactly_once_v2"), SESSION])?;
    let instance = application.start(&bootstrap)?;
    instance.wait_until_running()?;

    let (orders, customers) = changes(epoch);
    let (first, rest) = orders.split_at(orders.len() / 2);
    let (known, renamed) = customers.split_at(customers.len() / 2);
    write(&bootstrap, "customers", known)?;
    write(&bootstrap, "orders", first)?;
    broker.kill()?;
    broker.restart()?;
    write(&bootstrap, "customers", renamed)?;
    write(&bootstrap, "orders", rest)?;
    // Before the windows are closed, what belongs into them has to be on its way to them.
    let placed_first = orders.iter().filter(|change| change.1.is_some()).count();
    wait_until("all orders are named", || {
        instance.check()?;
        Ok(input::output(&bootstrap, "named")?.len() >= placed_first)
    })?;
    // Their customers are enough to be in every partition.
    let late: Vec<Change> = (0..16).map(|n| (format!("late{n}"), Some(format!("late{n}:i0")), epoch + MUCH_LATER_MS)).collect();
    write(&bootstrap, "orders", &late)?;

    let all: Vec<&Change> = orders.iter().chain(&late).collect();
    let placed = |change: &&&Change| change.1.as_deref().and_then(|value| value.split_once(':')).map(|(c, i)| (c.to_owned(), i.to_owned()));
    let mut windows: BTreeMap<String, usize> = BTreeMap::new();
    for change in &orders {
        let customer = placed(&&change).map_or_else(|| "none".to_owned(), |(customer, _)| customer);
        *windows.entry(format!("{customer}@{}", window(change.2))).or_default() += 1;
    }
    let mut named: Vec<(String, String)> =
        all.iter().filter_map(|change| Some((change.0.clone(), placed(&change)?.1.replace('i', "item")))).collect();
    let names = latest(customers.iter().map(|(key, value, _)| (key.clone(), value.clone())));
    let ordered: BTreeMap<String, String> = latest(orders.iter().map(|(key, value, _)| (key.clone(), value.clone())))
        .into_iter()
        .filter_map(|(order, value)| Some((order, format!("{value}@{}", names.get(value.split_once(':')?.0)?))))
        .collect();

    let table = || {
        anyhow::Ok(latest(input::output(&bootstrap, "ordered")?.into_iter().map(|(key, value)| (key, (value != "null").then_some(value)))))
    };
    wait_until("all outputs are there", || {
        instance.check()?;
        Ok(input::output(&bootstrap, "named")?.len() >= named.len()
            && input::output(&bootstrap, "last")?.len() >= windows.len()
            && table()? == ordered)
    })
    .with_context(|| instance.tail())?;
    instance.close()?;

    let mut came = input::output(&bootstrap, "named")?;
    came.sort_unstable();
    named.sort_unstable();
    ensure!(came == named, "{} orders got the names of their items, of {}", came.len(), named.len());
    let last = input::output(&bootstrap, "last")?;
    let each: BTreeMap<String, usize> = last.iter().map(|(key, value)| Ok((key.clone(), value.parse()?))).collect::<Result<_>>()?;
    ensure!(each.len() == last.len(), "a closed window has two results: {last:?}");
    let differs = windows.iter().find(|(window, count)| each.get(*window) != Some(count));
    ensure!(each == windows, "{} windows instead of {}; {differs:?} is {:?}", each.len(), windows.len(), differs.map(|d| each.get(d.0)));
    ensure!(table()? == ordered, "{:?}\ninstead of\n{ordered:?}", table()?);
    Ok(())
}
