//! The numbers of this daemon's supervisors, and those of an earlier one that have not called yet.
//!
//! A supervisor outlives its daemon and calls the next one when it can ([`crate::returning`]).
//! Until then what is said to it waits, and if it ends without a call, that is no crash. Whoever
//! calls is known by its process and its user, which the kernel tells.

use crate::supervisor::{Identity, SupervisorId};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use tokio::sync::oneshot;

/// A supervisor that has to call before it can be spoken to.
struct Awaited {
    process: Identity,
    /// As whom it runs.
    uid: u32,
    socket: oneshot::Sender<OwnedFd>,
}

#[derive(Default)]
pub struct Supervisors {
    count: u64,
    awaited: BTreeMap<SupervisorId, Awaited>,
}

impl Supervisors {
    pub fn next_id(&mut self) -> SupervisorId {
        self.count += 1;
        SupervisorId(self.count)
    }

    /// One of an earlier daemon lives: who speaks to it waits for its socket.
    pub fn expect(
        &mut self,
        id: SupervisorId,
        (process, uid): (Identity, u32),
        socket: oneshot::Sender<OwnedFd>,
    ) {
        self.awaited.insert(id, Awaited { process, uid, socket });
    }

    /// How many have not called yet.
    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    pub fn is_awaited(&self, id: SupervisorId) -> bool {
        self.awaited.contains_key(&id)
    }

    /// The one that is missed and runs as this process of this user.
    pub fn missed(&self, pid: i32, uid: u32) -> Option<SupervisorId> {
        let is_it = |awaited: &Awaited| {
            (awaited.process.pid, awaited.uid) == (pid, uid) && awaited.process.is_alive()
        };
        self.awaited.iter().find(|(_, awaited)| is_it(awaited)).map(|(id, _)| *id)
    }

    /// It has called.
    pub fn came_back(&mut self, id: SupervisorId, socket: OwnedFd) {
        if let Some(awaited) = self.awaited.remove(&id) {
            // It has just ended if nobody takes it.
            let _ = awaited.socket.send(socket);
        }
    }

    /// It has ended. True if it had not called.
    pub fn ended(&mut self, id: SupervisorId) -> bool {
        self.awaited.remove(&id).is_some()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn whoever_calls_is_known_by_its_process_and_its_user() {
        let mut supervisors = Supervisors::default();
        let this = Identity::of(std::process::id() as i32).unwrap();
        let gone = Identity { started_ticks: this.started_ticks + 1, ..this };
        let (first, second) = (supervisors.next_id(), supervisors.next_id());
        let (sender, socket) = oneshot::channel();
        supervisors.expect(first, (gone, 1000), oneshot::channel().0);
        supervisors.expect(second, (this, 1000), sender);
        assert_eq!(supervisors.awaited(), 2);
        assert_eq!(supervisors.missed(this.pid, 1001), None, "another user's");
        assert_eq!(supervisors.missed(this.pid, 1000), Some(second));
        supervisors.came_back(second, std::io::pipe().unwrap().0.into());
        assert!(socket.blocking_recv().is_ok() && !supervisors.is_awaited(second));
        assert!(!supervisors.ended(second), "it had called");
        assert!(supervisors.ended(first) && supervisors.awaited() == 0);
        assert!(supervisors.next_id() > second);
    }
}
