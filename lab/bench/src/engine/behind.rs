//! A program that writes to its memory faster than the network takes it: how long it stands still
//! when it leaves home, and what it gets done while its pages come behind it.

use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::stage::Stage;
use crate::engine::statistics::Samples;
use crate::engine::{Setting, Skipped};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};
use wire::control::{Happening, Migration};
use wire::supervisor::Filled;

/// Without which no page comes behind a process.
const FEATURE: &str = "kernel-faults";
/// Little if it is only to be seen that it works.
const MEGABYTES: [u32; 2] = [64, 1024];
/// Of its pages, each second.
const PERCENT: u32 = 30;
const LINK: &str = "1gbit";
const FREEZE_MS_MAX: f64 = 50.0;
/// Of what it does otherwise, in the worst tenth of a second.
const SPEED_PERCENT_MIN: f64 = 20.0;
/// What takes 9 s on that link has come by then.
const FILL_TIMEOUT: Duration = Duration::from_secs(120);
/// As it writes at home.
const SETTLE: Duration = Duration::from_secs(1);

/// In what order it writes, and how its memory is to go along.
const WAYS: [(&str, &str); 3] =
    [("upwards", "hybrid"), ("random", "hybrid"), ("upwards", "post-copy")];

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up_over(setting, Some(LINK))?;
    for node in [1, 2] {
        needs_faults(&stage, node)?;
    }
    let mut figures = Vec::new();
    for (order, method) in WAYS {
        figures.extend(measure(setting, &stage, order, method)?);
    }
    Ok(figures)
}

/// What `osmos doctor --json` tells.
#[derive(serde::Deserialize)]
struct Finding {
    name: String,
    present: bool,
    seen: String,
}

fn needs_faults(stage: &Stage, node: u32) -> Result<()> {
    let findings = stage.output(node, &["osmos", "doctor", "--json"])?;
    let findings: Vec<Finding> =
        serde_json::from_str(&findings).context("`osmos doctor --json`")?;
    let found = findings.into_iter().find(|finding| finding.name == FEATURE);
    let found = found.with_context(|| format!("`osmos doctor` does not tell of {FEATURE}"))?;
    match found.present {
        true => Ok(()),
        false => Err(Skipped(format!("node {node} has no {FEATURE}: {}", found.seen)).into()),
    }
}

fn measure(setting: &Setting, stage: &Stage, order: &str, method: &str) -> Result<[Figure; 2]> {
    let program = setting.programs.path("rewriter");
    let megabytes = MEGABYTES[usize::from(setting.effort.is_whole)];
    let numbers = [megabytes, PERCENT].map(|number| number.to_string());
    let words = ["osmos", "run", "--home", "--", &program, &numbers[0], &numbers[1], order];
    let (mut gaps, mut speeds, mut notes) = (vec![], vec![], vec![]);
    for _ in 0..setting.effort.moves_of_large.min(3) {
        let mut driven = Driven::start(&mut stage.command(1, &words))?;
        std::thread::sleep(SETTLE);
        driven.round::<2>(1)?;
        let pid = driven.pid().to_string();
        let migrate = ["osmos", "migrate", &pid, "2", "--json", "--method", method];
        let told: Migration = serde_json::from_str(&stage.output(1, &migrate)?)?;
        // A little program may be near its budget after all its rounds.
        let is_asked_for = told.method == method || !setting.effort.is_whole && method == "hybrid";
        ensure!(is_asked_for, "it went by {}, not by {method}", told.method);
        let filled = await_filled(stage, &told)?;
        let [gap_ms, speed] = driven.round(1)?;
        gaps.push(gap_ms);
        speeds.push(speed);
        notes.push(note(&told, filled));
        driven.end()?;
    }
    let what =
        format!("{megabytes} MB, {PERCENT} % written a second, {order}; link: {LINK}; {method}");
    let [gaps, speeds] = [gaps, speeds].map(Samples::new);
    let (gaps, speeds) = gaps.zip(speeds).context("no moves")?;
    let is_met = speeds.median() >= SPEED_PERCENT_MIN;
    let speed = Figure::new(format!("worst tenth of a second of {what}"), "%", &speeds)
        .with_target(format!("at least {SPEED_PERCENT_MIN} %"), is_met);
    let gap = Figure::new(format!("longest gap of {what}, away"), "ms", &gaps)
        .at_most(FREEZE_MS_MAX)
        .with_note(notes.join("; "));
    Ok([gap, speed])
}

/// When the last of its pages was there; None if none came behind it.
fn await_filled(stage: &Stage, told: &Migration) -> Result<Option<Filled>> {
    if told.pages_late == 0 {
        return Ok(None);
    }
    let deadline = Instant::now() + FILL_TIMEOUT;
    loop {
        let is_it = |event: &wire::control::Event| event.pid.is_some_and(|p| p.pid.0 == told.pid);
        let of_it = stage.events()?.into_iter().filter(is_it);
        let mut filled = of_it.filter_map(|event| match event.what {
            Happening::Filled(filled) => Some(filled),
            _ => None,
        });
        if let Some(filled) = filled.next_back() {
            return Ok(Some(filled));
        }
        let is_there = stage.processes()?.iter().any(|process| process.pid == told.pid);
        ensure!(is_there, "{} was lost before its pages were there", told.pid);
        // A machine that does something else gives a lab the rest, which may be nearly nothing.
        ensure!(
            Instant::now() < deadline,
            "the pages of {} were not there after {} s; load: {}",
            told.pid,
            FILL_TIMEOUT.as_secs(),
            std::fs::read_to_string("/proc/loadavg")?.trim()
        );
        // Nothing tells when that is but to be asked.
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn note(told: &Migration, filled: Option<Filled>) -> String {
    let late = filled.map_or(String::new(), |filled| {
        format!(
            ", {} pages behind it in {:.1} s, of which {} by {} faults",
            told.pages_late,
            filled.took_us as f64 / 1e6,
            filled.pages_faulted,
            filled.faults
        )
    });
    format!(
        "{}: reported {:.1} of {:.0} ms, {} rounds{late}",
        told.method, told.freeze_ms, told.total_ms, told.rounds
    )
}
