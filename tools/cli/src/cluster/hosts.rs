//! The machines that were brought up, for the commands that come after: a host a line, in the state
//! directory of the daemon here.

use super::ssh;
use crate::daemon_options::DaemonOptions;
use crate::platform::Platform;
use anyhow::{Context, Result};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub fn path(platform: &dyn Platform) -> PathBuf {
    platform.daemon_files(&DaemonOptions::default()).log.with_file_name("hosts")
}

/// None were brought up if there is no file.
pub fn read(path: &Path) -> Result<Vec<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => {
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.lines().filter(|host| ssh::check(host).is_ok()).map(str::to_owned).collect())
        }
    }
}

/// Whole or not at all.
pub fn write(path: &Path, hosts: &[String]) -> Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let text: String = hosts.iter().flat_map(|host| [host, "\n"]).collect();
    options
        .open(&unfinished)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_no_host_is_passed_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("hosts");
        assert_eq!(read(&path).expect("none"), [""; 0]);
        let hosts = ["two".to_owned(), "anna@three".to_owned()];
        write(&path, &hosts).expect("written");
        assert_eq!(read(&path).expect("read"), hosts);
        fs::write(&path, "two\n-oProxyCommand=x\n\n").expect("written");
        assert_eq!(read(&path).expect("read"), ["two"]);
        assert!(write(Path::new("/no/such/hosts"), &hosts).is_err());
    }
}
