//! What each call does, by the calls of this kernel that mean the same, as the user it is for.

use crate::attributes::look;
use crate::handles::{Handles, Open, changes, flags_of, open_again};
use crate::inodes::Inodes;
use crate::locks::Locks;
use crate::offers::Offers;
use crate::place::checked;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use wire::files::{
    ATTRIBUTE_BYTES_MAX, Ask, AttributeName, CONTENT_BYTES_MAX, Change, ENTRIES_MAX, Entry,
    FileSystem, Listed, Place, Served, SetTime, Told,
};

pub struct Server {
    inodes: Inodes,
    handles: Handles,
    locks: Locks,
    offers: Arc<Offers>,
    may_write: bool,
}

/// What is read of a directory at once.
const DIRECTORY_BYTES: usize = 32 << 10;
/// Extended attributes that are anybody's; the others mean something to a kernel.
const USERS_PREFIX: &[u8] = b"user.";

type Result<T> = std::result::Result<T, Errno>;

impl Server {
    pub fn new(served: Served) -> io::Result<Server> {
        Ok(Server {
            inodes: Inodes::new()?,
            handles: Handles::default(),
            locks: Locks::default(),
            offers: Arc::default(),
            may_write: served.may_write,
        })
    }

    /// Nothing is open.
    pub fn is_idle(&self) -> bool {
        self.handles.is_empty()
    }

    pub fn forget(&self, files: &[(u64, u64)]) {
        self.inodes.forget(files);
    }

    /// `content` came with it; what is to go with the answer is put into `told`.
    pub fn carry_out(&self, ask: Ask, content: &[u8], told: &mut Vec<u8>) -> Result<Told> {
        if !self.may_write && ask.changes() {
            return Err(Errno::ROFS);
        }
        match ask {
            Ask::Ping | Ask::Forget(_) => Ok(Told::Done),
            Ask::Lookup(place) => self.entry(&place),
            Ask::Attributes { file, handle } => self.attributes(file, handle),
            Ask::Change { file, handle, change } => self.change(file, handle, change),
            Ask::Target { file } => {
                let target = rustix::fs::readlinkat(self.inodes.file(file)?, "", Vec::new())?;
                *told = target.into_bytes();
                Ok(Told::Content)
            }
            Ask::MakeNode { .. }
            | Ask::MakeDirectory { .. }
            | Ask::MakeSymlink { .. }
            | Ask::MakeLink { .. } => self.make(ask),
            Ask::Remove { place, is_directory } => {
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let (directory, name) = self.place(&place)?;
                rustix::fs::unlinkat(directory, name, flags)?;
                Ok(Told::Done)
            }
            Ask::Rename { from, to, flags } => self.rename(&from, &to, flags),
            Ask::FileSystem { file } => self.file_system(file),
            Ask::Access { file, mask } => {
                let access = rustix::fs::Access::from_bits_truncate(mask.cast_unsigned());
                rustix::fs::access(path_of(&*self.inodes.file(file)?), access)?;
                Ok(Told::Done)
            }
            Ask::ExtendedAttribute { .. }
            | Ask::ExtendedAttributes { .. }
            | Ask::SetExtendedAttribute { .. }
            | Ask::RemoveExtendedAttribute { .. } => self.extended(ask, content, told),
            Ask::Open { file, flags } => self.open(file, flags),
            Ask::Create { place, mode, flags } => self.create(&place, mode, flags),
            _ => self.with_handle(ask, content, told),
        }
    }

    fn place<'a>(&self, place: &'a Place) -> Result<(Arc<OwnedFd>, &'a OsStr)> {
        let name = checked(&place.name)?;
        Ok((self.inodes.file(place.directory)?, name))
    }

    fn entry(&self, place: &Place) -> Result<Told> {
        Ok(Told::Entry(self.inodes.look_up(place.directory, checked(&place.name)?)?))
    }

    fn attributes(&self, file: u64, handle: Option<u64>) -> Result<Told> {
        if let Some(handle) = handle {
            return Ok(Told::Attributes(look(&self.handles.get(handle)?.file)?.attributes));
        }
        Ok(Told::Attributes(look(&*self.inodes.file(file)?)?.attributes))
    }

    fn change(&self, number: u64, handle: Option<u64>, change: Change) -> Result<Told> {
        let file = self.inodes.file(number)?;
        if let Some(mode) = change.mode {
            rustix::fs::chmod(path_of(&*file), Mode::from_raw_mode(mode))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(&*file, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = change.size {
            // Who has it open for writing may do that, whatever its mode says by now.
            match handle.map(|handle| self.handles.get(handle)).transpose()? {
                Some(open) => rustix::fs::ftruncate(&open.file, size)?,
                None => rustix::fs::ftruncate(open_again(&*file, flags_of(libc::O_WRONLY))?, size)?,
            }
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            rustix::fs::utimensat(&*file, "", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(Told::Attributes(look(&*file)?.attributes))
    }

    fn make(&self, ask: Ask) -> Result<Told> {
        let place = match ask {
            Ask::MakeNode { place, mode } => {
                let (directory, name) = self.place(&place)?;
                let kind = FileType::from_raw_mode(mode);
                if !matches!(kind, FileType::RegularFile | FileType::Fifo | FileType::Socket) {
                    return Err(Errno::PERM);
                }
                rustix::fs::mknodat(directory, name, kind, Mode::from_raw_mode(mode), 0)?;
                place
            }
            Ask::MakeDirectory { place, mode } => {
                let (directory, name) = self.place(&place)?;
                rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(mode))?;
                place
            }
            Ask::MakeSymlink { place, target } => {
                let (directory, name) = self.place(&place)?;
                rustix::fs::symlinkat(&target[..], directory, name)?;
                place
            }
            Ask::MakeLink { file, place } => {
                let (directory, name) = self.place(&place)?;
                let file = path_of(&*self.inodes.file(file)?);
                let flags = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(rustix::fs::CWD, file, directory, name, flags)?;
                place
            }
            _ => return Err(Errno::INVAL),
        };
        self.entry(&place)
    }

    fn rename(&self, from: &Place, to: &Place, flags: u32) -> Result<Told> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        if !(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE).contains(flags) {
            return Err(Errno::INVAL);
        }
        let ((old, old_name), (new, new_name)) = (self.place(from)?, self.place(to)?);
        rustix::fs::renameat_with(old, old_name, new, new_name, flags)?;
        self.inodes.renamed((from.directory, old_name), (to.directory, new_name));
        if flags.contains(RenameFlags::EXCHANGE) {
            self.inodes.renamed((to.directory, new_name), (from.directory, old_name));
        }
        Ok(Told::Done)
    }

    fn open(&self, number: u64, flags: i32) -> Result<Told> {
        let flags = flags_of(flags);
        if !self.may_write && changes(flags) {
            return Err(Errno::ROFS);
        }
        let file = self.inodes.file(number)?;
        let kind = FileType::from_raw_mode(look(&*file)?.attributes.mode);
        // A device is this machine's, and a pipe has its other end here.
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(Errno::ACCESS);
        }
        let file = open_again(&*file, flags)?;
        let attributes = look(&file)?.attributes;
        Ok(Told::Opened { handle: self.handles.add(file, number, flags)?, attributes })
    }

    fn create(&self, place: &Place, mode: u32, flags: i32) -> Result<Told> {
        let (directory, name) = self.place(place)?;
        let exclusive = OFlags::from_bits_retain(flags.cast_unsigned()) & OFlags::EXCL;
        let made = flags_of(flags) | exclusive | OFlags::CREATE | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode) & Mode::from_raw_mode(0o7777);
        let file = File::from(rustix::fs::openat(directory, name, made, mode)?);
        if !FileType::from_raw_mode(look(&file)?.attributes.mode).is_file() {
            return Err(Errno::ACCESS);
        }
        let entry = self.inodes.look_up(place.directory, name)?;
        // Somebody may have put another there meanwhile.
        let attributes = look(&file)?.attributes;
        if (attributes.device, attributes.inode)
            != (entry.attributes.device, entry.attributes.inode)
        {
            self.inodes.forget(&[(entry.file, 1)]);
            return Err(Errno::STALE);
        }
        let entry = Entry { attributes, ..entry };
        Ok(Told::Created { entry, handle: self.handles.add(file, entry.file, flags_of(flags))? })
    }

    /// # Errors
    /// ENOTSUP: what is done with it depends on who does it.
    fn offer(&self, handle: u64) -> Result<Told> {
        let open = self.handles.get(handle)?;
        if !open.is_plain() {
            return Err(Errno::NOTSUP);
        }
        Ok(Told::Offer(self.offers.add(&open)?))
    }

    fn with_handle(&self, ask: Ask, content: &[u8], told: &mut Vec<u8>) -> Result<Told> {
        match ask {
            Ask::Read { handle, offset, length } => {
                *told = read(&*self.handles.get(handle)?, offset, length)?;
                return Ok(Told::Content);
            }
            Ask::Write { handle, offset } => {
                let open = self.handles.get(handle)?;
                open.file.write_all_at(content, offset).map_err(|error| of_io(&error))?;
            }
            Ask::Flush { handle, owner } => {
                let open = self.handles.get(handle)?;
                self.locks.release(open.number, owner);
                // Network file systems tell errors when a descriptor is closed, any of them.
                drop(open.file.try_clone().map_err(|error| of_io(&error))?);
            }
            Ask::Close { handle } => self.handles.close(handle),
            Ask::Offer { handle } => return self.offer(handle),
            Ask::Sync { handle, is_data_only: true } => {
                rustix::fs::fdatasync(&self.handles.get(handle)?.file)?;
            }
            Ask::Sync { handle, .. } => rustix::fs::fsync(&self.handles.get(handle)?.file)?,
            Ask::List { handle, offset } => {
                return Ok(Told::List(self.list(&*self.handles.get(handle)?, offset)?));
            }
            Ask::Seek { handle, offset, whence } => {
                let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let to = match whence {
                    libc::SEEK_DATA => SeekFrom::Data(offset),
                    libc::SEEK_HOLE => SeekFrom::Hole(offset),
                    _ => return Err(Errno::INVAL),
                };
                return Ok(Told::Offset(rustix::fs::seek(&self.handles.get(handle)?.file, to)?));
            }
            Ask::Allocate { handle, mode, offset, length } => {
                let mode =
                    FallocateFlags::from_bits(mode.cast_unsigned()).ok_or(Errno::OPNOTSUPP)?;
                rustix::fs::fallocate(&self.handles.get(handle)?.file, mode, offset, length)?;
            }
            Ask::Copy { from, from_offset, to, to_offset, length } => {
                let (from, to) = (self.handles.get(from)?, self.handles.get(to)?);
                let (mut at, mut at_there) = (from_offset, to_offset);
                // As much as a worker may be busy with.
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(64 << 20);
                let copied = rustix::fs::copy_file_range(
                    &from.file,
                    Some(&mut at),
                    &to.file,
                    Some(&mut at_there),
                    length,
                )?;
                return Ok(Told::Offset(copied as u64));
            }
            Ask::TestLock { handle, lock } => {
                return Ok(Told::Lock(self.locks.test(&*self.handles.get(handle)?, lock)?));
            }
            Ask::SetLock { handle, lock } => self.locks.set(&*self.handles.get(handle)?, lock)?,
            _ => return Err(Errno::NOSYS),
        }
        Ok(Told::Done)
    }

    fn list(&self, directory: &Open, offset: u64) -> Result<Vec<Listed>> {
        rustix::fs::seek(&directory.file, SeekFrom::Start(offset))?;
        let mut room = [MaybeUninit::uninit(); DIRECTORY_BYTES];
        let mut entries = RawDir::new(&directory.file, &mut room);
        let mut listed = Vec::new();
        // What was read of it and does not fit is read again.
        while let Some(entry) = entries.next().filter(|_| listed.len() < ENTRIES_MAX) {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_other = name != b"." && name != b"..";
            let entry_of = || self.inodes.look_up(directory.number, OsStr::from_bytes(name)).ok();
            listed.push(Listed {
                name: name.to_vec(),
                next: entry.next_entry_cookie(),
                inode: entry.ino(),
                kind: entry.file_type().as_raw_mode(),
                entry: is_other.then(entry_of).flatten(),
            });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(listed)
    }

    fn file_system(&self, file: u64) -> Result<Told> {
        let is = rustix::fs::fstatvfs(&*self.inodes.file(file)?)?;
        let within = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Told::FileSystem(FileSystem {
            blocks: is.f_blocks,
            free: is.f_bfree,
            available: is.f_bavail,
            files: is.f_files,
            files_free: is.f_ffree,
            block_bytes: within(is.f_bsize),
            fragment_bytes: within(is.f_frsize),
            name_bytes_max: within(is.f_namemax),
        }))
    }

    fn extended(&self, ask: Ask, content: &[u8], told: &mut Vec<u8>) -> Result<Told> {
        let path = |file| Ok(path_of(&*self.inodes.file(file)?));
        match ask {
            Ask::ExtendedAttribute { file, name, room } => {
                let mut value = vec![0; room.min(ATTRIBUTE_BYTES_MAX) as usize];
                let length = rustix::fs::getxattr(path(file)?, users(&name)?, &mut value[..])?;
                answer_with(value, length, room, told)
            }
            Ask::ExtendedAttributes { file, room } => {
                let mut names = vec![0; ATTRIBUTE_BYTES_MAX as usize];
                let length = rustix::fs::listxattr(path(file)?, &mut names[..])?;
                let all = names[..length].split_inclusive(|byte| *byte == 0);
                let names: Vec<u8> =
                    all.filter(|name| name.starts_with(USERS_PREFIX)).flatten().copied().collect();
                if room != 0 && names.len() > room as usize {
                    return Err(Errno::RANGE);
                }
                let length = names.len();
                answer_with(names, length, room, told)
            }
            Ask::SetExtendedAttribute { file, name, flags } => {
                let flags = XattrFlags::from_bits(flags.cast_unsigned()).ok_or(Errno::INVAL)?;
                rustix::fs::setxattr(path(file)?, users(&name)?, content, flags)?;
                Ok(Told::Done)
            }
            Ask::RemoveExtendedAttribute { file, name } => {
                rustix::fs::removexattr(path(file)?, users(&name)?)?;
                Ok(Told::Done)
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

fn answer_with(mut bytes: Vec<u8>, length: usize, room: u32, told: &mut Vec<u8>) -> Result<Told> {
    if room == 0 {
        return Ok(Told::Size(u32::try_from(length).unwrap_or(u32::MAX)));
    }
    bytes.truncate(length);
    *told = bytes;
    Ok(Told::Content)
}

fn users(name: &AttributeName) -> Result<&OsStr> {
    let is_users = name.0.starts_with(USERS_PREFIX) && !name.0.contains(&0);
    is_users.then(|| OsStr::from_bytes(&name.0)).ok_or(Errno::OPNOTSUPP)
}

/// By which calls reach a file that have no descriptor as an argument.
fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn read(open: &Open, offset: u64, length: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length.min(CONTENT_BYTES_MAX) as usize];
    let mut count = 0;
    while count < bytes.len() {
        match open.file.read_at(&mut bytes[count..], offset.saturating_add(count as u64)) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if count > 0 => break,
            Err(error) => return Err(of_io(&error)),
        }
    }
    bytes.truncate(count);
    Ok(bytes)
}

fn of_io(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.min(999_999_999).into() }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::files::{LockKind, ROOT};

    fn server(may_write: bool) -> Server {
        Server::new(Served { uid: 0, gid: 0, may_write }).unwrap()
    }

    fn ask(server: &Server, ask: Ask) -> Result<(Told, Vec<u8>)> {
        let mut content = Vec::new();
        let told = server.carry_out(ask, b"content", &mut content)?;
        Ok((told, content))
    }

    /// The number of a file by its path.
    fn number(server: &Server, path: &std::path::Path) -> u64 {
        let names = path.iter().skip(1);
        names.fold(ROOT, |directory, name| server.inodes.look_up(directory, name).unwrap().file)
    }

    /// All that names an entry of a directory.
    fn with_place(directory: u64, name: &[u8]) -> Vec<Ask> {
        let place = || Place { directory, name: name.to_vec() };
        let other = || Place { directory: ROOT, name: b"tmp".to_vec() };
        vec![
            Ask::MakeNode { place: place(), mode: 0o100_600 },
            Ask::MakeDirectory { place: place(), mode: 0o700 },
            Ask::MakeSymlink { place: place(), target: b"x".to_vec() },
            Ask::MakeLink { file: ROOT, place: place() },
            Ask::Remove { place: place(), is_directory: false },
            Ask::Remove { place: place(), is_directory: true },
            Ask::Rename { from: place(), to: other(), flags: 0 },
            Ask::Rename { from: other(), to: place(), flags: 0 },
            Ask::Create { place: place(), mode: 0o600, flags: libc::O_RDWR },
        ]
    }

    #[test]
    fn names_that_are_no_entries_and_numbers_that_were_not_told_are_refused() {
        let server = server(true);
        for name in [&b".."[..], b".", b"", b"tmp/../etc", b"/etc", b"a\0b"] {
            let lookup = Ask::Lookup(Place { directory: ROOT, name: name.to_vec() });
            for asked in with_place(ROOT, name).into_iter().chain([lookup]) {
                let shown = format!("{asked:?}");
                assert_eq!(ask(&server, asked).err(), Some(Errno::INVAL), "{shown}");
            }
        }
        let (file, name) = (77, || AttributeName(b"user.x".to_vec()));
        for asked in [
            Ask::Lookup(Place { directory: file, name: b"tmp".to_vec() }),
            Ask::Attributes { file, handle: None },
            Ask::Change { file, handle: None, change: Change::default() },
            Ask::Target { file },
            Ask::Open { file, flags: 0 },
            Ask::FileSystem { file },
            Ask::Access { file, mask: 0 },
            Ask::ExtendedAttribute { file, name: name(), room: 0 },
            Ask::SetExtendedAttribute { file, name: name(), flags: 0 },
        ] {
            let shown = format!("{asked:?}");
            assert_eq!(ask(&server, asked).err(), Some(Errno::STALE), "{shown}");
        }
        let (handle, offset, length) = (77, 0, u32::MAX);
        let lock = wire::files::Lock { owner: 1, start: 0, end: 1, kind: LockKind::Read };
        for asked in [
            Ask::Attributes { file: ROOT, handle: Some(handle) },
            Ask::Read { handle, offset, length },
            Ask::Write { handle, offset },
            Ask::Flush { handle, owner: 1 },
            Ask::Sync { handle, is_data_only: false },
            Ask::List { handle, offset },
            Ask::Seek { handle, offset: 0, whence: libc::SEEK_DATA },
            Ask::Allocate { handle, mode: 0, offset, length: 1 },
            Ask::Copy { from: handle, from_offset: 0, to: handle, to_offset: 0, length: 1 },
            Ask::TestLock { handle, lock },
            Ask::SetLock { handle, lock },
        ] {
            let shown = format!("{asked:?}");
            assert_eq!(ask(&server, asked).err(), Some(Errno::BADF), "{shown}");
        }
    }

    #[test]
    fn what_may_only_be_read_is_changed_by_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("it"), "as it was").unwrap();
        let server = server(false);
        let parent = number(&server, directory.path());
        let file = number(&server, &directory.path().join("it"));
        let change = Change { size: Some(0), ..Change::default() };
        let name = AttributeName(b"user.x".to_vec());
        let changes = [
            Ask::Change { file, handle: None, change },
            Ask::Open { file, flags: libc::O_WRONLY },
            Ask::Open { file, flags: libc::O_RDWR },
            Ask::Open { file, flags: libc::O_RDONLY | libc::O_TRUNC },
            Ask::SetExtendedAttribute { file, name: name.clone(), flags: 0 },
            Ask::RemoveExtendedAttribute { file, name },
        ];
        for asked in changes.into_iter().chain(with_place(parent, b"it")) {
            let shown = format!("{asked:?}");
            assert_eq!(ask(&server, asked).err(), Some(Errno::ROFS), "{shown}");
        }
        let opened = ask(&server, Ask::Open { file, flags: libc::O_RDONLY }).unwrap().0;
        let Told::Opened { handle, .. } = opened else { panic!("{opened:?}") };
        assert_eq!(ask(&server, Ask::Write { handle, offset: 0 }).err(), Some(Errno::ROFS));
        let read = ask(&server, Ask::Read { handle, offset: 3, length: u32::MAX }).unwrap();
        assert_eq!(read, (Told::Content, b"it was".to_vec()));
        assert!(!server.is_idle());
        ask(&server, Ask::Close { handle }).unwrap();
        assert!(server.is_idle());
    }

    #[test]
    fn pipes_and_devices_are_not_opened_and_devices_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let server = server(true);
        for path in [&*pipe, std::path::Path::new("/dev/null")] {
            let file = number(&server, path);
            for flags in [libc::O_RDONLY, libc::O_RDWR] {
                let refused = ask(&server, Ask::Open { file, flags }).err();
                assert_eq!(refused, Some(Errno::ACCESS), "{}", path.display());
            }
        }
        let directory = number(&server, directory.path());
        for mode in [libc::S_IFCHR, libc::S_IFBLK, libc::S_IFDIR, libc::S_IFLNK] {
            let place = Place { directory, name: b"made".to_vec() };
            let refused = ask(&server, Ask::MakeNode { place, mode: mode | 0o600 }).err();
            assert_eq!(refused, Some(Errno::PERM), "{mode:o}");
        }
        let place = Place { directory, name: b"pipe".to_vec() };
        let create = Ask::Create { place, mode: 0o600, flags: libc::O_RDWR };
        assert_eq!(ask(&server, create).err(), Some(Errno::ACCESS));
    }
}
