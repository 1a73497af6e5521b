//! `cargo xtask tidy`: what STYLE.md marks as checked and no other tool checks.
//!
//! Every rule is a pure function from text to [`Violation`]s, so that it can be shown to fail on
//! what it forbids; only this file looks at the disk and asks cargo.

mod layers;
mod mask;
mod regions;
mod rules;

use anyhow::{Context, Result, ensure};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that has to be changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Relative to the workspace.
    pub path: String,
    /// 0 if it is about the whole file.
    pub line: usize,
    /// The rule's name in STYLE.md.
    pub rule: &'static str,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.text)
    }
}

/// Prints every violation; returns whether there is none.
pub fn run() -> Result<bool> {
    let violations = check(workspace_root())?;
    for violation in &violations {
        println!("{violation}");
    }
    println!("tidy: {} violations", violations.len());
    Ok(violations.is_empty())
}

fn workspace_root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All violations in a workspace.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut violations = check_packages(root)?;
    let mut oversize = Vec::new();
    for path in sources(root)? {
        let full = root.join(&path);
        let text = fs::read_to_string(&full).with_context(|| full.display().to_string())?;
        let name = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
        violations.extend(rules::check(name, &text));
        violations.extend(regions::check(name, &text));
        if rules::is_oversize(name, &text) {
            oversize.push(name.to_string());
        }
    }
    violations.extend(rules::unused_exceptions(&oversize));
    violations.sort();
    Ok(violations)
}

fn check_packages(root: &Path) -> Result<Vec<Violation>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {words}");
    let packages = layers::parse(&output.stdout)?;
    let mut violations = layers::check(&packages);
    for package in &packages {
        let manifest = fs::read_to_string(&package.manifest)
            .with_context(|| package.manifest.display().to_string())?;
        let path = package.manifest.strip_prefix(fs::canonicalize(root)?);
        let path = path.unwrap_or(&package.manifest).display().to_string();
        violations.extend(layers::check_lints(&package.name, &path, &manifest));
    }
    Ok(violations)
}

/// Sources of the workspace, relative to it.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(directory) = todo.pop() {
        let full = root.join(&directory);
        for entry in fs::read_dir(&full).with_context(|| full.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let path = directory.join(&name);
            let is_hidden = name.to_string_lossy().starts_with('.');
            if entry.file_type()?.is_dir() {
                if !is_hidden && path != Path::new("target") {
                    todo.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|kind| ["rs", "c", "h"].iter().any(|k| kind == *k))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let violations = check(workspace_root()).unwrap();
        let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn a_workspace_with_faults_in_code_and_manifest_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"wire\", \"kernel\"]\n");
        put(
            "wire/Cargo.toml",
            "[package]\nname = \"wire\"\n[dependencies]\nkernel = { path = \"../kernel\" }\n",
        );
        put("kernel/Cargo.toml", "[package]\nname = \"kernel\"\n");
        put("wire/src/lib.rs", "pub fn f() {}\n");
        put("kernel/src/lib.rs", "//! Kernel.\n");
        put("target/ignored.rs", "no head\n");
        let found = check(directory.path()).unwrap();
        let rules: Vec<(&str, &str)> =
            found.iter().map(|violation| (violation.path.as_str(), violation.rule)).collect();
        assert!(rules.contains(&("wire/src/lib.rs", "heads-explain")), "{found:?}");
        assert!(rules.contains(&("wire", "layers-point-down")), "{found:?}");
        assert!(rules.contains(&("wire/Cargo.toml", "lints-everywhere")), "{found:?}");
        assert!(!rules.iter().any(|(path, _)| path.contains("target")), "{found:?}");
    }
}
