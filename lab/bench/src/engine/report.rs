//! All figures of one run, and the machine that they are true of.

use crate::engine::figure::Figure;
use crate::provenance::Machine;
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub benches: Vec<Results>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub bench: &'static str,
    pub figures: Vec<Figure>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// A machine that did this much else is no good for figures.
const LOAD_MAX: f64 = 0.5;

impl Report {
    pub fn begin() -> Report {
        Report { machine: Machine::probe(), benches: Vec::new() }
    }

    pub fn add(&mut self, bench: &'static str, figures: Vec<Figure>) {
        self.benches.push(Results { bench, figures, skipped: None });
    }

    pub fn skip(&mut self, bench: &'static str, why: String) {
        self.benches.push(Results { bench, figures: vec![], skipped: Some(why) });
    }

    /// Whether every promise was kept.
    pub fn is_success(&self) -> bool {
        let mut figures = self.benches.iter().flat_map(|results| &results.figures);
        figures.all(|figure| figure.target.as_ref().is_none_or(|target| target.is_met))
    }

    pub fn json(&self) -> String {
        // Plain structures of text and finite numbers.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let machine = &self.machine;
        let _ = writeln!(text, "{}", machine.name());
        if machine.load_before > LOAD_MAX {
            let _ = writeln!(
                text,
                "warning: the machine was busy before (load {}): take no figure for final",
                machine.load_before
            );
        }
        for results in &self.benches {
            let _ = writeln!(text, "\n{}", results.bench);
            if let Some(why) = &results.skipped {
                let _ = writeln!(text, "  skipped: {why}");
            }
            for figure in &results.figures {
                text.push_str(&figure_text(figure));
            }
        }
        text
    }
}

fn figure_text(figure: &Figure) -> String {
    let summary = &figure.summary;
    let mut text = format!(
        "  {:<52} {:>10} {:<4} {:>10} .. {:<10} n={}",
        figure.what,
        number(summary.median),
        figure.unit,
        number(summary.p10),
        number(summary.p90),
        summary.count
    );
    if let Some(floor) = &figure.floor {
        let (low, high) = (number(floor.summary.p10), number(floor.summary.p90));
        let what = format!("floor: {}", floor.what);
        let median = number(floor.summary.median);
        let unit = figure.unit;
        let _ = write!(text, "\n      {what:<48} {median:>10} {unit:<4} {low:>10} .. {high:<10}");
    }
    if let Some(ratio) = &figure.ratio {
        let interval = ratio.interval.map_or_else(String::new, |(low, high)| {
            format!("{low:>10.4} .. {high:<10.4} 95 % sure")
        });
        let _ =
            write!(text, "\n      {:<48} {:>10.4} {:<4} {interval}", "ratio", ratio.median, "x");
    }
    if let Some(target) = &figure.target {
        let verdict = if target.is_met { "met" } else { "MISSED" };
        let _ = write!(text, "\n      {:<48} {:>10}", format!("target: {}", target.text), verdict);
    }
    if let Some(note) = &figure.note {
        let _ = write!(text, "\n      {note}");
    }
    text.push('\n');
    text
}

/// Four digits that count, or whole numbers as they are.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || (v.fract() == 0.0 && v != 0.0) => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::engine::statistics::Samples;

    #[test]
    fn numbers_show_what_counts() {
        let shown = [123_456.7, 123.456, 12.3456, 1.23456, 0.012345, 5.0, 0.0].map(number);
        assert_eq!(shown, ["123457", "123.5", "12.35", "1.235", "0.0123", "5", "0.0000"]);
    }

    #[test]
    fn what_was_skipped_is_told_and_breaks_no_promise() {
        let mut report = Report::begin();
        report.skip("first", "no room".to_owned());
        assert!(report.is_success());
        assert!(report.text().contains("first\n  skipped: no room\n"), "{}", report.text());
        assert!(report.json().contains(r#""skipped": "no room""#), "{}", report.json());
    }

    #[test]
    fn one_broken_promise_is_told_and_counts() {
        let samples = Samples::new([1.0, 2.0, 3.0]).unwrap();
        let mut report = Report::begin();
        report.add("first", vec![Figure::new("kept", "ms", &samples).at_most(2.0)]);
        assert!(report.is_success());
        report.add("second", vec![Figure::new("broken", "ms", &samples).at_most(1.0)]);
        assert!(!report.is_success());
        let text = report.text();
        assert!(text.contains("broken") && text.contains("MISSED"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["benches"][1]["figures"][0]["target"]["is_met"], false);
        assert_eq!(json["benches"][0]["figures"][0]["median"], 2.0);
    }
}
