//! How often a daemon looks at its processes: said once, because a simulated daemon that looked
//! more often, or sooner, than the real one would balance better than it.

use crate::time::Span;

/// Between two looks over all processes.
pub const PAUSE: Span = Span::from_millis(250);
/// So long after a birth there is a look over all: the brain may move whoever was born then
/// (`infancy`).
pub const AFTER_BIRTH: Span = Span::from_millis(110);
/// Between two looks at those that were born just now; and so long after its birth the brain is
/// told of one that is known to take long.
pub const NEWBORN_PAUSE: Span = Span::from_millis(10);
/// Whoever has that much to compute yet may be worth a move at once.
pub const WORTH_A_THOUGHT: Span = Span::from_millis(20);
