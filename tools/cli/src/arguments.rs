//! Every command and option, in one place: the parser, the help texts and the manual pages all come
//! from these definitions, so they cannot say different things.

use crate::cluster::ClusterCommand;
use crate::commands::top::{self, TopOptions};
use crate::commands::web::{self, WebOptions};
use crate::naming::{DestinationChoice, NodeChoice, destination, node, node_id, node_name};
use crate::ownership::{Own, Switch, borrowers, guest_users};
use crate::processes::{ProcessChoice, PsOptions};
use crate::running::{RunOptions, TimeOptions};
use crate::values::{bandwidth, freeze_budget, processors, signal, size, speed};
use crate::what_if::WhatIfOptions;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use wire::freeze_budget::FreezeBudget;
use wire::ids::NodeId;
use wire::move_limits::Bandwidth;
use wire::node_name::NodeName;
use wire::supervisor::Way;
use wire::users::{Borrowers, UserTable};

/// Several Linux machines as one: unmodified programs move between nodes while they run.
#[derive(Debug, Parser)]
#[command(name = "osmos", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
First steps:
  osmos demo                         see it work on this machine alone
  osmos up                           make this machine a node
  osmos token                        a word with which one other machine may join
  osmos join 192.168.1.1 TOKEN       on the other machine, after `osmos up` there
  osmos run -- make -j8              a program that may move
  osmos ps; osmos nodes              where everything is

Exit status: 0 done, 1 failed, 2 wrong usage. `osmos run` and `osmos time` give the exit status of
their command, or 125 if Osmos itself failed, 126 if the command cannot be executed, 127 if it was
not found.")]
pub struct Arguments {
    #[command(flatten)]
    pub daemon: DaemonChoice,
    #[command(subcommand)]
    pub command: Command,
}

/// Which daemon a command talks to.
#[derive(Clone, Debug, Default, Args)]
pub struct DaemonChoice {
    /// Control socket of the node daemon, if it is not at the usual place
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build a four-node lab on this machine, run real programs in it, show what they gained
    Demo(DemoOptions),
    /// Make this machine a node: start its daemon in the background
    #[command(after_help = "\
Examples:
  osmos up                                    a cluster of one, ready for others to join
  osmos up --listen 192.168.1.1:7780          on one network only
  osmos up --map /etc/mosix.map --cluster-key /etc/osmos.key
                                              a fixed cluster; the same key file on every node")]
    Up(UpOptions),
    /// Run a command that may move to other nodes; terminal, signals and exit status are its own
    #[command(
        visible_alias = "r",
        after_help = "\
Examples:
  osmos run -- ./simulate input.dat        placed and moved as the load asks for
  osmos run --node 3 -- flac -8 song.wav   on node 3, and it stays there
  osmos run --home -- ./editor             never leaves by itself
  osmos run --storm 50 -- ./test-suite     to a random node about every 50 ms: a test of Osmos
  osmos run --freeze-budget 5 -- ./player  no move is to hold it up for more than 5 ms
  osmos run --cpu-baseline -- ./simulate   also to nodes with an older or newer processor: the
                                           C library, OpenSSL, Go, OpenBLAS and MKL are told by
                                           the environment what to leave out

The command's process and all its descendants are managed. The command replaces `osmos` in place:
same process, same pid. If no daemon runs here nothing is started and the exit status is 125."
    )]
    Run(RunOptions),
    /// Run a command as `osmos run` does, and say what it took, wherever that was
    #[command(after_help = "\
Examples:
  osmos time -- make -j8
  osmos time --json --node 3 -- ./simulate input.dat

Prints to standard error, in the format of `time -p`, the seconds that passed, and the processor
time of the command and its descendants, at home and on all nodes that they ran on. Of that at home
the kernel tells, and with it the shell's `time`: a descendant counts if its parent waited for it.
What was used away counts of all descendants that have ended when the command ends, also of those
that nobody waited for; of a process that a signal ends while it is away up to a second may be
missing. What still runs is not counted. The exit status is that of the command, or 128 and the
number of the signal that ended it.")]
    Time(TimeOptions),
    #[command(flatten)]
    Ask(Question),
    /// Show the whole cluster in the terminal, as it is now: nodes, processes, moves
    #[command(after_help = top::EXAMPLES)]
    Top(TopOptions),
    /// Show the whole cluster in a browser: nodes, processes, moves, and the last hour
    #[command(after_help = web::EXAMPLES)]
    Web(WebOptions),
    /// Check what this machine's kernel can do for Osmos, and what is lost where it cannot
    Doctor(Listing),
    /// Bring a cluster up on machines that ssh reaches, upgrade it, take it down
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Build and use a cluster of separate nodes inside this machine
    #[command(
        after_help = "\
Examples:
  osmos lab up --nodes 4 --speeds 1,1,0.5,0.5 --link 1gbit --memory 512m
  osmos lab exec 1 -- osmos nodes
  osmos lab down",
        disable_help_flag = true
    )]
    Lab {
        /// up | exec | ps | down, with their options; `osmos lab help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Play a cluster that does not exist: up to a million nodes, with the real balancing
    #[command(disable_help_flag = true)]
    Sim {
        /// `osmos sim --help` lists what can be played
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Measure Osmos: its balancing, processes, streams and nodes
    #[command(disable_help_flag = true)]
    Bench {
        /// `osmos bench --help` lists what can be measured
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Create the classic MOSIX command names as links to this program
    #[command(after_help = "\
Example:
  osmos links ~/.local/bin      mosrun, runhome, runon, migrate ... are found there from then on")]
    Links {
        /// An existing directory
        directory: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print what a shell needs to complete the words of osmos commands
    #[command(after_help = "\
Examples:
  osmos completions bash > ~/.local/share/bash-completion/completions/osmos
  osmos completions zsh > ~/.zfunc/_osmos
  osmos completions fish > ~/.config/fish/completions/osmos.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    Man {
        /// An existing directory, e.g. ~/.local/share/man/man1
        directory: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
    /// The node daemon itself (`osmos up` starts it)
    #[command(hide = true)]
    Daemon(DaemonOptions),
}

/// The commands that ask the daemon one thing and print its answer.
#[derive(Debug, Subcommand)]
pub enum Question {
    /// Leave: guests go home, own processes come home, the daemon ends
    Down(Listing),
    /// Make a token with which one other node may join this cluster, once
    #[command(after_help = "\
Example:
  token=$(osmos token)       standard output has the token alone

Standard error says what to do with it where a terminal is looked at.")]
    Token(Listing),
    /// Join the cluster that a token belongs to
    #[command(after_help = "\
Example:
  osmos join 192.168.1.1 TOKEN      TOKEN is what `osmos token` printed there")]
    Join {
        /// Address of any node of the cluster: HOST or HOST:PORT
        address: String,
        /// What `osmos token` printed on that node
        token: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Leave the cluster: guests go home, own processes come home, the others forget this node
    #[command(after_help = "\
The node goes on as the only one of a cluster of its own, with another key, and can join any other.
`osmos down` only ends the daemon: the node stays a member and is back with the next `osmos up`.")]
    Leave(Listing),
    /// Remove a lost node from the cluster, on all nodes, for good
    #[command(after_help = "\
Examples:
  osmos forget 3              node 3 is dead or lost
  osmos forget 3 --force      although it is there: what it has of this node's comes home

It cannot come back with its key: `osmos leave` on it, then it joins anew. It still knows the
cluster's secret: if somebody else may have that node now, run `osmos renew-secret` after this.")]
    Forget {
        /// The node's number or name
        #[arg(value_parser = node)]
        node: NodeChoice,
        /// Also if it is there and answers
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Give the cluster another secret, on all nodes
    #[command(after_help = "\
Nodes that are down are told when they are back within 30 days, unless they were forgotten.
Later than that, and after five renewals, they have to join anew.")]
    RenewSecret(Listing),
    /// Move a process to a node, home, or to the best node
    #[command(after_help = "\
Examples:
  osmos migrate 4711 3       to node 3
  osmos migrate 4711 delta   to the node of that name
  osmos migrate 4711 home    or `best`

The memory of a process is copied while it runs, round by round, until it would stand still for no
longer than its freeze budget for what is left; then it moves. A process that writes to its memory
faster than the network takes it cannot be brought under its budget: it moves when rounds do not
help any more, and the answer says so; with `--method hybrid`, where nodes can do that (`osmos
doctor`: kernel-faults), the rest comes behind it then. With `--method post-copy` all of it does, or
the process stays. Until all has come the process can neither go home nor move on, and waits for
each page that has not come when it touches it. Both are for a process that leaves its home: from
node to node hybrid is pre-copy. With `--method stop-and-copy` nothing is copied ahead. A larger
budget ends the copying sooner.

^C calls the move off: the process runs on where it is. So does an order to another place, `home`
among them.")]
    Migrate {
        /// The process, by the pid it has at home; HOME:PID if its home is another node
        process: ProcessChoice,
        /// A node's number or name, `home` or `best`
        #[arg(value_parser = destination)]
        to: DestinationChoice,
        /// Have this and later moves of it hold it up for MS milliseconds at most, if that can be
        #[arg(long, value_name = "MS", value_parser = freeze_budget)]
        freeze_budget: Option<FreezeBudget>,
        /// How its memory goes along when it leaves home: `pre-copy`, `hybrid`, `post-copy` or
        /// `stop-and-copy`
        /// [default: pre-copy, or what `run --method` has said]
        #[arg(long, value_name = "METHOD")]
        method: Option<Way>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Put a process that already runs, and its descendants, under Osmos
    Adopt {
        /// The process
        pid: i32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Send a signal to a process under Osmos, wherever it was born
    #[command(after_help = "\
Examples:
  osmos kill 3:4711            process 4711 that was born on node 3, with SIGTERM
  osmos kill -s STOP 3:4711    kill -STOP on node 3 does the same")]
    Kill {
        /// The process, by the pid it has at home; HOME:PID if its home is another node
        process: ProcessChoice,
        /// The signal, by its name or number
        #[arg(long, short, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
        signal: i32,
    },
    /// List the processes of this node (born here wherever they run, and guests) or of all nodes
    #[command(after_help = "\
Examples:
  osmos ps --all --sort cpu             the processes of all nodes, the busiest first
  osmos ps --all --user anna --watch    hers, again every second
  osmos ps --node 3 --json              those that run on node 3, for a program")]
    Ps(PsOptions),
    /// List the nodes of the cluster with name, speed, load and memory
    #[command(after_help = "\
A node is called as its machine is, or as `osmos up --name` said there. Wherever a command takes a
node its name does as well as its number: the whole name, or its beginning up to one of its dots, in
capital or small letters, if no other node can be meant by it. The number always says which.")]
    Nodes(Listing),
    /// See how another node answers: round trip, clock, version, processor, pace of moves
    Ping {
        /// The node, by number or name
        #[arg(value_parser = node)]
        node: NodeChoice,
        /// How often it is asked
        #[arg(long, short, value_name = "N", default_value_t = 5,
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        count: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Explain why a process is where it is: places and their promise, decisions, and what each
    /// move has brought
    Why {
        /// The process, by the pid it has at home; HOME:PID if its home is another node
        process: ProcessChoice,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say what a move would bring, or another node
    #[command(after_help = "\
Examples:
  osmos what-if 4711 3                        process 4711 on node 3, or on one by its name
  osmos what-if --node cores=4,speed=1.5      what this node would hand over to such a one")]
    WhatIf(WhatIfOptions),
    #[command(flatten)]
    Own(Own),
    /// Show what happened: moves, homecomings, nodes that came and went
    Events {
        /// What happened on all nodes, not only on this one
        #[arg(long, short)]
        all: bool,
        /// Go on with what happens from now on, until interrupted; with --all, on the nodes that
        /// are there now
        #[arg(long, short)]
        follow: bool,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show this node: its number, address and daemon
    Status(Listing),
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Listing {
    /// Print JSON: stable shapes for programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct DemoOptions {
    /// Print the figures as JSON and no picture
    #[arg(long)]
    pub json: bool,
    /// Do a fifth of the work: less exact, under half a minute
    #[arg(long)]
    pub quick: bool,
}

#[derive(Clone, Debug, Args)]
pub struct UpOptions {
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    pub foreground: bool,
    /// Print this node's status as JSON when it is up, as `osmos status --json` does
    #[arg(long, conflicts_with = "foreground")]
    pub json: bool,
    /// Take over from the daemon that runs, an older version perhaps: no process moves for it
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// What the node daemon can be told; `osmos up` passes it on unchanged.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct DaemonOptions {
    /// Address and port for other nodes, TCP and UDP [default: 0.0.0.0:7780]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Address that other nodes are told, where it is not the one listened on
    #[arg(long, value_name = "ADDRESS")]
    pub advertise: Option<IpAddr>,
    /// The nodes of the cluster, in the format of mosix.map: number, address, span
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// With --map: file with the secret that all nodes of the cluster share
    #[arg(long, value_name = "FILE", requires = "map")]
    pub cluster_key: Option<PathBuf>,
    /// With --map: this node's number, where its address does not tell
    #[arg(long, value_name = "N", value_parser = node_id, requires = "map")]
    pub node_id: Option<NodeId>,
    /// What this node is called, instead of its host name
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    pub name: Option<NodeName>,
    /// Speed of one core against the reference, instead of measuring it
    #[arg(long, value_name = "S", value_parser = speed)]
    pub speed: Option<f64>,
    /// At most so many guests at one time; kept until the owner says otherwise
    #[arg(long, value_name = "N")]
    pub guests_max: Option<u32>,
    /// At most so much memory for all guests: 512M, 2G; kept likewise
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub guest_memory_max: Option<u64>,
    /// Have moves hold own processes up for MS milliseconds at most, where nothing else was said of
    /// them [default: 20]; kept likewise
    #[arg(long, value_name = "MS", value_parser = freeze_budget)]
    pub freeze_budget: Option<FreezeBudget>,
    /// Let no move from here or to here take more of the network than this while it copies memory:
    /// 500Mbit, 2Gbit; kept likewise
    #[arg(long, value_name = "RATE", value_parser = bandwidth)]
    pub move_bandwidth: Option<Bandwidth>,
    /// Let no such move keep more processors busy; kept likewise
    #[arg(long, value_name = "N", value_parser = processors)]
    pub move_processors: Option<NonZeroU32>,
    /// As whom guests run: rules USERS=WHOM, the first that fits; kept likewise [default:
    /// 0-999=nobody,*=same]
    #[arg(long, value_name = "RULES", value_parser = guest_users)]
    pub guest_users: Option<UserTable>,
    /// Let processes of root leave this node, to nodes that are trusted with root here; kept
    /// likewise
    #[arg(long, value_enum, value_name = "on|off")]
    pub lend_root: Option<Switch>,
    /// Nodes that processes of this one may go to: 2,5-7, or `all`; kept likewise
    #[arg(long, value_name = "NODES", value_parser = borrowers)]
    pub lend_to: Option<Borrowers>,
    /// Cgroup directory for guests; once for each controller hierarchy
    #[arg(long, value_name = "DIR")]
    pub guest_cgroup: Vec<PathBuf>,
    /// Start every program so that all nodes' processors will do for it, as with `run
    /// --cpu-baseline`
    #[arg(long)]
    pub cpu_baseline: bool,
    /// Seconds that processes wait where they are for the next daemon, should this one die, before
    /// they come home [default: 600]
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub succession_patience: Option<u64>,
    /// Do without these kernel features, to see what happens on an older kernel
    #[arg(long, value_name = "FEATURE", value_delimiter = ',', hide = true)]
    pub without: Vec<String>,
    /// Balance by another policy, to compare: static, fifo, lvm, osmos, osmos_norotate; `NAME:10`
    /// in an experiment that is ten times shorter than those of 1996
    #[arg(long, value_name = "NAME", hide = true)]
    pub policy: Option<String>,
    /// Append all that the balancing is told to this file, for `osmos sim --replay`
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub record: Option<PathBuf>,
    /// Directory of the control socket
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub runtime_dir: Option<PathBuf>,
    /// Directory of keys, members and journal
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub state_dir: Option<PathBuf>,
}

impl DaemonOptions {
    /// The words that give these options when parsed again.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut push = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([OsString::from(name), value]);
            }
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.clone().into_os_string());
        push("--listen", self.listen.map(|listen| listen.to_string().into()));
        push("--advertise", self.advertise.map(|address| address.to_string().into()));
        push("--map", path(&self.map));
        push("--cluster-key", path(&self.cluster_key));
        push("--node-id", self.node_id.map(|node| node.to_string().into()));
        push("--name", self.name.as_ref().map(|name| name.as_str().into()));
        push("--speed", self.speed.map(|speed| speed.to_string().into()));
        push("--guests-max", self.guests_max.map(|max| max.to_string().into()));
        push("--guest-memory-max", self.guest_memory_max.map(|max| max.to_string().into()));
        push("--freeze-budget", self.freeze_budget.map(|budget| budget.ms().to_string().into()));
        push("--move-bandwidth", self.move_bandwidth.map(|most| most.to_string().into()));
        push("--move-processors", self.move_processors.map(|most| most.to_string().into()));
        push("--guest-users", self.guest_users.as_ref().map(|table| table.to_string().into()));
        push("--lend-root", self.lend_root.map(|switch| switch.word().into()));
        push("--lend-to", self.lend_to.as_ref().map(|nodes| nodes.to_string().into()));
        let patience = self.succession_patience.map(|seconds| seconds.to_string().into());
        push("--succession-patience", patience);
        for directory in &self.guest_cgroup {
            push("--guest-cgroup", Some(directory.clone().into_os_string()));
        }
        for feature in &self.without {
            push("--without", Some(feature.into()));
        }
        push("--policy", self.policy.as_ref().map(OsString::from));
        push("--record", path(&self.record));
        push("--runtime-dir", path(&self.runtime_dir));
        push("--state-dir", path(&self.state_dir));
        if self.cpu_baseline {
            words.push("--cpu-baseline".into());
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::tests::unasked;
    use clap::CommandFactory;
    use wire::control::Placement;

    fn run_options(words: &[&str]) -> RunOptions {
        match Arguments::try_parse_from(words).expect("the words are valid").command {
            Command::Run(options) => options,
            other => panic!("parsed as {other:?}"),
        }
    }

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_belongs_to_the_command() {
        let options = run_options(&["osmos", "run", "--home", "--", "ls", "--json", "-l", "--"]);
        assert_eq!(options.placement(&mut unasked()).unwrap(), Placement::Home);
        assert_eq!(options.command, ["ls", "--json", "-l", "--"]);
    }

    #[test]
    fn a_command_needs_no_dashes_and_keeps_its_options() {
        let options = run_options(&["osmos", "run", "--storm", "50", "ls", "--best"]);
        assert_eq!(options.placement(&mut unasked()).unwrap(), Placement::Balanced);
        assert_eq!((options.storm, options.command.len()), (Some(50), 2));
    }

    #[test]
    fn options_of_run_survive_being_passed_on() {
        for line in [
            "osmos run --node=7 --storm=5 --freeze-budget=9 --cpu-baseline --timed -- a --json",
            "osmos run --node=delta.example.org -- a",
            "osmos run --best --mobile --mpi=on -- b",
            "osmos run --home --method=hybrid -- c -- d",
        ] {
            let parsed = |words: &[&str]| format!("{:?}", run_options(words));
            let first = run_options(&line.split(' ').collect::<Vec<_>>());
            let words = first.words();
            let words = words.iter().map(|word| word.to_str().unwrap());
            let passed_on: Vec<&str> = ["osmos", "run"].into_iter().chain(words).collect();
            assert_eq!(parsed(&passed_on), format!("{first:?}"));
        }
    }

    #[test]
    fn placements_exclude_each_other() {
        for words in [["--home", "--best"], ["--node=2", "--home"], ["--node=2", "--best"]] {
            let line = ["osmos", "run"].into_iter().chain(words).chain(["--", "true"]);
            assert!(Arguments::try_parse_from(line).is_err(), "{words:?} was accepted");
        }
    }

    #[test]
    fn daemon_options_survive_being_passed_on() {
        let line = "osmos daemon --listen 127.0.0.1:0 --advertise 10.0.0.1 --map m --cluster-key k \
                    --node-id 3 --name delta --speed 0.25 --guests-max 4 --guest-memory-max 1024 \
                    --freeze-budget 7 --move-bandwidth 1Gbit --move-processors 2 \
                    --guest-users 0=refuse,*=same --lend-root on --lend-to 2,5-7 \
                    --guest-cgroup /a --guest-cgroup /b --without a,b --policy fifo \
                    --succession-patience 7 --runtime-dir r --state-dir s";
        let parse = |words: Vec<OsString>| match Arguments::try_parse_from(words) {
            Ok(Arguments { command: Command::Daemon(options), .. }) => options,
            other => panic!("parsed as {other:?}"),
        };
        let options = parse(line.split_whitespace().map(OsString::from).collect());
        let passed_on = ["osmos", "daemon"].map(OsString::from).into_iter().chain(options.words());
        assert_eq!(parse(passed_on.collect()), options);
        // A list is passed on as one option for each.
        assert_eq!(options.words().len(), line.split_whitespace().count());
    }

    #[test]
    fn a_size_is_a_number_with_or_without_a_unit() {
        assert_eq!(
            ["7", "2k", "512M", "3G"].map(|w| size(w).unwrap()),
            [7, 2 << 10, 512 << 20, 3 << 30]
        );
        for word in ["", "G", "1.5G", "-1", "1X", "99999999999T"] {
            assert!(size(word).is_err(), "{word:?} was accepted");
        }
    }
}
