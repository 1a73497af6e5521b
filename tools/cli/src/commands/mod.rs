//! What each command does; one file for each that needs more than a few lines.

pub mod config;
pub mod daemon;
pub mod doctor;
pub mod foresight;
pub mod install;
pub mod job;
pub mod listings;
pub mod membership;
pub mod metrics;
pub mod mount;
pub mod moves;
pub mod owner;
pub mod ping;
pub mod ps;
pub mod pvm;
pub mod report;
pub mod run;
pub mod service;
pub mod time;
pub mod top;
pub mod web;

use wire::control::Reply;

/// An answer to something else than what was asked: two versions that do not fit.
pub fn unexpected(reply: &Reply) -> anyhow::Error {
    anyhow::anyhow!("the daemon answered {reply:?}: is it of another version? see `osmos status`")
}
