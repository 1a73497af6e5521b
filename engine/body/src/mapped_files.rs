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
use migrate::backing;
use migrate::hashes::Effort;
use migrate::threads::STEP_TIMEOUT;
use migrate::{Result, reason};
use std::fs::File;
use std::sync::Arc;
use wire::calls::{Arguments, Emulation};
use wire::forward::{Call, FileToMap};
use wire::image::InFlight;

const MMAP: u32 = libc::SYS_mmap as u32;
/// Why a file is mapped at home.
const AT_HOME: &str = "file-mapping";
/// Arguments of mmap.
const PROTECTION: usize = 2;
const DESCRIPTOR: usize = 4;
const OFFSET: usize = 5;
/// Bytes of a file that are compared for a call that waits; some 20 ms.
const HASHED_BYTES_MAX: u64 = 32 << 20;

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
        && is_watched().is_none()
}

/// Home has found the file that a thread maps.
pub(crate) fn expect(shared: &Shared, file: FileToMap) {
    if let Some(thread) = shared.lock().by_guest(file.tid) {
        thread.file_to_map = Some(file);
    }
}

/// Home lets the thread map its file: here, if it is one that is here.
pub(crate) fn map(shared: &Shared, state: &mut State, (tid, outstanding): (i32, &Outstanding)) {
    let (id, InFlight { sequence, arguments, .. }) = (outstanding.id, &outstanding.call);
    let thread = state.threads.get_mut(&tid);
    // What was found for a call that it made on another node is not told again.
    let file = thread
        .and_then(|thread| thread.file_to_map.take())
        .filter(|file| file.sequence == *sequence);
    let mapped = file
        .filter(|_| may_map_here(shared, state, arguments))
        .and_then(|file| find(shared, file, arguments))
        .and_then(|file| shared.listener.add_descriptor(id, &file).ok());
    match mapped {
        Some(descriptor) => {
            let agreement = Agreement::Map(descriptor, *arguments);
            shared.order(Order::Agree { tid, id, agreement });
        }
        None => {
            let why = reason("call", format!("mmap: {AT_HOME}"));
            notices::await_home(shared, state, (tid, id), why);
        }
    }
}

/// This node's file, which is in the list then where home has it. None if there is none, or if what
/// home says cannot be.
fn find(shared: &Shared, found: FileToMap, arguments: &Arguments) -> Option<File> {
    let FileToMap { index, backing, .. } = found;
    let mut library = shared.own_files.fixed.library_to_change();
    if (index as usize) < library.len() {
        let is_it = library.description(index).is_some_and(|(known, _)| *known == backing);
        return library.file(index).filter(|_| is_it)?.try_clone().ok();
    }
    if index as usize != library.len() {
        return None;
    }
    let file = backing::find_here(&backing, &mut Effort::of(HASHED_BYTES_MAX))?;
    let protection = arguments[PROTECTION] as i32;
    let name = file_mapping::name(&file, protection, arguments[OFFSET]).ok()?;
    let copy = file.try_clone().ok()?;
    library.push((backing, file), name);
    Some(copy)
}

impl Tracing<'_> {
    /// Has a thread, which stands behind its call, map the file that it has under this number.
    pub(crate) fn map_file(&mut self, tid: i32, descriptor: i32, how: Arguments) -> Result<()> {
        let mut arguments = how;
        arguments[DESCRIPTOR] = descriptor as u64;
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
