//! What processes use while they are away, of which home's kernel knows nothing.

use super::Daemon;
use crate::journal::wall_clock_s;
use std::time::Instant;
use wire::control::{self, Happening};
use wire::ids::HomePid;
use wire::limits::THREADS_MAX;
use wire::peer::PeerMessage;
use wire::processor_time::{PastClock, ProcessorTime};

/// Processor time that no program misses: the unit of times(2).
const CLOCK_TICK_US: u64 = 10_000;

impl Daemon {
    /// Keeps a part of what the next supervisor has to know.
    pub(super) fn remember_clocks(&mut self, pid: HomePid, part: Vec<PastClock>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let room = (THREADS_MAX + 1).saturating_sub(process.clocks.len());
            process.clocks.extend(part.into_iter().take(room));
        }
    }

    /// What the process used while away; the node where it is learns how often it calls home.
    pub(super) fn used_away(
        &mut self,
        pid: HomePid,
        away: ProcessorTime,
        rss: u64,
        forwarded: &[(String, u64)],
    ) {
        let me = self.me();
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.consumption.used_away(away);
        process.consumption.rss_bytes = rss;
        let (at, used_us) = (process.at, process.consumption.away_cpu_us());
        let uid = process.owner.uid;
        let user_milli = self.user_milli(uid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if at != me {
            process.progress.look(Instant::now(), used_us);
        }
        let total = forwarded.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
        let (at, per_s) = (process.at, process.forwarded.per_s(Instant::now(), total));
        if let Some(per_s) = per_s.filter(|_| at != self.me()) {
            self.links.say(at, PeerMessage::CallsCounted { pid, per_s, user_milli });
        }
    }

    /// Says that the clocks of a process are behind, if it has come home from more than a moment.
    pub(super) fn tell_of_time_away(&mut self, pid: HomePid, journey_us: u64) {
        let global = self.global(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if journey_us < CLOCK_TICK_US {
            return;
        }
        let away_s = process.consumption.away_cpu_us() as f64 / 1e6;
        process.decide(wall_clock_s(), "clocks", &control::used_away(away_s));
        self.journal.record(Some(global), Happening::UsedAway { away_s });
    }
}
