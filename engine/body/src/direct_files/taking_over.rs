//! Whether the guest may have files here, and having one of this node from the server that has it
//! open.

use crate::state::Shared;
use kernel::packet;
use kernel::proc::maps::{self, Mapping};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use wire::files::Offer;

/// A server on this node hands a file over at once.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn may_have_any(shared: &Shared) -> bool {
    // A limit of ours is none of the guest's.
    let is_limited = getrlimit(Resource::RLIMIT_FSIZE).map_or(true, |it| it.0 != RLIM_INFINITY);
    let shares_files = shared.files.is_any();
    shared.maker.is_none() && !is_limited && !shares_files && !has_shared_memory(shared)
}

/// What cannot be read is taken for shared.
fn has_shared_memory(shared: &Shared) -> bool {
    let is_ours = |it: &Mapping| shared.kept.contains(&(it.start..it.end));
    let is_one = |it: &Mapping| it.is_shared && it.is_writable && !is_ours(it);
    maps::read(shared.pid).map_or(true, |maps| maps.iter().any(is_one))
}

/// Has the server hand it over: the file, and the connection that lasts as long.
pub fn take_over(offer: &Offer) -> io::Result<(File, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let server = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for side in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&server, side, Some(PATIENCE))?;
    }
    connect(&server, &SocketAddrUnix::new_abstract_name(&offer.name)?)?;
    let is_sent = packet::send_now(&server, &offer.secret).map_err(|error| error.source)?;
    let received = packet::receive(&server, 1).map_err(|error| error.source)?;
    let file = received.and_then(|(_, file)| file).filter(|_| is_sent);
    let file = File::from(file.ok_or(io::ErrorKind::UnexpectedEof)?);
    match file.metadata()?.is_file() {
        true => Ok((file, server)),
        false => Err(io::Error::other("it is no regular file")),
    }
}
