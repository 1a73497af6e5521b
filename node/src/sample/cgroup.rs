//! What control groups, versions 1 and 2, leave a node: the tightest limit on the way up to the
//! root holds.

use super::Memory;
use kernel::proc::cgroup::{Mounts, Place};
use std::fs;
use std::path::PathBuf;

/// The directories given, or else those that this process is in.
pub fn places(given: &[PathBuf]) -> Vec<Place> {
    let mounts = Mounts::read();
    match given {
        [] => mounts.places_of("self"),
        given => given.iter().map(|dir| mounts.place_at(dir)).collect(),
    }
}

/// The tightest CPU quota in whole or part CPUs; None if there is none.
pub fn read_cpu_quota(places: &[Place]) -> Option<f64> {
    let quotas = places.iter().filter(|place| place.has("cpu")).filter_map(Place::cpu_quota);
    quotas.reduce(f64::min)
}

/// The tightest memory limit and what is left of it.
pub fn read_memory(places: &[Place]) -> Option<Memory> {
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
    fn file_cache_counts_as_free_memory() {
        let root = tempfile::tempdir().unwrap();
        let (dir, controllers) = (root.path().to_owned(), "memory".to_owned());
        let places = [Place { root: dir.clone(), dir, controllers, is_shown: true }];
        fs::write(root.path().join("memory.limit_in_bytes"), "1000\n").unwrap();
        fs::write(root.path().join("memory.usage_in_bytes"), "600\n").unwrap();
        fs::write(root.path().join("memory.stat"), "cache 1\ntotal_inactive_file 100\n").unwrap();
        let memory = Memory { total_bytes: 1000, free_bytes: 500 };
        assert_eq!(read_memory(&places), Some(memory));
    }
}
