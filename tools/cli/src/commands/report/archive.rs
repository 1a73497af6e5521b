//! The file of a report: a tar archive in gzip, for its owner's eyes, and never over another file
//! by accident.

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tar::{Builder, Header};

/// In which all entries are, so that unpacking makes one directory.
const DIRECTORY: &str = "osmos-report";

/// Before anything is collected: whether it will be refused.
pub fn may_write(path: &Path, is_forced: bool) -> Result<()> {
    ensure!(
        is_forced || path.symlink_metadata().is_err(),
        "{} is there already: give another name, or `--force` to write over it",
        path.display()
    );
    Ok(())
}

/// Writes the archive, readable for its owner alone. It is there as a whole or not at all.
pub fn write(path: &Path, entries: &[(&str, &str)], is_forced: bool) -> Result<()> {
    let told = || format!("cannot write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // Mode 0600 from the beginning.
    let mut file = tempfile::Builder::new()
        .prefix(".osmos-report-")
        .tempfile_in(directory)
        .with_context(told)?;
    pack(&mut file, entries).with_context(told)?;
    match is_forced {
        true => file.persist(path).with_context(told)?,
        // Also if it has come there meanwhile.
        false => file.persist_noclobber(path).with_context(told)?,
    };
    Ok(())
}

fn pack(file: &mut impl Write, entries: &[(&str, &str)]) -> std::io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut builder = Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, text) in entries {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        builder.append_data(&mut header, format!("{DIRECTORY}/{name}"), text.as_bytes())?;
    }
    builder.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod test {
    use super::*;
    use flate2::read::GzDecoder;
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn unpacked(path: &Path) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).expect("a file")));
        let entries = archive.entries().expect("an archive");
        let read = entries.map(|entry| {
            let mut entry = entry.expect("whole");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            (entry.path().expect("a path").display().to_string(), text)
        });
        read.collect()
    }

    #[test]
    fn it_is_for_its_owner_alone_and_over_no_other_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.tar.gz");
        write(&path, &[("one.txt", "1"), ("two.txt", "")], false).expect("written");
        let expected = [("osmos-report/one.txt", "1"), ("osmos-report/two.txt", "")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(unpacked(&path), expected);
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert!(may_write(&path, false).expect_err("it is there").to_string().contains("--force"));
        write(&path, &[("other.txt", "2")], false).expect_err("it is there");
        assert_eq!(unpacked(&path), expected, "as it was");
        may_write(&path, true).expect("forced");
        write(&path, &[("other.txt", "2")], true).expect("forced");
        assert_eq!(unpacked(&path).len(), 1);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "nothing beside it");
    }
}
