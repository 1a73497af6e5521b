//! What a process has mapped shared: files that it alone writes to, and memory of a group.

use super::Library;
use crate::shared_holes::MemoryFiles;
use kernel::proc::maps::Mapping;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use wire::image::SharedPlace;

/// Memory that bodies of one sandbox share: device and inode at home, and the memory here.
pub type Commons = HashMap<(u64, u64), File>;

/// A file that is mapped shared and writable, or memory that stands for a part of it; or shared
/// memory that home knows.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub is_file: bool,
    /// As `/proc/PID/maps` names it here: device and inode.
    pub here: (u64, u64),
    pub at_home: (u64, u64),
    /// What is to be added to an offset here.
    pub ahead: u64,
}

impl Library {
    /// Notes shared memory of a process at its home, by which others can know it.
    pub fn name_shared(&mut self, mapping: &Mapping) {
        let here = (mapping.device, mapping.inode);
        if self.named(mapping).is_none() {
            self.shared.push(Shared { is_file: false, here, at_home: here, ahead: 0 });
        }
    }

    /// Notes what home calls shared memory of a body.
    pub fn learn_name(&mut self, mapping: &Mapping, home: SharedPlace) {
        let here = (mapping.device, mapping.inode);
        let at_home = (home.device, home.inode);
        let ahead = home.offset.wrapping_sub(mapping.offset);
        self.shared.push(Shared { is_file: false, here, at_home, ahead });
    }

    pub(super) fn named(&self, mapping: &Mapping) -> Option<&Shared> {
        let here = (mapping.device, mapping.inode);
        self.shared.iter().find(|shared| shared.here == here && mapping.is_shared)
    }

    /// Shared memory is that from now on which others have as well.
    pub fn share(&mut self, commons: Arc<Commons>) {
        self.commons = commons;
    }

    /// What others have as well of it, open once more.
    pub fn memory_files(&self) -> MemoryFiles {
        MemoryFiles::of(self.commons.values().filter_map(|file| file.try_clone().ok()))
    }

    /// What has to be mapped for shared memory that home calls so; None if it is nobody else's.
    pub fn common(&self, place: &SharedPlace) -> Option<&File> {
        self.commons.get(&(place.device, place.inode))
    }
}

impl Shared {
    /// As home calls the place where a mapping of it begins.
    pub fn place(&self, mapping: &Mapping) -> SharedPlace {
        let (device, inode) = self.at_home;
        SharedPlace { device, inode, offset: mapping.offset.wrapping_add(self.ahead) }
    }
}
