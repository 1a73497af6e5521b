//! Files in memory that processes which are away share with each other, and have a name that others
//! could open meanwhile: who does waits until they are home ([decision
//! 0034](../../docs/decisions/0034-groups-that-share-memory.md)).
//!
//! Only fanotify(7) lets anybody wait who opens a file, and only the administrator may ask for
//! that. So this is the daemon's, for supervisors that run as users. A user has others wait for
//! files of his own alone, as he has with leases (fcntl(2)), and not for longer than [`PATIENCE`].

use kernel::proc::process;
use nix::fcntl::AT_FDCWD;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags,
    Response,
};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use wire::ids::HomePid;

/// So long an opener waits: then it is told that it may not, because what it would see is old.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether one has waited for long enough.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Of one user.
const FILES_MAX: usize = 256;
/// Those who wait for one file.
const WAITING_MAX: usize = 16;

/// Device and inode.
type FileId = (u64, u64);

/// That somebody opens a file of these processes.
pub struct Opening {
    pub holders: Vec<HomePid>,
    pub by: i32,
}

/// All such files of a node.
pub struct Openings(Arc<Shared>);

struct Shared {
    group: Fanotify,
    files: Mutex<BTreeMap<FileId, Guarded>>,
}

struct Guarded {
    file: File,
    uid: u32,
    /// Those who are away with it, and may open it.
    holders: BTreeSet<HomePid>,
    waiting: Vec<(FanotifyEvent, Instant)>,
}

impl Openings {
    /// Begins to tell of those who open guarded files, by a thread that calls `report`.
    ///
    /// # Errors
    /// The daemon may not, or this kernel cannot.
    pub fn watch(report: impl Fn(Opening) + Send + 'static) -> io::Result<Openings> {
        let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
        let shared = Arc::new(Shared { group, files: Mutex::default() });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new().name("openings".into()).spawn(move || serve(&weak, &report))?;
        Ok(Openings(shared))
    }

    /// Has others wait who open this file, until the process is released; it is a file of this
    /// user.
    ///
    /// # Errors
    /// It is none that this can be done for.
    pub fn guard(&self, pid: HomePid, file: OwnedFd, uid: u32) -> Result<(), String> {
        let file = File::from(file);
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        let system = fstatfs(&file).map_err(|errno| errno.to_string())?;
        if !metadata.is_file() || metadata.uid() != uid || system.filesystem_type() != TMPFS_MAGIC {
            return Err("it is no file in memory that belongs to the user".to_owned());
        }
        let mut files = self.0.files();
        let id = (metadata.dev(), metadata.ino());
        if !files.contains_key(&id) {
            let is_users = |guarded: &&Guarded| guarded.uid == uid;
            if files.values().filter(is_users).count() >= FILES_MAX {
                return Err(format!("{FILES_MAX} files of this user are guarded already"));
            }
            let marked = self.0.mark(MarkFlags::FAN_MARK_ADD, &file);
            marked.map_err(|errno| format!("fanotify_mark: {errno}"))?;
        }
        let (holders, waiting) = Default::default();
        let guarded = files.entry(id).or_insert(Guarded { file, uid, holders, waiting });
        guarded.holders.insert(pid);
        Ok(())
    }

    /// A process was made where its maker is, and has what that shares.
    pub fn inherit(&self, maker: HomePid, child: HomePid) {
        let mut files = self.0.files();
        for guarded in files.values_mut().filter(|guarded| guarded.holders.contains(&maker)) {
            guarded.holders.insert(child);
        }
    }

    /// The process is home, or has ended.
    pub fn release(&self, pid: HomePid) {
        self.0.files().retain(|_, guarded| {
            guarded.holders.remove(&pid);
            if guarded.holders.is_empty() {
                // Nobody comes to wait after that.
                if let Err(errno) = self.0.mark(MarkFlags::FAN_MARK_REMOVE, &guarded.file) {
                    tracing::debug!("cannot let a file be opened freely: {errno}");
                }
                for (event, _) in guarded.waiting.drain(..) {
                    self.0.answer(&event, Response::FAN_ALLOW);
                }
            }
            !guarded.holders.is_empty()
        });
    }
}

impl Shared {
    fn files(&self) -> MutexGuard<'_, BTreeMap<FileId, Guarded>> {
        self.files.lock().expect("no thread of the daemon panicked")
    }

    fn mark(&self, how: MarkFlags, file: &File) -> nix::Result<()> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        self.group.mark(how, MaskFlags::FAN_OPEN_PERM, AT_FDCWD, Some(&path))
    }

    fn answer(&self, event: &FanotifyEvent, response: Response) {
        let Some(file) = event.fd() else { return };
        if let Err(errno) = self.group.write_response(FanotifyResponse::new(file, response)) {
            // Who waited has ended.
            tracing::debug!("cannot let a process open a file: {errno}");
        }
    }

    /// What is to be told of an opening, if it has to wait.
    fn take(&self, event: FanotifyEvent) -> Option<Opening> {
        let (by, until) = (event.pid(), Instant::now() + PATIENCE);
        let id = event.fd().and_then(id_of);
        let known = id.and_then(|id| Some(self.files().get(&id)?.holders.clone()));
        // Supervisors look at what they serve.
        let is_ours = || process::runs_our_program(by);
        let has_to_wait = known.is_some_and(|holders| !is_ours() && !is_one_of(&holders, by));
        let mut files = self.files();
        let guarded = id.and_then(|id| files.get_mut(&id)).filter(|_| has_to_wait);
        let Some(guarded) = guarded else {
            self.answer(&event, Response::FAN_ALLOW);
            return None;
        };
        if guarded.waiting.len() >= WAITING_MAX {
            self.answer(&event, Response::FAN_DENY);
            return None;
        }
        guarded.waiting.push((event, until));
        // Once is enough: whoever comes is let in when they are home.
        let is_first = guarded.waiting.len() == 1;
        is_first.then(|| Opening { holders: guarded.holders.iter().copied().collect(), by })
    }

    /// Those who have waited for long enough.
    fn refuse_late(&self) {
        let now = Instant::now();
        for guarded in self.files().values_mut() {
            for (event, _) in guarded.waiting.extract_if(.., |(_, until)| *until <= now) {
                tracing::warn!(
                    "process {} may not open a file that processes share which are away and \
                     do not come home",
                    event.pid()
                );
                self.answer(&event, Response::FAN_DENY);
            }
        }
    }
}

fn serve(shared: &Weak<Shared>, report: &dyn Fn(Opening)) {
    // Ends with the daemon, or with what it has to tell.
    while let Some(shared) = shared.upgrade() {
        let mut watched = [PollFd::new(shared.group.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(LOOK_INTERVAL).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut watched, patience);
        let events = shared.group.read_events().unwrap_or_default();
        events.into_iter().filter_map(|event| shared.take(event)).for_each(report);
        shared.refuse_late();
    }
}

fn id_of(file: impl AsFd) -> Option<FileId> {
    let stat = nix::sys::stat::fstat(file).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Whether a process is away with these, and may open what some of them share: it may have more of
/// their memory than this. It cannot come home while it waits, nor can they then.
fn is_one_of(holders: &BTreeSet<HomePid>, pid: i32) -> bool {
    let members: Vec<i32> = holders.iter().map(|holder| holder.0).collect();
    members.contains(&pid) || migrate::group::shares_with(pid, &members)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;

    #[test]
    fn who_opens_a_guarded_file_waits_until_its_holder_is_released() {
        let (tell, told) = channel();
        let report = move |opening| drop(tell.send(opening));
        let Ok(openings) = Openings::watch(report) else {
            return needs::skip("only the administrator can have others wait who open a file");
        };
        let path = PathBuf::from(format!("/dev/shm/osmos-openings-{}", std::process::id()));
        std::fs::write(&path, "here").unwrap();
        let file = || OwnedFd::from(File::open(&path).unwrap());
        let uid = std::fs::metadata(&path).unwrap().uid();
        assert!(openings.guard(HomePid(1), file(), uid + 1).is_err(), "it is another user's");
        let text = OwnedFd::from(File::open("/proc/self/maps").unwrap());
        assert!(openings.guard(HomePid(1), text, uid).is_err(), "it is no file in memory");
        openings.guard(HomePid(1), file(), uid).unwrap();
        openings.guard(HomePid(2), file(), uid).unwrap();
        let reader = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().unwrap();
        let opening = told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(opening.by as u32, reader.id());
        assert_eq!(opening.holders, [HomePid(1), HomePid(2)]);
        openings.release(HomePid(1));
        assert!(openings.0.files().values().all(|guarded| guarded.waiting.len() == 1));
        openings.release(HomePid(2));
        assert_eq!(reader.wait_with_output().unwrap().stdout, b"here");
        assert!(openings.0.files().is_empty());
        let own = Command::new("cat").arg(&path).output().unwrap();
        assert_eq!(own.stdout, b"here", "it is a file like others again");
        std::fs::remove_file(&path).unwrap();
    }
}
