//! Whoever moves the programs, at random: several moves are under way at once.

use crate::soak::ground::Ground;
use anyhow::{Context, Result};
use client::{Client, Error};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wire::control::{Destination, Migration, Process, Reply, Request};
use wire::ids::NodeId;

/// Moves at a time.
pub const MOVERS: u64 = 4;
/// One move in so many is made by the command, the others over the control socket.
const BY_COMMAND: u64 = 10;
/// When there is nothing to move, look again after so long.
const PAUSE: Duration = Duration::from_millis(5);

/// A process for as long as it lives.
pub type Moved = (NodeId, i32);

/// What all movers did together.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub done: Vec<Migration>,
    pub moves_of: BTreeMap<Moved, u64>,
    /// Moves that did not happen, by the reason's code; and one text for each.
    pub refused: BTreeMap<String, (u64, String)>,
}

/// How much is to be done, and by when.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub moves: usize,
    pub seed: u64,
    pub until: Instant,
    /// Daemons are killed meanwhile: one that does not answer is asked again later.
    pub bears_silence: bool,
}

/// Moves until enough moves have succeeded, the time is over, or `is_off` says so.
pub fn run(ground: &Ground, work: Work, is_off: &(dyn Fn() -> bool + Sync)) -> Result<Tally> {
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..MOVERS)
            .map(|number| {
                let draw = Rng::with_seed(work.seed.wrapping_mul(MOVERS).wrapping_add(number));
                let tally = &tally;
                scope.spawn(move || Mover::new(ground, draw)?.work(work, tally, is_off))
            })
            .collect();
        for mover in movers {
            mover.join().map_err(|_| anyhow::anyhow!("a mover panicked"))??;
        }
        anyhow::Ok(())
    })?;
    tally.into_inner().ok().context("a mover panicked")
}

struct Mover<'a> {
    ground: &'a Ground,
    draw: Rng,
    clients: Vec<(NodeId, Client)>,
}

impl<'a> Mover<'a> {
    fn new(ground: &'a Ground, draw: Rng) -> Result<Mover<'a>> {
        Ok(Mover { ground, draw, clients: connect(ground)? })
    }

    fn work(
        mut self,
        work: Work,
        tally: &Mutex<Tally>,
        is_off: &(dyn Fn() -> bool + Sync),
    ) -> Result<()> {
        let has_enough = || tally.lock().map_or(true, |tally| tally.done.len() >= work.moves);
        while !has_enough() && Instant::now() < work.until && !is_off() {
            let moved = match self.move_one() {
                Err(_) if work.bears_silence => {
                    self.clients.clear();
                    Ok(None)
                }
                moved => moved,
            };
            let Some((process, moved)) = moved? else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let mut tally = tally.lock().ok().context("another mover panicked")?;
            match moved {
                Ok(migration) => {
                    *tally.moves_of.entry((process.home, process.pid)).or_default() += 1;
                    tally.done.push(migration);
                }
                Err((code, text)) => tally.refused.entry(code).or_insert((0, text)).0 += 1,
            }
        }
        Ok(())
    }

    /// None if there is nothing to move.
    fn move_one(&mut self) -> Result<Option<(Process, Result<Migration, Refused>)>> {
        let Some((process, to)) = self.choose()? else { return Ok(None) };
        let moved = match self.draw.u64(..BY_COMMAND) {
            0 => self.command(&process, to)?,
            _ => self.request(&process, to)?,
        };
        Ok(Some((process, moved)))
    }

    /// Any process of any home, to any other node.
    fn choose(&mut self) -> Result<Option<(Process, NodeId)>> {
        if self.clients.is_empty() {
            self.clients = connect(self.ground)?;
        }
        let index = self.draw.usize(..self.clients.len());
        let (home, client) = &mut self.clients[index];
        let home = *home;
        let Reply::Processes { processes } = client.request(&Request::Processes)? else {
            anyhow::bail!("a daemon answers another question than was asked");
        };
        let own: Vec<Process> = processes.into_iter().filter(|p| p.home == home).collect();
        let Some(process) = self.draw.choice(&own).cloned() else { return Ok(None) };
        let others: Vec<NodeId> = self
            .clients
            .iter()
            .map(|(node, _)| *node)
            .filter(|node| *node != process.node)
            .collect();
        Ok(self.draw.choice(&others).map(|to| (process, *to)))
    }

    fn request(&mut self, process: &Process, to: NodeId) -> Result<Result<Migration, Refused>> {
        let to = if to == process.home { Destination::Home } else { Destination::Node(to) };
        let client = self.clients.iter_mut().find(|(node, _)| *node == process.home);
        let (_, client) = client.context("a process of no node")?;
        match client.request(&Request::Migrate {
            pid: process.pid,
            to,
            freeze_budget_ms: None,
            way: None,
            is_watched: false,
        }) {
            Ok(Reply::Migrated(migration)) => Ok(Ok(migration)),
            Ok(other) => anyhow::bail!("a daemon answers a move with {other:?}"),
            Err(Error::Refused(failure)) => Ok(Err((failure.code, failure.text))),
            Err(error) => Err(error).context("a daemon does not answer"),
        }
    }

    fn command(&mut self, process: &Process, to: NodeId) -> Result<Result<Migration, Refused>> {
        let to = if to == process.home { "home".to_owned() } else { to.to_string() };
        let mut command = self.ground.node(process.home.0).command("osmos");
        let output = command.args(["migrate", &process.pid.to_string(), &to, "--json"]).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Ok(Err(("told-by-the-command".to_owned(), text)));
        }
        let migration = serde_json::from_slice(&output.stdout).context("`osmos migrate --json`")?;
        Ok(Ok(migration))
    }
}

fn connect(ground: &Ground) -> Result<Vec<(NodeId, Client)>> {
    ground.nodes().map(|node| Ok((node.id(), ground.client(node.id().0)?))).collect()
}

/// Code and text.
type Refused = (String, String);
