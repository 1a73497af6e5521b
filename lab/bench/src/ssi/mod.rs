//! `osmos bench ssi`: the benchmark framework for a load-balancing single system image of Ahmed,
//! Samsudin and Ramli (2009), with its workload ([`keys`]) in a lab: run time, speed-up and
//! efficiency for so many nodes, traffic, use of processors, the time until the load is balanced,
//! and what one migration costs on idle and on loaded nodes.
//!
//! Beside Osmos stand the two ways of telling others of one's load that the paper compares:
//! openMosix's (`fifo`) and its improved load vector (`lvm`).
//!
//! * [`play`]: one run in a lab; [`results`]: what follows; [`report`]: for people

pub mod keys;
pub mod play;
pub mod report;
pub mod results;

use crate::balance::kept::write_whole;
use crate::balance::policy::Policy;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use results::{NATIVE, Results, Settings};
use sim::command::print;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

const NODES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// A lab of more nodes on one machine would measure that machine.
const NODES_MAX: u32 = 16;
const CYCLE_S: f64 = 10.0;
/// Of the load beside which migrations are measured, as in the paper.
const LOAD_CHILDREN: u32 = 4;
const KEYS_QUICK: u32 = 100;
const CYCLE_S_QUICK: f64 = 3.0;

/// Measure a single system image as Ahmed, Samsudin and Ramli did: speed-up, traffic, balancing
#[derive(Debug, Parser)]
#[command(name = "osmos bench ssi")]
#[command(after_help = "\
The workload is theirs: 4000 RSA key pairs of 1024 bits, made by forked children of one program,
started on node 1 of a lab. Efficiency is against one node without Osmos.

Examples:
  osmos bench ssi --quick                     see that it works, in some minutes
  osmos bench ssi --keep runs --report DIR    all of it, about an hour; what is kept is done
  osmos bench ssi --nodes 8 --policies osmos  one point, and what a migration costs

A lab needs root; its nodes share half of this machine, which should have nothing else to do.")]
pub struct Options {
    /// Numbers of nodes
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = NODES)]
    nodes: Vec<u32>,
    /// Only these policies [default: fifo (openMosix), lvm (its improved load vector), osmos]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policies: Vec<Policy>,
    /// Key pairs in all
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    keys: u32,
    /// Children that make them
    #[arg(long, value_name = "N", default_value_t = 8)]
    children: u32,
    /// Runs of each kind
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: u32,
    /// Of the numbers that are drawn
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Numbers of nodes for which the cost of one migration is measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 6, 8])]
    overhead: Vec<u32>,
    /// Keep each run in this directory, and do not repeat those that are there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write the report (Markdown, JSON, SVG) into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Few keys, 1, 2 and 4 nodes: only to see that it works
    #[arg(long)]
    quick: bool,
}

impl Options {
    fn nodes(&self) -> &[u32] {
        if self.quick { &[1, 2, 4] } else { &self.nodes }
    }

    fn overhead(&self) -> &[u32] {
        if self.quick { &[2] } else { &self.overhead }
    }

    fn policies(&self) -> &[Policy] {
        match (&self.policies[..], self.quick) {
            ([], true) => &[Policy::Osmos],
            ([], false) => &[Policy::Fifo, Policy::Lvm, Policy::Osmos],
            (named, _) => named,
        }
    }

    fn settings(&self) -> Result<Settings> {
        let all = || self.nodes().iter().chain(self.overhead()).copied();
        ensure!(
            all().all(|nodes| (1..=NODES_MAX).contains(&nodes)),
            "a lab has 1 to {NODES_MAX} nodes"
        );
        ensure!(
            self.overhead().iter().all(|nodes| *nodes > 1),
            "with one node there is nowhere to migrate to"
        );
        let keys = if self.quick { self.keys.min(KEYS_QUICK) } else { self.keys };
        ensure!(
            (1..=keys.min(crate::ssi::keys::CHILDREN_MAX)).contains(&self.children),
            "--children {}: at least one, at most one for each key",
            self.children
        );
        Ok(Settings {
            keys,
            children: self.children,
            seed: self.seed,
            of_nodes: all().max().unwrap_or(1),
            load_children: LOAD_CHILDREN,
            cycle_s: if self.quick { CYCLE_S_QUICK } else { CYCLE_S },
        })
    }
}

pub fn main(words: Vec<OsString>) -> ExitCode {
    sim::command::execute("osmos bench ssi", words, run)
}

fn run(options: &Options) -> Result<()> {
    let settings = options.settings()?;
    let kept = options.keep.as_deref().map(|directory| Kept::of(directory, &settings));
    let results = measure(options, settings, kept.transpose()?.as_ref())?;
    if let Some(directory) = &options.report {
        report::write(directory, &results)?;
    }
    let text = match options.json {
        true => serde_json::to_string_pretty(&results)? + "\n",
        false => report::text(&results),
    };
    print(&text)?;
    let violations = results.violations();
    if !violations.is_empty() {
        bail!("what must hold did not:\n{}", violations.join("\n"));
    }
    Ok(())
}

/// The native run comes first: everything is compared with it.
fn measure(options: &Options, settings: Settings, kept: Option<&Kept>) -> Result<Results> {
    let mut results = Results { settings, runs: Vec::new(), overheads: Vec::new() };
    let managed = options
        .policies()
        .iter()
        .flat_map(|policy| options.nodes().iter().map(|nodes| (Some(*policy), *nodes)));
    for (manager, nodes) in std::iter::once((None, 1)).chain(managed) {
        for nth in 1.. {
            let name = format!("{}.{nodes}.{nth}", play::name_of(manager));
            // What is kept counts, even if fewer runs are asked for.
            if nth > options.runs && !kept.is_some_and(|kept| kept.path(&name).exists()) {
                break;
            }
            let what = format!("{} on {nodes} nodes, run {nth}", play::name_of(manager));
            let run = || play::run(&results.settings, nodes, manager);
            let run = once(kept, &name, &what, run)?;
            results.runs.push(run);
        }
    }
    for nodes in options.overhead() {
        for is_loaded in [false, true] {
            let load = if is_loaded { "loaded" } else { "idle" };
            let what = format!("one migration among {nodes} nodes, {load}");
            let overhead = || play::overhead(&results.settings, *nodes, is_loaded);
            let name = format!("migration.{nodes}.{load}");
            let overhead = once(kept, &name, &what, overhead)?;
            results.overheads.push(overhead);
        }
    }
    Ok(results)
}

/// Measures, unless that was done and kept before.
fn once<T: serde::Serialize + serde::de::DeserializeOwned>(
    kept: Option<&Kept>,
    name: &str,
    what: &str,
    measure: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if let Some(known) = kept.map(|kept| kept.read(name)).transpose()?.flatten() {
        return Ok(known);
    }
    eprintln!("osmos bench ssi: {what}");
    let measured = measure().with_context(|| what.to_owned())?;
    if let Some(kept) = kept {
        kept.write(name, &measured)?;
    }
    Ok(measured)
}

/// Runs that were made with the same settings.
struct Kept(PathBuf);

impl Kept {
    /// # Errors
    /// If the directory has runs of other settings.
    fn of(directory: &Path, settings: &Settings) -> Result<Kept> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let kept = Kept(directory.to_owned());
        match kept.read::<Settings>("settings")? {
            Some(other) if other != *settings => bail!(
                "{} has runs of other settings ({}); name another directory, or the same options",
                directory.display(),
                serde_json::to_string(&other)?
            ),
            Some(_) => {}
            None => kept.write("settings", settings)?,
        }
        Ok(kept)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path(name);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => {
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                let known = serde_json::from_str(&text);
                Ok(Some(known.with_context(|| format!("{} is no run", path.display()))?))
            }
        }
    }

    fn write(&self, name: &str, measured: &impl serde::Serialize) -> Result<()> {
        write_whole(&self.path(name), measured)
    }
}

/// All managers of these results, the native one first.
fn managers(results: &Results) -> Vec<&str> {
    let mut managers = vec![NATIVE];
    for run in &results.runs {
        if !managers.contains(&run.manager.as_str()) {
            managers.push(&run.manager);
        }
    }
    managers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        Options::try_parse_from([&["osmos bench ssi"], words].concat()).expect("good words")
    }

    #[test]
    fn nodes_are_as_slow_as_the_largest_lab_makes_them() {
        let settings = options(&[]).settings().unwrap();
        assert_eq!((settings.of_nodes, settings.keys, settings.children), (8, 4_000, 8));
        assert_eq!(options(&["--nodes", "1,16"]).settings().unwrap().of_nodes, 16);
        assert_eq!(options(&["--quick"]).settings().unwrap().keys, KEYS_QUICK);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for words in [["--nodes", "17"], ["--nodes", "0"], ["--overhead", "1"], ["--children", "0"]]
        {
            assert!(options(&words).settings().is_err(), "{words:?}");
        }
    }

    #[test]
    fn runs_of_other_settings_are_not_mixed() {
        let directory = tempfile::tempdir().unwrap();
        let settings = options(&[]).settings().unwrap();
        let kept = Kept::of(directory.path(), &settings).unwrap();
        assert_eq!(kept.read::<u32>("x").unwrap(), None);
        kept.write("x", &7).unwrap();
        let known: u32 = once(Some(&kept), "x", "", || bail!("measured again")).unwrap();
        assert_eq!(known, 7);
        Kept::of(directory.path(), &settings).unwrap();
        let others = Settings { seed: 2, ..settings };
        assert!(Kept::of(directory.path(), &others).is_err());
    }
}
