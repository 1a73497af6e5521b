//! The bodies of one sandbox: a guest, those that have come with it, and the processes that they
//! have made here ([decision 0031](../../../docs/decisions/)). Each has a thread of this supervisor
//! of its own, to which its ptrace belongs, a link to its own deputy and a socket to the daemon;
//! what they share is here.
//!
//! ```text
//!   main thread (keeper)   the first body, and the sandbox's init
//!   "body" threads         one for each other body
//!   "notices"              one for each filter: of the first, and of each that has come with it;
//!                          who was made here has that of its maker
//! ```
//!
//! The init belongs to the keeper, which stays when its own body is gone until all others are, too.

use crate::group::Round;
use crate::lasting::Lasting;
use crate::state::{Order, Shared};
use kernel::seccomp::{Listener, Notification};
use kernel::{KernelError, Result};
use migrate::MigrateError;
use nix::sys::eventfd::EventFd;
use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, TryLockError};
use std::time::Duration;
use wire::ids::GuestTid;
use wire::processor_time::ProcessorTime;
use wire::supervisor::{FromBody, Reason};

/// How long a body waits until the keeper has an id chosen, which may have to freeze its own body
/// first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends that nobody has asked about.
const ENDED_MAX: usize = 1024;

pub struct Family {
    bodies: RwLock<Vec<Arc<Shared>>>,
    /// Threads of this supervisor that have a body, or are about to.
    count: AtomicUsize,
    births: Mutex<Births>,
    /// One is born, or will not be.
    born: Condvar,
    /// The last id that a task got which was made here; 0 if none was. Held while one is made.
    last_tid: Mutex<i32>,
    /// Slots of tasks that are not in any state yet, and of whose agent.
    taken_slots: Mutex<HashSet<(AgentId, usize)>>,
    wishes: Mutex<VecDeque<Wish>>,
    offers: Mutex<VecDeque<Offer>>,
    /// Those of them that leave together.
    round: Mutex<Option<Arc<Round>>>,
    pub(crate) lasting: Lasting,
    /// What processes that have ended here have used away, until their parents hear of it.
    used: Mutex<VecDeque<(GuestTid, ProcessorTime)>>,
    /// Wakes the keeper.
    wake: Arc<EventFd>,
}

/// Names an agent by the filter that came with it: both are handed on to what is made.
type AgentId = usize;

fn agent_of(body: &Shared) -> AgentId {
    Arc::as_ptr(&body.listener) as AgentId
}

/// That the next task which is made here shall have this id.
pub struct Wish {
    pub tid: i32,
    answer: Sender<Result<()>>,
}

impl Wish {
    pub fn answer(self, outcome: Result<()>) {
        // One that has waited for too long is gone.
        let _ = self.answer.send(outcome);
    }
}

/// A daemon's successor knows the first body of a sandbox alone, and hears of others by that.
#[derive(Default)]
struct Births {
    /// Processes whose deputy has not called yet.
    unborn: usize,
    /// Those of them that share memory with others.
    bound: usize,
    /// Those who have come here together, and are not among the bodies yet: some of them may run
    /// already.
    arriving: usize,
    is_first_leaving: bool,
    /// Those who are bound to each other are being called together.
    is_held: bool,
}

impl Births {
    fn awaits_bound(&self) -> bool {
        self.bound > 0 || self.arriving > 0
    }
}

/// A process that waits for its deputy and whose daemon has ended. The next knows the first body of
/// the sandbox, and hears of this one by that.
pub struct Offer {
    pub word: FromBody,
    pub socket: OwnedFd,
    answer: Sender<bool>,
}

impl Offer {
    pub fn answer(self, is_told: bool) {
        // One that has waited for too long is gone.
        let _ = self.answer.send(is_told);
    }
}

impl Family {
    /// Of one body, whose thread is the keeper and is woken by this.
    pub fn of_one(wake: Arc<EventFd>) -> Arc<Family> {
        Arc::new(Family {
            bodies: RwLock::default(),
            count: AtomicUsize::new(1),
            births: Mutex::default(),
            born: Condvar::new(),
            last_tid: Mutex::new(0),
            taken_slots: Mutex::default(),
            wishes: Mutex::default(),
            offers: Mutex::default(),
            round: Mutex::default(),
            lasting: Lasting::default(),
            used: Mutex::default(),
            wake,
        })
    }

    /// Notes a body before it runs.
    pub fn add(&self, body: &Arc<Shared>) {
        self.bodies.write().expect(UNHARMED).push(body.clone());
    }

    /// A body has ended.
    pub fn remove(&self, body: &Arc<Shared>) {
        self.bodies.write().expect(UNHARMED).retain(|other| !Arc::ptr_eq(other, body));
    }

    /// One more thread is to have a body.
    pub fn grow(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// It has none any more; says how many others have.
    pub fn shrink(&self) -> usize {
        let left = self.count.fetch_sub(1, Ordering::SeqCst) - 1;
        self.wake_keeper();
        left
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// One more waits for its deputy, which shares memory with others or does not; false if nobody
    /// could tell the next daemon of it, or others just leave with whom it would have to.
    pub fn try_begin_birth(&self, is_bound: bool) -> bool {
        let mut births = self.births.lock().expect(UNHARMED);
        let may_be_born = !(births.is_first_leaving || births.is_held && is_bound);
        births.unborn += usize::from(may_be_born);
        births.bound += usize::from(may_be_born && is_bound);
        may_be_born
    }

    /// One more arrives with the first.
    pub fn begin_arrival(&self) {
        self.births.lock().expect(UNHARMED).arriving += 1;
    }

    /// One of those is among the bodies now, or never will be.
    pub fn end_arrival(&self) {
        self.births.lock().expect(UNHARMED).arriving -= 1;
        self.born.notify_all();
    }

    /// Whether one that shares memory waits for its deputy, or has not quite arrived.
    pub fn awaits_births(&self) -> bool {
        self.births.lock().expect(UNHARMED).awaits_bound()
    }

    /// None that shares memory is born from now on, and all that have come are among the bodies;
    /// false if one waits for its deputy after so long a time still, or is not.
    pub fn hold_births(&self, patience: Duration) -> bool {
        self.births.lock().expect(UNHARMED).is_held = true;
        let mut births = self.await_births(patience, Births::awaits_bound);
        births.is_held = !births.awaits_bound();
        births.is_held
    }

    fn await_births(
        &self,
        patience: Duration,
        awaits: impl Fn(&Births) -> bool,
    ) -> MutexGuard<'_, Births> {
        let births = self.births.lock().expect(UNHARMED);
        let waited = self.born.wait_timeout_while(births, patience, |births| awaits(births));
        waited.expect(UNHARMED).0
    }

    pub fn release_births(&self) {
        self.births.lock().expect(UNHARMED).is_held = false;
    }

    /// Those who leave together, if any do.
    pub fn round(&self) -> MutexGuard<'_, Option<Arc<Round>>> {
        self.round.lock().expect(UNHARMED)
    }

    /// One has left a round: if it is over, others may begin one.
    pub fn end_round(&self, round: &Arc<Round>) {
        let mut current = self.round();
        let ended = current.take_if(|it| Arc::ptr_eq(it, round) && it.has_ended());
        if ended.is_some() {
            self.release_births();
        }
    }

    /// All bodies.
    pub fn bodies(&self) -> Vec<Arc<Shared>> {
        self.bodies.read().expect(UNHARMED).clone()
    }

    /// It has called, or will not.
    pub fn end_birth(&self, is_bound: bool) {
        let mut births = self.births.lock().expect(UNHARMED);
        births.unborn -= 1;
        births.bound -= usize::from(is_bound);
        drop(births);
        self.born.notify_all();
        self.wake_keeper();
    }

    /// Whether any process that was made here waits to be called by its deputy.
    pub fn awaits_deputies(&self) -> bool {
        self.births.lock().expect(UNHARMED).unborn > 0
    }

    /// The first body leaves, after which none is born here; false if one waits for its deputy
    /// after so long a time still.
    pub fn let_first_leave(&self, patience: Duration) -> bool {
        let mut births = self.await_births(patience, |births| births.unborn > 0);
        births.is_first_leaving = births.unborn == 0;
        births.is_first_leaving
    }

    /// It has ended, whoever waits.
    pub fn first_ends(&self) {
        self.births.lock().expect(UNHARMED).is_first_leaving = true;
    }

    /// Whether none may be born here.
    pub fn is_first_leaving(&self) -> bool {
        self.births.lock().expect(UNHARMED).is_first_leaving
    }

    /// It has not left.
    pub fn first_stays(&self) {
        self.births.lock().expect(UNHARMED).is_first_leaving = false;
    }

    /// Whose notification this is; the first's if nobody's.
    pub fn of(&self, listener: &Arc<Listener>, notification: &Notification) -> Option<Arc<Shared>> {
        let all = self.bodies.read().expect(UNHARMED);
        let mut bodies = all.iter().filter(|body| Arc::ptr_eq(&body.listener, listener));
        let first = bodies.next()?;
        let tid = notification.tid as i32;
        let is_its = |body: &&Arc<Shared>| body.lock().threads.contains_key(&tid);
        if all.len() == 1 || is_its(&first) {
            return Some(first.clone());
        }
        bodies.find(is_its).or(Some(first)).cloned()
    }

    /// Has the body of a process go home.
    pub fn send_home(&self, guest: GuestTid, why: &Reason) {
        let bodies = self.bodies.read().expect(UNHARMED);
        let body = bodies.iter().find(|body| body.guest_pid == guest);
        body.iter().for_each(|body| body.order(Order::NeedsHome(why.clone())));
    }

    /// A process ends, and has used so much away.
    pub fn note_end(&self, guest: GuestTid, used: ProcessorTime) {
        let mut all = self.used.lock().expect(UNHARMED);
        all.retain(|(other, _)| *other != guest);
        if all.len() >= ENDED_MAX {
            all.pop_front();
        }
        all.push_back((guest, used));
    }

    /// What a process has used away that has ended here, or is about to; its parent is told once.
    pub fn take_used(&self, guest: GuestTid) -> Option<ProcessorTime> {
        let mut all = self.used.lock().expect(UNHARMED);
        let at = all.iter().position(|(other, _)| *other == guest);
        if let Some((_, used)) = at.and_then(|at| all.remove(at)) {
            return Some(used);
        }
        drop(all);
        let bodies = self.bodies.read().expect(UNHARMED);
        let body = bodies.iter().find(|body| body.guest_pid == guest);
        body.map(|body| body.lock().meter.away())
    }

    /// A slot of the agent's memory, which all bodies under one filter share, for a new task.
    ///
    /// # Errors
    /// Refused if there is none.
    pub fn free_slot(&self, maker: &Shared, slots: usize) -> migrate::Result<usize> {
        let bodies = self.bodies.read().expect(UNHARMED);
        let agent = agent_of(maker);
        let taken = self.taken_slots.lock().expect(UNHARMED);
        let mut taken: HashSet<usize> =
            taken.iter().filter(|(of, _)| *of == agent).map(|(_, slot)| *slot).collect();
        for body in bodies.iter().filter(|body| agent_of(body) == agent) {
            taken.extend(body.lock().threads.values().map(|thread| thread.slot));
        }
        let free = (0..slots).find(|slot| !taken.contains(slot));
        free.ok_or_else(|| MigrateError::refused("threads", "it has made many threads away"))
    }

    /// Keeps a slot for a process that is in no state yet.
    pub fn take_slot(&self, maker: &Shared, slot: usize) {
        self.taken_slots.lock().expect(UNHARMED).insert((agent_of(maker), slot));
    }

    pub fn give_slot(&self, maker: &Shared, slot: usize) {
        self.taken_slots.lock().expect(UNHARMED).remove(&(agent_of(maker), slot));
    }

    /// Keeps all others from making tasks; None if somebody else does.
    pub fn try_begin_making(&self) -> Option<MutexGuard<'_, i32>> {
        match self.last_tid.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{UNHARMED}"),
        }
    }

    /// The same for a thread that is not the keeper: whoever makes one needs that, not this.
    pub fn begin_making(&self) -> MutexGuard<'_, i32> {
        self.last_tid.lock().expect(UNHARMED)
    }

    /// Has the keeper choose the id of the next task.
    ///
    /// # Errors
    /// As the keeper has them, or if it does not come to it.
    pub fn choose_next_tid(&self, tid: i32) -> Result<()> {
        let (answer, answered) = channel();
        self.wishes.lock().expect(UNHARMED).push_back(Wish { tid, answer });
        self.wake_keeper();
        let source = || std::io::Error::from_raw_os_error(libc::EAGAIN);
        let late =
            |_| Err(KernelError { what: "choose the id of a task".into(), source: source() });
        answered.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(late)
    }

    pub fn next_wish(&self) -> Option<Wish> {
        self.wishes.lock().expect(UNHARMED).pop_front()
    }

    /// Has the keeper tell its daemon of a process, with the socket to whoever serves that. False
    /// if there is no daemon that can be told.
    pub fn offer(&self, word: FromBody, socket: OwnedFd) -> bool {
        let (answer, answered) = channel();
        self.offers.lock().expect(UNHARMED).push_back(Offer { word, socket, answer });
        self.wake_keeper();
        answered.recv_timeout(ANSWER_TIMEOUT).unwrap_or(false)
    }

    pub fn next_offer(&self) -> Option<Offer> {
        self.offers.lock().expect(UNHARMED).pop_front()
    }

    pub fn wake(&self) -> &Arc<EventFd> {
        &self.wake
    }

    fn wake_keeper(&self) {
        // The counter cannot overflow: it is read whenever it is not zero.
        let _ = self.wake.write(1);
    }
}

const UNHARMED: &str = "no thread of the supervisor panicked";

#[cfg(test)]
mod test {
    use super::*;

    /// Some of those who have come together run already, and want to leave.
    #[test]
    fn who_has_come_together_is_called_together_once_all_are_among_the_bodies() {
        let family = Family::of_one(Arc::new(kernel::wake_up::make().unwrap()));
        let long = Duration::from_secs(10);
        (0..2).for_each(|_| family.begin_arrival());
        family.end_arrival();
        assert!(family.awaits_births());
        assert!(!family.hold_births(Duration::ZERO), "one is not there");
        std::thread::scope(|scope| {
            let held = scope.spawn(|| family.hold_births(long));
            family.end_arrival();
            assert!(held.join().unwrap());
        });
        assert!(!family.awaits_births());
        assert!(!family.try_begin_birth(true), "nobody is born who would not be called");
    }
}
