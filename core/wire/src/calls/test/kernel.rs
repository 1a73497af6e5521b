//! A kernel that only moves bytes, written from the manual pages and not from the table.

use super::Memory;
use crate::calls::GuestMemory;
use crate::ids::GuestAddr;

const EFAULT: i64 = -14;
const RESTART_BLOCK: i64 = -516;

/// Memory as this kernel reaches it.
pub trait Space {
    fn load(&self, addr: u64, length: usize) -> Option<Vec<u8>>;
    fn store(&mut self, addr: u64, bytes: &[u8]) -> Option<()>;
}

impl Space for Memory {
    fn load(&self, addr: u64, length: usize) -> Option<Vec<u8>> {
        self.readable(addr).get(..length).map(<[u8]>::to_vec)
    }

    fn store(&mut self, addr: u64, bytes: &[u8]) -> Option<()> {
        self.is_writable(GuestAddr(addr), bytes.len()).then(|| self.put(addr, bytes))
    }
}

/// The deputy's staging area.
pub struct Area {
    pub base: u64,
    pub bytes: Vec<u8>,
}

impl Area {
    fn range(&self, addr: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl Space for Area {
    fn load(&self, addr: u64, length: usize) -> Option<Vec<u8>> {
        self.range(addr, length).map(|range| self.bytes[range].to_vec())
    }

    fn store(&mut self, addr: u64, bytes: &[u8]) -> Option<()> {
        let range = self.range(addr, bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Some(())
    }
}

/// What a call did: its result, and the bytes it read from memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Deed {
    pub result: i64,
    pub read: Vec<Vec<u8>>,
}

/// One call in progress. `amount` stands for how much there was to receive.
pub struct Kernel<'a> {
    pub space: &'a mut dyn Space,
    pub amount: usize,
    pub read: Vec<Vec<u8>>,
}

pub fn execute(name: &str, arguments: [u64; 6], space: &mut dyn Space, amount: usize) -> Deed {
    let mut kernel = Kernel { space, amount, read: Vec::new() };
    let result = kernel.run(name, arguments).unwrap_or(EFAULT);
    Deed { result, read: kernel.read }
}

impl Kernel<'_> {
    fn run(&mut self, name: &str, a: [u64; 6]) -> Option<i64> {
        match name {
            "read" => self.fill(a[1], a[2] as usize, self.amount),
            "write" => self.observe(a[1], a[2] as usize).map(|()| a[2] as i64),
            "readv" => {
                self.scatter(a[1], a[2], self.amount).map(|left| (self.amount - left) as i64)
            }
            "writev" => self.gather(a[1], a[2]),
            "openat" => self.string(a[1]).map(|()| 3),
            "rename" => {
                self.string(a[0])?;
                self.string(a[1]).map(|()| 0)
            }
            "sendmsg" => self.send(a[1]),
            "recvmsg" => self.receive(a[1]),
            "sendmmsg" => self.send_batch(a[1], a[2] as u32),
            "recvmmsg" => self.receive_batch(a[1], a[2] as u32),
            "recvfrom" => {
                let taken = self.fill(a[1], a[2] as usize, self.amount)?;
                self.name(a[4], a[5]).map(|()| taken)
            }
            "accept" => self.name(a[1], a[2]).map(|()| 5),
            "getsockopt" => self.name(a[3], a[4]).map(|()| 0),
            "poll" => self.poll(a[0], a[1] as u32),
            "select" => self.select(a, 16),
            "pselect6" => {
                if a[5] != 0 {
                    let pair = self.space.load(a[5], 16)?;
                    self.mask(word(&pair, 0))?;
                }
                self.select(a, 16)
            }
            "epoll_pwait" => {
                self.mask(a[4])?;
                let events = self.amount.min(a[2] as i32 as usize);
                self.write(a[1], &vec![0xe0; events * 12])?;
                Some(events as i64)
            }
            "msgrcv" => {
                let taken = self.amount.min(a[2] as usize);
                self.write(a[1], &vec![0x3d; 8 + taken])?;
                Some(taken as i64)
            }
            "wait4" if self.amount.is_multiple_of(2) => Some(0),
            "wait4" => {
                self.optional(a[1], &[9, 0, 0, 0])?;
                self.optional(a[3], &[0x77; 144]).map(|()| 4711)
            }
            "nanosleep" => {
                self.observe(a[0], 16)?;
                self.optional(a[1], &[0x11; 16]).map(|()| RESTART_BLOCK)
            }
            "getgroups" => {
                let groups = self.amount.min(a[0] as i32 as usize);
                self.write(a[1], &vec![0x64; groups * 4])?;
                Some(groups as i64)
            }
            "fgetxattr" => {
                self.string(a[1])?;
                self.fill(a[2], a[3] as usize, self.amount)
            }
            _ => panic!("no such call in the small kernel: {name}"),
        }
    }

    fn observe(&mut self, addr: u64, length: usize) -> Option<()> {
        if length > 0 {
            let bytes = self.space.load(addr, length)?;
            self.read.push(bytes);
        }
        Some(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Option<()> {
        if bytes.is_empty() { Some(()) } else { self.space.store(addr, bytes) }
    }

    fn optional(&mut self, addr: u64, bytes: &[u8]) -> Option<()> {
        if addr == 0 { Some(()) } else { self.write(addr, bytes) }
    }

    fn mask(&mut self, addr: u64) -> Option<()> {
        if addr == 0 { Some(()) } else { self.observe(addr, 8) }
    }

    fn fill(&mut self, addr: u64, length: usize, amount: usize) -> Option<i64> {
        let taken = amount.min(length);
        self.write(addr, &vec![0xd1; taken])?;
        Some(taken as i64)
    }

    fn string(&mut self, addr: u64) -> Option<()> {
        let mut text = Vec::new();
        while text.len() < 4096 {
            let byte = self.space.load(addr + text.len() as u64, 1)?[0];
            text.push(byte);
            if byte == 0 {
                break;
            }
        }
        self.read.push(text);
        Some(())
    }

    /// Fills the parts of a vector; what is left of `amount`.
    fn scatter(&mut self, vector: u64, count: u64, amount: usize) -> Option<usize> {
        let mut left = amount;
        for part in 0..count {
            let iovec = self.space.load(vector + part * 16, 16)?;
            let taken = left.min(word(&iovec, 8) as usize);
            self.write(word(&iovec, 0), &vec![0xa0 + part as u8; taken])?;
            left -= taken;
        }
        // The result of a receiving call is what was taken.
        Some(left)
    }

    fn gather(&mut self, vector: u64, count: u64) -> Option<i64> {
        let mut sum = 0;
        for part in 0..count {
            let iovec = self.space.load(vector + part * 16, 16)?;
            let length = word(&iovec, 8);
            self.observe(word(&iovec, 0), length as usize)?;
            sum += length as i64;
        }
        Some(sum)
    }

    fn send(&mut self, header: u64) -> Option<i64> {
        let h = self.space.load(header, 56)?;
        if word(&h, 0) != 0 {
            self.observe(word(&h, 0), (half(&h, 8) as usize).min(128))?;
        }
        if word(&h, 32) != 0 {
            self.observe(word(&h, 32), word(&h, 40) as usize)?;
        }
        self.gather(word(&h, 16), word(&h, 24))
    }

    fn receive(&mut self, header: u64) -> Option<i64> {
        let h = self.space.load(header, 56)?;
        let left = self.scatter(word(&h, 16), word(&h, 24), self.amount)?;
        if word(&h, 0) != 0 {
            let length = self.amount.min(128);
            let fits = length.min(half(&h, 8) as usize);
            self.write(word(&h, 0), &vec![0x2a; fits])?;
            self.write(header + 8, &(length as u32).to_le_bytes())?;
        }
        let control = self.amount.min(word(&h, 40) as usize);
        if word(&h, 32) != 0 {
            self.write(word(&h, 32), &vec![0x5c; control])?;
        }
        let control = if word(&h, 32) == 0 { 0 } else { control as u64 };
        self.write(header + 40, &control.to_le_bytes())?;
        self.write(header + 48, &0x20_u32.to_le_bytes())?;
        Some((self.amount - left) as i64)
    }

    fn send_batch(&mut self, batch: u64, count: u32) -> Option<i64> {
        for message in 0..u64::from(count) {
            let sent = self.send(batch + message * 64)?;
            self.write(batch + message * 64 + 56, &(sent as u32).to_le_bytes())?;
        }
        Some(i64::from(count))
    }

    /// Only as many messages as there are: the others stay as they were.
    fn receive_batch(&mut self, batch: u64, count: u32) -> Option<i64> {
        let count = count.min(self.amount as u32 % 3);
        for message in 0..u64::from(count) {
            let taken = self.receive(batch + message * 64)?;
            self.write(batch + message * 64 + 56, &(taken as u32).to_le_bytes())?;
        }
        Some(i64::from(count))
    }

    fn name(&mut self, addr: u64, length_addr: u64) -> Option<()> {
        if addr == 0 {
            return Some(());
        }
        let room = half(&self.space.load(length_addr, 4)?, 0) as i32;
        let room = usize::try_from(room).unwrap_or(0);
        self.write(addr, &vec![0x7b; self.amount.min(room)])?;
        self.write(length_addr, &(self.amount as u32).to_le_bytes())
    }

    fn poll(&mut self, array: u64, count: u32) -> Option<i64> {
        self.observe(array, count as usize * 8)?;
        for entry in 0..u64::from(count) {
            self.write(array + entry * 8 + 6, &[0x41, 0])?;
        }
        Some(i64::from(count))
    }

    fn select(&mut self, a: [u64; 6], timeout_bytes: usize) -> Option<i64> {
        let bytes = (a[0] as i32).max(0).cast_unsigned().div_ceil(64) as usize * 8;
        for &set in &a[1..4] {
            if set != 0 {
                self.observe(set, bytes)?;
                self.write(set, &vec![0x0f; bytes])?;
            }
        }
        self.optional(a[4], &vec![0x55; timeout_bytes])?;
        Some(3)
    }
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}
