//! Files that a process which is away, on the node that has them, reads and writes itself
//! ([decision 0051](../../../../docs/decisions/0051-direct-files.md)).
//!
//! For as long as such a file is open, what others write to it through this mount is answered when
//! it has arrived, not when it is on its way: whoever is told of it by another way finds it there.
//! What the process has written is found here, because its deputy says so before anything else of
//! the process is done at home ([`Files::refresh`]), and because the file is closed before anybody
//! can know that the process has ended.

use super::{Asker, Files, Open, held};
use crate::answers::errno;
use fuser::{FileHandle, INodeNo, ReplyIoctl};
use nix::errno::Errno;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use wire::files::{Ask, Told, ioctl};

impl Files {
    /// What a deputy asks of an open file by ioctl(2).
    pub fn command(
        self: &Arc<Files>,
        by: Asker,
        handle: FileHandle,
        (command, asked): (u32, &[u8]),
        reply: ReplyIoctl,
    ) {
        match (command, self.get(handle)) {
            (ioctl::OFFER, Ok(open)) => self.offer(by, &open, asked, reply),
            (ioctl::REFRESH, Ok(open)) => self.refresh(&open, move || reply.ioctl(0, &[])),
            _ => reply.error(errno(Errno::ENOTTY)),
        }
    }

    /// Has the server offer an open file to a process on its node.
    fn offer(self: &Arc<Files>, by: Asker, open: &Arc<Open>, asked: &[u8], reply: ReplyIoctl) {
        if ioctl::node_of(asked) != Some(open.remote.node()) {
            return reply.error(errno(Errno::ENXIO));
        }
        // First: what is written from now on has arrived when it is answered.
        self.note_direct(open);
        let ask = Ask::Offer { handle: open.handle };
        self.ask_open(Some(by), open, ask, Vec::new(), move |outcome| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::Offer(offer)) => reply.ioctl(0, &ioctl::answer(&offer)),
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn note_direct(&self, open: &Open) {
        if !open.is_direct.swap(true, Ordering::SeqCst) {
            self.tree.writing(open.file, |writing| writing.direct += 1);
        }
    }

    /// It is closed.
    pub(super) fn forget_direct(&self, open: &Open) {
        if open.is_direct.load(Ordering::SeqCst) {
            self.tree.writing(open.file, |writing| {
                writing.direct = writing.direct.saturating_sub(1);
            });
        }
    }

    /// Has the kernel forget the content and the size that it remembers, then goes on.
    pub(super) fn refresh(self: &Arc<Files>, open: &Open, then: impl FnOnce() + Send + 'static) {
        let (files, file) = (self.clone(), INodeNo(open.file));
        self.refresher.has_done(Box::new(move || {
            if let Some(notifier) = files.notifier.get() {
                // Nothing of a file that the kernel does not know any more is old.
                let _ = notifier.inval_inode(file, 0, 0);
            }
            then();
        }));
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that tells the kernel what is old: the kernel may wait for pages that are being read
/// meanwhile, and so for the threads that serve it.
pub struct Refresher(Mutex<Sender<Job>>);

impl Refresher {
    /// # Errors
    /// There is no thread to be had.
    pub fn start() -> io::Result<Refresher> {
        let (sender, jobs) = channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        std::thread::Builder::new().name("refresher".into()).spawn(work)?;
        Ok(Refresher(Mutex::new(sender)))
    }

    fn has_done(&self, job: Job) {
        // It ends with this.
        let _ = held(&self.0).send(job);
    }
}
