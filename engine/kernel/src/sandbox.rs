//! The empty place in which a body is built: new user, PID, mount, network, IPC, UTS and cgroup
//! namespaces (and a time namespace if clocks must be continued), with an init that
//! reaps.
//!
//! It comes in two steps, because all but the body can be made before anything is known of it. To
//! enter a cgroup takes ten milliseconds and more (the kernel waits until each processor has passed
//! through a quiet state), so the init enters by itself while its supervisor does other things.
//!
//! The init stub and the body start as copies of the supervisor and execute only system calls until
//! the body's memory is replaced: nothing of the supervisor's runtime may be used in them. Before
//! the guest runs, nothing of that copy is left: the body's memory is the guest's, and the init,
//! once it has made the body, gives up its capabilities but one, all calls but to wait, to end and
//! to write to one file, and all memory but one page of code. What the supervisor knows (the key of
//! its berth) is in neither.
//!
//! The one capability (CAP_CHECKPOINT_RESTORE) and the one file are for the ids of tasks that the
//! guest makes here ([`crate::thread_ids`]).

use crate::companion::Companion;
use crate::patience::Patience;
use crate::tracee::{self, SeizeOptions, Stop};
use crate::{KernelError, Result, giving_up, pidfd, thread_ids};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// To enter a cgroup may take its time where the machine is busy; for so long it does not.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long what was killed is waited for.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A sandbox whose init waits to be told which body to make.
#[derive(Debug)]
pub struct Blank {
    init: Init,
    orders: OwnedFd,
    next_tid: Option<OwnedFd>,
    /// What the init uses until then: its descriptors are ours.
    _shared: Vec<OwnedFd>,
}

/// A sandbox whose body is stopped before its first instruction, traced by the calling thread.
#[derive(Debug)]
pub struct Sandbox {
    /// None for a companion of the first body, whose thread has it.
    pub init: Option<Init>,
    /// Ends such a one.
    pub(crate) companion: Option<Companion>,
    /// The body's first thread as the calling process sees it.
    pub body_pid: i32,
    /// Where the init writes the next id of its PID namespace; None if this machine has no such
    /// file, or does not let it be written.
    pub(crate) next_tid: Option<OwnedFd>,
}

/// PID 1 of a sandbox, by the pid that it has here. Dropping it ends it, and with it everything in
/// its PID namespace.
#[derive(Debug)]
pub struct Init(pub i32);

/// What the init is told: which body to make.
#[repr(C)]
struct Orders {
    /// The pid that the body's first thread must have inside.
    pid: i32,
    /// How many are to be made after it.
    others: u32,
    /// How much of `offsets` counts; nothing if the clocks are left alone, or are continued
    /// already.
    offsets_length: u32,
    /// For `/proc/PID/timens_offsets`.
    offsets: [u8; OFFSETS_BYTES_MAX],
}

/// Two lines of a name and two numbers of 64 bits.
const OFFSETS_BYTES_MAX: usize = 128;

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

impl Blank {
    /// Starts an init that will have `root`, an empty directory, as its root directory, and enters
    /// the cgroups of these `cgroup.procs` files, as far as it may open them, and that of
    /// `entrance`, which somebody who may has opened. The calling process must have a single
    /// thread, because the copies of it inherit only that one. The body will have all descriptors
    /// that the calling process has when it is started, under the same numbers.
    pub fn create(root: CString, cgroups: &[PathBuf], entrance: Option<OwnedFd>) -> Result<Blank> {
        let (orders_read, orders) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
            .map_err(|e| KernelError::errno("make pipe", e as i32))?;
        let open = |procs: &PathBuf| match File::options().write(true).open(procs) {
            Ok(file) => Ok(Some(OwnedFd::from(file))),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
            Err(source) => {
                let what = format!("put sandbox into {}", procs.display());
                Err(KernelError { what, source })
            }
        };
        let opened: Vec<Option<OwnedFd>> = cgroups.iter().map(open).collect::<Result<_>>()?;
        let mut shared: Vec<OwnedFd> =
            entrance.into_iter().chain(opened.into_iter().flatten()).collect();
        let cgroups: Vec<i32> = shared.iter().map(AsRawFd::as_raw_fd).collect();
        let supervisor = pidfd::open(nix::unistd::getpid().as_raw())?;
        let next_tid = thread_ids::open();
        let plan = InitPlan {
            root: root.as_ptr(),
            cgroups: &cgroups,
            orders: orders_read.as_raw_fd(),
            supervisor: supervisor.as_raw_fd(),
            next_tid: next_tid.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        };
        shared.extend([supervisor, orders_read]);
        let arguments = CloneArguments {
            flags: (NAMESPACES | libc::CLONE_FILES) as u64,
            exit_signal: libc::SIGCHLD as u64,
            ..Default::default()
        };
        // SAFETY: without CLONE_VM the child gets a copy of everything, like fork; it runs only
        // `init`, which makes system calls and never returns.
        match unsafe { clone3("clone into new namespaces", &arguments) }? {
            0 => init(&plan),
            pid => Ok(Blank { init: Init(pid), orders, next_tid, _shared: shared }),
        }
    }

    /// Lets the init make the body with this pid inside, and catches the body at birth; and then
    /// one for each of the companions, which wait untraced until [`Sandbox::of_companion`] is
    /// called for them, each by a thread of its own. Returns how the calling process sees those.
    ///
    /// `clock_offset_ns` is added to this machine's monotonic and boot-time clocks, nanoseconds;
    /// None leaves them alone.
    pub fn start(
        self,
        pid: i32,
        companions: &[i32],
        clock_offset_ns: Option<(i64, i64)>,
    ) -> Result<(Sandbox, Vec<i32>)> {
        let _limit = Patience::of(START_TIMEOUT);
        let mut first = orders(pid, clock_offset_ns);
        first.others = companions.len() as u32;
        let Blank { init, orders: pipe, next_tid, _shared: until_it_has_read } = self;
        tracee::seize(
            init.0,
            SeizeOptions { follow: true, exit_kill: true, calls: true, ..Default::default() },
        )
        .and_then(|()| send(&pipe, &first))
        .map_err(|error| init.failure().unwrap_or(error))?;
        let body_pid = catch_body(init.0)?;
        let mut others = Vec::with_capacity(companions.len());
        for (pid, left) in companions.iter().zip((0..companions.len() as u32).rev()) {
            tracee::resume(init.0, 0)?;
            send(&pipe, &Orders { others: left, ..orders(*pid, None) })?;
            let other = catch_body(init.0)?;
            tracee::detach(other, 0)?;
            others.push(other);
        }
        drop(until_it_has_read);
        tracee::set_options(init.0, SeizeOptions { exit_kill: true, ..Default::default() })?;
        tracee::resume(init.0, 0)?;
        Ok((Sandbox { init: Some(init), companion: None, body_pid, next_tid }, others))
    }
}

/// Waits until the init, which stands stopped then, has made a body, which does as well.
fn catch_body(init: i32) -> Result<i32> {
    loop {
        match tracee::wait(init)? {
            Stop::Event(_) => break,
            Stop::Signal(signal) => tracee::resume(init, signal)?,
            Stop::Ended(status) => return Err(init_failure(status)),
            _ => tracee::resume(init, 0)?,
        }
    }
    let body = tracee::event_message(init)? as i32;
    match tracee::wait(body)? {
        Stop::Interrupted => Ok(body),
        other => {
            let what = format!("catch the body at birth: it was {other:?}");
            Err(KernelError::errno(what, libc::ESRCH))
        }
    }
}

impl Init {
    /// Why it has ended, if it has.
    fn failure(&self) -> Option<KernelError> {
        match tracee::poll(self.0) {
            Ok(Some(Stop::Ended(status))) => Some(init_failure(status)),
            _ => None,
        }
    }
}

impl Drop for Init {
    /// The kernel keeps it until everything inside is gone, and what is inside waits for its
    /// tracer, which is the calling thread: so everybody is waited for, until the init has ended.
    fn drop(&mut self) {
        end(self.0);
    }
}

/// Ends a process that the calling thread traces, and sees it end. One that the kernel keeps longer
/// ends without anybody waiting for it.
pub(crate) fn end(pid: i32) {
    let _ =
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    let _limit = Patience::of(END_TIMEOUT);
    while let Ok((waited, stop)) = tracee::wait_any() {
        if waited == pid && matches!(stop, Stop::Ended(_)) {
            return;
        }
    }
}

fn orders(pid: i32, clock_offset_ns: Option<(i64, i64)>) -> Orders {
    let text = clock_offset_ns.map(|(monotonic, boot)| clock_offsets(monotonic, boot));
    let text = text.unwrap_or_default();
    let mut offsets = [0; OFFSETS_BYTES_MAX];
    offsets[..text.len()].copy_from_slice(text.as_bytes());
    Orders { pid, others: 0, offsets_length: text.len() as u32, offsets }
}

fn send(pipe: &OwnedFd, orders: &Orders) -> Result<()> {
    let size = size_of::<Orders>();
    // SAFETY: the orders are live, of this size, and have no padding.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(orders).cast(), size) };
    // What is that short goes into a pipe as a whole.
    nix::unistd::write(pipe, bytes)
        .map(drop)
        .map_err(|e| KernelError::errno("start sandbox", e as i32))
}

/// The text of `/proc/PID/timens_offsets` (time_namespaces(7)).
fn clock_offsets(monotonic_ns: i64, boot_ns: i64) -> String {
    let line = |name: &str, ns: i64| {
        format!("{name} {} {}\n", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
    };
    line("monotonic", monotonic_ns) + &line("boottime", boot_ns)
}

struct InitPlan<'a> {
    root: *const libc::c_char,
    cgroups: &'a [i32],
    orders: i32,
    /// The process that it belongs to, and ends with.
    supervisor: i32,
    /// Which descriptor it keeps; -1 for none.
    next_tid: i32,
}

// Exit codes of the init stub: which step failed.
const FAILED_CLOCK: i32 = 81;
const FAILED_ROOT: i32 = 82;
const FAILED_BODY: i32 = 83;
const FAILED_CGROUP: i32 = 84;
const FAILED_INIT: i32 = 85;

fn init_failure(status: i32) -> KernelError {
    let step = match libc::WEXITSTATUS(status) {
        FAILED_CLOCK => "continue the clocks in a time namespace",
        FAILED_ROOT => "change to an empty root directory",
        FAILED_CGROUP => "put the sandbox into the cgroups of guests",
        FAILED_BODY => "create the body with its pid of home (clone3 set_tid)",
        _ => "start the sandbox's init",
    };
    KernelError::errno(step, libc::EPERM)
}

/// PID 1 of the sandbox.
fn init(plan: &InitPlan<'_>) -> ! {
    // SAFETY: (whole function) only system calls on live locals and on memory copied from the
    // parent; nothing allocates, locks or returns, so the copied runtime is never entered. All zero
    // bytes are orders, if senseless ones.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // It may have ended before that.
        let mut supervisor = libc::pollfd { fd: plan.supervisor, events: libc::POLLIN, revents: 0 };
        if libc::poll(&raw mut supervisor, 1, 0) != 0 {
            libc::_exit(0);
        }
        for cgroup in plan.cgroups {
            // Zero is who writes it.
            if libc::write(*cgroup, c"0".as_ptr().cast(), 1) != 1 {
                libc::_exit(FAILED_CGROUP);
            }
        }
        let mut orders: Orders = std::mem::zeroed();
        let size = size_of::<Orders>();
        let mut is_first = true;
        while is_first || orders.others > 0 {
            if libc::read(plan.orders, (&raw mut orders).cast(), size) != size as isize {
                libc::_exit(0);
            }
            let length = (orders.offsets_length as usize).min(OFFSETS_BYTES_MAX);
            if length > 0 && !continue_clocks(&raw const orders.offsets, length) {
                libc::_exit(FAILED_CLOCK);
            }
            if is_first && !leave_root(plan.root) {
                libc::_exit(FAILED_ROOT);
            }
            is_first = false;
            let tid = orders.pid;
            // Without a signal at its end, nor at those of processes that it makes for this parent:
            // one that is traced would stop for it.
            let arguments = CloneArguments {
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
        }
        giving_up::close_all_but(plan.next_tid);
        giving_up::give_up_capabilities(plan.next_tid >= 0);
        let may_unmap = giving_up::give_up_rseq();
        let calls = [libc::SYS_munmap, libc::SYS_wait4, libc::SYS_exit_group, libc::SYS_pwrite64];
        if !crate::seccomp::confine_to(calls.map(|number| number as u32)) {
            libc::_exit(FAILED_INIT);
        }
        // With an area still registered the kernel would kill it for the memory that is gone.
        if may_unmap { osmos_init_wait() } else { osmos_init_reap() }
    }
}

// All that an init does for the rest of its time, in a page of its own: it unmaps everything else,
// its stack included, and reaps what ends until there is nothing left.
std::arch::global_asm!(
    ".pushsection .text.osmos_init, \"ax\", @progbits",
    ".balign 4096",
    ".globl osmos_init_wait",
    "osmos_init_wait:",
    "xor edi, edi",
    "lea rsi, [rip + osmos_init_wait]",
    "mov eax, 11",
    "syscall",
    "lea rdi, [rip + osmos_init_end]",
    "movabs rsi, 0x7ffffffff000",
    "sub rsi, rdi",
    "mov eax, 11",
    "syscall",
    ".globl osmos_init_reap",
    "osmos_init_reap:",
    "1:",
    "mov rdi, -1",
    "xor esi, esi",
    "mov edx, 0x40000000", // __WALL
    "xor r10d, r10d",
    "mov eax, 61",
    ".globl osmos_init_syscall",
    "osmos_init_syscall:",
    "syscall",
    "cmp rax, -10", // ECHILD
    "jne 1b",
    "xor edi, edi",
    "mov eax, 231",
    "syscall",
    "ud2",
    // What is to be written, put there from outside.
    ".balign 8",
    ".globl osmos_init_text",
    "osmos_init_text:",
    ".zero 8",
    ".balign 4096",
    "osmos_init_end:",
    ".popsection",
);

unsafe extern "C" {
    /// Never returns, and leaves no memory to return to.
    fn osmos_init_wait() -> !;
    /// The same, and leaves the memory as it is.
    fn osmos_init_reap() -> !;
    static osmos_init_syscall: u8;
    static osmos_init_text: u8;
}

/// Where the init has an instruction for a call, and eight bytes for what it is to write.
pub(crate) fn init_places() -> (u64, u64) {
    ((&raw const osmos_init_syscall) as u64, (&raw const osmos_init_text) as u64)
}

/// Has the calling process, alone in a mount namespace of its own, see an empty directory that
/// cannot be written to, and nothing else: the mounts that it was born with are gone.
///
/// Where the machine's root is its initial one, which cannot be left (pivot_root(2)), or where
/// nothing can be mounted, the root directory is changed only; what lies behind it cannot be opened
/// without a descriptor or a file of its own.
///
/// # Safety
///
/// As for [`init`]: called in a copied process, makes system calls only. `fallback` is the path of
/// a directory with nothing in it.
unsafe fn leave_root(fallback: *const libc::c_char) -> bool {
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (kind, here) = (c"tmpfs".as_ptr(), c".".as_ptr());
    let options = c"size=4k,nr_inodes=2,mode=555".as_ptr();
    // SAFETY: all paths are literals, but for one that the caller vouches for.
    unsafe {
        // Over something that is there for sure, and not of use any more.
        let place = c"/proc".as_ptr();
        if libc::mount(kind, place, kind, flags, options.cast()) != 0 {
            return libc::chroot(fallback) == 0 && libc::chdir(c"/".as_ptr()) == 0;
        }
        if libc::chdir(place) != 0 {
            return false;
        }
        // The old root comes to lie over the new one, from where it is taken away.
        let is_left = libc::syscall(libc::SYS_pivot_root, here, here) == 0
            && libc::umount2(here, libc::MNT_DETACH) == 0;
        (is_left || libc::chroot(here) == 0) && libc::chdir(c"/".as_ptr()) == 0
    }
}

/// Children of the calling process get a time namespace with these offsets.
///
/// # Safety
///
/// As for [`init`]: called in a copied process, makes system calls only. `length` bytes at
/// `offsets` must be readable.
unsafe fn continue_clocks(offsets: *const [u8; OFFSETS_BYTES_MAX], length: usize) -> bool {
    // SAFETY: the path is a literal, and the caller vouches for the text.
    unsafe {
        if libc::unshare(CLONE_NEWTIME) != 0 {
            return false;
        }
        let file = libc::open(c"/proc/self/timens_offsets".as_ptr(), libc::O_WRONLY);
        let written = libc::write(file, offsets.cast(), length);
        file >= 0 && libc::close(file) == 0 && written == length as isize
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
