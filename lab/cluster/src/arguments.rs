//! `osmos lab ...` on the command line, and the hidden commands behind it.

use crate::cgroup::Place;
use crate::exec::{self, Request, Start};
use crate::lab::{self, Lab};
use crate::record;
use crate::spec::{LabName, MemorySize, Rate, Spec};
use crate::{check, keeper, listing};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wire::ids::NodeId;

/// Nodes of a lab, unless told otherwise.
const NODES_DEFAULT: u32 = 4;

/// Build and use a cluster of separate nodes inside this machine
#[derive(Debug, Parser)]
#[command(name = "osmos lab", arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  osmos lab up --nodes 4 --speeds 1,1,0.5,0.5 --link 1gbit --memory 512m
  osmos lab exec 1 -- osmos nodes
  osmos lab ps
  osmos lab down

Each node has its own network, processes, host name, /tmp, /home, /run, /dev/shm and
/var/lib/osmos; all else it shares with the machine. CPU speeds and memory limits need root.")]
pub struct LabArguments {
    #[command(subcommand)]
    pub command: LabCommand,
}

/// `osmos lab`, for manual pages and shells that complete words.
pub fn definition() -> clap::Command {
    LabArguments::command().name("lab")
}

/// What can be done with labs.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Build a lab
    Up(UpOptions),
    /// Run a command in a node; terminal, signals and exit status are its own
    #[command(after_help = "\
Exit status: that of CMD, or 128 + N if signal N killed it; 125 if the node cannot be entered,
126 if CMD cannot be executed, 127 if it was not found.")]
    Exec(ExecOptions),
    /// Take a lab down: nothing of it stays, whatever was killed before
    Down(Which),
    /// List the nodes of all labs
    Ps {
        /// Only this lab
        #[arg(long, value_name = "NAME")]
        name: Option<LabName>,
        /// Print JSON: a stable shape for programs
        #[arg(long)]
        json: bool,
    },
    /// Measure whether the nodes have the speeds that were asked for
    Check {
        #[command(flatten)]
        which: Which,
        /// How long to measure
        #[arg(long, default_value_t = 2, value_name = "S")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Debug, Args)]
pub struct Which {
    /// The lab, if there are several
    #[arg(long, value_name = "NAME", default_value = LabName::DEFAULT)]
    pub name: LabName,
}

#[derive(Clone, Debug, Args)]
pub struct UpOptions {
    #[command(flatten)]
    pub which: Which,
    /// How many nodes [default: as many as there are speeds, or 4]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Speed of each node relative to the others, e.g. 1,1,0.5,0.5 [default: all equal]
    #[arg(long, value_name = "S,S,..", value_delimiter = ',')]
    pub speeds: Vec<f64>,
    /// Leave every node the whole machine, to measure latencies
    #[arg(long, conflicts_with = "speeds")]
    pub no_cpu_limit: bool,
    /// Rate of each node's link in each direction, e.g. 1gbit [default: unlimited]
    #[arg(long, value_name = "RATE")]
    pub link: Option<Rate>,
    /// Memory of each node, e.g. 512m [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<MemorySize>,
    /// Start no osmos daemons: nodes with nothing running in them
    #[arg(long)]
    pub bare: bool,
    /// Show this file or directory in every node, read-only, although it is below /home or /tmp
    #[arg(long, value_name = "PATH")]
    pub share: Vec<PathBuf>,
    /// Do without these kernel features, to see what happens on an older kernel
    #[arg(long, value_name = "FEATURE", value_delimiter = ',', hide = true)]
    pub without: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub struct ExecOptions {
    #[command(flatten)]
    pub which: Which,
    /// Number of the node, or its host name
    pub node: String,
    /// The command and its arguments, after `--`
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

impl UpOptions {
    pub fn spec(&self) -> Result<Spec> {
        let nodes = match (self.nodes, self.speeds.len()) {
            (None, 0) => NODES_DEFAULT,
            (None, count) => count as u32,
            (Some(nodes), 0) => nodes,
            (Some(nodes), count) => {
                ensure!(nodes as usize == count, "{nodes} nodes but {count} speeds");
                nodes
            }
        };
        ensure!(nodes <= crate::spec::NODES_MAX, "{nodes} nodes are too many for one machine");
        let mut spec = Spec::new(self.which.name.clone(), nodes)?;
        if !self.speeds.is_empty() {
            spec.speeds = self.speeds.clone();
        }
        spec.is_cpu_limited = !self.no_cpu_limit;
        spec.link = self.link;
        spec.memory = self.memory;
        spec.has_daemons = !self.bare;
        spec.without = self.without.clone();
        for path in &self.share {
            let full = std::path::absolute(path);
            spec.shared.push(full.with_context(|| format!("cannot find {}", path.display()))?);
        }
        Ok(spec)
    }
}

/// Runs `osmos lab WORDS...` (the words after `lab`).
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once(OsString::from("osmos lab")).chain(words);
    match LabArguments::try_parse_from(arguments) {
        Ok(parsed) => run(parsed.command),
        Err(error) => {
            // To a closed stream there is nothing to say.
            let _ = error.print();
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

/// Runs one parsed lab command. The process should be single-threaded still.
pub fn run(command: LabCommand) -> ExitCode {
    let is_exec = matches!(command, LabCommand::Exec(_));
    match carry_out(command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("osmos lab: {error:#}");
            ExitCode::from(if is_exec { 125 } else { 1 })
        }
    }
}

fn carry_out(command: LabCommand) -> Result<u8> {
    match command {
        LabCommand::Up(options) => up(&options)?,
        LabCommand::Exec(options) => return exec(&options),
        LabCommand::Down(which) => {
            lab::down(&which.name)?;
        }
        LabCommand::Ps { name, json } => list(name.as_ref(), json)?,
        LabCommand::Check { which, seconds, json } => {
            let lab = Lab::open(&which.name)?;
            let measured = check::measure(&lab, Duration::from_secs(seconds))?;
            match json {
                true => print(&(serde_json::to_string_pretty(&measured)? + "\n"))?,
                false => print(&check::table(&measured))?,
            }
        }
    }
    Ok(0)
}

/// To standard output. A reader that has seen enough (`... | head`) is no failure, and least of all
/// a reason to take a lab down that is up.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

fn up(options: &UpOptions) -> Result<()> {
    let lab = Lab::up(&options.spec()?)?;
    for note in lab.missing() {
        eprintln!("osmos lab: {note}");
    }
    print(&listing::table(&listing::rows(&lab)?))?;
    lab.keep()
}

fn exec(options: &ExecOptions) -> Result<u8> {
    let record = record::read_up(&options.which.name)?;
    let node = record
        .spec
        .nodes()
        .find(|node| {
            let names = [node.to_string(), format!("node{node}"), record.spec.host_name(*node)];
            names.contains(&options.node)
        })
        .with_context(|| {
            let (name, count) = (&record.spec.name, record.spec.speeds.len());
            format!("lab `{name}` has no node `{}`: it has nodes 1 to {count}", options.node)
        })?;
    exec::run(&Request {
        record: &record,
        node,
        place: Place::Work,
        start: Start::Now,
        words: &options.command,
    })
}

fn list(only: Option<&LabName>, json: bool) -> Result<()> {
    let (labs, broken) = listing::labs(only)?;
    let mut rows = Vec::new();
    for lab in &labs {
        rows.extend(listing::rows(lab)?);
    }
    match json {
        true => print(&(serde_json::to_string_pretty(&rows)? + "\n"))?,
        false => print(&listing::table(&rows))?,
    }
    let missing = labs.iter().flat_map(|lab| {
        let name = &lab.record().spec.name;
        lab.missing().iter().map(move |note| format!("lab `{name}`: {note}"))
    });
    for note in missing.chain(broken) {
        eprintln!("osmos lab: {note}");
    }
    Ok(())
}

/// Runs the hidden command that these process arguments (program name first) are, if they are one.
/// To be asked before anything else starts a thread.
pub fn hidden_main(arguments: &[OsString]) -> Option<ExitCode> {
    let (step, rest) = arguments.get(1..)?.split_first()?;
    match step.to_str()? {
        "lab-keeper" => Some(keeper::main(rest)),
        "lab-enter" => Some(exec::enter_main(rest)),
        "lab-front" => Some(status_of(front(rest))),
        "lab-spin" => Some(status_of(spin(rest))),
        _ => None,
    }
}

fn status_of(outcome: Result<u8>) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("osmos lab exec: {error:#}");
            ExitCode::from(125)
        }
    }
}

/// `osmos lab-front NAME NODE PLACE START -- COMMAND...`: `lab exec` for programs. It may be asked
/// for a lab that is still being built.
fn front(arguments: &[OsString]) -> Result<u8> {
    let [name, node, place, start, dashes, words @ ..] = arguments else {
        bail!("lab-front is for programs that hold a lab");
    };
    ensure!(dashes == "--" && !words.is_empty(), "lab-front is for programs that hold a lab");
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    exec::run(&Request {
        record: &record::read_up(&text(name).parse()?)?,
        node: NodeId(text(node).parse().context("no node number")?),
        place: Place::from_dir_name(&text(place)).context("no place in a node")?,
        start: Start::from_word(&text(start)).context("no way to start")?,
        words,
    })
}

fn spin(arguments: &[OsString]) -> Result<u8> {
    let span_ms = arguments.first().and_then(|word| word.to_str()?.parse().ok());
    let span = Duration::from_millis(span_ms.context("lab-spin MS")?);
    println!("{}", check::spin(span));
    Ok(0)
}
