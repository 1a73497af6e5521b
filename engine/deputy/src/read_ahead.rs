//! Files of home's that are sent to the body before it reads them
//! ([decision 0052](../../../docs/decisions/0052-reading-ahead.md)).
//!
//! The body says what is to be sent; a thread for each file reads it, by the process's own open
//! file and at places, so that its position stays where it is. What the body has been sent it may
//! read for as long as the file is what it was. So each file is looked at before anything is sent
//! to the body ([`ReadAhead::look`]), and if it has changed that is said first: nobody learns of a
//! change and then reads what was before it.
//!
//! A file is looked at by its times and its size. That says enough if nobody had it open for
//! writing when it was given: then every later change begins with another time. Who writes to a
//! mapping of it again and again changes the time once; so a file that somebody may write to is not
//! read ahead.

use crate::service::Shared;
use kernel::{pidfd, writers};
use link::LinkWriter;
use nix::fcntl::{FcntlArg, fcntl};
use nix::unistd::{Whence, lseek};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, fstatfs, statx};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use wire::forward::{Call, Opened, Reply, ToAway};
use wire::limits::{AHEAD_BYTES_MAX, AHEAD_FILES_MAX, AHEAD_PART_BYTES};
use wire::read_ahead::{Asked, Given, Told};

/// A smaller file is read sooner than it is asked for.
const SIZE_MIN: u64 = 64 << 10;
/// Questions about one file that wait: an honest body waits for the answer to a few.
const ASKED_MAX: usize = 64;
const THREADS_MAX: usize = 2 * AHEAD_FILES_MAX;

/// File systems whose times change with every change, that of a mapping included, and that no other
/// machine changes: ext2 to ext4, XFS, Btrfs, F2FS.
const TRUSTED: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
/// So old is the last change of a file at least: two within one tick of the kernel's clock (10 ms
/// at most) may have the same time.
const AGE_NS_MIN: i128 = 50_000_000;
/// The same where times are seconds.
const AGE_NS_MIN_OF_SECONDS: i128 = 2_100_000_000;

/// What is different after every change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

struct Known {
    file: Arc<File>,
    /// As it was when it was given; None: it is not yet.
    stamp: Option<Stamp>,
    asked: SyncSender<Wanted>,
}

/// What the body wants of one file.
struct Wanted {
    stretch: u64,
    from: u64,
    to: u64,
}

#[derive(Default)]
pub struct ReadAhead {
    is_any: AtomicBool,
    /// By the number that the body has given.
    files: Mutex<HashMap<u64, Known>>,
    /// Threads that there are: one that waits for a disk is there when its file is not any more.
    threads: AtomicUsize,
}

impl ReadAhead {
    fn files(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.files.lock().expect("no thread of the supervisor panicked")
    }

    fn has(&self, id: u64) -> bool {
        self.files().contains_key(&id)
    }

    fn forget(&self, id: u64) {
        let mut files = self.files();
        files.remove(&id);
        self.is_any.store(!files.is_empty(), Ordering::SeqCst);
    }

    /// The body is another, or none.
    pub fn forget_all(&self) {
        self.files().clear();
        self.is_any.store(false, Ordering::SeqCst);
    }

    /// Tells of every file that is not what it was. Called by whoever is about to send, and holds
    /// the link.
    pub fn look(&self, writer: &mut LinkWriter) {
        if !self.is_any.load(Ordering::SeqCst) {
            return;
        }
        let mut files = self.files();
        files.retain(|id, known| {
            let is_same = known.stamp.is_none_or(|then| stamp(&known.file) == Some(then));
            if !is_same {
                put(writer, &ToAway::Ahead(Told::Changed { id: *id }));
            }
            is_same
        });
        self.is_any.store(!files.is_empty(), Ordering::SeqCst);
    }
}

impl Shared {
    /// Sends what is about a file, if it is given still; false if it is not.
    fn send_of(&self, id: u64, told: Told) -> bool {
        let mut writer = self.writer();
        self.direct_files.ahead.look(&mut writer);
        let is_given = self.direct_files.ahead.has(id);
        if is_given {
            put(&mut writer, &ToAway::Ahead(told));
        }
        is_given
    }
}

/// A broken link is found by its reader.
pub fn put(writer: &mut LinkWriter, message: &ToAway) {
    if let Err(error) = writer.send(message) {
        ::tracing::debug!("link to the body: {error}");
    }
}

/// Tells the body of a file that a call has just opened, if it may be worth to read it ahead.
pub fn tell_opened(shared: &Shared, (call, reply): (&Call, &Reply), descriptor: i32, seen: &Statx) {
    let flags = match i64::from(call.number) {
        libc::SYS_open => call.arguments[1],
        libc::SYS_openat => call.arguments[2],
        // Where it has them in memory they are asked for later.
        _ => 0,
    };
    let is_read = flags as i32 & libc::O_ACCMODE == libc::O_RDONLY;
    if is_read && is_regular(seen) && seen.stx_size >= SIZE_MIN {
        let (tid, sequence, size) = (reply.tid, reply.sequence, seen.stx_size);
        shared.send(&ToAway::Ahead(Told::Lies(Opened { tid, sequence, descriptor, size })));
    }
}

/// What the body says about such files.
pub fn hear(shared: &Arc<Shared>, asked: Asked) {
    match asked {
        Asked::May { descriptor, id } => {
            if let Err(error) = begin(shared, descriptor, id) {
                ::tracing::debug!("file {descriptor} of {}: {error}", shared.pid);
                shared.send(&ToAway::Ahead(Told::Given { id, given: Given::NotNow }));
            }
        }
        Asked::Send { id, stretch, from, to } => want(shared, id, Wanted { stretch, from, to }),
        Asked::Leaves { id } => shared.direct_files.ahead.forget(id),
    }
}

fn want(shared: &Shared, id: u64, wanted: Wanted) {
    let is_honest = wanted.from <= wanted.to && wanted.to - wanted.from <= AHEAD_BYTES_MAX;
    let is_taken = {
        let files = shared.direct_files.ahead.files();
        // One that has changed: the body is being told.
        let Some(known) = files.get(&id) else { return };
        let is_within = known.stamp.is_some_and(|stamp| wanted.to <= stamp.size);
        is_honest && is_within && known.asked.try_send(wanted).is_ok()
    };
    if !is_taken {
        give_up(shared, id);
    }
}

/// The body reads it at home from now on.
fn give_up(shared: &Shared, id: u64) {
    if shared.send_of(id, Told::Changed { id }) {
        shared.direct_files.ahead.forget(id);
    }
}

/// The file is the process's own, taken here, where no later call of the body's has been made.
fn begin(shared: &Arc<Shared>, descriptor: i32, id: u64) -> io::Result<()> {
    let process = pidfd::open(shared.pid).map_err(|error| error.source)?;
    let file = pidfd::duplicate_from(&process, descriptor).map_err(|error| error.source)?;
    let file = Arc::new(File::from(file));
    let (asked, wanted) = sync_channel(ASKED_MAX);
    {
        let mut files = shared.direct_files.ahead.files();
        let threads = shared.direct_files.ahead.threads.load(Ordering::SeqCst);
        if files.len() >= AHEAD_FILES_MAX || threads >= THREADS_MAX {
            return Err(io::Error::other("as many as there may be are read ahead"));
        }
        files.insert(id, Known { file: file.clone(), stamp: None, asked });
        shared.direct_files.ahead.is_any.store(true, Ordering::SeqCst);
    }
    let of = shared.clone();
    let work = move || {
        serve(&of, id, &file, &wanted);
        of.direct_files.ahead.threads.fetch_sub(1, Ordering::SeqCst);
    };
    shared.direct_files.ahead.threads.fetch_add(1, Ordering::SeqCst);
    let thread = std::thread::Builder::new().name("read-ahead".into());
    thread.spawn(work).map(drop).inspect_err(|_| {
        shared.direct_files.ahead.threads.fetch_sub(1, Ordering::SeqCst);
        shared.direct_files.ahead.forget(id);
    })
}

/// One file, for as long as it is given.
fn serve(shared: &Shared, id: u64, file: &Arc<File>, wanted: &Receiver<Wanted>) {
    let given = give(shared, id, file).unwrap_or_else(|error| {
        ::tracing::debug!("file of {}: {error}", shared.pid);
        Given::Never
    });
    if !matches!(given, Given::Granted { .. }) {
        shared.direct_files.ahead.forget(id);
        return shared.send(&ToAway::Ahead(Told::Given { id, given }));
    }
    if !shared.send_of(id, Told::Given { id, given }) {
        return;
    }
    for Wanted { stretch, from, to } in wanted {
        let mut at = from;
        loop {
            let mut bytes = vec![0; AHEAD_PART_BYTES.min((to - at) as usize)];
            if file.read_exact_at(&mut bytes, at).is_err() {
                return give_up(shared, id);
            }
            let next = at + bytes.len() as u64;
            if !shared.send_of(id, Told::Bytes { id, stretch, at, bytes }) {
                return;
            }
            at = next;
            if at == to {
                break;
            }
        }
    }
}

/// Gives it, if all is as it has to be. Meanwhile the body may make no call that is about it: it
/// says first that the file is not read ahead any more.
fn give(shared: &Shared, id: u64, file: &Arc<File>) -> io::Result<Given> {
    let flags = fcntl(file, FcntlArg::F_GETFL)?;
    let is_read = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & UNLIKE == 0;
    let system = fstatfs(file)?.f_type.cast_unsigned();
    if !is_read || shared.files.is_some() || !TRUSTED.contains(&system) {
        return Ok(Given::Never);
    }
    let Some(before) = stamp(file) else { return Ok(Given::Never) };
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let now = i128::from(now.tv_sec) * NS + i128::from(now.tv_nsec);
    if before.size < SIZE_MIN || now - before.last_ns() < before.age_ns_min() {
        return Ok(Given::NotNow);
    }
    let mut files = shared.direct_files.ahead.files();
    let Some(known) = files.get_mut(&id) else { return Ok(Given::NotNow) };
    match writers::are_none(file).map_err(|error| error.source)? {
        Some(true) => {}
        Some(false) => return Ok(Given::NotNow),
        None => return Ok(Given::Never),
    }
    if stamp(file) != Some(before) {
        return Ok(Given::NotNow);
    }
    known.stamp = Some(before);
    let position = lseek(file, 0, Whence::SeekCur)?.cast_unsigned();
    Ok(Given::Granted { position, size: before.size })
}

/// What is read so is read in another way.
const UNLIKE: i32 = libc::O_DIRECT | libc::O_PATH | libc::O_DIRECTORY;
const NS: i128 = 1_000_000_000;

impl Stamp {
    fn last_ns(&self) -> i128 {
        self.modified_ns.max(self.changed_ns)
    }

    fn age_ns_min(&self) -> i128 {
        let are_seconds = self.changed_ns % NS == 0;
        if are_seconds { AGE_NS_MIN_OF_SECONDS } else { AGE_NS_MIN }
    }
}

fn is_regular(seen: &Statx) -> bool {
    FileType::from_raw_mode(seen.stx_mode.into()).is_file()
}

/// None if it has none, or is no file.
fn stamp(file: &File) -> Option<Stamp> {
    let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
    let seen = statx(file, "", AtFlags::EMPTY_PATH, mask).ok()?;
    let has_all = StatxFlags::from_bits_retain(seen.stx_mask).contains(mask);
    let [modified_ns, changed_ns] = [seen.stx_mtime, seen.stx_ctime]
        .map(|time| i128::from(time.tv_sec) * NS + i128::from(time.tv_nsec));
    (has_all && is_regular(&seen)).then_some(Stamp { size: seen.stx_size, modified_ns, changed_ns })
}
