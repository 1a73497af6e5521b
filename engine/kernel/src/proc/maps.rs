//! `/proc/PID/maps`: the memory mappings of a process.

use super::flags::Flags;
use crate::features::{self, Feature};
use crate::{KernelError, Result};
use std::ops::Range;
use std::os::fd::AsRawFd;

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
    /// Empty unless they were asked for (`flags::read_maps`).
    pub flags: Flags,
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

    /// The line of it, as the kernel writes it (show_map_vma in fs/proc/task_mmu.c).
    pub fn line(&self) -> Vec<u8> {
        let bit = |set: bool, letter: char| if set { letter } else { '-' };
        let permissions = [
            bit(self.is_readable, 'r'),
            bit(self.is_writable, 'w'),
            bit(self.is_executable, 'x'),
            if self.is_shared { 's' } else { 'p' },
        ];
        let (major, minor) =
            (nix::sys::stat::major(self.device), nix::sys::stat::minor(self.device));
        let mut line = format!(
            "{:08x}-{:08x} {} {:08x} {major:02x}:{minor:02x} {} ",
            self.start,
            self.end,
            permissions.iter().collect::<String>(),
            self.offset,
            self.inode
        )
        .into_bytes();
        if !self.name.is_empty() {
            line.resize(line.len().max(NAME_COLUMN), b' ');
            let bytes = self.name.iter().map(|byte| match byte {
                b'\n' => &b"\\012"[..],
                byte => std::slice::from_ref(byte),
            });
            line.extend(bytes.flatten());
        }
        line.push(b'\n');
        line
    }

    pub fn is_deleted(&self) -> bool {
        self.name.ends_with(b" (deleted)")
    }
}

/// Where a line has the name.
const NAME_COLUMN: usize = 25 + 6 * size_of::<usize>();

/// Asks about single mappings of a process without reading them all.
#[derive(Debug)]
pub struct MapQuery {
    file: std::fs::File,
    pid: i32,
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct QueryArguments {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    protection: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device_major: u32,
    device_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

// _IOWR('f', 17, struct procmap_query), Linux 6.11
const PROCMAP_QUERY: u64 = 0xc068_6611;
const QUERY_WRITABLE: u64 = 0x02;

impl MapQuery {
    pub fn open(pid: i32) -> Result<MapQuery> {
        let path = format!("/proc/{pid}/maps");
        let file = std::fs::File::open(&path)
            .map_err(|source| super::failed(format!("open {path}"), source))?;
        Ok(MapQuery { file, pid })
    }

    /// True if every byte of the range lies in mappings that the process may write to.
    pub fn is_writable(&self, start: u64, end: u64) -> bool {
        match features::settled().has(Feature::MapQuery) {
            true => self.is_writable_by_query(start, end),
            false => self.is_writable_by_text(start, end),
        }
    }

    /// True if a mapping that contains `start` ends before `end`.
    pub fn is_in_pieces(&self, start: u64, end: u64) -> bool {
        let first = match features::settled().has(Feature::MapQuery) {
            true => self.end_of(start, 0).ok().flatten(),
            false => {
                let maps = read(self.pid).unwrap_or_default();
                maps.iter().find(|m| m.start <= start && start < m.end).map(|m| m.end)
            }
        };
        first.is_some_and(|first| first < end)
    }

    fn is_writable_by_query(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            match self.end_of(at, QUERY_WRITABLE) {
                Ok(Some(next)) if next > at => at = next,
                // Nothing there, or the process has ended.
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    /// The end of the mapping that contains the address and is as `flags` say.
    fn end_of(&self, address: u64, flags: u64) -> std::io::Result<Option<u64>> {
        let mut arguments = QueryArguments {
            size: size_of::<QueryArguments>() as u64,
            flags,
            address,
            ..Default::default()
        };
        // SAFETY: the argument block is a live local of the size that it states itself, and asks
        // for neither name nor build id, so the kernel writes nowhere else.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY, &raw mut arguments) };
        if result == 0 {
            return Ok(Some(arguments.end));
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            _ => Err(error),
        }
    }

    fn is_writable_by_text(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for mapping in read(self.pid).unwrap_or_default() {
            if mapping.end > at && (mapping.start > at || !mapping.is_writable) {
                return false;
            }
            if mapping.end > at {
                at = mapping.end;
            }
            if at >= end {
                return true;
            }
        }
        at >= end
    }
}

/// Whether there is the query: tried on address 0, where nothing may be.
pub(crate) fn has_query() -> bool {
    let own = MapQuery::open(std::process::id() as i32);
    own.is_ok_and(|own| own.end_of(0, 0).is_ok())
}

/// Reads and parses the mappings of a process.
pub fn read(pid: i32) -> Result<Vec<Mapping>> {
    read_in_order(&format!("/proc/{pid}/maps"), parse)
}

/// Looks at a process that runs, until one finds nothing changed meanwhile.
const LOOKS_MAX: usize = 64;

/// Reads one of these files until it is of one piece.
///
/// The kernel writes it page by page, and goes on behind the last mapping that it has written. If
/// that has been joined with the next one by then, the whole is written, from where it begins: the
/// same memory twice (m_start and m_next in fs/proc/task_mmu.c).
pub(super) fn read_in_order(
    path: &str,
    parse: impl Fn(&[u8]) -> Option<Vec<Mapping>>,
) -> Result<Vec<Mapping>> {
    for _ in 0..LOOKS_MAX {
        let text =
            std::fs::read(path).map_err(|source| super::failed(format!("read {path}"), source))?;
        let maps = parse(&text)
            .ok_or_else(|| KernelError::errno(format!("parse {path}"), libc::EINVAL))?;
        if maps.is_sorted_by(|one, next| one.end <= next.start) {
            return Ok(maps);
        }
    }
    Err(KernelError::errno(format!("read {path}, which changes all the time"), libc::EAGAIN))
}

/// Where the vDSO lies; empty if there is none.
pub fn vdso(maps: &[Mapping]) -> Range<u64> {
    maps.iter().find(|m| m.name == b"[vdso]").map_or(0..0, |m| m.start..m.end)
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
        flags: Flags::default(),
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
    fn memory_that_is_told_twice_is_asked_for_again() {
        let asked = std::cell::Cell::new(0);
        let joined = b"1000-3000 rw-p 0 00:00 0 \n1000-5000 rw-p 0 00:00 0 \n";
        let whole = b"1000-5000 rw-p 0 00:00 0 \n";
        let maps = read_in_order("/proc/self/maps", |_| {
            asked.set(asked.get() + 1);
            parse(if asked.get() < 3 { joined } else { whole })
        });
        assert_eq!((maps.unwrap().len(), asked.get()), (1, 3));
        let never = read_in_order("/proc/self/maps", |_| parse(joined)).unwrap_err();
        assert_eq!(never.source.raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn own_mappings_parse() {
        let maps = read(std::process::id() as i32).unwrap();
        assert!(maps.iter().any(|m| m.name == b"[stack]" && m.is_writable));
        assert!(maps.iter().any(|m| m.is_executable && m.inode != 0));
        assert!(maps.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn writable_ranges_are_told_from_others() {
        let map = crate::shared::test_support::anonymous(4 * 4096);
        let base = map.as_ptr() as u64;
        let query = MapQuery::open(std::process::id() as i32).unwrap();
        let code = kernel_text_address();
        for is_writable in [MapQuery::is_writable, MapQuery::is_writable_by_text] {
            assert!(is_writable(&query, base, base + 4 * 4096));
            assert!(is_writable(&query, base + 5, base + 6));
            assert!(!is_writable(&query, code, code + 1));
            assert!(!is_writable(&query, 0x10, 0x20));
        }
    }

    /// An address inside this program's read-only code.
    fn kernel_text_address() -> u64 {
        read as *const () as u64
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
    fn lines_are_as_the_kernel_writes_them() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let lines: Vec<Vec<u8>> = parse(&text).unwrap().iter().map(Mapping::line).collect();
        assert_eq!(String::from_utf8_lossy(&lines.concat()), String::from_utf8_lossy(&text));
        let odd =
            b"00007f00-00008f00 r--s 00001000 fe:10 42                 /a b\\012c (deleted)\n";
        let padded = String::from_utf8_lossy(odd).replacen(" /a", &format!("{:>26}/a", ""), 1);
        let line = parse(padded.as_bytes()).unwrap()[0].line();
        assert_eq!(parse(&line).unwrap(), parse(padded.as_bytes()).unwrap());
        assert_eq!(line.iter().position(|byte| *byte == b'/'), Some(NAME_COLUMN));
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(parse(b"zz-10 rwxp 0 00:00 0 \n"), None);
        assert_eq!(parse(b"20-10 rwxp 0 00:00 0 \n"), None);
        assert_eq!(parse(b"10-20\n"), None);
    }
}
