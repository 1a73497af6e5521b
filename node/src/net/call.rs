//! Calling another node: connect, prove oneself, and have a link.

use super::Credentials;
use super::link::{OpenLink, hear_one, read_frame, write_frame};
use crate::keys::handshake::{Caller, HandshakeError, Keys};
use crate::keys::token::Token;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::ids::{NodeId, Ticket};
use wire::peer::{HANDSHAKE_BYTES_MAX, Hello, NodeKey, PeerMessage, VERSIONS};
use wire::supervisor::{Preface, Role};

/// A call that is not answered by then has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a call came to nothing. A node that does not accept the caller's key just says nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot find the address of `{0}`")]
    Host(String),
    #[error("cannot reach {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("{0} gives no answer: it is not that node, or it does not accept this key")]
    Silence(SocketAddr),
    #[error("{address} answers with something else: {source}")]
    Handshake { address: SocketAddr, source: HandshakeError },
    #[error("{0} speaks no version of this protocol that this osmos knows: use the same osmos")]
    Version(SocketAddr),
    #[error("{0} did not say what this node is in its cluster")]
    NoWelcome(SocketAddr),
}

/// Whom to call, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub address: SocketAddr,
    pub key: NodeKey,
    pub node: Option<NodeId>,
    pub listen: SocketAddr,
    /// Later than that of any call before.
    pub stamp: u64,
    /// With which of the secrets that the cluster had: 0 is the present one. A member that was away
    /// when it was renewed knows an old one only.
    pub secret: usize,
}

/// Calls a fellow member.
pub async fn call_member(call: Call, credentials: Credentials) -> Result<OpenLink, CallError> {
    let old = credentials.old_link_keys();
    let psk = match call.secret.checked_sub(1) {
        None => credentials.link_key,
        Some(nth) => old.get(nth).copied().unwrap_or(credentials.link_key),
    };
    place(call, &credentials, &psk, Ticket([0; 16])).await
}

/// Calls the member that made `token`, and waits to be made a member. The link stays open.
pub async fn call_to_join(
    call: Call,
    credentials: Credentials,
    token: &Token,
) -> Result<(OpenLink, PeerMessage), CallError> {
    let mut link = place(call, &credentials, &token.psk(), token.ticket()).await?;
    let no_welcome = || CallError::NoWelcome(call.address);
    match timeout(PATIENCE, hear_one(&mut link)).await {
        Ok(Ok(welcome @ PeerMessage::Welcome { .. })) => Ok((link, welcome)),
        _ => Err(no_welcome()),
    }
}

async fn place(
    call: Call,
    credentials: &Credentials,
    psk: &[u8; 32],
    ticket: Ticket,
) -> Result<OpenLink, CallError> {
    let address = call.address;
    let preface = Preface { role: Role::Peer, ticket };
    let hello = Hello {
        offers: VERSIONS.to_vec(),
        sent_ns: call.stamp,
        node: call.node,
        listen: call.listen,
    };
    let keys = Keys { own: &credentials.own, psk, preface };
    let failed = |source| CallError::Handshake { address, source };
    let (caller, first) = Caller::call(&keys, call.key, &hello).map_err(failed)?;
    let connecting = timeout(PATIENCE, TcpStream::connect(address)).await;
    let timed_out = io::Error::from(io::ErrorKind::TimedOut);
    let connected = connecting.unwrap_or(Err(timed_out));
    let mut stream = connected.map_err(|source| CallError::Connect { address, source })?;
    let exchange = async {
        stream.write_all(&preface.encode()).await?;
        write_frame(&mut stream, &first).await?;
        read_frame(&mut stream).await
    };
    let Ok(Ok(second)) = timeout(PATIENCE, exchange).await else {
        return Err(CallError::Silence(address));
    };
    if second.len() > HANDSHAKE_BYTES_MAX {
        return Err(CallError::Silence(address));
    }
    let (selected, sealer, opener) = caller.answered(&second).map_err(failed)?;
    match selected.version {
        Some(version) if VERSIONS.contains(&version) => Ok(OpenLink { stream, sealer, opener }),
        _ => Err(CallError::Version(address)),
    }
}
