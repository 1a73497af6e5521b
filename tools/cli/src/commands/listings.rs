//! `nodes` and `events`: what the daemon knows, for people or (`--json`) for programs.

use super::moves;
use crate::arguments::Listing;
use crate::naming::{self, Called, NodeChoice, node};
use crate::output::{self, Align, Cell, Colour, Table};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use client::Client;
use client::events::Told;
use serde::Serialize;
use wire::control::{CpuFit, Event, Happening, Node, Reply, Request};
use wire::ids::NodeId;

/// Characters of a load bar in `nodes`.
const BAR_COLUMNS: usize = 20;

#[derive(Clone, Debug, Default, Args)]
pub struct NodesOptions {
    /// Only these, by number or name
    #[arg(value_name = "NODE", value_parser = node)]
    pub nodes: Vec<NodeChoice>,
    /// Only this node
    #[arg(long, conflicts_with = "nodes")]
    pub here: bool,
    /// Print this alone, a line for each node
    #[arg(long, value_name = "COLUMN", conflicts_with = "json")]
    pub column: Option<Column>,
    #[command(flatten)]
    pub listing: Listing,
}

/// What can be said of a node by itself, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Number,
    Name,
    Address,
    Status,
    Cores,
    Speed,
    Load,
    /// Memory, in bytes
    Memory,
    /// Free memory, in bytes
    Free,
}

impl Column {
    fn of(self, node: &Node) -> String {
        let text = match self {
            Column::Number => node.id.to_string(),
            Column::Name => node.name.clone().unwrap_or_default(),
            Column::Address => node.address.clone(),
            Column::Status => node.status.clone(),
            Column::Cores => node.cores.to_string(),
            Column::Speed => format!("{:.2}", node.speed),
            Column::Load => format!("{:.2}", node.load),
            Column::Memory => node.mem_total_bytes.to_string(),
            Column::Free => node.mem_free_bytes.to_string(),
        };
        output::printable(&text)
    }
}

pub fn nodes(client: &mut Client, options: &NodesOptions) -> Result<()> {
    let mut wanted: Vec<NodeId> =
        options.nodes.iter().map(|node| node.find(client)).collect::<Result<_>>()?;
    if options.here {
        wanted.push(super::membership::ask_status(client)?.node);
    }
    let nodes = chosen(client.nodes()?, &wanted)?;
    if options.listing.json {
        output::print_json(&nodes)?;
    } else if let Some(column) = options.column {
        let lines = nodes.iter().map(|node| column.of(node) + "\n");
        output::print_text(&lines.collect::<String>())?;
    } else {
        node_table(&nodes).print()?;
    }
    Ok(())
}

/// In the order in which they were asked for; all, if none was.
fn chosen(nodes: Vec<Node>, wanted: &[NodeId]) -> Result<Vec<Node>> {
    if wanted.is_empty() {
        return Ok(nodes);
    }
    let find = |id: &NodeId| {
        let found = nodes.iter().find(|node| node.id == *id).cloned();
        found.with_context(|| {
            let known: Vec<&Node> = nodes.iter().collect();
            format!("there is no node {id}; there are {}", naming::listed(&known))
        })
    };
    wanted.iter().map(find).collect()
}

pub fn events(client: Client, follow: bool, json: bool) -> Result<()> {
    let mut teller = Teller::new(client.another()?, json);
    for event in client.events(follow)? {
        teller.tell(None, &event?)?;
    }
    Ok(())
}

/// Of all nodes: those that were recorded, in the order of their times, then those to come.
pub fn events_everywhere(client: &mut Client, follow: bool, json: bool) -> Result<()> {
    let mut recorded: Vec<(NodeId, Event)> = Vec::new();
    let mut silent = Vec::new();
    client.everywhere(Request::Events { follow: false }, |node, said| {
        match said {
            Ok(Reply::Event(event)) => recorded.push((node, event)),
            Ok(_) => {}
            Err(failure) => silent.push(failure.text),
        }
        true
    })?;
    recorded.sort_by(|(_, one), (_, other)| one.time.total_cmp(&other.time));
    let mut teller = Teller::new(client.another()?, json);
    let mut told = Told::default();
    for (node, event) in &recorded {
        told.is_news(*node, event);
        teller.tell(Some(*node), event)?;
    }
    for text in &silent {
        eprintln!("osmos: {}", output::printable(&teller.called.spelled(text)));
    }
    if follow {
        return follow_everywhere(client, told, teller);
    }
    match silent.is_empty() {
        true => Ok(()),
        false => bail!("not all nodes have answered"),
    }
}

/// Nodes that join later are followed as well, and those that come back.
fn follow_everywhere(client: &mut Client, mut told: Told, mut teller: Teller) -> Result<()> {
    let mut outcome = Ok(());
    client.everywhere(Request::Events { follow: true }, |node, said| {
        outcome = match said {
            Ok(Reply::Event(event)) if told.is_news(node, &event) => {
                teller.tell(Some(node), &event)
            }
            Ok(_) => Ok(()),
            // It may come back: the others go on.
            Err(failure) => {
                eprintln!("osmos: {}", output::printable(&teller.called.spelled(&failure.text)));
                Ok(())
            }
        };
        outcome.is_ok()
    })?;
    outcome
}

/// Prints events, with the names that nodes have.
struct Teller {
    json: bool,
    client: Client,
    called: Called,
}

impl Teller {
    fn new(mut client: Client, json: bool) -> Teller {
        let called = if json { Called::nobody() } else { Called::asked(&mut client) };
        Teller { json, client, called }
    }

    /// `node`: which one says so, if several do.
    fn tell(&mut self, node: Option<NodeId>, event: &Event) -> Result<()> {
        match (self.json, node) {
            (true, None) => output::print_json(event)?,
            (true, Some(told_by)) => output::print_json(&ToldBy { told_by, event })?,
            (false, _) => {
                if matches!(event.what, Happening::NodeJoined { .. }) {
                    self.called = Called::asked(&mut self.client);
                }
                let by = node.map(|node| format!("{:>8}  ", self.called.short(node)));
                let line = self.called.spelled(&event_line(event));
                output::print_line(&(by.unwrap_or_default() + &line))?;
            }
        }
        Ok(())
    }
}

/// An event, and the node that has recorded it.
#[derive(Serialize)]
struct ToldBy<'a> {
    told_by: NodeId,
    #[serde(flatten)]
    event: &'a Event,
}

fn node_table(nodes: &[Node]) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Right),
        ("NAME", Align::Left),
        ("ADDRESS", Align::Left),
        ("STATUS", Align::Left),
        ("CORES", Align::Right),
        ("SPEED", Align::Right),
        ("LOAD", Align::Right),
        ("", Align::Left),
        ("MEMORY", Align::Right),
        ("FREE", Align::Right),
        ("GUESTS", Align::Left),
        ("CPU", Align::Left),
        ("AGE", Align::Right),
    ]);
    // Bars are compared with each other, and one process a core is never a full bar by itself.
    let full = nodes.iter().map(|node| node.load).fold(2.0, f64::max);
    for node in nodes {
        let colour = match node.status.as_str() {
            "alive" => Colour::Green,
            "suspect" => Colour::Yellow,
            _ => Colour::Red,
        };
        table.row(vec![
            Cell::new(node.id.to_string()),
            Cell::new(node.name.as_deref().unwrap_or("-")),
            Cell::new(&node.address),
            Cell::coloured(&node.status, colour),
            Cell::new(format!("{:.1}", node.cores)),
            Cell::new(format!("{:.2}", node.speed)),
            Cell::new(format!("{:.2}", node.load)),
            Cell::new(output::bar(node.load / full, BAR_COLUMNS)),
            Cell::new(output::bytes(node.mem_total_bytes)),
            Cell::new(output::bytes(node.mem_free_bytes)),
            Cell::new(if node.takes_guests { "yes" } else { "no" }),
            Cell::coloured(node.cpu.word(), cpu_colour(node.cpu)),
            Cell::new(output::seconds(node.info_age_s)),
        ]);
    }
    table
}

fn cpu_colour(fit: CpuFit) -> Colour {
    match fit {
        CpuFit::Fits | CpuFit::Unknown => Colour::Plain,
        CpuFit::Baseline => Colour::Yellow,
    }
}

/// `14:03:27.120  1:4711  came home: ...`; the time is UTC.
fn event_line(event: &Event) -> String {
    let process = event.pid.map(|pid| format!("{pid}  ")).unwrap_or_default();
    output::printable(&format!("{}  {process}{}", output::clock(event.time), told(&event.what)))
}

pub fn told(what: &Happening) -> String {
    match what {
        Happening::Managed { command } => format!("managed: {command}"),
        Happening::Ended { wait_status } => ended(*wait_status),
        Happening::Migrated(migration) => moves::sentence(migration),
        Happening::Filled(filled) => moves::filled(filled),
        Happening::CameHome { reason } => format!("came home: {}", reason.text),
        Happening::UsedAway { away_s } => wire::control::used_away(*away_s),
        Happening::Stayed { reason } => format!("stayed: {}", reason.text),
        Happening::Lost { node, reason } => format!("lost with node {node}: {}", reason.text),
        Happening::Homecalls { counts } => {
            let counts: Vec<String> =
                counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            format!("calls that went home: {}", counts.join(", "))
        }
        Happening::NodeJoined { node, address } => format!("node {node} joined from {address}"),
        Happening::NodeForgotten { node, reason } => {
            format!("node {node} belongs to the cluster no more: {reason}")
        }
        Happening::SecretRenewed { generation } => {
            format!("the cluster has another secret, its {}th", generation + 1)
        }
        Happening::ActedOn { uid, by_node, act } => {
            let from = by_node.map(|node| format!(" on node {node}")).unwrap_or_default();
            format!("user {uid}{from} did to it: {act}")
        }
        Happening::NodeStatus { node, status } => format!("node {node} is {status}"),
        Happening::Owned(state) => {
            format!("the owner decided: {}", super::owner::settings(state).join("; "))
        }
        Happening::Rejected { address, reason } => format!("rejected {address}: {reason}"),
    }
}

/// A wait status in words, as a shell would put it.
fn ended(wait_status: Option<i32>) -> String {
    match wait_status {
        None => "ended".to_string(),
        Some(status) if status & 0x7f == 0 => format!("ended with status {}", status >> 8 & 0xff),
        Some(status) => format!("ended by signal {}", status & 0x7f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::tests::listed_node;
    use wire::ids::{GlobalPid, HomePid};
    use wire::supervisor::Reason;

    #[test]
    fn the_busiest_node_has_the_longest_bar() {
        let node = |id, load| Node { load, ..listed_node(id, None) };
        let text = node_table(&[node(1, 8.0), node(2, 4.0), node(3, 0.0)]).render(false);
        let bars: Vec<usize> = text.lines().skip(1).map(|l| l.matches('█').count()).collect();
        assert_eq!(bars, [BAR_COLUMNS, BAR_COLUMNS / 2, 0]);
    }

    #[test]
    fn a_node_is_shown_with_its_name_or_without() {
        let names = [Some("delta"), None, Some("a\x1b[2J")];
        let nodes = (1..).zip(names).map(|(id, name)| listed_node(id, name));
        let text = node_table(&nodes.collect::<Vec<_>>()).render(false);
        let shown: Vec<&str> =
            text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(shown, ["NAME", "delta", "-", "a?[2J"]);
    }

    #[test]
    fn some_nodes_are_listed_in_the_order_asked_for_and_others_refused() {
        let all = || (1..=3).map(|id| listed_node(id, None)).collect::<Vec<Node>>();
        let ids = |wanted: &[NodeId]| {
            let nodes = chosen(all(), wanted).map_err(|error| error.to_string())?;
            Ok::<Vec<u32>, String>(nodes.iter().map(|node| node.id.0).collect())
        };
        assert_eq!(ids(&[]), Ok(vec![1, 2, 3]));
        assert_eq!(ids(&[NodeId(3), NodeId(1)]), Ok(vec![3, 1]));
        assert_eq!(ids(&[NodeId(9)]), Err("there is no node 9; there are 1, 2, 3".to_owned()));
    }

    #[test]
    fn a_column_is_a_plain_value() {
        let node = Node { load: 0.456, mem_free_bytes: 7 << 20, ..listed_node(2, Some("a\x1b")) };
        let columns = [Column::Number, Column::Name, Column::Load, Column::Free];
        assert_eq!(columns.map(|column| column.of(&node)), ["2", "a?", "0.46", "7340032"]);
    }

    #[test]
    fn events_are_told_in_one_printable_line() {
        let event = Event {
            time: 50_607.12,
            pid: Some(GlobalPid { home: NodeId(1), pid: HomePid(4711) }),
            what: Happening::CameHome {
                reason: Reason { code: "call".into(), text: "it called\nfanotify".into() },
            },
        };
        assert_eq!(event_line(&event), "14:03:27.120  1:4711  came home: it called?fanotify");
    }

    #[test]
    fn wait_statuses_are_told_as_status_or_signal() {
        assert_eq!(ended(Some(3 << 8)), "ended with status 3");
        assert_eq!(ended(Some(9)), "ended by signal 9");
        assert_eq!(ended(Some(0x80 | 11)), "ended by signal 11");
        assert_eq!(ended(None), "ended");
    }
}
