//! What came of it: a table for people, JSON for programs.

use crate::flavour::Flavour;
use crate::method::Method;
use crate::subject::Kind;
use serde::Serialize;
use std::fmt::Write;

/// What one trial showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "kebab-case")]
pub enum Verdict {
    /// As natively.
    Same,
    /// As natively, but it stayed at home for a reason that it announces.
    Refused(String),
    /// Not as natively (or, natively, not as announced): the first difference.
    Differs(String),
    /// It was killed for taking too long.
    Late,
    /// As natively, but no move was made, for a reason that is none.
    DidNotMove(String),
    /// This machine cannot run it.
    Skipped(String),
    /// The harness failed, or the machine lacks what it must have.
    Broken(String),
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Same => "ok",
            Verdict::Refused(_) => "refused",
            Verdict::Differs(_) => "DIFF",
            Verdict::Late => "TIMEOUT",
            Verdict::DidNotMove(_) => "DID NOT MOVE",
            Verdict::Skipped(_) => "skipped",
            Verdict::Broken(_) => "BROKEN",
        }
    }

    pub fn detail(&self) -> Option<&str> {
        match self {
            Verdict::Refused(text)
            | Verdict::Differs(text)
            | Verdict::DidNotMove(text)
            | Verdict::Skipped(text)
            | Verdict::Broken(text) => Some(text),
            Verdict::Same | Verdict::Late => None,
        }
    }
}

/// One trial.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub flavour: Flavour,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub migrations: u32,
    pub used_ms: u64,
}

/// One program in all flavours.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub is_guest: bool,
    pub purpose: String,
    pub cells: Vec<Cell>,
}

impl Row {
    pub fn new(name: &str, kind: Kind, purpose: &str) -> Row {
        let is_guest = kind == Kind::Guest;
        Row { name: name.to_string(), is_guest, purpose: purpose.to_string(), cells: Vec::new() }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub flavours: Vec<Flavour>,
    pub rows: Vec<Row>,
    pub wall_s: f64,
    /// On a CI machine nothing may be skipped.
    pub may_skip: bool,
}

impl Report {
    /// Every trial that speaks against Osmos, or proves nothing where proof is required.
    pub fn failures(&self) -> impl Iterator<Item = (&Row, &Cell)> {
        let all = self.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        all.filter(|(_, cell)| match cell.verdict {
            Verdict::Same | Verdict::Refused(_) => false,
            Verdict::Skipped(_) => !self.may_skip,
            Verdict::Differs(_) | Verdict::Late | Verdict::DidNotMove(_) | Verdict::Broken(_) => {
                true
            }
        })
    }

    pub fn is_success(&self) -> bool {
        !self.rows.is_empty() && self.failures().next().is_none()
    }

    /// The table, what is behind each word in it, and a last line with the counts.
    pub fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(7);
        let mut text = format!("{:width$}", "PROGRAM");
        for flavour in &self.flavours {
            let _ = write!(text, "  {:14}", flavour.name().to_uppercase());
        }
        text = text.trim_end().to_string() + "\n";
        for row in &self.rows {
            let mut line = format!("{:width$}", row.name);
            for flavour in &self.flavours {
                let cell = row.cells.iter().find(|cell| cell.flavour == *flavour);
                let _ = write!(line, "  {:14}", cell.map(words_of).unwrap_or_default());
            }
            text += line.trim_end();
            text.push('\n');
        }
        text.push('\n');
        for row in &self.rows {
            for cell in &row.cells {
                if let Some(detail) = cell.verdict.detail() {
                    let word = cell.verdict.word();
                    let _ = writeln!(text, "{} {}: {word}: {detail}", row.name, cell.flavour);
                }
            }
        }
        text + &self.summary() + "\n"
    }

    pub fn summary(&self) -> String {
        let cells = || self.rows.iter().flat_map(|row| &row.cells);
        let count = |wanted: &dyn Fn(&Verdict) -> bool| {
            cells().filter(|cell| wanted(&cell.verdict)).count()
        };
        let moves: u32 = cells().map(|cell| cell.migrations).sum();
        format!(
            "{} programs, {} trials in {:.0} s: {} as native, {} refused, {} skipped, {} failed; \
             {moves} migrations",
            self.rows.len(),
            cells().count(),
            self.wall_s,
            count(&|verdict| *verdict == Verdict::Same),
            count(&|verdict| matches!(verdict, Verdict::Refused(_))),
            count(&|verdict| matches!(verdict, Verdict::Skipped(_))),
            self.failures().count(),
        )
    }
}

/// A report among others: of one way in which memory travels, and one round of several.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// None: as this machine's kernel does best.
    pub method: Option<Method>,
    /// From 1.
    pub round: u32,
    #[serde(flatten)]
    pub report: Report,
}

/// All of them in one document.
pub fn json(runs: &[Run]) -> String {
    serde_json::to_string_pretty(runs).expect("reports have only plain fields")
}

fn words_of(cell: &Cell) -> String {
    match cell.flavour.is_osmos() {
        true if cell.migrations > 0 => format!("{} {}x", cell.verdict.word(), cell.migrations),
        _ => cell.verdict.word().to_string(),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn report(verdict: Verdict, may_skip: bool) -> Report {
        let mut row = Row::new("pipe", Kind::Guest, "It pipes.");
        let same = Verdict::Same;
        row.cells.push(Cell { flavour: Flavour::Native, verdict: same, migrations: 0, used_ms: 1 });
        row.cells.push(Cell { flavour: Flavour::Storm, verdict, migrations: 7, used_ms: 1 });
        let flavours = vec![Flavour::Native, Flavour::Storm];
        Report { flavours, rows: vec![row], wall_s: 1.0, may_skip }
    }

    #[test]
    fn every_kind_of_failure_fails_the_report() {
        for verdict in [
            Verdict::Differs("x".into()),
            Verdict::Late,
            Verdict::DidNotMove("x".into()),
            Verdict::Broken("x".into()),
        ] {
            assert!(!report(verdict, true).is_success());
        }
        assert!(report(Verdict::Same, false).is_success());
        assert!(report(Verdict::Refused("io-uring: fd 7".into()), false).is_success());
    }

    #[test]
    fn skipping_is_for_machines_that_are_not_ci() {
        assert!(report(Verdict::Skipped("no AVX2".into()), true).is_success());
        assert!(!report(Verdict::Skipped("no AVX2".into()), false).is_success());
    }

    #[test]
    fn an_empty_report_is_no_success() {
        let mut empty = report(Verdict::Same, true);
        empty.rows.clear();
        assert!(!empty.is_success());
    }

    #[test]
    fn the_table_tells_verdict_moves_and_detail() {
        let text = report(Verdict::Differs("stdout line 1".into()), true).text();
        assert!(text.contains("PROGRAM  NATIVE"), "{text}");
        assert!(text.contains("pipe     ok              DIFF 7x\n"), "{text}");
        assert!(text.contains("pipe storm: DIFF: stdout line 1\n"), "{text}");
        assert!(text.contains("1 failed; 7 migrations\n"), "{text}");
    }

    #[test]
    fn several_runs_are_one_document() {
        let run = |method, round| Run { method, round, report: report(Verdict::Late, true) };
        let text = json(&[run(None, 1), run(Some(Method::SoftDirty), 2)]);
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&told[0]["method"], &told[0]["round"]), (&serde_json::Value::Null, &1.into()));
        assert_eq!((&told[1]["method"], &told[1]["round"]), (&"soft-dirty".into(), &2.into()));
        assert_eq!(told[1]["rows"][0]["cells"][1]["verdict"], "late");
        assert_eq!(told.as_array().map(Vec::len), Some(2));
    }
}
