//! Pages of a process that come behind it, when it runs already: over a connection of their own
//! ([`Role::Late`](crate::supervisor::Role)) to the same berth.
//!
//! The body asks, its home answers each question once and in order: so the body alone decides how
//! much is on the way, and a page that somebody waits for comes behind little else. An answer is
//! one message: a postcard list of where the content belongs, and behind it the content as it is.
//! It may be empty: what was asked for is in an answer before.

use crate::bounded;
use crate::ids::GuestAddr;
use crate::image::Span;
use crate::limits::{LATE_BYTES_MAX, PAGE_BYTES, PAGE_RUNS_MAX};
use serde::{Deserialize, Serialize};

/// What a body asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The page there, for which somebody waits, and about so many bytes of what lies around it.
    Page { address: GuestAddr, bytes: u32 },
    /// What lies there, as much as fits an answer.
    Range(Span),
    /// Whatever home thinks best, up to so many bytes.
    More { bytes: u32 },
    /// Nothing more: all is there. Not answered.
    Done,
}

/// Why a message is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("an answer that does not decode")]
    Head,
    #[error("an answer of {0} bytes, or one of another length than was said")]
    Content(usize),
}

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(deserialize_with = "bounded::list::<_, _, PAGE_RUNS_MAX>")]
    spans: Vec<Span>,
}

/// What comes first in an answer.
pub fn encode(spans: Vec<Span>) -> Vec<u8> {
    postcard::to_stdvec(&Head { spans }).expect("numbers can always be encoded")
}

/// Where the content of an answer belongs, whole pages, and the content.
///
/// # Errors
/// It comes from another machine, and may be none of ours.
pub fn decode(message: &[u8]) -> Result<(Vec<Span>, &[u8]), AnswerError> {
    let (head, content): (Head, &[u8]) =
        postcard::take_from_bytes(message).map_err(|_| AnswerError::Head)?;
    let is_whole = |(start, end): &Span| {
        start.0 < end.0 && start.0.is_multiple_of(PAGE_BYTES) && end.0.is_multiple_of(PAGE_BYTES)
    };
    if !head.spans.iter().all(is_whole) {
        return Err(AnswerError::Head);
    }
    let mut bytes = 0u64;
    for (start, end) in &head.spans {
        bytes = bytes.checked_add(end.0 - start.0).ok_or(AnswerError::Head)?;
    }
    match content.len() <= LATE_BYTES_MAX && content.len() as u64 == bytes {
        true => Ok((head.spans, content)),
        false => Err(AnswerError::Content(content.len())),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn message(spans: &[(u64, u64)], content: &[u8]) -> Vec<u8> {
        let spans = spans.iter().map(|(start, end)| (GuestAddr(*start), GuestAddr(*end)));
        [encode(spans.collect()), content.to_vec()].concat()
    }

    #[test]
    fn an_answer_is_whole_pages_and_no_more_than_may_come_at_once() {
        let pages = vec![7; 2 * 4096];
        let sound = message(&[(0x1000, 0x2000), (0x5000, 0x6000)], &pages);
        let (spans, content) = decode(&sound).unwrap();
        assert_eq!((spans.len(), content), (2, &pages[..]));
        assert_eq!(decode(&message(&[], &[])).unwrap(), (vec![], &[][..]), "it came before");
        for (spans, content) in [
            (&[(0x1000, 0x2000)][..], &pages[..]),
            (&[(0x1000, 0x3800)], &pages),
            (&[(0x1800, 0x2800)], &pages[..4096]),
            (&[(0x2000, 0x1000)], &[]),
            (&[(0x1000, 0x1000)], &[]),
            (&[(0, !0xfff), (0, !0xfff)], &pages),
        ] {
            assert!(decode(&message(spans, content)).is_err(), "{spans:?}");
        }
        let much = vec![0; LATE_BYTES_MAX + 4096];
        let all = message(&[(0x1000, 0x1000 + much.len() as u64)], &much);
        assert_eq!(decode(&all), Err(AnswerError::Content(much.len())));
        assert_eq!(decode(&[0xff; 9]), Err(AnswerError::Head));
    }
}
