//! What the user wants done, and what came of it.

use nix::sys::signal::Signal;
use wire::control::Destination;
use wire::ids::{GlobalPid, NodeId};
use wire::owner::OwnerOrder;

/// Orders that may be under way at once.
pub const ORDERS_MAX: usize = 8;
/// Linux has no signals beyond this.
const SIGNAL_MAX: i32 = 64;

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

pub fn signal_name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => format!("signal {signal}"),
    }
}

/// `TERM`, `sigterm` or `15`.
pub fn signal_of(word: &str) -> Result<i32, String> {
    let upper = word.to_uppercase();
    if let Ok(number) = upper.parse::<i32>() {
        return match number {
            1..=SIGNAL_MAX => Ok(number),
            _ => Err(format!("there is no signal {number}: they are 1 to {SIGNAL_MAX}")),
        };
    }
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let signal = name.parse::<Signal>().map(|signal| signal as i32);
    signal.map_err(|_| format!("`{word}` is no signal; TERM, KILL and 15 are"))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_signal_is_a_name_or_a_number() {
        for (word, number) in [("TERM", 15), ("sigkill", 9), ("Usr1", 10), ("34", 34)] {
            assert_eq!(signal_of(word), Ok(number), "{word}");
        }
        for word in ["", "0", "65", "-9", "TERMINATE", "SIG"] {
            assert!(signal_of(word).is_err(), "{word:?} was accepted");
        }
        assert_eq!([signal_name(15), signal_name(40)], ["SIGTERM", "signal 40"]);
    }
}
