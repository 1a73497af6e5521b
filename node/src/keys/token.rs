//! The text that lets one node join: made by a member, handed over by a person, used once.
//!
//! It holds what the joining node needs to make an `IKpsk1` call: whom to call, and a secret known
//! to nobody else. The connection's clear head names the token by a hash of that secret, so the
//! called node knows which secret to try without being told it.

use crate::keys::{NoRandomness, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};
use wire::ids::Ticket;
use wire::peer::NodeKey;

const VERSION: u8 = 1;
/// A token text is about 110 characters; anything near this is not one.
const TEXT_BYTES_MAX: usize = 512;
/// Tokens that are open at the same time; the oldest is forgotten for a newer one.
const OPEN_MAX: usize = 64;
/// A token that nobody used by then is void.
pub const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Leave to join a cluster, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where the member that made it listens.
    pub address: SocketAddr,
    /// The key of that member.
    pub key: NodeKey,
    pub secret: [u8; 16],
}

/// A text that is not a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("this is not a token: copy the whole line that `osmos token` printed")]
    Malformed,
    #[error(
        "this token has version {0}, this osmos knows {VERSION}: use the same osmos on both nodes"
    )]
    Version(u8),
}

impl Token {
    pub fn generate(address: SocketAddr, key: NodeKey) -> Result<Token, NoRandomness> {
        Ok(Token { address, key, secret: random()? })
    }

    /// The pre-shared key of the joining call.
    pub fn psk(&self) -> [u8; 32] {
        blake3::derive_key("osmos 2025 join token key", &self.secret)
    }

    /// Names the token in clear.
    pub fn ticket(&self) -> Ticket {
        let hash = blake3::derive_key("osmos 2025 join token name", &self.secret);
        let mut ticket = Ticket([0; 16]);
        ticket.0.copy_from_slice(&hash[..16]);
        ticket
    }

    pub fn to_text(&self) -> String {
        let mut bytes = vec![VERSION];
        let body = postcard::to_stdvec(self).expect("a token of fixed fields always encodes");
        bytes.extend_from_slice(&body);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.len() > TEXT_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed)?;
        match bytes.split_first() {
            Some((&VERSION, body)) => match postcard::take_from_bytes(body) {
                Ok((token, [])) => Ok(token),
                _ => Err(TokenError::Malformed),
            },
            Some((&version, _)) => Err(TokenError::Version(version)),
            None => Err(TokenError::Malformed),
        }
    }
}

/// The tokens that a node has made and nobody has used.
#[derive(Default)]
pub struct OpenTokens(VecDeque<(Instant, Token)>);

impl OpenTokens {
    pub fn add(&mut self, now: Instant, token: Token) {
        if self.0.len() == OPEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, token));
    }

    /// The secret of the open token named `ticket`.
    pub fn psk(&self, now: Instant, ticket: Ticket) -> Option<[u8; 32]> {
        let is_open = |made: Instant| now.saturating_duration_since(made) < TOKEN_LIFE;
        let mut open = self.0.iter().filter(|(made, _)| is_open(*made));
        open.find(|(_, token)| token.ticket() == ticket).map(|(_, token)| token.psk())
    }

    /// Uses the token up. False if it was not open.
    pub fn take(&mut self, now: Instant, ticket: Ticket) -> bool {
        let is_open = self.psk(now, ticket).is_some();
        self.0.retain(|(_, token)| token.ticket() != ticket);
        is_open
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn token() -> Token {
        Token::generate("10.0.0.1:7780".parse().unwrap(), NodeKey([3; 32])).unwrap()
    }

    #[test]
    fn a_token_survives_its_text_form() {
        let token = token();
        assert!(token.to_text().parse::<Token>().unwrap() == token);
        assert!(format!(" {}\n", token.to_text()).parse::<Token>().unwrap() == token);
    }

    #[test]
    fn what_is_not_a_token_is_said_to_be_none() {
        let cut = &token().to_text()[..40];
        for text in ["", "hello world", cut, &"A".repeat(10_000)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
        let other = URL_SAFE_NO_PAD.encode([9, 1, 2, 3]);
        assert_eq!(other.parse::<Token>().err(), Some(TokenError::Version(9)));
    }

    #[test]
    fn a_token_is_used_once() {
        let (now, token) = (Instant::now(), token());
        let mut open = OpenTokens::default();
        open.add(now, token.clone());
        assert_eq!(open.psk(now, token.ticket()), Some(token.psk()));
        assert!(open.take(now, token.ticket()));
        assert!(!open.take(now, token.ticket()));
        assert_eq!(open.psk(now, token.ticket()), None);
    }

    #[test]
    fn an_old_token_is_void_and_a_flood_of_tokens_is_bounded() {
        let now = Instant::now();
        let mut open = OpenTokens::default();
        let old = token();
        open.add(now, old.clone());
        assert!(!open.take(now + TOKEN_LIFE, old.ticket()));
        for _ in 0..2 * OPEN_MAX {
            open.add(now, token());
        }
        assert_eq!(open.0.len(), OPEN_MAX);
    }
}
