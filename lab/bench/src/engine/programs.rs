//! The measured programs of `guests/`, compiled anew for each run.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The directory goes when this is dropped.
pub struct Programs {
    directory: tempfile::TempDir,
}

impl Programs {
    pub fn compile() -> Result<Programs> {
        let directory = tempfile::Builder::new().prefix("osmos-bench-").tempdir()?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests");
        let entries = fs::read_dir(&sources).with_context(|| sources.display().to_string())?;
        for entry in entries {
            let source = entry?.path();
            if source.extension().is_some_and(|extension| extension == "c") {
                let name = source.file_stem().context("a source without a name")?;
                compile(&source, &directory.path().join(name))?;
            }
        }
        let programs = Programs { directory };
        ensure!(programs.directory().starts_with('/'), "the temporary directory has no full path");
        Ok(programs)
    }

    /// Where they are, for this machine and, shared, for every node of a lab.
    pub fn directory(&self) -> &str {
        self.directory.path().to_str().unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory())
    }
}

fn compile(source: &Path, program: &Path) -> Result<()> {
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([program, source])
        .output()
        .context("cannot run `cc`; a C compiler is needed for the measured programs")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not compile:\n{messages}", source.display());
    Ok(())
}
