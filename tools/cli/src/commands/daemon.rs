//! `osmos up`: start the node daemon in the background and wait until it answers.
//!
//! The daemon is this same program, run as `osmos daemon`. It is a session of its own, so that the
//! terminal it was started from can neither stop nor end it; what it logs goes to a file.

use crate::daemon_options::{DaemonOptions, UpOptions};
use crate::exit_code;
use crate::naming::called;
use crate::output;
use crate::platform::Platform;
use anyhow::{Context, Result, bail};
use client::Client;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wire::control::Status;

/// Measuring the node's speed and reading a large map are the slowest things it does first.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The daemon cannot tell us when its socket is there, so we ask again after this long.
const READY_POLL: Duration = Duration::from_millis(10);
/// How much of its log is shown when it fails.
const LOG_TAIL_BYTES_MAX: u64 = 4096;

/// Where a daemon with certain options has its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonFiles {
    pub socket: PathBuf,
    pub log: PathBuf,
    pub state_dir: PathBuf,
}

pub fn up(options: &UpOptions, platform: &dyn Platform) -> ExitCode {
    let files = platform.daemon_files(&options.daemon);
    if options.replace
        && let Err(error) = dismiss(&files.socket)
    {
        return exit_code::report(&error, exit_code::FAILED);
    }
    if options.foreground {
        return platform.daemon(&options.daemon);
    }
    platform.keep_descriptors();
    match start(&options.daemon, &files) {
        Ok(status) => {
            let told = match options.json {
                true => output::print_json(&status),
                false => output::print_line(&welcome(&status)),
            };
            // The node is up, whether or not anybody is left to be told.
            let _ = told;
            ExitCode::from(exit_code::DONE)
        }
        Err(error) => exit_code::report(&error, exit_code::FAILED),
    }
}

/// Starts a daemon with nothing said about it.
pub fn begin(platform: &dyn Platform) -> Result<Status> {
    let options = DaemonOptions::default();
    let files = platform.daemon_files(&options);
    platform.keep_descriptors();
    start(&options, &files)
}

/// Another one takes the place of the daemon that runs.
pub fn replace(platform: &dyn Platform) -> Result<Status> {
    dismiss(&platform.daemon_files(&DaemonOptions::default()).socket)?;
    begin(platform)
}

/// `osmos daemon`: leave the session of the terminal, then be the daemon.
pub fn daemon(options: &DaemonOptions, platform: &dyn Platform) -> ExitCode {
    // Fails only for the leader of a process group, which then has no terminal to leave either.
    let _ = nix::unistd::setsid();
    platform.daemon(options)
}

/// Has the daemon that runs, if one does, leave everything to the next.
fn dismiss(socket: &Path) -> Result<()> {
    match Client::connect(socket) {
        Ok(mut client) => super::membership::hand_over(&mut client),
        Err(_) => Ok(()),
    }
}

fn start(options: &DaemonOptions, files: &DaemonFiles) -> Result<Status> {
    if let Ok(status) = ask_status(&files.socket) {
        bail!(
            "node {} already runs here (pid {}): end it with `osmos down` first, or put this one \
             in its place with `--replace`",
            status.node,
            status.daemon_pid
        );
    }
    let mut log = open_log(&files.log)?;
    let log_start = log.seek(SeekFrom::End(0))?;
    let program = std::env::current_exe().context("cannot find the osmos program itself")?;
    let mut child = Command::new(&program)
        .arg0("osmos")
        .arg("daemon")
        .args(options.words())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    wait_until_ready(&mut child, &files.socket)
        .with_context(|| log_since(&mut log, log_start, &files.log))
}

fn open_log(path: &Path) -> Result<File> {
    let what = || format!("cannot write the daemon's log {}", path.display());
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(what)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    options.open(path).with_context(what)
}

/// Waits until the daemon is ready or has ended: one that another has overtaken ends by itself, but
/// would be the node if that other one ended first, and then nobody would know of it.
fn wait_until_ready(child: &mut Child, socket: &Path) -> Result<Status> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let mut other = None;
    loop {
        if let Some(status) = child.try_wait()? {
            match other {
                Some(pid) => bail!("another daemon took its place (pid {pid})"),
                None => bail!("the daemon ended ({status}) before it was ready"),
            }
        }
        match ask_status(socket) {
            Ok(status) if status.daemon_pid == child.id() as i32 => return Ok(status),
            Ok(status) if Instant::now() < deadline => {
                other = Some(status.daemon_pid);
                std::thread::sleep(READY_POLL);
            }
            Ok(status) => bail!("another daemon is in its place (pid {})", status.daemon_pid),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| {
                    format!("the daemon (pid {}) is not ready after {READY_TIMEOUT:?}", child.id())
                });
            }
            Err(_) => std::thread::sleep(READY_POLL),
        }
    }
}

fn ask_status(socket: &Path) -> Result<Status> {
    super::membership::ask_status(&mut Client::connect(socket)?)
}

fn log_since(log: &mut File, start: u64, path: &Path) -> String {
    let mut text = Vec::new();
    let read = log
        .seek(SeekFrom::Start(start))
        .and_then(|_| log.by_ref().take(LOG_TAIL_BYTES_MAX).read_to_end(&mut text));
    match read {
        Ok(0) | Err(_) => format!("cannot start the node (log {} says nothing)", path.display()),
        Ok(_) => format!(
            "cannot start the node; {} says:\n{}\n",
            path.display(),
            String::from_utf8_lossy(&text).trim_end()
        ),
    }
}

fn welcome(status: &Status) -> String {
    let nodes = output::counted(status.nodes, "node", "nodes");
    format!(
        "{} is up at {} (daemon pid {}), in a cluster of {nodes}\n\
         to add a node: `osmos token` here, then `osmos up` and `osmos join {} TOKEN` there",
        called(status.node, status.name.as_deref()),
        status.address,
        status.daemon_pid,
        status.address
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_private_and_only_what_is_new_is_shown() {
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state/daemon.log");
        open_log(&path).expect("created").write_all(b"old\n").expect("written");
        let mut log = open_log(&path).expect("opened again");
        let start = log.seek(SeekFrom::End(0)).expect("at its end");
        log.write_all(b"cannot listen on 1.2.3.4\n").expect("written");
        let shown = log_since(&mut log, start, &path);
        assert!(shown.contains("cannot listen") && !shown.contains("old"), "{shown}");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_daemon_that_ends_at_once_is_reported_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = Command::new("false").spawn().expect("started");
        let started = Instant::now();
        let error = wait_until_ready(&mut child, &directory.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("before it was ready"), "{error}");
        assert!(started.elapsed() < READY_TIMEOUT);
    }
}
