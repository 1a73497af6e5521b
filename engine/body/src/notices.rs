//! What the body may not do itself: taking notifications and forwarding calls.

use crate::abroad::{Abroad, FOREIGN_CLOCKS, tell_time};
use crate::direct_files::Taken;
use crate::family::Family;
use crate::filter::MADVISE;
use crate::state::{BodyMemory, Order, Outstanding, Shared, State, Thread};
use crate::{
    direct_files, dispositions, exec, filter, frames, mapped_files, new_threads, own_files, waiting,
};
use kernel::regs::{ERESTARTNOINTR, ERESTARTSYS};
use kernel::seccomp::{ARCHITECTURE, Listener, Notification};
use migrate::reason;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use wire::calls::{self, Class, Emulation, Timeout, Unmarshalled};
use wire::forward::{Call, Direction, Place, Segment, ToHome, Yield};
use wire::ids::GuestAddr;
use wire::image::InFlight;
use wire::processor_time::layout::timespec;
use wire::supervisor::Reason;

const IO_URING_SETUP: u32 = libc::SYS_io_uring_setup as u32;

/// Serves notifications until all bodies of the sandbox are gone.
pub fn serve(family: &Family, listener: &Arc<Listener>) {
    loop {
        match listener.receive() {
            Ok(Some(notification)) => {
                // If there is no body left, whoever makes the call is being killed.
                if let Some(shared) = family.of(listener, &notification) {
                    take(&shared, &notification);
                }
            }
            Ok(None) => {}
            // The filter has no users left: the main thread sees the end of the body itself.
            Err(_) => return,
        }
    }
}

/// Takes a notification that has just come, or has waited in its thread's `awaits_file`.
pub(crate) fn take(shared: &Arc<Shared>, n: &Notification) {
    // First, as a link that is full must not hold up what comes from it.
    shared.prepare_files(n);
    let mut state = shared.lock();
    if shared.abroad.as_ref().is_some_and(|abroad| take_abroad(shared, abroad, &mut state, n)) {
        return;
    }
    let (is_frozen, is_interrupted) = (state.is_frozen, state.is_interrupted);
    let Some(thread) = state.threads.get_mut(&(n.tid as i32)) else {
        // Not a thread of the guest: nothing that we know of may run in the sandbox, but to end.
        match i64::from(n.number) {
            libc::SYS_exit if n.architecture == ARCHITECTURE => shared.listener.let_pass(n.id),
            _ => shared.listener.reply(n.id, -i64::from(libc::EPERM)),
        };
        return;
    };
    let is_ours = thread.agrees_at.is_some_and(|at| is_for_us(n, at));
    if is_ours || new_threads::is_made_for_us(thread, n) {
        shared.listener.let_pass(n.id);
        return;
    }
    thread.is_cut_short = false;
    if is_frozen {
        // It will make the call again. Only a thread that is about to stop may be told so: the
        // kernel takes the restart code for one that has something to stop for, and lets any other
        // see it.
        if is_interrupted {
            shared.listener.reply(n.id, ERESTARTNOINTR);
        } else {
            thread.parked = Some(n.id);
        }
        return;
    }
    if i64::from(n.number) == libc::SYS_rt_sigreturn
        && n.architecture == ARCHITECTURE
        && let Err(error) = frame_for_here(shared, n)
    {
        thread.parked = Some(n.id);
        shared.order(Order::NeedsHome(error.reason()));
        return;
    }
    if let Some(call) = thread.in_flight.take() {
        let awaits = await_again(shared, thread, n, call);
        return shared.send_after(state, awaits);
    }
    let interrupted = thread.interrupted.take();
    if thread.has_deliverable_signal() {
        if interrupted.is_some() {
            // The wait is over; what the handler waits for is a wait of its own.
            thread.continued_wait_ns = None;
        }
        // Again for all: equal signals that wait in the kernel are one.
        thread.signals.iter().for_each(|s| raise(shared, thread.local, s.number));
        // A handler is due. A thread that was in the call before has been interrupted in it; for
        // any other the handler runs first, and then the call is made.
        thread.is_cut_short = interrupted == Some(ERESTARTSYS);
        shared.listener.reply(n.id, interrupted.unwrap_or(ERESTARTNOINTR));
        return;
    }
    thread.resumes = interrupted;
    make(shared, state, n);
}

/// Has a call made that nothing is in the way of: here, at home, or by the body's kernel.
fn make(shared: &Arc<Shared>, mut state: MutexGuard<'_, State>, n: &Notification) {
    let call = match direct_files::take(shared, &mut state, n) {
        Taken::No => route(shared, &mut state, n),
        Taken::Waits => None,
        Taken::Deed(deed) => {
            drop(state);
            return deed.begin();
        }
    };
    match call {
        Some(call) => shared.send_after(state, ToHome::Call(call)),
        None => {
            drop(state);
            shared.flush_queued();
        }
    }
}

/// Calls that are different for a guest whose home is another machine: false for all others.
fn take_abroad(shared: &Shared, abroad: &Abroad, state: &mut State, n: &Notification) -> bool {
    if n.architecture != ARCHITECTURE || !state.threads.contains_key(&(n.tid as i32)) {
        return false;
    }
    if abroad.elsewhere.is_inside(n.instruction_pointer) {
        take_of_stub(shared, state, n);
        return true;
    }
    let at = |clock| Some(abroad.read(clock));
    let time_ns = match i64::from(n.number) {
        libc::SYS_clock_gettime if FOREIGN_CLOCKS.contains(&(n.arguments[0] as i32)) => {
            at(n.arguments[0] as i32)
        }
        // What else it tells is of another kernel: who asks for a time zone does it at home.
        libc::SYS_gettimeofday if n.arguments[1] == 0 => at(libc::CLOCK_REALTIME),
        libc::SYS_gettimeofday => None,
        libc::SYS_time => at(libc::CLOCK_REALTIME_COARSE),
        _ => return false,
    };
    match time_ns {
        Some(ns) => shared.listener.reply(n.id, tell_time(shared, n, ns)),
        None => return park(shared, state, n, "a time zone"),
    };
    true
}

/// A call from the stub is never in flight when its thread is captured: its place is nowhere else.
fn take_of_stub(shared: &Shared, state: &mut State, n: &Notification) {
    match calls::classify(n.number as u32, &n.arguments) {
        Class::Local => {
            shared.listener.let_pass(n.id);
        }
        Class::Emulate(Emulation::ProcessorClock, _) if answer_clock(shared, state, n) => {}
        _ => {
            park(shared, state, n, "another process's clock");
        }
    }
}

/// The thread waits for the homecoming, and makes its call there.
fn park(shared: &Shared, state: &mut State, n: &Notification, what: &str) -> bool {
    if state.is_frozen && state.is_interrupted {
        shared.listener.reply(n.id, ERESTARTNOINTR);
        return true;
    }
    if let Some(thread) = state.threads.get_mut(&(n.tid as i32)) {
        thread.parked = Some(n.id);
    }
    if !state.is_frozen {
        shared.order(Order::NeedsHome(reason("call", format!("it asks for {what}"))));
    }
    true
}

/// Whether the main thread has it make this call (`Tracing::set_action`).
fn is_for_us(n: &Notification, place: u64) -> bool {
    i64::from(n.number) == libc::SYS_rt_sigaction && n.arguments[1] == place
}

/// A thread that was moved in the middle of a call has come back to it: what home is told.
fn await_again(shared: &Shared, thread: &mut Thread, n: &Notification, call: InFlight) -> ToHome {
    let emulation = match calls::classify(n.number as u32, &n.arguments) {
        Class::Emulate(emulation, _) => Some(emulation),
        _ => None,
    };
    let temporary_mask = calls::has_temporary_mask(call.number, &call.arguments, &call.segments);
    let sequence = call.sequence;
    let masked = temporary_mask.is_some();
    let interrupted = thread.interrupted.take();
    thread.wait_until_ns = thread.continued_wait_ns.take();
    thread.outstanding =
        Some(Outstanding { id: n.id, call, emulation, interrupted, temporary_mask });
    if !masked {
        for signal in &thread.signals {
            raise(shared, thread.local, signal.number);
        }
    }
    ToHome::Awaits { tid: thread.guest, sequence }
}

/// Makes the kernel stop the thread for this signal; what it is about comes from the queue then.
pub fn raise(shared: &Shared, tid: i32, signal: i32) {
    if let Err(error) = kernel::tracee::send_signal(shared.pid, tid, signal) {
        ::tracing::debug!("{error}");
    }
}

/// What is to be sent home for a notification; all else is settled when this returns.
fn route(shared: &Arc<Shared>, state: &mut State, n: &Notification) -> Option<Call> {
    if n.architecture != ARCHITECTURE {
        return go_home(
            shared,
            state,
            n,
            "foreign-call",
            "a call of another architecture (int 0x80)",
        );
    }
    if own_files::take(shared, state, n) {
        return None;
    }
    let number = n.number as u32;
    match calls::classify(number, &n.arguments) {
        Class::Local if shared.kept.is_touched_by(number, &n.arguments) => {
            needs_home(shared, state, n, "reserved-memory")
        }
        Class::Local => match shared.objection(state, number, &n.arguments) {
            Some(word) => needs_home(shared, state, n, word),
            None => {
                let_pass(shared, state, n);
                None
            }
        },
        Class::Forward(_) if number == calls::EXECVE => exec::forward(shared, state, n),
        // What has its maker's memory is about to begin a program, and cannot go home with it.
        Class::Forward(_) if shared.maker.is_none() && calls::limits_body(number, &n.arguments) => {
            needs_home(shared, state, n, "memory-or-cpu-limit")
        }
        Class::Forward(_) => forward(shared, state, n, None),
        Class::Emulate(emulation, _) => emulate(shared, state, n, emulation),
        // As the filter does at home (`osmos run --mobile`).
        Class::Homecoming(_) if number == IO_URING_SETUP && shared.has_no_io_uring => {
            shared.listener.reply(n.id, -i64::from(libc::ENOSYS));
            None
        }
        Class::Homecoming(word) => needs_home(shared, state, n, word),
    }
}

/// Has a call be made here, once all is there that it takes of what comes behind the body.
fn let_pass(shared: &Shared, state: &mut State, n: &Notification) {
    let number = n.number as u32;
    if number == MADVISE && !filter::takes_pages(number, 2, n.arguments[2] as u32) {
        shared.was_advised.store(true, Ordering::SeqCst);
    }
    if let Some(late) = shared.late.as_ref().filter(|late| !late.is_whole()) {
        let needed = waiting::needed_by(shared.pid, number, &n.arguments);
        if late.defers(&needed, (n.tid as i32, n.id)) {
            if let Some(thread) = state.threads.get_mut(&(n.tid as i32)) {
                thread.fetching = Some((n.id, number, n.arguments));
            }
            return;
        }
        late.prepare(number, &n.arguments);
    }
    shared.listener.let_pass(n.id);
}

pub(crate) fn needs_home(
    shared: &Shared,
    state: &mut State,
    n: &Notification,
    word: &str,
) -> Option<Call> {
    let number = n.number as u32;
    let name = calls::name(number).map_or_else(|| format!("call {number}"), str::to_owned);
    go_home(shared, state, n, "call", &format!("{name}: {word}"))
}

/// The thread stays in its notification; freezing answers it, and home makes the call natively.
fn go_home(
    shared: &Shared,
    state: &mut State,
    n: &Notification,
    code: &str,
    text: &str,
) -> Option<Call> {
    await_home(shared, state, (n.tid as i32, n.id), reason(code, text));
    None
}

/// Has a thread wait in its notification until it is home.
pub(crate) fn await_home(shared: &Shared, state: &mut State, (tid, id): (i32, u64), why: Reason) {
    if let Some(thread) = state.threads.get_mut(&tid) {
        thread.parked = Some(id);
    }
    shared.order(Order::NeedsHome(why));
}

pub(crate) fn forward(
    shared: &Arc<Shared>,
    state: &mut State,
    n: &Notification,
    emulation: Option<Emulation>,
) -> Option<Call> {
    let number = n.number as u32;
    match calls::marshal(number, &n.arguments, &BodyMemory(shared)) {
        Ok(marshalled) => {
            let (arguments, segments) = (marshalled.arguments, marshalled.segments);
            if !own_files::note_opening(shared, n, &segments) {
                return needs_home(shared, state, n, "proc-self");
            }
            record_call(shared, state, n, number, arguments, segments, emulation)
        }
        Err(Unmarshalled::Fault) => {
            shared.listener.reply(n.id, -i64::from(libc::EFAULT));
            None
        }
        Err(Unmarshalled::NeedsHome(word)) => needs_home(shared, state, n, word),
    }
}

/// Notes that the thread waits for this call, and returns the call.
pub(crate) fn record_call(
    shared: &Shared,
    state: &mut State,
    n: &Notification,
    number: u32,
    arguments: [u64; 6],
    segments: Vec<Segment>,
    emulation: Option<Emulation>,
) -> Option<Call> {
    let thread = state.threads.get_mut(&(n.tid as i32))?;
    thread.sequence += 1;
    thread.bulky_call = None;
    let temporary_mask = calls::has_temporary_mask(number, &arguments, &segments);
    let places = segments.iter().map(without_bytes).collect();
    let sequence = thread.sequence;
    let record = InFlight { sequence, number, arguments, segments: places };
    let now_ns = shared.guest_clock_ns();
    let mut call =
        Call { tid: thread.guest, sequence: 0, signals_seen: 0, number, arguments, segments };
    if let Some(end_ns) = thread.continued_wait_ns.take() {
        // It waits for the rest of what it began to wait before it was moved.
        calls::with_remaining(&mut call, Duration::from_nanos(end_ns.saturating_sub(now_ns)));
    }
    thread.wait_until_ns = match calls::timeout(number, &call.arguments, &call.segments) {
        Some(Timeout::Relative(length)) => {
            let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
            Some(now_ns.saturating_add(length_ns))
        }
        _ => None,
    };
    let Call { arguments, segments, .. } = call;
    let interrupted = thread.resumes.take();
    thread.outstanding =
        Some(Outstanding { id: n.id, call: record, emulation, interrupted, temporary_mask });
    let (tid, signals_seen) = (thread.guest, thread.signals_seen);
    Some(Call { tid, sequence, signals_seen, number, arguments, segments })
}

fn without_bytes(segment: &Segment) -> Segment {
    // A mask or a disposition is needed again when the call is over, perhaps on another node.
    let keeps = segment.data.len() <= kernel::signal::ACTION_BYTES;
    let data = if keeps { segment.data.clone() } else { vec![] };
    Segment { data, ..*segment }
}

fn emulate(
    shared: &Arc<Shared>,
    state: &mut State,
    n: &Notification,
    emulation: Emulation,
) -> Option<Call> {
    match emulation {
        Emulation::ThreadExit | Emulation::ProcessExit if !shared.lets_end(state, emulation) => {
            needs_home(shared, state, n, "shared-memory")
        }
        Emulation::SignalAction if dispositions::let_pass(shared, state, n) => None,
        Emulation::SignalAction
        | Emulation::SignalMask
        | Emulation::ThreadExit
        | Emulation::ResourceUsage
        | Emulation::Times => forward(shared, state, n, Some(emulation)),
        Emulation::ProcessExit => {
            // Nobody can ask for it later.
            let rss_bytes = kernel::proc::process::resident_bytes(shared.pid).unwrap_or(0);
            let away = state.meter.away();
            shared.family.note_end(shared.guest_pid, away);
            shared.queue(ToHome::Usage { away, rss_bytes });
            forward(shared, state, n, Some(emulation))
        }
        Emulation::ProcessorClock => read_clock(shared, state, n),
        Emulation::NewTask => new_threads::forward(shared, state, n),
        Emulation::FileMapping => mapped_files::forward(shared, state, n),
        Emulation::SignalReturn => forward_signal_return(shared, state, n),
        Emulation::MemorySync if shared.hold(n.arguments[0], n.arguments[1]) => {
            forward(shared, state, n, None)
        }
        Emulation::MemorySync => needs_home(shared, state, n, "shared-memory"),
        // The block to restart from belongs to a local wait of this very thread.
        Emulation::RestartCall => {
            shared.listener.let_pass(n.id);
            None
        }
        Emulation::FutexWait => {
            wait_on_futex(shared, state, n);
            None
        }
    }
}

/// rt_sigreturn restores a signal mask; home has to have it first, so that a signal which it
/// unblocks is delivered as soon as the handler is left.
fn forward_signal_return(
    shared: &Arc<Shared>,
    state: &mut State,
    n: &Notification,
) -> Option<Call> {
    let mask_address =
        stack_pointer(shared.pid, n.tid as i32).map(|sp| sp + kernel::signal::RETURN_MASK_OFFSET);
    let mut mask = [0; 8];
    let is_read =
        mask_address.is_some_and(|at| shared.memory.read_as_guest(at, &mut mask) == mask.len());
    let (Some(address), true) = (mask_address, is_read) else {
        // Linux kills a process that returns to a bad frame; home will.
        let text = "rt_sigreturn with a frame that cannot be read";
        return go_home(shared, state, n, "bad-frame", text);
    };
    let segment = Segment {
        guest: GuestAddr(address),
        length: 8,
        direction: Direction::In,
        place: Place::Argument(1),
        yields: Yield::Whole,
        data: mask.to_vec(),
    };
    let arguments = [libc::SIG_SETMASK as u64, address, 0, 8, 0, 0];
    let number = libc::SYS_rt_sigprocmask as u32;
    let emulation = Some(Emulation::SignalReturn);
    record_call(shared, state, n, number, arguments, vec![segment], emulation)
}

/// The frame of a handler that returns here may have been made at home.
fn frame_for_here(shared: &Shared, n: &Notification) -> migrate::Result<()> {
    let Some(translator) = &shared.registers else { return Ok(()) };
    let Some(sp) = stack_pointer(shared.pid, n.tid as i32) else { return Ok(()) };
    let at = sp.wrapping_add(kernel::signal::RETURN_STATE_OFFSET);
    frames::cut(shared, at, |frame| translator.frame_for_here(frame))
}

/// The stack pointer of a thread that waits in a system call (`/proc/.../syscall`, proc(5)).
fn stack_pointer(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let field = text.split_ascii_whitespace().rev().nth(1)?;
    u64::from_str_radix(field.strip_prefix("0x")?, 16).ok()
}

/// The wait itself is native; its end is noted, because the kernel that the thread may be moved to
/// does not know when it began.
fn wait_on_futex(shared: &Shared, state: &mut State, n: &Notification) {
    let now = shared.guest_clock_ns();
    let Some(thread) = state.threads.get_mut(&(n.tid as i32)) else { return };
    let end = thread.continued_wait_ns.take().or_else(|| {
        let mut time = [0; 16];
        let is_read = shared.memory.read_as_guest(n.arguments[3], &mut time) == time.len();
        let word = |i: usize| i64::from_le_bytes(time[i..i + 8].try_into().unwrap_or_default());
        let length = word(0).saturating_mul(1_000_000_000).saturating_add(word(8));
        is_read.then(|| now.saturating_add_signed(length.max(0)))
    });
    thread.wait_until_ns = end;
    if end.is_some_and(|end| end <= now) {
        shared.listener.reply(n.id, -i64::from(libc::ETIMEDOUT));
    } else {
        shared.listener.let_pass(n.id);
    }
}

/// Answered here, unless it is another process's clock.
fn read_clock(shared: &Arc<Shared>, state: &mut State, n: &Notification) -> Option<Call> {
    if answer_clock(shared, state, n) { None } else { forward(shared, state, n, None) }
}

/// False if it is none of the process's own.
fn answer_clock(shared: &Shared, state: &State, n: &Notification) -> bool {
    let Some(caller) = state.threads.get(&(n.tid as i32)) else { return false };
    let Some(ns) = state.read_clock(caller, shared.guest_pid, n.arguments[0] as i32) else {
        return false;
    };
    let time = timespec(ns);
    let is_written = shared.memory.write_as_guest(n.arguments[1], &time) == time.len();
    shared.listener.reply(n.id, if is_written { 0 } else { -i64::from(libc::EFAULT) });
    true
}
