//! Many processes of every kind, moved at random for a long time: none is lost, none is doubled,
//! and nothing of them is left behind.
//!
//! Each program repeats the same lap until it is told to stop, and appends a line to a file of its
//! home for each: its name, the lap's number, a digest. The digest of a native lap is the oracle;
//! a lap that is missing, out of order or there twice is a process that was lost or doubled. What
//! the nodes hold (processes, namespaces, cgroups, mounts, descriptors, files) is counted before
//! and after.
//!
//! * [`programs`]: what is run; [`ground`]: where; [`crew`]: the programs of one soak
//! * [`killer`]: who kills daemons meanwhile
//! * [`movers`]: who moves them; [`census`]: what a lab holds; [`report`]: the outcome
//! * [`run`](self::run): all of it in order

pub mod census;
pub mod crew;
pub mod ground;
pub mod killer;
pub mod movers;
pub mod programs;
pub mod report;
pub mod run;

pub use report::Report;
pub use run::{Options, run};
