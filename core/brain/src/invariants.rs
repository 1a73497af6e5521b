//! What must hold between any two inputs. Checked after each input by the simulator, and by the
//! brain itself in debug builds.

use crate::situation::Situation;
use wire::ids::{GlobalPid, NodeId};

/// A broken invariant: a fault of this crate, whatever the inputs were.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    #[error("node {node} has {count} moves under way, {max} are allowed")]
    TooManyDepartures { node: NodeId, count: usize, max: usize },
    #[error("process {process} is leaving node {node} and arriving there at the same time")]
    LeavingAndArriving { node: NodeId, process: GlobalPid },
    #[error("process {process} is leaving node {node} for itself")]
    LeavingForHere { node: NodeId, process: GlobalPid },
    #[error("process {process} is on offer by node {node}, where it does not run")]
    OfferedWithoutRunning { node: NodeId, process: GlobalPid },
    #[error("process {process} is on offer to node {to}, which is no member")]
    OfferedToStranger { process: GlobalPid, to: NodeId },
    #[error("node {node} counts itself among the others")]
    OwnMember { node: NodeId },
    #[error("node {node} counts another demand than that of what runs on it")]
    MiscountedDemand { node: NodeId },
    #[error("a table of node {node} has grown beyond its bound: {table}")]
    Unbounded { node: NodeId, table: &'static str },
}

impl Situation {
    /// The first invariant that does not hold, if there is one.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.check_departures()?;
        self.check_reservations()?;
        self.check_bounds()
    }

    fn check_departures(&self) -> Result<(), Violation> {
        let node = self.me;
        let (count, max) = (self.departures.count(), self.config.outbound_max);
        if count > max {
            return Err(Violation::TooManyDepartures { node, count, max });
        }
        for departure in self.departures.iter() {
            let (process, to) = (departure.offer.process, departure.to);
            if to == node {
                return Err(Violation::LeavingForHere { node, process });
            }
            if departure.is_moving() {
                continue;
            }
            if !self.residents.is_running(process) {
                return Err(Violation::OfferedWithoutRunning { node, process });
            }
            // Who is in view of a part of the cluster may be out of it before he has answered.
            if self.members.get(to).is_none() && !self.members.is_partial() {
                return Err(Violation::OfferedToStranger { process, to });
            }
        }
        Ok(())
    }

    fn check_reservations(&self) -> Result<(), Violation> {
        let node = self.me;
        for process in self.reservations.processes() {
            if self.departures.contains(process) {
                return Err(Violation::LeavingAndArriving { node, process });
            }
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), Violation> {
        let node = self.me;
        if self.members.get(node).is_some() {
            return Err(Violation::OwnMember { node });
        }
        if !self.residents.is_added_up() {
            return Err(Violation::MiscountedDemand { node });
        }
        let tables = [
            ("members", self.members.count() <= self.config.view_max),
            ("processes", self.residents.counts_within(self.config.processes_max)),
            ("reservations", self.reservations.count() <= usize::from(u16::MAX) + 1),
        ];
        match tables.into_iter().find(|(_, bounded)| !bounded) {
            Some((table, _)) => Err(Violation::Unbounded { node, table }),
            None => Ok(()),
        }
    }
}
