//! What keeps a process at home, found out before anything is touched.
//!
//! Kernel objects that stay with the deputy (files, sockets, terminals, locks, timers) never
//! refuse: that is the point of the home model. What refuses is what ties the kernel to the
//! process's
//! *memory*, or to the thread that is on the processor.

use crate::group::Bonds;
use crate::{MigrateError, Result, attributes, files, injection, layout, mapping_flags, sharing};
use kernel::KernelError;
use kernel::memory::Memory;
use kernel::proc::maps::Mapping;
use kernel::proc::process::{self, ThreadStatus};
use std::os::unix::ffi::OsStrExt;
use wire::limits::{MAPPINGS_MAX, THREADS_MAX};

/// Checks the process `pid`, whose mappings are `maps`, while it runs. One that `is_mobile` may
/// have one seccomp filter: ours. It may share memory with those it is bound to.
///
/// # Errors
/// Refused, with the object and its number.
pub fn check(pid: i32, maps: &[Mapping], (is_mobile, bonds): (bool, &Bonds)) -> Result<()> {
    let tids = process::threads(pid)?.into_iter();
    // One that has ended meanwhile has nothing.
    let status = |tid| Some((tid, process::thread_status(pid, tid).ok()?));
    check_frozen(pid, maps, tids.filter_map(status), (is_mobile, bonds))?;
    check_policy(pid)?;
    check_birth(pid, maps)?;
    sharing::check_patiently(pid, maps, bonds)
}

/// The same when all its threads are stopped, but for who shares its memory
/// ([`sharing::check_meanwhile`]): what was not there before may be there now.
///
/// # Errors
/// As [`check`]; then it has to be put back.
pub fn check_frozen(
    pid: i32,
    maps: &[Mapping],
    statuses: impl IntoIterator<Item = (i32, ThreadStatus)>,
    (is_mobile, bonds): (bool, &Bonds),
) -> Result<()> {
    check_status(pid, is_mobile)?;
    let threads = process::threads(pid)?;
    check_size(threads.len(), maps.len())?;
    check_policies(&threads)?;
    let mut statuses = statuses.into_iter();
    statuses.try_for_each(|(tid, status)| attributes::check(tid, &status))?;
    check_descriptors(pid, &threads)?;
    for mapping in maps {
        check_mapping(pid, mapping, bonds)?;
    }
    files::check(pid, maps, bonds)?;
    layout::check_aliases(maps, &|m| bonds.has(m))?;
    check_timers(pid)
}

/// The memory of a process that is to move.
///
/// # Errors
/// It has ended, or is refused for now because it is just beginning another program.
pub fn open_memory(pid: i32) -> Result<Memory> {
    Memory::open(pid).map_err(why_not_opened)
}

/// Between the new memory of execve(2) and the word that others may see it (`begin_new_exec` in
/// Linux) only the administrator may: that is over in an instant.
fn why_not_opened(error: KernelError) -> MigrateError {
    match error.source.raw_os_error() {
        Some(libc::EACCES) => {
            MigrateError::refused("changed", "it has just begun another program; try again")
        }
        Some(libc::ENOENT) => MigrateError::refused("ended", "it has ended"),
        _ => error.into(),
    }
}

fn check_status(pid: i32, is_mobile: bool) -> Result<()> {
    let status = process::status(pid)?;
    let field = |name| process::status_field(&status, name).unwrap_or("");
    check_filters(field("Seccomp"), field("Seccomp_filters"), is_mobile)?;
    if field("NSpid").split_whitespace().last() == Some("1") {
        let text = "it is the first process of its PID namespace";
        return Err(MigrateError::refused("namespace-init", text));
    }
    match field("State").chars().next() {
        Some('Z') if process::threads(pid)?.len() > 1 => {
            let text = "its first thread has ended, and others go on";
            Err(MigrateError::refused("leader-ended", text))
        }
        Some('Z' | 'X') => Err(MigrateError::refused("ended", "it has ended")),
        Some('T') => Err(MigrateError::refused("stopped", "it is stopped; continue it first")),
        _ => Ok(()),
    }
}

/// Filters of a program would hold for its deputy, and not for its body. That of `osmos run
/// --mobile` holds for both; it cannot be taken away, so that it is the one if there is one.
fn check_filters(mode: &str, count: &str, is_mobile: bool) -> Result<()> {
    match (mode, count) {
        ("0" | "", _) => Ok(()),
        ("2", "1") if is_mobile => Ok(()),
        _ => Err(MigrateError::refused("seccomp", "it runs under a seccomp filter of its own")),
    }
}

fn check_size(threads: usize, mappings: usize) -> Result<()> {
    if threads > THREADS_MAX {
        let text = format!("it has {threads} threads, at most {THREADS_MAX} can move");
        return Err(MigrateError::refused("threads", text));
    }
    if mappings > MAPPINGS_MAX {
        let text = format!("it has {mappings} memory mappings, at most {MAPPINGS_MAX} can move");
        return Err(MigrateError::refused("mappings", text));
    }
    Ok(())
}

/// What a process has that was made away is where its maker was then, until a supervisor of its own
/// has taken it over: what is here must not run.
fn check_birth(pid: i32, maps: &[Mapping]) -> Result<()> {
    match injection::has_agent(pid, maps)? {
        true => Err(MigrateError::refused("unborn", "it was made away, and is not served yet")),
        false => Ok(()),
    }
}

fn check_policies(threads: &[i32]) -> Result<()> {
    for tid in threads {
        // One that has ended meanwhile needs none.
        if kernel::tracee::policy(*tid).is_ok_and(kernel::tracee::is_real_time) {
            let text = format!(
                "its thread {tid} has a real-time policy, which no other node gives it (see \
                 chrt(1))"
            );
            return Err(MigrateError::refused("real-time", text));
        }
    }
    Ok(())
}

/// Descriptors that let the kernel, or another process, reach into the process's memory.
const MEMORY_BOUND: &[(&str, &str, &str)] = &[
    ("anon_inode:[io_uring]", "io-uring", "an io_uring"),
    ("anon_inode:[userfaultfd]", "userfaultfd", "a userfaultfd"),
    ("anon_inode:[perf_event]", "perf-event", "a perf_event"),
    ("anon_inode:[aio]", "aio", "an aio context"),
    ("anon_inode:kvm", "kvm", "a virtual machine"),
];

fn check_descriptors(pid: i32, threads: &[i32]) -> Result<()> {
    let own = own_numbers(pid, threads)?;
    let open = process::descriptors(pid)?
        .into_iter()
        .map(|(number, target)| (format!("open (fd {number})"), target));
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd"));
    let used = directory.into_iter().map(|target| ("as its working directory".into(), target));
    for (how, target) in open.chain(used) {
        if wire::calls::tells_of_body(target.as_os_str().as_bytes(), &own) {
            let text = format!(
                "it has {} {how}, which shows the process's memory or state, and would show those \
                 of what stays here",
                target.display()
            );
            return Err(MigrateError::refused("proc-self", text));
        }
        let target = target.to_string_lossy();
        for (prefix, code, name) in MEMORY_BOUND {
            if target.starts_with(prefix) {
                let text = format!("it has {name} {how}");
                return Err(MigrateError::refused(code, text));
            }
        }
    }
    Ok(())
}

/// The numbers under which a process and its threads are known, here and in its own namespace.
///
/// # Errors
/// If the process has ended.
pub fn own_numbers(pid: i32, threads: &[i32]) -> Result<Vec<i32>> {
    let status = process::status(pid)?;
    let named = process::status_field(&status, "NSpid").unwrap_or("");
    let inner = named.split_whitespace().filter_map(|number| number.parse().ok());
    Ok(inner.chain(threads.iter().copied()).chain([pid]).collect())
}

/// A program that says on which memory of its machine what is to lie means that machine.
fn check_policy(pid: i32) -> Result<()> {
    // A kernel without NUMA has no such file.
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")) else { return Ok(()) };
    let policy = |line: &str| Some(line.split(' ').nth(1)?.to_owned());
    match text.lines().filter_map(policy).find(|policy| policy != "default") {
        Some(policy) => {
            let text = format!("it has a memory policy ({policy}; see numactl(8), mbind(2))");
            Err(MigrateError::refused("memory-policy", text))
        }
        None => Ok(()),
    }
}

fn check_mapping(pid: i32, mapping: &Mapping, bonds: &Bonds) -> Result<()> {
    mapping_flags::check(mapping)?;
    let name = String::from_utf8_lossy(&mapping.name);
    let at = mapping.start;
    let is_memory = layout::is_shared_anonymous(mapping) || layout::is_private_zero(mapping);
    if name.starts_with("/dev/") && !is_memory {
        let is_file = name.starts_with("/dev/shm/");
        if !is_file {
            let text = format!("it maps the device {name} at {at:#x}");
            return Err(MigrateError::refused("device-memory", text));
        }
    }
    if name.starts_with("/anon_hugepage") {
        let text = format!("it uses huge pages of the hugetlb pool at {at:#x}");
        return Err(MigrateError::refused("hugetlb", text));
    }
    if name.starts_with("/[aio]") || name.starts_with("anon_inode:") {
        let text = format!("it shares {name} with the kernel at {at:#x}");
        return Err(MigrateError::refused("kernel-memory", text));
    }
    if !mapping.is_shared {
        return Ok(());
    }
    if layout::is_system_v(mapping) && !bonds.is_named(mapping) {
        let text = format!("it has got System V shared memory at {at:#x} just now; try again");
        return Err(MigrateError::refused("changed", text));
    }
    if bonds.is_named(mapping) && !files::may_write_to(pid, mapping) {
        let text = format!(
            "it has shared memory ({name}) at {at:#x} that it may only read, which cannot be \
             brought home by it"
        );
        return Err(MigrateError::refused("read-only-memory", text));
    }
    Ok(())
}

/// POSIX timers on CPU-time clocks count what the process uses here, which is nothing once it is
/// away.
fn check_timers(pid: i32) -> Result<()> {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/timers")) else { return Ok(()) };
    for line in text.lines() {
        let Some(clock) = line.strip_prefix("ClockID:") else { continue };
        if !matches!(clock.trim(), "0" | "1" | "7" | "8" | "9" | "11") {
            let text = format!("it has a timer on CPU-time clock {}", clock.trim());
            return Err(MigrateError::refused("cpu-timer", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn plain_process_may_move() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let maps = kernel::proc::maps::read(pid).unwrap();
        let verdict = check(pid, &maps, (false, &Bonds::default()));
        drop(child.stdin.take());
        child.wait().unwrap();
        verdict.unwrap();
    }

    #[test]
    fn memory_that_others_may_not_see_yet_is_asked_for_again() {
        let failed = |number| KernelError {
            what: "open /proc/7/mem".into(),
            source: std::io::Error::from_raw_os_error(number),
        };
        let code = |number| why_not_opened(failed(number)).reason().code;
        assert_eq!(code(libc::EACCES), "changed");
        assert_eq!(code(libc::ESRCH), "ended");
        assert_eq!(code(libc::ENOENT), "ended");
        assert_eq!(code(libc::EMFILE), "kernel");
    }

    #[test]
    fn what_was_made_away_stays_until_it_is_served() {
        use kernel::tracee::{self, Stop};
        let mut command = std::process::Command::new("cat");
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        tracee::seize(pid, crate::freeze::HELD).unwrap();
        tracee::interrupt(pid).unwrap();
        while tracee::wait(pid).unwrap() != Stop::Interrupted {
            // The program itself begins, perhaps.
            tracee::resume_interrupted(pid, 0).unwrap();
        }
        let maps = kernel::proc::maps::read(pid).unwrap();
        let memory = Memory::open(pid).unwrap();
        let borrowed = injection::borrow(&memory, &maps).unwrap();
        let place = injection::place(&maps, 1).unwrap();
        injection::inject(pid, pid, borrowed, &maps, (&place, 1)).unwrap();
        // As it is left by its maker's supervisor.
        tracee::detach(pid, 0).unwrap();
        let maps = kernel::proc::maps::read(pid).unwrap();
        let verdict = check(pid, &maps, (false, &Bonds::default()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(verdict.unwrap_err().reason().code, "unborn");
    }

    #[test]
    fn one_filter_is_that_of_a_process_that_was_started_with_it_and_no_other_is() {
        for (mode, count, is_mobile) in [("0", "0", false), ("", "", false), ("2", "1", true)] {
            check_filters(mode, count, is_mobile).unwrap();
        }
        for (mode, count, is_mobile) in [
            ("2", "1", false),
            ("2", "2", true),
            // A kernel that does not count them.
            ("2", "", true),
            ("1", "0", true),
        ] {
            let error = check_filters(mode, count, is_mobile).unwrap_err();
            assert_eq!(error.reason().code, "seccomp", "{mode} {count} {is_mobile}");
        }
    }

    #[test]
    fn process_with_more_threads_than_can_move_is_told_how_many() {
        check_size(THREADS_MAX, MAPPINGS_MAX).unwrap();
        let error = check_size(THREADS_MAX + 1, 1).unwrap_err();
        assert_eq!(error.reason().code, "threads");
        assert!(error.reason().text.contains("4097 threads, at most 4096"), "{error}");
        assert_eq!(check_size(1, MAPPINGS_MAX + 1).unwrap_err().reason().code, "mappings");
    }

    #[test]
    fn system_v_memory_that_was_not_there_before_is_for_the_next_attempt() {
        let mapping = Mapping {
            start: 0x1000,
            end: 0x2000,
            is_readable: true,
            is_writable: true,
            is_executable: false,
            is_shared: true,
            offset: 0,
            device: 5,
            inode: 77,
            name: b"/SYSV00000000 (deleted)".to_vec(),
            flags: Default::default(),
        };
        let own = std::process::id() as i32;
        let error = check_mapping(own, &mapping, &Bonds::default()).unwrap_err();
        assert_eq!(error.reason().code, "changed");
    }
}
