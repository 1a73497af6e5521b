//! `osmos bench report`: one page with every table and figure of the five publications that Osmos
//! is measured by, and what was measured here beside it. It measures nothing itself: it reads what
//! the other benchmarks have written, and says by which command the rest is had.

use crate::balance::kept::Pair;
use crate::balance::paper::TABLE_1;
use crate::ssi;
use crate::ssi::results::mean;
use anyhow::{Context, Result};
use clap::Parser;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sim::command::print;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

/// What Table 1 is made of, s.
const WORK_S: f64 = 300.0;
const NODES: f64 = 16.0;
/// On average, MOSIX against PVM without it, as the paper says it: scenario, its name in the paper,
/// by how many per cent PVM is slower.
const SLOWER: [(&str, &str, &str); 3] = [
    ("random", "random durations of 0 to 600 s", "52 (75 with 36 processes)"),
    ("background", "load of others that comes and goes", "35 (62 with 20 processes)"),
    ("mixed", "with nodes three times slower", "336"),
];
/// The tutorial's runs of thirteen encodings, and what each took, min:s.
const TUTORIAL: [(&str, &str); 5] = [
    ("one after another", "11:11"),
    ("all at once, balanced", "6:53"),
    ("all at once, at home", "11:13"),
    ("all on the other node", "15:57"),
    ("natively on the other node", "15:13"),
];

/// One page with the tables and figures of the five sources, and ours beside them
#[derive(Debug, Parser)]
#[command(name = "osmos bench report")]
#[command(after_help = "\
It reads what these have written, as far as it is there, and measures nothing:
  osmos bench balance --sim --report DIR
  osmos bench balance --lab --resume RUNS --report DIR
  osmos bench ssi --keep RUNS --report DIR
  osmos bench os --report DIR
  osmos demo --json > DIR/demo.json")]
pub struct Options {
    /// Where the reports are; the page is written there as sources.md
    #[arg(value_name = "DIR", default_value = "docs/reports")]
    directory: PathBuf,
}

pub fn main(words: Vec<OsString>) -> ExitCode {
    sim::command::execute("osmos bench report", words, |options: &Options| {
        let page = page(&options.directory)?;
        let path = options.directory.join("sources.md");
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(print(&format!("{}\n", path.display()))?)
    })
}

fn page(directory: &Path) -> Result<String> {
    anyhow::ensure!(directory.is_dir(), "there is no directory {}", directory.display());
    let mut text = String::from(
        "# Five publications, and Osmos beside them\n\n\
         Written by `osmos bench report DIR` from what the other benchmarks have left in DIR.\n",
    );
    pvm_and_mosix(&mut text, directory)?;
    operating_systems(&mut text, directory)?;
    tutorial(&mut text, directory)?;
    framework(&mut text, directory)?;
    parallel_migration(&mut text);
    Ok(text)
}

/// A file of the directory; none if it is not there.
fn read(directory: &Path, name: &str) -> Result<Option<String>> {
    let path = directory.join(name);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => Ok(Some(text.with_context(|| format!("cannot read {}", path.display()))?)),
    }
}

fn read_json<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<Option<T>> {
    let Some(text) = read(directory, name)? else { return Ok(None) };
    let value = serde_json::from_str(&text);
    Ok(Some(value.with_context(|| format!("{name} is not what a benchmark of Osmos writes"))?))
}

fn missing(text: &mut String, command: &str) {
    let _ = writeln!(text, "\nNot measured here: `{command}`.");
}

/// 1996.
fn pvm_and_mosix(text: &mut String, directory: &Path) -> Result<()> {
    text.push_str("\n## Performance of PVM with the MOSIX preemptive process migration (1996)\n");
    let simulated: Option<Value> = read_json(directory, "balance.json")?;
    let real: Option<Vec<Pair>> = read_json(directory, "balance-lab.json")?;
    table_1(text, simulated.as_ref(), real.as_deref());
    slower(text, simulated.as_ref());
    if simulated.is_none() {
        missing(text, "osmos bench balance --sim --report DIR");
    }
    if real.is_none() {
        missing(text, "osmos bench balance --lab --resume RUNS --report DIR");
    }
    text.push_str(
        "\nTable 2 (messages of 1 to 256 KB in a ring of 4 to 16 processes, under PVM and over \
         sockets): Osmos\nchanges nothing for processes that stay where they are, and has no \
         direct way between two that are away.\n",
    );
    Ok(())
}

/// Table 1 and Figure 1.
fn table_1(text: &mut String, simulated: Option<&Value>, real: Option<&[Pair]>) {
    text.push_str(
        "\nTable 1, Figure 1: N processes of 300 s on sixteen nodes, s. \"Optimal\" is the \
         paper's, of\nwhole processes; \"preemptive\" is what no schedule can beat. Simulated: \
         the mean of the seeds; lab:\nof the runs, with 300 s made shorter, put back to 300.\n\n\
         | N | optimal | preemptive | MOSIX | PVM | PVM on MOSIX | Osmos, simulated | Osmos, lab \
         |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in &TABLE_1 {
        let preemptive_s = f64::max(WORK_S, WORK_S * row.processes as f64 / NODES);
        let _ = writeln!(
            text,
            "| {} | {} | {preemptive_s:.0} | {} | {} | {} | {} | {} |",
            row.processes,
            row.optimal_s,
            row.mosix_s,
            row.pvm_s,
            row.pvm_on_mosix_s,
            shown(simulated.and_then(|all| simulated_s(all, row.processes))),
            shown(real.and_then(|all| real_s(all, row.processes))),
        );
    }
}

fn shown(seconds: Option<f64>) -> String {
    seconds.map_or("–".into(), |seconds| format!("{seconds:.1}"))
}

fn simulated_s(all: &Value, processes: usize) -> Option<f64> {
    let rows = all["table1"]["osmos"]["rows"].as_array()?;
    let own = rows.iter().filter(|row| row["processes"].as_u64() == Some(processes as u64));
    mean(own.filter_map(|row| row["measured"].as_f64()))
}

fn real_s(pairs: &[Pair], processes: usize) -> Option<f64> {
    let own = pairs.iter().filter(|pair| {
        pair.scenario == "table1" && pair.policy == "osmos" && pair.lab.processes == processes
    });
    mean(own.map(|pair| pair.lab.measured * WORK_S / pair.job_s))
}

/// Figures 2 and 3, and the cluster of unlike machines.
fn slower(text: &mut String, simulated: Option<&Value>) {
    text.push_str(
        "\nFigures 2 and 3, and unlike machines: by how many per cent PVM is slower, on average, \
         than MOSIX in the\npaper, and than Osmos in the simulator.\n\n\
         | work | paper | here |\n|---|---:|---:|\n",
    );
    for (scenario, name, paper) in SLOWER {
        let here = simulated.and_then(|all| slower_pct(all, scenario));
        let here = here.map_or("–".into(), |pct| format!("{pct:.0}"));
        let _ = writeln!(text, "| {name} | {paper} | {here} |");
    }
}

/// The same runs under both.
fn slower_pct(all: &Value, scenario: &str) -> Option<f64> {
    let rows = |policy: &str| all[scenario][policy]["rows"].as_array();
    let (fixed, ours) = (rows("static")?, rows("osmos")?);
    let ratio = |row: &Value| {
        let same = ours.iter().find(|o| o["label"] == row["label"] && o["seed"] == row["seed"])?;
        Some(row["measured"].as_f64()? / same["measured"].as_f64()?)
    };
    mean(fixed.iter().filter_map(ratio)).map(|ratio| 100.0 * (ratio - 1.0))
}

/// 2001.
fn operating_systems(text: &mut String, directory: &Path) -> Result<()> {
    text.push_str("\n## Windows NT, Linux and QNX as the basis for cluster systems (2001)\n");
    match read(directory, "os.md")? {
        Some(page) => text.push_str(&below_its_title(&page)),
        None => missing(text, "osmos bench os --report DIR"),
    }
    Ok(())
}

/// A page as part of another: its headings one level lower.
fn below_its_title(page: &str) -> String {
    let mut text = String::from("\n");
    for line in page.lines().skip_while(|line| !line.is_empty()).skip(1) {
        let deeper = if line.starts_with("##") { "#" } else { "" };
        let _ = writeln!(text, "{deeper}{line}");
    }
    text
}

/// The tutorial.
fn tutorial(text: &mut String, directory: &Path) -> Result<()> {
    text.push_str(
        "\n## Linux clustering with MOSIX (tutorial)\n\n\
         Thirteen FLAC encodings on two nodes, min:s:\n\n| run | tutorial |\n|---|---:|\n",
    );
    for (what, took) in TUTORIAL {
        let _ = writeln!(text, "| {what} | {took} |");
    }
    let Some(demo) = read_json::<Value>(directory, "demo.json")? else {
        missing(text, "osmos demo --json > DIR/demo.json");
        return Ok(());
    };
    text.push_str(
        "\nHere, by `osmos demo`; the ideal is made of times measured in it:\n\n\
         | run | s | ideal, s | ratio | moves |\n|---|---:|---:|---:|---:|\n",
    );
    let encoding = demo["encoding"].as_array().into_iter().flatten();
    for row in [&demo["awk"]].into_iter().chain(encoding).filter(|row| row.is_object()) {
        let number = |name: &str| row[name].as_f64().map_or("–".into(), |v| format!("{v:.2}"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            row["what"].as_str().unwrap_or_default(),
            number("wall_s"),
            number("ideal_s"),
            number("ratio"),
            row["migrations"]
        );
    }
    Ok(())
}

/// 2009.
fn framework(text: &mut String, directory: &Path) -> Result<()> {
    text.push_str("\n## Benchmark framework for a load-balancing single system image (2009)\n\n");
    match read_json::<ssi::results::Results>(directory, "ssi.json")? {
        Some(results) => {
            text.push_str(&ssi::report::text(&results));
            text.push_str(&ssi::report::pictures(&results));
        }
        None => missing(text, "osmos bench ssi --keep RUNS --report DIR"),
    }
    Ok(())
}

/// Of SCore-D, in Japanese.
fn parallel_migration(text: &mut String) {
    text.push_str(
        "\n## Parallel process migration over a gigabit network\n\n\
         64 MB/s when one process moves, 16 MB/s for each node when 16 or more move at once; 64 \
         nodes take turns\nbetween two jobs in less than 4 ms. Osmos does not move jobs as a whole \
         yet. What one process moves by:\n`cargo xtask bench throughput`.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn what_was_not_measured_is_named_with_its_command() {
        let page = page(directory(&[]).path()).unwrap();
        for command in ["balance --sim", "balance --lab", "bench os", "osmos demo", "bench ssi"] {
            assert!(page.contains(command), "{command}");
        }
        assert!(page.contains("| 17 | 450 | 319 | 456.91 | 604.36 | 452.84 | – | – |"), "{page}");
    }

    fn row(measured: f64) -> Value {
        json!({"label": "N=17", "seed": 1, "processes": 17, "measured": measured})
    }

    #[test]
    fn measured_stands_beside_published() {
        let simulated = json!({
            "table1": {"osmos": {"rows": [row(320.0), row(322.0)]}},
            "random": {"osmos": {"rows": [row(100.0)]}, "static": {"rows": [row(150.0)]}},
        });
        let os = "# Title\n\nWritten by.\n\n## Memory\n";
        let files = [("balance.json", &simulated.to_string()[..]), ("os.md", os)];
        let page = page(directory(&files).path()).unwrap();
        assert!(page.contains("| 452.84 | 321.0 | – |"), "{page}");
        assert!(page.contains("| 52 (75 with 36 processes) | 50 |"), "{page}");
        assert!(page.contains("\n### Memory\n") && !page.contains("# Title"), "{page}");
    }

    #[test]
    fn a_file_that_is_none_of_ours_is_an_error() {
        let error = page(directory(&[("ssi.json", "{}")]).path()).unwrap_err();
        assert!(format!("{error:#}").contains("ssi.json"), "{error:#}");
    }
}
