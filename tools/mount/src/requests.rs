//! What the kernel asks of the mount, as `fuser` has it, passed on to [`Files`].

use crate::answers::{VALID, errno, set_time};
use crate::files::{Files, check_name, lock_of, users};
use crate::mounting::negotiate;
use crate::top::{self, Directory};
use crate::tree::is_fixed;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use wire::files::{Ask, Change};

/// For `fuser`.
pub struct Mount(pub Arc<Files>);

/// The value, or the error as an answer.
macro_rules! given {
    ($value:expr, $reply:ident) => {
        match $value {
            Ok(value) => value,
            Err(error) => return $reply.error(errno(error)),
        }
    };
}

impl Filesystem for Mount {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        given!(check_name(name), reply);
        let Some(directory) = self.0.directory(request.into(), parent.0) else {
            return self.0.ask_entry(request.into(), (parent.0, name), Ask::Lookup, reply);
        };
        let directory = given!(directory, reply);
        let name = name.to_str().unwrap_or_default();
        match top::user_of(name).filter(|_| directory == Directory::Shared) {
            Some(uid) => self.0.look_up_user(request, uid, reply),
            None => self.0.look_up_top(directory, name, reply),
        }
    }

    fn forget(&self, _: &Request, file: INodeNo, times: u64) {
        self.0.forget(file.0, times);
    }

    fn getattr(
        &self,
        request: &Request,
        file: INodeNo,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        if is_fixed(file.0) {
            return reply.attr(&VALID, &self.0.own_attr(file.0));
        }
        let handle = self.0.handle_there(handle);
        let ask = move |file| Ask::Attributes { file, handle };
        self.0.reply_attr(request.into(), file.0, ask, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        file: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if Files::is_select(file) {
            // It is truncated before it is written to.
            return reply.attr(&VALID, &self.0.own_attr(file.0));
        }
        if is_fixed(file.0) {
            return reply.error(errno(Errno::EPERM));
        }
        let handle = self.0.handle_there(handle);
        let (accessed, modified) = (accessed.map(set_time), modified.map(set_time));
        let change = Change { mode, uid, gid, size, accessed, modified };
        if size.is_some() {
            self.0.resized(file.0);
        }
        let ask = move |file| Ask::Change { file, handle, change };
        self.0.reply_attr(request.into(), file.0, ask, reply);
    }

    fn readlink(&self, request: &Request, file: INodeNo, reply: ReplyData) {
        self.0.read_link(request, file, reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        given!(self.0.check_changes(request, parent, name), reply);
        let ask = move |place| Ask::MakeNode { place, mode };
        self.0.ask_entry(request.into(), (parent.0, name), ask, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        given!(self.0.check_changes(request, parent, name), reply);
        let ask = move |place| Ask::MakeDirectory { place, mode };
        self.0.ask_entry(request.into(), (parent.0, name), ask, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        given!(self.0.check_changes(request, parent, name), reply);
        self.0.remove(request.into(), (parent.0, name), false, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        given!(self.0.check_changes(request, parent, name), reply);
        self.0.remove(request.into(), (parent.0, name), true, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        given!(self.0.check_changes(request, parent, name), reply);
        let target = target.as_os_str().as_bytes().to_vec();
        let ask = move |place| Ask::MakeSymlink { place, target };
        self.0.ask_entry(request.into(), (parent.0, name), ask, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        given!(self.0.check_changes(request, parent, name), reply);
        given!(self.0.check_changes(request, new_parent, new_name), reply);
        let from = (parent.0, name.as_bytes().to_vec());
        let to = (new_parent.0, new_name.as_bytes().to_vec());
        self.0.rename(request.into(), from, to, flags.bits(), reply);
    }

    fn link(
        &self,
        request: &Request,
        file: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        given!(self.0.check_changes(request, parent, name), reply);
        self.0.make_link(request.into(), file.0, (parent.0, name), reply);
    }

    fn open(&self, request: &Request, file: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match Files::is_select(file) {
            true => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            false => self.0.open_file(request.into(), file.0, flags.0, reply),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        given!(self.0.check_changes(request, parent, name), reply);
        let place = (parent.0, name.as_bytes().to_vec());
        self.0.create_file(request.into(), place, mode, flags, reply);
    }

    fn read(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if Files::is_select(file) {
            return self.0.read_selected(request.into(), offset, reply);
        }
        self.0.read_file(request, handle, (offset, size), reply);
    }

    fn write(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if Files::is_select(file) {
            return self.0.select(request.into(), data, reply);
        }
        let open = given!(self.0.get(handle), reply);
        self.0.write_file(request.into(), &open, offset, data, reply);
    }

    fn flush(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if Files::is_select(file) {
            return reply.ok();
        }
        let open = given!(self.0.get(handle), reply);
        self.0.flush_file(request.into(), &open, owner, reply);
    }

    fn ioctl(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        asked: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        self.0.command(request.into(), handle, (command, asked), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.close(handle, owner);
        reply.ok();
    }

    fn fsync(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        is_data_only: bool,
        reply: ReplyEmpty,
    ) {
        let open = given!(self.0.get(handle), reply);
        self.0.sync(request.into(), &open, is_data_only, reply);
    }

    fn opendir(&self, request: &Request, file: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let Some(directory) = self.0.directory(request.into(), file.0) else {
            return self.0.open_file(request.into(), file.0, libc::O_DIRECTORY, reply);
        };
        given!(directory, reply);
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdirplus(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        if let Some(directory) = self.0.directory(request.into(), file.0) {
            return self.0.list_nodes(given!(directory, reply), offset, reply);
        }
        let open = given!(self.0.get(handle), reply);
        self.0.list_from(request.into(), open, offset, reply);
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.close(handle, None);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        is_data_only: bool,
        reply: ReplyEmpty,
    ) {
        match handle.0 {
            0 => reply.ok(),
            _ => self.fsync(request, file, handle, is_data_only, reply),
        }
    }

    fn statfs(&self, request: &Request, file: INodeNo, reply: ReplyStatfs) {
        match self.0.directory(request.into(), file.0) {
            Some(_) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
            None => self.0.file_system(request.into(), file.0, reply),
        }
    }

    fn access(&self, request: &Request, file: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if let Some(directory) = self.0.directory(request.into(), file.0) {
            given!(directory, reply);
            return match mask.contains(AccessFlags::W_OK) {
                true => reply.error(errno(Errno::EACCES)),
                false => reply.ok(),
            };
        }
        if Files::is_select(file) {
            return reply.ok();
        }
        let mask = mask.bits();
        let ask = move |file| Ask::Access { file, mask };
        self.0.reply_done(request.into(), file.0, Vec::new(), ask, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        file: INodeNo,
        name: &OsStr,
        room: u32,
        reply: ReplyXattr,
    ) {
        let name = given!(users(name), reply);
        let ask = move |file| Ask::ExtendedAttribute { file, name, room };
        self.0.reply_xattr(request.into(), file.0, ask, reply);
    }

    fn listxattr(&self, request: &Request, file: INodeNo, room: u32, reply: ReplyXattr) {
        if is_fixed(file.0) {
            return reply.error(errno(Errno::EOPNOTSUPP));
        }
        let ask = move |file| Ask::ExtendedAttributes { file, room };
        self.0.reply_xattr(request.into(), file.0, ask, reply);
    }

    fn setxattr(
        &self,
        request: &Request,
        file: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let name = given!(users(name), reply);
        let ask = move |file| Ask::SetExtendedAttribute { file, name, flags };
        self.0.reply_done(request.into(), file.0, value.to_vec(), ask, reply);
    }

    fn removexattr(&self, request: &Request, file: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = given!(users(name), reply);
        let ask = move |file| Ask::RemoveExtendedAttribute { file, name };
        self.0.reply_done(request.into(), file.0, Vec::new(), ask, reply);
    }

    fn getlk(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let open = given!(self.0.get(handle), reply);
        let lock = given!(lock_of(owner, (start, end), kind), reply);
        self.0.test_lock(request.into(), &open, lock, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let open = given!(self.0.get(handle), reply);
        let lock = given!(lock_of(owner, (start, end), kind), reply);
        self.0.set_lock(request.into(), open, lock, waits, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let open = given!(self.0.get(handle), reply);
        self.0.allocate(request.into(), &open, mode, (offset, length), reply);
    }

    fn lseek(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let open = given!(self.0.get(handle), reply);
        self.0.seek(request.into(), &open, (offset, whence), reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (given!(self.0.get(from), reply), given!(self.0.get(to), reply));
        self.0.copy(request.into(), (&from, from_offset), (&to, to_offset), length, reply);
    }
}
