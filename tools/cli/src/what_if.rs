//! What `what-if` is asked.

use crate::arguments::Listing;
use crate::naming::{NodeChoice, node};
use crate::processes::ProcessChoice;
use crate::values::{size, speed};
use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct WhatIfOptions {
    /// A process that runs on this node; NODE:PID if it runs on another one, by its pid there
    #[arg(required_unless_present = "node", requires = "to")]
    pub process: Option<ProcessChoice>,
    /// The node that it would go to, by number or name
    #[arg(value_parser = node)]
    pub to: Option<NodeChoice>,
    /// An idle node that does not exist: cores=N, speed=S, memory=SIZE
    #[arg(long, value_name = "SHAPE", value_parser = node_shape, conflicts_with = "process")]
    pub node: Option<NodeShape>,
    #[command(flatten)]
    pub listing: Listing,
}

/// A node that somebody thinks of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeShape {
    pub cores: u32,
    pub speed: f64,
    pub memory_bytes: u64,
}

fn node_shape(words: &str) -> Result<NodeShape, String> {
    let mut shape = NodeShape { cores: 1, speed: 1.0, memory_bytes: 64 << 30 };
    for word in words.split(',') {
        let complaint = || format!("`{word}` is none of cores=N, speed=S and memory=SIZE");
        let (name, value) = word.split_once('=').ok_or_else(complaint)?;
        match name {
            "cores" => {
                shape.cores = value.parse().ok().filter(|n| *n > 0).ok_or_else(complaint)?;
            }
            "speed" => shape.speed = speed(value)?,
            "memory" => shape.memory_bytes = size(value)?,
            _ => return Err(complaint()),
        }
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    #[test]
    fn a_node_is_thought_of_by_what_it_has() {
        let shape = NodeShape { cores: 4, speed: 1.5, memory_bytes: 8 << 30 };
        assert_eq!(node_shape("cores=4,speed=1.5,memory=8G"), Ok(shape));
        for words in ["cores=0", "cores", "speed=-1", "disk=3", ""] {
            assert!(node_shape(words).is_err(), "{words:?} was accepted");
        }
        let what_if = |words: &[&str]| {
            Arguments::try_parse_from(["osmos", "what-if"].iter().chain(words)).is_ok()
        };
        assert!(what_if(&["4711", "3"]) && what_if(&["--node", "cores=2"]));
        assert!(
            !what_if(&["4711"]) && !what_if(&[]) && !what_if(&["4711", "3", "--node", "cores=2"])
        );
    }
}
