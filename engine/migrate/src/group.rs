//! Who is bound to whom by shared memory: whoever has such memory stays home until the whole group
//! can move together ([decision 0034](../../../docs/decisions/0034-groups-that-share-memory.md)).

use crate::held::Held;
use crate::{MigrateError, Result, files, layout, sharing};
use kernel::proc::holes;
use kernel::proc::maps::Mapping;
use kernel::proc::pagemap::Run;
use kernel::proc::process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use wire::image;
use wire::limits::SHARED_MEMORY_MAX;
use wire::memory_group::{BOUND, MemoryId, Segment};

/// How many members a text names.
const NAMED_MAX: usize = 8;

pub fn id_of(mapping: &Mapping) -> MemoryId {
    MemoryId { device: mapping.device, inode: mapping.inode }
}

/// What binds a process to others, or may: those it leaves with, and what is not a file of its own
/// then but memory of them all.
#[derive(Clone, Debug, Default)]
pub struct Bonds {
    /// Nobody if it leaves alone.
    pub members: BTreeSet<i32>,
    named: BTreeSet<MemoryId>,
}

impl Bonds {
    /// Of a process with these mappings; `named` is what it shares with the other members and has a
    /// name or a descriptor.
    pub fn of(maps: &[Mapping], members: BTreeSet<i32>, named: &[MemoryId]) -> Bonds {
        let system_v = maps.iter().filter(|m| layout::is_system_v(m)).map(id_of);
        Bonds { members, named: system_v.chain(named.iter().copied()).collect() }
    }

    /// Of one that was made away: whoever has a file in memory for himself makes none there.
    pub fn of_child(maps: &[Mapping]) -> Bonds {
        let files = maps.iter().filter(|m| layout::is_memory_file(m)).map(id_of);
        Bonds::of(maps, BTreeSet::new(), &files.collect::<Vec<_>>())
    }

    /// Whether a mapping is shared memory, and not part of a file that it shares with nobody.
    pub fn has(&self, mapping: &Mapping) -> bool {
        layout::is_shared_anonymous(mapping) || self.is_named(mapping)
    }

    /// Whether it is such memory as others at home may map later, or can see.
    pub fn is_named(&self, mapping: &Mapping) -> bool {
        mapping.is_shared && self.named.contains(&id_of(mapping))
    }

    /// Whether what is mapped so is such memory.
    pub fn names(&self, mapping: &image::Mapping) -> bool {
        mapping.shared_place().is_some_and(|place| self.named.contains(&place.memory()))
    }

    /// What of a process's memory is there at home when nobody of the group has it mapped any more.
    /// It has a name, or one of them has a descriptor of it.
    ///
    /// # Errors
    /// One of them has ended.
    pub fn lasting(&self, pid: i32, maps: &[Mapping]) -> Result<Vec<MemoryId>> {
        let mut found = BTreeSet::new();
        let mut nameless = BTreeSet::new();
        for mapping in maps.iter().filter(|m| self.is_named(m)) {
            let is_gone = mapping.is_deleted() && !layout::is_system_v(mapping);
            if is_gone { &mut nameless } else { &mut found }.insert(id_of(mapping));
        }
        if !nameless.is_empty() {
            for member in self.members.iter().copied().chain([pid]) {
                found.extend(nameless.intersection(&opened_by(member)?));
            }
        }
        Ok(found.into_iter().collect())
    }
}

/// All that a process has descriptors of.
fn opened_by(pid: i32) -> Result<BTreeSet<MemoryId>> {
    let links = process::descriptor_numbers(pid)?.into_iter();
    let files = links.filter_map(|n| std::fs::metadata(format!("/proc/{pid}/fd/{n}")).ok());
    Ok(files.map(|file| MemoryId { device: file.dev(), inode: file.ino() }).collect())
}

/// What one process has mapped of shared memory.
#[derive(Default)]
struct Shares {
    all: BTreeSet<MemoryId>,
    /// What of that is a file in memory, and whether it can write to it.
    files: BTreeMap<MemoryId, bool>,
}

impl Shares {
    /// # Errors
    /// It does not let us see what it has mapped, or has ended.
    fn of(pid: i32) -> kernel::Result<Shares> {
        let mut shares = Shares::default();
        // Supervisors have the agents mapped of those whom they serve.
        if process::runs_our_program(pid) {
            return Ok(shares);
        }
        for mapping in sharing::read_maps(pid)? {
            let id = id_of(&mapping);
            if layout::is_memory_file(&mapping) {
                let may_write = files::may_write_to(pid, &mapping);
                *shares.files.entry(id).or_default() |= may_write;
            } else if layout::is_shared_anonymous(&mapping) || layout::is_system_v(&mapping) {
                shares.all.insert(id);
            }
        }
        Ok(shares)
    }
}

/// Who shares what with whom, of some processes.
///
/// A file in memory binds whoever has it mapped if two of them can write to it; with one writer it
/// is a file like others.
struct Ties {
    segments: BTreeMap<i32, BTreeSet<MemoryId>>,
    /// Files in memory that bind.
    files: BTreeSet<MemoryId>,
}

impl Ties {
    fn of(all: BTreeMap<i32, Shares>) -> Ties {
        let mut writers: BTreeMap<MemoryId, usize> = BTreeMap::new();
        for (id, _) in all.values().flat_map(|shares| &shares.files).filter(|(_, writes)| **writes)
        {
            *writers.entry(*id).or_default() += 1;
        }
        writers.retain(|_, count| *count > 1);
        let files: BTreeSet<MemoryId> = writers.into_keys().collect();
        let segments = all.into_iter().map(|(pid, shares)| {
            let binding = shares.files.into_keys().filter(|id| files.contains(id));
            (pid, shares.all.into_iter().chain(binding).collect())
        });
        Ties { segments: segments.collect(), files }
    }
}

/// The process and all that it shares memory with, in any number of steps, by number; and what of
/// that memory is a file in memory. Those that do not let us see what they have mapped are missing.
pub fn of(pid: i32) -> Result<(BTreeSet<i32>, Vec<MemoryId>)> {
    // One that ends meanwhile shares nothing any more.
    let all = process::all()?.into_iter().map(|pid| (pid, Shares::of(pid).unwrap_or_default()));
    let Ties { segments, files } = Ties::of(all.collect());
    let members = closure(pid, &segments);
    let theirs = members.iter().filter_map(|member| segments.get(member)).flatten();
    let named: BTreeSet<MemoryId> = theirs.copied().filter(|id| files.contains(id)).collect();
    Ok((members, named.into_iter().collect()))
}

/// Those of these processes who share memory with others of them, each group for itself. None if
/// one of them does not let us see what it has mapped.
pub fn among(processes: &BTreeSet<i32>) -> Option<Vec<BTreeSet<i32>>> {
    let mut all = BTreeMap::new();
    for pid in processes {
        match Shares::of(*pid) {
            Ok(shares) => drop(all.insert(*pid, shares)),
            Err(error) if error.is_gone() => {}
            Err(_) => return None,
        }
    }
    let segments = Ties::of(all).segments;
    let mut groups: Vec<BTreeSet<i32>> = vec![];
    for pid in processes {
        if !groups.iter().any(|group| group.contains(pid)) {
            groups.push(closure(*pid, &segments));
        }
    }
    groups.retain(|group| group.len() > 1);
    Some(groups)
}

/// Whether a process has memory in common with one of these, whatever that is made of.
pub fn shares_with(pid: i32, others: &[i32]) -> bool {
    let all = |pid| {
        let Shares { mut all, files } = Shares::of(pid).unwrap_or_default();
        all.extend(files.into_keys());
        all
    };
    let own = all(pid);
    !own.is_empty() && others.iter().any(|other| !own.is_disjoint(&all(*other)))
}

/// The memory that the members share, each as large as the most that one of them has mapped. What
/// one of them has for itself is among it.
///
/// # Errors
/// Refused if it is too much, or one of them has ended.
pub fn memory(bonds: &Bonds) -> Result<Vec<Segment>> {
    let mut bytes: BTreeMap<MemoryId, u64> = BTreeMap::new();
    for pid in &bonds.members {
        let is_memory = |m: &&Mapping| bonds.has(m) || layout::is_system_v(m);
        for mapping in sharing::read_maps(*pid)?.iter().filter(is_memory) {
            let most = bytes.entry(id_of(mapping)).or_default();
            *most = (*most).max(mapping.offset.saturating_add(mapping.length()));
        }
    }
    if bytes.len() > SHARED_MEMORY_MAX {
        let text = format!(
            "its group has {} pieces of shared memory (at most {SHARED_MEMORY_MAX})",
            bytes.len()
        );
        return Err(MigrateError::refused(BOUND, text));
    }
    let segment = |(MemoryId { device, inode }, bytes)| Segment { device, inode, bytes };
    Ok(bytes.into_iter().map(segment).collect())
}

/// The largest pieces of memory that these processes, of this user, may share, each open: who may
/// do so hands them to supervisors that may not ([`kernel::proc::holes`]). Nothing is handed over
/// that is another's.
pub fn memory_files(pids: &[i32], user: u32) -> Vec<File> {
    let mut found: BTreeMap<MemoryId, (u64, File)> = BTreeMap::new();
    for pid in pids.iter().take(OPENED_OF_MAX) {
        for mapping in sharing::read_maps(*pid).unwrap_or_default() {
            let is_memory = layout::is_shared_anonymous(&mapping)
                || layout::is_system_v(&mapping)
                || layout::is_memory_file(&mapping);
            let id = id_of(&mapping);
            if !is_memory || mapping.length() < OPENED_BYTES_MIN || found.contains_key(&id) {
                continue;
            }
            let opened = holes::open(*pid, &mapping);
            let is_his = |file: &File| file.metadata().is_ok_and(|it| it.uid() == user);
            if let Some(file) = opened.filter(is_his) {
                found.insert(id, (mapping.length(), file));
            }
        }
    }
    let mut files: Vec<(u64, File)> = found.into_values().collect();
    files.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    files.truncate(OPENED_MAX);
    files.into_iter().map(|(_, file)| file).collect()
}

/// What is smaller is read whole sooner than its holes are looked for.
const OPENED_BYTES_MIN: u64 = 1 << 20;
/// Pieces of memory that are opened, and processes that are looked at for them: all of a program's
/// processes mostly have the same.
const OPENED_MAX: usize = 8;
const OPENED_OF_MAX: usize = 8;

/// Which memory of a process those `before` it in its group have as well, and so bring where all of
/// them go, because each piece is brought by the first who has it. All of them stand still. What of
/// the process can be memory of the group, `is_shared` says.
///
/// # Errors
/// One of them has ended.
pub fn brought_by(
    before: impl Iterator<Item = i32>,
    mine: &[Mapping],
    is_shared: &dyn Fn(&Mapping) -> bool,
) -> Result<Held> {
    let mine: Vec<&Mapping> = mine.iter().filter(|m| is_shared(m)).collect();
    let bytes: u64 = mine.iter().map(|m| m.length()).sum();
    let mut brought = Held::default();
    for pid in before {
        if brought.bytes() == bytes {
            break;
        }
        let theirs = sharing::read_maps(pid)?;
        for mapping in &mine {
            let is_it = |m: &&Mapping| {
                m.is_shared && (m.device, m.inode) == (mapping.device, mapping.inode)
            };
            theirs
                .iter()
                .filter(is_it)
                .filter_map(|other| common(mapping, other))
                .for_each(|run| brought.add(run));
        }
    }
    Ok(brought)
}

/// Where the first of two mappings of the same memory has what the second has.
fn common(mine: &Mapping, other: &Mapping) -> Option<Run> {
    let end = |m: &Mapping| m.offset.saturating_add(m.length());
    let (from, to) = (mine.offset.max(other.offset), end(mine).min(end(other)));
    let address = |offset: u64| mine.start + (offset - mine.offset);
    (from < to).then(|| Run { start: address(from), end: address(to) })
}

fn closure(pid: i32, segments: &BTreeMap<i32, BTreeSet<MemoryId>>) -> BTreeSet<i32> {
    let mut owners: BTreeMap<MemoryId, Vec<i32>> = BTreeMap::new();
    for (pid, segments) in segments {
        segments.iter().for_each(|segment| owners.entry(*segment).or_default().push(*pid));
    }
    let mut members = BTreeSet::from([pid]);
    let mut next = vec![pid];
    while let Some(member) = next.pop() {
        let shared = segments.get(&member).into_iter().flatten();
        for other in shared.filter_map(|segment| owners.remove(segment)).flatten() {
            if members.insert(other) {
                next.push(other);
            }
        }
    }
    members
}

/// For people, after the text that names one of the others; nothing if there is no third.
pub fn description(members: &BTreeSet<i32>) -> String {
    if members.len() <= 2 {
        return String::new();
    }
    let named: Vec<String> = members.iter().take(NAMED_MAX).map(i32::to_string).collect();
    let rest = members.len() - named.len();
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    let (count, named) = (members.len(), named.join(", "));
    format!("; such memory binds {count} processes together: {named}{rest}")
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::layout::test::part;

    #[test]
    fn a_group_is_everybody_who_shares_in_any_number_of_steps() {
        let id = |device, inode| MemoryId { device, inode };
        let of = |segments: &[u64]| segments.iter().map(|inode| id(1, *inode)).collect();
        let all: BTreeMap<i32, BTreeSet<MemoryId>> = [
            (10, of(&[1])),
            (11, of(&[1, 2])),
            (12, of(&[2, 3])),
            (13, of(&[3])),
            (20, of(&[9])),
            (21, of(&[9])),
            (30, of(&[])),
            (31, of(&[])),
        ]
        .into();
        for member in 10..=13 {
            assert_eq!(closure(member, &all), (10..=13).collect());
        }
        assert_eq!(closure(20, &all), BTreeSet::from([20, 21]));
        assert_eq!(closure(30, &all), BTreeSet::from([30]), "nothing shared binds nobody");
        assert_eq!(closure(40, &all), BTreeSet::from([40]), "it has ended");
        let other_device = [(10, of(&[1])), (11, BTreeSet::from([id(2, 1)]))].into();
        assert_eq!(closure(10, &other_device), BTreeSet::from([10]));
    }

    fn mapping(start: u64, offset: u64, pages: u64) -> Mapping {
        let name = b"/dev/shm/it".to_vec();
        Mapping { end: start + pages * 4096, name, ..part(start, offset) }
    }

    #[test]
    fn what_another_brings_is_what_both_have_of_the_same_memory() {
        let mine = mapping(0x10_0000, 0x2000, 4);
        let run = |start, end| Some(Run { start, end });
        assert_eq!(common(&mine, &mapping(0, 0, 16)), run(0x10_0000, 0x10_4000), "all of it");
        assert_eq!(common(&mine, &mapping(0, 0x3000, 1)), run(0x10_1000, 0x10_2000));
        assert_eq!(common(&mine, &mapping(0, 0, 3)), run(0x10_0000, 0x10_1000));
        assert_eq!(common(&mine, &mapping(0, 0, 2)), None, "it ends where this begins");
        assert_eq!(common(&mine, &mapping(0, 0x6000, 2)), None);
    }

    #[test]
    fn a_file_in_memory_is_common_only_if_the_group_says_so() {
        let file = mapping(0, 0, 1);
        let alone = Bonds::of(std::slice::from_ref(&file), BTreeSet::new(), &[]);
        assert!(!alone.has(&file), "it is a file of its own");
        let bound = Bonds::of(&[], BTreeSet::from([1, 2]), &[id_of(&file)]);
        assert!(bound.has(&file) && bound.is_named(&file));
        let private = Mapping { is_shared: false, ..file.clone() };
        assert!(!bound.has(&private));
        let system_v = Mapping { name: b"/SYSV00000000 (deleted)".to_vec(), ..file.clone() };
        let attached = Bonds::of(std::slice::from_ref(&system_v), BTreeSet::new(), &[]);
        assert!(attached.is_named(&system_v), "others may attach it");
        let anonymous = Mapping { name: b"/dev/zero (deleted)".to_vec(), ..file };
        assert!(alone.has(&anonymous) && !alone.is_named(&anonymous));
    }

    #[test]
    fn a_large_group_is_described_in_one_line() {
        assert_eq!(description(&(1..=2).collect()), "");
        let text = description(&(1..=3).collect());
        assert_eq!(text, "; such memory binds 3 processes together: 1, 2, 3");
        let text = description(&(1..=1000).collect());
        assert!(text.ends_with("together: 1, 2, 3, 4, 5, 6, 7, 8 and 992 more"), "{text}");
    }
}
