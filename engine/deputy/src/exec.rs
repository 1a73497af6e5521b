//! Another program for a process that is away ([decision 0032](../../../docs/decisions/)): its
//! deputy begins it, as the process that it is, and there is no body any more.
//!
//! A call that fails is one like any other. If it succeeds the kernel has replaced all that was
//! altered about the process, but for what is put back here, and stops it in front of the program's
//! first instruction.
//!
//! What the kernel would do otherwise with a process that is traced is left to one that is not: the
//! call is declined, and the process comes home for it.

use crate::lanes::{Lanes, Work};
use crate::processor_time::started_ticks;
use crate::service::{Service, Shared};
use kernel::patience::Patience;
use kernel::program;
use kernel::tracee::{self, Stop};
use migrate::{MigrateError, Result, freeze};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use wire::calls::{self, EXECVE};
use wire::forward::{Call, Reply, ToAway};
use wire::processor_time::{Clock, PastClock};
use wire::supervisor::{EXEC, FromDeputy, MoveReport};

/// The clocks of a process and of its only thread, as its body has told them.
#[derive(Debug, Default)]
pub struct Clocks(Mutex<(Clock, Clock)>);

/// The process is about to begin another program.
pub fn hear_clocks(shared: &Shared, process: Clock, thread: Clock) {
    if process.is_plausible() && thread.is_plausible() {
        shared.used_away.hear(process.away);
        *shared.clocks.0.lock().expect("no thread of the supervisor panicked") = (process, thread);
    }
}

impl Lanes {
    /// Slots whose thread still lives.
    pub fn live_slots(&self) -> Vec<usize> {
        (0..self.count()).filter(|slot| !matches!(self.lock(*slot).work, Work::Gone)).collect()
    }
}

/// Whether this is a call to begin a program that a process makes which is at home and not traced.
pub fn is_for_a_plain_process(shared: &Shared, slot: usize, call: &Call) -> bool {
    if call.number != EXECVE {
        return false;
    }
    // An honest body does not ask for it with other threads, which would end, or with files.
    let is_alone = slot == 0 && shared.lanes.live_slots() == [0];
    !is_alone || shared.files.is_some() || !gives_no_rights(shared.pid, call)
}

/// Whether a call has failed, but might not have if nobody traced the process: where a security
/// module has a say, it asks about the tracer, too.
pub fn is_doubtful(shared: &Shared, slot: usize, reply: &Reply) -> bool {
    let is_denied = [libc::EPERM, libc::EACCES].map(|error| -i64::from(error));
    if !is_denied.contains(&reply.result) {
        return false;
    }
    let mut lane = shared.lanes.lock(slot);
    let is_exec = |(call, _): &mut (Call, Reply)| call.number == EXECVE;
    // Some answer, if there is such a module.
    let has_say = || fs::read(format!("/proc/{}/attr/current", shared.pid)).is_ok();
    lane.answered.as_mut().is_some_and(is_exec) && has_say() && lane.answered.take().is_some()
}

/// The kernel gives no rights to a process that is traced by somebody without a certain one, and
/// begins the program nevertheless. False unless the program of this call gives none to anybody.
fn gives_no_rights(pid: i32, call: &Call) -> bool {
    let Some(path) = calls::argument_bytes(&call.segments, 0) else { return true };
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    program::may_watch_privileged() || is_harmless(pid, path, SCRIPTS_MAX)
}

/// Linux follows so many scripts from one to the program that is to run it.
const SCRIPTS_MAX: u32 = 5;
/// `BINPRM_BUF_SIZE`: what Linux looks at of a file.
const HEAD_BYTES: u64 = 256;
/// No program, whoever looks for it.
const ABSENT: [i32; 4] = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG];
/// Position of the machine in the head of an ELF file, and those that this one is.
const MACHINE: usize = 18;
const MACHINES: [u8; 2] = [3, 62];

/// Whether the program of this name, as that process sees it, is known to give no rights. So is one
/// that is not there.
fn is_harmless(pid: i32, path: &[u8], scripts_left: u32) -> bool {
    let Some(place) = place_of(pid, path) else { return false };
    match fs::metadata(&place) {
        Ok(is) if !is.is_file() => return true,
        Ok(_) => {}
        // We may have other rights than the process has.
        Err(error) => return ABSENT.contains(&error.raw_os_error().unwrap_or(0)),
    }
    let Some((file, head)) = read_head(&place) else { return false };
    if program::gives_rights(&file) {
        return false;
    }
    match head.strip_prefix(b"#!") {
        Some(line) => scripts_left > 0 && is_harmless(pid, runner(line), scripts_left - 1),
        // What is in no form that the kernel knows may be for somebody whom it has been told of.
        None => {
            let machine = head.get(MACHINE).filter(|_| head.starts_with(b"\x7fELF"));
            machine.is_some_and(|machine| MACHINES.contains(machine))
        }
    }
}

fn read_head(place: &Path) -> Option<(File, Vec<u8>)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(place).ok()?;
    let mut head = Vec::new();
    (&file).take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some((file, head))
}

/// Who runs a script, by its first line.
fn runner(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let begin = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    let line = &line[begin..];
    let is_end = |byte: &u8| is_blank(byte) || matches!(byte, b'\n' | 0);
    &line[..line.iter().position(is_end).unwrap_or(line.len())]
}

/// Whether two names are of one file; None if one of them is of none.
pub fn is_same_file(one: &str, other: &str) -> Option<bool> {
    let id = |is: Metadata| (is.dev(), is.ino());
    Some(id(fs::metadata(one).ok()?) == id(fs::metadata(other).ok()?))
}

/// How we name a file as that process does; None if it may see others by that name.
fn place_of(pid: i32, path: &[u8]) -> Option<PathBuf> {
    if path == b"/proc/self/exe" {
        return Some(PathBuf::from(format!("/proc/{pid}/exe")));
    }
    // Names below these depend on who looks.
    let is_ours = !path.starts_with(b"/proc") && !path.starts_with(b"/dev");
    let sees_the_same = is_same_file("/", &format!("/proc/{pid}/root/"))?
        && is_same_file("/proc/self/ns/mnt", &format!("/proc/{pid}/ns/mnt"))?;
    if !is_ours || !sees_the_same || path.is_empty() {
        return None;
    }
    // One that begins with a slash replaces what is before it.
    Some(Path::new(&format!("/proc/{pid}/cwd")).join(OsStr::from_bytes(path)))
}

/// A kernel that does not begin a program, or fail to, for so long does not.
const EXEC_PATIENCE: Duration = Duration::from_secs(10);

impl Service<'_> {
    /// What has become of a process whose body is lost, or whose deputy could not be served, for
    /// this reason: if it was just beginning another program, it may need neither.
    pub fn what_became(&self, error: MigrateError) -> MigrateError {
        let is_execve =
            |work: &Work| matches!(work, Work::Busy { call, .. } if call.number == EXECVE);
        let is_known = matches!(error, MigrateError::Ended(_) | MigrateError::BeganProgram);
        if is_known || !is_execve(&self.shared.lanes.lock(0).work) {
            return error;
        }
        let _limit = Patience::of(EXEC_PATIENCE);
        // From here on it begins none: it stops first.
        match tracee::interrupt(self.pid).and_then(|()| tracee::wait(self.pid)) {
            Ok(Stop::Event(tracee::EXEC_EVENT)) => MigrateError::BeganProgram,
            Ok(Stop::Ended(status)) => MigrateError::Ended(status),
            _ => error,
        }
    }

    /// The process stands in front of its program: a plain one from here on. Nobody runs in its
    /// place, because its body waits for the call to end.
    pub fn let_program_go(&mut self) -> Result<()> {
        freeze::unhold(&[self.pid]);
        self.readiness = None;
        self.part_from_children();
        // It was to die of these at home.
        for (_, number, _) in std::mem::take(&mut self.death.signals) {
            if let Err(error) = tracee::send_signal(self.pid, self.pid, number) {
                ::tracing::debug!("{error}");
            }
        }
        let let_go = tracee::detach(self.pid, 0);
        self.shared.send(&ToAway::Release);
        self.stop_waiter();
        self.send_usage(true);
        self.daemon.send(&FromDeputy::Clocks(self.past_clocks()));
        let reason = migrate::reason(EXEC, "it has begun another program");
        let report = MoveReport { freeze_budget: self.freeze_budget, ..MoveReport::default() };
        self.daemon.send(&FromDeputy::CameHome { reason, report });
        match let_go {
            Err(error) if !error.is_gone() => Err(MigrateError::from(error)),
            _ => Ok(()),
        }
    }

    /// What its clocks owe to stays away. They go on with another program.
    fn past_clocks(&self) -> Vec<PastClock> {
        let (process, thread) =
            *self.shared.clocks.0.lock().expect("no thread of the supervisor panicked");
        let (away, told) = (self.shared.used_away.told(), process.told);
        let of_process = PastClock { tid: None, started_ticks: 0, away, told };
        let known = self.own.started_ticks(self.pid);
        let of_thread = known.or_else(|| started_ticks(self.pid, self.pid)).map(|started_ticks| {
            let tid = Some(self.shared.lanes.lock(0).guest);
            PastClock { tid, started_ticks, away: thread.away, told: thread.told }
        });
        [Some(of_process), of_thread].into_iter().flatten().collect()
    }
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;
    use crate::lanes::{Accepted, Lane};
    use kernel::memory::Memory;
    use kernel::proc::maps;
    use migrate::{injection, threads};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};
    use wire::calls::{GuestMemory, marshal};
    use wire::ids::{GuestAddr, GuestTid};

    /// A guest's memory in which a page lies at `AT`.
    struct Page(Vec<u8>);

    const AT: u64 = 0x10_0000;

    impl GuestMemory for Page {
        fn process(&self) -> i32 {
            1
        }

        fn read(&self, addr: GuestAddr, buf: &mut [u8]) -> usize {
            let there = addr.0.checked_sub(AT).and_then(|at| self.0.get(at as usize..));
            let there = there.unwrap_or_default();
            let length = there.len().min(buf.len());
            buf[..length].copy_from_slice(&there[..length]);
            length
        }

        fn is_writable(&self, _: GuestAddr, _: usize) -> bool {
            false
        }
    }

    /// The call that begins a program with these arguments and one variable, as a body sends it.
    fn call_of(sequence: u64, arguments: &[&str], variable: &str) -> Call {
        let mut page = vec![0; 4096];
        let mut end = 0;
        let mut put = |page: &mut Vec<u8>, bytes: &[u8]| {
            let at = end;
            page[at..at + bytes.len()].copy_from_slice(bytes);
            end = (at + bytes.len() + 1).next_multiple_of(8);
            (AT + at as u64).to_le_bytes()
        };
        let mut list = |page: &mut Vec<u8>, strings: &[&str]| {
            let mut words: Vec<u8> =
                strings.iter().flat_map(|string| put(page, string.as_bytes())).collect();
            words.extend([0; 8]);
            u64::from_le_bytes(put(page, &words))
        };
        let (argv, envp) = (list(&mut page, arguments), list(&mut page, &[variable]));
        // The path is the first argument.
        let registers = [AT, argv, envp, 0, 0, 0];
        let marshalled = marshal(EXECVE, &registers, &Page(page)).expect("it travels");
        let (arguments, segments) = (marshalled.arguments, marshalled.segments);
        let tid = GuestTid(1);
        Call { tid, sequence, signals_seen: 0, number: EXECVE, arguments, segments }
    }

    /// A process whose thread runs the agent, as a deputy's does.
    pub(crate) fn deputy() -> (Child, Lanes) {
        let mut command = Command::new("cat");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        tracee::seize(pid, freeze::HELD).unwrap();
        tracee::interrupt(pid).unwrap();
        while tracee::wait(pid).unwrap() != Stop::Interrupted {
            // The program itself begins, perhaps.
            tracee::resume_interrupted(pid, 0).unwrap();
        }
        let maps = maps::read(pid).unwrap();
        let memory = Memory::open(pid).unwrap();
        let borrowed = injection::borrow(&memory, &maps).unwrap();
        let mut registers = threads::read(pid, GuestTid(pid)).unwrap().registers;
        let place = injection::place(&maps, 1).unwrap();
        let agent = injection::inject(pid, pid, borrowed, &maps, (&place, 1)).unwrap();
        agent.enter(&mut registers, 0);
        tracee::set_registers(pid, &registers).unwrap();
        tracee::resume(pid, 0).unwrap();
        let lanes = Lanes::new(agent, memory, vec![Lane::unborn(pid, GuestTid(1), pid)], vec![]);
        (child, lanes)
    }

    #[test]
    fn a_deputy_fails_to_begin_programs_like_any_process_and_then_becomes_one_that_is_there() {
        let (mut child, lanes) = deputy();
        let pid = child.id() as i32;
        for (sequence, (path, error)) in
            [("/no/such/program", libc::ENOENT), ("/", libc::EACCES)].into_iter().enumerate()
        {
            let call = call_of(sequence as u64 + 1, &[path], "NONE=1");
            assert!(matches!(lanes.accept(0, call), Some(Accepted::Started)));
            assert!(lanes.agent.await_done(0, std::time::Instant::now() + EXEC_PATIENCE));
            assert_eq!(lanes.complete(0).unwrap().result, -i64::from(error));
        }
        let script = "read line; echo \"$0 $1 $MARK $line $$\"";
        let call = call_of(3, &["/bin/sh", "-c", script, "name", "two words"], "MARK=kept");
        assert!(matches!(lanes.accept(0, call), Some(Accepted::Started)));
        assert_eq!(tracee::wait(pid).unwrap(), Stop::Event(tracee::EXEC_EVENT));
        assert!(lanes.complete(0).is_none(), "there is nobody who would say that it is done");
        freeze::unhold(&[pid]);
        tracee::detach(pid, 0).unwrap();
        child.stdin.take().unwrap().write_all(b"input\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let expected = format!("name two words kept input {pid}\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert!(output.status.success());
    }

    #[test]
    fn who_runs_a_script_is_read_as_linux_reads_it() {
        for (line, expected) in [
            (&b"/bin/sh\n"[..], &b"/bin/sh"[..]),
            (b" \t/bin/sh -e\n", b"/bin/sh"),
            (b"/bin/sh", b"/bin/sh"),
            (b"a\0b", b"a"),
            (b"\n", b""),
            (b"", b""),
        ] {
            assert_eq!(runner(line), expected, "{line:?}");
        }
    }

    #[test]
    fn only_what_is_known_to_give_no_rights_is_harmless() {
        let dir = std::env::temp_dir().join(format!("osmos-exec-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let put = |name: &str, bytes: &[u8], mode: u32| {
            let path = dir.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.as_os_str().as_bytes().to_vec()
        };
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = put("program", &own[..64], 0o755);
        let rights = put("rights", &own[..64], 0o4755);
        let script_of =
            |name: &str, path: &[u8]| put(name, &[b"#!", path, b" -x\n"].concat(), 0o755);
        let good = script_of("good", &program);
        let bad = script_of("bad", &script_of("worse", &rights));
        let endless = script_of("endless", dir.join("endless").as_os_str().as_bytes());
        let text = put("text", b"echo", 0o755);
        let other_machine = put("other", &[&own[..18], &[183, 0], &own[20..64]].concat(), 0o755);
        let short = put("short", b"\x7fELF", 0o755);
        let pid = std::process::id() as i32;
        let is_harmless = |path: &[u8]| is_harmless(pid, path, SCRIPTS_MAX);
        let absent = dir.join("absent").as_os_str().as_bytes().to_vec();
        for path in [&program, &good, &absent, &b"no/such/program".to_vec(), &b"/".to_vec()] {
            assert!(is_harmless(path), "{}", String::from_utf8_lossy(path));
        }
        for path in [&rights, &bad, &endless, &text, &other_machine, &short] {
            assert!(!is_harmless(path), "{}", String::from_utf8_lossy(path));
        }
        assert!(is_harmless(b"/proc/self/exe"));
        for path in [&b"/proc/self/fd/3"[..], b"/dev/fd/3", b""] {
            assert!(!is_harmless(path), "it depends on who looks");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
