//! `osmos bench balance`: how good the balancing is, against exact optima and against the policies
//! of the past, in the simulator and for real in a lab.
//!
//! * [`scenarios`]: the experiments; [`policy`]: what is compared; [`trial`]: one run, simulated
//! * [`scale`], [`real`]: the same run in a lab, in less time; [`stage`]: the lab;
//!   [`happenings`]: what goes wrong in it; [`crew`], [`guest`]: what runs in it; [`in_lab`]: one
//!   after another; [`kept`]: what came of them
//! * [`optimum`], [`churn`]: what nobody can beat; [`paper`]: what was published in 1996
//! * [`sensitivity`]: which constants of the policy matter
//! * [`results`]: all of it in one shape; [`report`], [`side_by_side`], [`plot`]: for people
//! * [`command`]: the command line

pub mod churn;
pub mod command;
pub mod crew;
pub mod guest;
pub mod happenings;
pub mod in_lab;
pub mod kept;
pub mod optimum;
pub mod paper;
pub mod plot;
pub mod policy;
pub mod real;
pub mod report;
pub mod results;
pub mod scale;
pub mod scenarios;
pub mod sensitivity;
pub mod side_by_side;
pub mod stage;
pub mod trial;
