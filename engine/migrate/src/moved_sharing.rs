//! Shared memory that the guest has moved while it was away, for which home has to map it again.

use crate::homeward::{Change, filling_protection};
use crate::worker::Worker;
use crate::{MigrateError, Result, layout};
use kernel::agent::BatchCall;

/// Maps shared memory where it is wanted, too, by way of free room: one may be wanted where another
/// lies.
pub fn share(worker: Worker<'_>, changes: &[Change]) -> Result<()> {
    let shares = changes.iter().filter_map(|change| match change {
        Change::Share(range, address, mapping) => Some((range, *address, mapping)),
        _ => None,
    });
    let total: u64 = shares.clone().map(|(range, ..)| range.end - range.start).sum();
    if total == 0 {
        return Ok(());
    }
    let here = kernel::proc::maps::read(worker.tid)?;
    let wanted = changes.iter().filter_map(Change::replaced).cloned();
    let Some(mut room) = layout::room(layout::ranges(&here).chain(wanted), total) else {
        return Err(MigrateError::refused("no-room", "its address space is full"));
    };
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let remap = |from: u64, old: u64, length: u64, to: u64| {
        BatchCall::new(libc::SYS_mremap, [from, old, length, flags, to, 0])
    };
    let (mut copies, mut moves) = (vec![], vec![]);
    for (range, address, mapping) in shares {
        let length = range.end - range.start;
        // No old length: the kernel leaves it where it is (mremap(2)).
        copies.push(remap(address, 0, length, room));
        moves.push(remap(room, length, length, range.start));
        let protection = u64::from(filling_protection(mapping));
        let arguments = [range.start, length, protection, 0, 0, 0];
        moves.push(BatchCall::new(libc::SYS_mprotect, arguments));
        room += length;
    }
    copies.extend(moves);
    worker.execute_all("restore shared memory", &copies)
}
