//! What has happened in the cluster: the last lines of it, each with a number by which a browser
//! that was away says what it has seen.

use crate::wording::Wording;
use client::words::printable;
use serde::Serialize;
use std::collections::VecDeque;
use wire::control::{Event, Happening};
use wire::ids::{GlobalPid, NodeId};

/// Lines that are kept.
pub const LINES_MAX: usize = 4_096;
/// Characters of one.
const TEXT_CHARS_MAX: usize = 1_024;
/// Several nodes tell of the same change of a node, one after another.
const SAME_WITHIN_S: f64 = 30.0;
/// So many lines are looked through for one that says the same.
const SAME_LINES: usize = 64;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub number: u64,
    /// Seconds since the epoch, on the clock of the node that told it.
    pub time: f64,
    pub process: Option<String>,
    pub text: String,
    #[serde(flatten)]
    pub place: Option<Moved>,
}

/// Of a process that is elsewhere now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub from: Option<NodeId>,
    pub to: NodeId,
    pub freeze_ms: Option<f64>,
}

#[derive(Debug, Default)]
pub struct Log {
    lines: VecDeque<Line>,
    /// Of the last line.
    number: u64,
}

impl Log {
    /// Takes an event in. Returns whether that has made a line.
    pub fn take_in(&mut self, event: &Event, wording: Wording) -> bool {
        let text: String = (wording.happening)(&event.what).chars().take(TEXT_CHARS_MAX).collect();
        let text = printable(&text);
        let is_same =
            |line: &Line| (line.time - event.time).abs() < SAME_WITHIN_S && line.text == text;
        let mut last = self.lines.iter().rev().take(SAME_LINES);
        if event.pid.is_none() && last.any(|line| line.process.is_none() && is_same(line)) {
            return false;
        }
        self.number += 1;
        self.lines.push_back(Line {
            number: self.number,
            time: event.time,
            process: event.pid.map(|process| process.to_string()),
            text,
            place: event.pid.and_then(|process| moved(process, &event.what)),
        });
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
        true
    }

    /// The number of the last line.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The lines behind the one of that number, the last `most` of them. A number that is not yet
    /// is of another run of this program.
    pub fn after(&self, number: u64, most: usize) -> Vec<&Line> {
        let number = if number > self.number { 0 } else { number };
        let count = self.lines.iter().rev().take(most).take_while(|line| line.number > number);
        let skipped = self.lines.len() - count.count();
        self.lines.iter().skip(skipped).collect()
    }
}

fn moved(process: GlobalPid, what: &Happening) -> Option<Moved> {
    match what {
        Happening::Migrated(migration) => Some(Moved {
            from: Some(migration.from),
            to: migration.to,
            freeze_ms: Some(migration.freeze_ms),
        }),
        Happening::CameHome { .. } => Some(Moved { from: None, to: process.home, freeze_ms: None }),
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{WORDING, joined, migrated};

    #[test]
    fn lines_are_numbered_and_bounded() {
        let mut log = Log::default();
        for time in 0..LINES_MAX + 10 {
            log.take_in(&migrated(1, 10, 2, time as f64), WORDING);
        }
        assert_eq!(log.lines.len(), LINES_MAX);
        let last = log.number();
        assert_eq!(log.after(last, 10), [] as [&Line; 0]);
        assert_eq!(log.after(last - 3, 10).len(), 3);
        assert_eq!(log.after(0, 10).len(), 10);
        assert_eq!(log.after(last + 1, LINES_MAX + 1).len(), LINES_MAX, "of another run");
        let line = log.after(last - 1, 1)[0];
        assert_eq!((line.process.as_deref(), line.number), (Some("1:10"), last));
        assert_eq!(line.place.map(|place| place.to), Some(NodeId(2)));
    }

    #[test]
    fn what_several_nodes_tell_of_a_node_is_one_line() {
        let mut log = Log::default();
        let told = [joined(3, 1.0), joined(3, 2.0), joined(4, 2.0), joined(3, 60.0)];
        let made = told.map(|event| log.take_in(&event, WORDING));
        assert_eq!(made, [true, false, true, true]);
    }

    #[test]
    fn a_line_is_printable_and_short() {
        let mut log = Log::default();
        let mut event = migrated(1, 10, 2, 1.0);
        event.what = Happening::Managed { command: "a\x1b]0;\u{202e}".repeat(1_000) };
        log.take_in(&event, WORDING);
        let line = log.after(0, 1)[0];
        assert!(line.text.chars().count() <= TEXT_CHARS_MAX);
        assert!(!line.text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{}", line.text);
    }
}
