//! The away half of a process: the supervisor of its body, and of those of the processes that it
//! makes here ([`family`]).
//!
//! ```text
//!  daemon ──fd──► arrival: berth, image, sandbox        (one thread, before there is a body)
//!                    │ Run
//!                    ▼
//!   notices ◄─ seccomp ─ body ─ ptrace ─► tracing       (signals, freezing; the body's thread)
//!      │ Call                                 ▲
//!      ▼                                      │ orders
//!    deputy ── Reply, Signal ──► replies ─────┘
//! ```
//!
//! Three threads share [`state::State`]: `notices`, which is one for all bodies, takes what the
//! body may not do itself and forwards it, `replies` brings back the results, and the body's own
//! thread, to which ptrace belongs (of the first body the main thread), delivers signals and stops
//! the body. The body may run only while the link to its deputy lives: all its effects on the world
//! go through there, so a body without a link has none, and is destroyed.

mod abroad;
mod arrival;
mod capture;
mod company;
mod daemon;
mod deadlines;
mod delivery;
mod descriptors;
mod direct_files;
mod dispositions;
mod door;
mod exec;
mod family;
mod files;
mod filter;
mod frames;
mod group;
mod homing;
mod imprint;
mod job_control;
mod keeper;
mod lasting;
mod late;
mod leaving;
mod life;
mod mapped_files;
mod modesty;
mod moving_on;
mod new_processes;
mod new_threads;
mod notices;
mod own_files;
mod own_text;
mod preparing;
mod priority;
mod processor_time;
mod replies;
mod sending_home;
mod serving;
mod state;
mod tracing_loop;
mod unheard;
mod vfork;
mod waiting;
mod watch;

use migrate::MigrateError;
use std::process::ExitCode;
use wire::assignment::Half;

/// Runs an away supervisor: `--control-fd N` (default 3) is its socket to the daemon, `--without`
/// lists the kernel features that are missing; `--return` and `--patience` say where and for how
/// long the next daemon is waited for.
pub fn main(arguments: Vec<String>) -> ExitCode {
    if let Err(error) = kernel::features::inherit(&arguments) {
        ::tracing::error!("away supervisor: {error}");
        return ExitCode::from(2);
    }
    migrate::hashes::inherit(&arguments);
    let mut ready = None;
    let prepare = |place, entrance| ready = Some(arrival::Ready::make(place, entrance));
    let outcome = match attachment::await_assignment(&arguments, prepare) {
        Ok(Some((Half::Body, attached))) => arrival::run(attached, ready),
        Ok(Some((Half::Deputy { .. }, _))) => {
            ::tracing::error!("away supervisor: it is to be the other half");
            return ExitCode::from(2);
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // As when a move is refused that was already expected, or home thinks better of it. Home
        // says why; nothing is wrong with this node.
        Err(error @ (MigrateError::Refused(_) | MigrateError::Link(_))) => {
            ::tracing::debug!("the process does not come: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            ::tracing::error!("away supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}
