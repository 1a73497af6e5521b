//! The one binary of Osmos: user commands, node daemon, supervisors and lab in one static file,
//! so that a node is set up by copying it.
//!
//! Layers that may not see each other are put together here and nowhere else.

mod composition;

use composition::Machine;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    kernel::names::settle();
    let words: Vec<OsString> = std::env::args_os().collect();
    match composition::hidden(&words) {
        Some(status) => status,
        None => cli::main(words, &Machine),
    }
}
