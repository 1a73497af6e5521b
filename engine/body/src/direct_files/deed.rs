//! What is done with such a file, by the calls of this kernel that mean the same.

use super::Open;
use crate::state::Shared;
use kernel::file_rights::as_user;
use kernel::memory::Memory;
use kernel::seccomp::Notification;
use nix::unistd::{Whence, lseek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

/// What is copied at a time.
const PART_BYTES: usize = 1 << 20;
/// What of a read is done at once if this kernel has it in memory.
const AT_ONCE_BYTES: usize = 256 << 10;
/// As Linux: pieces of one call, and the length of all (UIO_MAXIOV, MAX_RW_COUNT).
const PIECES_MAX: usize = 1024;
const LENGTH_MAX: usize = 0x7fff_f000;
const PIECE_BYTES: usize = 16;

pub enum Deed {
    Read(Span),
    Write(Span),
    Seek { offset: i64, whence: i32 },
    Sync { is_data_only: bool },
}

/// What of the guest's memory and of the file it is about.
pub struct Span {
    pieces: Vec<(u64, usize)>,
    /// None: where the file is at.
    at: Option<u64>,
}

impl Span {
    fn length(&self) -> usize {
        self.pieces.iter().map(|(_, length)| length).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.length() as u64
    }

    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// The pieces, cut so that none is longer than a part. One of no bytes is one: whether anything
    /// may be read or written at all is the kernel's to say.
    fn parts(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.pieces.iter().copied().flat_map(|(address, length)| {
            (0..length.max(1))
                .step_by(PART_BYTES)
                .map(move |from| (address.wrapping_add(from as u64), PART_BYTES.min(length - from)))
        })
    }
}

impl Deed {
    /// What a call is, whose first argument is such a file; or the error that it ends with. None if
    /// home is to make it.
    pub fn of(shared: &Shared, n: &Notification) -> Option<Result<Deed, i32>> {
        let [_, second, third, fourth, ..] = n.arguments;
        let plain = || vec![(second, usize::try_from(third).map_or(LENGTH_MAX, limited))];
        let vector = || pieces(&shared.memory, second, third);
        let (is_read, pieces, at) = match i64::from(n.number) {
            libc::SYS_read => (true, Ok(plain()), None),
            libc::SYS_write => (false, Ok(plain()), None),
            libc::SYS_pread64 => (true, Ok(plain()), Some(fourth)),
            libc::SYS_pwrite64 => (false, Ok(plain()), Some(fourth)),
            libc::SYS_readv => (true, vector(), None),
            libc::SYS_writev => (false, vector(), None),
            libc::SYS_preadv => (true, vector(), Some(fourth)),
            libc::SYS_pwritev => (false, vector(), Some(fourth)),
            libc::SYS_lseek => {
                return Some(Ok(Deed::Seek { offset: second as i64, whence: third as i32 }));
            }
            libc::SYS_fsync => return Some(Ok(Deed::Sync { is_data_only: false })),
            libc::SYS_fdatasync => return Some(Ok(Deed::Sync { is_data_only: true })),
            _ => return None,
        };
        Some(pieces.and_then(|pieces| {
            if at.is_some_and(|at| (at as i64) < 0) {
                return Err(libc::EINVAL);
            }
            let span = Span { pieces, at };
            Ok(if is_read { Deed::Read(span) } else { Deed::Write(span) })
        }))
    }

    /// How many bytes it moves at most, of a file of that size.
    pub fn moves(&self, size: u64) -> u64 {
        match self {
            Deed::Read(span) => size.min(span.length() as u64),
            Deed::Write(span) => span.length() as u64,
            Deed::Seek { .. } | Deed::Sync { .. } => 0,
        }
    }

    /// Does it if that takes no time: the result, and whether something was written. `is_alone`:
    /// nobody else waits for it.
    pub fn at_once(
        &self,
        open: &Open,
        at: &mut u64,
        memory: &Memory,
        is_alone: bool,
    ) -> Option<(i64, bool)> {
        match self {
            Deed::Read(span) if (1..=AT_ONCE_BYTES).contains(&span.length()) => {
                let from = span.at.unwrap_or(*at);
                let bytes = read_cached(open, from, span.length())?;
                let count = scatter(memory, span, &bytes);
                if span.at.is_none() {
                    *at = from + count as u64;
                }
                let is_fault = count == 0 && !bytes.is_empty();
                Some((if is_fault { -i64::from(libc::EFAULT) } else { count as i64 }, false))
            }
            Deed::Write(span) if is_alone && span.length() <= AT_ONCE_BYTES => {
                Some(write(open, span, at, memory))
            }
            Deed::Seek { offset, whence } => Some((seek(open, (*offset, *whence), at), false)),
            _ => None,
        }
    }

    /// Does it: the result, and whether something was written.
    pub fn carry_out(&self, open: &Open, at: &mut u64, memory: &Memory) -> (i64, bool) {
        match self {
            Deed::Read(span) => (read(open, span, at, memory), false),
            Deed::Write(span) => write(open, span, at, memory),
            Deed::Seek { offset, whence } => (seek(open, (*offset, *whence), at), false),
            Deed::Sync { is_data_only } => {
                let synced = match is_data_only {
                    true => open.file.sync_data(),
                    false => open.file.sync_all(),
                };
                (synced.map_or_else(|error| failed(&error), |()| 0), false)
            }
        }
    }
}

fn limited(length: usize) -> usize {
    length.min(LENGTH_MAX)
}

/// The pieces of an array of `struct iovec`.
fn pieces(memory: &Memory, address: u64, count: u64) -> Result<Vec<(u64, usize)>, i32> {
    let count = usize::try_from(count).ok().filter(|count| *count <= PIECES_MAX);
    let mut bytes = vec![0; count.ok_or(libc::EINVAL)? * PIECE_BYTES];
    if memory.read_as_guest(address, &mut bytes) < bytes.len() {
        return Err(libc::EFAULT);
    }
    let mut left = LENGTH_MAX;
    bytes
        .chunks_exact(PIECE_BYTES)
        .map(|piece| {
            let word = |at: usize| u64::from_le_bytes(piece[at..at + 8].try_into().expect("eight"));
            let length = i64::try_from(word(8)).map_err(|_| libc::EINVAL)?;
            let length = left.min(length as usize);
            left -= length;
            Ok((word(0), length))
        })
        .collect()
}

/// What of the file this kernel has in memory, if it has all that there is to be read.
fn read_cached(open: &Open, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut count = 0;
    while count < length {
        let mut rest = [IoSliceMut::new(&mut bytes[count..])];
        match preadv2(&open.file, &mut rest, at + count as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(count);
    Some(bytes)
}

/// Writes what was read into the pieces; how much the guest could have written itself.
pub fn scatter(memory: &Memory, span: &Span, bytes: &[u8]) -> usize {
    let mut done = 0;
    for (address, length) in span.parts() {
        let part = &bytes[done..bytes.len().min(done + length)];
        let written = memory.write_as_guest(address, part);
        done += written;
        if written < length {
            break;
        }
    }
    done
}

fn read(open: &Open, span: &Span, position: &mut u64, memory: &Memory) -> i64 {
    let mut at = span.at.unwrap_or(*position);
    let mut done = 0;
    let mut error = None;
    for (address, length) in span.parts() {
        let mut part = vec![0; length];
        let count = match fill(open, &mut part, at) {
            Ok(count) => count,
            Err(failure) => {
                error = Some(failed(&failure));
                break;
            }
        };
        let written = memory.write_as_guest(address, &part[..count]);
        (at, done) = (at + written as u64, done + written);
        if written < count {
            error = Some(-i64::from(libc::EFAULT));
        }
        if written < length {
            break;
        }
    }
    if span.at.is_none() {
        *position = at;
    }
    error.filter(|_| done == 0).unwrap_or(done as i64)
}

/// Reads as much as there is.
fn fill(open: &Open, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut count = 0;
    loop {
        match open.file.read_at(&mut bytes[count..], at + count as u64) {
            Ok(0) => return Ok(count),
            Ok(more) => {
                count += more;
                if count == bytes.len() {
                    return Ok(count);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if count > 0 => return Ok(count),
            Err(error) => return Err(error),
        }
    }
}

fn write(open: &Open, span: &Span, position: &mut u64, memory: &Memory) -> (i64, bool) {
    let mut at = span.at.unwrap_or(*position);
    let mut done = 0;
    let mut error = None;
    for (address, length) in span.parts() {
        let mut part = vec![0; length];
        let there = memory.read_as_guest(address, &mut part);
        if there < length {
            error = Some(-i64::from(libc::EFAULT));
        }
        let outcome = as_user(open.uid, || open.file.write_at(&part[..there], at));
        let written = match outcome.map_err(|error| error.source).and_then(|written| written) {
            Ok(written) => written,
            Err(failure) => {
                error = Some(failed(&failure));
                0
            }
        };
        (at, done) = (at + written as u64, done + written);
        if written < length {
            break;
        }
    }
    if span.at.is_none() {
        *position = at;
    }
    (error.filter(|_| done == 0).unwrap_or(done as i64), done > 0)
}

/// The kernel knows how far that may be. Its own position in the file is the server's, who uses it
/// no more than this does.
fn seek(open: &Open, (offset, whence): (i64, i32), position: &mut u64) -> i64 {
    let to = |offset, whence| lseek(&open.file, offset, whence).map_err(|error| error as i32);
    let at = match whence {
        libc::SEEK_SET => to(offset, Whence::SeekSet),
        libc::SEEK_CUR => (*position as i64)
            .checked_add(offset)
            .ok_or(libc::EOVERFLOW)
            .and_then(|sum| to(sum, Whence::SeekSet)),
        libc::SEEK_END => to(offset, Whence::SeekEnd),
        libc::SEEK_DATA => to(offset, Whence::SeekData),
        libc::SEEK_HOLE => to(offset, Whence::SeekHole),
        _ => Err(libc::EINVAL),
    };
    match at {
        Ok(at) => {
            *position = at.cast_unsigned();
            at
        }
        Err(errno) => -i64::from(errno),
    }
}

fn failed(error: &io::Error) -> i64 {
    -i64::from(error.raw_os_error().unwrap_or(libc::EIO))
}
