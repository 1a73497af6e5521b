//! Who is bound to whom by shared memory: whoever has such memory stays home until the whole group
//! can move together ([decision 0034](../../../docs/decisions/0034-groups-that-share-memory.md)).

use crate::held::Held;
use crate::{MigrateError, Result, layout, sharing};
use kernel::proc::maps::Mapping;
use kernel::proc::pagemap::Run;
use kernel::proc::process;
use std::collections::{BTreeMap, BTreeSet};
use wire::limits::SHARED_MEMORY_MAX;
use wire::memory_group::BOUND;

/// A piece of shared memory, as the kernel knows it: device and inode.
type Segment = (u64, u64);

/// How many members a text names.
const NAMED_MAX: usize = 8;

/// The process and all that it shares memory with, in any number of steps, by number. Those that do
/// not let us see what they have mapped are missing.
pub fn of(pid: i32) -> Result<BTreeSet<i32>> {
    let mut segments = BTreeMap::new();
    for pid in process::all()? {
        // One that ends meanwhile shares nothing any more.
        let maps = sharing::read_maps(pid).unwrap_or_default();
        let shared = maps.iter().filter(|m| layout::is_shared_anonymous(m));
        segments.insert(pid, shared.map(|m| (m.device, m.inode)).collect());
    }
    Ok(closure(pid, &segments))
}

/// The memory that these processes share, each as large as the most that one of them has mapped.
/// What one of them has for itself is among it.
///
/// # Errors
/// Refused if it is too much, or one of them has ended.
pub fn memory(members: &BTreeSet<i32>) -> Result<Vec<wire::memory_group::Segment>> {
    let mut bytes: BTreeMap<Segment, u64> = BTreeMap::new();
    for pid in members {
        for mapping in sharing::read_maps(*pid)?.iter().filter(|m| layout::is_shared_anonymous(m)) {
            let most = bytes.entry((mapping.device, mapping.inode)).or_default();
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
    let segment = |((device, inode), bytes)| wire::memory_group::Segment { device, inode, bytes };
    Ok(bytes.into_iter().map(segment).collect())
}

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

fn closure(pid: i32, segments: &BTreeMap<i32, BTreeSet<Segment>>) -> BTreeSet<i32> {
    let mut owners: BTreeMap<Segment, Vec<i32>> = BTreeMap::new();
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

    #[test]
    fn a_group_is_everybody_who_shares_in_any_number_of_steps() {
        let of = |segments: &[u64]| segments.iter().map(|inode| (1, *inode)).collect();
        let all: BTreeMap<i32, BTreeSet<Segment>> = [
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
        let other_device = [(10, of(&[1])), (11, BTreeSet::from([(2, 1)]))].into();
        assert_eq!(closure(10, &other_device), BTreeSet::from([10]));
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
