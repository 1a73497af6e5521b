//! Another process's memory, through `/proc/PID/mem`.
//!
//! This way rather than process_vm_readv because the kernel then ignores page protection
//! (FOLL_FORCE): pages that the guest made inaccessible or read-only still have to move.

use crate::{KernelError, Result};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock, RwLock};

/// Who brings pages that are to come still ([`crate::faults`]).
pub trait Fetch: Debug + Send + Sync {
    /// Waits until whatever is to come of the range is there.
    fn fetch(&self, range: &Range<u64>);

    /// The same, and has all other pages of it be there, which some ways of access take.
    fn fetch_wholly(&self, range: &Range<u64>);
}

#[derive(Debug)]
pub struct Memory {
    file: File,
    pid: i32,
    /// Held for reading while something is written here.
    writers: RwLock<()>,
    fetch: OnceLock<Arc<dyn Fetch>>,
}

impl Memory {
    pub fn open(pid: i32) -> Result<Memory> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| KernelError { what: format!("open {path}"), source })?;
        Ok(Memory { file, pid, writers: RwLock::default(), fetch: OnceLock::new() })
    }

    /// From now on pages that are to come are fetched before they are touched here.
    pub fn fetch_by(&self, fetch: Arc<dyn Fetch>) {
        // The first one has all pages.
        let _ = self.fetch.set(fetch);
    }

    fn fetch(&self, address: u64, length: usize) {
        if let Some(fetch) = self.fetch.get() {
            fetch.fetch(&(address..address.saturating_add(length as u64)));
        }
    }

    /// Tries again what has failed by `/proc/PID/mem`, which does not wait for a page.
    fn again<T, E>(
        &self,
        (address, length): (u64, usize),
        mut attempt: impl FnMut() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let outcome = attempt();
        match self.fetch.get().filter(|_| outcome.is_err()) {
            Some(fetch) => {
                fetch.fetch_wholly(&(address..address.saturating_add(length as u64)));
                attempt()
            }
            None => outcome,
        }
    }

    /// Reads all of `buffer`, or fails.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        self.fetch(address, buffer.len());
        self.again((address, buffer.len()), || self.file.read_exact_at(buffer, address))
            .map_err(|source| self.error("read", address, source))
    }

    /// As [`Memory::read`], and twice as fast for many pages: the kernel copies them without a
    /// buffer of its own in between. What the guest itself could not read takes the other way.
    pub fn read_pages(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len();
        self.fetch(address, length);
        let remote = [RemoteIoVec { base: address as usize, len: length }];
        let mut local = [IoSliceMut::new(&mut *buffer)];
        let done = process_vm_readv(Pid::from_raw(self.pid), &mut local, &remote);
        // That was read by pid. As long as the memory that was opened is there nobody else has it.
        if done == Ok(length) && self.read_some(address, &mut [0]) == 1 {
            return Ok(());
        }
        self.read(address, buffer)
    }

    /// As [`Memory::write`], and twice as fast for many pages. The process has to be one
    /// whose end this process is to be told of, its tracee or its child: then its pid is nobody
    /// else's.
    pub fn write_pages(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.fetch(address, bytes.len());
        let remote = [RemoteIoVec { base: address as usize, len: bytes.len() }];
        let local = [IoSlice::new(bytes)];
        let writer = self.writers.read();
        let done = process_vm_writev(Pid::from_raw(self.pid), &local, &remote);
        drop(writer);
        match done {
            Ok(length) if length == bytes.len() => Ok(()),
            _ => self.write(address, bytes),
        }
    }

    /// Reads from the start as far as the memory is readable; returns the length.
    pub fn read_some(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.fetch(address, buffer.len());
        let mut done = 0;
        while done < buffer.len() {
            let (at, left) = (address + done as u64, &mut buffer[done..]);
            match self.again((at, left.len()), || self.file.read_at(left, at)) {
                Ok(0) | Err(_) => break,
                Ok(count) => done += count,
            }
        }
        done
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.fetch(address, bytes.len());
        let _writer = self.writers.read();
        self.again((address, bytes.len()), || self.file.write_all_at(bytes, address))
            .map_err(|source| self.error("write", address, source))
    }

    pub fn read_u64(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Does something while nothing is written here. The kernel first takes hold of the pages that
    /// such a write is for, and then writes past their protection: who protects them in between is
    /// not told ([`crate::tracking`]).
    pub fn between_writes<T>(&self, work: impl FnOnce() -> T) -> T {
        let _nobody = self.writers.write();
        work()
    }

    /// Reads as the guest itself could: from the start as far as protection allows.
    pub fn read_as_guest(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.fetch(address, buffer.len());
        self.each_piece(address, buffer.len(), |at, range| {
            let mut local = [IoSliceMut::new(&mut buffer[range.clone()])];
            let remote = [RemoteIoVec { base: at as usize, len: range.len() }];
            process_vm_readv(Pid::from_raw(self.pid), &mut local, &remote).unwrap_or(0)
        })
    }

    /// Writes as the guest itself could; the length written, from the start.
    pub fn write_as_guest(&self, address: u64, bytes: &[u8]) -> usize {
        self.fetch(address, bytes.len());
        let _writer = self.writers.read();
        self.each_piece(address, bytes.len(), |at, range| {
            let local = [IoSlice::new(&bytes[range.clone()])];
            let remote = [RemoteIoVec { base: at as usize, len: range.len() }];
            process_vm_writev(Pid::from_raw(self.pid), &local, &remote).unwrap_or(0)
        })
    }

    /// Does all at once if that works, else page by page up to the first that does not: the kernel
    /// does not say how far it got inside one piece (process_vm_readv(2)).
    fn each_piece(
        &self,
        address: u64,
        length: usize,
        mut transfer: impl FnMut(u64, Range<usize>) -> usize,
    ) -> usize {
        if length == 0 || transfer(address, 0..length) == length {
            return length;
        }
        let mut done = 0;
        while done < length {
            let at = address + done as u64;
            let to_page_end = (4096 - at % 4096) as usize;
            let piece = done..(done + to_page_end).min(length);
            if transfer(at, piece.clone()) != piece.len() {
                break;
            }
            done = piece.end;
        }
        done
    }

    fn error(&self, verb: &str, address: u64, source: std::io::Error) -> KernelError {
        KernelError { what: format!("{verb} memory of {} at {address:#x}", self.pid), source }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::Duration;

    #[test]
    fn nothing_is_written_between_writes() {
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let places = [0u8; 3];
        let [first, second, third] = [0, 1, 2].map(|index| places.as_ptr() as u64 + index);
        let (told, written) = mpsc::channel();
        let memory = &memory;
        std::thread::scope(|scope| {
            memory.between_writes(|| {
                let [first_told, third_told] = [told.clone(), told.clone()];
                scope.spawn(move || {
                    memory.write(first, &[1]).unwrap();
                    first_told.send(()).unwrap();
                });
                scope.spawn(move || {
                    memory.write_pages(third, &[1]).unwrap();
                    third_told.send(()).unwrap();
                });
                scope.spawn(move || {
                    assert_eq!(memory.write_as_guest(second, &[1]), 1);
                    told.send(()).unwrap();
                });
                let waited = written.recv_timeout(Duration::from_millis(100));
                assert_eq!(waited, Err(RecvTimeoutError::Timeout));
            });
        });
        let mut content = [0; 3];
        memory.read(first, &mut content).unwrap();
        assert_eq!(content, [1, 1, 1]);
    }
}
