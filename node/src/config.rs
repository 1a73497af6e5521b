//! What a node is told when it starts. Everything else it finds out or is told by its cluster.

use kernel::features::Without;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::freeze_budget::FreezeBudget;
use wire::ids::NodeId;
use wire::move_limits::Bandwidth;
use wire::node_name::NodeName;
use wire::owner::FileAccess;
use wire::users::{Borrowers, UserTable};

/// The port that nodes listen on, TCP and UDP, unless told otherwise.
pub const PORT_DEFAULT: u16 = 7780;
/// Where a MOSIX node map is looked for by those who give none.
pub const MAP_DEFAULT: &str = "/etc/mosix.map";

/// Long enough for an upgrade, or for somebody to notice; short enough that nothing of an Osmos
/// which is not there any more lasts.
const SUCCESSION_PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How one node daemon runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Holds the control socket; made if missing, private to the user.
    pub runtime_dir: PathBuf,
    /// Holds keys, members and the event journal; made if missing, private to the user.
    pub state_dir: PathBuf,
    /// TCP and UDP. An unspecified address listens on all of them; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that other nodes are told, where it is not simply the one listened on.
    pub advertise: Option<IpAddr>,
    /// A `mosix.map` file: the cluster's members, instead of joining one by one.
    pub map: Option<PathBuf>,
    /// With `map`: which of its numbers this node is. Found by address if not given.
    pub node: Option<NodeId>,
    /// With `map`: the secret file that all its nodes share; `<state_dir>/cluster.key` by default.
    pub cluster_key: Option<PathBuf>,
    /// What people call it; the host name if not given.
    pub name: Option<NodeName>,
    /// Speed of one core, 1.0 being the reference; measured if not given.
    pub speed: Option<f64>,
    /// Directories whose `cgroup.procs` takes guests, one for each controller hierarchy.
    pub guest_cgroup: Vec<PathBuf>,
    /// Where none are given, they are made, if that can be.
    pub makes_guest_cgroup: bool,
    /// At most so many guests; as the owner has said before if not given.
    pub guests_max: Option<u32>,
    /// Guests of one user, and processes of one user that are in a storm; likewise.
    pub guests_per_user_max: Option<u32>,
    pub storms_per_user_max: Option<u32>,
    /// At most so much memory for all guests; as the owner has said before if not given.
    pub guest_memory_max_bytes: Option<u64>,
    /// How long own processes may stand still for a move, likewise.
    pub freeze_budget: Option<FreezeBudget>,
    /// What each move from here or to here may take, likewise.
    pub move_bandwidth: Option<Bandwidth>,
    pub move_processors: Option<NonZeroU32>,
    /// As whom guests run, whether root's processes may leave, and where own processes may go;
    /// likewise.
    pub guest_users: Option<UserTable>,
    pub lends_root: Option<bool>,
    pub lends_to: Option<Borrowers>,
    /// What users of other nodes may do with this node's files, likewise.
    pub files: Option<FileAccess>,
    /// Whether jobs of users of other nodes begin here, likewise.
    pub jobs: Option<bool>,
    /// All programs use no more of a processor than all nodes have, asked or not.
    pub cpu_baseline: bool,
    /// Kernel features to do without, although they may be there.
    pub without: Vec<Without>,
    /// How its brain behaves; all nodes of a cluster should have the same.
    pub brain: brain::Config,
    /// A file to which all that the brain is told is appended.
    pub record: Option<PathBuf>,
    /// The program started as `deputy` and `body`; this program itself if not given.
    pub supervisor: Option<PathBuf>,
    /// How long a caller has to prove itself before its connection is closed.
    pub handshake_timeout: Duration,
    /// How long a reserved berth waits for its process.
    pub berth_timeout: Duration,
    /// How long supervisors wait for the next daemon if this one dies, before their processes come
    /// home.
    pub succession_patience: Duration,
}

impl Config {
    /// The defaults of the calling user: system directories for root, private ones for others.
    pub fn for_user() -> Config {
        let state_dir = if nix::unistd::geteuid().is_root() {
            PathBuf::from("/var/lib/osmos")
        } else {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
            home.join(".local/state/osmos")
        };
        let xdg_runtime_dir =
            std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let uid = nix::unistd::geteuid().as_raw();
        Config::in_dirs(wire::control::runtime_dir_default(uid, xdg_runtime_dir), state_dir)
    }

    /// The defaults, with all files of the node in the given directories.
    pub fn in_dirs(runtime_dir: PathBuf, state_dir: PathBuf) -> Config {
        Config {
            runtime_dir,
            state_dir,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT_DEFAULT),
            advertise: None,
            map: None,
            node: None,
            cluster_key: None,
            name: None,
            speed: None,
            guest_cgroup: Vec::new(),
            makes_guest_cgroup: false,
            guests_max: None,
            guests_per_user_max: None,
            storms_per_user_max: None,
            guest_memory_max_bytes: None,
            freeze_budget: None,
            move_bandwidth: None,
            move_processors: None,
            guest_users: None,
            lends_root: None,
            lends_to: None,
            files: None,
            jobs: None,
            cpu_baseline: false,
            without: Vec::new(),
            brain: brain::Config::default(),
            record: None,
            supervisor: None,
            handshake_timeout: Duration::from_secs(10),
            berth_timeout: Duration::from_secs(10),
            succession_patience: SUCCESSION_PATIENCE,
        }
    }

    /// Where tools reach this daemon.
    pub fn control_socket(&self) -> PathBuf {
        self.runtime_dir.join(wire::control::SOCKET_NAME)
    }

    /// Where supervisors of a daemon that has died reach this one.
    pub fn return_socket(&self) -> PathBuf {
        self.runtime_dir.join(wire::supervisor::RETURN_SOCKET_NAME)
    }

    /// Where the shared secret of a map cluster is.
    pub fn cluster_key_path(&self) -> PathBuf {
        self.cluster_key.clone().unwrap_or_else(|| Path::join(&self.state_dir, "cluster.key"))
    }
}
