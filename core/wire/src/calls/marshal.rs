//! The body's side: gathers the guest memory that a call reads. Each byte is read once, so a
//! thread of the guest that changes it meanwhile cannot make two readings differ.

use super::table::{Class, classify};
use super::walk::{Source, Want, walk};
use super::{Arguments, exec, process};
use crate::forward::{Direction, Place, Segment};
use crate::ids::GuestAddr;
use crate::limits::{CALL_BYTES_MAX, CALL_SEGMENTS_MAX};

/// The memory of a guest, as its supervisor reaches it.
pub trait GuestMemory {
    /// Fills `buf` from `addr` on; how many bytes could be read, from the start.
    fn read(&self, addr: GuestAddr, buf: &mut [u8]) -> usize;
    /// May the guest write all of these bytes?
    fn is_writable(&self, addr: GuestAddr, len: usize) -> bool;
    /// The number of the guest's process.
    fn process(&self) -> i32;
}

/// A call ready to travel. The pointers in `arguments` and inside segments are still the guest's;
/// one that is not NULL and has no segment travels as [`super::BAD_POINTER`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marshalled {
    pub arguments: Arguments,
    pub segments: Vec<Segment>,
}

/// Why a call does not travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmarshalled {
    /// An emulated call whose memory is not there. (A forwarded one travels: Linux at home finds
    /// the fault.)
    #[error("bad address")]
    Fault,
    /// It has to run at home: a stable kebab-case word.
    #[error("the call has to run at home: {0}")]
    NeedsHome(&'static str),
}

/// Gathers what a forwarded or emulated call needs.
pub fn marshal(
    number: u32,
    arguments: &Arguments,
    memory: &dyn GuestMemory,
) -> Result<Marshalled, Unmarshalled> {
    let (form, is_emulated) = match classify(number, arguments) {
        Class::Forward(form) => (form, false),
        Class::Emulate(emulation, form) if emulation.is_sent() => (form, true),
        Class::Emulate(..) => return Err(Unmarshalled::NeedsHome("answered-by-the-body")),
        Class::Homecoming(word) => return Err(Unmarshalled::NeedsHome(word)),
        Class::Local => return Err(Unmarshalled::NeedsHome("local-call")),
    };
    let mut reader = Reader { memory, segments: Vec::new(), bytes_left: CALL_BYTES_MAX, faulty: 0 };
    walk(form, arguments, &mut reader)?;
    if is_emulated && reader.faulty > 0 {
        return Err(Unmarshalled::Fault);
    }
    if let Some(word) =
        process::home_only_path(number, arguments, &reader.segments, Some(memory.process()))
    {
        return Err(Unmarshalled::NeedsHome(word));
    }
    Ok(Marshalled { arguments: *arguments, segments: reader.segments })
}

/// What the call reads behind argument `index`, if anything.
pub fn argument_bytes(segments: &[Segment], index: u8) -> Option<&[u8]> {
    segments.iter().find(|s| s.place == Place::Argument(index)).map(|s| s.data.as_slice())
}

struct Reader<'a> {
    memory: &'a dyn GuestMemory,
    segments: Vec<Segment>,
    bytes_left: usize,
    /// Pointers that led nowhere.
    faulty: u32,
}

impl Reader<'_> {
    /// Counts one more segment of this many bytes against the limits of a call.
    fn spend(&mut self, bytes: u64) -> Result<usize, Unmarshalled> {
        let large = Unmarshalled::NeedsHome("large-call");
        if self.segments.len() >= CALL_SEGMENTS_MAX {
            return Err(large);
        }
        let bytes = usize::try_from(bytes).map_err(|_| large)?;
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(large)?;
        Ok(bytes)
    }

    fn push(&mut self, want: Want, data: Vec<u8>) -> u16 {
        let index = self.segments.len() as u16;
        self.segments.push(Segment {
            guest: want.guest,
            length: want.length as u32,
            direction: want.direction,
            place: want.place,
            yields: want.yields,
            data,
        });
        index
    }

    /// Whether the call may write there: yes, not at all, or (an error) only in part, where Linux
    /// decides byte by byte.
    fn can_write(&self, guest: GuestAddr, length: usize) -> Result<bool, Unmarshalled> {
        if self.memory.is_writable(guest, length) {
            Ok(true)
        } else if self.memory.is_writable(guest, 1) {
            Err(Unmarshalled::NeedsHome("half-mapped-memory"))
        } else {
            Ok(false)
        }
    }
}

impl Source for Reader<'_> {
    type Error = Unmarshalled;

    fn take(&mut self, want: Want) -> Result<Option<u16>, Unmarshalled> {
        let length = self.spend(want.length)?;
        if want.guest.0.checked_add(want.length).is_none() {
            return Ok(None);
        }
        let mut data = Vec::new();
        if want.direction != Direction::Out {
            data.resize(length, 0);
            let readable = self.memory.read(want.guest, &mut data).min(length);
            if readable == 0 {
                return Ok(None);
            }
            if readable < length {
                return Err(Unmarshalled::NeedsHome("half-mapped-memory"));
            }
        }
        if want.direction != Direction::In && !self.can_write(want.guest, length)? {
            // Read-only memory behind an InOut argument: Linux would read it and fail on writing.
            return if want.direction == Direction::InOut {
                Err(Unmarshalled::NeedsHome("read-only-memory"))
            } else {
                Ok(None)
            };
        }
        Ok(Some(self.push(want, data)))
    }

    fn text(
        &mut self,
        guest: GuestAddr,
        bytes_max: u32,
        place: Place,
    ) -> Result<Option<u16>, Unmarshalled> {
        let mut data = vec![0; bytes_max as usize];
        let readable = self.memory.read(guest, &mut data).min(data.len());
        data.truncate(readable);
        match data.iter().position(|&byte| byte == 0) {
            Some(end) => data.truncate(end + 1),
            // Runs into unreadable memory before its end: EFAULT.
            None if readable < bytes_max as usize => return Ok(None),
            None => {}
        }
        self.spend(data.len() as u64)?;
        let length = data.len() as u64;
        let yields = crate::forward::Yield::Whole;
        let want = Want { guest, length, direction: Direction::In, place, yields };
        Ok(Some(self.push(want, data)))
    }

    fn strings(&mut self, guest: GuestAddr, place: Place) -> Result<Option<u16>, Unmarshalled> {
        let Some(data) = exec::gather(self.memory, guest, self.bytes_left)? else {
            return Ok(None);
        };
        let length = data.len() as u64;
        self.spend(length)?;
        let yields = crate::forward::Yield::Whole;
        let want = Want { guest, length, direction: Direction::In, place, yields };
        Ok(Some(self.push(want, data)))
    }

    fn bytes(&self, segment: u16) -> &[u8] {
        self.segments.get(usize::from(segment)).map_or(&[], |s| &s.data)
    }

    fn dangling(&mut self, _place: Place) {
        self.faulty += 1;
    }
}
