//! The deputy's side: checks a received call against its own table and lays its memory out.
//!
//! The body may be hostile. The walk that made the segments is repeated over them here, and each
//! must be the one that this call has at this point; nothing of the body's description is used
//! unless it was derived again. What an honest body never sends, because it answers it by itself or
//! brings the process home for it, is refused here as well.

use super::table::{Class, classify};
use super::walk::{Source, Want, walk};
use super::{Arguments, BAD_POINTER, exec, process};
use crate::forward::{Call, Direction, Place, Segment, Yield};
use crate::ids::GuestAddr;
use crate::limits::{CALL_BYTES_MAX, CALL_SEGMENTS_MAX};
use std::borrow::Cow;

/// Segments start at multiples of this.
const ALIGNMENT: u64 = 16;
/// No staged call needs more room than this.
pub const STAGING_BYTES_MAX: usize = CALL_BYTES_MAX + CALL_SEGMENTS_MAX * ALIGNMENT as usize;

/// A call as the deputy executes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged<'a> {
    /// The arguments, pointers leading into the staging area.
    pub arguments: Arguments,
    /// What to write before the call: (offset in the staging area, bytes).
    pub writes: Vec<(u64, Cow<'a, [u8]>)>,
    /// Bytes of the staging area in use.
    pub size: u64,
}

/// Why a received call is not executed. An honest body never causes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    #[error("call {0} is not one that a body may forward with these arguments")]
    NotForwarded(u32),
    #[error("call {0} has to be made natively at home: {1}")]
    NeedsHome(u32, &'static str),
    #[error("call {0} has a pointer that leads nowhere, which the body answers by itself")]
    Dangling(u32),
    #[error("segment {0} is not what the call has there")]
    Mismatch(u16),
    #[error("{0} segments are more than the call has")]
    Surplus(usize),
    #[error("the call needs {needed} bytes of staging area and has {capacity}")]
    TooLarge { needed: u64, capacity: u64 },
}

/// Checks `call` and lays it out in a staging area of `capacity` bytes, mapped at `base` in the
/// deputy.
///
/// An emulated call is laid out like a forwarded one: whether the deputy executes it, and what else
/// it does, is decided there.
pub fn stage(call: &Call, base: u64, capacity: u64) -> Result<Staged<'_>, StageError> {
    let Derived { dangling, lists } = validate(call)?;
    let (offsets, size) = lay_out(&call.segments);
    if size > capacity || base.checked_add(size).is_none() {
        return Err(StageError::TooLarge { needed: size, capacity });
    }
    let mut staged =
        Staged { arguments: call.arguments, writes: Vec::with_capacity(call.segments.len()), size };
    // Which write holds each segment: results of calls are not written before.
    let mut write_of = vec![None; call.segments.len()];
    for (index, segment) in call.segments.iter().enumerate() {
        if let Some(bytes) = before_call(segment) {
            write_of[index] = Some(staged.writes.len());
            staged.writes.push((offsets[index], bytes));
        }
    }
    for list in lists.into_iter().map(usize::from) {
        if let Some(write) = write_of[list] {
            exec::relocate(staged.writes[write].1.to_mut(), base + offsets[list]);
        }
    }
    let pointers = call.segments.iter().zip(&offsets).map(|(s, offset)| (s.place, base + offset));
    for (place, pointer) in pointers.chain(dangling.iter().map(|&place| (place, BAD_POINTER))) {
        match place {
            Place::Argument(index) => staged.arguments[usize::from(index)] = pointer,
            Place::Pointer { segment, offset } => {
                if let Some(write) = write_of[usize::from(segment)] {
                    let offset = offset as usize;
                    let bytes = staged.writes[write].1.to_mut();
                    bytes[offset..offset + 8].copy_from_slice(&pointer.to_le_bytes());
                }
            }
        }
    }
    Ok(staged)
}

/// What a segment holds before the call. Structures are cleared first, so that no padding ever
/// carries what an earlier call left there; buffers that say how much was filled need not be.
fn before_call(segment: &Segment) -> Option<Cow<'_, [u8]>> {
    match segment.direction {
        Direction::In | Direction::InOut => Some(Cow::Borrowed(&segment.data)),
        Direction::Out => match segment.yields {
            Yield::Whole | Yield::Always | Yield::Counted { .. } => {
                Some(Cow::Owned(vec![0; segment.length as usize]))
            }
            Yield::Result | Yield::ResultUnits(_) | Yield::ResultRest | Yield::ResultAfter(_) => {
                None
            }
        },
    }
}

/// What the table derives for a call, besides the segments that it has.
pub(super) struct Derived {
    /// Places of pointers that lead nowhere.
    pub dangling: Vec<Place>,
    /// Segments that are lists of strings.
    lists: Vec<u16>,
}

/// Checks that the segments are exactly those that the table derives for this call.
pub(super) fn validate(call: &Call) -> Result<Derived, StageError> {
    let (form, is_emulated) = match classify(call.number, &call.arguments) {
        Class::Forward(form) => (form, false),
        Class::Emulate(emulation, form) if emulation.is_sent() => (form, true),
        Class::Emulate(..) | Class::Local | Class::Homecoming(_) => {
            return Err(StageError::NotForwarded(call.number));
        }
    };
    if call.segments.len() > CALL_SEGMENTS_MAX {
        return Err(StageError::Surplus(call.segments.len()));
    }
    let mut received = Received {
        segments: &call.segments,
        next: 0,
        bytes_left: CALL_BYTES_MAX as u64,
        derived: Derived { dangling: Vec::new(), lists: Vec::new() },
    };
    walk(form, &call.arguments, &mut received)?;
    if received.next < call.segments.len() {
        return Err(StageError::Surplus(call.segments.len() - received.next));
    }
    if is_emulated && !received.derived.dangling.is_empty() {
        return Err(StageError::Dangling(call.number));
    }
    match process::home_only_path(call.number, &call.arguments, &call.segments, None) {
        Some(word) => Err(StageError::NeedsHome(call.number, word)),
        None => Ok(received.derived),
    }
}

/// The offset of each segment in the staging area, and the whole size.
pub(super) fn lay_out(segments: &[Segment]) -> (Vec<u64>, u64) {
    let mut size = 0_u64;
    let offsets = segments
        .iter()
        .map(|segment| {
            let offset = size;
            size += u64::from(segment.length).next_multiple_of(ALIGNMENT);
            offset
        })
        .collect();
    (offsets, size)
}

struct Received<'a> {
    segments: &'a [Segment],
    next: usize,
    bytes_left: u64,
    derived: Derived,
}

impl<'a> Received<'a> {
    /// The next segment, if it is meant for this place. If not, the body found no memory there.
    fn at(&mut self, place: Place) -> Option<(u16, &'a Segment)> {
        let segment = self.segments.get(self.next).filter(|segment| segment.place == place)?;
        let index = self.next as u16;
        self.next += 1;
        Some((index, segment))
    }

    fn accept(&mut self, index: u16, segment: &Segment, want: &Want) -> Result<(), StageError> {
        let data_length = match segment.direction {
            Direction::In | Direction::InOut => u64::from(segment.length),
            Direction::Out => 0,
        };
        let is_wanted = segment.guest == want.guest
            && u64::from(segment.length) == want.length
            && segment.direction == want.direction
            && segment.yields == want.yields
            && segment.data.len() as u64 == data_length;
        let bytes_left = self.bytes_left.checked_sub(want.length);
        match bytes_left {
            Some(bytes_left) if is_wanted => {
                self.bytes_left = bytes_left;
                Ok(())
            }
            _ => Err(StageError::Mismatch(index)),
        }
    }
}

impl Source for Received<'_> {
    type Error = StageError;

    fn take(&mut self, want: Want) -> Result<Option<u16>, StageError> {
        let Some((index, segment)) = self.at(want.place) else { return Ok(None) };
        self.accept(index, segment, &want)?;
        Ok(Some(index))
    }

    fn text(
        &mut self,
        guest: GuestAddr,
        bytes_max: u32,
        place: Place,
    ) -> Result<Option<u16>, StageError> {
        let Some((index, segment)) = self.at(place) else { return Ok(None) };
        let end = segment.data.iter().position(|&byte| byte == 0);
        let length = match end {
            Some(end) => end as u64 + 1,
            None => u64::from(bytes_max),
        };
        if length > u64::from(bytes_max) {
            return Err(StageError::Mismatch(index));
        }
        let want = Want { guest, length, direction: Direction::In, place, yields: Yield::Whole };
        self.accept(index, segment, &want)?;
        Ok(Some(index))
    }

    fn strings(&mut self, guest: GuestAddr, place: Place) -> Result<Option<u16>, StageError> {
        let Some((index, segment)) = self.at(place) else { return Ok(None) };
        if !exec::is_list(&segment.data) {
            return Err(StageError::Mismatch(index));
        }
        let length = segment.data.len() as u64;
        let want = Want { guest, length, direction: Direction::In, place, yields: Yield::Whole };
        self.accept(index, segment, &want)?;
        self.derived.lists.push(index);
        Ok(Some(index))
    }

    fn bytes(&self, segment: u16) -> &[u8] {
        self.segments.get(usize::from(segment)).map_or(&[], |s| &s.data)
    }

    fn dangling(&mut self, place: Place) {
        self.derived.dangling.push(place);
    }
}
