//! Answers as text in Prometheus' exposition format, version 0.0.4: what both a scrape and
//! node_exporter's collector of text files read.
//!
//! The library writes the format; here only what each sample is. What nodes say may be hostile:
//! label values are cut and have no control characters, and there are no more of them than
//! [`VALUES_MAX`].

use crate::catalogue::{CATALOGUE, Described, Kind, NAME, NODE, UP, UP_HELP, VALUES_MAX, Value};
use crate::source::{Answer, Answers};
use client::words::printable;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use wire::control::Spans;

pub use prometheus_text::CONTENT_TYPE;

/// Longer values of labels are cut.
const VALUE_CHARS_MAX: usize = 64;

type Labels = Vec<(&'static str, String)>;

/// All answers as text.
pub fn text(answers: &Answers) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Told(answers.clone())));
    let mut text = String::new();
    // Only the writer can fail, and a string does not.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Told(Answers);

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut up = encoder.encode_descriptor(UP, UP_HELP, None, MetricType::Gauge)?;
        for answer in &self.0 {
            let is_up = i64::from(answer.metrics.is_ok());
            ConstGauge::new(is_up).encode(up.encode_family(&labels(answer))?)?;
        }
        CATALOGUE.iter().try_for_each(|described| self.describe(described, &mut encoder))
    }
}

impl Told {
    fn describe(&self, of: &Described, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let kind = match of.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(of.name, of.help, None, kind)?;
        for answer in &self.0 {
            let Ok(metrics) = &answer.metrics else { continue };
            for sample in (of.read)(metrics) {
                let mut labels = labels(answer);
                labels.extend(of.label.map(|label| (label, value(sample.of))));
                encode(of.kind, sample.value, metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(kind: Kind, value: Value, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
    match (kind, value) {
        (Kind::Counter, Value::Whole(value)) => ConstCounter::new(value).encode(encoder),
        (Kind::Counter, Value::Real(value)) => ConstCounter::new(value).encode(encoder),
        (_, Value::Whole(value)) => ConstGauge::new(value as f64).encode(encoder),
        (_, Value::Real(value)) => ConstGauge::new(value).encode(encoder),
        (_, Value::Spans(spans)) => {
            let buckets = buckets(spans);
            let count = buckets.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
            encoder.encode_histogram::<NoLabelSet>(spans.sum_s, count, &buckets, None)
        }
    }
}

/// With rising bounds, the last of them infinite, and a sum of counts that is a number.
fn buckets(spans: &Spans) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    let mut rest = u64::MAX;
    for bucket in spans.buckets.iter().take(VALUES_MAX) {
        let bound = bucket.up_to_s;
        if bound.is_finite() && buckets.last().is_none_or(|(last, _)| *last < bound) {
            let count = bucket.count.min(rest);
            rest -= count;
            buckets.push((bound, count));
        }
    }
    buckets.push((f64::INFINITY, spans.longer.min(rest)));
    buckets
}

fn labels(answer: &Answer) -> Labels {
    let name = answer.name.as_deref().unwrap_or_default();
    vec![(NODE, answer.node.to_string()), (NAME, value(name))]
}

fn value(text: &str) -> String {
    printable(text).chars().take(VALUE_CHARS_MAX).collect()
}
