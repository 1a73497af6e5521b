//! Why something was decided: as numbers, and as the words that people read.

mod stay_cause;
mod why;

pub(crate) use stay_cause::StayCause;
pub(crate) use why::PlaceSeen;
pub use why::{PlacesCompared, Why, WhyRefused, WhyStays};
