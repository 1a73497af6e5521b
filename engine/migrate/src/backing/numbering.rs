//! The numbers of files in a list that has been sent. The body of a process that was made away has
//! the list of its maker, so home has to number its files likewise. It need not have mapped all of
//! them: its maker left while it ran, and may have unmapped some between the list and its freeze;
//! or home may have laid out mappings for a homecoming that was called off.

use super::{Entry, Library};
use crate::Result;
use kernel::KernelError;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use wire::image::Backing;

impl Library {
    /// Device and inode of each as `/proc/PID/maps` has them on this machine.
    pub fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().map(|entry| (entry.device, entry.inode))
    }

    /// Gives each file the number of its place, which is device and inode, in `list`. What is there
    /// and is not mapped keeps its number free; what is mapped and is not there has none any more.
    ///
    /// # Errors
    /// The kernel does not open `/dev/null`.
    pub fn arrange(&mut self, list: &[(u64, u64)]) -> Result<()> {
        let place = |entry: Entry| ((entry.device, entry.inode), entry);
        let mut mapped: HashMap<(u64, u64), Entry> = self.entries.drain(..).map(place).collect();
        for place in list {
            let entry = mapped.remove(place).map_or_else(Entry::of_nothing, Ok)?;
            self.entries.push(entry);
        }
        Ok(())
    }
}

impl Entry {
    /// One that nobody has mapped.
    fn of_nothing() -> Result<Entry> {
        let file = File::open("/dev/null")
            .map_err(|source| KernelError { what: "open /dev/null".into(), source })?;
        let backing = Backing { path: vec![], size: 0, hash: [0; 32] };
        Ok(Entry { backing, file: Arc::new(file), device: u64::MAX, inode: u64::MAX })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn files_have_the_numbers_of_the_list() {
        let entry = |inode| Entry { device: 1, inode, ..Entry::of_nothing().unwrap() };
        let entries = [5, 6, 9].map(entry).into();
        let mut library = Library { entries, ..Library::default() };
        library.arrange(&[(1, 7), (1, 6), (2, 5), (1, 5)]).unwrap();
        let nobody = (u64::MAX, u64::MAX);
        assert!(library.places().eq([nobody, (1, 6), nobody, (1, 5)]));
    }
}
