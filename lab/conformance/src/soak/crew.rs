//! The programs of one soak, from their start to the judgement on each.

use crate::soak::Options;
use crate::soak::census::Seen;
use crate::soak::ground::{Ground, NATIVE, RUN};
use crate::soak::programs::{Program, check_log, check_output, chosen, digest_of_lap};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

/// What their exit statuses are counted from, so that each has its own.
const STATUS_BASE: i32 = 40;
/// How long all of them together may take to end, once told.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether one has ended.
const STEP: Duration = Duration::from_millis(10);

/// One program that runs under Osmos.
struct Member {
    program: Program,
    token: String,
    home: u32,
    status: i32,
    child: Child,
}

/// What became of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fate {
    pub token: String,
    pub program: &'static str,
    pub home: u32,
    pub laps: u64,
    /// None if all was as it had to be.
    pub fault: Option<String>,
}

pub struct Crew {
    members: Vec<Member>,
    /// Of a native lap of each program.
    digests: Vec<(&'static str, String)>,
}

impl Crew {
    /// Runs one lap of each program that will be needed natively, then starts all of them.
    pub fn start(ground: &Ground, options: &Options) -> Result<Crew> {
        let count = options.processes;
        ground.stop(NATIVE)?;
        let programs = chosen(&options.only)?;
        let digests: Result<Vec<_>> = programs
            .iter()
            .take(count)
            .map(|program| Ok((program.name, native_digest(ground, program)?)))
            .collect();
        let mut crew = Crew { members: Vec::new(), digests: digests? };
        let nodes = ground.nodes().count();
        for index in 0..count {
            let program = programs[index % programs.len()];
            let token = format!("{}-{index}", program.name);
            // Homes differ, so that each node is home, away, and both at once.
            let home = 1 + (index + index / programs.len()) % nodes;
            let status = STATUS_BASE + index as i32 % 80;
            // Half of them the balancer moves as well.
            let mut words: Vec<String> = vec!["osmos".into(), "run".into()];
            words.extend((index % 2 == 0).then(|| "--home".to_owned()));
            words.push("--".into());
            words.extend(program.words(&token, status));
            let child = ground.command(home as u32, RUN, &words).spawn()?;
            crew.members.push(Member { program, token, home: home as u32, status, child });
        }
        Ok(crew)
    }

    /// True if one of them is over, which none may be before it is told.
    pub fn has_lost_one(&mut self) -> Result<bool> {
        for member in &mut self.members {
            if member.child.try_wait()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What runs of the programs at their homes, by home and the pid there.
    pub fn processes(&self, ground: &Ground) -> Result<BTreeSet<(u32, i32)>> {
        let all = Seen::all()?;
        let mut found = BTreeSet::new();
        for member in &self.members {
            let depth = 1 + depth_of(ground, member.home, &all)?;
            let outside = member.child.id() as i32;
            let inside = all.iter().filter(|seen| {
                let is_below = seen.pid != outside && seen.descends_from(outside, &all);
                is_below && !seen.is_zombie && seen.pids.len() == depth
            });
            found.extend(inside.filter_map(|seen| Some((member.home, *seen.pids.last()?))));
        }
        Ok(found)
    }

    /// Tells all to end and judges how each did.
    pub fn end(mut self, ground: &Ground) -> Result<Vec<Fate>> {
        ground.stop(RUN)?;
        let deadline = Instant::now() + END_PATIENCE;
        let mut fates = Vec::new();
        for member in self.members.drain(..) {
            let digest = self.digests.iter().find(|(name, _)| *name == member.program.name);
            let (_, digest) = digest.context("a program without its oracle")?;
            fates.push(member.judge(ground, digest, deadline)?);
        }
        Ok(fates)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // What runs inside ends with the lab.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

impl Member {
    fn judge(mut self, ground: &Ground, digest: &str, deadline: Instant) -> Result<Fate> {
        let ended = wait_until(&mut self.child, deadline)?;
        let judged = match ended {
            Some(status) => self.judge_end(ground, digest, status),
            None => {
                self.child.kill()?;
                self.child.wait()?;
                Err(anyhow::anyhow!("it does not end: {}", self.place(ground)))
            }
        };
        let (laps, fault) = match judged {
            Ok(laps) => (laps, None),
            Err(error) => (0, Some(format!("{error:#}"))),
        };
        let Member { program, token, home, .. } = self;
        Ok(Fate { token, program: program.name, home, laps, fault })
    }

    fn judge_end(&mut self, ground: &Ground, digest: &str, status: ExitStatus) -> Result<u64> {
        let mut printed = (String::new(), String::new());
        self.child.stdout.take().context("no output")?.read_to_string(&mut printed.0)?;
        self.child.stderr.take().context("no errors")?.read_to_string(&mut printed.1)?;
        let (output, complaint) = printed;
        ensure!(complaint.is_empty(), "it complained: {} ({status})", complaint.trim());
        ensure!(status.code() == Some(self.status), "{status}, not {}", self.status);
        let path = ground.path(self.home, RUN, &format!("{}.log", self.token))?;
        let log = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let laps = check_log(&log, &self.token, digest)?;
        let said = check_output(&output, &self.token)?;
        ensure!(said == laps, "it says that it made {said} laps, its log has {laps}");
        Ok(laps)
    }

    /// Where those processes of its home are that are not over, for people.
    fn place(&self, ground: &Ground) -> String {
        let listed = ground.node(self.home).command("osmos").arg("ps").output();
        listed.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).into_owned())
    }
}

/// How many PID namespaces are around that of a node.
fn depth_of(ground: &Ground, node: u32, all: &[Seen]) -> Result<usize> {
    let keeper = ground.node(node).keeper()?.pid;
    let keeper = all.iter().find(|seen| seen.pid == keeper).context("a node without its keeper")?;
    Ok(keeper.pids.len() - 1)
}

fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    // The other side is a process: it cannot tell us, so we ask.
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(STEP);
    }
    Ok(child.try_wait()?)
}

fn native_digest(ground: &Ground, program: &Program) -> Result<String> {
    let token = program.name;
    let mut command: Command = ground.command(1, NATIVE, &program.words(token, STATUS_BASE));
    let Output { status, stdout, stderr } = command.output()?;
    let complaint = String::from_utf8_lossy(&stderr);
    ensure!(
        status.code() == Some(STATUS_BASE) && stderr.is_empty(),
        "{token} does not work natively: {status}: {}",
        complaint.trim()
    );
    let laps = check_output(&String::from_utf8_lossy(&stdout), token)?;
    ensure!(laps == 1, "{token} made {laps} laps natively, not one");
    let path = ground.path(1, NATIVE, &format!("{token}.log"))?;
    digest_of_lap(&std::fs::read_to_string(path)?, token)
}
