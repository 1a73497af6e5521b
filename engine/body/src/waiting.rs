//! What a body waits with until pages that come behind it are there ([`crate::late`]).

use crate::state::Order;
use crate::tracing_loop::Tracing;
use wire::forward::{ToAway, ToHome};
use wire::supervisor::Filled;

impl Tracing<'_> {
    /// A body of which pages are still to come does not leave: it does when it has them. None if
    /// the order waits for that, or has been carried out.
    pub(crate) fn defer(&mut self, order: Order) -> Option<Order> {
        if self.shared.late.as_ref().is_none_or(|late| late.is_whole()) {
            return Some(order);
        }
        match order {
            Order::NeedsHome(_) | Order::Home(ToAway::Recall { .. } | ToAway::MoveOn { .. }) => {
                self.waiting_for_pages.push(order);
                None
            }
            Order::Home(ToAway::CallOff(why)) => {
                let moves_on = |order: &Order| matches!(order, Order::Home(ToAway::MoveOn { .. }));
                let before = self.waiting_for_pages.len();
                self.waiting_for_pages.retain(|order| !moves_on(order));
                if self.waiting_for_pages.len() == before {
                    return Some(Order::Home(ToAway::CallOff(why)));
                }
                self.shared.send(ToHome::Stayed(why));
                None
            }
            order => Some(order),
        }
    }

    /// All is there that this call of a thread takes.
    pub(crate) fn make_with_pages(&self, tid: i32, id: u64) {
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
    pub(crate) fn has_all_pages(&mut self, told: Filled) {
        self.shared.send(ToHome::Filled(told));
        let waiting = std::mem::take(&mut self.waiting_for_pages);
        waiting.into_iter().for_each(|order| self.shared.order(order));
    }
}
