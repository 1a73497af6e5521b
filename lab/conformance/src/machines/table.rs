//! What came of it all: one table, for people and for the record.

use crate::Report;
use crate::machines::trials::Pair;
use crate::report::Verdict;
use anyhow::Result;
use std::fmt::Write;

/// A check of the harness's own.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    pub pair: Pair,
    /// What was measured, or what was wrong.
    pub outcome: std::result::Result<String, String>,
}

impl Check {
    pub fn of(name: &str, pair: Pair, outcome: Result<String>) -> Check {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        Check { name: name.to_string(), pair, outcome }
    }
}

/// Two members and all that was tried between them.
pub struct Row {
    pub pair: Pair,
    /// `6.1 max x1 -> 6.12 Haswell x2`
    pub names: String,
    /// None if the two did not even find each other.
    pub report: std::result::Result<Report, String>,
    pub checks: Vec<Check>,
}

/// All of it.
#[derive(Default)]
pub struct Table {
    pub rows: Vec<Row>,
}

impl Table {
    pub fn is_success(&self) -> bool {
        !self.rows.is_empty()
            && self.rows.iter().all(|row| {
                row.report.as_ref().is_ok_and(Report::is_success)
                    && row.checks.iter().all(|check| check.outcome.is_ok())
            })
    }

    /// In the form of Markdown, which people read as well.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "| home → away | flavour | programs | as native | refused | skipped | failed | \
             moves |\n\
             |---|---|--:|--:|--:|--:|--:|--:|\n",
        );
        for row in &self.rows {
            let names = format!("{} → {}: {}", row.pair.home, row.pair.away, row.names);
            match &row.report {
                Ok(report) => text += &lines_of(&names, report),
                Err(error) => {
                    let _ = writeln!(text, "| {names} | | | | | | BROKEN: {error} | |");
                }
            }
        }
        text.push('\n');
        text + &checks(self.rows.iter().flat_map(|row| &row.checks)) + &self.details()
    }

    /// Everything that is not as natively, by program.
    fn details(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let Ok(report) = &row.report else { continue };
            for program in &report.rows {
                for cell in &program.cells {
                    let Some(detail) = cell.verdict.detail() else {
                        if cell.verdict == Verdict::Late {
                            let _ = writeln!(
                                text,
                                "* {}: {} {}: TIMEOUT",
                                row.pair_words(),
                                program.name,
                                cell.flavour
                            );
                        }
                        continue;
                    };
                    let _ = writeln!(
                        text,
                        "* {}: {} {}: {}: {detail}",
                        row.pair_words(),
                        program.name,
                        cell.flavour,
                        cell.verdict.word()
                    );
                }
            }
        }
        if text.is_empty() { text } else { format!("\nNot as natively:\n\n{text}") }
    }
}

/// One line for each check.
pub fn checks<'a>(checks: impl IntoIterator<Item = &'a Check>) -> String {
    let mut text = String::from("| home → away | check | | what it showed |\n|---|---|---|---|\n");
    for check in checks {
        let (word, what) = match &check.outcome {
            Ok(what) => ("ok", what),
            Err(what) => ("FAILED", what),
        };
        let Pair { home, away } = check.pair;
        let what = what.replace('\n', " ");
        let _ = writeln!(text, "| {home} → {away} | {} | {word} | {what} |", check.name);
    }
    text
}

impl Row {
    fn pair_words(&self) -> String {
        format!("{} → {}", self.pair.home, self.pair.away)
    }
}

/// One line for each flavour.
fn lines_of(names: &str, report: &Report) -> String {
    let mut text = String::new();
    for flavour in &report.flavours {
        let of_flavour = |wanted: &dyn Fn(&Verdict) -> bool| {
            let cells = report.rows.iter().flat_map(|row| &row.cells);
            cells.filter(|cell| cell.flavour == *flavour && wanted(&cell.verdict)).count()
        };
        let cells = report.rows.iter().flat_map(|row| &row.cells);
        let moves: u32 =
            cells.filter(|cell| cell.flavour == *flavour).map(|cell| cell.migrations).sum();
        let failed = report.failures().filter(|(_, cell)| cell.flavour == *flavour).count();
        let _ = writeln!(
            text,
            "| {names} | {flavour} | {} | {} | {} | {} | {failed} | {moves} |",
            of_flavour(&|_| true),
            of_flavour(&|verdict| *verdict == Verdict::Same),
            of_flavour(&|verdict| matches!(verdict, Verdict::Refused(_))),
            of_flavour(&|verdict| matches!(verdict, Verdict::Skipped(_))),
        );
    }
    text
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::Flavour;
    use crate::report::{Cell, Row as Program};
    use crate::subject::Kind;
    use wire::ids::NodeId;

    const PAIR: Pair = Pair { home: NodeId(2), away: NodeId(3) };

    fn row(verdict: Verdict, checks: Vec<Check>) -> Row {
        let mut program = Program::new("pipe", Kind::Guest, "It pipes.");
        let flavour = Flavour::Storm;
        program.cells.push(Cell { flavour, verdict, migrations: 7, used_ms: 1 });
        let flavours = vec![flavour];
        let report = Report { flavours, rows: vec![program], wall_s: 1.0, may_skip: true };
        Row { pair: PAIR, names: "6.1 -> 6.12".into(), report: Ok(report), checks }
    }

    #[test]
    fn one_difference_or_one_failed_check_fails_the_table() {
        let well = Check::of("date", PAIR, Ok("as at home".into()));
        let wrong = Check::of("date", PAIR, Err(anyhow::anyhow!("1000 s off")));
        let is_success = |row| Table { rows: vec![row] }.is_success();
        assert!(is_success(row(Verdict::Same, vec![well.clone()])));
        assert!(!is_success(row(Verdict::Differs("x".into()), vec![well.clone()])));
        assert!(!is_success(row(Verdict::Same, vec![well, wrong])));
        let broken = Row { report: Err("no link".into()), ..row(Verdict::Same, vec![]) };
        assert!(!is_success(broken));
        assert!(!Table::default().is_success(), "nothing was shown");
    }

    #[test]
    fn the_table_has_pair_flavour_counts_and_what_was_wrong() {
        let wrong = Check::of("date", PAIR, Err(anyhow::anyhow!("1000 s off")));
        let text = Table { rows: vec![row(Verdict::Differs("stdout".into()), vec![wrong])] }.text();
        assert!(text.contains("| 2 → 3: 6.1 -> 6.12 | storm | 1 | 0 | 0 | 0 | 1 | 7 |"), "{text}");
        assert!(text.contains("| 2 → 3 | date | FAILED | 1000 s off |"), "{text}");
        assert!(text.contains("* 2 → 3: pipe storm: DIFF: stdout"), "{text}");
    }
}
