//! `osmos up`: start the node daemon in the background and wait until it answers.
//!
//! The daemon is this same program, run as `osmos daemon`. It is a session of its own, so that the
//! terminal it was started from can neither stop nor end it; what it logs goes to a file.

use crate::config_file;
use crate::daemon_options::{DaemonOptions, UpOptions};
use crate::exit_code;
use crate::naming::called;
use crate::output;
use crate::platform::Platform;
use crate::progress::Waiting;
use anyhow::{Context, Result, bail, ensure};
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
    let named = options.config.as_deref();
    let (daemon, config) = match config_file::complete(&options.daemon, named) {
        Ok(complete) => complete,
        Err(error) => return exit_code::report(&error, exit_code::USAGE),
    };
    let files = platform.daemon_files(&daemon);
    let successor = match options.replace.then(|| dismiss(&files.socket, options)).transpose() {
        Ok(successor) => successor.flatten(),
        Err(error) => return exit_code::report(&error, exit_code::FAILED),
    };
    if options.foreground {
        return platform.daemon(&daemon);
    }
    platform.keep_descriptors();
    match successor.map_or_else(|| start(&daemon, &files, options.json), Ok) {
        Ok(status) => {
            let told = match options.json {
                true => output::print_json(&status),
                false => output::print_line(&welcome(&status, config.as_deref())),
            };
            // The node is up, whether or not anybody is left to be told.
            let _ = told;
            ExitCode::from(exit_code::DONE)
        }
        Err(error) => exit_code::report(&error, exit_code::FAILED),
    }
}

/// Starts a daemon with nothing said about it but in the configuration file.
pub fn begin(platform: &dyn Platform) -> Result<Status> {
    let (options, _) = config_file::complete(&DaemonOptions::default(), None)?;
    let files = platform.daemon_files(&options);
    platform.keep_descriptors();
    start(&options, &files, false)
}

/// Another one takes the place of the daemon that runs.
pub fn replace(platform: &dyn Platform) -> Result<Status> {
    let (options, _) = config_file::complete(&DaemonOptions::default(), None)?;
    match dismiss(&platform.daemon_files(&options).socket, &UpOptions::default())? {
        Some(successor) => Ok(successor),
        None => begin(platform),
    }
}

/// `osmos daemon`: leave the session of the terminal, then be the daemon.
pub fn daemon(options: &DaemonOptions, platform: &dyn Platform) -> ExitCode {
    // Fails only for the leader of a process group, which then has no terminal to leave either.
    let _ = nix::unistd::setsid();
    platform.daemon(options)
}

/// Has the daemon that runs, if one does, leave everything to the next. That is itself if it is a
/// service, whose manager knows no other process: then it is back when this returns.
fn dismiss(socket: &Path, options: &UpOptions) -> Result<Option<Status>> {
    let Ok(mut client) = Client::connect(socket) else { return Ok(None) };
    if !super::membership::ask_status(&mut client)?.is_service {
        return super::membership::hand_over(&mut client, options.json).map(|()| None);
    }
    // Which says no more than where it is.
    let runtime_dir = options.daemon.runtime_dir.clone();
    let nothing = DaemonOptions { runtime_dir, ..DaemonOptions::default() };
    ensure!(
        !options.foreground && options.daemon == nothing,
        "the daemon is a service, and keeps its options: put them into the configuration file \
         (`osmos config example`), then `osmos up --replace`"
    );
    let since = Instant::now();
    let mut waiting = Waiting::begin(
        "waiting for the service to come back",
        "it comes back: `osmos status` tells",
        options.json,
    )?;
    super::membership::begin_to_hand_over(&mut client)?;
    loop {
        match ask_status(socket) {
            Ok(status) if status.uptime_s < since.elapsed().as_secs_f64() => {
                return Ok(Some(status));
            }
            _ if since.elapsed() >= READY_TIMEOUT => {
                bail!("the service has not come back after {READY_TIMEOUT:?}: its log says why")
            }
            _ => waiting.pause(READY_POLL)?,
        }
    }
}

fn start(options: &DaemonOptions, files: &DaemonFiles, json: bool) -> Result<Status> {
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
    let waiting = Waiting::begin(
        "waiting for the daemon to be ready",
        "the daemon goes on starting: `osmos status` tells when it is ready",
        json,
    )?;
    wait_until_ready(&mut child, &files.socket, waiting)
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
fn wait_until_ready(child: &mut Child, socket: &Path, mut waiting: Waiting) -> Result<Status> {
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
                waiting.pause(READY_POLL)?;
            }
            Ok(status) => bail!("another daemon is in its place (pid {})", status.daemon_pid),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| {
                    format!("the daemon (pid {}) is not ready after {READY_TIMEOUT:?}", child.id())
                });
            }
            Err(_) => waiting.pause(READY_POLL)?,
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

fn welcome(status: &Status, config: Option<&Path>) -> String {
    let nodes = output::counted(status.nodes, "node", "nodes");
    let options =
        config.map_or_else(String::new, |path| format!(", options of {}", path.display()));
    format!(
        "{} is up at {} (daemon pid {}), in a cluster of {nodes}{options}\n\
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
        let waiting = Waiting::begin("waiting", "it goes on", true).expect("waiting");
        let socket = directory.path().join("none");
        let error = wait_until_ready(&mut child, &socket, waiting).unwrap_err();
        assert!(error.to_string().contains("before it was ready"), "{error}");
        assert!(started.elapsed() < READY_TIMEOUT);
    }
}
