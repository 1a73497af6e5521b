//! The lab alone, without the rest of osmos: what this crate's tests run labs with. The root binary
//! asks the same two functions.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    lab::hidden_main(&arguments).unwrap_or_else(|| lab::main(std::env::args_os().skip(1)))
}
