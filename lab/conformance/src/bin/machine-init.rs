//! Process 1 of a virtual machine, and the agent that runs its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    conformance::machines::inside::main()
}
