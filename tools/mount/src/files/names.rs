//! Names: links, removing and renaming.

use super::{Asker, At, Files, Found};
use crate::answers::{errno, target};
use crate::remote::Over;
use crate::top;
use crate::tree::{Portion, Way, is_fixed};
use fuser::{INodeNo, ReplyData, ReplyEmpty, ReplyEntry, Request};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use wire::files::{Ask, AttributeName, NAME_BYTES_MAX, Place};
use wire::ids::NodeId;

/// The name of an attribute, if it is anybody's and not a kernel's.
///
/// # Errors
/// It is not.
pub fn users(name: &OsStr) -> Result<AttributeName, Errno> {
    let is_users = name.as_bytes().starts_with(b"user.");
    is_users.then(|| AttributeName(name.as_bytes().to_vec())).ok_or(Errno::EOPNOTSUPP)
}

/// FUSE lets names be longer than those of any file system.
///
/// # Errors
/// ENAMETOOLONG.
pub fn check_name(name: &OsStr) -> Result<(), Errno> {
    (name.len() <= NAME_BYTES_MAX).then_some(()).ok_or(Errno::ENAMETOOLONG)
}

impl Files {
    /// Nothing can be made, renamed or removed in a directory of all nodes.
    ///
    /// # Errors
    /// It is one; ENAMETOOLONG.
    pub fn check_changes(
        &self,
        request: &Request,
        directory: INodeNo,
        name: &OsStr,
    ) -> Result<(), Errno> {
        check_name(name)?;
        match self.directory(request.into(), directory.0) {
            Some(_) => Err(Errno::EPERM),
            None => Ok(()),
        }
    }

    pub fn read_link(self: &Arc<Files>, request: &Request, file: INodeNo, reply: ReplyData) {
        let (files, by, file) = (self.clone(), Asker::from(request), file.0);
        if is_fixed(file) {
            let lead = move || match files.top.target(&files.cluster, file, (by.thread, by.uid)) {
                Some(target) => reply.data(target.as_bytes()),
                None => reply.error(errno(Errno::EINVAL)),
            };
            return match top::is_asked_for(file) {
                // Nobody else is to wait for the daemon. Without a thread the reply is dropped,
                // which answers it with EIO.
                true => drop(std::thread::Builder::new().name("here".into()).spawn(lead)),
                false => lead(),
            };
        }
        let depth = files.tree.depth(file);
        let ask = |file| Ask::Target { file };
        self.ask(by, file, Vec::new(), ask, move |outcome, _| match outcome {
            Ok(heard) => reply.data(&target(heard.content, depth)),
            Err(error) => reply.error(errno(error)),
        });
    }

    pub fn remove(
        self: &Arc<Files>,
        by: Asker,
        (directory, name): (u64, &OsStr),
        is_directory: bool,
        reply: ReplyEmpty,
    ) {
        let name = name.as_bytes().to_vec();
        let ask = move |directory| Ask::Remove { place: Place { directory, name }, is_directory };
        self.reply_done(by, directory, Vec::new(), ask, reply);
    }

    pub fn make_link(
        self: &Arc<Files>,
        by: Asker,
        file: u64,
        (directory, name): (u64, &OsStr),
        reply: ReplyEntry,
    ) {
        let (files, name) = (self.clone(), name.to_owned());
        let linking = move |found: Found| match found {
            Ok(At { remote, portion, over: Over::Only(link), number }) => {
                if files.place_of(directory) != Some((portion, remote.node(), link)) {
                    return reply.error(errno(Errno::EXDEV));
                }
                let ask = move |place| Ask::MakeLink { file: number, place };
                files.ask_entry(by, (directory, &name), ask, reply);
            }
            Ok(_) => reply.error(errno(Errno::EPERM)),
            Err(error) => reply.error(errno(error)),
        };
        self.find(by, file, Box::new(linking));
    }

    /// Whose file it is, of which node, and the link over which it is known.
    fn place_of(&self, file: u64) -> Option<(Portion, NodeId, u64)> {
        match self.tree.way(file, |portion, node| self.link_of(portion, node)) {
            Way::Known(portion, node, called) => {
                let known = called.map(|called| called.link);
                Some((portion, node, known.or_else(|| self.link_of(portion, node))?))
            }
            _ => None,
        }
    }

    pub fn rename(
        self: &Arc<Files>,
        by: Asker,
        from: (u64, Vec<u8>),
        to: (u64, Vec<u8>),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let (files, directory) = (self.clone(), from.0);
        let first = move |found: Found| {
            let old = match found {
                Ok(at) => at,
                Err(error) => return reply.error(errno(error)),
            };
            let renaming = files.clone();
            let directory = to.0;
            let second = move |found: Found| match found {
                Ok(new) => renaming.rename_there(by, (from, old), (to, new), flags, reply),
                Err(error) => reply.error(errno(error)),
            };
            files.find(by, directory, Box::new(second));
        };
        self.find(by, directory, Box::new(first));
    }

    fn rename_there(
        self: &Arc<Files>,
        by: Asker,
        (from, old): ((u64, Vec<u8>), At),
        (to, new): ((u64, Vec<u8>), At),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        if (old.portion, old.remote.node()) != (new.portion, new.remote.node()) {
            return reply.error(errno(Errno::EXDEV));
        }
        let over = if old.over == Over::Any { new.over } else { old.over };
        let ask = Ask::Rename {
            from: Place { directory: old.number, name: from.1.clone() },
            to: Place { directory: new.number, name: to.1.clone() },
            flags,
        };
        let files = self.clone();
        old.remote.ask(Some(by.thread), over, ask, Vec::new(), move |outcome| match outcome {
            Ok(_) => {
                files.tree.renamed((from.0, &from.1), (to.0, &to.1));
                reply.ok();
            }
            Err(error) => reply.error(errno(error)),
        });
    }
}
