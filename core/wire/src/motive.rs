//! What a brain moves a process for: brains tell it each other with an offer, daemons with the wish
//! that comes of it, and users read it beside the move.

use serde::{Deserialize, Serialize};

/// Why a process is offered to another node, and moved there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Motive {
    /// It would be better off, or a core would be put to work.
    Balance = 0,
    /// In exchange for one of its group that has got on less far: they take turns.
    Exchange = 1,
    /// Its node is short of memory.
    Memory = 2,
    /// The owner of its node wants it gone.
    Owner = 3,
    /// Its user has much, and it takes from one who has little.
    Share = 4,
}

impl Motive {
    const ALL: [Motive; 5] =
        [Motive::Balance, Motive::Exchange, Motive::Memory, Motive::Owner, Motive::Share];

    /// None if no motive has that number.
    pub fn from_byte(byte: u8) -> Option<Motive> {
        Motive::ALL.into_iter().find(|motive| *motive as u8 == byte)
    }

    /// The stable word that `--json` shows.
    pub fn word(self) -> &'static str {
        match self {
            Motive::Balance => "balance",
            Motive::Exchange => "turn",
            Motive::Memory => "memory",
            Motive::Owner => "owner",
            Motive::Share => "share",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_motive_has_a_number_and_a_word_of_its_own() {
        for (nth, motive) in (0u8..).zip(Motive::ALL) {
            assert_eq!(Motive::from_byte(nth), Some(motive));
            let others = Motive::ALL.into_iter().filter(|other| *other != motive);
            assert!(others.into_iter().all(|other| other.word() != motive.word()));
        }
        assert_eq!(Motive::from_byte(Motive::ALL.len() as u8), None);
    }
}
