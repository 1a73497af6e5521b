//! The mappings of a deputy: they stay as they were when the process left, because none of its
//! threads executes anything of the guest's.
//!
//! Their flags were read before the process was frozen, since that takes long ([`flags`]). What was
//! advised in between is found here: it is none of what a body computes by, and is as it was asked
//! for when the process is home again. What keeps a process at home has it come back at once.

use crate::service::Service;
use kernel::proc::flags;
use kernel::proc::maps::Mapping;
use migrate::Result;
use migrate::mapping_flags::{self, Correction};
use std::thread::JoinHandle;

pub struct OwnMemory {
    /// As they travelled.
    sent: Vec<Mapping>,
    /// As they are; empty if they have to be read.
    now: Vec<Mapping>,
    /// What travelled with other flags than it had; None if nobody has looked yet.
    late: Option<Vec<Correction>>,
    reading: Option<Reading>,
}

/// Ends the tracking of writes, until when what is one mapping may be several, and then reads the
/// mappings.
pub type Reading = JoinHandle<kernel::Result<Vec<Mapping>>>;

impl OwnMemory {
    pub fn of(sent: Vec<Mapping>, reading: Reading) -> OwnMemory {
        OwnMemory { sent, now: vec![], late: None, reading: Some(reading) }
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
        if let Some(Ok(Ok(now))) = self.reading.take().map(JoinHandle::join) {
            self.compare(&now);
            self.now = now;
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
        }
    }
}
