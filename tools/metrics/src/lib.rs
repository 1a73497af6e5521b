//! The state of a cluster for Prometheus: what nodes measure of themselves, under documented names.
//!
//! * [`catalogue`]: every name, with its type, unit, labels and how it is read; pure
//! * [`text`](mod@text): the exposition format, made from answers; pure
//! * [`source`]: asks a daemon, for its own node or for all
//! * [`serve`](mod@serve): answers HTTP on a listener, with bounds
//! * [`file`](mod@file): writes a file for node_exporter, by a rename
//!
//! Nothing is kept here: each answer is asked for when somebody looks, and all counting is done by
//! daemons, so that two who look see the same.

mod catalogue;
mod file;
mod serve;
mod source;
mod text;

pub use file::write;
pub use serve::{LISTEN_DEFAULT, Listening};
pub use source::{Answer, Answers, ask, ask_everywhere};
pub use text::text;

#[cfg(test)]
mod test;
