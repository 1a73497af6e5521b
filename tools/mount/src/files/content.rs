//! Opening, reading, writing.
//!
//! Writes are answered when they are on their way, up to [`WRITING_MAX`] of one file: the server
//! carries out what concerns one file in the order in which it comes, so everything that is asked
//! later sees them. One that fails is told by the next write, or by fsync(2) or close(2).

use super::{Asker, Files, GENERATION, Open, held};
use crate::answers::{VALID, errno};
use crate::top;
use fuser::{
    FileHandle, FopenFlags, INodeNo, LockOwner, ReplyCreate, ReplyData, ReplyEmpty, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
};
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::files::{Ask, Attributes, Place, Told};

/// Bytes of one file that are on their way and answered already.
const WRITING_MAX: usize = 8 << 20;

impl Files {
    pub fn open_file(self: &Arc<Files>, by: Asker, file: u64, flags: i32, reply: ReplyOpen) {
        let files = self.clone();
        let ask = move |file| Ask::Open { file, flags };
        self.ask(by, file, Vec::new(), ask, move |outcome, source| {
            match (outcome.map(|heard| (heard.told, heard.link)), source) {
                (Ok((Told::Opened { handle, attributes }, link)), Some(source)) => {
                    let handle = files.add(file, source, link, handle);
                    reply.opened(handle, files.opened(file, &attributes));
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    /// Whether the kernel's pages of it hold still: close-to-open consistency, as of NFS.
    fn opened(&self, file: u64, attributes: &Attributes) -> FopenFlags {
        if self.tree.opened(file, attributes) {
            return FopenFlags::FOPEN_KEEP_CACHE;
        }
        if let Some(notifier) = self.notifier.get() {
            // The kernel may take its size for what it was a moment ago, or not know it any more.
            let _ = notifier.inval_inode(INodeNo(file), -1, 0);
        }
        FopenFlags::empty()
    }

    pub fn create_file(
        self: &Arc<Files>,
        by: Asker,
        place: (u64, Vec<u8>),
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (files, name) = (self.clone(), place.1.clone());
        let ask = move |directory| Ask::Create { place: Place { directory, name }, mode, flags };
        self.ask(by, place.0, Vec::new(), ask, move |outcome, source| {
            match (outcome.map(|heard| (heard.told, heard.link)), source) {
                (Ok((Told::Created { entry, handle }, link)), Some(source)) => {
                    let attr = files.told(&source, link, place, &entry);
                    files.tree.opened(attr.ino.0, &entry.attributes);
                    let handle = files.add(attr.ino.0, source, link, handle);
                    reply.created(&VALID, &attr, GENERATION, handle, FopenFlags::empty());
                }
                (Ok(_), _) => reply.error(errno(Errno::EPROTO)),
                (Err(error), _) => reply.error(errno(error)),
            }
        });
    }

    pub fn read_file(
        &self,
        request: &Request,
        handle: FileHandle,
        (offset, length): (u64, u32),
        reply: ReplyData,
    ) {
        let open = match self.get(handle) {
            Ok(open) => open,
            Err(error) => return reply.error(errno(error)),
        };
        let ask = Ask::Read { handle: open.handle, offset, length };
        self.ask_open(Some(request.into()), &open, ask, Vec::new(), move |outcome| match outcome {
            Ok(heard) => reply.data(&heard.content[..heard.content.len().min(length as usize)]),
            Err(error) => reply.error(errno(error)),
        });
    }

    pub fn write_file(
        self: &Arc<Files>,
        by: Asker,
        open: &Arc<Open>,
        offset: u64,
        data: &[u8],
        reply: ReplyWrite,
    ) {
        let (files, file, bytes) = (self.clone(), open.file, data.len());
        open.is_used.store(true, Ordering::Relaxed);
        let begun = self.tree.writing(file, |writing| {
            if let Some(failed) = writing.failed.take() {
                return Err(failed);
            }
            writing.bytes += bytes;
            writing.end = writing.end.max(offset.saturating_add(bytes as u64));
            Ok(writing.direct == 0 && writing.bytes <= WRITING_MAX)
        });
        let is_answered_first = match begun.unwrap_or(Err(Errno::ESTALE)) {
            Ok(is_answered_first) => is_answered_first,
            Err(error) => return reply.error(errno(error)),
        };
        let ask = Ask::Write { handle: open.handle, offset };
        if is_answered_first {
            self.ask_open(None, open, ask, data.to_vec(), move |outcome| {
                files.written(file, bytes, outcome.err());
            });
            // Not before: what is asked for next must not go before it.
            return reply.written(bytes as u32);
        }
        self.ask_open(Some(by), open, ask, data.to_vec(), move |outcome| {
            files.written(file, bytes, None);
            match outcome {
                Ok(_) => reply.written(bytes as u32),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    /// A part of what was written has arrived, or not.
    fn written(&self, file: u64, bytes: usize, failed: Option<Errno>) {
        self.tree.writing(file, |writing| {
            writing.bytes -= bytes.min(writing.bytes);
            if writing.failed.is_none() {
                writing.failed = failed;
            }
            if writing.bytes == 0 {
                writing.end = 0;
            }
        });
    }

    /// The file is cut or grown: what is on its way arrives before, and does not make it longer.
    pub fn resized(&self, file: u64) {
        self.tree.writing(file, |writing| writing.end = 0);
    }

    /// Asks of an open file for what is only done, and tells which write has failed before.
    fn ask_done(self: &Arc<Files>, by: Asker, open: &Open, ask: Ask, reply: ReplyEmpty) {
        let (files, file) = (self.clone(), open.file);
        self.ask_open(Some(by), open, ask, Vec::new(), move |outcome| {
            let failed = files.tree.writing(file, |writing| writing.failed.take()).flatten();
            match failed.or(outcome.err()) {
                Some(error) => reply.error(errno(error)),
                None => reply.ok(),
            }
        });
    }

    /// One of those who have it open has closed it.
    pub fn flush_file(
        self: &Arc<Files>,
        by: Asker,
        open: &Arc<Open>,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let is_used = open.is_used.load(Ordering::Relaxed);
        if open.is_direct.load(Ordering::SeqCst) {
            // Who closes it may be about to end.
            let (files, of) = (self.clone(), open.clone());
            return self.refresh(open, move || match is_used {
                true => files.flush_used(by, &of, owner, reply),
                false => reply.ok(),
            });
        }
        match is_used {
            true => self.flush_used(by, open, owner, reply),
            false => reply.ok(),
        }
    }

    fn flush_used(self: &Arc<Files>, by: Asker, open: &Open, owner: LockOwner, reply: ReplyEmpty) {
        self.ask_done(by, open, Ask::Flush { handle: open.handle, owner: owner.0 }, reply);
    }

    pub fn sync(self: &Arc<Files>, by: Asker, open: &Open, is_data_only: bool, reply: ReplyEmpty) {
        self.ask_done(by, open, Ask::Sync { handle: open.handle, is_data_only }, reply);
    }

    pub fn allocate(
        self: &Arc<Files>,
        by: Asker,
        open: &Open,
        mode: i32,
        (offset, length): (u64, u64),
        reply: ReplyEmpty,
    ) {
        self.ask_done(by, open, Ask::Allocate { handle: open.handle, mode, offset, length }, reply);
    }

    /// Nobody has it open any more. Locks of flock(2) go with it.
    pub fn close(&self, handle: FileHandle, owner: Option<LockOwner>) {
        let Some(open) = held(&self.open).remove(&handle.0) else { return };
        self.forget_direct(&open);
        if let Some(owner) = owner {
            let ask = Ask::Flush { handle: open.handle, owner: owner.0 };
            self.ask_open(None, &open, ask, Vec::new(), |_| {});
        }
        Files::drop_listed(&open, std::mem::take(&mut held(&open.listed).1));
        self.ask_open(None, &open, Ask::Close { handle: open.handle }, Vec::new(), |_| {});
    }

    pub fn seek(&self, by: Asker, open: &Open, (offset, whence): (i64, i32), reply: ReplyLseek) {
        let ask = Ask::Seek { handle: open.handle, offset, whence };
        self.ask_open(Some(by), open, ask, Vec::new(), move |outcome| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::Offset(offset)) => reply.offset(offset.cast_signed()),
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    pub fn copy(
        &self,
        by: Asker,
        (from, from_offset): (&Open, u64),
        (to, to_offset): (&Open, u64),
        length: u64,
        reply: ReplyWrite,
    ) {
        let is_one_server = Arc::ptr_eq(&from.remote, &to.remote) && from.link == to.link;
        if !is_one_server {
            // The kernel reads and writes it then.
            return reply.error(errno(Errno::EXDEV));
        }
        let ask = Ask::Copy { from: from.handle, from_offset, to: to.handle, to_offset, length };
        self.ask_open(Some(by), to, ask, Vec::new(), move |outcome| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::Offset(copied)) => reply.written(copied.min(length) as u32),
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    pub fn reply_xattr(
        self: &Arc<Files>,
        by: Asker,
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

    pub fn file_system(self: &Arc<Files>, by: Asker, file: u64, reply: ReplyStatfs) {
        let ask = |file| Ask::FileSystem { file };
        self.ask(by, file, Vec::new(), ask, move |outcome, _| {
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

    /// What whoever asks has selected, as `.select` tells it.
    pub fn read_selected(&self, by: Asker, offset: u64, reply: ReplyData) {
        let node = self.top.selected_by(by.thread).or(self.cluster.nodes().me);
        let text = node.map(|node| format!("{node}\n")).unwrap_or_default();
        reply.data(text.as_bytes().get(offset as usize..).unwrap_or_default());
    }

    pub fn select(&self, by: Asker, text: &[u8], reply: ReplyWrite) {
        match self.top.select(&self.cluster.nodes(), by.thread, text) {
            true => reply.written(text.len() as u32),
            false => reply.error(errno(Errno::EINVAL)),
        }
    }

    pub fn is_select(file: INodeNo) -> bool {
        file.0 == top::SELECT
    }
}
