//! Programs that a process of ours starts for a user: what `std::process::Command` does not set.

use crate::tracee;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Under what a program begins, beside what its `Command` says.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Whose process may trace it, besides its ancestors, where Yama restricts that.
    pub tracer: Option<i32>,
    pub umask: u32,
    /// Added, as by nice(1).
    pub nice: Option<i32>,
    /// On which it may run; none named: on those of its parent.
    pub processors: Vec<u32>,
    /// Resource, soft and hard limit, as of setrlimit(2).
    pub limits: Vec<(u32, u64, u64)>,
    /// It is stopped before its first instruction.
    pub is_suspended: bool,
}

/// Starts it in a session of its own. It is killed when the calling *thread* ends (prctl(2),
/// PR_SET_PDEATHSIG), so this is for one that lasts as long as its process.
///
/// # Errors
/// As of exec, or of what it should begin under; nothing is left of it then.
pub fn spawn(command: &mut Command, conditions: &Conditions) -> io::Result<Child> {
    let parent = std::process::id() as i32;
    let told = conditions.clone();
    let processors = set_of(&told.processors)?;
    let is_suspended = told.is_suspended;
    // SAFETY: between fork and exec only system calls are made: nothing is allocated (what the
    // closure has was made before, and is not dropped there), and no lock is taken.
    unsafe {
        command.pre_exec(move || begin(parent, &told, processors.as_ref()));
    }
    let child = command.spawn()?;
    if is_suspended {
        let pid = child.id() as i32;
        // Its exec has stopped it: until then nobody else could have had it do anything.
        tracee::wait(pid).and_then(|_| tracee::detach(pid, libc::SIGSTOP)).map_err(|e| e.source)?;
    }
    Ok(child)
}

/// Room for the processors of any machine that Linux runs on (NR_CPUS is 8192 at most).
type Processors = [u64; 128];

fn set_of(processors: &[u32]) -> io::Result<Option<Processors>> {
    if processors.is_empty() {
        return Ok(None);
    }
    let mut set = [0; 128];
    for processor in processors {
        let word = set.get_mut(*processor as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (processor % 64);
    }
    Ok(Some(set))
}

/// In the child, before its exec.
fn begin(parent: i32, told: &Conditions, processors: Option<&Processors>) -> io::Result<()> {
    // SAFETY: calls that take integers.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // A parent that had ended before that would not be noticed.
        if libc::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        check(libc::setsid())?;
        libc::umask(told.umask as libc::mode_t);
        if let Some(tracer) = told.tracer {
            // Where there is no Yama the kernel says EINVAL, and there is nothing to allow.
            libc::prctl(libc::PR_SET_PTRACER, tracer as libc::c_ulong);
        }
        if let Some(nice) = told.nice {
            let now = libc::getpriority(libc::PRIO_PROCESS, 0);
            check(libc::setpriority(libc::PRIO_PROCESS, 0, now.saturating_add(nice)))?;
        }
    }
    if let Some(set) = processors {
        // SAFETY: the kernel reads as many bytes of the array as it has.
        check(unsafe { libc::sched_setaffinity(0, size_of::<Processors>(), set.as_ptr().cast()) })?;
    }
    for (resource, soft, hard) in &told.limits {
        let limit = libc::rlimit { rlim_cur: *soft, rlim_max: *hard };
        // SAFETY: the kernel reads one rlimit.
        check(unsafe { libc::setrlimit(*resource as _, &limit) })?;
    }
    if told.is_suspended {
        // SAFETY: takes nothing.
        check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } as i32)?;
    }
    Ok(())
}

fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::proc::process;
    use std::process::Stdio;

    fn status(pid: u32) -> String {
        process::status(pid as i32).unwrap()
    }

    #[test]
    fn a_program_begins_under_what_was_said() {
        let mut command = Command::new("sh");
        let script = "umask; ulimit -n; nice; cut -d' ' -f6 /proc/$$/stat; \
                      sed -n 's/^Cpus_allowed_list:.//p' /proc/$$/status";
        command.args(["-c", script]);
        let conditions = Conditions {
            umask: 0o27,
            nice: Some(3),
            processors: vec![0],
            limits: vec![(libc::RLIMIT_NOFILE, 77, 99)],
            ..Conditions::default()
        };
        let child = spawn(command.stdout(Stdio::piped()), &conditions).unwrap();
        let pid = child.id();
        let out = child.wait_with_output().unwrap();
        let lines = String::from_utf8(out.stdout).unwrap();
        let words: Vec<&str> = lines.split_whitespace().collect();
        assert_eq!(words, ["0027", "77", "3", &pid.to_string(), "0"]);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_and_nothing_runs() {
        let limits = vec![(libc::RLIMIT_NOFILE, 99, 77)];
        let conditions = Conditions { limits, ..Conditions::default() };
        let failed = spawn(&mut Command::new("true"), &conditions).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EINVAL));
        let conditions = Conditions { processors: vec![70_000], ..Conditions::default() };
        assert!(spawn(&mut Command::new("true"), &conditions).is_err());
    }

    #[test]
    fn a_suspended_program_has_run_none_of_itself() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ran");
        let mut command = Command::new("touch");
        command.arg(&trace);
        let conditions = Conditions { is_suspended: true, ..Conditions::default() };
        let mut child = spawn(&mut command, &conditions).unwrap();
        while !status(child.id()).contains("State:\tT (stopped)") {
            std::thread::yield_now();
        }
        assert!(status(child.id()).starts_with("Name:\ttouch"), "it has its program");
        assert!(!trace.exists());
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(trace.exists());
    }
}
