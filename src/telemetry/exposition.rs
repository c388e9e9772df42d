//! The writer of Prometheus' text format (0.0.4) for what is read at scrape time. It escapes what has to be, writes HELP and TYPE
//! once before a family's first sample, and leaves a family without samples out.

use super::names::Metric;
use std::fmt::{self, Write};

/// The content type of [`Exposition::finish`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text that grows family by family.
#[derive(Default)]
pub struct Exposition {
    text: String,
    written: Vec<&'static str>,
}

impl Exposition {
    /// Continues a text that other families already stand in.
    pub fn after(text: String) -> Self {
        Self { text, written: Vec::new() }
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

    /// The text so far.
    pub fn finish(self) -> String {
        self.text
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
        let _ = value.write_to(text);
        text.push('\n');
    }

    fn begin(&mut self) {
        if self.started {
            return;
        }
        self.started = true;
        self.exposition.written.push(self.metric.name);
        let text = &mut self.exposition.text;
        let _ = write!(text, "# HELP {} ", self.metric.name);
        escape(text, self.metric.help, false);
        let _ = writeln!(text, "\n# TYPE {} {}", self.metric.name, self.metric.kind.name());
    }

    /// Writes one series' value; `labels` are the values of the metric's labels in order.
    pub fn sample(&mut self, labels: &[&str], value: impl Value) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.begin();
        let text = &mut self.exposition.text;
        text.push_str(self.metric.name);
        write_labels(text, self.metric.labels, labels);
        text.push(' ');
        let _ = value.write_to(text);
        text.push('\n');
    }
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

fn write_labels(text: &mut String, names: &[&str], values: &[&str]) {
    for (i, (name, value)) in names.iter().zip(values).enumerate() {
        text.push(if i == 0 { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        escape(text, value, true);
        text.push('"');
    }
    if !names.is_empty() {
        text.push('}');
    }
}

/// A sample's number.
pub trait Value {
    fn write_to(&self, text: &mut String) -> fmt::Result;
}

impl Value for u64 {
    fn write_to(&self, text: &mut String) -> fmt::Result {
        write!(text, "{self}")
    }
}

impl Value for i64 {
    fn write_to(&self, text: &mut String) -> fmt::Result {
        write!(text, "{self}")
    }
}

impl Value for f64 {
    /// Prometheus spells infinities with their sign.
    fn write_to(&self, text: &mut String) -> fmt::Result {
        if self.is_nan() {
            text.write_str("NaN")
        } else if self.is_infinite() {
            text.write_str(if *self > 0.0 { "+Inf" } else { "-Inf" })
        } else {
            write!(text, "{self}")
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

    proptest::proptest! {
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
