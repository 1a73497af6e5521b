//! `mount` and `unmount`: the files of all nodes in one directory.
//!
//! What serves the mount is this same program, started in a session of its own; it says a line when
//! it is there, and what went wrong if it is not.

use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What its help ends with.
pub const EXAMPLES: &str = "\
Examples:
  osmos share read                 on each node: its files may be read from the others
  osmos mount                      in ~/mfs, or /mfs for root
  ls ~/mfs/2/var/log               files of node 2, as the user that you are there
  cp results.tar ~/mfs/delta/tmp/  nodes by number or name
  echo 3 > ~/mfs/.select           from now on ~/mfs/selected is node 3 in this terminal
  osmos unmount

Root's mount is for all users of the machine: each sees files as whom he is on their node.

~/mfs/here is the node where the process runs that looks, ~/mfs/home the one where it was born.
Files of the node where a process is away, if it opens them there, are read and written there and
not through its home.
Whoever opens a file sees what was in it when others closed it, as with NFS; locks hold between
nodes. Device files cannot be opened, set-user-id bits have no effect, and file systems of the
kernel such as /proc are not shown. A node that does not answer is an error after ten seconds at
most. `osmos share` on a node says whether its files are shown at all.";

/// How long the line may be that says where it is.
const LINE_BYTES_MAX: u64 = 8 << 10;

#[derive(Clone, Debug, Args)]
pub struct MountOptions {
    /// Directory to mount in; made if missing [default: ~/mfs, or /mfs for root]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Nothing can be changed through it
    #[arg(long)]
    pub read_only: bool,
    /// For root: no other user may use it. Without that each may, as himself
    #[arg(long)]
    pub private: bool,
    /// Stay in the foreground until it is unmounted
    #[arg(long)]
    pub foreground: bool,
}

#[derive(Clone, Debug, Args)]
pub struct UnmountOptions {
    /// Where it is mounted [default: ~/mfs, or /mfs for root]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Although it is used: it is gone for everybody else at once
    #[arg(long)]
    pub lazy: bool,
}

/// Where it is mounted unless told otherwise.
fn directory(named: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.clone());
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/mfs"));
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.context("HOME is not set: name the directory to mount in")?;
    Ok(PathBuf::from(home).join("mfs"))
}

pub fn mount(options: &MountOptions, socket: &Path) -> Result<()> {
    let directory = directory(options.directory.as_ref())?;
    if options.foreground {
        let told = mount::Options {
            socket: socket.to_owned(),
            directory: directory.clone(),
            is_read_only: options.read_only,
            // Who is anybody else is the daemon's to believe of root alone.
            is_shared: nix::unistd::geteuid().is_root() && !options.private,
        };
        return mount::mount(&told, || mount::say_ready(&directory));
    }
    // Said here, where a terminal still listens.
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("--socket").arg(socket).args(["mount", "--foreground"]);
    command.args(options.read_only.then_some("--read-only"));
    command.args(options.private.then_some("--private")).arg("--").arg(&directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("cannot start what serves the mount")?;
    let out = child.stdout.take().context("it has no output")?;
    let mut line = String::new();
    BufReader::new(out.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.ends_with('\n') {
        let told = format!("the files of all nodes are in {}", line.trim_end());
        return Ok(output::print_line(&told)?);
    }
    let mut told = String::new();
    if let Some(errors) = child.stderr.take() {
        errors.take(LINE_BYTES_MAX).read_to_string(&mut told)?;
    }
    child.wait().context("cannot wait for it")?;
    let told = told.trim().trim_start_matches("osmos: ");
    bail!("{}", if told.is_empty() { "it has ended without a word" } else { told })
}

pub fn unmount(options: &UnmountOptions) -> Result<()> {
    mount::unmount(&directory(options.directory.as_ref())?, options.lazy)
}
