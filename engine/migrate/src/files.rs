//! Files that a process has mapped shared and writable, as its home sees them ([decision
//! 0027](../../../docs/decisions/)).
//!
//! While it is away, home keeps its mapping of the file, and what the body writes to its own memory
//! is written there, byte by byte. That is right as long as nobody else writes to the file: nobody
//! who could may have it open when the process leaves, and who opens it or writes to it later is
//! told by inotify(7), and has the process come home.

mod others;

use crate::group::{self, Bonds};
use crate::{MigrateError, Result, backing, layout};
use kernel::memory::Memory;
use kernel::proc::maps::Mapping;
use kernel::proc::system_v::{self, Attachments};
use nix::fcntl::{FcntlArg, SealFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::calls::{self, Touched};
use wire::forward::Call;
use wire::image::{Pages, runs};
use wire::limits::SHARED_FILE_BYTES_MAX;
use wire::memory_group::MemoryId;

/// Code of the reasons for which a process with such a file stays.
pub const SHARED_FILE: &str = "shared-file";
/// Code of the reasons for which one comes home.
pub const USED_AT_HOME: &str = "file-used-at-home";

/// Different files of one process: each is watched.
const FILES_MAX: usize = 64;
/// How long somebody is waited for who has such a file open for a moment: a program that is being
/// started from this one has its descriptors until then.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A shared mapping of a file that is writable or can become so, and is no memory of a group.
pub fn is_shared_file(pid: i32, mapping: &Mapping, bonds: &Bonds) -> bool {
    mapping.inode != 0 && !bonds.has(mapping) && may_write_to(pid, mapping)
}

/// Whether what the process writes there others see who have the same mapped.
pub fn may_write_to(pid: i32, mapping: &Mapping) -> bool {
    mapping.is_shared && (mapping.is_writable || may_become_writable(pid, mapping))
}

/// A read-only shared mapping of a file that was opened for writing can be made writable later.
fn may_become_writable(pid: i32, mapping: &Mapping) -> bool {
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    // The link's mode tells how the file was opened; unreadable links mean we cannot know.
    std::fs::symlink_metadata(link).is_ok_and(|m| m.permissions().mode() & 0o200 != 0)
}

/// Refuses what cannot be kept in agreement with its file wherever the process is.
///
/// # Errors
/// Refused; the reason names the file.
pub fn check(pid: i32, maps: &[Mapping], bonds: &Bonds) -> Result<()> {
    let shared: Vec<&Mapping> = maps.iter().filter(|m| is_shared_file(pid, m, bonds)).collect();
    let bytes = shared.iter().fold(0u64, |sum, m| sum.saturating_add(m.length()));
    let Some(first) = shared.first() else { return Ok(()) };
    if bytes > SHARED_FILE_BYTES_MAX {
        let text = format!(
            "it shares {bytes} bytes of files writably, {} at {:#x} among them; at most \
             {SHARED_FILE_BYTES_MAX} can move",
            shown(first),
            first.start
        );
        return Err(refused(text));
    }
    for mapping in &shared {
        let is_part = |m: &&Mapping| (m.device, m.inode) == (mapping.device, mapping.inode);
        let mut others = maps.iter().filter(is_part).filter(|m| m.start != mapping.start);
        let overlaps = |m: &&Mapping| {
            m.offset < mapping.offset + mapping.length() && mapping.offset < m.offset + m.length()
        };
        let is_another = |m: &&Mapping| overlaps(m) || !is_shared_file(pid, m, bonds);
        if let Some(other) = others.find(is_another) {
            let text = format!(
                "it has the file {} mapped at {:#x}, shared and writable, and at {:#x}",
                shown(mapping),
                mapping.start,
                other.start
            );
            return Err(MigrateError::refused("aliased-memory", text));
        }
    }
    Ok(())
}

fn refused(text: String) -> MigrateError {
    MigrateError::refused(SHARED_FILE, text)
}

fn shown(mapping: &Mapping) -> String {
    String::from_utf8_lossy(&mapping.name).into_owned()
}

/// The shared files of one process, watched; and the memory of its group that others could come by
/// ([decision 0034](../../../docs/decisions/)).
pub struct Files {
    inotify: Inotify,
    known: Vec<Known>,
    parts: Vec<Part>,
    /// Ids of System V shared memory.
    attached: Vec<u64>,
    /// Who may have that memory.
    bonds: Bonds,
}

/// One file.
struct Known {
    name: String,
    /// As `/proc/PID/maps` names it, and as stat(2) does: on some file systems they differ.
    mapped: (u64, u64),
    stat: (u64, u64),
    file: File,
    /// It is memory of a group: nothing of it is at home meanwhile.
    is_memory: bool,
    /// It is in memory, and others can open it by its name.
    has_name: bool,
}

impl Known {
    /// Behind the last page that has something of the file.
    fn mapped_end(&self) -> u64 {
        let size = self.file.metadata().map_or(0, |metadata| metadata.len());
        size.checked_next_multiple_of(4096).unwrap_or(u64::MAX)
    }
}

/// One mapping, as it was when the process left.
struct Part {
    range: Range<u64>,
    is_writable: bool,
    /// Of the files that are known.
    file: usize,
    offset: u64,
}

/// What somebody has done to such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was opened: for what, does not say.
    Opened,
    Written,
}

impl Files {
    /// Begins to watch them, and such memory as is `lasting`; None if there are none.
    ///
    /// # Errors
    /// Refused if one cannot be watched.
    pub fn watch(
        pid: i32,
        maps: &[Mapping],
        (bonds, lasting): (&Bonds, &[MemoryId]),
    ) -> Result<Option<Files>> {
        let is_lasting = |m: &Mapping| bonds.is_named(m) && lasting.contains(&group::id_of(m));
        let is_one = |m: &&Mapping| is_shared_file(pid, m, bonds) || is_lasting(m);
        let mut shared = maps.iter().filter(is_one).peekable();
        if shared.peek().is_none() {
            return Ok(None);
        }
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(|e| {
                refused(format!("it shares files writably, and none can be watched: {e}"))
            })?;
        let (known, parts, attached) = Default::default();
        let mut files = Files { inotify, known, parts, attached, bonds: bonds.clone() };
        for mapping in shared {
            if layout::is_system_v(mapping) {
                files.watch_attached(pid, mapping)?;
            } else if !files.knows(mapping) {
                let known = files.watch_one(pid, mapping)?;
                files.known.push(known);
            }
        }
        files.renew(pid, maps)?;
        Ok(Some(files))
    }

    fn knows(&self, mapping: &Mapping) -> bool {
        self.known.iter().any(|known| known.mapped == (mapping.device, mapping.inode))
    }

    fn watch_one(&self, pid: i32, mapping: &Mapping) -> Result<Known> {
        let name = shown(mapping);
        let failed = |why: &dyn std::fmt::Display| {
            refused(format!(
                "it shares the file {name} writably at {:#x}, which cannot be watched: {why}",
                mapping.start
            ))
        };
        if self.known.len() == FILES_MAX {
            return Err(failed(&"it has too many of them"));
        }
        let found = backing::find_mapped(pid, mapping).map_err(|error| failed(&error))?;
        let file = found.ok_or_else(|| failed(&"nobody has it open, and it has no name"))?;
        let metadata = file.metadata().map_err(|error| failed(&error))?;
        if !metadata.is_file() || !tells_of_writes(&file) {
            return Err(failed(&"its file system does not tell who writes to it"));
        }
        if is_sealed(&file) {
            return Err(failed(&"it is sealed against writes (fcntl(2)), and could not come home"));
        }
        let is_memory = self.bonds.is_named(mapping);
        // Who writes by way of memory is told when he is done. Nobody else has the memory of a
        // group, and its own descriptors do not matter.
        let end = if is_memory { AddWatchFlags::empty() } else { AddWatchFlags::IN_CLOSE_WRITE };
        let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_OPEN | end;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        self.inotify.add_watch(&path, events).map_err(|errno| failed(&errno))?;
        let (mapped, stat) = ((mapping.device, mapping.inode), (metadata.dev(), metadata.ino()));
        let has_name = layout::is_memory_file(mapping) && !mapping.is_deleted();
        Ok(Known { name, mapped, stat, file, is_memory, has_name })
    }

    fn watch_attached(&mut self, pid: i32, mapping: &Mapping) -> Result<()> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/ipc")).ok();
        let is_ours =
            namespace("self").is_some_and(|ours| namespace(&pid.to_string()) == Some(ours));
        if !is_ours {
            return Err(refused(format!(
                "it has System V shared memory at {:#x}, in an IPC namespace that is not ours",
                mapping.start
            )));
        }
        self.attached.push(mapping.inode);
        Ok(())
    }

    /// What others must not open before the process is home: who does that may take a lock in it
    /// within microseconds. Each with its name.
    pub fn guarded(&self) -> impl Iterator<Item = (&str, &File)> {
        let guarded = self.known.iter().filter(|known| known.has_name);
        guarded.map(|known| (&*known.name, &known.file))
    }

    /// Whether there is one that has to be guarded: memory of a group, or a semaphore.
    pub fn need_guard(&self) -> bool {
        let is_lock = |known: &Known| known.name.starts_with("/dev/shm/sem.");
        self.known.iter().any(|known| known.has_name && (known.is_memory || is_lock(known)))
    }

    /// Who has attached the System V shared memory, as far as the kernel says: of that nothing is
    /// told, so it has to be asked now and then.
    pub fn attachments(&self) -> Vec<Option<Attachments>> {
        let ids = self.attached.iter();
        ids.map(|id| system_v::attachments(*id).ok().flatten()).collect()
    }

    pub fn has_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Whether a part of one is the process's own, and is written back.
    pub fn have_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Notes the mappings as they are now, before their contents are read, and forgets what has
    /// happened to the files so far.
    ///
    /// # Errors
    /// Refused if there is a file that is not watched, or one that ends before its mapping.
    pub fn renew(&mut self, pid: i32, maps: &[Mapping]) -> Result<()> {
        while self.news().is_some() {}
        self.parts.clear();
        let bonds = &self.bonds;
        for mapping in maps.iter().filter(|m| is_shared_file(pid, m, bonds)) {
            let mapped = (mapping.device, mapping.inode);
            let Some(file) = self.known.iter().position(|known| known.mapped == mapped) else {
                let text = "it has mapped another file while it was being moved; try again";
                return Err(MigrateError::refused("changed", text));
            };
            if mapping.offset + mapping.length() > self.known[file].mapped_end() {
                return Err(refused(format!(
                    "it shares the file {} writably at {:#x}, beyond the file's end",
                    self.known[file].name, mapping.start
                )));
            }
            let (range, offset) = (mapping.start..mapping.end, mapping.offset);
            self.parts.push(Part { range, is_writable: mapping.is_writable, file, offset });
        }
        Ok(())
    }

    /// Whether something has happened to the files that was not asked about yet.
    pub fn has_news(&self) -> bool {
        let mut watched = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
        poll(&mut watched, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// What has happened to the files since this was asked last; None if nothing has.
    pub fn news(&self) -> Option<News> {
        let mut news = None;
        // A queue that has run over may have had anything in it.
        let tells =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_Q_OVERFLOW;
        while let Ok(events) = self.inotify.read_events() {
            match events.iter().any(|event| event.mask.intersects(tells)) {
                true => news = Some(News::Written),
                false => news = news.or(Some(News::Opened)),
            }
        }
        news
    }

    fn find(&self, metadata: &Metadata) -> Option<&Known> {
        let stat = (metadata.dev(), metadata.ino());
        self.known.iter().find(|known| known.stat == stat)
    }

    /// Whether a call of the process would change one of the files, or agrees with others about
    /// one: it is to be made at home.
    pub fn are_touched_by(&self, pid: i32, call: &Call) -> bool {
        let is_known = |path: &Path| {
            std::fs::metadata(path).is_ok_and(|metadata| self.find(&metadata).is_some())
        };
        let is_memory = |number: i32| {
            let metadata = std::fs::metadata(format!("/proc/{pid}/fd/{number}"));
            metadata.is_ok_and(|m| self.find(&m).is_some_and(|known| known.is_memory))
        };
        match calls::touched(call) {
            // Of a file of its own home has what the process can read.
            Touched::Nothing => calls::read_by(call).is_some_and(is_memory),
            Touched::Descriptor(number) => is_known(Path::new(&format!("/proc/{pid}/fd/{number}"))),
            // What such a name means is another thing for who looks.
            Touched::Path(_, path) if is_about_itself(path) => true,
            Touched::Path(directory, path) => is_known(&seen_by(pid, directory, path)),
            Touched::HandedOver => true,
        }
    }

    /// Writes what the body has written. False if not all of it can be, because there is no room
    /// for it. What is behind the end of a file that somebody has cut off is gone, as it would be
    /// had it been written here.
    ///
    /// # Errors
    /// No honest body writes to such places.
    pub fn write(&self, memory: &Memory, pages: &Pages) -> Result<bool> {
        let strange = || MigrateError::Protocol("bytes for no file that is shared".into());
        let mut is_complete = true;
        for (address, bytes) in runs(&pages.spans, &pages.content).ok_or_else(strange)? {
            let end = address.0.checked_add(bytes.len() as u64).ok_or_else(strange)?;
            let holds = |part: &&Part| part.range.start <= address.0 && end <= part.range.end;
            let part = self.parts.iter().find(holds).ok_or_else(strange)?;
            if !part.is_writable {
                return Err(strange());
            }
            let written = memory.write_as_guest(address.0, bytes) as u64;
            let at = part.offset + (address.0 - part.range.start) + written;
            is_complete &=
                written == bytes.len() as u64 || at >= self.known[part.file].mapped_end();
        }
        Ok(is_complete)
    }
}

impl AsFd for Files {
    /// Readable when there is news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// A name as the process sees it.
fn seen_by(pid: i32, directory: i32, path: &[u8]) -> PathBuf {
    let base = match path.strip_prefix(b"/") {
        Some(_) => format!("/proc/{pid}/root"),
        None if directory == libc::AT_FDCWD => format!("/proc/{pid}/cwd"),
        None => format!("/proc/{pid}/fd/{directory}"),
    };
    Path::new(&base).join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
}

/// Names by which a process has its own descriptors, or may have.
fn is_about_itself(path: &[u8]) -> bool {
    let names: [&[u8]; 3] = [b"/proc/", b"/dev/fd", b"/dev/std"];
    names.iter().any(|name| path.starts_with(name))
}

/// File systems that live in this machine's kernel, which tells of all who use them: ext2 to ext4,
/// XFS, Btrfs, F2FS, tmpfs, overlayfs, ZFS, bcachefs, NILFS, JFS, ReiserFS, FAT, exFAT.
const LOCAL_FILE_SYSTEMS: [i64; 13] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x794c_7630,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x3434,
    0x3153_464a,
    0x5265_4973,
    0x4d44,
    0x2011_bab0,
];

fn is_sealed(file: &File) -> bool {
    let seals = nix::fcntl::fcntl(file, FcntlArg::F_GET_SEALS).unwrap_or(0);
    let against_writes = SealFlag::F_SEAL_WRITE.bits() | libc::F_SEAL_FUTURE_WRITE;
    seals & against_writes != 0
}

fn tells_of_writes(file: &File) -> bool {
    nix::sys::statfs::fstatfs(file)
        .is_ok_and(|system| LOCAL_FILE_SYSTEMS.contains(&system.filesystem_type().0))
}

#[cfg(test)]
mod test {
    use super::others::may_use;
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, Command, Stdio};
    use wire::forward::{Direction, Place, Segment, Yield};
    use wire::ids::{GuestAddr, GuestTid};

    struct Temporary(PathBuf);

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// A file that is watched as one that a process shares.
    fn watched(name: &str) -> (Temporary, Files) {
        let path = std::env::temp_dir().join(format!("osmos-{name}-{}", std::process::id()));
        std::fs::write(&path, [0; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        assert!(tells_of_writes(&file), "the directory for temporary files is a local one");
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_OPEN;
        inotify.add_watch(&path, events | AddWatchFlags::IN_CLOSE_WRITE).unwrap();
        let metadata = file.metadata().unwrap();
        let stat = (metadata.dev(), metadata.ino());
        let (is_memory, has_name) = (false, true);
        let known =
            vec![Known { name: "it".into(), mapped: stat, stat, file, is_memory, has_name }];
        let (parts, attached, bonds) = Default::default();
        (Temporary(path), Files { inotify, known, parts, attached, bonds })
    }

    /// A shell that has opened the file and waits.
    fn opened(path: &Path, how: &str) -> Child {
        let script = format!("exec 3{how}'{}' && echo open && read line", path.display());
        let mut command = Command::new("sh");
        let command = command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "open\n");
        child
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn who_opens_the_file_and_who_writes_to_it_is_told() {
        let (path, files) = watched("news");
        assert_eq!(files.news(), None);
        File::open(&path.0).unwrap().read_exact(&mut [0]).unwrap();
        assert_eq!(files.news(), Some(News::Opened));
        let mut file = std::fs::OpenOptions::new().write(true).open(&path.0).unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(files.news(), Some(News::Written));
        assert_eq!(files.news(), None);
        file.set_len(1).unwrap();
        assert_eq!(files.news(), Some(News::Written), "cut off");
        assert!(!files.has_news());
        drop(file);
        assert!(files.has_news());
        assert_eq!(files.news(), Some(News::Written), "it may have been mapped");
    }

    #[test]
    fn only_who_has_it_open_for_writing_counts() {
        let (path, files) = watched("others");
        let own = std::process::id() as i32;
        let reader = opened(&path.0, "<");
        files.check_others(own).unwrap();
        let writer = opened(&path.0, "<>");
        let error = files.check_others(own).unwrap_err();
        assert_eq!(error.reason().code, SHARED_FILE);
        assert!(error.reason().text.contains(&format!("process {}", writer.id())), "{error}");
        files.check_others(writer.id() as i32).unwrap();
        end(writer);
        files.check_patiently(own).unwrap();
        end(reader);
    }

    #[test]
    fn calls_about_the_file_are_told_from_those_about_others() {
        let (path, files) = watched("calls");
        let own = std::process::id() as i32;
        let file = File::open(&path.0).unwrap();
        let other = File::open("/dev/null").unwrap();
        let call = |number: i64, arguments: [u64; 6], path: Option<(u8, &[u8])>| {
            let segment = |(argument, path): (u8, &[u8])| Segment {
                guest: GuestAddr(0x1000),
                length: path.len() as u32,
                direction: Direction::In,
                place: Place::Argument(argument),
                yields: Yield::Whole,
                data: path.to_vec(),
            };
            let segments = path.into_iter().map(segment).collect();
            let number = number as u32;
            Call { tid: GuestTid(7), sequence: 1, signals_seen: 0, number, arguments, segments }
        };
        let on = |file: &File| [file.as_raw_fd() as u64, 0, 0, 0, 0, 0];
        assert!(files.are_touched_by(own, &call(libc::SYS_write, on(&file), None)));
        assert!(!files.are_touched_by(own, &call(libc::SYS_write, on(&other), None)));
        assert!(!files.are_touched_by(own, &call(libc::SYS_read, on(&file), None)));
        let mut name = path.0.as_os_str().as_bytes().to_vec();
        name.push(0);
        let truncate = |path: &[u8]| call(libc::SYS_truncate, [1, 0, 0, 0, 0, 0], Some((0, path)));
        assert!(files.are_touched_by(own, &truncate(&name)));
        assert!(!files.are_touched_by(own, &truncate(b"/dev/null\0")));
        assert!(!files.are_touched_by(own, &truncate(b"/no/such/file\0")));
        let own_name = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        assert!(files.are_touched_by(own, &truncate(own_name.as_bytes())));
        let directory = File::open(path.0.parent().unwrap()).unwrap();
        let base = path.0.file_name().unwrap().as_bytes();
        let flags = (libc::O_WRONLY | libc::O_TRUNC) as u64;
        let arguments = [directory.as_raw_fd() as u64, 1, flags, 0, 0, 0];
        assert!(files.are_touched_by(own, &call(libc::SYS_openat, arguments, Some((1, base)))));
    }

    #[test]
    fn bytes_for_places_that_are_none_of_a_shared_files_are_not_written() {
        let (_path, mut files) = watched("places");
        let place = [7u8; 64];
        let start = place.as_ptr() as u64;
        let part = |range, is_writable| Part { range, is_writable, file: 0, offset: 0 };
        files.parts = vec![part(start..start + 16, true), part(start + 16..start + 32, false)];
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let write = |offset: u64, count: usize| {
            files.write(&memory, &Pages::at(GuestAddr(start + offset), vec![9; count])).is_ok()
        };
        assert!(!write(15, 2), "over the end of one");
        assert!(!write(16, 1), "read-only");
        assert!(!write(32, 1), "none");
        let beyond = Pages { spans: vec![(GuestAddr(9), GuestAddr(1))], content: vec![] };
        assert!(files.write(&memory, &beyond).is_err());
        assert_eq!(std::hint::black_box(&place), &[7; 64]);
        assert!(write(0, 16));
        assert_eq!(std::hint::black_box(&place)[..17], [&[9; 16][..], &[7]].concat());
    }

    #[test]
    fn whose_processes_may_write_is_said_by_owner_mode_and_access_list() {
        let (path, files) = watched("modes");
        let metadata = || files.known[0].file.metadata().unwrap();
        let owner = metadata().uid();
        let (user, group) = (owner + 1, metadata().gid());
        let set = |mode| {
            std::fs::set_permissions(&path.0, std::fs::Permissions::from_mode(mode)).unwrap();
            metadata()
        };
        let closed = set(0o600);
        assert!(may_use((&[user, owner], &[]), &closed, (false, false)));
        assert!(!may_use((&[user], &[group]), &closed, (true, false)));
        let open_to_group = set(0o620);
        assert!(may_use((&[user], &[group]), &open_to_group, (false, false)));
        assert!(!may_use((&[user], &[group + 1]), &open_to_group, (false, false)));
        assert!(
            may_use((&[user], &[group + 1]), &open_to_group, (true, false)),
            "a list may name it"
        );
        assert!(may_use((&[user], &[]), &set(0o602), (false, false)));
        assert!(!may_use((&[user], &[group]), &set(0o644), (true, false)));
        assert!(may_use((&[user], &[]), &set(0o644), (false, true)), "who reads memory counts");
    }
}
