//! `cargo xtask screenshots`: the pictures of the README, made anew.
//!
//! They are made by what tests see the terminal and the browser with, in the product's tests.

use anyhow::Result;

const TEST: &str = "screenshots::the_readme_shows_osmos_as_it_is";

/// Whether they were made, in `docs/pictures`.
pub fn run() -> Result<bool> {
    let mut command = needs::cargo();
    command.args(["test", "--release", "-p", "osmos", "--test", "product", "--"]);
    command.args(["--ignored", "--exact", TEST, "--nocapture"]);
    Ok(command.status()?.success())
}
