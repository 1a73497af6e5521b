//! `osmos run`: hand this very process to the daemon, then become the command.
//!
//! The command gets the process as its parent made it: same pid, terminal, descriptors, signal
//! mask and dispositions. Nothing of Osmos remains in it, not even an environment variable, unless
//! it is to keep to a baseline of processors, to do without io_uring, or is an MPI job.

use crate::cpu_baseline;
use crate::exit_code;
use crate::mpi;
use crate::platform::{Inherited, Platform};
use crate::running::RunOptions;
use anyhow::{Context, Result, bail};
use client::Client;
use rustix::io::Errno;
use rustix::process::{PTracer, Pid, set_ptracer};
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use wire::control::{ManageOptions, Reply, Request};

/// Returns only if the command was not started.
pub fn run(options: &RunOptions, socket: &Path, platform: &dyn Platform) -> ExitCode {
    let filters = options.mobile && !is_filtered();
    let managed = be_managed(options, filters, socket);
    let left_out = match managed.and_then(|left_out| {
        if filters {
            let refused = platform.refuse_io_uring();
            refused.context("the command was not started: cannot have it do without io_uring")?;
        }
        Ok(left_out)
    }) {
        Ok(left_out) => left_out,
        Err(error) => return exit_code::report(&error, exit_code::NOT_STARTED),
    };
    let mut variables = cpu_baseline::variables(&left_out, |name| std::env::var_os(name));
    variables.extend(mpi_variables(options));
    let error = become_command(&options.command, variables, platform.inherited());
    let program = options.command[0].to_string_lossy().into_owned();
    let code = exit_code::of_exec_error(&error);
    exit_code::report(&anyhow::Error::new(error).context(format!("cannot run `{program}`")), code)
}

/// What an MPI job is told, of which the user hears.
fn mpi_variables(options: &RunOptions) -> Vec<(&'static str, OsString)> {
    if !options.mpi.applies(&options.command[0], options.home) {
        return Vec::new();
    }
    let variables = mpi::variables(|name| std::env::var_os(name));
    if !variables.is_empty() {
        // A closed standard error is no reason not to run it.
        let _ = writeln!(io::stderr(), "{}", mpi::notice(&variables));
    }
    variables
}

/// Whether this process has a seccomp filter already. If it is that of a `--mobile` around this
/// one, another need not be, and if it is somebody else's, another would not help: such a process
/// stays home.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

/// What the command is to leave out of the processor. The connection is closed when this returns:
/// the command inherits nothing of it.
fn be_managed(options: &RunOptions, is_mobile: bool, socket: &Path) -> Result<Vec<String>> {
    let not_started = "the command was not started";
    let mut client = Client::connect(socket).context(not_started)?;
    let manage = ManageOptions {
        placement: options.placement(&mut client).context(not_started)?,
        storm_ms: options.storm,
        cpu_baseline: options.cpu_baseline,
        freeze_budget_ms: options.freeze_budget,
        way: options.method,
        is_mobile,
        is_timed: options.timed,
    };
    let reply = client.request(&Request::Manage(manage)).context(not_started)?;
    let Reply::Managed { daemon_pid, left_out, .. } = reply else {
        bail!("the command was not started: the daemon answered {reply:?}");
    };
    allow_tracer(daemon_pid).with_context(|| {
        format!("the command was not started: cannot let the daemon (pid {daemon_pid}) move it")
    })?;
    Ok(left_out.unwrap_or_default())
}

/// Lets the daemon and what it starts trace this process, which outlasts the exec. Where Yama does
/// not restrict tracing there is nothing to allow, and the kernel says EINVAL.
fn allow_tracer(daemon_pid: i32) -> io::Result<()> {
    let tracer = Pid::from_raw(daemon_pid).filter(|_| daemon_pid > 0);
    let tracer = tracer.ok_or_else(|| io::Error::other("that is not a pid"))?;
    match set_ptracer(PTracer::ProcessID(tracer)) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn become_command(
    command: &[OsString],
    variables: Vec<(&'static str, OsString)>,
    inherited: Inherited,
) -> io::Error {
    for (descriptor, closed) in inherited.closed_standard.into_iter().enumerate() {
        if closed {
            // The runtime opened /dev/null there before main. It is open, so this cannot fail.
            let _ = nix::unistd::close(descriptor as i32);
        }
    }
    if inherited.sigpipe_ignored {
        // The runtime ignores SIGPIPE, which is what the command is to find; std's exec would
        // set the default.
        exec_unchanged(command, &variables)
    } else {
        Command::new(&command[0]).args(&command[1..]).envs(variables).exec()
    }
}

fn exec_unchanged(command: &[OsString], variables: &[(&'static str, OsString)]) -> io::Error {
    let words: Result<Vec<CString>, _> =
        command.iter().map(|word| CString::new(word.as_bytes())).collect();
    let is_set = |name: &OsString| variables.iter().any(|(set, _)| name == set);
    let own = std::env::vars_os().filter(|(name, _)| !is_set(name));
    let set = variables.iter().map(|(name, value)| (OsString::from(name), value.clone()));
    let environment: Result<Vec<CString>, _> = own
        .chain(set)
        .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect();
    match words.and_then(|words| Ok((words, environment?))) {
        Ok((words, environment)) => match nix::unistd::execvpe(&words[0], &words, &environment) {
            Ok(never) => match never {},
            Err(errno) => errno.into(),
        },
        Err(nul) => io::Error::new(io::ErrorKind::InvalidInput, nul),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_a_process() {
        assert!(allow_tracer(std::process::id() as i32).is_ok());
        for pid in [0, -1] {
            assert!(allow_tracer(pid).is_err(), "{pid} was accepted");
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_not_found_either_way() {
        let command = [OsString::from("/nowhere/command")];
        for sigpipe_ignored in [false, true] {
            let inherited = Inherited { sigpipe_ignored, ..Inherited::default() };
            let error = become_command(&command, Vec::new(), inherited);
            assert_eq!(exit_code::of_exec_error(&error), exit_code::NOT_FOUND);
        }
    }
}
