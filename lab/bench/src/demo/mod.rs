//! `osmos demo`: the MOSIX tutorial's two tests on a lab of four nodes, measured, in two to three
//! minutes.
//!
//! Everything it shows it has just measured on this machine. The programs are other people's, the
//! files are on the home node alone, and the first run of each program is without Osmos: what that
//! printed and wrote is what all later runs must print and write.

mod acts;
mod audio;
mod loopback;
mod picture;
mod report;
mod stage;
mod watch;
mod work;

use acts::{Acts, Length};
use anyhow::{Context, Result, ensure};
use picture::Screen;
use report::{NodeSpeed, Report};
use stage::{HOME, Stage};
use std::process::ExitCode;
use std::time::Instant;
use wire::ids::NodeId;
use work::{Encoder, TRACKS};

/// All five runs of the encoding job take a little over four times `tracks_s`.
const FULL: Length = Length { awk_s: 3.5, tracks_s: 17.5 };
const QUICK: Length = Length { awk_s: 1.0, tracks_s: 3.5 };

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print the figures as JSON and nothing else.
    pub json: bool,
    /// A fifth of the work.
    pub quick: bool,
}

/// Runs the demo. It fails if anything failed or any output differed.
pub fn main(options: Options) -> ExitCode {
    match demo(options) {
        Ok(report) if report.is_good() => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("osmos demo: a program's output was not what it is without osmos");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("osmos demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo(options: Options) -> Result<Report> {
    let mut screen = Screen::of_standard_output(options.json);
    let started = Instant::now();
    let stage = Stage::up()?;
    introduce(&stage, &mut screen)?;
    let played = play(&stage, &mut screen, options, started);
    stage.down()?;
    let report = played?;
    if options.json {
        let text = serde_json::to_string_pretty(&report).context("cannot print the report")?;
        lab::print(&(text + "\n"))?;
    } else {
        screen.say(&report.table())?;
    }
    Ok(report)
}

/// What the demo runs, and how to have what is missing.
const NO_AWK: &str = "awk, so no awk programs are run: install the package mawk";
const NO_ENCODER: &str =
    "flac, xz and gzip, so no tracks are encoded: install one of the packages flac, xz-utils, gzip";

fn play(stage: &Stage, screen: &mut Screen, options: Options, started: Instant) -> Result<Report> {
    let length = if options.quick { QUICK } else { FULL };
    let cores = stage.cores(HOME).unwrap_or(1.0);
    let encoder = Encoder::of_this_machine();
    let rounds = work::has_awk().then(|| work::awk_rounds(length.awk_s * cores)).transpose()?;
    let mut missing = stage.missing().to_vec();
    let absent = [(rounds.is_none(), NO_AWK), (encoder.is_none(), NO_ENCODER)];
    for (_, what) in absent.iter().filter(|(is_absent, _)| *is_absent) {
        screen.say(&format!("missing here: {what}"))?;
        missing.push((*what).to_owned());
    }
    ensure!(encoder.is_some() || rounds.is_some(), "there is nothing to run here: see above");

    let mut acts = Acts { stage, screen };
    let awk = rounds.map(|rounds| acts.awk(rounds)).transpose()?;
    let track_cpu_s = length.tracks_s * cores / f64::from(TRACKS);
    let (mut track_bytes, mut encoding) = (0, Vec::new());
    if let Some(encoder) = encoder {
        let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
        track_bytes = encoder.track_bytes(track_cpu_s, scratch.path())?;
        stage.write_tracks(HOME, TRACKS, track_bytes)?;
        encoding = acts.encoding(encoder, track_bytes)?;
    }
    let has_moved = encoding.iter().chain(&awk).any(|row| row.migrations > 0);
    if !has_moved && let Some(reason) = stage.refusal()? {
        missing.push(format!("no process could move: {reason}"));
    }
    Ok(Report {
        nodes: node_speeds(stage),
        missing,
        awk,
        encoder: encoder.map(|encoder| encoder.words().join(" ")),
        tracks: TRACKS as usize,
        track_bytes,
        encoding,
        total_s: started.elapsed().as_secs_f64(),
    })
}

fn node_speeds(stage: &Stage) -> Vec<NodeSpeed> {
    (1..)
        .zip(stage.speeds())
        .map(|(node, speed)| NodeSpeed { node, speed: *speed, cores: stage.cores(NodeId(node)) })
        .collect()
}

fn introduce(stage: &Stage, screen: &mut Screen) -> Result<()> {
    for node in node_speeds(stage) {
        let home = if node.node == HOME.0 { ", home of all programs" } else { "" };
        let cores = match node.cores {
            Some(cores) => format!("{cores:.2} of this machine's cores"),
            None => "not limited".to_string(),
        };
        screen.say(&format!("node {} is up: speed {} ({cores}){home}", node.node, node.speed))?;
    }
    for missing in stage.missing() {
        screen.say(&format!("missing here: {missing}"))?;
    }
    Ok(())
}
