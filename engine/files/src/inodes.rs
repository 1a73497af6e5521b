//! The files that the other node has been told of, and how they are found again.
//!
//! Each was found as a name in a directory that was known before, and is kept as that, beside a
//! descriptor that says nothing but which file it is (O_PATH). Descriptors are dear, and the other
//! node's kernel remembers files by the hundred thousand: those that were not used for long are
//! closed, and found again by their names when they are. What is found then may be another file:
//! it is compared, and ESTALE has the other kernel walk the path anew.

use crate::attributes::{FileId, Seen, check_shown, look};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use wire::files::{Entry, ROOT};

/// Descriptors of files that are kept, of all that this process may have, one of this many: the
/// others are for open files and locks.
const SHARE: u64 = 2;
const DESCRIPTORS_MAX: usize = 65_536;
/// Files that may be known: some hundred bytes each.
const FILES_MAX: usize = 4 << 20;
/// Directories of one path that are found again one after the other.
const DEPTH_MAX: usize = 4_096;

struct Known {
    id: FileId,
    /// None of the root.
    place: Option<(u64, OsString)>,
    file: Option<Arc<OwnedFd>>,
    /// When it was last used: where it is in `Table::used`.
    used: u64,
    /// How often the other node was told of it.
    told: u64,
}

struct Table {
    known: HashMap<u64, Known>,
    numbers: HashMap<FileId, u64>,
    /// Those with a descriptor, by their last use.
    used: BTreeMap<u64, u64>,
    clock: u64,
    next: u64,
    descriptors_max: usize,
}

pub struct Inodes(Mutex<Table>);

impl Inodes {
    /// With the root of this node's files.
    ///
    /// # Errors
    /// There is none.
    pub fn new() -> Result<Inodes, Errno> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        Inodes::at("/", usize::try_from(limit).unwrap_or(usize::MAX).clamp(16, DESCRIPTORS_MAX))
    }

    fn at(root: &str, descriptors_max: usize) -> Result<Inodes, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = openat(rustix::fs::CWD, root, flags, Mode::empty())?;
        let id = look(&file)?.id;
        let table = Table {
            known: HashMap::new(),
            numbers: HashMap::from([(id, ROOT)]),
            used: BTreeMap::new(),
            clock: 0,
            next: ROOT + 1,
            descriptors_max,
        };
        let inodes = Inodes(Mutex::new(table));
        let known = Known { id, place: None, file: None, used: 0, told: 1 };
        inodes.table().known.insert(ROOT, known);
        inodes.table().keep(ROOT, Arc::new(file));
        Ok(inodes)
    }

    /// Finds a name in a directory, and tells of the file once more.
    ///
    /// # Errors
    /// Those of open(2); [`check_shown`].
    pub fn look_up(&self, directory: u64, name: &OsStr) -> Result<Entry, Errno> {
        let parent = self.file(directory)?;
        let file = open_name(&parent, name)?;
        let Seen { id, attributes } = look(&file)?;
        let mut table = self.table();
        let beside = table.known.get(&directory).ok_or(Errno::STALE)?.id.device;
        if id.device != beside {
            drop(table);
            check_shown(file.as_fd(), id.device)?;
            table = self.table();
        }
        let file = table.tell(id, (directory, name.to_owned()), Arc::new(file))?;
        Ok(Entry { file, attributes })
    }

    /// A descriptor of a file that was told.
    ///
    /// # Errors
    /// ESTALE if the file is not where it was; those of open(2).
    pub fn file(&self, number: u64) -> Result<Arc<OwnedFd>, Errno> {
        let (mut at, mut missing) = (number, Vec::new());
        let mut table = self.table();
        let mut file = loop {
            let known = table.known.get(&at).ok_or(Errno::STALE)?;
            if let Some(file) = known.file.clone() {
                table.touch(at);
                break file;
            }
            let (directory, name) = known.place.clone().ok_or(Errno::STALE)?;
            if missing.len() > DEPTH_MAX {
                return Err(Errno::STALE);
            }
            missing.push((at, known.id, name));
            at = directory;
        };
        drop(table);
        for (at, id, name) in missing.into_iter().rev() {
            let found = open_name(&file, &name).map_err(|_| Errno::STALE)?;
            if look(&found)?.id != id {
                return Err(Errno::STALE);
            }
            file = Arc::new(found);
            self.table().keep(at, file.clone());
        }
        Ok(file)
    }

    /// The other node does not remember these any more.
    pub fn forget(&self, files: &[(u64, u64)]) {
        let mut table = self.table();
        for (number, times) in files.iter().filter(|(number, _)| *number != ROOT) {
            let Some(known) = table.known.get_mut(number) else { continue };
            known.told = known.told.saturating_sub(*times);
            if known.told == 0 {
                let (id, used) = (known.id, known.used);
                table.known.remove(number);
                table.used.remove(&used);
                // Another may have its place by now, if this one was replaced.
                if table.numbers.get(&id) == Some(number) {
                    table.numbers.remove(&id);
                }
            }
        }
    }

    /// What was at `from` is at `to`.
    pub fn renamed(&self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let Ok(parent) = self.file(to.0) else { return };
        let Ok(seen) = open_name(&parent, to.1).and_then(|file| look(&file)) else { return };
        let mut table = self.table();
        let Some(number) = table.numbers.get(&seen.id).copied() else { return };
        let is_from = |place: &(u64, OsString)| (place.0, place.1.as_os_str()) == from;
        if let Some(known) = table.known.get_mut(&number)
            && known.place.as_ref().is_some_and(is_from)
        {
            known.place = Some((to.0, to.1.to_owned()));
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("nobody panics with it")
    }
}

fn open_name(directory: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

impl Table {
    fn tell(
        &mut self,
        id: FileId,
        place: (u64, OsString),
        file: Arc<OwnedFd>,
    ) -> Result<u64, Errno> {
        if let Some(number) = self.numbers.get(&id).copied()
            && let Some(known) = self.known.get_mut(&number)
        {
            known.told += 1;
            // Its last name may be gone, and this one is there.
            if known.place.is_some() {
                known.place = Some(place);
            }
            self.keep(number, file);
            return Ok(number);
        }
        if self.known.len() >= FILES_MAX {
            return Err(Errno::NFILE);
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(id, number);
        let known = Known { id, place: Some(place), file: None, used: 0, told: 1 };
        self.known.insert(number, known);
        self.keep(number, file);
        Ok(number)
    }

    fn keep(&mut self, number: u64, file: Arc<OwnedFd>) {
        let Some(known) = self.known.get_mut(&number) else { return };
        known.file = Some(file);
        self.touch(number);
        while self.used.len() > self.descriptors_max {
            let Some((_, oldest)) = self.used.pop_first() else { break };
            match self.known.get_mut(&oldest) {
                // There is no name that it would be found by.
                Some(known) if known.place.is_none() => self.touch(oldest),
                Some(known) => known.file = None,
                None => {}
            }
        }
    }

    fn touch(&mut self, number: u64) {
        let Some(known) = self.known.get_mut(&number) else { return };
        self.used.remove(&known.used);
        self.clock += 1;
        known.used = self.clock;
        self.used.insert(self.clock, number);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs;

    fn names(paths: &[&str]) -> Vec<OsString> {
        paths.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_file_keeps_its_number_and_is_found_again_when_its_descriptor_was_closed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        let inodes = Inodes::at(root.to_str().unwrap(), 4).unwrap();
        let [a, b, deep] = &names(&["a", "b", "deep"])[..] else { unreachable!() };
        fs::write(root.join("a/b/deep"), "deep").unwrap();
        let first = inodes.look_up(ROOT, a).unwrap().file;
        let second = inodes.look_up(first, b).unwrap().file;
        let third = inodes.look_up(second, deep).unwrap();
        for number in 0..20 {
            let name = format!("other{number}");
            fs::write(root.join(&name), "").unwrap();
            inodes.look_up(ROOT, OsStr::new(&name)).unwrap();
        }
        assert_eq!(inodes.table().used.len(), 4);
        assert!(inodes.table().known[&third.file].file.is_none());
        let again = look(inodes.file(third.file).unwrap().as_fd()).unwrap();
        assert_eq!(again.attributes, third.attributes);
        assert_eq!(inodes.look_up(second, deep).unwrap().file, third.file);
    }

    #[test]
    fn what_is_not_where_it_was_is_stale_unless_it_was_renamed_here() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let inodes = Inodes::at(root.to_str().unwrap(), 1).unwrap();
        let [one, two, three] = &names(&["one", "two", "three"])[..] else { unreachable!() };
        for name in [one, two] {
            fs::write(root.join(name), "").unwrap();
        }
        let kept = inodes.look_up(ROOT, one).unwrap().file;
        let lost = inodes.look_up(ROOT, two).unwrap().file;
        fs::rename(root.join(one), root.join(three)).unwrap();
        inodes.renamed((ROOT, one), (ROOT, three));
        fs::remove_file(root.join(two)).unwrap();
        fs::write(root.join(two), "another").unwrap();
        assert!(inodes.file(ROOT).is_ok(), "the root has no name to be found by");
        assert!(inodes.file(kept).is_ok());
        assert_eq!(inodes.file(lost).err(), Some(Errno::STALE));
    }

    #[test]
    fn a_file_is_forgotten_when_it_was_forgotten_as_often_as_told() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("it"), "").unwrap();
        let inodes = Inodes::at(directory.path().to_str().unwrap(), 8).unwrap();
        let file = inodes.look_up(ROOT, OsStr::new("it")).unwrap().file;
        inodes.look_up(ROOT, OsStr::new("it")).unwrap();
        inodes.forget(&[(file, 1), (ROOT, u64::MAX), (77, 1)]);
        assert!(inodes.file(file).is_ok() && inodes.file(ROOT).is_ok());
        inodes.forget(&[(file, 5)]);
        assert_eq!(inodes.file(file).err(), Some(Errno::STALE));
        let table = inodes.table();
        assert_eq!((table.known.len(), table.numbers.len(), table.used.len()), (1, 1, 1));
    }
}
