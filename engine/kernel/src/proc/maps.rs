//! `/proc/PID/maps`: the memory mappings of a process.

use crate::{KernelError, Result};

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub is_writable: bool,
    pub is_executable: bool,
    pub is_shared: bool,
    pub offset: u64,
    /// Major and minor number, as `stat` packs them (`makedev`).
    pub device: u64,
    /// 0 for anonymous memory.
    pub inode: u64,
    /// Path, or a name in brackets; empty for anonymous memory. Bytes, not text: octal escapes for
    /// newlines are undone.
    pub name: Vec<u8>,
}

impl Mapping {
    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    /// PROT_* bits.
    pub fn protection(&self) -> u32 {
        let bit = |set: bool, value: i32| if set { value as u32 } else { 0 };
        bit(self.is_readable, libc::PROT_READ)
            | bit(self.is_writable, libc::PROT_WRITE)
            | bit(self.is_executable, libc::PROT_EXEC)
    }

    /// A mapping that the kernel provides (vDSO and its data).
    pub fn is_kernel_provided(&self) -> bool {
        matches!(self.name.as_slice(), b"[vdso]" | b"[vvar]" | b"[vvar_vclock]" | b"[vsyscall]")
    }

    pub fn is_deleted(&self) -> bool {
        self.name.ends_with(b" (deleted)")
    }
}

/// Reads and parses the mappings of a process.
pub fn read(pid: i32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let text = std::fs::read(&path)
        .map_err(|source| KernelError { what: format!("read {path}"), source })?;
    parse(&text).ok_or_else(|| KernelError::errno(format!("parse {path}"), libc::EINVAL))
}

/// Parses the whole file; None if any line is not as the kernel writes it.
pub fn parse(text: &[u8]) -> Option<Vec<Mapping>> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = split_field(line)?;
    let (permissions, rest) = split_field(rest)?;
    let (offset, rest) = split_field(rest)?;
    let (device, rest) = split_field(rest)?;
    let (inode, rest) = split_field(rest).unwrap_or((rest, b""));
    let (start, end) = split_at_byte(range, b'-')?;
    let (major, minor) = split_at_byte(device, b':')?;
    let &[r, w, x, s] = permissions else { return None };
    let (start, end) = (hex(start)?, hex(end)?);
    if start >= end {
        return None;
    }
    let name = rest.trim_ascii_start();
    Some(Mapping {
        start,
        end,
        is_readable: r == b'r',
        is_writable: w == b'w',
        is_executable: x == b'x',
        is_shared: s == b's',
        offset: hex(offset)?,
        device: nix::sys::stat::makedev(hex(major)?, hex(minor)?),
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        name: unescape(name),
    })
}

fn split_field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|b| *b == b' ')?;
    Some((&text[..end], &text[end..]))
}

fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// The kernel writes a newline in a name as `\012`.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if rest.starts_with(b"\\012") {
            out.push(b'\n');
            rest = &rest[4..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn own_mappings_parse() {
        let maps = read(std::process::id() as i32).unwrap();
        assert!(maps.iter().any(|m| m.name == b"[stack]" && m.is_writable));
        assert!(maps.iter().any(|m| m.is_executable && m.inode != 0));
        assert!(maps.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn names_keep_spaces_and_newlines() {
        let line = b"7f00-8f00 r--s 00001000 fe:10 42                 /a b\\012c (deleted)\n";
        let line = [b"00".as_slice(), line].concat();
        let maps = parse(&line).unwrap();
        assert_eq!(maps[0].name, b"/a b\nc (deleted)");
        assert!(maps[0].is_shared && maps[0].is_deleted() && maps[0].inode == 42);
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(parse(b"zz-10 rwxp 0 00:00 0 \n"), None);
        assert_eq!(parse(b"20-10 rwxp 0 00:00 0 \n"), None);
        assert_eq!(parse(b"10-20\n"), None);
    }
}
