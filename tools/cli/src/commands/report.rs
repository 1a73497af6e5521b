//! `osmos report`: all that a bug report needs of this node, in one archive.
//!
//! It is made to be sent to strangers. Nothing that is a secret is read for it: no keys, no file
//! with the cluster's secret, no environment, and command lines only if somebody says so. What
//! looks like a key in what is read is taken out all the same (see [`scrub`]). Without a daemon
//! there is less in it, and it says what.

mod archive;
mod scrub;

use super::unexpected;
use crate::config_file;
use crate::output;
use crate::platform::Platform;
use crate::progress::Waiting;
use crate::{DaemonFiles, DaemonOptions};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use client::Client;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Process, Reply, Request, Status};

/// Of the daemon's log, its end.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// No other file comes near this, and what a daemon says neither.
const PART_BYTES_MAX: usize = 16 << 20;
/// Those that happened last.
const EVENTS_MAX: usize = 4_096;
/// A daemon that says nothing for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Args)]
pub struct ReportOptions {
    /// The archive to write [default: osmos-report-HOST-TIME.tar.gz in this directory]
    pub file: Option<PathBuf>,
    /// Write over FILE if it is there
    #[arg(long, short)]
    pub force: bool,
    /// With the command lines of processes, which may hold passwords; else the programs' names
    #[arg(long)]
    pub command_lines: bool,
    /// Where the daemon keeps its state, if that is not the usual place
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Print JSON: the file, what is in it and what is not
    #[arg(long)]
    pub json: bool,
}

/// One file of the archive.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    bytes: usize,
    #[serde(skip)]
    text: String,
}

/// What is not in it.
#[derive(Debug, Serialize)]
struct Missing {
    name: &'static str,
    why: String,
}

#[derive(Debug, Default)]
struct Collected {
    parts: Vec<Part>,
    missing: Vec<Missing>,
    /// Words that looked like keys.
    removed: usize,
}

impl Collected {
    fn add(&mut self, name: &'static str, text: Result<String>) {
        let text = text.and_then(|text| match text.len() <= PART_BYTES_MAX {
            true => Ok(text),
            false => bail!("it has {} bytes, at most {PART_BYTES_MAX} are taken", text.len()),
        });
        match text {
            Ok(text) => {
                let (text, removed) = scrub::scrub(&text);
                self.removed += removed;
                self.parts.push(Part { name, bytes: text.len(), text });
            }
            Err(error) => {
                let why = output::printable(&scrub::scrub(&format!("{error:#}")).0);
                self.missing.push(Missing { name, why });
            }
        }
    }

    /// What the archive itself says of what is in it.
    fn contents(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            text += &format!("{:>9}  {}\n", output::bytes(part.bytes as u64), part.name);
        }
        for missing in &self.missing {
            text += &format!("  missing  {}: {}\n", missing.name, missing.why);
        }
        if self.removed > 0 {
            let words = output::counted(self.removed as u64, "word", "words");
            text += &format!("{words} that looked like keys were taken out\n");
        }
        text
    }
}

pub fn report(options: &ReportOptions, socket: &Path, platform: &dyn Platform) -> Result<()> {
    let path = options.file.clone().unwrap_or_else(usual_path);
    archive::may_write(&path, options.force)?;
    let mut files = platform.daemon_files(&DaemonOptions::default());
    if let Some(state_dir) = &options.state_dir {
        files.log = state_dir.join("daemon.log");
        files.state_dir.clone_from(state_dir);
    }
    let mut collected = Collected::default();
    let mut waiting = Waiting::begin("gathering", "no report was written", options.json)?;
    collected.add("versions.txt", Ok(versions()));
    collected.add("doctor.json", json(&platform.findings()));
    collect_from_daemon(&mut collected, socket, options.command_lines, &mut waiting);
    collect_files(&mut collected, &files);
    drop(waiting);
    let contents = collected.contents();
    let mut entries: Vec<(&str, &str)> = vec![("contents.txt", &contents)];
    entries.extend(collected.parts.iter().map(|part| (part.name, part.text.as_str())));
    archive::write(&path, &entries, options.force)?;
    if options.json {
        let Collected { parts, missing, removed } = &collected;
        let file = path.display().to_string();
        output::print_json(&serde_json::json!({
            "file": file, "parts": parts, "missing": missing, "removed": removed
        }))?;
        return Ok(());
    }
    output::print_text(&contents)?;
    output::print_line(&output::printable(&format!(
        "{}: look through it before you send it; there are no keys, tokens and environments in it",
        path.display()
    )))?;
    Ok(())
}

fn usual_path() -> PathBuf {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let host = nix::unistd::gethostname().unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let host: String = host.to_string_lossy().chars().take_while(is_plain).collect();
    PathBuf::from(format!("osmos-report-{host}-{since}.tar.gz"))
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Of Osmos, the kernel, the distribution and the machine.
fn versions() -> String {
    let mut text = format!("osmos {}\n", env!("CARGO_PKG_VERSION"));
    match nix::sys::utsname::uname() {
        Ok(name) => {
            let fields = [name.sysname(), name.release(), name.version(), name.machine()];
            let fields: Vec<_> = fields.iter().map(|field| field.to_string_lossy()).collect();
            text += &format!("kernel {}\n", fields.join(" "));
        }
        Err(error) => text += &format!("kernel unknown: {error}\n"),
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    text += &format!("system {}\n", pretty.unwrap_or("unknown").trim_matches('"'));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    text += &format!("processors {cores}\nuser {}\n", nix::unistd::geteuid());
    text
}

const FROM_DAEMON: [&str; 6] =
    ["status.json", "nodes.json", "ps.json", "metrics.json", "events.jsonl", "daemon-options.txt"];

fn collect_from_daemon(
    collected: &mut Collected,
    socket: &Path,
    with_command_lines: bool,
    waiting: &mut Waiting,
) {
    let client = Client::connect(socket).and_then(|client| {
        client.set_patience(PATIENCE)?;
        Ok(client)
    });
    let mut client = match client {
        Ok(client) => client,
        Err(error) => {
            for name in FROM_DAEMON {
                collected.add(name, Err(anyhow::anyhow!("{error:#}")));
            }
            return;
        }
    };
    let [status_name, nodes, ps, metrics, events, options] = FROM_DAEMON;
    let status = answer(&mut client, &Request::Status, waiting).and_then(|reply| match reply {
        Reply::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    });
    collected.add(options, status.as_ref().map_err(copied).and_then(daemon_options));
    collected.add(status_name, status.and_then(|status| json(&status)));
    let mut ask = |request: &Request, shown: fn(Reply, bool) -> Result<String>| {
        let reply = answer(&mut client, request, waiting);
        reply.and_then(|reply| shown(reply, with_command_lines))
    };
    let said = ask(&Request::Nodes, |reply, _| match reply {
        Reply::Nodes { nodes } => json(&nodes),
        other => Err(unexpected(&other)),
    });
    collected.add(nodes, said);
    let said = ask(&Request::Processes, |reply, with_command_lines| match reply {
        Reply::Processes { processes } => json(&shown(processes, with_command_lines)),
        other => Err(unexpected(&other)),
    });
    collected.add(ps, said);
    let said = ask(&Request::Metrics, |reply, _| match reply {
        Reply::Metrics(metrics) => json(&metrics),
        other => Err(unexpected(&other)),
    });
    collected.add(metrics, said);
    collected.add(events, recorded(client));
}

/// What the daemon says, if it says anything in time.
fn answer(client: &mut Client, request: &Request, waiting: &mut Waiting) -> Result<Reply> {
    client.send(request)?;
    let is_there = waiting.until_or_late(client, Instant::now() + PATIENCE)?;
    ensure!(is_there, "the osmos daemon has not answered for {} s", PATIENCE.as_secs());
    Ok(client.receive()?)
}

fn copied(error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}

fn shown(mut processes: Vec<Process>, with_command_lines: bool) -> Vec<Process> {
    if !with_command_lines {
        processes.iter_mut().for_each(|process| process.command_line = None);
    }
    processes
}

fn recorded(client: Client) -> Result<String> {
    let mut lines = Vec::new();
    for event in client.events(false)? {
        lines.push(serde_json::to_string(&event?)?);
    }
    let surplus = lines.len().saturating_sub(EVENTS_MAX);
    Ok(lines.split_off(surplus).iter().map(|line| format!("{line}\n")).collect())
}

/// The options that the daemon was started with: they name files with keys, and hold none.
fn daemon_options(status: &Status) -> Result<String> {
    let path = format!("/proc/{}/cmdline", status.daemon_pid);
    let line = read_part(Path::new(&path), PART_BYTES_MAX as u64)?;
    let words: Vec<&str> = line.split('\0').collect();
    match words[..] {
        // It may be of another PID namespace, and its number another process's here.
        [_, "daemon" | "up", ref options @ ..] => Ok(options.join("\n")),
        _ => bail!("process {} is no osmos daemon here", status.daemon_pid),
    }
}

fn collect_files(collected: &mut Collected, files: &DaemonFiles) {
    collected.add("daemon.log", read_part(&files.log, LOG_BYTES_MAX));
    if let Some(config) = config_file::default_path().filter(|path| path.exists()) {
        collected.add("osmos.toml", read_part(&config, PART_BYTES_MAX as u64));
    }
    let owner = files.state_dir.join("owner.json");
    collected.add("owner.json", read_part(&owner, PART_BYTES_MAX as u64));
}

/// The last part of a file.
fn read_part(path: &Path, bytes_max: u64) -> Result<String> {
    let told = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(told)?;
    let length = file.metadata().with_context(told)?.len();
    if length > bytes_max {
        file.seek(SeekFrom::Start(length - bytes_max)).with_context(told)?;
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).with_context(told)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_and_what_looks_like_a_key_is_not() {
        let mut collected = Collected::default();
        let key = "Aa0_".repeat(11);
        collected.add("daemon.log", Ok(format!("joined with {key}\n")));
        collected.add("ps.json", Err(anyhow::anyhow!("no daemon (key {key})")));
        assert!(!collected.parts[0].text.contains(&key));
        let contents = collected.contents();
        assert!(contents.contains("missing  ps.json: no daemon (key "), "{contents}");
        assert!(!contents.contains(&key), "{contents}");
        assert!(contents.contains("1 word that looked like keys"), "{contents}");
    }

    #[test]
    fn command_lines_are_told_only_if_somebody_says_so() {
        let line = r#"{"pid":1,"home":1,"node":1,"state":"running","command":"x","cpu_s":0,
            "rss_bytes":0,"migrations":0,"last_move":null,"reason":"","command_line":"x secret"}"#;
        let process: Process = serde_json::from_str(line).expect("a process");
        let text = |with| json(&shown(vec![process.clone()], with)).expect("JSON");
        assert!(!text(false).contains("secret"));
        assert!(text(true).contains("x secret"));
    }

    #[test]
    fn of_a_long_log_the_end_is_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        fs::write(&path, "0123456789").expect("written");
        assert_eq!(read_part(&path, 4).expect("read"), "6789");
        assert_eq!(read_part(&path, 40).expect("read"), "0123456789");
        let error = read_part(&dir.path().join("none"), 4).expect_err("there is none");
        assert!(error.to_string().contains("cannot read "));
    }

    #[test]
    fn the_usual_name_is_one_of_a_file_here() {
        let name = usual_path().display().to_string();
        assert!(name.starts_with("osmos-report-") && name.ends_with(".tar.gz"), "{name}");
        assert!(!name.contains('/'));
    }
}
