//! `make -j` of C projects on four equal nodes, their sources at home only: by Osmos, by distcc if
//! that is installed, and natively on one of the nodes.
//!
//! The sources are the guests of `lab/guests`, or whatever directories are given: each with a
//! makefile that asks for `$(CC)` and whose `clean` leaves them as they were. A fifth node that
//! takes no guests has half of the machine: a lab does not hold supervisors and daemons to a node's
//! share, so they need processors that the four do not have.

use crate::engine::figure::Figure;
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use crate::engine::{Setting, Skipped};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

const NODES: u32 = 4;
/// Processes of make at one time: three for each node.
const JOBS: &str = "12";
/// Where each node has a file system of its own.
const AT_HOME: &str = "/tmp/build";
/// Least speed-ups over one node, of compilations that take a second and more, and of shorter ones.
const LONG_S: f64 = 1.0;
const SPEEDUP_OF_LONG: f64 = 3.4;
const SPEEDUP_OF_SHORT: f64 = 3.0;
/// What distccd(1) says when it does.
const LISTENING: &str = "listening on";
/// Just enough to see that it works.
const GUESTS_OF_QUICK: usize = 12;
const MAKEFILE: &str = "\
CC = cc
all: $(patsubst %.c,%.o,$(wildcard *.c))
%.o: %.c
\t$(CC) -O2 -c $< -o $@
clean:
\trm -f *.o
";

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    if !needs::has("make") {
        return Err(Skipped(needs::lack("make")).into());
    }
    let sources = match setting.effort.sources.as_slice() {
        [] => vec![guests(setting)?],
        given => given.iter().map(|source| seen_by_nodes(source)).collect::<Result<_>>()?,
    };
    let mut figures = Vec::new();
    for source in &sources {
        let stage = Stage::up(setting, NODES + 1, Share::FourAndRoom)?;
        stage.output(NODES + 1, &["osmos", "block"])?;
        figures.extend(project(&stage, source, setting.effort.spread_runs)?);
    }
    Ok(figures)
}

fn seen_by_nodes(source: &Path) -> Result<PathBuf> {
    let path = source.canonicalize().with_context(|| source.display().to_string())?;
    ensure!(!path.starts_with("/tmp"), "{}: nodes of a lab do not see /tmp", path.display());
    Ok(path)
}

/// What is built if nothing else is given: the guests of `lab/guests`, or some of them.
fn guests(setting: &Setting) -> Result<PathBuf> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests");
    let to = Path::new(setting.programs.directory()).join("guests");
    std::fs::create_dir_all(&to)?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&from)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let has = |path: &Path, word: &str| path.extension().is_some_and(|it| it == word);
    let most = if setting.effort.is_whole { usize::MAX } else { GUESTS_OF_QUICK };
    let sources = files.iter().filter(|path| has(path, "c")).take(most);
    for path in files.iter().filter(|path| has(path, "h")).chain(sources) {
        std::fs::copy(path, to.join(path.file_name().unwrap_or_default()))?;
    }
    std::fs::write(to.join("Makefile"), MAKEFILE)?;
    Ok(to)
}

fn project(stage: &Stage, path: &Path, runs: usize) -> Result<Vec<Figure>> {
    let (from, name) = (path.to_str(), path.file_name().and_then(|name| name.to_str()));
    let (from, name) = from.zip(name).context("the path of the sources is not text")?;
    stage.output(1, &["cp", "-r", from, AT_HOME])?;
    let natively = build(stage, &[], &[])?;
    let (mut natively_s, mut osmos_s) = (vec![natively.wall_s], Vec::new());
    for _ in 0..runs {
        let built = build(stage, &["osmos", "run", "--"], &[])?;
        ensure!(built.objects == natively.objects, "{name}: object files differ");
        osmos_s.push(built.wall_s);
    }
    natively_s.push(build(stage, &[], &[])?.wall_s);
    let one_node = Samples::new(natively_s).context("no runs")?;
    let each_s = one_node.median() / natively.count.max(1) as f64;
    let least = if each_s >= LONG_S { SPEEDUP_OF_LONG } else { SPEEDUP_OF_SHORT };
    let what = format!("make -j{JOBS} of {name} ({} files), four nodes", natively.count);
    let osmos = Samples::new(osmos_s).context("no runs")?;
    let figure = Figure::new(what, "s", &osmos).with_floor("one of the nodes", &one_node);
    let ratio = figure.ratio.map_or(f64::INFINITY, |ratio| ratio.median);
    let text = format!("{least} times as fast");
    let mut figures = vec![figure.with_target(text, ratio <= 1.0 / least)];
    figures.extend(by_distcc(stage, name, &one_node, runs)?);
    Ok(figures)
}

struct Built {
    wall_s: f64,
    /// How many object files there are, and the hash of all.
    count: usize,
    objects: String,
}

/// Builds it from the beginning, by these words in front of make and these behind it.
fn build(stage: &Stage, before: &[&str], behind: &[&str]) -> Result<Built> {
    stage.output(1, &["make", "-C", AT_HOME, "clean"])?;
    let make = [before, &["make", "-C", AT_HOME, "-j", JOBS], behind].concat();
    let start = Instant::now();
    stage.output(1, &make)?;
    let wall_s = start.elapsed().as_secs_f64();
    let script = format!("cd {AT_HOME} && find . -name '*.o' | sort | xargs sha256sum");
    let objects = stage.output(1, &["sh", "-c", &script])?;
    Ok(Built { wall_s, count: objects.lines().count(), objects })
}

/// The same by distcc with a server on each node, if it is installed.
fn by_distcc(stage: &Stage, name: &str, one_node: &Samples, runs: usize) -> Result<Option<Figure>> {
    if !needs::has("distcc") || !needs::has("distccd") {
        return Ok(None);
    }
    let servers: Vec<Server> =
        (2..=NODES).map(|node| Server::start(stage, node)).collect::<Result<_>>()?;
    let hosts = servers.iter().map(|server| format!("{}/3", server.address));
    let hosts = std::iter::once("localhost/3".to_string()).chain(hosts).collect::<Vec<_>>();
    let hosts = format!("DISTCC_HOSTS={}", hosts.join(" "));
    let mut wall_s = Vec::new();
    for _ in 0..runs {
        wall_s.push(build(stage, &["env", &hosts], &["CC=distcc cc"])?.wall_s);
    }
    let wall = Samples::new(wall_s).context("no runs")?;
    let figure = Figure::new(format!("{name} by distcc"), "s", &wall);
    Ok(Some(figure.with_floor("one of the nodes", one_node)))
}

/// One that compiles for others, until it is dropped.
struct Server {
    address: String,
    process: Child,
}

impl Server {
    fn start(stage: &Stage, node: u32) -> Result<Server> {
        let address = stage.address(node);
        let words = [
            "distccd",
            "--no-detach",
            "--daemon",
            "--allow",
            "0.0.0.0/0",
            "--listen",
            &address,
            "--user",
            "nobody",
            "--jobs",
            "3",
            "--log-level",
            "info",
            "--log-stderr",
            "--enable-tcp-insecure",
        ];
        let mut command = stage.command(node, &words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start distccd")?;
        let mut said = BufReader::new(process.stderr.take().expect("it is piped"));
        let server = Server { address, process };
        let mut line = String::new();
        loop {
            let last = std::mem::take(&mut line);
            if said.read_line(&mut line)? == 0 {
                bail!("distccd on node {node} has ended: {}", last.trim());
            }
            if line.contains(LISTENING) {
                break;
            }
        }
        // It would wait for whoever does not read what it says.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What is inside the lab ends with the lab.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
