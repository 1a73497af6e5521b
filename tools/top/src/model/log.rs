//! What has happened in the cluster, and what this user was told: the last lines of it.

use crate::wording::Wording;
use client::words::{clock, printable};
use std::collections::VecDeque;
use wire::control::{Event, Happening};
use wire::ids::{GlobalPid, NodeId};

/// Lines that are kept.
const LINES_MAX: usize = 1_000;
/// Several nodes tell of the same change of a node, one after another.
const SAME_WITHIN_S: f64 = 30.0;
/// So many lines are looked through for one that says the same.
const SAME_LINES: usize = 32;

/// Which process is where now, if that is what happened.
pub fn moved_to(event: &Event) -> Option<(GlobalPid, NodeId)> {
    let process = event.pid?;
    match &event.what {
        Happening::Migrated(migration) => Some((process, migration.to)),
        Happening::CameHome { .. } => Some((process, process.home)),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Seconds since the epoch, on the clock of the node that told it.
    time: f64,
    /// With the time before it.
    pub text: String,
}

pub struct Log {
    wording: Wording,
    /// In the order of their times.
    lines: VecDeque<Line>,
}

impl Log {
    pub fn new(wording: Wording) -> Log {
        Log { wording, lines: VecDeque::new() }
    }

    pub fn take_in(&mut self, event: &Event) {
        let Event { time, pid, what } = event;
        let process = pid.map(|pid| format!("{pid}  ")).unwrap_or_default();
        let text = format!("{process}{}", printable(&(self.wording.happening)(what)));
        let is_same = |line: &&Line| {
            (line.time - time).abs() < SAME_WITHIN_S && line.text.ends_with(&format!("  {text}"))
        };
        let is_told = self.lines.iter().rev().take(SAME_LINES).any(|line| is_same(&line));
        if !(is_told && pid.is_none()) {
            self.put(*time, &text);
        }
    }

    /// Something that this user was told.
    pub fn note(&mut self, time: f64, text: &str) {
        self.put(time, text);
    }

    fn put(&mut self, time: f64, text: &str) {
        // Events of several nodes come nearly in order.
        let behind = self.lines.iter().rev().take_while(|line| line.time > time).count();
        let at = self.lines.len() - behind;
        let text = format!("{}  {text}", clock(time));
        self.lines.insert(at, Line { time, text });
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }

    /// The oldest first.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &Line> + ExactSizeIterator {
        self.lines.iter()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{WORDING, joined, migrated};

    #[test]
    fn lines_are_in_the_order_of_time_and_bounded() {
        let mut log = Log::new(WORDING);
        for time in [5.0, 3.0, 4.0] {
            log.take_in(&migrated(1, 10, 2, time));
        }
        let times: Vec<f64> = log.lines().map(|line| line.time).collect();
        assert_eq!(times, [3.0, 4.0, 5.0]);
        for time in 0..3_000 {
            log.take_in(&migrated(1, 10, 2, f64::from(time)));
        }
        assert_eq!(log.lines().len(), LINES_MAX);
        let last = log.lines().next_back().unwrap();
        assert!(last.text.starts_with("00:49:59.000  1:10  "), "{}", last.text);
    }

    #[test]
    fn what_several_nodes_tell_of_a_node_is_one_line() {
        let mut log = Log::new(WORDING);
        for time in [1.0, 1.5, 2.0] {
            log.take_in(&joined(3, time));
        }
        assert_eq!(log.lines().len(), 1);
        log.take_in(&joined(4, 2.0));
        log.take_in(&joined(3, 60.0));
        assert_eq!(log.lines().len(), 3, "another node, and the same one much later");
    }
}
