//! The stamps of this node's calls and datagrams: they grow, whatever becomes of the clock.
//!
//! Others hear only what is stamped later than all before it (see [`super::replay`]). A clock that
//! was set back, or that ran ahead once, must not silence a node. So a stamp is the time, or one
//! more than the last; and before any is used, a *ceiling* above it is on the disk, where the next
//! daemon begins. A node that has lost its ceiling is told by whoever calls it
//! (`PeerMessage::Stamped`).

use crate::net::wall_clock_ns;
use crate::state::StateError;
use std::sync::{Arc, Mutex, PoisonError};

/// How far above the time a ceiling is: it is written anew when half of that is over.
const AHEAD_NS: u64 = 600 * 1_000_000_000;
/// The year 2262: nobody is told that he has used later ones, or he would come to an end of them.
const STAMP_MAX: u64 = u64::MAX / 2;

/// Writes a ceiling to the disk.
type Keep = Box<dyn Fn(u64) -> Result<(), StateError> + Send + Sync>;

#[derive(Clone)]
pub struct Stamps {
    stamps: Arc<Mutex<Grown>>,
    keep: Arc<Keep>,
}

struct Grown {
    last: u64,
    /// On the disk, and on its way there.
    ceiling: u64,
    asked: u64,
}

impl Grown {
    fn next(&mut self, now: u64) -> u64 {
        let last = self.last.saturating_add(1);
        // A time beyond the ceiling is not safe yet.
        self.last = if now <= self.ceiling { last.max(now) } else { last };
        self.last
    }

    /// A ceiling to be written, if it is time.
    fn wants(&mut self, now: u64) -> Option<u64> {
        let top = now.max(self.last);
        if top.saturating_add(AHEAD_NS / 2) <= self.asked {
            return None;
        }
        self.asked = top.saturating_add(AHEAD_NS).min(u64::MAX - 1);
        Some(self.asked)
    }
}

impl Stamps {
    /// `kept` is the ceiling that is on the disk, where the last daemon has put it.
    pub fn start(
        kept: Option<u64>,
        keep: impl Fn(u64) -> Result<(), StateError> + Send + Sync + 'static,
    ) -> Result<Stamps, StateError> {
        let last = kept.unwrap_or(0);
        let ceiling = last.max(wall_clock_ns()).saturating_add(AHEAD_NS);
        keep(ceiling)?;
        let grown = Grown { last, ceiling, asked: ceiling };
        Ok(Stamps { stamps: Arc::new(Mutex::new(grown)), keep: Arc::new(Box::new(keep)) })
    }

    pub fn next(&self) -> u64 {
        let now = wall_clock_ns();
        let (stamp, wanted) = {
            let mut grown = self.lock();
            (grown.next(now), grown.wants(now))
        };
        if let Some(ceiling) = wanted {
            self.raise(ceiling);
        }
        stamp
    }

    /// Somebody has heard that one of this node.
    pub fn heard(&self, newest: u64) {
        let wanted = {
            let mut grown = self.lock();
            grown.last = grown.last.max(newest.min(STAMP_MAX));
            grown.wants(newest.min(STAMP_MAX))
        };
        if let Some(ceiling) = wanted {
            self.raise(ceiling);
        }
    }

    /// A disk may be busy for seconds: whoever stamps does not wait for it.
    fn raise(&self, ceiling: u64) {
        let stamps = self.clone();
        std::thread::spawn(move || match (stamps.keep)(ceiling) {
            Ok(()) => {
                let mut grown = stamps.lock();
                grown.ceiling = grown.ceiling.max(ceiling);
            }
            Err(error) => {
                tracing::error!("{error}");
                // It is asked for again.
                let mut grown = stamps.lock();
                grown.asked = grown.ceiling;
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Grown> {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn stamps_are_the_time_and_grow_when_the_clock_is_set_back() {
        let mut grown = Grown { last: 0, ceiling: 5_000, asked: 5_000 };
        assert_eq!([grown.next(1_000), grown.next(2_000)], [1_000, 2_000]);
        assert_eq!([grown.next(10), grown.next(11)], [2_001, 2_002], "set back");
        assert_eq!([grown.next(9_000), grown.next(9_000)], [2_003, 2_004], "not on the disk yet");
        assert_eq!(grown.next(3_000), 3_000);
    }

    #[test]
    fn a_daemon_goes_on_above_all_that_the_one_before_it_can_have_used() {
        let (sender, kept) = mpsc::channel();
        let keep = |sender: mpsc::Sender<u64>| {
            move |ceiling| {
                sender.send(ceiling).unwrap();
                Ok(())
            }
        };
        let first = Stamps::start(None, keep(sender.clone())).unwrap();
        let stamp = first.next();
        assert!(stamp.abs_diff(wall_clock_ns()) < AHEAD_NS, "{stamp}: it is the time");
        let ceiling = kept.recv().unwrap();
        let second = Stamps::start(Some(ceiling), keep(sender)).unwrap();
        assert!(second.next() > ceiling && ceiling > stamp);
    }

    #[test]
    fn a_node_that_has_lost_its_ceiling_is_told_and_nobody_can_bring_it_to_an_end() {
        let (sender, kept) = mpsc::channel();
        let stamps = Stamps::start(None, move |ceiling| {
            sender.send(ceiling).unwrap();
            Ok(())
        });
        let stamps = stamps.unwrap();
        let day_ahead = wall_clock_ns() + 86_400_000_000_000;
        stamps.heard(day_ahead);
        assert!(stamps.next() > day_ahead);
        kept.recv().unwrap();
        assert!(kept.recv().unwrap() > day_ahead, "and so does the next daemon");
        stamps.heard(u64::MAX);
        assert!(stamps.next() < u64::MAX / 2 + 10);
    }
}
