//! Memory contents that travel beside their image: over connections of their own
//! ([`Role::Stream`](crate::supervisor::Role)) to the same berth, in any order.
//!
//! Each part is one message: a postcard [`PartHead`], and behind it the content as it is, so that
//! neither side copies it once more for its encoding.

use crate::bounded;
use crate::image::{Span, bytes_at};
use crate::limits::{PAGE_RUN_BYTES_MAX, PAGE_RUNS_MAX};
use serde::{Deserialize, Serialize};

/// What comes before the content of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHead {
    /// The draft, or image, to whose mappings it belongs: how many came over the link before,
    /// itself included.
    pub epoch: u32,
    pub packing: Packing,
    /// Where the content belongs, one after the other.
    #[serde(deserialize_with = "bounded::list::<_, _, PAGE_RUNS_MAX>")]
    pub spans: Vec<Span>,
}

/// How content travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packing {
    Plain,
    /// One block of LZ4, without its length.
    Lz4,
}

/// Why a message is no part of memory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    #[error("a part of memory that does not decode")]
    Head,
    #[error("a part of {0} bytes of memory (at most {PAGE_RUN_BYTES_MAX})")]
    Length(u64),
    #[error("a part of {0} bytes of memory with {1} bytes of content")]
    Content(u64, usize),
}

impl PartHead {
    /// What comes first in a message.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("numbers can always be encoded")
    }
}

/// The head and the content of a message, and how many bytes of memory that stands for: at most
/// [`PAGE_RUN_BYTES_MAX`], and as many as there are if they are not packed.
///
/// # Errors
/// The message comes from another machine, and may be none of ours.
pub fn decode(message: &[u8]) -> Result<(PartHead, &[u8], usize), PartError> {
    let (head, content): (PartHead, &[u8]) =
        postcard::take_from_bytes(message).map_err(|_| PartError::Head)?;
    let bytes = bytes_at(&head.spans).ok_or(PartError::Head)?;
    if !(1..=PAGE_RUN_BYTES_MAX as u64).contains(&bytes) {
        return Err(PartError::Length(bytes));
    }
    let is_whole = match head.packing {
        Packing::Plain => content.len() as u64 == bytes,
        // What is not shorter would not have been packed.
        Packing::Lz4 => (content.len() as u64) < bytes,
    };
    match is_whole {
        true => Ok((head, content, bytes as usize)),
        false => Err(PartError::Content(bytes, content.len())),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::ids::GuestAddr;

    fn message(packing: Packing, spans: &[(u64, u64)], content: &[u8]) -> Vec<u8> {
        let spans = spans.iter().map(|(start, end)| (GuestAddr(*start), GuestAddr(*end)));
        let head = PartHead { epoch: 3, packing, spans: spans.collect() };
        [head.encode(), content.to_vec()].concat()
    }

    #[test]
    fn a_part_is_its_head_and_its_content() {
        let content = [7; 0x3000];
        let spans = [(0x1000, 0x2000), (0x5000, 0x7000)];
        let plain = message(Packing::Plain, &spans, &content);
        let (head, found, bytes) = decode(&plain).unwrap();
        assert_eq!((head.epoch, head.packing, head.spans.len()), (3, Packing::Plain, 2));
        assert_eq!((found, bytes), (&content[..], 0x3000));
        let packed = message(Packing::Lz4, &spans, &[1, 2, 3]);
        let (_, found, bytes) = decode(&packed).unwrap();
        assert_eq!((found, bytes), (&[1, 2, 3][..], 0x3000));
    }

    #[test]
    fn sizes_that_no_part_has_are_refused() {
        let page = [(0x1000, 0x2000)];
        let refused = |packing, spans: &[_], content: &[u8]| {
            decode(&message(packing, spans, content)).unwrap_err()
        };
        let whole = [0; 0x1000];
        assert_eq!(refused(Packing::Plain, &page, &[0; 9]), PartError::Content(0x1000, 9));
        assert_eq!(
            refused(Packing::Plain, &page, &[0; 0x1001]),
            PartError::Content(0x1000, 0x1001)
        );
        assert_eq!(refused(Packing::Lz4, &page, &whole), PartError::Content(0x1000, 0x1000));
        assert_eq!(refused(Packing::Plain, &[], &[]), PartError::Length(0));
        assert_eq!(refused(Packing::Plain, &[(0x2000, 0x1000)], &whole), PartError::Head);
        let huge = [(0, u64::MAX), (0, u64::MAX)];
        assert_eq!(refused(Packing::Lz4, &huge, &[1]), PartError::Head);
        let large = PAGE_RUN_BYTES_MAX as u64 + 0x1000;
        assert_eq!(refused(Packing::Lz4, &[(0, large)], &[1]), PartError::Length(large));
        assert_eq!(decode(&[]), Err(PartError::Head));
    }
}
