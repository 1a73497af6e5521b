//! Runs one script in a node and shows what happens meanwhile.

use crate::demo::picture::{Scene, Screen};
use crate::demo::stage::Stage;
use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::io::Read;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::control::{Happening, Process};
use wire::ids::NodeId;

/// Between two pictures.
const REDRAW: Duration = Duration::from_millis(200);
/// No run of the demo is longer; one that is has gone wrong.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// A script's outcome.
pub struct Outcome {
    pub wall_s: f64,
    pub status: ExitStatus,
    pub output: Vec<u8>,
    /// Of each move of a process born on `home`, in order.
    pub freezes_ms: Vec<f64>,
}

/// What to run, and how to show it.
pub struct Run<'a> {
    pub title: &'a str,
    pub node: NodeId,
    pub script: &'a str,
    /// Programs that the script starts, for the picture.
    pub programs: usize,
    /// Whether its programs are managed, so that there is a picture to draw.
    pub managed: bool,
}

impl Run<'_> {
    /// The time is that of the script alone: from its start to the end of its last program.
    pub fn watch(&self, stage: &Stage, screen: &mut Screen) -> Result<Outcome> {
        let since = stage.now_epoch_s()?;
        let mut command = stage.command(self.node, &["sh", "-c", self.script]);
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the programs of `{}`", self.title))?;
        let mut pipe = child.stdout.take().context("the script has no output")?;
        let (sender, receiver) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let mut output = Vec::new();
            let read = pipe.read_to_end(&mut output);
            let status = child.wait();
            // Nobody listens any more if the demo was interrupted.
            let _ = sender.send((Instant::now(), read.and(status), output));
        });
        let mut seen = HashSet::new();
        let (ended, status, output) = loop {
            match receiver.recv_timeout(REDRAW) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Timeout) => {
                    self.picture(stage, screen, started, &mut seen)?;
                }
                Err(RecvTimeoutError::Disconnected) => bail!("lost sight of `{}`", self.title),
            }
        };
        if waiter.join().is_err() {
            bail!("waiting for `{}` failed", self.title);
        }
        let status = status.with_context(|| format!("cannot wait for `{}`", self.title))?;
        let freezes_ms = if self.managed { freezes_since(stage, since)? } else { Vec::new() };
        Ok(Outcome { wall_s: (ended - started).as_secs_f64(), status, output, freezes_ms })
    }

    /// `seen` are the pids of all programs that were in an earlier picture.
    fn picture(
        &self,
        stage: &Stage,
        screen: &mut Screen,
        started: Instant,
        seen: &mut HashSet<i32>,
    ) -> Result<()> {
        if stage.interrupted().load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if started.elapsed() > RUN_TIMEOUT {
            bail!("`{}` has not ended after {RUN_TIMEOUT:?}", self.title);
        }
        if !self.managed {
            return Ok(());
        }
        let processes: Vec<Process> =
            stage.processes()?.into_iter().filter(|process| process.home == self.node).collect();
        seen.extend(processes.iter().map(|process| process.pid));
        screen.draw(&Scene {
            title: self.title,
            elapsed_s: started.elapsed().as_secs_f64(),
            speeds: stage.speeds(),
            ended: seen.len() - processes.len(),
            total: self.programs,
            processes: &processes,
        })?;
        Ok(())
    }
}

fn freezes_since(stage: &Stage, epoch_s: f64) -> Result<Vec<f64>> {
    let moves = stage.events()?.into_iter().filter(|event| event.time >= epoch_s);
    Ok(moves
        .filter_map(|event| match event.what {
            Happening::Migrated(migration) => Some(migration.freeze_ms),
            _ => None,
        })
        .collect())
}
