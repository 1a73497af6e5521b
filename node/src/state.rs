//! What a node keeps on disk, all of it private to its user (directory 0700, files 0600):
//!
//! * `node.key`: the secret half of its static key
//! * `cluster.json`: its number, the cluster's secret and those before it, the members it knows,
//!   and those that were forgotten
//! * `stamp`: above all stamps that it has used (see [`crate::keys::stamps`])
//! * `calls.json`: the newest call of each caller (see [`crate::keys::replay`])
//! * `programs.json`: what programs took that have ended (see [`crate::programs`])
//! * `owner.json`: what its owner has decided
//! * `speed`: what the calibration measured
//!
//! Every file is replaced as a whole by a rename, so a crash leaves the old or the new one.

use crate::keys::replay::Replay;
use crate::keys::secrets::{Kept, Secrets};
use crate::keys::stamps::Stamps;
use crate::keys::{ClusterSecret, NoRandomness, NodeSecret};
use crate::programs::Programs;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use wire::ids::NodeId;
use wire::owner::OwnerState;
use wire::peer::{FORGOTTEN_MAX, Forgotten, Member, NodeKey};

/// No file of a node's state comes near this.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// A shared key file shorter than this is no secret.
const KEY_FILE_BYTES_MIN: usize = 16;

/// Why the state of a node cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot make directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("directory {} belongs to user {owner}: give another one", path.display())]
    ForeignDirectory { path: PathBuf, owner: u32 },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is damaged: move it away and join the cluster again", .0.display())]
    Damaged(PathBuf),
    #[error(
        "cluster key {} can be read by others (mode {mode:03o}): `chmod 600` it, or make a new one",
        path.display()
    )]
    KeyIsPublic { path: PathBuf, mode: u32 },
    #[error(
        "cluster key {} holds {bytes} bytes, at least {KEY_FILE_BYTES_MIN} are needed: make it \
         with `head -c 32 /dev/urandom` and copy it to every node", path.display()
    )]
    KeyIsShort { path: PathBuf, bytes: usize },
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// A node's place in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub node: NodeId,
    pub secrets: Secrets,
    pub members: Vec<Member>,
    pub forgotten: Vec<Forgotten>,
    /// The last number of its own range that it gave.
    pub given: u32,
}

impl Membership {
    /// Of a node in a cluster of its own, or whose cluster is written down elsewhere.
    pub fn new(node: NodeId, secret: ClusterSecret, members: Vec<Member>) -> Membership {
        let secrets = Secrets::first(secret);
        Membership { node, secrets, members, forgotten: Vec::new(), given: 0 }
    }
}

#[derive(Serialize, Deserialize)]
struct MembershipFile {
    node: NodeId,
    secret: [u8; 32],
    members: Vec<Member>,
    #[serde(default)]
    secrets: Kept,
    #[serde(default)]
    forgotten: Vec<Forgotten>,
    #[serde(default)]
    given: u32,
}

/// The state directory of one node.
#[derive(Clone, Debug)]
pub struct State {
    dir: PathBuf,
}

impl State {
    pub fn open(dir: &Path) -> Result<State, StateError> {
        make_dir(dir, 0o700)?;
        Ok(State { dir: dir.to_owned() })
    }

    /// This node's own key, made on the first start.
    pub fn node_secret(&self) -> Result<NodeSecret, StateError> {
        let path = self.dir.join("node.key");
        match read(&path)? {
            Some(bytes) => {
                let key = bytes.try_into().map_err(|_| StateError::Damaged(path))?;
                Ok(NodeSecret(key))
            }
            None => {
                let secret = NodeSecret::generate()?;
                self.keep_node_secret(&secret)?;
                Ok(secret)
            }
        }
    }

    /// Another key: this node is another one from now on.
    pub fn keep_node_secret(&self, secret: &NodeSecret) -> Result<(), StateError> {
        replace(&self.dir.join("node.key"), &secret.0)
    }

    /// Stamps whose ceiling is kept here.
    pub fn stamps(&self) -> Result<Stamps, StateError> {
        let path = self.dir.join("stamp");
        // One that makes no sense is as good as none: others will tell.
        let kept =
            read(&path)?.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.trim().parse().ok());
        Stamps::start(kept, move |ceiling| replace(&path, format!("{ceiling}\n").as_bytes()))
    }

    /// None if this node has never been in a cluster.
    pub fn membership(&self) -> Result<Option<Membership>, StateError> {
        let path = self.dir.join("cluster.json");
        let Some(bytes) = read(&path)? else { return Ok(None) };
        decode_membership(&bytes).ok_or(StateError::Damaged(path)).map(Some)
    }

    pub fn keep_membership(&self, membership: &Membership) -> Result<(), StateError> {
        replace(&self.dir.join("cluster.json"), &encode_membership(membership))
    }

    pub fn replay(&self) -> Result<Replay, StateError> {
        let path = self.dir.join("calls.json");
        let Some(bytes) = read(&path)? else { return Ok(Replay::default()) };
        decode_replay(&bytes).ok_or(StateError::Damaged(path))
    }

    pub fn keep_replay(&self, replay: &Replay) -> Result<(), StateError> {
        let calls: Vec<(NodeKey, u64)> = replay.newest().collect();
        let bytes = serde_json::to_vec(&calls).expect("plain fields always encode");
        replace(&self.dir.join("calls.json"), &bytes)
    }

    /// What the owner of this node has decided.
    pub fn owner(&self) -> Result<OwnerState, StateError> {
        let path = self.dir.join("owner.json");
        let Some(bytes) = read(&path)? else { return Ok(OwnerState::default()) };
        let state: OwnerState =
            serde_json::from_slice(&bytes).map_err(|_| StateError::Damaged(path.clone()))?;
        if state.is_bounded() { Ok(state) } else { Err(StateError::Damaged(path)) }
    }

    pub fn keep_owner(&self, owner: &OwnerState) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(owner).expect("plain fields always encode");
        replace(&self.dir.join("owner.json"), &bytes)
    }

    /// The speed of a core as measured before, unless the file makes no sense.
    pub fn speed(&self) -> Option<f64> {
        let bytes = read(&self.dir.join("speed")).ok()??;
        let speed: f64 = std::str::from_utf8(&bytes).ok()?.trim().parse().ok()?;
        (speed.is_finite() && speed > 0.0).then_some(speed)
    }

    /// Not waited for until it is on the disk: a daemon that stands still for a busy disk passes
    /// for dead, and what is lost is measured again.
    pub fn keep_speed(&self, speed: f64) -> Result<(), StateError> {
        replace_with(&self.dir.join("speed"), format!("{speed:.4}\n").as_bytes(), |_| Ok(()))
    }

    /// What programs took that have ended; nothing if the file makes no sense.
    pub fn programs(&self) -> Programs {
        let bytes = read(&self.dir.join("programs.json")).ok().flatten();
        bytes.and_then(|bytes| Programs::decode(&bytes)).unwrap_or_default()
    }

    /// Not waited for, either: it is learned again.
    pub fn keep_programs(&self, encoded: &[u8]) -> Result<(), StateError> {
        replace_with(&self.dir.join("programs.json"), encoded, |_| Ok(()))
    }

    pub fn journal_path(&self) -> PathBuf {
        self.dir.join("events.jsonl")
    }
}

pub fn decode_membership(bytes: &[u8]) -> Option<Membership> {
    let file: MembershipFile = serde_json::from_slice(bytes).ok()?;
    let secrets = Secrets::restore(ClusterSecret(file.secret), file.secrets);
    let MembershipFile { node, members, mut forgotten, given, .. } = file;
    forgotten.truncate(FORGOTTEN_MAX);
    Some(Membership { node, secrets, members, forgotten, given })
}

pub fn encode_membership(membership: &Membership) -> Vec<u8> {
    let file = MembershipFile {
        node: membership.node,
        secret: membership.secrets.current.0,
        members: membership.members.clone(),
        secrets: membership.secrets.kept(),
        forgotten: membership.forgotten.clone(),
        given: membership.given,
    };
    serde_json::to_vec(&file).expect("plain fields always encode")
}

pub fn decode_replay(bytes: &[u8]) -> Option<Replay> {
    serde_json::from_slice::<Vec<(NodeKey, u64)>>(bytes).ok().map(Replay::restore)
}

/// Makes a directory of this user, with the given mode. One that exists is taken as it is, unless
/// somebody else made it: he could put his own files in the place of ours.
pub fn make_dir(dir: &Path, mode: u32) -> Result<(), StateError> {
    let failed = |source| StateError::Directory { path: dir.to_owned(), source };
    DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(failed)?;
    let owner = fs::metadata(dir).map_err(failed)?.uid();
    if owner != nix::unistd::geteuid().as_raw() && owner != 0 {
        return Err(StateError::ForeignDirectory { path: dir.to_owned(), owner });
    }
    Ok(())
}

/// The secret of a map cluster, from the key file that its nodes share.
pub fn read_cluster_key(path: &Path) -> Result<ClusterSecret, StateError> {
    let failed = |source| StateError::Read { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StateError::KeyIsPublic { path: path.to_owned(), mode });
    }
    let content = read(path)?.unwrap_or_default();
    if content.len() < KEY_FILE_BYTES_MIN {
        return Err(StateError::KeyIsShort { path: path.to_owned(), bytes: content.len() });
    }
    Ok(ClusterSecret::of_key_file(&content))
}

/// None if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    let failed = |source| StateError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Whatever happens, the old content or the new is there afterwards.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    replace_with(path, bytes, File::sync_all)
}

fn replace_with(
    path: &Path,
    bytes: &[u8],
    finish: fn(&File) -> io::Result<()>,
) -> Result<(), StateError> {
    let failed = |source| StateError::Write { path: path.to_owned(), source };
    let fresh = path.with_extension("new");
    // A leftover of a crash would keep its own mode: it must not be reused.
    let _ = fs::remove_file(&fresh);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    finish(&file).map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::programs::Program;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    fn state() -> (tempfile::TempDir, State) {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(&dir.path().join("osmos")).unwrap();
        (dir, state)
    }

    #[test]
    fn a_node_keeps_its_key_its_place_and_the_calls_it_heard() {
        let (_dir, state) = state();
        assert_eq!(state.membership().unwrap(), None);
        let secret = state.node_secret().unwrap();
        assert_eq!(state.node_secret().unwrap(), secret);
        let member = Member {
            node: NodeId(4),
            address: "10.0.0.4:7780".parse().unwrap(),
            key: secret.public(),
        };
        let cluster = ClusterSecret::generate().unwrap();
        let mut membership = Membership::new(NodeId(4), cluster, vec![member]);
        membership.secrets.renew(7).unwrap();
        membership.forgotten = vec![Forgotten { node: NodeId(3), key: NodeKey([3; 32]) }];
        membership.given = 40_001;
        state.keep_membership(&membership).unwrap();
        assert_eq!(state.membership().unwrap(), Some(membership));
        let mut replay = Replay::default();
        replay.is_new(secret.public(), 77);
        state.keep_replay(&replay).unwrap();
        assert_eq!(state.replay().unwrap(), replay);
    }

    #[test]
    fn what_programs_took_is_kept_unless_it_makes_no_sense() {
        let (_dir, state) = state();
        let program = Program { uid: 1, command: "cc1".into(), shape: 2 };
        let mut programs = state.programs();
        (0..3).for_each(|_| programs.ended(program.clone(), Duration::from_secs(1)));
        let encoded = programs.take_news(Instant::now(), false).unwrap();
        state.keep_programs(&encoded).unwrap();
        let left = |programs: &Programs| programs.left(&program, Duration::ZERO);
        assert_eq!(left(&state.programs()), left(&programs));
        state.keep_programs(&encoded[1..]).unwrap();
        assert_eq!(left(&state.programs()), None);
    }

    #[test]
    fn secrets_can_be_read_by_their_owner_only() {
        let (_dir, state) = state();
        state.node_secret().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&state.dir.join("node.key")), 0o600);
        assert_eq!(mode(&state.dir), 0o700);
    }

    #[test]
    fn a_damaged_file_is_named_and_not_overwritten() {
        let (_dir, state) = state();
        fs::write(state.dir.join("node.key"), b"short").unwrap();
        let error = state.node_secret().unwrap_err().to_string();
        assert!(error.contains("node.key is damaged"), "{error}");
        assert_eq!(fs::read(state.dir.join("node.key")).unwrap(), b"short");
    }

    #[test]
    fn a_cluster_key_that_others_can_read_or_guess_is_refused() {
        let (dir, _state) = state();
        let path = dir.path().join("cluster.key");
        fs::write(&path, b"0123456789abcdef").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_cluster_key(&path).unwrap_err();
        assert!(matches!(error, StateError::KeyIsPublic { mode: 0o640, .. }), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        read_cluster_key(&path).unwrap();
        fs::write(&path, b"short").unwrap();
        let error = read_cluster_key(&path).unwrap_err();
        assert!(matches!(error, StateError::KeyIsShort { bytes: 5, .. }), "{error}");
    }
}
