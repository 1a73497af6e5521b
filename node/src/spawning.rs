//! Starting supervisors.
//!
//! A supervisor is this same program, run as the owner of its process, with one end of a
//! sequenced-packet socket as its standard input (the one descriptor that a child can be given
//! without any unsafe code or a race; `--control-fd 0` tells it). Its ends of everything else are
//! `/dev/null`, its messages for people go to the daemon's own. What it is for it is told by the
//! first packet, because it may have been started before that was known ([`crate::ready`]).

use crate::ready::{Key, Kind, Ready};
use crate::supervisor::packet_pair;
use crate::user_servers::{self, Kind as ServerKind};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use wire::assignment::{Assignment, Half};
use wire::peer::Owner;
use wire::supervisor::HASH_TABLE_BYTES;

/// A supervisor that was started: the daemon's end of its socket, and the process.
pub struct Started {
    pub half: Half,
    pub socket: OwnedFd,
    pub child: Option<Child>,
}

/// Starts supervisors. Tests put themselves in the place of one.
pub trait Spawn: Send + Sync + 'static {
    fn spawn(&self, half: Half, owner: Owner) -> io::Result<Started>;

    /// Where bodies will be put, and by what they can enter there.
    fn guests_go_to(&self, _directories: Vec<String>, _entrance: Option<OwnedFd>) {}

    /// Starts a server for a user, which finds later daemons at this socket.
    fn user_server(&self, kind: ServerKind, door: &Path) -> io::Result<user_servers::Started>;

    /// Drops what is kept ready: those that will end now.
    fn drop_ready(&self) -> Vec<Child> {
        Vec::new()
    }
}

/// Starts the real ones, and keeps some ready for users whose processes have needed one lately.
pub struct ProgramSpawn {
    program: Arc<Program>,
    ready: Arc<Mutex<Ready<Unassigned>>>,
    place: OnceLock<Arc<Place>>,
}

/// Where bodies are put.
struct Place {
    /// The [`Assignment`] that says so.
    bytes: Vec<u8>,
    entrance: Option<OwnedFd>,
}

/// How the program is started that supervisors are.
pub struct Program {
    pub path: PathBuf,
    /// Names of the kernel features that they have to do without.
    pub without: String,
    /// Where they find the next daemon, and for how long they look for it.
    pub return_socket: PathBuf,
    pub patience: Duration,
    /// The directory of what they know of files, a table for each user.
    pub hashes: PathBuf,
}

/// A supervisor that has no process yet.
struct Unassigned {
    socket: OwnedFd,
    child: Child,
}

impl Program {
    fn start(&self, (kind, owner): Key) -> io::Result<Unassigned> {
        let (socket, theirs) = packet_pair()?;
        let mut command = Command::new(&self.path);
        command.arg(match kind {
            Kind::Deputy => "deputy",
            Kind::Body => "body",
        });
        command.args(["--control-fd", "0", "--without", &self.without]).current_dir("/");
        command.arg("--return").arg(&self.return_socket);
        command.args(["--patience", &self.patience.as_secs().to_string()]);
        match hash_table(&self.hashes, owner) {
            Ok(table) => drop(command.arg("--hashes").arg(table)),
            Err(error) => tracing::debug!("{}: {error}", self.hashes.display()),
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        if nix::unistd::geteuid().is_root() {
            // This also drops all supplementary groups: a supervisor needs none of them.
            command.uid(owner.uid).gid(owner.gid);
        }
        Ok(Unassigned { socket, child: command.spawn()? })
    }
}

impl Unassigned {
    /// Has one that will be a body begin a sandbox there. One that does not hear that can do
    /// without.
    fn prepare(&self, place: &Place) {
        let sent = match &place.entrance {
            Some(entrance) => kernel::packet::send_with(&self.socket, &place.bytes, entrance),
            None => kernel::packet::send_now(&self.socket, &place.bytes),
        };
        if let Err(error) = sent {
            tracing::debug!("no sandbox is kept ready: {error}");
        }
    }

    /// Tells it what it is for, if it is still there.
    fn assign(self, half: Half) -> io::Result<Started> {
        let bytes = postcard::to_stdvec(&Assignment::Half(half)).map_err(io::Error::other)?;
        match kernel::packet::send_now(&self.socket, &bytes) {
            Ok(true) => Ok(Started { half, socket: self.socket, child: Some(self.child) }),
            Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.source),
        }
    }
}

impl ProgramSpawn {
    pub fn new(program: Program) -> ProgramSpawn {
        ProgramSpawn { program: Arc::new(program), ready: Arc::default(), place: OnceLock::new() }
    }

    /// Starts what is to be ready for the next process of this user, and ends it if none comes.
    fn prepare(&self, key: Key) {
        if !lock(&self.ready).begins(key, Instant::now()) {
            return;
        }
        let (program, ready) = (self.program.clone(), Arc::downgrade(&self.ready));
        let place = self.place.get().filter(|_| key.0 == Kind::Body).cloned();
        let start = move || {
            let started = program.start(key)?;
            place.inspect(|place| started.prepare(place));
            Ok(started)
        };
        tokio::spawn(async move {
            let started = tokio::task::spawn_blocking(start).await;
            let Some(all) = ready.upgrade() else { return };
            let started = started.map_err(io::Error::other).and_then(|started| started);
            let report = |error: &io::Error| tracing::debug!("none is kept ready: {error}");
            let is_ours = lock(&all).finish(key, started.inspect_err(report).ok());
            drop(all);
            if !is_ours {
                return;
            }
            let look = || lock(&*ready.upgrade()?).expire(key, Instant::now());
            while let Some(until) = look() {
                tokio::time::sleep_until(until.into()).await;
            }
        });
    }
}

fn lock(ready: &Mutex<Ready<Unassigned>>) -> MutexGuard<'_, Ready<Unassigned>> {
    ready.lock().expect("nobody panics with it")
}

impl Spawn for ProgramSpawn {
    fn spawn(&self, half: Half, owner: Owner) -> io::Result<Started> {
        let kind = match half {
            Half::Deputy { .. } => Kind::Deputy,
            Half::Body => Kind::Body,
        };
        let key = (kind, owner);
        let ready = lock(&self.ready).take(key);
        // One that was killed meanwhile is none.
        let started = match ready.and_then(|unassigned| unassigned.assign(half).ok()) {
            Some(started) => started,
            None => self.program.start(key)?.assign(half)?,
        };
        self.prepare(key);
        Ok(started)
    }

    fn guests_go_to(&self, directories: Vec<String>, entrance: Option<OwnedFd>) {
        let assignment = Assignment::Place { guest_cgroup: directories };
        match postcard::to_stdvec(&assignment) {
            // It is told once, and stays.
            Ok(bytes) => drop(self.place.set(Arc::new(Place { bytes, entrance }))),
            Err(error) => tracing::debug!("no sandbox is kept ready: {error}"),
        }
    }

    fn user_server(&self, kind: ServerKind, door: &Path) -> io::Result<user_servers::Started> {
        self.program.start_user_server(kind, door)
    }

    fn drop_ready(&self) -> Vec<Child> {
        lock(&self.ready).drain().map(|unassigned| unassigned.child).collect()
    }
}

/// Users that have a table of hashes.
const HASH_TABLES_MAX: usize = 256;

/// The table of hashes of a user, which nobody else can write to (`migrate::hashes`).
fn hash_table(directory: &Path, owner: Owner) -> io::Result<PathBuf> {
    let table = directory.join(owner.uid.to_string());
    if table.exists() {
        return Ok(table);
    }
    if !directory.exists() {
        DirBuilder::new().mode(0o711).create(directory)?;
    }
    if fs::read_dir(directory)?.count() >= HASH_TABLES_MAX {
        return Err(io::Error::other("too many users have one"));
    }
    let file = File::options().write(true).create_new(true).mode(0o600).open(&table)?;
    file.set_len(HASH_TABLE_BYTES)?;
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(table)
}
