//! Calls in, replies out: the two threads that serve the body.
//!
//! The *reader* takes calls off the link and hands them to their lanes; most are done within
//! microseconds, so it waits for the result for a moment before it goes back to the link. The
//! *waiter* sleeps on the doorbell for all that take longer.
//!
//! Both sleep and never spin: to wake a halted processor costs more than the whole call, and a
//! reader that spins keeps the deputy from running on the processor that is awake already. For the
//! same reason the reader follows a thread that alone makes calls to its processor: left alone, the
//! two would wake each other across processors for ever. Of several that make calls at the same
//! time it follows none.

use crate::lanes::{Accepted, Work, plain_reply};
use crate::notice::Notice;
use crate::service::Shared;
use crate::{credentials, direct_files, exec, onlookers, own_files, priorities, read_ahead};
use kernel::regs::ERESTARTNOINTR;
use link::LinkReader;
use migrate::files::Files;
use migrate::packing::unpack_pages;
use migrate::{MigrateError, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::forward::{Call, Declined, Reply, ToAway, ToHome};
use wire::ids::GuestTid;

/// How long the reader waits for a call before it leaves it to the waiter: longer than a wake-up of
/// an idle processor takes, shorter than a guest would notice of a neighbour's call.
const PATIENCE: Duration = Duration::from_micros(100);
/// The same for a process of one thread, which has no neighbours: beyond the next tick, because a
/// timer that the clock has to be set for costs 3 us more than one that never fires.
const PATIENCE_ALONE: Duration = Duration::from_millis(5);

/// What is of no use if it comes too often.
fn tell_now_and_then(shared: &Shared, notice: Notice) {
    if !shared.is_flooded() {
        shared.notify(notice);
    }
}

/// Serves the link until the body goes, then hands the link over with what was said last.
pub fn read(shared: &Arc<Shared>, generation: u64, mut reader: LinkReader) {
    let mut seat = Seat::default();
    loop {
        let message = match reader.receive::<ToHome>() {
            Ok(message) => message,
            Err(error) => {
                shared.notify(Notice::LinkLost { generation, error: error.to_string() });
                return;
            }
        };
        match message {
            ToHome::Call(call) => {
                if !take(shared, call, &mut seat) {
                    let error = "the body made a call that no honest body makes".to_owned();
                    shared.notify(Notice::LinkLost { generation, error });
                    return;
                }
            }
            ToHome::Taken { tid, sequence } => {
                if let Some(slot) = shared.lanes.slot_of(tid) {
                    shared.lanes.forget(slot, sequence);
                }
            }
            ToHome::Awaits { tid, sequence } => repeat(shared, tid, sequence),
            ToHome::MaskChanged { tid, mask } => note_mask(shared, tid, mask),
            message @ (ToHome::ReadsOwn { .. }
            | ToHome::Seeks { .. }
            | ToHome::WantsFile { .. }
            | ToHome::UsedDirectly { .. }
            | ToHome::Ahead(_)) => take_of_file(shared, message),
            ToHome::AskTime => shared.send(&ToAway::Time(migrate::time::now())),
            ToHome::Usage { away, rss_bytes } => {
                shared.used_away.hear(away);
                tell_now_and_then(shared, Notice::Usage { rss_bytes });
            }
            ToHome::ChildMade { tid, child, has_body } => {
                if let Some(slot) = shared.lanes.slot_of(tid) {
                    tell_now_and_then(shared, Notice::ChildMade { slot, child, has_body });
                }
            }
            ToHome::Clocks { process, thread } => exec::hear_clocks(shared, process, thread),
            ToHome::Progress(progress) => tell_now_and_then(shared, Notice::Progress(progress)),
            // The link is the main thread's from here on: it reads the image itself.
            ToHome::NeedsHome(_) | ToHome::Frozen | ToHome::MovedOn { .. } => {
                shared.notify(Notice::Leaving { message, reader: Box::new(reader) });
                return;
            }
            // Neither may be left out.
            ToHome::Stayed(_) | ToHome::Filled(_) if shared.is_flooded() => {
                let error = "the body floods its home".to_owned();
                shared.notify(Notice::LinkLost { generation, error });
                return;
            }
            ToHome::Stayed(reason) => shared.notify(Notice::Stayed(reason)),
            ToHome::Filled(filled) => shared.notify(Notice::Filled(filled)),
            ToHome::Gone(reason) => {
                shared.notify(Notice::Gone { generation, reason });
                return;
            }
            other => {
                if let Err(error) = take_other(shared, other) {
                    let error = error.to_string();
                    shared.notify(Notice::LinkLost { generation, error });
                    return;
                }
            }
        }
    }
}

/// What is about a file that the body reads or writes by itself.
fn take_of_file(shared: &Arc<Shared>, message: ToHome) {
    match message {
        ToHome::ReadsOwn { tid, id, descriptor } => own_files::tell(shared, (tid, id), descriptor),
        ToHome::Seeks { descriptor, position } => own_files::seek(shared, descriptor, position),
        ToHome::WantsFile { descriptor, id } => direct_files::offer(shared, descriptor, id),
        ToHome::UsedDirectly { descriptor, position, has_written } => {
            direct_files::hear(shared, descriptor, position, has_written);
        }
        ToHome::Ahead(asked) => read_ahead::hear(shared, asked),
        _ => {}
    }
}

/// Notes what a thread is to block; of one that was made away, also that its body lives.
fn note_mask(shared: &Shared, tid: GuestTid, mask: u64) {
    let Some(slot) = shared.lanes.slot_of(tid) else { return };
    let mut lane = shared.lanes.lock(slot);
    if std::mem::take(&mut lane.is_unborn) {
        lane.priority = None;
    }
    // From here on calls wait for it: one may give the thread yet another mask.
    let before = lane.mask_due.replace(mask);
    drop(lane);
    // The last one counts, and its thread is told once.
    if before.is_none() {
        shared.notify(Notice::MaskChanged { slot });
    }
}

/// What comes of a body's memory before it is frozen.
fn take_other(shared: &Shared, message: ToHome) -> Result<()> {
    let unasked = || MigrateError::Protocol("memory that home does not wait for".into());
    match message {
        ToHome::Written(pages) => onlookers::take(shared, &pages),
        ToHome::Shares(memory) if !shared.is_flooded() => {
            shared.notify(Notice::Shares(memory));
            Ok(())
        }
        ToHome::ComesAhead { draft, heap_end } if !shared.is_flooded() => {
            shared.notify(Notice::ComesAhead { draft, heap_end });
            Ok(())
        }
        ToHome::Pages(_) | ToHome::PackedPages(_) => {
            let mut arriving = shared.arriving();
            let arriving = arriving.as_mut().ok_or_else(unasked)?;
            let (pages, sent) = unpack_pages(message)?;
            arriving.write(&shared.lanes.memory, &pages, sent)
        }
        ToHome::Discard(spans) => shared.arriving().as_mut().ok_or_else(unasked)?.discard(&spans),
        other => Err(MigrateError::Protocol(format!("unexpected {}", migrate::head_of(&other)))),
    }
}

/// Starts a call; false if it is none that an honest body makes.
fn take(shared: &Arc<Shared>, call: Call, seat: &mut Seat) -> bool {
    let Some(slot) = shared.lanes.slot_of(call.tid) else {
        let is_last = i64::from(call.number) == libc::SYS_exit;
        let has_ended = is_last && shared.lanes.has_ended(call.tid);
        if has_ended {
            // The body repeats its last words after a move.
            shared.reply(plain_reply(&call, 0));
        }
        return has_ended;
    };
    match begin(shared, slot, call) {
        None => return false,
        Some(Begun::Over) => return true,
        Some(Begun::UnderWay) => {}
    }
    if shared.lanes.is_exiting(slot) {
        // Its end has a stop of its own: to wait for it here would have the calls of others wait.
        return true;
    }
    let agent = &shared.lanes.agent;
    let is_alone = shared.lanes.is_alone();
    let patience = if is_alone { PATIENCE_ALONE } else { PATIENCE };
    if agent.await_done(slot, Instant::now() + patience) {
        seat.follow(slot, agent.processor(slot));
    }
    if !finish(shared, slot) {
        shared.wake_waiter();
    }
    true
}

/// Answers the call of a slot; false if it is not over.
fn finish(shared: &Shared, slot: usize) -> bool {
    let Some(reply) = shared.lanes.complete(slot) else { return false };
    if exec::is_doubtful(shared, slot, &reply) {
        let (tid, sequence) = (reply.tid, reply.sequence);
        shared.send(&ToAway::Decline { tid, sequence, because: Declined::Exec });
        return true;
    }
    let has_changed = |(call, _): &(Call, Reply)| priorities::may_change(call.number);
    if shared.lanes.lock(slot).answered.as_ref().is_some_and(has_changed) {
        // Said first: the guest goes on under it.
        priorities::tell(shared);
    }
    direct_files::tell_opened(shared, slot, &reply);
    shared.reply_unless_news(reply);
    true
}

/// What became of a call when it was begun.
pub enum Begun {
    UnderWay,
    /// It was answered, or will be begun later.
    Over,
}

/// Why a call is not made for a body that is away, if it is not.
fn declined(shared: &Shared, slot: usize, call: &Call) -> Option<Declined> {
    let touches = |files: &Files| files.are_touched_by(shared.pid, call);
    if shared.files.as_ref().is_some_and(touches) {
        return Some(Declined::SharedFile);
    }
    if is_first_to_end(shared, slot, call) {
        return Some(Declined::FirstThread);
    }
    if exec::is_for_a_plain_process(shared, slot, call) {
        return Some(Declined::Exec);
    }
    let tid = || shared.lanes.lock(slot).tid;
    if credentials::changes(shared.pid, tid, call) {
        return Some(Declined::Credentials);
    }
    shared.own_files.decline(shared.pid, call)
}

/// Whether the first thread ends while others go on. It stays as a zombie then, and what the kernel
/// tells and does by the number of the process is of that thread: its memory, files and mappings
/// could not be reached any more, neither here nor away.
fn is_first_to_end(shared: &Shared, slot: usize, call: &Call) -> bool {
    slot == 0
        && i64::from(call.number) == libc::SYS_exit
        && shared.lanes.live_slots().iter().any(|other| *other != 0)
}

/// Begins a call; None if it is none that an honest body makes.
pub fn begin(shared: &Shared, slot: usize, call: Call) -> Option<Begun> {
    let number = call.number;
    if let Some(because) = declined(shared, slot, &call) {
        // Not made at all: the body comes home for it.
        let (tid, sequence) = (call.tid, call.sequence);
        shared.send(&ToAway::Decline { tid, sequence, because });
        return Some(Begun::Over);
    }
    Some(match shared.lanes.accept(slot, call)? {
        Accepted::Waits => Begun::Over,
        Accepted::Answered(reply) => {
            shared.reply_unless_news(reply);
            Begun::Over
        }
        Accepted::MapsFile => {
            shared.count(number);
            shared.notify(Notice::MapFile { slot });
            Begun::Over
        }
        Accepted::MakesTask => {
            shared.count(number);
            shared.notify(Notice::MakeTask { slot });
            Begun::Over
        }
        Accepted::Started => {
            // Only now is it a number of a call that is forwarded.
            shared.count(number);
            Begun::UnderWay
        }
    })
}

/// The processor that the calling thread keeps to: that of the only thread that makes calls.
#[derive(Default)]
struct Seat {
    slot: usize,
    /// Calls that it has made since another made one.
    calls: u32,
    processor: Option<usize>,
    /// Where we ran before.
    allowed: Option<CpuSet>,
}

/// After so many calls of one thread it is taken for the only one that makes any.
const CALLS_OF_ONE: u32 = 8;

impl Seat {
    fn follow(&mut self, slot: usize, processor: usize) {
        if slot != self.slot {
            (self.slot, self.calls, self.processor) = (slot, 0, None);
            if let Some(allowed) = self.allowed.take() {
                keep_to(&allowed);
            }
        }
        self.calls = self.calls.saturating_add(1);
        if self.calls < CALLS_OF_ONE || self.processor == Some(processor) {
            return;
        }
        self.processor = Some(processor);
        if self.allowed.is_none() {
            self.allowed = sched_getaffinity(Pid::from_raw(0)).ok();
        }
        let mut there = CpuSet::new();
        if there.set(processor).is_ok() {
            keep_to(&there);
        }
    }
}

/// Where we may not run, or what does not exist, is not followed.
fn keep_to(processors: &CpuSet) {
    let _ = sched_setaffinity(Pid::from_raw(0), processors);
}

/// A thread that was moved in the middle of a call waits for its reply again.
fn repeat(shared: &Shared, tid: GuestTid, sequence: u64) {
    let Some(slot) = shared.lanes.slot_of(tid) else {
        if shared.lanes.has_ended(tid) {
            shared.reply(Reply { tid, sequence, result: 0, outputs: vec![], home_ns: 0 });
        }
        return;
    };
    let reply = {
        let lane = shared.lanes.lock(slot);
        match (&lane.work, &lane.answered) {
            (Work::Idle, _) if lane.waiting.as_ref().is_some_and(|c| c.sequence == sequence) => {
                return;
            }
            (Work::Busy { call, .. }, _) if call.sequence == sequence => return,
            (Work::Exiting { .. }, _) => return,
            (Work::Gone, _) => Reply { tid, sequence, result: 0, outputs: vec![], home_ns: 0 },
            (_, Some((_, reply))) if reply.sequence == sequence => reply.clone(),
            // It was never executed: the thread makes it afresh.
            _ => Reply { tid, sequence, result: ERESTARTNOINTR, outputs: vec![], home_ns: 0 },
        }
    };
    shared.reply_unless_news(reply);
}

/// Replies to calls that took long, until the service ends.
pub fn wait(shared: &Arc<Shared>) {
    let agent = &shared.lanes.agent;
    loop {
        // Before it is asked whether this is the end, which is said before either is counted up.
        let (turn, seen) = (shared.slow_calls(), agent.doorbell());
        if shared.is_ending.load(Ordering::SeqCst) {
            return;
        }
        let mut is_any_busy = false;
        for slot in 0..shared.lanes.count() {
            finish(shared, slot);
            is_any_busy |= matches!(shared.lanes.lock(slot).work, Work::Busy { .. });
        }
        if is_any_busy {
            agent.wait_doorbell(seen, None);
        } else {
            shared.await_slow_call(turn);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_reader_follows_whoever_alone_makes_calls() {
        let at = || sched_getaffinity(Pid::from_raw(0)).unwrap();
        // In a thread of its own, which keeps what it is left with.
        let follower = std::thread::spawn(move || {
            let (before, mut seat) = (at(), Seat::default());
            let processor = (0..CpuSet::count()).find(|n| before.is_set(*n).unwrap()).unwrap();
            let mut there = CpuSet::new();
            there.set(processor).unwrap();
            (1..CALLS_OF_ONE).for_each(|_| seat.follow(3, processor));
            assert_eq!(at(), before, "others may make some as well");
            seat.follow(3, processor);
            assert_eq!(at(), there);
            seat.follow(4, processor);
            assert_eq!(at(), before);
        });
        follower.join().unwrap();
    }
}
