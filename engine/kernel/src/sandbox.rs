//! The empty place in which a body is built: new user, PID, mount, network, IPC, UTS and cgroup
//! namespaces (and a time namespace if clocks must be continued), with an init that does nothing.
//!
//! The init stub and the body start as copies of the supervisor and execute only system calls until
//! the body's memory is replaced: nothing of the supervisor's runtime may be used in them.

use crate::tracee::{self, SeizeOptions, Stop};
use crate::{KernelError, Result};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

/// What the sandbox has to look like.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The pid that the body's first thread must have inside.
    pub pid: i32,
    /// Becomes the root directory: an empty one.
    pub root: CString,
    /// Added to this machine's monotonic and boot-time clocks, nanoseconds; None leaves them alone.
    pub clock_offset_ns: Option<(i64, i64)>,
    /// `cgroup.procs` files into which everything inside goes.
    pub cgroups: Vec<std::path::PathBuf>,
}

/// A sandbox whose body is stopped before its first instruction, traced by the calling thread.
#[derive(Debug)]
pub struct Sandbox {
    pub init_pid: i32,
    /// The body's first thread as the calling process sees it.
    pub body_pid: i32,
}

#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// All that a sandbox has of its own, but for time.
pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
pub(crate) const CLONE_NEWTIME: i32 = 0x80;

/// Builds the sandbox. The calling process must have a single thread, because the copies of it
/// inherit only that one.
pub fn create(spec: &Spec) -> Result<Sandbox> {
    let (go_read, go_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|e| KernelError::errno("make pipe", e as i32))?;
    let offsets = spec.clock_offset_ns.map(|(monotonic, boot)| clock_offsets(monotonic, boot));
    let plan = InitPlan {
        pid: spec.pid,
        root: spec.root.as_ptr(),
        offsets: offsets.as_deref(),
        go: go_read.as_raw_fd(),
        go_write: go_write.as_raw_fd(),
    };
    let arguments = CloneArguments {
        flags: NAMESPACES as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..Default::default()
    };
    // SAFETY: without CLONE_VM the child gets a copy of everything, like fork; it runs only
    // `init`, which makes system calls and never returns.
    let init_pid = match unsafe { clone3("clone into new namespaces", &arguments) }? {
        0 => init(&plan),
        pid => pid,
    };
    let sandbox = start(spec, init_pid, &go_write);
    if sandbox.is_err() {
        kill(init_pid);
    }
    sandbox
}

/// Lets the prepared init make the body, and catches the body at birth.
fn start(spec: &Spec, init_pid: i32, go: &OwnedFd) -> Result<Sandbox> {
    for procs in &spec.cgroups {
        std::fs::write(procs, init_pid.to_string()).map_err(|source| KernelError {
            what: format!("put sandbox into {}", procs.display()),
            source,
        })?;
    }
    tracee::seize(init_pid, SeizeOptions { follow: true, exit_kill: true })?;
    nix::unistd::write(go, b"g").map_err(|e| KernelError::errno("start sandbox", e as i32))?;
    loop {
        match tracee::wait(init_pid)? {
            Stop::Event(_) => break,
            Stop::Signal(signal) => tracee::resume(init_pid, signal)?,
            Stop::Ended(status) => return Err(init_failure(status)),
            _ => tracee::resume(init_pid, 0)?,
        }
    }
    let body_pid = tracee::event_message(init_pid)? as i32;
    match tracee::wait(body_pid)? {
        Stop::Interrupted => {}
        other => {
            let what = format!("catch the body at birth: it was {other:?}");
            return Err(KernelError::errno(what, libc::ESRCH));
        }
    }
    tracee::detach(init_pid, 0)?;
    Ok(Sandbox { init_pid, body_pid })
}

impl Drop for Sandbox {
    /// Kills the init, and with it everything in its PID namespace.
    fn drop(&mut self) {
        kill(self.init_pid);
    }
}

/// Ends the init. The kernel keeps it until everything inside is gone, and what is inside waits for
/// its tracer, which is the calling thread: so everybody is waited for, until the init has ended.
fn kill(init: i32) {
    let pid = nix::unistd::Pid::from_raw(init);
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    while let Ok((waited, stop)) = tracee::wait_any() {
        if waited == init && matches!(stop, Stop::Ended(_)) {
            return;
        }
    }
}

/// The text of `/proc/PID/timens_offsets` (time_namespaces(7)).
fn clock_offsets(monotonic_ns: i64, boot_ns: i64) -> String {
    let line = |name: &str, ns: i64| {
        format!("{name} {} {}\n", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
    };
    line("monotonic", monotonic_ns) + &line("boottime", boot_ns)
}

struct InitPlan<'a> {
    pid: i32,
    root: *const libc::c_char,
    offsets: Option<&'a str>,
    go: i32,
    go_write: i32,
}

// Exit codes of the init stub: which step failed.
const FAILED_CLOCK: i32 = 81;
const FAILED_ROOT: i32 = 82;
const FAILED_BODY: i32 = 83;

fn init_failure(status: i32) -> KernelError {
    let step = match libc::WEXITSTATUS(status) {
        FAILED_CLOCK => "continue the clocks in a time namespace",
        FAILED_ROOT => "change to an empty root directory",
        FAILED_BODY => "create the body with its pid of home (clone3 set_tid)",
        _ => "start the sandbox's init",
    };
    KernelError::errno(step, libc::EPERM)
}

/// PID 1 of the sandbox.
fn init(plan: &InitPlan<'_>) -> ! {
    let mut byte = 0u8;
    // SAFETY: (whole function) only system calls on live locals and on memory copied from the
    // parent; nothing allocates, locks or returns, so the copied runtime is never entered.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::close(plan.go_write);
        if libc::read(plan.go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(0);
        }
        if let Some(offsets) = plan.offsets
            && !continue_clocks(offsets)
        {
            libc::_exit(FAILED_CLOCK);
        }
        if libc::chroot(plan.root) != 0 || libc::chdir(c"/".as_ptr()) != 0 {
            libc::_exit(FAILED_ROOT);
        }
        let tid = plan.pid;
        let arguments = CloneArguments {
            exit_signal: libc::SIGCHLD as u64,
            set_tid: (&raw const tid) as u64,
            set_tid_size: 1,
            ..Default::default()
        };
        let size = size_of::<CloneArguments>();
        match libc::syscall(libc::SYS_clone3, &raw const arguments, size) {
            -1 => libc::_exit(FAILED_BODY),
            0 => loop {
                libc::pause();
            },
            _ => {}
        }
        libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32);
        loop {
            let mut status = 0;
            if libc::waitpid(-1, &raw mut status, libc::__WALL) == -1
                && *libc::__errno_location() == libc::ECHILD
            {
                libc::_exit(0);
            }
        }
    }
}

/// Children of the calling process get a time namespace with these offsets.
///
/// # Safety
///
/// As for [`init`]: called in a copied process, makes system calls only.
unsafe fn continue_clocks(offsets: &str) -> bool {
    // SAFETY: the path is a literal, the text a live slice.
    unsafe {
        if libc::unshare(CLONE_NEWTIME) != 0 {
            return false;
        }
        let file = libc::open(c"/proc/self/timens_offsets".as_ptr(), libc::O_WRONLY);
        let written = libc::write(file, offsets.as_ptr().cast(), offsets.len());
        file >= 0 && libc::close(file) == 0 && written == offsets.len() as isize
    }
}

/// # Safety
///
/// The arguments must describe a child that shares no memory with the caller.
unsafe fn clone3(what: &str, arguments: &CloneArguments) -> Result<i32> {
    let address = std::ptr::from_ref(arguments) as u64;
    let size = size_of::<CloneArguments>() as u64;
    // SAFETY: the argument block is live and of the stated size; the caller vouches for the rest.
    unsafe { crate::sys::call(what, libc::SYS_clone3, [address, size, 0, 0, 0, 0]) }
        .map(|pid| pid as i32)
}

/// The bytes of a `struct clone_args` that makes a thread of the calling process with this id, for
/// a call executed remotely. `tid_address` is where `tid` lies in that process's memory.
pub fn thread_arguments(tid_address: u64) -> Vec<u8> {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let words = [flags as u64, 0, 0, 0, 0, 0, 0, 0, tid_address, 1, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Whether processes can be made with a chosen pid. Tried with one that cannot be: a kernel that
/// does not know the field refuses it for that alone.
pub(crate) fn has_chosen_pids() -> bool {
    let tid = 0;
    let arguments =
        CloneArguments { set_tid: (&raw const tid) as u64, set_tid_size: 1, ..Default::default() };
    // SAFETY: the pid is invalid, so no child is made.
    let made = unsafe { clone3("try a chosen pid", &arguments) };
    matches!(made, Err(error) if error.source.raw_os_error() == Some(libc::EINVAL))
}
