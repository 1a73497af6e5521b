//! What has happened on a node, as its daemon tells tools of it.

use super::Migration;
use crate::ids::{GlobalPid, NodeId};
use crate::owner::OwnerState;
use crate::supervisor::{Filled, Reason};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the epoch.
    pub time: f64,
    /// Called `process` in JSON: what is flattened beside it may have a `pid` of its own.
    #[serde(rename = "process")]
    pub pid: Option<GlobalPid>,
    #[serde(flatten)]
    pub what: Happening,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happening {
    Managed {
        command: String,
    },
    Ended {
        wait_status: Option<i32>,
    },
    Migrated(Migration),
    /// The last of the pages that came behind the process is there.
    Filled(Filled),
    /// Came home by itself; `reason.code` is `call` with the call's name in `text`, `fault`, ...
    CameHome {
        reason: Reason,
    },
    /// It is home again, and home's kernel does not know of the processor time that it has used
    /// away, in all its stays.
    UsedAway {
        away_s: f64,
    },
    Stayed {
        reason: Reason,
    },
    Lost {
        node: NodeId,
        reason: Reason,
    },
    Homecalls {
        counts: Vec<(String, u64)>,
    },
    NodeJoined {
        node: NodeId,
        address: String,
    },
    NodeStatus {
        node: NodeId,
        status: String,
    },
    /// It belongs to the cluster no more.
    NodeForgotten {
        node: NodeId,
        reason: String,
    },
    /// The cluster has another secret now.
    SecretRenewed {
        generation: u64,
    },
    /// Somebody has done something to a process that is not his.
    ActedOn {
        /// Who that is here.
        uid: u32,
        /// The node that he asked from; none: this one.
        by_node: Option<NodeId>,
        /// `migrate to node 2`, `signal 15`, `adopt`, `expel`, `drain the node`, `bring home`,
        /// `take the node down`, `leave the cluster`.
        act: String,
    },
    /// The owner of this node has decided something.
    Owned(OwnerState),
    /// Somebody without the key knocked.
    Rejected {
        address: String,
        reason: String,
    },
}

/// [`Happening::UsedAway`] in words.
pub fn used_away(away_s: f64) -> String {
    format!("used {away_s:.1} s of processor time away; clocks at home do not show it")
}
