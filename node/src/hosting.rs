//! What this node has of others: their processes that run here or are expected, the memory that
//! earlier ones have left, and the room that there is for all of it.
//!
//! A guest is found by the number of its supervisor, which is what is heard of it first; its home
//! knows it by its own number, and whoever connects for it by its ticket. A berth that ends before
//! its visitor has come is remembered for a while ([`PastBerths`]), whatever the reason.

use crate::config::Config;
use crate::guest::{Arrival, Guest};
use crate::imprints::Imprints;
use crate::past_berths::PastBerths;
use crate::spare::Spare;
use crate::supervisor::SupervisorId;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::ids::{GlobalPid, NodeId, Ticket};

/// Between two looks at how much memory is free for what guests have left.
const IMPRINT_LOOK_INTERVAL: Duration = Duration::from_millis(500);

pub struct Hosting {
    guests: BTreeMap<SupervisorId, Guest>,
    past_berths: PastBerths,
    /// What earlier guests have left.
    imprints: Imprints,
    next_imprint_look: Instant,
    /// What guests may use, where that is seen to here.
    spare: Option<Spare>,
    /// Where guests are put, where somebody else has seen to that.
    cgroups: Vec<PathBuf>,
}

impl Hosting {
    pub fn new(now: Instant, config: &Config) -> Hosting {
        Hosting {
            guests: BTreeMap::new(),
            past_berths: PastBerths::default(),
            imprints: Imprints::default(),
            next_imprint_look: now,
            spare: Spare::make(config),
            cgroups: config.guest_cgroup.clone(),
        }
    }

    pub fn get(&self, id: SupervisorId) -> Option<&Guest> {
        self.guests.get(&id)
    }

    pub fn get_mut(&mut self, id: SupervisorId) -> Option<&mut Guest> {
        self.guests.get_mut(&id)
    }

    pub fn contains(&self, id: SupervisorId) -> bool {
        self.guests.contains_key(&id)
    }

    pub fn ids(&self) -> Vec<SupervisorId> {
        self.guests.keys().copied().collect()
    }

    pub fn len(&self) -> usize {
        self.guests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    /// Those that run here, and those that are expected.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.guests.values()
    }

    pub fn guests_mut(&mut self) -> impl Iterator<Item = &mut Guest> {
        self.guests.values_mut()
    }

    /// Those that run here.
    pub fn here(&self) -> impl Iterator<Item = &Guest> {
        self.guests().filter(|guest| guest.local_pid().is_some())
    }

    /// Those that have a berth and do not run yet.
    pub fn coming(&self) -> impl Iterator<Item = &Guest> {
        self.guests().filter(|guest| guest.local_pid().is_none())
    }

    /// What there is of a process here: it may come again before its last supervisor has ended.
    pub fn of(&self, process: GlobalPid) -> impl Iterator<Item = &Guest> {
        self.guests().filter(move |guest| guest.process == process)
    }

    pub fn of_mut(&mut self, process: GlobalPid) -> impl Iterator<Item = &mut Guest> {
        self.guests_mut().filter(move |guest| guest.process == process)
    }

    pub fn of_home_mut(&mut self, home: NodeId) -> impl Iterator<Item = &mut Guest> {
        self.guests_mut().filter(move |guest| guest.process.home == home)
    }

    pub fn with_ticket(&self, ticket: Ticket) -> Option<&Guest> {
        self.guests().find(|guest| guest.ticket == ticket)
    }

    pub fn with_ticket_mut(&mut self, ticket: Ticket) -> Option<&mut Guest> {
        self.guests_mut().find(|guest| guest.ticket == ticket)
    }

    pub fn insert(&mut self, guest: Guest) {
        self.guests.insert(guest.supervisor.id, guest);
    }

    /// Its supervisor has nothing more to say.
    pub fn remove(&mut self, now: Instant, id: SupervisorId) -> Option<Guest> {
        let guest = self.guests.remove(&id)?;
        if guest.local_pid().is_none() {
            self.past_berths.note(now, guest.ticket);
        }
        Some(guest)
    }

    /// What is not here yet, of those, does not come any more.
    pub fn end_berths(&mut self, now: Instant, which: impl Fn(&Guest) -> bool) -> Vec<Guest> {
        let is_expected = |guest: &Guest| matches!(guest.arrival, Arrival::Expected { .. });
        let ended = self.guests.iter().filter(|(_, guest)| is_expected(guest) && which(guest));
        let ids: Vec<SupervisorId> = ended.map(|(id, _)| *id).collect();
        let ended = ids.into_iter().filter_map(|id| self.remove(now, id));
        ended.collect()
    }

    /// The berth with this ticket has ended, and nobody had come.
    pub fn berth_ended(&mut self, now: Instant, ticket: Ticket) {
        self.past_berths.note(now, ticket);
    }

    /// Whether there was a berth with this ticket lately.
    pub fn was_berth(&self, now: Instant, ticket: Ticket) -> bool {
        self.past_berths.holds(now, ticket)
    }

    pub fn imprints(&self) -> &Imprints {
        &self.imprints
    }

    pub fn imprints_mut(&mut self) -> &mut Imprints {
        &mut self.imprints
    }

    /// Whether it is time to look how much of what guests have left may stay.
    pub fn begin_imprint_look(&mut self, now: Instant) -> bool {
        let is_due = self.next_imprint_look <= now;
        if is_due {
            self.next_imprint_look = now + IMPRINT_LOOK_INTERVAL;
        }
        is_due
    }

    /// What there is for guests that come, as it is enforced.
    pub fn left_bytes(&self) -> u64 {
        self.spare.as_ref().map_or(u64::MAX, Spare::left_bytes)
    }

    /// Where guests are put, one directory for each hierarchy.
    pub fn cgroups(&self) -> &[PathBuf] {
        self.spare.as_ref().map_or(self.cgroups.as_slice(), Spare::directories)
    }

    /// What guests enter there by, if the right to do so is ours.
    pub fn entrance(&self) -> io::Result<Option<OwnedFd>> {
        self.spare.as_ref().map(Spare::entrance).transpose()
    }

    /// Where this node sees to what guests use.
    pub fn spare_mut(&mut self) -> Option<&mut Spare> {
        self.spare.as_mut()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::guest::test::expected;
    use crate::supervisor::Identity;
    use wire::ids::HomePid;

    const HOME: NodeId = NodeId(3);

    fn hosting() -> Hosting {
        Hosting {
            guests: BTreeMap::new(),
            past_berths: PastBerths::default(),
            imprints: Imprints::default(),
            next_imprint_look: Instant::now(),
            spare: None,
            cgroups: Vec::new(),
        }
    }

    fn process(pid: i32) -> GlobalPid {
        GlobalPid { home: HOME, pid: HomePid(pid) }
    }

    fn runs(since: Instant) -> Arrival {
        Arrival::Running { body: Identity { pid: 70, started_ticks: 1 }, since }
    }

    #[test]
    fn a_berth_that_ends_before_its_visitor_came_is_remembered_and_no_other() {
        let (mut hosting, now) = (hosting(), Instant::now());
        let ids = [1, 2, 3].map(SupervisorId);
        for id in ids {
            let guest = expected(process(id.0 as i32), Ticket([id.0 as u8; 16]), id, now);
            hosting.insert(guest);
        }
        hosting.get_mut(ids[0]).unwrap().arrival = runs(now);
        hosting.get_mut(ids[1]).unwrap().arrival = Arrival::Arriving;
        assert_eq!((hosting.here().count(), hosting.coming().count()), (1, 2));
        let ended = hosting.end_berths(now, |_| true);
        assert_eq!(ended.iter().map(|guest| guest.process).collect::<Vec<_>>(), [process(3)]);
        assert!(hosting.was_berth(now, Ticket([3; 16])));
        assert!(hosting.remove(now, ids[0]).is_some() && hosting.remove(now, ids[0]).is_none());
        assert!(!hosting.was_berth(now, Ticket([1; 16])), "it had come");
        assert!(hosting.remove(now, ids[1]).is_some() && hosting.is_empty());
        assert!(hosting.was_berth(now, Ticket([2; 16])), "it was on its way");
    }

    #[test]
    fn guests_are_found_by_supervisor_process_home_and_ticket() {
        let (mut hosting, now) = (hosting(), Instant::now());
        let (ticket, id) = (Ticket([7; 16]), SupervisorId(9));
        hosting.insert(expected(process(5), ticket, id, now));
        assert!(hosting.contains(id) && hosting.ids() == [id] && hosting.len() == 1);
        assert_eq!(hosting.with_ticket(ticket).unwrap().process, process(5));
        assert!(hosting.with_ticket_mut(Ticket([8; 16])).is_none());
        assert_eq!(hosting.of(process(5)).count(), 1);
        assert_eq!(hosting.of_mut(process(6)).count(), 0);
        assert_eq!(hosting.of_home_mut(HOME).count(), 1);
        assert_eq!(hosting.of_home_mut(NodeId(4)).count(), 0);
    }

    #[test]
    fn what_guests_have_left_is_looked_at_now_and_then() {
        let (mut hosting, now) = (hosting(), Instant::now());
        assert!(hosting.begin_imprint_look(now) && !hosting.begin_imprint_look(now));
        assert!(hosting.begin_imprint_look(now + IMPRINT_LOOK_INTERVAL));
    }
}
