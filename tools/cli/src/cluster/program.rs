//! This program as it is copied to other machines: what the kernel loads of it, compressed.
//!
//! Behind that a file has what only debuggers read: of a developer's build four fifths. It is left
//! out here rather than by strip(1), which users of a program do not have.

use super::machine::Found;
use super::ssh::Remote;
use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzEncoder;
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where its header and all program headers are. Linkers put them at the start.
const HEADERS_BYTES: u64 = 64 << 10;
/// More than any program of ours: what is read is kept in memory.
const LOADED_BYTES_MAX: u64 = 1 << 30;
/// Of `Elf64_Ehdr`: where section headers are; their size, number, and which has their names.
const SECTIONS_AT: std::ops::Range<usize> = 0x28..0x30;
const SECTIONS_HOW: std::ops::Range<usize> = 0x3a..0x40;

pub struct OwnProgram {
    bytes: Vec<u8>,
    /// None where nothing here computes it: then it is copied each time.
    digest: Option<String>,
    compressed: OnceLock<Vec<u8>>,
}

impl OwnProgram {
    /// As it runs here.
    pub fn read() -> Result<OwnProgram> {
        let mut file = File::open("/proc/self/exe").context("cannot read this program")?;
        let bytes = loaded(&mut file).context("cannot read this program")?;
        let digest = digest(&bytes);
        Ok(OwnProgram { bytes, digest, compressed: OnceLock::new() })
    }

    /// Copies it if it is not there. True if it was copied.
    pub fn put(&self, remote: &Remote, found: &Found) -> Result<bool> {
        if found.is_packaged || self.digest.is_some() && self.digest == found.digest {
            return Ok(false);
        }
        let bytes = match found.unpacks {
            true => self.compressed(),
            false => &self.bytes,
        };
        super::machine::put(remote, bytes, found.unpacks)
            .context("this program cannot be copied, or not run, there")?;
        Ok(true)
    }

    /// Made once for all machines.
    fn compressed(&self) -> &[u8] {
        self.compressed.get_or_init(|| {
            let mut compressed = Vec::new();
            // Nothing that is read from memory fails.
            let _ =
                GzEncoder::new(&self.bytes[..], Compression::fast()).read_to_end(&mut compressed);
            compressed
        })
    }
}

/// The first part of a program, which has all that is loaded, and names nothing behind it.
fn loaded(file: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.by_ref().take(HEADERS_BYTES).read_to_end(&mut bytes)?;
    let header = FileHeader64::<Endianness>::parse(&bytes[..])?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, &bytes[..])?.iter();
    let end = segments
        .filter(|segment| segment.p_type(endian) == PT_LOAD)
        .map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian)))
        .max()
        .context("it loads nothing")?;
    ensure!(end <= LOADED_BYTES_MAX, "it loads {end} bytes");
    file.take(end.saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 >= end, "it ends before what it loads does");
    bytes.truncate(end as usize);
    bytes[SECTIONS_AT].fill(0);
    bytes[SECTIONS_HOW].fill(0);
    Ok(bytes)
}

fn digest(bytes: &[u8]) -> Option<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    // It reads all before it prints anything. One that ends before says nothing that is used.
    let _ = std::io::copy(&mut &*bytes, &mut input);
    drop(input);
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split(' ').next()?.to_owned()).filter(|digest| digest.len() == 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_copied_runs_and_is_a_part_of_the_file() {
        let own = OwnProgram::read().expect("a program");
        let whole = std::fs::metadata("/proc/self/exe").expect("there").len();
        assert!((own.bytes.len() as u64) < whole, "tests have what debuggers read");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("copy");
        let mut unpacked = Vec::new();
        let compressed = own.compressed();
        assert!(compressed.len() < own.bytes.len());
        GzDecoder::new(compressed).read_to_end(&mut unpacked).expect("compressed");
        assert_eq!(unpacked, own.bytes);
        File::create(&path).and_then(|mut file| file.write_all(&unpacked)).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("ours");
        // Another test may have forked while the file was written: its child has it open until it
        // becomes its program.
        let output = loop {
            match Command::new(&path).arg("--list").output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                output => break output.expect("it runs"),
            }
        };
        let listed = String::from_utf8_lossy(&output.stdout);
        assert!(listed.contains("what_is_copied_runs"), "{output:?}");
        // What was copied once is the same when it is copied on.
        let again = loaded(&mut File::open(&path).expect("there")).expect("a program");
        assert_eq!(again, own.bytes);
    }

    #[test]
    fn what_is_no_program_or_ends_too_early_is_refused() {
        assert!(loaded(&mut &b"#!/bin/sh\n"[..]).is_err());
        let whole = File::open("/proc/self/exe").expect("there");
        let error = loaded(&mut whole.take(100_000)).unwrap_err().to_string();
        assert_eq!(error, "it ends before what it loads does");
    }

    #[test]
    fn a_digest_is_that_of_the_bytes() {
        if Command::new("sha256sum").stdin(Stdio::null()).output().is_ok() {
            let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
            assert_eq!(digest(b"").as_deref(), Some(of_nothing));
        }
    }
}
