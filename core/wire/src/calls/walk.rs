//! The one interpreter of argument descriptions.
//!
//! It visits the memory of a call in a fixed order and asks a [`Source`] for each piece. The body's
//! source reads guest memory; the deputy's takes the next received segment and compares. What one
//! side would not produce the other does not accept, without a second set of rules.

use super::Arguments;
use super::argument::{Argument, Length};
use crate::forward::{Direction, Place, Yield};
use crate::ids::GuestAddr;

/// Linux's `UIO_MAXIOV`: parts of a vector, messages of a batch.
const PARTS_MAX: u64 = 1024;
/// `sizeof(struct sockaddr_storage)`: Linux cuts longer message names to it.
const NAME_BYTES_MAX: u64 = 128;
const IOVEC_BYTES: u64 = 16;
const MSGHDR_BYTES: u64 = 56;
const MMSGHDR_BYTES: u64 = 64;
/// `sizeof(sigset_t)` as the kernel means it.
const MASK_BYTES: u64 = 8;

/// One piece of memory that the call may touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub guest: GuestAddr,
    pub length: u64,
    pub direction: Direction,
    pub place: Place,
    pub yields: Yield,
}

pub(super) trait Source {
    type Error;

    /// The segment for these bytes; None if the memory is not there at all.
    fn take(&mut self, want: Want) -> Result<Option<u16>, Self::Error>;

    /// The segment for a C string; None if its memory is not there.
    fn text(
        &mut self,
        guest: GuestAddr,
        bytes_max: u32,
        place: Place,
    ) -> Result<Option<u16>, Self::Error>;

    /// The segment for a list of C strings; None if there is nothing where it begins.
    fn strings(&mut self, guest: GuestAddr, place: Place) -> Result<Option<u16>, Self::Error>;

    /// What an `In` or `InOut` segment of this walk holds.
    fn bytes(&self, segment: u16) -> &[u8];

    /// The pointer there is not NULL, but no segment stands behind it.
    fn dangling(&mut self, place: Place);
}

/// Visits all memory of a call.
pub(super) fn walk<S: Source>(
    form: &[Argument],
    arguments: &Arguments,
    source: &mut S,
) -> Result<(), S::Error> {
    Walk { arguments, source, staged: [None; 6] }.run(form)
}

struct Walk<'a, S> {
    arguments: &'a Arguments,
    source: &'a mut S,
    /// The segment of each argument that has one.
    staged: [Option<u16>; 6],
}

/// How the parts and fields of a message yield.
struct MessageYields {
    direction: Direction,
    name: Yield,
    parts: Yield,
    control: Yield,
}

impl<S: Source> Walk<'_, S> {
    fn run(mut self, form: &[Argument]) -> Result<(), S::Error> {
        // A stored length is known only once the argument that points to it has been visited.
        for stored in [false, true] {
            for (index, argument) in form.iter().enumerate() {
                let is_stored =
                    matches!(argument, Argument::Memory { length: Length::Stored { .. }, .. });
                if is_stored == stored {
                    self.argument(index as u8, argument)?;
                }
            }
        }
        Ok(())
    }

    fn argument(&mut self, index: u8, argument: &Argument) -> Result<(), S::Error> {
        let place = Place::Argument(index);
        let guest = self.register(index);
        match *argument {
            Argument::Value => {}
            Argument::Text(bytes_max) => {
                if guest != 0 {
                    let found = self.source.text(GuestAddr(guest), bytes_max, place)?;
                    self.note(index, place, found);
                }
            }
            Argument::Memory { length, direction, yields } => {
                let (length, yields) = self.measure(length, yields);
                self.staged[usize::from(index)] =
                    self.point(guest, length, direction, place, yields)?;
            }
            Argument::Vector { count, direction } => {
                let count = self.register(count);
                self.vector(guest, count, direction, place, Yield::ResultRest)?;
            }
            Argument::Message(direction) => self.message(guest, direction, place)?,
            Argument::Messages { count, direction } => {
                let count = u64::from(self.register(count) as u32).min(PARTS_MAX);
                self.messages(guest, count, direction, place)?;
            }
            Argument::Strings => {
                if guest != 0 {
                    let found = self.source.strings(GuestAddr(guest), place)?;
                    self.note(index, place, found);
                }
            }
            Argument::MaskPair => {
                let pair = self.point(guest, 16, Direction::In, place, Yield::Whole)?;
                if let Some(segment) = pair {
                    let mask = self.word(segment, 0);
                    let place = Place::Pointer { segment, offset: 0 };
                    self.point(mask, MASK_BYTES, Direction::In, place, Yield::Whole)?;
                }
            }
        }
        Ok(())
    }

    fn register(&self, index: u8) -> u64 {
        self.arguments[usize::from(index)]
    }

    /// Length and yield of plain memory.
    fn measure(&self, length: Length, yields: Yield) -> (u64, Yield) {
        match length {
            Length::Fixed(size) => (u64::from(size), yields),
            Length::Counted { argument, width, unit, head } => {
                let count = width.read(self.register(argument));
                let units = count.saturating_mul(u64::from(unit));
                (units.saturating_add(u64::from(head)), yields)
            }
            Length::DescriptorBits { argument } => {
                let count = super::Width::Int.read(self.register(argument));
                (count.div_ceil(64) * 8, yields)
            }
            Length::Stored { argument } => match self.staged[usize::from(argument)] {
                Some(segment) => {
                    let length = self.half(segment, 0) as i32;
                    (u64::try_from(length).unwrap_or(0), Yield::Counted { segment, offset: 0 })
                }
                None => (0, yields),
            },
        }
    }

    /// One pointer and the plain memory behind it.
    fn point(
        &mut self,
        guest: u64,
        length: u64,
        direction: Direction,
        place: Place,
        yields: Yield,
    ) -> Result<Option<u16>, S::Error> {
        if guest == 0 {
            return Ok(None);
        }
        let found = if length == 0 {
            None
        } else {
            let guest = GuestAddr(guest);
            self.source.take(Want { guest, length, direction, place, yields })?
        };
        if found.is_none() {
            self.source.dangling(place);
        }
        Ok(found)
    }

    fn note(&mut self, index: u8, place: Place, found: Option<u16>) {
        self.staged[usize::from(index)] = found;
        if found.is_none() {
            self.source.dangling(place);
        }
    }

    /// An array of `struct iovec {void *base; size_t length}` and its parts.
    fn vector(
        &mut self,
        guest: u64,
        count: u64,
        direction: Direction,
        place: Place,
        yields: Yield,
    ) -> Result<(), S::Error> {
        // With more parts Linux refuses before it looks at the array.
        let count = if count > PARTS_MAX { 0 } else { count };
        let array = self.point(guest, count * IOVEC_BYTES, Direction::In, place, Yield::Whole)?;
        let Some(segment) = array else { return Ok(()) };
        for part in 0..count {
            let offset = (part * IOVEC_BYTES) as u32;
            let base = self.word(segment, offset);
            let length = self.word(segment, offset + 8);
            let place = Place::Pointer { segment, offset };
            self.point(base, length, direction, place, yields)?;
        }
        Ok(())
    }

    fn message(&mut self, guest: u64, direction: Direction, place: Place) -> Result<(), S::Error> {
        // A receiver writes lengths and flags back into the header.
        let header_direction = match direction {
            Direction::In => Direction::In,
            Direction::Out | Direction::InOut => Direction::InOut,
        };
        let header = self.point(guest, MSGHDR_BYTES, header_direction, place, Yield::Whole)?;
        let Some(segment) = header else { return Ok(()) };
        let yields = MessageYields {
            direction,
            name: Yield::Counted { segment, offset: 8 },
            parts: Yield::ResultRest,
            control: Yield::Counted { segment, offset: 40 },
        };
        self.fields(segment, 0, &yields)
    }

    /// Which messages of a batch were filled is not one number, so what is received goes both
    /// ways: what the call leaves alone comes back as it went.
    fn messages(
        &mut self,
        guest: u64,
        count: u64,
        direction: Direction,
        place: Place,
    ) -> Result<(), S::Error> {
        let length = count * MMSGHDR_BYTES;
        let array = self.point(guest, length, Direction::InOut, place, Yield::Whole)?;
        let Some(segment) = array else { return Ok(()) };
        let direction = match direction {
            Direction::In => Direction::In,
            Direction::Out | Direction::InOut => Direction::InOut,
        };
        let whole = Yield::Whole;
        let yields = MessageYields { direction, name: whole, parts: whole, control: whole };
        for message in 0..count {
            self.fields(segment, (message * MMSGHDR_BYTES) as u32, &yields)?;
        }
        Ok(())
    }

    /// The pointers of the `struct msghdr` at `header` of a segment.
    fn fields(
        &mut self,
        segment: u16,
        header: u32,
        yields: &MessageYields,
    ) -> Result<(), S::Error> {
        let at = |field: u32| Place::Pointer { segment, offset: header + field };
        let direction = yields.direction;

        let name = self.word(segment, header);
        let name_length = u64::try_from(self.half(segment, header + 8) as i32).unwrap_or(0);
        let name_length = name_length.min(NAME_BYTES_MAX);
        self.point(name, name_length, direction, at(0), yields.name)?;

        let vector = self.word(segment, header + 16);
        let parts = self.word(segment, header + 24);
        self.vector(vector, parts, direction, at(16), yields.parts)?;

        let control = self.word(segment, header + 32);
        let control_length = self.word(segment, header + 40);
        self.point(control, control_length, direction, at(32), yields.control)?;
        Ok(())
    }

    /// Eight bytes of a segment. Every caller asked for a segment that contains them.
    fn word(&self, segment: u16, offset: u32) -> u64 {
        let offset = offset as usize;
        self.source
            .bytes(segment)
            .get(offset..offset + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    }

    fn half(&self, segment: u16, offset: u32) -> u32 {
        let offset = offset as usize;
        self.source
            .bytes(segment)
            .get(offset..offset + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    }
}
