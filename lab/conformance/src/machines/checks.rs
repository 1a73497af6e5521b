//! Checks that need no oracle: what the time of day, files and clocks say to a process that is away
//! is what they say at home, however far the other machine's clock is off.

use crate::machines::ground::Ground;
use crate::machines::seat::{Seat, finish};
use crate::machines::table::Check;
use crate::machines::trials::Pair;
use crate::stage::Stage;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use wire::control::{Event, Happening};

/// One answer within this of home's: many times what a move of emulated machines takes to measure
/// their offset, and a thousandth of what their clocks differ by.
const APART_US_MAX: u64 = 1_000_000;
/// The monotonic clock may be corrected by a measured round trip of machines that are this slow.
const DRIFT_US_MAX: u64 = 100_000;
/// Whether a process has moved is asked this often.
const STEP: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(120);

/// Compiles a program of `lab/conformance/programs/machines` and puts it on a stage.
pub fn furnish(stage: &Stage, name: &str) -> Result<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/machines/{name}.c"));
    let program = crate::machines::ground::cache_dir().join(name);
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .output()
        .context("cannot run `cc`; a C compiler is needed to build the programs")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not compile:\n{words}", source.display());
    let bytes = std::fs::read(&program).with_context(|| program.display().to_string())?;
    stage.put(&format!("machines/{name}"), &bytes, 0o755)?;
    let path = PathBuf::from(stage.directory()).join("machines").join(name);
    Ok(path.display().to_string())
}

impl Ground {
    /// All checks of the clocks of a pair, whose members must be alive alone.
    pub fn check_clocks(&self, pair: Pair, seconds: u64, moves_min: u32) -> Result<Vec<Check>> {
        let home = Seat::new(self, pair.home)?;
        let program = furnish(&home.stage(&[pair.away])?, "clocks")?;
        let date = Check::of("date", pair, date(&home, pair));
        let clocks = Check::of("clocks", pair, clocks(&home, &program, seconds, moves_min));
        Ok(vec![date, clocks])
    }
}

/// `date` away tells home's time. It is asked what `now` is when it is seen to be away.
fn date(home: &Seat<'_>, pair: Pair) -> Result<String> {
    let directory = "/tmp/osmos-conformance/machines";
    let away = pair.away;
    let start = format!(
        "cd {directory} && rm -f ask pid && mkfifo ask && echo $$ > pid && \
         exec osmos run --node {away} -- date --file ask +%s.%N"
    );
    let child = home.start(false, &start)?;
    let deadline = Instant::now() + PATIENCE;
    while !has_moved(home, &format!("{directory}/pid"))? {
        if Instant::now() > deadline {
            // It waits for its question still.
            home.must(false, &format!("echo now > {directory}/ask"), PATIENCE)?;
            finish(child, PATIENCE)?;
            bail!("`date` has not moved in {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(STEP);
    }
    let ask = format!("date +%s.%N; echo now > {directory}/ask");
    let before: f64 = home.must(false, &ask, PATIENCE)?.trim().parse()?;
    let said = finish(child, PATIENCE)?;
    let after: f64 = home.must(false, "date +%s.%N", PATIENCE)?.trim().parse()?;
    let told: f64 = said.stdout.trim().parse().with_context(|| format!("{said:?}"))?;
    let late = (before - told).max(told - after);
    let slack = APART_US_MAX as f64 / 1e6;
    ensure!(late < slack, "`date` away is {late:.3} s outside of what it is at home");
    Ok(format!("between {:.3} s before and {:.3} s after home's", told - before, after - told))
}

/// Whether the process whose pid is in a file has moved.
fn has_moved(home: &Seat<'_>, file: &str) -> Result<bool> {
    let text = home.run(false, &format!("cat {file}"), PATIENCE)?.stdout;
    match text.trim().parse() {
        Ok(pid) => Ok(moves_of(home, pid)? > 0),
        // It is not written yet.
        Err(_) => Ok(false),
    }
}

/// Clocks and times of files in a storm.
fn clocks(home: &Seat<'_>, program: &str, seconds: u64, moves_min: u32) -> Result<String> {
    let script = format!(
        "cd $(dirname {program}); date +%s; \
         sh -c 'echo $$; exec osmos run --storm 50 -- {program} {seconds}' || exit; date +%s"
    );
    let text = home.must(false, &script, PATIENCE + Duration::from_secs(2 * seconds))?;
    let lines: Vec<&str> = text.lines().collect();
    let [before, pid, told @ .., after] = &lines[..] else { bail!("it printed `{text}`") };
    let moves = moves_of(home, pid.parse()?)?;
    let words = told.iter().filter_map(|line| line.split_once(' '));
    let told: BTreeMap<&str, f64> =
        words.filter_map(|(name, number)| Some((name, number.parse().ok()?))).collect();
    let value = |name: &str| told.get(name).copied().with_context(|| format!("no {name}: {text}"));
    let (began, ended) = (value("began")?, value("ended")?);
    let slack = APART_US_MAX as f64 / 1e6 + 1.0;
    let (before, after): (f64, f64) = (before.parse()?, after.parse()?);
    ensure!(
        began > before - slack && ended < after + slack,
        "it saw {began} to {ended}, at home it was {before} to {after}"
    );
    let summary = format!(
        "{moves} moves, {} reads, back {} us wall, {} us monotonic; files {} us apart, drift {} us",
        value("reads")?,
        value("wall_back_us")?,
        value("steady_back_us")?,
        value("apart_us")?,
        value("drift_us")?
    );
    let is_well = value("wall_back_us")? == 0.0
        && value("steady_back_us")? == 0.0
        && value("apart_us")? <= APART_US_MAX as f64
        && value("drift_us")? <= DRIFT_US_MAX as f64;
    ensure!(is_well, "{summary}");
    ensure!(moves >= moves_min, "only {summary}");
    Ok(summary)
}

/// How often a process of `home` has changed its node, as the daemon there tells.
pub fn moves_of(home: &Seat<'_>, pid: i32) -> Result<u32> {
    let text = home.must(false, "osmos events --json", PATIENCE)?;
    let mut count = 0;
    for line in text.lines() {
        let event: Event = serde_json::from_str(line).with_context(|| format!("`{line}`"))?;
        let is_it = event.pid.is_some_and(|own| own.pid.0 == pid && own.home == home.node());
        match event.what {
            // A pid may be given anew.
            Happening::Managed { .. } if is_it => count = 0,
            Happening::Migrated(_) if is_it => count += 1,
            _ => {}
        }
    }
    Ok(count)
}
