//! Processes made by vfork(2), and by what posix_spawn(3) is made of ([decision
//! 0033](../../../docs/decisions/)): they have their maker's memory, and the thread that made one
//! stands still until it has begun another program or ended.
//!
//! Their bodies have one memory, too. Neither moves meanwhile; should the child have to go home, it
//! takes a copy along and its maker goes on as after fork.

use crate::state::{Child, Order, State};
use crate::tracing_loop::{End, Tracing};
use migrate::{MigrateError, Result, reason};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::ids::GuestTid;
use wire::supervisor::Reason;

/// Why a process that stands still does not move, nor the one for which it does.
pub(crate) fn refusal() -> MigrateError {
    let text = "it shares its memory with a process that has just been made (vfork, posix_spawn), \
                until that begins its program; try again";
    MigrateError::refused("vfork", text)
}

impl Tracing<'_> {
    /// A process that had this one's memory is done with it.
    pub(crate) fn child_is_done(&mut self, child: GuestTid) -> Result<()> {
        let waited = self.shared.lock().end_wait(child);
        waited.map_or(Ok(()), |tid| self.go_on_in_agreement(tid))
    }

    /// An order that would stop the body waits until no thread makes a process, and none begins to
    /// meanwhile: shells and builds do hardly anything else, and would be refused for ever.
    pub(crate) fn await_processes(&mut self, order: Order) -> Option<Order> {
        let stops_it = match &order {
            // To have its writes told, and for good.
            Order::Offered { number, .. } | Order::Copied { number, .. } => {
                self.is_current_move(*number)
            }
            Order::SentAhead { .. } | Order::Leave { .. } => true,
            _ => false,
        };
        let may_wait = self.delayed.is_none() && self.unwanted_since.is_none();
        let mut state = self.shared.lock();
        if !stops_it || !may_wait || state.check_makes_no_process().is_ok() {
            return Some(order);
        }
        state.holds_processes = true;
        self.delayed = Some((order, Instant::now() + PATIENCE));
        None
    }

    /// Stops the body, or tries to: no thread begins to make a process meanwhile.
    pub(crate) fn stop_in_between(
        &mut self,
        stop: impl FnOnce(&mut Self) -> Result<End>,
    ) -> Result<End> {
        self.shared.lock().holds_processes = true;
        let end = stop(self);
        let mut state = self.shared.lock();
        if self.delayed.is_some() {
            // What waits for such a moment still goes on waiting for it.
            return end;
        }
        state.holds_processes = false;
        for thread in state.threads.values_mut() {
            let is_held_back = std::mem::take(&mut thread.is_held_back);
            if let Some(id) = thread.parked.filter(|_| is_held_back) {
                self.shared.order(Order::MakeAgain { tid: thread.local, id });
            }
        }
        end
    }

    /// That order, when the moment has come, or will not.
    pub(crate) fn next_delayed(&mut self) -> Option<Order> {
        let (_, until) = self.delayed.as_ref()?;
        let is_time = Instant::now() >= *until;
        let is_due = is_time || self.shared.lock().check_makes_no_process().is_ok();
        self.delayed.take_if(|_| is_due).map(|(order, _)| order)
    }

    /// Whether the body cannot go home now because one of its threads makes a process, or waits for
    /// one that has its memory. No other is made then; those that keep it waiting go home
    /// themselves, with a copy.
    pub(crate) fn waits_with_homecoming(&mut self) -> bool {
        let children = {
            let state = self.shared.lock();
            if state.check_makes_no_process().is_ok() {
                self.waits_with_homecoming_since = None;
                return false;
            }
            // Whoever asks for one waits for the homecoming, too.
            self.shared.makes_no_tasks.store(true, Ordering::SeqCst);
            state.waited_for()
        };
        let since = *self.waits_with_homecoming_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            self.waits_with_homecoming_since = None;
            for child in children {
                self.shared.family.send_home(child, &in_the_way());
            }
        }
        true
    }
}

/// For which a move, or a thread that needs its home, waits while another makes a process: more
/// than it takes to begin a program. Then the one is refused, and for the other the process is sent
/// home.
const PATIENCE: Duration = Duration::from_millis(500);

fn in_the_way() -> Reason {
    reason("vfork", "its maker, whose memory it has, needs its home")
}

impl State {
    /// Home has made a process. A thread makes one at a time.
    pub(crate) fn expect_child(&mut self, child: Child) {
        if self.children.len() >= self.threads.len() {
            self.children.remove(0);
        }
        self.children.push(child);
    }

    pub(crate) fn take_child(&mut self, guest: GuestTid) -> Option<Child> {
        let at = self.children.iter().position(|child| child.guest == guest)?;
        Some(self.children.swap_remove(at))
    }

    /// Whom a thread stands still for.
    pub(crate) fn have_wait(&mut self, tid: i32, child: Option<GuestTid>) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.waits_for = child;
        }
    }

    /// The thread that stood still for this process.
    fn end_wait(&mut self, child: GuestTid) -> Option<i32> {
        let mut threads = self.threads.values_mut();
        let waited = threads.find(|thread| thread.waits_for == Some(child))?;
        waited.waits_for = None;
        Some(waited.local)
    }

    fn waited_for(&self) -> Vec<GuestTid> {
        self.threads.values().filter_map(|thread| thread.waits_for).collect()
    }

    /// # Errors
    /// Refused while a thread makes a process, whose reply would be dropped, or home hear too late
    /// that what it has made has no body; or while one waits for a process that has its memory.
    pub(crate) fn check_makes_no_process(&self) -> Result<()> {
        if self.threads.values().any(|thread| thread.is_making_process) {
            let text = "it is just making a process; try again";
            return Err(MigrateError::refused("new-process", text));
        }
        if self.waited_for().is_empty() { Ok(()) } else { Err(refusal()) }
    }

    pub(crate) fn stands_still(&self, tid: i32) -> bool {
        self.threads.get(&tid).is_some_and(|thread| thread.waits_for.is_some())
    }
}
