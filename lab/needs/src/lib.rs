//! What tests need of a machine beyond the toolchain, and what becomes of one whose need is not
//! met.
//!
//! A test that cannot be done here says so, whether or not the harness shows what tests print, and
//! says what to install; it does not fail, so that the first `cargo test` of a user tells of Osmos
//! and not of his machine. Where `CI` is set it fails: on a machine that decides nothing is
//! skipped.

use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Programs that tests and benchmarks run and that a machine with the toolchain may lack, and their
/// packages as Debian calls them.
pub const PROGRAMS: [(&str, &str); 30] = [
    ("awk", "mawk"),
    ("bash", "bash"),
    ("bc", "bc"),
    ("chromium", "chromium"),
    ("flac", "flac"),
    ("fusermount3", "fuse3"),
    ("gzip", "gzip"),
    ("hello.pvm", "pvm-examples"),
    ("ip", "iproute2"),
    ("make", "make"),
    ("mawk", "mawk"),
    ("mpicc", "libopenmpi-dev"),
    ("mpirun", "openmpi-bin"),
    ("perl", "perl"),
    ("postgres", "postgresql"),
    ("prlimit", "util-linux"),
    ("pvm", "pvm"),
    ("python3", "python3"),
    ("setpriv", "util-linux"),
    ("sha256sum", "coreutils"),
    ("sqlite3", "sqlite3"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshd", "openssh-server"),
    ("sudo", "sudo"),
    ("systemd-analyze", "systemd"),
    ("tar", "tar"),
    ("unshare", "util-linux"),
    ("valgrind", "valgrind"),
    ("xz", "xz-utils"),
];

/// Cargo as a user calls it, to build a program of this workspace while cargo runs this one.
///
/// What that says of the package that it runs, some build scripts look at (ring's): what they made
/// would be made anew, and all that rests on it, each time that a test and a user take turns.
/// Packages are not chosen either: the features of what they share would be those of the choice.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if is_of_package {
            command.env_remove(name);
        }
    }
    command
}

/// Programs of this workspace, built as a user builds them if they are not up to date: where each
/// is, in the order of their names here.
///
/// # Errors
/// One does not build, with what cargo says, or is no program of the workspace.
pub fn build<const N: usize>(programs: [&str; N]) -> Result<[PathBuf; N]> {
    let output = cargo()
        .args(["build", "--release", "--message-format", "json-render-diagnostics"])
        .args(programs.iter().flat_map(|program| ["--bin", program]))
        .current_dir(workspace_root())
        .output()
        .context("cannot run cargo")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not build:\n{words}", programs.join(" or "));
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<PathBuf> = messages
        .lines()
        .filter_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(PathBuf::from(message.get("executable")?.as_str()?))
        })
        .collect();
    let mut paths = programs.map(|_| PathBuf::new());
    for (path, program) in paths.iter_mut().zip(programs) {
        let named = built.iter().find(|path| path.file_name().is_some_and(|own| own == program));
        *path = named
            .with_context(|| format!("cargo does not say where it has put {program}"))?
            .clone();
    }
    Ok(paths)
}

pub fn workspace_root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| workspace_root().join("target"))
}

/// How many were skipped by this process so far.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Whether this is a machine on which nothing may be skipped.
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Whether a program is installed here.
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

/// Where a program is installed here.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Ordinary users often lack the directories of the system's programs in theirs.
    let own = std::env::split_paths(&path);
    let dirs = own.chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    // Debian has one for each version, and none of them is in anybody's.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let dirs = dirs.chain(versions.map(|version| version.path().join("bin")));
    dirs.map(|dir| dir.join(program)).find(|place| place.is_file())
}

/// A program that is not here, with what to install.
pub fn lack(program: &str) -> String {
    let listed = PROGRAMS.iter().find(|(name, _)| *name == program);
    let package = listed.map_or(program, |(_, package)| package);
    format!("it needs the program `{program}`: install the package {package}")
}

/// The programs of [`PROGRAMS`] that are not installed here, with their packages.
pub fn missing() -> Vec<(&'static str, &'static str)> {
    PROGRAMS.into_iter().filter(|(program, _)| !has(program)).collect()
}

/// Whether this test can run the programs that it needs; if not, it is skipped.
///
/// # Panics
/// On a machine that decides.
#[must_use]
pub fn can_run(programs: &[&str]) -> bool {
    let lacking: Vec<String> =
        programs.iter().filter(|program| !has(program)).map(|program| lack(program)).collect();
    if lacking.is_empty() {
        return true;
    }
    skip(&lacking.join("; "));
    false
}

/// Tells that this test proves nothing here, and why.
///
/// # Panics
/// On a machine that decides.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    skip_part(thread.name().unwrap_or("a test"), why);
}

/// Tells that a part of what is tested is left out, and why.
///
/// # Panics
/// On a machine that decides.
pub fn skip_part(what: &str, why: &str) {
    assert!(!is_ci(), "{what} cannot be done, and CI is set, so nothing may be skipped: {why}");
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    // Not by `eprintln`, which the harness keeps to itself if the test succeeds. Nobody is left to
    // be told if that fails.
    let line = format!("skipped ({count} here): {what}: {why}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
