//! Every decoder of this crate that reads what others wrote, for those who feed it nonsense
//! (`cargo xtask fuzz`): nothing may come of that but a refusal.

use crate::keys::handshake::{Called, Caller, Keys};
use crate::keys::seal::{Gossip, Seal};
use crate::keys::token::Token;
use crate::keys::{ClusterSecret, NodeSecret};
use crate::{map, procfs, state};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use wire::ids::{NodeId, Ticket};
use wire::peer::{Hello, NodeKey, VERSION};
use wire::supervisor::{Preface, Role};

const PSK: [u8; 32] = [3; 32];
const PREFACE: Preface = Preface { role: Role::Peer, ticket: Ticket([0; 16]) };

fn called() -> NodeSecret {
    NodeSecret([1; 32])
}

fn keys(own: &NodeSecret) -> Keys<'_> {
    Keys { own, psk: &PSK, preface: PREFACE }
}

/// The first message of a daemon that calls, then the answer to one of ours.
pub fn handshake(message: &[u8]) {
    let own = called();
    let _ = Called::hear(&keys(&own), message);
    if let Ok((caller, _)) = Caller::call(&keys(&own), own.public(), &hello()) {
        let _ = caller.answered(message);
    }
}

/// A first message that is right.
pub fn handshake_sample() -> Vec<u8> {
    let own = NodeSecret([2; 32]);
    let call = Caller::call(&keys(&own), called().public(), &hello());
    call.map(|(_, message)| message).unwrap_or_default()
}

fn hello() -> Hello {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 7780));
    Hello { offers: vec![VERSION], sent_ns: 1, node: Some(NodeId(2)), listen }
}

/// A datagram, as it comes, and one that a member has sealed with these bytes.
pub fn sealed_datagram(bytes: &[u8]) {
    let seal = Seal::of(&ClusterSecret(PSK));
    assert!(seal.open(bytes).is_none(), "a datagram that no member made");
    let gossip = Gossip { from: NodeId(2), stamp: 1, bytes: bytes.to_vec() };
    if let Ok(Some(sealed)) = seal.seal(&gossip) {
        let opened = seal.open(&sealed).map(|gossip| gossip.bytes);
        assert_eq!(opened.as_deref(), Some(bytes));
    }
}

pub fn token(text: &str) {
    if let Ok(token) = text.parse::<Token>() {
        let again: Token = token.to_text().parse().expect("a token is read as it is written");
        assert_eq!(again.to_text(), token.to_text());
        let _ = token.ticket();
    }
}

pub fn token_sample() -> String {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7780));
    Token { address, key: NodeKey([5; 32]), secret: [6; 16] }.to_text()
}

pub fn map(text: &str) {
    let no_names = |_: &str| Err(io::Error::other("no names"));
    if let Ok(nodes) = map::parse(text, no_names) {
        assert!(!nodes.is_empty() && nodes.len() <= map::NODES_MAX as usize);
    }
}

/// Files of `/proc`, whatever is in them.
pub fn proc(text: &str) {
    let _ = procfs::parse_stat(text);
    let _ = procfs::parse_ids(text).map(|ids| ids.owner());
}

/// Files of a node's state.
pub fn state(bytes: &[u8]) {
    let _ = state::decode_membership(bytes);
    let _ = state::decode_replay(bytes);
}

/// The file of a node that is alone.
pub fn state_sample() -> Vec<u8> {
    let secret = ClusterSecret(PSK);
    state::encode_membership(&state::Membership::new(NodeId(1), secret, Vec::new()))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn samples_are_what_their_decoders_accept() {
        let own = called();
        assert!(Called::hear(&keys(&own), &handshake_sample()).is_ok());
        assert!(token_sample().parse::<Token>().is_ok());
        assert!(state::decode_membership(&state_sample()).is_some());
    }
}
