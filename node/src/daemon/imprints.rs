//! Room for what guests have left: a part of the memory that is free, and the first thing to be
//! given back when it becomes short. Nothing is kept for whom this node takes no guests of.

use super::Daemon;
use super::owner::Wishes;
use crate::guest::Guest;
use crate::imprints::User;
use crate::members::Members;
use crate::passage::Passage;
use crate::policy;
use crate::supervisor::SupervisorId;
use kernel::proc::room::Memory;
use std::os::fd::OwnedFd;
use std::time::Instant;
use wire::supervisor::ToBody;

/// So much of all memory (an eighth) is free, or some of it is given back.
const SHORTAGE_PARTS: u64 = 8;

/// How much has to be given back that much may be free, and guests have what their owner lets them.
fn surplus(memory: Memory, owner_max: Option<u64>, guests_bytes: u64, kept_bytes: u64) -> u64 {
    let lacking = (memory.total_bytes / SHORTAGE_PARTS).saturating_sub(memory.free_bytes);
    let all_bytes = guests_bytes.saturating_add(kept_bytes);
    lacking.max(owner_max.map_or(0, |max| all_bytes.saturating_sub(max)))
}

impl Daemon {
    pub(super) fn user_of(guest: &Guest) -> User {
        let Guest { process, asked, owner, .. } = guest;
        User { home: process.home, uid_at_home: asked.owner.uid, uid_here: owner.uid }
    }

    /// Its body is gone, and its supervisor has something left to say, or ends.
    pub(super) fn await_imprint(&mut self, guest: &Guest) {
        let user = Daemon::user_of(guest);
        if is_welcome((&self.members, &self.passage, &self.wishes), user) {
            let supervisor = guest.supervisor.clone();
            let imprints = self.hosting.imprints_mut();
            imprints.expect(Instant::now(), guest.process, user, supervisor);
        }
    }

    /// Gives a process that comes what there is of its user.
    pub(super) fn hand_out_imprints(&self, id: SupervisorId) {
        let Some(guest) = self.hosting.get(id) else { return };
        for (is_own, file) in self.hosting.imprints().of(guest.process, Daemon::user_of(guest)) {
            // One that takes nothing does without.
            guest.supervisor.send(&ToBody::Imprint { is_own }, Some(file));
        }
    }

    pub(super) fn hear_imprint(&mut self, id: SupervisorId, file: Option<OwnedFd>) {
        let Some(file) = file else { return self.hosting.imprints_mut().expect_no_more(id) };
        let owner_max = self.wishes.state.guest_memory_max_bytes;
        let used = self.guest_memory(0).map_or(0, |guests| guests.used_bytes);
        let left = owner_max.map_or(u64::MAX, |max| max.saturating_sub(used));
        if self.hosting.imprints_mut().keep(Instant::now(), id, file, left) {
            let bytes = self.hosting.imprints().bytes();
            tracing::debug!("{bytes} bytes that guests have left are kept");
            self.make_room();
        }
    }

    /// Gives back what may not be kept any longer.
    pub(super) fn look_after_imprints(&mut self, now: Instant) {
        if !self.hosting.begin_imprint_look(now) {
            return;
        }
        self.hosting.imprints_mut().expire(now);
        self.drop_unwelcome_imprints();
        if self.hosting.imprints().bytes() > 0 {
            self.make_room();
        }
    }

    /// What guests may have: what is free, and what would be given back for them.
    pub(super) fn memory_with_imprints(&self) -> u64 {
        self.memory_to_spare().saturating_add(self.hosting.imprints().bytes())
    }

    /// A guest comes that is to have so much, with those that are on their way.
    pub(super) fn make_room_for_guest(&mut self, bytes: u64) {
        let needed = bytes.saturating_add(bytes / 8);
        self.give_back_imprints(needed.saturating_sub(self.memory_to_spare()));
    }

    /// Nothing stays of users of whom no guests come any more.
    pub(super) fn drop_unwelcome_imprints(&mut self) {
        let by = (&self.members, &self.passage, &self.wishes);
        self.hosting.imprints_mut().retain(|user| is_welcome(by, user));
    }

    fn make_room(&mut self) {
        let owner_max = self.wishes.state.guest_memory_max_bytes;
        let used = self.guest_memory(0).map_or(0, |guests| guests.used_bytes);
        let kept = self.hosting.imprints().bytes();
        let surplus = surplus(self.load.memory_now(), owner_max, used, kept);
        self.give_back_imprints(surplus);
    }

    /// Gives up so much of what guests have left, or all of it; true if there was any.
    pub(super) fn give_back_imprints(&mut self, bytes: u64) -> bool {
        let given = self.hosting.imprints_mut().give_back(bytes);
        if given > 0 {
            tracing::info!("memory is short: {given} bytes that guests have left are given back");
            self.load.freed(given);
        }
        given > 0
    }
}

/// Whether guests of that user may come again.
fn is_welcome((members, passage, wishes): (&Members, &Passage, &Wishes), user: User) -> bool {
    let daemon_uid = nix::unistd::geteuid().as_raw();
    let takes_guests = !wishes.is_closed()
        && !passage.is_closing()
        && !passage.is_handing_over()
        && wishes.state.guests_max != Some(0);
    takes_guests
        && members.get(user.home).is_some()
        && policy::user_here(user.uid_at_home, daemon_uid, &wishes.state.guest_users)
            == Ok(user.uid_here)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_eighth_of_all_memory_stays_free_and_guests_have_no_more_than_their_owner_says() {
        let memory = |free_bytes| Memory { total_bytes: 800, free_bytes };
        assert_eq!(surplus(memory(100), None, 500, 200), 0);
        assert_eq!(surplus(memory(70), None, 500, 200), 30);
        assert_eq!(surplus(memory(100), Some(700), 500, 200), 0);
        assert_eq!(surplus(memory(70), Some(600), 500, 200), 100);
        assert_eq!(surplus(memory(0), Some(600), 500, 0), 100, "nothing is there to be given");
    }
}
