//! What a lab is asked to be, checked before anything is made.

use crate::record::address;
use anyhow::{Context, Result, bail, ensure};
use kernel::features::Without;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use wire::ids::NodeId;

/// Nodes of one lab: more would not tell anything new on one machine.
pub const NODES_MAX: u32 = 64;
const NAME_CHARS_MAX: usize = 20;
/// Relative speeds further apart than this cannot be kept by quotas.
const SPEED_RATIO_MAX: f64 = 100.0;

/// Names one lab of this user: a path component and a cgroup name, so only plain characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

impl LabName {
    /// The name of a lab that nobody named.
    pub const DEFAULT: &str = "lab";

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LabName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<LabName> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.len() <= NAME_CHARS_MAX
            && text.chars().all(is_plain);
        if !is_name {
            bail!(
                "`{text}` is not a lab name: a small letter, then small letters, digits and \
                 dashes, {NAME_CHARS_MAX} characters at most"
            );
        }
        Ok(LabName(text.to_owned()))
    }
}

impl TryFrom<String> for LabName {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<LabName> {
        text.parse()
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> String {
        name.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a link carries in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub bits_per_s: u64,
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    /// `1gbit`, `100mbit`, `64kbit`: units as in tc(8).
    fn from_str(text: &str) -> Result<Rate> {
        let units = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
        let bits_per_s = number_with_unit(text, &units)
            .with_context(|| format!("`{text}` is not a link rate such as 1gbit or 100mbit"))?;
        ensure!(
            (64_000..=400_000_000_000).contains(&bits_per_s),
            "a link rate of {text} is outside 64kbit..400gbit"
        );
        Ok(Rate { bits_per_s })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits_per_s {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits => write!(f, "{bits}bit"),
        }
    }
}

/// How much memory the processes of one node may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySize {
    pub bytes: u64,
}

impl FromStr for MemorySize {
    type Err = anyhow::Error;

    /// `512m`, `2g`, or plain bytes; units are powers of 1024.
    fn from_str(text: &str) -> Result<MemorySize> {
        let units = [("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10), ("", 1)];
        let bytes = number_with_unit(text, &units)
            .with_context(|| format!("`{text}` is not a memory size such as 512m or 2g"))?;
        ensure!(
            bytes >= 16 << 20,
            "a node with {text} of memory cannot run its daemon: 16m or more"
        );
        Ok(MemorySize { bytes })
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            bytes if bytes % (1 << 30) == 0 => write!(f, "{}g", bytes >> 30),
            bytes if bytes % (1 << 20) == 0 => write!(f, "{}m", bytes >> 20),
            bytes => write!(f, "{bytes}"),
        }
    }
}

fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A lab as it was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub name: LabName,
    /// One relative speed for each node: 0.5 is half as fast as 1.
    pub speeds: Vec<f64>,
    /// False leaves every node the whole machine, whatever its speed: for latencies.
    pub is_cpu_limited: bool,
    /// Limit of each node's link, in each direction.
    pub link: Option<Rate>,
    /// Limit of each node's memory.
    pub memory: Option<MemorySize>,
    /// Start the osmos daemon in every node and wait until all see each other.
    pub has_daemons: bool,
    /// Paths of the machine that every node sees read-only, even where its own /tmp or /home is.
    pub shared: Vec<PathBuf>,
    /// The osmos program, which is also what keeps the lab.
    pub osmos: PathBuf,
    /// What its daemons have to do without; of one of them where its number and a colon come first.
    #[serde(default)]
    pub without: Vec<String>,
    /// Part of the machine that nodes may use together.
    #[serde(default = "machine_share")]
    pub machine_share: f64,
    /// Speed of one core as daemons are told; what a node has of it they see in their cgroup.
    #[serde(default = "core_speed")]
    pub core_speed: f64,
    /// Its nodes have one administrator, and what runs in it is mostly his: root's processes leave
    /// home and run as root elsewhere.
    #[serde(default)]
    pub trusts_root: bool,
    /// The policy by which its daemons balance, if not their own.
    #[serde(default)]
    pub policy: Option<String>,
    /// How long its supervisors wait for another daemon, if not as long as they do by themselves.
    #[serde(default)]
    pub succession_patience_s: Option<u64>,
    /// What users run on a node, and guests, have one processor there, shared fairly. A quota alone
    /// bounds what they get together: of three on two processors one gets as much as two.
    #[serde(default)]
    pub has_one_core_each: bool,
    /// Machines that are no nodes of the lab but are plugged into its switch (`Switch::plug`): the
    /// cluster's map has them, with the addresses that follow those of the nodes.
    #[serde(default)]
    pub machines: u32,
}

/// What is left is for daemons, for the halves of processes that are away, and for the machine
/// itself. With a tenth, thirteen programs that read and wrote files at home used up both of two
/// processors, and no node had the speed that was asked for.
fn machine_share() -> f64 {
    0.85
}

fn core_speed() -> f64 {
    1.0
}

impl Spec {
    /// `nodes` equal nodes with daemons, links and memory unlimited, kept by this very program.
    pub fn new(name: LabName, nodes: u32) -> Result<Spec> {
        let osmos = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Spec {
            name,
            speeds: vec![1.0; nodes as usize],
            is_cpu_limited: true,
            link: None,
            memory: None,
            has_daemons: true,
            shared: Vec::new(),
            osmos,
            without: Vec::new(),
            machine_share: machine_share(),
            core_speed: core_speed(),
            policy: None,
            trusts_root: true,
            succession_patience_s: None,
            has_one_core_each: false,
            machines: 0,
        })
    }

    /// The same of another osmos program, whose nodes have the whole machine each: for trials, and
    /// for latencies.
    pub fn unlimited(osmos: &Path, name: &str, nodes: u32) -> Result<Spec> {
        let osmos = osmos.to_owned();
        Ok(Spec { osmos, is_cpu_limited: false, ..Spec::new(name.parse()?, nodes)? })
    }

    pub fn check(&self) -> Result<()> {
        let count = self.speeds.len();
        ensure!(
            (1..=NODES_MAX as usize).contains(&count),
            "a lab has 1 to {NODES_MAX} nodes, not {count}"
        );
        ensure!(
            count + self.machines as usize <= NODES_MAX as usize,
            "{count} nodes and {} machines are too many for one switch: up to {NODES_MAX}",
            self.machines
        );
        for speed in &self.speeds {
            ensure!(speed.is_finite() && *speed > 0.0, "{speed} is not a speed: say more than 0");
        }
        let fastest = self.fastest();
        let slowest = self.speeds.iter().copied().fold(fastest, f64::min);
        ensure!(
            fastest / slowest <= SPEED_RATIO_MAX,
            "speeds {slowest} and {fastest} are more than {SPEED_RATIO_MAX} times apart"
        );
        let share = self.machine_share;
        ensure!(
            share > 0.0 && share <= 1.0,
            "{share} is no part of a machine: more than 0, up to 1"
        );
        for word in &self.without {
            without_of(word).1.parse::<Without>()?;
        }
        for path in &self.shared {
            ensure!(path.is_absolute(), "cannot share `{}`: say its full path", path.display());
            ensure!(path.exists(), "cannot share `{}`: it does not exist", path.display());
        }
        Ok(())
    }

    /// What a node's daemon has to do without.
    pub fn without(&self, node: NodeId) -> impl Iterator<Item = &str> {
        let all = self.without.iter().map(|word| without_of(word));
        all.filter(move |(of, _)| of.is_none_or(|of| of == node.0)).map(|(_, word)| word)
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.speeds.len() as u32).map(NodeId)
    }

    /// Members of the cluster: the nodes, and the machines plugged in beside them.
    pub fn members(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.speeds.len() as u32 + self.machines).map(NodeId)
    }

    /// The classic map of the cluster, the same for every member.
    pub fn map(&self) -> String {
        format!("1 {} {}\n", address(NodeId(1)), self.members().count())
    }

    /// The relative speed of a node of this lab.
    pub fn speed(&self, node: NodeId) -> f64 {
        self.speeds[node.0 as usize - 1]
    }

    fn fastest(&self) -> f64 {
        self.speeds.iter().copied().fold(0.0, f64::max)
    }

    /// Cores that a node of speed 1 gets on a machine with `cores`.
    ///
    /// All nodes together fit the machine, so that quotas decide and not the scheduler; and none
    /// gets more than one core, because then one process would not feel its node's speed.
    pub fn cpu_scale(&self, cores: f64) -> f64 {
        let sum: f64 = self.speeds.iter().sum();
        f64::min(self.machine_share * cores / sum, 1.0 / self.fastest())
    }

    /// The node's own name for itself; labs beside the default one show theirs.
    pub fn host_name(&self, node: NodeId) -> String {
        match self.name.as_str() {
            LabName::DEFAULT => format!("node{node}"),
            name => format!("{name}-node{node}"),
        }
    }
}

/// The node, if it is one, and what it has to do without.
fn without_of(word: &str) -> (Option<u32>, &str) {
    let parts = word.split_once(':').and_then(|(node, rest)| Some((node.parse().ok()?, rest)));
    parts.map_or((None, word), |(node, rest)| (Some(node), rest))
}

#[cfg(test)]
mod test {
    use super::*;

    fn spec_of(speeds: &[f64]) -> Spec {
        let mut spec = Spec::new("lab".parse().unwrap(), 1).unwrap();
        spec.speeds = speeds.to_vec();
        spec
    }

    #[test]
    fn four_equal_nodes_share_85_percent_of_two_cores() {
        assert!((spec_of(&[1.0; 4]).cpu_scale(2.0) - 0.425).abs() < 1e-9);
    }

    #[test]
    fn machines_beside_the_nodes_are_members_too() {
        let spec = Spec { machines: 2, ..spec_of(&[1.0]) };
        assert_eq!(spec.map(), "1 10.77.0.1 3\n");
        assert_eq!((spec.nodes().count(), spec.members().last()), (1, Some(NodeId(3))));
        Spec { machines: NODES_MAX, ..spec }.check().unwrap_err();
    }

    #[test]
    fn no_node_gets_more_than_one_core_of_a_large_machine() {
        assert_eq!(spec_of(&[2.0, 1.0]).cpu_scale(64.0), 0.5);
    }

    #[test]
    fn speeds_that_quotas_cannot_keep_are_refused() {
        for speeds in [&[][..], &[0.0], &[-1.0], &[f64::NAN], &[f64::INFINITY], &[1.0, 0.001]] {
            assert!(spec_of(speeds).check().is_err(), "{speeds:?} was accepted");
        }
        spec_of(&[1.0, 0.25]).check().unwrap();
    }

    #[test]
    fn names_are_safe_as_path_components() {
        for name in ["", "..", "a/b", "A", "1a", "a b", "aaaaaaaaaaaaaaaaaaaaa", "-a"] {
            assert!(name.parse::<LabName>().is_err(), "{name:?} was accepted");
            assert!(serde_json::from_value::<LabName>(name.into()).is_err());
        }
        assert_eq!("storm-7".parse::<LabName>().unwrap().as_str(), "storm-7");
    }

    #[test]
    fn rates_and_sizes_are_read_and_written_alike() {
        for text in ["1gbit", "100mbit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["512m", "2g"] {
            assert_eq!(text.parse::<MemorySize>().unwrap().to_string(), text);
        }
        assert_eq!("64kbit".parse::<Rate>().unwrap().bits_per_s, 64_000);
        for text in ["", "gbit", "1", "1mb", "-1mbit", "1bit", "99999999999999gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text:?} was accepted");
        }
        for text in ["", "m", "1x", "1k", "99999999999g"] {
            assert!(text.parse::<MemorySize>().is_err(), "{text:?} was accepted");
        }
    }
}
