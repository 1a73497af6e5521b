//! Files that the guest maps while it is away ([decision 0035](../../../docs/decisions/)).
//!
//! Home knows which file a descriptor is, and whether it may be mapped. If this node has the same,
//! byte by byte, the thread that asked, stopped behind its call, maps that; else it goes home for
//! it. Both halves keep one list of the files that the process maps, in one order.

use crate::notices::{self, needs_home};
use crate::state::{Agreement, Order, Outstanding, Shared, State};
use crate::tracing_loop::Tracing;
use kernel::file_mapping;
use kernel::remote_call::RemoteCalls;
use kernel::seccomp::Notification;
use kernel::tracee;
use migrate::backing::{self, Library};
use migrate::hashes::Effort;
use migrate::threads::STEP_TIMEOUT;
use migrate::{Result, reason};
use std::cmp::Ordering;
use std::fs::File;
use std::sync::Arc;
use wire::calls::{Arguments, Emulation};
use wire::forward::{Call, FileToMap};
use wire::image::InFlight;
use wire::limits::BACKINGS_MAX;

const MMAP: u32 = libc::SYS_mmap as u32;
/// Why a file is mapped at home.
const AT_HOME: &str = "file-mapping";
/// Arguments of mmap.
const PROTECTION: usize = 2;
const FLAGS: usize = 3;
const DESCRIPTOR: usize = 4;
const OFFSET: usize = 5;

/// What is to be sent home for a call that maps a file.
pub(crate) fn forward(shared: &Arc<Shared>, state: &mut State, n: &Notification) -> Option<Call> {
    if !may_map_here(shared, state, &n.arguments) {
        return needs_home(shared, state, n, AT_HOME);
    }
    let emulation = Some(Emulation::FileMapping);
    notices::record_call(shared, state, n, MMAP, n.arguments, vec![], emulation)
}

/// Whether the mapping would be in nobody's way, and belong to this process alone.
fn may_map_here(shared: &Shared, state: &State, arguments: &Arguments) -> bool {
    let has_own_memory =
        shared.maker.is_none() && state.threads.values().all(|thread| thread.waits_for.is_none());
    let is_whole = shared.late.as_ref().is_none_or(|late| late.is_whole());
    let is_watched = || shared.watch.objection((shared.pid, &shared.maps), MMAP, arguments);
    has_own_memory
        && is_whole
        && !shared.kept.is_touched_by(MMAP, arguments)
        && !shared.object_to(state, MMAP, arguments)
        && !shared.gives_up_lasting(MMAP, arguments)
        && is_watched().is_none()
}

/// Home has found the file that a thread maps.
pub(crate) fn expect(shared: &Shared, file: FileToMap) {
    if let Some(thread) = shared.lock().by_guest(file.tid) {
        thread.file_to_map = Some(file);
    }
}

/// Home lets the thread map its file: here, if it is one that is here. To find that out may take,
/// which nobody but the thread waits for.
pub(crate) fn map(
    shared: &Arc<Shared>,
    state: &mut State,
    (tid, outstanding): (i32, &Outstanding),
) {
    let (id, InFlight { sequence, arguments, .. }) = (outstanding.id, &outstanding.call);
    // What was found for a call that it made on another node is not told again.
    let file = state.threads.get_mut(&tid).and_then(|thread| thread.file_to_map.take());
    let file = file.filter(|file| file.sequence == *sequence);
    let Some(file) = file.filter(|_| may_map_here(shared, state, arguments)) else {
        return map_at_home(shared, state, (tid, id));
    };
    if let Some(thread) = state.threads.get_mut(&tid) {
        thread.parked = Some(id);
    }
    let (here, how) = (shared.clone(), *arguments);
    let search = move || {
        let found = find(&here, file, &how);
        finish(&here, (tid, id), (found, how));
    };
    if let Err(error) = std::thread::Builder::new().name("file".into()).spawn(search) {
        ::tracing::debug!("body of {}: no thread: {error}", shared.guest_pid);
        map_at_home(shared, state, (tid, id));
    }
}

/// Goes on with a call whose file was looked for, unless a freeze has ended it meanwhile.
fn finish(shared: &Shared, (tid, id): (i32, u64), (found, how): (Option<File>, Arguments)) {
    let mut state = shared.lock();
    let is_frozen = state.is_frozen;
    let Some(thread) = state.threads.get_mut(&tid).filter(|_| !is_frozen) else { return };
    if thread.parked.take_if(|parked| *parked == id).is_none() {
        return;
    }
    match found.filter(|_| may_map_here(shared, &state, &how)) {
        Some(file) => shared.order(Order::MapFile { tid, id, file, how }),
        None => map_at_home(shared, &mut state, (tid, id)),
    }
}

fn map_at_home(shared: &Shared, state: &mut State, call: (i32, u64)) {
    let why = reason("call", format!("mmap: {AT_HOME}"));
    notices::await_home(shared, state, call, why);
}

/// This node's file, to be read only, which is in the list then where home has it. None if there is
/// none, if it cannot be mapped so, or if what home says cannot be.
fn find(shared: &Shared, found: FileToMap, arguments: &Arguments) -> Option<File> {
    let FileToMap { index, backing, .. } = found;
    let fixed = &shared.own_files.fixed;
    let mut effort = Effort::of_a_call();
    let is_it =
        |library: &Library| library.description(index).is_some_and(|(known, _)| *known == backing);
    let known = {
        let library = fixed.library();
        if (index as usize) < library.len() && !is_it(&library) {
            return None;
        }
        library.file(index).map(File::try_clone)
    };
    let is_new = known.is_none();
    let file = match known {
        Some(file) => backing::open_again(&file.ok()?, &backing, &mut effort)?,
        None => backing::find_here(&backing, &mut effort)?,
    };
    let kind = arguments[FLAGS] as i32 & libc::MAP_TYPE;
    let how = (arguments[PROTECTION] as i32, kind);
    let name = file_mapping::name(&file, how, arguments[OFFSET]).ok()?;
    if is_new {
        let mut library = fixed.library_to_change();
        // Another thread may have mapped the same, or one before it may be looked for still.
        match library.len().cmp(&(index as usize)) {
            Ordering::Equal if library.len() < BACKINGS_MAX => {
                library.push((backing, file.try_clone().ok()?), name);
            }
            Ordering::Greater if is_it(&library) => {}
            _ => return None,
        }
    }
    Some(file)
}

impl Tracing<'_> {
    /// Has a thread, which is in this notification, map a file behind its call.
    pub(crate) fn begin_to_map(
        &mut self,
        (tid, id): (i32, u64),
        file: &File,
        how: Arguments,
    ) -> Result<()> {
        match self.shared.listener.add_descriptor(id, file) {
            Ok(number) => self.begin_to_agree(tid, id, Agreement::Map(number, how)),
            Err(error) => {
                ::tracing::debug!("body of {}: {error}", self.shared.guest_pid);
                let shared = self.shared.clone();
                map_at_home(&shared, &mut shared.lock(), (tid, id));
                Ok(())
            }
        }
    }

    /// Has a thread, which stands behind its call, map the file that it has under this number.
    pub(crate) fn map_file(&mut self, tid: i32, descriptor: i32, how: Arguments) -> Result<()> {
        let mut arguments = how;
        arguments[DESCRIPTOR] = descriptor as u64;
        // It would wait for the disk, and we for it. What is there is the same.
        arguments[FLAGS] &= !((libc::MAP_POPULATE | libc::MAP_NONBLOCK) as u64);
        let close = [descriptor as u64, 0, 0, 0, 0, 0];
        let _limit = kernel::patience::Patience::of(STEP_TIMEOUT);
        let outcome = self.make_for_us(tid, libc::SYS_mmap, arguments);
        let closed = self.make_for_us(tid, libc::SYS_close, close);
        match outcome.and_then(|result| closed.map(|_| result)) {
            Ok(result) => {
                let mut registers = tracee::registers(tid)?;
                registers.rax = result as u64;
                Ok(tracee::set_registers(tid, &registers)?)
            }
            Err(error) if error.is_gone() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Has a stopped thread make a call that passes unseen.
    fn make_for_us(&self, tid: i32, number: i64, arguments: Arguments) -> kernel::Result<i64> {
        self.expect_call(tid, Some((number as u32, arguments)));
        let result = RemoteCalls::begin(tid, self.agent.syscall_instruction())
            .and_then(|mut calls| calls.raw(number, arguments));
        self.expect_call(tid, None);
        result
    }
}
