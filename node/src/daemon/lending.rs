//! What this home lends: whose processes leave it, and where they may be.
//!
//! Every move to another node begins here, whoever wants it, so that no brain, member or user takes
//! a process where the owner of this node does not want it.

use super::Daemon;
use super::moves::{NotMoved, not_moved};
use crate::policy;
use crate::process::{Cause, Order};
use wire::ids::{HomePid, NodeId};
use wire::peer::MoveEnd;

impl Daemon {
    /// Begins a move to another node.
    pub(super) fn begin_leaving(&mut self, pid: HomePid, to: NodeId) -> Result<(), NotMoved> {
        let Some(uid) = self.processes.get(&pid).map(|process| process.owner.uid) else {
            return Ok(());
        };
        if let Err(reason) = policy::may_lend(uid, to, &self.wishes.state) {
            // The brain is to look for another node, unless there is none.
            let end = if self.stays_home(uid) { MoveEnd::Stayed } else { MoveEnd::Failed };
            return Err(not_moved(end, &reason.code, reason.text));
        }
        self.check_processor(pid, to)?;
        match self.waits_for_link(pid, to) {
            true => Ok(()),
            false => self.ask_for_berth(pid, to),
        }
    }

    /// True if no process of this user leaves this home.
    pub(super) fn stays_home(&self, uid: u32) -> bool {
        uid == 0 && !self.wishes.state.lends_root
    }

    /// The owner has decided anew what is lent: what is away against it comes home, and the brain
    /// learns what it may move.
    /// Returns who comes home.
    pub(super) fn lend_anew(&mut self) -> Vec<HomePid> {
        let me = self.me();
        let pids: Vec<HomePid> = self.processes.keys().copied().collect();
        let mut brought = Vec::new();
        for pid in pids {
            self.tell_brain_placement(pid);
            let Some(process) = self.processes.get(&pid) else { continue };
            let moving_to = process.moving.as_ref().map(|moving| moving.order.to);
            let mut places = [Some(process.at), moving_to].into_iter().flatten();
            let uid = process.owner.uid;
            let owner = &self.wishes.state;
            let is_lent = |at| at == me || policy::may_lend(uid, at, owner).is_ok();
            if !places.all(is_lent) {
                let why = "the owner of its home does not lend it there any more";
                self.order_move(pid, Order::new(me, Cause::Owner, why));
                brought.push(pid);
            }
        }
        brought
    }
}
