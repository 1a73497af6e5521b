//! What is written down about a lab before and while it exists, so that any later command can use
//! it and, whatever was killed meanwhile, take it down.

use crate::cgroup::Hierarchy;
use crate::process::Keeper;
use crate::spec::{LabName, Spec};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use wire::ids::NodeId;

const RECORD_FILE: &str = "lab.json";
/// The secret that the daemons of one lab share.
pub const KEY_FILE: &str = "cluster.key";
/// The directory may vanish between two steps when another command takes the lab down.
const LOCK_ATTEMPTS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// If nobody holds the lock, whoever built it was interrupted.
    Building,
    Up,
}

/// One lab. Written before anything is made, so it names everything there may be to remove.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub spec: Spec,
    pub phase: Phase,
    /// It does not end with whoever made it.
    #[serde(default)]
    pub is_kept: bool,
    /// Cores that a node of speed 1 has.
    pub cpu_scale: f64,
    pub hierarchies: Vec<Hierarchy>,
    /// What this lab lacks on this machine, for people.
    pub missing: Vec<String>,
    /// Process 1 of the PID namespace around the whole lab.
    pub switch: Option<Keeper>,
    /// Process 1 of each node, in order.
    pub keepers: Vec<Keeper>,
}

impl Record {
    /// The program that made it for itself has ended, and its processes with it.
    pub fn is_orphan(&self) -> bool {
        !self.is_kept && self.switch.as_ref().is_some_and(|switch| !switch.is_alive())
    }

    pub fn keeper(&self, node: NodeId) -> Result<&Keeper> {
        let count = self.spec.speeds.len();
        ensure!(
            (1..=count).contains(&(node.0 as usize)),
            "lab `{}` has no node {node}: it has nodes 1 to {count}",
            self.spec.name
        );
        let keeper = self.keepers.get(node.0 as usize - 1).filter(|keeper| keeper.is_alive());
        keeper.with_context(|| {
            let name = &self.spec.name;
            format!("node {node} of lab `{name}` is gone: osmos lab down --name {name}")
        })
    }
}

/// The address of a node in its lab. Every lab has its own network, so all use the same addresses.
pub fn address(node: NodeId) -> Ipv4Addr {
    let [.., number] = node.0.to_be_bytes();
    Ipv4Addr::new(10, 77, 0, number)
}

/// Where the labs of this user are written down.
pub fn labs_dir() -> Result<PathBuf> {
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return Ok(PathBuf::from("/run/osmos-lab"));
    }
    // Empty is as good as unset (XDG Base Directory Specification).
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) if Path::new(&dir).is_absolute() => Ok(Path::new(&dir).join("osmos-lab")),
        Some(dir) => bail!("XDG_RUNTIME_DIR is `{}`, not a full path", Path::new(&dir).display()),
        None => Ok(PathBuf::from(format!("/tmp/osmos-lab-{uid}"))),
    }
}

/// Names of the labs that this user has, whatever their state.
pub fn lab_names() -> Result<Vec<LabName>> {
    let dir = labs_dir()?;
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot list {}", dir.display()))?,
    };
    let text = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<LabName> = text.filter_map(|name| name.parse().ok()).collect();
    names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(names)
}

/// The record of a lab that is up.
pub fn read_up(name: &LabName) -> Result<Record> {
    let is_up = |record: &Record| {
        record.phase == Phase::Up && record.switch.as_ref().is_some_and(Keeper::is_alive)
    };
    match read(&labs_dir()?.join(name.as_str()))? {
        Some(record) if is_up(&record) => Ok(record),
        Some(_) => bail!("lab `{name}` is not whole: osmos lab down --name {name}"),
        None => bail!("there is no lab `{name}`: osmos lab up --name {name} --nodes N"),
    }
}

/// The record in a lab's directory, if there is one.
pub fn read(lab_dir: &Path) -> Result<Option<Record>> {
    let file = lab_dir.join(RECORD_FILE);
    let text = match fs::read(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    let record = serde_json::from_slice(&text);
    record.map(Some).with_context(|| format!("{} is not a lab's record", file.display()))
}

/// A lab's directory, held alone: at most one command changes a lab at a time.
///
/// The lock is on the directory itself and not on a file beside it, so that nothing is left when it
/// goes; the kernel drops it when its holder dies, however it dies.
pub struct LabDir {
    path: PathBuf,
    _lock: File,
}

impl LabDir {
    /// Makes the directory if needed and waits until no other command works on this lab.
    pub fn make(name: &LabName) -> Result<LabDir> {
        for _ in 0..LOCK_ATTEMPTS {
            let labs = labs_dir()?;
            let made =
                make_private_dir(&labs).and_then(|()| make_private_dir(&labs.join(name.as_str())));
            match made {
                Ok(()) => {}
                Err(error) if is_not_found(&error) => continue,
                Err(error) => return Err(error),
            }
            if let Some(lab_dir) = LabDir::lock(name)? {
                return Ok(lab_dir);
            }
        }
        bail!("lab `{name}` is taken down again and again by other commands")
    }

    /// Waits until no other command works on this lab. None if it does not exist.
    pub fn lock(name: &LabName) -> Result<Option<LabDir>> {
        let path = labs_dir()?.join(name.as_str());
        for _ in 0..LOCK_ATTEMPTS {
            let dir = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                dir => dir.with_context(|| format!("cannot open {}", path.display()))?,
            };
            let locked = match dir.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    eprintln!("osmos lab: waiting for another command on lab `{name}`");
                    dir.lock()
                }
                Err(TryLockError::Error(error)) => Err(error),
                Ok(()) => Ok(()),
            };
            locked.with_context(|| format!("cannot lock {}", path.display()))?;
            if is_same_directory(&dir, &path) {
                return Ok(Some(LabDir { path, _lock: dir }));
            }
        }
        bail!("lab `{name}` is made and taken down again and again by other commands")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the record in one step: a reader sees the old one or the new one.
    pub fn write(&self, record: &Record) -> Result<()> {
        let file = self.path.join(RECORD_FILE);
        let next = self.path.join("lab.json.next");
        let text = serde_json::to_vec_pretty(record).context("cannot write down the lab")?;
        fs::write(&next, text)
            .and_then(|()| fs::rename(&next, &file))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Writes the secret of the lab's daemons, readable by this user alone.
    pub fn write_cluster_key(&self) -> Result<()> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).context("the kernel gives no random bytes")?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.path.join(KEY_FILE);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The log of the lab's keepers, locked for as long as any of them has it as standard error.
    pub fn make_keeper_log(&self) -> Result<File> {
        let path = self.keeper_log();
        let log = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        log.try_lock().with_context(|| format!("{} is in use already", path.display()))?;
        Ok(log)
    }

    pub fn keeper_log(&self) -> PathBuf {
        self.path.join("keepers.log")
    }

    /// Waits until no keeper is left, also none that was started and not written down any more:
    /// those end by themselves, because whoever started them has.
    pub fn wait_for_keepers(&self) -> Result<()> {
        match File::open(self.keeper_log()) {
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error).context("cannot open the keepers' log"),
            Ok(log) => log.lock().context("cannot wait for the lab's keepers"),
        }
    }

    /// Forgets the lab. Everything it names must be gone.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.path)
            .with_context(|| format!("cannot remove {}", self.path.display()))?;
        remove_unused_labs_dir()
    }
}

/// Removes the directory of labs if no lab is left in it, also one that was made for a lab that
/// never came because its maker was killed in between.
pub fn remove_unused_labs_dir() -> Result<()> {
    match fs::remove_dir(labs_dir()?) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty && !is_absent(&error) => {
            Err(error).context("cannot remove the directory of labs")
        }
        _ => Ok(()),
    }
}

fn is_same_directory(dir: &File, path: &Path) -> bool {
    match (dir.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(is_absent)
}

/// Only its owner may say what a lab is: the record decides what `down` kills.
fn make_private_dir(path: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", path.display()));
        }
        _ => {}
    }
    let meta =
        fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    ensure!(
        meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw(),
        "{} is not a directory of yours: remove it",
        path.display()
    );
    Ok(())
}
