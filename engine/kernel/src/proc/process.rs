//! `/proc/PID/{stat,status,task,fd,...}`: what a process is.

use crate::{KernelError, Result};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A clock tick of `/proc` on x86: USER_HZ is 100.
pub const TICK_NS: u64 = 10_000_000;

/// The parts of `/proc/PID/stat` that a copy of a process needs (proc(5)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub command: Vec<u8>,
    pub state: u8,
    pub parent: i32,
    /// PF_* of its first thread (include/linux/sched.h).
    pub flags: u64,
    /// Processor time of all threads (of one, if a thread was asked for): whole clock ticks.
    pub user_ns: u64,
    pub system_ns: u64,
    /// Clock ticks after boot: together with the pid it names a process for good.
    pub start_ticks: u64,
    /// That it runs on, or ran on last.
    pub processor: usize,
    /// start_code, end_code, start_data, end_data, start_brk, brk (not in the file: 0),
    /// start_stack, arg_start, arg_end, env_start, env_end: the order of `struct prctl_mm_map`.
    pub layout: [u64; 11],
}

/// Place of the program break in [`Stat::layout`].
pub const BREAK: usize = 5;

/// The kernel's own threads (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x20_0000;
/// Forked, and no program was executed since (PF_FORKNOEXEC).
const COPIED: u64 = 0x40;

impl Stat {
    /// Whether it is a thread of the kernel: those have no memory of their own.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// It is only there for its parent to hear of its end.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether it has the memory that it was forked with: no program was executed in it.
    pub fn is_copied(&self) -> bool {
        self.flags & COPIED != 0
    }
}

/// Reads `/proc/PID/stat`, or that of a thread given as `PID/task/TID`.
pub fn stat(process: &str) -> Result<Stat> {
    let path = format!("/proc/{process}/stat");
    let text = read(&path)?;
    parse_stat(&text).ok_or_else(|| KernelError::errno(format!("parse {path}"), libc::EINVAL))
}

/// Parses one stat line; the command may hold spaces and parentheses.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    if close < open {
        return None;
    }
    let pid = number(text[..open].trim_ascii())?;
    let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field numbers as in proc(5), which counts from 1 with the state as 3.
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok());
    let layout = [26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51];
    let mut values = [0; 11];
    for (value, n) in values.iter_mut().zip(layout) {
        *value = if n == 0 { 0 } else { field(n)? };
    }
    Some(Stat {
        pid: pid as i32,
        command: text[open + 1..close].to_vec(),
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        flags: field(9)?,
        user_ns: field(14)?.saturating_mul(TICK_NS),
        system_ns: field(15)?.saturating_mul(TICK_NS),
        start_ticks: field(22)?,
        processor: usize::try_from(field(39)?).ok()?,
        layout: values,
    })
}

/// Resident memory of a process, bytes: the second word of `/proc/PID/statm`. That in `stat` may
/// lack 32 pages of every processor, more on a big machine (see node/src/procfs.rs).
pub fn resident_bytes(pid: i32) -> Result<u64> {
    statm_bytes(pid, 1)
}

/// What a process has locked (mlock(2)), KiB; None where the kernel does not say.
pub fn locked_kib(pid: i32) -> Result<Option<u64>> {
    Ok(status_kib(&status(pid)?, "VmLck"))
}

/// All that a process has mapped, bytes: what RLIMIT_AS limits.
pub fn mapped_bytes(pid: i32) -> Result<u64> {
    statm_bytes(pid, 0)
}

fn statm_bytes(pid: i32, word: usize) -> Result<u64> {
    const PAGE_BYTES: u64 = 4096;
    let path = format!("/proc/{pid}/statm");
    let text = read(&path)?;
    let pages = text.split(|byte| *byte == b' ').nth(word).and_then(number);
    let unreadable = || KernelError::errno(format!("parse {path}"), libc::EINVAL);
    Ok(pages.ok_or_else(unreadable)? * PAGE_BYTES)
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The value of one line of `/proc/PID/status`, e.g. `status_field(&text, "NSpid")`.
pub fn status_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim())
    })
}

/// The numbers of one line, e.g. `Uid`: real, effective, saved, and that for files.
pub fn status_numbers(text: &str, name: &str) -> Vec<u32> {
    let words = status_field(text, name).unwrap_or("").split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The same of a line that tells a set of signals: bit n-1 for signal n.
pub fn status_signals(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(status_field(text, name)?, 16).ok()
}

/// The same of a line that tells memory, KiB.
pub fn status_kib(text: &str, name: &str) -> Option<u64> {
    status_field(text, name)?.strip_suffix("kB")?.trim().parse().ok()
}

pub fn status(pid: i32) -> Result<String> {
    let text = read(&format!("/proc/{pid}/status"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The same of one thread of the process `pid`.
pub fn status_of_thread(pid: i32, tid: i32) -> Result<String> {
    let text = read(&format!("/proc/{pid}/task/{tid}/status"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What `/proc/PID/task/TID/status` says of a thread that stands still, read at once: to write the
/// file takes the kernel longer than all that ptrace tells of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStatus {
    /// Its id in its innermost PID namespace.
    pub innermost_id: i32,
    /// Signals that wait for it or for its process, bit n-1 for signal n.
    pub pending: u64,
    /// How often it has gone to sleep so far; to stand stopped counts as well.
    pub sleeps: u64,
    /// It returns by a shadow stack (CET).
    pub has_shadow_stack: bool,
    /// Its addresses may carry tags (LAM).
    pub is_tagged: bool,
}

pub fn thread_status(pid: i32, tid: i32) -> Result<ThreadStatus> {
    let path = format!("/proc/{pid}/task/{tid}/status");
    let failed = |source| super::failed(format!("read {path}"), source);
    let mut file = std::fs::File::open(&path).map_err(failed)?;
    let mut text = vec![0; 4096];
    let mut length = 0;
    // Its last line tells its end: to be told there is no more costs as much as a ptrace request.
    while !text[..length].ends_with(b"\n") || parse_thread_status(tid, &text[..length]).is_none() {
        if length == text.len() {
            text.resize(2 * length, 0);
        }
        match file.read(&mut text[length..]).map_err(failed)? {
            0 => break,
            count => length += count,
        }
    }
    let status = parse_thread_status(tid, &text[..length]);
    status.ok_or_else(|| KernelError::errno(format!("parse {path}"), libc::EINVAL))
}

/// None if it is not whole.
fn parse_thread_status(tid: i32, text: &[u8]) -> Option<ThreadStatus> {
    let mut status = ThreadStatus { innermost_id: tid, ..ThreadStatus::default() };
    let mut fields = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = || std::str::from_utf8(&line[colon + 1..]).map(str::trim).ok();
        match &line[..colon] {
            // A kernel without PID namespaces does not tell.
            b"NSpid" => {
                status.innermost_id = value()?.split_whitespace().last()?.parse().ok()?;
                continue;
            }
            b"SigPnd" | b"ShdPnd" => {
                status.pending |= u64::from_str_radix(value()?, 16).ok()?;
            }
            b"x86_Thread_features" => {
                let mut features = value()?.split_whitespace();
                status.has_shadow_stack = features.any(|feature| feature == "shstk");
                continue;
            }
            b"untag_mask" => {
                let mask = value()?.strip_prefix("0x");
                let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
                status.is_tagged = mask.is_some_and(|mask| mask != u64::MAX);
                continue;
            }
            b"voluntary_ctxt_switches" => status.sleeps = value()?.parse().ok()?,
            _ => continue,
        }
        fields += 1;
    }
    (fields == 3).then_some(status)
}

/// A soft and a hard limit; None is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// RLIMIT_CPU of a process, seconds.
pub fn cpu_limit_s(pid: i32) -> Result<Limit> {
    let path = format!("/proc/{pid}/limits");
    let text = read(&path)?;
    let limit = parse_limit(&String::from_utf8_lossy(&text), "Max cpu time");
    limit.ok_or_else(|| KernelError::errno(format!("parse {path}"), libc::EINVAL))
}

/// The line of this name: `NAME  SOFT  HARD  UNIT`.
fn parse_limit(text: &str, name: &str) -> Option<Limit> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_ascii_whitespace();
    let mut bound = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: bound()?, hard: bound()? })
}

/// Where the kernel has put its vDSO in a process, as it told the program (`AT_SYSINFO_EHDR` of
/// getauxval(3)).
pub fn vdso_address(pid: i32) -> Result<Option<u64>> {
    let words = read(&format!("/proc/{pid}/auxv"))?;
    Ok(auxiliary(&words, libc::AT_SYSINFO_EHDR))
}

/// Whether a process runs our own program, as supervisors do. One that we may not look into does
/// not.
pub fn runs_our_program(pid: i32) -> bool {
    let program = |pid: &str| {
        let file = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some((file.dev(), file.ino()))
    };
    program("self").is_some_and(|ours| program(&pid.to_string()) == Some(ours))
}

/// The user for whom the program was begun that a process runs, if it got no rights by that which
/// its file has and the user has not (getauxval(3)). It is the same for all that were forked since.
pub fn program_user(pid: i32) -> Result<Option<u32>> {
    let words = read(&format!("/proc/{pid}/auxv"))?;
    let value = |kind| auxiliary(&words, kind);
    let user = value(libc::AT_UID).filter(|user| value(libc::AT_EUID) == Some(*user));
    let is_plain = value(libc::AT_SECURE) == Some(0);
    Ok(user.filter(|_| is_plain).and_then(|user| u32::try_from(user).ok()))
}

/// The value of this type in an auxiliary vector: pairs of words.
fn auxiliary(vector: &[u8], kind: u64) -> Option<u64> {
    let (words, _) = vector.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let found = pairs.iter().find(|[of, _]| u64::from_ne_bytes(*of) == kind);
    found.map(|[_, value]| u64::from_ne_bytes(*value))
}

/// The threads of a process, ascending.
pub fn threads(pid: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{pid}/task");
    let mut tids: Vec<i32> = entries(&path)?.filter_map(|name| name.parse().ok()).collect();
    tids.sort_unstable();
    Ok(tids)
}

/// All processes that can be seen from here, ascending.
pub fn all() -> Result<Vec<i32>> {
    let mut pids: Vec<i32> = entries("/proc")?.filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Whether two processes run in one address space (kcmp(2)): one of them was made by vfork, or by
/// clone with CLONE_VM.
pub fn share_address_space(one: i32, other: i32) -> Result<bool> {
    const KCMP_VM: u64 = 1;
    let arguments = [one as u64, other as u64, KCMP_VM, 0, 0, 0];
    let what = "compare two processes' memory";
    // SAFETY: five integers.
    let order = unsafe { crate::sys::call(what, libc::SYS_kcmp, arguments) }?;
    Ok(order == 0)
}

/// Whether access to a file is also a matter of an access control list (acl(5)).
pub fn has_access_list(file: &std::fs::File) -> bool {
    let name = c"system.posix_acl_access";
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: a string with its zero, and no buffer: only the length is asked for.
    unsafe { libc::fgetxattr(descriptor, name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The numbers of the open descriptors of a process.
pub fn descriptor_numbers(pid: i32) -> Result<Vec<i32>> {
    Ok(entries(&format!("/proc/{pid}/fd"))?.filter_map(|name| name.parse().ok()).collect())
}

/// The open descriptors of a process and what they are (`pipe:[17]`, a path, `anon_inode:...`).
pub fn descriptors(pid: i32) -> Result<Vec<(i32, PathBuf)>> {
    let path = format!("/proc/{pid}/fd");
    Ok(entries(&path)?
        .filter_map(|name| {
            let link = std::fs::read_link(format!("{path}/{name}")).ok()?;
            Some((name.parse().ok()?, link))
        })
        .collect())
}

/// Whether it has a file open from which it reads directly (O_DIRECT): the device then writes past
/// the protection of pages.
pub fn reads_directly(pid: i32) -> Result<bool> {
    let is_direct = |number: i32| {
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
        Some(flags & libc::O_DIRECT != 0)
    };
    // A pipe with that flag keeps messages apart.
    let mut files = descriptors(pid)?.into_iter().filter(|(_, target)| target.is_absolute());
    Ok(files.any(|(number, _)| is_direct(number) == Some(true)))
}

fn entries(path: &str) -> Result<impl Iterator<Item = String>> {
    let listing =
        std::fs::read_dir(path).map_err(|source| super::failed(format!("list {path}"), source))?;
    Ok(listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok()))
}

fn read(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| super::failed(format!("read {path}"), source))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn own_process_is_described() {
        let pid = std::process::id() as i32;
        let own = stat(&pid.to_string()).unwrap();
        assert_eq!(own.pid, pid);
        assert!(own.layout[0] < own.layout[1] && own.layout[6] > own.layout[1]);
        assert!(threads(pid).unwrap().contains(&pid));
        assert_eq!(status_field(&status(pid).unwrap(), "Tgid"), Some(pid.to_string().as_str()));
    }

    #[test]
    fn status_of_a_thread_is_read_at_once_and_only_whole() {
        let tid = nix::unistd::gettid().as_raw();
        let own = thread_status(std::process::id() as i32, tid).unwrap();
        let text = status_of_thread(std::process::id() as i32, tid).unwrap();
        let last = |name| status_field(&text, name).unwrap().split_whitespace().last().unwrap();
        assert_eq!(own.innermost_id.to_string(), last("NSpid"));
        assert!(own.sleeps.abs_diff(last("voluntary_ctxt_switches").parse().unwrap()) < 100);
        let text = "NSpid:\t4711\t12\nSigPnd:\t0000000000000200\nShdPnd:\t8000000000000000\n\
                    voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        let pending = 1 << 9 | 1 << 63;
        let plain = ThreadStatus::default();
        let whole = ThreadStatus { innermost_id: 12, pending, sleeps: 150, ..plain };
        assert_eq!(parse_thread_status(7, text.as_bytes()), Some(whole));
        let without = text.strip_prefix("NSpid:\t4711\t12\n").unwrap();
        let whole = ThreadStatus { innermost_id: 7, ..whole };
        assert_eq!(parse_thread_status(7, without.as_bytes()), Some(whole));
        let seen = |line: &str| {
            let status = parse_thread_status(7, format!("{line}{without}").as_bytes()).unwrap();
            (status.has_shadow_stack, status.is_tagged)
        };
        assert_eq!(seen("untag_mask:\t0xffffffffffffffff\n"), (false, false));
        assert_eq!(seen("untag_mask:\t0x81ffffffffffffff\n"), (false, true));
        assert_eq!(seen("x86_Thread_features:\tshstk wrss \n"), (true, false));
        let locked = "x86_Thread_features:\t\nx86_Thread_features_locked:\tshstk \n";
        assert_eq!(seen(locked), (false, false));
        let cut = text.find("0\nnonvoluntary").unwrap();
        assert_eq!(parse_thread_status(7, &text.as_bytes()[..cut]), None);
        assert!(thread_status(std::process::id() as i32, 1 << 23).is_err());
    }

    #[test]
    fn files_that_are_read_directly_are_told_from_others() {
        use std::os::unix::fs::OpenOptionsExt;
        let mut pipe = [0; 2];
        // SAFETY: the array has room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_DIRECT) }, 0);
        let own = std::env::current_exe().unwrap();
        let _plain = std::fs::File::open(&own).unwrap();
        let pid = std::process::id() as i32;
        assert!(!reads_directly(pid).unwrap());
        let direct = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(own);
        match direct {
            Ok(_direct) => assert!(reads_directly(pid).unwrap()),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
        }
    }

    #[test]
    fn resident_memory_holds_what_was_just_written() {
        let pid = std::process::id() as i32;
        let before = resident_bytes(pid).unwrap();
        let written = std::hint::black_box(vec![1u8; 64 << 20]);
        let gained = resident_bytes(pid).unwrap() - before;
        assert!(gained > 32 << 20, "{gained} of {} bytes", written.len());
        assert!(resident_bytes((1 << 22) + 1).is_err(), "Linux numbers no process so high");
    }

    #[test]
    fn limits_are_numbers_or_none() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max cpu time              17                   unlimited            seconds\n";
        let limit = Limit { soft: Some(17), hard: None };
        assert_eq!(parse_limit(text, "Max cpu time"), Some(limit));
        assert_eq!(parse_limit("Max cpu time  x  y  seconds", "Max cpu time"), None);
        assert!(cpu_limit_s(std::process::id() as i32).is_ok());
    }

    #[test]
    fn command_with_parentheses_does_not_shift_fields() {
        let tail: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let line = format!("7 (a) b (c) S {}", tail.join(" "));
        let parsed = parse_stat(line.as_bytes()).unwrap();
        assert_eq!(parsed.command, b"a) b (c");
        assert_eq!((parsed.parent, parsed.flags, parsed.start_ticks), (4, 9, 22));
        assert_eq!(parsed.layout, [26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51]);
    }
}
