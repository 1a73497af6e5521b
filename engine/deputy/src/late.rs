//! Memory of a process that comes behind it: home, where it stays as it was when the process left,
//! gives it away page by page as the body asks ([decision
//! 0026](../../../docs/decisions/0026-pages-behind-the-process.md)).
//!
//! Until the last page is there home alone has them. So nothing of what is kept is given back to
//! the system before, however short memory becomes. The thread that serves the body reads memory
//! and does nothing else: what a hostile body may ask for was to be sent to it anyway, once.

use crate::frozen::Frozen;
use kernel::memory::Memory;
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use link::{LinkReader, LinkWriter};
use migrate::ahead::{Ahead, Target};
use migrate::held::{self, Held};
use migrate::late::Order;
use migrate::rounds::Rounds;
use migrate::{MigrateError, Result};
use wire::forward::ToAway;
use wire::image::{Image, Mapping};
use wire::late::{self, Question};
use wire::limits::LATE_BYTES_MAX;
use wire::supervisor::{Berth, MoveMethod, MoveReport, Role, Way};

/// Tells of a move what comes behind it.
pub fn with_late(report: MoveReport, late: Option<&LateMemory>) -> MoveReport {
    let Some(late) = late else { return report };
    let method = if report.rounds > 0 { MoveMethod::Hybrid } else { MoveMethod::PostCopy };
    MoveReport { method, late_bytes: late.order.left(), ..report }
}

/// What of the memory is to come behind the process.
pub struct Behind {
    pub way: Way,
    may_be: bool,
    /// Over which that will be.
    pub link: Option<(LinkReader, LinkWriter)>,
}

impl Behind {
    /// # Errors
    /// It was asked for, and cannot be.
    pub fn of(way: Way, may_be: bool, rounds: &mut Rounds) -> Result<Behind> {
        let behind = Behind { way, may_be, link: None };
        if may_be && way == Way::Hybrid {
            rounds.let_be_late();
        }
        if !may_be && way == Way::PostCopy { behind.check().map(|()| behind) } else { Ok(behind) }
    }

    /// That it is so if it was asked for.
    ///
    /// # Errors
    /// It cannot be.
    pub fn check(&self) -> Result<()> {
        match self.way == Way::PostCopy && self.link.is_none() {
            false => Ok(()),
            true => {
                let text = "its pages cannot come behind it: the node serves no faults, or its \
                            home cannot tell what it writes to, or has no room to keep it";
                Err(MigrateError::refused("no-late-pages", text))
            }
        }
    }

    /// Has the target do without what it lacks, if that is to be, while the process runs.
    ///
    /// # Errors
    /// Of the links.
    pub fn begin(
        &mut self,
        berth: &Berth,
        (memory, ahead): (&Memory, &mut Ahead),
        (target, rounds): (&mut Target<'_>, &Rounds),
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
    ) -> Result<()> {
        let is_wanted = self.way == Way::PostCopy || rounds.are_in_vain();
        if !self.may_be || !is_wanted || !ahead.copying.can_repeat() {
            return Ok(());
        }
        target.link.1.send(&ToAway::LateLink)?;
        let link = link::connect(berth, Role::Late)?;
        if ahead.set_aside(memory, target, mappings)? {
            self.link = Some(link);
        }
        Ok(())
    }

    /// Bytes of late memory for which there is time in the freeze; None if there is no such memory.
    pub(crate) fn room(&self, rounds: &Rounds) -> Option<u64> {
        self.link.is_some().then(|| rounds.room())
    }

    /// What home gives away once the process runs elsewhere.
    ///
    /// # Errors
    /// The process is lost.
    pub fn give(self, pid: i32, ahead: &Ahead) -> Result<Option<LateMemory>> {
        let Some(link) = self.link else { return Ok(None) };
        let memory = Memory::open(pid).map_err(|error| MigrateError::lost(error.into()))?;
        let order = Order::of(ahead.copying.late().clone(), ahead.copying.fresh());
        // All may have gone along: then the body asks for nothing, and nothing is kept for it.
        Ok((order.left() > 0).then_some(LateMemory { link, memory, order }))
    }
}

/// What is to be given away, and over which link.
pub struct LateMemory {
    pub link: (LinkReader, LinkWriter),
    pub memory: Memory,
    pub order: Order,
}

/// Answers the body until that has all, or is gone.
pub fn serve(late: LateMemory) {
    if let Err(error) = answer(late) {
        // The body, which waits for its pages, ends with this link.
        tracing::warn!("pages that come behind a process: {error}");
    }
}

fn answer(late: LateMemory) -> Result<()> {
    let LateMemory { link: (mut reader, mut writer), memory, mut order } = late;
    let mut content = vec![0; LATE_BYTES_MAX];
    loop {
        let question = match reader.receive() {
            // It has all, and hangs up whatever is on the way.
            Err(_) if order.left() == 0 => return Ok(()),
            question => question?,
        };
        let runs = match question {
            Question::Page { address, bytes } if address.0.is_multiple_of(PAGE_BYTES) => {
                order.around(address.0, bounded(bytes))
            }
            Question::Page { address, .. } => {
                return Err(MigrateError::Protocol(format!("a page at {address}")));
            }
            Question::Range((start, end)) => {
                order.range(Run { start: start.0, end: end.0 }, LATE_BYTES_MAX as u64)
            }
            Question::More { bytes } => order.next(bounded(bytes)),
            Question::Done => return Ok(()),
        };
        let mut length = 0;
        for run in &runs {
            let end = length + (run.end - run.start) as usize;
            memory.read_pages(run.start, &mut content[length..end])?;
            length = end;
        }
        writer.send_bytes(&[&late::encode(held::spans(&runs)), &content[..length]])?;
    }
}

/// What fits an answer, and is at least a page.
fn bounded(bytes: u32) -> u64 {
    u64::from(bytes).clamp(PAGE_BYTES, LATE_BYTES_MAX as u64) & !(PAGE_BYTES - 1)
}

/// The bound of the kernel (ROBUST_LIST_LIMIT), against lists that bite their tail.
const ROBUST_MUTEXES_MAX: usize = 2048;
/// Of each thread's stack, from where it stands.
const STACK_BYTES: u64 = 16 << 10;

/// Memory that a process needs in place before it runs: what the kernel writes when a thread ends
/// or is put on a processor, because it does not wait for pages then; what calls that go on here
/// write to; and where its threads stand.
pub fn needed_at_once(image: &Image, frozen: &Frozen, memory: &Memory) -> Held {
    let mut needed = Held::default();
    let mut add = |start: u64, length: u64| {
        let first = start & !(PAGE_BYTES - 1);
        let end = start.saturating_add(length).checked_next_multiple_of(PAGE_BYTES);
        needed.add(Run { start: first, end: end.unwrap_or(first) });
    };
    frozen.written_by_sleepers().for_each(|(start, length)| add(start, length));
    for thread in &image.threads {
        add(thread.tid_address, 4);
        if let Some((address, size, _)) = thread.rseq {
            add(address, u64::from(size));
        }
        for place in robust_places(memory, thread.robust_list.0) {
            add(place, 24);
        }
        let words = &thread.registers;
        let [Some(stack), Some(code), Some(tls)] = [19, 16, 21].map(|index| words.get(index))
        else {
            continue;
        };
        add(*stack, STACK_BYTES);
        add(stack.saturating_sub(PAGE_BYTES), PAGE_BYTES);
        add(*code, PAGE_BYTES);
        add(*tls, PAGE_BYTES);
        add(tls.saturating_sub(PAGE_BYTES), PAGE_BYTES);
    }
    needed
}

/// The robust mutexes of a thread (get_robust_list(2)): the entries of its list, and their words.
fn robust_places(memory: &Memory, head: u64) -> Vec<u64> {
    let mut places = vec![];
    if head == 0 {
        return places;
    }
    let word = |at: u64| memory.read_u64(at).ok();
    let (Some(first), Some(offset), Some(pending)) =
        (word(head), word(head.wrapping_add(8)), word(head.wrapping_add(16)))
    else {
        return places;
    };
    places.push(head);
    let mut next = first;
    while next & !1 != head && places.len() <= 2 * ROBUST_MUTEXES_MAX {
        let entry = next & !1;
        places.extend([entry, entry.wrapping_add(offset)]);
        match word(entry) {
            Some(behind) => next = behind,
            None => break,
        }
    }
    if pending != 0 {
        places.extend([pending & !1, (pending & !1).wrapping_add(offset)]);
    }
    places
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_robust_mutexes_of_a_thread_are_found_with_their_words_however_their_list_ends() {
        let mut words = [0u64; 8];
        let at = |index: usize, words: &[u64; 8]| (&raw const words[index]) as u64;
        let (head, first, second) = (at(0, &words), at(4, &words), at(6, &words));
        // The head (next, offset, pending), and two entries, each with its word behind it.
        (words[0], words[1], words[2]) = (first, 8, second);
        (words[4], words[6]) = (second | 1, head);
        let memory = Memory::open(std::process::id() as i32).unwrap();
        // They are read by another way.
        std::hint::black_box(&words);
        let places = robust_places(&memory, head);
        let both = [first, first + 8, second, second + 8];
        assert_eq!(places, [&[head][..], &both, &both[2..]].concat());
        assert_eq!(robust_places(&memory, 0), []);
        assert_eq!(robust_places(&memory, 8), [], "there is no such list");
    }
}
