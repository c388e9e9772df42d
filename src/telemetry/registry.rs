//! Where counters, gauges and histograms that are moved by events live: one recorder of the `metrics` family, asked by typed
//! constants only. Never global: whoever needs a handle is given the registry.

use super::names::{self, Kind, Metric};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::Arc;

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Hands out handles and renders what they counted. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl Registry {
    /// A registry that knows all of [`names::ALL`]. Fails only if a histogram in that list has no buckets.
    pub fn new() -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for metric in names::ALL {
            if let Kind::Histogram(buckets) = metric.kind {
                builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)?;
            }
        }
        let recorder = builder.build_recorder();
        for metric in names::ALL {
            let name = KeyName::from_const_str(metric.name);
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, metric.help.into()),
                Kind::Gauge => recorder.describe_gauge(name, None, metric.help.into()),
                Kind::Histogram(_) => recorder.describe_histogram(name, None, metric.help.into()),
            }
        }
        let handle = recorder.handle();
        Ok(Self { recorder: Arc::new(recorder), handle })
    }

    /// The counter with these label values; take it once and keep it.
    pub fn counter(&self, metric: &Metric, labels: &[&'static str]) -> Counter {
        debug_assert_eq!(metric.kind, Kind::Counter, "{}", metric.name);
        self.recorder.register_counter(&key(metric, labels), &METADATA)
    }

    /// The gauge with these label values; take it once and keep it.
    pub fn gauge(&self, metric: &Metric, labels: &[&'static str]) -> Gauge {
        debug_assert_eq!(metric.kind, Kind::Gauge, "{}", metric.name);
        self.recorder.register_gauge(&key(metric, labels), &METADATA)
    }

    /// The histogram with these label values; take it once and keep it.
    pub fn histogram(&self, metric: &Metric, labels: &[&'static str]) -> Histogram {
        debug_assert!(matches!(metric.kind, Kind::Histogram(_)), "{}", metric.name);
        self.recorder.register_histogram(&key(metric, labels), &METADATA)
    }

    /// Moves histograms' samples into their buckets. Samples take memory until
    /// then (8 bytes each), so whoever records them calls it every so often; a scrape does it too.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// All series that have a handle, as Prometheus text.
    pub fn render(&self) -> String {
        self.handle.render()
    }
}

fn key(metric: &Metric, labels: &[&'static str]) -> Key {
    debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
    Key::from_parts(
        metric.name,
        metric.labels.iter().zip(labels).map(|(name, value)| Label::from_static_parts(name, value)).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_histograms_with_their_buckets() {
        let registry = Registry::new().unwrap();
        registry.histogram(&names::REQUEST_DURATION, &["Produce"]).record(0.0003);
        registry.run_upkeep();
        let text = registry.render();
        assert!(text.contains("# TYPE highwater_request_duration_seconds histogram"), "{text}");
        assert!(text.contains("highwater_request_duration_seconds_bucket{api=\"Produce\",le=\"0.00025\"} 0"), "{text}");
        assert!(text.contains("highwater_request_duration_seconds_bucket{api=\"Produce\",le=\"0.0005\"} 1"), "{text}");
        assert!(text.contains("highwater_request_duration_seconds_count{api=\"Produce\"} 1"), "{text}");
        assert!(text.contains("# HELP highwater_request_duration_seconds Time from"), "{text}");
    }
}
