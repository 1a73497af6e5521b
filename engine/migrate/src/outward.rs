//! Restoring an image away from home: a shell, in its sandbox, becomes a body.
//!
//! The order matters: threads come before capabilities are dropped, and the filter closes the
//! sandbox last.

use crate::elsewhere::Elsewhere;
use crate::registers::Translator;
use crate::worker::{self, Worker};
use crate::{MigrateError, Result, homeward, mapping_flags, processor_ids};
use kernel::agent::{Agent, BatchCall};
use kernel::features::{self, Feature};
use kernel::memory::Memory;
use kernel::patience::{self, Patience};
use kernel::regs::Registers;
use kernel::sandbox::{self, Sandbox};
use kernel::seccomp::{self, Listener};
use kernel::tracee::{self, Stop};
use kernel::tracking::Tracking;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wire::ids::GuestTid;
use wire::image::{self, Image, MappingFlags};

pub(crate) const MAIN_SLOT: usize = 0;

/// A body under construction, and then the body: its threads are traced by the calling thread.
pub struct Body {
    // Dropped first: killing the sandbox's init ends everything inside.
    pub sandbox: Sandbox,
    pub memory: Memory,
    pub agent: Agent,
    /// Guest thread, local thread; the index is the agent's slot.
    pub threads: Vec<(GuestTid, i32)>,
    /// Where home is another machine.
    pub elsewhere: Option<Elsewhere>,
    /// Where home's kernel keeps other registers.
    pub registers: Option<Translator>,
    pub(crate) image: Image,
    /// Where its writes can be seen.
    pub tracking: Option<Arc<Tracking>>,
    /// Flags of mappings that this kernel could not give them.
    pub missing: MappingFlags,
}

impl Body {
    /// Makes the threads, hands over what the kernel keeps for them, and closes the sandbox with
    /// the filter. The threads end up stopped, ready to be resumed.
    pub fn finish(&mut self, rules: &[seccomp::Rule]) -> Result<Listener> {
        let _limit = Patience::of(FINISH_TIMEOUT);
        let protect = homeward::protect_calls(&self.image.mappings);
        self.execute("protect memory", MAIN_SLOT, &protect)?;
        let guard = match features::settled().has(Feature::GuardRegions) {
            true => mapping_flags::install(&self.image.guards),
            false => mapping_flags::protect(&self.image.guards),
        };
        self.execute("guard memory", MAIN_SLOT, &guard)?;
        self.adopt_process()?;
        self.make_threads()?;
        self.adopt_threads()?;
        if let Some(ids) = self.image.processors {
            processor_ids::bind(self.threads.iter().map(|(_, tid)| *tid), ids)?;
        }
        self.limit_memory()?;
        let listener = self.close_sandbox(rules)?;
        for index in 0..self.threads.len() {
            self.stop_in_agent(index)?;
        }
        for index in 0..self.threads.len() {
            self.load(index)?;
        }
        Ok(listener)
    }

    /// The image's state of the thread in this slot.
    pub fn thread_image(&self, slot: usize) -> &image::Thread {
        let tid = self.threads[slot].0;
        let found = self.image.threads.iter().find(|t| t.tid == tid);
        found.unwrap_or(&self.image.threads[0])
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    /// What of its address space is not the guest's: the agent, the place of that of home, and the
    /// vDSO of another machine's kernel.
    pub fn kept(&self) -> [Range<u64>; 3] {
        let vdso = self.elsewhere.as_ref().map_or(0..0, Elsewhere::hidden);
        [self.agent.base()..self.agent.end(), reserved(&self.image), vdso]
    }

    /// What the body's supervisor goes on with.
    pub fn into_parts(self) -> (Sandbox, Memory, Agent, Image) {
        (self.sandbox, self.memory, self.agent, self.image)
    }

    pub(crate) fn worker(&self, slot: usize) -> Worker<'_> {
        Worker { agent: &self.agent, slot, tid: self.threads[slot].1 }
    }

    pub(crate) fn execute(&self, what: &str, slot: usize, calls: &[BatchCall]) -> Result<()> {
        self.worker(slot).execute_all(what, calls)
    }

    /// Makes the other threads, each with its id of home.
    fn make_threads(&mut self) -> Result<()> {
        let staging = self.agent.staging_address(MAIN_SLOT);
        let others: Vec<GuestTid> =
            self.image.threads.iter().map(|t| t.tid).filter(|t| *t != self.image.pid).collect();
        for (index, tid) in others.into_iter().enumerate() {
            self.agent.write_staging(MAIN_SLOT, 0, &tid.0.to_le_bytes());
            let arguments = sandbox::thread_arguments(staging);
            self.agent.write_staging(MAIN_SLOT, 16, &arguments);
            let call = [staging + 16, arguments.len() as u64, 0, 0, 0, 0];
            self.agent.submit(MAIN_SLOT, &[BatchCall::new(libc::SYS_clone3, call)]);
            let local = self.catch_thread(tid)?;
            let slot = index + 1;
            self.threads.push((tid, local));
            enter_agent(local, &self.agent, slot)?;
        }
        Ok(())
    }

    /// Waits for the thread that the main thread is making; it is stopped before its first
    /// instruction.
    fn catch_thread(&self, tid: GuestTid) -> Result<i32> {
        let main = self.sandbox.body_pid;
        let failed = || kernel_failure(&format!("make thread {tid}"), libc::EAGAIN);
        // A clone that fails raises no event: then the batch is done and main goes on waiting.
        loop {
            patience::check(|| format!("make thread {tid}"))?;
            match tracee::poll(main)? {
                Some(Stop::Event(_)) => break,
                Some(stop) => worker::go_on(main, stop)?,
                None if self.agent.is_done(MAIN_SLOT) => return Err(failed()),
                None => std::thread::yield_now(),
            }
        }
        let local = tracee::event_message(main)? as i32;
        if !matches!(tracee::wait(local)?, Stop::Interrupted | Stop::Group(_)) {
            return Err(failed());
        }
        tracee::resume(main, 0)?;
        self.worker(MAIN_SLOT).await_done()?;
        self.agent.clear(MAIN_SLOT);
        Ok(local)
    }

    /// Installs the filter on all threads and takes its listener out of the body.
    fn close_sandbox(&self, rules: &[seccomp::Rule]) -> Result<Listener> {
        let program = seccomp::program(rules)?;
        let staging = self.agent.staging_address(MAIN_SLOT);
        self.agent.write_staging(MAIN_SLOT, 64, &program);
        let header = seccomp::program_header(program.len(), staging + 64);
        self.agent.write_staging(MAIN_SLOT, 0, &header);
        let install = seccomp::install_call(staging);
        let worker = self.worker(MAIN_SLOT);
        let number = worker.execute(&[install])?[0];
        if number < 0 {
            return Err(kernel_failure("install the seccomp filter", -number as i32));
        }
        let process = kernel::pidfd::open(self.sandbox.body_pid)?;
        let listener = Listener::new(kernel::pidfd::duplicate_from(&process, number as i32)?);
        // The body must not keep its own listener; this very close is its first notification.
        let close = BatchCall::new(libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]);
        self.agent.submit(MAIN_SLOT, &[close]);
        let mut is_closed = false;
        while !is_closed {
            patience::check(|| "close the sandbox".to_owned())?;
            if !listener.wait(worker::GLANCE_INTERVAL) {
                worker.look_after()?;
            } else if let Some(notification) = listener.receive()? {
                is_closed = listener.let_pass(notification.id);
            }
        }
        worker.await_done()?;
        self.agent.clear(MAIN_SLOT);
        Ok(listener)
    }

    fn stop_in_agent(&self, index: usize) -> Result<()> {
        let tid = self.threads[index].1;
        tracee::interrupt(tid)?;
        loop {
            match tracee::wait(tid)? {
                Stop::Interrupted | Stop::Group(_) => return Ok(()),
                Stop::Ended(status) => return Err(MigrateError::Ended(status)),
                _ => tracee::resume_interrupted(tid, 0)?,
            }
        }
    }

    /// Gives a stopped thread the guest's registers and signal mask.
    fn load(&self, slot: usize) -> Result<()> {
        let tid = self.threads[slot].1;
        let thread = self.thread_image(slot);
        let mut words = [0; kernel::regs::REGISTER_WORDS];
        words.copy_from_slice(&thread.registers);
        let registers = Registers::from_words(words);
        if !registers.is_64bit() {
            return Err(MigrateError::refused("32-bit", "it runs 32-bit code"));
        }
        match &self.registers {
            None => tracee::set_extended_state(tid, &thread.extended_state)?,
            Some(translator) => {
                let own = tracee::extended_state(tid)?;
                let state = translator.to_here(&thread.extended_state, &own)?;
                tracee::set_extended_state(tid, &state)?;
            }
        }
        tracee::set_registers(tid, &registers)?;
        tracee::set_signal_mask(tid, thread.signal_mask)?;
        Ok(())
    }
}

/// All that is left to do when the memory is there: milliseconds, and more with thousands of
/// threads on a busy node.
const FINISH_TIMEOUT: Duration = Duration::from_secs(20);

/// Sets a stopped thread going in the agent, with all signals blocked.
pub(crate) fn enter_agent(tid: i32, agent: &Agent, slot: usize) -> Result<()> {
    let mut registers = tracee::registers(tid)?;
    agent.enter(&mut registers, slot);
    tracee::set_registers(tid, &registers)?;
    tracee::set_signal_mask(tid, u64::MAX)?;
    tracee::resume(tid, 0)?;
    Ok(())
}

fn reserved(image: &Image) -> Range<u64> {
    image.reserved.0..image.reserved.1
}

fn kernel_failure(what: &str, errno: i32) -> MigrateError {
    let source = std::io::Error::from_raw_os_error(errno);
    kernel::KernelError { what: what.to_owned(), source }.into()
}
