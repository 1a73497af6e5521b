//! The whole matrix: every program in every flavour, several programs at a time.
//!
//! The flavours of one program run one after another on one worker, the native one first, because
//! it is what the others are compared with. Workers share nothing but the stage.

use crate::flavour::Flavour;
use crate::method::Method;
use crate::moves::Moves;
use crate::observation::Observation;
use crate::outside::Suite;
use crate::report::{Cell, Report, Row, Verdict};
use crate::stage::Stage;
use crate::subject::{Kind, Subject};
use crate::trial::{Bench, Outcome};
use crate::{guests, inputs, outside, programs};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most trials wait more than they compute, so there may be more of them than processors.
const JOBS_PER_CORE: usize = 2;

#[derive(Clone, Debug)]
pub struct Options {
    /// Only programs whose name contains this.
    pub filter: Option<String>,
    /// Only these programs.
    pub only: Option<Vec<String>>,
    /// Which flavours are reported; the native one always is run.
    pub flavours: Vec<Flavour>,
    /// Programs at a time.
    pub jobs: usize,
    /// Kernel features that the lab does without.
    pub without: Vec<String>,
    /// How memory travels, if not as this machine's kernel does best.
    pub method: Option<Method>,
    /// Programs keep to what the processors of all nodes have.
    pub has_baseline: bool,
    /// Only guests, or only real programs.
    pub kind: Option<Kind>,
    /// None of them, but the programs of this suite.
    pub outside: Option<Suite>,
    /// How long a guest stays at one travel point.
    pub travel_ms: u64,
    /// How often a program does its work that can do it more than once.
    pub laps: u32,
    /// How long one trial may take.
    pub limit: Duration,
    /// How long all of it may take: what is not begun by then has failed.
    pub budget: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
        Options {
            filter: None,
            only: None,
            flavours: Flavour::ALL.to_vec(),
            jobs: cores * JOBS_PER_CORE,
            without: Vec::new(),
            method: None,
            has_baseline: false,
            kind: None,
            outside: None,
            travel_ms: 300,
            laps: 1,
            limit: Duration::from_secs(30),
            budget: Duration::from_secs(15 * 60),
        }
    }
}

/// Runs what the options ask for. `tell` is called with each program when all of its flavours are
/// through.
pub fn run(options: &Options, tell: &(dyn Fn(&Row) + Sync)) -> Result<Report> {
    let stage = match options.flavours.iter().any(|flavour| flavour.is_osmos()) {
        true => {
            let [osmos] = needs::build(["osmos"])?;
            Stage::lab(&osmos, &without(options))?
        }
        false => Stage::machine()?,
    };
    if let Some(method) = options.method {
        check(&stage, method)?;
    }
    run_on(&stage, options, tell)
}

fn without(options: &Options) -> Vec<String> {
    let by_method = options.method.map_or(&[][..], Method::without);
    options.without.iter().cloned().chain(by_method.iter().map(|word| word.to_string())).collect()
}

/// What `osmos run` is told in all flavours.
fn run_options(has_baseline: bool, method: Option<Method>) -> Vec<&'static str> {
    let by_method = method.map_or(&[][..], Method::options);
    has_baseline.then_some("--cpu-baseline").into_iter().chain(by_method.iter().copied()).collect()
}

/// What a kernel lacks nodes would do in another way, and nothing would have been tried.
fn check(stage: &Stage, method: Method) -> Result<()> {
    let Some(feature) = method.needs() else { return Ok(()) };
    let output = stage.command(&["osmos", "doctor", "--json"]).output()?;
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)?;
    let has = |it: &serde_json::Value| it["name"] == feature && it["present"] == true;
    ensure!(findings.iter().any(has), "{method} takes {feature}, which this kernel does not have");
    Ok(())
}

/// The same on a stage that is there already.
pub fn run_on(stage: &Stage, options: &Options, tell: &(dyn Fn(&Row) + Sync)) -> Result<Report> {
    let start = Instant::now();
    let subjects = chosen(options)?;
    furnish(stage, &subjects)?;
    let moves = (!stage.away().is_empty()).then(|| Moves::follow(stage)).transpose()?;
    let mut flavours = options.flavours.clone();
    if !flavours.contains(&Flavour::Native) {
        flavours.insert(0, Flavour::Native);
    }
    flavours.sort();
    let rows = run_all(options, &flavours, &subjects, stage, moves.as_ref(), tell)?;
    let wall_s = start.elapsed().as_secs_f64();
    Ok(Report { flavours, rows, wall_s, may_skip: !needs::is_ci() })
}

/// Real programs first: they take longer.
fn chosen(options: &Options) -> Result<Vec<Subject>> {
    let mut subjects = match &options.outside {
        Some(suite) => outside::subjects(suite)?,
        None => programs::subjects().into_iter().chain(guests::subjects()?).collect(),
    };
    subjects.retain(|subject| {
        options.kind.is_none_or(|kind| kind == subject.kind)
            && options.filter.as_ref().is_none_or(|part| subject.name.contains(part))
            && options.only.as_ref().is_none_or(|names| names.contains(&subject.name))
            && (!programs::is_extra(&subject.name) || needs::has(&subject.command[0]))
    });
    ensure!(!subjects.is_empty(), "no program that is installed is called so; see lab/guests");
    Ok(subjects)
}

/// Where the guests are compiled to.
pub fn guest_dir() -> PathBuf {
    needs::target_dir().join("guests")
}

/// Puts programs and inputs where the trials find them: in the lab only at home.
fn furnish(stage: &Stage, subjects: &[Subject]) -> Result<()> {
    let chosen = subjects.iter().filter(|subject| subject.kind == Kind::Guest);
    let names: Vec<&str> = chosen.map(|subject| subject.name.as_str()).collect();
    guests::compile(&names, &guest_dir())?;
    for name in names.iter().copied().chain(["witness"]) {
        let program = guest_dir().join(name);
        let bytes = std::fs::read(&program).with_context(|| program.display().to_string())?;
        stage.put(&format!("guests/{name}"), &bytes, 0o755)?;
    }
    for (name, bytes) in inputs::all() {
        stage.put(&format!("inputs/{name}"), &bytes, 0o644)?;
    }
    Ok(())
}

fn run_all(
    options: &Options,
    flavours: &[Flavour],
    subjects: &[Subject],
    stage: &Stage,
    moves: Option<&Moves>,
    tell: &(dyn Fn(&Row) + Sync),
) -> Result<Vec<Row>> {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        let console = stage.console()?;
        let Options { travel_ms, laps, limit, has_baseline, method, .. } = *options;
        let run_options = run_options(has_baseline, method);
        let mut bench = Bench { stage, console, moves, run_options, travel_ms, laps, limit };
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(subject) = subjects.get(index) else { return Ok(()) };
            let row = match start.elapsed() < options.budget {
                true => run_one(&mut bench, subject, flavours)?,
                false => not_begun(subject, flavours, options.budget),
            };
            tell(&row);
            rows.lock().expect("no worker panics with it").push((index, row));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("workers do not panic"))
    })?;
    let mut rows = rows.into_inner().expect("no worker panics with it");
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Again, with longer travel points and more of its work, if the program was over before it could
/// be moved: a trial in which nothing moved has tested nothing. Any other verdict stands. Most
/// programs that nobody here wrote have neither, and on a fast machine that is busy some lose that
/// race a few times.
fn run_until_moved(
    bench: &mut Bench<'_>,
    subject: &Subject,
    flavour: Flavour,
    native: &Observation,
) -> Outcome {
    let (travel_ms, laps) = (bench.travel_ms, bench.laps);
    let mut outcome = bench.run(subject, flavour, Some(native));
    for factor in [2_u32, 4, 4, 4, 4, 4] {
        if !matches!(outcome.verdict, Verdict::DidNotMove(_)) {
            break;
        }
        bench.travel_ms = travel_ms * u64::from(factor);
        bench.laps = laps * factor;
        outcome = bench.run(subject, flavour, Some(native));
    }
    (bench.travel_ms, bench.laps) = (travel_ms, laps);
    outcome
}

fn run_one(bench: &mut Bench<'_>, subject: &Subject, flavours: &[Flavour]) -> Result<Row> {
    let mut row = Row::new(&subject.name, subject.kind, &subject.purpose);
    let lacking = lacking(bench, subject)?;
    let located = if lacking.is_none() { located(bench, subject)? } else { None };
    let Some(subject) = located else {
        let reason = needs::lack(lacking.unwrap_or(&subject.command[0]));
        row.cells.extend(flavours.iter().map(|flavour| skipped(*flavour, &reason)));
        return Ok(row);
    };
    let mut native = None;
    for flavour in flavours.iter().copied() {
        // Where a stop shows natively there is nothing to compare.
        if flavour == Flavour::Stopped && subject.not_stopped.is_some() {
            continue;
        }
        let outcome = match (&native, flavour) {
            (None, Flavour::Native) => bench.run(&subject, flavour, None),
            (Some(native), _) => run_until_moved(bench, &subject, flavour, native),
            // Without an oracle nothing can be said.
            (None, _) => break,
        };
        let Outcome { verdict, move_count, used_ms, seen } = outcome;
        if flavour == Flavour::Native && verdict == Verdict::Same {
            native = seen;
        }
        row.cells.push(Cell { flavour, verdict, migrations: move_count, used_ms });
    }
    Ok(row)
}

fn not_begun(subject: &Subject, flavours: &[Flavour], budget: Duration) -> Row {
    let mut row = Row::new(&subject.name, subject.kind, &subject.purpose);
    let text = format!("not begun: the others took more than {} s", budget.as_secs());
    row.cells.extend(
        flavours.iter().map(|flavour| Cell {
            verdict: Verdict::Broken(text.clone()),
            ..skipped(*flavour, "")
        }),
    );
    row
}

fn skipped(flavour: Flavour, reason: &str) -> Cell {
    let verdict = Verdict::Skipped(reason.to_string());
    Cell { flavour, verdict, migrations: 0, used_ms: 0 }
}

/// A program that the subject runs besides its own and that is not installed.
fn lacking(bench: &mut Bench<'_>, subject: &Subject) -> Result<Option<&'static str>> {
    for program in &subject.runs {
        if bench.console.run(&format!("command -v {program}"))?.0 != 0 {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

/// The subject with the true path of its program; none if that is not installed.
fn located(bench: &mut Bench<'_>, subject: &Subject) -> Result<Option<Subject>> {
    let Some(locate) = &subject.locate else { return Ok(Some(subject.clone())) };
    let (status, answer) = bench.console.run(locate)?;
    let path = String::from_utf8_lossy(&answer).trim().to_string();
    if status != 0 || !path.starts_with('/') {
        return Ok(None);
    }
    let mut subject = subject.clone();
    subject.command[0] = path;
    Ok(Some(subject))
}
