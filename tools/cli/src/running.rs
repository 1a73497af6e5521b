//! How a command is to be run: the options of `osmos run`, and of `osmos time`, which runs it so.

use crate::mpi::Mpi;
use crate::naming::{NodeChoice, Nodes, node};
use crate::values::freeze_budget;
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;
use wire::control::Placement;
use wire::freeze_budget::FreezeBudget;
use wire::supervisor::Way;

#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// Run on this node, by number or name, and stay there
    #[arg(long, value_name = "NODE", value_parser = node, conflicts_with_all = ["home", "best"])]
    pub node: Option<NodeChoice>,
    /// Never leave home by itself
    #[arg(long, conflicts_with = "best")]
    pub home: bool,
    /// Start on the node that promises the most now; balanced from then on
    #[arg(long)]
    pub best: bool,
    /// Move to a random node about every MS milliseconds, for as long as it runs
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub storm: Option<u64>,
    /// Have it use no more of a processor than all nodes have, so that it can go to each of them
    #[arg(long)]
    pub cpu_baseline: bool,
    /// Tell it that the kernel has no io_uring (ENOSYS), as containers do: runtimes that would use
    /// it take epoll or threads instead, and can move. Holds for all that it starts. Unless root
    /// starts it, set-user-id programs (sudo, ping) do not get their rights in it
    #[arg(long)]
    pub mobile: bool,
    /// Have the ranks of an MPI job use no memory in common, by variables of Open MPI and MPICH, so
    /// that they can move: if the command is mpirun or another launcher, or always, or never
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub mpi: Mpi,
    /// Have moves hold it up for MS milliseconds at most, if that can be [default: 20, or what the
    /// owner of this node has said]
    #[arg(long, value_name = "MS", value_parser = freeze_budget)]
    pub freeze_budget: Option<FreezeBudget>,
    /// How its memory goes along when it leaves home, and that of what it starts: `pre-copy`,
    /// `hybrid` or `post-copy`, as with `migrate`
    #[arg(long, value_name = "METHOD", default_value_t)]
    pub method: Way,
    /// Have the daemon add up what it uses away: for `osmos time`, which runs the command so
    #[arg(long, hide = true)]
    pub timed: bool,
    /// The command and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

impl RunOptions {
    /// The words that give these options when parsed again.
    pub fn words(&self) -> Vec<OsString> {
        let switches =
            [("--home", self.home), ("--best", self.best), ("--cpu-baseline", self.cpu_baseline)];
        let switches =
            switches.into_iter().chain([("--mobile", self.mobile), ("--timed", self.timed)]);
        let mut words: Vec<OsString> =
            switches.filter(|(_, is_on)| *is_on).map(|(name, _)| name.into()).collect();
        words.extend(self.node.as_ref().map(|node| format!("--node={node}").into()));
        let numbers = [
            ("--storm", self.storm),
            ("--freeze-budget", self.freeze_budget.map(|budget| u64::from(budget.ms()))),
        ];
        for (name, number) in numbers {
            words.extend(number.map(|number| format!("{name}={number}").into()));
        }
        if self.method != Way::default() {
            words.push(format!("--method={}", self.method.word()).into());
        }
        if self.mpi != Mpi::default() {
            words.push(format!("--mpi={}", self.mpi.word()).into());
        }
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }

    pub fn placement(&self, nodes: &mut impl Nodes) -> Result<Placement> {
        Ok(match (&self.node, self.home, self.best) {
            (Some(node), _, _) => Placement::Node(node.find(nodes)?),
            (None, true, _) => Placement::Home,
            (None, false, true) => Placement::Best,
            (None, false, false) => Placement::Balanced,
        })
    }
}

#[derive(Clone, Debug, Args)]
pub struct TimeOptions {
    /// Print one JSON object instead: also what was used away
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub run: RunOptions,
}
