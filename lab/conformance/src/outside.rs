//! Suites that nobody here wrote and that are not copied here either: from a package, or from a
//! directory. Each of their programs judges itself: its end is what is compared, and no more.

use crate::packages;
use crate::subject::{Ending, Kind, Subject};
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// These take what there is of memory or processes, on a machine that others use, too.
const INSATIABLE: [&str; 6] = ["bigheap", "brk", "forkheavy", "oom-pipe", "resources", "zombie"];
/// How long each class of stress-ng works.
const SECONDS: &str = "2";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Servers and runtimes from packages ([`crate::packages`]).
    Packages,
    /// Each class of stress-ng(1), with its own verification.
    StressNg,
    /// Each executable file of a directory, without arguments.
    Directory(PathBuf),
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(word: &str) -> Result<Suite, String> {
        match word {
            "packages" => Ok(Suite::Packages),
            "stress-ng" => Ok(Suite::StressNg),
            // The nodes of a lab have a /tmp each.
            _ if Path::new(word).starts_with("/tmp") => {
                Err(format!("{word}: nodes of a lab do not see /tmp; put it somewhere else"))
            }
            _ if Path::new(word).is_dir() => Ok(Suite::Directory(word.into())),
            _ => Err(format!("`{word}` is neither packages nor stress-ng nor a directory")),
        }
    }
}

/// Its programs, in order.
///
/// # Errors
/// If there is none, or its package is not installed.
pub fn subjects(suite: &Suite) -> Result<Vec<Subject>> {
    let found = match suite {
        Suite::Packages => packages::subjects(),
        Suite::StressNg => stress_ng()?,
        Suite::Directory(path) => programs(path)?,
    };
    ensure!(!found.is_empty(), "the suite has no programs");
    Ok(found)
}

fn stress_ng() -> Result<Vec<Subject>> {
    let output = Command::new("stress-ng").arg("--stressors").output();
    let output = output.context("cannot run stress-ng; its package is stress-ng")?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = names.split_whitespace().filter(|name| !INSATIABLE.contains(name));
    let subject = |name: &str| {
        let class = format!("--{name}");
        let words =
            ["stress-ng", "--verify", "--timeout", SECONDS, "--temp-path", ".", &class, "1"];
        outside(name, words.map(String::from).to_vec())
    };
    Ok(names.map(subject).collect())
}

fn programs(directory: &Path) -> Result<Vec<Subject>> {
    let told = || directory.display().to_string();
    let directory = directory.canonicalize().with_context(told)?;
    let mut subjects = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(told)? {
        let path = entry?.path();
        let metadata = std::fs::metadata(&path)?;
        let (Some(name), Some(program)) =
            (path.file_name().and_then(|it| it.to_str()), path.to_str())
        else {
            continue;
        };
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            subjects.push(outside(name, vec![program.to_string()]));
        }
    }
    subjects.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(subjects)
}

pub(crate) fn outside(name: &str, command: Vec<String>) -> Subject {
    Subject {
        name: name.to_string(),
        kind: Kind::Outside,
        purpose: "it judges itself".to_string(),
        command,
        locate: None,
        again: None,
        runs: vec![],
        files: vec![],
        stdin: None,
        // As natively, whatever that is.
        ends: Ending::Exit(0),
        may_stay: vec![],
        not_stopped: None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_suite_is_a_package_or_a_directory_that_nodes_see() {
        assert_eq!("packages".parse(), Ok(Suite::Packages));
        assert_eq!("stress-ng".parse(), Ok(Suite::StressNg));
        assert_eq!("/usr/bin".parse(), Ok(Suite::Directory("/usr/bin".into())));
        assert!("/tmp".parse::<Suite>().unwrap_err().contains("/tmp"));
        assert!("/no/such".parse::<Suite>().is_err());
    }

    #[test]
    fn programs_of_a_directory_are_its_executable_files() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        put("second", 0o755);
        put("first", 0o700);
        put("notes", 0o644);
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let found = subjects(&Suite::Directory(directory.path().into())).unwrap();
        let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(found[0].command[0].starts_with('/'));
    }
}
