//! The ways in which a program is run.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Between two moves of the ping-pong flavour.
pub const PING_PONG_MS: u64 = 100;
/// Between two moves of the storm flavour, about.
pub const STORM_MS: u64 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// Without Osmos: what the others are compared with.
    Native,
    /// Under `osmos run --home`.
    Home,
    /// Moved to another node soon after its start, and it stays there.
    Once,
    /// Moved out and home again by `osmos migrate` for as long as it runs.
    PingPong,
    /// Moved to a random node every 50 ms by `osmos run --storm`.
    Storm,
    /// Without Osmos, but stopped and continued at random moments: what the harness asks of its own
    /// guests before it judges Osmos by them. Not among [`Flavour::ALL`].
    Stopped,
}

impl Flavour {
    pub const ALL: [Flavour; 5] =
        [Flavour::Native, Flavour::Home, Flavour::Once, Flavour::PingPong, Flavour::Storm];

    pub fn name(self) -> &'static str {
        match self {
            Flavour::Native => "native",
            Flavour::Home => "home",
            Flavour::Once => "once",
            Flavour::PingPong => "ping-pong",
            Flavour::Storm => "storm",
            Flavour::Stopped => "stopped",
        }
    }

    /// Whether it needs Osmos.
    pub fn is_osmos(self) -> bool {
        !matches!(self, Flavour::Native | Flavour::Stopped)
    }

    /// Whether a program that did not move has proved nothing.
    pub fn moves(self) -> bool {
        matches!(self, Flavour::Once | Flavour::PingPong | Flavour::Storm)
    }

    /// The words before the program's own, where it can move to these nodes; `osmos run` is told
    /// `others` besides.
    pub fn command(self, away: &[u32], others: &[&str]) -> Vec<String> {
        let options = match self {
            Flavour::Native | Flavour::Stopped => return Vec::new(),
            Flavour::Home | Flavour::PingPong => vec!["--home".to_string()],
            Flavour::Once => {
                let node = away.first().map(u32::to_string).unwrap_or_default();
                vec!["--node".to_string(), node]
            }
            Flavour::Storm => vec!["--storm".to_string(), STORM_MS.to_string()],
        };
        let mut words: Vec<String> = ["osmos", "run"].map(String::from).to_vec();
        words.extend(others.iter().map(|word| word.to_string()));
        words.extend(options);
        words.push("--".into());
        words
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Flavour {
    type Err = String;

    fn from_str(word: &str) -> Result<Flavour, String> {
        let known = Flavour::ALL.into_iter().chain([Flavour::Stopped]);
        known.into_iter().find(|flavour| flavour.name() == word).ok_or_else(|| {
            let names = Flavour::ALL.map(Flavour::name).join(", ");
            format!("`{word}` is no flavour; there are {names}")
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_flavour_is_found_by_its_name() {
        for flavour in Flavour::ALL.into_iter().chain([Flavour::Stopped]) {
            assert_eq!(flavour.name().parse(), Ok(flavour));
        }
        assert!("sideways".parse::<Flavour>().unwrap_err().contains("ping-pong"));
    }

    #[test]
    fn only_the_flavours_with_osmos_start_it() {
        assert!(Flavour::Native.command(&[2], &["--cpu-baseline"]).is_empty());
        let words = ["osmos", "run", "--cpu-baseline", "--storm", "50", "--"];
        assert_eq!(Flavour::Storm.command(&[2], &["--cpu-baseline"]), words);
        assert_eq!(Flavour::Once.command(&[4, 3], &[]), ["osmos", "run", "--node", "4", "--"]);
    }
}
