//! `cargo xtask package --check`: both packages as their users meet them, on machines that systemd
//! runs: installed, looked at, upgraded under a process, removed and purged, with nothing left.

use super::{Made, chroot, output_of};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEB: &str = include_str!("../../package/check-deb.sh");
const RPM: &str = include_str!("../../package/check-rpm.sh");
/// What the machine has beside what every Debian has.
const PACKAGES: &str = "bash,dbus,man-db,rpm,systemd";
/// What lintian is not asked, because it is for Debian's archive: whose bug the package closes, and
/// who answers for it, which DEBEMAIL says. The rest is in `lintian-overrides`, with its reasons.
const NOT_ASKED: &str =
    "initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog";

pub fn run(made: &Made) -> Result<()> {
    chroot::check_can_be_made()?;
    let machine = debian()?;
    for (from, name) in [(&made.deb, "osmos.deb"), (&made.rpm, "osmos.rpm")] {
        fs::copy(from, machine.join(name)).with_context(|| from.display().to_string())?;
    }
    for (script, package) in [(DEB, &made.deb), (RPM, &made.rpm)] {
        let told = chroot::boot_copy(&machine, script)
            .with_context(|| format!("{} is not as it should be", package.display()))?;
        println!("{}\n{}", package.display(), told.trim_end());
    }
    lintian(&made.deb)
}

/// A minimal Debian, made once and never written to.
fn debian() -> Result<PathBuf> {
    let machine = needs::target_dir().join("package/debian");
    let ready = needs::target_dir().join("package/debian.ready");
    if ready.exists() {
        return Ok(machine);
    }
    ensure!(
        needs::has("debootstrap"),
        "a machine to install packages on is made by debootstrap: install the package debootstrap"
    );
    if machine.exists() {
        fs::remove_dir_all(&machine).with_context(|| machine.display().to_string())?;
    }
    let include = format!("--include={PACKAGES}");
    output_of(
        Command::new("debootstrap").args(["--variant=minbase", &include, "bookworm"]).arg(&machine),
    )?;
    fs::write(&ready, "").with_context(|| ready.display().to_string())?;
    Ok(machine)
}

/// What Debian's own tool says of it, where it is installed.
fn lintian(deb: &Path) -> Result<()> {
    if !needs::has("lintian") {
        eprintln!("not asked: lintian, which is not installed");
        return Ok(());
    }
    let told = output_of(
        Command::new("lintian")
            .args(["--fail-on", "error,warning", "--allow-root", "--suppress-tags", NOT_ASKED])
            .arg(deb),
    )?;
    println!("lintian: {}", if told.is_empty() { "nothing" } else { told.trim_end() });
    Ok(())
}
