//! What a node sees of the machine's files: all of them, but its own /tmp, /home, /run, /dev/shm,
//! /var/lib/osmos, /etc, /proc and /sys.
//!
//! Private means that a file made in one node is only there: a program that still finds it after it
//! has moved has really had its calls forwarded home. Everything here happens in a mount namespace
//! that goes with the node, and nothing is ever made in a directory of the machine: where a private
//! directory has no place to be mounted on, its parent becomes an overlay first.

use crate::cgroup;
use crate::record::{KEY_FILE, Record, address};
use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};
use nix::unistd::pivot_root;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use wire::ids::NodeId;

/// What the lab itself keeps in each node.
const LAB_DIR: &str = "/run/osmos-lab";
/// Searched first by every command of the lab.
pub const PROGRAMS_DIR: &str = "/run/osmos-lab/bin";
/// The osmos program as nodes know it.
pub const OSMOS: &str = "/run/osmos-lab/bin/osmos";
pub const NODE_KEY: &str = "/run/osmos-lab/cluster.key";
/// As it was on MOSIX.
pub const NODE_MAP: &str = "/etc/mosix.map";
/// Where the pid of the node's daemon is written down, inside the node.
pub const DAEMON_FILE: &str = "/run/osmos-lab/daemon.pid";
/// The classic names that one program answers to.
const CLASSIC_NAMES: [&str; 4] = ["mosrun", "runhome", "runon", "migrate"];

/// Makes mounts from here on invisible to the machine.
pub fn detach_from_machine() -> Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .context("cannot make the mounts of the lab its own")
}

/// Makes the root directory that of this process's mount namespace, which was just made.
///
/// After chroot(2) it is not: whoever joins the namespace later would see the machine around it,
/// and the kernel gives a process in a chroot no user namespace, so no guest a sandbox. To join the
/// namespace again leads out of the chroot, and from there its directory becomes the root.
pub fn be_at_the_root() -> Result<()> {
    let own = File::open("/").context("cannot open the root directory")?;
    let namespace = File::open("/proc/self/ns/mnt").context("cannot open its mount namespace")?;
    setns(namespace, CloneFlags::CLONE_NEWNS).context("cannot join its own mount namespace")?;
    detach_from_machine()?;
    let place = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
    if place(&own)? == place(&File::open("/")?)? {
        return Ok(());
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", own.as_raw_fd()))
        .context("cannot find out where the chroot is")?;
    let what = || format!("cannot make the chroot at {} the root of the lab", path.display());
    // Only what is mounted can become a root.
    mount(Some(&path), &path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .with_context(what)?;
    std::env::set_current_dir(&path).with_context(what)?;
    pivot_root(".", ".").with_context(what)?;
    // The old root lies over the new one now.
    umount2(".", MntFlags::MNT_DETACH).with_context(what)?;
    std::env::set_current_dir("/").with_context(what)
}

/// Puts a copy of this program where all nodes of the lab share it.
///
/// A copy, because the original may lie below /home or /tmp, which nodes do not see, and may be
/// replaced by the next build while the lab is up. On a tmpfs of the lab's own, because /run often
/// allows no programs.
pub fn stage_programs(lab_dir: &Path) -> Result<()> {
    let dir = staged_programs(lab_dir);
    make_dir(&dir, 0o755)?;
    mount_tmpfs(&dir, 0o755)?;
    let osmos = dir.join("osmos");
    fs::copy("/proc/self/exe", &osmos)
        .and_then(|_| fs::set_permissions(&osmos, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot copy this program to {}", osmos.display()))?;
    for name in CLASSIC_NAMES {
        symlink("osmos", dir.join(name)).with_context(|| format!("cannot link {name} to osmos"))?;
    }
    Ok(())
}

fn staged_programs(lab_dir: &Path) -> PathBuf {
    lab_dir.join("bin")
}

/// Gives this process's mount namespace the files of one node. /proc comes last: the sources of
/// bind mounts are named by way of the machine's own.
pub fn make_node(record: &Record, lab_dir: &Path, node: NodeId) -> Result<()> {
    detach_from_machine()?;
    let key = fs::read(lab_dir.join(KEY_FILE)).context("cannot read the lab's key")?;
    let programs = Source::open(&staged_programs(lab_dir))?;
    let shared = open_shared(record)?;
    let cgroups = open_cgroups(record, node)?;

    mount_tmpfs(Path::new("/run"), 0o755)?;
    make_dir(Path::new(PROGRAMS_DIR), 0o755)?;
    programs.bind(Path::new(PROGRAMS_DIR))?;
    write_private(Path::new(NODE_KEY), &key)?;
    make_dir(Path::new("/run/lock"), 0o1777)?;
    make_own_dirs()?;
    write_names(record, node)?;
    for (source, path) in &shared {
        make_mount_point(source, path)?;
        source.bind(path)?;
        make_read_only(path)?;
    }
    mount_sys(&cgroups)?;
    mount_proc()
}

/// The directories that are a node's own, and the caller's private ones below them.
fn make_own_dirs() -> Result<()> {
    mount_tmpfs(Path::new("/tmp"), 0o1777)?;
    private_dir(Path::new("/home"), 0o755)?;
    private_dir(Path::new("/var/lib/osmos"), 0o700)?;
    if Path::new("/dev/shm").is_dir() {
        mount_tmpfs(Path::new("/dev/shm"), 0o1777)?;
    }
    let named = |variable| std::env::var_os(variable).map(PathBuf::from);
    for dir in [named("HOME"), named("XDG_RUNTIME_DIR")].into_iter().flatten() {
        if ["/home", "/run"].iter().any(|own| dir.starts_with(own)) && !dir.exists() {
            make_dir(&dir, 0o700)?;
        }
    }
    Ok(())
}

/// An empty directory of the node's own at `path`, whether or not the machine has one there.
fn private_dir(path: &Path, mode: u32) -> Result<()> {
    if !path.is_dir() {
        let parent = path.ancestors().skip(1).find(|parent| parent.is_dir());
        let parent = parent.with_context(|| format!("{} has no place", path.display()))?;
        let text = || format!("make {} on this machine, then try again", path.display());
        // What is laid over the root is seen by whoever enters it again only, so not from here.
        ensure!(parent != Path::new("/"), "there is no {}: {}", path.display(), text());
        overlay(parent).with_context(text)?;
        make_dir(path, mode)?;
    }
    mount_tmpfs(path, mode)
}

/// Makes what is written below `dir` the node's own; what the machine has there stays visible.
fn overlay(dir: &Path) -> Result<()> {
    let name = dir.to_string_lossy().trim_matches('/').replace('/', "-");
    let layers = Path::new(LAB_DIR).join("overlay").join(name);
    let (upper, work) = (layers.join("upper"), layers.join("work"));
    make_dir(&upper, 0o755)?;
    make_dir(&work, 0o700)?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        dir.display(),
        upper.display(),
        work.display()
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("osmos-lab"), dir, Some("overlay"), flags, Some(options.as_str())).with_context(
        || format!("cannot lay an overlay over {}: the kernel needs overlayfs", dir.display()),
    )
}

/// The node's name, the names of all nodes, and the classic map of the cluster.
fn write_names(record: &Record, node: NodeId) -> Result<()> {
    overlay(Path::new("/etc"))?;
    let spec = &record.spec;
    let mut hosts = "127.0.0.1 localhost\n".to_owned();
    for other in spec.members() {
        hosts += &format!("{} {} node{other}\n", address(other), spec.host_name(other));
    }
    let map = spec.map();
    let host_name = spec.host_name(node) + "\n";
    for (path, text) in [("/etc/hosts", hosts), ("/etc/hostname", host_name), (NODE_MAP, map)] {
        // Made anew: without root, the machine's own file is nobody's here and cannot be written.
        let removed = match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed
            .and_then(|()| fs::write(path, text))
            .with_context(|| format!("cannot write {path} of node {node}"))?;
    }
    Ok(())
}

fn open_shared(record: &Record) -> Result<Vec<(Source, &Path)>> {
    let paths = record.spec.shared.iter();
    paths.map(|path| Ok((Source::open(path)?, path.as_path()))).collect()
}

fn open_cgroups(record: &Record, node: NodeId) -> Result<Vec<(Source, PathBuf)>> {
    let places = cgroup::places_inside(&record.hierarchies);
    let name = record.spec.name.as_str();
    let dirs = record.hierarchies.iter().map(|own| cgroup::node_dir(own, name, node));
    dirs.zip(places).map(|(dir, place)| Ok((Source::open(&dir)?, place))).collect()
}

/// /sys of the node's own network, with the node's own cgroups where a machine has all of them.
fn mount_sys(cgroups: &[(Source, PathBuf)]) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(Some("sysfs"), "/sys", Some("sysfs"), flags, None::<&str>)
        .context("cannot mount /sys of the node")?;
    let root = Path::new("/sys/fs/cgroup");
    if !cgroups.is_empty() && !cgroups.iter().any(|(_, place)| place == root) {
        mount_tmpfs(root, 0o755)?;
    }
    for (source, place) in cgroups {
        if place != root {
            make_dir(place, 0o755)?;
        }
        source.bind(place)?;
    }
    Ok(())
}

fn mount_proc() -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .context("cannot mount /proc of the node")
}

fn mount_tmpfs(path: &Path, mode: u32) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let options = format!("mode={mode:o}");
    mount(Some("osmos-lab"), path, Some("tmpfs"), flags, Some(options.as_str()))
        .with_context(|| format!("cannot mount a private {}", path.display()))
}

/// A file or directory that stays reachable when something is mounted over its path.
struct Source(File);

impl Source {
    fn open(path: &Path) -> Result<Source> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(nix::libc::O_PATH).open(path);
        Ok(Source(file.with_context(|| format!("cannot open {}", path.display()))?))
    }

    fn bind(&self, target: &Path) -> Result<()> {
        let source = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(source.as_str()), target, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("cannot show {} in the node", target.display()))
    }
}

fn make_mount_point(source: &Source, target: &Path) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    if source.0.metadata()?.is_dir() {
        return make_dir(target, 0o755);
    }
    if let Some(parent) = target.parent() {
        make_dir(parent, 0o755)?;
    }
    File::create(target).with_context(|| format!("cannot make {}", target.display()))?;
    Ok(())
}

fn make_read_only(target: &Path) -> Result<()> {
    // Flags that the mount below has may not be dropped by somebody who is not root outside.
    let own = nix::sys::statvfs::statvfs(target)
        .with_context(|| format!("cannot look at {}", target.display()))?
        .flags();
    let kept = [
        (nix::sys::statvfs::FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (nix::sys::statvfs::FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (nix::sys::statvfs::FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (held, flag) in kept {
        if own.contains(held) {
            flags |= flag;
        }
    }
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot make {} read-only in the node", target.display()))
}

fn make_dir(path: &Path, mode: u32) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(mode & 0o777).create(path);
    // The kernel takes the umask off, and the sticky bit is not a matter of making.
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .with_context(|| format!("cannot make {}", path.display()))
}

fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        io::Write::write_all(&mut file, content)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_directory_that_has_no_place_is_named_with_what_to_do() {
        let error = private_dir(Path::new("/no-such-directory-of-a-lab"), 0o700).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("make /no-such-directory-of-a-lab on this machine"), "{text}");
    }
}
