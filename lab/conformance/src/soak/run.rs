//! One soak, from an empty lab to a verdict.

use crate::soak::census::Census;
use crate::soak::crew::Crew;
use crate::soak::ground::{DIRECTORY, Ground};
use crate::soak::killer;
use crate::soak::movers::{self, Tally, Work};
use crate::soak::report::Report;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wire::control::{Event, Happening};

/// How long supervisors may take to go after their processes have ended.
const SETTLE_PATIENCE: Duration = Duration::from_secs(15);
const JOURNAL: &str = "/var/lib/osmos/events.jsonl";
/// Between two looks.
const STEP: Duration = Duration::from_millis(100);
/// Lines of each node's log that are told.
const WARNINGS_MAX: usize = 20;
/// A daemon that holds so much more than before keeps what it should not.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Reasons that are no property of a process: with them a move has failed, not been refused ...
const ACCIDENTS: [&str; 3] = ["protocol", "supervisor-crashed", "lost"];
/// ... or a daemon was not there, which happens only to who kills it.
const SILENCES: [&str; 5] =
    ["supervisor-deaf", "no-supervisor", "unreachable", "no-answer", "no-daemon"];

#[derive(Clone, Debug)]
pub struct Options {
    pub moves: usize,
    pub processes: usize,
    /// Kinds of programs, by name; all if empty.
    pub only: Vec<String>,
    pub nodes: u32,
    pub seed: u64,
    /// How long the moving may take; and takes, if daemons are killed.
    pub limit: Duration,
    /// Kill a daemon so often, and start another in its place.
    pub kill_daemons: Option<Duration>,
    /// This program; else the workspace's own, which is built if it is not up to date.
    pub osmos: Option<PathBuf>,
    /// Kernel features to do without.
    pub without: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            moves: 1000,
            processes: 20,
            only: Vec::new(),
            nodes: 3,
            seed: 1,
            limit: Duration::from_secs(10 * 60),
            kill_daemons: None,
            osmos: None,
            without: Vec::new(),
        }
    }
}

/// Runs a soak; `tell` hears what is being done. An error says that it could not be held at all.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> Result<Report> {
    ensure!(options.nodes >= 2, "moves need two nodes or more");
    ensure!(options.processes >= 1 && options.moves >= 1, "nothing to do");
    let start = Instant::now();
    let osmos = match &options.osmos {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => {
            let [osmos] = needs::build(["osmos"])?;
            osmos
        }
    };
    let ground = Ground::prepare(&osmos, options.nodes, &options.without)?;
    let before = Census::take(ground.lab(), DIRECTORY)?;
    let memory_before = daemon_memory(&ground)?;
    tell("one lap of each program, natively");
    let crew = Crew::start(&ground, options)?;
    tell(&format!("{} moves of {} processes", options.moves, options.processes));
    let moving = Instant::now();
    let (tally, crew, daemons_killed) = move_all(&ground, crew, options)?;
    let moving_s = moving.elapsed().as_secs_f64();
    let unmanaged = killer::unmanaged(&ground, &crew)?;
    tell("the end of each program");
    let fates = crew.end(&ground)?;
    let mut report = empty_report(options);
    report.count(&tally, moving_s);
    report.daemons_killed = daemons_killed;
    report.faults.extend(unmanaged);
    report.faults.extend(
        fates
            .iter()
            .filter_map(|fate| fate.fault.as_ref().map(|fault| format!("{}: {fault}", fate.token))),
    );
    report.fates = fates;
    judge_moves(options, &tally, &mut report);
    report.faults.extend(losses(&ground)?);
    report.faults.extend(left_behind(&ground, &before)?);
    judge_memory(&ground, &memory_before, &mut report)?;
    if !report.is_success() {
        report.warnings = warnings(&ground)?;
    }
    report.wall_s = start.elapsed().as_secs_f64();
    Ok(report)
}

fn empty_report(options: &Options) -> Report {
    Report {
        seed: options.seed,
        nodes: options.nodes,
        moves_wanted: options.moves,
        moves: 0,
        moves_per_s: 0.0,
        moved_processes: 0,
        refused: Vec::new(),
        freeze_ms_median: 0.0,
        freeze_ms_max: 0.0,
        bytes_sent: 0,
        daemons_killed: 0,
        daemon_growth_bytes: 0,
        wall_s: 0.0,
        fates: Vec::new(),
        left_out: crate::soak::programs::left_out(),
        faults: Vec::new(),
        warnings: Vec::new(),
    }
}

/// Moves until there were enough moves, or a program has ended that was not told to. Returns how
/// many daemons were killed meanwhile, too.
fn move_all(ground: &Ground, crew: Crew, options: &Options) -> Result<(Tally, Crew, u64)> {
    let until = Instant::now() + options.limit;
    let moves = options.kill_daemons.map_or(options.moves, |_| usize::MAX);
    let bears_silence = options.kill_daemons.is_some();
    let work = Work { moves, seed: options.seed, until, bears_silence };
    let crew = Mutex::new(crew);
    let is_off = || crew.lock().map_or(true, |mut crew| crew.has_lost_one().unwrap_or(true));
    let is_off = &is_off;
    let (tally, killed) = std::thread::scope(|scope| {
        let killer = options.kill_daemons.map(|every| {
            scope.spawn(move || killer::run(ground, every, options.seed, until, is_off))
        });
        let tally = movers::run(ground, work, is_off);
        let killed = killer.map_or(Ok(Ok(0)), std::thread::ScopedJoinHandle::join);
        (tally, killed)
    });
    let killed = killed.ok().context("the killer of daemons panicked")??;
    Ok((tally?, crew.into_inner().ok().context("a mover panicked")?, killed))
}

fn judge_moves(options: &Options, tally: &Tally, report: &mut Report) {
    if report.moves < options.moves {
        report.faults.push(format!("only {} of {} moves", report.moves, options.moves));
    }
    let silences = SILENCES.iter().filter(|_| options.kill_daemons.is_none());
    for code in ACCIDENTS.iter().chain(silences) {
        if let Some((count, text)) = tally.refused.get(*code) {
            report.faults.push(format!("{count} moves failed: {code}: {text}"));
        }
    }
}

/// Processes that any home tells to be lost.
fn losses(ground: &Ground) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    for node in ground.nodes() {
        // From its file: a daemon that was replaced is asked for nothing any more.
        let journal = std::fs::read_to_string(node.path(JOURNAL)?).context(JOURNAL)?;
        for line in journal.lines() {
            let event: Event = serde_json::from_str(line).context(JOURNAL)?;
            if let Happening::Lost { node: at, reason } = &event.what {
                let pid = event.pid.map_or_else(String::new, |process| process.pid.to_string());
                let text = &reason.text;
                lost.push(format!("process {pid} of node {} lost on node {at}: {text}", node.id()));
            }
        }
    }
    Ok(lost)
}

/// What is there that was not before, once nothing changes any more.
fn left_behind(ground: &Ground, before: &Census) -> Result<Vec<String>> {
    let deadline = Instant::now() + SETTLE_PATIENCE;
    loop {
        let left = before.left_behind(&Census::take(ground.lab(), DIRECTORY)?);
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left.iter().map(|line| format!("left behind: {line}")).collect());
        }
        // Supervisors and sandboxes end by themselves; nobody tells us when.
        std::thread::sleep(STEP);
    }
}

/// What the daemons and supervisors of each node last complained of.
fn warnings(ground: &Ground) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for node in ground.nodes() {
        let log = std::fs::read_to_string(node.log()?)?;
        // Each daemon begins with a word about root's guests.
        let is_known = |line: &str| line.contains("some guests run as root here");
        let is_warning =
            |line: &&str| (line.contains(" WARN ") || line.contains(" ERROR ")) && !is_known(line);
        let lines: Vec<&str> = log.lines().filter(is_warning).collect();
        let last = &lines[lines.len().saturating_sub(WARNINGS_MAX)..];
        warnings.extend(last.iter().map(|line| format!("node {}: {line}", node.id())));
    }
    Ok(warnings)
}

fn judge_memory(ground: &Ground, before: &[u64], report: &mut Report) -> Result<()> {
    let after = daemon_memory(ground)?;
    let growth = before.iter().zip(&after).map(|(before, after)| after.saturating_sub(*before));
    report.daemon_growth_bytes = growth.max().unwrap_or(0);
    if report.daemon_growth_bytes > GROWTH_BYTES_MAX {
        report.faults.push(format!("a daemon grew by {} bytes", report.daemon_growth_bytes));
    }
    Ok(())
}

/// Memory that each daemon holds, bytes.
fn daemon_memory(ground: &Ground) -> Result<Vec<u64>> {
    let resident = |node: lab::Node<'_>| {
        let pid = node.daemon_pid().with_context(|| format!("node {} is down", node.id()))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("a daemon without memory")? << 10)
    };
    ground.nodes().map(resident).collect()
}
