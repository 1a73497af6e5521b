//! `osmos job`: launches parallel jobs, and shows and commands those that others have launched.

use super::{ps, unexpected};
use crate::jobs::{JobChoice, JobCommand, JobRunOptions, RshOptions};
use crate::naming::Called;
use crate::output::{self, Align, Cell, Colour, Table};
use crate::processes::PsOptions;
use crate::{exit_code, progress};
use anyhow::{Context, Result, bail};
use client::Client;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::control::{Reply, Request};
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::jobs::{Job, JobAsk, JobState, Rank};

/// Between two looks whether more was written, milliseconds.
const FOLLOW_PAUSE: u8 = 200;
/// How long the line may be by which one in the background says that it runs.
const LINE_BYTES_MAX: u64 = 8 << 10;

pub fn job(command: JobCommand, socket: &Path) -> ExitCode {
    let ended = match command {
        JobCommand::Run(options) => return run(&options, socket),
        JobCommand::Wait(job) => return status_of(wait(socket, &job.job), socket),
        JobCommand::List { all, listing } => list(socket, all, listing.json),
        JobCommand::Show { job, listing } => show(socket, &job.job, listing.json),
        JobCommand::Signal { job, signal, rank } => {
            order(socket, &job.job, JobAsk::Signal { signal, rank })
        }
        JobCommand::Suspend(job) => order(socket, &job.job, to_all(Signal::SIGSTOP)),
        JobCommand::Resume(job) => order(socket, &job.job, to_all(Signal::SIGCONT)),
        JobCommand::Kill(job) => order(socket, &job.job, JobAsk::Kill),
        JobCommand::Logs { job, follow } => logs(socket, &job.job, follow),
        JobCommand::Top(job) => top(socket, &job.job),
    };
    crate::ended(ended.map_err(|error| Called::spelled_error(socket, error)))
}

fn to_all(signal: Signal) -> JobAsk {
    JobAsk::Signal { signal: signal as i32, rank: None }
}

fn run(options: &JobRunOptions, socket: &Path) -> ExitCode {
    let launched = match options.detach {
        true => detach(options, socket).map(|()| exit_code::DONE),
        false => launch(options, socket),
    };
    status_of(launched, socket)
}

/// That of the job, or that Osmos has none of it.
fn status_of(launched: Result<u8>, socket: &Path) -> ExitCode {
    launched.map(ExitCode::from).unwrap_or_else(|error| {
        let error = Called::spelled_error(socket, error);
        exit_code::report(&error, exit_code::NOT_STARTED)
    })
}

fn launch(options: &JobRunOptions, socket: &Path) -> Result<u8> {
    if options.in_background {
        // Nobody's terminal is its own from now on.
        nix::unistd::setsid().context("cannot begin a session")?;
    }
    let mut client = Client::connect(socket)?;
    let launched = options.launcher(socket.to_owned(), &mut client)?;
    drop(client);
    launcher::launch(&launched, |job| {
        if options.in_background {
            output::print_line(&job.job.pid.to_string())?;
            let log = launched.log.as_ref().context("it has no log")?;
            let log = File::options().append(true).open(log)?;
            nix::unistd::dup2_stdout(&log)?;
            nix::unistd::dup2_stderr(&log)?;
        }
        Ok(())
    })
}

pub fn rsh(options: &RshOptions, socket: &Path) -> ExitCode {
    let launched = Client::connect(socket).map_err(Into::into).and_then(|mut client| {
        let launched = options.launcher(socket.to_owned(), &mut client)?;
        launcher::launch(&launched, |_| Ok(()))
    });
    status_of(launched, socket)
}

/// Starts this again, in the background, and waits until it runs.
fn detach(options: &JobRunOptions, socket: &Path) -> Result<()> {
    let log = match &options.log {
        Some(log) => std::path::absolute(log)?,
        None => log_usual()?,
    };
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("--socket").arg(socket).args(["job", "run", "--in-background", "--log"]).arg(&log);
    command.args(options.words_in_background());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the launcher")?;
    let out = child.stdout.take().context("it has no output")?;
    let mut line = String::new();
    BufReader::new(out.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if let Some(pid) = line.strip_suffix('\n') {
        output::print_line(pid)?;
        eprintln!("osmos: job {pid} runs; what it writes is in {}", log.display());
        return Ok(());
    }
    let mut told = String::new();
    if let Some(errors) = child.stderr.take() {
        errors.take(LINE_BYTES_MAX).read_to_string(&mut told)?;
    }
    child.wait().context("cannot wait for it")?;
    let told = told.trim().trim_start_matches("osmos: ");
    bail!("{}", if told.is_empty() { "it has ended without a word" } else { told })
}

/// Where the output of jobs is kept that nobody looks at.
fn log_usual() -> Result<PathBuf> {
    let state = super::state_directory().context("HOME is not set: say `--log FILE`")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("it is before 1970")?;
    let name = format!("{}-{}.log", now.as_secs(), std::process::id());
    Ok(state.join("jobs").join(name))
}

/// Which job is meant.
fn find(client: &mut Client, choice: &JobChoice) -> Result<GlobalPid> {
    match choice {
        JobChoice::Launcher { node: Some(node), pid } => {
            Ok(GlobalPid { home: node.find(client)?, pid: HomePid(*pid) })
        }
        JobChoice::Launcher { node: None, pid } => {
            let here = super::membership::ask_status(client)?.node;
            Ok(GlobalPid { home: here, pid: HomePid(*pid) })
        }
        JobChoice::Name(name) => {
            // Of one's own before that of others, one that runs before one that has ended.
            let own = nix::unistd::getuid().as_raw();
            let mut found = jobs(client, true)?;
            found.retain(|job| job.name == *name);
            found.sort_by(|one, other| {
                let rank = |job: &Job| (job.uid != own, job.state == JobState::Ended);
                rank(one).cmp(&rank(other)).then(other.started.total_cmp(&one.started))
            });
            let found = found.first().with_context(|| {
                format!("there is no job `{name}`: `osmos job list --all` shows all")
            })?;
            Ok(found.job)
        }
    }
}

fn jobs(client: &mut Client, all: bool) -> Result<Vec<Job>> {
    let mut found = Vec::new();
    if !all {
        match client.request(&Request::Jobs)? {
            Reply::Jobs { jobs } => found = jobs,
            other => return Err(unexpected(&other)),
        }
    } else {
        let words = ("asking all nodes", "it was only asked");
        progress::during(words, false, || {
            client.everywhere(Request::Jobs, |node, said| {
                if let Ok(Reply::Jobs { jobs }) = said {
                    // A node has nothing to say of others' jobs.
                    found.extend(jobs.into_iter().filter(|job| job.job.home == node));
                }
                true
            })
        })??;
    }
    found.sort_by(|one, other| one.started.total_cmp(&other.started));
    Ok(found)
}

fn ask(client: &mut Client, choice: &JobChoice, ask: JobAsk) -> Result<Reply> {
    let job = find(client, choice)?;
    let request = Box::new(Request::AskJob { pid: job.pid.0, ask });
    Ok(client.request(&Request::At { node: job.home, request })?)
}

fn order(socket: &Path, choice: &JobChoice, what: JobAsk) -> Result<()> {
    let mut client = Client::connect(socket)?;
    match ask(&mut client, choice, what)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn look(client: &mut Client, choice: &JobChoice, what: JobAsk) -> Result<(Job, Vec<Rank>)> {
    match ask(client, choice, what)? {
        Reply::Job { of, members } => Ok((*of, members)),
        other => Err(unexpected(&other)),
    }
}

fn wait(socket: &Path, choice: &JobChoice) -> Result<u8> {
    let mut client = Client::connect(socket)?;
    let (job, _) = look(&mut client, choice, JobAsk::Wait)?;
    job.exit_status.with_context(|| {
        format!("nobody knows how job {} has ended: its launcher was killed", job.job)
    })
}

fn list(socket: &Path, all: bool, json: bool) -> Result<()> {
    let mut client = Client::connect(socket)?;
    let jobs = jobs(&mut client, all)?;
    if json {
        return Ok(output::print_json(&jobs)?);
    }
    let called = Called::asked(&mut client);
    let mut table = Table::new(&[
        ("JOB", Align::Right),
        ("NAME", Align::Left),
        ("USER", Align::Left),
        ("STATE", Align::Left),
        ("RANKS", Align::Right),
        ("RUNNING", Align::Right),
        ("FAILED", Align::Right),
        ("NODES", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for job in &jobs {
        let failed = if job.failed > 0 { Colour::Red } else { Colour::Plain };
        table.row(vec![
            Cell::new(if all { job.job.to_string() } else { job.job.pid.to_string() }),
            Cell::new(if job.name.is_empty() { "-" } else { &job.name }),
            Cell::new(job.user.clone().unwrap_or_else(|| job.uid.to_string())),
            Cell::new(state(job)),
            Cell::new(job.ranks.to_string()),
            Cell::new(job.running.to_string()),
            Cell::coloured(job.failed.to_string(), failed),
            Cell::new(nodes(job, &called)),
            Cell::new(&job.command),
        ]);
    }
    Ok(table.print()?)
}

fn state(job: &Job) -> String {
    match (job.state, job.exit_status) {
        (JobState::Starting, _) => "starting".to_owned(),
        (JobState::Running, _) => "running".to_owned(),
        (JobState::Suspended, _) => "suspended".to_owned(),
        (JobState::Ending, _) => "ending".to_owned(),
        (JobState::Ended, Some(0)) => "done".to_owned(),
        (JobState::Ended, Some(status)) => format!("exit status {status}"),
        (JobState::Ended, None) => "launcher killed".to_owned(),
    }
}

/// `alpha*4, beta*2`
fn nodes(job: &Job, called: &Called) -> String {
    let parts = job.nodes.iter().map(|(node, count)| format!("{}*{count}", called.short(*node)));
    parts.collect::<Vec<_>>().join(", ")
}

/// What a job is, and its ranks.
#[derive(serde::Serialize)]
struct Shown {
    #[serde(flatten)]
    job: Job,
    members: Vec<Rank>,
}

fn show(socket: &Path, choice: &JobChoice, json: bool) -> Result<()> {
    let mut client = Client::connect(socket)?;
    let (job, members) = look(&mut client, choice, JobAsk::Show)?;
    if json {
        return Ok(output::print_json(&Shown { job, members })?);
    }
    let called = Called::asked(&mut client);
    // Where each rank is now its home knows.
    let processes = client.processes_everywhere()?.processes;
    let at = |home: NodeId, pid: Option<i32>| {
        let of = processes.iter().find(|of| of.home == home && Some(of.pid) == pid);
        of.map_or_else(|| "-".to_owned(), |of| called.short(of.node))
    };
    let mut text = format!("job {}", job.job);
    if !job.name.is_empty() {
        text.push_str(&format!(" ({})", job.name));
    }
    text.push_str(&format!(": {}\n", output::printable(&job.command)));
    text.push_str(&format!(
        "{}, begun {}, {} of {} running\n",
        state(&job),
        output::clock(job.started),
        job.running,
        output::counted(job.ranks, "rank", "ranks")
    ));
    if let Some(logs) = &job.logs {
        text.push_str(&format!("output in {}\n", output::printable(logs)));
    }
    output::print_text(&text)?;
    if members.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("RANK", Align::Right),
        ("HOME", Align::Left),
        ("PID", Align::Right),
        ("NODE", Align::Left),
        ("STATE", Align::Left),
    ]);
    for Rank { rank, node, pid, state } in members {
        table.row(vec![
            Cell::new(rank.to_string()),
            Cell::new(called.short(node)),
            Cell::new(pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
            Cell::new(at(node, pid)),
            Cell::new(state),
        ]);
    }
    Ok(table.print()?)
}

fn logs(socket: &Path, choice: &JobChoice, follow: bool) -> Result<()> {
    let mut client = Client::connect(socket)?;
    let job = find(&mut client, choice)?;
    let here = super::membership::ask_status(&mut client)?.node;
    let known = jobs(&mut client, job.home != here)?;
    let of = known.into_iter().find(|of| of.job == job);
    let of = of.with_context(|| format!("there is no job {job}: `osmos job list` shows all"))?;
    let path = of.logs.with_context(|| {
        format!("what job {job} writes is not kept: it is shown where it was launched")
    })?;
    if job.home != here {
        bail!("the output of job {job} is in {path} on node {}", job.home);
    }
    let mut log = File::open(&path).with_context(|| path.clone())?;
    let mut out = std::io::stdout();
    if follow {
        client.send(&Request::AskJob { pid: job.pid.0, ask: JobAsk::Wait })?;
    }
    let mut is_over = !follow;
    loop {
        std::io::copy(&mut log, &mut out)?;
        out.flush()?;
        if is_over {
            return Ok(());
        }
        // What it has written by the time of the answer is there.
        let mut answer = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
        is_over = poll(&mut answer, FOLLOW_PAUSE)? > 0;
    }
}

fn top(socket: &Path, choice: &JobChoice) -> Result<()> {
    let mut client = Client::connect(socket)?;
    let job = find(&mut client, choice)?;
    ps::ps(&mut client, &PsOptions::of_job(job))
}
