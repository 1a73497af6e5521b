//! What was sent ahead of memory whose writes are not told.
//!
//! To have writes told takes a stop of its own, which is longer than a small process stands still
//! for all else that is done with its memory. So what was sent of it is kept, and compared with
//! what is there when it stands frozen: that takes a tenth of the time in which it would be sent.

use crate::held::{Held, within};
use kernel::memory::Memory;
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use wire::image::{self, Pages};

/// What is more than that is sent in the freeze, whether it was sent before or not.
const BYTES_MAX: usize = 8 << 20;

/// Contents as they were sent.
#[derive(Default)]
pub(crate) struct Copies {
    sent: Vec<Pages>,
    bytes: usize,
}

impl Copies {
    /// Keeps what is sent, if there is room for it.
    pub fn keep(&mut self, pages: &Pages) {
        if self.bytes + pages.content.len() <= BYTES_MAX {
            self.bytes += pages.content.len();
            self.sent.push(pages.clone());
        }
    }

    /// Of what a target holds that which is still as it was sent. What cannot be read is not.
    pub fn unchanged(&self, memory: &Memory, held: &Held) -> Held {
        let mut same = Held::default();
        let mut there = Vec::new();
        for pages in &self.sent {
            for (start, sent) in image::runs(&pages.spans, &pages.content).into_iter().flatten() {
                there.resize(sent.len(), 0);
                if memory.read_pages(start.0, &mut there).is_ok() {
                    add_same(&mut same, start.0, (sent, &there));
                }
            }
        }
        Held::of(&within(&same.beyond(&[]), held))
    }
}

fn add_same(same: &mut Held, start: u64, (sent, there): (&[u8], &[u8])) {
    let page = PAGE_BYTES as usize;
    let pages = sent.chunks(page).zip(there.chunks(page));
    for (at, (sent, there)) in (start..).step_by(page).zip(pages) {
        let run = Run { start: at, end: at + PAGE_BYTES };
        // Of a page that was sent twice the last counts.
        if sent == there { same.add(run) } else { same.remove(run) }
    }
}
