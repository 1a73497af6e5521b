//! What is printed against what is documented, and what hostile nodes can do to it.

use crate::catalogue::{CATALOGUE, Kind, NAME, NODE, UP, VALUES_MAX};
use crate::source::Answer;
use crate::text;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use wire::control::{Bucket, Failure, Metrics, Spans};
use wire::ids::NodeId;

fn answer(node: u32, metrics: Metrics) -> Answer {
    let name = metrics.name.clone();
    Answer { node: NodeId(node), name, metrics: Ok(Box::new(metrics)) }
}

/// One that has a sample of everything.
fn full() -> Metrics {
    let mut metrics = Metrics { name: Some("delta".into()), ..Metrics::default() };
    metrics.version = "0.1.0".into();
    metrics.counts.moved.insert("user".into(), 2);
    metrics.counts.moved.insert("balance".into(), 1);
    metrics.counts.stayed = 4;
    for freeze_s in [0.004, 0.0041, 0.5] {
        metrics.counts.freezes.add(freeze_s);
    }
    metrics.nodes.insert("alive".into(), 3);
    metrics.daemon.cpu_s = 1.25;
    metrics
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As it is printed.
fn printed(name: &str, kind: Kind) -> String {
    if kind == Kind::Counter { format!("{name}_total") } else { name.to_owned() }
}

/// All that the table of `docs/metrics.md` says: name, type, labels beside those of the node.
fn documented() -> BTreeSet<(String, String, String)> {
    let page = repository("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `osmos_"));
    rows.map(|row| {
        let fields: Vec<&str> = row.split('|').map(str::trim).collect();
        let word = |text: &str| text.trim_matches('`').to_owned();
        (word(fields[1]), fields[2].to_owned(), word(fields[4]))
    })
    .collect()
}

#[test]
fn the_page_has_each_metric_with_its_type_and_labels_and_no_other() {
    let up = (UP.to_owned(), "gauge".to_owned(), String::new());
    let known = CATALOGUE.iter().map(|of| {
        (printed(of.name, of.kind), of.kind.word().to_owned(), of.label.unwrap_or("").to_owned())
    });
    assert_eq!(documented(), known.chain([up]).collect());
    for row in repository("docs/metrics.md").lines().filter(|line| line.starts_with("| `osmos_")) {
        let unit = row.split('|').nth(3).expect("a unit").trim();
        let is_named = ["seconds", "bytes", "ratio"].contains(&unit);
        assert!(!is_named || row.contains(&format!("_{unit}")), "a name has its unit: {row}");
    }
}

#[test]
fn what_is_printed_is_what_is_documented() {
    let text = text(&vec![answer(2, full())]);
    let types: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let expected = documented();
    assert_eq!(types.len(), expected.len());
    for (name, kind, label) in &expected {
        assert_eq!(types.get(name.as_str()), Some(&kind.as_str()), "{name}");
        let suffix = if kind == "histogram" { "_count" } else { "" };
        let beginning = format!("{name}{suffix}{{");
        let sample = text.lines().find(|line| line.starts_with(&beginning));
        let sample = sample.unwrap_or_else(|| panic!("no {name}"));
        assert!(sample.contains(&format!("{NODE}=\"2\",{NAME}=\"delta\"")), "{sample}");
        assert!(label.is_empty() || sample.contains(&format!(",{label}=\"")), "{sample}");
    }
}

#[test]
fn counters_and_histograms_have_the_values_that_were_counted() {
    let text = text(&vec![answer(2, full())]);
    let has = |line: &str| assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    has("osmos_moves_total{node=\"2\",name=\"delta\",outcome=\"moved\"} 3");
    has("osmos_moves_total{node=\"2\",name=\"delta\",outcome=\"stayed\"} 4");
    has("osmos_moves_done_total{node=\"2\",name=\"delta\",cause=\"user\"} 2");
    has("osmos_daemon_cpu_seconds_total{node=\"2\",name=\"delta\"} 1.25");
    // Cumulative, as the format has it.
    let bucket = |le: &str| {
        format!("osmos_move_freeze_seconds_bucket{{node=\"2\",name=\"delta\",le=\"{le}\"}}")
    };
    has(&format!("{} 0", bucket("0.002")));
    has(&format!("{} 2", bucket("0.02")));
    has(&format!("{} 3", bucket("+Inf")));
    has("osmos_move_freeze_seconds_count{node=\"2\",name=\"delta\"} 3");
}

#[test]
fn a_node_that_does_not_answer_is_down_and_the_others_are_there() {
    let failure = Failure { code: "unreachable".into(), text: "node 3".into() };
    let silent = Answer { node: NodeId(3), name: None, metrics: Err(failure) };
    let text = text(&vec![answer(2, full()), silent]);
    assert!(text.contains("osmos_up{node=\"2\",name=\"delta\"} 1\n"), "{text}");
    assert!(text.contains("osmos_up{node=\"3\",name=\"\"} 0\n"), "{text}");
    let of_three = text.lines().filter(|line| line.contains("node=\"3\""));
    assert_eq!(of_three.count(), 1);
}

#[test]
fn what_a_hostile_node_says_makes_neither_lines_nor_endless_series() {
    let mut metrics = full();
    metrics.name = Some("a\"} 1\nb\x1b[2J\\".repeat(1_000));
    for number in 0..10_000 {
        metrics.counts.moved.insert(format!("cause {number}"), u64::MAX);
        metrics.nodes.insert(format!("status {number}"), 1);
    }
    let bucket = |up_to_s| Bucket { up_to_s, count: u64::MAX };
    let buckets = vec![bucket(f64::NAN), bucket(2.0), bucket(1.0), bucket(f64::INFINITY)];
    metrics.counts.freezes = Spans { sum_s: f64::NAN, buckets, longer: u64::MAX };
    metrics.load = f64::INFINITY;
    let text = text(&vec![answer(2, metrics)]);
    assert!(text.lines().count() < 8 * VALUES_MAX, "{}", text.lines().count());
    assert!(text.lines().all(|line| line.len() < 400 && !line.contains('\x1b')));
    let is_ours = |line: &str| line.starts_with("# ") || line.starts_with("osmos_");
    assert!(text.lines().all(is_ours), "{text}");
}

/// The names that a text of PromQL has: what is a word and begins as ours do.
fn queried(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("osmos_"))
}

#[test]
fn the_dashboard_asks_only_for_metrics_that_there_are() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&repository("docs/grafana-dashboard.json")).expect("JSON");
    let mut known = BTreeSet::new();
    for (name, kind, _) in documented() {
        let suffixes: &[&str] =
            if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        known.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let targets = panel["targets"].as_array().expect("a panel asks for something");
        for target in targets {
            let expression = target["expr"].as_str().expect("a query");
            let names: Vec<&str> = queried(expression).collect();
            assert!(!names.is_empty(), "{expression}");
            asked.extend(names.into_iter().map(str::to_owned));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        asked.extend(queried(&variable["query"].to_string()).map(str::to_owned));
    }
    let unknown: Vec<&String> = asked.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(asked.len() > 10, "{asked:?}");
}
