//! The few facts about processes that the daemon reads from `/proc`. Parsers are pure.

use kernel::proc::process::{status_field, status_kib};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use wire::peer::Owner;

/// One line of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub command: String,
    pub state: char,
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// On its last way: it runs nothing of its program any more.
    pub is_exiting: bool,
    /// User and system time of all its threads, clock ticks.
    pub cpu_ticks: u64,
    /// The same of its children that have ended and were waited for, and of theirs.
    pub children_ticks: u64,
    pub threads: u32,
    /// When it started, clock ticks since boot: with the pid it names a process for ever.
    pub started_ticks: u64,
}

impl Stat {
    pub fn is_runnable(&self) -> bool {
        self.state == 'R'
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// The kernel's PF_EXITING among a process's flags.
const EXITING: u64 = 4;

/// Parses a stat line. The command may hold any character, so its end is the last parenthesis.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(" (")?;
    let (command, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field 3 of proc_pid_stat(5) is at index 0 here.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        pid: pid.parse().ok()?,
        command: command.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        is_exiting: number(9)? & EXITING != 0,
        cpu_ticks: number(14)?.checked_add(number(15)?)?,
        children_ticks: number(16)?.checked_add(number(17)?)?,
        threads: u32::try_from(number(20)?).ok()?,
        started_ticks: number(22)?,
    })
}

pub fn read_stat(pid: i32) -> Option<Stat> {
    read_stat_at(&format!("/proc/{pid}/stat"))
}

/// The same of a process that was found by one of the numbers that its threads may have as well:
/// of a thread, none.
pub fn read_stat_of_first_thread(number: i32) -> Option<Stat> {
    let stat = read_stat(number)?;
    let status = fs::read(format!("/proc/{number}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    (group.trim().parse() == Ok(number)).then_some(stat)
}

/// A stat line is shorter than that up to the last field that is parsed.
const STAT_BYTES_MAX: usize = 1024;

/// Thousands are read in a row: one read, into memory that is there. And a name may have any bytes.
fn read_stat_at(path: &str) -> Option<Stat> {
    let mut bytes = [0; STAT_BYTES_MAX];
    let length = File::open(path).ok()?.read(&mut bytes).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes[..length]))
}

/// Has the process ended, or was it killed and is about to?
///
/// A process that dies takes its signal off what is pending some time before it counts as exiting.
/// In between only the code that it will end with tells (fs/proc/array.c, `do_task_stat`). It is
/// read last for that reason: a kernel that keeps it to itself until the end is likely to be done.
pub fn is_ending(pid: i32) -> bool {
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    if has_pending_kill(&String::from_utf8_lossy(&status)) {
        return true;
    }
    let Ok(line) = fs::read(format!("/proc/{pid}/stat")) else { return true };
    let line = String::from_utf8_lossy(&line);
    let Some(stat) = parse_stat(&line) else { return true };
    stat.is_exiting || stat.has_ended() || has_code_of_an_end(&line)
}

/// The last word of a stat line: what a process ends with, or is stopped by, as wait(2) has it.
fn has_code_of_an_end(line: &str) -> bool {
    use nix::sys::signal::Signal::{SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    let code = line.split_ascii_whitespace().next_back().and_then(|code| code.parse().ok());
    let stops = [SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU].map(|signal| signal as i32);
    code.is_some_and(|code: i32| code != 0 && !stops.contains(&code))
}

fn has_pending_kill(status: &str) -> bool {
    const KILL_BIT: u64 = 1 << (nix::libc::SIGKILL - 1);
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")));
    pending
        .filter_map(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .any(|bits| bits & KILL_BIT != 0)
}

/// Is a process traced, or does it block every signal that can be blocked? Of one that has ended:
/// no.
pub fn is_held_or_deaf(pid: i32) -> bool {
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    shows_held_or_deaf(&String::from_utf8_lossy(&status))
}

fn shows_held_or_deaf(status: &str) -> bool {
    use nix::libc::{SIGKILL, SIGSTOP};
    // Nobody blocks these two.
    const DEAF: u64 = !(1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1));
    let blocked =
        status_field(status, "SigBlk").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    status_field(status, "TracerPid").is_some_and(|tracer| tracer != "0") || blocked == Some(DEAF)
}

/// All processes that `/proc` shows.
pub fn collect_stats() -> io::Result<Vec<Stat>> {
    let entries = fs::read_dir("/proc")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.filter_map(read_stat).collect())
}

/// The number that the kernel gave last to a process or thread of this PID namespace.
pub fn read_last_number() -> Option<i32> {
    parse_last_number(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// The last word of proc_loadavg(5).
fn parse_last_number(text: &str) -> Option<i32> {
    text.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// The inode that the first PID namespace of a machine has (`PROC_PID_INIT_INO` of the kernel).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether `/proc` shows all processes of the machine, and not those of a container alone.
pub fn shows_whole_machine() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|file| file.ino() == FIRST_PID_NAMESPACE)
}

/// Runnable threads of a process of several threads.
pub fn count_runnable_threads(pid: i32) -> u32 {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let stats = names.filter_map(|tid| read_stat_at(&format!("/proc/{pid}/task/{tid}/stat")));
    stats.filter(Stat::is_runnable).count() as u32
}

/// Processor time of a process, by its own clock; None if it has ended.
pub fn read_cpu_us(pid: i32) -> Option<u64> {
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).ok()?;
    let time = clock.now().ok()?;
    Some(
        u64::try_from(time.tv_sec()).ok()? * 1_000_000
            + u64::try_from(time.tv_nsec()).ok()? / 1_000,
    )
}

/// Resident pages of a process; None if it has ended. `stat` has such a figure too, but takes it
/// from a counter of which each processor keeps up to 32 pages to itself and more on a big machine:
/// a program that has just begun has none there. `statm` adds all parts since Linux 6.16
/// (fs/proc/task_mmu.c, `task_statm`).
pub fn read_resident_pages(pid: i32) -> Option<u64> {
    parse_resident_pages(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)
}

/// The second word of proc_pid_statm(5).
fn parse_resident_pages(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Shared memory that a process has in use, in bytes; None if it has ended.
pub fn read_shared_bytes(pid: i32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    parse_shared_bytes(&String::from_utf8_lossy(&status))
}

fn parse_shared_bytes(status: &str) -> Option<u64> {
    status_kib(status, "RssShmem")?.checked_mul(1024)
}

/// Memory of a process that is in no file, in bytes; None if it has ended.
pub fn read_own_bytes(pid: i32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let anonymous = status_kib(&status, "RssAnon")?.checked_mul(1024)?;
    anonymous.checked_add(parse_shared_bytes(&status)?)
}

/// Whose a process is, by all four of its user and group ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    pub uids: [u32; 4],
    pub gids: [u32; 4],
}

impl Ids {
    /// The owner, if all ids agree. They differ in a set-user-id program, which must not be moved
    /// by the user who started it: he must not see its memory.
    pub fn owner(&self) -> Option<Owner> {
        let agree = |ids: &[u32; 4]| ids.iter().all(|id| *id == ids[0]);
        let owner = Owner { uid: self.uids[0], gid: self.gids[0] };
        (agree(&self.uids) && agree(&self.gids)).then_some(owner)
    }
}

/// Parses `/proc/PID/status`.
pub fn parse_ids(text: &str) -> Option<Ids> {
    let four = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let ids: Vec<u32> =
            line.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
        <[u32; 4]>::try_from(ids).ok()
    };
    Some(Ids { uids: four("Uid:")?, gids: four("Gid:")? })
}

pub fn read_ids(pid: i32) -> Option<Ids> {
    parse_ids(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// What a process was started with, each word with a zero behind it; None if it has ended.
pub fn read_command_line(pid: i32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/cmdline")).ok()
}

/// The program that a process runs; None if it has ended or may not be looked at.
pub fn read_program(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The numbers that were given since `before` was the last one, if there are fewer than `most`, and
/// the kernel has not begun again from below.
pub fn numbers_since(before: Option<i32>, last: Option<i32>, most: i32) -> Range<i32> {
    match (before, last) {
        (Some(before), Some(last)) if (before..before + most).contains(&last) => {
            before + 1..last + 1
        }
        _ => 0..0,
    }
}

/// Those of `stats` that descend from `roots`, each with the one that it descends from.
pub fn born_of(stats: &[Stat], roots: &BTreeSet<i32>) -> Vec<(Stat, i32)> {
    let by_pid: BTreeMap<i32, &Stat> = stats.iter().map(|stat| (stat.pid, stat)).collect();
    let found = descendants(stats, roots).into_iter();
    found.map(|(pid, root)| (by_pid[&pid].clone(), root)).collect()
}

/// Processes below `roots` in the tree of parents, the roots not included.
fn descendants(stats: &[Stat], roots: &BTreeSet<i32>) -> Vec<(i32, i32)> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for stat in stats.iter().filter(|stat| !stat.has_ended()) {
        children.entry(stat.parent).or_default().push(stat.pid);
    }
    let mut found = Vec::new();
    let mut open: Vec<(i32, i32)> = roots.iter().map(|root| (*root, *root)).collect();
    let mut seen = roots.clone();
    while let Some((pid, root)) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(*child) {
                found.push((*child, root));
                open.push((*child, root));
            }
        }
    }
    found
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn processor_time_is_read_to_the_microsecond() {
        let me = std::process::id() as i32;
        let before_us = read_cpu_us(me).expect("this process runs");
        let mut value = before_us;
        while read_cpu_us(me) == Some(before_us) {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        let gained_us = read_cpu_us(me).expect("it still runs") - before_us;
        assert!(gained_us < 5_000, "{gained_us}: ticks are longer");
        // Linux numbers no process higher than 2^22.
        assert_eq!(read_cpu_us((1 << 22) + 1), None);
    }

    #[test]
    fn a_process_that_has_taken_its_death_is_ending_before_it_counts_as_exiting() {
        use nix::sys::ptrace::{self, Options};
        use nix::sys::signal::{Signal, kill};
        use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        assert!(!is_ending(pid.as_raw()));
        kill(pid, Signal::SIGSTOP).expect("it is ours");
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
        assert!(!is_ending(pid.as_raw()), "what is stopped goes on");
        // Held where its signal is no longer pending, and it is not exiting yet.
        ptrace::seize(pid, Options::PTRACE_O_TRACEEXIT).expect("it can be traced");
        // As the kernel kills what a tracer held: the signal is one thread's, and off all that is
        // pending once that thread has taken it.
        kernel::tracee::send_signal(pid.as_raw(), pid.as_raw(), Signal::SIGKILL as i32)
            .expect("it is ours");
        let held = loop {
            match waitpid(pid, None).expect("it is ours") {
                WaitStatus::PtraceEvent(_, _, event) => break event,
                WaitStatus::Signaled(..) => panic!("it ended without a stop"),
                _ => ptrace::cont(pid, None).expect("it was stopped"),
            }
        };
        assert_eq!(held, nix::libc::PTRACE_EVENT_EXIT);
        assert!(is_ending(pid.as_raw()));
        ptrace::cont(pid, None).expect("it was stopped");
        child.wait().expect("it ends");
    }

    #[test]
    fn who_is_traced_or_deaf_is_told_from_who_is_neither() {
        let status = |tracer, blocked| {
            format!(
                "Name:\tbash\nTracerPid:\t{tracer}\nSigPnd:\t0\nSigBlk:\t{blocked}\nSigIgn:\t0\n"
            )
        };
        assert!(shows_held_or_deaf(&status("0", "fffffffffffbfeff")));
        assert!(shows_held_or_deaf(&status("17", "0000000000000000")));
        assert!(!shows_held_or_deaf(&status("0", "0000000000010002")));
        assert!(!shows_held_or_deaf(""));
    }

    #[test]
    fn the_second_word_is_what_is_resident() {
        assert_eq!(parse_resident_pages("1430 438 409 5 0 88 0\n"), Some(438));
        assert_eq!(parse_resident_pages(""), None);
        assert_eq!(read_resident_pages((1 << 22) + 1), None);
    }

    #[test]
    fn shared_memory_in_use_is_told_in_kib() {
        let status = "Name:\tx\nRssFile:\t    1436 kB\nRssShmem:\t      12 kB\nVmData:\t 1 kB\n";
        assert_eq!(parse_shared_bytes(status), Some(12 << 10));
        assert_eq!(parse_shared_bytes("Name:\tRssShmem: 7 kB\n"), None);
        assert!(read_shared_bytes(std::process::id() as i32).is_some());
    }

    #[test]
    fn times_that_no_process_has_used_are_no_times() {
        let line = |user: u64| {
            format!("7 (x) R 1 7 7 0 -1 0 0 0 0 0 {user} 5 0 0 20 0 1 0 99 0 0 0 0 0 0 0 0 0 0 0")
        };
        assert_eq!(parse_stat(&line(3)).map(|stat| stat.cpu_ticks), Some(8));
        assert_eq!(parse_stat(&line(u64::MAX)), None);
    }

    #[test]
    fn a_command_with_parentheses_and_spaces_does_not_confuse_the_parser() {
        let text = "4711 (a) R (b c) S 1 4711 4711 0 -1 4194304 95 0 0 0 120 34 5 2 20 0 3 0 \
                    8915 4030464 97 18446744073709551615 1 1 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.command, "a) R (b c");
        assert_eq!((stat.pid, stat.parent, stat.state), (4711, 1, 'S'));
        assert_eq!((stat.cpu_ticks, stat.children_ticks, stat.threads), (154, 7, 3));
        assert_eq!(stat.started_ticks, 8915);
    }

    #[test]
    fn a_kill_that_is_still_pending_is_seen() {
        assert!(has_pending_kill("SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(has_pending_kill("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        assert!(!has_pending_kill("SigPnd:\t0000000000004000\nSigCgt:\t0000000000000100\n"));
    }

    #[test]
    fn the_last_number_given_is_the_last_word() {
        assert_eq!(parse_last_number("0.06 0.23 0.26 2/113 13108\n"), Some(13_108));
        assert_eq!(parse_last_number("0.06 0.23"), None);
    }

    #[test]
    fn a_name_of_any_bytes_hides_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        fs::write(&path, b"7 (a\xff) R 1 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 9 0 0").unwrap();
        let stat = read_stat_at(path.to_str().unwrap()).expect("it is one");
        assert_eq!((stat.pid, stat.cpu_ticks, stat.children_ticks), (7, 3, 7));
    }

    #[test]
    fn a_thread_is_not_taken_for_a_process() {
        let me = std::process::id() as i32;
        assert!(read_stat_of_first_thread(me).is_some());
        let (sender, ready) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = ended.recv();
        });
        let tid = ready.recv().unwrap();
        assert!(read_stat(tid).is_some() && read_stat_of_first_thread(tid).is_none());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn half_a_line_is_no_process() {
        for text in ["", "1", "1 (x", "1 (x) R", "1 (x) R 1 2 3", "x (x) R 1"] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_is_found_with_its_owner_and_program() {
        let pid = std::process::id() as i32;
        assert!(collect_stats().unwrap().iter().any(|stat| stat.pid == pid));
        assert_eq!(read_ids(pid).unwrap().uids[0], nix::unistd::getuid().as_raw());
        assert_eq!(read_program(pid), std::env::current_exe().ok());
    }

    #[test]
    fn a_set_user_id_program_has_no_owner() {
        let text = "Name:\tsu\nUid:\t1000\t0\t0\t0\nGid:\t100\t100\t100\t100\n";
        assert_eq!(parse_ids(text).unwrap().owner(), None);
        let text = text.replace("\t0\t0\t0", "\t1000\t1000\t1000");
        assert_eq!(parse_ids(&text).unwrap().owner(), Some(Owner { uid: 1000, gid: 100 }));
    }

    #[test]
    fn descendants_are_found_through_generations_and_belong_to_their_root() {
        let stat = |pid, parent, state| Stat {
            pid,
            parent,
            group: pid,
            is_exiting: false,
            state,
            command: String::new(),
            cpu_ticks: 0,
            children_ticks: 0,
            threads: 1,
            started_ticks: 0,
        };
        let stats = [
            stat(1, 0, 'S'),
            stat(10, 1, 'S'),
            stat(11, 10, 'R'),
            stat(12, 11, 'R'),
            stat(13, 11, 'Z'),
            stat(20, 1, 'S'),
        ];
        let mut found = descendants(&stats, &BTreeSet::from([10, 20]));
        found.sort();
        assert_eq!(found, [(11, 10), (12, 10)]);
    }
}
