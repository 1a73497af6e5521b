//! What a supervisor is told first: it may have been started before there was a process for it.

use crate::ids::HomePid;
use serde::{Deserialize, Serialize};

/// What a supervisor is told that may have been started before there was a process for it. It ends
/// with [`Assignment::Half`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Assignment {
    /// Where bodies are put, as in [`crate::supervisor::ToBody::Expect`], with the same ancillary
    /// data: what the kernel takes its time for can be done ahead.
    Place {
        guest_cgroup: Vec<String>,
    },
    Half(Half),
}

/// Which half of a process a supervisor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Half {
    Deputy { pid: HomePid },
    Body,
}
