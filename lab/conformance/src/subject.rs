//! A program that is put to the test, and how it must end.

use std::fmt;

/// How a process ended, as `wait` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
}

impl Ending {
    pub fn from_wait_status(status: i32) -> Ending {
        match status & 0x7f {
            0 => Ending::Exit(status >> 8 & 0xff),
            signal => Ending::Signal(signal),
        }
    }

    /// Parses `exit 7` or `signal 15`.
    pub fn parse(words: &str) -> Option<Ending> {
        let (kind, number) = words.trim().split_once(' ')?;
        let number = number.trim().parse().ok()?;
        match kind {
            "exit" => Some(Ending::Exit(number)),
            "signal" => Some(Ending::Signal(number)),
            _ => None,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exit(status) => write!(f, "exit status {status}"),
            Ending::Signal(signal) => write!(f, "death by signal {signal}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of `lab/guests`.
    Guest,
    /// A program that nobody here wrote.
    Real,
    /// Of a suite that judges itself ([`crate::outside`]).
    Outside,
}

#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    pub kind: Kind,
    /// What it proves, in a line.
    pub purpose: String,
    /// The program and its arguments, as found in the directory it starts in.
    pub command: Vec<String>,
    /// A word that its command may have once more at the end, to do the same work once more.
    pub again: Option<&'static str>,
    /// Shell command that prints where `command[0]` is, and fails if it is not installed.
    pub locate: Option<String>,
    /// Programs that it runs besides and that a machine may lack.
    pub runs: Vec<&'static str>,
    /// Names from [`crate::inputs`] that lie in the directory it starts in.
    pub files: Vec<&'static str>,
    /// Name from [`crate::inputs`].
    pub stdin: Option<&'static str>,
    pub ends: Ending,
    /// Codes of the reasons for which it may stay at home.
    pub may_stay: Vec<String>,
    /// Why being stopped by a signal shows in it, if it does.
    pub not_stopped: Option<String>,
}

impl Subject {
    /// Its command, to do its work so many times, if it can do that more than once.
    pub fn words(&self, laps: u32) -> impl Iterator<Item = &str> {
        let more = self.again.map_or(0, |_| laps.saturating_sub(1) as usize);
        let again = std::iter::repeat_n(self.again.unwrap_or_default(), more);
        self.command.iter().map(String::as_str).chain(again)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_work_of_some_programs_is_done_as_often_as_asked() {
        let xz =
            crate::programs::subjects().into_iter().find(|it| it.name == "xz-threads").unwrap();
        let words = |laps| xz.words(laps).filter(|word| *word == "sound.wav").count();
        assert_eq!([0, 1, 3].map(words), [1, 1, 3]);
        let once = Subject { again: None, ..xz.clone() };
        assert_eq!(once.words(3).count(), xz.command.len());
    }

    #[test]
    fn wait_statuses_are_read_as_the_kernel_writes_them() {
        assert_eq!(Ending::from_wait_status(7 << 8), Ending::Exit(7));
        assert_eq!(Ending::from_wait_status(11), Ending::Signal(11));
        assert_eq!(Ending::from_wait_status(6 | 0x80), Ending::Signal(6), "with a core");
    }

    #[test]
    fn endings_are_written_as_a_word_and_a_number() {
        assert_eq!(Ending::parse(" exit 7 "), Some(Ending::Exit(7)));
        assert_eq!(Ending::parse("signal 15"), Some(Ending::Signal(15)));
        assert_eq!(Ending::parse("explodes 3"), None);
        assert_eq!(Ending::parse("exit"), None);
    }
}
