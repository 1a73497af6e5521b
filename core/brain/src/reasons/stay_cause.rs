//! What keeps a process where it is, as checks find it.

/// Why a process that could have been considered was not handed over. The order is that of the
/// checks; the word and the numbers are for `osmos why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StayCause {
    Pinned,
    Unable,
    Light,
    Brief,
    Young,
    Resting,
    Kept,
    NobodyKnown,
    NoGain,
    Unpaid,
}
