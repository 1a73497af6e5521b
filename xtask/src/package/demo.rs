//! `cargo xtask package --demo`: the program on a machine that has no C library at all, and names
//! services for the names of hosts and users that nobody there has.

use super::{chroot, output_of};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// As of a machine whose users and hosts are in directories of the network.
const FILES: [(&str, &str); 4] = [
    ("etc/nsswitch.conf", "passwd: sss\nhosts: resolve [!UNAVAIL=return] myhostname\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nanna:x:1234:1234::/:/bin/sh\n"),
    ("etc/hosts", "127.0.0.1 localhost\n127.0.0.1 delta\n"),
    ("etc/map", "1 delta 1\n"),
];

/// A user and a host, found by their names.
const NAMES: &str = "\
echo 'guest-users = \"7=anna,*=same\"' > /tmp/osmos.toml
osmos config check /tmp/osmos.toml
echo 'guest-users = \"7=nobody-here,*=same\"' > /tmp/osmos.toml
! osmos config check /tmp/osmos.toml 2> /tmp/refused
umask 077
echo 0123456789abcdef0123456789abcdef > /tmp/key
osmos up --map /etc/map --cluster-key /tmp/key --node-id 1 --listen 127.0.0.1:7799 --speed 1
osmos status
osmos down
";

pub fn run(program: &Path) -> Result<()> {
    chroot::check_can_be_made()?;
    let busybox = needs::find("busybox").context(
        "the programs of the demo come from a static busybox: install the package busybox-static",
    )?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let root = directory.path();
    // The machine's other users are to be let in.
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).context("its directory")?;
    // What a lab gives each node for itself has to be there.
    for name in ["bin", "etc", "home", "root", "var", "var/lib"] {
        fs::create_dir(root.join(name)).with_context(|| name.to_owned())?;
    }
    for (from, name) in [(program, "osmos"), (&busybox, "busybox")] {
        fs::copy(from, root.join("bin").join(name)).with_context(|| name.to_owned())?;
    }
    // One static file is all the programs of this machine.
    let programs = output_of(Command::new(&busybox).arg("--list"))?;
    for name in programs.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(name)).with_context(|| name.to_owned())?;
    }
    for (name, text) in FILES {
        fs::write(root.join(name), text).with_context(|| name.to_owned())?;
    }
    chroot::run_in(root, NAMES).context("names are not found without a C library")?;
    let report = chroot::run_in(root, "osmos demo --quick --json")
        .context("the demo does not run without a C library")?;
    check_report(&report)?;
    println!(
        "osmos demo: programs moved and did as without it, where there is nothing but a shell"
    );
    Ok(())
}

/// Programs ran, moved, and did what they do without Osmos.
fn check_report(report: &str) -> Result<()> {
    let said: Value = serde_json::from_str(report).context("the demo's report is no JSON")?;
    let awk = &said["awk"];
    ensure!(awk["identical_output"] == true, "the programs did something else:\n{report}");
    ensure!(awk["migrations"].as_u64() > Some(0), "no program moved:\n{report}");
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_demo_in_which_nothing_moved_proves_nothing() {
        assert!(check_report(r#"{"awk":{"identical_output":true,"migrations":3}}"#).is_ok());
        for bad in [
            r#"{"awk":{"identical_output":true,"migrations":0}}"#,
            r#"{"awk":{"identical_output":false,"migrations":3}}"#,
            r#"{"awk":null}"#,
            "no JSON",
        ] {
            assert!(check_report(bad).is_err(), "{bad}");
        }
    }
}
