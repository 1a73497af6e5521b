//! Names, as they come from another machine.

use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use wire::files::Name;

/// The name, if it is one of an entry in a directory: the other node's kernel walks paths, and
/// knows what `..` is.
///
/// # Errors
/// EINVAL.
pub fn checked(name: &Name) -> Result<&OsStr, Errno> {
    let is_one =
        !matches!(&name[..], b"" | b"." | b"..") && !name.iter().any(|byte| b"/\0".contains(byte));
    is_one.then(|| OsStr::from_bytes(name)).ok_or(Errno::INVAL)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_name_is_an_entry_of_a_directory_and_no_path() {
        for wrong in [&b""[..], b".", b"..", b"a/b", b"/etc", b"../x", b"a\0b"] {
            assert_eq!(checked(&wrong.to_vec()), Err(Errno::INVAL), "{wrong:?}");
        }
        for right in [&b"a"[..], b"...", b"..a", b"\xff\n", b" "] {
            assert_eq!(checked(&right.to_vec()).map(OsStr::as_bytes), Ok(right));
        }
    }
}
