//! The floor of a process that moves, as a program of its own ([`bench::copy`]).

use std::ffi::OsString;

fn main() -> anyhow::Result<()> {
    bench::copy::run(&std::env::args_os().skip(1).collect::<Vec<OsString>>())
}
