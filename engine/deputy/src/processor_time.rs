//! Processor clocks of a process that leaves, and what is remembered of them when it is home again.

use crate::service::Service;
use kernel::agent::BatchCall;
use kernel::proc::process;
use std::collections::HashMap;
use std::sync::Mutex;
use wire::ids::GuestTid;
use wire::image::Image;
use wire::processor_time::layout::{read_timespec, read_usage};
use wire::processor_time::{Clock, PastClock, ProcessorTime};

const RUSAGE_BYTES: usize = 144;
/// What [`tell_calls`] write.
pub const TOLD_BYTES: usize = RUSAGE_BYTES + 16;

/// What a process is known to have used in all its stays away; it never becomes less.
#[derive(Debug, Default)]
pub struct UsedAway(Mutex<ProcessorTime>);

impl UsedAway {
    pub fn from(time: ProcessorTime) -> UsedAway {
        UsedAway(Mutex::new(time))
    }

    /// The node that it is on says so.
    pub fn hear(&self, time: ProcessorTime) {
        let mut known = self.0.lock().expect("no thread of the supervisor panicked");
        if time.is_plausible() && time.total_ns() > known.total_ns() {
            *known = time;
        }
    }

    pub fn told(&self) -> ProcessorTime {
        *self.0.lock().expect("no thread of the supervisor panicked")
    }
}

/// Whose clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Process,
    Thread,
}

/// The calls by which a thread tells its clock, or that of its process, into `place`: as it would
/// read them itself, so that what it reads away is no less.
pub fn tell_calls(whose: Whose, place: u64) -> [BatchCall; 2] {
    let (who, clock) = match whose {
        Whose::Process => (libc::RUSAGE_SELF, libc::CLOCK_PROCESS_CPUTIME_ID),
        Whose::Thread => (libc::RUSAGE_THREAD, libc::CLOCK_THREAD_CPUTIME_ID),
    };
    let time = place + RUSAGE_BYTES as u64;
    [
        BatchCall::new(libc::SYS_getrusage, [who as u64, place, 0, 0, 0, 0]),
        BatchCall::new(libc::SYS_clock_gettime, [clock as u64, time, 0, 0, 0, 0]),
    ]
}

/// The clock from what [`tell_calls`] wrote, and from earlier stays away.
pub fn told(bytes: &[u8], past: Option<&PastClock>) -> Clock {
    let (usage, time) = bytes.split_at(RUSAGE_BYTES.min(bytes.len()));
    let (away, told) = past.map(|past| (past.away, past.told)).unwrap_or_default();
    Clock { home_ns: read_timespec(time), away, told: told.at_least(read_usage(usage)) }
}

/// The process's own clock among those of earlier stays.
pub fn past_of_process(pasts: &[PastClock]) -> Option<&PastClock> {
    pasts.iter().find(|past| past.tid.is_none())
}

/// Those of its threads that are still the same, by local number.
pub fn past_of_threads(
    pasts: &[PastClock],
    pid: i32,
    guests: &HashMap<i32, GuestTid>,
) -> HashMap<i32, PastClock> {
    let by_guest: HashMap<GuestTid, &PastClock> =
        pasts.iter().filter_map(|past| Some((past.tid?, past))).collect();
    let past_of = |(tid, guest): (&i32, &GuestTid)| {
        let past = by_guest.get(guest)?;
        past.is_of(*guest, started_ticks(pid, *tid)?).then_some((*tid, **past))
    };
    guests.iter().filter_map(past_of).collect()
}

/// When a thread started, clock ticks after boot.
pub fn started_ticks(pid: i32, tid: i32) -> Option<u64> {
    process::stat(&format!("{pid}/task/{tid}")).ok().map(|stat| stat.start_ticks)
}

/// What the next supervisor has to know of a process that came home.
pub fn pasts(service: &Service<'_>, image: &Image) -> Vec<PastClock> {
    let past = |tid, started_ticks, clock: &Clock| PastClock {
        tid,
        started_ticks,
        away: clock.away,
        told: clock.told,
    };
    let lanes = &service.shared.lanes;
    let of_threads = image.threads.iter().filter_map(|thread| {
        let tid = lanes.lock(lanes.slot_of(thread.tid)?).tid;
        let known = service.own.started_ticks(tid);
        let started_ticks = known.or_else(|| started_ticks(service.pid, tid))?;
        Some(past(Some(thread.tid), started_ticks, &thread.clock))
    });
    [past(None, 0, &image.clock)].into_iter().chain(of_threads).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::processor_time::PROCESSOR_TIME_NS_MAX;

    fn time(user_ns: u64, system_ns: u64) -> ProcessorTime {
        ProcessorTime { user_ns, system_ns }
    }

    #[test]
    fn a_clock_that_leaves_takes_along_what_home_shows_and_what_it_spent_away() {
        let mut bytes = vec![0; TOLD_BYTES];
        bytes[..8].copy_from_slice(&3u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&1u64.to_le_bytes());
        bytes[RUSAGE_BYTES..RUSAGE_BYTES + 8].copy_from_slice(&4u64.to_le_bytes());
        let first = told(&bytes, None);
        let seconds = time(3_000_000_000, 1_000_000_000);
        assert_eq!(first, Clock { home_ns: 4_000_000_000, away: time(0, 0), told: seconds });
        let past = PastClock {
            tid: None,
            started_ticks: 0,
            away: time(7, 8),
            told: time(2_000_000_000, 5_000_000_000),
        };
        let second = told(&bytes, Some(&past));
        assert_eq!(second.away, time(7, 8));
        assert_eq!(second.told, time(3_000_000_000, 5_000_000_000));
    }

    #[test]
    fn what_was_used_away_never_becomes_less_and_is_no_nonsense() {
        let used = UsedAway::from(time(3, 1));
        used.hear(time(0, 3));
        assert_eq!(used.told(), time(3, 1));
        used.hear(time(u64::MAX, 7));
        used.hear(time(PROCESSOR_TIME_NS_MAX, 1));
        assert_eq!(used.told(), time(3, 1));
        used.hear(time(4, 2));
        assert_eq!(used.told(), time(4, 2));
    }

    #[test]
    fn threads_are_known_by_their_number_and_their_start() {
        let (pid, tid) = (std::process::id() as i32, nix::unistd::gettid().as_raw());
        let started = started_ticks(pid, tid).unwrap();
        let past = |started_ticks| PastClock {
            tid: Some(GuestTid(9)),
            started_ticks,
            away: time(1, 1),
            told: time(1, 1),
        };
        let guests = HashMap::from([(tid, GuestTid(9))]);
        let of = |pasts: &[PastClock]| past_of_threads(pasts, pid, &guests).get(&tid).copied();
        assert_eq!(of(&[past(started + 1), past(started)]), Some(past(started)));
        assert_eq!(of(&[past(started + 1)]), None);
        assert_eq!(of(&[]), None);
    }
}
