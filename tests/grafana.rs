//! Dashboards and alerts ask for metrics that the broker has: every name in their queries stands in `telemetry::names`, with every label
//! that they match, group by or write in a legend.

use highwater::telemetry::names::{self, Kind, Metric};
use regex::Regex;
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

/// Labels that Prometheus adds to every series, and those of a histogram's buckets.
const PROMETHEUS_LABELS: &[&str] = &["instance", "job", "le"];
/// Series that Prometheus makes itself.
const PROMETHEUS_SERIES: &[&str] = &["up"];

/// A query, with the legend that is written from its labels.
struct Query {
    place: String,
    expr: String,
    legend: String,
}

fn grafana(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dashboards() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana/dashboards");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|name| name.ends_with(".json")).collect();
    files.sort();
    files.into_iter().map(|name| (name.clone(), serde_json::from_str(&grafana(&format!("dashboards/{name}"))).unwrap())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The queries of a dashboard's panels, and of what its variables offer.
fn queries_of(name: &str, dashboard: &Value) -> Vec<Query> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let place = format!("{name}: {}", text(&panel["title"]));
            found.push(Query { place, expr: text(&target["expr"]), legend: text(&target["legendFormat"]) });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let place = format!("{name}: ${}", text(&variable["name"]));
            found.push(Query { place, expr: text(&variable["query"]["query"]), legend: String::new() });
        }
    }
    found
}

/// The queries of the alert rules: what stands behind `expr:`, on its line or indented below it.
fn queries_of_alerts() -> Vec<Query> {
    let (mut found, mut alert, mut inside) = (Vec::<Query>::new(), String::new(), None);
    for line in grafana("prometheus/alerts.yml").lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(name) = line.strip_prefix("- alert: ") {
            alert = name.to_owned();
        }
        if let Some(expr) = line.strip_prefix("expr: ") {
            inside = Some(indent);
            found.push(Query { place: format!("alert {alert}"), expr: expr.trim_start_matches('|').to_owned(), legend: String::new() });
        } else if inside.is_some_and(|at| indent > at) {
            let query = found.last_mut().unwrap();
            query.expr.push(' ');
            query.expr.push_str(line);
        } else {
            inside = None;
        }
    }
    found
}

fn queries() -> Vec<Query> {
    let mut all: Vec<Query> = dashboards().iter().flat_map(|(name, dashboard)| queries_of(name, dashboard)).collect();
    all.extend(queries_of_alerts());
    all
}

/// The metric of a series: of a histogram there are three.
fn metric(series: &str) -> Option<&'static Metric> {
    names::ALL.iter().copied().find(|metric| {
        let histogram = matches!(metric.kind, Kind::Histogram(_));
        let part = series.strip_prefix(metric.name).filter(|part| ["_bucket", "_sum", "_count"].contains(part));
        if histogram { part.is_some() } else { series == metric.name }
    })
}

/// What is wrong with a query.
fn faults(query: &Query) -> Vec<String> {
    let strings = Regex::new(r#""[^"]*""#).unwrap();
    let series = Regex::new(r"\b(?:highwater|kafka|process)_[a-z0-9_]+").unwrap();
    let matchers = Regex::new(r"([a-z0-9_]+)\{([^}]*)\}").unwrap();
    let lists = Regex::new(r"\b(?:by|without|on|ignoring|group_left|group_right) \(([^)]*)\)").unwrap();
    let legends = Regex::new(r"\{\{ *([a-z_]+) *\}\}").unwrap();
    let expr = strings.replace_all(&query.expr, "''").into_owned();
    let mut faults = Vec::new();
    let mut labels: BTreeSet<&str> = PROMETHEUS_LABELS.iter().copied().collect();
    let mut series_found = 0;
    for name in series.find_iter(&expr) {
        series_found += 1;
        match metric(name.as_str()) {
            Some(metric) => labels.extend(metric.labels),
            None => faults.push(format!("no metric {}", name.as_str())),
        }
    }
    if series_found == 0 && !PROMETHEUS_SERIES.iter().any(|series| expr.contains(series)) {
        faults.push("it asks for no metric".to_owned());
    }
    for found in matchers.captures_iter(&expr) {
        let own = metric(&found[1]).map(|metric| metric.labels).unwrap_or_default();
        for matcher in found[2].split(',').filter(|matcher| !matcher.trim().is_empty()) {
            let label = matcher.trim().trim_end_matches("''").trim_end_matches(['=', '~', '!']).trim();
            if !own.contains(&label) && !PROMETHEUS_LABELS.contains(&label) {
                faults.push(format!("{} has no label {label}", &found[1]));
            }
        }
    }
    let listed = lists.captures_iter(&expr).flat_map(|found| found[1].split(',').map(|label| label.trim().to_owned()).collect::<Vec<_>>());
    let written = legends.captures_iter(&query.legend).map(|found| found[1].to_owned());
    for label in listed.chain(written).filter(|label| !label.is_empty()) {
        if !labels.contains(label.as_str()) {
            faults.push(format!("no metric of it has a label {label}"));
        }
    }
    faults
}

#[test]
fn queries_ask_for_metrics_that_there_are() {
    let queries = queries();
    assert!(queries.len() > 60, "only {} queries were found", queries.len());
    let faults: Vec<String> = queries
        .iter()
        .flat_map(|query| faults(query).into_iter().map(|fault| format!("{}: {fault}: {}", query.place, query.expr)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_alert_has_its_query() {
    let rules = grafana("prometheus/alerts.yml").matches("- alert: ").count();
    let found = queries_of_alerts();
    assert_eq!(found.len(), rules);
    assert!(found.iter().all(|query| query.expr.contains('>') || query.expr.contains('<') || query.expr.contains("== 0")));
    let tested = grafana("prometheus/alerts_test.yml");
    for query in found {
        let name = query.place.trim_start_matches("alert ");
        let tests: Vec<&str> = tested.split("alertname: ").skip(1).filter(|test| test.lines().next() == Some(name)).collect();
        let fires = |test: &&&str| test.lines().nth(1).is_some_and(|line| line.trim() == "exp_alerts:");
        assert!(tests.iter().any(|test| fires(&test)) && tests.iter().any(|test| !fires(&test)), "{name} isn't tested both ways");
    }
}

#[test]
fn dashboards_are_whole() {
    for (file, dashboard) in dashboards() {
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{file}: an id twice");
        assert!(dashboard["uid"].as_str().is_some_and(|uid| uid.starts_with("highwater-")), "{file}");
        let mut taken = BTreeSet::new();
        for panel in panels {
            let title = text(&panel["title"]);
            assert!(!title.is_empty(), "{file}: a panel without a title");
            let at = |side: &str| panel["gridPos"][side].as_i64().unwrap();
            assert!(at("x") + at("w") <= 24, "{file}: {title} is too wide");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{file}: {title} lies over another panel");
                }
            }
            if panel["type"] == "row" {
                continue;
            }
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file}: {title}");
            assert!(
                !panel["fieldConfig"]["defaults"]["unit"].is_null() || panel["type"] == "table" || panel["type"] == "state-timeline",
                "{file}: {title} has no unit"
            );
        }
    }
}

#[test]
fn a_wrong_query_is_found() {
    let wrong = |expr: &str, legend: &str| faults(&Query { place: String::new(), expr: expr.into(), legend: legend.into() });
    let clean: [String; 0] = [];
    assert_eq!(wrong("sum by (api) (rate(highwater_requests_total{error!=\"NONE\"}[5m]))", "{{api}}"), clean);
    assert_eq!(wrong("rate(highwater_request_duration_seconds_bucket{le=\"1\"}[5m])", "{{instance}}"), clean);
    for (expr, legend) in [
        ("highwater_requests", ""),
        ("highwater_requests_total{topic=\"x\"}", ""),
        ("sum by (topic) (highwater_requests_total)", ""),
        ("highwater_requests_total", "{{topic}}"),
        ("highwater_request_duration_seconds", ""),
        ("vector(0)", ""),
    ] {
        assert_eq!(wrong(expr, legend).len(), 1, "{expr} {legend}");
    }
}
