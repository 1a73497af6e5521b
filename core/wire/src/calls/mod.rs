//! The system call table, and how a call's memory is laid out for its journey home and back.
//!
//! Every x86-64 Linux call has one [`Class`], known at compile time. For the calls that travel, the
//! table describes the arguments; one walk over that description (`walk`) serves both halves:
//! the body gathers guest memory with it ([`marshal`]), and the deputy repeats it over what it
//! received ([`stage`]), so a body that lies about a length or a pointer cannot be believed.
//!
//! Two rules keep this right without being complete. A call that is not described, or whose memory
//! is only half there, brings the process home and runs natively. And a pointer that leads nowhere
//! is not judged here: it travels as [`BAD_POINTER`], and Linux at home finds the fault in its own
//! order (`EBADF` before `EFAULT`, say).
//!
//! * `table`, `entries`: every call and its class; `memory`, `clock`, `ioctl`, `fcntl`, `socket`,
//!   `process`, `ipc`, `thread`: the calls whose class depends on their arguments
//! * `argument`: the words of a description; `walk`: its one interpreter
//! * `marshal` (body) and `stage` (deputy): there; `result`: and back
//! * `own_file`: the files by which a process looks at itself
//! * `timeout`, `signal`: what the engine needs to know of calls that wait; `contents`: of those
//!   that write to files; `exec`: the lists of strings of execve(2)

mod argument;
mod clock;
mod contents;
mod entries;
mod exec;
mod fcntl;
mod ioctl;
mod ipc;
mod marshal;
mod matrix;
mod memory;
mod own_file;
mod process;
mod result;
mod signal;
mod socket;
mod stage;
mod table;
pub mod thread;
mod timeout;
mod walk;

#[cfg(test)]
mod test;

pub use argument::{Argument, Length, Width};
pub use contents::{Touched, read_by, touched};
pub use exec::EXECVE;
pub use marshal::{GuestMemory, Marshalled, Unmarshalled, argument_bytes, marshal};
pub use matrix::matrix_markdown;
pub use memory::is_file_mapping;
pub use own_file::{OwnFile, Shows, own_file, reads_from};
pub use process::{IdCall, id_call, limits_body, tells_of_body};
pub use result::{ApplyError, apply, collect};
pub use signal::{Met, eintr_after_stop, has_temporary_mask, met_by_handler};
pub use stage::{STAGING_BYTES_MAX, StageError, Staged, stage};
pub use table::{Class, Emulation, LocalRule, Test, classify, local_rules, name};
pub use timeout::{Timeout, timeout, with_remaining};

/// The six argument registers of a call: rdi, rsi, rdx, r10, r8, r9.
pub type Arguments = [u64; 6];

/// What stands for a pointer that is not NULL and leads to nothing the call may touch: an address
/// in the first page, which no process can map (`vm.mmap_min_addr`), so Linux answers `EFAULT`
/// exactly when it looks there. Aligned, so that it is not refused for that.
pub const BAD_POINTER: u64 = 16;
