//! The two tables of moves under way: processes on offer or leaving, and places kept for those
//! that come.

mod departures;
mod reservations;

pub(crate) use departures::{Departure, Departures, Stage};
pub(crate) use reservations::{Reservation, Reservations};
