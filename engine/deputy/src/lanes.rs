//! One lane for each thread of the deputy: what it is doing for its body.

use crate::departed::DepartedThread;
use crate::new_threads::led_by_ptrace;
use crate::tids::Tids;
use kernel::agent::{Agent, BatchCall, STAGING_BYTES};
use kernel::memory::Memory;
use kernel::processor_time::ThreadClock;
use kernel::regs::{ERESTART_RESTARTBLOCK, ERESTARTNOINTR, ERESTARTSYS};
use kernel::signal::{ACTION_BYTES, Action};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use wire::calls::{self, thread};
use wire::forward::{Call, Output, Reply, Signal};
use wire::ids::GuestTid;
use wire::image::Priority;

/// What a thread of the deputy is doing.
#[derive(Debug)]
pub enum Work {
    Idle,
    /// Executing this call, since then.
    Busy {
        call: Call,
        since: Instant,
        place: Place,
    },
    /// Its last act: exit(2).
    Exiting {
        sequence: u64,
    },
    /// The thread has ended, or none has begun.
    Gone,
}

/// Where a call's memory was staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the slot's own staging area.
    Slot,
    /// Where the guest has it: a call that the thread was in when the process left.
    Guest,
}

#[derive(Debug)]
pub struct Lane {
    pub guest: GuestTid,
    /// As this supervisor sees it.
    pub tid: i32,
    pub work: Work,
    /// The last call that was answered, and the answer: repeated if it is asked for again.
    pub answered: Option<(Call, Reply)>,
    /// The mask that the thread gets at its next stop.
    pub mask_due: Option<u64>,
    /// A call that came before it had that mask.
    pub waiting: Option<Call>,
    /// The most that a call has taken of the staging area since it was last given back, bytes.
    staged: usize,
    /// Signals forwarded to this thread, in all.
    pub signals_sent: u64,
    /// Those of them that the body is not known to have seen.
    pub signals_unseen: VecDeque<Signal>,
    /// As the body was told last; None if it is to be told anew.
    pub priority: Option<Priority>,
    pub clock: ThreadClock,
    /// The body has not said yet that it has this thread, too.
    pub is_unborn: bool,
}

impl Lane {
    /// The lane of a thread of process `pid` that has just left.
    pub fn of(pid: i32, thread: DepartedThread) -> Lane {
        let (guest, tid) = (thread.stopped.guest, thread.stopped.tid);
        let work = thread.kept.map_or(Work::Idle, |kept| Work::Busy {
            call: Call {
                tid: guest,
                sequence: kept.sequence,
                signals_seen: 0,
                number: kept.number,
                arguments: kept.arguments,
                segments: kept.segments,
            },
            since: Instant::now(),
            place: Place::Guest,
        });
        Lane { work, ..Lane::idle(pid, guest, tid) }
    }

    /// The lane of a thread of process `pid` that its body does not have yet.
    pub fn unborn(pid: i32, guest: GuestTid, tid: i32) -> Lane {
        Lane { is_unborn: true, ..Lane::idle(pid, guest, tid) }
    }

    /// The lane of a thread that was asked for nothing yet.
    fn idle(pid: i32, guest: GuestTid, tid: i32) -> Lane {
        Lane {
            guest,
            tid,
            work: Work::Idle,
            answered: None,
            mask_due: None,
            waiting: None,
            staged: 0,
            signals_sent: 0,
            signals_unseen: VecDeque::new(),
            priority: None,
            clock: ThreadClock::of(pid, tid),
            is_unborn: false,
        }
    }

    /// Where a thread may begin.
    fn spare() -> Lane {
        Lane { work: Work::Gone, ..Lane::idle(0, GuestTid(0), 0) }
    }

    /// Numbers a signal for this thread and remembers it until the body has seen it.
    pub fn number_signal(&mut self, number: i32, siginfo: Vec<u8>) -> Signal {
        self.signals_sent += 1;
        let signal = Signal { tid: self.guest, index: self.signals_sent, number, siginfo };
        self.signals_unseen.push_back(signal.clone());
        signal
    }

    fn forget_seen(&mut self, signals_seen: u64) {
        while self.signals_unseen.front().is_some_and(|s| s.index <= signals_seen) {
            self.signals_unseen.pop_front();
        }
    }
}

/// All lanes; the index is the agent's slot. There are as many as slots: threads begin in those of
/// others that have ended, or that never were.
pub struct Lanes {
    pub agent: Agent,
    pub memory: Memory,
    lanes: Vec<Mutex<Lane>>,
    tids: Mutex<Tids>,
    /// What large calls held was let go.
    has_freed: AtomicBool,
    /// Dispositions of signals 1..=64 as the guest has set them. Updated before the call that sets
    /// one executes: whether there *is* a handler is asked of the kernel.
    actions: Mutex<Vec<Action>>,
    /// Those with SA_RESETHAND, as they were when their signal went to the body: it may come back
    /// with the process before its handler has run. Until the guest wants no handler.
    resets: Mutex<BTreeMap<i32, Action>>,
}

/// What to do with a call that arrived.
pub enum Accepted {
    /// The thread executes it.
    Started,
    /// It makes a thread or a process, or maps a file, which takes ptrace.
    MakesTask,
    MapsFile,
    /// Nothing is executed; this is the answer.
    Answered(Reply),
    /// The thread executes it once it has the mask that it is to be made under.
    Waits,
}

impl Lanes {
    pub fn new(agent: Agent, memory: Memory, lanes: Vec<Lane>, actions: Vec<Action>) -> Lanes {
        let tids = Mutex::new(Tids::of(lanes.iter().map(|lane| lane.guest)));
        let spare = std::iter::repeat_with(Lane::spare);
        let lanes = lanes.into_iter().chain(spare).take(agent.slots());
        let lanes = lanes.map(Mutex::new).collect();
        let has_freed = AtomicBool::new(false);
        let (actions, resets) = (Mutex::new(actions), Mutex::default());
        Lanes { agent, memory, lanes, tids, has_freed, actions, resets }
    }

    /// The guest's disposition of a signal.
    pub fn action(&self, signal: i32) -> Action {
        let actions = self.actions.lock().expect("no thread of the supervisor panicked");
        let index = usize::try_from(signal - 1).ok();
        index.and_then(|i| actions.get(i)).copied().unwrap_or_default()
    }

    pub fn set_action(&self, signal: i32, action: Action) {
        let mut actions = self.actions.lock().expect("no thread of the supervisor panicked");
        let index = usize::try_from(signal - 1).ok();
        if let Some(entry) = index.and_then(|i| actions.get_mut(i)) {
            *entry = action;
        }
    }

    /// The disposition of a signal becomes the default, as its handler is to be entered.
    pub fn reset_action(&self, signal: i32) -> Action {
        let before = self.action(signal);
        let reset = Action { handler: 0, ..before };
        self.set_action(signal, reset);
        self.resets().insert(signal, before);
        reset
    }

    /// What the disposition was when it was last reset. If there is a handler again, that counts.
    pub fn before_reset(&self, signal: i32) -> Option<Action> {
        self.resets().get(&signal).copied()
    }

    fn resets(&self) -> MutexGuard<'_, BTreeMap<i32, Action>> {
        self.resets.lock().expect("no thread of the supervisor panicked")
    }

    /// Notes the disposition that a call is about to set.
    fn note_action(&self, call: &Call) {
        if i64::from(call.number) == libc::SYS_rt_sigaction
            && let Some(action) = calls::argument_bytes(&call.segments, 1).and_then(Action::decode)
        {
            let signal = call.arguments[0] as i32;
            self.set_action(signal, action);
            // Another handler is there when the call was made, and until then it is this one.
            if !action.is_handler() {
                self.resets().remove(&signal);
            }
        }
    }

    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    pub fn lock(&self, slot: usize) -> MutexGuard<'_, Lane> {
        self.lanes[slot].lock().expect("no thread of the supervisor panicked")
    }

    pub fn slot_of(&self, guest: GuestTid) -> Option<usize> {
        self.tids().slot_of(guest)
    }

    /// The slot of a thread as this supervisor sees it: of one that lives, if there is one.
    pub fn slot_of_local(&self, tid: i32) -> Option<usize> {
        let of_it = (0..self.count()).filter(|slot| self.lock(*slot).tid == tid);
        of_it.min_by_key(|slot| matches!(self.lock(*slot).work, Work::Gone))
    }

    fn tids(&self) -> MutexGuard<'_, Tids> {
        self.tids.lock().expect("no thread of the supervisor panicked")
    }

    /// Whether the process has had one thread only.
    pub fn is_alone(&self) -> bool {
        self.tids().is_alone()
    }

    /// Whether a thread has ended, and another has its slot.
    pub fn has_ended(&self, guest: GuestTid) -> bool {
        self.tids().has_ended(guest)
    }

    /// Where another thread can begin.
    pub fn free_slot(&self) -> Option<usize> {
        if self.tids().is_full() {
            return None;
        }
        // That of the first thread is its own for as long as the process lives.
        (1..self.count()).find(|slot| matches!(self.lock(*slot).work, Work::Gone))
    }

    /// A thread begins in a free slot.
    pub fn begin(&self, slot: usize, lane: Lane) {
        // The last one may have ended in the agent.
        self.agent.clear(slot);
        let mut tids = self.tids();
        let guest = lane.guest;
        let before = std::mem::replace(&mut *self.lock(slot), lane).guest;
        tids.begin(slot, before, guest);
    }

    /// A thread that the body does not have has ended: there was none.
    pub fn forget_thread(&self, slot: usize) {
        let mut tids = self.tids();
        let lane = std::mem::replace(&mut *self.lock(slot), Lane::spare());
        tids.forget(lane.guest);
    }

    /// Starts a call in its thread. None if the call is none that an honest body sends.
    pub fn accept(&self, slot: usize, call: Call) -> Option<Accepted> {
        let mut lane = self.lock(slot);
        match lane.work {
            Work::Idle if lane.waiting.is_some() => return None,
            Work::Idle => {}
            // It ended here; the body repeats its last words after a move.
            Work::Gone if i64::from(call.number) == libc::SYS_exit => {
                return Some(Accepted::Answered(plain_reply(&call, 0)));
            }
            _ => return None,
        }
        if let Some((_, reply)) = &lane.answered
            && call.sequence <= reply.sequence
        {
            return (call.sequence == reply.sequence).then(|| Accepted::Answered(reply.clone()));
        }
        if lane.mask_due.is_some() && i64::from(call.number) != libc::SYS_exit {
            lane.waiting = Some(call);
            return Some(Accepted::Waits);
        }
        if call.signals_seen > lane.signals_sent {
            // It cannot have seen more than there were, and would be sent none of them again.
            return None;
        }
        lane.forget_seen(call.signals_seen);
        if call.signals_seen < lane.signals_sent {
            // It crossed a signal on its way: the handler comes first.
            let reply = plain_reply(&call, ERESTARTNOINTR);
            lane.answered = Some((call, reply.clone()));
            return Some(Accepted::Answered(reply));
        }
        if let Some((is_one, accepted)) = led_by_ptrace(&call) {
            if !is_one {
                return None;
            }
            lane.answered = None;
            lane.work = Work::Busy { call, since: Instant::now(), place: Place::Slot };
            return Some(accepted);
        }
        self.note_action(&call);
        if !self.submit(slot, &call) {
            return None;
        }
        lane.staged = lane.staged.max(staged_bytes(&call));
        // That it makes another call says that it has had the reply to the last one.
        lane.answered = None;
        lane.work = if i64::from(call.number) == libc::SYS_exit {
            Work::Exiting { sequence: call.sequence }
        } else {
            Work::Busy { call, since: Instant::now(), place: Place::Slot }
        };
        Some(Accepted::Started)
    }

    /// The reply to this call is not going to be asked for again: what it holds is let go.
    pub fn forget(&self, slot: usize, sequence: u64) {
        let mut lane = self.lock(slot);
        if let Some((_, reply)) = &mut lane.answered
            && reply.sequence == sequence
        {
            reply.outputs = vec![];
            self.has_freed.store(true, Ordering::SeqCst);
        }
    }

    /// Gives back what large calls took of the staging areas, and what the last ones do not need.
    pub fn trim(&self) {
        for slot in 0..self.count() {
            let mut lane = self.lock(slot);
            if lane.staged <= STAGED_KEPT {
                continue;
            }
            let used = match &lane.work {
                Work::Busy { call, place: Place::Slot, .. } => staged_bytes(call),
                _ => 0,
            };
            // What stays costs memory, not correctness.
            if let Err(error) = self.agent.discard_staging(slot, used) {
                ::tracing::debug!("thread {}: {error}", lane.guest);
            }
            lane.staged = used;
            self.has_freed.store(true, Ordering::SeqCst);
        }
        if self.has_freed.swap(false, Ordering::SeqCst) {
            kernel::allocator::return_freed();
        }
    }

    /// The call of a thread that waits for one of this number.
    pub fn making(&self, slot: usize, number: u32) -> Option<Call> {
        match &self.lock(slot).work {
            Work::Busy { call, .. } if call.number == number => Some(call.clone()),
            _ => None,
        }
    }

    /// That call is over; what is to be replied.
    pub fn made(&self, slot: usize, call: Call, (result, outputs): (i64, Vec<Output>)) -> Reply {
        let mut lane = self.lock(slot);
        let home_ns = lane.clock.read_ns();
        let reply = Reply { home_ns, outputs, ..plain_reply(&call, result) };
        lane.work = Work::Idle;
        lane.answered = Some((call, reply.clone()));
        reply
    }

    /// A thread that was made will not begin: whoever made it makes it again.
    pub fn unmake(&self, guest: GuestTid) {
        for slot in 0..self.count() {
            if let Some((call, reply)) = &mut self.lock(slot).answered
                && call.number == thread::CLONE
                && reply.result == i64::from(guest.0)
            {
                reply.result = ERESTARTNOINTR;
            }
        }
    }

    /// Lays the call out and hands it to the thread; false if it must not be executed.
    pub fn submit(&self, slot: usize, call: &Call) -> bool {
        let (base, capacity) = (self.agent.staging_address(slot), CALL_STAGING_BYTES as u64);
        let staged = match calls::stage(call, base, capacity) {
            Ok(staged) => staged,
            Err(error) => {
                ::tracing::warn!("call of thread {}: {error}", call.tid);
                return false;
            }
        };
        for (offset, bytes) in &staged.writes {
            self.agent.write_staging(slot, *offset as usize, bytes);
        }
        let batch = [BatchCall { number: u64::from(call.number), arguments: staged.arguments }];
        self.agent.submit(slot, &batch);
        true
    }

    /// True if the thread is executing exit(2).
    pub fn is_exiting(&self, slot: usize) -> bool {
        matches!(self.lock(slot).work, Work::Exiting { .. })
    }

    /// Takes the result of a call that is done. None if the thread is not done, or has no call.
    pub fn complete(&self, slot: usize) -> Option<Reply> {
        let mut lane = self.lock(slot);
        if !matches!(lane.work, Work::Busy { .. }) || !self.agent.is_done(slot) {
            return None;
        }
        let Work::Busy { call, place, .. } = std::mem::replace(&mut lane.work, Work::Idle) else {
            return None;
        };
        let result = self.agent.result(slot, 0);
        self.agent.clear(slot);
        let outputs = self.collect(slot, &call, place, result);
        let call = without_bytes(call, result);
        let (sequence, home_ns) = (call.sequence, lane.clock.read_ns());
        let reply = Reply { tid: lane.guest, sequence, result, outputs, home_ns };
        lane.answered = Some((call, reply.clone()));
        Some(reply)
    }

    fn collect(
        &self,
        slot: usize,
        call: &Call,
        place: Place,
        result: i64,
    ) -> Vec<wire::forward::Output> {
        match place {
            Place::Guest => crate::in_flight::collect_kept(call, result, &self.memory),
            Place::Slot => {
                let mut staging = vec![0; staged_bytes(call)];
                self.agent.read_staging(slot, 0, &mut staging);
                calls::collect(call, result, &staging)
            }
        }
    }
}

/// A thread that has used no more of its staging area keeps it: large calls are seldom alone.
const STAGED_KEPT: usize = 64 << 10;

/// What a call may take of a slot's staging area. The rest is for what is done to the thread while
/// the result of its call is not collected yet.
pub const CALL_STAGING_BYTES: usize = STAGING_BYTES - ACTION_BYTES;
const _: () = assert!(CALL_STAGING_BYTES >= calls::STAGING_BYTES_MAX);

/// A call that was answered, as it is remembered: one that is over is never made again, and what
/// it read may be megabytes. Times and masks are needed to tell how it went on.
fn without_bytes(mut call: Call, result: i64) -> Call {
    let is_over = result >= -4095 && !(ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&result);
    if is_over && result != -i64::from(libc::EINTR) {
        call.segments.iter_mut().filter(|s| s.data.len() > 128).for_each(|s| s.data = vec![]);
    }
    call
}

/// Bytes of the staging area that a call takes up: its segments, each aligned.
fn staged_bytes(call: &Call) -> usize {
    let total: usize = call.segments.iter().map(|s| (s.length as usize).next_multiple_of(16)).sum();
    total.min(CALL_STAGING_BYTES)
}

/// A reply without outputs.
pub fn plain_reply(call: &Call, result: i64) -> Reply {
    Reply { tid: call.tid, sequence: call.sequence, result, outputs: vec![], home_ns: 0 }
}

#[cfg(test)]
mod test {
    use super::*;
    use kernel::agent::size_for;
    use kernel::shared::SharedMemory;

    fn lanes() -> Lanes {
        let agent = Agent::new(SharedMemory::create(size_for(1)).unwrap(), 0x10_0000, 1);
        let own = std::process::id() as i32;
        let lane = Lane::idle(own, GuestTid(7), own);
        Lanes::new(agent, Memory::open(own).unwrap(), vec![lane], vec![])
    }

    fn call(number: i64, sequence: u64) -> Call {
        Call {
            tid: GuestTid(7),
            sequence,
            signals_seen: 0,
            number: number as u32,
            arguments: [0; 6],
            segments: vec![],
        }
    }

    #[test]
    fn a_reply_is_kept_until_the_body_is_known_to_have_had_it() {
        let lanes = lanes();
        let outputs = vec![wire::forward::Output { segment: 0, data: vec![1; 4 << 20] }];
        let reply = Reply { outputs, ..plain_reply(&call(libc::SYS_read, 4), 4 << 20) };
        let kept = || lanes.lock(0).answered.as_ref().map(|(_, reply)| reply.outputs.len());
        lanes.lock(0).answered = Some((call(libc::SYS_read, 4), reply.clone()));
        lanes.forget(0, 3);
        let again = lanes.accept(0, call(libc::SYS_read, 4));
        assert!(matches!(again, Some(Accepted::Answered(again)) if again == reply));
        lanes.forget(0, 4);
        assert_eq!(kept(), Some(0));
        lanes.lock(0).answered = Some((call(libc::SYS_read, 4), reply));
        assert!(matches!(lanes.accept(0, call(libc::SYS_read, 5)), Some(Accepted::Started)));
        assert_eq!(kept(), None);
    }

    #[test]
    fn a_call_that_has_seen_signals_which_were_not_sent_is_refused() {
        let lanes = lanes();
        let seen = |signals_seen| Call { signals_seen, ..call(libc::SYS_getppid, 1) };
        lanes.lock(0).number_signal(libc::SIGUSR1, vec![0; 128]);
        assert!(lanes.accept(0, seen(2)).is_none());
        assert!(lanes.accept(0, seen(u64::MAX)).is_none());
        assert_eq!(lanes.lock(0).signals_unseen.len(), 1, "it is still to be delivered");
        assert!(matches!(lanes.accept(0, seen(1)), Some(Accepted::Started)));
    }

    #[test]
    fn forged_numbers_repeated_and_older_calls_are_not_executed() {
        let lanes = lanes();
        let done = plain_reply(&call(libc::SYS_getppid, 5), 77);
        lanes.lock(0).answered = Some((call(libc::SYS_getppid, 5), done.clone()));
        let again = lanes.accept(0, call(libc::SYS_kill, 5));
        assert!(
            matches!(again, Some(Accepted::Answered(reply)) if reply == done),
            "its old answer"
        );
        for sequence in [0, 4] {
            assert!(lanes.accept(0, call(libc::SYS_kill, sequence)).is_none());
        }
        for number in [libc::SYS_execveat, libc::SYS_ptrace, libc::SYS_mmap, libc::SYS_rt_sigreturn]
        {
            assert!(lanes.accept(0, call(number, 6)).is_none(), "call {number}");
        }
        assert!(matches!(lanes.lock(0).work, Work::Idle), "nothing has begun");
        assert!(matches!(lanes.accept(0, call(libc::SYS_getppid, 6)), Some(Accepted::Started)));
        let meanwhile = lanes.accept(0, call(libc::SYS_getppid, 7));
        assert!(meanwhile.is_none(), "a thread makes one call at a time");
    }

    #[test]
    fn a_call_waits_for_the_mask_that_it_is_made_under() {
        let lanes = lanes();
        lanes.lock(0).mask_due = Some(1);
        assert!(matches!(lanes.accept(0, call(libc::SYS_getppid, 1)), Some(Accepted::Waits)));
        assert!(matches!(lanes.lock(0).work, Work::Idle), "it has not begun");
        assert!(lanes.accept(0, call(libc::SYS_getppid, 2)).is_none(), "a thread has one call");
        lanes.lock(0).mask_due = None;
        let waiting = lanes.lock(0).waiting.take().unwrap();
        assert!(matches!(lanes.accept(0, waiting), Some(Accepted::Started)));
    }
}
