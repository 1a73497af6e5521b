//! Files of a list that are mapped no more. A process leaves while it runs, and may unmap some
//! between the list and its freeze: who is made by it later has none of these at home, but its body
//! has the list of its maker, with the same numbers.

use super::{Entry, Library};
use crate::{MigrateError, Result};
use kernel::KernelError;
use std::fs::File;
use std::sync::Arc;
use wire::image::Backing;

impl Library {
    /// Leaves these numbers to files that are not mapped here, so that all others have those that
    /// they have in another list.
    ///
    /// # Errors
    /// There are fewer files than that.
    pub fn leave_out(&mut self, numbers: &[u32]) -> Result<()> {
        for number in numbers.iter().map(|number| *number as usize) {
            if number > self.entries.len() {
                return Err(MigrateError::Protocol(format!("no file has the number {number}")));
            }
            self.entries.insert(number, Entry::of_nothing()?);
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
    fn what_is_left_out_has_numbers_that_no_mapping_has() {
        let entry = |inode| Entry { device: 1, inode, ..Entry::of_nothing().unwrap() };
        let entries = [5, 6].map(entry).into();
        let mut library = Library { entries, ..Library::default() };
        library.leave_out(&[0, 2, 4]).unwrap();
        let inodes: Vec<u64> = library.mapped_names().iter().map(|name| name.inode).collect();
        assert_eq!(inodes, [u64::MAX, 5, u64::MAX, 6, u64::MAX]);
        assert!(library.leave_out(&[6]).is_err(), "there are five");
    }
}
