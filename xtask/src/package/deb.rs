//! A .deb (deb(5)): an archive of `ar` with a version, what dpkg has to know, and the files.

use super::contents::{File, Kind};
use super::{DESCRIPTION, REVISION, Release, SUMMARY, scripts};
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use std::collections::BTreeSet;
use std::path::Path;
use tar::{EntryType, Header};

pub fn package(release: &Release, files: &[File]) -> Result<Vec<u8>> {
    let (control, data) = (control(release, files)?, data(release, files)?);
    let mut archive = ar::Builder::new(Vec::new());
    let members =
        [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control), ("data.tar.gz", &data)];
    for (name, bytes) in members {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.time.into());
        archive.append(&header, bytes).with_context(|| format!("cannot write {name}"))?;
    }
    archive.into_inner().context("cannot write the package")
}

fn control(release: &Release, files: &[File]) -> Result<Vec<u8>> {
    let mut tree = Tree::new(release.time);
    tree.directory("./")?;
    tree.file("./control", 0o644, fields(release, files).as_bytes())?;
    let sums: String = files
        .iter()
        .filter(|file| file.kind != Kind::Config)
        .map(|file| format!("{}  {}\n", hex(&Md5::digest(&file.bytes)), &file.path[1..]))
        .collect();
    tree.file("./md5sums", 0o644, sums.as_bytes())?;
    let config: String = files
        .iter()
        .filter(|file| file.kind == Kind::Config)
        .map(|file| format!("{}\n", file.path))
        .collect();
    tree.file("./conffiles", 0o644, config.as_bytes())?;
    for (name, script) in scripts::debian() {
        tree.file(&format!("./{name}"), 0o755, script.as_bytes())?;
    }
    tree.finish()
}

/// deb-control(5).
fn fields(release: &Release, files: &[File]) -> String {
    // In KiB, a directory and the end of each file counted as dpkg-gencontrol does.
    let size: u64 = files.iter().map(|file| file.bytes.len().div_ceil(1024) as u64).sum();
    let description: String = DESCRIPTION.lines().map(|line| format!(" {line}\n")).collect();
    format!(
        "Package: osmos\n\
         Version: {}-{REVISION}\n\
         Architecture: amd64\n\
         Maintainer: {}\n\
         Installed-Size: {}\n\
         Recommends: openssh-client\n\
         Suggests: sudo\n\
         Section: admin\n\
         Priority: optional\n\
         Description: {SUMMARY}\n{description}",
        release.version,
        release.maintainer,
        size + directories(files).len() as u64,
    )
}

fn data(release: &Release, files: &[File]) -> Result<Vec<u8>> {
    let mut tree = Tree::new(release.time);
    tree.directory("./")?;
    for directory in directories(files) {
        tree.directory(&format!(".{directory}/"))?;
    }
    for file in files {
        tree.file(&format!(".{}", file.path), file.mode, &file.bytes)?;
    }
    tree.finish()
}

/// All above the files, each behind what it is in.
fn directories(files: &[File]) -> BTreeSet<String> {
    let above = files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    above.map(|path| path.display().to_string()).filter(|path| path != "/").collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A compressed archive of files of root, all of one age.
struct Tree {
    tar: tar::Builder<GzEncoder<Vec<u8>>>,
    time: u32,
}

impl Tree {
    fn new(time: u32) -> Tree {
        Tree { tar: tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best())), time }
    }

    fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(path, EntryType::Directory, 0o755, &[])
    }

    fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.entry(path, EntryType::Regular, mode, bytes)
    }

    fn entry(&mut self, path: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.time.into());
        header.set_size(bytes.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root").context("a name")?;
        header.set_groupname("root").context("a name")?;
        // `set_path` leaves out the dot with which names begin in a package.
        let name = &mut header.as_old_mut().name;
        let field = name.get_mut(..path.len()).with_context(|| format!("{path} is too long"))?;
        field.copy_from_slice(path.as_bytes());
        header.set_cksum();
        self.tar.append(&header, bytes).with_context(|| format!("cannot write {path}"))
    }

    fn finish(self) -> Result<Vec<u8>> {
        let compressed = self.tar.into_inner().context("cannot write the archive")?;
        compressed.finish().context("cannot compress the archive")
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::Read;

    fn members(deb: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut archive = ar::Archive::new(deb);
        let mut all = Vec::new();
        while let Some(entry) = archive.next_entry() {
            let mut entry = entry.unwrap();
            let name = String::from_utf8(entry.header().identifier().to_vec()).unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            all.push((name, bytes));
        }
        all
    }

    /// Name, mode, content of each.
    fn entries(compressed: &[u8]) -> Vec<(String, u32, String)> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(compressed));
        let entries = tar.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000);
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mode = entry.header().mode().unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (name, mode, text)
        });
        entries.collect()
    }

    #[test]
    fn a_package_has_its_parts_in_their_order_and_the_same_each_time() {
        let release = Release {
            version: "1.2.3".into(),
            time: 1_700_000_000,
            maintainer: "Anna <anna@example.org>".into(),
        };
        let file = |path: &str, mode, kind, text: &str| File {
            path: path.into(),
            mode,
            kind,
            bytes: text.as_bytes().to_vec(),
        };
        let files = [
            file("/etc/osmos/osmos.toml", 0o644, Kind::Config, "# options\n"),
            file("/usr/bin/osmos", 0o755, Kind::Plain, "program"),
        ];
        let deb = package(&release, &files).unwrap();
        assert_eq!(deb, package(&release, &files).unwrap());
        let members = members(&deb);
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(members[0].1, b"2.0\n");
        let control = entries(&members[1].1);
        let of = |name: &str| control.iter().find(|entry| entry.0 == name).unwrap();
        assert!(of("./control").2.contains("\nVersion: 1.2.3-1\nArchitecture: amd64\n"));
        assert_eq!(of("./conffiles").2, "/etc/osmos/osmos.toml\n");
        // By md5sum(1).
        assert_eq!(of("./md5sums").2, "a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/osmos\n");
        assert_eq!(of("./prerm").1, 0o755);
        let data: Vec<(String, u32)> =
            entries(&members[2].1).into_iter().map(|(name, mode, _)| (name, mode)).collect();
        let names: Vec<&str> = data.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = [
            "./",
            "./etc/",
            "./etc/osmos/",
            "./usr/",
            "./usr/bin/",
            "./etc/osmos/osmos.toml",
            "./usr/bin/osmos",
        ];
        assert_eq!(names, wanted);
        assert_eq!(data.last().unwrap().1, 0o755);
    }
}
