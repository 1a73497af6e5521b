//! A process of another node that runs here, or has a place reserved here.

use crate::process::{Activity, LastFreeze, Weight};
use crate::supervisor::{Identity, Supervisor};
use std::time::{Duration, Instant};
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::peer::{BerthRequest, Owner};

/// How far a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Its berth is kept until then.
    Expected {
        until: Instant,
    },
    /// Its deputy has connected; from now on the supervisors see to it.
    Arriving,
    Running {
        body: Identity,
        since: Instant,
    },
}

pub struct Guest {
    pub process: GlobalPid,
    pub ticket: Ticket,
    pub asked: BerthRequest,
    /// As whom it runs here.
    pub owner: Owner,
    pub supervisor: Supervisor,
    pub arrival: Arrival,
    pub command: String,
    /// CPU time used here.
    pub cpu_us: u64,
    pub rss_bytes: u64,
    /// Calls to its home.
    pub forwarded_per_s: u32,
    pub activity: Activity,
    /// One beside it that it shares memory with.
    pub bound_to: Option<HomePid>,
    /// Its home was asked to move it there, and has not said how that ended.
    pub wanted_on: Option<NodeId>,
    /// Its home has said that it is elsewhere now.
    pub has_moved_on: bool,
    /// It was asked to go home.
    pub is_sent_home: bool,
    /// Nice values that it was told to stand back by, if it was told.
    pub stands_back: Option<i32>,
    /// What all of its owner's processes get, as its home says, in reference cores.
    pub user_cores: f64,
}

impl Guest {
    /// What its next move depends on.
    pub fn weight(&self) -> Weight {
        let last = LastFreeze { us: self.asked.freeze_us, bytes: self.asked.freeze_bytes };
        Weight::of(last, self.rss_bytes)
    }

    /// What it is likely to compute yet, by what its home knows of others like it; None if it has
    /// taken longer than they did.
    pub fn left(&self) -> Option<Duration> {
        let (expected_us, used_us) = (self.asked.expected_us, self.asked.cpu_us + self.cpu_us);
        expected_us.checked_sub(used_us).filter(|left| *left > 0).map(Duration::from_micros)
    }

    pub fn local_pid(&self) -> Option<i32> {
        match self.arrival {
            Arrival::Running { body, .. } => Some(body.pid),
            Arrival::Expected { .. } | Arrival::Arriving => None,
        }
    }
}

#[cfg(test)]
pub mod test {
    use super::*;
    use crate::supervisor::SupervisorId;

    /// One that has a berth here until then.
    pub fn expected(process: GlobalPid, ticket: Ticket, id: SupervisorId, until: Instant) -> Guest {
        let owner = Owner { uid: 1000, gid: 1000 };
        let asked = BerthRequest {
            pid: process.pid,
            owner,
            from: process.home,
            rss_bytes: 1 << 20,
            cpu_us: 2_000_000,
            freeze_us: 0,
            freeze_bytes: 0,
            is_ordered: false,
            is_pinned: false,
            user_milli: 0,
            group: None,
            expected_us: 0,
        };
        let mut supervisor = Supervisor::deaf();
        supervisor.id = id;
        Guest {
            process,
            ticket,
            asked,
            owner,
            supervisor,
            arrival: Arrival::Expected { until },
            command: String::new(),
            cpu_us: 500_000,
            rss_bytes: asked.rss_bytes,
            forwarded_per_s: 0,
            activity: Activity::default(),
            bound_to: None,
            wanted_on: None,
            has_moved_on: false,
            is_sent_home: false,
            stands_back: Some(0),
            user_cores: 0.0,
        }
    }
}
