//! A lab as a program holds it: up, its nodes, down.

use crate::cgroup;
use crate::daemon;
use crate::disturbance::Disturbance;
use crate::keeper::{self, Report};
use crate::node::Node;
use crate::process::{self, Keeper};
use crate::record::{self, LabDir, Phase, Record};
use crate::spec::{LabName, Spec};
use anyhow::{Context, Result, bail};
use kernel::features::Feature;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use wire::ids::NodeId;

/// Building a lab says what it does only if it takes longer than this.
const QUIET: Duration = Duration::from_secs(1);

/// This machine cannot have the lab: then nothing can be tried or measured in one.
#[derive(Debug)]
pub struct NoLab {
    name: LabName,
    cause: anyhow::Error,
}

impl fmt::Display for NoLab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot build lab `{}`: {:#}", self.name, self.cause)
    }
}

impl std::error::Error for NoLab {}

/// A lab that is up. Dropping it takes it down, unless it is kept; and if whoever holds it is
/// killed, all that runs in it ends, too.
#[derive(Debug)]
pub struct Lab {
    record: Record,
    /// None if it is another program's, or nobody's.
    switch: Option<ChildStdin>,
}

impl Lab {
    /// Builds a lab; returns when all of its nodes are ready, and their daemons know each other.
    ///
    /// # Errors
    /// [`NoLab`] if it cannot be built on this machine; others if it should not be tried.
    pub fn up(spec: &Spec) -> Result<Lab> {
        spec.check()?;
        process::adopt_orphans()?;
        sweep()?;
        let lab_dir = LabDir::make(&spec.name)?;
        if let Some(old) = record::read(lab_dir.path())? {
            if old.phase == Phase::Up && old.switch.as_ref().is_some_and(Keeper::is_alive) {
                bail!("lab `{0}` is up already: osmos lab down --name {0}", spec.name);
            }
            clear(&lab_dir, &old)?;
        }
        let mut record = plan(spec);
        match build(&lab_dir, &mut record) {
            Ok(switch) => Ok(Lab { record, switch: Some(switch) }),
            Err(error) => {
                let cleared = clear(&lab_dir, &record).and_then(|()| lab_dir.remove());
                let cause = match cleared {
                    Ok(()) => error,
                    Err(left) => error.context(format!("and cannot clear it away: {left:#}")),
                };
                Err(NoLab { name: spec.name.clone(), cause }.into())
            }
        }
    }

    /// A lab that another command brought up; dropping this leaves it up.
    pub fn open(name: &LabName) -> Result<Lab> {
        Ok(Lab { record: record::read_up(name)?, switch: None })
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Where its record is, and what is to go with it.
    pub fn directory(&self) -> Result<PathBuf> {
        Ok(record::labs_dir()?.join(self.record.spec.name.as_str()))
    }

    /// The secret that its daemons share, for machines that are to be members beside the nodes.
    pub fn cluster_key(&self) -> Result<PathBuf> {
        Ok(self.directory()?.join(record::KEY_FILE))
    }

    /// What this lab lacks on this machine, in words; empty if nothing.
    pub fn missing(&self) -> &[String] {
        &self.record.missing
    }

    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.record.spec.nodes().map(|id| Node::of(&self.record, id))
    }

    /// A node by its number, from 1.
    ///
    /// # Panics
    /// If the lab has no such node.
    pub fn node(&self, number: u32) -> Node<'_> {
        let count = self.record.spec.speeds.len();
        assert!((1..=count).contains(&(number as usize)), "the lab has nodes 1 to {count}");
        Node::of(&self.record, NodeId(number))
    }

    /// From now on this is wrong with the network between the nodes, and nothing else.
    ///
    /// # Errors
    /// To lose datagrams needs classifiers in the kernel; a cut needs nothing that a lab has not.
    pub fn disturb(&self, disturbance: &Disturbance) -> Result<()> {
        disturbance.impose(&self.record)
    }

    /// Whoever interrupts this program does not have to clear up after it. What runs in the lab
    /// ends with it; cgroups and a directory would stay until somebody makes another lab.
    ///
    /// The first lab that is told so is the one that is taken down.
    pub fn down_when_interrupted(&self) -> Result<()> {
        static WATCH: OnceLock<()> = OnceLock::new();
        if WATCH.set(()).is_err() {
            return Ok(());
        }
        let mut signals =
            Signals::new([SIGINT, SIGTERM]).context("cannot watch for interruption")?;
        let name = self.record.spec.name.clone();
        std::thread::spawn(move || {
            let Some(signal) = signals.forever().next() else { return };
            if let Err(error) = down(&name) {
                eprintln!("osmos lab: {error:#}; `osmos lab down --name {name}`");
            }
            std::process::exit(128 + signal);
        });
        Ok(())
    }

    /// Leaves the lab up when this is dropped, and when this program ends.
    pub fn keep(mut self) -> Result<()> {
        let Some(switch) = &mut self.switch else { return Ok(()) };
        let name = &self.record.spec.name;
        let lab_dir = LabDir::lock(name)?.with_context(|| format!("lab `{name}` is gone"))?;
        self.record.is_kept = true;
        lab_dir.write(&self.record)?;
        keeper::commit(switch)?;
        self.switch = None;
        Ok(())
    }

    /// Ends every process of the lab and removes everything that was made for it.
    pub fn down(mut self) -> Result<()> {
        let name = self.record.spec.name.clone();
        let ended = down(&name).map(|_| ());
        self.switch = None;
        ended
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.switch.is_some()
            && let Err(error) = down(&self.record.spec.name)
        {
            eprintln!("osmos lab: {error:#}");
        }
    }
}

/// Makes and ends the smallest lab there is. Says what labs lack on this machine; an error, why
/// there can be none.
pub fn try_smallest(osmos: &Path) -> Result<Vec<String>> {
    let mut spec = Spec::new(format!("smallest-{}", std::process::id()).parse()?, 1)?;
    spec.osmos = osmos.to_owned();
    spec.has_daemons = false;
    let lab = Lab::up(&spec)?;
    let missing = lab.missing().to_vec();
    lab.down()?;
    Ok(missing)
}

/// Takes a lab down, whatever state it is in. False if there was none.
pub fn down(name: &LabName) -> Result<bool> {
    down_if(name, &|_| true)
}

/// The same, if its record says so while nobody else may change it.
fn down_if(name: &LabName, is_wanted: &dyn Fn(&Record) -> bool) -> Result<bool> {
    let Some(lab_dir) = LabDir::lock(name)? else {
        record::remove_unused_labs_dir()?;
        return Ok(false);
    };
    if let Some(record) = record::read(lab_dir.path())? {
        if !is_wanted(&record) {
            return Ok(false);
        }
        clear(&lab_dir, &record)?;
    }
    lab_dir.remove()?;
    Ok(true)
}

/// Takes away what is left of labs whose makers were killed.
fn sweep() -> Result<()> {
    for name in record::lab_names()? {
        let dir = record::labs_dir()?.join(name.as_str());
        // One that cannot be read is for its owner to take down.
        if record::read(&dir).is_ok_and(|record| record.is_some_and(|record| record.is_orphan())) {
            // Another lab may have come to that name by now.
            down_if(&name, &Record::is_orphan)
                .with_context(|| format!("cannot clear away lab `{name}`"))?;
        }
    }
    Ok(())
}

/// Ends the processes of a lab and removes its cgroups; the rest goes with the processes.
fn clear(lab_dir: &LabDir, record: &Record) -> Result<()> {
    if let Some(switch) = &record.switch {
        let user_namespace = own_user_namespace(switch);
        switch.kill_all(&record.keepers)?;
        if let Some(namespace) = user_namespace {
            process::kill_user_namespace(&namespace);
        }
    }
    lab_dir.wait_for_keepers()?;
    for hierarchy in &record.hierarchies {
        cgroup::remove_lab(hierarchy, record.spec.name.as_str())?;
    }
    Ok(())
}

/// The lab's user namespace, if it has one of its own and still lives.
fn own_user_namespace(switch: &Keeper) -> Option<String> {
    let read = |owner: String| std::fs::read_link(format!("/proc/{owner}/ns/user")).ok();
    let theirs = read(switch.pid.to_string()).filter(|_| switch.is_alive())?;
    (Some(&theirs) != read("self".to_owned()).as_ref()).then(|| theirs.display().to_string())
}

/// Everything that will be made, decided before anything is.
fn plan(spec: &Spec) -> Record {
    let has_version_2 = !spec.without.iter().any(|word| word == Feature::CgroupV2.name());
    let mut detected = cgroup::detect(has_version_2, spec.has_one_core_each);
    if !spec.is_cpu_limited {
        detected.missing.retain(|note| !note.starts_with("no CPU speeds:"));
    }
    if spec.memory.is_none() {
        detected.missing.retain(|note| !note.starts_with("no memory limits:"));
    }
    let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    Record {
        spec: spec.clone(),
        phase: Phase::Building,
        is_kept: false,
        cpu_scale: spec.cpu_scale(cores),
        hierarchies: detected.hierarchies,
        missing: detected.missing,
        switch: None,
        keepers: Vec::new(),
    }
}

fn build(lab_dir: &LabDir, record: &mut Record) -> Result<ChildStdin> {
    let progress = Progress { start: Instant::now(), name: record.spec.name.clone() };
    lab_dir.write(record)?;
    lab_dir.write_cluster_key()?;
    make_cgroups(record)?;
    lab_dir.write(record)?;
    let (switch, reports) = start_switch(lab_dir, record)?;
    let count = record.spec.speeds.len();
    for report in reports {
        match report? {
            Report::Built { node, pid } => {
                record.keepers.push(Keeper::of_pid(pid)?);
                progress.say(&format!("node {node} of {count} is built"));
            }
            Report::Ready => break,
            Report::Failed { text } => bail!("{text}"),
            Report::Started { .. } => bail!("the lab's switch answers out of turn"),
        }
    }
    if record.keepers.len() != count {
        bail!("the lab's switch ended early, see its log: {}", tail(&lab_dir.keeper_log()));
    }
    record.phase = Phase::Up;
    lab_dir.write(record)?;
    if record.spec.has_daemons {
        daemon::start_all(record, &progress)?;
    }
    Ok(switch)
}

/// A hierarchy in which a node cannot be made is done without, and said so.
fn make_cgroups(record: &mut Record) -> Result<()> {
    let spec = record.spec.clone();
    let mut refused = Vec::new();
    for hierarchy in &record.hierarchies {
        let made = spec
            .nodes()
            .try_for_each(|node| cgroup::create(hierarchy, &spec, record.cpu_scale, node));
        if let Err(error) = made {
            cgroup::remove_lab(hierarchy, spec.name.as_str())?;
            let controllers = hierarchy.controllers.join(", ");
            record.missing.push(format!("no limits by {controllers}: {error:#}"));
            refused.push(hierarchy.clone());
        }
    }
    record.hierarchies.retain(|hierarchy| !refused.contains(hierarchy));
    Ok(())
}

/// Starts process 1 of the lab; it goes on once it is written down.
fn start_switch(
    lab_dir: &LabDir,
    record: &mut Record,
) -> Result<(ChildStdin, impl Iterator<Item = Result<Report>> + use<>)> {
    let osmos = &record.spec.osmos;
    let mut starter = keeper::switch_command(osmos, lab_dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(lab_dir.make_keeper_log()?)
        .spawn()
        .with_context(|| format!("cannot start {}", osmos.display()))?;
    let mut input = starter.stdin.take().context("the switch has no input")?;
    let output = starter.stdout.take().context("the switch has no output")?;
    starter.wait().context("lost the lab's switch")?;
    let mut reports = reports_of(output);
    match reports.next() {
        Some(Ok(Report::Started { pid })) => record.switch = Some(Keeper::of_pid(pid)?),
        Some(Ok(Report::Failed { text })) => bail!("{text}"),
        Some(Err(error)) => return Err(error),
        _ => bail!("{} does not keep labs: {}", osmos.display(), tail(&lab_dir.keeper_log())),
    }
    lab_dir.write(record)?;
    keeper::go(&mut input)?;
    Ok((input, reports))
}

fn reports_of(output: ChildStdout) -> impl Iterator<Item = Result<Report>> {
    BufReader::new(output).lines().map(|line| {
        let line = line.context("cannot hear the lab's switch")?;
        serde_json::from_str(&line).with_context(|| format!("the lab's switch says `{line}`"))
    })
}

/// The last lines of a log, for an error.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 5;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Tells people what takes so long.
pub(crate) struct Progress {
    start: Instant,
    name: LabName,
}

impl Progress {
    pub fn say(&self, what: &str) {
        if self.start.elapsed() > QUIET {
            eprintln!("osmos lab `{}`: {what}", self.name);
        }
    }
}
