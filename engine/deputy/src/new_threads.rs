//! Threads that the body makes ([decision 0030](../../../docs/decisions/)): the process gets one
//! here, with the id that both halves will know it by, and the body makes its own when it has heard
//! of it. Up to then the one here is *unborn*: it blocks every signal and does nothing, and should
//! the process come home without it, it ends as if it had never been.

use crate::homecoming::Homecoming;
use crate::lanes::{Accepted, Lane};
use crate::mapped_files::MMAP;
use crate::service::Service;
use kernel::remote_call::RemoteCalls;
use kernel::tracee::{self, SeizeOptions, Stop};
use migrate::freeze::HELD;
use migrate::worker::go_on;
use migrate::{MigrateError, Result};
use std::collections::HashSet;
use wire::calls::thread::{self, SHARED_FLAGS};
use wire::calls::{self, Arguments};
use wire::forward::{Call, NO_ROOM_FOR_TASK, Output};
use wire::ids::GuestTid;
use wire::image::Image;

/// Threads of a deputy die with their tracer; those that they make are caught.
const MAKING: SeizeOptions = SeizeOptions { follow: true, ..HELD };

/// What came of a call that makes a thread or a process.
pub(crate) enum Made {
    Thread(GuestTid),
    /// With its descriptor, if there is to be one.
    Process(GuestTid, Option<i32>),
    /// There is no room for it here: the process comes home to make it.
    NoRoom,
    /// Whoever was to make it has ended.
    Ended,
}

/// What becomes of a call that the thread does not make by itself, and whether it is such a one as
/// home makes for its body.
pub(crate) fn led_by_ptrace(call: &Call) -> Option<(bool, Accepted)> {
    match call.number {
        thread::CLONE => Some((thread::is_task(&call.arguments), Accepted::MakesTask)),
        MMAP => Some((calls::is_file_mapping(&call.arguments), Accepted::MapsFile)),
        _ => None,
    }
}

impl Service<'_> {
    /// Makes the thread or process that the thread of this slot asks for, and replies.
    pub fn make_task(&mut self, slot: usize) -> Result<()> {
        let Some(call) = self.shared.lanes.making(slot, thread::CLONE) else { return Ok(()) };
        let tid = self.shared.lanes.lock(slot).tid;
        let made = match thread::is_thread(call.arguments[0]) {
            true => self.make_thread(tid),
            false => self.make_process((tid, slot), call.arguments[0]),
        };
        let mut outputs = vec![];
        let result = match made {
            Ok(Made::Thread(guest)) => i64::from(guest.0),
            Ok(Made::Process(guest, descriptor)) => {
                outputs.extend(
                    descriptor
                        .map(|number| Output { segment: 0, data: number.to_le_bytes().to_vec() }),
                );
                i64::from(guest.0)
            }
            Ok(Made::NoRoom) => NO_ROOM_FOR_TASK,
            // It has ended meanwhile: nobody waits for the reply.
            Ok(Made::Ended) => return Ok(()),
            Err(MigrateError::Kernel(error)) if error.is_gone() => return Ok(()),
            Err(MigrateError::Kernel(error)) => {
                let number = error.source.raw_os_error().unwrap_or(libc::EAGAIN);
                -i64::from(number)
            }
            Err(error) => return Err(error),
        };
        let reply = self.shared.lanes.made(slot, call, (result, outputs));
        self.shared.reply(reply);
        Ok(())
    }

    /// Has a thread, which waits in the agent, make another in a free slot.
    fn make_thread(&mut self, tid: i32) -> Result<Made> {
        let Some(slot) = self.shared.lanes.free_slot() else { return Ok(Made::NoRoom) };
        // All that its kernel side is to be, the body has, and brings along.
        let arguments = [SHARED_FLAGS, 0, 0, 0, 0, 0];
        self.make_by(tid, arguments, |service, (inside, local)| {
            let agent = &service.shared.lanes.agent;
            let mut registers = tracee::registers(local)?;
            agent.enter(&mut registers, slot);
            tracee::set_registers(local, &registers)?;
            tracee::set_signal_mask(local, u64::MAX)?;
            tracee::set_options(local, HELD)?;
            let guest = GuestTid(inside);
            let lane = Lane::unborn(service.pid, guest, local);
            service.shared.lanes.begin(slot, lane);
            tracee::resume(local, 0)?;
            Ok(Made::Thread(guest))
        })
    }

    /// Has a thread, which waits in the agent, make another task. What was made stands stopped and
    /// is seen to by `begin`, which is given its id inside and that by which we know it.
    pub(crate) fn make_by(
        &mut self,
        tid: i32,
        arguments: Arguments,
        begin: impl FnOnce(&mut Self, (i32, i32)) -> Result<Made>,
    ) -> Result<Made> {
        let Some(is_group_stop) = self.stop_for_us(tid)? else { return Ok(Made::Ended) };
        tracee::set_options(tid, MAKING)?;
        let instruction = self.shared.lanes.agent.syscall_instruction();
        let made =
            RemoteCalls::begin(tid, instruction).and_then(|mut calls| calls.make_task(arguments));
        let begun = made.map_err(MigrateError::from).and_then(|ids| begin(self, ids));
        tracee::set_options(tid, HELD)?;
        self.go_on_after_stop(tid, is_group_stop)?;
        begun
    }

    /// Lets a thread go on that was stopped for us.
    pub(crate) fn go_on_after_stop(&self, tid: i32, is_group_stop: bool) -> Result<()> {
        if is_group_stop {
            // It stops again, if it should be stopped still, and we are told.
            tracee::interrupt(tid)?;
        }
        Ok(tracee::resume(tid, 0)?)
    }

    /// Stops a thread; what it stops for besides is seen to. Whether job control has stopped it;
    /// None if it has ended.
    pub(crate) fn stop_for_us(&mut self, tid: i32) -> Result<Option<bool>> {
        tracee::interrupt(tid)?;
        loop {
            match tracee::wait(tid)? {
                Stop::Interrupted => return Ok(Some(false)),
                Stop::Group(_) => return Ok(Some(true)),
                stop => {
                    let has_ended = matches!(stop, Stop::Ended(_));
                    self.on_stop(tid, stop)?;
                    if has_ended {
                        return Ok(None);
                    }
                    // Every stop takes away an interrupt that was due.
                    tracee::interrupt(tid)?;
                }
            }
        }
    }
}

impl Homecoming {
    /// Ends the threads that the body has not come to make: whoever asked for one asks again.
    pub fn end_unborn(&mut self, service: &Service<'_>, image: &Image) -> Result<()> {
        let lanes = &service.shared.lanes;
        let there: HashSet<GuestTid> = image.threads.iter().map(|thread| thread.tid).collect();
        for slot in lanes.live_slots() {
            let (guest, tid) = {
                let lane = lanes.lock(slot);
                if !lane.is_unborn || there.contains(&lane.guest) {
                    continue;
                }
                (lane.guest, lane.tid)
            };
            lanes.agent.submit(slot, &[kernel::agent::BatchCall::new(libc::SYS_exit, [0; 6])]);
            loop {
                match tracee::wait_other(tid)? {
                    Stop::Ended(_) => break,
                    stop => go_on(tid, stop)?,
                }
            }
            lanes.agent.clear(slot);
            self.settled.remove(&slot);
            lanes.unmake(guest);
            lanes.forget_thread(slot);
        }
        Ok(())
    }
}
