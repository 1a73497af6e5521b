//! The way back: what a call wrote, from the staging area into guest memory.

use super::stage::{Derived, lay_out, validate};
use crate::forward::{Call, Direction, Output, Place, Segment, Yield};
use crate::ids::GuestAddr;

/// Why a reply is not applied. An honest deputy never causes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("reply names segment {0}, which the call does not write")]
    NotWritten(u16),
    #[error("reply has {given} bytes for segment {segment} of {length}")]
    TooLong { segment: u16, given: usize, length: u32 },
}

/// What a staged call with this result wrote: `staging` is the staging area after the call. The
/// call must have passed [`super::stage`]; of any other, nothing is collected.
pub fn collect(call: &Call, result: i64, staging: &[u8]) -> Vec<Output> {
    let Ok(Derived { dangling, .. }) = validate(call) else { return Vec::new() };
    let (offsets, _) = lay_out(&call.segments);
    let area = Area { offsets: &offsets, segments: &call.segments, staging };
    let mut rest = u64::try_from(result).unwrap_or(0);
    let mut outputs = Vec::new();
    for (index, segment) in call.segments.iter().enumerate() {
        if segment.direction == Direction::In {
            continue;
        }
        let length = filled(segment, result, &mut rest, &area);
        let bytes = area.segment(index).get(..length).unwrap_or(&[]);
        if !bytes.is_empty() {
            outputs.push(Output { segment: index as u16, data: bytes.to_vec() });
        }
    }
    restore_pointers(call, &dangling, &mut outputs);
    outputs
}

/// The guest memory that a reply changes.
pub fn apply<'a>(
    segments: &[Segment],
    outputs: &'a [Output],
) -> Result<Vec<(GuestAddr, &'a [u8])>, ApplyError> {
    outputs
        .iter()
        .map(|output| {
            let segment = segments
                .get(usize::from(output.segment))
                .filter(|segment| segment.direction != Direction::In)
                .ok_or(ApplyError::NotWritten(output.segment))?;
            let given = output.data.len();
            if given > segment.length as usize {
                let length = segment.length;
                return Err(ApplyError::TooLong { segment: output.segment, given, length });
            }
            Ok((segment.guest, output.data.as_slice()))
        })
        .collect()
}

struct Area<'a> {
    offsets: &'a [u64],
    segments: &'a [Segment],
    staging: &'a [u8],
}

impl<'a> Area<'a> {
    fn segment(&self, index: usize) -> &'a [u8] {
        let Some((offset, segment)) = self.offsets.get(index).zip(self.segments.get(index)) else {
            return &[];
        };
        let start = *offset as usize;
        self.staging.get(start..start + segment.length as usize).unwrap_or(&[])
    }

    fn count(&self, segment: u16, offset: u32) -> usize {
        let offset = offset as usize;
        self.segment(usize::from(segment))
            .get(offset..offset + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
    }
}

/// How much of a segment to send back. `rest` is what is left of the result for later parts.
fn filled(segment: &Segment, result: i64, rest: &mut u64, area: &Area<'_>) -> usize {
    let length = segment.length as usize;
    if segment.yields == Yield::Always {
        return length;
    }
    let Ok(result) = u64::try_from(result) else { return 0 };
    let up_to = |bytes: u64| usize::try_from(bytes).unwrap_or(length).min(length);
    match segment.yields {
        Yield::Whole | Yield::Always => length,
        Yield::ResultUnits(unit) => up_to(result.saturating_mul(u64::from(unit))),
        Yield::ResultAfter(head) => up_to(result.saturating_add(u64::from(head))),
        Yield::Result | Yield::ResultRest => {
            let taken = up_to(*rest);
            *rest -= taken as u64;
            taken
        }
        Yield::Counted { segment, offset } => area.count(segment, offset).min(length),
    }
}

/// A message header goes back with the guest's pointers, not the deputy's.
fn restore_pointers(call: &Call, dangling: &[Place], outputs: &mut [Output]) {
    let places = call.segments.iter().map(|segment| &segment.place).chain(dangling);
    for place in places {
        let Place::Pointer { segment, offset } = *place else { continue };
        let original = &call.segments[usize::from(segment)].data;
        let field = offset as usize..offset as usize + 8;
        let Ok(found) = outputs.binary_search_by_key(&segment, |output| output.segment) else {
            continue;
        };
        if let Some(bytes) = outputs[found].data.get_mut(field.clone()) {
            bytes.copy_from_slice(&original[field]);
        }
    }
}
