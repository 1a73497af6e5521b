//! What a body leaves of its memory on a node, for when it comes again ([decision
//! 0023](../../../docs/decisions/0023-pages-of-earlier-guests.md)): a sealed memory file of pages,
//! and behind them the first eight bytes of the hash of each.
//!
//! Who comes is told the hashes of what it is to have. The index says where to look, and the page
//! that lies there is hashed anew before it is used: so nothing depends on who made the file.

use crate::kept;
use crate::parts::is_zero;
use crate::{MigrateError, Result};
use kernel::memory::Memory;
use kernel::proc::maps;
use kernel::proc::pagemap::{PAGE_BYTES, Pagemap, Run};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use wire::hashes::{Lacking, PageHashes};
use wire::ids::GuestAddr;
use wire::image::Pages;
use wire::limits::IMPRINT_BYTES_MAX;

const PAGE: usize = PAGE_BYTES as usize;
/// What the index has of each page.
const ENTRY: usize = 8;
/// Read at a time. Between two it is asked whether to go on.
const PIECE_BYTES: u64 = 1 << 20;

/// What nobody can change any more.
pub fn seals() -> SealFlag {
    SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE
}

/// Pages on their way into a file, each contents once.
struct Writing {
    file: File,
    index: Vec<u8>,
    seen: HashSet<u64>,
    fresh: Vec<u8>,
}

impl Writing {
    fn begin() -> Result<Writing> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"osmos-imprint", flags).map_err(|errno| failed(errno.into()))?;
        let (file, index, seen, fresh) = (File::from(file), vec![], HashSet::new(), vec![]);
        Ok(Writing { file, index, seen, fresh })
    }

    fn bytes(&self) -> u64 {
        (self.index.len() / ENTRY) as u64 * PAGE_BYTES
    }

    fn add(&mut self, content: &[u8]) -> Result<()> {
        let at = self.bytes();
        self.fresh.clear();
        for page in content.chunks_exact(PAGE).filter(|page| !is_zero(page)) {
            let prefix = prefix(blake3::hash(page).as_bytes());
            if self.seen.insert(prefix) {
                self.index.extend(prefix.to_le_bytes());
                self.fresh.extend_from_slice(page);
            }
        }
        self.file.write_all_at(&self.fresh, at).map_err(failed)
    }

    fn end(self) -> Result<OwnedFd> {
        self.file.write_all_at(&self.index, self.bytes()).map_err(failed)?;
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(seals())).map_err(|errno| failed(errno.into()))?;
        Ok(self.file.into())
    }
}

/// Takes down the private memory of a process, no more than so many bytes of it; None if `goes_on`
/// says no. Whether the process runs is of no interest: a page is what it was when it was read.
///
/// # Errors
/// The process has ended, or there is no memory for it.
pub fn take(
    pid: i32,
    bytes_max: u64,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<OwnedFd>> {
    let (memory, pagemap) = (Memory::open(pid)?, Pagemap::open(pid)?);
    let bytes_max = bytes_max.min(IMPRINT_BYTES_MAX);
    let mut writing = Writing::begin()?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    for (mapping, select) in kept::private(&maps::read(pid)?) {
        for Run { start, end } in pagemap.scan(mapping.start, mapping.end, select)? {
            for at in (start..end).step_by(PIECE_BYTES as usize) {
                let length = (end - at).min(PIECE_BYTES);
                if !goes_on() {
                    return Ok(None);
                }
                if writing.bytes() + length > bytes_max {
                    return writing.end().map(Some);
                }
                // What cannot be read is not kept.
                let piece = &mut piece[..length as usize];
                let length = memory.read_some(at, piece);
                writing.add(&piece[..length])?;
            }
        }
    }
    writing.end().map(Some)
}

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    prefix: u64,
    file: u32,
    page: u32,
}

/// All that earlier guests have left for one that comes.
#[derive(Default)]
pub struct Imprints {
    files: Vec<File>,
    /// Read when it is first asked for.
    index: Option<Vec<Place>>,
}

impl Imprints {
    pub fn of(files: impl IntoIterator<Item = OwnedFd>) -> Imprints {
        Imprints { files: files.into_iter().map(File::from).collect(), index: None }
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What there is of these pages, and which are lacking.
    ///
    /// # Errors
    /// If these are no hashes of pages.
    pub fn recall(&mut self, hashes: &PageHashes) -> Result<(Pages, Lacking)> {
        let wanted = hashes.pages();
        let wanted =
            wanted.ok_or_else(|| MigrateError::Protocol("hashes of other pages".into()))?;
        let files = &self.files;
        let index = self.index.get_or_insert_with(|| index(files));
        let places: Vec<Option<Place>> =
            wanted.iter().map(|(_, hash)| look_up(index, prefix(hash))).collect();
        let mut content = vec![0; wanted.len() * PAGE];
        read(&self.files, &places, &mut content);
        let (mut pages, mut are_lacking) = (Pages::default(), Vec::with_capacity(wanted.len()));
        for (((address, hash), place), page) in
            wanted.iter().zip(&places).zip(content.chunks_exact(PAGE))
        {
            let is_lacking = place.is_none() || blake3::hash(page) != *hash;
            are_lacking.push(is_lacking);
            if !is_lacking {
                let end = GuestAddr(address.0 + PAGE_BYTES);
                match pages.spans.last_mut() {
                    Some(last) if last.1 == *address => last.1 = end,
                    _ => pages.spans.push((*address, end)),
                }
                pages.content.extend_from_slice(page);
            }
        }
        Ok((pages, Lacking::of(are_lacking.into_iter())))
    }
}

/// Reads the pages into their places, neighbours at once. What cannot be read stays zero.
fn read(files: &[File], places: &[Option<Place>], content: &mut [u8]) {
    let follows = |before: &Option<Place>, after: &Option<Place>| match (before, after) {
        (Some(before), Some(after)) => {
            before.file == after.file && before.page.checked_add(1) == Some(after.page)
        }
        _ => false,
    };
    let mut at = 0;
    for run in places.chunk_by(follows) {
        let part = &mut content[at * PAGE..(at + run.len()) * PAGE];
        at += run.len();
        let Some(first) = run[0] else { continue };
        // A file that is shorter than it was is not sealed: its pages are not those that are asked
        // for either.
        let _ = files[first.file as usize].read_exact_at(part, u64::from(first.page) * PAGE_BYTES);
    }
}

fn look_up(index: &[Place], prefix: u64) -> Option<Place> {
    let at = index.partition_point(|place| place.prefix < prefix);
    index.get(at).filter(|place| place.prefix == prefix).copied()
}

fn index(files: &[File]) -> Vec<Place> {
    let mut index = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if let Err(error) = add_index(&mut index, number as u32, file) {
            ::tracing::debug!("what an earlier guest has left cannot be read: {error}");
        }
    }
    index.sort_unstable();
    index
}

fn add_index(index: &mut Vec<Place>, file: u32, content: &File) -> io::Result<()> {
    let bytes = content.metadata()?.len();
    let count = pages_of(bytes).ok_or(io::ErrorKind::InvalidData)?;
    let mut entries = vec![0; count as usize * ENTRY];
    content.read_exact_at(&mut entries, count * PAGE_BYTES)?;
    index.extend(entries.chunks_exact(ENTRY).zip(0..).map(|(entry, page)| {
        let prefix = prefix(entry);
        Place { prefix, file, page }
    }));
    Ok(())
}

/// How many pages a file of that length has; None if it is none of ours.
pub fn pages_of(bytes: u64) -> Option<u64> {
    let each = PAGE_BYTES + ENTRY as u64;
    let count = bytes / each;
    (bytes.is_multiple_of(each) && count <= IMPRINT_BYTES_MAX / PAGE_BYTES).then_some(count)
}

fn prefix(hash: &[u8]) -> u64 {
    let mut first = [0; ENTRY];
    first.copy_from_slice(&hash[..ENTRY]);
    u64::from_le_bytes(first)
}

fn failed(source: io::Error) -> MigrateError {
    kernel::KernelError { what: "keep what a guest has left".into(), source }.into()
}

#[cfg(test)]
mod test {
    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE]
    }

    fn file(pages: &[Vec<u8>]) -> OwnedFd {
        let mut writing = Writing::begin().unwrap();
        pages.iter().for_each(|page| writing.add(page).unwrap());
        writing.end().unwrap()
    }

    fn asked(pages: &[Vec<u8>]) -> PageHashes {
        let mut hashes = PageHashes::default();
        for (page, number) in pages.iter().zip(1..) {
            hashes.add(GuestAddr(number << 12), blake3::hash(page).as_bytes());
        }
        hashes
    }

    fn lacking(imprints: &mut Imprints, pages: &[Vec<u8>]) -> Vec<bool> {
        let (found, lacking) = imprints.recall(&asked(pages)).unwrap();
        let lacking = lacking.told(pages.len()).unwrap();
        let there: Vec<u8> = pages
            .iter()
            .zip(&lacking)
            .filter(|(_, is_lacking)| !**is_lacking)
            .flat_map(|(page, _)| page.clone())
            .collect();
        assert_eq!(found.content, there);
        let runs = wire::image::runs(&found.spans, &found.content).unwrap();
        assert_eq!(runs.iter().map(|(_, run)| run.len()).sum::<usize>(), there.len());
        lacking
    }

    #[test]
    fn pages_that_earlier_guests_had_are_found_by_their_hashes_wherever_they_were() {
        let files = [file(&[page(1), page(2), page(0), page(1)]), file(&[page(3), page(2)])];
        let lengths = files.each_ref().map(|file| nix::sys::stat::fstat(file).unwrap().st_size);
        let each = PAGE as i64 + ENTRY as i64;
        assert_eq!(lengths, [2 * each, 2 * each], "each contents once, and no zeros");
        let mut imprints = Imprints::of(files);
        let wanted = [page(4), page(3), page(1), page(2), page(5), page(0)];
        assert_eq!(lacking(&mut imprints, &wanted), [true, false, false, false, true, true]);
        assert_eq!(lacking(&mut Imprints::default(), &wanted[..2]), [true, true]);
    }

    #[test]
    fn a_sealed_file_cannot_be_changed() {
        let file = File::from(file(&[page(1)]));
        assert!(file.write_all_at(&[2], 0).is_err());
        assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
    }

    /// A file as somebody else has made it.
    fn forged(pages: &[u8], index: &[u64]) -> OwnedFd {
        let file = File::from(memfd_create(c"forged", MFdFlags::MFD_CLOEXEC).unwrap());
        let index: Vec<u8> = index.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        file.write_all_at(&[pages, &index].concat(), 0).unwrap();
        file.into()
    }

    #[test]
    fn what_lies_where_the_index_says_is_used_only_if_it_is_what_was_asked_for() {
        let of = |byte| prefix(blake3::hash(&page(byte)).as_bytes());
        let lies = [
            forged(&page(9), &[of(1)]),
            forged(&[page(9), page(1)].concat(), &[of(1), 0]),
            forged(&page(1)[1..], &[of(1)]),
            forged(&[], &[of(1)]),
            forged(&[], &[]),
        ];
        for lie in lies {
            assert_eq!(lacking(&mut Imprints::of([lie]), &[page(1)]), [true]);
        }
        // An honest one beside it still serves.
        let mut both = Imprints::of([forged(&page(9), &[7]), file(&[page(1)])]);
        assert_eq!(lacking(&mut both, &[page(1), page(9)]), [false, true]);
        // One that is cut off when its index has been read.
        let honest = File::from(forged(&page(1), &[of(1)]));
        let mut imprints = Imprints::of([OwnedFd::from(honest.try_clone().unwrap())]);
        assert_eq!(lacking(&mut imprints, &[page(1)]), [false]);
        honest.set_len(100).unwrap();
        assert_eq!(lacking(&mut imprints, &[page(1)]), [true]);
    }

    #[test]
    fn of_a_process_no_more_is_taken_than_there_is_room_for() {
        let pid = std::process::id() as i32;
        let written = std::hint::black_box(vec![0x5b_u8; 4 << 20]);
        let taken = take(pid, 1 << 30, &mut || true).unwrap().unwrap();
        assert_eq!(lacking(&mut Imprints::of([taken]), &[page(0x5b), page(0xb5)]), [false, true]);
        drop(std::hint::black_box(written));
        let less = take(pid, 64 << 10, &mut || true).unwrap().unwrap();
        let bytes = nix::sys::stat::fstat(&less).unwrap().st_size as u64;
        assert!(pages_of(bytes).is_some_and(|count| count <= 16));
        assert!(take(pid, 1 << 30, &mut || false).unwrap().is_none());
    }
}
