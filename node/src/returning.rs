//! Where supervisors find this daemon that an earlier one has started.
//!
//! Anyone may call here; who it is comes from the kernel (peer credentials), and whether such a
//! supervisor is missed the dispatcher knows from the roster. A caller costs no more than one
//! greeting at a time.

use crate::daemon::Event;
use crate::places::{Place, Places};
use crate::readiness::register;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, recv,
    send, socket, sockopt,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use wire::supervisor::{GREETING_BYTES, Greeting, Welcome};

/// Callers that have not greeted yet, in all and of one user: every supervisor of a node that is
/// full may call at the same time.
const CALLERS_MAX: usize = 4_096;
const CALLERS_PER_USER_MAX: usize = 2_048;
/// A supervisor greets as soon as it has called.
const GREETING_PATIENCE: Duration = Duration::from_secs(2);
/// Calls that wait to be taken: whoever finds no room calls again.
const BACKLOG: i32 = 1_024;

/// A supervisor that this daemon starts must not have it: it would keep it open beyond the daemon's
/// end, which whoever has called would not notice then.
const CLOSED_AT_EXEC: rustix::net::SocketFlags = rustix::net::SocketFlags::CLOEXEC;

/// A supervisor that has greeted.
pub struct Returned {
    /// Who it is, as the kernel says.
    pub pid: i32,
    pub uid: u32,
    pub version: u16,
    pub socket: OwnedFd,
}

impl Returned {
    /// False if it has gone away meanwhile.
    pub fn answer(&self, welcome: Welcome) -> bool {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.socket.as_raw_fd(), &welcome.encode(), flags).is_ok()
    }
}

/// Makes the socket, in the place of one that a dead daemon has left. Supervisors run as the owners
/// of their processes: where there are several, everybody may call.
pub fn open(path: &Path, is_public: bool) -> io::Result<AsyncFd<OwnedFd>> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    let mode = if is_public { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    register(listener, Interest::READABLE)
}

/// Takes calls until the daemon ends.
pub async fn take_calls(listener: AsyncFd<OwnedFd>, events: mpsc::Sender<Event>) {
    let places = Places::new(CALLERS_MAX, CALLERS_PER_USER_MAX);
    loop {
        let take = |listener: &OwnedFd| Ok(rustix::net::accept_with(listener, CLOSED_AT_EXEC)?);
        let socket = match listener.async_io(Interest::READABLE, take).await {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!("socket for returning supervisors: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // One that is gone already has no credentials.
        let Ok(peer) = getsockopt(&socket, sockopt::PeerCredentials) else { continue };
        let (pid, uid) = (peer.pid(), peer.uid());
        let place = places.take(uid);
        let events = events.clone();
        tokio::spawn(async move {
            if let Some((version, socket)) = greeted(socket, &place).await {
                // Nobody is left to be told once the daemon has ended.
                let _ = events.send(Event::Returned(Returned { pid, uid, version, socket })).await;
            }
        });
    }
}

/// None if it says something else, or nothing for too long.
async fn greeted(socket: OwnedFd, place: &Place<u32>) -> Option<(u16, OwnedFd)> {
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
        .ok()?;
    let socket = register(socket, Interest::READABLE).ok()?;
    // One byte more than a greeting, to tell it from something longer.
    let mut bytes = [0; GREETING_BYTES + 1];
    let length = tokio::select! {
        length = socket.async_io(Interest::READABLE, |socket| {
            Ok(recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?)
        }) => length.ok()?,
        () = tokio::time::sleep(GREETING_PATIENCE) => return None,
        () = place.lost() => return None,
    };
    let greeting = Greeting::decode(&bytes[..length])?;
    Some((greeting.version, socket.into_inner()))
}

#[cfg(test)]
mod test {
    use super::*;
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::sys::socket::connect;
    use wire::supervisor::SUPERVISOR_VERSION;

    #[tokio::test]
    async fn who_has_returned_is_not_inherited_by_those_that_are_started_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("return.sock");
        let (events, mut heard) = mpsc::channel(1);
        tokio::spawn(take_calls(open(&path, false).unwrap(), events));
        let flags = SockFlag::SOCK_CLOEXEC;
        let caller = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        connect(caller.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let greeting = Greeting { version: SUPERVISOR_VERSION }.encode();
        send(caller.as_raw_fd(), &greeting, MsgFlags::empty()).unwrap();
        let Some(Event::Returned(returned)) = heard.recv().await else { panic!() };
        let flags = fcntl(&returned.socket, FcntlArg::F_GETFD).unwrap();
        assert!(FdFlag::from_bits_truncate(flags).contains(FdFlag::FD_CLOEXEC));
    }
}
