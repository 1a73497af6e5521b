//! The same program in four places, and streams between two.

use super::{Amount, CREATIONS, SUSPENSIONS, Stream, Timed, Took, tell};
use crate::engine::driven::{Driven, Serving};
use crate::engine::stage::Stage;
use crate::engine::statistics::Samples;
use anyhow::{Context, Result};
use wire::ids::NodeId;

const HOME: u32 = 1;
const AWAY: u32 = 2;

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Without Osmos.
    Native,
    /// Under Osmos, where it was started.
    Home,
    /// Started on another node, with all that it starts.
    Remote,
    /// Started at home, and moved.
    Migrated,
}

impl Place {
    const ALL: [Place; 4] = [Place::Native, Place::Home, Place::Remote, Place::Migrated];

    pub fn name(self) -> &'static str {
        match self {
            Place::Native => "native",
            Place::Home => "at home",
            Place::Remote => "remote",
            Place::Migrated => "migrated",
        }
    }

    /// What comes before the program.
    fn words(self) -> &'static [&'static str] {
        match self {
            Place::Native => &[],
            Place::Home | Place::Migrated => &["osmos", "run", "--home", "--"],
            Place::Remote => &["osmos", "run", "--node", "2", "--"],
        }
    }
}

pub struct Measuring<'a> {
    pub stage: &'a Stage,
    /// This program, on an ordinary file system: the lab's own programs are on one in memory, whose
    /// files are compared anew each time, because it notes no writes by way of mappings.
    pub program: &'a str,
    pub amount: &'a Amount,
}

impl Measuring<'_> {
    /// Processes made and ended, by the size of their program.
    pub fn creation(&self) -> Result<Vec<Timed>> {
        let mut rows = Vec::new();
        for touched in ["untouched", "touched"] {
            for size in &self.amount.sizes {
                for place in Place::ALL {
                    let what = format!("{size} bytes, {touched}");
                    tell(&format!("a process is made and ends: {what}, {}", place.name()));
                    let words = ["create", &size.to_string(), touched];
                    let mut driven = self.start(place, &words)?;
                    match place {
                        Place::Migrated => self.stage.put(driven.pid(), NodeId(AWAY))?,
                        Place::Remote => self.await_all_away()?,
                        Place::Native | Place::Home => {}
                    }
                    let us = self.rounds(&mut driven, self.amount.times(CREATIONS))?;
                    driven.end()?;
                    rows.push(Timed { what, place: place.name(), us });
                }
            }
        }
        Ok(rows)
    }

    /// One process stops and another goes on. What is migrated is these two; who does it to them
    /// stays at home, as whoever has whole jobs take turns.
    pub fn suspension(&self) -> Result<Vec<Timed>> {
        let mut rows = Vec::new();
        for place in Place::ALL {
            tell(&format!("one process stops and another goes on, {}", place.name()));
            let mut driven = self.start(place, &["suspend"])?;
            if place == Place::Migrated {
                for process in self.stage.processes()? {
                    if process.pid != driven.pid() {
                        self.stage.put(process.pid, NodeId(AWAY))?;
                    }
                }
            } else if place == Place::Remote {
                self.await_all_away()?;
            }
            let us = self.rounds(&mut driven, self.amount.times(SUSPENSIONS))?;
            driven.end()?;
            let what = "stop one, continue another".to_owned();
            rows.push(Timed { what, place: place.name(), us });
        }
        Ok(rows)
    }

    /// A stream over TCP to a native program on node 1, by the size of the messages.
    pub fn streams(&self) -> Result<Vec<Stream>> {
        let mut streams = Vec::new();
        for bytes in &self.amount.messages {
            tell(&format!("a stream of messages of {bytes} bytes"));
            let local = (HOME, Place::Native, "within a node, native");
            let across = (AWAY, Place::Native, "between two nodes, native");
            let home = (HOME, Place::Home, "within a node, at home");
            let remote = (HOME, Place::Remote, "from a process that is away");
            for (node, sender, place) in [local, across, home, remote] {
                let megabytes_per_s = self.stream(node, sender, *bytes)?;
                streams.push(Stream { message_bytes: *bytes, place, megabytes_per_s });
            }
        }
        Ok(streams)
    }

    /// As its receiver saw it, in megabytes (10^6) a second.
    fn stream(&self, node: u32, place: Place, bytes: usize) -> Result<f64> {
        let mut receiving = self.stage.command(HOME, &[self.program, "bench-os", "receive"]);
        let mut receiver = Serving::start(&mut receiving)?;
        let address = format!("{}:{}", self.stage.address(HOME), receiver.line);
        let bytes_word = bytes.to_string();
        let send = [self.program, "bench-os", "send", &address, &bytes_word];
        let words = [place.words(), &send[..]].concat();
        let mut sender = Driven::start(&mut self.stage.command(node, &words))?;
        if place == Place::Remote {
            self.await_all_away()?;
        }
        sender.round::<4>(self.amount.stream_messages(bytes))?;
        sender.end()?;
        let line = receiver.next_line()?;
        let (took_s, total) = line.split_once(' ').context("a receiver says no two numbers")?;
        let (took_s, total): (f64, f64) = (took_s.parse()?, total.parse()?);
        Ok(total / took_s.max(1e-9) / 1e6)
    }

    /// What was started for another node goes there soon after it has begun.
    fn await_all_away(&self) -> Result<()> {
        let processes = self.stage.processes()?;
        processes.iter().try_for_each(|process| self.stage.await_arrival(process.pid, AWAY))
    }

    fn start(&self, place: Place, words: &[&str]) -> Result<Driven> {
        let words = [place.words(), &[self.program, "bench-os"], words].concat();
        Driven::start(&mut self.stage.command(HOME, &words))
    }

    /// The first round finds caches and processors as they are, and is not counted.
    fn rounds(&self, driven: &mut Driven, steps: u64) -> Result<Took> {
        driven.round::<4>(steps)?;
        let rounds: Result<Vec<[f64; 4]>> =
            (0..self.amount.rounds).map(|_| driven.round::<4>(steps)).collect();
        Took::of(&rounds?)
    }
}

impl Took {
    /// Of what single steps took, us.
    pub fn of_steps(us: Vec<f64>) -> Result<Took> {
        let mean = us.iter().sum::<f64>() / us.len().max(1) as f64;
        let samples = Samples::new(us).context("nothing was measured")?;
        let (p10, p90) = (samples.quantile(0.1), samples.quantile(0.9));
        Ok(Took { median: samples.median(), p10, p90, mean })
    }

    /// Of what rounds of a program say.
    pub fn of(rounds: &[[f64; 4]]) -> Result<Took> {
        let middle = |nth: usize| {
            let samples = Samples::new(rounds.iter().map(|round| round[nth]));
            samples.map(|samples| samples.median()).context("a round gives no number")
        };
        Ok(Took { median: middle(0)?, p10: middle(1)?, p90: middle(2)?, mean: middle(3)? })
    }
}
