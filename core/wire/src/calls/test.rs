//! A small kernel that only moves bytes, run once directly on guest memory and once over the whole
//! journey, must not be able to tell the difference.

mod contents;
mod exec;
mod hostile;
mod journey;
mod kernel;
mod own_file;
mod table;
mod waiting;

use super::GuestMemory;
use crate::forward::{Call, Segment};
use crate::ids::{GuestAddr, GuestTid};

/// Guest memory with one writable and one read-only region, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Memory {
    writable: Vec<u8>,
    fixed: Vec<u8>,
}

const WRITABLE: u64 = 0x1_0000;
const WRITABLE_BYTES: usize = 0x1_0000;
const FIXED: u64 = 0x4_0000;
const FIXED_BYTES: usize = 0x1000;

impl Memory {
    fn new(seed: u8) -> Memory {
        let pattern = |index: usize| (index as u8).wrapping_mul(31).wrapping_add(seed);
        Memory {
            writable: (0..WRITABLE_BYTES).map(pattern).collect(),
            fixed: (0..FIXED_BYTES).map(pattern).collect(),
        }
    }

    fn put(&mut self, addr: u64, bytes: &[u8]) {
        let start = (addr - WRITABLE) as usize;
        self.writable[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn readable(&self, addr: u64) -> &[u8] {
        let within = |start: u64, bytes: &'_ [u8]| {
            addr.checked_sub(start).filter(|&offset| offset < bytes.len() as u64)
        };
        if let Some(offset) = within(WRITABLE, &self.writable) {
            &self.writable[offset as usize..]
        } else if let Some(offset) = within(FIXED, &self.fixed) {
            &self.fixed[offset as usize..]
        } else {
            &[]
        }
    }
}

/// What the guests of these tests are to themselves.
const OWN_PROCESS: i32 = 4712;

impl GuestMemory for Memory {
    fn process(&self) -> i32 {
        OWN_PROCESS
    }

    fn read(&self, addr: GuestAddr, buf: &mut [u8]) -> usize {
        let bytes = self.readable(addr.0);
        let length = bytes.len().min(buf.len());
        buf[..length].copy_from_slice(&bytes[..length]);
        length
    }

    fn is_writable(&self, addr: GuestAddr, len: usize) -> bool {
        addr.0 >= WRITABLE && addr.0 < FIXED && self.readable(addr.0).len() >= len
    }
}

fn call(number: u32, arguments: [u64; 6], segments: Vec<Segment>) -> Call {
    Call { tid: GuestTid(7), sequence: 1, signals_seen: 0, number, arguments, segments }
}

/// The number of a call by its name.
fn number(name: &str) -> u32 {
    (0..1000).find(|&number| super::name(number) == Some(name)).expect("a call of this name")
}
