//! What goes wrong between machines while programs run: daemons that are killed and started again,
//! links that are cut for a while, a machine in which no time passes for a minute. No program may
//! notice any of it but by being late.
//!
//! A crew of programs does laps in a storm and logs each; afterwards every lap must be there once,
//! in order, with the digest that it has natively.

use crate::machines::checks::furnish;
use crate::machines::ground::Ground;
use crate::machines::seat::{Seat, finish};
use crate::machines::table::Check;
use crate::machines::trials::Pair;
use anyhow::{Context, Result, bail, ensure};
use std::process::Child;
use std::time::{Duration, Instant};
use wire::control::Process;

/// Programs of a crew.
const CREW: usize = 3;
/// Between two moves of each of them, about.
const STORM_MS: u64 = 500;
/// Between two daemons that are killed.
const KILL_STEP: Duration = Duration::from_secs(10);
/// For how long a link is cut: less than a supervisor waits for the other one.
const CUT: Duration = Duration::from_secs(4);
/// For how long no time passes in a machine.
const SUSPENSION: Duration = Duration::from_secs(60);
/// How long every program of the crew may take for its next lap after a fault.
const LAP_PATIENCE: Duration = Duration::from_secs(120);
const LAP_STEP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs that do laps.
struct Crew<'a> {
    home: Seat<'a>,
    directory: String,
    members: Vec<Child>,
}

impl<'a> Crew<'a> {
    fn start(home: Seat<'a>, pair: Pair, name: &str) -> Result<Crew<'a>> {
        let program = furnish(&home.stage(&[pair.away])?, "laps")?;
        let directory = format!("/tmp/osmos-conformance/crew-{name}");
        let prepare = format!(
            "rm -rf {directory} && mkdir -p {directory} && cd {directory} && \
             head -c 300000 {program} > input"
        );
        home.must(false, &prepare, PATIENCE)?;
        let mut members = Vec::new();
        for number in 0..CREW {
            let script = format!(
                "cd {directory} && exec osmos run --storm {STORM_MS} -- {program} log{number} input"
            );
            members.push(home.start(false, &script)?);
        }
        Ok(Crew { home, directory, members })
    }

    /// How many laps each has done.
    fn laps(&self) -> Result<Vec<usize>> {
        let mut laps = Vec::new();
        for number in 0..CREW {
            let script = format!("cat {}/log{number} 2> /dev/null | wc -l", self.directory);
            let text = self.home.must(false, &script, PATIENCE)?;
            laps.push(text.trim().parse().with_context(|| format!("`{text}`"))?);
        }
        Ok(laps)
    }

    /// Waits until each has done two laps more, so one from its begin to its end.
    fn await_laps(&self) -> Result<()> {
        let before = self.laps()?;
        let deadline = Instant::now() + LAP_PATIENCE;
        loop {
            let now = self.laps()?;
            if before.iter().zip(&now).all(|(before, now)| *now >= before + 2) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seen = self.home.run(true, "osmos ps; osmos events | tail -12", PATIENCE)?;
                bail!("laps were {before:?} and are {now:?}: {}", seen.stdout);
            }
            std::thread::sleep(LAP_STEP);
        }
    }

    /// Whether the daemon at home knows of all of them.
    fn managed(&self) -> Result<usize> {
        let text = self.home.must(true, "osmos ps --json", PATIENCE)?;
        let listed: Vec<Process> = serde_json::from_str(&text).context("`osmos ps --json`")?;
        Ok(listed.iter().filter(|process| process.command.contains("laps")).count())
    }

    /// Lets them end, and compares what they have done with what one lap gives natively.
    fn end(mut self) -> Result<usize> {
        self.home.must(false, &format!("touch {}/stop", self.directory), PATIENCE)?;
        for member in self.members.drain(..) {
            let said = finish(member, LAP_PATIENCE)?;
            ensure!(said.status.success(), "one ended with {}: {}", said.status, said.stderr);
        }
        let native = self.native_digest()?;
        let mut count = 0;
        for number in 0..CREW {
            let script = format!("cat {}/log{number}", self.directory);
            for (index, line) in self.home.must(false, &script, PATIENCE)?.lines().enumerate() {
                let wanted = format!("{index} {native}");
                ensure!(line == wanted, "log {number} says `{line}` instead of `{wanted}`");
                count += 1;
            }
        }
        Ok(count)
    }

    /// The digest of a lap without Osmos: with `stop` there, but not yet where it looks.
    fn native_digest(&self) -> Result<String> {
        let directory = &self.directory;
        let script = format!(
            "mkdir -p {directory}/native && cd {directory}/native && \
             (../../machines/laps log ../input & p=$!; \
              while [ ! -s log ]; do sleep 0.1; done; touch stop; wait $p) && head -n 1 log"
        );
        let line = self.home.must(false, &script, LAP_PATIENCE)?;
        let (_, digest) = line.trim().split_once(' ').context("no native lap")?;
        Ok(digest.to_string())
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Their ends outside: with them the programs end.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

impl Ground {
    /// All faults of a pair, whose members must be alive alone. Daemons are killed for so long.
    pub fn check_faults(&self, pair: Pair, storm: Duration) -> Vec<Check> {
        let mut checks = Vec::new();
        let mut add = |name: &str, outcome| {
            let check = Check::of(name, pair, outcome);
            eprintln!("  {name}: {:?}", check.outcome);
            checks.push(check);
        };
        add("daemons killed", self.kill_daemons(pair, storm));
        if Seat::new(self, pair.away).is_ok_and(|away| away.machine().is_some()) {
            add("link cut", self.cut_link(pair));
            add("suspended", self.suspend(pair));
        }
        checks
    }

    /// Daemons are killed and started again on either side in turn; no process may be left without.
    fn kill_daemons(&self, pair: Pair, storm: Duration) -> Result<String> {
        let (home, away) = (Seat::new(self, pair.home)?, Seat::new(self, pair.away)?);
        let crew = Crew::start(home, pair, "daemons")?;
        crew.await_laps()?;
        let start = Instant::now();
        let mut kills = 0;
        while start.elapsed() < storm || kills < 2 {
            let seat = if kills % 2 == 0 { home } else { away };
            seat.kill_daemon()?;
            seat.start_daemon()?;
            kills += 1;
            std::thread::sleep(KILL_STEP);
        }
        home.await_alive(&[pair.home, pair.away])?;
        crew.await_laps().context("after the daemons were killed")?;
        let managed = crew.managed()?;
        ensure!(managed == CREW, "of {CREW} processes the daemon at home knows {managed}");
        let laps = crew.end()?;
        Ok(format!("{kills} daemons killed, {laps} laps as natively"))
    }

    fn cut_link(&self, pair: Pair) -> Result<String> {
        let home = Seat::new(self, pair.home)?;
        let machine = self.machine(pair.away).context("no machine")?;
        let crew = Crew::start(home, pair, "cut")?;
        crew.await_laps()?;
        machine.set_link(false)?;
        std::thread::sleep(CUT);
        machine.set_link(true)?;
        home.await_alive(&[pair.home, pair.away])?;
        crew.await_laps().context("after the link was cut")?;
        let laps = crew.end()?;
        Ok(format!("{} s without a link, {laps} laps as natively", CUT.as_secs()))
    }

    fn suspend(&self, pair: Pair) -> Result<String> {
        let home = Seat::new(self, pair.home)?;
        let machine = self.machine(pair.away).context("no machine")?;
        let crew = Crew::start(home, pair, "suspended")?;
        crew.await_laps()?;
        machine.suspend()?;
        std::thread::sleep(SUSPENSION);
        machine.resume()?;
        home.await_alive(&[pair.home, pair.away])?;
        crew.await_laps().context("after the machine was suspended")?;
        let laps = crew.end()?;
        Ok(format!("{} s without time, {laps} laps as natively", SUSPENSION.as_secs()))
    }
}
