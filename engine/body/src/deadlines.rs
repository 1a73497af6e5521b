//! Waits on a futex until a time of day, on a machine that has another: this node's kernel makes
//! the wait, and is told the moment in its own terms for the length of the call.
//!
//! The filter stops such a call ([`crate::filter`]). The deadline is translated into memory of the
//! agent, and the register that points to the guest's own has it again when the call is over. A
//! wait that goes on after a stop goes on by the kernel's own note of it.

use crate::tracing_loop::Tracing;
use kernel::memory::Fetch;
use kernel::regs::Registers;
use kernel::tracee;
use migrate::Result;
use wire::processor_time::layout::timespec;

const NANOSECONDS: i64 = 1_000_000_000;

impl Tracing<'_> {
    /// Lets a thread make the call that it was stopped in front of; `stops` says that it is to stop
    /// for us again at once.
    pub(crate) fn translate_deadline(&mut self, tid: i32, stops: bool) -> Result<()> {
        let registers = tracee::registers(tid)?;
        // For a futex that inherits priorities the kernel does not wait.
        if let Some(late) = &self.shared.late {
            [registers.rdi, registers.r8]
                .iter()
                .for_each(|at| late.fetch(&(*at..at.saturating_add(4))));
        }
        let slot = self.shared.lock().threads.get(&tid).map(|thread| thread.slot);
        let deadline_ns = self.deadline_here(&registers).zip(slot);
        if let Some((ns, slot)) = deadline_ns {
            self.agent.write_staging(slot, 0, &timespec(ns));
            let r10 = self.agent.staging_address(slot);
            tracee::set_registers(tid, &Registers { r10, ..registers })?;
            self.deadlines.insert(tid, registers.r10);
        }
        if stops {
            tracee::interrupt(tid)?;
        }
        match deadline_ns {
            Some(_) => tracee::resume_to_syscall(tid, 0)?,
            None => tracee::resume(tid, 0)?,
        }
        Ok(())
    }

    /// The guest's deadline on this node's clock; None for one that Linux does not take.
    fn deadline_here(&self, registers: &Registers) -> Option<u64> {
        let mut time = [0; 16];
        let is_read = self.shared.memory.read_as_guest(registers.r10, &mut time) == time.len();
        let word = |i: usize| i64::from_le_bytes(time[i..i + 8].try_into().unwrap_or_default());
        let (seconds, part) = (word(0), word(8));
        if !is_read || seconds < 0 || !(0..NANOSECONDS).contains(&part) {
            return None;
        }
        let guest_ns = seconds.saturating_mul(NANOSECONDS).saturating_add(part);
        let node_ns = self.shared.abroad.as_ref()?.node_time_ns(guest_ns);
        // Before 1970 is long ago.
        Some(u64::try_from(node_ns).unwrap_or(0))
    }

    /// The call is over, or interrupted.
    pub(crate) fn restore_deadline(&mut self, tid: i32) -> Result<()> {
        if let Some(r10) = self.deadlines.remove(&tid) {
            let registers = tracee::registers(tid)?;
            tracee::set_registers(tid, &Registers { r10, ..registers })?;
        }
        Ok(())
    }
}
