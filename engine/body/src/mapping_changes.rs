//! What a process has changed about its mappings since it was made, as calls that change those of
//! its maker in the same way ([`crate::vfork`]).

use kernel::proc::maps::Mapping;
use migrate::layout::is_anonymous;
use std::ops::Range;

/// A system call: number and arguments.
pub(crate) type MappingCall = (i64, [u64; 6]);

/// What has changed between two lists of private mappings, each in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) calls: Vec<MappingCall>,
    /// What is mapped now and was not, or was mapped as something else: all that is there is new.
    pub(crate) fresh: Vec<Range<u64>>,
    /// The program break is elsewhere, and brings the mappings about it along.
    pub(crate) moves_break: bool,
}

/// What has changed. None if something was mapped that is not plain private memory.
pub(crate) fn between(before: &[Mapping], now: &[Mapping]) -> Option<Changes> {
    let mut edges: Vec<u64> = before.iter().chain(now).flat_map(|m| [m.start, m.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let heap_end = |maps: &[Mapping]| maps.iter().filter(|m| is_heap(m)).map(|m| m.end).max();
    let heap_end = heap_end(now).unwrap_or(0);
    let mut changes = Changes::default();
    for edge in edges.windows(2) {
        let piece = edge[0]..edge[1];
        match (at(before, piece.start), at(now, piece.start)) {
            (Some(old), None) if is_heap(old) && piece.start >= heap_end => {
                changes.moves_break = true;
            }
            (Some(_), None) => changes.add(libc::SYS_munmap, &piece, 0),
            (Some(old), Some(new)) if is_same(old, new) => {
                if old.protection() != new.protection() {
                    changes.add(libc::SYS_mprotect, &piece, new.protection());
                }
            }
            // A stack grows by itself.
            (None, Some(new)) if new.name == b"[stack]" => changes.is_fresh(piece),
            (None, Some(new)) if is_heap(new) => {
                changes.moves_break = true;
                changes.is_fresh(piece);
            }
            (_, Some(new)) if is_anonymous(new) => {
                changes.add(libc::SYS_mmap, &piece, new.protection());
                changes.is_fresh(piece);
            }
            (_, Some(_)) => return None,
            (None, None) => {}
        }
    }
    Some(changes)
}

impl Changes {
    fn add(&mut self, number: i64, piece: &Range<u64>, protection: u32) {
        let (start, length) = (piece.start, piece.end - piece.start);
        let protection = u64::from(protection);
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let arguments = match number {
            libc::SYS_mmap => [start, length, protection, flags, u64::MAX, 0],
            _ => [start, length, protection, 0, 0, 0],
        };
        self.calls.push((number, arguments));
    }

    fn is_fresh(&mut self, piece: Range<u64>) {
        match self.fresh.last_mut() {
            Some(last) if last.end == piece.start => last.end = piece.end,
            _ => self.fresh.push(piece),
        }
    }
}

fn is_heap(mapping: &Mapping) -> bool {
    mapping.name == b"[heap]"
}

fn at(maps: &[Mapping], address: u64) -> Option<&Mapping> {
    let index = maps.partition_point(|m| m.end <= address);
    maps.get(index).filter(|m| m.start <= address)
}

/// Whether two mappings of one address show the same.
fn is_same(one: &Mapping, other: &Mapping) -> bool {
    let of_file = |m: &Mapping| (m.device, m.inode, m.offset.wrapping_sub(m.start));
    match (is_anonymous(one), is_anonymous(other)) {
        (true, true) => true,
        (false, false) => of_file(one) == of_file(other),
        _ => false,
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use kernel::proc::maps::parse;

    fn maps(text: &str) -> Vec<Mapping> {
        parse(text.as_bytes()).unwrap()
    }

    const BEFORE: &str = "\
        1000-4000 r--p 00000000 fe:00 7 /bin/it\n\
        5000-9000 rw-p 00000000 00:00 0 [heap]\n\
        20000-28000 rw-p 00000000 00:00 0 \n\
        70000-80000 rw-p 00000000 00:00 0 [stack]\n";

    #[test]
    fn nothing_is_to_be_done_where_nothing_has_changed_but_names_and_how_pieces_are_joined() {
        let pieces = "20000-24000 rw-p 00000000 00:00 0 \n24000-28000 rw-p";
        let now = BEFORE.replace("20000-28000 rw-p", pieces).replace("0 [heap]", "0 [anon:of it]");
        assert_eq!(between(&maps(BEFORE), &maps(&now)), Some(Changes::default()));
    }

    #[test]
    fn memory_that_was_made_given_up_and_protected_is_found() {
        let now = "\
            1000-4000 r--p 00000000 fe:00 7 /bin/it\n\
            5000-b000 rw-p 00000000 00:00 0 [heap]\n\
            21000-22000 r--p 00000000 00:00 0 \n\
            22000-28000 rw-p 00000000 00:00 0 \n\
            40000-41000 rw-p 00000000 00:00 0 \n\
            6f000-80000 rw-p 00000000 00:00 0 [stack]\n";
        let fixed = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let map = |start, length| (libc::SYS_mmap, [start, length, 3, fixed, u64::MAX, 0]);
        let changes = between(&maps(BEFORE), &maps(now)).unwrap();
        let expected = [
            (libc::SYS_munmap, [0x20000, 0x1000, 0, 0, 0, 0]),
            (libc::SYS_mprotect, [0x21000, 0x1000, 1, 0, 0, 0]),
            map(0x40000, 0x1000),
        ];
        assert_eq!(changes.calls, expected);
        assert_eq!(changes.fresh, [0x9000..0xb000, 0x40000..0x41000, 0x6f000..0x70000]);
        assert!(changes.moves_break);
    }

    #[test]
    fn a_heap_that_has_shrunk_moves_the_break_and_one_with_a_hole_does_not() {
        let now = BEFORE.replace("5000-9000", "5000-7000");
        let changes = between(&maps(BEFORE), &maps(&now));
        assert_eq!(changes, Some(Changes { moves_break: true, ..Changes::default() }));
        let rest = "5000-6000 rw-p 00000000 00:00 0 [heap]\n8000-9000";
        let changes = between(&maps(BEFORE), &maps(&BEFORE.replace("5000-9000", rest))).unwrap();
        assert_eq!(changes.calls, [(libc::SYS_munmap, [0x6000, 0x2000, 0, 0, 0, 0])]);
        assert!(!changes.moves_break);
        let none = BEFORE.replace("5000-9000 rw-p 00000000 00:00 0 [heap]\n", "");
        let changes = between(&maps(BEFORE), &maps(&none)).unwrap();
        assert!(changes.moves_break && changes.calls.is_empty());
    }

    #[test]
    fn memory_in_the_place_of_a_file_is_new_and_a_file_is_not_mapped() {
        let of_file = "00000000 fe:00 7 /bin/it";
        let anonymous = BEFORE.replace(of_file, "00000000 00:00 0 ");
        let changes = between(&maps(BEFORE), &maps(&anonymous)).unwrap();
        assert_eq!(changes.calls.len(), 1);
        assert_eq!(changes.fresh, vec![0x1000..0x4000]);
        assert_eq!(between(&maps(&anonymous), &maps(BEFORE)), None);
        let moved = BEFORE.replace("00000000 fe:00 7", "00001000 fe:00 7");
        assert_eq!(between(&maps(BEFORE), &maps(&moved)), None);
    }
}
