//! Gossip datagrams in and out of one UDP socket, on the same port as the TCP one. What no member
//! made is dropped without a trace on the wire, and counted.

use super::Credentials;
use crate::daemon::Event;
use crate::keys::seal::{DATAGRAM_BYTES_MAX, Gossip, Newest};
use crate::keys::stamps::Stamps;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use wire::ids::NodeId;

/// After a socket error that is not about one datagram, wait before the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends this node's datagrams.
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
    newest: Arc<Mutex<Newest>>,
    dropped: Arc<AtomicU64>,
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
        let is_new =
            |gossip: &Gossip| newest.lock().unwrap_or_else(PoisonError::into_inner).is_new(gossip);
        let gossip = match opened {
            Some(gossip) if is_new(&gossip) => gossip,
            _ => {
                dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        };
        // A daemon too busy to listen loses gossip rather than falling behind.
        if let Err(mpsc::error::TrySendError::Closed(_)) = events.try_send(Event::Gossiped(gossip))
        {
            return;
        }
    }
}
