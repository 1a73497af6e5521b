//! A file that is always whole: node_exporter's collector of text files may look at any moment.

use anyhow::{Context, Result};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The exporter is another user.
const MODE: u32 = 0o644;

/// Puts the text in the place of what is at `path`, by a rename in its directory.
///
/// # Errors
/// If nothing can be written there; then what was there is as before.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let told = || format!("cannot write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // The collector reads files that end in `.prom`; this one does not, until it is renamed.
    let mut file = tempfile::Builder::new()
        .prefix(".osmos-metrics-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(directory)
        .with_context(told)?;
    file.write_all(text.as_bytes()).with_context(told)?;
    // Whatever the umask is of whom a timer runs this as.
    file.as_file().set_permissions(Permissions::from_mode(MODE)).with_context(told)?;
    file.persist(path).with_context(told)?;
    Ok(())
}
