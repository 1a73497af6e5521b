//! Who else has what a process shares: with others who could write to its files, or who have the
//! memory of its group without being of that, it stays home.

use super::{Files, Known, LOOK_INTERVAL, PATIENCE, may_write_to, refused, shown};
use crate::{MigrateError, Result, injection, layout, sharing};
use kernel::proc::maps::Mapping;
use kernel::proc::{process, system_v};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Instant;

/// How often the pieces of System V shared memory were seen attached, by id.
type Attached = BTreeMap<u64, u64>;

impl Files {
    /// Refuses a process if another has one of the files open for writing, or mapped so; or has
    /// anything of the memory of its group without being of that.
    ///
    /// # Errors
    /// Refused, with the other one's number; or that of one which cannot be looked into.
    pub fn check_others(&self, pid: i32) -> Result<()> {
        if sharing::hides_processes() {
            return Err(self.unseen("/proc hides other users' processes (hidepid)"));
        }
        let mut seen = Attached::default();
        // Who begins meanwhile has nothing but by opening it, which is told, or from those here.
        for other in process::all()? {
            match self.look_at(other, other == pid, &mut seen) {
                Ok(verdict) => verdict?,
                Err(error) if error.is_gone() => {}
                Err(_) if !self.may_be_used_by(other) => {}
                Err(_) => {
                    return Err(self.unseen(&format!(
                        "process {other}, which may use it, too, does not let us see whether it \
                         does"
                    )));
                }
            }
        }
        self.check_attachments(&seen)
    }

    /// Looks at one process, which may be the one that this is about.
    fn look_at(&self, other: i32, is_own: bool, seen: &mut Attached) -> kernel::Result<Result<()>> {
        let maps = sharing::read_maps(other)?;
        for mapping in maps.iter().filter(|m| self.is_attached(m)) {
            *seen.entry(mapping.inode).or_default() += 1;
        }
        if is_own {
            return Ok(Ok(()));
        }
        Ok(match self.used_by(other, &maps)? {
            None => Ok(()),
            Some((name, false)) => Err(refused(format!(
                "it shares the file {name} writably, which process {other} may write to, too"
            ))),
            Some((name, true)) => Err(refused(format!(
                "it shares the memory {name} with others, and process {other}, which does not move \
                 with them, has it, too"
            ))),
        })
    }

    fn is_attached(&self, mapping: &Mapping) -> bool {
        layout::is_system_v(mapping) && self.attached.contains(&mapping.inode)
    }

    /// Refuses a process if somebody has attached its System V shared memory who does not let us
    /// see that: the kernel counts more than we do.
    fn check_attachments(&self, seen: &Attached) -> Result<()> {
        for id in &self.attached {
            let counted = system_v::attachments(*id)?.map_or(0, |known| known.count());
            let unseen = counted.saturating_sub(seen.get(id).copied().unwrap_or(0));
            if unseen > 0 {
                let text = format!(
                    "it has System V shared memory (shmid {id}), and {unseen} others who do not \
                     let us see it have attached it, too (ipcs -m -p names the last)"
                );
                return Err(refused(text));
            }
        }
        Ok(())
    }

    /// As [`Files::check_others`], for a process that runs: somebody who has a file open while a
    /// program is started is given the time for that.
    ///
    /// # Errors
    /// As there.
    pub fn check_patiently(&self, pid: i32) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.check_others(pid) {
                Err(MigrateError::Refused(_)) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK_INTERVAL);
                }
                verdict => return verdict,
            }
        }
    }

    fn unseen(&self, why: &str) -> MigrateError {
        let name = self.known.first().map_or("", |known| &known.name);
        refused(format!("it shares the file {name} writably, and {why}"))
    }

    /// What another process, with these mappings, has of the files, or of the memory, so that this
    /// one cannot be away; and whether it is memory.
    fn used_by(&self, other: i32, maps: &[Mapping]) -> kernel::Result<Option<(String, bool)>> {
        let is_one_of_us = self.is_member(other, maps);
        let counts = |known: &&Known| !(known.is_memory && is_one_of_us);
        for number in process::descriptor_numbers(other)? {
            let link = format!("/proc/{other}/fd/{number}");
            let is_for_writing = |m: Metadata| m.permissions().mode() & 0o200 != 0;
            let open = std::fs::metadata(&link).ok().and_then(|m| self.find(&m)).filter(counts);
            let Some(known) = open else { continue };
            // Supervisors of those who move with it have it open, too.
            if known.is_memory && process::runs_our_program(other) {
                continue;
            }
            if known.is_memory || std::fs::symlink_metadata(&link).is_ok_and(is_for_writing) {
                return Ok(Some((known.name.clone(), known.is_memory)));
            }
        }
        for mapping in maps {
            if self.is_attached(mapping) && !is_one_of_us {
                return Ok(Some((shown(mapping), true)));
            }
            let id = (mapping.device, mapping.inode);
            let known = self.known.iter().find(|known| known.mapped == id).filter(counts);
            let Some(known) = known else { continue };
            if known.is_memory || may_write_to(other, mapping) {
                return Ok(Some((shown(mapping), known.is_memory)));
            }
        }
        Ok(None)
    }

    /// Whether another has left with this one, or was made where they are: it has the same memory
    /// mapped, and an agent in which it waits for its body.
    fn is_member(&self, other: i32, maps: &[Mapping]) -> bool {
        let is_bound = maps.iter().any(|mapping| self.bonds.is_named(mapping));
        self.bonds.members.contains(&other)
            || is_bound && injection::has_agent(other, maps).unwrap_or(false)
    }

    /// Whether the user of a process that cannot be looked into may write to one of the files, or
    /// read memory. The administrator's processes may do that to anything, and mostly do not.
    fn may_be_used_by(&self, other: i32) -> bool {
        let Ok(status) = process::status(other) else { return false };
        let state = process::status_field(&status, "State").unwrap_or("");
        if state.starts_with(['Z', 'X']) {
            return false;
        }
        let numbers = |field| process::status_numbers(&status, field);
        let (users, groups) = (numbers("Uid"), [numbers("Gid"), numbers("Groups")].concat());
        if users.iter().all(|user| *user == 0) {
            return false;
        }
        self.known.iter().any(|known| {
            known.file.metadata().map_or(true, |metadata| {
                let has_list = process::has_access_list(&known.file);
                may_use((&users, &groups), &metadata, (has_list, known.is_memory))
            })
        })
    }
}

/// Whether these may write to it; or read it, if that matters.
pub(super) fn may_use(
    (users, groups): (&[u32], &[u32]),
    metadata: &Metadata,
    (has_list, is_reading_enough): (bool, bool),
) -> bool {
    let mode = metadata.permissions().mode();
    let bits = if is_reading_enough { 0o066 } else { 0o022 };
    users.contains(&metadata.uid())
        || mode & bits & 0o060 != 0 && (has_list || groups.contains(&metadata.gid()))
        || mode & bits & 0o006 != 0
}
