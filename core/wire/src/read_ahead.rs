//! What a body and its deputy say about files of home's whose bytes are sent before they are read.
//!
//! A file is known by the number of the question whether it can be so (`May`).

use crate::forward::{Opened, bytes};
use serde::{Deserialize, Serialize};

/// The body to its deputy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// Can this file be read ahead? No call is under way that is about it. Answered by `Given`.
    May { descriptor: i32, id: u64 },
    /// Send what lies from here to there: answered by `Bytes`, in order, or by `Changed`. A span of
    /// no bytes asks whether all is as it was.
    Send { id: u64, stretch: u64, from: u64, to: u64 },
    /// It is not read ahead any more.
    Leaves { id: u64 },
}

/// The deputy to the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// What a thread has just opened may be worth it. The reply comes behind it.
    Lies(Opened),
    Given {
        id: u64,
        given: Given,
    },
    Bytes {
        id: u64,
        /// Of the question.
        stretch: u64,
        at: u64,
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// The file is not as it was when it was given, or cannot be read: what was sent of it is not
    /// to be read any more. What may be known of the change comes behind it.
    Changed {
        id: u64,
    },
}

/// Whether a file is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    Granted {
        position: u64,
        size: u64,
    },
    /// Somebody may just be changing it.
    NotNow,
    Never,
}
