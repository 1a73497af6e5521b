//! `cargo xtask package`: what people install. One static program, and with it the .deb and the
//! .rpm of this machine's architecture.
//!
//! Both packages are made from one list of files ([`contents`]), by the crates that `cargo-deb` and
//! `cargo-generate-rpm` are made of (docs/decisions/0049-packages.md).

mod check;
mod chroot;
mod contents;
mod deb;
mod demo;
mod licences;
mod program;
mod rpm;
mod scripts;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use contents::{Contents, Family};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask package              target/package: osmos, the .deb and the .rpm
  cargo xtask package --check      and installs, looks at, removes and purges them; root, Debian
  cargo xtask package --demo       and runs `osmos demo` where there is nothing but the program

Who makes the packages is taken from DEBFULLNAME and DEBEMAIL; files are as old as the last commit,
or as SOURCE_DATE_EPOCH says, so that the same source makes the same packages.")]
pub struct Arguments {
    /// Install both packages into a root of their own, look at them, and remove them again
    #[arg(long)]
    check: bool,
    /// Run the demo in a root that holds the program and what the demo's programs need
    #[arg(long)]
    demo: bool,
}

/// What is true of both packages.
pub struct Release {
    pub version: String,
    /// Seconds since 1970, of all files.
    pub time: u32,
    pub maintainer: String,
}

/// The revision of the packaging: one, since it lives in the source.
pub const REVISION: &str = "1";
pub const SUMMARY: &str = "Several Linux machines as one: programs move while they run";
pub const DESCRIPTION: &str = include_str!("../../package/description");

/// What was made.
pub struct Made {
    pub program: PathBuf,
    pub deb: PathBuf,
    pub rpm: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let made = make()?;
    if arguments.demo {
        demo::run(&made.program)?;
    }
    if arguments.check {
        check::run(&made)?;
    }
    Ok(true)
}

fn make() -> Result<Made> {
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "packages are for x86_64, this machine is {}",
        std::env::consts::ARCH
    );
    let directory = needs::target_dir().join("package");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let directory = directory.canonicalize().context("cannot find target/package")?;
    let built = program::build()?;
    let program = directory.join("osmos");
    fs::copy(&built, &program)
        .with_context(|| format!("cannot copy {} to {}", built.display(), program.display()))?;
    tell(&program)?;
    let release = Release::of_this_source()?;
    let contents = Contents::gather(&release, &program, &directory)?;
    let name = format!("osmos_{}-{REVISION}_amd64.deb", release.version);
    let deb =
        write(&directory.join(name), &deb::package(&release, &contents.of(Family::Debian)?)?)?;
    let name = format!("osmos-{}-{REVISION}.x86_64.rpm", release.version);
    let rpm = write(&directory.join(name), &rpm::package(&release, &contents.of(Family::Rpm)?)?)?;
    Ok(Made { program, deb, rpm })
}

fn write(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    tell(path)?;
    Ok(path.to_owned())
}

fn tell(path: &Path) -> Result<()> {
    let bytes = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    println!("{} ({:.1} MB)", path.display(), bytes as f64 / 1e6);
    Ok(())
}

impl Release {
    fn of_this_source() -> Result<Release> {
        let name = std::env::var("DEBFULLNAME").unwrap_or_else(|_| "Osmos developers".into());
        let email = std::env::var("DEBEMAIL").unwrap_or_else(|_| "osmos@localhost".into());
        Ok(Release {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: source_time()?,
            maintainer: format!("{name} <{email}>"),
        })
    }
}

/// As reproducible-builds.org has it: what the environment says, else the last change.
fn source_time() -> Result<u32> {
    let said = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%ct"]).current_dir(needs::workspace_root());
            output_of(&mut git).context(
                "how old is this source? Set SOURCE_DATE_EPOCH where there is no git repository",
            )?
        }
    };
    let said = said.trim();
    said.parse().with_context(|| format!("`{said}` are no seconds since 1970"))
}

/// What a command prints, which has to succeed.
fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        // Scripts are too long to be told.
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = words.filter(|word| !word.contains('\n')).collect();
        bail!(
            "`{name} {}` failed ({}):\n{}{}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
