//! Which calls give a descriptor another meaning, or what it stands for another name: whoever
//! knows a file of the guest's by its only descriptor knows it no more.

use crate::state::Shared;
use kernel::seccomp::Notification;
use wire::calls::thread;

/// Descriptors that do not name what they named any more, or not alone.
pub enum Lost {
    These([i32; 2]),
    All,
}

impl Lost {
    /// Those that a call may have such an effect on.
    pub fn by(shared: &Shared, n: &Notification) -> Option<Lost> {
        let [first, second, ..] = n.arguments;
        let of_guest = |at: u64| {
            let mut word = [0; 8];
            let is_read = shared.memory.read_as_guest(at, &mut word) == word.len();
            is_read.then(|| u64::from_le_bytes(word))
        };
        Some(match i64::from(n.number) {
            libc::SYS_close | libc::SYS_dup => Lost::These([first as i32; 2]),
            libc::SYS_dup2 | libc::SYS_dup3 => Lost::These([first as i32, second as i32]),
            libc::SYS_fcntl => match second as i32 {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => Lost::These([first as i32; 2]),
                _ => return None,
            },
            // What goes along with a message may be descriptors.
            libc::SYS_sendmsg if of_guest(second.wrapping_add(CONTROL_LENGTH)) == Some(0) => {
                return None;
            }
            libc::SYS_clone if thread::is_thread(first) => return None,
            libc::SYS_clone3 if of_guest(first).is_some_and(thread::is_thread) => return None,
            libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_close_range
            | libc::SYS_unshare
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_execve
            | libc::SYS_execveat => Lost::All,
            _ => return None,
        })
    }

    pub fn has(&self, descriptor: i32) -> bool {
        match self {
            Lost::These(numbers) => numbers.contains(&descriptor),
            Lost::All => true,
        }
    }
}

/// Place of `msg_controllen` in a `struct msghdr`.
const CONTROL_LENGTH: u64 = 40;
