//! What the demo found, as the table of the tutorial and as JSON.
//!
//! Nothing here is known beforehand: the ideal of each row comes from the times measured in the
//! same demo, and a figure that cannot be had is missing, not guessed.

use serde::Serialize;
use std::fmt::Write as _;

/// Everything one demo measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub nodes: Vec<NodeSpeed>,
    /// What this machine could not give the lab, and programs that it has not.
    pub missing: Vec<String>,
    pub awk: Option<Row>,
    /// The encoding command, without its file; none if nothing here encodes.
    pub encoder: Option<String>,
    pub tracks: usize,
    pub track_bytes: u64,
    pub encoding: Vec<Row>,
    pub total_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeSpeed {
    pub node: u32,
    pub speed: f64,
    /// CPU cores that it has of this machine; none if they could not be limited.
    pub cores: Option<f64>,
}

/// One way of running one set of programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub what: String,
    pub processes: usize,
    pub wall_s: f64,
    /// The least time possible at the lab's speeds, from times measured in this demo.
    pub ideal_s: Option<f64>,
    pub ratio: Option<f64>,
    pub migrations: usize,
    pub freeze_median_ms: Option<f64>,
    pub freeze_max_ms: Option<f64>,
    /// The same exit status and output, by checksum, as the first run without Osmos.
    pub identical_output: bool,
}

impl Row {
    pub fn new(what: impl Into<String>, wall_s: f64, freezes_ms: &[f64]) -> Row {
        Row {
            what: what.into(),
            processes: 0,
            wall_s,
            ideal_s: None,
            ratio: None,
            migrations: freezes_ms.len(),
            freeze_median_ms: median(freezes_ms),
            freeze_max_ms: freezes_ms.iter().copied().reduce(f64::max),
            identical_output: false,
        }
    }

    pub fn with_ideal(mut self, ideal_s: Option<f64>) -> Row {
        self.ideal_s = ideal_s;
        self.ratio = ideal_s.map(|ideal_s| self.wall_s / ideal_s);
        self
    }
}

/// The middle of a list, or of its two middle values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The least time in which `jobs` equal programs end on nodes of these speeds, if one of them alone
/// takes `alone_s` on the first node: as if work could be divided at will, except that no program
/// runs faster than the fastest node.
pub fn ideal_s(alone_s: f64, jobs: usize, speeds: &[f64]) -> f64 {
    let all: f64 = speeds.iter().sum();
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    alone_s * speeds[0] * f64::max(jobs as f64 / all, 1.0 / fastest)
}

impl Report {
    pub fn is_good(&self) -> bool {
        self.rows().all(|row| row.identical_output)
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.awk.iter().chain(&self.encoding)
    }

    pub fn table(&self) -> String {
        let mut text = String::new();
        text.push('\n');
        if let Some(encoder) = &self.encoder {
            let megabytes = self.track_bytes as f64 / 1e6;
            let _ = writeln!(
                text,
                "{} tracks of {megabytes:.1} MB, each by `{encoder}`\n",
                self.tracks
            );
        }
        let _ = writeln!(
            text,
            "{:<31} {:>7} {:>6} {:>5} {:>5} {:>10} {:>9}",
            "", "wall", "ideal", "ratio", "moves", "freeze ms", "identical"
        );
        for row in self.rows() {
            let _ = writeln!(
                text,
                "{:<31} {:>6.1}s {:>6} {:>5} {:>5} {:>10} {:>9}",
                row.what,
                row.wall_s,
                optional(row.ideal_s, |ideal| format!("{ideal:.1}s")),
                optional(row.ratio, |ratio| format!("{ratio:.2}")),
                row.migrations,
                optional(row.freeze_median_ms.zip(row.freeze_max_ms), |(median, most)| {
                    format!("{median:.0} / {most:.0}")
                }),
                if row.identical_output { "yes" } else { "NO" }
            );
        }
        let _ = writeln!(text, "\nfreeze: median / longest of all moves of that row");
        for line in self.conclusions() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// What the tutorial concluded, with this demo's figures.
    fn conclusions(&self) -> Vec<String> {
        let identical = if self.is_good() { "yes" } else { "NO" };
        let mut lines = vec![format!("identical output: {identical}, by checksum and exit status")];
        let wall = |what: &str| self.encoding.iter().find(|row| row.what == what).map(|r| r.wall_s);
        lines.extend(self.missing.iter().map(|missing| format!("missing here: {missing}")));
        if self.nodes.iter().any(|node| node.cores.is_none()) {
            lines.push("nodes share this machine's cores, so times say nothing here".to_string());
            return lines;
        }
        if let (Some(away), Some(there)) = (wall(ON_STRONGEST), wall(DIRECTLY_THERE)) {
            lines.push(format!(
                "cost of being away: {:+.1} % (all on the strongest other node, against directly \
                 there)",
                (away / there - 1.0) * 100.0
            ));
        }
        if let (Some(one_by_one), Some(balanced)) = (wall(ONE_AFTER_ANOTHER), wall(BALANCED)) {
            lines.push(format!(
                "gain by balancing: {:.2} times as fast as one after another",
                one_by_one / balanced
            ));
        }
        lines.push(format!("in all {:.0} s", self.total_s));
        lines
    }
}

pub const ONE_AFTER_ANOTHER: &str = "one after another";
pub const BALANCED: &str = "all at once, balanced";
pub const PINNED_AT_HOME: &str = "all at once, pinned at home";
pub const ON_STRONGEST: &str = "all on the strongest other node";
pub const DIRECTLY_THERE: &str = "directly on that node";

fn optional<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_string(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn the_ideal_divides_the_work_by_all_speeds() {
        assert_eq!(ideal_s(3.0, 8, &[1.0, 1.0, 0.5, 0.5]), 8.0);
        assert_eq!(ideal_s(10.0, 4, &[0.5, 0.5]), 20.0);
    }

    #[test]
    fn a_single_program_is_never_faster_than_the_fastest_node() {
        assert_eq!(ideal_s(3.0, 1, &[1.0, 1.0, 1.0]), 3.0);
        assert_eq!(ideal_s(3.0, 1, &[0.5, 1.0]), 1.5);
    }

    #[test]
    fn the_table_says_no_where_output_differs() {
        let row = |what: &str, identical| Row {
            identical_output: identical,
            ..Row::new(what, 10.0, &[4.0, 6.0]).with_ideal(Some(8.0))
        };
        let mut report = Report {
            nodes: vec![NodeSpeed { node: 1, speed: 1.0, cores: Some(0.6) }],
            missing: vec!["CPU limits: not root".into()],
            awk: Some(row("eight awk programs, balanced", true)),
            encoder: Some("xz".into()),
            tracks: 13,
            track_bytes: 1_500_000,
            encoding: vec![row(ON_STRONGEST, true), row(DIRECTLY_THERE, true)],
            total_s: 100.0,
        };
        assert!(report.is_good());
        let table = report.table();
        assert!(table.contains("1.25") && table.contains("5 / 6"), "{table}");
        assert!(table.contains("cost of being away: +0.0 %"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 88), "{table}");
        assert!(table.contains("missing here: CPU limits: not root"), "{table}");
        let without = Report { awk: None, encoder: None, encoding: vec![], ..report.clone() };
        assert!(without.is_good() && !without.table().contains("tracks"), "{}", without.table());
        report.nodes[0].cores = None;
        assert!(!report.table().contains("cost of being away"));
        report.encoding[0].identical_output = false;
        assert!(!report.is_good());
        assert!(report.table().contains(" NO"));
    }
}
