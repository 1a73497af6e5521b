//! `links`, `man` and `completions`: what makes the program at home on a machine.

use crate::arguments::Arguments;
use crate::classic;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use serde_json::json;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Creates the classic names in `directory`. Links of an earlier call stay; other files are never
/// touched.
pub fn links(directory: &Path, json: bool) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the osmos program itself")?;
    for name in classic::NAMES {
        link(&program, &directory.join(name))?;
    }
    let (names, directory) = (classic::NAMES, directory.display().to_string());
    if json {
        let done = json!({ "done": true, "directory": directory, "names": names });
        output::print_json(&done)?;
    } else {
        output::print_line(&format!("{} in {directory}", names.join(" ")))?;
    }
    Ok(())
}

fn link(program: &Path, path: &Path) -> Result<()> {
    match symlink(program, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(path).is_ok_and(|target| target == program) {
                return Ok(());
            }
            bail!("cannot create {}: something else is there; remove it first", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot create {}", path.display())),
    }
}

/// Writes `osmos.1` and one page for each command, those whose words are handed on among them.
pub fn manual(directory: &Path, handed_on: Vec<Command>, json: bool) -> Result<()> {
    clap_mangen::generate_to(whole(handed_on), directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))?;
    let directory = directory.display().to_string();
    output::confirm(json, || json!({ "done": true, "directory": directory }))
}

pub fn completions(shell: Shell, handed_on: Vec<Command>) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(handed_on), "osmos", &mut script);
    io::stdout().write_all(&script)?;
    Ok(())
}

/// All commands: what this crate hands on without a look has its own definitions elsewhere.
fn whole(handed_on: Vec<Command>) -> Command {
    handed_on.into_iter().fold(Arguments::command(), |whole, command| {
        let name = command.get_name().to_owned();
        whole.mut_subcommand(name, |_| command)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_created_once_and_never_replace_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        links(directory.path(), false).expect("created");
        links(directory.path(), false).expect("already there");
        let taken = directory.path().join("mon");
        fs::remove_file(&taken).expect("removed");
        fs::write(&taken, "mine").expect("written");
        let error = links(directory.path(), false).expect_err("a file is in the way");
        assert!(error.to_string().contains("mon"), "{error}");
        assert_eq!(fs::read_to_string(&taken).expect("readable"), "mine");
    }

    #[test]
    fn every_command_but_the_hidden_ones_has_a_page() {
        let directory = tempfile::tempdir().expect("a directory");
        let lab = Command::new("lab").subcommand(Command::new("up").about("Build a lab"));
        manual(directory.path(), vec![lab], false).expect("written");
        let pages =
            ["osmos.1", "osmos-run.1", "osmos-ps.1", "osmos-cluster-up.1", "osmos-lab-up.1"];
        for page in pages {
            let text = fs::read_to_string(directory.path().join(page)).expect(page);
            assert!(text.contains(".SH NAME"), "{page} has no name section");
        }
        assert!(!directory.path().join("osmos-daemon.1").exists());
    }
}
