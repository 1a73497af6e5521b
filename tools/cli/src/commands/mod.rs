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

use std::path::PathBuf;
use wire::control::Reply;

/// Where commands keep what is to be there the next time, by the XDG base directory specification;
/// none without a home directory.
pub fn state_directory() -> Option<PathBuf> {
    let named =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("osmos"))
}

/// An answer to something else than what was asked: two versions that do not fit.
pub fn unexpected(reply: &Reply) -> anyhow::Error {
    anyhow::anyhow!("the daemon answered {reply:?}: is it of another version? see `osmos status`")
}
