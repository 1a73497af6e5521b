//! Mapped files: their clean pages do not travel, if the other side can map the same file.
//!
//! "The same" means the same bytes: the whole file has the same BLAKE3 hash. Nothing less will do,
//! not even between nodes of one machine, because all that could tell them to be that is what the
//! other one says. A file that the target lacks is sent once, ahead of the freeze, and mapped there
//! from memory.

mod numbering;
mod shared;

pub use shared::Commons;

use shared::Shared;

use crate::group::Bonds;
use crate::hashes::Effort;
use crate::layout::Backings;
use crate::{MigrateError, Result, files, layout};
use kernel::KernelError;
use kernel::memory::Memory;
use kernel::proc::maps::Mapping;
use kernel::proc::process;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::forward::MappedName;
use wire::image::{self, Backing, MappingKind, SharedPlace};
use wire::limits::{BACKING_BYTES_MAX, BACKINGS_BYTES_MAX, BACKINGS_MAX, HASHED_BYTES_MAX};

/// Files that are added while a process is away: each is open in both supervisors, and none is
/// taken out of the list before the process is home.
const GROWN_MAX: usize = 256;

/// The mapped files of a process here, each open.
#[derive(Clone, Debug, Default)]
pub struct Library {
    entries: Vec<Entry>,
    shared: Vec<Shared>,
    /// How many were added since the process left its home.
    grown: usize,
    /// What it shares with those who come to this node with it, as home calls that.
    commons: Arc<Commons>,
}

#[derive(Clone, Debug)]
struct Entry {
    backing: Backing,
    file: Arc<File>,
    /// As `/proc/PID/maps` names the file on this machine.
    device: u64,
    inode: u64,
}

impl Library {
    /// Opens every file that the process maps, and describes it.
    ///
    /// # Errors
    /// Refused if a mapped file can no longer be opened under its name or changed hands since.
    pub fn of_process(pid: i32, maps: &[Mapping], bonds: &Bonds) -> Result<Library> {
        let mut library = Library::default();
        let mut effort = Effort::default();
        for mapping in maps {
            let is_file = mapping.inode != 0 && !layout::is_anonymous(mapping);
            if bonds.has(mapping) {
                library.name_shared(mapping);
            } else if files::is_shared_file(pid, mapping, bonds) {
                let here = (mapping.device, mapping.inode);
                library.shared.push(Shared { is_file: true, here, at_home: here, ahead: 0 });
            } else if is_file && library.index_of(mapping).is_none() {
                library.entries.push(Entry::open(pid, mapping, maps, &mut effort)?);
            }
        }
        Ok(library)
    }

    pub fn descriptions(&self) -> Vec<Backing> {
        self.entries.iter().map(|entry| entry.backing.clone()).collect()
    }

    pub fn file(&self, index: u32) -> Option<&File> {
        self.entries.get(index as usize).map(|entry| &*entry.file)
    }

    /// Each with the path that it is mapped by and its hash.
    pub fn files(&self) -> impl Iterator<Item = (&Backing, &File)> {
        self.entries.iter().map(|entry| (&entry.backing, &*entry.file))
    }

    /// How `/proc/PID/maps` names them on this machine.
    pub fn mapped_names(&self) -> Vec<MappedName> {
        self.entries.iter().map(Entry::name).collect()
    }

    /// What is known of one of them, and how it is named here.
    pub fn description(&self, index: u32) -> Option<(&Backing, MappedName)> {
        self.entries.get(index as usize).map(|entry| (&entry.backing, entry.name()))
    }

    /// Whether files were added that were not mapped when the process left its home.
    pub fn has_grown(&self) -> bool {
        self.grown > 0
    }

    /// Takes in the file of a mapping that a process here has just made for its body; its place.
    /// None if it is none that can be mapped elsewhere as well.
    ///
    /// # Errors
    /// We may not read it.
    pub fn add_mapped(
        &mut self,
        pid: i32,
        mapping: &Mapping,
        effort: &mut Effort,
    ) -> Result<Option<u32>> {
        let is_named = mapping.inode != 0
            && mapping.name.starts_with(b"/")
            && !mapping.is_deleted()
            && !layout::is_private_zero(mapping);
        // What it writes to the same file by way of memory would not be seen in both.
        let here = (mapping.device, mapping.inode);
        if !is_named || self.shared.iter().any(|shared| shared.here == here) {
            return Ok(None);
        }
        let Some(file) = find_mapped(pid, mapping)? else { return Ok(None) };
        let metadata = file.metadata().map_err(|source| unreadable(mapping, source))?;
        if !metadata.is_file() || kernel::file_mapping::may_be_written(&file) {
            return Ok(None);
        }
        let Some(hash) = effort.hash(&file).map_err(|source| unreadable(mapping, source))? else {
            return Ok(None);
        };
        let backing = Backing { path: mapping.name.clone(), size: metadata.len(), hash };
        if let Some(index) = self.index_of(mapping) {
            // It may have been written to since it was put into the list.
            let known = &self.entries[index as usize].backing;
            let is_as_it_was = (known.size, known.hash) == (backing.size, backing.hash);
            return Ok(is_as_it_was.then_some(index));
        }
        if self.grown >= GROWN_MAX || self.entries.len() >= BACKINGS_MAX {
            return Ok(None);
        }
        self.push((backing, file), here);
        Ok(Some(self.entries.len() as u32 - 1))
    }

    /// Adds the file of this node that stands for one that home has added, which the kernel here
    /// names so where it is mapped.
    pub fn push(&mut self, (backing, file): (Backing, File), (device, inode): (u64, u64)) {
        self.grown += 1;
        self.entries.push(Entry { backing, file: Arc::new(file), device, inode });
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the file that stands here for `backing`.
    pub fn add(&mut self, backing: Backing, file: File) -> Result<()> {
        let metadata = file.metadata().map_err(|source| KernelError {
            what: format!("inspect {}", String::from_utf8_lossy(&backing.path)),
            source,
        })?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        self.entries.push(Entry { backing, device, inode, file: Arc::new(file) });
        Ok(())
    }

    /// Notes how the mappings made of these files are named, which is not always how the files are:
    /// a file of an overlay is mapped from the layer below.
    pub fn learn(&mut self, maps: &[Mapping], made: &[image::Mapping]) {
        self.shared.clear();
        for mapping in made {
            let at = mapping.start.0;
            let seen = maps.get(maps.partition_point(|m| m.end <= at));
            let Some(seen) = seen.filter(|m| m.start <= at) else { continue };
            let here = (seen.device, seen.inode);
            match mapping.kind {
                MappingKind::File { backing, .. } => {
                    if let Some(entry) = self.entries.get_mut(backing as usize) {
                        (entry.device, entry.inode) = here;
                    }
                }
                MappingKind::SharedFile { device, inode, offset }
                | MappingKind::SharedAnonymous {
                    home: Some(SharedPlace { device, inode, offset }),
                } => {
                    let ahead = offset.wrapping_sub(seen.offset + (at - seen.start));
                    let is_file = matches!(mapping.kind, MappingKind::SharedFile { .. });
                    let at_home = (device, inode);
                    self.shared.push(Shared { is_file, here, at_home, ahead });
                }
                _ => {}
            }
        }
    }
}

impl Backings for Library {
    fn index_of(&self, mapping: &Mapping) -> Option<u32> {
        self.entries
            .iter()
            .position(|e| e.inode == mapping.inode && e.device == mapping.device)
            .map(|index| index as u32)
    }

    fn shared_file(&self, mapping: &Mapping) -> Option<SharedPlace> {
        self.named(mapping).filter(|shared| shared.is_file).map(|shared| shared.place(mapping))
    }

    fn shared_memory(&self, mapping: &Mapping) -> Option<SharedPlace> {
        self.named(mapping).filter(|shared| !shared.is_file).map(|shared| shared.place(mapping))
    }
}

impl Entry {
    fn name(&self) -> MappedName {
        let name = self.backing.path.clone();
        MappedName { device: self.device, inode: self.inode, name }
    }

    fn open(pid: i32, mapping: &Mapping, maps: &[Mapping], effort: &mut Effort) -> Result<Entry> {
        let file = open_mapped(pid, mapping, maps)?;
        let metadata = file.metadata().map_err(|source| unreadable(mapping, source))?;
        let hash = effort.hash(&file).map_err(|source| unreadable(mapping, source))?;
        let Some(hash) = hash else {
            let text = format!(
                "it maps more bytes of files than can be compared ({HASHED_BYTES_MAX}): {} is one \
                 of them",
                shown(mapping)
            );
            return Err(MigrateError::refused("mapped-file", text));
        };
        let backing = Backing { path: mapping.name.clone(), size: metadata.len(), hash };
        let file = Arc::new(file);
        Ok(Entry { backing, file, device: mapping.device, inode: mapping.inode })
    }
}

/// Opens the very file behind a mapping: through `map_files` where we may, else by name as the
/// process sees it, if that is still the same file, or through a descriptor that it has of it. What
/// is none of that is gone but for what the process has in its memory.
fn open_mapped(pid: i32, mapping: &Mapping, maps: &[Mapping]) -> Result<File> {
    match find_mapped(pid, mapping)? {
        Some(file) => Ok(file),
        None => copy_from_memory(pid, mapping, maps),
    }
}

/// The same, as long as somebody can open it still.
///
/// # Errors
/// Refused if we may not read it.
pub(crate) fn find_mapped(pid: i32, mapping: &Mapping) -> Result<Option<File>> {
    let direct = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    if let Ok(file) = File::open(direct) {
        return Ok(Some(file));
    }
    let name = PathBuf::from(format!("/proc/{pid}/root"));
    let relative = mapping.name.strip_prefix(b"/").unwrap_or(&mapping.name);
    let by_name = open_plainly(&name.join(OsStr::from_bytes(relative)));
    match by_name.and_then(|file| Ok((file.metadata()?.ino(), file))) {
        Ok((inode, file)) if inode == mapping.inode => return Ok(Some(file)),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        // It is there, and we may not read it.
        Err(error) => return Err(unreadable(mapping, error)),
    }
    Ok(open_held(pid, mapping))
}

/// A file without a name, through a descriptor of the process, or as its program.
fn open_held(pid: i32, mapping: &Mapping) -> Option<File> {
    let descriptors = process::descriptors(pid).unwrap_or_default();
    let named = |target: &Path| target.as_os_str().as_bytes() == mapping.name;
    let held = descriptors.iter().filter(|(_, target)| named(target));
    let links = held.map(|(number, _)| format!("/proc/{pid}/fd/{number}"));
    links.chain([format!("/proc/{pid}/exe")]).find_map(|link| {
        let file = open_plainly(Path::new(&link)).ok()?;
        (file.metadata().ok()?.ino() == mapping.inode).then_some(file)
    })
}

/// What is left of a deleted file: the parts that the process has mapped. What it has written to
/// them travels with its memory.
fn copy_from_memory(pid: i32, mapping: &Mapping, maps: &[Mapping]) -> Result<File> {
    let memory = Memory::open(pid)?;
    let is_part = |m: &&Mapping| (m.inode, m.device) == (mapping.inode, mapping.device);
    let parts: Vec<&Mapping> = maps.iter().filter(is_part).collect();
    let mapped_bytes = parts.iter().fold(0u64, |sum, m| sum.saturating_add(m.length()));
    let size = parts.iter().map(|m| m.offset.saturating_add(m.length())).max().unwrap_or(0);
    let copy = Backing { path: mapping.name.clone(), size, hash: [0; 32] };
    if mapped_bytes > BACKING_BYTES_MAX {
        return Err(too_large(&copy));
    }
    let file = stand_in(&copy)?;
    let mut buffer = vec![0; 256 << 10];
    for part in parts {
        let mut done = 0;
        while done < part.length() {
            let length = (part.length() - done).min(buffer.len() as u64) as usize;
            // Behind the end of the file there is nothing.
            let count = memory.read_some(part.start + done, &mut buffer[..length]);
            fill(&file, &copy, part.offset + done, &buffer[..count])?;
            if count < length {
                break;
            }
            done += count as u64;
        }
    }
    Ok(file)
}

fn unreadable(mapping: &Mapping, source: std::io::Error) -> MigrateError {
    let text = format!("the file {} that it maps cannot be opened: {source}", shown(mapping));
    MigrateError::refused("mapped-file", text)
}

fn shown(mapping: &Mapping) -> String {
    String::from_utf8_lossy(&mapping.name).into_owned()
}

/// This node's own copy of `backing`, if it has one with the same contents.
///
/// The path is the other node's word. That its hash of the whole file is ours, too, proves that it
/// has the contents already: a guest can map nothing here that its home does not know.
/// One that would take too long to compare counts as none.
pub fn find_here(backing: &Backing, effort: &mut Effort) -> Option<File> {
    let file = open_plainly(Path::new(OsStr::from_bytes(&backing.path))).ok()?;
    let metadata = file.metadata().ok()?;
    let is_same = metadata.is_file()
        && metadata.len() == backing.size
        && effort.hash(&file).ok()?? == backing.hash;
    is_same.then_some(file)
}

/// Opens for reading only a file that we have, and that has these contents still.
pub fn open_again(file: &File, backing: &Backing, effort: &mut Effort) -> Option<File> {
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let is_same =
        again.metadata().ok()?.len() == backing.size && effort.hash(&again).ok()?? == backing.hash;
    is_same.then_some(again)
}

/// Opens what may be anything, without waiting for the other end of a FIFO. Opening alone can act
/// on a device, so it is looked at first; whoever opens looks again.
fn open_plainly(path: &Path) -> std::io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Bytes of a file in one message.
pub const BACKING_PART_BYTES: usize = 512 << 10;

/// Reads a file part by part.
pub fn parts(file: &File, mut each: impl FnMut(u64, Vec<u8>) -> Result<()>) -> Result<()> {
    let mut at = 0;
    loop {
        let mut part = Vec::with_capacity(BACKING_PART_BYTES);
        let mut window = FileWindow { file, at };
        let count = (&mut window)
            .take(BACKING_PART_BYTES as u64)
            .read_to_end(&mut part)
            .map_err(|source| KernelError { what: "read mapped file".into(), source })?;
        if count == 0 {
            return Ok(());
        }
        each(at, part)?;
        at += count as u64;
    }
}

/// A file as a reader with its own position: the descriptor may be shared.
struct FileWindow<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FileWindow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Checks that the files to be sent are not more than memory may be taken for.
pub fn check_total<'a>(mut backings: impl Iterator<Item = &'a Backing>) -> Result<()> {
    let add = |sum: u64, backing: &Backing| sum.checked_add(backing.size);
    let total = backings.try_fold(0, add).unwrap_or(u64::MAX);
    if total > BACKINGS_BYTES_MAX {
        let text = format!(
            "it maps {total} bytes of files that are not here (at most {BACKINGS_BYTES_MAX})"
        );
        return Err(MigrateError::refused("mapped-file", text));
    }
    Ok(())
}

/// An empty stand-in of `backing`, in memory, to be filled part by part.
///
/// # Errors
/// Refused if the file is larger than [`BACKING_BYTES_MAX`].
pub fn stand_in(backing: &Backing) -> Result<File> {
    if backing.size > BACKING_BYTES_MAX {
        return Err(too_large(backing));
    }
    let failed = |e: nix::errno::Errno| KernelError {
        what: "make stand-in for a mapped file".into(),
        source: e.into(),
    };
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let file = nix::sys::memfd::memfd_create(c"osmos-file", flags).map_err(failed)?;
    nix::unistd::ftruncate(&file, backing.size as i64).map_err(failed)?;
    Ok(File::from(file))
}

fn too_large(backing: &Backing) -> MigrateError {
    let name = String::from_utf8_lossy(&backing.path);
    let text = format!("it maps {name} of {} bytes, which is not here", backing.size);
    MigrateError::refused("mapped-file", text)
}

/// Writes one received part, within the bounds that the description gave.
pub fn fill(file: &File, backing: &Backing, offset: u64, content: &[u8]) -> Result<()> {
    let end = offset.checked_add(content.len() as u64);
    if end.is_none_or(|end| end > backing.size) {
        return Err(MigrateError::Protocol(format!(
            "{} bytes at {offset} of a file of {}",
            content.len(),
            backing.size
        )));
    }
    file.write_all_at(content, offset)
        .map_err(|source| KernelError { what: "fill stand-in".into(), source }.into())
}

#[cfg(test)]
mod test {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn backing_of(path: &std::path::Path, size: u64, hash: [u8; 32]) -> Backing {
        Backing { path: path.as_os_str().to_owned().into_vec(), size, hash }
    }

    #[test]
    fn only_a_file_whose_contents_the_other_node_knows_is_found() {
        let own = std::env::current_exe().unwrap();
        let file = File::open(&own).unwrap();
        let size = file.metadata().unwrap().len();
        let hash = Effort::default().hash(&file).unwrap().unwrap();
        assert!(find_here(&backing_of(&own, size, hash), &mut Effort::default()).is_some());
        assert!(find_here(&backing_of(&own, size, [0; 32]), &mut Effort::default()).is_none());
        assert!(find_here(&backing_of(&own, size - 1, hash), &mut Effort::default()).is_none());
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("osmos-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let found = find_here(&backing_of(&path, 0, [0; 32]), &mut Effort::default());
        std::fs::remove_file(&path).unwrap();
        assert!(found.is_none());
        assert!(
            find_here(&backing_of("/dev/zero".as_ref(), 0, [0; 32]), &mut Effort::default())
                .is_none()
        );
    }

    #[test]
    fn files_are_sent_up_to_a_sum() {
        let file = backing_of("/x".as_ref(), BACKING_BYTES_MAX, [0; 32]);
        check_total([&file, &file].into_iter()).unwrap();
        let error = check_total([&file, &file, &file].into_iter()).unwrap_err();
        assert_eq!(error.reason().code, "mapped-file");
        let endless = Backing { size: u64::MAX, ..file.clone() };
        assert!(check_total([&endless, &file].into_iter()).is_err());
    }
}
