//! Programs that ask which processor they run on.
//!
//! Allocators and counters keep a table with a place for each processor of the machine that they
//! were started on, and look up theirs by `sched_getcpu`, `getcpu`, or in the area that the kernel
//! keeps up to date (rseq(2)). On a machine with more processors the number can lie behind the end
//! of the table. So the body of such a program runs only on processors whose ids, and whose NUMA
//! nodes' ids, are ones that home can have; then every number that it can be told fits, the compact
//! ids of rseq included, of which there are no more than processors that it may use.
//!
//! Whether a program asks is told by the names in its files. All glibc programs have an area of the
//! kernel's, but it is the library's own affair unless something else refers to it. What is loaded
//! by a name that is put together at run time is not seen.

use crate::backing::Library;
use crate::threads::Stopped;
use crate::{MigrateError, Result, hashes};
use kernel::processor;
use memchr::memmem::Finder;
use std::fs::File;
use std::os::unix::fs::FileExt;
use wire::image::ProcessorIds;

/// What a file contains that asks, or lets others ask: `sched_getcpu`, `__vdso_getcpu`, `getcpu`;
/// `__rseq_offset` of glibc, `__rseq_abi` of others.
const NAMES: [&[u8]; 2] = [b"getcpu", b"__rseq"];
/// Libraries that have these names to offer them.
const OFFERERS: [&str; 7] =
    ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", "ld-musl", "libc.musl"];
const PART_BYTES: usize = 1 << 20;
/// Of one file; in what is behind it, nobody looks.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// A library's own area lies with what else it keeps for a thread, where FS points.
const OWN_AREA_BYTES: u64 = 64 << 10;

/// Whether a mapped file refers to the number of a processor.
pub fn is_asked_by(library: &Library) -> bool {
    let mut files = library.files();
    files.any(|(backing, file)| {
        let asks = || hashes::once(&backing.hash, "getcpu", || contains_name(file));
        !is_offerer(&backing.path) && asks().unwrap_or(true)
    })
}

fn is_offerer(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    OFFERERS.iter().any(|offerer| name.starts_with(offerer.as_bytes()))
}

fn contains_name(file: &File) -> std::io::Result<bool> {
    let finders = NAMES.map(Finder::new);
    let overlap = NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut part = vec![0; PART_BYTES];
    let mut at = 0;
    while at < FILE_BYTES_MAX {
        let count = file.read_at(&mut part, at)?;
        if finders.iter().any(|finder| finder.find(&part[..count]).is_some()) {
            return Ok(true);
        }
        if count <= overlap {
            return Ok(false);
        }
        at += (count - overlap) as u64;
    }
    Ok(true)
}

/// Whether a thread has an area of rseq(2) that is not the C library's, or is inside a `sequence`.
pub fn uses_rseq(stopped: &Stopped, sequence: u64) -> bool {
    let Some(rseq) = stopped.rseq else { return false };
    let is_own = rseq.address.abs_diff(stopped.registers.fs_base) > OWN_AREA_BYTES;
    is_own || sequence != 0
}

/// The ids that programs of this machine have room for.
pub fn own() -> ProcessorIds {
    ProcessorIds { end: processor::possible().end, nodes_end: processor::possible_nodes().end }
}

/// Keeps a new body's threads to processors with such ids.
///
/// # Errors
/// Refused, if there is none that they may use.
pub fn bind(threads: impl IntoIterator<Item = i32>, ids: ProcessorIds) -> Result<()> {
    for tid in threads {
        let allowed = processor::allowed(tid)?;
        let fitting = fitting(&allowed, ids, processor::node_of);
        if fitting.is_empty() {
            let text = format!(
                "its program asks for its processor's number and has room for {}, and the node \
                 gives it none with such a number",
                ids.end
            );
            return Err(MigrateError::refused("processor-ids", text));
        }
        if fitting != allowed {
            processor::allow(tid, &fitting)?;
        }
    }
    Ok(())
}

fn fitting(allowed: &[u32], ids: ProcessorIds, node_of: impl Fn(u32) -> u32) -> Vec<u32> {
    let fits = |id: &u32| *id < ids.end && node_of(*id) < ids.nodes_end;
    allowed.iter().copied().filter(fits).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::Write;

    #[test]
    fn names_are_found_wherever_they_lie_in_a_file() {
        let path = std::env::temp_dir().join(format!("names-{}", std::process::id()));
        let mut file =
            File::options().create(true).truncate(true).write(true).read(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&vec![b'g'; PART_BYTES - 3]).unwrap();
        assert!(!contains_name(&file).unwrap());
        // Across the border of two parts.
        file.write_all(b"getcpu, and so on").unwrap();
        assert!(contains_name(&file).unwrap());
    }

    #[test]
    fn the_c_library_offers_and_does_not_ask() {
        for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"] {
            assert!(is_offerer(path.as_bytes()), "{path}");
        }
        assert!(!is_offerer(b"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"));
        assert!(!is_offerer(b"/opt/libc.so.6/bin/program"));
    }

    #[test]
    fn processors_that_home_cannot_have_and_those_of_its_missing_nodes_do_not_fit() {
        let ids = ProcessorIds { end: 4, nodes_end: 1 };
        // Odd ones belong to a second node.
        assert_eq!(fitting(&[0, 1, 2, 3, 4, 6], ids, |id| id % 2), [0, 2]);
        assert_eq!(fitting(&[4, 5], ids, |_| 0), []);
    }
}
