//! The program as people get it: profile `dist`, static, so that one file runs on any distribution
//! of this architecture, whatever its C library is.

use anyhow::{Context, Result, ensure};
use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs;
use std::path::{Path, PathBuf};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "dist";

/// Builds it, and sees that nothing else has to be there for it to run.
pub fn build() -> Result<PathBuf> {
    // By name even if it is this machine's own: so flags are for the program, and for none of the
    // build scripts and macros that run here, which have to be loaded.
    let status = needs::cargo()
        .args(["build", "--locked", "--profile", PROFILE, "--target", TARGET, "--bin", "osmos"])
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("RUSTFLAGS")
        .current_dir(needs::workspace_root())
        .status()
        .context("cannot run cargo")?;
    ensure!(
        status.success(),
        "the static program does not build; it needs the C library as an archive (libc.a: package \
         libc6-dev, or glibc-static)"
    );
    let path = needs::target_dir().join(TARGET).join(PROFILE).join("osmos");
    let program = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    check_is_static(&path, &program)?;
    Ok(path)
}

/// A program that names a loader would be run by whatever the machine has at that place.
fn check_is_static(path: &Path, program: &[u8]) -> Result<()> {
    let what = || format!("{} is no program", path.display());
    let header = FileHeader64::<Endianness>::parse(program).with_context(what)?;
    let endian = header.endian().with_context(what)?;
    let segments = header.program_headers(endian, program).with_context(what)?;
    ensure!(!segments.is_empty(), "{} has nothing to load", path.display());
    ensure!(
        segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP),
        "{} is not static: it names a loader",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_not_static_and_text_is_no_program() {
        // Tests are linked as developers' programs are.
        let own = std::env::current_exe().unwrap();
        let error = check_is_static(&own, &fs::read(&own).unwrap()).unwrap_err().to_string();
        assert!(error.contains("names a loader"), "{error}");
        let error = check_is_static(Path::new("text"), b"#!/bin/sh\n").unwrap_err().to_string();
        assert!(error.contains("text is no program"), "{error}");
    }
}
