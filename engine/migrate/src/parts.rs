//! What a target is told of memory, in messages of a good size.

use crate::{MigrateError, Result};
use wire::forward::{ToAway, ToHome};
use wire::ids::GuestAddr;
use wire::image::{Pages, Span};
use wire::limits::{PAGE_RUN_BYTES_MAX, PAGE_RUNS_MAX};

/// Bytes of memory in one message: large enough to amortise it, small enough to stay in cache.
pub(crate) const BATCH_BYTES: usize = 256 << 10;
/// Read at a time.
pub(crate) const RUN_BYTES: u64 = BATCH_BYTES as u64;
const _: () = assert!(BATCH_BYTES <= PAGE_RUN_BYTES_MAX);

/// Whether there is nothing in a page: by lines of a cache, the first that is not zero being the
/// last that is looked at.
pub(crate) fn is_zero(page: &[u8]) -> bool {
    page.chunks(64).all(|line| line.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Why it cannot be sent: guard regions that the kernel has and does not tell (Linux 6.13 and
/// 6.14), or broken memory.
pub(crate) fn unreadable(at: u64, error: kernel::KernelError) -> MigrateError {
    match error.source.raw_os_error() {
        Some(libc::EIO | libc::EFAULT) => {
            let text = format!("its memory at {at:#x} cannot be read: {}", error.source);
            MigrateError::refused("unreadable-memory", text)
        }
        _ => error.into(),
    }
}

/// What a target is told of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Pages(Pages),
    /// Untouched memory again, whatever was sent.
    Discard(Vec<Span>),
    /// What comes behind the process; until then it is untouched.
    Late(Vec<Span>),
}

impl Part {
    /// Of memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Part::Pages(pages) => pages.content.len() as u64,
            Part::Discard(_) | Part::Late(_) => 0,
        }
    }
}

impl From<Part> for ToAway {
    fn from(part: Part) -> ToAway {
        match part {
            Part::Pages(pages) => ToAway::Pages(pages),
            Part::Discard(spans) => ToAway::Discard(spans),
            Part::Late(spans) => ToAway::Late(spans),
        }
    }
}

impl From<Part> for ToHome {
    fn from(part: Part) -> ToHome {
        match part {
            Part::Pages(pages) => ToHome::Pages(pages),
            // Nothing comes home behind its process.
            Part::Discard(spans) | Part::Late(spans) => ToHome::Discard(spans),
        }
    }
}

pub(crate) type Send<'a> = &'a mut dyn FnMut(Part) -> Result<()>;

/// Contents from several places, for one message.
#[derive(Default)]
pub(crate) struct Batch(Pages);

impl Batch {
    pub fn add(&mut self, address: u64, content: &[u8], send: Send<'_>) -> Result<()> {
        let is_full = self.0.content.len() + content.len() > BATCH_BYTES;
        if is_full || self.0.spans.len() >= PAGE_RUNS_MAX {
            self.send(send)?;
        }
        self.0.spans.push((GuestAddr(address), GuestAddr(address + content.len() as u64)));
        self.0.content.extend_from_slice(content);
        Ok(())
    }

    pub fn send(&mut self, send: Send<'_>) -> Result<()> {
        match self.0.spans.is_empty() {
            true => Ok(()),
            false => send(Part::Pages(std::mem::take(&mut self.0))),
        }
    }
}
