//! The processes that were born here and are managed, wherever they are, and which supervisor
//! serves which of them.
//!
//! A process knows its deputy and a deputy's number leads to its process: what a supervisor says
//! has to find the one that it is about. Both change together, and only here. The questions for
//! berths are numbered here as well: an answer has to find the move that waits for it.

use crate::process::{Move, Process, Stage};
use crate::supervisor::{Supervisor, SupervisorId};
use std::collections::BTreeMap;
use wire::ids::{HomePid, NodeId};

#[derive(Default)]
pub struct Registry {
    processes: BTreeMap<HomePid, Process>,
    deputies: BTreeMap<SupervisorId, HomePid>,
    /// Berths that were asked for.
    requests: u64,
}

impl Registry {
    pub fn get(&self, pid: &HomePid) -> Option<&Process> {
        self.processes.get(pid)
    }

    pub fn get_mut(&mut self, pid: &HomePid) -> Option<&mut Process> {
        self.processes.get_mut(pid)
    }

    pub fn contains_key(&self, pid: &HomePid) -> bool {
        self.processes.contains_key(pid)
    }

    pub fn keys(&self) -> impl Iterator<Item = &HomePid> {
        self.processes.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.values_mut()
    }

    pub fn len(&self) -> usize {
        self.processes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// With the deputy that it has.
    pub fn insert(&mut self, process: Process) {
        if let Some(deputy) = &process.deputy {
            self.deputies.insert(deputy.id, process.pid);
        }
        self.processes.insert(process.pid, process);
    }

    /// What its deputy says concerns nobody any more.
    pub fn remove(&mut self, pid: &HomePid) -> Option<Process> {
        let process = self.processes.remove(pid)?;
        if let Some(deputy) = &process.deputy {
            self.deputies.remove(&deputy.id);
        }
        Some(process)
    }

    /// The process that a supervisor serves, if it is a deputy of this home.
    pub fn of_deputy(&self, id: SupervisorId) -> Option<HomePid> {
        self.deputies.get(&id).copied()
    }

    /// From here on that supervisor serves the process.
    pub fn bind(&mut self, pid: HomePid, deputy: Supervisor) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        self.deputies.insert(deputy.id, pid);
        process.deputy = Some(deputy);
    }

    /// Lets go of the supervisor that serves the process, if there is one.
    pub fn release(&mut self, pid: HomePid) {
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(deputy) = process.deputy.take()
        {
            self.deputies.remove(&deputy.id);
        }
    }

    /// A supervisor is gone. True if it was the one that served the process.
    pub fn deputy_ended(&mut self, pid: HomePid, id: SupervisorId) -> bool {
        self.deputies.remove(&id);
        let process = self.processes.get_mut(&pid);
        let deputy = process.and_then(|process| process.deputy.take_if(|deputy| deputy.id == id));
        deputy.is_some()
    }

    /// Names the next question for a berth.
    pub fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// The move that waits for this answer. Only the node that was asked can give it.
    pub fn asking(&mut self, node: NodeId, request: u64) -> Option<(HomePid, &mut Move)> {
        let is_asking = |moving: &Move| {
            moving.order.to == node
                && matches!(moving.stage, Stage::Asking { request: asked, .. } if asked == request)
        };
        self.processes.values_mut().find_map(|process| {
            let moving = process.moving.as_mut().filter(|moving| is_asking(moving))?;
            Some((process.pid, moving))
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::process::test::starting;
    use crate::process::{Cause, Launch, Order};
    use std::time::Instant;

    fn process(pid: i32) -> Process {
        let mut process = starting(Launch::Running);
        process.pid = HomePid(pid);
        process
    }

    fn supervisor(id: u64) -> Supervisor {
        let mut supervisor = Supervisor::deaf();
        supervisor.id = SupervisorId(id);
        supervisor
    }

    fn registry(pids: &[i32]) -> Registry {
        let mut registry = Registry::default();
        pids.iter().for_each(|pid| registry.insert(process(*pid)));
        registry
    }

    #[tokio::test]
    async fn a_process_and_its_deputy_lead_to_each_other_until_either_is_gone() {
        let (seven, eight) = (HomePid(7), HomePid(8));
        let mut registry = registry(&[7, 8]);
        registry.bind(seven, supervisor(1));
        assert_eq!(registry.of_deputy(SupervisorId(1)), Some(seven));
        registry.release(seven);
        assert_eq!(registry.of_deputy(SupervisorId(1)), None);
        assert!(registry.get(&seven).unwrap().deputy.is_none());
        registry.bind(seven, supervisor(2));
        registry.bind(eight, supervisor(3));
        assert!(registry.remove(&seven).is_some());
        assert_eq!(registry.of_deputy(SupervisorId(2)), None);
        assert!(registry.deputy_ended(eight, SupervisorId(3)));
        assert_eq!(registry.of_deputy(SupervisorId(3)), None);
        registry.bind(HomePid(9), supervisor(4));
        assert_eq!(registry.of_deputy(SupervisorId(4)), None, "there is no such process");
    }

    #[tokio::test]
    async fn the_end_of_an_earlier_deputy_is_none_of_the_one_that_serves() {
        let seven = HomePid(7);
        let mut registry = registry(&[7]);
        registry.bind(seven, supervisor(1));
        registry.release(seven);
        registry.bind(seven, supervisor(2));
        assert!(!registry.deputy_ended(seven, SupervisorId(1)));
        assert_eq!(registry.of_deputy(SupervisorId(2)), Some(seven));
        let mut served = process(9);
        served.deputy = Some(supervisor(5));
        registry.insert(served);
        assert_eq!(registry.of_deputy(SupervisorId(5)), Some(HomePid(9)), "it was taken over");
    }

    #[tokio::test]
    async fn an_answer_finds_the_move_that_asked_that_node() {
        let mut registry = registry(&[7, 8]);
        let (two, three) = (NodeId(2), NodeId(3));
        for (pid, to) in [(HomePid(7), two), (HomePid(8), three)] {
            let request = registry.next_request();
            let order = Order::new(to, Cause::User, "asked");
            let stage = Stage::Asking { request, until: Instant::now() };
            let moving = Move { stage, ..Move::new(order, NodeId(1), 1.0) };
            registry.get_mut(&pid).unwrap().moving = Some(moving);
        }
        assert_eq!(registry.asking(three, 2).unwrap().0, HomePid(8));
        assert!(registry.asking(two, 2).is_none(), "another node was asked");
        registry.asking(two, 1).unwrap().1.stage = Stage::Moving;
        assert!(registry.asking(two, 1).is_none(), "it was answered before");
    }
}
