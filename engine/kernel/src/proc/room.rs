//! How much memory there is, and how much of it can be had: of the machine, or of the tightest
//! control group above a process (versions 1 and 2).

use super::cgroup::Place;
use std::fs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Of the machine, or of the control groups at these places if they leave less.
pub fn memory(places: &[Place]) -> Memory {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = parse_meminfo(&text);
    match of_groups(places) {
        Some(limit) if limit.total_bytes < machine.total_bytes => Memory {
            total_bytes: limit.total_bytes,
            free_bytes: limit.free_bytes.min(machine.free_bytes),
        },
        _ => machine,
    }
}

fn parse_meminfo(text: &str) -> Memory {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Memory {
        total_bytes: field("MemTotal:").unwrap_or(0) * 1024,
        free_bytes: field("MemAvailable:").unwrap_or(0) * 1024,
    }
}

/// The tightest memory limit and what is left of it: that on the way up to the root holds.
fn of_groups(places: &[Place]) -> Option<Memory> {
    let with_memory = places.iter().filter(|place| place.has("memory"));
    let limits = with_memory.flat_map(Place::upwards).filter_map(|dir| {
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
        };
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let total_bytes = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
        let used = used.saturating_sub(cached_bytes(&stat));
        Some(Memory { total_bytes, free_bytes: total_bytes.saturating_sub(used) })
    });
    limits.min_by_key(|memory| memory.free_bytes)
}

/// File pages that the kernel can drop at once are as good as free.
pub fn cached_bytes(stat: &str) -> u64 {
    let field = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    field("total_inactive_file ").or_else(|| field("inactive_file ")).unwrap_or(0)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn memory_that_can_be_had_without_paging_counts_as_free() {
        let text = "MemTotal:  2048 kB\nMemFree:  10 kB\nMemAvailable:  1024 kB\n";
        let memory = Memory { total_bytes: 2 << 20, free_bytes: 1 << 20 };
        assert_eq!(parse_meminfo(text), memory);
        assert_eq!(parse_meminfo("nonsense"), Memory { total_bytes: 0, free_bytes: 0 });
    }

    #[test]
    fn file_cache_counts_as_free_memory() {
        let root = tempfile::tempdir().unwrap();
        let (dir, controllers) = (root.path().to_owned(), "memory".to_owned());
        let places = [Place { root: dir.clone(), dir, controllers, is_shown: true }];
        fs::write(root.path().join("memory.limit_in_bytes"), "1000\n").unwrap();
        fs::write(root.path().join("memory.usage_in_bytes"), "600\n").unwrap();
        fs::write(root.path().join("memory.stat"), "cache 1\ntotal_inactive_file 100\n").unwrap();
        let memory = Memory { total_bytes: 1000, free_bytes: 500 };
        assert_eq!(of_groups(&places), Some(memory));
    }
}
