//! An .rpm, as rpm 4 and its successors take it.

use super::contents::{File, Kind};
use super::{DESCRIPTION, REVISION, Release, SUMMARY, scripts};
use ::rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder};
use anyhow::{Context, Result};

/// What goes with the last package that has it: shells that are not installed have left none.
const DIRECTORIES: [&str; 9] = [
    "/etc/osmos",
    "/usr/share/bash-completion",
    "/usr/share/bash-completion/completions",
    "/usr/share/doc/osmos",
    "/usr/share/fish",
    "/usr/share/fish/vendor_completions.d",
    "/usr/share/licenses/osmos",
    "/usr/share/zsh",
    "/usr/share/zsh/site-functions",
];

pub fn package(release: &Release, files: &[File]) -> Result<Vec<u8>> {
    let config =
        BuildConfig::v4().compression(CompressionWithLevel::Gzip(9)).source_date(release.time);
    let scripts = scripts::rpm();
    let licence = "Apache-2.0 OR MIT";
    let mut builder = PackageBuilder::new("osmos", &release.version, licence, "x86_64", SUMMARY);
    builder
        .using_config(config)
        .release(REVISION)
        .description(DESCRIPTION.trim_end())
        .packager(release.maintainer.as_str())
        // The same source makes the same package, wherever it is made.
        .build_host("localhost")
        .requires(Dependency::any("/bin/sh"))
        .recommends(Dependency::any("openssh-clients"))
        .suggests(Dependency::any("sudo"))
        .post_install_script(scripts.post)
        .pre_uninstall_script(scripts.preun)
        .post_uninstall_script(scripts.postun);
    for own in DIRECTORIES {
        builder.with_dir_entry(FileOptions::dir(own)).with_context(|| own.to_owned())?;
    }
    for file in files {
        let options = FileOptions::new(&file.path).permissions(file.mode as u16);
        let options = match file.kind {
            Kind::Plain => options,
            Kind::Document => options.doc(),
            Kind::Licence => options.license(),
            // What the administrator has changed stays beside what is new.
            Kind::Config => options.config().noreplace(),
        };
        builder
            .with_file_contents(file.bytes.clone(), options)
            .with_context(|| format!("cannot put {} into the package", file.path))?;
    }
    let mut bytes = Vec::new();
    builder.build().and_then(|package| package.write(&mut bytes)).context("cannot write it")?;
    Ok(bytes)
}

#[cfg(test)]
mod test {
    use super::*;
    use ::rpm::{FileFlags, Package};

    #[test]
    fn a_package_keeps_what_the_administrator_has_changed_and_is_the_same_each_time() {
        let release = Release {
            version: "1.2.3".into(),
            time: 1_700_000_000,
            maintainer: "Anna <anna@example.org>".into(),
        };
        let file = |path: &str, mode, kind| File {
            path: path.into(),
            mode,
            kind,
            bytes: path.as_bytes().to_vec(),
        };
        let files = [
            file("/etc/osmos/osmos.toml", 0o644, Kind::Config),
            file("/usr/bin/osmos", 0o755, Kind::Plain),
        ];
        let bytes = package(&release, &files).unwrap();
        assert_eq!(bytes, package(&release, &files).unwrap());
        let read = Package::parse(&mut &bytes[..]).unwrap().metadata;
        assert_eq!(read.get_version().unwrap(), "1.2.3");
        assert_eq!(read.get_arch().unwrap(), "x86_64");
        let entries = read.get_file_entries().unwrap();
        let of = |path: &str| {
            let found = entries.iter().find(|entry| entry.path().to_str() == Some(path));
            found.unwrap_or_else(|| panic!("{path} is not there"))
        };
        let flags = of("/etc/osmos/osmos.toml").flags();
        assert!(flags.contains(FileFlags::CONFIG | FileFlags::NOREPLACE), "{flags:?}");
        assert!(!of("/usr/bin/osmos").flags().contains(FileFlags::CONFIG));
    }
}
