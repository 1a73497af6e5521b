//! Encrypted, mutually authenticated framing: pure transformations of buffers.
//!
//! Two uses of one well-known protocol (Noise, <https://noiseprotocol.org>), by the `snow` crate:
//! * supervisor to supervisor: `NNpsk0`, keyed by the secret of one berth, which the two daemons
//!   agreed on over their own encrypted link;
//! * daemon to daemon: see the node crate, which uses `IKpsk1` so that a caller without the cluster
//!   key gets silence.

use crate::limits::FRAME_PLAIN_BYTES_MAX;
use snow::{Builder, HandshakeState, StatelessTransportState};

const BERTH_PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// Bytes that encryption adds to a frame.
pub const TAG_BYTES: usize = 16;

/// A peer that does not hold the key, or a frame that was altered, replayed or reordered.
#[derive(Debug, thiserror::Error)]
#[error("encrypted link: {0}")]
pub struct SecureError(#[from] pub snow::Error);

/// The handshake of one berth connection: one message each way, initiator first.
pub struct BerthHandshake(HandshakeState);

impl BerthHandshake {
    pub fn initiator(key: &[u8; 32]) -> Result<Self, SecureError> {
        let builder = Builder::new(BERTH_PATTERN.parse()?).psk(0, key)?;
        Ok(BerthHandshake(builder.build_initiator()?))
    }

    pub fn responder(key: &[u8; 32]) -> Result<Self, SecureError> {
        let builder = Builder::new(BERTH_PATTERN.parse()?).psk(0, key)?;
        Ok(BerthHandshake(builder.build_responder()?))
    }

    /// Writes the next handshake message into `out`; returns its length (at most 64 bytes).
    pub fn write(&mut self, out: &mut [u8]) -> Result<usize, SecureError> {
        Ok(self.0.write_message(&[], out)?)
    }

    pub fn read(&mut self, message: &[u8]) -> Result<(), SecureError> {
        self.0.read_message(message, &mut [0; 64])?;
        Ok(())
    }

    /// Both directions of the established link.
    pub fn finish(self) -> Result<(Sealer, Opener), SecureError> {
        let transport = std::sync::Arc::new(self.0.into_stateless_transport_mode()?);
        Ok((Sealer { transport: transport.clone(), nonce: 0 }, Opener { transport, nonce: 0 }))
    }
}

/// Encrypts frames in order.
pub struct Sealer {
    transport: std::sync::Arc<StatelessTransportState>,
    nonce: u64,
}

/// Decrypts frames in order; any other order is an error.
pub struct Opener {
    transport: std::sync::Arc<StatelessTransportState>,
    nonce: u64,
}

impl Sealer {
    /// Encrypts `plain` (at most [`FRAME_PLAIN_BYTES_MAX`]) into `out`; returns the length.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, SecureError> {
        debug_assert!(plain.len() <= FRAME_PLAIN_BYTES_MAX);
        let length = self.transport.write_message(self.nonce, plain, out)?;
        self.nonce += 1;
        Ok(length)
    }
}

impl Opener {
    /// Decrypts one frame into `out`; returns the length of the plain text.
    pub fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> Result<usize, SecureError> {
        let length = self.transport.read_message(self.nonce, sealed, out)?;
        self.nonce += 1;
        Ok(length)
    }
}
