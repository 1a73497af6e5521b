//! From a configuration to a running node.

use super::guests::cgroup_names;
use super::owner::Wishes;
use super::ranks::RankServers;
use super::tallies::Tallies;
use super::{Daemon, Ending, Event};
use crate::admissions::Admissions;
use crate::call_record::CallRecord;
use crate::config::Config;
use crate::control::{self, ControlError};
use crate::hosting::Hosting;
use crate::inquiries::Inquiries;
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::keyring::Keyring;
use crate::keys::replay::Replay;
use crate::keys::stamps::Stamps;
use crate::keys::{ClusterSecret, NoRandomness, NodeSecret};
use crate::links::Links;
use crate::load::Load;
use crate::looks::Looks;
use crate::map::{self, MAP_BYTES_MAX, MapError};
use crate::members::Members;
use crate::memory_groups::MemoryGroups;
use crate::net::gossip::{Heard, Mouth};
use crate::net::{Credentials, gossip, listener};
use crate::others::Others;
use crate::own_name::own_name;
use crate::passage::Passage;
use crate::registry::Registry;
use crate::rejections::Rejections;
use crate::returning;
use crate::roster::Roster;
use crate::sample::Gauge;
use crate::sample::calibrate::{Belief, RUNS_FIRST, measure_core_speed};
use crate::spawning::Spawn;
use crate::state::{Membership, State, StateError, make_dir, read_cluster_key};
use crate::supervisors::Supervisors;
use crate::thought::Thought;
use crate::user_servers::UserServers;
use kernel::features::Feature;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::net::if_::InterfaceFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use wire::ids::NodeId;
use wire::owner::OwnerState;
use wire::peer::Member;

/// Events waiting for the dispatcher; whoever has one more waits.
const EVENTS_MAX: usize = 4_096;
/// How long a daemon that dies may hold the lock of its node, and between two looks. On a machine
/// that swaps, the kernel takes its time to clear one away.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_STEP: Duration = Duration::from_millis(10);
/// Free ports tried for TCP and UDP together, if any will do.
const PORT_TRIES: u32 = 16;
/// So long what the last daemon of this node has left open may be in the way.
const LEFT_OPEN_MAX: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot lock {}: {source}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("an osmos daemon runs here already (it holds {}): `osmos down` ends it", .0.display())]
    Locked(PathBuf),
    #[error("cannot listen on {}: {source}", path.display())]
    ReturnSocket { path: PathBuf, source: io::Error },
    #[error("cannot keep a roster in {}: {source}", path.display())]
    Roster { path: PathBuf, source: io::Error },
    #[error("cannot open journal {}: {source}", path.display())]
    Journal { path: PathBuf, source: io::Error },
    #[error("cannot read map {}: {source}", path.display())]
    MapFile { path: PathBuf, source: io::Error },
    #[error("map {}: {source}", path.display())]
    Map { path: PathBuf, source: MapError },
    #[error("map {}: {} of its addresses are this machine's ({}): say which by `--node`",
        path.display(), nodes.len(), numbers(nodes))]
    WhoAmI { path: PathBuf, nodes: Vec<NodeId> },
    #[error("map {}: it has no node {node}", path.display())]
    NotInMap { path: PathBuf, node: NodeId },
    #[error("this machine cannot be a node: its kernel lacks {feature} ({}); {} has it",
        feature.loss(), feature.since())]
    Kernel { feature: Feature },
    #[error("cannot start the event loop: {0}")]
    Runtime(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn numbers(nodes: &[NodeId]) -> String {
    let numbers: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    if numbers.is_empty() { "none".to_owned() } else { format!("nodes {}", numbers.join(", ")) }
}

/// A running node. Dropping it stops it at once, without bringing anybody home.
pub struct Node {
    #[cfg(test)]
    pub address: SocketAddr,
    events: mpsc::Sender<Event>,
    tasks: JoinSet<Ending>,
}

/// Tells a node to go down.
pub struct Stopper(mpsc::Sender<Event>);

impl Stopper {
    pub async fn stop(&self) {
        // If it has gone down already, all the better.
        let _ = self.0.send(Event::Stop).await;
    }
}

impl Node {
    pub fn stopper(&self) -> Stopper {
        Stopper(self.events.clone())
    }

    /// Where tests tell the dispatcher what happened.
    #[cfg(test)]
    pub fn events(&self) -> &mpsc::Sender<Event> {
        &self.events
    }

    /// Waits until the node has gone down, or has left everything to the next daemon.
    pub async fn wait(mut self) -> Ending {
        // The dispatcher is the only one of them; the listeners end with it.
        match self.tasks.join_next().await {
            Some(Ok(ending)) => ending,
            Some(Err(error)) => {
                tracing::error!("the dispatcher failed: {error}");
                Ending::Down
            }
            None => Ending::Down,
        }
    }
}

/// Starts a node. Needs a tokio runtime.
pub async fn start(config: Config, spawn: Arc<dyn Spawn>) -> Result<Node, StartError> {
    let is_public = nix::unistd::geteuid().is_root();
    make_dir(&config.runtime_dir, if is_public { 0o755 } else { 0o700 })?;
    let state = State::open(&config.state_dir)?;
    let lock = lock(&config).await?;
    let control = control::bind(&config.control_socket(), is_public)?;
    let door_path = config.return_socket();
    let door = returning::open(&door_path, is_public)
        .map_err(|source| StartError::ReturnSocket { path: door_path.clone(), source })?;
    let (tcp, udp) = bind(config.listen).await?;
    let address =
        tcp.local_addr().map_err(|source| StartError::Listen { address: config.listen, source })?;
    let (own, membership) = identity(&config, &state, address)?;
    state_membership(&config, &state, &membership)?;
    let stamps = state.stamps()?;
    let credentials = Credentials::of(own, membership.secrets.clone());
    let (shown, seen) = watch::channel(credentials);
    let (events, taken) = mpsc::channel(EVENTS_MAX);
    let udp = Arc::new(udp);
    let mut tasks = JoinSet::new();
    let patience = config.handshake_timeout;
    let socket_path = config.control_socket();
    let listens = SocketAddr::new(config.advertise.unwrap_or(address.ip()), address.port());
    let heard = Arc::new(Heard::default());
    let parts = Parts {
        listens,
        config,
        state,
        membership,
        shown,
        stamps: stamps.clone(),
        heard: heard.clone(),
        spawn,
        events: events.clone(),
    };
    let daemon = parts.assemble(Mouth::new(udp.clone(), stamps))?;
    let listeners = Listeners { control, door, tcp, udp, seen, heard, patience };
    let told = events.clone();
    tasks.spawn(async move {
        let mut listening = listeners.listen(told);
        let ending = daemon.run(taken).await;
        // The ports are free when this node is gone: it may be started again at once.
        listening.shutdown().await;
        for path in [&socket_path, &door_path] {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::debug!("{}: {error}", path.display());
            }
        }
        drop(lock);
        ending
    });
    tracing::info!("listening on {address}");
    Ok(Node {
        #[cfg(test)]
        address,
        events,
        tasks,
    })
}

/// Of two daemons that start at the same time, one is the node. The lock of one that was killed is
/// free when the kernel has cleared it away, which may take a moment longer than to start the next.
async fn lock(config: &Config) -> Result<Flock<File>, StartError> {
    let path = config.runtime_dir.join("daemon.lock");
    let failed = |source| StartError::Lock { path: path.clone(), source };
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    let mut file = options.open(&path).map_err(failed)?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((same, Errno::EWOULDBLOCK)) => file = same,
            Err((_, errno)) => return Err(failed(errno.into())),
        }
        control::check_vacant(&config.control_socket())?;
        if Instant::now() >= deadline {
            return Err(StartError::Locked(path));
        }
        // The kernel does not tell when it is free without making one wait for ever.
        tokio::time::sleep(LOCK_STEP).await;
    }
}

/// The sockets, until they are served.
struct Listeners {
    control: tokio::net::UnixListener,
    door: AsyncFd<OwnedFd>,
    tcp: TcpListener,
    udp: Arc<UdpSocket>,
    seen: watch::Receiver<Credentials>,
    heard: Arc<Heard>,
    patience: std::time::Duration,
}

impl Listeners {
    /// Serves them until the set is dropped.
    fn listen(self, events: mpsc::Sender<Event>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(control::listen(self.control, events.clone()));
        tasks.spawn(returning::take_calls(self.door, events.clone()));
        let seen = self.seen.clone();
        tasks.spawn(gossip::listen(self.udp, seen, self.heard, events.clone()));
        tasks.spawn(listener::listen(self.tcp, self.seen, self.patience, events));
        tasks
    }
}

struct Parts {
    listens: SocketAddr,
    config: Config,
    state: State,
    membership: Membership,
    shown: watch::Sender<Credentials>,
    stamps: Stamps,
    heard: Arc<Heard>,
    spawn: Arc<dyn Spawn>,
    events: mpsc::Sender<Event>,
}

impl Parts {
    fn assemble(self, mouth: Mouth) -> Result<Daemon, StartError> {
        let Parts { listens, config, state, membership, shown, stamps, heard, spawn, events } =
            self;
        let path = state.journal_path();
        let journal =
            Journal::open(&path).map_err(|source| StartError::Journal { path, source })?;
        let owner = owner_state(&config, &state)?;
        let roster = Roster::open(&config.runtime_dir)
            .map_err(|source| StartError::Roster { path: config.runtime_dir.clone(), source })?;
        let record = state.clone();
        let call_record = CallRecord::start(move |calls: &Replay| record.keep_replay(calls))
            .map_err(StartError::Thread)?;
        let me = membership.members.iter().find(|member| member.node == membership.node);
        let me = *me.expect("a membership always lists its own node");
        let speed = core_speed(&config, &state);
        let core = Belief::new(speed, config.speed.is_some(), Instant::now());
        let load = Load::new(Gauge::new(core, &config.guest_cgroup));
        let stamp = stamps.next();
        let hosting = Hosting::new(Instant::now(), &config);
        let places = cgroup_names(hosting.cgroups());
        match hosting.entrance() {
            Ok(entrance) => spawn.guests_go_to(places, entrance),
            Err(error) => tracing::debug!("no sandbox is kept ready: {error}"),
        }
        let calls = (state.replay()?, call_record);
        Ok(Daemon {
            keyring: Keyring::new(membership.secrets, shown, stamps, calls, heard),
            started: Instant::now(),
            listens,
            members: Members::new(me, membership.members)
                .remembering(membership.forgotten, membership.given),
            others: Others::new(own_name(config.name.clone())),
            links: Links::default(),
            admissions: Admissions::default(),
            rejections: Rejections::default(),
            openings: None,
            user_servers: UserServers::default(),
            jobs: Jobs::default(),
            rank_servers: RankServers::default(),
            supervisors: Supervisors::default(),
            processes: Registry::default(),
            memory_groups: MemoryGroups::default(),
            roster,
            tallies: Tallies::default(),
            looks: Looks::default(),
            programs: state.programs(),
            load,
            thought: Thought::new(me.node, &config, stamp, mouth),
            inquiries: Inquiries::default(),
            journal,
            passage: Passage::default(),
            wishes: Wishes::of(owner),
            hosting,
            config,
            state,
            spawn,
            events,
        })
    }
}

/// TCP and UDP on the same port.
async fn bind(address: SocketAddr) -> Result<(TcpListener, UdpSocket), StartError> {
    let (mut tries, began) = (0, Instant::now());
    loop {
        tries += 1;
        match bind_both(address).await {
            Ok(both) => return Ok(both),
            // A free TCP port need not be a free UDP port.
            Err(_) if address.port() == 0 && tries < PORT_TRIES => (),
            // Of a daemon that was killed the kernel gives up the lock before the sockets.
            Err(source)
                if source.kind() == io::ErrorKind::AddrInUse && began.elapsed() < LEFT_OPEN_MAX =>
            {
                tokio::time::sleep(BIND_PAUSE).await;
            }
            Err(source) => return Err(StartError::Listen { address, source }),
        }
    }
}

async fn bind_both(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    let tcp = TcpListener::bind(address).await?;
    let udp = UdpSocket::bind(tcp.local_addr()?).await?;
    Ok((tcp, udp))
}

/// Who this node is: from the map, from the last time, or the first node of a cluster of its own.
fn identity(
    config: &Config,
    state: &State,
    bound: SocketAddr,
) -> Result<(NodeSecret, Membership), StartError> {
    if let Some(path) = &config.map {
        return identity_in_map(config, path, bound);
    }
    let own = state.node_secret()?;
    let address = SocketAddr::new(advertised(config, bound.ip()), bound.port());
    let me = |node| Member { node, address, key: own.public() };
    let membership = match state.membership()? {
        Some(mut kept) => {
            kept.members.retain(|member| member.node != kept.node);
            kept.members.push(me(kept.node));
            kept
        }
        None => Membership::new(NodeId(1), ClusterSecret::generate()?, vec![me(NodeId(1))]),
    };
    Ok((own, membership))
}

fn identity_in_map(
    config: &Config,
    path: &Path,
    bound: SocketAddr,
) -> Result<(NodeSecret, Membership), StartError> {
    let path = path.to_owned();
    let text =
        read_map(&path).map_err(|source| StartError::MapFile { path: path.clone(), source })?;
    let nodes = map::parse(&text, resolve)
        .map_err(|source| StartError::Map { path: path.clone(), source })?;
    let node = match config.node {
        Some(node) if nodes.contains_key(&node) => node,
        Some(node) => return Err(StartError::NotInMap { path, node }),
        None => find_me(&nodes, path, bound.ip())?,
    };
    let secret = read_cluster_key(&config.cluster_key_path())?;
    let own = secret.node_of_map(node);
    let port = bound.port();
    let member = |(node, address): (&NodeId, &IpAddr)| Member {
        node: *node,
        address: SocketAddr::new(*address, port),
        key: secret.node_of_map(*node).public(),
    };
    let members = nodes.iter().map(member).collect();
    Ok((own, Membership::new(node, secret, members)))
}

/// The one node of the map whose address is this machine's.
fn find_me(
    nodes: &BTreeMap<NodeId, IpAddr>,
    path: PathBuf,
    bound: IpAddr,
) -> Result<NodeId, StartError> {
    let is_mine = |address: IpAddr| match bound.is_unspecified() {
        // Only an address of this machine can be bound.
        true => std::net::UdpSocket::bind((address, 0)).is_ok(),
        false => address == bound,
    };
    let mine = nodes.iter().filter(|(_, address)| is_mine(**address));
    let mine: Vec<NodeId> = mine.map(|(node, _)| *node).collect();
    match mine[..] {
        [node] => Ok(node),
        _ => Err(StartError::WhoAmI { path, nodes: mine }),
    }
}

fn read_map(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAP_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn resolve(host: &str) -> io::Result<IpAddr> {
    let mut found = (host, 0).to_socket_addrs()?;
    found.next().map(|address| address.ip()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The address that others are told.
fn advertised(config: &Config, bound: IpAddr) -> IpAddr {
    if let Some(address) = config.advertise {
        return address;
    }
    if bound.is_unspecified() { own_address().unwrap_or(bound) } else { bound }
}

/// The first address of this machine that others may reach, or the loopback address.
fn own_address() -> Option<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().ok()?;
    let up = interfaces.filter(|i| i.flags.contains(InterfaceFlags::IFF_UP));
    let addresses = up.filter_map(|interface| {
        let address = interface.address?;
        Some(IpAddr::V4(address.as_sockaddr_in()?.ip()))
    });
    let mut outer = addresses.filter(|address| !address.is_loopback());
    Some(outer.next().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// Given, measured before, or measured now.
fn core_speed(config: &Config, state: &State) -> f64 {
    if let Some(speed) = config.speed.or_else(|| state.speed()) {
        return speed;
    }
    match measure_core_speed(RUNS_FIRST) {
        Ok(speed) => {
            if let Err(error) = state.keep_speed(speed) {
                tracing::warn!("{error}");
            }
            speed
        }
        Err(error) => {
            tracing::warn!("cannot measure this core's speed, taken as 1.0: {error}");
            1.0
        }
    }
}

/// As kept, where the options do not say otherwise.
fn owner_state(config: &Config, state: &State) -> Result<OwnerState, StateError> {
    let mut owner = state.owner()?;
    owner.guests_max = config.guests_max.or(owner.guests_max);
    owner.guest_memory_max_bytes = config.guest_memory_max_bytes.or(owner.guest_memory_max_bytes);
    owner.guests_per_user_max = config.guests_per_user_max.or(owner.guests_per_user_max);
    owner.storms_per_user_max = config.storms_per_user_max.or(owner.storms_per_user_max);
    owner.freeze_budget_ms = config.freeze_budget.or(owner.freeze_budget_ms);
    let limits = &mut owner.move_limits;
    limits.bandwidth = config.move_bandwidth.or(limits.bandwidth);
    limits.processors = config.move_processors.or(limits.processors);
    owner.files = config.files.unwrap_or(owner.files);
    owner.jobs = config.jobs.unwrap_or(owner.jobs);
    owner.lends_root = config.lends_root.unwrap_or(owner.lends_root);
    owner.lends_to = config.lends_to.clone().unwrap_or(owner.lends_to);
    owner.guest_users = config.guest_users.clone().unwrap_or(owner.guest_users);
    if owner.guest_users.gives_root() && nix::unistd::geteuid().is_root() {
        tracing::warn!("some guests run as root here: {}", owner.guest_users);
    }
    state.keep_owner(&owner)?;
    Ok(owner)
}

fn state_membership(
    config: &Config,
    state: &State,
    membership: &Membership,
) -> Result<(), StateError> {
    match config.map {
        Some(_) => Ok(()),
        None => state.keep_membership(membership),
    }
}
