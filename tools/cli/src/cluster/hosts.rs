//! The machines that were brought up, for the commands that come after: a host a line, in the state
//! directory of this user's daemon. Behind that of a service of the system stands `sudo`.

use super::ssh;
use crate::daemon_options::DaemonOptions;
use crate::platform::Platform;
use anyhow::{Context, Result, ensure};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the line of one ends whose daemon is a service of the system.
const SYSTEM: &str = " sudo";

/// A machine as ssh knows it, and whose its daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Root's, as a service of the system.
    pub is_system: bool,
}

impl Host {
    pub fn new(name: &str, is_system: bool) -> Result<Host> {
        ssh::check(name)?;
        Ok(Host { name: name.to_owned(), is_system })
    }

    fn parse(line: &str) -> Option<Host> {
        let (name, is_system) = match line.strip_suffix(SYSTEM) {
            Some(name) => (name, true),
            None => (line, false),
        };
        Host::new(name, is_system).ok()
    }

    fn line(&self) -> String {
        format!("{}{}\n", self.name, if self.is_system { SYSTEM } else { "" })
    }
}

/// Those that were named, or those that were brought up. A named one is what it was brought up as,
/// unless it is said to be a service of the system.
pub fn choose(known: Vec<Host>, named: &[String], sudo: bool) -> Result<Vec<Host>> {
    if named.is_empty() {
        ensure!(
            !known.is_empty(),
            "name the machines, as ssh knows them: none were brought up yet"
        );
        let all = known.into_iter();
        return Ok(all.map(|host| Host { is_system: host.is_system || sudo, ..host }).collect());
    }
    let mut hosts: Vec<Host> = Vec::new();
    for name in named {
        let was_system = known.iter().any(|host| host.name == *name && host.is_system);
        let host = Host::new(name, sudo || was_system)?;
        ensure!(hosts.iter().all(|other| other.name != *name), "{name} is named twice");
        hosts.push(host);
    }
    Ok(hosts)
}

/// With those as well, each once and as it was said last.
pub fn with(mut known: Vec<Host>, hosts: &[Host]) -> Vec<Host> {
    for host in hosts {
        match known.iter_mut().find(|other| other.name == host.name) {
            Some(there) => there.is_system = host.is_system,
            None => known.push(host.clone()),
        }
    }
    known
}

pub fn path(platform: &dyn Platform) -> PathBuf {
    platform.daemon_files(&DaemonOptions::default()).log.with_file_name("hosts")
}

/// None were brought up if there is no file.
pub fn read(path: &Path) -> Result<Vec<Host>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => {
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.lines().filter_map(Host::parse).collect())
        }
    }
}

/// Whole or not at all.
pub fn write(path: &Path, hosts: &[Host]) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    // Where root's daemon is that of this machine, this user's has left none.
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(what)?;
    }
    let unfinished = path.with_extension("unfinished");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let text: String = hosts.iter().map(Host::line).collect();
    options
        .open(&unfinished)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, is_system: bool) -> Host {
        Host::new(name, is_system).expect("a host")
    }

    #[test]
    fn what_was_written_is_read_and_what_is_no_host_is_passed_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state/hosts");
        assert_eq!(read(&path).expect("none"), []);
        let hosts = [host("two", false), host("anna@three", true)];
        write(&path, &hosts).expect("written");
        assert_eq!(read(&path).expect("read"), hosts);
        fs::write(&path, "two\n-oProxyCommand=x\n sudo\n\n").expect("written");
        assert_eq!(read(&path).expect("read"), [host("two", false)]);
        assert!(write(Path::new("/proc/hosts"), &hosts).is_err());
    }

    #[test]
    fn a_host_is_what_it_was_brought_up_as_unless_it_is_said_to_be_more() {
        let known = || vec![host("two", false), host("three", true)];
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose(known(), &[], false).expect("known"), known());
        let chosen = choose(known(), &names(&["three", "four"]), false).expect("hosts");
        assert_eq!(chosen, [host("three", true), host("four", false)]);
        let chosen = choose(known(), &names(&["two"]), true).expect("hosts");
        assert_eq!(chosen, [host("two", true)]);
        assert_eq!(with(known(), &chosen), [host("two", true), host("three", true)]);
        assert_eq!(with(known(), &[host("four", false)]).len(), 3);
        assert!(choose(Vec::new(), &[], false).is_err());
        assert!(choose(known(), &names(&["two", "two"]), false).is_err());
    }
}
