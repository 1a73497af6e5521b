//! The image that a machine boots: an archive that its kernel unpacks into memory as first root.
//!
//! It holds process 1, osmos, drivers, and the programs of this machine that trials and their
//! harness run, with the libraries that those need: so programs are the same on all machines, as
//! they are in a cluster of one distribution, and no disk has to be made.

use crate::machines::kernels::{self, Kernel};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the drivers lie in the image; their names give the order.
pub const DRIVERS: &str = "/drivers";

/// What every machine must have: the trials are shell scripts.
const NEEDED: &[&str] = &[
    "sh",
    "bash",
    "ip",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dirname",
    "echo",
    "env",
    "find",
    "grep",
    "head",
    "id",
    "kill",
    "ln",
    "ls",
    "make",
    "mkdir",
    "mv",
    "printf",
    "ps",
    "readlink",
    "rm",
    "sed",
    "seq",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "uname",
    "wc",
];
/// What it has if this machine has it: real programs.
const WANTED: &[&str] = &[
    "bc", "comm", "dd", "df", "flac", "free", "gzip", "mawk", "mkfifo", "nproc", "paste", "perl",
    "rmdir", "sqlite3", "strace", "tar", "uniq", "xz", "yes",
];

/// What distinguishes a machine, told on the kernel's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    /// In the cluster's network.
    pub address: Ipv4Addr,
    /// On the cable to the harness.
    pub control: Ipv4Addr,
    /// The ordinary user of that machine.
    pub user: String,
    pub uid: u32,
}

impl Identity {
    pub fn command_line(&self) -> String {
        let Identity { name, address, control, user, uid } = self;
        format!("machine={name},{address},{control},{user},{uid}")
    }

    pub fn of_command_line(line: &str) -> Result<Identity> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix("machine="));
        let word = word.context("the kernel's command line does not say which machine this is")?;
        let [name, address, control, user, uid] = word.split(',').collect::<Vec<_>>()[..] else {
            bail!("`{word}` does not say which machine this is");
        };
        Ok(Identity {
            name: name.to_string(),
            address: address.parse()?,
            control: control.parse()?,
            user: user.to_string(),
            uid: uid.parse()?,
        })
    }
}

/// Programs that were built here.
pub struct Built {
    pub init: PathBuf,
    pub osmos: PathBuf,
}

/// Writes the image for machines with this kernel.
pub fn write(path: &Path, kernel: &Kernel, built: &Built) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut archive = Archive::new(BufWriter::new(file));
    let mut files = BTreeSet::new();
    programs(&mut files)?;
    // What make and system(3) look for.
    files.insert(PathBuf::from("/bin/sh"));
    python(&mut files)?;
    perl(&mut files);
    for program in [&built.init, &built.osmos] {
        libraries(program, &mut files)?;
    }
    archive.device("/dev/console", 5, 1)?;
    for file in &files {
        archive.copy(file, file)?;
    }
    archive.copy(&built.init, Path::new("/init"))?;
    archive.copy(&built.osmos, Path::new("/usr/local/bin/osmos"))?;
    for (index, driver) in kernel.drivers.iter().enumerate() {
        let name = driver.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let bytes = kernels::driver(driver)?;
        archive.file(&format!("{DRIVERS}/{index}-{name}"), 0o644, &bytes)?;
    }
    archive.finish()
}

/// The programs and what they load.
fn programs(files: &mut BTreeSet<PathBuf>) -> Result<()> {
    for name in NEEDED {
        let path =
            located(name).with_context(|| format!("a machine needs the program `{name}`"))?;
        libraries(&path, files)?;
        files.insert(path);
    }
    for path in WANTED.iter().filter_map(|name| located(name)) {
        libraries(&path, files)?;
        files.insert(path);
    }
    Ok(())
}

/// The true program, not a version manager's script in front of it.
fn located(name: &str) -> Option<PathBuf> {
    let directories = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];
    directories.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// The distribution's interpreter, where ordinary users find it, and its library.
fn python(files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let Some(program) = located("python3") else { return Ok(()) };
    let output = Command::new(&program).args(["-c", script]).output()?;
    let library = String::from_utf8_lossy(&output.stdout).into_owned();
    libraries(&program, files)?;
    files.insert(program);
    let is_wanted = |path: &Path| {
        let unwanted = ["test", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3"];
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !unwanted.contains(&name) && !name.starts_with("config-")
    };
    tree(Path::new(library.trim_end()), &is_wanted, files)
}

/// What the scripts of the trials use of perl's library is little, but not named anywhere.
fn perl(files: &mut BTreeSet<PathBuf>) {
    for directory in ["/usr/lib/x86_64-linux-gnu/perl-base", "/usr/lib/x86_64-linux-gnu/perl"] {
        let _ = tree(Path::new(directory), &|_| true, files);
    }
}

/// All files below a directory, and the libraries that those load.
fn tree(top: &Path, wanted: &dyn Fn(&Path) -> bool, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(top).with_context(|| top.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if !wanted(&path) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            tree(&path, wanted, files)?;
        } else {
            if path.extension().is_some_and(|extension| extension == "so") {
                libraries(&path, files)?;
            }
            files.insert(path);
        }
    }
    Ok(())
}

/// The shared libraries of a program, its loader among them, as `ldd` finds them.
fn libraries(program: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().context("cannot run `ldd`")?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let word = line.split_whitespace().find(|word| word.starts_with('/'));
        if let Some(path) = word.filter(|_| !line.contains("not a dynamic")) {
            files.insert(PathBuf::from(path.trim_end_matches(':')));
        }
    }
    Ok(())
}

/// An archive in the format of `cpio -H newc`, the one that kernels unpack
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
struct Archive<W: Write> {
    output: W,
    number: u32,
    /// Paths that are in it.
    made: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    fn new(output: W) -> Archive<W> {
        Archive { output, number: 0, made: BTreeSet::new() }
    }

    /// What `path` leads to here lies at `name` there, with every link on the way as it is here.
    fn copy(&mut self, path: &Path, name: &Path) -> Result<()> {
        let directory = path.parent().context("no directory")?;
        let resolved = fs::canonicalize(directory).with_context(|| path.display().to_string())?;
        if path == name && resolved != directory {
            // A directory that is a link, as /lib is.
            self.link_directory(directory)?;
            let name = path.file_name().context("no file")?;
            return self.copy(&resolved.join(name), &resolved.join(name));
        }
        if !self.made.insert(name.to_path_buf()) {
            return Ok(());
        }
        let what = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        if what.is_symlink() && path == name {
            let target = fs::read_link(path)?;
            self.directories(name)?;
            self.entry(name, 0o120_777, target.as_os_str().as_encoded_bytes(), (0, 0))?;
            let target = directory.join(target);
            // What is wanted of a directory is named by itself.
            return if target.is_dir() { Ok(()) } else { self.copy(&target, &target) };
        }
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
        self.directories(name)?;
        self.entry(name, 0o100_000 | mode, &bytes, (0, 0))
    }

    /// The links among the directories above, as they are here.
    fn link_directory(&mut self, directory: &Path) -> Result<()> {
        for part in directory.ancestors() {
            if part.is_symlink() && !self.made.contains(part) {
                let target = fs::read_link(part)?;
                self.directories(part)?;
                self.made.insert(part.to_path_buf());
                self.entry(part, 0o120_777, target.as_os_str().as_encoded_bytes(), (0, 0))?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.directories(Path::new(name))?;
        self.entry(Path::new(name), 0o100_000 | mode, bytes, (0, 0))
    }

    fn device(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        self.directories(Path::new(name))?;
        self.entry(Path::new(name), 0o020_600, &[], (major, minor))
    }

    /// The directories above a file.
    fn directories(&mut self, name: &Path) -> Result<()> {
        let mut above: Vec<&Path> = name.ancestors().skip(1).collect();
        above.retain(|part| part.parent().is_some());
        for part in above.into_iter().rev() {
            if self.made.insert(part.to_path_buf()) {
                self.entry(part, 0o040_755, &[], (0, 0))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &Path, mode: u32, bytes: &[u8], device: (u32, u32)) -> Result<()> {
        let name = name.strip_prefix("/").unwrap_or(name).as_os_str().as_encoded_bytes();
        ensure!(bytes.len() < 1 << 31, "a file of {} bytes is too large", bytes.len());
        self.number += 1;
        let fields = [
            self.number,
            mode,
            0,
            0,
            1,
            0,
            bytes.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        let mut head = b"070701".to_vec();
        for field in fields {
            head.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        head.extend_from_slice(name);
        head.push(0);
        head.resize(head.len().next_multiple_of(4), 0);
        self.output.write_all(&head)?;
        self.output.write_all(bytes)?;
        let rest = bytes.len().next_multiple_of(4) - bytes.len();
        self.output.write_all(&[0; 3][..rest])?;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.entry(Path::new("TRAILER!!!"), 0, &[], (0, 0))?;
        self.output.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_identity_travels_on_a_command_line() {
        let identity = Identity {
            name: "far".into(),
            address: Ipv4Addr::new(10, 77, 0, 2),
            control: Ipv4Addr::new(10, 78, 2, 2),
            user: "bob".into(),
            uid: 2001,
        };
        let line = format!("console=ttyS0 {} quiet\n", identity.command_line());
        assert_eq!(Identity::of_command_line(&line).unwrap(), identity);
        assert!(Identity::of_command_line("console=ttyS0").is_err());
        assert!(Identity::of_command_line("machine=far,10.77.0.2").is_err());
    }

    #[test]
    fn an_archive_is_aligned_and_has_every_directory_once_before_its_files() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file("/a/b/c", 0o755, b"12345").unwrap();
        archive.file("/a/b/d", 0o644, b"").unwrap();
        archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<&str> = text.split("070701").skip(1).collect();
        let ends: Vec<bool> = ["a\0", "a/b\0", "a/b/c\0", "a/b/d\0", "TRAILER!!!\0"]
            .iter()
            .zip(&names)
            .map(|(name, entry)| entry[104..].starts_with(name))
            .collect();
        assert_eq!(ends, [true; 5], "{names:?}");
    }
}
