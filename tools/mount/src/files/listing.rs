//! Reading directories.

use super::{Asker, Files, GENERATION, Open, held};
use crate::answers::{VALID, errno, own_attr};
use crate::top::{self, Directory};
use fuser::{FileType, ReplyDirectoryPlus};
use nix::errno::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use wire::files::{Ask, Listed, Told};

impl Files {
    pub fn list_nodes(&self, directory: Directory, offset: u64, mut reply: ReplyDirectoryPlus) {
        let nodes = self.cluster.nodes();
        let own = [(".".to_owned(), top::ALL), ("..".to_owned(), top::ALL)];
        let all = own.into_iter().chain(self.top.list(&nodes, directory));
        for (at, (name, file)) in all.enumerate().skip(offset as usize) {
            let attr = self.own_attr(file);
            if reply.add(attr.ino, at as u64 + 1, &name, &VALID, &attr, GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    pub fn list_from(
        self: &Arc<Files>,
        by: Asker,
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
                    // Two threads may read it at the same time.
                    let before =
                        std::mem::replace(&mut *held(&of.listed), (offset, entries.into()));
                    Files::drop_listed(&of, before.1);
                    files.list(&of, reply);
                }
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    /// Gives entries on, as many as there is room for, and keeps the others for the next time.
    fn list(&self, open: &Open, mut reply: ReplyDirectoryPlus) {
        let mut listed = held(&open.listed);
        let (at, entries) = &mut *listed;
        while let Some(of) = entries.front() {
            if self.add_entry(open, of, &mut reply) {
                break;
            }
            *at = of.next;
            entries.pop_front();
        }
        reply.ok();
    }

    /// True if there is no room for it.
    fn add_entry(&self, open: &Open, of: &Listed, reply: &mut ReplyDirectoryPlus) -> bool {
        let name = OsStr::from_bytes(&of.name);
        match &of.entry {
            // These the kernel does not remember.
            None if matches!(&of.name[..], b"." | b"..") => {
                let mine = self.mine(open.portion);
                let attr = own_attr(open.file, FileType::Directory, 0o755, mine);
                reply.add(attr.ino, of.next, name, &Duration::ZERO, &attr, GENERATION)
            }
            // What cannot be looked at is not shown.
            None => false,
            Some(entry) => {
                let node = open.remote.node();
                let file = self.tree.number(open.portion, node, &entry.attributes);
                let attr = self.attr(file, entry.attributes, (&open.remote, open.portion));
                let is_full = reply.add(attr.ino, of.next, name, &VALID, &attr, GENERATION);
                if !is_full {
                    let place = (open.file, of.name.clone());
                    self.tree.told((open.portion, node, open.link), place, entry);
                }
                is_full
            }
        }
    }

    /// Its server has told of these in vain.
    pub(super) fn drop_listed(open: &Open, entries: VecDeque<Listed>) {
        let files: Vec<_> = entries.iter().filter_map(|of| Some((of.entry?.file, 1))).collect();
        if !files.is_empty() {
            open.remote.tell(open.link, Ask::Forget(files));
        }
    }
}
