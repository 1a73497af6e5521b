//! What the user wants done, and what came of it.

use client::signals::signal_name;
use wire::control::Destination;
use wire::ids::{GlobalPid, NodeId};
use wire::owner::OwnerOrder;

/// Orders that may be under way at once.
pub const ORDERS_MAX: usize = 8;

/// What the loop around the model has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Ask(Order),
    /// The next picture is wanted at once.
    Look,
    Leave,
    /// ^Z.
    Suspend,
    /// Everything on the screen is to be written anew.
    Redraw,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    Why(GlobalPid),
    Migrate(GlobalPid, Destination),
    /// To stay where it is.
    Pin(GlobalPid, NodeId),
    Signal(GlobalPid, i32),
    Owner(NodeId, OwnerOrder),
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub order: Order,
    /// Text of what was done, or the daemon's own words why not.
    pub result: Result<String, String>,
}

impl Order {
    /// While it is under way.
    pub fn sentence(&self) -> String {
        match self {
            Order::Why(process) => format!("asking why {} is where it is", process.pid),
            Order::Migrate(process, to) => {
                let to = match to {
                    Destination::Home => "home".to_owned(),
                    Destination::Best => "to the best node".to_owned(),
                    Destination::Node(node) => format!("to node {node}"),
                };
                format!("moving {} {to}", process.pid)
            }
            Order::Pin(process, node) => format!("pinning {} to node {node}", process.pid),
            Order::Signal(process, signal) => {
                format!("sending {} to {}", signal_name(*signal), process.pid)
            }
            Order::Owner(node, order) => format!("node {node}: {}", owner_word(order)),
        }
    }
}

fn owner_word(order: &OwnerOrder) -> &'static str {
    match order {
        OwnerOrder::Expel => "its guests leave",
        OwnerOrder::Drain { on: true } => "everything leaves it",
        OwnerOrder::Drain { on: false } | OwnerOrder::Block { on: false } => {
            "guests may come again"
        }
        _ => "its owner has decided",
    }
}
