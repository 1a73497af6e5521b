//! A lab: a cluster of separate nodes inside one machine.
//!
//! The demo, the tests and the benchmarks run on it, and so can anybody who wants to see Osmos with
//! one machine only. Each node has network, PID, mount, UTS and IPC namespaces of its own and a
//! cgroup with a CPU speed and a memory limit, so whatever a program still finds after it has moved
//! it has really got from its home.
//!
//! * [`spec`]: what a lab is asked to be; [`record`]: what is written down about it
//! * [`lab`], [`node`]: [`Lab`] and [`Node`], for programs; [`arguments`]: `osmos lab ...`, for
//!   people
//! * [`keeper`]: the processes of a lab; [`mounts`], [`network`], [`cgroup`]: what they make;
//!   [`netlink`]: how the network is told; [`disturbance`]: what is wrong with it; [`switch`]:
//!   where machines are plugged in
//! * [`pace`]: how fast the machine is meanwhile; [`awake`]: that it does not sleep;
//!   [`expedited`]: that nobody waits to enter a cgroup
//! * [`exec`]: commands in a node; [`daemon`]: its osmos; [`listing`], [`check`]: a look at it all
//!
//! Reasons: `docs/decisions/0005-lab.md`.

pub mod arguments;
mod awake;
pub mod cgroup;
mod check;
mod daemon;
mod disturbance;
mod exec;
mod expedited;
mod keeper;
pub mod lab;
mod listing;
mod mounts;
mod netlink;
mod network;
mod node;
mod pace;
mod process;
mod record;
mod spec;
mod switch;

pub use arguments::{LabArguments, LabCommand, definition, hidden_main, main, print, run};
pub use awake::Awake;
pub use disturbance::Disturbance;
pub use expedited::Expedited;
pub use lab::{Lab, NoLab, down, try_smallest};
pub use node::Node;
pub use pace::{Mark, Pacemaker, Piece};
pub use process::Keeper;
pub use record::address;
pub use spec::{LabName, MemorySize, Rate, Spec};
pub use switch::Switch;
