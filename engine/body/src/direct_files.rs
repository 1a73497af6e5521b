//! Files that lie on the node where the guest is, read and written here and not at home
//! ([decision 0051](../../../docs/decisions/0051-direct-files.md)).
//!
//! Home opens them as always, through its mount of all nodes' files; the server that has the file
//! open here hands it over. Home goes on to have the descriptor, and makes every call that is not
//! one of a [`Deed`]. Before any call is made there, or the guest leaves, home is told up to where
//! a file was read or written, and whether it was written ([`settle`]): so nobody can see what
//! followed from a write, and not the write.
//!
//! Only descriptors are known here that cannot have another name ([`Lost`]), and only of a guest
//! that shares no memory: another process could learn of a write by it, without any call.

mod ahead;
mod at_home;
mod deed;
mod lost;
mod taking_over;

use crate::notices;
use crate::state::{Shared, State};
use ahead::{Ahead, Lies, Outcome};
use deed::Deed;
use kernel::packet;
use kernel::seccomp::{ARCHITECTURE, Notification};
use lost::lost_by;
use migrate::{MigrateError, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;
use taking_over::{may_have_any, take_over};
use wire::calls::{self, Class};
use wire::forward::{DirectFile, Opened, ToHome};
use wire::read_ahead::{Asked, Told};

/// Files of one guest that are known at a time; each has a thread once something may take long.
const FILES_MAX: usize = 256;

/// So much has to be read or written of a file before its server is asked: it takes as long as some
/// calls that are made at home. A call counts as what travels meanwhile.
const WORTH_BYTES: u64 = 64 << 10;
const CALL_BYTES: u64 = 16 << 10;

/// What is known of them.
#[derive(Default)]
pub struct DirectFiles {
    is_any: AtomicBool,
    /// By descriptor.
    known: Mutex<HashMap<i32, Known>>,
    /// When home last sent something.
    heard: Mutex<Option<Instant>>,
}

enum Known {
    /// Home reads and writes it.
    Opened {
        size: u64,
        used_bytes: u64,
    },
    /// Home was asked for it, and threads wait. It may have got another name since.
    Wanted {
        id: u64,
        waiting: Vec<Notification>,
        is_lost: bool,
        /// If it lies at home.
        lies: Option<Lies>,
    },
    Open(Arc<Open>),
    /// Lies at home, where it is read.
    Lies(Lies),
    Ahead(Box<Ahead>),
}

struct Open {
    file: File,
    /// Its end is that of the server, or of the file: it may be used no more.
    server: OwnedFd,
    /// Whoever writes does it as him.
    uid: u32,
    /// Held for as long as something is done, which may be long. What follows is not.
    turn: Mutex<()>,
    progress: Mutex<Progress>,
    /// Told when nothing is under way any more.
    is_idle: Condvar,
    worker: Mutex<Option<Sender<Job>>>,
}

#[derive(Default)]
struct Progress {
    position: u64,
    /// What home knows.
    told: u64,
    has_written: bool,
    /// Deeds that are not over.
    under_way: usize,
    /// Calls that are made when none is.
    waiting: Vec<Notification>,
}

/// What becomes of a call.
pub enum Taken {
    /// Home, or the body's kernel, makes it.
    No,
    /// Its thread waits, or has its result.
    Waits,
    Deed(Box<Job>),
}

/// A deed that is under way. It is done without the state, since a disk may not answer.
pub struct Job {
    shared: Arc<Shared>,
    open: Arc<Open>,
    id: u64,
    deed: Deed,
    /// Nothing else was under way.
    is_first: bool,
    /// Nobody else waits for the thread that takes calls.
    is_alone: bool,
}

impl DirectFiles {
    fn known(&self) -> MutexGuard<'_, HashMap<i32, Known>> {
        self.known.lock().expect("no thread of the supervisor panicked")
    }

    /// Whether it is read here, or will be if home lets it be.
    fn is_used(&self, descriptor: i32) -> bool {
        let is_one = |file: &Known| !matches!(file, Known::Opened { .. } | Known::Lies(_));
        self.known().get(&descriptor).is_some_and(is_one)
    }

    fn lies_at_home(&self, descriptor: i32) -> bool {
        match self.known().get(&descriptor) {
            Some(Known::Wanted { lies, .. }) => lies.is_some(),
            Some(Known::Lies(_) | Known::Ahead(_)) => true,
            _ => false,
        }
    }

    /// Home has sent something: it has looked at all that is read ahead.
    pub fn hear_of_home(&self) {
        if self.is_any.load(Ordering::SeqCst) {
            *self.lock_heard() = Some(Instant::now());
        }
    }

    fn heard(&self) -> Option<Instant> {
        *self.lock_heard()
    }

    fn lock_heard(&self) -> MutexGuard<'_, Option<Instant>> {
        self.heard.lock().expect("no thread of the supervisor panicked")
    }

    fn put(&self, descriptor: i32, file: Known) {
        let mut known = self.known();
        let is_waited_for = matches!(known.get(&descriptor), Some(Known::Wanted { .. }));
        if known.len() < FILES_MAX && !is_waited_for {
            known.insert(descriptor, file);
            self.is_any.store(true, Ordering::SeqCst);
        }
    }

    fn open_ones(&self, is_meant: impl Fn(i32) -> bool) -> Vec<(i32, Arc<Open>)> {
        let known = self.known();
        let open = known.iter().filter_map(|(descriptor, file)| match file {
            Known::Open(open) if is_meant(*descriptor) => Some((*descriptor, open.clone())),
            _ => None,
        });
        open.collect()
    }

    fn forget(&self, shared: &Shared, is_lost: impl Fn(i32, &Known) -> bool) {
        let mut known = self.known();
        known.retain(|descriptor, file| match file {
            _ if !is_lost(*descriptor, file) => true,
            // Threads wait for the answer.
            Known::Wanted { id, is_lost: is_it, lies, .. } => {
                *is_it = true;
                if lies.is_some() {
                    shared.queue(ToHome::Ahead(Asked::Leaves { id: *id }));
                }
                true
            }
            Known::Ahead(ahead) => {
                shared.queue(ahead.leaves());
                false
            }
            _ => false,
        });
        self.is_any.store(!known.is_empty(), Ordering::SeqCst);
    }
}

/// Takes a call that is to be made here, or waits for it to be known whether it is.
pub fn take(shared: &Arc<Shared>, state: &mut State, n: &Notification) -> Taken {
    let files = &shared.direct_files;
    if !files.is_any.load(Ordering::SeqCst) || n.architecture != ARCHITECTURE {
        return Taken::No;
    }
    let taken = take_deed(shared, state, n);
    if !matches!(taken, Taken::No) || calls::classify(n.number as u32, &n.arguments) == Class::Local
    {
        return taken;
    }
    let lost = lost_by(shared, n);
    let is_lost = |descriptor| lost.as_ref().is_some_and(|lost| lost.has(descriptor));
    // Where it has come to is home's to know, and is not known yet.
    if files.open_ones(is_lost).iter().any(|(_, open)| open.has_wait(n))
        || at_home::has_wait(files, is_lost, n)
    {
        return wait(state, n);
    }
    settle(shared);
    let ends = i64::from(n.number) == libc::SYS_exit_group;
    files.forget(shared, |it, file| is_lost(it) || ends && matches!(file, Known::Ahead(_)));
    Taken::No
}

/// The same, of what is done with such a file.
fn take_deed(shared: &Arc<Shared>, state: &mut State, n: &Notification) -> Taken {
    let descriptor = n.arguments[0] as i32;
    let mut known = shared.direct_files.known();
    let Some(file) = known.get_mut(&descriptor) else { return Taken::No };
    let Some(deed) = Deed::of(shared, n) else { return Taken::No };
    match file {
        Known::Open(open) if open.is_there() => match deed {
            Ok(deed) => return Taken::Deed(Box::new(Job::new(shared, open, (n.id, deed), state))),
            Err(error) => {
                shared.listener.reply(n.id, -i64::from(error));
                return Taken::Waits;
            }
        },
        Known::Open(_) => return Taken::No,
        Known::Wanted { waiting, .. } => waiting.push(*n),
        Known::Opened { size, used_bytes } => {
            let moved = deed.map_or(0, |deed| deed.moves(*size));
            *used_bytes = used_bytes.saturating_add(moved.saturating_add(CALL_BYTES));
            if *used_bytes < WORTH_BYTES || is_in_flight(state, descriptor) {
                return Taken::No;
            }
            let waiting = vec![*n];
            *file = Known::Wanted { id: n.id, waiting, is_lost: false, lies: None };
            shared.queue(ToHome::WantsFile { descriptor, id: n.id });
        }
        Known::Lies(lies) => {
            let is_worth = deed.is_ok_and(|deed| lies.is_worth(&deed));
            if !is_worth || is_in_flight(state, descriptor) {
                return Taken::No;
            }
            let (waiting, lies) = (vec![*n], Some(*lies));
            *file = Known::Wanted { id: n.id, waiting, is_lost: false, lies };
            shared.queue(ToHome::Ahead(Asked::May { descriptor, id: n.id }));
        }
        Known::Ahead(ahead) => {
            let tell = |message| shared.queue(message);
            let heard = shared.direct_files.heard();
            let taken = deed.map(|deed| ahead.take(n, &deed, heard, &shared.memory, tell));
            match taken.unwrap_or_else(|errno| Outcome::Result(-i64::from(errno))) {
                Outcome::Result(result) => {
                    shared.listener.reply(n.id, result);
                    return Taken::Waits;
                }
                Outcome::Waits => {}
                Outcome::AtHome => return Taken::No,
                Outcome::GoesHome => {
                    at_home::go_home(shared, descriptor, file);
                    return Taken::No;
                }
            }
        }
    }
    wait(state, n)
}

fn wait(state: &mut State, n: &Notification) -> Taken {
    if let Some(thread) = state.threads.get_mut(&(n.tid as i32)) {
        thread.awaits_file = Some(n.id);
    }
    Taken::Waits
}

/// Those whose calls have waited make them now, here or at home.
fn take_again(shared: &Arc<Shared>, waiting: Vec<Notification>) {
    for n in waiting {
        let is_waiting = {
            let mut state = shared.lock();
            let thread = state.threads.get_mut(&(n.tid as i32));
            thread.is_some_and(|thread| thread.awaits_file.take_if(|id| *id == n.id).is_some())
        };
        if is_waiting {
            notices::take(shared, &n);
        }
    }
}

/// Whether home makes a call that may be about this descriptor.
fn is_in_flight(state: &State, descriptor: i32) -> bool {
    let mut calls = state.threads.values().filter_map(|thread| thread.outstanding.as_ref());
    calls.any(|it| it.call.arguments.iter().any(|argument| *argument as i32 == descriptor))
}

/// Has home know what was done here, before whatever is sent next.
pub fn settle(shared: &Shared) {
    for (descriptor, open) in shared.direct_files.open_ones(|_| true) {
        let mut progress = open.progress();
        if progress.position == progress.told && !progress.has_written {
            continue;
        }
        progress.told = progress.position;
        let has_written = std::mem::take(&mut progress.has_written);
        let position = progress.position;
        shared.queue(ToHome::UsedDirectly { descriptor, position, has_written });
    }
    for (descriptor, file) in shared.direct_files.known().iter_mut() {
        if let Known::Ahead(ahead) = file {
            at_home::tell_position(shared, *descriptor, ahead);
        }
    }
}

/// The guest is being frozen: what is under way is done first, home is told, and the files are
/// home's again.
///
/// # Errors
/// Refused if the disk has not answered by then.
pub fn leave(shared: &Shared, deadline: Instant) -> Result<()> {
    let files = &shared.direct_files;
    if !files.is_any.load(Ordering::SeqCst) {
        return Ok(());
    }
    if !files.open_ones(|_| true).iter().all(|(_, open)| open.await_idle_until(deadline)) {
        let text = "a file on this node that does not answer";
        return Err(MigrateError::refused("uninterruptible", text));
    }
    settle(shared);
    // Whoever waits for an answer makes the call again.
    files.forget(shared, |_, _| true);
    files.known().clear();
    files.is_any.store(false, Ordering::SeqCst);
    Ok(())
}

/// Home is just opening a file of some node for one of the body's threads.
pub fn opened_on_a_node(shared: &Shared, told: &Opened) {
    opened(shared, told, Known::Opened { size: told.size, used_bytes: 0 });
}

/// What home says of a file of its own.
pub fn hear(shared: &Arc<Shared>, told: Told) {
    at_home::hear(shared, told);
}

fn opened(shared: &Shared, told: &Opened, file: Known) {
    let mut state = shared.lock();
    let is_frozen = state.is_frozen;
    let call = state.by_guest(told.tid).and_then(|thread| thread.outstanding.as_ref());
    if call.is_some_and(|it| it.call.sequence == told.sequence) && !is_frozen {
        shared.direct_files.put(told.descriptor, file);
    }
}

/// What home was asked for. Those who waited for it make their calls, here or there.
pub fn answered(shared: &Arc<Shared>, told: &DirectFile) {
    let files = &shared.direct_files;
    let waiting = match files.known().entry(told.descriptor) {
        Entry::Occupied(entry) => match entry.get() {
            Known::Wanted { id, lies: None, .. } if *id == told.id => entry.remove(),
            _ => return,
        },
        Entry::Vacant(_) => return,
    };
    let Known::Wanted { mut waiting, is_lost, .. } = waiting else { return };
    if let Some(offer) = told.offer.filter(|_| !is_lost && may_have_any(shared)) {
        match take_over(&offer) {
            Ok(taken) => {
                let open = Open::new(taken, offer.uid, told.position);
                waiting.extend(at_home::all_go_home(shared));
                files.put(told.descriptor, Known::Open(Arc::new(open)));
            }
            Err(error) => ::tracing::debug!("file {}: {error}", told.descriptor),
        }
    }
    take_again(shared, waiting);
}

impl Open {
    fn new((file, server): (File, OwnedFd), uid: u32, position: u64) -> Open {
        let progress = Progress { position, told: position, ..Progress::default() };
        let (turn, is_idle, worker) = Default::default();
        Open { file, server, uid, turn, progress: Mutex::new(progress), is_idle, worker }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no thread of the supervisor panicked")
    }

    /// The server has it open still.
    fn is_there(&self) -> bool {
        packet::is_silent(&self.server)
    }

    /// Whether something is under way; then the call is made after it.
    fn has_wait(&self, n: &Notification) -> bool {
        let mut progress = self.progress();
        let is_busy = progress.under_way > 0;
        if is_busy {
            progress.waiting.push(*n);
        }
        is_busy
    }

    fn hand_to_worker(&self, job: Job) -> std::result::Result<(), Job> {
        let mut worker = self.worker.lock().expect("no thread of the supervisor panicked");
        if worker.is_none() {
            let (sender, jobs) = channel::<Job>();
            let work = move || jobs.into_iter().for_each(Job::carry_out);
            let thread = std::thread::Builder::new().name("direct-file".into());
            *worker = thread.spawn(work).is_ok().then_some(sender);
        }
        match worker.as_ref() {
            Some(sender) => sender.send(job).map_err(|unsent| unsent.0),
            None => Err(job),
        }
    }

    /// Does something from where the file is at, one after another: the result, and whether
    /// something was written.
    fn in_turn(&self, act: impl FnOnce(&mut u64) -> Option<(i64, bool)>) -> Option<i64> {
        let _turn = self.turn.lock().expect("no thread of the supervisor panicked");
        let mut at = self.progress().position;
        let (result, has_written) = act(&mut at)?;
        let mut progress = self.progress();
        progress.position = at;
        progress.has_written |= has_written;
        Some(result)
    }

    /// False if something is under way still.
    fn await_idle_until(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_busy = |progress: &mut Progress| progress.under_way > 0;
        let idle = self.is_idle.wait_timeout_while(self.progress(), left, is_busy);
        idle.expect("no thread of the supervisor panicked").0.under_way == 0
    }
}

impl Job {
    /// It is under way from now on.
    fn new(shared: &Arc<Shared>, open: &Arc<Open>, (id, deed): (u64, Deed), state: &State) -> Job {
        let mut progress = open.progress();
        let is_first = progress.under_way == 0;
        progress.under_way += 1;
        drop(progress);
        let is_alone = state.threads.len() == 1 && shared.family.bodies().len() == 1;
        Job { shared: shared.clone(), open: open.clone(), id, deed, is_first, is_alone }
    }

    /// Does it at once if that takes no time, else by the worker, after what that has to do.
    pub fn begin(self) {
        let (memory, is_alone) = (&self.shared.memory, self.is_alone);
        let at_once = |at: &mut u64| self.deed.at_once(&self.open, at, memory, is_alone);
        if let Some(result) = self.is_first.then(|| self.open.in_turn(at_once)).flatten() {
            return self.finish(result);
        }
        let open = self.open.clone();
        if let Err(job) = open.hand_to_worker(self) {
            // No thread is to be had: others wait.
            job.carry_out();
        }
    }

    fn carry_out(self) {
        let all = |at: &mut u64| Some(self.deed.carry_out(&self.open, at, &self.shared.memory));
        let result = self.open.in_turn(all);
        self.finish(result.unwrap_or(-i64::from(libc::EIO)));
    }

    fn finish(self, result: i64) {
        let mut progress = self.open.progress();
        progress.under_way -= 1;
        let is_idle = progress.under_way == 0;
        let waiting = if is_idle { std::mem::take(&mut progress.waiting) } else { vec![] };
        drop(progress);
        self.shared.listener.reply(self.id, result);
        if is_idle {
            self.open.is_idle.notify_all();
            take_again(&self.shared, waiting);
        }
    }
}
