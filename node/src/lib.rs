//! The node daemon: the only place where the brain meets the engine, and the only one with sockets.
//!
//! ```text
//!  other nodes ─ net ──────┐                       ┌─► supervisors (`osmos deputy`, `osmos body`)
//!  user tools ─ control ───┼─► events ─► daemon ───┼─► links, datagrams
//!  supervisors ────────────┤        (one task)     └─► journal, replies
//!  /proc ─ sample, procfs ─┘            ▲ ▼
//!                                  brain (`cluster`)
//! ```
//!
//! The daemon keeps its state in parts, a file each (`daemon.rs` has a list of them): what a part
//! knows it tells through methods, and no part calls another one that is not inside it.
//!
//! Reasons for the form of the links: `docs/decisions/0003-node-links.md`.

mod accounts;
mod admissions;
mod call_record;
mod config;
mod control;
mod counts;
mod daemon;
pub mod decoders;
mod findings;
mod guest;
mod guest_cgroup;
mod hosting;
mod imprints;
mod inquiries;
mod jobs;
mod journal;
mod keyring;
mod keys;
mod links;
mod load;
mod looks;
mod map;
mod members;
mod memory_groups;
mod net;
mod openings;
mod others;
mod own_name;
mod paces;
mod passage;
mod past_berths;
mod places;
mod policy;
mod process;
mod procfs;
mod programs;
mod progress;
mod readiness;
mod ready;
mod recorder;
mod registry;
mod rejections;
mod returning;
mod roster;
mod sample;
mod service_manager;
mod spare;
mod spawning;
mod state;
mod supervisor;
mod supervisors;
mod thought;
mod user_servers;

#[cfg(test)]
mod test;

pub use config::{Config, MAP_DEFAULT, PORT_DEFAULT};

pub use findings::findings;

use daemon::{Ending, StartError};
use kernel::features::{self, Features, Need, Without};
use nix::sys::resource::{Resource, setrlimit};
use service_manager::JournalFormat;
use spawning::{Program, ProgramSpawn};
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use wire::processor::is_feature;

/// Runs a node daemon until it is told to end (`osmos down`, SIGTERM, SIGINT).
pub fn run(config: Config) -> ExitCode {
    log_to_standard_error();
    // Looked for now: it may be replaced by another version while the daemon runs.
    let program = std::env::current_exe();
    match serve(config) {
        // Whoever watches this process would take its end for that of the node.
        Ok(Ending::HandedOver) if service_manager::is_there() => begin_again(program),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The daemon that has handed over becomes the next one, of the program that is in its place now.
fn begin_again(program: std::io::Result<PathBuf>) -> ExitCode {
    let words = std::env::args_os().skip(1);
    let error = match program {
        Ok(program) => Command::new(program).arg0("osmos").args(words).exec(),
        Err(error) => error,
    };
    tracing::error!("no daemon takes the place of this one: {error}");
    ExitCode::FAILURE
}

/// Sets up logging for a daemon or a supervisor; `OSMOS_LOG` filters it. Somebody may have set it
/// up before: then that stays.
pub fn log_to_standard_error() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("OSMOS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter);
    let _ = match service_manager::logs_to_journal() {
        true => log.event_format(JournalFormat::default()).try_init(),
        false => log.try_init(),
    };
}

/// Finds out what this machine's kernel has, and goes by it from then on.
fn settle_features(without: &[Without]) -> Result<&'static Features, StartError> {
    let features = features::settle(Features::probe(without));
    if !without.is_empty() {
        let words: Vec<String> = without.iter().map(Without::to_string).collect();
        tracing::warn!("doing without {}", words.join(", "));
    }
    if let Some(name) = features.without_of_processor().find(|name| !is_feature(name)) {
        tracing::warn!("no feature of a processor is called `{name}`");
    }
    match features.lacks(Need::Node) {
        Some(feature) => Err(StartError::Kernel { feature }),
        None => Ok(features),
    }
}

/// The nice value of daemon and supervisors, where we may set it. They work little, but others wait
/// for what they do: a process stands still while it is moved, a body while it is served, and a
/// node whose daemon is late passes for dead. On a crowded node each of them would get a share like
/// any guest's, and each message of the dozen that a move takes would wait for a turn of some
/// milliseconds. Bodies keep neither this nor the short turns (`body::priority`).
const NICE: i32 = -10;

fn come_before_guests() {
    if let Err(error) = kernel::tracee::set_nice(0, NICE) {
        tracing::debug!("moves and forwarded calls wait their turn among guests: {error}");
    }
    // A supervisor that has given it up for a while runs as its process's owner, and may take it
    // again only by this limit: 20 less the nice value.
    let limit = (20 - NICE) as u64;
    if let Err(error) = setrlimit(Resource::RLIMIT_NICE, limit, limit) {
        tracing::debug!("supervisors that have worked much will not come first again: {error}");
    }
    kernel::haste::take_short_turns(0);
}

fn serve(config: Config) -> Result<Ending, StartError> {
    // Threads and supervisors that are started from here on inherit it.
    come_before_guests();
    let features = settle_features(&config.without)?;
    let without = features.words();
    let program = match &config.supervisor {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(StartError::Runtime)?,
    };
    let hashes = config.runtime_dir.join("hashes");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Runtime)?;
        let return_socket = config.return_socket();
        let patience = config.succession_patience;
        let program = Program { path: program, without, return_socket, patience, hashes };
        let node = daemon::start(config, Arc::new(ProgramSpawn::new(program))).await?;
        service_manager::tell_ready();
        let stop = node.stopper();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
            service_manager::tell_stopping();
            stop.stop().await;
        });
        Ok(node.wait().await)
    })
}
