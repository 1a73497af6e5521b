//! From an unpacked image to a system: mounts, drivers, network, names.

use crate::machines::image::{DRIVERS, Identity};
use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the root lies for a moment.
const STEP: &str = "/system";
const CGROUPS: &str = "/sys/fs/cgroup";

pub fn make() -> Result<()> {
    leave_first_root()?;
    mounts()?;
    let line = fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    let identity = Identity::of_command_line(&line)?;
    drivers()?;
    network(&identity)?;
    names(&identity)
}

/// `pivot_root` refuses to leave the kernel's first root, and sandboxes want it: so the root
/// becomes a mount like any other.
fn leave_first_root() -> Result<()> {
    let bind = |from: &str, to: &str, flags| {
        mount(Some(from), to, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("cannot mount {from} at {to}"))
    };
    fs::create_dir_all(STEP)?;
    bind("/", STEP, MsFlags::MS_BIND)?;
    std::env::set_current_dir(STEP)?;
    bind(".", "/", MsFlags::MS_MOVE)?;
    nix::unistd::chroot(".").context("cannot change the root")?;
    std::env::set_current_dir("/")?;
    Ok(())
}

fn mounts() -> Result<()> {
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let own = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let mounts = [
        ("proc", "/proc", plain, ""),
        ("sysfs", "/sys", plain, ""),
        ("devtmpfs", "/dev", MsFlags::MS_NOSUID, "mode=755"),
        ("devpts", "/dev/pts", plain, "mode=620,ptmxmode=666"),
        ("tmpfs", "/dev/shm", own, "mode=1777"),
        ("tmpfs", "/tmp", own, "mode=1777"),
        ("tmpfs", "/run", own, "mode=755"),
        ("cgroup2", CGROUPS, plain, ""),
    ];
    for (kind, target, flags, options) in mounts {
        fs::create_dir_all(target).with_context(|| format!("cannot make {target}"))?;
        mount(Some(kind), target, Some(kind), flags, Some(options))
            .with_context(|| format!("cannot mount {target}"))?;
    }
    for (link, target) in
        [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        // devtmpfs may have them already.
        let _ = symlink(target, Path::new("/dev").join(link));
    }
    for directory in ["/etc", "/var/lib", "/home", "/root", "/var/tmp"] {
        fs::create_dir_all(directory)?;
    }
    fs::set_permissions("/var/tmp", fs::Permissions::from_mode(0o1777))?;
    let root = Path::new(CGROUPS);
    fs::write(root.join("cgroup.subtree_control"), "+cpu +memory +pids")
        .context("cannot have the controllers of cgroups")
}

/// Loads the kernel's modules that lie in the image, in their order.
fn drivers() -> Result<()> {
    let entries = fs::read_dir(DRIVERS).with_context(|| format!("cannot list {DRIVERS}"))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let bytes = fs::read(&path)?;
        nix::kmod::init_module(&bytes, &CString::default())
            .with_context(|| format!("cannot load {}", path.display()))?;
    }
    Ok(())
}

fn network(identity: &Identity) -> Result<()> {
    let lines = format!(
        "link set lo up\n\
         addr add {}/24 brd + dev eth0\nlink set eth0 up\n\
         addr add {}/30 dev eth1\nlink set eth1 up\n",
        identity.address, identity.control
    );
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .env("PATH", super::agent::SEARCH_PATH)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run `ip`")?;
    ip.stdin.take().context("it is piped")?.write_all(lines.as_bytes())?;
    ensure!(ip.wait()?.success(), "`ip` failed at: {lines}");
    Ok(())
}

fn names(identity: &Identity) -> Result<()> {
    nix::unistd::sethostname(&identity.name).context("cannot set the host name")?;
    fs::write("/etc/hostname", format!("{}\n", identity.name))?;
    let uid = identity.uid;
    let user = &identity.user;
    fs::write(
        "/etc/passwd",
        format!(
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n\
             {user}:x:{uid}:{uid}::/home/{user}:/bin/sh\n"
        ),
    )?;
    fs::write("/etc/group", format!("root:x:0:\ntty:x:5:\nnogroup:x:65534:\n{user}:x:{uid}:\n"))?;
    let home = Path::new("/home").join(user);
    fs::create_dir_all(&home)?;
    std::os::unix::fs::chown(&home, Some(uid), Some(uid))?;
    Ok(())
}
