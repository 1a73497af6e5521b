//! Gossip datagrams in and out of one UDP socket, on the same port as the TCP one. What no member
//! made is dropped without a trace on the wire, and counted.

use super::{Credentials, wall_clock_ns};
use crate::daemon::Event;
use crate::keys::seal::{DATAGRAM_BYTES_MAX, Gossip, Newest};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use wire::ids::NodeId;

/// After a socket error that is not about one datagram, wait before the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends this node's datagrams.
pub struct Mouth {
    socket: Arc<UdpSocket>,
    last_stamp: u64,
}

impl Mouth {
    pub fn new(socket: Arc<UdpSocket>) -> Mouth {
        Mouth { socket, last_stamp: 0 }
    }

    /// Best effort, as the brain expects: what cannot be sent at once is lost.
    pub fn send(&mut self, me: NodeId, to: SocketAddr, bytes: Vec<u8>, with: &Credentials) {
        self.last_stamp = wall_clock_ns().max(self.last_stamp + 1);
        let gossip = Gossip { from: me, stamp: self.last_stamp, bytes };
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
    dropped: Arc<AtomicU64>,
    events: mpsc::Sender<Event>,
) {
    let mut newest = Newest::default();
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
        let opened = credentials.borrow().seal.open(&buffer[..length]);
        let gossip = match opened {
            Some(gossip) if newest.is_new(&gossip) => gossip,
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
