//! The processors of this machine, as programs see them.

use crate::{Result, features, sys};
use std::ops::Range;

/// What CPUID answers for a leaf and a subleaf: eax, ebx, ecx, edx.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let answer = std::arch::x86_64::__cpuid_count(leaf, subleaf);
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

const OSXSAVE: u32 = 1 << 27;
/// x87 and SSE, which all kernels keep.
const LEAST: u64 = 0b11;

/// The registers that the kernel keeps for programs (XCR0).
pub fn kept_registers() -> u64 {
    if cpuid(1, 0)[2] & OSXSAVE == 0 {
        return LEAST;
    }
    // SAFETY: the instruction is there, because the kernel has said so by OSXSAVE; it reads a
    // register that every program may read, and nothing else.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

/// The second word of what the kernel has enabled for programs (AT_HWCAP2).
pub fn hwcap2() -> u32 {
    // SAFETY: takes an integer and reads what the kernel gave this process when it started.
    unsafe { libc::getauxval(libc::AT_HWCAP2) as u32 }
}

/// The ids that processors of this machine can have, those that are not there now included: what
/// programs size their tables for (`_SC_NPROCESSORS_CONF`).
pub fn possible() -> Range<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let end = end_of_list(&text).unwrap_or(1);
    0..features::settled().processors_end().map_or(end, |limit| end.min(limit))
}

/// The ids that NUMA nodes of this machine can have.
pub fn possible_nodes() -> Range<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/node/possible").unwrap_or_default();
    0..end_of_list(&text).unwrap_or(1)
}

/// The NUMA node that a processor belongs to.
pub fn node_of(processor: u32) -> u32 {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{processor}"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    names.filter_map(node).next().unwrap_or(0)
}

/// Room for the most processors that Linux can have (NR_CPUS).
const MASK_WORDS: usize = 8192 / 64;

/// The processors that a thread may run on.
pub fn allowed(tid: i32) -> Result<Vec<u32>> {
    let mut mask = [0u64; MASK_WORDS];
    let place = (&raw mut mask) as u64;
    let arguments = [tid as u64, size_of_val(&mask) as u64, place, 0, 0, 0];
    // SAFETY: the pointer is to a live local of the size that is told with it.
    unsafe { sys::call("read affinity", libc::SYS_sched_getaffinity, arguments) }?;
    let ids = 0..MASK_WORDS as u32 * 64;
    Ok(ids.filter(|id| mask[*id as usize / 64] & 1 << (id % 64) != 0).collect())
}

/// Lets a thread run on these processors only.
pub fn allow(tid: i32, processors: &[u32]) -> Result<()> {
    let mut mask = [0u64; MASK_WORDS];
    for id in processors.iter().filter(|id| (**id as usize) < MASK_WORDS * 64) {
        mask[*id as usize / 64] |= 1 << (id % 64);
    }
    let place = (&raw const mask) as u64;
    let arguments = [tid as u64, size_of_val(&mask) as u64, place, 0, 0, 0];
    // SAFETY: the pointer is to a live local of the size that is told with it.
    unsafe { sys::call("set affinity", libc::SYS_sched_setaffinity, arguments) }.map(drop)
}

/// One more than the last number of a list as the kernel writes them: `0-3,8`.
fn end_of_list(text: &str) -> Option<u32> {
    let last = text.trim().split([',', '-']).next_back()?;
    last.parse::<u32>().ok()?.checked_add(1)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lists_of_processors_end_behind_their_last() {
        for (text, end) in [("0\n", 1), ("0-1\n", 2), ("0-3,8-15", 16), ("0,2", 3)] {
            assert_eq!(end_of_list(text), Some(end), "{text}");
        }
        assert_eq!(end_of_list(""), None);
    }

    #[test]
    fn a_thread_runs_where_it_is_allowed_to() {
        std::thread::spawn(|| {
            let all = allowed(0).unwrap();
            assert!(all.iter().all(|id| possible().contains(id)));
            assert!(possible_nodes().contains(&node_of(all[0])));
            allow(0, &all[..1]).unwrap();
            assert_eq!(allowed(0).unwrap(), all[..1]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn this_machine_keeps_sse_and_has_a_processor() {
        assert_eq!(kept_registers() & LEAST, LEAST);
        assert!(!possible().is_empty());
        let has_avx = cpuid(1, 0)[2] & 1 << 28 != 0;
        assert!(!has_avx || kept_registers() & 4 != 0, "AVX is only shown where it is kept");
    }
}
