//! Open files that processes on this node may have themselves: those that are away here, and whose
//! home has opened the file through its mount
//! ([decision 0051](../../../docs/decisions/0051-direct-files.md)).
//!
//! The server makes a secret for each, which travels to the home, from there to the supervisor of
//! the process, and comes back over a unix socket: whoever says it is given the descriptor, once.
//! The connection stays. Its end tells the supervisor that the server has ended, or that home has
//! closed the file: then it uses the descriptor no more, as no file of the mount can be used then.

use crate::handles::Open;
use kernel::packet;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::files::{OFFER_BYTES, Offer};

/// So long a secret is good: it travels twice, and is used at once.
const VALID: Duration = Duration::from_secs(30);
/// Offers at a time that nobody has taken.
const OFFERS_MAX: usize = 1024;
/// Whoever comes says his secret at once.
const PATIENCE: Duration = Duration::from_secs(1);
const WAITING_MAX: i32 = 128;

type Secret = [u8; OFFER_BYTES];

#[derive(Default)]
pub struct Offers {
    /// Of the socket, once there is one.
    name: OnceLock<[u8; OFFER_BYTES]>,
    /// None of them is kept open by its offer.
    open: Mutex<HashMap<Secret, (Weak<Open>, Instant)>>,
}

impl Offers {
    /// # Errors
    /// EAGAIN: too many wait to be taken; or there is no socket, or no thread, to be had.
    pub fn add(self: &Arc<Offers>, open: &Arc<Open>) -> Result<Offer, Errno> {
        let name = match self.name.get() {
            Some(name) => *name,
            None => self.listen()?,
        };
        let secret = random()?;
        let now = Instant::now();
        let mut offers = self.open();
        offers.retain(|_, (_, until)| now < *until);
        if offers.len() >= OFFERS_MAX {
            return Err(Errno::AGAIN);
        }
        offers.insert(secret, (Arc::downgrade(open), now + VALID));
        Ok(Offer { name, secret, uid: rustix::process::geteuid().as_raw() })
    }

    /// Only from the first on is there a socket. Two at a time make two: one is used.
    fn listen(self: &Arc<Offers>) -> Result<[u8; OFFER_BYTES], Errno> {
        let name = random()?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(&name)?)?;
        listen(&socket, WAITING_MAX)?;
        let offers = Arc::downgrade(self);
        let serve = move || {
            while let Ok(caller) = accept_with(&socket, SocketFlags::CLOEXEC) {
                let Some(offers) = offers.upgrade() else { return };
                if let Err(error) = offers.give(caller) {
                    tracing::debug!("an offered file: {error}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("offers".into());
        thread.spawn(serve).map_err(|_| Errno::AGAIN)?;
        Ok(*self.name.get_or_init(|| name))
    }

    fn give(&self, caller: OwnedFd) -> io::Result<()> {
        // Names are for all to see. A supervisor is of the daemon's user: root, or this one.
        let by = sockopt::socket_peercred(&caller)?.uid;
        if !by.is_root() && by != rustix::process::geteuid() {
            return Err(io::Error::other(format!("user {} is not to have it", by.as_raw())));
        }
        sockopt::set_socket_timeout(&caller, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let said = packet::receive(&caller, OFFER_BYTES).map_err(|error| error.source)?;
        let secret = said.and_then(|(said, _)| Secret::try_from(&said[..]).ok());
        let offered = secret.and_then(|secret| self.open().remove(&secret));
        let Some((open, until)) = offered else { return Err(io::Error::other("not offered")) };
        let Some(open) = open.upgrade().filter(|_| Instant::now() < until) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        let file = OwnedFd::from(open.file.try_clone()?);
        let is_sent = packet::send_with(&caller, &[0], &file).map_err(|error| error.source)?;
        if is_sent {
            let mut used_by = open.used_by.lock().expect("nobody panics with it");
            used_by.retain(packet::is_silent);
            used_by.push(caller);
        }
        Ok(())
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Secret, (Weak<Open>, Instant)>> {
        self.open.lock().expect("nobody panics with it")
    }
}

fn random() -> Result<[u8; OFFER_BYTES], Errno> {
    let mut bytes = [0; OFFER_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| Errno::AGAIN)?;
    Ok(bytes)
}

#[cfg(test)]
mod test {
    use super::*;
    use rustix::fs::OFlags;
    use rustix::net::connect;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn call(offer: &Offer, secret: &[u8]) -> Option<(OwnedFd, Option<OwnedFd>)> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(&offer.name).unwrap()).unwrap();
        packet::send_now(&socket, secret).unwrap();
        let (_, file) = packet::receive(&socket, 1).unwrap()?;
        Some((socket, file))
    }

    #[test]
    fn an_offered_file_is_given_once_and_to_whoever_knows_the_secret() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"content", 0).unwrap();
        let open = Arc::new(Open::new(file, 5, OFlags::RDWR));
        let offers = Arc::new(Offers::default());
        let offer = offers.add(&open).unwrap();
        assert!(call(&offer, &[7; OFFER_BYTES]).is_none(), "another secret");
        assert!(call(&offer, &offer.secret[..5]).is_none(), "a part of it");
        let (socket, given) = call(&offer, &offer.secret).unwrap();
        let mut content = [0; 7];
        File::from(given.unwrap()).read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"content");
        assert!(call(&offer, &offer.secret).is_none(), "a second time");
        let (again, _) = call(&offer, &offers.add(&open).unwrap().secret).unwrap();
        drop(again);
        drop(call(&offer, &offers.add(&open).unwrap().secret).unwrap());
        assert_eq!(open.used_by.lock().unwrap().len(), 2, "one that has gone is forgotten");
        drop(open);
        assert!(packet::receive(&socket, 1).unwrap().is_none(), "it was closed");
    }
}
