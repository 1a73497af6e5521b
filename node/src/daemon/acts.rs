//! What somebody does to processes of other users is told as events, whatever he does it by: an
//! order for one process, or one of the owner's that concerns many.

use super::Daemon;
use crate::control::Caller;
use crate::process::Process;
use wire::control::Happening;
use wire::ids::{GlobalPid, HomePid};
use wire::owner::OwnerOrder;

/// To whom something is done that is not said of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Guests,
    /// Own processes that are elsewhere, or under way.
    Away,
    GuestsAndAway,
    /// Guests, and all own processes.
    All,
}

impl Daemon {
    pub(super) fn acted_on(&mut self, caller: Caller, pid: HomePid, act: String) {
        let is_others = |process: &Process| process.owner.uid != caller.uid;
        if self.processes.get(&pid).is_some_and(is_others) {
            self.tell_act(caller, self.global(pid), act);
        }
    }

    /// The owner's orders that send processes somewhere.
    pub(super) fn acted_on_by_owner(&mut self, caller: Caller, order: &OwnerOrder) {
        match order {
            OwnerOrder::Expel => self.acted_on_all(caller, "expel", Whom::Guests),
            OwnerOrder::Drain { on: true } => {
                self.acted_on_all(caller, "drain the node", Whom::All);
            }
            OwnerOrder::Bring => self.acted_on_all(caller, "bring home", Whom::Away),
            _ => {}
        }
    }

    pub(super) fn acted_on_all(&mut self, caller: Caller, act: &str, whom: Whom) {
        let me = self.me();
        let mut others: Vec<GlobalPid> = Vec::new();
        if whom != Whom::Away {
            let guests = self.hosting.here();
            let guests = guests.filter(|guest| guest.owner.uid != caller.uid);
            others.extend(guests.map(|guest| guest.process));
        }
        let is_meant = |process: &Process| match whom {
            Whom::Guests => false,
            Whom::Away | Whom::GuestsAndAway => process.at != me || process.moving.is_some(),
            Whom::All => true,
        };
        let own = self.processes.values();
        let own = own.filter(|process| is_meant(process) && process.owner.uid != caller.uid);
        others.extend(own.map(|process| GlobalPid { home: me, pid: process.pid }));
        for process in others {
            self.tell_act(caller, process, act.to_owned());
        }
    }

    pub(super) fn tell_act(&mut self, caller: Caller, process: GlobalPid, act: String) {
        let what = Happening::ActedOn { uid: caller.uid, by_node: caller.node, act };
        self.journal.record(Some(process), what);
    }
}
