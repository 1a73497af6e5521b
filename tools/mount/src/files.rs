//! The files of all nodes: whose they are, where each is, and how its node is asked about it. What
//! the kernel asks for comes from [`crate::requests`]; what is done with it is in `names`,
//! `content`, `listing` and `locks`.
//!
//! Where all users share a mount, each has a *portion* of his own: files that are asked for as him,
//! and that the kernel knows as others than those of anybody else.

mod content;
mod direct;
mod listing;
mod locks;
mod names;

pub use direct::Refresher;
pub use locks::lock_of;
pub use names::{check_name, users};

use crate::answers::{Mine, VALID, attr, errno, own_attr};
use crate::cluster::Cluster;
use crate::remote::{Outcome, Over, Remote};
use crate::top::{self, Directory, Kind, Top};
use crate::tree::{Portion, TOP, Tree, Way};
use fuser::{
    FileAttr, FileHandle, FileType, Generation, Notifier, ReplyAttr, ReplyEmpty, ReplyEntry,
    Request,
};
use nix::errno::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use wire::files::{Ask, Attributes, Entry, Listed, Place, Told};
use wire::ids::NodeId;

/// Numbers of files are not given to others.
pub const GENERATION: Generation = Generation(0);
/// Users of a mount that all share.
const PORTIONS_MAX: usize = 16_384;

/// Who asks: a thread of this user. The kernel itself is thread 0.
#[derive(Clone, Copy)]
pub struct Asker {
    pub thread: u32,
    pub uid: u32,
}

impl From<&Request> for Asker {
    fn from(request: &Request) -> Asker {
        Asker { thread: request.pid(), uid: request.uid() }
    }
}

/// A file or directory that is open.
pub struct Open {
    file: u64,
    portion: Portion,
    remote: Arc<Remote>,
    link: u64,
    handle: u64,
    /// Its server has to be told when it is closed: it was written to, or locked.
    is_used: AtomicBool,
    /// A process on its node may read and write it there.
    is_direct: AtomicBool,
    /// Of a directory: what was read and not given on yet, and where it begins.
    listed: Mutex<(u64, VecDeque<Listed>)>,
}

/// Where a file is, and what it is called there.
struct At {
    remote: Arc<Remote>,
    portion: Portion,
    over: Over,
    number: u64,
}

type Found = Result<At, Errno>;
/// Where an answer has come from.
type Source = (Arc<Remote>, Portion);

pub struct Files {
    socket: PathBuf,
    /// Whose each portion is; the first is that of whoever has mounted this.
    portions: Mutex<Vec<Mine>>,
    /// All users may use it, each as himself.
    is_shared: bool,
    cluster: Cluster,
    top: Top,
    tree: Tree,
    remotes: Mutex<HashMap<(Portion, NodeId), Arc<Remote>>>,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    handles: AtomicU64,
    notifier: OnceLock<Notifier>,
    refresher: Refresher,
}

impl Files {
    pub fn new(
        socket: PathBuf,
        cluster: Cluster,
        (mine, is_shared): (Mine, bool),
        refresher: Refresher,
    ) -> Files {
        Files {
            socket,
            portions: Mutex::new(vec![mine]),
            is_shared,
            cluster,
            top: Top::default(),
            tree: Tree::default(),
            remotes: Mutex::default(),
            open: Mutex::default(),
            handles: AtomicU64::new(1),
            notifier: OnceLock::new(),
            refresher,
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

    fn mine(&self, portion: Portion) -> Mine {
        held(&self.portions)[usize::from(portion.0)]
    }

    /// The portion of a user in a mount that all share.
    fn portion_for(&self, request: &Request) -> Result<Portion, Errno> {
        let mut portions = held(&self.portions);
        let known = portions.iter().skip(1).position(|mine| mine.uid == request.uid());
        if let Some(known) = known {
            return Ok(Portion(known as u16 + 1));
        }
        if portions.len() >= PORTIONS_MAX {
            return Err(Errno::EUSERS);
        }
        portions.push(Mine { uid: request.uid(), gid: request.gid() });
        Ok(Portion(portions.len() as u16 - 1))
    }

    /// A portion is for its user alone.
    fn check(&self, by: Asker, portion: Portion) -> Result<(), Errno> {
        let is_his = !self.is_shared || self.mine(portion).uid == by.uid;
        is_his.then_some(()).ok_or(Errno::EACCES)
    }

    /// Which directory of all nodes that is, if it is one and he may enter it.
    pub fn directory(&self, by: Asker, file: u64) -> Option<Result<Directory, Errno>> {
        match (file, self.is_shared) {
            (top::ALL, true) => Some(Ok(Directory::Shared)),
            (top::ALL, false) => Some(Ok(Directory::Of(Portion(0)))),
            _ => {
                let portion = top::portion_of(file)?;
                Some(self.check(by, portion).map(|()| Directory::Of(portion)))
            }
        }
    }

    fn remote(&self, portion: Portion, node: NodeId) -> Result<Arc<Remote>, Errno> {
        let user = self.is_shared.then(|| self.mine(portion).uid);
        let mut remotes = held(&self.remotes);
        if let Some(remote) = remotes.get(&(portion, node)) {
            return Ok(remote.clone());
        }
        let remote = Remote::new(node, self.socket.clone(), user).map_err(|_| Errno::EAGAIN)?;
        remotes.insert((portion, node), remote.clone());
        Ok(remote)
    }

    fn link_of(&self, portion: Portion, node: NodeId) -> Option<u64> {
        held(&self.remotes).get(&(portion, node))?.link()
    }

    /// How to speak of a file: at once, or after it was found again.
    fn find(self: &Arc<Files>, by: Asker, file: u64, then: Box<dyn FnOnce(Found) + Send>) {
        match self.tree.way(file, |portion, node| self.link_of(portion, node)) {
            Way::Unknown => then(Err(Errno::ESTALE)),
            Way::Known(portion, node, called) => {
                let (over, number) = match called {
                    Some(called) => (Over::Only(called.link), called.number),
                    None => (Over::Any, TOP),
                };
                let remote = self.check(by, portion).and_then(|()| self.remote(portion, node));
                then(remote.map(|remote| At { remote, portion, over, number }));
            }
            Way::ByName { portion, directory, name, id } => {
                let files = self.clone();
                let look = move |found: Found| {
                    let At { remote, over, number: directory, .. } = match found {
                        Ok(at) => at,
                        Err(errno) => return then(Err(errno)),
                    };
                    let ask = Ask::Lookup(Place { directory, name });
                    remote.clone().ask(Some(by.thread), over, ask, Vec::new(), move |outcome| {
                        then(files.found(outcome, file, id).map(|(link, number)| At {
                            remote,
                            portion,
                            over: Over::Only(link),
                            number,
                        }));
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

    /// Asks about a file. `then` gets the answer, and where it has come from.
    fn ask(
        self: &Arc<Files>,
        by: Asker,
        file: u64,
        content: Vec<u8>,
        ask: impl FnOnce(u64) -> Ask + Send + 'static,
        then: impl FnOnce(Outcome, Option<Source>) + Send + 'static,
    ) {
        let asking = move |found: Found| match found {
            Ok(At { remote, portion, over, number }) => {
                let of = remote.clone();
                remote.ask(Some(by.thread), over, ask(number), content, move |outcome| {
                    then(outcome, Some((of, portion)));
                });
            }
            Err(errno) => then(Err(errno), None),
        };
        self.find(by, file, Box::new(asking));
    }

    /// Asks about a name in a directory; what it is is told to the kernel.
    pub fn ask_entry(
        self: &Arc<Files>,
        by: Asker,
        (directory, name): (u64, &OsStr),
        ask: impl FnOnce(Place) -> Ask + Send + 'static,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        let (files, place) = (self.clone(), (directory, name.clone()));
        let ask = move |directory| ask(Place { directory, name });
        self.ask(by, directory, Vec::new(), ask, move |outcome, source| {
            match (outcome.map(|heard| (heard.told, heard.link)), source) {
                (Ok((Told::Entry(entry), link)), Some(source)) => {
                    let attr = files.told(&source, link, place, &entry);
                    reply.entry(&VALID, &attr, GENERATION);
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    /// The kernel is told of a file.
    fn told(
        &self,
        (remote, portion): &Source,
        link: u64,
        place: (u64, Vec<u8>),
        entry: &Entry,
    ) -> FileAttr {
        let file = self.tree.told((*portion, remote.node(), link), place, entry);
        self.attr(file, entry.attributes, (remote, *portion))
    }

    /// As it is when all that was written to it has arrived.
    fn attr(
        &self,
        file: u64,
        mut is: Attributes,
        (remote, portion): (&Remote, Portion),
    ) -> FileAttr {
        let end = self.tree.writing(file, |writing| writing.end);
        is.size = is.size.max(end.unwrap_or(0));
        attr(file, &is, remote.served(), self.mine(portion))
    }

    /// Of the directories of all nodes, and of the tops of nodes, whether or not they answer.
    pub fn own_attr(&self, file: u64) -> FileAttr {
        let (portion, perm) = match top::portion_of(file) {
            Some(portion) => (portion, 0o700),
            None => (Portion(0), 0o755),
        };
        let mine = self.mine(portion);
        match top::kind_of(file) {
            Kind::Directory => own_attr(file, FileType::Directory, perm, mine),
            Kind::Link => own_attr(file, FileType::Symlink, 0o777, mine),
            Kind::File => own_attr(file, FileType::RegularFile, 0o666, mine),
        }
    }

    pub fn reply_attr(
        self: &Arc<Files>,
        by: Asker,
        file: u64,
        ask: impl FnOnce(u64) -> Ask + Send + 'static,
        reply: ReplyAttr,
    ) {
        let files = self.clone();
        self.ask(by, file, Vec::new(), ask, move |outcome, source| {
            match (outcome.map(|heard| heard.told), source) {
                (Ok(Told::Attributes(is)), Some((remote, portion))) => {
                    reply.attr(&VALID, &files.attr(file, is, (&remote, portion)));
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    pub fn reply_done(
        self: &Arc<Files>,
        by: Asker,
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

    /// The kernel does not know a file any more, so often.
    pub fn forget(&self, file: u64, times: u64) {
        let Some(forgotten) = self.tree.forget(file, times) else { return };
        if let Ok(remote) = self.remote(forgotten.portion, forgotten.node) {
            let of = vec![(forgotten.called.number, forgotten.times)];
            remote.tell(forgotten.called.link, Ask::Forget(of));
        }
    }

    pub fn get(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        held(&self.open).get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    /// As its server calls what is open.
    pub fn handle_there(&self, handle: Option<FileHandle>) -> Option<u64> {
        self.get(handle?).ok().map(|open| open.handle)
    }

    fn add(&self, file: u64, (remote, portion): Source, link: u64, handle: u64) -> FileHandle {
        let number = self.handles.fetch_add(1, Ordering::Relaxed);
        let (is_used, is_direct, listed) = Default::default();
        let open = Open { file, portion, remote, link, handle, is_used, is_direct, listed };
        held(&self.open).insert(number, Arc::new(open));
        FileHandle(number)
    }

    /// Asks about an open file. A link that was lost has lost it.
    fn ask_open(
        &self,
        by: Option<Asker>,
        open: &Open,
        ask: Ask,
        content: Vec<u8>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) {
        let thread = by.map(|by| by.thread);
        open.remote.ask(thread, Over::Only(open.link), ask, content, move |outcome| {
            then(outcome.map_err(|errno| if errno == Errno::ESTALE { Errno::EIO } else { errno }));
        });
    }

    /// The kernel asks each time: what it remembers of it is good for nobody.
    pub fn look_up_user(&self, request: &Request, uid: u32, reply: ReplyEntry) {
        if uid != request.uid() {
            return reply.error(errno(Errno::EACCES));
        }
        match self.portion_for(request) {
            Ok(portion) => {
                let attr = self.own_attr(top::directory_of(portion));
                reply.entry(&Duration::ZERO, &attr, GENERATION);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    pub fn look_up_top(&self, directory: Directory, name: &str, reply: ReplyEntry) {
        match self.top.find(&self.cluster.nodes(), directory, name) {
            Some(file) => reply.entry(&VALID, &self.own_attr(file), GENERATION),
            None => reply.error(errno(Errno::ENOENT)),
        }
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("nobody panics with it")
}
