//! `/proc/sysvipc/shm`: System V shared memory of our IPC namespace, and who has had to do with it.

use crate::{KernelError, Result};
use std::io;

/// What changes whenever a process attaches such memory, is forked with it, or gives it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachments {
    /// How often it is attached.
    count: u64,
    /// The last process that did something of this.
    last_pid: i32,
    /// When it was attached last; seconds since the epoch.
    attached_at: i64,
}

impl Attachments {
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Of the piece with this id, which `/proc/PID/maps` shows as its inode; None if there is none.
///
/// # Errors
/// The list cannot be read.
pub fn attachments(id: u64) -> Result<Option<Attachments>> {
    let text = std::fs::read_to_string("/proc/sysvipc/shm");
    let failed = |source: io::Error| KernelError { what: "list shared memory".into(), source };
    Ok(text.map_err(failed)?.lines().skip(1).find_map(|line| parse(line, id)))
}

/// A line: key, shmid, perms, size, cpid, lpid, nattch, uid, gid, cuid, cgid, atime and more
/// (`sysvipc_shm_proc_show` in ipc/shm.c).
fn parse(line: &str, id: u64) -> Option<Attachments> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.get(1)?.parse() != Ok(id) {
        return None;
    }
    Some(Attachments {
        last_pid: words.get(5)?.parse().ok()?,
        count: words.get(6)?.parse().ok()?,
        attached_at: words.get(11)?.parse().ok()?,
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_line_of_a_piece_is_found_by_its_id() {
        let line = "  39009  32770 600  56 71234 71299 6 104 112 104 112 1790 1789 1788 4096 0";
        let found = Attachments { count: 6, last_pid: 71299, attached_at: 1790 };
        assert_eq!(parse(line, 32770), Some(found));
        assert_eq!(parse(line, 39009), None, "its key");
        assert_eq!(parse("key shmid", 32770), None);
    }
}
