//! What the guest reads of the files by which it looks at itself: what home's kernel tells of the
//! process, with what the body's kernel and its supervisor tell in the place of all that is about
//! memory, threads that compute and processor time.
//!
//! Nothing is told where there is a doubt: then the process goes home and reads there.

use crate::capture;
use crate::own_files::Open;
use crate::state::{Shared, State, Thread};
use kernel::proc::maps::{self, Mapping};
use kernel::proc::pagemap::{Pagemap, Select};
use kernel::proc::process::{self, TICK_NS};
use migrate::layout;
use std::ops::Range;
use wire::calls::Shows;
use wire::forward::{MappedName, OwnFileTold};
use wire::image::{self, MappingKind};
use wire::limits::OWN_TEXT_BYTES_MAX;
use wire::processor_time::ProcessorTime;

const PAGE: u64 = 4096;

/// The text that `caller` reads, with what home has told of the file; None if it has to be read at
/// home. Of a file that only has the name of one of these home tells nothing.
pub fn make_up(
    shared: &Shared,
    state: &mut State,
    open: &Open,
    caller: i32,
    told: &OwnFileTold,
) -> Option<Vec<u8>> {
    // The kernel tells nothing of a thread that has ended.
    state.threads.get(&open.thread).filter(|_| open.file.is_of_thread).or_else(|| {
        let first = state.threads.get(&shared.pid);
        first.filter(|_| !open.file.is_of_thread)
    })?;
    let text = Some(told.text.as_slice()).filter(|text| !text.is_empty())?;
    let layout = &shared.own_files.fixed.origin.layout;
    let made = match open.file.shows {
        Shows::Cgroup => text.to_vec(),
        Shows::Cmdline => command_line(shared, layout[7]..layout[8])?,
        Shows::Environ => of_guest(shared, layout[9]..layout[10])?,
        Shows::Statm => Sizes::of(shared)?.statm(),
        Shows::Stat => stat(shared, state, (open, caller), text)?,
        Shows::Status => status(shared, state, (open, caller), text)?,
        Shows::Maps => mapping_lines(shared, &told.mapped)?,
    };
    (made.len() <= OWN_TEXT_BYTES_MAX).then_some(made)
}

fn of_guest(shared: &Shared, range: Range<u64>) -> Option<Vec<u8>> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    if length > OWN_TEXT_BYTES_MAX {
        return None;
    }
    let mut bytes = vec![0; length];
    (shared.memory.read_as_guest(range.start, &mut bytes) == length).then_some(bytes)
}

/// A program that has overwritten the end of its arguments may mean what lies behind (proc(5)).
fn command_line(shared: &Shared, range: Range<u64>) -> Option<Vec<u8>> {
    of_guest(shared, range).filter(|bytes| bytes.last() == Some(&0))
}

/// The thread that a file is about.
fn subject(shared: &Shared, open: &Open) -> i32 {
    if open.file.is_of_thread { open.thread } else { shared.pid }
}

/// What it does: the caller runs, and whoever waits, be it for home, sleeps.
fn run_state(subject: i32, caller: i32) -> Option<u8> {
    if subject == caller {
        return Some(b'R');
    }
    let stat = process::stat(&format!("{subject}/task/{subject}")).ok()?;
    Some(if stat.state == b'R' { b'R' } else { b'S' })
}

/// Processor time of all nodes, as the guest is told it by times(2).
fn times(state: &mut State, open: &Open, home: ProcessorTime) -> Option<ProcessorTime> {
    match open.file.is_of_thread {
        true => state.threads.get_mut(&open.thread).map(|thread| thread.meter.tell(home)),
        false => Some(state.meter.tell(home)),
    }
}

fn stat(
    shared: &Shared,
    state: &mut State,
    (open, caller): (&Open, i32),
    home: &[u8],
) -> Option<Vec<u8>> {
    let subject = subject(shared, open);
    let Thread { guest, priority, .. } = state.threads.get(&subject)?;
    let (guest, priority) = (*guest, *priority);
    let parsed = process::parse_stat(home)?;
    // Somebody else's eyes: the kernel has left out where the program lies, or numbers otherwise.
    if parsed.pid != guest.0 || parsed.layout[0] <= 1 {
        return None;
    }
    let close = home.iter().rposition(|byte| *byte == b')')? + 1;
    let (head, rest) = home.split_at(close);
    let rest = std::str::from_utf8(rest).ok()?;
    let mut fields: Vec<String> = rest.split_ascii_whitespace().map(str::to_owned).collect();
    let mut set = |number: usize, value: String| {
        *fields.get_mut(number - 3)? = value;
        Some(())
    };
    let home = ProcessorTime { user_ns: parsed.user_ns, system_ns: parsed.system_ns };
    let times = times(state, open, home)?;
    let sizes = Sizes::of(shared)?;
    let doing = run_state(subject, caller)?;
    set(3, char::from(doing).to_string())?;
    set(14, (times.user_ns / TICK_NS).to_string())?;
    set(15, (times.system_ns / TICK_NS).to_string())?;
    if !kernel::tracee::is_real_time(priority.policy) {
        set(18, (20 + priority.nice).to_string())?;
        set(19, priority.nice.to_string())?;
    }
    set(23, sizes.total.to_string())?;
    set(24, (sizes.resident() / PAGE).to_string())?;
    set(35, u8::from(doing != b'R').to_string())?;
    Some([head, b" ", fields.join(" ").as_bytes(), b"\n"].concat())
}

fn status(
    shared: &Shared,
    state: &mut State,
    (open, caller): (&Open, i32),
    home: &[u8],
) -> Option<Vec<u8>> {
    let subject = subject(shared, open);
    let guest = state.threads.get(&subject)?.guest;
    let sizes = Sizes::of(shared)?;
    let own = process::status(shared.pid).ok()?;
    let doing = match run_state(subject, caller)? {
        b'R' => "R (running)",
        _ => "S (sleeping)",
    };
    let home = std::str::from_utf8(home).ok()?;
    if process::status_field(home, "Pid")?.parse() != Ok(guest.0) {
        return None;
    }
    let kib_of = |key| process::status_kib(home, key);
    let peak = kib_of("VmPeak")?.max(sizes.total >> 10);
    // Home's is the peak of what was there, as in getrusage(2).
    let high = kib_of("VmHWM")?.max(state.peak.rss_kib()).max(sizes.resident() >> 10);
    let mut text = String::with_capacity(home.len());
    for line in home.lines() {
        let (key, _) = line.split_once(':')?;
        let value = match key {
            "State" => {
                text.push_str(&format!("State:\t{doing}\n"));
                continue;
            }
            "TracerPid" => {
                text.push_str("TracerPid:\t0\n");
                continue;
            }
            "VmPeak" => peak,
            "VmHWM" => high,
            "VmPTE" | "VmSwap" => process::status_kib(&own, key)?,
            _ => match sizes.of_line(key) {
                Some(bytes) => bytes >> 10,
                None => {
                    text.push_str(line);
                    text.push('\n');
                    continue;
                }
            },
        };
        text.push_str(&format!("{key}:\t{value:>8} kB\n"));
    }
    Some(text.into_bytes())
}

/// How large the guest is, bytes: as its own kernel would count it, without what is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    total: u64,
    data: u64,
    stack: u64,
    text: u64,
    libraries: u64,
    resident_anonymous: u64,
    resident_file: u64,
    resident_shared: u64,
}

impl Sizes {
    fn of(shared: &Shared) -> Option<Sizes> {
        let (mappings, ours_resident) = mappings(shared)?;
        let layout = &shared.own_files.fixed.origin.layout;
        let mut sizes = Sizes::of_mappings(&mappings, layout[0]..layout[1]);
        let status = process::status(shared.pid).ok()?;
        let bytes = |key| Some(process::status_kib(&status, key)? << 10);
        let shared_bytes = bytes("RssShmem")?.saturating_sub(ours_resident);
        sizes.resident_anonymous = bytes("RssAnon")?;
        sizes.resident_file = bytes("RssFile")?;
        // A file that the node did not have is mapped from memory here.
        match mappings.iter().any(layout::is_shared_anonymous) {
            true => sizes.resident_shared = shared_bytes,
            false => sizes.resident_file += shared_bytes,
        }
        Some(sizes)
    }

    /// As vm_stat_account in mm/mmap.c sorts them.
    fn of_mappings(mappings: &[Mapping], code: Range<u64>) -> Sizes {
        let mut sizes = Sizes::default();
        let mut executable = 0;
        for mapping in mappings.iter().filter(|m| m.name != b"[vsyscall]") {
            let length = mapping.length();
            sizes.total += length;
            let is_stack = mapping.name == b"[stack]";
            if is_stack {
                sizes.stack += length;
            } else if mapping.is_executable && !mapping.is_writable {
                executable += length;
            } else if mapping.is_writable && !mapping.is_shared {
                sizes.data += length;
            }
        }
        let code_end = code.end.next_multiple_of(PAGE);
        sizes.text = code_end.saturating_sub(code.start & !(PAGE - 1)).min(executable);
        sizes.libraries = executable - sizes.text;
        sizes
    }

    fn resident(&self) -> u64 {
        self.resident_anonymous + self.resident_file + self.resident_shared
    }

    /// By the name that `status` has for it.
    fn of_line(&self, key: &str) -> Option<u64> {
        Some(match key {
            "VmSize" => self.total,
            "VmRSS" => self.resident(),
            "RssAnon" => self.resident_anonymous,
            "RssFile" => self.resident_file,
            "RssShmem" => self.resident_shared,
            "VmData" => self.data,
            "VmStk" => self.stack,
            "VmExe" => self.text,
            "VmLib" => self.libraries,
            _ => return None,
        })
    }

    fn statm(&self) -> Vec<u8> {
        let shared = self.resident_file + self.resident_shared;
        let data = self.data + self.stack;
        let [size, resident, shared, text, data] =
            [self.total, self.resident(), shared, self.text, data].map(|bytes| bytes / PAGE);
        format!("{size} {resident} {shared} {text} 0 {data} 0\n").into_bytes()
    }
}

/// The mappings of the guest as home would have them, and how much of ours is resident.
fn mappings(shared: &Shared) -> Option<(Vec<Mapping>, u64)> {
    let fixed = &shared.own_files.fixed;
    let ours = capture::ours(shared, fixed);
    let elsewhere = shared.abroad.as_ref().map(|abroad| &abroad.elsewhere);
    let (mut own, mut mappings): (Vec<Mapping>, Vec<Mapping>) =
        maps::read(shared.pid).ok()?.into_iter().partition(|m| layout::is_ours(m, &ours));
    let provided = elsewhere.iter().flat_map(|elsewhere| elsewhere.provided());
    mappings.extend(provided.map(of_kernel));
    mappings.sort_unstable_by_key(|mapping| mapping.start);
    let pagemap = Pagemap::open(shared.pid).ok()?;
    trim_stack(&pagemap, &fixed.origin.mappings, &mut mappings)?;
    own.retain(|mapping| mapping.is_shared);
    let mut resident = 0;
    for Mapping { start, end, .. } in own {
        let there = pagemap.scan(start, end, Select::Populated).ok()?;
        resident += there.iter().map(|run| run.end - run.start).sum::<u64>();
    }
    Some((mappings, resident))
}

/// What home's kernel has mapped into the process.
fn of_kernel(mapping: &image::Mapping) -> Mapping {
    let has = |bit: i32| mapping.protection & bit as u32 != 0;
    let name = match &mapping.kind {
        MappingKind::Kernel { name } => name.clone().into_bytes(),
        _ => vec![],
    };
    Mapping {
        start: mapping.start.0,
        end: mapping.end.0,
        is_readable: has(libc::PROT_READ),
        is_writable: has(libc::PROT_WRITE),
        is_executable: has(libc::PROT_EXEC),
        is_shared: false,
        offset: 0,
        device: 0,
        inode: 0,
        name,
        flags: Default::default(),
    }
}

/// The stack is mapped whole here; at home it would be as long as it was, or has been used.
fn trim_stack(
    pagemap: &Pagemap,
    origin: &[image::Mapping],
    mappings: &mut [Mapping],
) -> Option<()> {
    let is_stack = |m: &&image::Mapping| m.kind == MappingKind::Anonymous { grows_down: true };
    let before = origin.iter().find(is_stack)?;
    let stack = mappings.iter_mut().find(|m| m.end == before.end.0)?;
    stack.start = capture::stack_start(pagemap, before, stack.start).ok()?;
    stack.name = b"[stack]".to_vec();
    Some(())
}

/// The mappings with home's names for their files.
fn mapping_lines(shared: &Shared, names: &[MappedName]) -> Option<Vec<u8>> {
    use migrate::layout::Backings;
    let mappings = mappings(shared)?.0;
    let library = shared.own_files.fixed.library();
    let mut text = vec![];
    for mut mapping in mappings {
        if mapping.inode != 0 {
            let backing = library.index_of(&mapping)?;
            let name = names.get(backing as usize)?;
            (mapping.device, mapping.inode) = (name.device, name.inode);
            mapping.name = name.name.clone();
        } else if mapping.is_shared || mapping.name.starts_with(b"[anon") {
            return None;
        }
        text.extend(mapping.line());
        if text.len() > OWN_TEXT_BYTES_MAX {
            return None;
        }
    }
    Some(text)
}

#[cfg(test)]
mod test {
    use super::*;

    /// The kernel sorts a process of its own as it is sorted here.
    #[test]
    fn sizes_are_as_the_kernel_counts_them() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        // Until it waits for input it still maps.
        while process::status_field(&process::status(pid).unwrap(), "State") != Some("S (sleeping)")
        {
            std::thread::yield_now();
        }
        let mappings = maps::read(pid).unwrap();
        let layout = process::stat(&pid.to_string()).unwrap().layout;
        let status = process::status(pid).unwrap();
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let sizes = Sizes::of_mappings(&mappings, layout[0]..layout[1]);
        for key in ["VmSize", "VmData", "VmStk", "VmExe", "VmLib"] {
            let told = process::status_kib(&status, key).unwrap();
            assert_eq!(sizes.of_line(key).unwrap() >> 10, told, "{key}");
        }
        let made = String::from_utf8(sizes.statm()).unwrap();
        for place in [0, 3, 5] {
            let word = |text: &str| text.split(' ').nth(place).unwrap().to_owned();
            assert_eq!(word(&made), word(&statm), "word {place} of {statm}");
        }
    }
}
