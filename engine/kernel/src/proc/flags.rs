//! The flags of a memory mapping, as `VmFlags` in `/proc/PID/smaps` lists them (proc(5)).

use super::maps::{self, Mapping};
use crate::{Result, haste};

/// A set of those flags that say how a mapping was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    pub const GROWS_DOWN: Flags = Flags(1);
    pub const LOCKED: Flags = Flags(1 << 1);
    /// Memory of a device.
    pub const DEVICE: Flags = Flags(1 << 2);
    pub const SEQUENTIAL: Flags = Flags(1 << 3);
    pub const RANDOM: Flags = Flags(1 << 4);
    pub const NOT_FORKED: Flags = Flags(1 << 5);
    pub const WIPED_ON_FORK: Flags = Flags(1 << 6);
    pub const NOT_RESERVED: Flags = Flags(1 << 7);
    pub const HUGE_TABLE: Flags = Flags(1 << 8);
    pub const NOT_DUMPED: Flags = Flags(1 << 9);
    pub const HUGE_PAGES: Flags = Flags(1 << 10);
    pub const NO_HUGE_PAGES: Flags = Flags(1 << 11);
    pub const MERGEABLE: Flags = Flags(1 << 12);
    pub const SEALED: Flags = Flags(1 << 13);
    pub const DROPPABLE: Flags = Flags(1 << 14);
    /// With [`Flags::LOCKED`]: the pages that are there (MLOCK_ONFAULT).
    pub const LOCKED_ON_FAULT: Flags = Flags(1 << 15);

    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

const WORDS: [(&[u8], Flags); 16] = [
    (b"gd", Flags::GROWS_DOWN),
    (b"lo", Flags::LOCKED),
    (b"io", Flags::DEVICE),
    (b"sr", Flags::SEQUENTIAL),
    (b"rr", Flags::RANDOM),
    (b"dc", Flags::NOT_FORKED),
    (b"wf", Flags::WIPED_ON_FORK),
    (b"nr", Flags::NOT_RESERVED),
    (b"ht", Flags::HUGE_TABLE),
    (b"dd", Flags::NOT_DUMPED),
    (b"hg", Flags::HUGE_PAGES),
    (b"nh", Flags::NO_HUGE_PAGES),
    (b"mg", Flags::MERGEABLE),
    (b"sl", Flags::SEALED),
    (b"dp", Flags::DROPPABLE),
    (b"lf", Flags::LOCKED_ON_FAULT),
];

/// Reads the mappings of a process with their flags: the kernel counts its pages for that, which
/// takes some 30 ms for a gigabyte of small pages.
pub fn read_maps(pid: i32) -> Result<Vec<Mapping>> {
    maps::read_in_order(&format!("/proc/{pid}/smaps"), parse)
}

/// As [`read_maps`], of a process that runs: by a thread that does not come before it, whatever the
/// calling one does. The kernel counts the pages of a mapping in one piece, and where it gives up
/// its processor only to who comes first nothing else runs there until it has.
pub fn read_maps_aside(pid: i32) -> Result<Vec<Mapping>> {
    std::thread::scope(|scope| {
        let read = || {
            haste::stand_back();
            read_maps(pid)
        };
        match std::thread::Builder::new().spawn_scoped(scope, read).map(|reader| reader.join()) {
            Ok(Ok(maps)) => maps,
            // It could not begin.
            _ => read_maps(pid),
        }
    })
}

/// Reads the mappings of a process whose flags were read a moment ago: a mapping that has a part of
/// a known one, which is otherwise the same, is taken to have its flags. If there are others, all
/// are read again.
pub fn read_maps_again(pid: i32, known: &[Mapping]) -> Result<Vec<Mapping>> {
    let mut maps = maps::read(pid)?;
    match maps.iter_mut().all(|mapping| is_known(mapping, known)) {
        true => Ok(maps),
        false => read_maps(pid),
    }
}

/// Gives a mapping the flags of what it is a part of, or has parts of. Both are in order.
fn is_known(mapping: &mut Mapping, known: &[Mapping]) -> bool {
    let first = known.partition_point(|known| known.end <= mapping.start);
    let parts = || known[first..].iter().take_while(|known| known.start < mapping.end);
    let place = |m: &Mapping| m.start.wrapping_sub(m.offset);
    let is_like = |part: &Mapping| {
        (part.is_shared, part.device, part.inode, &part.name)
            == (mapping.is_shared, mapping.device, mapping.inode, &mapping.name)
            && (mapping.inode == 0 || place(part) == place(mapping))
    };
    let Some(flags) = parts().next().map(|part| part.flags) else { return false };
    if !parts().all(|part| part.flags == flags && is_like(part)) {
        return false;
    }
    mapping.flags = flags;
    true
}

/// Parses the whole file; None if it is not as the kernel writes it.
fn parse(text: &[u8]) -> Option<Vec<Mapping>> {
    let mut maps: Vec<Mapping> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        match (line.strip_prefix(b"VmFlags:"), line.first()) {
            (Some(words), _) => maps.last_mut()?.flags = flags(words),
            // What is told of a mapping begins with a capital, an address does not.
            (None, Some(first)) if !first.is_ascii_uppercase() => maps.extend(maps::parse(line)?),
            (None, _) => {}
        }
    }
    Some(maps)
}

fn flags(words: &[u8]) -> Flags {
    let known = |word: &[u8]| WORDS.iter().find(|(name, _)| *name == word).map(|(_, flag)| flag.0);
    Flags(words.split(|byte| *byte == b' ').filter_map(known).fold(0, |all, flag| all | flag))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn own_mappings_have_the_flags_that_were_asked_for() {
        let map = crate::shared::test_support::anonymous(4 * 4096);
        let start = map.as_ptr() as u64;
        map.advise(libc::MADV_DONTFORK);
        let maps = read_maps(std::process::id() as i32).unwrap();
        let plain = maps::read(std::process::id() as i32).unwrap();
        let own = maps.iter().find(|m| (m.start..m.end).contains(&start)).unwrap();
        assert!(own.flags.has(Flags::NOT_FORKED) && !own.flags.has(Flags::WIPED_ON_FORK));
        let stack = maps.iter().find(|m| m.name == b"[stack]").unwrap();
        assert!(stack.flags.has(Flags::GROWS_DOWN));
        assert!(plain.iter().any(|m| m.name == b"[stack]"));
        let aside = read_maps_aside(std::process::id() as i32).unwrap();
        let again = aside.iter().find(|m| (m.start..m.end).contains(&start)).unwrap();
        assert_eq!(again.flags, own.flags);
    }

    #[test]
    fn flags_are_taken_over_for_what_is_of_a_known_mapping() {
        let parse_one = |text: &str| parse(text.as_bytes()).unwrap().remove(0);
        let known = [
            parse_one("1000-4000 rw-p 0 00:00 0 \nVmFlags: dd"),
            parse_one("4000-6000 rw-p 0 00:00 0 \nVmFlags: nh"),
            parse_one("8000-9000 rw-p 1000 08:01 7 /file\nVmFlags: sr"),
        ];
        let flags = |text: &str| {
            let mut mapping = parse_one(text);
            is_known(&mut mapping, &known).then_some(mapping.flags)
        };
        assert_eq!(flags("2000-3000 r--p 0 00:00 0 "), Some(Flags::NOT_DUMPED), "a part");
        assert_eq!(flags("4000-7000 rw-p 0 00:00 0 "), Some(Flags::NO_HUGE_PAGES), "it has grown");
        assert_eq!(flags("3000-5000 rw-p 0 00:00 0 "), None, "of two");
        assert_eq!(flags("6000-7000 rw-p 0 00:00 0 "), None, "new");
        assert_eq!(flags("8000-9000 rw-p 1000 08:01 7 /file"), Some(Flags::SEQUENTIAL));
        assert_eq!(flags("8000-9000 rw-p 2000 08:01 7 /file"), None, "another part of the file");
        assert_eq!(flags("8000-9000 rw-p 0 00:00 0 "), None, "something else");
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(parse(b"VmFlags: rd\n"), None, "of no mapping");
        assert_eq!(parse(b"10-zz rw-p 0 00:00 0 \nVmFlags: rd\n"), None);
    }
}
