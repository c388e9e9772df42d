//! The writer of Prometheus' text format (0.0.4) for what is read at scrape time. It escapes what has to be, writes HELP and TYPE
//! once before a family's first sample, and leaves a family without samples out.

use super::names::Metric;
use crate::types::Millis;
use std::fmt::Write;

/// The content type of [`Exposition::finish`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text that grows family by family.
#[derive(Default)]
pub struct Exposition {
    text: String,
    written: Vec<&'static str>,
    later: Vec<Box<dyn Later>>,
}

/// Families of so many series that their text is not held: it is written bit by bit, as it is sent. What it is written of was read off before.
pub trait Later: Send {
    /// Goes on until the text has `bytes` or more, or there is nothing left.
    fn write(&mut self, text: &mut String, bytes: usize);
}

impl Exposition {
    /// Continues a text that other families already stand in.
    pub fn after(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// Opens a family: all its samples have to be written before the next one is opened, and none is opened twice.
    pub fn family<'a>(&'a mut self, metric: &'a Metric) -> Family<'a> {
        debug_assert!(!self.written.contains(&metric.name), "{} is written twice", metric.name);
        Family { exposition: self, metric, started: false }
    }

    /// A family of one sample.
    pub fn single(&mut self, metric: &Metric, labels: &[&str], value: impl Value) {
        self.family(metric).sample(labels, value);
    }

    /// These families come last. They open by [`write_head`].
    pub fn later(&mut self, families: impl Later + 'static) {
        self.later.push(Box::new(families));
    }

    /// The text so far, and what comes after it.
    pub fn into_parts(self) -> (String, Vec<Box<dyn Later>>) {
        (self.text, self.later)
    }

    /// All of the text.
    pub fn finish(self) -> String {
        let (mut text, mut later) = self.into_parts();
        later.iter_mut().for_each(|families| families.write(&mut text, usize::MAX));
        text
    }
}

/// A family being written.
pub struct Family<'a> {
    exposition: &'a mut Exposition,
    metric: &'a Metric,
    started: bool,
}

impl Family<'_> {
    /// The same with labels that were rendered before ([`Labels`]): they are the metric's.
    pub fn labelled(&mut self, labels: &Labels, value: impl Value) {
        self.begin();
        let text = &mut self.exposition.text;
        text.push_str(self.metric.name);
        text.push_str(&labels.0);
        text.push(' ');
        value.write_to(text);
        text.push('\n');
    }

    fn begin(&mut self) {
        if self.started {
            return;
        }
        self.started = true;
        self.exposition.written.push(self.metric.name);
        write_head(&mut self.exposition.text, self.metric);
    }

    /// Writes one series' value; `labels` are the values of the metric's labels in order.
    pub fn sample(&mut self, labels: &[&str], value: impl Value) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.begin();
        let text = &mut self.exposition.text;
        text.push_str(self.metric.name);
        write_labels(text, self.metric.labels, labels);
        text.push(' ');
        value.write_to(text);
        text.push('\n');
    }
}

/// What stands before a family's first sample.
pub fn write_head(text: &mut String, metric: &Metric) {
    let _ = write!(text, "# HELP {} ", metric.name);
    escape(text, metric.help, false);
    let _ = writeln!(text, "\n# TYPE {} {}", metric.name, metric.kind.name());
}

/// A sample of which only the last label is the series' own, and a number.
pub fn write_numbered(text: &mut String, metric: &Metric, labels: &CommonLabels, last: i32, value: &impl Value) {
    text.push_str(metric.name);
    text.push_str(&labels.0);
    last.write_to(text);
    text.push_str("\"} ");
    value.write_to(text);
    text.push('\n');
}

/// Labels of a series, rendered once for the many families that have them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labels(String);

impl Labels {
    /// `values` are those of the metric's labels in order.
    pub fn of(metric: &Metric, values: &[&str]) -> Self {
        debug_assert_eq!(values.len(), metric.labels.len(), "{}", metric.name);
        let mut text = String::new();
        write_labels(&mut text, metric.labels, values);
        Self(text)
    }
}

/// All labels but the last, of series that have them in common: rendered once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommonLabels(String);

impl CommonLabels {
    /// `values` are those of the metric's labels in order, without the last.
    pub fn of(metric: &Metric, values: &[&str]) -> Self {
        debug_assert_eq!(values.len().saturating_add(1), metric.labels.len(), "{}", metric.name);
        let mut text = String::new();
        write_pairs(&mut text, metric.labels, values);
        text.push(if values.is_empty() { '{' } else { ',' });
        metric.labels.last().iter().for_each(|name| text.push_str(name));
        text.push_str("=\"");
        Self(text)
    }
}

fn write_labels(text: &mut String, names: &[&str], values: &[&str]) {
    write_pairs(text, names, values);
    if !names.is_empty() {
        text.push('}');
    }
}

fn write_pairs(text: &mut String, names: &[&str], values: &[&str]) {
    for (i, (name, value)) in names.iter().zip(values).enumerate() {
        text.push(if i == 0 { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        escape(text, value, true);
        text.push('"');
    }
}

/// A sample's number.
pub trait Value {
    fn write_to(&self, text: &mut String);
}

/// Hundreds of thousands of them are written for one scrape: the formatting of `std` would take most of its time.
macro_rules! integers {
    ($($of:ty),*) => {$(
        impl Value for $of {
            fn write_to(&self, text: &mut String) {
                text.push_str(itoa::Buffer::new().format(*self));
            }
        }
    )*};
}

integers!(u64, i64, i32);

/// In seconds.
impl Value for Millis {
    fn write_to(&self, text: &mut String) {
        if self.0 < 0 {
            return (self.0 as f64 / 1_000.0).write_to(text);
        }
        (self.0 / 1_000).write_to(text);
        let part = self.0 % 1_000;
        if part > 0 {
            let digits = [b'.', digit(part / 100), digit(part / 10), digit(part)];
            let kept = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(0);
            digits.iter().take(kept.saturating_add(1)).for_each(|digit| text.push(char::from(*digit)));
        }
    }
}

/// The last decimal digit.
fn digit(number: i64) -> u8 {
    b'0'.saturating_add(u8::try_from(number % 10).unwrap_or(0))
}

impl Value for f64 {
    /// Prometheus spells infinities with their sign.
    fn write_to(&self, text: &mut String) {
        if self.is_nan() {
            text.push_str("NaN");
        } else if self.is_infinite() {
            text.push_str(if *self > 0.0 { "+Inf" } else { "-Inf" });
        } else {
            let _ = write!(text, "{self}");
        }
    }
}

/// Backslash and newline everywhere, the quote in label values.
fn escape(text: &mut String, value: &str, quotes: bool) {
    if !value.contains(['\\', '\n', '"']) {
        text.push_str(value);
        return;
    }
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::names::Kind;

    const ODD: Metric = Metric { name: "odd_bytes", kind: Kind::Gauge, labels: &["a", "b"], help: "Back\\slash and \"quotes\"\nand lines" };
    const PLAIN: Metric = Metric { name: "plain", kind: Kind::Gauge, labels: &[], help: "Plain" };

    #[test]
    fn escapes_labels_and_help() {
        let mut out = Exposition::default();
        out.single(&ODD, &["x\"y\\z\n", "é"], 1u64);
        let expected = "# HELP odd_bytes Back\\\\slash and \"quotes\"\\nand lines\n# TYPE odd_bytes gauge\nodd_bytes{a=\"x\\\"y\\\\z\\n\",b=\"é\"} 1\n";
        assert_eq!(out.finish(), expected);
    }

    #[test]
    fn the_head_stands_once_and_only_before_samples() {
        let mut out = Exposition::after("before 1\n".into());
        out.family(&ODD);
        let mut family = out.family(&PLAIN);
        family.sample(&[], -3i64);
        family.sample(&[], 0.5);
        family.sample(&[], f64::INFINITY);
        family.sample(&[], f64::NAN);
        assert_eq!(out.finish(), "before 1\n# HELP plain Plain\n# TYPE plain gauge\nplain -3\nplain 0.5\nplain +Inf\nplain NaN\n");
    }

    #[test]
    #[should_panic(expected = "plain is written twice")]
    fn a_family_is_not_written_twice() {
        let mut out = Exposition::default();
        out.single(&PLAIN, &[], 1u64);
        out.single(&PLAIN, &[], 2u64);
    }

    #[test]
    fn what_series_have_in_common_is_rendered_once() {
        let mut text = String::new();
        let labels = CommonLabels::of(&ODD, &["x\"y"]);
        write_numbered(&mut text, &ODD, &labels, 7, &-3_i64);
        write_numbered(&mut text, &ODD, &labels, 0, &1_u64);
        assert_eq!(text, "odd_bytes{a=\"x\\\"y\",b=\"7\"} -3\nodd_bytes{a=\"x\\\"y\",b=\"0\"} 1\n");
        assert_eq!(CommonLabels::of(&Metric { labels: &["b"], ..PLAIN }, &[]).0, "{b=\"");
    }

    proptest::proptest! {
        #[test]
        fn milliseconds_are_written_as_the_number_of_seconds_is(ms in proptest::prop_oneof![-5_000..5_000_i64, 0..4_000_000_000_000_i64]) {
            let (mut ours, mut plain) = (String::new(), String::new());
            Millis(ms).write_to(&mut ours);
            (ms as f64 / 1_000.0).write_to(&mut plain);
            proptest::prop_assert_eq!(ours, plain);
        }

        #[test]
        fn any_label_value_stays_on_its_line_and_reads_back(value in ".*") {
            let mut out = Exposition::default();
            out.single(&Metric { labels: &["v"], ..PLAIN }, &[&value], 1u64);
            let text = out.finish();
            let line = text.split('\n').nth(2).unwrap();
            let escaped = line.strip_prefix("plain{v=\"").and_then(|rest| rest.strip_suffix("\"} 1")).unwrap();
            let (mut back, mut chars) = (String::new(), escaped.chars());
            while let Some(c) = chars.next() {
                proptest::prop_assert_ne!(c, '"');
                back.push(match c {
                    '\\' => match chars.next().unwrap() { 'n' => '\n', c => c },
                    c => c,
                });
            }
            proptest::prop_assert_eq!(back, value);
        }
    }
}
