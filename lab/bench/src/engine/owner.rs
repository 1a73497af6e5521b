//! How soon the owner of a node has it back: guests leave when load of his own returns to a node
//! that yields, and when he expels them.

use crate::engine::Setting;
use crate::engine::figure::Figure;
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Happening};
use wire::ids::NodeId;

const NODES: u32 = 3;
/// The owner's.
const OWNED: NodeId = NodeId(2);
/// What an owner is promised, s.
const RETURN_S_MAX: f64 = 5.0;
/// Expelled at one time.
const GUESTS: usize = 8;
/// A guest that has been measured for so long is seen as it is.
const SETTLED: Duration = Duration::from_secs(3);
/// The owner's program runs for so long, s: longer than any guest should stay beside it.
const OWN_LOAD_S: u32 = 8;
/// Between two looks at where the guest is.
const LOOK: Duration = Duration::from_millis(100);
const ENDLESS: &str = "BEGIN {for(;;)x++}";

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, NODES, Share::Equal)?;
    let (mut return_s, mut expel_s) = (Vec::new(), Vec::new());
    stage.output(OWNED.0, &["osmos", "yield"])?;
    let guest = Program::start(&stage, 1, &["osmos", "run", "--", "awk", ENDLESS])?;
    let pid = managed(&stage, 1)?[0];
    for _ in 0..setting.effort.owner_runs {
        return_s.push(owner_returns(&stage, pid)?);
    }
    // A command of the shell: not every machine has the program.
    stage.output(1, &["sh", "-c", &format!("kill {pid}")])?;
    drop(guest);
    let _sleepers = (0..GUESTS)
        .map(|_| Program::start(&stage, 1, &["osmos", "run", "--", "sleep", "1000"]))
        .collect::<Result<Vec<Program>>>()?;
    let pids = managed(&stage, GUESTS)?;
    for _ in 0..setting.effort.owner_runs {
        expel_s.push(expelled(&stage, &pids)?);
    }
    let returns = Samples::new(return_s).context("no runs")?;
    let expels = Samples::new(expel_s).context("no runs")?;
    Ok(vec![
        Figure::new("a guest leaves a node whose owner's load returns, after", "s", &returns)
            .at_most(RETURN_S_MAX),
        Figure::new("eight guests are expelled within", "s", &expels).at_most(RETURN_S_MAX),
    ])
}

fn now_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// From the start of the owner's program to the end of the guest's move.
fn owner_returns(stage: &Stage, pid: i32) -> Result<f64> {
    let at = |stage: &Stage| -> Result<NodeId> {
        let processes = stage.processes()?;
        let process = processes.iter().find(|process| process.pid == pid);
        Ok(process.context("the guest has ended")?.node)
    };
    // What ran there before is no load any more.
    std::thread::sleep(SETTLED);
    if at(stage)? != OWNED {
        stage.put(pid, OWNED)?;
    }
    std::thread::sleep(SETTLED);
    ensure!(at(stage)? == OWNED, "the guest has left before anybody returned");
    let returned_s = now_s()?;
    let load = OWN_LOAD_S.to_string();
    let mut own = Program::start(stage, OWNED.0, &["timeout", &load, "awk", ENDLESS])?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(OWN_LOAD_S));
    while at(stage)? == OWNED {
        ensure!(Instant::now() < deadline, "the guest does not leave");
        std::thread::sleep(LOOK);
    }
    let left_s = stage.events()?.iter().rev().find_map(|event| left(event, pid));
    // The next run begins on a node that nobody uses.
    own.0.wait()?;
    Ok(left_s.context("no event tells of the move")? - returned_s)
}

fn left(event: &Event, pid: i32) -> Option<f64> {
    let is_it = event.pid.is_some_and(|of| of.pid.0 == pid);
    match &event.what {
        Happening::Migrated(made) if is_it && made.from == OWNED => Some(event.time),
        _ => None,
    }
}

/// How long `osmos expel` takes, after which none is there.
fn expelled(stage: &Stage, pids: &[i32]) -> Result<f64> {
    stage.output(OWNED.0, &["osmos", "noblock"])?;
    for pid in pids {
        stage.put(*pid, OWNED)?;
    }
    let started = Instant::now();
    stage.output(OWNED.0, &["osmos", "expel"])?;
    let took_s = started.elapsed().as_secs_f64();
    let left = stage.processes()?.iter().filter(|process| process.node == OWNED).count();
    ensure!(left == 0, "{left} guests are still there");
    Ok(took_s)
}

/// The pids of so many programs that were just started, when they run their commands.
fn managed(stage: &Stage, count: usize) -> Result<Vec<i32>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let processes = stage.processes()?;
        let is_itself = |command: &str| command == "awk" || command == "sleep";
        let running = processes.iter().filter(|process| is_itself(&process.command));
        let pids: Vec<i32> = running.map(|process| process.pid).collect();
        if pids.len() == count {
            return Ok(pids);
        }
        ensure!(Instant::now() < deadline, "{} of {count} programs run", pids.len());
        std::thread::sleep(LOOK);
    }
}

/// Ends with its owner; what is inside the lab ends with the lab.
struct Program(Child);

impl Program {
    fn start(stage: &Stage, node: u32, words: &[&str]) -> Result<Program> {
        let mut command = stage.command(node, words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Program(command.spawn().context("cannot start a program")?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
