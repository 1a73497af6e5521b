//! How processes are named and chosen on the command line.

use crate::arguments::Listing;
use crate::naming::{NodeChoice, Nodes, node};
use crate::values::delay;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use wire::control::Request;
use wire::ids::{GlobalPid, HomePid, NodeId};

/// A process, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessChoice {
    /// None: this node's.
    node: Option<NodeChoice>,
    pid: i32,
}

impl ProcessChoice {
    pub fn find(&self, among: &mut impl Nodes) -> Result<ProcessName> {
        let node = self.node.as_ref().map(|node| node.find(among)).transpose()?;
        Ok(ProcessName { node, pid: self.pid })
    }
}

/// A process as its home calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessName {
    /// None: this node.
    pub node: Option<NodeId>,
    pub pid: i32,
}

impl ProcessName {
    /// `here`: this node.
    pub fn global(self, here: NodeId) -> GlobalPid {
        GlobalPid { home: self.node.unwrap_or(here), pid: HomePid(self.pid) }
    }

    /// What is asked of the daemon here, so that the right node answers.
    pub fn ask(self, request: impl FnOnce(i32) -> Request) -> Request {
        let request = request(self.pid);
        match self.node {
            Some(node) => Request::At { node, request: Box::new(request) },
            None => request,
        }
    }
}

impl FromStr for ProcessChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<ProcessChoice, String> {
        let (home, number) = match word.split_once(':') {
            Some((home, pid)) => (Some(node(home)?), pid),
            None => (None, word),
        };
        match number.parse() {
            Ok(pid) if pid > 0 => Ok(ProcessChoice { node: home, pid }),
            _ => Err(format!("`{word}` is no process: PID, or HOME:PID as `osmos ps --all` shows")),
        }
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{node}:{}", self.pid),
            None => write!(f, "{}", self.pid),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct PsOptions {
    /// Those of all nodes, not only those that were born here or are guests here
    #[arg(long, short)]
    pub all: bool,
    /// Only those of this user, by his name at their home or his number
    #[arg(long, short, value_name = "USER")]
    pub user: Option<String>,
    /// Only those that run on this node, by number or name
    #[arg(long, value_name = "NODE", value_parser = node)]
    pub node: Option<NodeChoice>,
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = ["running", "moving", "pinned"])]
    pub state: Option<String>,
    /// Only those whose command line contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub command: Option<String>,
    /// Only those of this job: PID of its launcher, or NODE:PID
    #[arg(long, value_name = "JOB")]
    pub job: Option<ProcessChoice>,
    /// In which order
    #[arg(long, value_name = "KEY", value_enum, default_value_t = PsKey::Pid)]
    pub sort: PsKey,
    /// In the opposite order
    #[arg(long, short)]
    pub reverse: bool,
    /// Again every S seconds (1 if not given), until interrupted
    #[arg(long, short, value_name = "S", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = delay)]
    pub watch: Option<Duration>,
    #[command(flatten)]
    pub listing: Listing,
}

impl PsOptions {
    /// The processes of a job on all nodes, again and again.
    pub fn of_job(job: GlobalPid) -> PsOptions {
        PsOptions {
            all: true,
            user: None,
            node: None,
            state: None,
            command: None,
            job: Some(ProcessChoice { node: Some(NodeChoice::Number(job.home)), pid: job.pid.0 }),
            sort: PsKey::Pid,
            reverse: false,
            watch: Some(Duration::from_secs(1)),
            listing: Listing::default(),
        }
    }
}

/// By what `ps` sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PsKey {
    Pid,
    Home,
    Node,
    User,
    /// Processor time, most first
    Cpu,
    /// Most first
    Memory,
    /// Most first
    Moves,
    Command,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::tests::listed_node;
    use wire::control::Node;

    struct Listed;

    impl Nodes for Listed {
        fn nodes(&mut self) -> Result<Vec<Node>> {
            Ok(vec![listed_node(4, Some("delta"))])
        }
    }

    #[test]
    fn a_process_is_named_by_its_pid_and_by_its_home_if_that_is_another_node() {
        let name = |word: &str| {
            let choice = word.parse::<ProcessChoice>()?;
            choice.find(&mut Listed).map_err(|error| error.to_string())
        };
        assert_eq!(name("4711"), Ok(ProcessName { node: None, pid: 4711 }));
        assert_eq!(name("3:4711"), Ok(ProcessName { node: Some(NodeId(3)), pid: 4711 }));
        assert_eq!(name("delta:4711"), Ok(ProcessName { node: Some(NodeId(4)), pid: 4711 }));
        assert!(name("gamma:4711").unwrap_err().contains("there is no node `gamma`"));
        for word in ["", "0", "-1", "x", "3:", ":7", "0:7", "3:0", "3:7:8", "4294967296"] {
            assert!(name(word).is_err(), "{word:?} was accepted");
        }
        let asked = name("3:7").unwrap().ask(|pid| Request::Why { pid });
        let of = Box::new(Request::Why { pid: 7 });
        assert_eq!(asked, Request::At { node: NodeId(3), request: of });
        assert_eq!(name("7").unwrap().ask(|pid| Request::Why { pid }), Request::Why { pid: 7 });
    }
}
