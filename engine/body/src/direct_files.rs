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

mod deed;

use crate::descriptors::Lost;
use crate::notices;
use crate::state::{Shared, State};
use deed::Deed;
use kernel::packet;
use kernel::proc::maps::{self, Mapping};
use kernel::seccomp::{ARCHITECTURE, Notification};
use migrate::{MigrateError, Result};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::calls::{self, Class};
use wire::files::Offer;
use wire::forward::{DirectFile, Opened, ToHome};

/// Files of one guest that are known at a time; each has a thread once something may take long.
const FILES_MAX: usize = 256;
/// A server on this node hands a file over at once.
const PATIENCE: Duration = Duration::from_secs(1);

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
    },
    Open(Arc<Open>),
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

    fn is_open(&self, descriptor: i32) -> bool {
        matches!(self.known().get(&descriptor), Some(Known::Open(_)))
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

    fn forget(&self, is_lost: impl Fn(i32) -> bool) {
        let mut known = self.known();
        known.retain(|descriptor, file| match file {
            // Threads wait for the answer.
            Known::Wanted { is_lost: is_it, .. } if is_lost(*descriptor) => {
                *is_it = true;
                true
            }
            _ => !is_lost(*descriptor),
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
    if files.open_ones(is_lost).iter().any(|(_, open)| open.has_wait(n)) {
        return wait(state, n);
    }
    settle(shared);
    files.forget(is_lost);
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
            *file = Known::Wanted { id: n.id, waiting, is_lost: false };
            shared.queue(ToHome::WantsFile { descriptor, id: n.id });
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

/// Descriptors that are not known any more after this call.
fn lost_by(shared: &Shared, n: &Notification) -> Option<Lost> {
    let [first, second, third, fourth, ..] = n.arguments.map(|argument| argument as i32);
    let is_open = |descriptor| shared.direct_files.is_open(descriptor);
    match i64::from(n.number) {
        // What may be written is limited from now on; memory is shared.
        libc::SYS_setrlimit | libc::SYS_prlimit64 | libc::SYS_shmat => Some(Lost::All),
        libc::SYS_mmap if fourth & libc::MAP_SHARED != 0 => Some(Lost::All),
        libc::SYS_sendfile if is_open(first) || is_open(second) => {
            Some(Lost::These([first, second]))
        }
        libc::SYS_splice | libc::SYS_copy_file_range if is_open(first) || is_open(third) => {
            Some(Lost::These([first, third]))
        }
        libc::SYS_fcntl if second == libc::F_SETFL => Some(Lost::These([first; 2])),
        number => Lost::by(shared, n).or_else(|| {
            let is_lost = is_open(first) && !leaves_position(number);
            is_lost.then_some(Lost::These([first; 2]))
        }),
    }
}

/// Whether a call leaves alone where a file is read and written next, for its first argument.
fn leaves_position(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_fstat
            | libc::SYS_fcntl
            | libc::SYS_flock
            | libc::SYS_ioctl
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fadvise64
            | libc::SYS_readahead
            | libc::SYS_sync_file_range
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_utimensat
            | libc::SYS_fstatfs
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_fgetxattr
            | libc::SYS_fsetxattr
            | libc::SYS_flistxattr
            | libc::SYS_fremovexattr
    )
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
    files.known().clear();
    files.is_any.store(false, Ordering::SeqCst);
    Ok(())
}

/// Home is just opening a file of some node for one of the body's threads.
pub fn opened(shared: &Shared, told: &Opened) {
    let mut state = shared.lock();
    let is_frozen = state.is_frozen;
    let call = state.by_guest(told.tid).and_then(|thread| thread.outstanding.as_ref());
    if call.is_some_and(|it| it.call.sequence == told.sequence) && !is_frozen {
        let file = Known::Opened { size: told.size, used_bytes: 0 };
        shared.direct_files.put(told.descriptor, file);
    }
}

/// What home was asked for. Those who waited for it make their calls, here or there.
pub fn answered(shared: &Arc<Shared>, told: &DirectFile) {
    let files = &shared.direct_files;
    let waiting = match files.known().entry(told.descriptor) {
        Entry::Occupied(entry) => match entry.get() {
            Known::Wanted { id, .. } if *id == told.id => entry.remove(),
            _ => return,
        },
        Entry::Vacant(_) => return,
    };
    let Known::Wanted { waiting, is_lost, .. } = waiting else { return };
    if let Some(offer) = told.offer.filter(|_| !is_lost && may_have_any(shared)) {
        match take_over(&offer) {
            Ok(taken) => {
                let open = Open::new(taken, offer.uid, told.position);
                files.put(told.descriptor, Known::Open(Arc::new(open)));
            }
            Err(error) => ::tracing::debug!("file {}: {error}", told.descriptor),
        }
    }
    take_again(shared, waiting);
}

fn may_have_any(shared: &Shared) -> bool {
    // A limit of ours is none of the guest's.
    let is_limited = getrlimit(Resource::RLIMIT_FSIZE).map_or(true, |it| it.0 != RLIM_INFINITY);
    let shares_files = shared.files.is_any();
    shared.maker.is_none() && !is_limited && !shares_files && !has_shared_memory(shared)
}

/// What cannot be read is taken for shared.
fn has_shared_memory(shared: &Shared) -> bool {
    let is_ours = |it: &Mapping| shared.kept.contains(&(it.start..it.end));
    let is_one = |it: &Mapping| it.is_shared && it.is_writable && !is_ours(it);
    maps::read(shared.pid).map_or(true, |maps| maps.iter().any(is_one))
}

/// Has the server hand it over: the file, and the connection that lasts as long.
fn take_over(offer: &Offer) -> io::Result<(File, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let server = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for side in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&server, side, Some(PATIENCE))?;
    }
    connect(&server, &SocketAddrUnix::new_abstract_name(&offer.name)?)?;
    let is_sent = packet::send_now(&server, &offer.secret).map_err(|error| error.source)?;
    let received = packet::receive(&server, 1).map_err(|error| error.source)?;
    let file = received.and_then(|(_, file)| file).filter(|_| is_sent);
    let file = File::from(file.ok_or(io::ErrorKind::UnexpectedEof)?);
    match file.metadata()?.is_file() {
        true => Ok((file, server)),
        false => Err(io::Error::other("it is no regular file")),
    }
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
