//! A body whose home is another machine: its clocks are those of home ([decision
//! 0015](../../../docs/decisions/0015-vdso-and-clocks.md)).
//!
//! Three ways lead to a clock. The vDSO's functions are the stub's (`migrate::elsewhere`), which
//! adds offsets that are set here. System calls that read a clock which no time namespace shifts
//! are answered here. And a wait on a futex until a time of day is made by this node's kernel,
//! which is told its own time of day for it.

use crate::state::Shared;
use kernel::seccomp::Notification;
use kernel::vdso::Stub;
use migrate::elsewhere::Elsewhere;
use migrate::time;
use nix::time::ClockId;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::clocks::{Offset, Readings};

/// Between two questions for the time at home, which somebody may set there, and whose rate is not
/// quite that of ours.
const QUESTION_INTERVAL: Duration = Duration::from_secs(5);

const REALTIME: i32 = libc::CLOCK_REALTIME;
const RAW: i32 = libc::CLOCK_MONOTONIC_RAW;
const REALTIME_COARSE: i32 = libc::CLOCK_REALTIME_COARSE;
const TAI: i32 = libc::CLOCK_TAI;

/// The clocks of this node's kernel that are not those of home, whatever the time namespace.
pub const FOREIGN_CLOCKS: [i32; 4] = [REALTIME, RAW, REALTIME_COARSE, TAI];

pub struct Abroad {
    stub: Stub,
    pub elsewhere: Elsewhere,
    time: Mutex<Time>,
}

struct Time {
    /// As it is shown.
    offset: Offset,
    /// Of the time namespace, which never changes.
    monotonic_ns: i64,
    boot_ns: i64,
    /// When home was asked for the time, if it has not answered yet.
    asked: Option<Readings>,
    next_question: Instant,
}

impl Abroad {
    pub fn new(stub: Stub, elsewhere: Elsewhere, offset: Offset) -> Abroad {
        let time = Time {
            offset,
            monotonic_ns: offset.ahead.monotonic_ns,
            boot_ns: offset.ahead.boot_ns,
            asked: None,
            next_question: Instant::now() + QUESTION_INTERVAL,
        };
        let abroad = Abroad { stub, elsewhere, time: Mutex::new(time) };
        abroad.show(&abroad.time());
        abroad
    }

    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().expect("no thread of the supervisor panicked")
    }

    /// Has the stub show the clocks as they are known now.
    fn show(&self, time: &Time) {
        for clock in FOREIGN_CLOCKS {
            self.stub.set_offset(clock as usize, time.beyond_namespace(clock));
        }
    }

    /// What the guest's clocks show.
    pub fn guest_time(&self) -> Readings {
        let ahead = self.ahead();
        time::now().plus(ahead)
    }

    /// How far its clocks are ahead of this node's.
    pub fn ahead(&self) -> Readings {
        let time = self.time();
        let (monotonic_ns, boot_ns) = (time.monotonic_ns, time.boot_ns);
        let (coarse_ns, real_coarse_ns) = (monotonic_ns, time.offset.ahead.real_ns);
        Readings { monotonic_ns, boot_ns, coarse_ns, real_coarse_ns, ..time.offset.ahead }
    }

    /// What the guest is to read on one of the [`FOREIGN_CLOCKS`], nanoseconds.
    pub fn read(&self, clock: i32) -> i64 {
        let offset_ns = self.time().ahead_of(clock);
        kernel::clocks::ns(ClockId::from_raw(clock)).saturating_add(offset_ns)
    }

    /// The time of day that this node's kernel has when the guest reads `guest_ns`.
    pub fn node_time_ns(&self, guest_ns: i64) -> i64 {
        guest_ns.saturating_sub(self.time().ahead_of(REALTIME))
    }

    /// True if home is to be asked for the time now.
    pub fn asks(&self) -> bool {
        let mut time = self.time();
        let now = Instant::now();
        if now < time.next_question {
            return false;
        }
        time.next_question = now + QUESTION_INTERVAL;
        time.asked = Some(time::now());
        true
    }

    /// Home has told the time.
    pub fn hear(&self, told: Readings) {
        let answered = time::now();
        let mut time = self.time();
        let Some(asked) = time.asked.take() else { return };
        time.offset = time.offset.corrected(Offset::measured(asked, told, answered));
        self.show(&time);
    }
}

impl Time {
    fn ahead_of(&self, clock: i32) -> i64 {
        let ahead = &self.offset.ahead;
        match clock {
            REALTIME | REALTIME_COARSE => ahead.real_ns,
            RAW => ahead.raw_ns,
            TAI => ahead.tai_ns,
            _ => 0,
        }
    }

    /// The part of it that the time namespace does not add already: it shifts the raw monotonic
    /// clock as it shifts the other.
    fn beyond_namespace(&self, clock: i32) -> i64 {
        match clock {
            RAW => self.ahead_of(RAW).saturating_sub(self.monotonic_ns),
            _ => self.ahead_of(clock),
        }
    }
}

/// Writes what a call that reads a clock is told; returns its result.
pub(crate) fn tell_time(shared: &Shared, n: &Notification, ns: i64) -> i64 {
    let (seconds, part) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (address, bytes, result) = match i64::from(n.number) {
        libc::SYS_time => (n.arguments[0], seconds.to_le_bytes().to_vec(), seconds),
        libc::SYS_gettimeofday => (n.arguments[0], words(seconds, part / 1000), 0),
        _ => (n.arguments[1], words(seconds, part), 0),
    };
    let may_be_null = i64::from(n.number) != libc::SYS_clock_gettime;
    let is_written = (address == 0 && may_be_null)
        || shared.memory.write_as_guest(address, &bytes) == bytes.len();
    if is_written { result } else { -i64::from(libc::EFAULT) }
}

fn words(first: i64, second: i64) -> Vec<u8> {
    [first, second].iter().flat_map(|word| word.to_le_bytes()).collect()
}
