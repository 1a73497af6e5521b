//! `osmos time`: what a command takes, wherever it runs.
//!
//! The command is a child of this process and is started by `osmos run`, so that nothing is
//! different for it. Home's kernel tells what it and those that it waited for have used here, the
//! daemon what it and all its descendants that have ended have used away, waited for or not.

use crate::exit_code;
use crate::platform::{Inherited, Platform};
use crate::running::TimeOptions;
use anyhow::{Context, Result};
use client::Client;
use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Serialize;
use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::control::{Reply, Request};

/// This program, also if another one is in its place by now.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Another daemon may be about to take over: nobody can tell when it listens, so it is asked for
/// again, so often, after so long.
const ATTEMPTS_MAX: u32 = 100;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);
/// Added to the number of a signal that ended the command, as shells do.
const BY_SIGNAL: i32 = 128;

/// Seconds, as they are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Times {
    real_s: f64,
    /// With what was used away.
    user_s: f64,
    sys_s: f64,
    away_user_s: f64,
    away_sys_s: f64,
    exit_status: i32,
}

impl Times {
    /// As `time -p` of POSIX prints them.
    fn text(&self) -> String {
        format!("real {:.2}\nuser {:.2}\nsys {:.2}\n", self.real_s, self.user_s, self.sys_s)
    }
}

pub fn time(options: TimeOptions, socket: &Path, platform: &dyn Platform) -> ExitCode {
    match time_command(options, socket, platform.inherited()) {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => exit_code::report(&error, exit_code::NOT_STARTED),
    }
}

fn time_command(mut options: TimeOptions, socket: &Path, inherited: Inherited) -> Result<i32> {
    options.run.timed = true;
    let words = ["osmos".into(), "--socket".into(), socket.into(), "run".into()];
    let words = words.into_iter().chain(options.run.words()).collect::<Vec<OsString>>();
    let begun = Instant::now();
    let child = spawn(words, inherited).context("the command was not started")?;
    let exit_status = await_end(child).context("cannot wait for the command")?;
    let real_s = begun.elapsed().as_secs_f64();
    let mut times = Times { real_s, exit_status, ..used_here()? };
    match ask(socket, child) {
        Ok((user_s, sys_s)) => {
            times = Times { away_user_s: user_s, away_sys_s: sys_s, ..times };
            times.user_s += user_s;
            times.sys_s += sys_s;
        }
        // It has said itself why it was not started.
        Err(_) if exit_status == i32::from(exit_code::NOT_STARTED) => return Ok(exit_status),
        Err(error) => eprintln!("osmos: what it used on other nodes is not known: {error:#}"),
    }
    let text = match options.json {
        true => serde_json::to_string(&times)? + "\n",
        false => times.text(),
    };
    // Nobody is left to be told if this cannot be written, and the status is the command's.
    let _ = std::io::stderr().write_all(text.as_bytes());
    Ok(exit_status)
}

/// Starts this program again. What the language's runtime has changed is for the command as it was,
/// and an interrupt from the terminal is for the command alone.
fn spawn(words: Vec<OsString>, inherited: Inherited) -> Result<Pid> {
    let mut ours = SigSet::empty();
    ours.add(Signal::SIGINT);
    ours.add(Signal::SIGQUIT);
    let before = ours.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(&before)?;
    let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK;
    if !inherited.sigpipe_ignored {
        let mut defaults = SigSet::empty();
        defaults.add(Signal::SIGPIPE);
        attributes.set_sigdefault(&defaults)?;
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    }
    attributes.set_flags(flags)?;
    let mut actions = PosixSpawnFileActions::init()?;
    for (descriptor, closed) in inherited.closed_standard.into_iter().enumerate() {
        if closed {
            actions.add_close(descriptor as i32)?;
        }
    }
    let text = |bytes: Vec<u8>| CString::new(bytes).context("a word with a zero byte in it");
    let words = words.into_iter().map(|word| text(word.into_vec())).collect::<Result<Vec<_>>>()?;
    let variables = std::env::vars_os()
        .map(|(name, value)| text([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<Vec<_>>>()?;
    Ok(posix_spawn(OWN_PROGRAM, &actions, &attributes, &words, &variables)?)
}

/// Its exit status, as a shell would tell it.
fn await_end(child: Pid) -> Result<i32> {
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(BY_SIGNAL + signal as i32),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn used_here() -> Result<Times> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read what it has used")?;
    let [user_s, sys_s] = [used.user_time(), used.system_time()]
        .map(|time| Duration::from_micros(time.num_microseconds() as u64).as_secs_f64());
    Ok(Times { user_s, sys_s, ..Times::default() })
}

/// User and system time that the command and its descendants have used away.
fn ask(socket: &Path, child: Pid) -> client::Result<(f64, f64)> {
    let request = Request::TimeAway { pid: child.as_raw() };
    let mut attempts = 1;
    loop {
        match Client::connect(socket).and_then(|mut client| client.request(&request)) {
            Ok(Reply::TimeAway { user_s, sys_s }) => return Ok((user_s, sys_s)),
            Ok(other) => {
                let got = format!("{other:?}");
                return Err(client::Error::Unexpected { wanted: "times", got });
            }
            Err(error @ client::Error::Refused(_)) => return Err(error),
            Err(error) if attempts == ATTEMPTS_MAX => return Err(error),
            Err(_) => {
                attempts += 1;
                std::thread::sleep(ATTEMPT_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_posix_has_them() {
        let times = Times { real_s: 61.25, user_s: 0.125, sys_s: 2.0, ..Times::default() };
        assert_eq!(times.text(), "real 61.25\nuser 0.12\nsys 2.00\n");
    }
}
