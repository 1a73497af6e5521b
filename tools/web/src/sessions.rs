//! Who is logged in: one link that is good once, and the sessions that links have begun. Pure; time
//! and secrets are arguments.
//!
//! A secret has 256 random bits, so that nothing has to slow guessing down. Secrets are looked up
//! in a table with a keyed hash: how long that takes says nothing of them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A session ends so long after it began.
pub const SESSION_MAX: Duration = Duration::from_secs(12 * 3600);
/// A link that nobody has followed.
const LINK_MAX: Duration = Duration::from_secs(3600);
/// With more sessions than these, the oldest one ends.
const SESSIONS_MAX: usize = 16;
const SECRET_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// # Errors
    /// The kernel has none.
    pub fn random() -> std::io::Result<Secret> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Secret(bytes))
    }

    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    pub fn parse(text: &str) -> Option<Secret> {
        let bytes = URL_SAFE_NO_PAD.decode(text.get(..64).unwrap_or(text)).ok()?;
        Some(Secret(bytes.try_into().ok()?))
    }
}

#[derive(Default)]
pub struct Sessions {
    link: Option<(Secret, Instant)>,
    /// When each began.
    open: HashMap<Secret, Instant>,
}

impl Sessions {
    pub fn set_link(&mut self, secret: Secret, now: Instant) {
        self.link = Some((secret, now));
    }

    /// Begins a session if the link is the one that is good now, which it then is no more.
    pub fn log_in(&mut self, link: Secret, session: Secret, now: Instant) -> bool {
        let is_good = self
            .link
            .is_some_and(|(good, made)| good == link && now.duration_since(made) < LINK_MAX);
        if !is_good {
            return false;
        }
        self.link = None;
        self.open.retain(|_, begun| now.duration_since(*begun) < SESSION_MAX);
        if self.open.len() >= SESSIONS_MAX {
            let oldest = self.open.iter().min_by_key(|(_, begun)| **begun).map(|(key, _)| *key);
            oldest.and_then(|key| self.open.remove(&key));
        }
        self.open.insert(session, now);
        true
    }

    /// How long the session lasts yet; none: there is no such session.
    pub fn rest(&self, session: Secret, now: Instant) -> Option<Duration> {
        let begun = self.open.get(&session)?;
        SESSION_MAX.checked_sub(now.duration_since(*begun)).filter(|rest| !rest.is_zero())
    }

    pub fn log_out(&mut self, session: Secret) {
        self.open.remove(&session);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn secret(number: u8) -> Secret {
        Secret([number; SECRET_BYTES])
    }

    #[test]
    fn a_link_is_good_once_and_for_an_hour() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        sessions.set_link(secret(1), now);
        assert!(!sessions.log_in(secret(2), secret(9), now), "another secret");
        assert!(sessions.log_in(secret(1), secret(3), now));
        assert_eq!(sessions.rest(secret(3), now), Some(SESSION_MAX));
        assert!(!sessions.log_in(secret(1), secret(4), now), "it was used");
        assert_eq!(sessions.rest(secret(4), now), None);
        sessions.set_link(secret(5), now);
        assert!(!sessions.log_in(secret(5), secret(6), now + LINK_MAX), "it is old");
    }

    #[test]
    fn sessions_end_and_are_few() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        for number in 0..=SESSIONS_MAX as u8 {
            let at = now + Duration::from_secs(number.into());
            sessions.set_link(secret(100 + number), at);
            assert!(sessions.log_in(secret(100 + number), secret(number), at));
        }
        assert_eq!(sessions.open.len(), SESSIONS_MAX);
        assert_eq!(sessions.rest(secret(0), now), None, "the oldest has made room");
        assert!(sessions.rest(secret(1), now + SESSION_MAX).is_some());
        assert!(sessions.rest(secret(1), now + SESSION_MAX + Duration::from_secs(1)).is_none());
        sessions.log_out(secret(2));
        assert!(sessions.rest(secret(2), now + Duration::from_secs(2)).is_none());
    }

    #[test]
    fn a_secret_survives_its_text_and_nothing_else_is_one() {
        let secret = Secret::random().unwrap();
        assert!(Secret::parse(&secret.text()) == Some(secret));
        assert!(Secret::random().unwrap() != secret);
        for text in ["", "a", "ä", &"A".repeat(42), &"A".repeat(1 << 20), "../../etc/passwd"] {
            assert!(Secret::parse(text).is_none(), "{}", &text[..text.len().min(50)]);
        }
    }
}
