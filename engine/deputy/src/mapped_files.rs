//! Files that the body maps ([decision 0035](../../../docs/decisions/)): the thread at home maps
//! the first page of it, where nothing is, which is refused as the call would be; and what the
//! kernel says of that mapping tells which file it is. Then it is unmapped again.
//!
//! The reply is that the call is to be made again, whatever becomes of it: the body makes it where
//! it is if it has heard of the file and has the same, and otherwise, or if it was moved meanwhile,
//! the thread makes it anew.

use crate::service::Service;
use kernel::proc::maps;
use kernel::regs::ERESTARTNOINTR;
use kernel::remote_call::RemoteCalls;
use migrate::hashes::Effort;
use migrate::{MigrateError, Result};
use wire::forward::{FileToMap, ToAway};

pub(crate) const MMAP: u32 = libc::SYS_mmap as u32;
const PAGE: u64 = 4096;
const OUT_OF_MEMORY: i64 = -(libc::ENOMEM as i64);
const INVALID: i64 = -(libc::EINVAL as i64);
const WRITABLE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

impl Service<'_> {
    /// Finds the file that the thread of this slot maps, and replies.
    pub fn map_file(&mut self, slot: usize) -> Result<()> {
        let Some(call) = self.shared.lanes.making(slot, MMAP) else { return Ok(()) };
        let tid = self.shared.lanes.lock(slot).tid;
        let result = match self.find_file((tid, slot), &call.arguments) {
            Ok(Found::File(index)) => {
                self.tell_file(index, (call.tid, call.sequence));
                ERESTARTNOINTR
            }
            Ok(Found::Nothing) => ERESTARTNOINTR,
            Ok(Found::Refused(error)) => error,
            // It has ended meanwhile: nobody waits for the reply.
            Ok(Found::Nobody) => return Ok(()),
            Err(MigrateError::Kernel(error)) if error.is_gone() => return Ok(()),
            Err(error @ (MigrateError::Ended(_) | MigrateError::BeganProgram)) => {
                return Err(error);
            }
            Err(error) => {
                ::tracing::debug!("process {}: a file to map: {error}", self.pid);
                ERESTARTNOINTR
            }
        };
        let reply = self.shared.lanes.made(slot, call, (result, vec![]));
        self.shared.reply(reply);
        Ok(())
    }

    fn find_file(&mut self, (tid, slot): (i32, usize), arguments: &[u64; 6]) -> Result<Found> {
        let Some(is_group_stop) = self.stop_for_us(tid)? else { return Ok(Found::Nobody) };
        let instruction = self.shared.lanes.agent.syscall_instruction();
        let found = RemoteCalls::begin(tid, instruction)
            .map_err(MigrateError::from)
            .and_then(|mut calls| self.try_to_map((&mut calls, slot), arguments));
        self.go_on_after_stop(tid, is_group_stop)?;
        found
    }

    fn try_to_map(
        &mut self,
        (calls, slot): (&mut RemoteCalls, usize),
        arguments: &[u64; 6],
    ) -> Result<Found> {
        let [_, _, protection, flags, descriptor, offset] = *arguments;
        let kind = flags & libc::MAP_TYPE as u64;
        let page = |protection| [0, PAGE, protection, kind, descriptor, offset];
        // It could be made writable later, and what is written then belongs into the file.
        let may_be_written = kind == libc::MAP_SHARED as u64 && {
            let address = calls.raw(libc::SYS_mmap, page(WRITABLE))?;
            if address >= 0 {
                unmap(calls, address)?;
            }
            address >= 0
        };
        match calls.raw(libc::SYS_mmap, page(protection))? {
            // Of a limit of what it has mapped here the body is not the cause, and what is no file
            // may want another length.
            OUT_OF_MEMORY => Ok(Found::Nothing),
            INVALID if offset % PAGE == 0 => Ok(Found::Nothing),
            address if address < 0 => Ok(Found::Refused(address)),
            address => {
                let found = if may_be_written {
                    Ok(Found::Nothing)
                } else {
                    self.add_mapped(address as u64)
                };
                unmap(calls, address)?;
                match found {
                    Ok(Found::File(index)) if !self.can_open(calls, slot, index)? => {
                        Ok(Found::Nothing)
                    }
                    found => found,
                }
            }
        }
    }

    /// Whether the thread can open the file as it will have to when the process comes home.
    fn can_open(&self, calls: &mut RemoteCalls, slot: usize, index: u32) -> Result<bool> {
        let Some(file) = self.library.file(index) else { return Ok(false) };
        let agent = &self.shared.lanes.agent;
        let path = migrate::homeward::path_of(file);
        agent.write_staging(slot, 0, path.as_bytes());
        let open = migrate::homeward::open_call(agent.staging_address(slot));
        let opened = calls.raw(libc::SYS_openat, open)?;
        if opened >= 0 {
            calls.raw(libc::SYS_close, [opened as u64, 0, 0, 0, 0, 0])?;
        }
        Ok(opened >= 0)
    }

    fn add_mapped(&mut self, address: u64) -> Result<Found> {
        let maps = maps::read(self.pid)?;
        let mapping = maps.iter().find(|mapping| (mapping.start..mapping.end).contains(&address));
        let Some(mapping) = mapping else { return Ok(Found::Nothing) };
        let index = self.library.add_mapped(self.pid, mapping, &mut Effort::of_a_call())?;
        Ok(index.map_or(Found::Nothing, Found::File))
    }

    /// Tells the body which file that is.
    fn tell_file(&self, index: u32, (tid, sequence): (wire::ids::GuestTid, u64)) {
        let Some((backing, name)) = self.library.description(index) else { return };
        self.shared.own_files.add(index, name);
        let backing = backing.clone();
        self.shared.send(&ToAway::FileToMap(FileToMap { tid, sequence, index, backing }));
    }
}

fn unmap(calls: &mut RemoteCalls, address: i64) -> Result<()> {
    let page = [address as u64, PAGE, 0, 0, 0, 0];
    Ok(calls.call("unmap a file", libc::SYS_munmap, page).map(drop)?)
}

/// What a thread maps.
enum Found {
    /// The file with this number in the list of those that the process maps.
    File(u32),
    /// Nothing that can be mapped elsewhere: the process comes home for it.
    Nothing,
    /// Nothing, as the kernel says by this error number, negative.
    Refused(i64),
    /// It has ended.
    Nobody,
}
