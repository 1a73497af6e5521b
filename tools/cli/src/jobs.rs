//! `osmos job`: its words, and how jobs are named.

use crate::arguments::Listing;
use crate::mpi;
use crate::naming::{BorrowersChoice, NodeChoice, Nodes, borrowers, node};
use crate::values::{freeze_budget, size};
use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use client::signals::signal_of;
use nix::unistd::{Uid, User};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use wire::control::Placement;
use wire::freeze_budget::FreezeBudget;
use wire::jobs::{self, JOB_NAME_CHARS_MAX, Moving, Program, ResourceLimit, Word};
use wire::supervisor::Way;
use wire::users::Borrowers;

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Run a command several times at once, as one job
    #[command(after_help = "\
Examples:
  osmos job run -n 8 -- ./simulate            eight ranks; they begin here and are spread
  osmos job run -n 8 --nodes all -- ./render  they begin where there is most room for each
  osmos job run --per-node 2 -- hostname      two on each node
  osmos job run --nodes 2,delta -- uptime     one on each of these
  osmos job run -n 40 --name sweep -d -- ./sweep.sh      in the background: `osmos job logs sweep`
  osmos job run -n 4 --limit cpu=600 --nice 5 -- ./work  under limits, where each of them runs

Each rank has OSMOS_RANK, OSMOS_SIZE, OSMOS_LOCAL_RANK, OSMOS_LOCAL_SIZE, OSMOS_NODE and OSMOS_JOB
in its environment. Where a rank begins is its home: its files, pid and limits are there, wherever
it moves. Without --nodes and --per-node that is this node. On other nodes the command and the
working directory must be there, too (`osmos mount` shows this node's files on others), and the
owner of each must have said `osmos share --jobs on`.

What ranks write is shown by lines, with the number of the rank. Standard input goes to rank 0.
^C asks all ranks to end, and kills what is left after five seconds, or with the second ^C; ^Z
suspends all of them. When this command ends, however it does, so do all ranks and what they have
started. Exit status: that of the first rank that did not end with 0, 128 and the number of a signal
that has killed it, 125 if it was lost with its node or the job could not begin.")]
    Run(Box<JobRunOptions>),
    /// List jobs: those launched on this node, or on all
    List {
        /// Of all nodes
        #[arg(long, short)]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a job and its ranks: where they are, and how they have ended
    Show {
        #[command(flatten)]
        job: JobArgument,
        #[command(flatten)]
        listing: Listing,
    },
    /// Send all ranks a signal, and all that they have started; or one rank
    Signal {
        #[command(flatten)]
        job: JobArgument,
        /// The signal, by name or number
        #[arg(value_parser = signal_of)]
        signal: i32,
        /// This rank only
        #[arg(long, value_name = "R")]
        rank: Option<u32>,
    },
    /// Stop all ranks, wherever they are, until `resume`
    Suspend(JobArgument),
    /// Let all ranks go on
    Resume(JobArgument),
    /// End a job at once: nothing of it is left
    Kill(JobArgument),
    /// Wait until a job has ended; exit with its exit status
    Wait(JobArgument),
    /// Print what the ranks of a job that runs in the background have written
    Logs {
        #[command(flatten)]
        job: JobArgument,
        /// Go on until the job has ended
        #[arg(long, short)]
        follow: bool,
    },
    /// Show the processes of a job on all nodes, again every second
    Top(JobArgument),
}

#[derive(Clone, Debug, Args)]
pub struct JobArgument {
    /// Its name, the pid of its launcher, or NODE:PID of one on another node
    #[arg(value_name = "JOB")]
    pub job: JobChoice,
}

/// A job, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChoice {
    Launcher { node: Option<NodeChoice>, pid: i32 },
    Name(String),
}

impl FromStr for JobChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<JobChoice, String> {
        let (home, number) = match word.split_once(':') {
            Some((home, pid)) => (Some(node(home)?), pid),
            None => (None, word),
        };
        match number.parse() {
            Ok(pid) if pid > 0 => Ok(JobChoice::Launcher { node: home, pid }),
            _ if home.is_none() => job_name(word).map(JobChoice::Name),
            _ => Err(format!("`{word}` is no job: `osmos job list` shows them")),
        }
    }
}

/// What a job may be called: nothing that is a pid, or that a shell or a terminal takes for more.
fn job_name(word: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = word.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    match begins && word.len() <= JOB_NAME_CHARS_MAX && word.chars().all(is_plain) {
        true => Ok(word.to_owned()),
        false => Err(format!(
            "`{word}` is no name of a job: a letter, then letters, digits, `.`, `_` and `-`, \
             {JOB_NAME_CHARS_MAX} in all"
        )),
    }
}

#[derive(Clone, Debug, Args)]
pub struct JobRunOptions {
    /// So many ranks [default: 1, or one for each node that is named]
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Begin on all nodes, or those of `--nodes`, K ranks at most on each
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub per_node: Option<u32>,
    /// Begin on these nodes, by number or name: 2,5-7,delta, or `all`
    #[arg(long, value_name = "NODES", value_parser = borrowers)]
    pub nodes: Option<BorrowersChoice>,
    /// What the job is called
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub name: Option<String>,
    /// Run in the background; `osmos job logs` has what it writes
    #[arg(long, short)]
    pub detach: bool,
    /// Keep what ranks write in this file and do not show it
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Show lines as they are, without the number of their rank
    #[arg(long)]
    pub no_label: bool,
    /// End all ranks when one has not ended with exit status 0
    #[arg(long, short = 'K')]
    pub kill_on_bad_exit: bool,
    /// Who has this command's standard input; the others have none
    #[arg(long, value_name = "RANKS", value_enum, default_value_t)]
    pub input: InputChoice,
    /// Begin in this directory instead of the current one
    #[arg(long, short = 'C', value_name = "DIR")]
    pub chdir: Option<PathBuf>,
    /// Set a variable in the environment of all ranks
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<OsString>,
    /// Stop each rank before its first instruction, until `osmos job resume`
    #[arg(long)]
    pub suspended: bool,
    /// Lower the priority of all ranks, as nice(1) does
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub nice: Option<i32>,
    /// Processors of the home on which ranks may run: 0-3,8
    #[arg(long, value_name = "LIST", value_parser = processors)]
    pub cpus: Option<Processors>,
    /// Limit a resource of each rank: nofile=100, as=2G, core=0:unlimited (soft:hard)
    #[arg(long, value_name = "RESOURCE=LIMIT", value_parser = limit)]
    pub limit: Vec<ResourceLimit>,
    /// Ranks stay where they begin
    #[arg(long)]
    pub home: bool,
    /// Move each rank to a random node about every MS milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub storm: Option<u64>,
    /// Have moves hold a rank up for MS milliseconds at most, if that can be
    #[arg(long, value_name = "MS", value_parser = freeze_budget)]
    pub freeze_budget: Option<FreezeBudget>,
    /// How memory goes along when a rank moves, as with `osmos run`
    #[arg(long, value_name = "METHOD", default_value_t)]
    pub method: Way,
    /// This is what `--detach` has started
    #[arg(long, hide = true)]
    pub in_background: bool,
    /// The command and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum PvmCommand {
    /// Begin daemons of PVM on the nodes, and list them; again, to add those that came since
    #[command(after_help = "\
Examples:
  osmos pvm up; pvm            the console: spawn, ps, add, conf, halt
  osmos pvm up --nodes 2,delta

PVM must be installed on each of the nodes, and the owner of each have said `osmos share --jobs on`.
Names of nodes are names of hosts, and are looked up by PVM. Its tasks are processes under Osmos of
the node where PVM has begun them, and move. PVM_PATH says where programs of tasks are looked for,
PATH if it is not set.")]
    Up {
        /// Only on these besides this one, by number or name: 2,5-7,delta
        #[arg(long, value_name = "NODES", value_parser = borrowers)]
        nodes: Option<BorrowersChoice>,
    },
    /// End the daemons of PVM on all nodes, and all tasks
    Down,
}

/// As programs give them that start others by rsh(1) or ssh(1).
#[derive(Clone, Debug, Args)]
pub struct RshOptions {
    /// It has no standard input
    #[arg(short = 'n')]
    pub no_input: bool,
    /// The user on the other node: only the caller himself can be
    #[arg(short = 'l', value_name = "USER")]
    pub user: Option<String>,
    /// The node, by name or number
    #[arg(value_parser = node)]
    pub node: NodeChoice,
    /// The command, for a shell
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// A variable with names of others that go along besides, as with `SendEnv` of ssh.
pub const RSH_ENVIRONMENT: &str = "OSMOS_RSH_ENV";
/// What a login has of an environment.
const LOGIN: [&str; 7] = ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ"];

impl RshOptions {
    pub fn launcher(&self, socket: PathBuf, nodes: &mut impl Nodes) -> Result<launcher::Options> {
        if let Some(user) = &self.user {
            let own = User::from_uid(Uid::current())?.map(|own| own.name);
            anyhow::ensure!(own.as_ref() == Some(user), "`-l {user}`: you are somebody else");
        }
        let mut script = OsString::from("cd \"${HOME:-/}\" 2>/dev/null || cd /; ");
        for (place, word) in self.command.iter().enumerate() {
            script.push(if place > 0 { " " } else { "" });
            script.push(word);
        }
        let words = ["/bin/sh".into(), "-c".into(), script];
        let told = std::env::var(RSH_ENVIRONMENT).unwrap_or_default();
        let more = told.split(',').map(str::trim).filter(|name| !name.is_empty());
        let usual = LOGIN.into_iter().chain(mpi::names()).map(str::to_owned);
        let names: Vec<String> = usual.chain(more.map(str::to_owned)).collect();
        let environment = names.into_iter().filter_map(|name| {
            let mut variable = OsString::from(format!("{name}="));
            variable.push(std::env::var_os(name)?);
            Some(variable)
        });
        let mut options = JobRunOptions::usual(words.into());
        options.chdir = Some("/".into());
        let mut program = options.program()?;
        program.environment = environment.map(|of| Word(of.into_vec())).collect();
        program.leaves_daemons = true;
        program.input = if self.no_input { jobs::Input::None } else { jobs::Input::First };
        Ok(launcher::Options {
            socket,
            name: None,
            ranks: Some(1),
            per_node: None,
            nodes: Some(Borrowers::Only(vec![self.node.find(nodes)?])),
            program,
            labels: false,
            kills_on_bad_exit: false,
            log: None,
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InputChoice {
    None,
    #[default]
    First,
    All,
}

/// Numbers of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(Vec<u32>);

fn processors(text: &str) -> Result<Processors, String> {
    let complaint =
        || format!("`{text}` names no processors: numbers and ranges from 0, such as 0-3,8");
    let mut all = Vec::new();
    for word in text.split(',') {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let number = |word: &str| word.parse::<u32>().ok();
        match (number(first), number(last)) {
            (Some(first), Some(last))
                if first <= last && (last as usize) < jobs::PROCESSORS_MAX =>
            {
                all.extend(first..=last);
            }
            _ => return Err(complaint()),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(Processors(all))
}

impl Processors {
    fn text(&self) -> String {
        self.0.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// As `prlimit` calls them, with their numbers in Linux (asm-generic/resource.h).
const RESOURCES: [(&str, u32); 16] = [
    ("cpu", 0),
    ("fsize", 1),
    ("data", 2),
    ("stack", 3),
    ("core", 4),
    ("rss", 5),
    ("nproc", 6),
    ("nofile", 7),
    ("memlock", 8),
    ("as", 9),
    ("locks", 10),
    ("sigpending", 11),
    ("msgqueue", 12),
    ("nice", 13),
    ("rtprio", 14),
    ("rttime", 15),
];

fn limit(text: &str) -> Result<ResourceLimit, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is no limit: RESOURCE=LIMIT, such as nofile=100"))?;
    let Some((_, resource)) = RESOURCES.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = RESOURCES.iter().map(|(name, _)| *name).collect();
        return Err(format!("`{name}` is no resource; there are {}", names.join(", ")));
    };
    let (soft, hard) = value.split_once(':').unwrap_or((value, value));
    let amount = |word: &str| match word {
        "unlimited" => Ok(None),
        word => size(word).map(Some),
    };
    Ok(ResourceLimit { resource: *resource, soft: amount(soft)?, hard: amount(hard)? })
}

fn limit_text(limit: &ResourceLimit) -> String {
    let name = RESOURCES.iter().find(|(_, number)| *number == limit.resource);
    let amount = |of: Option<u64>| of.map_or_else(|| "unlimited".to_owned(), |of| of.to_string());
    format!("{}={}:{}", name.map_or("", |(name, _)| name), amount(limit.soft), amount(limit.hard))
}

impl JobRunOptions {
    /// A command about which nothing is said.
    fn usual(command: Vec<OsString>) -> JobRunOptions {
        JobRunOptions {
            ranks: None,
            per_node: None,
            nodes: None,
            name: None,
            detach: false,
            log: None,
            no_label: false,
            kill_on_bad_exit: false,
            input: InputChoice::default(),
            chdir: None,
            env: Vec::new(),
            suspended: false,
            nice: None,
            cpus: None,
            limit: Vec::new(),
            home: false,
            storm: None,
            freeze_budget: None,
            method: Way::default(),
            in_background: false,
            command,
        }
    }

    /// What ranks run; how many there are is not known yet.
    pub fn program(&self) -> Result<Program> {
        let word = |word: OsString| Word(word.into_vec());
        let directory = match &self.chdir {
            Some(directory) => std::path::absolute(directory)?,
            None => std::env::current_dir().context("cannot find the working directory")?,
        };
        let own = std::env::vars_os().map(|(name, value)| {
            let mut variable = name;
            variable.push("=");
            variable.push(value);
            variable
        });
        let mut environment: Vec<Word> = own.map(word).collect();
        for variable in &self.env {
            let text = variable.to_string_lossy();
            anyhow::ensure!(
                text.split_once('=').is_some_and(|(name, _)| !name.is_empty()),
                "`--env {text}`: it is NAME=VALUE"
            );
            environment.push(word(variable.clone()));
        }
        let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        nix::sys::stat::umask(umask);
        let placement = if self.home { Placement::Home } else { Placement::Balanced };
        Ok(Program {
            command: self.command.iter().cloned().map(word).collect(),
            environment,
            directory: word(directory.into()),
            umask: umask.bits(),
            size: 0,
            input: match self.input {
                InputChoice::None => jobs::Input::None,
                InputChoice::First => jobs::Input::First,
                InputChoice::All => jobs::Input::All,
            },
            nice: self.nice,
            processors: self.cpus.clone().map(|of| of.0).unwrap_or_default(),
            limits: self.limit.clone(),
            is_suspended: self.suspended,
            leaves_daemons: false,
            moving: Moving {
                placement,
                storm_ms: self.storm,
                freeze_budget_ms: self.freeze_budget,
                way: self.method,
            },
        })
    }

    /// The words that give these options when parsed again, for what runs in the background: it has
    /// its own log.
    pub fn words_in_background(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let texts = [
            ("-n", self.ranks.map(|ranks| ranks.to_string())),
            ("--per-node", self.per_node.map(|count| count.to_string())),
            ("--nodes", self.nodes.as_ref().map(|nodes| nodes.to_string())),
            ("--name", self.name.clone()),
            ("--nice", self.nice.map(|nice| nice.to_string())),
            ("--cpus", self.cpus.as_ref().map(|cpus| cpus.text())),
            ("--storm", self.storm.map(|ms| ms.to_string())),
            ("--freeze-budget", self.freeze_budget.map(|budget| budget.ms().to_string())),
        ];
        for (name, text) in texts {
            words.extend(text.map(|text| [name.into(), text.into()]).into_iter().flatten());
        }
        for limit in &self.limit {
            words.extend(["--limit".into(), limit_text(limit).into()]);
        }
        for variable in &self.env {
            words.extend(["--env".into(), variable.clone()]);
        }
        words.extend(self.chdir.iter().flat_map(|dir| ["--chdir".into(), dir.clone().into()]));
        let switches = [
            ("--no-label", self.no_label),
            ("--kill-on-bad-exit", self.kill_on_bad_exit),
            ("--suspended", self.suspended),
            ("--home", self.home),
        ];
        let switches = switches.into_iter().filter(|(_, is_on)| *is_on);
        words.extend(switches.map(|(name, _)| OsString::from(name)));
        // Nobody types where it runs.
        words.extend(["--input".into(), "none".into()]);
        words.extend(["--method".into(), self.method.word().into(), "--".into()]);
        words.extend(self.command.iter().cloned());
        words
    }

    pub fn launcher(&self, socket: PathBuf, nodes: &mut impl Nodes) -> Result<launcher::Options> {
        Ok(launcher::Options {
            socket,
            name: self.name.clone(),
            ranks: self.ranks,
            per_node: self.per_node,
            nodes: self.nodes.clone().map(|of| of.find(nodes)).transpose()?,
            program: self.program()?,
            labels: !self.no_label,
            kills_on_bad_exit: self.kill_on_bad_exit,
            log: self.log.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use crate::naming::tests::unasked;
    use clap::Parser;

    fn options(words: &[&str]) -> JobRunOptions {
        let words = ["osmos", "job", "run"].iter().chain(words);
        match Arguments::try_parse_from(words).expect("the words are valid").command {
            Command::Job(JobCommand::Run(options)) => *options,
            other => panic!("parsed as {other:?}"),
        }
    }

    #[test]
    fn a_job_is_its_launchers_pid_or_a_name() {
        let of = |word: &str| word.parse::<JobChoice>();
        let launcher = |node, pid| Ok(JobChoice::Launcher { node, pid });
        assert_eq!(of("12"), launcher(None, 12));
        assert_eq!(of("3:12"), launcher(Some(node("3").unwrap()), 12));
        assert_eq!(of("sweep.2"), Ok(JobChoice::Name("sweep.2".into())));
        for word in ["", "0", "-1", "2x", "a b", "3:sweep", "x:0", "ä"] {
            assert!(of(word).is_err(), "{word:?} was accepted");
        }
    }

    #[test]
    fn limits_and_processors_are_read_as_other_tools_read_them() {
        let limited = |text: &str| limit(text).map(|of| (of.resource, of.soft, of.hard));
        assert_eq!(limited("nofile=100"), Ok((7, Some(100), Some(100))));
        assert_eq!(limited("as=2G"), Ok((9, Some(2 << 30), Some(2 << 30))));
        assert_eq!(limited("core=0:unlimited"), Ok((4, Some(0), None)));
        for text in ["nofile", "files=3", "nofile=", "nofile=x", "as=1:"] {
            assert!(limited(text).is_err(), "{text} was accepted");
        }
        assert_eq!(processors("3,0-1,1"), Ok(Processors(vec![0, 1, 3])));
        for text in ["", "a", "3-1", "1-", "99999"] {
            assert!(processors(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn what_is_said_of_a_job_reaches_its_program() {
        let words = ["-n", "3", "--env", "OSMOS_TEST=a=b", "-C", "/tmp", "--nice", "-2", "--home"];
        let of = options(&[&words[..], &["--limit", "core=0", "--", "a", "-n", "7"]].concat());
        let launched = of.launcher("/socket".into(), &mut unasked()).unwrap();
        let program = launched.program;
        let text = |word: &Word| String::from_utf8(word.0.clone()).unwrap();
        let command: Vec<String> = program.command.iter().map(text).collect();
        assert_eq!(command, ["a", "-n", "7"]);
        assert_eq!(text(&program.directory), "/tmp");
        assert!(program.environment.iter().any(|word| word.0 == b"OSMOS_TEST=a=b"));
        assert_eq!((launched.ranks, program.nice), (Some(3), Some(-2)));
        assert_eq!(program.moving.placement, Placement::Home);
        assert!(options(&["--env", "x", "--", "a"]).program().is_err());
    }

    #[test]
    fn options_survive_being_passed_on_to_the_background() {
        for line in [
            "-n 3 --per-node 2 --nodes 2,5,delta --name a --nice -1 --cpus 0-2 --input none a -d",
            "--storm 5 --freeze-budget 9 --method hybrid --limit nofile=1:unlimited --input none b",
            "--env A=b --env C= --chdir /tmp --no-label -K --suspended --home --input none c --",
            "--nodes all --input none -- d",
        ] {
            let first = options(&line.split(' ').collect::<Vec<_>>());
            let words = first.words_in_background();
            let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(format!("{:?}", options(&words)), format!("{first:?}"));
        }
    }
}
