//! Restoring an image away from home: a shell, in its sandbox, becomes a body.
//!
//! The order matters: threads come before capabilities are dropped, and the filter closes the
//! sandbox last.

use crate::elsewhere::Elsewhere;
use crate::making::{self, Made};
use crate::registers::Translator;
use crate::worker::{self, Worker};
use crate::{MigrateError, Result, homeward, mapping_flags, processor_ids};
use kernel::agent::{Agent, BatchCall};
use kernel::features::{self, Feature};
use kernel::memory::Memory;
use kernel::patience::{self, Patience};
use kernel::regs::Registers;
use kernel::sandbox::Sandbox;
use kernel::seccomp::{self, Listener};
use kernel::tracee;
use kernel::tracking::Tracking;
use std::collections::HashMap;
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
    /// The first one first.
    pub threads: Vec<Made>,
    /// Which of the image's threads each is.
    pub(crate) images: Vec<usize>,
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
        self.execute("protect memory", &protect)?;
        let guard = match features::settled().has(Feature::GuardRegions) {
            true => mapping_flags::install(&self.image.guards),
            false => mapping_flags::protect(&self.image.guards),
        };
        self.execute("guard memory", &guard)?;
        self.adopt_process()?;
        self.make_threads()?;
        self.adopt_threads()?;
        if let Some(ids) = self.image.processors {
            processor_ids::bind(self.threads.iter().map(|one| one.local), ids)?;
        }
        self.limit_memory()?;
        let listener = self.close_sandbox(rules)?;
        let tids: Vec<i32> = self.threads.iter().map(|one| one.local).collect();
        worker::stop_each(self.sandbox.body_pid, &tids)?;
        for index in 0..self.threads.len() {
            self.load(index)?;
        }
        Ok(listener)
    }

    /// The image's state of one of its threads.
    pub fn thread_image(&self, index: usize) -> &image::Thread {
        &self.image.threads[self.images[index]]
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

    pub(crate) fn main(&self) -> Worker<'_> {
        Worker { agent: &self.agent, slot: MAIN_SLOT, tid: self.sandbox.body_pid }
    }

    /// Has the first thread execute these calls.
    pub(crate) fn execute(&self, what: &str, calls: &[BatchCall]) -> Result<()> {
        self.main().execute_all(what, calls)
    }

    /// Sees to it that its threads are those of the image, and that none has privileges.
    fn make_threads(&mut self) -> Result<()> {
        let others: Vec<GuestTid> =
            self.image.threads.iter().map(|t| t.tid).filter(|t| *t != self.image.pid).collect();
        let early = self.threads.split_off(1);
        let main = self.main();
        let made = making::muster(main, early, &others)?;
        making::give_up_privileges(main)?;
        self.threads.extend(made);
        let images = self.image.threads.iter().enumerate();
        let by_tid: HashMap<GuestTid, usize> = images.map(|(at, image)| (image.tid, at)).collect();
        self.images =
            self.threads.iter().filter_map(|one| by_tid.get(&one.guest)).copied().collect();
        match self.images.len() == self.threads.len() {
            true => Ok(()),
            false => Err(MigrateError::Protocol("an image without its threads".into())),
        }
    }

    /// Installs the filter on all threads and takes its listener out of the body.
    fn close_sandbox(&self, rules: &[seccomp::Rule]) -> Result<Listener> {
        let program = seccomp::program(rules)?;
        let staging = self.agent.staging_address(MAIN_SLOT);
        self.agent.write_staging(MAIN_SLOT, 64, &program);
        let header = seccomp::program_header(program.len(), staging + 64);
        self.agent.write_staging(MAIN_SLOT, 0, &header);
        let install = seccomp::install_call(staging);
        let worker = self.main();
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

    /// Gives a stopped thread the guest's registers and signal mask.
    fn load(&self, index: usize) -> Result<()> {
        let tid = self.threads[index].local;
        let thread = self.thread_image(index);
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
