//! Kernels to boot: Debian's packages, fetched by apt and unpacked, never installed.
//!
//! The variants for clouds are taken: they are small, boot fast, and have all that Osmos needs.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel as it lies unpacked.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// `6.1`
    pub version: String,
    /// What the bootloader would load.
    pub image: PathBuf,
    /// The drivers that a machine needs, in the order in which they are loaded.
    pub drivers: Vec<PathBuf>,
}

/// What machines have: QEMU's network cards.
const DRIVERS: &[&str] = &["virtio_pci", "virtio_net"];
/// A driver that needs more than so many others is none of those.
const DRIVERS_MAX: usize = 32;

/// Where a package is looked for: an empty word in the place of the version's rest.
fn pattern(version: &str) -> String {
    let version = version.replace('.', "\\.");
    format!("^linux-image-{version}\\.[0-9].*-cloud-amd64-unsigned$")
}

impl Kernel {
    /// The newest kernel of this version, from `cache` or from the package archive.
    pub fn find(version: &str, cache: &Path) -> Result<Kernel> {
        let cache = cache.join(format!("linux-{version}"));
        if let Ok(kernel) = Kernel::unpacked(version, &cache) {
            return Ok(kernel);
        }
        let package = package(version)?;
        std::fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        run(Command::new("apt-get").args(["download", "-qq", &package]).current_dir(&cache))?;
        let file = find(&cache, &|name| name.starts_with(&package) && name.ends_with(".deb"))
            .with_context(|| format!("apt-get has not left {package} in {}", cache.display()))?;
        run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&cache))?;
        std::fs::remove_file(&file)?;
        Kernel::unpacked(version, &cache)
    }

    fn unpacked(version: &str, cache: &Path) -> Result<Kernel> {
        let image = find(&cache.join("boot"), &|name| name.starts_with("vmlinuz-"))
            .with_context(|| format!("{} holds no kernel", cache.display()))?;
        let modules = find(&cache.join("lib/modules"), &|_| true).context("it has no modules")?;
        let builtin = std::fs::read_to_string(modules.join("modules.builtin"));
        let drivers = Drivers { modules, builtin: builtin.context("it does not list modules")? };
        let mut all = Vec::new();
        for name in DRIVERS {
            drivers.add(name, &mut all)?;
        }
        let drivers = all;
        Ok(Kernel { version: version.to_string(), image, drivers })
    }
}

/// The drivers of one kernel.
struct Drivers {
    modules: PathBuf,
    /// Paths of those that it has built in, one a line.
    builtin: String,
}

impl Drivers {
    /// Adds a driver behind all that it needs.
    fn add(&self, name: &str, all: &mut Vec<PathBuf>) -> Result<()> {
        let is_it = |path: &Path| {
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            file.split('.').next().unwrap_or_default().replace('-', "_") == name
        };
        if self.builtin.lines().any(|line| is_it(Path::new(line))) {
            return Ok(());
        }
        let found = search(&self.modules.join("kernel"), &is_it)?;
        let path = found.with_context(|| format!("the kernel has no driver {name}"))?;
        if all.contains(&path) {
            return Ok(());
        }
        ensure!(all.len() < DRIVERS_MAX, "{name} needs too many drivers");
        for needed in needs(&driver(&path)?) {
            self.add(&needed, all)?;
        }
        all.push(path);
        Ok(())
    }
}

/// The names of the drivers that a driver needs, as it says itself: `depends=one,two`.
fn needs(bytes: &[u8]) -> Vec<String> {
    let word = bytes.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(word.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

fn search(directory: &Path, fits: &dyn Fn(&Path) -> bool) -> Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = search(&path, fits)? {
                return Ok(Some(found));
            }
        } else if fits(&path) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The newest package of that version that apt knows.
fn package(version: &str) -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["search", "--names-only", &pattern(version)])
        .output()
        .context("cannot run apt-cache: kernels come from Debian's packages")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    let newest = names.max_by_key(|name| numbers(name)).map(String::from);
    newest.with_context(|| {
        format!(
            "apt knows no cloud kernel {version}: run `apt-get update`; Debian 12 has 6.1, and \
             6.12 in its security archive"
        )
    })
}

/// The numbers in a name, for comparing versions.
fn numbers(name: &str) -> Vec<u32> {
    name.split(|char: char| !char.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// The first by name that fits.
fn find(directory: &Path, fits: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(fits))
        .collect();
    paths.sort();
    paths.into_iter().next()
}

/// The bytes of a driver, unpacked.
pub fn driver(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output();
        let output = output.context("cannot run `xz`, of the package xz-utils")?;
        ensure!(output.status.success(), "`xz` cannot read {}", path.display());
        return Ok(output.stdout);
    }
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn later_packages_are_newer_whatever_the_width_of_their_numbers() {
        let name = |rest: &str| numbers(&format!("linux-image-6.1.0-{rest}-cloud-amd64-unsigned"));
        assert!(name("56") > name("9"));
        assert!(numbers("linux-image-6.12.107+deb12") > numbers("linux-image-6.12.57+deb12"));
    }

    #[test]
    fn a_driver_names_those_that_it_needs() {
        assert_eq!(
            needs(b"\0license=GPL\0depends=net-failover,virtio\0"),
            ["net_failover", "virtio"]
        );
        assert!(needs(b"\0depends=\0").is_empty());
    }

    #[test]
    fn a_version_is_not_found_in_a_longer_one() {
        assert!(pattern("6.1").starts_with("^linux-image-6\\.1\\.[0-9]"));
    }
}
