//! Roots of their own, in which what was made is tried as on another machine: with mounts and
//! processes of their own, so that nothing is left when it has ended.

use super::output_of;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes `$1` the root of this mount namespace: whole, so that labs can be made in it, and daemons
/// there lend and take (a chroot has no user namespaces).
const ENTER: &str = "\
set -e
root=$1
for directory in proc sys dev run tmp; do mkdir -p \"$root/$directory\"; done
mount --bind \"$root\" \"$root\"
mount -t proc proc \"$root/proc\"
mount --rbind /sys \"$root/sys\"
mount --rbind /dev \"$root/dev\"
mount -t tmpfs -o mode=755 run \"$root/run\"
mount -t tmpfs -o mode=1777 tmp \"$root/tmp\"
mkdir \"$root/run/before\" \"$root/run/outside\"
[ -z \"$outside\" ] || mount --bind \"$outside\" \"$root/run/outside\"
cd \"$root\"
pivot_root . run/before
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umount -l /run/before
rmdir /run/before
";
/// Goes before that: a copy of `$1` takes its place, and what is written to it goes nowhere.
const COPY: &str = "\
set -e
# What / of a container is can be no part of another overlay.
mount -t tmpfs tmpfs \"$3\"
mkdir \"$3/upper\" \"$3/work\" \"$3/root\"
mount -t overlay overlay -o \"lowerdir=$1,upperdir=$3/upper,workdir=$3/work\" \"$3/root\"
set -- \"$3/root\" \"$2\"
";
/// Goes behind it: the script `$2` in a shell there. This one waits for orphans.
const SCRIPT: &str = "\
status=0
env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=\"$PATH\" \\
    /bin/sh -ec \"$2\" || status=$?
exit $status
";
/// Goes behind it: systemd, with nothing but the script `$2` as a service, which ends it.
const BOOT: &str = "\
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# What a system sets of its kernel is for this one to say.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mkdir -p /run/systemd/system
printf '%s\\n' \"$2\" > /run/script
cat > /run/systemd/system/script.service <<'UNIT'
[Unit]
DefaultDependencies=no
Wants=dbus.socket
After=dbus.socket
[Service]
Type=oneshot
TimeoutStartSec=10min
Environment=HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
ExecStart=/bin/sh -c 'sh -e /run/script; systemctl exit $?'
StandardOutput=file:/run/outside/output
StandardError=file:/run/outside/output
UNIT
exec env -i container=other PATH=\"$PATH\" /lib/systemd/systemd --system --unit=script.service \\
    --log-level=warning --log-target=console --show-status=no
";
/// Around all of it: a control group for systemd, whose root it is there.
const GROUP: &str = "\
mount -t cgroup2 cgroup2 \"$1\"
group=$1/osmos-package-$$
mkdir \"$group\"
shift
sh -c 'echo $$ > \"$1/cgroup.procs\"; shift; exec \"$@\"' sh \"$group\" \"$@\"
status=$?
find \"$group\" -depth -type d -exec rmdir {} +
exit $status
";

/// What has to be here for it.
pub fn check_can_be_made() -> Result<()> {
    let output = Command::new("id").arg("-u").output().context("cannot run id")?;
    ensure!(output.stdout == b"0\n", "a root of its own can be made by root only");
    ensure!(needs::has("unshare"), "{}", needs::lack("unshare"));
    Ok(())
}

/// What a script prints that runs in this root, which keeps what it writes.
pub fn run_in(root: &Path, script: &str) -> Result<String> {
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).args(["sh", "-c", &format!("{ENTER}{SCRIPT}"), "sh"]);
    output_of(command.arg(root).arg(script).env_remove("outside"))
}

/// What a script prints on a machine that systemd runs, whose root is a copy of this one. It is
/// gone when it has ended.
pub fn boot_copy(root: &Path, script: &str) -> Result<String> {
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    let directory = |name: &str| {
        let path = scratch.path().join(name);
        fs::create_dir(&path).with_context(|| path.display().to_string()).map(|()| path)
    };
    let (copy, outside, group) = (directory("copy")?, directory("outside")?, directory("group")?);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", GROUP, "sh"]).arg(group).arg("unshare");
    command.args(NAMESPACES).args(["--cgroup", "--ipc", "--net", "--uts"]);
    command.args(["sh", "-c", &format!("{COPY}{ENTER}{BOOT}"), "sh"]);
    command.arg(root).arg(script).arg(copy).env("outside", &outside);
    let ended = output_of(&mut command);
    let told = fs::read_to_string(outside.join("output")).unwrap_or_default();
    ended.with_context(|| told.clone())?;
    Ok(told)
}

const NAMESPACES: [&str; 4] = ["--mount", "--pid", "--fork", "--kill-child"];
