//! How the command line puts answers into words. It is handed in, so that `osmos top` says of a
//! move or a decision what `osmos events` and `osmos why` say.

use wire::control::{Happening, Migration, Reply};
use wire::owner::Owned;

#[derive(Clone, Copy)]
pub struct Wording {
    /// An event, without its time and process.
    pub happening: fn(&Happening) -> String,
    /// The text of `osmos why`; none of another reply.
    pub why: fn(&Reply) -> Option<String>,
    pub migration: fn(&Migration) -> String,
    pub owned: fn(&Owned) -> String,
}
