//! What the kernel asks of the mount, passed on to the node that has the file.
//!
//! Writes are answered when they are on their way, up to [`WRITING_MAX`] of one file: the server
//! carries out what concerns one file in the order in which it comes, so everything that is asked
//! later sees them. One that fails is told by the next write, or by fsync(2) or close(2).

use crate::answers::{Mine, VALID, attr, errno, own_attr, set_time, target};
use crate::cluster::Cluster;
use crate::remote::{Outcome, Over, Remote};
use crate::top::{self, Kind, Top};
use crate::tree::{TOP, Tree, Way, is_of_node};
use crate::waiting;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use nix::errno::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};
use wire::files::{
    Ask, AttributeName, Attributes, CONTENT_BYTES_MAX, Change, Entry, Listed, Lock, LockKind,
    Place, Told,
};
use wire::ids::NodeId;

/// Bytes of one file that are on their way and answered already.
const WRITING_MAX: usize = 8 << 20;
/// Questions of the kernel at a time that nobody waits for, such as reading ahead.
const BACKGROUND_MAX: u16 = 64;
/// Between two tries to get a lock that somebody else has: at first, and at most.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(250);
/// Numbers of files are not given to others.
const GENERATION: Generation = Generation(0);

/// A file or directory that is open.
struct Open {
    file: u64,
    remote: Arc<Remote>,
    node: NodeId,
    link: u64,
    handle: u64,
    /// Of a directory: what was read and not given on yet, and where it begins.
    listed: Mutex<(u64, VecDeque<Listed>)>,
}

pub struct Files {
    socket: PathBuf,
    mine: Mine,
    cluster: Cluster,
    top: Top,
    tree: Tree,
    remotes: Mutex<HashMap<NodeId, Arc<Remote>>>,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    handles: AtomicU64,
    notifier: OnceLock<Notifier>,
}

/// For `fuser`.
pub struct Mount(pub Arc<Files>);

type Found = Result<(Arc<Remote>, NodeId, Over, u64), Errno>;

impl Files {
    pub fn new(socket: PathBuf, cluster: Cluster, mine: Mine) -> Files {
        Files {
            socket,
            mine,
            cluster,
            top: Top::default(),
            tree: Tree::default(),
            remotes: Mutex::default(),
            open: Mutex::default(),
            handles: AtomicU64::new(1),
            notifier: OnceLock::new(),
        }
    }

    pub fn notify_by(&self, notifier: Notifier) {
        // It is set once, before the first question.
        let _ = self.notifier.set(notifier);
    }

    /// Looks after silent nodes, and threads that wait and are to end.
    pub fn watch(&self) {
        let remotes: Vec<_> = held(&self.remotes).values().cloned().collect();
        remotes.iter().for_each(|remote| remote.look());
    }

    pub fn look_at_cluster(&self) {
        self.cluster.look();
    }

    fn remote(&self, node: NodeId) -> Result<Arc<Remote>, Errno> {
        let mut remotes = held(&self.remotes);
        if let Some(remote) = remotes.get(&node) {
            return Ok(remote.clone());
        }
        let remote = Remote::new(node, self.socket.clone(), None).map_err(|_| Errno::EAGAIN)?;
        remotes.insert(node, remote.clone());
        Ok(remote)
    }

    fn link_of(&self, node: NodeId) -> Option<u64> {
        held(&self.remotes).get(&node)?.link()
    }

    /// How to speak of a file: at once, or after it was found again.
    fn find(self: &Arc<Files>, by: u32, file: u64, then: Box<dyn FnOnce(Found) + Send>) {
        match self.tree.way(file, |node| self.link_of(node)) {
            Way::Unknown => then(Err(Errno::ESTALE)),
            Way::Known(node, called) => {
                let (over, number) = match called {
                    Some(called) => (Over::Only(called.link), called.number),
                    None => (Over::Any, TOP),
                };
                then(self.remote(node).map(|remote| (remote, node, over, number)));
            }
            Way::ByName { node, directory, name, id } => {
                let files = self.clone();
                let look = move |found: Found| {
                    let (remote, _, over, directory) = match found {
                        Ok(found) => found,
                        Err(errno) => return then(Err(errno)),
                    };
                    let ask = Ask::Lookup(Place { directory, name });
                    let asked = remote.clone();
                    asked.ask(Some(by), over, ask, Vec::new(), move |outcome| {
                        then(
                            files
                                .found(outcome, file, id)
                                .map(|(link, number)| (remote, node, Over::Only(link), number)),
                        );
                    });
                };
                self.find(by, directory, Box::new(look));
            }
        }
    }

    fn found(&self, outcome: Outcome, file: u64, id: (u64, u64)) -> Result<(u64, u64), Errno> {
        let heard = outcome?;
        let Told::Entry(entry) = heard.told else { return Err(Errno::EPROTO) };
        let is_it = self.tree.found(file, id, heard.link, &entry);
        is_it.then_some((heard.link, entry.file)).ok_or(Errno::ESTALE)
    }

    /// Asks about a file. `then` gets the answer, and the node.
    fn ask(
        self: &Arc<Files>,
        by: u32,
        file: u64,
        content: Vec<u8>,
        ask: impl FnOnce(u64) -> Ask + Send + 'static,
        then: impl FnOnce(Outcome, Option<Arc<Remote>>) + Send + 'static,
    ) {
        let asking = move |found: Found| match found {
            Ok((remote, _, over, number)) => {
                let of = remote.clone();
                remote.ask(Some(by), over, ask(number), content, move |outcome| {
                    then(outcome, Some(of));
                });
            }
            Err(errno) => then(Err(errno), None),
        };
        self.find(by, file, Box::new(asking));
    }

    /// Asks about a name in a directory; what it is is told to the kernel.
    fn ask_entry(
        self: &Arc<Files>,
        by: u32,
        (directory, name): (u64, &OsStr),
        ask: impl FnOnce(Place) -> Ask + Send + 'static,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        let (files, place) = (self.clone(), (directory, name.clone()));
        let ask = move |directory| ask(Place { directory, name });
        self.ask(by, directory, Vec::new(), ask, move |outcome, remote| {
            match (outcome.map(|heard| (heard.told, heard.link)), remote) {
                (Ok((Told::Entry(entry), link)), Some(remote)) => {
                    files.reply_entry(by, link, &remote, place, entry, reply);
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    fn reply_entry(
        &self,
        _by: u32,
        link: u64,
        remote: &Remote,
        place: (u64, Vec<u8>),
        entry: Entry,
        reply: ReplyEntry,
    ) {
        let file = self.tree.told(remote.node(), link, place, &entry);
        reply.entry(&VALID, &self.attr(file, entry.attributes, remote), GENERATION);
    }

    /// As it is when all that was written to it has arrived.
    fn attr(&self, file: u64, mut is: Attributes, remote: &Remote) -> FileAttr {
        let end = self.tree.writing(file, |writing| writing.end);
        is.size = is.size.max(end.unwrap_or(0));
        attr(file, &is, remote.served(), self.mine)
    }

    fn own_attr(&self, file: u64) -> FileAttr {
        let (kind, perm) = match top::kind_of(file) {
            Kind::Directory => (FileType::Directory, 0o755),
            Kind::Link => (FileType::Symlink, 0o777),
            Kind::File => (FileType::RegularFile, 0o600),
        };
        own_attr(file, kind, perm, self.mine)
    }

    /// Is it answered here, and not by a node?
    fn is_own(file: u64) -> bool {
        !is_of_node(file)
    }

    /// The top of a node is shown whether or not the node answers.
    fn is_fixed(file: u64) -> bool {
        file < 1 << 40
    }

    fn get(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        held(&self.open).get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn add(&self, file: u64, remote: Arc<Remote>, link: u64, handle: u64) -> FileHandle {
        let number = self.handles.fetch_add(1, Ordering::Relaxed);
        let node = remote.node();
        let open = Open { file, remote, node, link, handle, listed: Mutex::default() };
        held(&self.open).insert(number, Arc::new(open));
        FileHandle(number)
    }

    /// Asks about an open file. A link that was lost has lost it.
    fn ask_open(
        &self,
        by: Option<u32>,
        open: &Open,
        ask: Ask,
        content: Vec<u8>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) {
        open.remote.ask(by, Over::Only(open.link), ask, content, move |outcome| {
            then(outcome.map_err(|errno| if errno == Errno::ESTALE { Errno::EIO } else { errno }));
        });
    }

    /// The same, where nothing is told but that it is done.
    fn ask_done(self: &Arc<Files>, by: u32, open: &Open, ask: Ask, reply: ReplyEmpty) {
        let (files, file) = (self.clone(), open.file);
        self.ask_open(Some(by), open, ask, Vec::new(), move |outcome| {
            let failed = files.tree.writing(file, |writing| writing.failed.take()).flatten();
            match (failed, outcome) {
                (Some(error), _) | (None, Err(error)) => reply.error(errno(error)),
                (None, Ok(_)) => reply.ok(),
            }
        });
    }

    fn opened(&self, file: u64, attributes: &Attributes) -> FopenFlags {
        if self.tree.opened(file, attributes) {
            return FopenFlags::FOPEN_KEEP_CACHE;
        }
        if let Some(notifier) = self.notifier.get() {
            // The kernel may take its size for what it was a moment ago. It may not know it any more.
            let _ = notifier.inval_inode(INodeNo(file), -1, 0);
        }
        FopenFlags::empty()
    }

    /// A part of what was written has arrived, or not.
    fn written(&self, file: u64, bytes: usize, outcome: &Outcome) {
        self.tree.writing(file, |writing| {
            writing.bytes -= bytes.min(writing.bytes);
            if let Err(errno) = outcome {
                writing.failed.get_or_insert(*errno);
            }
            if writing.bytes == 0 {
                writing.end = 0;
            }
        });
    }

    /// Gives entries on, as many as there is room for; the server is told of those that it told in
    /// vain.
    fn list(&self, open: &Open, mut reply: ReplyDirectoryPlus) {
        let mut listed = held(&open.listed);
        let (at, entries) = &mut *listed;
        while let Some(of) = entries.front() {
            let name = OsStr::from_bytes(&of.name);
            let is_full = match &of.entry {
                // `.` and `..` are no entries that the kernel remembers.
                None if matches!(&of.name[..], b"." | b"..") => {
                    let attr = own_attr(open.file, FileType::Directory, 0o755, self.mine);
                    reply.add(attr.ino, of.next, name, &Duration::ZERO, &attr, GENERATION)
                }
                // What cannot be looked at is not shown.
                None => false,
                Some(entry) => {
                    let file = self.tree.number(open.node, &entry.attributes);
                    let attr = self.attr(file, entry.attributes, &open.remote);
                    let is_full = reply.add(attr.ino, of.next, name, &VALID, &attr, GENERATION);
                    if !is_full {
                        let place = (open.file, of.name.clone());
                        self.tree.told(open.node, open.link, place, entry);
                    }
                    is_full
                }
            };
            if is_full {
                break;
            }
            *at = of.next;
            entries.pop_front();
        }
        reply.ok();
    }

    fn forget(&self, file: u64, times: u64) {
        let Some(forgotten) = self.tree.forget(file, times) else { return };
        if let Ok(remote) = self.remote(forgotten.node) {
            let of = vec![(forgotten.called.number, forgotten.times)];
            remote.tell(forgotten.called.link, Ask::Forget(of));
        }
    }

    fn drop_listed(open: &Open, entries: VecDeque<Listed>) {
        let files: Vec<_> = entries.iter().filter_map(|of| Some((of.entry?.file, 1))).collect();
        if !files.is_empty() {
            open.remote.tell(open.link, Ask::Forget(files));
        }
    }

    /// Tries to get a lock until it is had, or whoever waits for it is not to wait any more.
    fn lock(
        self: &Arc<Files>,
        by: u32,
        open: Arc<Open>,
        lock: Lock,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let ask = Ask::SetLock { handle: open.handle, lock };
        let files = self.clone();
        let again = open.clone();
        self.ask_open(Some(by), &open, ask, Vec::new(), move |outcome| match outcome {
            Ok(_) => reply.ok(),
            Err(Errno::EAGAIN | Errno::EACCES) if waits => files.await_lock(by, again, lock, reply),
            Err(error) => reply.error(errno(error)),
        });
    }

    /// As over NFS, nobody tells when a lock is given up: it is asked for again, less and less often.
    fn await_lock(self: &Arc<Files>, by: u32, open: Arc<Open>, lock: Lock, reply: ReplyEmpty) {
        let files = self.clone();
        let waiting = move || {
            let mut pause = LOCK_PAUSE;
            loop {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOCK_PAUSE_MAX);
                if waiting::is_signalled(by) {
                    return reply.error(errno(Errno::EINTR));
                }
                let (told, tells) = std::sync::mpsc::channel();
                let ask = Ask::SetLock { handle: open.handle, lock };
                files.ask_open(None, &open, ask, Vec::new(), move |outcome| {
                    // Nobody hears it who has given up.
                    let _ = told.send(outcome.map(|_| ()));
                });
                match tells.recv().unwrap_or(Err(Errno::EIO)) {
                    Ok(()) => return reply.ok(),
                    Err(Errno::EAGAIN | Errno::EACCES) => {}
                    Err(error) => return reply.error(errno(error)),
                }
            }
        };
        // Without a thread the reply is dropped, which answers it with EIO.
        let _ = std::thread::Builder::new().name("lock".into()).spawn(waiting);
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("nobody panics with it")
}

fn lock_of(owner: LockOwner, start: u64, end: u64, typ: i32) -> Result<Lock, Errno> {
    let kind = match typ {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::None,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Lock { owner: owner.0, start, end, kind })
}

fn attribute_name(name: &OsStr) -> AttributeName {
    AttributeName(name.as_bytes().to_vec())
}

/// Whether an attribute is anybody's, and not a kernel's.
fn is_users(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"user.")
}

macro_rules! open_or_return {
    ($self:ident, $handle:expr, $reply:ident) => {
        match $self.0.get($handle) {
            Ok(open) => open,
            Err(error) => return $reply.error(errno(error)),
        }
    };
}

impl Filesystem for Mount {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_FLOCK_LOCKS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO;
        // What a kernel does not have it does without.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(CONTENT_BYTES_MAX);
        let _ = config.set_max_readahead(CONTENT_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent.0 != top::ALL {
            return self.0.ask_entry(request.pid(), (parent.0, name), Ask::Lookup, reply);
        }
        let nodes = self.0.cluster.nodes();
        match name.to_str().and_then(|name| self.0.top.find(&nodes, name)) {
            Some(file) => reply.entry(&VALID, &self.0.own_attr(file), GENERATION),
            None => reply.error(errno(Errno::ENOENT)),
        }
    }

    fn forget(&self, _: &Request, file: INodeNo, times: u64) {
        self.0.forget(file.0, times);
    }

    fn getattr(&self, request: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if Files::is_fixed(file.0) {
            return reply.attr(&VALID, &self.0.own_attr(file.0));
        }
        let ask = |file| Ask::Attributes { file };
        self.0.reply_attr(request.pid(), file.0, ask, reply);
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
        if file.0 == top::SELECT {
            // It is truncated before it is written to.
            return reply.attr(&VALID, &self.0.own_attr(file.0));
        }
        if Files::is_own(file.0) {
            return reply.error(errno(Errno::EPERM));
        }
        let open = handle.and_then(|handle| self.0.get(handle).ok());
        let handle = open.map(|open| open.handle);
        let (accessed, modified) = (accessed.map(set_time), modified.map(set_time));
        let change = Change { mode, uid, gid, size, accessed, modified };
        if size.is_some() {
            // What is on its way to beyond that arrives before.
            self.0.tree.writing(file.0, |writing| writing.end = 0);
        }
        let ask = move |file| Ask::Change { file, handle, change };
        self.0.reply_attr(request.pid(), file.0, ask, reply);
    }

    fn readlink(&self, request: &Request, file: INodeNo, reply: ReplyData) {
        let (files, by) = (self.0.clone(), request.pid());
        if file.0 == top::HERE {
            // The daemon is asked, and nobody else is to wait for that.
            let answer = move || match files.top.target(&files.cluster, file.0, by) {
                Some(target) => reply.data(target.as_bytes()),
                None => reply.error(errno(Errno::EIO)),
            };
            let _ = std::thread::Builder::new().name("here".into()).spawn(answer);
            return;
        }
        if Files::is_own(file.0) {
            return match files.top.target(&files.cluster, file.0, by) {
                Some(target) => reply.data(target.as_bytes()),
                None => reply.error(errno(Errno::EINVAL)),
            };
        }
        let depth = files.tree.depth(file.0);
        self.0.ask(
            by,
            file.0,
            Vec::new(),
            |file| Ask::Target { file },
            move |outcome, _| match outcome {
                Ok(heard) => reply.data(&target(heard.content, depth)),
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let ask = move |place| Ask::MakeNode { place, mode };
        self.0.ask_entry(request.pid(), (parent.0, name), ask, reply);
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
        if parent.0 == top::ALL {
            return reply.error(errno(Errno::EPERM));
        }
        let ask = move |place| Ask::MakeDirectory { place, mode };
        self.0.ask_entry(request.pid(), (parent.0, name), ask, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.remove(request.pid(), (parent.0, name), false, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.remove(request.pid(), (parent.0, name), true, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes().to_vec();
        let ask = move |place| Ask::MakeSymlink { place, target };
        self.0.ask_entry(request.pid(), (parent.0, name), ask, reply);
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
        let from = (parent.0, name.as_bytes().to_vec());
        let to = (new_parent.0, new_name.as_bytes().to_vec());
        self.0.rename(request.pid(), from, to, flags.bits(), reply);
    }

    fn link(
        &self,
        request: &Request,
        file: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (files, by, place) = (self.0.clone(), request.pid(), (parent.0, name.to_owned()));
        let linking = move |found: Found| match found {
            Ok((_, node, Over::Only(link), number)) => {
                let ask = move |place| Ask::MakeLink { file: number, place };
                if files.node_of(place.0) != Some((node, link)) {
                    return reply.error(errno(Errno::EXDEV));
                }
                files.ask_entry(by, (place.0, &place.1), ask, reply);
            }
            Ok(_) => reply.error(errno(Errno::EPERM)),
            Err(error) => reply.error(errno(error)),
        };
        self.0.find(by, file.0, Box::new(linking));
    }

    fn open(&self, request: &Request, file: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if file.0 == top::SELECT {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        self.0.open_file(request.pid(), file.0, flags.0, reply);
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
        if file.0 == top::SELECT {
            let node = self.0.top.selected_by(request.pid()).or(self.0.cluster.nodes().me);
            let text = node.map(|node| format!("{node}\n")).unwrap_or_default();
            return reply.data(text.as_bytes().get(offset as usize..).unwrap_or_default());
        }
        let open = open_or_return!(self, handle, reply);
        let ask = Ask::Read { handle: open.handle, offset, length: size };
        self.0.ask_open(
            Some(request.pid()),
            &open,
            ask,
            Vec::new(),
            move |outcome| match outcome {
                Ok(heard) => reply.data(&heard.content[..heard.content.len().min(size as usize)]),
                Err(error) => reply.error(errno(error)),
            },
        );
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
        if file.0 == top::SELECT {
            let nodes = self.0.cluster.nodes();
            return match self.0.top.select(&nodes, request.pid(), data) {
                true => reply.written(data.len() as u32),
                false => reply.error(errno(Errno::EINVAL)),
            };
        }
        let open = open_or_return!(self, handle, reply);
        self.0.write(request.pid(), &open, offset, data, reply);
    }

    fn flush(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if file.0 == top::SELECT {
            return reply.ok();
        }
        let open = open_or_return!(self, handle, reply);
        let ask = Ask::Flush { handle: open.handle, owner: owner.0 };
        self.0.ask_done(request.pid(), &open, ask, reply);
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
        let open = held(&self.0.open).remove(&handle.0);
        if let Some(open) = open {
            if let Some(owner) = owner {
                // Locks of flock(2) are those of the open file.
                let ask = Ask::Flush { handle: open.handle, owner: owner.0 };
                self.0.ask_open(None, &open, ask, Vec::new(), |_| {});
            }
            self.0.ask_open(None, &open, Ask::Close { handle: open.handle }, Vec::new(), |_| {});
        }
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
        let open = open_or_return!(self, handle, reply);
        let ask = Ask::Sync { handle: open.handle, is_data_only };
        self.0.ask_done(request.pid(), &open, ask, reply);
    }

    fn opendir(&self, request: &Request, file: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if file.0 == top::ALL {
            return reply.opened(FileHandle(0), FopenFlags::empty());
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        self.0.open_file(request.pid(), file.0, flags, reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        file: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        if file.0 == top::ALL {
            return self.0.list_nodes(offset, reply);
        }
        let open = open_or_return!(self, handle, reply);
        self.0.list_from(request.pid(), open, offset, reply);
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let open = held(&self.0.open).remove(&handle.0);
        if let Some(open) = open {
            Files::drop_listed(&open, std::mem::take(&mut held(&open.listed).1));
            self.0.ask_open(None, &open, Ask::Close { handle: open.handle }, Vec::new(), |_| {});
        }
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
        if file.0 == top::ALL {
            return reply.ok();
        }
        self.fsync(request, file, handle, is_data_only, reply);
    }

    fn statfs(&self, request: &Request, file: INodeNo, reply: ReplyStatfs) {
        if Files::is_own(file.0) {
            return reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
        }
        let ask = |file| Ask::FileSystem { file };
        self.0.ask(request.pid(), file.0, Vec::new(), ask, move |outcome, _| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::FileSystem(is)) => reply.statfs(
                    is.blocks,
                    is.free,
                    is.available,
                    is.files,
                    is.files_free,
                    is.block_bytes,
                    is.name_bytes_max,
                    is.fragment_bytes,
                ),
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn access(&self, request: &Request, file: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if Files::is_own(file.0) {
            let may = !mask.contains(AccessFlags::W_OK) || file.0 == top::SELECT;
            return if may { reply.ok() } else { reply.error(errno(Errno::EACCES)) };
        }
        let mask = mask.bits();
        let ask = move |file| Ask::Access { file, mask };
        self.0.reply_done(request.pid(), file.0, Vec::new(), ask, reply);
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
        let place = (parent.0, name.as_bytes().to_vec());
        self.0.create(request.pid(), place, mode, flags, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        file: INodeNo,
        name: &OsStr,
        room: u32,
        reply: ReplyXattr,
    ) {
        if Files::is_own(file.0) || !is_users(name) {
            return reply.error(errno(Errno::EOPNOTSUPP));
        }
        let name = attribute_name(name);
        let ask = move |file| Ask::ExtendedAttribute { file, name, room };
        self.0.reply_xattr(request.pid(), file.0, ask, reply);
    }

    fn listxattr(&self, request: &Request, file: INodeNo, room: u32, reply: ReplyXattr) {
        if Files::is_own(file.0) {
            return reply.error(errno(Errno::EOPNOTSUPP));
        }
        let ask = move |file| Ask::ExtendedAttributes { file, room };
        self.0.reply_xattr(request.pid(), file.0, ask, reply);
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
        if Files::is_own(file.0) || !is_users(name) {
            return reply.error(errno(Errno::EOPNOTSUPP));
        }
        let name = attribute_name(name);
        let ask = move |file| Ask::SetExtendedAttribute { file, name, flags };
        self.0.reply_done(request.pid(), file.0, value.to_vec(), ask, reply);
    }

    fn removexattr(&self, request: &Request, file: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if Files::is_own(file.0) || !is_users(name) {
            return reply.error(errno(Errno::EOPNOTSUPP));
        }
        let name = attribute_name(name);
        let ask = move |file| Ask::RemoveExtendedAttribute { file, name };
        self.0.reply_done(request.pid(), file.0, Vec::new(), ask, reply);
    }

    fn getlk(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let open = open_or_return!(self, handle, reply);
        let lock = match lock_of(owner, start, end, typ) {
            Ok(lock) => lock,
            Err(error) => return reply.error(errno(error)),
        };
        let ask = Ask::TestLock { handle: open.handle, lock };
        self.0.ask_open(Some(request.pid()), &open, ask, Vec::new(), move |outcome| match outcome
            .map(|heard| heard.told)
        {
            Ok(Told::Lock(found)) => {
                let typ = match found.kind {
                    LockKind::Read => libc::F_RDLCK,
                    LockKind::Write => libc::F_WRLCK,
                    LockKind::None => libc::F_UNLCK,
                };
                reply.locked(found.start, found.end, typ, 0);
            }
            Ok(_) => reply.error(errno(Errno::EPROTO)),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn setlk(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let open = open_or_return!(self, handle, reply);
        match lock_of(owner, start, end, typ) {
            Ok(lock) => self.0.lock(request.pid(), open, lock, waits, reply),
            Err(error) => reply.error(errno(error)),
        }
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
        let open = open_or_return!(self, handle, reply);
        let ask = Ask::Allocate { handle: open.handle, mode, offset, length };
        self.0.ask_done(request.pid(), &open, ask, reply);
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
        let open = open_or_return!(self, handle, reply);
        let ask = Ask::Seek { handle: open.handle, offset, whence };
        self.0.ask_open(Some(request.pid()), &open, ask, Vec::new(), move |outcome| match outcome
            .map(|heard| heard.told)
        {
            Ok(Told::Offset(offset)) => reply.offset(offset.cast_signed()),
            Ok(_) => reply.error(errno(Errno::EPROTO)),
            Err(error) => reply.error(errno(error)),
        });
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
        let (from, to) = (open_or_return!(self, from, reply), open_or_return!(self, to, reply));
        if (from.node, from.link) != (to.node, to.link) {
            // The kernel reads and writes it then.
            return reply.error(errno(Errno::EXDEV));
        }
        let ask = Ask::Copy { from: from.handle, from_offset, to: to.handle, to_offset, length };
        self.0.ask_open(Some(request.pid()), &to, ask, Vec::new(), move |outcome| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::Offset(copied)) => reply.written(copied.min(length) as u32),
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}

impl Files {
    fn reply_attr(
        self: &Arc<Files>,
        by: u32,
        file: u64,
        ask: impl FnOnce(u64) -> Ask + Send + 'static,
        reply: ReplyAttr,
    ) {
        let files = self.clone();
        self.ask(by, file, Vec::new(), ask, move |outcome, remote| {
            match (outcome.map(|heard| heard.told), remote) {
                (Ok(Told::Attributes(is)), Some(remote)) => {
                    reply.attr(&VALID, &files.attr(file, is, &remote));
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    fn reply_done(
        self: &Arc<Files>,
        by: u32,
        file: u64,
        content: Vec<u8>,
        ask: impl FnOnce(u64) -> Ask + Send + 'static,
        reply: ReplyEmpty,
    ) {
        self.ask(by, file, content, ask, move |outcome, _| match outcome {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn reply_xattr(
        self: &Arc<Files>,
        by: u32,
        file: u64,
        ask: impl FnOnce(u64) -> Ask + Send + 'static,
        reply: ReplyXattr,
    ) {
        self.ask(by, file, Vec::new(), ask, move |outcome, _| match outcome {
            Ok(heard) => match heard.told {
                Told::Size(size) => reply.size(size),
                Told::Content => reply.data(&heard.content),
                _ => reply.error(errno(Errno::EPROTO)),
            },
            Err(error) => reply.error(errno(error)),
        });
    }

    fn remove(
        self: &Arc<Files>,
        by: u32,
        (directory, name): (u64, &OsStr),
        is_directory: bool,
        reply: ReplyEmpty,
    ) {
        if directory == top::ALL {
            return reply.error(errno(Errno::EPERM));
        }
        let name = name.as_bytes().to_vec();
        let ask = move |directory| Ask::Remove { place: Place { directory, name }, is_directory };
        self.reply_done(by, directory, Vec::new(), ask, reply);
    }

    /// The node of a file, and the link over which it is known.
    fn node_of(&self, file: u64) -> Option<(NodeId, u64)> {
        match self.tree.way(file, |node| self.link_of(node)) {
            Way::Known(node, Some(called)) => Some((node, called.link)),
            Way::Known(node, None) => Some((node, self.link_of(node)?)),
            _ => None,
        }
    }

    fn rename(
        self: &Arc<Files>,
        by: u32,
        from: (u64, Vec<u8>),
        to: (u64, Vec<u8>),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let files = self.clone();
        let first = move |found: Found| {
            let (remote, node, over, old) = match found {
                Ok(found) => found,
                Err(error) => return reply.error(errno(error)),
            };
            let renaming = files.clone();
            let second = move |found: Found| {
                let (other, other_over, new) = match found {
                    Ok((_, other, over, new)) => (other, over, new),
                    Err(error) => return reply.error(errno(error)),
                };
                if node != other {
                    return reply.error(errno(Errno::EXDEV));
                }
                let over = if over == Over::Any { other_over } else { over };
                let ask = Ask::Rename {
                    from: Place { directory: old, name: from.1.clone() },
                    to: Place { directory: new, name: to.1.clone() },
                    flags,
                };
                remote.ask(Some(by), over, ask, Vec::new(), move |outcome| match outcome {
                    Ok(_) => {
                        renaming.tree.renamed((from.0, &from.1), (to.0, &to.1));
                        reply.ok();
                    }
                    Err(error) => reply.error(errno(error)),
                });
            };
            files.find(by, to.0, Box::new(second));
        };
        self.find(by, from.0, Box::new(first));
    }

    fn open_file(self: &Arc<Files>, by: u32, file: u64, flags: i32, reply: ReplyOpen) {
        let files = self.clone();
        let ask = move |file| Ask::Open { file, flags };
        self.ask(by, file, Vec::new(), ask, move |outcome, remote| {
            match (outcome.map(|heard| (heard.told, heard.link)), remote) {
                (Ok((Told::Opened { handle, attributes }, link)), Some(remote)) => {
                    let handle = files.add(file, remote, link, handle);
                    reply.opened(handle, files.opened(file, &attributes));
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    fn create(
        self: &Arc<Files>,
        by: u32,
        place: (u64, Vec<u8>),
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if place.0 == top::ALL {
            return reply.error(errno(Errno::EPERM));
        }
        let (files, name) = (self.clone(), place.1.clone());
        let ask = move |directory| Ask::Create { place: Place { directory, name }, mode, flags };
        self.ask(by, place.0, Vec::new(), ask, move |outcome, remote| {
            match (outcome.map(|heard| (heard.told, heard.link)), remote) {
                (Ok((Told::Created { entry, handle }, link)), Some(remote)) => {
                    let file = files.tree.told(remote.node(), link, place, &entry);
                    let attr = files.attr(file, entry.attributes, &remote);
                    files.tree.opened(file, &entry.attributes);
                    let handle = files.add(file, remote, link, handle);
                    reply.created(&VALID, &attr, GENERATION, handle, FopenFlags::empty());
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        self: &Arc<Files>,
        by: u32,
        open: &Arc<Open>,
        offset: u64,
        data: &[u8],
        reply: ReplyWrite,
    ) {
        let (files, file, bytes) = (self.clone(), open.file, data.len());
        let before = self.tree.writing(file, |writing| {
            if let Some(failed) = writing.failed.take() {
                return Err(failed);
            }
            writing.bytes += bytes;
            writing.end = writing.end.max(offset.saturating_add(bytes as u64));
            Ok(writing.bytes)
        });
        let reply = match before.unwrap_or(Err(Errno::ESTALE)) {
            Err(error) => return reply.error(errno(error)),
            Ok(on_the_way) if on_the_way <= WRITING_MAX => {
                reply.written(bytes as u32);
                None
            }
            Ok(_) => Some(reply),
        };
        let by = reply.is_some().then_some(by);
        let ask = Ask::Write { handle: open.handle, offset };
        self.ask_open(by, open, ask, data.to_vec(), move |outcome| {
            // Who waits for it is told how it ended; the others are told later.
            match (reply, &outcome) {
                (None, _) => files.written(file, bytes, &outcome),
                (Some(reply), Ok(_)) => {
                    files.written(file, bytes, &outcome);
                    reply.written(bytes as u32);
                }
                (Some(reply), Err(error)) => {
                    let error = *error;
                    files.tree.writing(file, |writing| writing.bytes -= bytes.min(writing.bytes));
                    reply.error(errno(error));
                }
            }
        });
    }

    fn list_nodes(&self, offset: u64, mut reply: ReplyDirectoryPlus) {
        let nodes = self.cluster.nodes();
        let own = [(".".to_owned(), top::ALL), ("..".to_owned(), top::ALL)];
        let all = own.into_iter().chain(self.top.list(&nodes));
        for (at, (name, file)) in all.enumerate().skip(offset as usize) {
            let attr = self.own_attr(file);
            if reply.add(attr.ino, at as u64 + 1, &name, &VALID, &attr, GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    fn list_from(
        self: &Arc<Files>,
        by: u32,
        open: Arc<Open>,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let mut listed = held(&open.listed);
        if listed.0 == offset && !listed.1.is_empty() {
            drop(listed);
            return self.list(&open, reply);
        }
        Files::drop_listed(&open, std::mem::take(&mut listed.1));
        drop(listed);
        let (files, of) = (self.clone(), open.clone());
        let ask = Ask::List { handle: open.handle, offset };
        self.ask_open(Some(by), &open, ask, Vec::new(), move |outcome| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::List(entries)) => {
                    *held(&of.listed) = (offset, entries.into());
                    files.list(&of, reply);
                }
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}
