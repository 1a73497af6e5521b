//! What lies where on a machine that has Osmos installed: one list for both kinds of packages,
//! which differ in a few directories.

use super::{REVISION, Release, licences, output_of};
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const OVERRIDES: &str = include_str!("../../package/lintian-overrides");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Debian,
    Rpm,
}

/// What package managers do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Document,
    Licence,
    /// The administrator's: what he has changed is kept.
    Config,
}

#[derive(Clone, Debug)]
pub struct File {
    /// Absolute.
    pub path: String,
    pub mode: u32,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

impl File {
    fn new(kind: Kind, path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> File {
        File { path: path.into(), mode: 0o644, kind, bytes: bytes.into() }
    }
}

/// What both have.
pub struct Contents {
    files: Vec<File>,
    zsh: String,
    licences: String,
    /// That of the packaging, in Debian's form.
    changelog: String,
}

impl Contents {
    /// Has the program print what it has for people, and reads the rest from the source.
    pub fn gather(release: &Release, program: &Path, scratch: &Path) -> Result<Contents> {
        let say = |words: &[&str]| output_of(Command::new(program).args(words));
        let mut files =
            vec![File { mode: 0o755, ..File::new(Kind::Plain, "/usr/bin/osmos", read(program)?) }];
        let mut plain = |path: &str, text: String| files.push(File::new(Kind::Plain, path, text));
        plain(
            "/usr/lib/systemd/system/osmos.service",
            say(&["service", "print", "--program", "/usr/bin/osmos"])?,
        );
        plain("/usr/share/bash-completion/completions/osmos", say(&["completions", "bash"])?);
        plain("/usr/share/fish/vendor_completions.d/osmos.fish", say(&["completions", "fish"])?);
        files.push(File::new(Kind::Config, "/etc/osmos/osmos.toml", say(&["config", "example"])?));
        files.extend(manual(program, &scratch.join("man"))?);
        for (name, text) in [("README.md", "README.md"), ("changelog", "CHANGELOG.md")] {
            let text = read(&needs::workspace_root().join(text))?;
            let path = format!("/usr/share/doc/osmos/{name}.gz");
            files.push(File::new(Kind::Document, path, gzip(&text)?));
        }
        let zsh = say(&["completions", "zsh"])?;
        let licences = licences::of_dependencies()?;
        Ok(Contents { files, zsh, licences, changelog: changelog(release)? })
    }

    pub fn of(&self, family: Family) -> Result<Vec<File>> {
        let mut files = self.files.clone();
        let zsh = match family {
            Family::Debian => "/usr/share/zsh/vendor-completions/_osmos",
            Family::Rpm => "/usr/share/zsh/site-functions/_osmos",
        };
        files.push(File::new(Kind::Plain, zsh, self.zsh.as_str()));
        let root = needs::workspace_root();
        let directory = match family {
            // Which names files that all Debian machines have, for the texts that all know.
            Family::Debian => "/usr/share/doc/osmos",
            Family::Rpm => "/usr/share/licenses/osmos",
        };
        let mut licence = |name: &str, bytes: Vec<u8>| {
            files.push(File::new(Kind::Licence, format!("{directory}/{name}"), bytes));
        };
        licence("third-party.gz", gzip(self.licences.as_bytes())?);
        match family {
            Family::Debian => {
                licence("copyright", licences::copyright()?.into_bytes());
                licence("changelog.Debian.gz", gzip(self.changelog.as_bytes())?);
                let overrides = "/usr/share/lintian/overrides/osmos";
                files.push(File::new(Kind::Plain, overrides, OVERRIDES));
            }
            Family::Rpm => {
                for name in ["LICENSE-APACHE", "LICENSE-MIT", "xtask/package/LGPL-2.1"] {
                    let short = name.rsplit('/').next().unwrap_or(name);
                    licence(short, read(&root.join(name))?);
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

/// Of this packaging there is one version for each of Osmos (deb-changelog(5)).
fn changelog(release: &Release) -> Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "--rfc-email", "--date", &format!("@{}", release.time)]);
    Ok(format!(
        "osmos ({}-{REVISION}) stable; urgency=medium\n\n  \
         * This version of Osmos: see changelog.gz.\n\n \
         -- {}  {}\n",
        release.version,
        release.maintainer,
        output_of(date.env("LC_ALL", "C"))?.trim()
    ))
}

/// A page for each command.
fn manual(program: &Path, directory: &Path) -> Result<Vec<File>> {
    // Else pages of commands that are no more would still be there.
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    output_of(Command::new(program).arg("man").arg(directory))?;
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.context("a page")?.path();
        let name = path.file_name().context("a page without a name")?.display().to_string();
        let page = format!("/usr/share/man/man1/{name}.gz");
        files.push(File::new(Kind::Document, page, gzip(&read(&path)?)?));
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Without a name or a time, so that it is the same whenever it is made.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).context("cannot compress")
}
