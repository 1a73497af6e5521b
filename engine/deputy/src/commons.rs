//! Shared memory of a process that makes another away ([decision 0034](../../../docs/decisions/)).
//!
//! What it has mapped before it left both halves know. What it has mapped since, home maps before
//! it makes its half of the child: so the two have it in common here, too, by nothing but the
//! kernel's own fork, and it has a name by which they find it again when they come home.

use crate::service::Service;
use kernel::proc::maps::{self, Mapping};
use kernel::remote_call::RemoteCalls;
use migrate::{MigrateError, Result, homeward, layout};
use wire::image::{self, MappingKind, SharedMemory, SharedPlace, check_shared};

/// What the body has said last, and what that is called here.
#[derive(Default)]
pub struct Commons(Vec<SharedMemory>);

impl Commons {
    /// The body makes a process, and has this shared memory. It may not have heard the name of some
    /// that home has mapped for another of its threads.
    ///
    /// # Errors
    /// No honest body says that.
    pub fn hear(&mut self, told: Vec<SharedMemory>) -> Result<()> {
        check_shared(&told).map_err(MigrateError::from)?;
        let before = std::mem::replace(&mut self.0, told);
        for memory in self.0.iter_mut().filter(|memory| memory.home().is_none()) {
            let is_it = |known: &&SharedMemory| known.away == memory.away;
            if let Some(known) = before.iter().find(is_it) {
                memory.mapping.kind = known.mapping.kind.clone();
            }
        }
        Ok(())
    }

    /// What of it has a name at home.
    pub fn named(&self) -> Vec<SharedMemory> {
        self.0.iter().filter(|memory| memory.home().is_some()).cloned().collect()
    }

    fn unnamed(&self) -> impl Iterator<Item = &image::Mapping> {
        self.0.iter().filter(|memory| memory.home().is_none()).map(|memory| &memory.mapping)
    }

    /// Whether the guest has a mapping of the home still, wherever that is.
    fn has(&self, mapping: &Mapping) -> bool {
        let is_of =
            |place: SharedPlace| (place.device, place.inode) == (mapping.device, mapping.inode);
        self.0.iter().filter_map(SharedMemory::home).any(is_of)
    }
}

impl Service<'_> {
    /// Has a thread, which waits in the agent, map what home does not know of the shared memory of
    /// its body. False if there is no place for it; or if the thread has ended.
    pub(crate) fn have_in_common(&mut self, tid: i32) -> Result<bool> {
        let wanted: Vec<image::Mapping> = self.commons.unnamed().cloned().collect();
        if wanted.is_empty() {
            return Ok(true);
        }
        let here = maps::read(self.pid)?;
        if here.iter().any(|mapping| self.is_needed(mapping) && overlaps(mapping, &wanted)) {
            return Ok(false);
        }
        let Some(is_group_stop) = self.stop_for_us(tid)? else { return Ok(false) };
        let mapped = self.map_in_common(tid, &wanted);
        self.go_on_after_stop(tid, is_group_stop)?;
        match mapped {
            Ok(()) => {}
            // As natively, of what the program itself would map.
            Err(MigrateError::Kernel(error)) if !error.is_gone() => return Ok(false),
            Err(error) => return Err(error),
        }
        let here = maps::read(self.pid)?;
        for memory in &mut self.commons.0 {
            let start = memory.mapping.start.0;
            let Some(mapped) = here.iter().find(|m| m.start <= start && start < m.end) else {
                continue;
            };
            if memory.home().is_none() && layout::is_shared_anonymous(mapped) {
                let (device, inode) = (mapped.device, mapped.inode);
                let offset = mapped.offset + (start - mapped.start);
                let home = Some(SharedPlace { device, inode, offset });
                memory.mapping.kind = MappingKind::SharedAnonymous { home };
                self.library.name_shared(mapped);
            }
        }
        Ok(true)
    }

    /// Whether a mapping here is more than what the guest's memory was once.
    fn is_needed(&self, mapping: &Mapping) -> bool {
        let agent = &self.shared.lanes.agent;
        let is_ours = mapping.start < agent.end() && agent.base() < mapping.end;
        let is_shared_file = mapping.is_shared && !layout::is_shared_anonymous(mapping);
        is_ours || is_shared_file || mapping.is_kernel_provided() || self.commons.has(mapping)
    }

    fn map_in_common(&self, tid: i32, wanted: &[image::Mapping]) -> Result<()> {
        let instruction = self.shared.lanes.agent.syscall_instruction();
        let mut calls = RemoteCalls::begin(tid, instruction)?;
        for mapping in wanted {
            let call = homeward::map_anonymous(&(mapping.start.0..mapping.end.0), mapping);
            calls.call("map shared memory", call.number as i64, call.arguments)?;
        }
        Ok(())
    }
}

fn overlaps(mapping: &Mapping, wanted: &[image::Mapping]) -> bool {
    wanted.iter().any(|m| m.start.0 < mapping.end && mapping.start < m.end.0)
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::GuestAddr;

    fn place(inode: u64) -> SharedPlace {
        SharedPlace { device: 1, inode, offset: 0 }
    }

    fn memory(start: u64, away: u64, home: Option<u64>) -> SharedMemory {
        let kind = MappingKind::SharedAnonymous { home: home.map(place) };
        let (start, end) = (GuestAddr(start), GuestAddr(start + 0x1000));
        let mapping = image::Mapping { start, end, protection: 3, kind, flags: Default::default() };
        SharedMemory { mapping, away: place(away) }
    }

    #[test]
    fn a_name_that_the_body_has_not_heard_yet_stays() {
        let mut commons = Commons(vec![memory(0x1000, 5, Some(9))]);
        commons.hear(vec![memory(0x1000, 5, None), memory(0x3000, 6, None)]).unwrap();
        assert_eq!(commons.named(), [memory(0x1000, 5, Some(9))]);
        assert_eq!(commons.unnamed().count(), 1);
        commons.hear(vec![memory(0x1000, 7, None)]).unwrap();
        assert_eq!(commons.named(), [], "other memory in the same place");
    }

    #[test]
    fn nonsense_is_refused() {
        let mut commons = Commons::default();
        let twice = vec![memory(0x1000, 5, None), memory(0x1000, 5, None)];
        assert!(commons.hear(twice).is_err());
        let mut file = memory(0x1000, 5, None);
        file.mapping.kind = MappingKind::File { backing: 0, offset: 0, is_shared: true };
        assert!(commons.hear(vec![file]).is_err());
    }
}
