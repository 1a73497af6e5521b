//! Programs that give a process rights which it does not have (execve(2)), and who may watch that:
//! the kernel gives none to a process whose tracer could not trace it afterwards.

use crate::proc::process;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

const CAP_SYS_PTRACE: u64 = 1 << 19;
const SET_ID: u32 = 0o6000;

/// Whether a process that the calling thread traces may get any rights.
pub fn may_watch_privileged() -> bool {
    let status =
        process::status_of_thread(std::process::id() as i32, nix::unistd::gettid().as_raw());
    let effective = status
        .ok()
        .and_then(|status| u64::from_str_radix(process::status_field(&status, "CapEff")?, 16).ok());
    effective.is_some_and(|bits| bits & CAP_SYS_PTRACE != 0)
}

/// Whether a program gives rights: by a set-id bit or capabilities of its file.
pub fn gives_rights(file: &File) -> bool {
    let has_bit = file.metadata().map_or(true, |is| is.permissions().mode() & SET_ID != 0);
    let name = c"security.capability";
    // SAFETY: a string with its zero, and no buffer: only the length is asked for.
    let length =
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), std::ptr::null_mut(), 0) };
    has_bit || length > 0
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn programs_with_a_set_id_bit_give_rights_and_others_do_not() {
        let path = std::env::temp_dir().join(format!("osmos-program-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        for (mode, gives) in [(0o755, false), (0o4755, true), (0o2755, true), (0o1755, false)] {
            file.set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(gives_rights(&file), gives, "{mode:o}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
