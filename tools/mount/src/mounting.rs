//! Mounts, serves until it is unmounted or told to end, and unmounts.

use crate::answers::Mine;
use crate::cluster::{Cluster, LOOK_INTERVAL};
use crate::files::{Files, Refresher};
use crate::requests::Mount;
use anyhow::{Context, Result, bail, ensure};
use fuser::{Config, InitFlags, KernelConfig, MountOption, Session, SessionACL};
use nix::mount::MntFlags;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::files::CONTENT_BYTES_MAX;

/// Which helper mounts for a user who is not root.
const HELPER: &str = "fusermount3";
/// What this is called in the table of mounts; servers know their own by it.
const TYPE: &str = "osmos";
/// Links are looked after so often.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Questions of the kernel at a time that nobody waits for, such as reading ahead.
const BACKGROUND_MAX: u16 = 64;
/// Threads that take what the kernel asks.
const THREADS: usize = 2;

pub struct Options {
    /// The daemon's.
    pub socket: PathBuf,
    pub directory: PathBuf,
    pub is_read_only: bool,
    /// All users of this node may use it, each as himself: only root can offer that.
    pub is_shared: bool,
}

/// Serves a mount until it is unmounted. `ready` is called when it is there.
///
/// # Errors
/// There is no daemon, no FUSE, or no right to mount there: which, and the way out.
pub fn mount(options: &Options, ready: impl FnOnce() -> Result<()>) -> Result<()> {
    let cluster = Cluster::new(&options.socket)?;
    let directory = prepare(&options.directory)?;
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let mine = Mine { uid: uid.as_raw(), gid: gid.as_raw() };
    let refresher = Refresher::start().context("a thread of the mount")?;
    let whose = (mine, options.is_shared);
    let files = Arc::new(Files::new(options.socket.clone(), cluster, whose, refresher));
    let session = Session::new(Mount(files.clone()), &directory, &config(options))
        .map_err(|error| cannot_mount(&directory, error))?;
    serve(session, &files, ready)
}

fn serve(
    mut session: Session<Mount>,
    files: &Arc<Files>,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    files.notify_by(session.notifier());
    let mut unmounter = session.unmount_callable();
    let mut signals = signal_hook::iterator::Signals::new(signal_hook::consts::TERM_SIGNALS)
        .context("signals")?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // The session ends by it, and with that this process.
            let _ = unmounter.unmount();
        }
    });
    let watched = Arc::downgrade(files);
    std::thread::spawn(move || {
        let mut looked = Instant::now();
        while let Some(files) = watched.upgrade() {
            files.watch();
            if looked.elapsed() >= LOOK_INTERVAL {
                files.look_at_cluster();
                looked = Instant::now();
            }
            drop(files);
            std::thread::sleep(WATCH_INTERVAL);
        }
    });
    ready()?;
    session.run().context("the kernel has ended the mount")
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    let access = if options.is_read_only { MountOption::RO } else { MountOption::RW };
    config.mount_options = vec![
        MountOption::FSName(TYPE.to_owned()),
        MountOption::Subtype(TYPE.to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        access,
    ];
    config.acl = if options.is_shared { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config
}

/// Has the kernel do what it can of that: what it does not have it does without.
pub fn negotiate(kernel: &mut KernelConfig) {
    let wanted = InitFlags::FUSE_POSIX_LOCKS
        | InitFlags::FUSE_FLOCK_LOCKS
        | InitFlags::FUSE_AUTO_INVAL_DATA
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_ASYNC_DIO;
    let _ = kernel.add_capabilities(wanted & kernel.capabilities());
    let _ = kernel.set_max_write(CONTENT_BYTES_MAX);
    let _ = kernel.set_max_readahead(CONTENT_BYTES_MAX);
    let _ = kernel.set_max_background(BACKGROUND_MAX);
}

/// The directory is there, and nothing is in it that would be hidden.
fn prepare(directory: &Path) -> Result<PathBuf> {
    let shown = directory.display();
    match fs::read_dir(directory) {
        Ok(mut entries) => {
            ensure!(!is_mounted(directory), "{shown} is mounted already");
            let is_empty = entries.next().is_none();
            ensure!(is_empty, "{shown} is not empty: name an empty directory, or one to be made");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = fs::DirBuilder::new().mode(0o700).create(directory);
            made.with_context(|| format!("cannot make {shown}"))?;
        }
        // One whose server was killed.
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            bail!("{shown} is a mount that nobody serves any more: `osmos unmount {shown}`")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    }
    fs::canonicalize(directory).with_context(|| format!("cannot find {shown}"))
}

/// Another file system begins there.
fn is_mounted(directory: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    device(directory) != device(&directory.join(".."))
}

fn cannot_mount(directory: &Path, error: io::Error) -> anyhow::Error {
    let shown = directory.display();
    let is_root = nix::unistd::geteuid().is_root();
    let text = match error.kind() {
        _ if !Path::new("/dev/fuse").exists() => {
            format!("cannot mount {shown}: this kernel has no FUSE (`modprobe fuse`)")
        }
        io::ErrorKind::NotFound if !is_root => {
            format!("cannot mount {shown}: `{HELPER}` is needed, which the package fuse3 has")
        }
        _ => format!("cannot mount {shown}"),
    };
    anyhow::Error::new(error).context(text)
}

/// Takes a mount away, also one that nobody serves any more.
///
/// # Errors
/// It is none, or somebody uses it.
pub fn unmount(directory: &Path, is_lazy: bool) -> Result<()> {
    let shown = directory.display();
    if nix::unistd::geteuid().is_root() {
        let flags = if is_lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
        return nix::mount::umount2(directory, flags)
            .map_err(io::Error::from)
            .with_context(|| format!("cannot unmount {shown}"));
    }
    let mut command = Command::new(HELPER);
    command.arg("-u").args(is_lazy.then_some("-z")).arg("--").arg(directory);
    let output =
        command.output().with_context(|| format!("cannot run `{HELPER}`, of the package fuse3"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot unmount {shown}: {}", told.trim());
    Ok(())
}

/// Says on standard output that it is there, and lets go of what it was started with: whoever
/// started it reads that line.
///
/// # Errors
/// Nobody is there to be told.
pub fn say_ready(directory: &Path) -> Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", directory.display())?;
    out.flush()?;
    let nothing = fs::File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&nothing)?;
    nix::unistd::dup2_stdout(&nothing)?;
    nix::unistd::dup2_stderr(&nothing)?;
    Ok(())
}
