//! The Noise handshake of a peer link, as pure transformations: `IKpsk1`.
//!
//! * `IK`: the caller knows whom it calls, so its first message is already encrypted to that node,
//!   and one message each way is enough.
//! * `psk1`: the first message cannot be made, or read, without the cluster's key (or a token's).
//!
//! So a called node learns from the first message alone whether the caller belongs, before it has
//! sent a byte; a caller who does not belong gets nothing.

use crate::keys::NodeSecret;
use snow::{Builder, HandshakeState, StatelessTransportState};
use std::sync::Arc;
use wire::peer::{HANDSHAKE_BYTES_MAX, Hello, NodeKey, OFFERS_MAX, PeerError, Selected};
use wire::supervisor::Preface;

const PATTERN: &str = "Noise_IKpsk1_25519_AESGCM_SHA256";
/// Where the pre-shared key enters the pattern.
const PSK_POSITION: u8 = 1;

/// Why there is no link. To the other side all of it looks the same: silence.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("wrong or missing key")]
    Noise(#[from] snow::Error),
    #[error("handshake payload: {0}")]
    Payload(#[from] PeerError),
    #[error("{0} versions offered, at most {OFFERS_MAX} allowed")]
    TooManyOffers(usize),
}

/// One side's keys for one handshake. `psk` is the cluster's link key or a token's.
pub struct Keys<'a> {
    pub own: &'a NodeSecret,
    pub psk: &'a [u8; 32],
    /// Ties the handshake to the clear head of its connection.
    pub preface: Preface,
}

/// The calling side, between its message and the answer.
pub struct Caller(HandshakeState);

impl Caller {
    /// The first message to the node that holds `to`.
    pub fn call(
        keys: &Keys,
        to: NodeKey,
        hello: &Hello,
    ) -> Result<(Caller, Vec<u8>), HandshakeError> {
        let preface = keys.preface.encode();
        let mut state = Builder::new(PATTERN.parse()?)
            .prologue(&preface)?
            .local_private_key(&keys.own.0)?
            .remote_public_key(&to.0)?
            .psk(PSK_POSITION, keys.psk)?
            .build_initiator()?;
        let message = write(&mut state, &wire::peer::encode(hello)?)?;
        Ok((Caller(state), message))
    }

    /// The answer opens the link.
    pub fn answered(
        mut self,
        message: &[u8],
    ) -> Result<(Selected, Sealer, Opener), HandshakeError> {
        let selected = wire::peer::decode(&read(&mut self.0, message)?)?;
        let (sealer, opener) = split(self.0)?;
        Ok((selected, sealer, opener))
    }
}

/// The called side, after a first message that proved the caller's keys.
pub struct Called {
    state: HandshakeState,
    pub hello: Hello,
    pub caller: NodeKey,
}

impl Called {
    pub fn hear(keys: &Keys, message: &[u8]) -> Result<Called, HandshakeError> {
        let preface = keys.preface.encode();
        let mut state = Builder::new(PATTERN.parse()?)
            .prologue(&preface)?
            .local_private_key(&keys.own.0)?
            .psk(PSK_POSITION, keys.psk)?
            .build_responder()?;
        let hello: Hello = wire::peer::decode(&read(&mut state, message)?)?;
        if hello.offers.len() > OFFERS_MAX {
            return Err(HandshakeError::TooManyOffers(hello.offers.len()));
        }
        let remote = state.get_remote_static().ok_or(snow::Error::Dh)?;
        let mut caller = NodeKey([0; 32]);
        caller.0.copy_from_slice(remote);
        Ok(Called { state, hello, caller })
    }

    /// The answer that opens the link.
    pub fn answer(
        mut self,
        selected: Selected,
    ) -> Result<(Vec<u8>, Sealer, Opener), HandshakeError> {
        let message = write(&mut self.state, &wire::peer::encode(&selected)?)?;
        let (sealer, opener) = split(self.state)?;
        Ok((message, sealer, opener))
    }
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut message = vec![0; HANDSHAKE_BYTES_MAX];
    let length = state.write_message(payload, &mut message)?;
    message.truncate(length);
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut payload = vec![0; HANDSHAKE_BYTES_MAX];
    let length = state.read_message(message, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

fn split(state: HandshakeState) -> Result<(Sealer, Opener), HandshakeError> {
    let transport = Arc::new(state.into_stateless_transport_mode()?);
    let opener = Opener { transport: transport.clone(), nonce: 0 };
    Ok((Sealer { transport, nonce: 0 }, opener))
}

/// Encrypts the frames of one direction, in order.
pub struct Sealer {
    transport: Arc<StatelessTransportState>,
    nonce: u64,
}

/// Decrypts the frames of the other; any other order is an error.
pub struct Opener {
    transport: Arc<StatelessTransportState>,
    nonce: u64,
}

impl Sealer {
    pub fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, snow::Error> {
        let mut sealed = vec![0; plain.len() + wire::secure::TAG_BYTES];
        let length = self.transport.write_message(self.nonce, plain, &mut sealed)?;
        self.nonce += 1;
        sealed.truncate(length);
        Ok(sealed)
    }
}

impl Opener {
    pub fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, snow::Error> {
        let mut plain = vec![0; sealed.len()];
        let length = self.transport.read_message(self.nonce, sealed, &mut plain)?;
        self.nonce += 1;
        plain.truncate(length);
        Ok(plain)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::{NodeId, Ticket};
    use wire::supervisor::Role;

    const PREFACE: Preface = Preface { role: Role::Peer, ticket: Ticket([0; 16]) };

    fn hello() -> Hello {
        let listen = "127.0.0.1:7780".parse().unwrap();
        Hello { offers: vec![1], sent_ns: 1, node: Some(NodeId(2)), listen }
    }

    struct Pair {
        caller: NodeSecret,
        called: NodeSecret,
    }

    fn pair() -> Pair {
        Pair { caller: NodeSecret::generate().unwrap(), called: NodeSecret::generate().unwrap() }
    }

    #[test]
    fn both_sides_learn_who_the_other_is_and_can_talk() {
        let nodes = pair();
        let psk = [9; 32];
        let keys = Keys { own: &nodes.caller, psk: &psk, preface: PREFACE };
        let (caller, first) = Caller::call(&keys, nodes.called.public(), &hello()).unwrap();
        let keys = Keys { own: &nodes.called, psk: &psk, preface: PREFACE };
        let called = Called::hear(&keys, &first).unwrap();
        assert_eq!(called.caller, nodes.caller.public());
        assert_eq!(called.hello, hello());
        let selected = Selected { version: Some(1) };
        let (second, mut sealer, _) = called.answer(selected).unwrap();
        let (got, _, mut opener) = caller.answered(&second).unwrap();
        assert_eq!(got, selected);
        let sealed = sealer.seal(b"words").unwrap();
        assert_eq!(opener.open(&sealed).unwrap(), b"words");
        assert!(opener.open(&sealed).is_err(), "a frame played again is refused");
    }

    #[test]
    fn a_caller_without_the_cluster_key_is_not_understood() {
        let nodes = pair();
        let keys = Keys { own: &nodes.caller, psk: &[1; 32], preface: PREFACE };
        let (_, first) = Caller::call(&keys, nodes.called.public(), &hello()).unwrap();
        let keys = Keys { own: &nodes.called, psk: &[2; 32], preface: PREFACE };
        assert!(matches!(Called::hear(&keys, &first), Err(HandshakeError::Noise(_))));
    }

    #[test]
    fn a_call_meant_for_another_node_is_not_understood() {
        let nodes = pair();
        let keys = Keys { own: &nodes.caller, psk: &[1; 32], preface: PREFACE };
        let (_, first) = Caller::call(&keys, nodes.caller.public(), &hello()).unwrap();
        let keys = Keys { own: &nodes.called, psk: &[1; 32], preface: PREFACE };
        assert!(Called::hear(&keys, &first).is_err());
    }

    #[test]
    fn no_altered_or_shortened_first_message_is_understood() {
        let nodes = pair();
        let keys = Keys { own: &nodes.caller, psk: &[1; 32], preface: PREFACE };
        let (_, first) = Caller::call(&keys, nodes.called.public(), &hello()).unwrap();
        let keys = Keys { own: &nodes.called, psk: &[1; 32], preface: PREFACE };
        for index in 0..first.len() {
            assert!(Called::hear(&keys, &first[..index]).is_err());
            let mut altered = first.clone();
            // Bit 0: the top bit of an x25519 key is ignored by definition.
            altered[index] ^= 1;
            assert!(Called::hear(&keys, &altered).is_err(), "byte {index}");
        }
    }
}
