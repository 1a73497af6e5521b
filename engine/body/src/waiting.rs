//! What a body waits with until pages that come behind it are there ([`crate::late`]).

use crate::late::Late;
use crate::leaving::VERDICT_TIMEOUT;
use crate::state::Order;
use crate::tracing_loop::Tracing;
use kernel::proc::maps;
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use std::sync::Arc;
use wire::calls::Arguments;
use wire::forward::{ToAway, ToHome};
use wire::supervisor::Filled;

impl Tracing<'_> {
    /// A body of which pages are still to come does not leave: it does when it has them. None if
    /// the order waits for that, or has been carried out.
    pub(crate) fn defer(&mut self, order: Order) -> Option<Order> {
        match order {
            Order::Fetched { tid, id } => self.make_with_pages(tid, id),
            Order::Filled(told) => self.has_all_pages(told),
            // Nobody watches what nobody waits for.
            Order::Filling(_) if self.waiting_for_pages.is_empty() => {}
            Order::Filling(progress) => self.shared.send(ToHome::Progress(progress)),
            order if !self.awaits_pages => return Some(order),
            Order::NeedsHome(_) | Order::Home(ToAway::Recall { .. } | ToAway::MoveOn { .. }) => {
                self.waiting_for_pages.push(order);
            }
            Order::Home(ToAway::CallOff(why)) => {
                let moves_on = |order: &Order| matches!(order, Order::Home(ToAway::MoveOn { .. }));
                let before = self.waiting_for_pages.len();
                self.waiting_for_pages.retain(|order| !moves_on(order));
                if self.waiting_for_pages.len() == before {
                    return Some(Order::Home(ToAway::CallOff(why)));
                }
                self.shared.send(ToHome::Stayed(why));
            }
            order => return Some(order),
        }
        None
    }

    /// All is there that this call of a thread takes.
    fn make_with_pages(&self, tid: i32, id: u64) {
        let mut state = self.shared.lock();
        let thread = state.threads.get_mut(&tid);
        // Unless it was stopped meanwhile, and will make the call again.
        let call = thread.and_then(|thread| thread.fetching.take_if(|call| call.0 == id));
        if let (Some((id, number, arguments)), Some(late)) = (call, &self.shared.late) {
            late.prepare(number, &arguments);
            self.shared.listener.let_pass(id);
        }
    }

    /// Whatever it has waited with is done now, and home knows before.
    fn has_all_pages(&mut self, told: Filled) {
        self.awaits_pages = false;
        self.shared.send(ToHome::Filled(told));
        // Before all that was ordered later, which may take it back.
        self.shared.order_first(std::mem::take(&mut self.waiting_for_pages));
    }

    /// Whether it is wanted gone, and home does not send what it has to have before: home counts as
    /// lost then, as one does that takes no image.
    pub(crate) fn is_left_without_pages(&self) -> bool {
        let is_overdue = |late: &Arc<Late>| late.silence() >= VERDICT_TIMEOUT;
        let is_unwanted = self.unwanted_since.is_some_and(|at| at.elapsed() >= VERDICT_TIMEOUT);
        self.awaits_pages && is_unwanted && self.shared.late.as_ref().is_some_and(is_overdue)
    }
}

/// The pages that these bytes lie in; None if there are none.
pub(crate) fn pages(start: u64, length: u64) -> Option<Run> {
    let end = start.checked_add(length)?.checked_next_multiple_of(PAGE_BYTES)?;
    let start = start & !(PAGE_BYTES - 1);
    (length > 0 && start < end).then_some(Run { start, end })
}

/// Memory that has to be there before a call is made: what it unmaps, moves or gives up, and
/// futexes whose word the kernel does not wait for.
pub fn needed_by(pid: i32, number: u32, arguments: &Arguments) -> Vec<Run> {
    let [first, second, third, fourth, fifth, _] = *arguments;
    let has = |flag: i32| fourth & flag as u64 != 0;
    let ranges = match i64::from(number) {
        libc::SYS_mmap if !has(libc::MAP_FIXED) => vec![],
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_madvise => vec![pages(first, second)],
        libc::SYS_mremap if has(libc::MREMAP_FIXED) => {
            vec![pages(first, second), pages(fifth, third)]
        }
        libc::SYS_mremap => vec![pages(first, second)],
        libc::SYS_brk => {
            let maps = maps::read(pid).unwrap_or_default();
            let heap = maps.iter().filter(|m| m.name == b"[heap]");
            let end = heap.map(|m| m.end).max().unwrap_or(0);
            vec![pages(first, end.saturating_sub(first))]
        }
        libc::SYS_futex => vec![pages(first, 4), pages(fifth, 4)],
        _ => vec![],
    };
    ranges.into_iter().flatten().collect()
}
