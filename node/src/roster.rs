//! What the next daemon must know of this node's processes and guests if this one dies: a small
//! file for each in the runtime directory, private to the daemon's user, replaced as a whole by a
//! rename whenever something of it changes. Nothing is waited for until it is on a disk: what a
//! roster is about does not survive the machine either.
//!
//! Files of another boot or another PID namespace are nobody's: pids mean nothing there. A file
//! that cannot be read costs what is in it, never the node: its supervisors are sent home, and a
//! process at home is a plain process.

use crate::supervisor::Identity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use wire::control::{Decision, ManageOptions};
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::peer::{BerthRequest, Owner};
use wire::processor::Processor;
use wire::processor_time::{PastClock, ProcessorTime};
use wire::supervisor::Wait;

/// No file of a roster comes near this.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// More files than there can be processes and guests.
const FILES_MAX: usize = 16_384;
const PROCESS: &str = "process-";
const GUEST: &str = "guest-";
const TALLY: &str = "tally-";

/// A process that was born here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptProcess {
    pub process: Identity,
    pub owner: Owner,
    pub command: String,
    #[serde(default)]
    pub left_as: Option<String>,
    pub options: ManageOptions,
    /// What its program was told to use of a processor, if it was told that.
    pub baseline: Option<Box<Processor>>,
    /// It has not become its command yet ...
    pub is_pending: bool,
    /// ... but is this program still.
    pub program: Option<PathBuf>,
    pub at: NodeId,
    pub deputy: Option<Identity>,
    /// The move under way, which may end while there is no daemon.
    pub order: Option<KeptOrder>,
    pub waits: Vec<Wait>,
    pub clocks: Vec<PastClock>,
    #[serde(default)]
    pub tally: Option<Identity>,
    #[serde(default)]
    pub job: Option<crate::process::RankOf>,
    #[serde(default)]
    pub away: ProcessorTime,
    pub past_cpu_us: u64,
    pub rss_bytes: u64,
    pub core_speed: f64,
    pub migrations: u64,
    pub last_move_s: Option<f64>,
    pub freeze_us: u64,
    /// What of its memory was sent meanwhile.
    pub freeze_bytes: u64,
    pub reason: String,
    pub decisions: Vec<Decision>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptOrder {
    pub to: NodeId,
    /// As [`crate::process::Cause`] has it.
    pub cause: crate::process::Cause,
    pub why: String,
    pub core_speed: f64,
}

/// A process of another node that is here, or has a berth here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptGuest {
    pub process: GlobalPid,
    pub ticket: Ticket,
    pub asked: BerthRequest,
    /// As whom it runs here.
    pub owner: Owner,
    pub supervisor: Identity,
    /// Its body, once that runs.
    pub body: Option<Identity>,
    pub command: String,
    /// One beside it that it shares memory with.
    #[serde(default)]
    pub bound_to: Option<HomePid>,
}

/// What a command of `osmos time` and its descendants that have ended have used away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTally {
    pub command: Identity,
    /// Who may ask for it.
    pub uid: u32,
    /// The command that this one is a descendant of, and which is timed as well.
    pub within: Option<Identity>,
    pub away: ProcessorTime,
}

#[derive(Serialize, Deserialize)]
struct Page<T> {
    world: String,
    of: T,
}

/// The directory of these files.
pub struct Roster {
    dir: PathBuf,
    /// Within which pids mean something.
    world: String,
}

/// Everything that an earlier daemon has left.
#[derive(Default)]
pub struct Left {
    pub processes: Vec<KeptProcess>,
    pub guests: Vec<KeptGuest>,
    pub tallies: Vec<KeptTally>,
}

impl Roster {
    pub fn open(runtime_dir: &Path) -> io::Result<Roster> {
        let dir = runtime_dir.join("roster");
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => (),
        }
        Ok(Roster { dir, world: world()? })
    }

    pub fn keep_process(&self, process: &KeptProcess) {
        self.keep(&self.process_path(HomePid(process.process.pid)), process);
    }

    pub fn forget_process(&self, pid: HomePid) {
        forget(&self.process_path(pid));
    }

    pub fn keep_guest(&self, guest: &KeptGuest) {
        self.keep(&self.guest_path(guest.supervisor), guest);
    }

    pub fn forget_guest(&self, supervisor: Identity) {
        forget(&self.guest_path(supervisor));
    }

    pub fn keep_tally(&self, tally: &KeptTally) {
        self.keep(&self.tally_path(tally.command), tally);
    }

    pub fn forget_tally(&self, command: Identity) {
        forget(&self.tally_path(command));
    }

    /// What the last daemon has left; what is of no use any more is removed.
    pub fn load(&self) -> io::Result<Left> {
        let mut left = Left::default();
        for entry in fs::read_dir(&self.dir)?.take(FILES_MAX) {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_read = if name.starts_with(PROCESS) {
                self.read(&entry.path()).map(|process| left.processes.push(process))
            } else if name.starts_with(GUEST) {
                self.read(&entry.path()).map(|guest| left.guests.push(guest))
            } else if name.starts_with(TALLY) {
                self.read(&entry.path()).map(|tally| left.tallies.push(tally))
            } else {
                None
            };
            if is_read.is_none() {
                forget(&entry.path());
            }
        }
        // The order of a directory is that of chance.
        left.processes.sort_by_key(|process| process.process.pid);
        left.guests.sort_by_key(|guest| guest.supervisor.pid);
        Ok(left)
    }

    /// None shall be found by a daemon that comes later.
    pub fn clear(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.for_each(|entry| forget(&entry.path()));
    }

    fn process_path(&self, pid: HomePid) -> PathBuf {
        self.dir.join(format!("{PROCESS}{pid}"))
    }

    fn guest_path(&self, supervisor: Identity) -> PathBuf {
        self.dir.join(format!("{GUEST}{}", supervisor.pid))
    }

    fn tally_path(&self, command: Identity) -> PathBuf {
        self.dir.join(format!("{TALLY}{}-{}", command.pid, command.started_ticks))
    }

    fn keep<T: Serialize>(&self, path: &Path, of: &T) {
        let page = Page { world: self.world.clone(), of };
        let kept = serde_json::to_vec(&page).map_err(io::Error::from);
        if let Err(error) = kept.and_then(|bytes| replace(path, &bytes)) {
            // The node works as well; only its next daemon will know less.
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }

    /// None if it is not of this world, or no page at all.
    fn read<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        let mut bytes = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read.and_then(|_| Ok(serde_json::from_slice::<Page<T>>(&bytes)?)) {
            Ok(page) => (page.world == self.world).then_some(page.of),
            Err(error) => {
                tracing::warn!("{} is not understood: {error}", path.display());
                None
            }
        }
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    fs::rename(&fresh, path)
}

fn forget(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
        _ => (),
    }
}

/// This boot of this machine, as seen from this PID namespace.
fn world() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::process::{Cause, RankOf};
    use wire::control::Placement;
    use wire::freeze_budget::FreezeBudget;
    use wire::supervisor::Way;

    fn process(pid: i32) -> KeptProcess {
        KeptProcess {
            process: Identity { pid, started_ticks: 7 },
            owner: Owner { uid: 1000, gid: 1000 },
            command: "sleep".to_owned(),
            left_as: Some("sleep 100".to_owned()),
            options: ManageOptions {
                placement: Placement::Home,
                storm_ms: Some(20),
                cpu_baseline: true,
                freeze_budget_ms: Some(FreezeBudget::DEFAULT),
                way: Way::PreCopy,
                is_timed: false,
                is_mobile: true,
            },
            baseline: Some(Box::default()),
            is_pending: true,
            program: Some("/bin/osmos".into()),
            at: NodeId(2),
            deputy: Some(Identity { pid: 5, started_ticks: 8 }),
            order: Some(KeptOrder {
                to: NodeId(3),
                cause: Cause::Storm,
                why: "storm".to_owned(),
                core_speed: 1.5,
            }),
            waits: Vec::new(),
            clocks: Vec::new(),
            tally: Some(Identity { pid: 4, started_ticks: 2 }),
            job: Some(RankOf {
                job: GlobalPid { home: NodeId(2), pid: HomePid(50) },
                server: Identity { pid: 6, started_ticks: 5 },
            }),
            away: ProcessorTime { user_ns: 5, system_ns: 6 },
            past_cpu_us: 4,
            rss_bytes: 1 << 20,
            core_speed: 1.0,
            migrations: 9,
            last_move_s: Some(1.5),
            freeze_us: 700,
            freeze_bytes: 1 << 20,
            reason: "storm".to_owned(),
            decisions: Vec::new(),
        }
    }

    fn tally(pid: i32) -> KeptTally {
        KeptTally {
            command: Identity { pid, started_ticks: 3 },
            uid: 1000,
            within: Some(Identity { pid: 1, started_ticks: 1 }),
            away: ProcessorTime { user_ns: 1, system_ns: 2 },
        }
    }

    fn guest(supervisor: i32) -> KeptGuest {
        let owner = Owner { uid: 1000, gid: 1000 };
        KeptGuest {
            process: GlobalPid { home: NodeId(1), pid: HomePid(50) },
            ticket: Ticket([4; 16]),
            asked: BerthRequest {
                pid: HomePid(50),
                owner,
                from: NodeId(1),
                rss_bytes: 1 << 20,
                cpu_us: 1,
                freeze_us: 2,
                freeze_bytes: 3,
                is_ordered: true,
                is_pinned: false,
                user_milli: 0,
                group: None,
                expected_us: 0,
            },
            owner,
            supervisor: Identity { pid: supervisor, started_ticks: 3 },
            body: None,
            command: "sleep".to_owned(),
            bound_to: Some(HomePid(49)),
        }
    }

    #[test]
    fn the_next_daemon_finds_what_the_last_has_kept_and_nothing_that_it_forgot() {
        let dir = tempfile::tempdir().unwrap();
        let roster = Roster::open(dir.path()).unwrap();
        [12, 11].iter().for_each(|pid| roster.keep_process(&process(*pid)));
        let later = KeptProcess { migrations: 10, ..process(11) };
        roster.keep_process(&later);
        [21, 22].iter().for_each(|pid| roster.keep_guest(&guest(*pid)));
        roster.forget_guest(guest(21).supervisor);
        roster.forget_process(HomePid(99));
        [31, 32].iter().for_each(|pid| roster.keep_tally(&tally(*pid)));
        roster.forget_tally(tally(31).command);
        let left = Roster::open(dir.path()).unwrap().load().unwrap();
        assert_eq!(left.processes, [later, process(12)]);
        assert_eq!(left.guests, [guest(22)]);
        assert_eq!(left.tallies, [tally(32)]);
        roster.clear();
        let left = roster.load().unwrap();
        assert!(left.processes.is_empty() && left.guests.is_empty());
    }

    #[test]
    fn what_is_damaged_or_of_another_boot_is_left_out_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let roster = Roster::open(dir.path()).unwrap();
        roster.keep_process(&process(11));
        let elsewhere = Roster { dir: roster.dir.clone(), world: "another boot".to_owned() };
        elsewhere.keep_process(&process(12));
        fs::write(roster.dir.join("process-13"), b"{").unwrap();
        fs::write(roster.dir.join("guest-14"), b"").unwrap();
        fs::write(roster.dir.join("process-15.new"), b"half").unwrap();
        let left = roster.load().unwrap();
        assert_eq!((left.processes, left.guests.len()), (vec![process(11)], 0));
        assert_eq!(fs::read_dir(&roster.dir).unwrap().count(), 1);
    }
}
