//! What a node daemon can be told: by the command line of `osmos up`, by a configuration file
//! ([`crate::config_file`]), and by `osmos up` itself, which hands on what came of both.

use crate::naming::{node_id, node_name};
use crate::ownership::{Sharing, Switch, borrowers, guest_users};
use crate::values::{bandwidth, freeze_budget, processors, size, speed};
use clap::Args;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use wire::freeze_budget::FreezeBudget;
use wire::ids::NodeId;
use wire::move_limits::Bandwidth;
use wire::node_name::NodeName;
use wire::users::{Borrowers, UserTable};

#[derive(Clone, Debug, Default, Args)]
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
    /// Read options from this file instead of /etc/osmos/osmos.toml or, for others than root,
    /// ~/.config/osmos/osmos.toml; those given here go before them (`osmos config`)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
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
    #[arg(long, value_name = "FILE")]
    pub cluster_key: Option<PathBuf>,
    /// With --map: this node's number, where its address does not tell
    #[arg(long, value_name = "N", value_parser = node_id)]
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
    /// At most so many guests of one user at one time; kept likewise (`osmos limit` changes it)
    #[arg(long, value_name = "N")]
    pub guests_per_user: Option<u32>,
    /// At most so many processes of one user of this node in storms (`osmos run --storm`);
    /// kept likewise
    #[arg(long, value_name = "N")]
    pub storms_per_user: Option<u32>,
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
    /// What users of other nodes may do with their files on this one; kept likewise
    #[arg(long, value_enum, value_name = "off|read|write")]
    pub share_files: Option<Sharing>,
    /// Let jobs of users of other nodes begin here, as whom they are here; kept likewise
    #[arg(long, value_enum, value_name = "on|off")]
    pub share_jobs: Option<Switch>,
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
    /// These, and where they say nothing the others.
    pub fn or(self, others: DaemonOptions) -> DaemonOptions {
        let list = |these: Vec<_>, others| if these.is_empty() { others } else { these };
        DaemonOptions {
            listen: self.listen.or(others.listen),
            advertise: self.advertise.or(others.advertise),
            map: self.map.or(others.map),
            cluster_key: self.cluster_key.or(others.cluster_key),
            node_id: self.node_id.or(others.node_id),
            name: self.name.or(others.name),
            speed: self.speed.or(others.speed),
            guests_max: self.guests_max.or(others.guests_max),
            guest_memory_max: self.guest_memory_max.or(others.guest_memory_max),
            guests_per_user: self.guests_per_user.or(others.guests_per_user),
            storms_per_user: self.storms_per_user.or(others.storms_per_user),
            freeze_budget: self.freeze_budget.or(others.freeze_budget),
            move_bandwidth: self.move_bandwidth.or(others.move_bandwidth),
            move_processors: self.move_processors.or(others.move_processors),
            guest_users: self.guest_users.or(others.guest_users),
            lend_root: self.lend_root.or(others.lend_root),
            lend_to: self.lend_to.or(others.lend_to),
            share_files: self.share_files.or(others.share_files),
            share_jobs: self.share_jobs.or(others.share_jobs),
            guest_cgroup: list(self.guest_cgroup, others.guest_cgroup),
            cpu_baseline: self.cpu_baseline || others.cpu_baseline,
            succession_patience: self.succession_patience.or(others.succession_patience),
            without: if self.without.is_empty() { others.without } else { self.without },
            policy: self.policy.or(others.policy),
            record: self.record.or(others.record),
            runtime_dir: self.runtime_dir.or(others.runtime_dir),
            state_dir: self.state_dir.or(others.state_dir),
        }
    }

    /// Whether they go together.
    ///
    /// # Errors
    /// One needs another that is not there.
    pub fn check(&self) -> anyhow::Result<()> {
        let needing =
            [("--cluster-key", self.cluster_key.is_some()), ("--node-id", self.node_id.is_some())];
        match needing.iter().find(|(_, is_given)| *is_given && self.map.is_none()) {
            Some((name, _)) => {
                anyhow::bail!("`{name}` is for a cluster of a map: give `--map` too")
            }
            None => Ok(()),
        }
    }

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
        push("--guests-per-user", self.guests_per_user.map(|max| max.to_string().into()));
        push("--storms-per-user", self.storms_per_user.map(|max| max.to_string().into()));
        push("--guest-memory-max", self.guest_memory_max.map(|max| max.to_string().into()));
        push("--freeze-budget", self.freeze_budget.map(|budget| budget.ms().to_string().into()));
        push("--move-bandwidth", self.move_bandwidth.map(|most| most.to_string().into()));
        push("--move-processors", self.move_processors.map(|most| most.to_string().into()));
        push("--guest-users", self.guest_users.as_ref().map(|table| table.to_string().into()));
        push("--lend-root", self.lend_root.map(|switch| switch.word().into()));
        push("--share-files", self.share_files.map(|sharing| sharing.word().into()));
        push("--share-jobs", self.share_jobs.map(|switch| switch.word().into()));
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
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn daemon_options_survive_being_passed_on() {
        let line = "osmos daemon --listen 127.0.0.1:0 --advertise 10.0.0.1 --map m --cluster-key k \
                    --node-id 3 --name delta --speed 0.25 --guests-max 4 --guest-memory-max 1024 \
                    --guests-per-user 5 --storms-per-user 6 \
                    --freeze-budget 7 --move-bandwidth 1Gbit --move-processors 2 \
                    --guest-users 0=refuse,*=same --lend-root on --lend-to 2,5-7 \
                    --share-files read --share-jobs on \
                    --guest-cgroup /a --guest-cgroup /b --without a,b --policy fifo \
                    --succession-patience 7 --record r --runtime-dir r --state-dir s \
                    --cpu-baseline";
        let parse = |words: Vec<OsString>| match Arguments::try_parse_from(words) {
            Ok(Arguments { command: Command::Daemon(options), .. }) => options,
            other => panic!("parsed as {other:?}"),
        };
        let options = parse(line.split_whitespace().map(OsString::from).collect());
        let passed_on = ["osmos", "daemon"].map(OsString::from).into_iter().chain(options.words());
        assert_eq!(parse(passed_on.collect()), options);
        // A list is passed on as one option for each.
        assert_eq!(options.words().len(), line.split_whitespace().count());
        let nothing = DaemonOptions::default();
        assert_eq!(nothing.clone().or(options.clone()), options, "each is taken from the others");
        assert_eq!(options.clone().or(nothing), options);
    }
}
