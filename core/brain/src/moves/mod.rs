//! The two halves of a move, whoever wants it: the source, which chooses and offers, and the
//! target, which keeps a place. How loaded this node counts itself, and who stays for which reason.

mod load;
mod source;
mod staying;
mod target;

pub(crate) use source::Target;
