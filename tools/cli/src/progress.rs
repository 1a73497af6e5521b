//! How far something is that takes time, on one line of a terminal that is written over.
//!
//! Nothing but text, spaces and the return of the line: there is no colour to do without.

use crate::output;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use wire::supervisor::Progress;

/// What takes less time is not told of.
const PATIENCE: Duration = Duration::from_secs(1);

/// The line of one move, on standard error.
pub struct Shown {
    pid: i32,
    is_wanted: bool,
    since: Instant,
    /// Characters that stand there.
    columns: usize,
}

impl Shown {
    /// Only people are shown it.
    pub fn for_move(pid: i32, json: bool) -> Shown {
        let is_wanted = !json && io::stderr().is_terminal();
        Shown { pid, is_wanted, since: Instant::now(), columns: 0 }
    }

    pub fn show(&mut self, progress: &Progress) {
        if self.is_wanted && self.since.elapsed() >= PATIENCE {
            self.write(&line(self.pid, progress));
        }
    }

    /// What is written next begins on an empty line.
    pub fn clear(&mut self) {
        if self.columns > 0 {
            self.write("");
        }
    }

    fn write(&mut self, text: &str) {
        let columns = self.columns;
        self.columns = text.chars().count();
        // A terminal that is gone needs no progress.
        let _ = write!(io::stderr(), "\r{text:columns$}\r{text}");
    }
}

/// `4711: round 2, 1.1G sent, 64M left`
fn line(pid: i32, progress: &Progress) -> String {
    let Progress { round, bytes_sent, bytes_left, is_filling } = *progress;
    let sent = output::bytes(bytes_sent);
    if is_filling {
        let left = output::bytes(bytes_left);
        return format!("{pid}: waits for its last pages, {sent} came, {left} left");
    }
    match round {
        0 => format!("{pid}: frozen, {sent} sent"),
        _ => format!("{pid}: round {round}, {sent} sent, {} left", output::bytes(bytes_left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_is_sent_and_left() {
        let (bytes_sent, bytes_left) = (3 << 29, 64 << 20);
        let mut progress = Progress { round: 2, bytes_sent, bytes_left, is_filling: false };
        assert_eq!(line(4711, &progress), "4711: round 2, 1.5G sent, 64M left");
        progress.round = 0;
        assert_eq!(line(4711, &progress), "4711: frozen, 1.5G sent");
        progress.is_filling = true;
        assert_eq!(line(4711, &progress), "4711: waits for its last pages, 1.5G came, 64M left");
    }
}
