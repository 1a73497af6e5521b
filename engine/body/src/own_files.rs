//! Files by which the guest looks at itself, read while it is away
//! ([docs/self.md](../../../docs/self.md)).
//!
//! Home opens them as always. What is read of them is put together here: home's kernel tells what
//! stays at home, the body's what is away ([`crate::own_text`]). The kernel makes such a file up
//! when it is read from its start, and so is done here. Where the guest has come to in it home is
//! told each time, so that whoever reads it next goes on there.
//!
//! Only descriptors are known here that cannot have another name: whatever might give them one has
//! them forgotten, and home then has the process come home to read them.

use crate::capture::Fixed;
use crate::descriptors::Lost;
use crate::notices::await_home;
use crate::own_text;
use crate::state::{Shared, State};
use kernel::seccomp::Notification;
use migrate::reason;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::calls::{self, OwnFile, Shows};
use wire::forward::{OwnFileTold, Segment, ToHome};
use wire::limits::OWN_FILES_MAX;

/// Why such a file is read at home.
pub const AT_HOME: &str = "proc-self";

pub struct OwnFiles {
    pub(crate) fixed: Arc<Fixed>,
    /// Used by whoever holds the state, and nobody else.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By descriptor.
    open: HashMap<i32, Open>,
    /// What threads are opening, by local thread id.
    opening: HashMap<i32, OwnFile>,
    /// What threads wait for home to tell, likewise.
    reading: HashMap<i32, Reading>,
}

pub(crate) struct Open {
    pub file: OwnFile,
    /// That opened it, as this supervisor sees it.
    pub thread: i32,
    position: u64,
    /// As it was made up last.
    text: Vec<u8>,
}

/// A read that waits for home.
struct Reading {
    id: u64,
    what: Read,
}

#[derive(Clone, Copy)]
struct Read {
    descriptor: i32,
    address: u64,
    length: usize,
    /// None: where the file is at.
    at: Option<u64>,
}

impl Read {
    fn of(n: &Notification) -> Option<Read> {
        let [descriptor, address, length, at, ..] = n.arguments;
        let at = (i64::from(n.number) == libc::SYS_pread64).then_some(at);
        let is_sound = at.is_none_or(|at| i64::try_from(at).is_ok());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        is_sound.then_some(Read { descriptor: descriptor as i32, address, length, at })
    }
}

impl OwnFiles {
    pub fn new(fixed: Arc<Fixed>) -> OwnFiles {
        OwnFiles { fixed, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no thread of the supervisor panicked")
    }
}

/// Takes a call that is about such a file; false if home, or the body's kernel, is to make it.
pub fn take(shared: &Shared, state: &mut State, n: &Notification) -> bool {
    let mut table = shared.own_files.table();
    if table.open.is_empty() {
        return false;
    }
    let descriptor = n.arguments[0] as i32;
    match i64::from(n.number) {
        libc::SYS_read | libc::SYS_pread64 if table.open.contains_key(&descriptor) => {
            let Some(what) = Read::of(n) else { return false };
            read(shared, state, &mut table, n, what);
            true
        }
        libc::SYS_lseek if table.open.contains_key(&descriptor) => seek(shared, &mut table, n),
        _ => {
            if let Some(lost) = Lost::by(shared, n) {
                table.open.retain(|descriptor, _| !lost.has(*descriptor));
            }
            false
        }
    }
}

/// Notes that a thread is about to have such a file opened at home, or is not. False if that is to
/// happen at home.
pub fn note_opening(shared: &Shared, n: &Notification, segments: &[Segment]) -> bool {
    if !is_open(n.number as u32) {
        return true;
    }
    let own = Some(shared.guest_pid.0);
    let mut table = shared.own_files.table();
    match calls::own_file(n.number as u32, &n.arguments, segments, own) {
        // A kernel that is not home's has other mappings of its own.
        Some(file) if file.shows == Shows::Maps && shared.abroad.is_some() => return false,
        Some(_) if table.open.len() >= OWN_FILES_MAX => return false,
        Some(file) => table.opening.insert(n.tid as i32, file),
        None => table.opening.remove(&(n.tid as i32)),
    };
    true
}

fn is_open(number: u32) -> bool {
    matches!(i64::from(number), libc::SYS_open | libc::SYS_openat)
}

/// Home has made a call of a thread: it may have opened such a file.
pub fn note_opened(shared: &Shared, tid: i32, number: u32, result: i64) {
    if !is_open(number) {
        return;
    }
    let mut table = shared.own_files.table();
    let Ok(descriptor) = i32::try_from(result) else { return };
    if descriptor < 0 {
        return;
    }
    // Whatever had that number before has it no more.
    table.open.remove(&descriptor);
    if let Some(file) = table.opening.remove(&tid) {
        let open = Open { file, thread: tid, position: 0, text: vec![] };
        table.open.insert(descriptor, open);
    }
}

fn seek(shared: &Shared, table: &mut Table, n: &Notification) -> bool {
    let [descriptor, offset, whence, ..] = n.arguments;
    let descriptor = descriptor as i32;
    let Some(open) = table.open.get_mut(&descriptor) else { return false };
    let position = match whence as i32 {
        libc::SEEK_SET => Some(offset as i64),
        libc::SEEK_CUR => (open.position as i64).checked_add(offset as i64),
        // Each of these files has its own mind about it.
        _ => {
            table.open.remove(&descriptor);
            return false;
        }
    };
    let Some(position) = position.filter(|position| *position >= 0) else {
        shared.listener.reply(n.id, -i64::from(libc::EINVAL));
        return true;
    };
    if position as u64 != open.position {
        open.position = position as u64;
        shared.queue(ToHome::Seeks { descriptor, position: position as u64 });
    }
    shared.listener.reply(n.id, position);
    true
}

fn read(shared: &Shared, state: &mut State, table: &mut Table, n: &Notification, what: Read) {
    let tid = n.tid as i32;
    let Some(open) = table.open.get_mut(&what.descriptor) else { return };
    let is_afresh = what.at.unwrap_or(open.position) == 0 || open.text.is_empty();
    if !is_afresh || what.length == 0 {
        return deliver(shared, open, n.id, what);
    }
    let Some(thread) = state.threads.get_mut(&tid) else { return };
    thread.awaits_file = Some(n.id);
    let asks = ToHome::ReadsOwn { tid: thread.guest, id: n.id, descriptor: what.descriptor };
    table.reading.insert(tid, Reading { id: n.id, what });
    shared.queue(asks);
}

/// What home has of the file that a thread reads.
pub fn told(shared: &Shared, told: &OwnFileTold) {
    let mut state = shared.lock();
    let is_frozen = state.is_frozen;
    let Some(thread) = state.by_guest(told.tid) else { return };
    let mut table = shared.own_files.table();
    let (tid, is_it) = (thread.local, |reading: &Reading| reading.id == told.id);
    let Some(reading) = table.reading.remove(&tid).filter(is_it) else { return };
    // A thread that was stopped meanwhile reads again.
    if is_frozen || thread.awaits_file.take_if(|id| *id == reading.id).is_none() {
        return;
    }
    let open = table.open.get_mut(&reading.what.descriptor);
    let Some((open, text)) = open.and_then(|open| {
        let text = own_text::make_up(shared, &mut state, open, tid, told)?;
        Some((open, text))
    }) else {
        let why = reason("call", format!("read: {AT_HOME}"));
        return await_home(shared, &mut state, (tid, reading.id), why);
    };
    open.text = text;
    deliver(shared, open, reading.id, reading.what);
    drop(table);
    drop(state);
    shared.flush_queued();
}

/// Ends a read with what was made up.
fn deliver(shared: &Shared, open: &mut Open, id: u64, what: Read) {
    let at = what.at.unwrap_or(open.position);
    let start = usize::try_from(at).unwrap_or(usize::MAX).min(open.text.len());
    let end = start.saturating_add(what.length).min(open.text.len());
    let written = shared.memory.write_as_guest(what.address, &open.text[start..end]);
    if written == 0 && start < end {
        shared.listener.reply(id, -i64::from(libc::EFAULT));
        return;
    }
    if written > 0 && what.at.is_none() {
        open.position = at + written as u64;
        // Said first: what the thread does next comes after it.
        shared.queue(ToHome::Seeks { descriptor: what.descriptor, position: open.position });
    }
    shared.listener.reply(id, written as i64);
}
