//! What moves may take of a node from the programs that run there, as its owner has said. It holds
//! for each move, on its way from the node or to it, and for memory that is copied while the
//! process runs: while that stands frozen the network has nothing better to do.

use crate::limits::{BANDWIDTH_MAX, BANDWIDTH_MIN};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

const MEGA: u64 = 1_000_000;
/// As tc(8) has them: in tens, and of bits.
const UNITS: [(&str, u64); 3] = [("gbit", 1_000 * MEGA), ("mbit", MEGA), ("kbit", 1_000)];

/// Of a network: bits a second, from [`BANDWIDTH_MIN`] to [`BANDWIDTH_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Bandwidth(u64);

/// What is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBandwidth {
    #[error("a bandwidth for moves has 10Mbit to 1000Gbit a second, not {0} bits")]
    Bound(u64),
    #[error("`{0}` is no bandwidth: a number with Kbit, Mbit or Gbit, for bits a second")]
    Word(String),
}

impl Bandwidth {
    pub fn bytes_per_s(self) -> f64 {
        self.0 as f64 / 8.0
    }
}

impl TryFrom<u64> for Bandwidth {
    type Error = BadBandwidth;

    fn try_from(bits_per_s: u64) -> Result<Bandwidth, BadBandwidth> {
        match bits_per_s {
            BANDWIDTH_MIN..=BANDWIDTH_MAX => Ok(Bandwidth(bits_per_s)),
            _ => Err(BadBandwidth::Bound(bits_per_s)),
        }
    }
}

impl From<Bandwidth> for u64 {
    fn from(bandwidth: Bandwidth) -> u64 {
        bandwidth.0
    }
}

impl FromStr for Bandwidth {
    type Err = BadBandwidth;

    /// `500Mbit`, in whatever letters.
    fn from_str(word: &str) -> Result<Bandwidth, BadBandwidth> {
        let complaint = || BadBandwidth::Word(word.to_owned());
        let small = word.to_ascii_lowercase();
        let of = |(unit, bits): (&str, u64)| Some((small.strip_suffix(unit)?, bits));
        let (digits, bits) = UNITS.into_iter().find_map(of).ok_or_else(complaint)?;
        // Not a sign, as numbers may have.
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse::<u64>().ok().filter(|_| is_plain).ok_or_else(complaint)?;
        Bandwidth::try_from(number.saturating_mul(bits))
    }
}

/// In the largest unit of which it is a whole number: as it is typed.
impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["Gbit", "Mbit", "Kbit"];
        let mut units = names.iter().zip(UNITS.map(|(_, bits)| bits));
        match units.find(|(_, bits)| self.0.is_multiple_of(*bits)) {
            Some((name, bits)) => write!(f, "{}{name}", self.0 / bits),
            None => write!(f, "{} bit", self.0),
        }
    }
}

/// Of one move. None: whatever there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveLimits {
    /// For memory, on the network.
    #[serde(rename = "bandwidth_bits_per_s")]
    pub bandwidth: Option<Bandwidth>,
    /// How many may read, pack, send, receive or write it at the same time.
    pub processors: Option<NonZeroU32>,
}

impl MoveLimits {
    /// What both nodes of a move allow.
    pub fn and(self, other: MoveLimits) -> MoveLimits {
        MoveLimits {
            bandwidth: least(self.bandwidth, other.bandwidth),
            processors: least(self.processors, other.processors),
        }
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_bandwidth_is_read_as_it_is_told() {
        for word in ["500Mbit", "10Gbit", "1000Gbit", "10Mbit", "12500Kbit"] {
            let bandwidth: Bandwidth = word.parse().unwrap();
            assert_eq!(bandwidth.to_string(), word);
            assert_eq!(word.to_uppercase().parse(), Ok(bandwidth));
        }
        assert_eq!("500Mbit".parse::<Bandwidth>().unwrap().bytes_per_s(), 62.5e6);
        assert_eq!("1gbit".parse::<Bandwidth>(), "1000mbit".parse());
        for word in ["", "500", "Mbit", "500Mbyte", "-1Gbit", "+1Gbit", "1.5Gbit", "500M", "1 Gbit"]
        {
            assert_eq!(word.parse::<Bandwidth>(), Err(BadBandwidth::Word(word.into())));
        }
    }

    #[test]
    fn a_bandwidth_that_nobody_can_mean_is_refused_from_wherever_it_comes() {
        for bits in [0, BANDWIDTH_MIN - 1, BANDWIDTH_MAX + 1, u64::MAX] {
            assert_eq!(Bandwidth::try_from(bits), Err(BadBandwidth::Bound(bits)));
            assert!(serde_json::from_str::<Bandwidth>(&bits.to_string()).is_err());
            assert!(
                postcard::from_bytes::<Bandwidth>(&postcard::to_stdvec(&bits).unwrap()).is_err()
            );
        }
        for word in ["9Mbit", "1001Gbit", "99999999999999Gbit"] {
            let text = word.parse::<Bandwidth>().unwrap_err().to_string();
            assert!(text.contains("10Mbit to 1000Gbit"), "{text}");
        }
        let none = r#"{"bandwidth_bits_per_s":null,"processors":0}"#;
        assert!(serde_json::from_str::<MoveLimits>(none).is_err(), "no processors at all");
    }

    #[test]
    fn of_two_nodes_the_one_that_allows_less_counts() {
        let limits = |word: Option<&str>, processors| MoveLimits {
            bandwidth: word.map(|word| word.parse().unwrap()),
            processors: NonZeroU32::new(processors),
        };
        let (one, other) = (limits(Some("1Gbit"), 2), limits(Some("500Mbit"), 4));
        assert_eq!(one.and(other), limits(Some("500Mbit"), 2));
        assert_eq!(other.and(one), one.and(other));
        assert_eq!(one.and(MoveLimits::default()), one);
        assert_eq!(MoveLimits::default().and(limits(None, 3)), limits(None, 3));
        let bytes = postcard::to_stdvec(&one).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(one));
        let json = r#"{"bandwidth_bits_per_s":1000000000,"processors":2}"#;
        assert_eq!(serde_json::to_string(&one).unwrap(), json);
    }
}
