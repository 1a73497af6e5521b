//! All that is known at one node at one moment, and what follows from it: how loaded the node is
//! and shows itself, who may leave it, what its owner and the shares of users allow. Policies
//! decide by it; only the brain changes it.

mod bars;
mod leaving;
mod load;
mod owner;
mod shares;

pub(crate) use leaving::Target;

use crate::config::Config;
use crate::handshake::{Departures, Reservations};
use crate::here::{Own, Residents};
use crate::others::Members;
use crate::time::Time;
use bars::Bars;
use owner::Owner;
use shares::Shares;
use std::sync::Arc;
use wire::ids::NodeId;

pub(crate) struct Situation {
    pub me: NodeId,
    pub config: Arc<Config>,
    pub own: Own,
    pub residents: Residents,
    pub members: Members,
    pub departures: Departures,
    pub reservations: Reservations,
    /// Nodes that `best_node` has promised to a newcomer, until when.
    pub promises: Vec<(NodeId, Time)>,
    /// None while the owner has decided nothing.
    pub owner: Option<Box<Owner>>,
    /// None while nothing is known of users.
    pub shares: Option<Box<Shares>>,
    /// Where some cannot run; mostly nowhere.
    pub bars: Option<Box<Bars>>,
}

impl Situation {
    pub fn of(me: NodeId, config: Arc<Config>) -> Situation {
        Situation {
            me,
            config,
            own: Own::default(),
            residents: Residents::new(me),
            members: Members::default(),
            departures: Departures::default(),
            reservations: Reservations::default(),
            promises: Vec::new(),
            owner: None,
            shares: None,
            bars: None,
        }
    }
}
