//! Why something was decided. Thousands of decisions are made for each one that somebody asks
//! about, so a reason is kept as its numbers and becomes words only when it is shown.

use crate::messages::Refusal;
use crate::rule::{Gain, GainKind};
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;
use wire::ids::NodeId;

/// The reason of one decision; its `Display` is the line that `osmos why` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Why {
    /// In words already.
    Said(String),
    /// Another place promises more.
    Gain(Box<PlacesCompared>),
    Stays(WhyStays),
    /// The node that it was offered to does not take it.
    Refused(NodeId, WhyRefused),
    /// The node that it was offered to said nothing.
    Deaf(NodeId),
    Moved {
        freeze: Span,
    },
    /// It could not be moved.
    Unmoved,
    /// That node failed, or the way to it.
    Failed(NodeId),
    /// It came home from there by itself.
    CameHome(NodeId),
    /// It has done this many seconds of work, and another of its group, on that node, less.
    Ahead(NodeId, f64),
    /// It has fallen behind others of its group.
    Behind(NodeId),
}

/// Why a process that could have been considered stays, with the numbers that speak against a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WhyStays {
    Pinned,
    Unable(String),
    Light { demand: f64, demand_min: f64 },
    Brief { left: Span, left_min: Span },
    Young { here: Span },
    Resting,
    Kept,
    NobodyKnown { age_max: Span },
    NoGain { dead_band: f64 },
    Unpaid { freeze: Span, cpu: Span },
    Gone,
}

/// The word for why an offer was refused, as in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyRefused(u8);

/// What a process has where it is, and would have elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacesCompared {
    pub(crate) gain: Gain,
    pub(crate) here: PlaceSeen,
    pub(crate) there: PlaceSeen,
    pub(crate) node: NodeId,
    /// Of what is known of that node.
    pub(crate) age: Span,
    pub(crate) freeze: Span,
    pub(crate) cpu: Span,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlaceSeen {
    pub runnable: f64,
    pub cores: u32,
    pub speed: f64,
}

impl From<Refusal> for WhyRefused {
    fn from(refusal: Refusal) -> WhyRefused {
        WhyRefused(refusal as u8)
    }
}

impl From<String> for Why {
    fn from(words: String) -> Why {
        Why::Said(words)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Said(words) => f.write_str(words),
            Why::Gain(compared) => compared.fmt(f),
            Why::Stays(why) => why.fmt(f),
            Why::Refused(node, WhyRefused(refusal)) => {
                let words = Refusal::from_wire(*refusal).map_or("it said no", Refusal::text);
                write!(f, "node {node} refused: {words}")
            }
            Why::Deaf(node) => write!(f, "node {node} did not answer"),
            Why::Moved { freeze } => write!(f, "moved, frozen for {freeze}"),
            Why::Unmoved => f.write_str("it could not be moved and runs on"),
            Why::Failed(node) => write!(f, "node {node} or the way to it failed"),
            Why::CameHome(node) => {
                write!(f, "it came home from node {node}: a call or a fault needed it here")
            }
            Why::Ahead(node, attained_s) => write!(
                f,
                "it has done {attained_s:.1} s of work, and another of its group on node {node} \
                 less"
            ),
            Why::Behind(node) => {
                write!(f, "it has fallen behind others of its group: its turn on node {node}")
            }
        }
    }
}

impl fmt::Display for WhyStays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyStays::Pinned => f.write_str("its user placed it here"),
            WhyStays::Unable(reason) => write!(f, "it cannot move: {reason}"),
            WhyStays::Light { demand, demand_min } => {
                write!(
                    f,
                    "it wants {demand:.2} of a core, less than the {demand_min:.2} worth a move"
                )
            }
            WhyStays::Brief { left, left_min } => write!(
                f,
                "it has {left} to compute yet, by others of its name; less than {left_min} is not \
                 worth a move"
            ),
            WhyStays::Young { here } => write!(f, "it has been here for {here} only"),
            WhyStays::Resting => f.write_str("it rests after an earlier move"),
            WhyStays::Kept => f.write_str("the owner of this node keeps its own processes here"),
            WhyStays::NobodyKnown { age_max } => {
                write!(f, "no other node is known well (news of the last {age_max})")
            }
            WhyStays::NoGain { dead_band } => write!(
                f,
                "no other node known promises it {:.0} % more than here",
                dead_band * 100.0
            ),
            WhyStays::Unpaid { freeze, cpu } => {
                write!(f, "a freeze of {freeze} would not pay after {cpu} of CPU time")
            }
            WhyStays::Gone => f.write_str("it does not run here"),
        }
    }
}

impl fmt::Display for PlacesCompared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlacesCompared { gain, here, there, node, age, freeze, cpu } = self;
        write!(
            f,
            "{}: rate {:.2} here ({:.1} runnable on {} cores at {:.2}), {:.2} on node {node} \
             ({:.1} on {} at {:.2}, known {age} ago); freeze {freeze}, CPU time so far {cpu}",
            gain.kind.text(),
            gain.rate_before,
            here.runnable,
            here.cores,
            here.speed,
            gain.rate_after,
            there.runnable,
            there.cores,
            there.speed,
        )
    }
}

impl GainKind {
    fn text(self) -> &'static str {
        match self {
            GainKind::IdleCore => "an idle core there",
            GainKind::FasterPlace => "a faster place there",
            GainKind::LargerShare => "a larger share there",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_both_places_with_their_numbers() {
        let gain = Gain { kind: GainKind::IdleCore, rate_before: 0.5, rate_after: 1.0 };
        let why = Why::Gain(Box::new(PlacesCompared {
            gain,
            here: PlaceSeen { runnable: 2.0, cores: 1, speed: 1.0 },
            there: PlaceSeen { runnable: 0.0, cores: 1, speed: 1.0 },
            node: NodeId(7),
            age: Span::from_millis(300),
            freeze: Span::from_millis(40),
            cpu: Span::from_secs(12),
        }));
        assert_eq!(
            why.to_string(),
            "an idle core there: rate 0.50 here (2.0 runnable on 1 cores at 1.00), 1.00 on node 7 \
             (0.0 on 1 at 1.00, known 300.0 ms ago); freeze 40.0 ms, CPU time so far 12.0 s"
        );
        let refused = Why::Refused(NodeId(3), Refusal::Memory.into());
        assert_eq!(refused.to_string(), "node 3 refused: it would not fit into its memory");
    }
}
