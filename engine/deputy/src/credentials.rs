//! Calls that set the ids of users and groups. Most change nothing: posix_spawn(3)
//! makes one where it is told to give up rights (POSIX_SPAWN_RESETIDS), as make(1) does for each
//! command, and whoever starts a daemon as himself. Those are made here like any other, and so are
//! those that are going to be refused; the rest comes home, where the process is no tracee and
//! nothing of it is under another user's name.

use crate::exec::is_same_file;
use kernel::proc::process::{status_field, status_of_thread};
use wire::calls::{IdCall, id_call};
use wire::forward::Call;

/// Whether the thread that makes this call could have other ids after it, as far as can be told.
pub fn changes(pid: i32, tid: impl FnOnce() -> i32, call: &Call) -> bool {
    let Some(id_call) = id_call(call.number) else { return false };
    let status = status_of_thread(pid, tid()).unwrap_or_default();
    may_change(&status, (&id_call, &call.arguments), || is_of_our_namespace(pid))
}

/// As [`changes`], for a thread of this status, as `/proc/PID/status` has it.
fn may_change(
    status: &str,
    (call, arguments): (&IdCall, &[u64; 6]),
    is_of_our_namespace: impl FnOnce() -> bool,
) -> bool {
    let (field, capability) = match call.is_of_user {
        true => ("Uid", CAP_SETUID),
        false => ("Gid", CAP_SETGID),
    };
    let ids = status_field(status, field).map(parse).unwrap_or_default();
    let &[id, ..] = ids.as_slice() else { return true };
    // Real, effective, saved and that for files.
    if ids.len() != 4 || ids.iter().any(|other| *other != id) {
        return true;
    }
    // Who has only one id and no right to others is refused, whichever he names.
    let effective = status_field(status, "CapEff").and_then(|it| u64::from_str_radix(it, 16).ok());
    if effective.is_some_and(|set| set & (1 << capability) == 0) {
        return false;
    }
    !names_only(call, arguments, id) || !is_of_our_namespace()
}

/// Bits of capabilities(7).
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;

fn parse(ids: &str) -> Vec<u32> {
    ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Whether a call names no other id than this.
fn names_only(call: &IdCall, arguments: &[u64; 6], id: u32) -> bool {
    let named = arguments.iter().take(call.count).map(|argument| *argument as u32);
    let mut others = named.filter(|named| *named != id);
    // -1 leaves one as it is, where there are several.
    others.all(|named| call.count > 1 && named == u32::MAX)
}

/// Whether ids are to it what they are to us.
fn is_of_our_namespace(pid: i32) -> bool {
    is_same_file("/proc/self/ns/user", &format!("/proc/{pid}/ns/user")) == Some(true)
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::GuestTid;

    fn call(number: i64, arguments: [u64; 3]) -> Call {
        let [first, second, third] = arguments;
        let (tid, number) = (GuestTid(1), number as u32);
        let arguments = [first, second, third, 7, 7, 7];
        Call { tid, sequence: 1, signals_seen: 0, number, arguments, segments: vec![] }
    }

    #[test]
    fn who_has_no_right_to_other_ids_changes_none() {
        let call = IdCall { is_of_user: true, count: 3 };
        let changes = |uids: &str, capabilities: &str| {
            let status = format!("Name:\tit\nUid:\t{uids}\nCapEff:\t{capabilities}\n");
            may_change(&status, (&call, &[5, 5, 5, 0, 0, 0]), || true)
        };
        assert!(!changes("7\t7\t7\t7", "0000000000000000"));
        assert!(!changes("7\t7\t7\t7", "ffffffffffffff7f"), "without CAP_SETUID");
        assert!(changes("7\t7\t7\t7", "0000000000000080"));
        assert!(changes("7\t7\t5\t7", "0000000000000000"), "it may go back to a saved one");
        assert!(changes("7\t7\t7\t7", "what?"), "who cannot be read may have it");
    }

    #[test]
    fn calls_that_leave_all_ids_as_they_are_change_nothing() {
        let (pid, tid) = (std::process::id() as i32, nix::unistd::gettid().as_raw());
        let user = u64::from(nix::unistd::getuid().as_raw());
        let group = u64::from(nix::unistd::getgid().as_raw());
        // In both forms that a C library may give -1.
        for same in [u64::MAX, u64::from(u32::MAX)] {
            for (number, arguments, does) in [
                (libc::SYS_setresuid, [same, user, same], false),
                (libc::SYS_setresuid, [user, user, user], false),
                (libc::SYS_setresuid, [same, same, user + 1], true),
                (libc::SYS_setreuid, [same, user, 12345], false),
                (libc::SYS_setreuid, [user + 1, user, 0], true),
                (libc::SYS_setuid, [user, 12345, 12345], false),
                (libc::SYS_setuid, [same, 0, 0], true),
                (libc::SYS_setresgid, [same, group, same], false),
                (libc::SYS_setresgid, [same, group + 1, same], true),
                (libc::SYS_setregid, [group, same, 12345], false),
                (libc::SYS_setgid, [group, 0, 0], false),
                (libc::SYS_setgid, [group + 1, 0, 0], true),
                (libc::SYS_getppid, [9, 9, 9], false),
            ] {
                assert_eq!(changes(pid, || tid, &call(number, arguments)), does, "{arguments:?}");
            }
        }
        assert!(changes(pid, || 0, &call(libc::SYS_setuid, [user, 0, 0])), "who cannot be seen");
    }
}
