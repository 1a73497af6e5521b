//! The guest's processor clocks: what home has counted, what was spent on earlier nodes, and what
//! this node's kernel counts.
//!
//! Home's part is as of the thread's last reply, because a deputy computes only to execute calls.
//! So a clock is read here, without asking home, and is right all the same.

use crate::state::{Outstanding, State, Thread};
use kernel::proc::process::{self, TICK_NS};
use kernel::processor_time::{ThreadClock, process_ns};
use wire::calls::Emulation;
use wire::forward::{Output, Place, Segment};
use wire::ids::GuestTid;
use wire::processor_time::layout::{read_ticks, read_usage, write_ticks, write_usage};
use wire::processor_time::{Clock, PROCESSOR_TIME_NS_MAX, ProcessorTime, divide};

/// The clock of the body or of one of its threads.
#[derive(Debug)]
pub struct Meter {
    source: Source,
    /// What the sandbox had used before the guest ran in it.
    at_start: Reading,
    /// Everything but what was spent here.
    before: Clock,
}

#[derive(Debug)]
enum Source {
    Process(i32),
    Thread(ThreadClock),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    ns: u64,
    ticks: ProcessorTime,
}

impl Source {
    fn ns(&self) -> u64 {
        match self {
            Source::Process(pid) => process_ns(*pid),
            Source::Thread(clock) => clock.read_ns(),
        }
    }

    /// User and system time as the kernel tells them of others: by clock ticks.
    fn ticks(&self) -> ProcessorTime {
        let (user_ns, system_ns) = match self {
            Source::Process(pid) => process::stat(&pid.to_string())
                .map_or((0, 0), |stat| (stat.user_ns, stat.system_ns)),
            Source::Thread(clock) => clock.ticks(),
        };
        ProcessorTime { user_ns, system_ns }
    }

    /// [`Source::ticks`] when the source says `ns`: before the first tick the kernel tells none,
    /// and most of many threads have not come so far.
    fn ticks_at(&self, ns: u64) -> ProcessorTime {
        if ns < TICK_NS { ProcessorTime::default() } else { self.ticks() }
    }

    fn read(&self) -> Reading {
        let ns = self.ns();
        Reading { ns, ticks: self.ticks_at(ns) }
    }
}

impl Meter {
    /// Of the whole body, from now on.
    pub fn of_process(pid: i32, before: Clock) -> Meter {
        Meter::start(Source::Process(pid), before)
    }

    /// Of one thread, from now on.
    pub fn of_thread(pid: i32, tid: i32, before: Clock) -> Meter {
        Meter::start(Source::Thread(ThreadClock::of(pid, tid)), before)
    }

    fn start(source: Source, before: Clock) -> Meter {
        Meter { at_start: source.read(), source, before }
    }

    /// All processor time up to now.
    pub fn total_ns(&self) -> u64 {
        self.before.total_ns().saturating_add(self.here_ns())
    }

    /// As it travels.
    pub fn clock(&self) -> Clock {
        Clock { away: self.away(), ..self.before }
    }

    /// All processor time as the guest is told it, given how home divides its part.
    pub fn tell(&mut self, home: ProcessorTime) -> ProcessorTime {
        self.before.told = divide(self.total_ns(), home.plus(self.away()), self.before.told);
        self.before.told
    }

    /// Home has counted `ns` by now; what that is more than was known.
    fn hear(&mut self, ns: u64) -> u64 {
        let ns = ns.min(PROCESSOR_TIME_NS_MAX);
        let more = ns.saturating_sub(self.before.home_ns);
        self.add_home(more);
        more
    }

    fn add_home(&mut self, ns: u64) {
        let sum = self.before.home_ns.saturating_add(ns);
        self.before.home_ns = sum.min(PROCESSOR_TIME_NS_MAX);
    }

    fn here_ns(&self) -> u64 {
        self.source.ns().saturating_sub(self.at_start.ns)
    }

    /// What was spent away, here and before.
    pub fn away(&self) -> ProcessorTime {
        let ns = self.source.ns();
        let (ticks, start) = (self.source.ticks_at(ns), self.at_start.ticks);
        let here = ProcessorTime {
            user_ns: ticks.user_ns.saturating_sub(start.user_ns),
            system_ns: ticks.system_ns.saturating_sub(start.system_ns),
        };
        let here_ns = ns.saturating_sub(self.at_start.ns);
        self.before.away.plus(divide(here_ns, here, ProcessorTime::default()))
    }
}

/// The most memory that the body had in use.
#[derive(Debug)]
pub struct Peak {
    pid: i32,
    /// On earlier nodes.
    before_kib: u64,
}

impl Peak {
    /// From now on.
    pub fn new(pid: i32, before_kib: u64) -> Peak {
        // What the sandbox was made from is forgotten (proc_pid_clear_refs(5)); if it cannot be,
        // the peak is a few megabytes too high.
        if let Err(error) = std::fs::write(format!("/proc/{pid}/clear_refs"), "5") {
            ::tracing::debug!("peak memory of {pid}: {error}");
        }
        Peak { pid, before_kib }
    }

    pub fn rss_kib(&self) -> u64 {
        let status = process::status(self.pid).unwrap_or_default();
        self.before_kib.max(process::status_kib(&status, "VmHWM").unwrap_or(0))
    }
}

impl State {
    /// A thread has come to know its clock at home.
    pub fn hear_clock(&mut self, local: i32, home_ns: u64) {
        if let Some(thread) = self.threads.get_mut(&local) {
            let more = thread.meter.hear(home_ns);
            self.meter.add_home(more);
        }
    }

    /// The time on a clock that thread `caller` reads, if it is the process's own.
    pub fn read_clock(&self, caller: &Thread, process: GuestTid, clock: i32) -> Option<u64> {
        match named_clock(clock) {
            Named::Process(0) => Some(self.meter.total_ns()),
            // Linux takes the calling thread's number, too.
            Named::Process(id) if id == process.0 || id == caller.guest.0 => {
                Some(self.meter.total_ns())
            }
            Named::Process(_) => None,
            Named::Thread(0) => Some(caller.meter.total_ns()),
            Named::Thread(id) => {
                let named = self.threads.values().find(|thread| thread.guest.0 == id);
                named.map(|thread| thread.meter.total_ns())
            }
        }
    }

    /// Adds to what a call told of processor time at home what was spent away.
    pub fn complete_times(&mut self, local: i32, call: &Outstanding, outputs: &mut [Output]) {
        let Some(output) = outputs.first_mut() else { return };
        match call.emulation {
            Some(Emulation::ResourceUsage) => {
                let home = read_usage(&output.data);
                let told = match call.call.arguments[0] as i32 {
                    RUSAGE_THREAD => {
                        let Some(thread) = self.threads.get_mut(&local) else { return };
                        thread.meter.tell(home)
                    }
                    _ => self.meter.tell(home),
                };
                write_usage(&mut output.data, told, self.peak.rss_kib());
            }
            Some(Emulation::Times) => {
                let told = self.meter.tell(read_ticks(&output.data));
                write_ticks(&mut output.data, told);
            }
            _ => {}
        }
    }
}

/// Adds to the usage of a child that wait4 has told what it used away.
pub fn add_usage(segments: &[Segment], outputs: &mut [Output], used: ProcessorTime) {
    let is_usage = |index: u16| {
        let segment = segments.get(usize::from(index));
        segment.is_some_and(|segment| segment.place == Place::Argument(3))
    };
    for output in outputs.iter_mut().filter(|output| is_usage(output.segment)) {
        let told = read_usage(&output.data).plus(used);
        write_usage(&mut output.data, told, 0);
    }
}

const RUSAGE_THREAD: i32 = 1;
const CLOCK_PROCESS: i32 = libc::CLOCK_PROCESS_CPUTIME_ID;
const CLOCK_THREAD: i32 = libc::CLOCK_THREAD_CPUTIME_ID;
/// CPUCLOCK_PERTHREAD_MASK.
const IS_OF_THREAD: i32 = 4;

/// Whose time a clock number of processor time names; 0 is the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Process(i32),
    Thread(i32),
}

fn named_clock(clock: i32) -> Named {
    match clock {
        CLOCK_PROCESS => Named::Process(0),
        CLOCK_THREAD => Named::Thread(0),
        _ if clock & IS_OF_THREAD != 0 => Named::Thread(!(clock >> 3)),
        _ => Named::Process(!(clock >> 3)),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn time(user_ns: u64, system_ns: u64) -> ProcessorTime {
        ProcessorTime { user_ns, system_ns }
    }

    fn own_meter(before: Clock) -> Meter {
        Meter::of_process(std::process::id() as i32, before)
    }

    const BEFORE: Clock = Clock {
        home_ns: 5_000_000_000,
        away: ProcessorTime { user_ns: 2_000_000_000, system_ns: 1_000_000_000 },
        told: ProcessorTime { user_ns: 4_000_000_000, system_ns: 3_500_000_000 },
    };

    #[test]
    fn a_clock_is_what_home_and_all_nodes_have_counted() {
        let meter = own_meter(BEFORE);
        let total_ns = meter.total_ns();
        assert!(total_ns >= 8_000_000_000);
        assert!(meter.clock().total_ns() >= total_ns);
        let away_ns = meter.away().total_ns();
        assert!(away_ns >= 3_000_000_000 && away_ns < meter.total_ns());
    }

    #[test]
    fn work_at_home_advances_the_clock_once() {
        let mut meter = own_meter(BEFORE);
        assert_eq!(meter.hear(5_000_000_100), 100);
        assert_eq!(meter.hear(5_000_000_100), 0);
        assert_eq!(meter.hear(0), 0, "nobody looked");
        assert_eq!(meter.before.home_ns, 5_000_000_100);
        meter.hear(u64::MAX);
        meter.add_home(u64::MAX);
        assert_eq!(meter.before.home_ns, PROCESSOR_TIME_NS_MAX);
    }

    #[test]
    fn what_is_told_sums_up_to_the_clock_and_neither_part_goes_back() {
        let mut meter = own_meter(BEFORE);
        let clock_ns = meter.total_ns();
        let told = meter.tell(time(5_000_000_000, 0));
        assert!(told.total_ns() >= clock_ns);
        assert_eq!(told.system_ns, 3_500_000_000, "more than its share was told before");
        assert!(meter.total_ns() >= told.total_ns());
        let next = meter.tell(time(0, 5_000_000_000));
        assert!(next.user_ns >= told.user_ns && next.system_ns >= told.system_ns);
    }

    #[test]
    fn clock_numbers_name_their_owners_as_in_linux() {
        assert_eq!(named_clock(2), Named::Process(0));
        assert_eq!(named_clock(3), Named::Thread(0));
        assert_eq!(named_clock(!4711 << 3 | 2), Named::Process(4711));
        assert_eq!(named_clock(!4711 << 3 | 6), Named::Thread(4711));
        assert_eq!(named_clock(!0 << 3 | 6), Named::Thread(0));
        let (pid, clock) = (nix::unistd::Pid::this(), nix::time::clock_getcpuclockid);
        assert_eq!(named_clock(clock(pid).unwrap().as_raw()), Named::Process(pid.as_raw()));
    }
}
