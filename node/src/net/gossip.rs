//! Gossip datagrams in and out of one UDP socket, on the same port as the TCP one. What no member
//! made is dropped without a trace on the wire, and counted.

use super::Credentials;
use crate::daemon::Event;
use crate::keys::seal::{DATAGRAM_BYTES_MAX, Gossip, Newest};
use crate::keys::stamps::Stamps;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use wire::ids::NodeId;

/// After a socket error that is not about one datagram, wait before the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// What was heard, for the task that listens and for the daemon.
#[derive(Default)]
pub struct Heard {
    newest: Mutex<Newest>,
    dropped: AtomicU64,
}

impl Heard {
    /// A datagram that a member made and that is newer than all before it from that member; any
    /// other is counted.
    pub fn take(&self, opened: Option<Gossip>) -> Option<Gossip> {
        let gossip = opened.filter(|gossip| self.newest().is_new(gossip));
        if gossip.is_none() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        gossip
    }

    /// The newest stamp of one sender; 0 if nothing was heard of it.
    pub fn newest_of(&self, sender: NodeId) -> u64 {
        self.newest().of(sender)
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Numbers mean other nodes now.
    pub fn clear(&self) {
        self.newest().clear();
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends this node's datagrams.
#[derive(Clone)]
pub struct Mouth {
    socket: Arc<UdpSocket>,
    stamps: Stamps,
}

impl Mouth {
    pub fn new(socket: Arc<UdpSocket>, stamps: Stamps) -> Mouth {
        Mouth { socket, stamps }
    }

    /// Best effort, as the brain expects: what cannot be sent at once is lost.
    pub fn send(&self, me: NodeId, to: SocketAddr, bytes: Vec<u8>, with: &Credentials) {
        let gossip = Gossip { from: me, stamp: self.stamps.next(), bytes };
        match with.seal.seal(&gossip) {
            Ok(Some(datagram)) => {
                if let Err(error) = self.socket.try_send_to(&datagram, to) {
                    tracing::debug!("gossip to {to}: {error}");
                }
            }
            Ok(None) => tracing::error!("gossip of {} bytes is too long", gossip.bytes.len()),
            Err(error) => tracing::error!("gossip: {error}"),
        }
    }
}

/// Listens until the daemon ends.
pub async fn listen(
    socket: Arc<UdpSocket>,
    credentials: watch::Receiver<Credentials>,
    heard: Arc<Heard>,
    events: mpsc::Sender<Event>,
) {
    // One more byte than allowed, so that a longer datagram is seen to be longer.
    let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
    loop {
        let length = match socket.recv_from(&mut buffer).await {
            Ok((length, _)) => length,
            Err(error) => {
                tracing::debug!("gossip: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let opened = credentials.borrow().open(&buffer[..length]);
        let Some(gossip) = heard.take(opened) else { continue };
        // A daemon too busy to listen loses gossip rather than falling behind.
        if let Err(mpsc::error::TrySendError::Closed(_)) = events.try_send(Event::Gossiped(gossip))
        {
            return;
        }
    }
}
