//! A recording of all that the brain is told, for `osmos sim --replay`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes frames to a file. It serves the search for faults: one of its own must not stop a node,
/// so the first error ends the recording and is logged.
pub struct Recorder {
    path: PathBuf,
    file: Option<File>,
}

impl Recorder {
    /// Only its owner may read it: it names processes and nodes.
    pub fn append_to(path: &Path) -> Option<Recorder> {
        let options = &mut OpenOptions::new();
        match options.append(true).create(true).mode(0o600).open(path) {
            Ok(file) => Some(Recorder { path: path.to_owned(), file: Some(file) }),
            Err(error) => {
                tracing::error!("cannot record to {}: {error}", path.display());
                None
            }
        }
    }

    pub fn write(&mut self, frame: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(frame) {
            tracing::error!("the recording {} ends here: {error}", self.path.display());
            self.file = None;
        }
    }
}
