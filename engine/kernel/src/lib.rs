//! A safe interface to the parts of Linux that Osmos needs and that no library covers whole:
//! control of other processes, their memory and registers, seccomp notification, namespaces.
//!
//! **The only crate with `unsafe`.** Each block says why it is sound. Nothing here decides
//! anything: policy lives in the crates above. Pids here are plain `i32` as the calling process
//! sees them; the crates above wrap them.

pub mod agent;
pub mod agreement;
pub mod allocator;
pub mod child_signal;
pub mod clocks;
mod companion;
pub mod faults;
pub mod features;
pub mod file_mapping;
pub mod file_rights;
mod giving_up;
pub mod haste;
pub mod inherited;
pub mod ioctl;
pub mod memory;
pub mod names;
pub mod packet;
pub mod patience;
pub mod pidfd;
pub mod proc;
pub mod processor;
pub mod processor_time;
pub mod program;
pub mod quota;
pub mod regs;
pub mod remote_call;
pub mod sandbox;
pub mod seccomp;
pub mod shared;
pub mod signal;
mod soft_dirty;
pub mod spawning;
pub mod tcp;
pub mod thread_ids;
pub mod thread_state;
pub mod tracee;
pub mod tracking;
pub mod user;
pub mod vdso;
mod waiting;
pub mod wake_up;
pub mod workers;
pub mod writers;

mod sys;

/// An error number of the kernel, with what was being done.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct KernelError {
    pub what: String,
    #[source]
    pub source: std::io::Error,
}

impl KernelError {
    pub(crate) fn last(what: impl Into<String>) -> KernelError {
        KernelError { what: what.into(), source: std::io::Error::last_os_error() }
    }

    pub(crate) fn errno(what: impl Into<String>, errno: i32) -> KernelError {
        KernelError { what: what.into(), source: std::io::Error::from_raw_os_error(errno) }
    }

    /// True if a wait came to the end of its [`patience`].
    pub fn is_timeout(&self) -> bool {
        self.source.raw_os_error() == Some(libc::ETIMEDOUT)
    }

    /// True if a thread could not execute what it was asked to.
    pub fn is_fault(&self) -> bool {
        self.source.raw_os_error() == Some(libc::ENOEXEC)
    }

    /// True if the process or thread that was acted on no longer exists.
    pub fn is_gone(&self) -> bool {
        self.source.raw_os_error() == Some(libc::ESRCH)
    }
}

pub type Result<T> = std::result::Result<T, KernelError>;
