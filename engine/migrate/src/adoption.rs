//! What a body takes over from its home besides memory and registers: dispositions of signals, the
//! layout that `/proc` shows, limits, and what the kernel keeps for each thread.

use crate::attributes::{self, no_huge_pages_call};
use crate::outward::{Body, MAIN_SLOT};
use crate::worker::{self, Batch, Worker};
use crate::{Result, threads};
use kernel::agent::{Agent, BatchCall};
use kernel::quota;

const PR_SET_MM: u64 = 35;
const PR_SET_MM_MAP: u64 = 14;

impl Body {
    /// Hands over what belongs to the process: dispositions, memory layout, limits.
    pub(crate) fn adopt_process(&self) -> Result<()> {
        let staging = self.agent.staging_address(MAIN_SLOT);
        let mut calls = Vec::new();
        for (index, words) in self.image.actions.iter().enumerate() {
            let signal = index as i32 + 1;
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.agent.write_staging(MAIN_SLOT, index * 32, &bytes);
            if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                let act = staging + index as u64 * 32;
                let arguments = [signal as u64, act, 0, 8, 0, 0];
                calls.push(BatchCall::new(libc::SYS_rt_sigaction, arguments));
            }
        }
        self.execute("set signal dispositions", &calls)?;
        let limits = limit_bytes(self.image.stack_limit);
        self.agent.write_staging(MAIN_SLOT, 256, &limits);
        let layout_call = layout_call(&self.agent, MAIN_SLOT, &self.image.layout);
        let stack = [0, u64::from(libc::RLIMIT_STACK), staging + 256, 0, 0, 0];
        let core = [0, u64::from(libc::RLIMIT_CORE), staging + 272, 0, 0, 0];
        self.execute(
            "set memory layout and limits",
            &[
                layout_call,
                BatchCall::new(libc::SYS_prlimit64, stack),
                BatchCall::new(libc::SYS_prlimit64, core),
            ],
        )?;
        match self.image.has_no_huge_pages {
            true => self.execute("give up huge pages", &[no_huge_pages_call()]),
            false => Ok(()),
        }
    }

    /// The most that the body may map, so that its home can take it in again: as much as at home,
    /// where the agent of home has its room as well. That is reserved here, so only our own agent
    /// is more. None if home has no limit.
    pub fn address_space_max(&self) -> Option<u64> {
        let home = self.image.memory_limits.0;
        let own = self.agent.end() - self.agent.base();
        (home != u64::MAX).then(|| home.saturating_add(own))
    }

    /// Imposes the limits that memory has at home. Last, as we would not get by with them.
    pub(crate) fn limit_memory(&self) -> Result<()> {
        let staging = self.agent.staging_address(MAIN_SLOT);
        let limits = [
            (libc::RLIMIT_AS, self.address_space_max()),
            (libc::RLIMIT_DATA, Some(self.image.memory_limits.1).filter(|max| *max != u64::MAX)),
        ];
        for (resource, max) in limits {
            let Some(max) = max else { continue };
            let here = quota::hard_limit(resource);
            let bytes = max.min(here).to_le_bytes();
            self.agent.write_staging(MAIN_SLOT, 0, &[bytes, bytes].concat());
            let arguments = [0, u64::from(resource), staging, 0, 0, 0];
            let call = BatchCall::new(libc::SYS_prlimit64, arguments);
            self.execute("limit its memory", &[call])?;
        }
        Ok(())
    }

    /// Hands over what the kernel keeps for each thread.
    pub(crate) fn adopt_threads(&self) -> Result<()> {
        let batches: Vec<Batch<'_>> = self
            .threads
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let thread = self.thread_image(index);
                self.agent.write_staging(one.slot, 0, &threads::adopt_scratch(thread));
                let staging = self.agent.staging_address(one.slot);
                let mut calls = threads::adopt_calls(thread, staging);
                calls.extend(attributes::give_calls(&thread.attributes));
                (one.worker(&self.agent), calls)
            })
            .collect();
        worker::execute_each("hand over thread state", &batches)?;
        batches.iter().enumerate().try_for_each(|(index, (worker, _))| {
            attributes::hold_back(*worker, &self.thread_image(index).attributes)
        })
    }
}

/// Has a process have this layout, the program break included: brk(2) would not put that where
/// something is mapped in between.
pub fn set_layout(worker: Worker<'_>, layout: &[u64; 11]) -> Result<()> {
    let call = layout_call(worker.agent, worker.slot, layout);
    worker.execute_all("set the memory layout", &[call])
}

/// Its argument is where the slot of the agent has what is handed over.
fn layout_call(agent: &Agent, slot: usize, layout: &[u64; 11]) -> BatchCall {
    let map = layout_bytes(layout);
    agent.write_staging(slot, 0, &map);
    let staging = agent.staging_address(slot);
    let arguments = [PR_SET_MM, PR_SET_MM_MAP, staging, map.len() as u64, 0, 0];
    BatchCall::new(libc::SYS_prctl, arguments)
}

/// `struct prctl_mm_map`: the layout words, no auxiliary vector, no executable.
fn layout_bytes(layout: &[u64; 11]) -> Vec<u8> {
    let mut bytes: Vec<u8> = layout.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(u32::MAX.to_le_bytes());
    bytes
}

/// Two `struct rlimit64`: the guest's stack, within what this node allows, and no core files.
fn limit_bytes(stack: (u64, u64)) -> Vec<u8> {
    let hard = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_STACK)
        .map_or(u64::MAX, |(_, hard)| hard);
    let soft = stack.0.min(hard);
    [soft, stack.1.min(hard).max(soft), 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect()
}
