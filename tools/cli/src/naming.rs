//! Nodes as users say them: by number or by name.
//!
//! The daemon's protocol has numbers only. A name is looked up here, in what the daemon lists, when
//! a command has one; a number is passed on as it is, and asks nothing of anybody.

use crate::output;
use anyhow::{Result, bail};
use client::Client;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use wire::control::{Destination, Node};
use wire::ids::NodeId;
use wire::node_name::NodeName;
use wire::users::{Borrowers, LEND_TO_MAX};

/// Nodes that a complaint lists.
const LISTED_MAX: usize = 16;
/// A daemon that says nothing for so long is not waited for, to have names.
const NAMES_PATIENCE: Duration = Duration::from_secs(1);

/// A node, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChoice {
    Number(NodeId),
    Name(NodeName),
}

/// Where a process is to go, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationChoice {
    Home,
    Best,
    Node(NodeChoice),
}

/// Nodes that own processes may go to, as they were typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BorrowersChoice {
    numbered: Borrowers,
    named: Vec<NodeName>,
}

/// Who can say which nodes there are.
pub trait Nodes {
    fn nodes(&mut self) -> Result<Vec<Node>>;
}

impl Nodes for Client {
    fn nodes(&mut self) -> Result<Vec<Node>> {
        Ok(Client::nodes(self)?)
    }
}

/// Nodes are numbered from 1, as in mosix.map.
pub fn node_id(word: &str) -> Result<NodeId, String> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
    match word.parse::<u32>() {
        Ok(number) if number > 0 && is_plain => Ok(NodeId(number)),
        _ => Err(format!("`{word}` is no node number; `osmos nodes` lists them")),
    }
}

/// What this node is to be called.
pub fn node_name(word: &str) -> Result<NodeName, String> {
    word.parse::<NodeName>().map_err(|error| error.to_string())
}

pub fn node(word: &str) -> Result<NodeChoice, String> {
    word.parse()
}

pub fn destination(word: &str) -> Result<DestinationChoice, String> {
    match word {
        "home" => Ok(DestinationChoice::Home),
        "best" => Ok(DestinationChoice::Best),
        _ => node(word).map(DestinationChoice::Node).map_err(|_| {
            format!(
                "`{word}` is neither a node, by number or name, nor `home` or `best`; see \
                 `osmos nodes`"
            )
        }),
    }
}

/// `2,5-7,delta`, or `all`.
pub fn borrowers(text: &str) -> Result<BorrowersChoice, String> {
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    for word in text.split(',') {
        match word.parse::<NodeName>() {
            Ok(name) => named.push(name),
            Err(_) => rest.push(word),
        }
    }
    let numbered = match rest.is_empty() {
        true => Some(Borrowers::Only(Vec::new())),
        false => Borrowers::parse(&rest.join(",")).ok(),
    };
    match numbered {
        Some(numbered) if named.is_empty() || numbered != Borrowers::All => {
            Ok(BorrowersChoice { numbered, named })
        }
        _ => Err(format!(
            "`{text}` is neither `all` nor nodes: numbers, ranges `N-M` and names, {LEND_TO_MAX} \
             nodes at most"
        )),
    }
}

impl FromStr for NodeChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<NodeChoice, String> {
        let number = node_id(word).map(NodeChoice::Number);
        number.or_else(|_| word.parse().map(NodeChoice::Name)).map_err(|_| {
            format!("`{word}` is neither a node's number nor its name; `osmos nodes` lists both")
        })
    }
}

impl fmt::Display for NodeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeChoice::Number(node) => node.fmt(f),
            NodeChoice::Name(name) => name.fmt(f),
        }
    }
}

impl NodeChoice {
    pub fn find(&self, among: &mut impl Nodes) -> Result<NodeId> {
        match self {
            NodeChoice::Number(node) => Ok(*node),
            NodeChoice::Name(name) => look_up(name, &among.nodes()?),
        }
    }
}

impl DestinationChoice {
    pub fn find(&self, among: &mut impl Nodes) -> Result<Destination> {
        Ok(match self {
            DestinationChoice::Home => Destination::Home,
            DestinationChoice::Best => Destination::Best,
            DestinationChoice::Node(node) => Destination::Node(node.find(among)?),
        })
    }
}

impl fmt::Display for BorrowersChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = self.numbered.to_string();
        let named = self.named.iter().map(NodeName::to_string);
        let words: Vec<String> =
            named.chain([numbered].into_iter().filter(|words| !words.is_empty())).collect();
        f.write_str(&words.join(","))
    }
}

impl BorrowersChoice {
    pub fn find(self, among: &mut impl Nodes) -> Result<Borrowers> {
        let Borrowers::Only(mut found) = self.numbered else { return Ok(Borrowers::All) };
        if !self.named.is_empty() {
            let nodes = among.nodes()?;
            for name in &self.named {
                found.push(look_up(name, &nodes)?);
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(Borrowers::Only(found))
    }
}

/// The one node that can be meant.
fn look_up(name: &NodeName, nodes: &[Node]) -> Result<NodeId> {
    let is_meant = |node: &Node| name_of(node).is_some_and(|known| known.is_meant_by(name));
    let found: Vec<&Node> = nodes.iter().filter(|node| is_meant(node)).collect();
    match found[..] {
        [node] => Ok(node.id),
        [] => {
            let all: Vec<&Node> = nodes.iter().collect();
            bail!("there is no node `{name}`; there are {}", listed(&all))
        }
        _ => bail!("`{name}` may be any of nodes {}: say the number", listed(&found)),
    }
}

/// What a daemon says is checked like everything else.
fn name_of(node: &Node) -> Option<NodeName> {
    node.name.as_ref()?.parse().ok()
}

/// `1 (alpha), 2 (beta, gone), 3`
pub fn listed(nodes: &[&Node]) -> String {
    let mut parts: Vec<String> = nodes.iter().take(LISTED_MAX).map(|node| one(node)).collect();
    match nodes.len().saturating_sub(LISTED_MAX) {
        0 => {}
        more => parts.push(format!("and {more} more (`osmos nodes`)")),
    }
    parts.join(", ")
}

fn one(node: &Node) -> String {
    let status = (node.status != "alive").then(|| output::printable(&node.status));
    let told: Vec<String> = name_of(node).map(String::from).into_iter().chain(status).collect();
    match told.is_empty() {
        true => node.id.to_string(),
        false => format!("{} ({})", node.id, told.join(", ")),
    }
}

/// `node 3 (delta)`, or `node 3` where it has no name.
pub fn called(node: NodeId, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("node {node} ({})", output::printable(name)),
        None => format!("node {node}"),
    }
}

/// What nodes are called. They are shown by their numbers only if nobody says.
pub struct Called(Vec<Node>);

impl Called {
    /// All by their numbers.
    pub fn nobody() -> Called {
        Called(Vec::new())
    }

    pub fn asked(among: &mut impl Nodes) -> Called {
        Called(among.nodes().unwrap_or_default())
    }

    pub fn node(&self, node: NodeId) -> String {
        called(node, self.name(node))
    }

    /// `delta`, or `3` where it has no name: for columns.
    pub fn short(&self, node: NodeId) -> String {
        self.name(node).map_or_else(|| node.to_string(), output::printable)
    }

    fn name(&self, node: NodeId) -> Option<&str> {
        self.0.iter().find(|known| known.id == node)?.name.as_deref()
    }

    /// A text of a daemon, which speaks of nodes by their numbers alone: where it says `node 3` the
    /// name is put behind it.
    pub fn spelled(&self, text: &str) -> String {
        const NODE: &str = "node ";
        let mut spelled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(NODE) {
            let is_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric());
            let (before, behind) = rest.split_at(at + NODE.len());
            let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let (number, after) = behind.split_at(digits);
            spelled.push_str(before);
            spelled.push_str(number);
            rest = after;
            let name = number.parse().ok().and_then(|number| self.name(NodeId(number)));
            let name = name.map(|name| format!(" ({})", output::printable(name)));
            if let Some(name) = name.filter(|name| is_word && !after.starts_with(name)) {
                spelled.push_str(&name);
            }
        }
        spelled + rest
    }

    /// A refusal of a daemon in the same way; all other errors as they are.
    pub fn spelled_error(socket: &Path, error: anyhow::Error) -> anyhow::Error {
        let Some(client::Error::Refused(failure)) = error.downcast_ref::<client::Error>() else {
            return error;
        };
        let Ok(mut client) = Client::connect(socket) else { return error };
        if !failure.text.contains("node ") || client.set_patience(NAMES_PATIENCE).is_err() {
            return error;
        }
        anyhow::anyhow!("{}", Called::asked(&mut client).spelled(&failure.text))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use wire::control::CpuFit;

    /// A cluster that is asked as often as this, and no more.
    pub struct Told {
        pub nodes: Vec<Node>,
        pub questions: u32,
    }

    impl Nodes for Told {
        fn nodes(&mut self) -> Result<Vec<Node>> {
            assert!(self.questions > 0, "nobody had to be asked");
            self.questions -= 1;
            Ok(self.nodes.clone())
        }
    }

    /// Of a cluster that nobody has to ask.
    pub fn unasked() -> Told {
        Told { nodes: Vec::new(), questions: 0 }
    }

    pub fn listed_node(id: u32, name: Option<&str>) -> Node {
        Node {
            id: NodeId(id),
            address: "10.0.0.1:7780".into(),
            status: "alive".into(),
            cores: 1.0,
            speed: 1.0,
            load: 0.0,
            mem_total_bytes: 1 << 30,
            mem_free_bytes: 1 << 29,
            info_age_s: 0.0,
            takes_guests: true,
            cpu: CpuFit::Fits,
            cpu_reason: None,
            move_limits: Default::default(),
            name: name.map(str::to_owned),
            bytes_per_s: None,
        }
    }

    fn found(word: &str, names: &[&str]) -> Result<NodeId> {
        let nodes = (1..).zip(names).map(|(id, name)| listed_node(id, Some(*name))).collect();
        node(word).expect(word).find(&mut Told { nodes, questions: 1 })
    }

    fn complaint(word: &str, names: &[&str]) -> String {
        found(word, names).expect_err(word).to_string()
    }

    #[test]
    fn numbers_in_what_a_daemon_says_get_their_names() {
        let nodes =
            [listed_node(1, Some("one")), listed_node(12, None), listed_node(2, Some("t\x1b"))];
        let called = Called(nodes.into());
        for (said, spelled) in [
            ("node 1 is faster", "node 1 (one) is faster"),
            ("from node 1 to node 2", "from node 1 (one) to node 2 (t?)"),
            ("node 12 and node 3", "node 12 and node 3"),
            ("lost with node 1: it broke", "lost with node 1 (one): it broke"),
            ("node 1 (one) is up", "node 1 (one) is up"),
            ("node 1 (2 runnable)", "node 1 (one) (2 runnable)"),
            ("no better node is", "no better node is"),
            ("supernode 1, node", "supernode 1, node"),
            ("node 99999999999", "node 99999999999"),
        ] {
            assert_eq!(called.spelled(said), spelled);
        }
        assert_eq!([1, 12].map(|node| called.short(NodeId(node))), ["one", "12"]);
    }

    #[test]
    fn a_number_asks_nobody_and_is_not_looked_for() {
        assert_eq!(node("7").unwrap().find(&mut unasked()).unwrap(), NodeId(7));
        assert_eq!(destination("7").unwrap().find(&mut unasked()).unwrap(), to(7));
        let only = Borrowers::Only([2, 5, 6].map(NodeId).into());
        assert_eq!(borrowers("5-6,2").unwrap().find(&mut unasked()).unwrap(), only);
        assert_eq!(borrowers("all").unwrap().find(&mut unasked()).unwrap(), Borrowers::All);
    }

    fn to(number: u32) -> Destination {
        Destination::Node(NodeId(number))
    }

    #[test]
    fn a_node_number_starts_at_one() {
        assert_eq!(node_id("1"), Ok(NodeId(1)));
        for word in ["0", "-1", "+2", "x", "", "4294967296"] {
            assert!(node_id(word).is_err(), "{word:?} was accepted");
        }
    }

    #[test]
    fn what_is_neither_number_nor_name_is_refused_before_anybody_is_asked() {
        for word in ["0", "-1", "+2", "", "home", "best", "all", "5-7", "a b", "a\n"] {
            assert!(node(word).is_err(), "{word:?} was accepted");
        }
    }

    #[test]
    fn a_destination_is_a_node_home_or_best() {
        assert_eq!(destination("home"), Ok(DestinationChoice::Home));
        assert_eq!(destination("best"), Ok(DestinationChoice::Best));
        let nodes = vec![listed_node(7, Some("delta"))];
        let delta = destination("delta").unwrap();
        assert_eq!(delta.find(&mut Told { nodes, questions: 1 }).unwrap(), to(7));
        assert!(destination("all").unwrap_err().contains("`all` is neither"));
    }

    #[test]
    fn a_node_is_found_by_its_name_or_the_beginning_of_it_if_only_one_can_be_meant() {
        let names = ["delta.a.org", "echo.a.org", "echo.b.org", "fox", "fox.b.org"];
        for (word, number) in [("delta", 1), ("DELTA.A.org", 1), ("echo.b", 3), ("fox.b", 5)] {
            assert_eq!(found(word, &names).unwrap(), NodeId(number), "{word}");
        }
        assert_eq!(
            complaint("echo", &names),
            "`echo` may be any of nodes 2 (echo.a.org), 3 (echo.b.org): say the number"
        );
        // Whoever is called `fox` does not get what was meant for another.
        assert!(complaint("fox", &names).contains("any of nodes 4 (fox), 5 (fox.b.org)"));
        assert!(complaint("fox", &["fox", "Fox"]).contains("any of nodes 1 (fox), 2 (Fox)"));
    }

    #[test]
    fn a_name_that_nobody_has_is_answered_by_those_there_are() {
        let mut nodes = vec![listed_node(1, Some("alpha")), listed_node(2, None)];
        nodes.push(Node { status: "gone".into(), ..listed_node(3, Some("beta")) });
        let mut told = Told { nodes, questions: 1 };
        assert_eq!(
            node("gamma").unwrap().find(&mut told).unwrap_err().to_string(),
            "there is no node `gamma`; there are 1 (alpha), 2, 3 (beta, gone)"
        );
        let many = vec!["same"; 1_000];
        for word in ["same", "other"] {
            let complaint = complaint(word, &many);
            assert!(complaint.contains("16 (same), and 984 more (`osmos nodes`)"), "{complaint}");
            assert!(complaint.len() < 400, "{complaint}");
        }
    }

    #[test]
    fn what_is_no_name_is_neither_found_nor_shown() {
        let complaint = complaint("a", &["a\u{1b}[2J", "home", "x y"]);
        assert_eq!(complaint, "there is no node `a`; there are 1, 2, 3");
        let hostile = called(NodeId(3), Some("a\u{1b}[2J"));
        assert_eq!(hostile, "node 3 (a?[2J)");
        assert_eq!(called(NodeId(3), None), "node 3");
    }

    #[test]
    fn nodes_to_lend_to_may_be_named_among_numbers() {
        let nodes = vec![listed_node(3, Some("delta")), listed_node(6, Some("echo"))];
        let mut told = Told { nodes, questions: 1 };
        let choice = borrowers("echo,5-7,delta,2").unwrap();
        let only = Borrowers::Only([2, 3, 5, 6, 7].map(NodeId).into());
        assert_eq!(choice.find(&mut told).unwrap(), only);
        for text in ["", "0", "3-2", "all,delta", "delta,all", "delta,", "delta,4-2", "a b"] {
            assert!(borrowers(text).is_err(), "{text:?} was accepted");
        }
    }
}
