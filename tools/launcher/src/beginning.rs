//! How a job begins: what it is, the servers of its nodes, its streams, and the signals that this
//! process hears from then on.

use crate::Options;
use crate::launching::{ENDING, Event, PASSED_ON};
use crate::output::Output;
use crate::ranks::BY_SIGNAL;
use crate::servers::{Ground, Server};
use anyhow::{Context, Result, bail};
use client::Client;
use client::signals::signal_name;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::control::Status;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::jobs::{FromRanks, Job, JobState, ToRanks};

pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

pub fn hear_signals(events: &SyncSender<Event>, has_begun: &Arc<AtomicBool>) -> Result<Handle> {
    let heard = ENDING.iter().chain(&PASSED_ON).chain(&[SIGTSTP, SIGCONT]);
    let mut signals = Signals::new(heard).context("cannot wait for signals")?;
    let (handle, events, has_begun) = (signals.handle(), events.clone(), has_begun.clone());
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in &mut signals {
            // Nodes may take their time to answer, and nothing has begun.
            if ENDING.contains(&signal) && !has_begun.load(Ordering::SeqCst) {
                eprintln!("osmos: {}: nothing was started", signal_name(signal));
                std::process::exit(i32::from(BY_SIGNAL) + signal);
            }
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(handle)
}

pub fn describe(options: &Options, status: &Status, nodes: &[(NodeId, u32)]) -> Job {
    let words = options.program.command.iter().map(|word| String::from_utf8_lossy(&word.0));
    let command = words.collect::<Vec<_>>().join(" ");
    let pid = HomePid(std::process::id() as i32);
    let job = GlobalPid { home: status.node, pid };
    Job {
        job,
        name: options.name.clone().unwrap_or_default(),
        uid: nix::unistd::getuid().as_raw(),
        user: None,
        command,
        state: JobState::Starting,
        started: now_s(),
        ended: None,
        ranks: nodes.iter().map(|(_, count)| count).sum(),
        running: 0,
        failed: 0,
        nodes: nodes.to_vec(),
        exit_status: None,
        logs: options.log.as_ref().map(|log| log.display().to_string()),
    }
}

pub fn output(options: &Options, job: &Job, events: SyncSender<Event>) -> Result<Output> {
    let Some(log) = &options.log else {
        let labels = options.labels && job.ranks > 1;
        return Ok(Output::start(None, job.ranks, labels, events)?);
    };
    let named = || log.display().to_string();
    if let Some(directory) = log.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).with_context(named)?;
    }
    let mut open = OpenOptions::new();
    let file = open.append(true).create(true).mode(0o600).open(log).with_context(named)?;
    Ok(Output::start(Some(file), job.ranks, true, events)?)
}

/// Calls all job servers, and has them begin when each has said that it can. Returns with them what
/// came meanwhile.
pub fn begin(
    options: &Options,
    client: &mut Client,
    job: &Job,
    nodes: &[(NodeId, u32)],
    (events, heard): (&SyncSender<Event>, &Receiver<Event>),
) -> Result<(Vec<Server>, Vec<Event>)> {
    let listed = client.nodes()?;
    let ground = Ground { socket: &options.socket, me: job.job.home, job: job.job, nodes: &listed };
    let names: Vec<NodeId> = nodes.iter().map(|(node, _)| *node).collect();
    let nothing = "nothing was started";
    let servers = ground.call_all(&names, events).context(nothing)?;
    let mut program = options.program.clone();
    program.size = job.ranks;
    for server in &servers {
        server.say(ToRanks::Prepare(Box::new(program.clone())));
    }
    let (mut prepared, mut early) = (BTreeSet::new(), Vec::new());
    while prepared.len() < servers.len() {
        match heard.recv()? {
            Event::Said { place, said: FromRanks::Prepared, .. } => {
                prepared.insert(place);
            }
            Event::Said { place, said: FromRanks::Refused(why), .. } => {
                bail!("{nothing}: node {}: {why}", names[place]);
            }
            Event::Lost { place, why } => bail!("{nothing}: node {}: {why}", names[place]),
            event => early.push(event),
        }
    }
    let mut first = 0;
    for (server, (_, count)) in servers.iter().zip(nodes) {
        server.say(ToRanks::Start { first, count: *count });
        first += count;
    }
    Ok((servers, early))
}
