//! Taking back a homecoming that failed: the process here becomes a deputy again, as it was before.
//!
//! Nothing that was done for the homecoming is final. Mappings may stay half changed, because the
//! next homecoming compares them anew; what a deputy itself lives on is put back: its threads in
//! the agent under their masks, the calls that were cut short, the signals, and the little memory
//! that it has of its own.

use crate::homecoming::{Homecoming, Sending, queue_signal, set_disposition};
use crate::lanes::{Place, Work};
use crate::service::Service;
use crate::settling::{Settled, shown_memory, stop};
use kernel::agent::BatchCall;
use kernel::regs::{ERESTART_RESTARTBLOCK, ERESTARTSYS};
use kernel::signal::Action;
use kernel::tracee;
use link::LinkReader;
use migrate::emptying;
use migrate::{Result, threads};
use std::time::Instant;
use wire::calls::{self, Timeout};
use wire::forward::{Call, ToHome};

/// Makes the process a deputy again. True if the body goes on already; else it waits for `Resume`.
///
/// # Errors
/// There is no deputy any more, and the process is lost.
pub fn withdraw(
    service: &mut Service<'_>,
    mut failed: Homecoming,
    reader: &mut LinkReader,
) -> Result<bool> {
    while failed.sending == Sending::UnderWay {
        failed.sending = skip(reader)?;
    }
    return_to_agent(service, &failed)?;
    take_back_signals(service, &failed)?;
    give_up_threads(service, &failed)?;
    forget_memory(service, &failed)?;
    for slot in 0..service.shared.lanes.count() {
        if let Some(settled) = failed.settled.remove(&slot) {
            resume_serving(service, slot, &settled, &mut failed)?;
        }
    }
    Ok(failed.sending == Sending::GivenUp)
}

/// Passes over one message of an image that is not wanted any more.
fn skip(reader: &mut LinkReader) -> Result<Sending> {
    match reader.receive::<ToHome>() {
        Ok(ToHome::ImageSent { .. }) => Ok(Sending::Done),
        Ok(ToHome::Stayed(_)) => Ok(Sending::GivenUp),
        Ok(ToHome::AsksHeld(_)) => Ok(Sending::Awaits),
        Ok(_) | Err(link::LinkError::Decode(_)) => Ok(Sending::UnderWay),
        Err(error) => Err(error.into()),
    }
}

/// Threads that stand stopped, perhaps with the guest's registers already, wait in the agent again.
fn return_to_agent(service: &Service<'_>, failed: &Homecoming) -> Result<()> {
    let lanes = &service.shared.lanes;
    for slot in &failed.stopped {
        let tid = lanes.lock(*slot).tid;
        let mut registers = tracee::registers(tid)?;
        lanes.agent.enter(&mut registers, *slot);
        tracee::set_registers(tid, &registers)?;
        tracee::set_signal_mask(tid, u64::MAX)?;
        tracee::resume(tid, 0)?;
    }
    Ok(())
}

/// The body still has the signals that it brought along: they must not come twice.
fn take_back_signals(service: &Service<'_>, failed: &Homecoming) -> Result<()> {
    let agent = &service.shared.lanes.agent;
    for (slot, number) in &failed.queued {
        // rt_sigtimedwait(2): this signal, no siginfo, without waiting.
        let mut scratch = kernel::signal::bit(*number).to_le_bytes().to_vec();
        scratch.extend([0; 16]);
        agent.write_staging(*slot, 0, &scratch);
        let staging = agent.staging_address(*slot);
        let arguments = [staging, 0, staging + 8, 8, 0, 0];
        let call = BatchCall::new(libc::SYS_rt_sigtimedwait, arguments);
        service.worker(*slot).execute(&[call])?;
    }
    for (slot, number, action) in &failed.rearmed {
        set_disposition(service, *slot, *number, &Action { handler: 0, ..*action })?;
    }
    Ok(())
}

/// A deputy's threads have no restartable sequences: the kernel would write into memory that is not
/// theirs. That one was not registered yet is no error.
fn give_up_threads(service: &Service<'_>, failed: &Homecoming) -> Result<()> {
    let lanes = &service.shared.lanes;
    for thread in failed.image.iter().flat_map(|image| &image.threads) {
        let slot = lanes.slot_of(thread.tid).filter(|slot| failed.settled.contains_key(slot));
        if let (Some(slot), Some((address, size, signature))) = (slot, thread.rseq) {
            let call = threads::rseq_unregister(&tracee::RseqRegistration {
                address,
                size,
                signature,
                ..Default::default()
            });
            service.worker(slot).execute(&[call])?;
        }
    }
    Ok(())
}

/// Drops the memory that came, and restores what is the deputy's own. What stays costs memory, not
/// correctness: the next homecoming drops it first, or writes over it where others have it, too.
fn forget_memory(service: &Service<'_>, failed: &Homecoming) -> Result<()> {
    let lanes = &service.shared.lanes;
    let worker = failed.settled.keys().min().copied();
    let (Some(image), Some(slot)) = (&failed.image, worker) else { return Ok(()) };
    let shown = shown_memory(service.pid)?;
    let worker = service.worker(slot);
    if let Err(error) = emptying::empty_private(worker, &image.mappings, &shown) {
        ::tracing::debug!("process {}: {error}", service.pid);
    }
    for (address, bytes) in &failed.own_memory {
        if let Err(error) = lanes.memory.write(*address, bytes) {
            ::tracing::warn!("process {}: {error}", service.pid);
        }
    }
    Ok(())
}

/// Gives a thread its signals, its call and its mask back.
fn resume_serving(
    service: &mut Service<'_>,
    slot: usize,
    settled: &Settled,
    failed: &mut Homecoming,
) -> Result<()> {
    let lanes = &service.shared.lanes;
    let tid = lanes.lock(slot).tid;
    for (_, number, info) in failed.held.extract_if(.., |(holder, _, _)| *holder == tid) {
        queue_signal(service, slot, number, &info)?;
    }
    // Signals that came meanwhile are blocked still: none is lost.
    let halt = stop(tid, &mut Vec::new())?;
    if let Some((since, place)) = settled.cut {
        make_again(service, slot, since, place)?;
    }
    let (mask_due, waiting) = {
        let mut lane = service.shared.lanes.lock(slot);
        (lane.mask_due.take(), lane.waiting.take())
    };
    tracee::set_signal_mask(tid, mask_due.unwrap_or(settled.mask))?;
    if let Some(call) = waiting {
        service.begin_waiting(slot, call)?;
    }
    service.set_held(halt.is_held);
    let going_on = if halt.is_held { tracee::listen(tid) } else { tracee::resume(tid, 0) };
    Ok(going_on?)
}

/// The thread makes the call again that the homecoming has cut short, for the rest of its time. The
/// kernel has given it up without any effect, and the body knows nothing of it.
fn make_again(service: &Service<'_>, slot: usize, since: Instant, place: Place) -> Result<()> {
    let lanes = &service.shared.lanes;
    let mut lane = lanes.lock(slot);
    let Some((call, reply)) = lane.answered.take() else { return Ok(()) };
    let is_again = (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&reply.result)
        || reply.result == -i64::from(libc::EINTR) && calls::eintr_after_stop(call.number);
    if !is_again {
        lane.answered = Some((call, reply));
        return Ok(());
    }
    if place == Place::Guest {
        // The kernel still has the rest of its sleep.
        let mut registers = tracee::registers(lane.tid)?;
        registers.orig_rax = u64::from(call.number);
        registers.rax = reply.result as u64;
        lanes.agent.enter_inside_call(&mut registers, slot);
        tracee::set_registers(lane.tid, &registers)?;
    } else {
        lanes.submit(slot, &shortened(&call, since));
    }
    lane.work = Work::Busy { call, since, place };
    Ok(())
}

fn shortened(call: &Call, since: Instant) -> Call {
    let mut shorter = call.clone();
    if let Some(Timeout::Relative(length)) =
        calls::timeout(call.number, &call.arguments, &call.segments)
    {
        calls::with_remaining(&mut shorter, length.saturating_sub(since.elapsed()));
    }
    shorter
}
