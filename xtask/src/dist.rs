//! `cargo xtask dist`: Osmos as fast as it gets, in `target/dist/osmos`.
//!
//! The profile `dist` optimizes across all crates. On top of that the brain and its simulator are
//! built with a profile of their own work (profile-guided optimization, rustc book): built once to
//! count what is run, run in the simulator, and built again. Only these two: what a profile has
//! never seen is made small instead of fast, and the engine does not run in the simulator.
//!
//! Cargo has no flags for single crates, but calls a wrapper instead of the compiler for those of
//! this workspace. This program is that wrapper. It has one name in both builds, as Cargo lets it
//! enter into the names of functions, and a profile knows functions by their names.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What this program is called as when it stands between Cargo and the compiler.
const WRAPPER: &str = "rustc-guided";
/// Tells the wrapper what it is to add. A path may have spaces, so they do not separate.
const FLAGS: &str = "OSMOS_GUIDED_FLAGS";
const SEPARATOR: char = '\x1f';
/// Also only for crates with a profile. Others are not built anew, and would be found by whoever
/// wants a program for all processors afterwards.
const FOR_THIS_PROCESSOR: &str = "-Ctarget-cpu=native";
const PROGRAM: &str = "osmos";
/// The crates with a profile. The program has to be linked with the runtime that writes the counts.
const PROFILED: [&str; 3] = ["cluster", "sim", PROGRAM];
/// Counts of different builds do not fit together: these are made anew each time.
const COUNTS: &str = "counts";
const PROFILE: &str = "profile.profdata";
/// Other seeds than figures are reported with, and more than one kind of cluster.
const WORK: [&[&str]; 2] = [
    &["sim", "thousand", "--seed", "7"],
    &["bench", "balance", "--sim", "--json", "--seeds", "1", "--seed", "1", "table1", "churn"],
];
/// Merges counts. It has to be about as new as the compiler's own LLVM: 19 writes what 22 reads.
const MERGER: &str = "llvm-profdata";
const MERGER_VERSIONS: std::ops::RangeInclusive<u32> = 19..=30;

/// Where Cargo builds: this program, too, was built there.
fn target() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let target = own.ancestors().nth(2).context("this program is not where Cargo builds")?;
    Ok(target.to_owned())
}

#[derive(Debug, clap::Args)]
pub struct Options {
    /// With all instructions that this machine's processor has: a tenth faster in the simulator,
    /// and not for nodes with another processor
    #[arg(long)]
    native: bool,
}

pub fn run(options: &Options) -> Result<bool> {
    let merger = merger()?;
    let target = target()?;
    // Wrapper, counts and profile.
    let dir = target.join("guided");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let counts = dir.join(COUNTS);
    if counts.exists() {
        std::fs::remove_dir_all(&counts)?;
    }
    eprintln!("building what counts ...");
    build(&dir, &format!("-Cprofile-generate={}", counts.display()), options)?;
    let program = target.join("dist").join(PROGRAM);
    // Whatever happens now, nobody finds a program there that counts.
    let counting = dir.join(PROGRAM);
    std::fs::rename(&program, &counting)
        .with_context(|| format!("cannot move {}", program.display()))?;
    for words in WORK {
        eprintln!("counting: osmos {} ...", words.join(" "));
        succeed(Command::new(&counting).args(words).stdout(Stdio::null()).stderr(Stdio::null()))?;
    }
    let profile = dir.join(PROFILE);
    succeed(Command::new(merger).arg("merge").arg("-o").arg(&profile).arg(&counts))?;
    eprintln!("building what is fast ...");
    build(&dir, &format!("-Cprofile-use={}", profile.display()), options)?;
    println!("{}", program.display());
    Ok(true)
}

fn build(dir: &Path, flag: &str, options: &Options) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let wrapper = dir.join(WRAPPER);
    std::fs::copy(&own, &wrapper).with_context(|| format!("cannot make {}", wrapper.display()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Cargo does not know of the flag, and would take what is there.
    let mut clean = Command::new(&cargo);
    clean.args(["clean", "--quiet", "--profile", "dist"]);
    succeed(clean.args(PROFILED.iter().flat_map(|name| ["--package", name])))?;
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", "dist", "--package", PROGRAM, "--bin", PROGRAM]);
    let flags = match options.native {
        true => format!("{flag}{SEPARATOR}{FOR_THIS_PROCESSOR}"),
        false => flag.to_owned(),
    };
    succeed(command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(FLAGS, flags))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// That of the compiler, if it is installed, or one of the system that is new enough.
fn merger() -> Result<PathBuf> {
    let of_system =
        MERGER_VERSIONS.rev().map(|version| PathBuf::from(format!("{MERGER}-{version}")));
    let mut known = of_compiler().into_iter().chain(of_system);
    let runs = |path: &PathBuf| {
        let outcome = Command::new(path).arg("--help").stdout(Stdio::null()).status();
        outcome.is_ok_and(|status| status.success())
    };
    match known.find(runs) {
        Some(merger) => Ok(merger),
        None => bail!(
            "no {MERGER} of LLVM {} or later: `apt-get install llvm-19`, or `rustup component add \
             llvm-tools`; without it, `cargo build --profile dist` is nearly as fast",
            MERGER_VERSIONS.start()
        ),
    }
}

fn of_compiler() -> Option<PathBuf> {
    let said = |what: &str| {
        let output = Command::new("rustc").args(["--print", what]).output().ok()?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let root = PathBuf::from(said("sysroot")?);
    Some(root.join("lib/rustlib").join(said("host-tuple")?).join("bin").join(MERGER))
}

/// Whether it was called as that.
pub fn is_wrapper(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(WRAPPER))
}

/// Compiles as Cargo says, `words` being what this program was called with, and some crates with
/// some flags more.
pub fn compile(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    let [_, compiler, words @ ..] = words.as_slice() else { return ExitCode::FAILURE };
    let mut command = Command::new(compiler);
    command.args(words);
    if is_profiled(words)
        && let Ok(flags) = std::env::var(FLAGS)
    {
        command.args(flags.split(SEPARATOR));
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cannot run the compiler: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_profiled(words: &[OsString]) -> bool {
    let name = words.iter().skip_while(|word| *word != "--crate-name").nth(1);
    name.is_some_and(|name| PROFILED.iter().any(|profiled| name == profiled))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn brain_and_simulator_are_profiled_and_the_engine_is_not() {
        let profiled = |words: &[&str]| {
            is_profiled(&words.iter().map(OsString::from).collect::<Vec<OsString>>())
        };
        assert!(profiled(&["--crate-name", "cluster", "--edition=2024"]));
        assert!(profiled(&["--crate-name", "sim"]));
        for other in ["body", "deputy", "kernel", "migrate", "wire"] {
            assert!(!profiled(&["--crate-name", other, "cluster"]), "{other}");
        }
        assert!(!profiled(&["-vV"]) && !profiled(&["--crate-name"]));
        assert!(is_wrapper(OsStr::new("/target/guided/rustc-guided")));
        assert!(!is_wrapper(OsStr::new("/target/release/xtask")));
    }
}
