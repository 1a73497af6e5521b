//! Capture and restore: the state of a process as a value, and back.
//!
//! Both supervisors use the same pieces, because leaving home, moving on and coming home are one
//! capture with different ends:
//!
//! | | at home (the deputy) | away (a body) |
//! |---|---|---|
//! | stop | [`freeze`] | [`freeze`] |
//! | capture | [`threads`], [`layout`], [`copying`] | the same |
//! | restore | [`homeward`]: its own memory is filled again | [`shell`], [`outward`]: from none |
//!
//! **Invariant.** The source keeps everything until the target has said that it has everything. Any
//! failure before that puts the process back where it was.

pub mod adoption;
pub mod ahead;
pub mod asking;
pub mod attributes;
pub mod backing;
mod copies;
pub mod copying;
pub mod elsewhere;
pub mod emptying;
pub mod files;
mod following;
pub mod freeze;
pub mod group;
pub mod hashes;
pub mod held;
pub mod homeward;
pub mod imprint;
pub mod inflow;
pub mod injection;
pub mod intake;
pub mod kept;
pub mod late;
pub mod layout;
pub mod locked;
pub mod machine;
pub mod making;
pub mod mapping_flags;
mod moved_sharing;
pub mod offer;
pub mod outflow;
pub mod outward;
pub mod pacing;
pub mod packing;
pub mod parts;
pub mod processor;
pub mod processor_ids;
pub mod refusal;
pub mod registers;
pub mod rounds;
mod shared_ahead;
pub mod shared_holes;
pub mod sharing;
pub mod shell;
pub mod sight;
pub mod stepping;
pub mod stopwatch;
pub mod streams;
pub mod threads;
pub mod time;
pub mod vdso;
pub mod worker;

use wire::supervisor::{EXEC, Reason};

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Kernel(#[from] kernel::KernelError),
    #[error(transparent)]
    Link(#[from] link::LinkError),
    #[error(transparent)]
    Image(#[from] wire::image::ImageError),
    #[error("{}", .0.text)]
    Refused(Reason),
    #[error("the other node did not keep to the protocol: {0}")]
    Protocol(String),
    #[error("the process ended")]
    Ended(i32),
    /// It stands in front of another program's first instruction.
    #[error("the process has begun another program")]
    BeganProgram,
    /// Nothing of the process can go on.
    #[error("it had left already, and could not be served at home: {0}")]
    Lost(Box<MigrateError>),
}

pub type Result<T> = std::result::Result<T, MigrateError>;

impl MigrateError {
    pub fn refused(code: &str, text: impl Into<String>) -> MigrateError {
        MigrateError::Refused(reason(code, text))
    }

    /// What fails after a process has left is the end of it, if that is not what has failed.
    pub fn lost(self) -> MigrateError {
        match self {
            MigrateError::Ended(status) => MigrateError::Ended(status),
            error => MigrateError::Lost(Box::new(error)),
        }
    }

    /// The error as a stable word and a line for people.
    pub fn reason(&self) -> Reason {
        match self {
            MigrateError::Refused(reason) => reason.clone(),
            MigrateError::Kernel(error) if error.is_gone() => reason("ended", "it has ended"),
            MigrateError::Kernel(_) => reason("kernel", self.to_string()),
            MigrateError::Link(_) => reason("link", self.to_string()),
            MigrateError::Image(_) | MigrateError::Protocol(_) => {
                reason("protocol", self.to_string())
            }
            MigrateError::BeganProgram => reason(EXEC, self.to_string()),
            MigrateError::Ended(_) => reason("ended", self.to_string()),
            MigrateError::Lost(_) => reason("not-served", self.to_string()),
        }
    }
}

/// What a message begins with, for an error: it comes from another machine, and may be large.
pub fn head_of(message: &impl std::fmt::Debug) -> String {
    format!("{message:?}").chars().take(40).collect()
}

/// Shorthand for a [`Reason`].
pub fn reason(code: &str, text: impl Into<String>) -> Reason {
    Reason { code: code.to_owned(), text: text.into() }
}
