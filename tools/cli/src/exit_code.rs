//! Exit statuses, as published in the help text.
//!
//! `osmos run` follows env(1) and nohup(1): what a script tests for those holds here.

use std::io;
use std::process::ExitCode;

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
/// `osmos run`: Osmos itself failed and the command was not started.
pub const NOT_STARTED: u8 = 125;
/// `osmos run`: the command was found but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// `osmos run`: there is no such command.
pub const NOT_FOUND: u8 = 127;
/// What a shell makes of a command that SIGINT ended.
pub const INTERRUPTED: u8 = 130;

/// Why exec() failed, in the words of env(1).
pub fn of_exec_error(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_EXECUTE,
    }
}

/// Print a failure with its causes in one line, and turn it into an exit status.
pub fn report(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("osmos: {error:#}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_failures_have_the_statuses_of_env() {
        assert_eq!(of_exec_error(&io::Error::from_raw_os_error(2)), NOT_FOUND);
        assert_eq!(of_exec_error(&io::Error::from_raw_os_error(13)), CANNOT_EXECUTE);
        assert_eq!(of_exec_error(&io::Error::from_raw_os_error(8)), CANNOT_EXECUTE);
    }
}
