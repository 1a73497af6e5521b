//! Every command and option, in one place: the parser, the help texts and the manual pages all come
//! from these definitions, so they cannot say different things.

use crate::cluster::ClusterCommand;
use crate::commands::doctor::DoctorOptions;
use crate::commands::listings::NodesOptions;
use crate::commands::metrics::MetricsOptions;
use crate::commands::mount::{self, MountOptions, UnmountOptions};
use crate::commands::report::ReportOptions;
use crate::commands::top::{self, TopOptions};
use crate::commands::web::{self, WebOptions};
use crate::daemon_options::{DaemonOptions, UpOptions};
use crate::jobs::{JobCommand, PvmCommand, RshOptions};
use crate::naming::{DestinationChoice, NodeChoice, destination, node};
use crate::ownership::Own;
use crate::processes::{ProcessChoice, PsOptions};
use crate::running::{RunOptions, TimeOptions};
use crate::values::freeze_budget;
use crate::what_if::WhatIfOptions;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use client::signals::signal_of;
use std::ffi::OsString;
use std::path::PathBuf;
use wire::freeze_budget::FreezeBudget;
use wire::supervisor::Way;

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
    /// Show the files of all nodes in one directory
    #[command(after_help = mount::EXAMPLES)]
    Mount(MountOptions),
    /// Take away what `osmos mount` has mounted
    Unmount(UnmountOptions),
    /// Print what a node measures and has counted, for Prometheus
    #[command(after_help = "\
Examples:
  osmos metrics --listen                 serves http://127.0.0.1:9780/metrics until it is ended
  osmos metrics --listen 10.0.0.1:9780   the same for other machines; there is no password
  osmos metrics --all --output /var/lib/node_exporter/osmos.prom
                                         of all nodes, for node_exporter; the file is always whole

The text format of Prometheus. docs/metrics.md of the sources lists the names, and
docs/grafana-dashboard.json there is a dashboard. With --all a node that does not answer within five
seconds is told by `osmos_up 0`, and the others are there.")]
    Metrics(MetricsOptions),
    /// Put all that a bug report needs of this node into one archive, without secrets
    #[command(after_help = "\
Examples:
  osmos report                       osmos-report-HOST-TIME.tar.gz in this directory
  osmos report --force /tmp/r.tar.gz

It holds versions, what `osmos doctor` says, status, nodes, processes by their programs' names,
metrics, the last events, the daemon's options, what the owner has decided, and the end of the
daemon's log. It is readable for its owner alone, and lists what it has and what it has not.
Nothing is sent anywhere.")]
    Report(ReportOptions),
    /// Check what this machine's kernel can do for Osmos, and what is lost where it cannot
    #[command(after_help = "\
Examples:
  osmos doctor               of this machine, with or without a daemon
  osmos doctor --all         of all nodes, as their daemons see it

What is missing is told with what is lost by it, and with the command for root that brings it, if
one does. Exit status: 0 every machine can be a node; 1 one cannot, or a node has not answered.")]
    Doctor(DoctorOptions),
    /// Bring a cluster up on machines that ssh reaches, upgrade it, take it down
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run commands that run many times at once, as one job over all nodes
    #[command(subcommand)]
    Job(JobCommand),
    /// Have PVM, as it is, run over the nodes without rsh and keys
    #[command(subcommand)]
    Pvm(PvmCommand),
    /// Run a shell command on another node, as rsh(1) does: for programs that start others so
    #[command(after_help = "\
Examples:
  osmos rsh two uptime
  osmos run -- mpirun --mca plm_rsh_agent 'osmos rsh' -H one:4,two:4 ./ranks
  osmos links ~/bin; PVM_RSH=~/bin/osmos-rsh pvm      for what takes no words, a program

It needs no key and no password: the owner of the node has said `osmos share --jobs on`. The command
is run by /bin/sh in the user's home directory, with a short environment as after a login, and the
variables that OSMOS_RSH_ENV names, separated by commas. It is a process under Osmos of that node,
and so is what it starts. What it leaves in the background goes on.
Exit status: that of the command; 125 if it could not be begun.")]
    Rsh(RshOptions),
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
    /// Check the configuration file, or print one to begin with
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make the node daemon a service of systemd: root's or, for others, the user's own
    #[command(subcommand)]
    Service(ServiceCommand),
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

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether the file is right, and what it sets for the next `osmos up`
    #[command(after_help = "\
Without FILE it is the one that `osmos up` reads: /etc/osmos/osmos.toml for root,
~/.config/osmos/osmos.toml for others. All that is wrong is told, each with its line.")]
    Check {
        /// Another file
        file: Option<PathBuf>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print a file with every option of `osmos up`, explained and commented out
    #[command(after_help = "\
Example:
  osmos config example > ~/.config/osmos/osmos.toml")]
    Example,
}

#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// Write the unit and start the service: now, and after each boot
    #[command(after_help = "\
What the service does:
  systemctl reload osmos      another daemon takes over, of a new version perhaps; no process moves
  systemctl stop osmos        `osmos down`: guests go home, own processes come home
  journalctl -u osmos         what it logs
For a user's own service it is `systemctl --user`, and `loginctl enable-linger` has it run without
a login. Options are those of the configuration file (`osmos config example`).")]
    Install(Listing),
    /// End the service and remove its unit; keys, membership and journal stay
    Uninstall(Listing),
    /// Print the unit
    Print {
        /// The program that the unit names, instead of this one
        #[arg(long, value_name = "PATH")]
        program: Option<PathBuf>,
        /// That of a user's own service
        #[arg(long)]
        user: bool,
    },
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
        #[arg(long, short, value_name = "SIGNAL", default_value = "TERM", value_parser = signal_of)]
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
Examples:
  osmos nodes 2 delta              only these
  osmos nodes --here --column load the load of this node, for a script

A node is called as its machine is, or as `osmos up --name` said there. Wherever a command takes a
node its name does as well as its number: the whole name, or its beginning up to one of its dots, in
capital or small letters, if no other node can be meant by it. The number always says which.")]
    Nodes(NodesOptions),
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
}
