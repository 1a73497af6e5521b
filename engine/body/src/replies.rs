//! What home sends while the body runs: results of calls, signals, orders.

use crate::notices::raise;
use crate::state::{Agreement, Child, Order, Outstanding, Shared, State, Thread};
use crate::{direct_files, exec, mapped_files, new_threads, own_files, processor_time};
use kernel::regs::{ERESTART_RESTARTBLOCK, ERESTARTNOINTR, ERESTARTSYS};
use kernel::signal::Action;
use link::LinkReader;
use migrate::files::SHARED_FILE;
use migrate::reason;
use std::sync::Arc;
use wire::calls::{self, Emulation};
use wire::forward::{
    Declined, Direction, NO_ROOM_FOR_TASK, Output, Place, Reply, Segment, Signal, ToAway, ToHome,
};
use wire::ids::GuestTid;
use wire::processor_time::ProcessorTime;

/// Serves the link until it breaks, or the body is released.
pub fn serve(shared: &Arc<Shared>, mut reader: LinkReader) {
    loop {
        let message = reader.receive();
        shared.direct_files.hear_of_home();
        match message {
            Ok(ToAway::Reply(reply)) => finish_call(shared, reply),
            Ok(ToAway::Signal(signal)) => queue_signal(shared, signal),
            Ok(ToAway::Time(told)) => {
                if let Some(abroad) = &shared.abroad {
                    abroad.hear(told);
                }
            }
            Ok(ToAway::Decline { tid, sequence, because }) => {
                decline(shared, (tid, sequence), because);
            }
            Ok(ToAway::OwnFile(told)) => own_files::told(shared, &told),
            Ok(ToAway::Opened(told)) => direct_files::opened_on_a_node(shared, &told),
            Ok(ToAway::DirectFile(told)) => direct_files::answered(shared, &told),
            Ok(ToAway::Ahead(told)) => direct_files::hear(shared, told),
            Ok(ToAway::Priority { tid, priority }) => {
                crate::priority::follow(&mut shared.lock(), tid, priority);
            }
            Ok(ToAway::FileToMap(file)) => mapped_files::expect(shared, file),
            Ok(ToAway::Child { child: guest, pid, ticket, key, shared: memory }) => {
                let child = Child { guest, pid, ticket, key, shared: memory };
                shared.lock().expect_child(child);
            }
            Ok(order) => {
                let is_last = matches!(order, ToAway::Release);
                shared.order(Order::Home(order));
                if is_last {
                    return;
                }
            }
            Err(error) => {
                shared.order(Order::LinkLost(error.to_string()));
                return;
            }
        }
    }
}

fn queue_signal(shared: &Shared, signal: Signal) {
    if !(1..=kernel::signal::SIGNAL_MAX).contains(&signal.number)
        || signal.siginfo.len() != kernel::tracee::SIGINFO_BYTES
    {
        ::tracing::warn!("home sent signal {} in a form that is none", signal.number);
        return;
    }
    let mut state = shared.lock();
    let is_frozen = state.is_frozen;
    let Some(thread) = state.by_guest(signal.tid) else { return };
    if signal.index <= thread.signals_seen {
        return;
    }
    thread.signals_seen = signal.index;
    let number = signal.number;
    thread.signals.push_back(signal);
    // A thread that will come back to its call gets the signal there; one in a call with a mask of
    // its own gets it when that call ends (`DeliverMasked`).
    let waits_masked =
        thread.outstanding.as_ref().is_some_and(|call| call.temporary_mask.is_some());
    if !is_frozen && !thread.is_between_calls() && !waits_masked {
        raise(shared, thread.local, number);
    }
}

/// Home may keep so much of a thread's last reply until the thread makes another call.
const REPLY_KEPT_BYTES: usize = 16 << 10;

fn finish_call(shared: &Arc<Shared>, mut reply: Reply) {
    let used_by_child = used_by_child(shared, &reply);
    let mut state = shared.lock();
    if state.is_frozen {
        return; // Home keeps it until this thread's next call.
    }
    let Some(thread) = state.by_guest(reply.tid) else { return };
    let expected = thread.outstanding.as_ref().is_some_and(|o| o.call.sequence == reply.sequence);
    if !expected {
        return;
    }
    let Some(outstanding) = thread.outstanding.take() else { return };
    // Else the body has to make its half.
    thread.is_making_process &= reply.result > 0;
    let read_bytes: usize = reply.outputs.iter().map(|output| output.data.len()).sum();
    if read_bytes > REPLY_KEPT_BYTES {
        thread.bulky_call = Some(reply.sequence);
    }
    let local = thread.local;
    // A call that has crossed a signal is made again, behind its handler.
    let is_found = thread.file_to_map.as_ref().is_some_and(|it| it.sequence == reply.sequence);
    if outstanding.emulation == Some(Emulation::FileMapping)
        && reply.result == ERESTARTNOINTR
        && (is_found || !thread.has_deliverable_signal())
    {
        return mapped_files::map(shared, &mut state, (local, &outstanding));
    }
    let has_signal = match outstanding.temporary_mask {
        Some(mask) => thread.has_signal_beyond(mask),
        None => thread.has_deliverable_signal(),
    };
    if !has_signal && is_cut_short(thread, &outstanding, reply.result) {
        thread.parked = Some(outstanding.id);
        thread.interrupted = Some(reply.result);
        thread.continued_wait_ns = thread.wait_until_ns;
        return shared.order(Order::MakeAgain { tid: local, id: outstanding.id });
    }
    state.hear_clock(local, reply.home_ns);
    state.complete_times(local, &outstanding, &mut reply.outputs);
    if let Some(used) = used_by_child {
        processor_time::add_usage(&outstanding.call.segments, &mut reply.outputs, used);
    }
    let mut result = match outstanding.interrupted {
        Some(interrupted) if reply.result == ERESTARTNOINTR && has_signal => interrupted,
        _ => reply.result,
    };
    if !write_outputs(shared, &outstanding, &reply) {
        result = -i64::from(libc::EFAULT);
        if outstanding.emulation == Some(Emulation::NewTask) {
            return make_nothing_of(shared, &mut state, &reply, (local, outstanding.id));
        }
    }
    if let (Some(mask), true) = (outstanding.temporary_mask, has_signal) {
        let id = outstanding.id;
        shared.order(Order::DeliverMasked { tid: local, id, result, mask });
        return;
    }
    own_files::note_opened(shared, local, outstanding.call.number, result);
    answer(shared, &mut state, local, &outstanding, result);
}

/// A process gets no body: its maker, which is in this notification, cannot be told of it.
fn make_nothing_of(shared: &Shared, state: &mut State, reply: &Reply, maker: (i32, u64)) {
    let child = GuestTid(reply.result as i32);
    state.take_child(child);
    if let Some(maker) = state.by_guest(reply.tid) {
        maker.is_making_process = false;
    }
    // Before the announcement that the body leaves, at the latest.
    shared.queue(ToHome::ChildMade { tid: reply.tid, child, has_body: false });
    let (tid, id) = maker;
    new_threads::make_at_home(shared, state, tid, id);
}

/// What a child has used here that this reply tells its parent the end of, and the usage: home
/// knows its own part only.
fn used_by_child(shared: &Shared, reply: &Reply) -> Option<ProcessorTime> {
    // Hardly any reply has something of that size.
    let is_usage = |output: &Output| output.data.len() == size_of::<libc::rusage>();
    if reply.result <= 0 || !reply.outputs.iter().any(is_usage) {
        return None;
    }
    let is_asked = {
        let mut state = shared.lock();
        let is_frozen = state.is_frozen;
        let call = state.by_guest(reply.tid)?.outstanding.as_ref().map(|it| &it.call)?;
        let is_it = call.sequence == reply.sequence && !is_frozen;
        is_it && i64::from(call.number) == libc::SYS_wait4
    };
    // The bodies' states are not to be locked within each other.
    let child = is_asked.then_some(GuestTid(reply.result as i32))?;
    shared.family.take_used(child)
}

/// Home does not make a call for a body that is away: the thread makes it there.
fn decline(shared: &Shared, (tid, sequence): (GuestTid, u64), because: Declined) {
    let mut state = shared.lock();
    if state.is_frozen {
        return; // Home, or the next node, finds that the call was never made.
    }
    let Some(thread) = state.by_guest(tid) else { return };
    let is_it = |call: &mut Outstanding| call.call.sequence == sequence;
    let Some(outstanding) = thread.outstanding.take_if(is_it) else { return };
    thread.parked = Some(outstanding.id);
    let number = outstanding.call.number;
    let name = calls::name(number).map_or_else(|| format!("call {number}"), str::to_owned);
    let word = match because {
        Declined::SharedFile => SHARED_FILE,
        Declined::OwnFile => own_files::AT_HOME,
        Declined::Credentials => "credentials",
        Declined::FirstThread => "first-thread",
        Declined::Exec => exec::AT_HOME,
    };
    shared.order(Order::NeedsHome(reason("call", format!("{name}: {word}"))));
}

/// Whether home has ended a call for a signal, and that alone.
fn is_cut_short(thread: &Thread, outstanding: &Outstanding, result: i64) -> bool {
    let is_eintr = result == -i64::from(libc::EINTR) && !thread.signals.is_empty();
    is_restart(result) || is_eintr && calls::eintr_after_stop(outstanding.call.number)
}

fn is_restart(result: i64) -> bool {
    (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&result)
}

/// Writes what the call wrote at home into the guest's memory; false if the guest may not.
fn write_outputs(shared: &Shared, outstanding: &Outstanding, reply: &Reply) -> bool {
    match calls::apply(&outstanding.call.segments, &reply.outputs) {
        Ok(writes) => writes
            .into_iter()
            .all(|(at, bytes)| shared.memory.write_as_guest(at.0, bytes) == bytes.len()),
        Err(error) => {
            ::tracing::warn!("reply to call {}: {error}", outstanding.call.number);
            false
        }
    }
}

fn answer(shared: &Shared, state: &mut State, tid: i32, outstanding: &Outstanding, result: i64) {
    let id = outstanding.id;
    let makes_task = outstanding.emulation == Some(Emulation::NewTask);
    if makes_task && result == NO_ROOM_FOR_TASK {
        return new_threads::make_at_home(shared, state, tid, id);
    }
    if result < 0 {
        if let Some(thread) = state.threads.get_mut(&tid) {
            thread.is_cut_short = result == ERESTARTSYS;
        }
        shared.listener.reply(id, result);
        return;
    }
    if outstanding.emulation == Some(Emulation::SignalAction) {
        record_action(state, outstanding);
        shared.order(Order::ActionSettled);
    }
    if makes_task {
        let guest = GuestTid(result as i32);
        let agreement = Agreement::Task(guest, outstanding.call.arguments);
        return shared.order(Order::Agree { tid, id, agreement });
    }
    // With other threads the guest can have changed what home was told, before the kernel reads it.
    let agreement = agreement(outstanding).filter(|_| state.threads.len() > 1);
    match (outstanding.emulation, agreement) {
        (_, Some(agreement)) => shared.order(Order::Agree { tid, id, agreement }),
        // The body's kernel does the same again for itself.
        (
            Some(
                Emulation::SignalAction
                | Emulation::SignalMask
                | Emulation::SignalReturn
                | Emulation::ThreadExit,
            ),
            None,
        ) => {
            shared.listener.let_pass(id);
        }
        _ => {
            shared.listener.reply(id, result);
        }
    }
}

/// What the call has set at home, if it has set anything that the body has as well.
fn agreement(outstanding: &Outstanding) -> Option<Agreement> {
    let [first, address, ..] = outstanding.call.arguments;
    if address == 0 {
        return None;
    }
    let told = told(outstanding)?;
    let mask = || Some(u64::from_le_bytes(told.try_into().ok()?));
    match outstanding.emulation? {
        Emulation::SignalAction => Some(Agreement::Action(first as i32, told.try_into().ok()?)),
        Emulation::SignalMask => Some(Agreement::Mask(first, mask()?)),
        Emulation::SignalReturn => Some(Agreement::Return(mask()?)),
        _ => None,
    }
}

/// What home was told of the call's second argument.
fn told(outstanding: &Outstanding) -> Option<&[u8]> {
    let is_second = |segment: &&Segment| {
        segment.place == Place::Argument(1) && segment.direction == Direction::In
    };
    outstanding.call.segments.iter().find(is_second).map(|segment| segment.data.as_slice())
}

/// Notes the disposition that the guest has just set, as home has it.
fn record_action(state: &mut State, outstanding: &Outstanding) {
    let slot = usize::try_from(outstanding.call.arguments[0]).ok().and_then(|s| s.checked_sub(1));
    let action = told(outstanding).and_then(Action::decode);
    if let (Some(action), Some(known)) = (action, slot.and_then(|s| state.actions.get_mut(s))) {
        *known = action;
    }
}
