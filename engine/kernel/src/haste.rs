//! Threads that come before all others for the moment in which they are stopped and made to work
//! for us.
//!
//! A process that is being moved runs a dozen times, for microseconds each, and stands still in
//! between. On a crowded node each of these turns has to be waited for like any other: what takes
//! ten milliseconds on a quiet node takes a second among sixteen that compute. So the threads get
//! the best nice value for as long as that lasts, and are spared a quota of their cgroup
//! ([`crate::quota`]). That needs the right to do so; without it all is as it was, and slower.
//!
//! Only threads with a nice value of 0 are hurried. What such a thread starts while it is hurried
//! gets 0 again from the kernel, by the flag that is set with it; the flag is also what tells that
//! a value is ours. Others would leave their children something else than they had.

use crate::Result;
use crate::quota::Relief;

/// As sched_setattr(2) has it, first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Schedule {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Schedule>() as u32;
const NICE_FIRST: i32 = -20;
const SCHED_OTHER: u32 = libc::SCHED_OTHER as u32;
const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;
const USUAL: Schedule = Schedule {
    size: SIZE,
    policy: SCHED_OTHER,
    flags: 0,
    nice: 0,
    priority: 0,
    runtime: 0,
    deadline: 0,
    period: 0,
};
const HURRIED: Schedule = Schedule { flags: RESET_ON_FORK, nice: NICE_FIRST, ..USUAL };

/// Threads are hurried for as long as this lives.
#[derive(Debug, Default)]
pub struct Haste {
    /// With what each had before.
    hurried: Vec<(i32, Schedule)>,
    relief: Option<Relief>,
}

impl Haste {
    /// Hurries those of a process's threads that may be hurried.
    pub fn of(pid: i32, tids: impl IntoIterator<Item = i32>) -> Haste {
        let mut haste = Haste { hurried: Vec::new(), relief: Relief::of(pid) };
        for tid in tids {
            // One that is gone needs nothing.
            let Ok(schedule) = read(tid) else { continue };
            if !is_usual(&schedule) {
                continue;
            }
            // Without the right to it for one there is none for the others.
            if write(tid, &HURRIED).is_err() {
                break;
            }
            haste.hurried.push((tid, schedule));
        }
        haste
    }

    /// What spares the process its quota, for as long as it shall be spared.
    pub fn take_relief(&mut self) -> Option<Relief> {
        self.relief.take()
    }

    /// Whether a thread has the priority that we gave it: without us it has the usual one.
    pub fn is_on(&self, tid: i32) -> bool {
        let is_ours = self.hurried.iter().any(|(hurried, _)| *hurried == tid);
        is_ours && read(tid).is_ok_and(|schedule| is_hurried(&schedule))
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        self.hurried.iter().for_each(|(tid, before)| put_back(*tid, before));
    }
}

/// Threads that serve a body elsewhere, for as long as this lives. The body stands still meanwhile,
/// and on a crowded node each of its calls would wait for a turn of some milliseconds.
#[derive(Debug)]
pub struct Readiness {
    tids: Vec<i32>,
    relief: Option<Relief>,
}

impl Readiness {
    pub fn of(tids: Vec<i32>, relief: Option<Relief>) -> Readiness {
        tids.iter().for_each(|tid| take_short_turns(*tid));
        Readiness { tids, relief }
    }
}

impl Readiness {
    /// A process that one of the threads has made goes where its maker would be without us.
    pub fn give_back(&self, child: i32) {
        if let Some(relief) = &self.relief {
            relief.give_back(child);
        }
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.tids.iter().for_each(|tid| take_usual_turns(*tid));
    }
}

/// The shortest that the kernel takes.
const TURN_NS: u64 = 100_000;

/// Has a thread (0: the calling one) and what it starts take short turns, for one that runs for
/// microseconds at a time while others wait for it. Who asks for short turns gets them soon, and no
/// more processor time than others: the slice of a fair thread, `sched_runtime` of
/// sched_setattr(2), since Linux 6.12. That needs no right; older kernels ignore it.
pub fn take_short_turns(tid: i32) {
    set_turn(tid, TURN_NS);
}

/// Has the calling thread, which ends soon, come before nobody: for long work that others can do
/// without.
pub fn stand_back() {
    if crate::tracee::nice(0).is_ok_and(|nice| nice < 0) {
        // Whoever may come first may stand back.
        let _ = crate::tracee::set_nice(0, 0);
    }
}

/// Threads of this process that come before no other program, for as long as this lives: for long
/// work that nobody stands still for.
#[derive(Debug, Default)]
pub struct StandingBack {
    /// With the nice value that each had before.
    threads: Vec<(i32, i32)>,
}

impl StandingBack {
    /// The calling thread and others. Whoever does not come first is left alone.
    pub fn with(others: &[i32]) -> StandingBack {
        let own = nix::unistd::gettid().as_raw();
        StandingBack::of(&[others, &[own]].concat())
    }

    /// As [`StandingBack::with`], of these alone.
    pub fn of(tids: &[i32]) -> StandingBack {
        let before =
            tids.iter().copied().filter_map(|tid| Some((tid, crate::tracee::nice(tid).ok()?)));
        // Whoever may come first may stand back.
        let stands_back =
            |(tid, nice): &(i32, i32)| *nice < 0 && crate::tracee::set_nice(*tid, 0).is_ok();
        StandingBack { threads: before.filter(stands_back).collect() }
    }
}

impl Drop for StandingBack {
    fn drop(&mut self) {
        for (tid, before) in &self.threads {
            // It has ended, or the right to come first is gone. Then it stays as it is.
            let _ = crate::tracee::set_nice(*tid, *before);
        }
    }
}

/// Ends that.
pub fn take_usual_turns(tid: i32) {
    set_turn(tid, 0);
}

/// How long the turns of a thread are; 0: as usual.
fn set_turn(tid: i32, turn_ns: u64) {
    // One that has ended needs nothing, and who has another policy has reasons for it.
    if let Ok(schedule) = read(tid)
        && schedule.policy == SCHED_OTHER
    {
        let _ = write(tid, &Schedule { runtime: turn_ns, ..schedule });
    }
}

/// Ends the haste of a thread, if it is hurried: also for one whose supervisor was killed.
pub fn end(tid: i32) {
    put_back(tid, &USUAL);
}

fn put_back(tid: i32, before: &Schedule) {
    if read(tid).is_ok_and(|schedule| is_hurried(&schedule)) {
        // It may have ended just now.
        let _ = write(tid, before);
    }
}

fn is_usual(schedule: &Schedule) -> bool {
    let Schedule { policy, flags, nice, .. } = *schedule;
    (policy, flags & RESET_ON_FORK, nice) == (SCHED_OTHER, 0, 0)
}

fn is_hurried(schedule: &Schedule) -> bool {
    let Schedule { policy, flags, nice, .. } = *schedule;
    (policy, flags & RESET_ON_FORK, nice) == (SCHED_OTHER, RESET_ON_FORK, NICE_FIRST)
}

fn read(tid: i32) -> Result<Schedule> {
    let mut schedule = Schedule::default();
    let place = (&raw mut schedule) as u64;
    let arguments = [tid as u64, place, u64::from(SIZE), 0, 0, 0];
    // SAFETY: the kernel writes at most SIZE bytes to a live local of that size.
    unsafe { crate::sys::call("read scheduling", libc::SYS_sched_getattr, arguments) }?;
    Ok(schedule)
}

fn write(tid: i32, schedule: &Schedule) -> Result<()> {
    let place = std::ptr::from_ref(schedule) as u64;
    let arguments = [tid as u64, place, 0, 0, 0, 0];
    // SAFETY: the kernel reads as many bytes as `size` says, which is that of the structure.
    unsafe { crate::sys::call("set scheduling", libc::SYS_sched_setattr, arguments) }.map(drop)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A program that starts another at each line that it reads, and tells its nice value.
    fn program() -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "while read line; do nice; done"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn child_nice(child: &mut Child) -> String {
        use std::io::{Read, Write};
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut text = Vec::new();
        let mut byte = [0];
        while byte != *b"\n" {
            child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap().trim().to_owned()
    }

    fn end_of(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_hurried_thread_is_as_before_afterwards_and_its_children_never_hurry() {
        let mut child = program();
        let tid = child.id() as i32;
        let haste = Haste::of(tid, [tid]);
        if haste.hurried.is_empty() {
            needs::skip("this user may not hurry threads");
            return end_of(child);
        }
        assert_eq!((crate::tracee::nice(tid).unwrap(), haste.is_on(tid)), (-20, true));
        assert_eq!(child_nice(&mut child), "0");
        drop(haste);
        assert!(is_usual(&read(tid).unwrap()));
        end_of(child);
    }

    #[test]
    fn a_thread_that_serves_takes_short_turns_until_it_no_longer_does() {
        let child = program();
        let tid = child.id() as i32;
        let usual = read(tid).unwrap();
        let readiness = Readiness::of(vec![tid], None);
        let ready = read(tid).unwrap();
        // Older kernels than 6.12 know no turns of a fair thread, and say 0.
        assert!(usual.runtime == 0 || ready.runtime == TURN_NS, "{ready:?}");
        assert_eq!(Schedule { runtime: usual.runtime, ..ready }, usual, "nothing else is changed");
        let haste = Haste::of(tid, [tid]);
        drop(haste);
        assert_eq!(read(tid).unwrap(), ready, "haste in between ends none of it");
        drop(readiness);
        assert_eq!(read(tid).unwrap(), usual);
        end_of(child);
    }

    #[test]
    fn a_thread_that_comes_first_can_stand_back_and_one_that_does_already_stays_there() {
        let after = |nice: i32| {
            let set = move || crate::tracee::set_nice(0, nice).map(|()| stand_back());
            let seen = move || set().and_then(|()| crate::tracee::nice(0));
            std::thread::spawn(seen).join().unwrap()
        };
        assert_eq!(after(7).unwrap(), 7);
        match after(-5) {
            Ok(nice) => assert_eq!(nice, 0),
            Err(_) => needs::skip("this user may not hurry threads"),
        }
    }

    #[test]
    fn what_stands_back_comes_first_again_and_what_does_not_come_first_is_left_alone() {
        let work = || {
            let [first, last] = [program(), program()];
            let tids = [0, first.id() as i32, last.id() as i32];
            let nices = || tids.map(|tid| crate::tracee::nice(tid).unwrap());
            let set = |(tid, nice): (&i32, i32)| crate::tracee::set_nice(*tid, nice);
            let is_set = tids.iter().zip([-5, -7, 3]).try_for_each(set).is_ok();
            let standing_back = StandingBack::with(&tids[1..]);
            let during = nices();
            drop(standing_back);
            let after = nices();
            [first, last].into_iter().for_each(end_of);
            is_set.then_some((during, after))
        };
        match std::thread::spawn(work).join().unwrap() {
            Some(seen) => assert_eq!(seen, ([0, 0, 3], [-5, -7, 3])),
            None => needs::skip("this user may not hurry threads"),
        }
    }

    #[test]
    fn who_stands_back_or_has_set_itself_is_left_alone() {
        let child = program();
        let tid = child.id() as i32;
        crate::tracee::set_nice(tid, 7).unwrap();
        let haste = Haste::of(tid, [tid]);
        assert_eq!((haste.hurried.len(), haste.is_on(tid)), (0, false));
        drop(haste);
        end(tid);
        assert_eq!(crate::tracee::nice(tid).unwrap(), 7);
        end_of(child);
    }
}
