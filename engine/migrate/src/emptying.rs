//! Memory that is made untouched again: because it lives elsewhere now, because what comes is
//! zeros, or because its contents are still to come.

use crate::Result;
use crate::worker::Worker;
use kernel::KernelError;
use kernel::agent::BatchCall;
use std::ops::Range;
use wire::image::{self, MappingKind, Span};

/// MADV_DONTNEED_LOCKED: as MADV_DONTNEED, and of locked memory, too, which stays locked.
const DISCARD: i32 = 24;

/// Calls that make private memory untouched again.
pub fn discard_calls(spans: &[Span]) -> Vec<BatchCall> {
    spans.iter().map(|span| advise(span, DISCARD)).collect()
}

/// Likewise memory of these mappings, of which some may be shared, and is untouched then for all
/// who have it.
pub fn discard_calls_in(spans: &[Span], mappings: &[image::Mapping]) -> Vec<BatchCall> {
    let advice = |(start, _): &Span| {
        let at = mappings.partition_point(|m| m.end <= *start);
        let mapping = mappings.get(at).filter(|m| m.start <= *start);
        let is_shared = mapping.is_some_and(image::Mapping::is_shared_anonymous);
        if is_shared { libc::MADV_REMOVE } else { DISCARD }
    };
    spans.iter().map(|span| advise(span, advice(span))).collect()
}

fn advise((start, end): &Span, advice: i32) -> BatchCall {
    BatchCall::new(libc::SYS_madvise, [start.0, end.0 - start.0, advice as u64, 0, 0, 0])
}

/// No memory at all, for [`empty`]: a range behind everything that starts where it ends.
pub const NOTHING: Range<u64> = image::USER_MEMORY_END..image::USER_MEMORY_END;

/// Drops the contents of all private memory, which lives elsewhere now; and of shared memory that
/// has no other user. Pages that touch `kept` stay, and so do files.
pub fn empty(worker: Worker<'_>, guest: &[image::Mapping], kept: &Range<u64>) -> Result<()> {
    let kept = kept.start & !4095..kept.end.next_multiple_of(4096);
    let mut calls = Vec::new();
    for mapping in guest {
        let advice = match mapping.kind {
            MappingKind::Kernel { .. } | MappingKind::SharedFile { .. } => continue,
            MappingKind::SharedAnonymous { .. } => libc::MADV_REMOVE,
            _ => DISCARD,
        };
        let (start, end) = (mapping.start.0, mapping.end.0);
        for piece in [start..end.min(kept.start), start.max(kept.end)..end] {
            if !piece.is_empty() {
                let arguments = [piece.start, piece.end - piece.start, advice as u64, 0, 0, 0];
                calls.push(BatchCall::new(libc::SYS_madvise, arguments));
            }
        }
    }
    // A shared mapping that is read-only here cannot be punched: it keeps its contents meanwhile.
    for (call, result) in calls.iter().zip(worker.execute(&calls)?) {
        if result < 0 && call.arguments[2] == DISCARD as u64 {
            return Err(KernelError {
                what: format!("empty memory at {:#x}", call.arguments[0]),
                source: std::io::Error::from_raw_os_error(-result as i32),
            }
            .into());
        }
    }
    Ok(())
}

/// Likewise of private memory alone: what is shared others may have, and brings all of its
/// contents.
pub fn empty_private(
    worker: Worker<'_>,
    guest: &[image::Mapping],
    kept: &Range<u64>,
) -> Result<()> {
    let private = guest.iter().filter(|mapping| !mapping.is_shared_anonymous());
    empty(worker, &private.cloned().collect::<Vec<_>>(), kept)
}
