//! The mappings of a deputy: they stay as they were when the process left, because none of its
//! threads executes anything of the guest's.
//!
//! Their flags were read before the process was frozen, since that takes long ([`flags`]). What was
//! advised in between is found here: it is none of what a body computes by, and is as it was asked
//! for when the process is home again. What keeps a process at home has it come back at once.

use crate::processor_time;
use crate::service::Service;
use kernel::proc::flags;
use kernel::proc::maps::Mapping;
use migrate::Result;
use migrate::mapping_flags::{self, Correction};
use std::collections::HashMap;
use std::thread::JoinHandle;

pub struct OwnMemory {
    /// As they travelled.
    sent: Vec<Mapping>,
    /// As they are; empty if they have to be read.
    now: Vec<Mapping>,
    /// What travelled with other flags than it had; None if nobody has looked yet.
    late: Option<Vec<Correction>>,
    reading: Option<Reading>,
    /// When its threads started, clock ticks after boot, by local number.
    started_ticks: HashMap<i32, u64>,
}

/// Ends the tracking of writes, until when what is one mapping may be several, and then reads the
/// mappings; and what else takes long and is not needed before the process comes home.
pub type Reading = JoinHandle<kernel::Result<Afterwards>>;

/// What is read of a process that has left.
pub struct Afterwards {
    mappings: Vec<Mapping>,
    started_ticks: HashMap<i32, u64>,
}

impl Afterwards {
    /// # Errors
    /// The process has ended.
    pub fn read(pid: i32, tids: &[i32]) -> kernel::Result<Afterwards> {
        let started = |tid: &i32| Some((*tid, processor_time::started_ticks(pid, *tid)?));
        let started_ticks = tids.iter().filter_map(started).collect();
        Ok(Afterwards { mappings: flags::read_maps_aside(pid)?, started_ticks })
    }
}

impl OwnMemory {
    pub fn of(sent: Vec<Mapping>, reading: Reading) -> OwnMemory {
        let (now, late, started_ticks) = Default::default();
        OwnMemory { sent, now, late, reading: Some(reading), started_ticks }
    }

    /// The mappings with their flags, which are about to change, and what is to be corrected of
    /// those that come back.
    ///
    /// # Errors
    /// The process has ended.
    pub fn take(&mut self, pid: i32) -> Result<(Vec<Mapping>, &[Correction])> {
        self.hear();
        let now = flags::read_maps_again(pid, &std::mem::take(&mut self.now))?;
        let late = self.compare(&now);
        Ok((now, late))
    }

    /// When a thread of it started, if that has been read.
    pub fn started_ticks(&self, tid: i32) -> Option<u64> {
        self.started_ticks.get(&tid).copied()
    }

    /// They are so now.
    pub fn know(&mut self, now: Vec<Mapping>) {
        self.now = now;
    }

    fn compare(&mut self, now: &[Mapping]) -> &[Correction] {
        let sent = std::mem::take(&mut self.sent);
        self.late.get_or_insert_with(|| mapping_flags::corrections(&sent, now))
    }

    /// Waits until they have been read.
    fn hear(&mut self) {
        if let Some(Ok(Ok(late))) = self.reading.take().map(JoinHandle::join) {
            self.compare(&late.mappings);
            self.now = late.mappings;
            self.started_ticks = late.started_ticks;
        }
    }
}

impl Service<'_> {
    /// Sees whether the process is one that may be away, once its mappings have been read.
    pub fn look_at_flags(&mut self) {
        if !self.own.reading.as_ref().is_some_and(JoinHandle::is_finished) {
            return;
        }
        self.own.hear();
        let mut mappings = self.own.now.iter();
        if let Some(error) = mappings.find_map(|mapping| mapping_flags::check(mapping).err()) {
            ::tracing::warn!("process {} comes home: {error}", self.pid);
            self.recall();
        } else if self.own.late.iter().flatten().any(Correction::is_of_lock) {
            ::tracing::info!("process {} comes home: it has just locked memory", self.pid);
            self.recall();
        }
    }
}
