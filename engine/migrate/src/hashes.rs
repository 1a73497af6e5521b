//! Hashes of mapped files, kept from one move to the next.
//!
//! That two nodes have the same file is proved by the hash of all of it, and to hash what a program
//! maps takes longer than to move it. So supervisors note what they have hashed in a table that the
//! daemon keeps for each user: a file of fixed size, to which that user alone can write, so that
//! whoever puts something wrong into it deceives himself only.
//!
//! A hash is known by device, inode, size and the times of the last change. It is noted only if
//! these tell of any change that may come: on file systems that note a write through a mapping,
//! after all earlier ones have been written back (which makes the kernel look out for the next),
//! and if the last change is so long ago that a new one gets another time.

use kernel::KernelError;
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use wire::limits::HASHED_BYTES_MAX;
use wire::supervisor::HASH_TABLE_BYTES;

pub type Hash = [u8; 32];

/// Hashes in a table. Where two fall on one place, the later stays.
const PLACES: u64 = 4096;
const KEY_BYTES: usize = 40;
const CHECK_BYTES: usize = 16;
const ENTRY_BYTES: usize = KEY_BYTES + size_of::<Hash>() + CHECK_BYTES;
const _: () = assert!(PLACES * ENTRY_BYTES as u64 == HASH_TABLE_BYTES);
/// A later change gets a later time than one that long ago.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

static TABLE: OnceLock<Option<Table>> = OnceLock::new();

/// Takes over the table that the starter of this process has named: the word after `--hashes`.
pub fn inherit(arguments: &[String]) {
    let mut words = arguments.iter();
    let path = words.find(|word| *word == "--hashes").and_then(|_| words.next());
    let table = path.and_then(|path| match Table::open(Path::new(path)) {
        Ok(table) => Some(table),
        Err(error) => {
            ::tracing::debug!("every file is hashed: {error}");
            None
        }
    });
    // Only the first time counts.
    let _ = TABLE.set(table);
}

const CALL_BYTES_MAX: u64 = 32 << 20;

/// How much may yet be hashed for one move. Whoever maps more than can be hashed in the time of a
/// move does not keep a node busy with it.
#[derive(Debug)]
pub struct Effort {
    left_bytes: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { left_bytes: HASHED_BYTES_MAX }
    }
}

impl Effort {
    /// For a call, whose thread waits: some 20 ms.
    pub fn of_a_call() -> Effort {
        Effort { left_bytes: CALL_BYTES_MAX }
    }

    /// The hash of a file; None if it would take too long to find out.
    pub fn hash(&mut self, file: &File) -> std::io::Result<Option<Hash>> {
        let table = TABLE.get().and_then(Option::as_ref);
        let before = file.metadata()?;
        if let Some(known) = table.and_then(|table| table.recall(&key(&before))) {
            return Ok(Some(known));
        }
        let Some(left) = self.left_bytes.checked_sub(before.len()) else { return Ok(None) };
        self.left_bytes = left;
        // Only what has been written back is watched; a file that cannot be is not noted.
        let is_watched = table.is_some() && notes_writes(file) && file.sync_data().is_ok();
        let before = file.metadata()?;
        let Some(hash) = hash(file, before.len())? else { return Ok(None) };
        let is_same = key(&before) == key(&file.metadata()?);
        if let Some(table) = table.filter(|_| is_watched && is_same && is_settled(&before)) {
            table.note(&key(&before), &hash);
        }
        Ok(Some(hash))
    }
}

/// What is so of all files with this content, found out once and noted as hashes are. `question`
/// names it.
///
/// # Errors
/// Those of `answer`, of which nothing is noted.
pub fn once(
    content: &Hash,
    question: &str,
    answer: impl FnOnce() -> std::io::Result<bool>,
) -> std::io::Result<bool> {
    let table = TABLE.get().and_then(Option::as_ref);
    let mut key = [0; KEY_BYTES];
    // No device has that number.
    let asked = blake3::Hasher::new().update(question.as_bytes()).update(content).finalize();
    key[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    key[8..].copy_from_slice(asked.as_bytes());
    if let Some(known) = table.and_then(|table| table.recall(&key)) {
        return Ok(known[0] != 0);
    }
    let is_so = answer()?;
    if let Some(table) = table {
        table.note(&key, &[u8::from(is_so); 32]);
    }
    Ok(is_so)
}

/// None if the file grows while it is read.
fn hash(file: &File, length: u64) -> std::io::Result<Option<Hash>> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        let count = file.read_at(&mut buffer, at)?;
        if count == 0 {
            return Ok(Some(hasher.finalize().into()));
        }
        hasher.update(&buffer[..count]);
        at += count as u64;
        if at > length {
            return Ok(None);
        }
    }
}

/// Whether a write through a shared mapping changes the times of a file here: not in memory file
/// systems, and what is elsewhere tells what it likes.
fn notes_writes(file: &File) -> bool {
    let kinds = [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC];
    fstatfs(file).is_ok_and(|system| kinds.contains(&system.filesystem_type()))
}

fn is_settled(metadata: &Metadata) -> bool {
    let since = |seconds: i64| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64 + 1);
        SystemTime::now().duration_since(at).is_ok_and(|since| since >= SETTLED_AFTER)
    };
    since(metadata.mtime()) && since(metadata.ctime())
}

fn key(metadata: &Metadata) -> [u8; KEY_BYTES] {
    let time = |seconds: i64, nanoseconds: i64| {
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds) as u64
    };
    let words = [
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        time(metadata.mtime(), metadata.mtime_nsec()),
        time(metadata.ctime(), metadata.ctime_nsec()),
    ];
    let mut key = [0; KEY_BYTES];
    for (place, word) in key.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    key
}

/// What supervisors of one user share. Each may read and write at any time: an entry that is half
/// written shows by its check.
#[derive(Debug)]
struct Table(File);

impl Table {
    fn open(path: &Path) -> Result<Table, KernelError> {
        let failed = |source| KernelError { what: format!("open {}", path.display()), source };
        let flags = libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        match metadata.is_file() && metadata.len() == HASH_TABLE_BYTES {
            true => Ok(Table(file)),
            false => Err(failed(std::io::ErrorKind::InvalidData.into())),
        }
    }

    fn recall(&self, key: &[u8; KEY_BYTES]) -> Option<Hash> {
        let mut entry = [0; ENTRY_BYTES];
        self.0.read_exact_at(&mut entry, place(key)).ok()?;
        let (content, check) = entry.split_at(ENTRY_BYTES - CHECK_BYTES);
        let (its_key, hash) = content.split_at(KEY_BYTES);
        (its_key == key && check == checked(content)).then(|| hash.try_into().ok())?
    }

    fn note(&self, key: &[u8; KEY_BYTES], hash: &Hash) {
        let mut entry = [&key[..], hash].concat();
        let check = checked(&entry);
        entry.extend(check);
        if let Err(error) = self.0.write_all_at(&entry, place(key)) {
            ::tracing::debug!("a hash is not kept: {error}");
        }
    }
}

/// Where in the table this file has its place.
fn place(key: &[u8; KEY_BYTES]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&blake3::hash(key).as_bytes()[..8]);
    u64::from_le_bytes(word) % PLACES * ENTRY_BYTES as u64
}

fn checked(content: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(content).as_bytes()[..CHECK_BYTES]);
    check
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::Write;

    fn table(directory: &Path) -> Table {
        let path = directory.join("table");
        File::create(&path).unwrap().set_len(HASH_TABLE_BYTES).unwrap();
        Table::open(&path).unwrap()
    }

    #[test]
    fn a_hash_is_known_until_the_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let table = table(directory.path());
        let path = directory.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one").unwrap();
        let before = file.metadata().unwrap();
        assert_eq!(table.recall(&key(&before)), None);
        table.note(&key(&before), &[7; 32]);
        assert_eq!(table.recall(&key(&before)), Some([7; 32]));
        assert!(!is_settled(&before), "another change may get the same time");
        let long_ago = SystemTime::now() - Duration::from_secs(100);
        file.set_times(std::fs::FileTimes::new().set_modified(long_ago)).unwrap();
        assert_eq!(table.recall(&key(&file.metadata().unwrap())), None, "it has changed");
        file.write_all(b"more").unwrap();
        assert_eq!(table.recall(&key(&file.metadata().unwrap())), None);
    }

    #[test]
    fn an_entry_that_is_half_written_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let table = table(directory.path());
        let metadata = std::env::current_exe().unwrap().metadata().unwrap();
        table.note(&key(&metadata), &[7; 32]);
        table.0.write_all_at(&[8], place(&key(&metadata)) + KEY_BYTES as u64).unwrap();
        assert_eq!(table.recall(&key(&metadata)), None);
    }

    #[test]
    fn no_more_is_hashed_than_was_agreed() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let length = file.metadata().unwrap().len();
        let mut effort = Effort { left_bytes: length };
        assert!(effort.hash(&file).unwrap().is_some());
        assert!(effort.hash(&file).unwrap().is_none(), "that was all");
    }

    #[test]
    fn what_is_no_table_is_not_used_as_one() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Table::open(directory.path()).is_err());
        let path = directory.path().join("short");
        File::create(&path).unwrap();
        assert!(Table::open(&path).is_err());
    }
}
