//! `osmos bench balance`: how good the balancing is, against exact optima and against the policies
//! of the past.
//!
//! * [`scenarios`]: the experiments; [`policy`]: what is compared; [`trial`]: one run
//! * [`optimum`], [`churn`]: what nobody can beat; [`paper`]: what was published in 1996
//! * [`results`]: all of it in one shape; [`report`], [`plot`]: for people
//! * [`command`]: the command line

pub mod churn;
pub mod command;
pub mod optimum;
pub mod paper;
pub mod plot;
pub mod policy;
pub mod report;
pub mod results;
pub mod scenarios;
pub mod trial;
