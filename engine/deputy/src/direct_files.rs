//! Files that the process has opened through a mount of all nodes' files, and that lie on the node
//! where its body is: the body reads and writes them there
//! ([decision 0051](../../../docs/decisions/0051-direct-files.md)).
//!
//! The descriptor is one of the process here, as any other, and everything else that is done with
//! it comes here. Before anything does, the body says up to where it has read or written, and that
//! what this kernel remembers of the content is old.

use crate::read_ahead::{self, ReadAhead};
use crate::service::Shared;
use kernel::{ioctl, pidfd};
use nix::fcntl::{FcntlArg, fcntl};
use nix::unistd::{Whence, lseek};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use wire::files::Offer;
use wire::files::ioctl::{EXCHANGED_BYTES, OFFER, REFRESH, asked_of, offered};
use wire::forward::{Call, DirectFile, Opened, Reply, ToAway};
use wire::ids::NodeId;

/// Devices of which it is remembered what they are.
const DEVICES_MAX: usize = 256;
/// Questions to the mount at a time: an honest body has one for each thread.
const ASKING_MAX: usize = 64;

pub struct DirectFiles {
    /// Where the body is.
    node: AtomicU32,
    /// Whether a device shows the files of all nodes.
    devices: Mutex<HashMap<(u32, u32), bool>>,
    /// Questions to the mount that are under way.
    asking: AtomicUsize,
    /// Others, that lie at home.
    pub ahead: ReadAhead,
}

impl DirectFiles {
    pub fn of(node: NodeId) -> DirectFiles {
        let (devices, asking, ahead) = Default::default();
        DirectFiles { node: AtomicU32::new(node.0), devices, asking, ahead }
    }

    /// The body is on another node.
    pub fn follow(&self, node: NodeId) {
        self.node.store(node.0, Ordering::SeqCst);
        self.ahead.forget_all();
    }

    fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::SeqCst))
    }

    fn shows_all_nodes(&self, pid: i32, device: (u32, u32)) -> bool {
        // Only what is no disk has such a number.
        if device.0 != 0 {
            return false;
        }
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if devices.len() >= DEVICES_MAX {
            devices.clear();
        }
        *devices.entry(device).or_insert_with(|| {
            let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo"));
            kernel::proc::mounts::is_of_all_nodes(&mounts.unwrap_or_default(), device)
        })
    }
}

/// Tells the body of what a call that is over has opened, if it lies in the directory of all nodes'
/// files, or may be read ahead.
pub fn tell_opened(shared: &Shared, slot: usize, reply: &Reply) {
    let is_open = |call: &Call| OPENS.contains(&i64::from(call.number));
    let opening = {
        let lane = shared.lanes.lock(slot);
        lane.answered.as_ref().map(|(call, _)| call).filter(|call| is_open(call)).cloned()
    };
    let Some(call) = opening else { return };
    let Ok(descriptor @ 0..) = i32::try_from(reply.result) else { return };
    let path = format!("/proc/{}/fd/{descriptor}", shared.pid);
    // The file system is not asked: it may be one that does not answer.
    let seen = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::SIZE);
    let Ok(seen) = seen else { return };
    let device = (seen.stx_dev_major, seen.stx_dev_minor);
    if FileType::from_raw_mode(seen.stx_mode.into()).is_file()
        && shared.direct_files.shows_all_nodes(shared.pid, device)
    {
        let (tid, sequence, size) = (reply.tid, reply.sequence, seen.stx_size);
        shared.send(&ToAway::Opened(Opened { tid, sequence, descriptor, size }));
    } else {
        read_ahead::tell_opened(shared, (&call, reply), descriptor, &seen);
    }
}

const OPENS: [i64; 4] = [libc::SYS_open, libc::SYS_openat, libc::SYS_openat2, libc::SYS_creat];

/// Has the file offered to the body, if it lies on the body's node. It is asked over the network:
/// calls do not wait for it.
pub fn offer(shared: &Arc<Shared>, descriptor: i32, id: u64) {
    let of = shared.clone();
    let ask = move || {
        let answer = ask_mount(&of, descriptor).unwrap_or_else(|error| {
            ::tracing::debug!("file {descriptor} of {}: {error}", of.pid);
            (0, None)
        });
        of.direct_files.asking.fetch_sub(1, Ordering::SeqCst);
        tell(&of, descriptor, id, answer);
    };
    let is_one_more = shared.direct_files.asking.fetch_add(1, Ordering::SeqCst) < ASKING_MAX;
    let thread = std::thread::Builder::new().name("offer".into());
    if !is_one_more || thread.spawn(ask).is_err() {
        shared.direct_files.asking.fetch_sub(1, Ordering::SeqCst);
        tell(shared, descriptor, id, (0, None));
    }
}

fn tell(shared: &Shared, descriptor: i32, id: u64, (position, offer): (u64, Option<Offer>)) {
    shared.send(&ToAway::DirectFile(DirectFile { descriptor, id, position, offer }));
}

fn ask_mount(shared: &Shared, descriptor: i32) -> io::Result<(u64, Option<Offer>)> {
    let file = open(shared, descriptor).map_err(|error| error.source)?;
    let flags = fcntl(&file, FcntlArg::F_GETFL)?;
    // What is mapped shared is kept the same by other means.
    if flags & UNLIKE != 0 || shared.files.is_some() || !is_of_all_nodes(shared, &file)? {
        return Ok((0, None));
    }
    let limits = kernel::proc::limits::read(shared.pid).map_err(|error| error.source)?;
    if flags & libc::O_ACCMODE != libc::O_RDONLY && limits.file_size != u64::MAX {
        // A limit of what may be written is this kernel's to keep.
        return Ok((0, None));
    }
    let mut exchanged: [u8; EXCHANGED_BYTES] = asked_of(shared.direct_files.node());
    ioctl::exchange(&file, OFFER, &mut exchanged).map_err(|error| error.source)?;
    let position = lseek(&file, 0, Whence::SeekCur)?;
    Ok((position.cast_unsigned(), Some(offered(&exchanged))))
}

/// What is done with a file that is opened so is another thing than to read and write it.
const UNLIKE: i32 = libc::O_APPEND
    | libc::O_DIRECT
    | libc::O_PATH
    | libc::O_DIRECTORY
    | libc::O_SYNC
    | libc::O_DSYNC;

fn open(shared: &Shared, descriptor: i32) -> kernel::Result<OwnedFd> {
    pidfd::duplicate_from(&pidfd::open(shared.pid)?, descriptor)
}

/// The body has used such a file by itself.
pub fn hear(shared: &Shared, descriptor: i32, position: u64, has_written: bool) {
    if let Err(error) = catch_up(shared, descriptor, position, has_written) {
        ::tracing::warn!("file {descriptor} of {}: {error}", shared.pid);
    }
}

fn catch_up(shared: &Shared, number: i32, position: u64, has_written: bool) -> io::Result<()> {
    let file = open(shared, number).map_err(|error| error.source)?;
    lseek(&file, i64::try_from(position).unwrap_or(i64::MAX), Whence::SeekSet)?;
    if !has_written {
        return Ok(());
    }
    if !is_of_all_nodes(shared, &file)? {
        return Err(io::Error::other("it is of no mount of all nodes' files"));
    }
    ioctl::exchange(&file, REFRESH, &mut []).map_err(|error| error.source)?;
    // Where the kernel does not ask for the size, as for a mapping, it goes by what it knows.
    statx(&file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)?;
    Ok(())
}

fn is_of_all_nodes(shared: &Shared, file: &OwnedFd) -> io::Result<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let seen = statx(file, "", flags, StatxFlags::TYPE)?;
    let device = (seen.stx_dev_major, seen.stx_dev_minor);
    Ok(shared.direct_files.shows_all_nodes(shared.pid, device))
}
