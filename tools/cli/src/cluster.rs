//! `osmos cluster`: from some machines that can be reached by ssh to a cluster, and back.
//!
//! This machine is a node of it, and makes the tokens with which the others join. Each step is
//! skipped where it was done before, so that a command that failed half-way is given again. What
//! fails on one machine keeps no other from coming up.

mod here;
mod hosts;
mod machine;
mod program;
mod ssh;

use crate::arguments::Listing;
use crate::commands::listings;
use crate::commands::listings::NodesOptions;
use crate::output::{self, Align, Cell, Table};
use crate::platform::Platform;
use crate::progress::{self, Waiting};
use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use client::Client;
use here::Here;
use hosts::Host;
use machine::Found;
use program::OwnProgram;
use ssh::Remote;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use wire::control::{Failure, Reply, Request, Status};
use wire::ids::NodeId;

/// How long nodes that have joined may take until they are seen to be alive.
const ALIVE_PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether they are.
const ALIVE_PAUSE: Duration = Duration::from_millis(50);
/// What stands at ^C.
const STANDS: &str = "what is done is left as it is: the same command goes on where it was";

#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make this machine and those HOSTS nodes of one cluster
    #[command(after_help = "\
Examples:
  osmos cluster up two three          as you, without root, by your own ssh
  osmos cluster up                    those of the last time again
  osmos cluster up --address 10.0.0.1 two     two reaches this machine at that address

On each machine this program is copied to ~/.local/bin/osmos, a daemon is started as you, and it
joins the cluster of the daemon here, which is started if none runs. What is there already is left
as it is, so that the command can be given again. Nodes call each other: TCP and UDP port 7780 has
to be open between all of them.

With --sudo the daemons are root's, as services of systemd that are there after each boot, of all
machines and this one: the program is copied to /usr/local/bin/osmos, unless a package has brought
one. Sudo must not ask for a password; or root logs in himself, as root@two.")]
    Up {
        /// The other machines, as ssh knows them: HOST or USER@HOST
        hosts: Vec<String>,
        /// Address of this machine for all others, where they cannot find it themselves
        #[arg(long, value_name = "IP")]
        address: Option<IpAddr>,
        /// Make the daemons services of the system, by sudo
        #[arg(long)]
        sudo: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what each node of the cluster says of itself: version, since when, guests
    Status(Listing),
    /// Have all machines run this version of the program, one after another: no process moves
    #[command(after_help = "\
Daemons are started as `cluster up` does. One that was started with options of its own is replaced
by hand: `osmos up --replace` with these options.")]
    Upgrade {
        /// The other machines; if none is named, those that were brought up
        hosts: Vec<String>,
        /// Their daemons are services of the system: known of those that were brought up from here
        #[arg(long)]
        sudo: bool,
    },
    /// End the daemons: guests go home, own processes come home. The nodes stay members
    Down {
        /// The other machines; if none is named, those that were brought up
        hosts: Vec<String>,
        /// Their daemons are services of the system, which are removed: known of those that were
        /// brought up from here
        #[arg(long)]
        sudo: bool,
    },
}

/// What `osmos cluster up` is told beside the machines.
#[derive(Clone, Copy, Debug)]
pub struct UpOptions {
    pub address: Option<IpAddr>,
    pub sudo: bool,
}

/// What commands about a cluster have in common.
pub struct Ground<'a> {
    pub socket: &'a Path,
    pub platform: &'a dyn Platform,
}

/// A machine on which something has failed, and what.
type Failed = (String, anyhow::Error);

impl Ground<'_> {
    /// `osmos cluster up`.
    pub fn up(&self, hosts: &[String], options: UpOptions, json: bool) -> Result<()> {
        let hosts = self.hosts(hosts, options.sudo)?;
        let program = OwnProgram::read()?;
        let here = Here::up(self, is_system(&hosts), &program)?;
        let (remotes, mut failed) = connect(&hosts)?;
        let bring = |remote: &Remote| bring(remote, &program, &here, options.address);
        let mut nodes = BTreeSet::from([here.status.node]);
        for (remote, outcome) in on_each(&remotes, "bringing machines up", bring)? {
            match outcome {
                Ok(node) => drop(nodes.insert(node)),
                Err(error) => failed.push((remote.host().to_owned(), error)),
            }
        }
        let mut client = here.client()?;
        await_alive(&mut client, &nodes)?;
        self.remember(&hosts)?;
        let listing = Listing { json };
        listings::nodes(&mut client, &NodesOptions { listing, ..NodesOptions::default() })?;
        all_done(failed, hosts.len(), "not up")
    }

    /// `osmos cluster status`: what each node says of itself.
    pub fn status(&self, json: bool) -> Result<()> {
        let mut said: Vec<Status> = Vec::new();
        let mut silent = Vec::new();
        let mut client = Client::connect(self.socket)?;
        let words = ("asking all nodes", "nothing has changed anywhere");
        let take = |node, reply| match reply {
            Ok(Reply::Status(status)) if status.node == node => said.push(*status),
            Ok(_) => silent.push(format!("node {node} answers something else")),
            Err(Failure { text, .. }) => silent.push(text),
        };
        progress::everywhere(&mut client, Request::Status, words, json, take)?;
        said.sort_by_key(|status| status.node);
        match json {
            true => output::print_json(&said)?,
            false => status_table(&said).print()?,
        }
        ensure!(silent.is_empty(), "not all nodes answer: {}", silent.join("; "));
        Ok(())
    }

    /// `osmos cluster upgrade`: one machine after another, this one last.
    pub fn upgrade(&self, hosts: &[String], sudo: bool) -> Result<()> {
        let hosts = self.hosts(hosts, sudo)?;
        let program = OwnProgram::read()?;
        let (remotes, mut failed) = connect(&hosts)?;
        let mut client = Client::connect(self.socket)?;
        for remote in &remotes.list {
            let doing = format!("upgrading {}", remote.host());
            let upgraded = during(&remotes, &doing, || upgrade(remote, &program))?
                .and_then(|node| await_alive(&mut client, &BTreeSet::from([node])));
            if let Err(error) = upgraded {
                failed.push((remote.host().to_owned(), error));
            }
        }
        drop(client);
        let status = here::upgrade(self, is_system(&hosts), &program)?;
        tell("this machine", &format!("node {} runs version {}", status.node, status.version));
        all_done(failed, hosts.len(), "not upgraded")
    }

    /// `osmos cluster down`: the others first, so that what is theirs can still come home to them.
    pub fn down(&self, hosts: &[String], sudo: bool) -> Result<()> {
        let hosts = self.hosts(hosts, sudo)?;
        let (remotes, mut failed) = connect(&hosts)?;
        for (remote, outcome) in on_each(&remotes, "taking machines down", machine::down)? {
            match outcome {
                Ok(true) => tell(remote.host(), "down"),
                Ok(false) => tell(remote.host(), "there was no daemon"),
                Err(error) => failed.push((remote.host().to_owned(), error)),
            }
        }
        here::down(self, is_system(&hosts))?;
        tell("this machine", "down");
        all_done(failed, hosts.len(), "not down")
    }

    /// Those that were named, or those of the last `cluster up`.
    fn hosts(&self, named: &[String], sudo: bool) -> Result<Vec<Host>> {
        hosts::choose(hosts::read(&hosts::path(self.platform))?, named, sudo)
    }

    fn remember(&self, hosts: &[Host]) -> Result<()> {
        let path = hosts::path(self.platform);
        hosts::write(&path, &hosts::with(hosts::read(&path)?, hosts))
    }
}

/// This machine is as the others are.
fn is_system(hosts: &[Host]) -> bool {
    hosts.iter().any(|host| host.is_system)
}

/// Machines with a connection each, and the directory in which their sockets are.
struct Remotes {
    list: Vec<Remote>,
    /// Goes when the connections have ended.
    directory: tempfile::TempDir,
}

/// One after another: each may ask the user for something.
fn connect(hosts: &[Host]) -> Result<(Remotes, Vec<Failed>)> {
    let directory = tempfile::Builder::new().prefix("osmos-ssh-").tempdir();
    let directory = directory.context("cannot make a directory for connections")?;
    let (mut list, mut failed) = (Vec::new(), Vec::new());
    for (number, host) in hosts.iter().enumerate() {
        let connected = Remote::connect(&host.name, directory.path(), number);
        match connected.and_then(|it| if host.is_system { it.become_root() } else { Ok(it) }) {
            Ok(remote) => list.push(remote),
            Err(error) => failed.push((host.name.clone(), error)),
        }
    }
    Ok((Remotes { list, directory }, failed))
}

/// Does something on all of them at the same time.
fn on_each<'a, T: Send>(
    remotes: &'a Remotes,
    doing: &str,
    what: impl Fn(&Remote) -> Result<T> + Sync,
) -> Result<Vec<(&'a Remote, Result<T>)>> {
    let what = &what;
    let on_all = || {
        std::thread::scope(|scope| {
            let begin = |remote| (remote, scope.spawn(move || what(remote)));
            let threads: Vec<_> = remotes.list.iter().map(begin).collect();
            let ended = |thread: std::thread::ScopedJoinHandle<Result<T>>| {
                thread.join().unwrap_or_else(|_| bail!("the work on it was lost: a fault of osmos"))
            };
            threads.into_iter().map(|(remote, thread)| (remote, ended(thread))).collect()
        })
    };
    during(remotes, doing, on_all)
}

/// Does something of which it is shown that it goes on. ^C ends the connections, and with them
/// what runs by them.
fn during<T: Send>(remotes: &Remotes, doing: &str, what: impl FnOnce() -> T + Send) -> Result<T> {
    let close = remotes.list.iter().map(Remote::closing).collect::<Vec<_>>();
    let directory = remotes.directory.path().to_owned();
    let mut waiting = Waiting::begin(doing, STANDS, false)?.and_last(Box::new(move || {
        close.into_iter().for_each(|close| close());
        // A directory that stays is one more among those of the system's temporary files.
        let _ = std::fs::remove_dir_all(directory);
    }));
    waiting.during(what)
}

/// Makes a machine a node of this cluster; returns its number.
fn bring(
    remote: &Remote,
    program: &OwnProgram,
    own: &Here,
    address: Option<IpAddr>,
) -> Result<NodeId> {
    let here = &own.status;
    let mut found = machine::look(remote)?;
    if program.put(remote, &found)? {
        let text = format!("the program was copied to {}", machine::place(remote));
        tell(remote.host(), &text);
        // A daemon may run there of a program that lies elsewhere: this one sees it.
        found = machine::look(remote)?;
    }
    let status = match &found.status {
        Some(status) => status.clone(),
        None => start(remote)?,
    };
    if status.version != here.version {
        let text = format!(
            "runs version {}, not {}: `osmos cluster upgrade` replaces it",
            status.version, here.version
        );
        tell(remote.host(), &text);
    }
    if status.cluster.is_some() && status.cluster == here.cluster {
        tell(remote.host(), &format!("is node {}", status.node));
        return Ok(status.node);
    }
    ensure!(
        status.nodes == 1,
        "it is in another cluster, of {} nodes: `osmos leave` there first",
        status.nodes
    );
    machine::join(remote, &addresses(address, &found), port_of(here)?, || own.token())?;
    let joined = machine::look(remote)?.status.context("its daemon has ended")?;
    tell(remote.host(), &format!("has joined as node {}", joined.node));
    Ok(joined.node)
}

fn start(remote: &Remote) -> Result<Status> {
    let started = machine::start(remote)?;
    if !started.lingers {
        tell(
            remote.host(),
            "cannot be reached by osmos after your last logout there: `sudo loginctl \
             enable-linger USER` there keeps it",
        );
    }
    Ok(started.status)
}

/// By which a machine may reach this one: as it sees it, then whatever this one has.
fn addresses(named: Option<IpAddr>, found: &Found) -> Vec<IpAddr> {
    if let Some(named) = named {
        return vec![named];
    }
    let mut addresses: Vec<IpAddr> = found.here.into_iter().collect();
    for own in own_addresses() {
        if !addresses.contains(&own) {
            addresses.push(own);
        }
    }
    addresses
}

/// But for those that mean another machine elsewhere.
fn own_addresses() -> Vec<IpAddr> {
    let of = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    let is_known_elsewhere = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(of);
    all.filter(is_known_elsewhere).collect()
}

fn port_of(status: &Status) -> Result<u16> {
    let address: SocketAddr = status.address.parse().context("the daemon here has no address")?;
    Ok(address.port())
}

fn upgrade(remote: &Remote, program: &OwnProgram) -> Result<NodeId> {
    let found = machine::look(remote)?;
    program.put(remote, &found)?;
    ensure!(found.status.is_some(), "no daemon runs there: `osmos cluster up` starts it");
    let status = machine::replace(remote)?;
    tell(remote.host(), &format!("node {} runs version {}", status.node, status.version));
    Ok(status.node)
}

/// Waits until this node sees all of them.
fn await_alive(client: &mut Client, nodes: &BTreeSet<NodeId>) -> Result<()> {
    let until = Instant::now() + ALIVE_PATIENCE;
    let mut waiting = Waiting::begin("waiting for nodes to be alive", STANDS, false)?;
    loop {
        let listed = client.nodes()?;
        let alive: BTreeSet<NodeId> =
            listed.iter().filter(|node| node.status == "alive").map(|node| node.id).collect();
        let missing: Vec<String> = nodes.difference(&alive).map(NodeId::to_string).collect();
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "not heard of in {} s: node {}. Does the network let their port through, UDP as well \
             as TCP?",
            ALIVE_PATIENCE.as_secs(),
            missing.join(", ")
        );
        waiting.pause(ALIVE_PAUSE)?;
    }
}

/// What happens meanwhile, for whoever waits.
fn tell(who: &str, what: &str) {
    progress::aside(|| eprintln!("{}: {}", output::printable(who), output::printable(what)));
}

fn all_done(failed: Vec<Failed>, of: usize, what: &str) -> Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    for (host, error) in &failed {
        eprintln!(
            "osmos: {}: {}",
            output::printable(host),
            output::printable(&format!("{error:#}"))
        );
    }
    let names: Vec<&str> = failed.iter().map(|(host, _)| host.as_str()).collect();
    bail!(
        "{what}: {} ({} of {of}); the same command goes on where it was",
        names.join(", "),
        failed.len()
    )
}

fn status_table(said: &[Status]) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Right),
        ("ADDRESS", Align::Left),
        ("VERSION", Align::Left),
        ("UP", Align::Right),
        ("KNOWS", Align::Right),
        ("GUESTS", Align::Right),
    ]);
    for status in said {
        table.row(vec![
            Cell::new(status.node.to_string()),
            Cell::new(&status.address),
            Cell::new(&status.version),
            Cell::new(output::seconds(status.uptime_s)),
            Cell::new(output::counted(status.nodes, "node", "nodes")),
            Cell::new(status.owner.guests.to_string()),
        ]);
    }
    table
}
