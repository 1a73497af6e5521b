//! The home half of a process that is away: the supervisor of one deputy.
//!
//! The deputy is the process itself: it keeps its pid, parent, terminal, files and credentials, and
//! each of its threads runs the agent (`kernel::agent`), executing the calls that its body asks
//! for.
//!
//! ```text
//!   departure ── freeze, capture, send ──► away
//!      │
//!      ▼
//!   service     calls ◄─ link ─► body        (`calls`: one thread reads, one waits for slow calls)
//!      │        signals, job control, death  (`signals`: the main thread, to which ptrace belongs)
//!      ▼
//!   homecoming ── memory, registers, calls in flight ──► a plain process, nothing attached
//!      │ failed
//!      ▼
//!   withdrawal ── a deputy again, the body goes on ──► service
//! ```
//!
//! **Invariants.** The process runs in one place. Until the target has said `Running` the source is
//! whole and can be thawed. A forwarded call is executed at most once: a lane remembers its last
//! call's number and reply until the next call comes.

mod announcing;
mod arriving;
mod born_away;
mod commons;
mod cpu_limit;
mod credentials;
mod daemon;
mod departed;
mod departure;
mod direct_files;
mod ending;
mod exec;
mod frozen;
mod group;
mod homecoming;
mod in_flight;
mod keeping;
mod lanes;
mod late;
mod limited_sleep;
mod mapped_files;
mod meanwhile;
mod moves;
mod new_processes;
mod new_threads;
mod notice;
mod onlookers;
mod own_files;
mod own_memory;
mod priorities;
mod processor_time;
mod read_ahead;
mod refilling;
mod replies;
mod resumption;
mod service;
mod settings;
mod settling;
mod signals;
mod tids;
mod together;
mod withdrawal;

use attachment::Attachment;
use departed::Remembered;
use group::Group;
use migrate::{MigrateError, Result};
use std::fs::File;
use std::process::ExitCode;
use wire::assignment::Half;
use wire::ids::HomePid;
use wire::limits::{GROUP_MAX, SHARED_MEMORY_MAX};
use wire::memory_group::BOUND;
use wire::supervisor::{FromDeputy, ToDeputy};

/// Runs a home supervisor, whose process it is told by the daemon: `--control-fd N` (default 3) is
/// the socket to that, `--without` lists the kernel features that are missing; `--return` and
/// `--patience` say where and for how long the next daemon is waited for.
pub fn main(arguments: Vec<String>) -> ExitCode {
    kernel::allocator::share_one_heap();
    if let Err(error) = kernel::features::inherit(&arguments) {
        ::tracing::error!("deputy: {error}");
        return ExitCode::from(2);
    }
    migrate::hashes::inherit(&arguments);
    let (pid, attached) = match attachment::await_assignment(&arguments, |_, _| {}) {
        Ok(Some((Half::Deputy { pid }, attached))) => (pid.0, attached),
        Ok(Some((Half::Body, _))) => {
            ::tracing::error!("deputy: it is to be the other half");
            return ExitCode::from(2);
        }
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            ::tracing::error!("deputy: {error}");
            return ExitCode::FAILURE;
        }
    };
    match run(pid, attached) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ::tracing::error!("deputy of {pid}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(pid: i32, attached: Attachment) -> Result<()> {
    let daemon = daemon::Daemon::new(attached);
    let outcome = serve(pid, &daemon);
    // The process is on its own again, whoever has still to be told.
    daemon.deliver();
    outcome
}

/// Serves one process from its first departure to its return or end.
fn serve(pid: i32, daemon: &daemon::Daemon) -> Result<()> {
    let signals = kernel::child_signal::ChildSignal::new()?;
    let mut remembered = Remembered::default();
    let (mut group, mut memory) = (Group::default(), vec![]);
    let (berth, terms) = loop {
        let (order, descriptor) = daemon.receive()?;
        match order {
            ToDeputy::Group { members, companions, named } => {
                let page = descriptor.ok_or_else(|| {
                    MigrateError::Protocol("a group without what it agrees by".into())
                })?;
                group = Group::of(pid, page, (&members, named), companions)?;
                group.know_memory(memory.drain(..));
            }
            ToDeputy::SharedMemory if memory.len() < SHARED_MEMORY_MAX => {
                memory.extend(descriptor.map(File::from));
            }
            ToDeputy::SharedMemory => {}
            ToDeputy::Waits(waits) => remembered.waits = waits,
            ToDeputy::Clocks(part) => remembered.add_clocks(part),
            ToDeputy::Baseline(baseline) => remembered.baseline = Some(*baseline),
            ToDeputy::Mobile => remembered.is_mobile = true,
            ToDeputy::Leave { berth, freeze_budget, limits, way } => {
                break (berth, (freeze_budget, limits, way));
            }
            ToDeputy::Born(birth) => return born_away::serve(pid, *birth, daemon, signals),
            ToDeputy::ComeHome { .. } | ToDeputy::CallOff { .. } => return Ok(()),
            // Of a move before.
            ToDeputy::Guarded { .. } | ToDeputy::Opened { .. } => {}
        }
    };
    let meanwhile = meanwhile::Meanwhile::of(daemon);
    let left =
        departure::leave(pid, (&berth, terms), &mut remembered, &signals, (&meanwhile, &group));
    if left.is_err() {
        group.stay();
    }
    match left {
        Ok(away) => service::run(away, daemon, signals),
        Err(MigrateError::Ended(wait_status)) => {
            daemon.send(&FromDeputy::Ended { wait_status });
            Ok(())
        }
        Err(MigrateError::Lost(error)) => {
            if let Some(wait_status) = ending::end_behind(pid, &error) {
                daemon.send(&FromDeputy::Ended { wait_status });
                return Ok(());
            }
            ending::kill(pid);
            ending::see_it_end(pid, &signals);
            let error = MigrateError::Lost(error);
            daemon.send(&FromDeputy::Lost { node: berth.node, reason: error.reason() });
            Err(error)
        }
        Err(error) => {
            if !remembered.waits.is_empty() {
                daemon.send(&FromDeputy::Waits(remembered.waits));
            }
            let reason = group.explain(error).reason();
            if reason.code == BOUND && !group.is_any() {
                tell_of_group(pid, daemon);
            }
            daemon.send(&FromDeputy::Stayed { reason });
            Ok(())
        }
    }
}

/// Tells the daemon with whom the process would have to move.
fn tell_of_group(pid: i32, daemon: &daemon::Daemon) {
    let (members, named) = migrate::group::of(pid).unwrap_or_default();
    if (2..=GROUP_MAX + 1).contains(&members.len()) && named.len() <= SHARED_MEMORY_MAX {
        let members = members.into_iter().map(HomePid).collect();
        daemon.send(&FromDeputy::BoundTo { members, named });
    }
}
