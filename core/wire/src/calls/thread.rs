//! Calls that make a thread or a process: which do, and how they travel.
//!
//! A thread is made by clone(2) with one set of flags (glibc, musl and Go agree on it), a process
//! by fork(2) or by clone with hardly any, and clone3(2) says the same in memory. vfork(2), and
//! what posix_spawn(3) is made of, is clone with two more. Go asks for a descriptor of the process
//! besides, which home opens. What travels is always clone, whose arguments are numbers: memory can
//! be changed by another thread of the guest between a check and its use.

use super::Arguments;

/// What threads share, in all C libraries and runtimes.
pub const SHARED_FLAGS: u64 = VM | FS | FILES | SIGHAND | THREAD | SYSVSEM;
/// What else they may be given: a thread pointer, and places where their id is written or cleared.
const GIVEN_FLAGS: u64 = SETTLS | PARENT_SETTID | CHILD_SETTID | CHILD_CLEARTID;

/// What a new process may be told: where its id is written or cleared.
const PROCESS_FLAGS: u64 = PARENT_SETTID | CHILD_SETTID | CHILD_CLEARTID;
/// A process that has its maker's memory, and whose maker stands still until it has begun another
/// program or ended.
pub const VFORK_FLAGS: u64 = VM | VFORK;

/// Number of the call that travels.
pub const CLONE: u32 = 56;
/// Says the same as clone with [`SIGCHLD`] alone.
pub const FORK: u32 = 57;
/// Says the same as clone with [`VFORK_FLAGS`] and [`SIGCHLD`].
pub const VFORK_CALL: u32 = 58;

/// Size of the first version of `struct clone_args`, bytes.
pub const ARGS_BYTES_MIN: u64 = 64;
/// Size of what Linux 6.18 knows of it, bytes.
pub const ARGS_BYTES_MAX: u64 = 88;

// CLONE_* of include/uapi/linux/sched.h. Linux ignores the detached one.
const VM: u64 = 0x100;
const FS: u64 = 0x200;
const FILES: u64 = 0x400;
const SIGHAND: u64 = 0x800;
const PIDFD: u64 = 0x1000;
const VFORK: u64 = 0x4000;
const THREAD: u64 = 0x10000;
const SYSVSEM: u64 = 0x40000;
const SETTLS: u64 = 0x80000;
const PARENT_SETTID: u64 = 0x100000;
const CHILD_CLEARTID: u64 = 0x200000;
const DETACHED: u64 = 0x400000;
const CHILD_SETTID: u64 = 0x1000000;
/// Of clone3 only: posix_spawn(3) of glibc 2.38.
const CLEAR_SIGHAND: u64 = 1 << 32;
/// The signal at the end of a process, in the lowest byte of the flags.
pub const SIGCHLD: u64 = 17;

/// Whether clone with these flags makes a thread like that of every C library.
pub fn is_thread(flags: u64) -> bool {
    let rest = flags & !(GIVEN_FLAGS | DETACHED);
    rest == SHARED_FLAGS
}

/// Whether clone with these arguments makes a process as fork(2) or vfork(2) does, whose parent
/// hears of its end by SIGCHLD.
pub fn is_process(arguments: &Arguments) -> bool {
    let [flags, stack, ..] = *arguments;
    // The place of the descriptor would be that of the id.
    let has_one_place = flags & PIDFD == 0 || flags & PARENT_SETTID == 0;
    let is_fork = flags & !PROCESS_FLAGS & !PIDFD == SIGCHLD && stack == 0;
    is_vfork(flags) || is_fork && has_one_place
}

/// Whether clone with these flags makes a process as vfork(2) does, perhaps on a stack of its own
/// and with no handlers.
pub fn is_vfork(flags: u64) -> bool {
    flags & !CLEAR_SIGHAND & !PIDFD == VFORK_FLAGS | SIGCHLD
}

/// Whether clone with these flags opens a descriptor of the process that it makes, whose number is
/// written to where the third argument says: four bytes.
pub fn opens_descriptor(flags: u64) -> bool {
    flags & PIDFD != 0
}

/// The flags of clone that make the body's half of a process: its maker is not made to wait for it,
/// and home has its descriptor.
pub fn of_body(flags: u64) -> u64 {
    flags & !VFORK & !PIDFD
}

/// The arguments of clone that make home's half, with a descriptor if it is to have one: the number
/// goes to `place`.
pub fn at_home(flags: u64, place: u64) -> Arguments {
    match opens_descriptor(flags) {
        true => [SIGCHLD | PIDFD, 0, place, 0, 0, 0],
        false => [SIGCHLD, 0, 0, 0, 0, 0],
    }
}

/// Whether a process begins with the default in the place of each handler of its maker.
pub fn clears_handlers(flags: u64) -> bool {
    flags & CLEAR_SIGHAND != 0
}

/// The arguments of clone(2), of whose flags the kernel takes the lower half.
pub fn of_clone([flags, stack, parent_tid, child_tid, tls, _]: Arguments) -> Arguments {
    [flags & u64::from(u32::MAX), stack, parent_tid, child_tid, tls, 0]
}

/// Whether clone with these arguments makes a thread or a process that can be made away.
pub fn is_task(arguments: &Arguments) -> bool {
    is_thread(arguments[0]) || is_process(arguments)
}

/// Whether the thread gets a thread pointer.
pub fn has_thread_pointer(flags: u64) -> bool {
    flags & SETTLS != 0
}

/// The arguments of clone that make the same thread or process as clone3 with this `struct
/// clone_args`. None if it makes something else, or nothing.
pub fn of_clone3(args: &[u8]) -> Option<Arguments> {
    let word = |index: usize| {
        let bytes = args.get(index * 8..index * 8 + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    if !args.len().is_multiple_of(8) || (args.len() as u64) < ARGS_BYTES_MIN {
        return None;
    }
    let [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, tls] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|index| word(index).unwrap_or(0));
    // The chosen ids and the cgroup.
    let has_more = (8..args.len() / 8).any(|index| word(index) != Some(0));
    // The lowest byte is a signal in clone, and flags of its own in clone3.
    if has_more || flags & 0xff != 0 {
        return None;
    }
    if is_thread(flags) && exit_signal == 0 && stack != 0 && stack_bytes != 0 {
        let top = stack.checked_add(stack_bytes)?;
        return Some([flags, top, parent_tid, child_tid, tls, 0]);
    }
    // On a stack of its own it is made by vfork, or not here.
    let top = stack.checked_add(stack_bytes)?;
    let place = if opens_descriptor(flags) { pidfd } else { parent_tid };
    let process = [flags | exit_signal, top, place, child_tid, 0, 0];
    let has_stack = (stack == 0) == (stack_bytes == 0);
    (is_process(&process) && exit_signal == SIGCHLD && has_stack).then_some(process)
}

#[cfg(test)]
mod test {
    use super::*;

    /// As glibc 2.36 and later say it.
    const GLIBC: u64 = SHARED_FLAGS | GIVEN_FLAGS & !CHILD_SETTID;

    fn args(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn threads_of_all_runtimes_are_threads_and_nothing_else_is() {
        // glibc; musl; Go, which gives no ids.
        for flags in [GLIBC, GLIBC | DETACHED, SHARED_FLAGS] {
            assert!(is_thread(flags), "{flags:#x}");
        }
        // fork, vfork, one that hides from its tracer, one with a namespace, a thread with a
        // signal at its end, and one that does not share System V semaphores' undoing.
        let others = [SIGCHLD, VM | 0x4000 | SIGCHLD, GLIBC | 0x80_0000, GLIBC | 0x2_0000];
        for flags in others.into_iter().chain([0, GLIBC | SIGCHLD, GLIBC & !SYSVSEM]) {
            assert!(!is_thread(flags), "{flags:#x}");
        }
    }

    #[test]
    fn processes_of_all_c_libraries_are_processes_and_nothing_else_is() {
        // glibc; musl and fork(2).
        let glibc = CHILD_SETTID | CHILD_CLEARTID | SIGCHLD;
        for flags in [glibc, SIGCHLD] {
            assert!(is_process(&[flags, 0, 0, 0x10, 0, 0]), "{flags:#x}");
            assert!(is_task(&[flags, 0, 0, 0x10, 0, 0]), "{flags:#x}");
        }
        // One that shares memory and does not wait, a thread, one whose end nobody hears of, one
        // with a namespace, a vfork that shares files as well.
        let vfork = VFORK_FLAGS | SIGCHLD;
        let others = [GLIBC, 0, CHILD_SETTID, SIGCHLD | 0x2000_0000, vfork | FILES];
        for flags in others.into_iter().chain([VM | SIGCHLD, VFORK | SIGCHLD, VFORK_FLAGS]) {
            assert!(!is_process(&[flags, 0, 0, 0, 0, 0]), "{flags:#x}");
        }
        assert!(!is_process(&[SIGCHLD, 0x7000, 0, 0, 0, 0]), "on a stack of its own");
    }

    #[test]
    fn a_process_may_come_with_a_descriptor_but_not_with_two_words_at_one_place() {
        for flags in [VFORK_FLAGS | SIGCHLD | PIDFD, SIGCHLD | PIDFD | CHILD_CLEARTID] {
            assert!(
                is_process(&[flags, 0, 0x40, 0, 0, 0]) && opens_descriptor(flags),
                "{flags:#x}"
            );
            assert!(!opens_descriptor(of_body(flags)));
        }
        assert!(!is_process(&[SIGCHLD | PIDFD | PARENT_SETTID, 0, 0x40, 0, 0, 0]));
        // Flags, descriptor, child's id, parent's id, signal, stack and its size, thread pointer.
        let words = |flags| args(&[flags, 0x40, 0, 0x80, SIGCHLD, 0, 0, 0]);
        assert_eq!(of_clone3(&words(PIDFD)), Some([PIDFD | SIGCHLD, 0, 0x40, 0, 0, 0]));
        assert_eq!(of_clone3(&words(PARENT_SETTID)).map(|travels| travels[2]), Some(0x80));
        assert_eq!(of_clone3(&words(PIDFD | PARENT_SETTID)), None);
        assert_eq!(at_home(SIGCHLD, 0x99)[2], 0);
        assert_eq!(at_home(VFORK_FLAGS | PIDFD | SIGCHLD, 0x99)[..3], [SIGCHLD | PIDFD, 0, 0x99]);
    }

    #[test]
    fn vfork_is_one_of_them_and_may_have_a_stack_of_its_own() {
        let flags = VFORK_FLAGS | SIGCHLD;
        for stack in [0, 0x8000] {
            assert!(is_process(&[flags, stack, 0, 0, 0, 0]), "{stack:#x}");
        }
        assert!(is_vfork(flags) && !is_vfork(SIGCHLD) && !is_vfork(GLIBC));
        assert!(!clears_handlers(flags));
        let cleared = [VFORK_FLAGS | CLEAR_SIGHAND, 0, 0, 0, SIGCHLD, 0x7000, 0x1000, 0, 0, 0, 0];
        let travels = of_clone3(&args(&cleared)).unwrap();
        assert!(is_process(&travels) && is_vfork(travels[0]) && clears_handlers(travels[0]));
        // The older call has no such flag.
        assert_eq!(of_clone(travels)[0], flags);
        let spawn = [VFORK_FLAGS, 0, 0, 0, SIGCHLD, 0x7000, 0x1000, 0, 0, 0, 0];
        assert_eq!(of_clone3(&args(&spawn)), Some([flags, 0x8000, 0, 0, 0, 0]));
        for (index, value) in [(0, VM), (4, 0), (5, 0), (6, 0), (6, u64::MAX), (8, 1)] {
            let mut words = spawn;
            words[index] = value;
            assert_eq!(of_clone3(&args(&words)), None, "word {index}");
        }
    }

    #[test]
    fn clone3_of_a_process_becomes_clone_with_its_signal() {
        let good = [CHILD_SETTID, 0, 0x10, 0x20, SIGCHLD, 0, 0, 0, 0, 0, 0];
        let expected = Some([CHILD_SETTID | SIGCHLD, 0, 0x20, 0x10, 0, 0]);
        assert_eq!(of_clone3(&args(&good)), expected);
        for (index, value) in [(0, SIGCHLD), (4, 0), (4, 0x100), (5, 1), (6, 1), (8, 1)] {
            let mut words = good;
            words[index] = value;
            assert_eq!(of_clone3(&args(&words)), None, "word {index}");
        }
    }

    #[test]
    fn clone3_becomes_clone_with_the_end_of_its_stack() {
        let words = [GLIBC, 0, 0x10, 0x20, 0, 0x7000, 0x1000, 0x30, 0, 0, 0];
        let expected = Some([GLIBC, 0x8000, 0x20, 0x10, 0x30, 0]);
        assert_eq!(of_clone3(&args(&words)), expected);
        assert_eq!(of_clone3(&args(&words[..8])), expected);
    }

    #[test]
    fn clone3_of_more_than_a_thread_is_left_to_home() {
        let good = [GLIBC, 0, 0x10, 0x20, 0, 0x7000, 0x1000, 0x30, 0, 0, 0];
        // Exit signal, stack, its size, chosen ids, their number, cgroup.
        for (index, value) in [(4, 17), (5, 0), (6, 0), (8, 1), (9, 1), (10, 3), (6, u64::MAX)] {
            let mut words = good;
            words[index] = value;
            assert_eq!(of_clone3(&args(&words)), None, "word {index}");
        }
        assert_eq!(of_clone3(&args(&good)[..56]), None);
        assert_eq!(of_clone3(&[]), None);
    }
}
