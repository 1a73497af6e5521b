//! How the command line puts answers into words. It is handed in, so that the page says of a move
//! what `osmos events`, `osmos migrate` and `osmos what-if` say.

use wire::control::{Happening, Migration};
use wire::forecast::Forecast;
use wire::owner::Owned;

#[derive(Clone, Copy)]
pub struct Wording {
    /// An event, without its time and process.
    pub happening: fn(&Happening) -> String,
    pub migration: fn(&Migration) -> String,
    /// What stands on a node, and what came of an order of its owner.
    pub owned: fn(&Owned) -> String,
    /// The numbers of a hypothetical move, and the verdict.
    pub forecast: fn(&Forecast) -> (String, String),
}
