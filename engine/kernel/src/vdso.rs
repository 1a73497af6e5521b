//! What a body calls instead of its home's vDSO: the same functions, made of its node's own vDSO
//! and of how far the node's clocks are from home's.
//!
//! A program holds addresses inside the vDSO that its kernel gave it, and the code there reads data
//! that only this kernel keeps. Away, the bytes of home's vDSO stay where they are, each function
//! begins with a jump to the stub here, and the stub asks the node's vDSO and adds an offset for
//! each clock. The monotonic and boot-time clocks need none (a time namespace shifts them for the
//! kernel's own use as well), the others do: no namespace shifts the time of day.
//!
//! The stub lies in two pages: code, and *data* that its supervisor writes and the guest reads.
//! Where a thread stands in it is told by [`place`], so that a thread that is to leave, or to run a
//! signal handler, can be led out of it: its address means nothing elsewhere.
//!
//! Rules that the rest relies on: a function that is in its frame has `FRAME_BYTES` on the stack;
//! an instruction that may fault (on the caller's pointers) has the caller's rdi and rsi in place,
//! and so has a `syscall` instruction, with rdx and r8 too and rcx in r9.

use crate::shared::SharedMemory;
use crate::thread_state::BREAKPOINTS;
use std::sync::atomic::Ordering;

std::arch::global_asm!(
    ".pushsection .rodata.osmos_vdso, \"a\", @progbits",
    ".balign 64",
    ".globl osmos_vdso_begin",
    "osmos_vdso_begin:",
    // int clock_gettime(clockid_t edi, struct timespec *rsi)
    ".globl osmos_vdso_clock_gettime",
    "osmos_vdso_clock_gettime:",
    "cmp edi, 11",
    "ja 9f",
    // Those that a vDSO knows and the offsets are for: 0, 1, 4, 5, 6, 7, 11.
    "mov eax, 0x8f3",
    "bt eax, edi",
    "jnc 9f",
    "lea rsp, [rsp - 40]",
    ".globl osmos_vdso_clock_gettime_frame",
    "osmos_vdso_clock_gettime_frame:",
    "mov qword ptr [rsp + 32], rsi",
    "mov qword ptr [rsp + 24], rdi",
    "mov rsi, rsp",
    "call qword ptr [rip + osmos_vdso_begin + 4096]",
    ".globl osmos_vdso_clock_gettime_called",
    "osmos_vdso_clock_gettime_called:",
    "mov rdi, qword ptr [rsp + 24]",
    "mov rsi, qword ptr [rsp + 32]",
    "test eax, eax",
    "jnz 8f",
    "mov ecx, edi",
    "lea rdx, [rip + osmos_vdso_begin + 4096 + 64]",
    "mov rdx, qword ptr [rdx + rcx * 8]",
    "mov eax, edx",
    "and eax, 0x3fffffff",
    "sar rdx, 30",
    "add rax, qword ptr [rsp + 8]",
    "add rdx, qword ptr [rsp]",
    "cmp rax, 1000000000",
    "jb 2f",
    "sub rax, 1000000000",
    "inc rdx",
    "2:",
    "mov qword ptr [rsi], rdx",
    "mov qword ptr [rsi + 8], rax",
    "xor eax, eax",
    "8:",
    "lea rsp, [rsp + 40]",
    ".globl osmos_vdso_clock_gettime_unframe",
    "osmos_vdso_clock_gettime_unframe:",
    "ret",
    "9:",
    "mov eax, 228",
    ".globl osmos_vdso_clock_gettime_syscall",
    "osmos_vdso_clock_gettime_syscall:",
    "syscall",
    "ret",
    // int gettimeofday(struct timeval *rdi, struct timezone *rsi)
    ".balign 64",
    ".globl osmos_vdso_gettimeofday",
    "osmos_vdso_gettimeofday:",
    "test rsi, rsi",
    "jnz 9f",
    "lea rsp, [rsp - 40]",
    ".globl osmos_vdso_gettimeofday_frame",
    "osmos_vdso_gettimeofday_frame:",
    "mov qword ptr [rsp + 32], rsi",
    "mov qword ptr [rsp + 24], rdi",
    "xor edi, edi",
    "mov rsi, rsp",
    "call qword ptr [rip + osmos_vdso_begin + 4096]",
    ".globl osmos_vdso_gettimeofday_called",
    "osmos_vdso_gettimeofday_called:",
    "mov rdi, qword ptr [rsp + 24]",
    "mov rsi, qword ptr [rsp + 32]",
    "test eax, eax",
    "jnz 8f",
    "test rdi, rdi",
    "jz 8f",
    "mov rdx, qword ptr [rip + osmos_vdso_begin + 4096 + 64]",
    "mov eax, edx",
    "and eax, 0x3fffffff",
    "sar rdx, 30",
    "add rax, qword ptr [rsp + 8]",
    "add rdx, qword ptr [rsp]",
    "cmp rax, 1000000000",
    "jb 2f",
    "sub rax, 1000000000",
    "inc rdx",
    "2:",
    // Nanoseconds to microseconds: 274877907 / 2^38 is 1/1000, exact below 2^32.
    "mov ecx, 274877907",
    "imul rax, rcx",
    "shr rax, 38",
    "mov qword ptr [rdi], rdx",
    "mov qword ptr [rdi + 8], rax",
    "xor eax, eax",
    "8:",
    "lea rsp, [rsp + 40]",
    ".globl osmos_vdso_gettimeofday_unframe",
    "osmos_vdso_gettimeofday_unframe:",
    "ret",
    "9:",
    "mov eax, 96",
    ".globl osmos_vdso_gettimeofday_syscall",
    "osmos_vdso_gettimeofday_syscall:",
    "syscall",
    "ret",
    // time_t time(time_t *rdi), as exact as the coarse clock, as Linux has it
    ".balign 64",
    ".globl osmos_vdso_time",
    "osmos_vdso_time:",
    "lea rsp, [rsp - 40]",
    ".globl osmos_vdso_time_frame",
    "osmos_vdso_time_frame:",
    "mov qword ptr [rsp + 32], rsi",
    "mov qword ptr [rsp + 24], rdi",
    "mov edi, 5",
    "mov rsi, rsp",
    "call qword ptr [rip + osmos_vdso_begin + 4096]",
    ".globl osmos_vdso_time_called",
    "osmos_vdso_time_called:",
    "mov rdi, qword ptr [rsp + 24]",
    "mov rsi, qword ptr [rsp + 32]",
    "movsxd rcx, eax",
    "test eax, eax",
    "jnz 8f",
    "mov rdx, qword ptr [rip + osmos_vdso_begin + 4096 + 64 + 40]",
    "mov eax, edx",
    "and eax, 0x3fffffff",
    "sar rdx, 30",
    "add rax, qword ptr [rsp + 8]",
    "add rdx, qword ptr [rsp]",
    "cmp rax, 1000000000",
    "jb 2f",
    "inc rdx",
    "2:",
    "mov rcx, rdx",
    "test rdi, rdi",
    "jz 8f",
    "mov qword ptr [rdi], rdx",
    "8:",
    "mov rax, rcx",
    "lea rsp, [rsp + 40]",
    ".globl osmos_vdso_time_unframe",
    "osmos_vdso_time_unframe:",
    "ret",
    // int getcpu(unsigned *rdi, unsigned *rsi)
    ".balign 64",
    ".globl osmos_vdso_getcpu",
    "osmos_vdso_getcpu:",
    "lea rsp, [rsp - 40]",
    ".globl osmos_vdso_getcpu_frame",
    "osmos_vdso_getcpu_frame:",
    "mov qword ptr [rsp + 32], rsi",
    "mov qword ptr [rsp + 24], rdi",
    "mov rdi, rsp",
    "lea rsi, [rsp + 4]",
    "xor edx, edx",
    "call qword ptr [rip + osmos_vdso_begin + 4096 + 8]",
    ".globl osmos_vdso_getcpu_called",
    "osmos_vdso_getcpu_called:",
    "mov rdi, qword ptr [rsp + 24]",
    "mov rsi, qword ptr [rsp + 32]",
    "test rdi, rdi",
    "jz 2f",
    "mov ecx, dword ptr [rsp]",
    "mov dword ptr [rdi], ecx",
    "2:",
    "test rsi, rsi",
    "jz 3f",
    "mov ecx, dword ptr [rsp + 4]",
    "mov dword ptr [rsi], ecx",
    "3:",
    "lea rsp, [rsp + 40]",
    ".globl osmos_vdso_getcpu_unframe",
    "osmos_vdso_getcpu_unframe:",
    "ret",
    // int clock_getres(clockid_t edi, struct timespec *rsi)
    ".balign 64",
    ".globl osmos_vdso_clock_getres",
    "osmos_vdso_clock_getres:",
    "mov eax, 229",
    ".globl osmos_vdso_clock_getres_syscall",
    "osmos_vdso_clock_getres_syscall:",
    "syscall",
    "ret",
    // ssize_t getrandom(void *rdi, size_t rsi, unsigned edx, void *rcx, size_t r8): the state that
    // the caller keeps for it is of home's kernel, and stays as it is. Who asks what state to keep
    // (the last size is -1) hears that there is none.
    ".balign 64",
    ".globl osmos_vdso_getrandom",
    "osmos_vdso_getrandom:",
    "cmp r8, -1",
    "jne 2f",
    "mov rax, -38",
    "ret",
    "2:",
    "mov r9, rcx",
    "mov eax, 318",
    ".globl osmos_vdso_getrandom_syscall",
    "osmos_vdso_getrandom_syscall:",
    "syscall",
    "ret",
    ".globl osmos_vdso_end",
    "osmos_vdso_end:",
    ".popsection",
);

unsafe extern "C" {
    static osmos_vdso_begin: u8;
    static osmos_vdso_clock_gettime: u8;
    static osmos_vdso_clock_gettime_frame: u8;
    static osmos_vdso_clock_gettime_called: u8;
    static osmos_vdso_clock_gettime_unframe: u8;
    static osmos_vdso_clock_gettime_syscall: u8;
    static osmos_vdso_gettimeofday: u8;
    static osmos_vdso_gettimeofday_frame: u8;
    static osmos_vdso_gettimeofday_called: u8;
    static osmos_vdso_gettimeofday_unframe: u8;
    static osmos_vdso_gettimeofday_syscall: u8;
    static osmos_vdso_time: u8;
    static osmos_vdso_time_frame: u8;
    static osmos_vdso_time_called: u8;
    static osmos_vdso_time_unframe: u8;
    static osmos_vdso_getcpu: u8;
    static osmos_vdso_getcpu_frame: u8;
    static osmos_vdso_getcpu_called: u8;
    static osmos_vdso_getcpu_unframe: u8;
    static osmos_vdso_clock_getres: u8;
    static osmos_vdso_clock_getres_syscall: u8;
    static osmos_vdso_getrandom: u8;
    static osmos_vdso_getrandom_syscall: u8;
    static osmos_vdso_end: u8;
}

const PAGE: usize = 4096;
/// Of the stub: a page of code and a page of data.
pub const STUB_BYTES: usize = 2 * PAGE;
/// The part of it that has to be mapped executable.
pub const CODE_BYTES: usize = PAGE;
/// What a function of the stub has on the stack while it is in its frame.
pub const FRAME_BYTES: u64 = 40;
/// Clocks that have an offset: their ids are below.
pub const CLOCKS: usize = 12;
const GETTIME_OFFSET: usize = PAGE;
const GETCPU_OFFSET: usize = PAGE + 8;
const OFFSETS_OFFSET: usize = PAGE + 64;

/// A function of the vDSO that the stub stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Function {
    ClockGettime,
    Gettimeofday,
    Time,
    Getcpu,
    ClockGetres,
    Getrandom,
}

/// Where one function lies: addresses of labels.
struct Labels {
    function: Function,
    begin: *const u8,
    frame: Option<(*const u8, *const u8)>,
    syscall: Option<*const u8>,
}

fn labels() -> [Labels; 6] {
    [
        Labels {
            function: Function::ClockGettime,
            begin: &raw const osmos_vdso_clock_gettime,
            frame: Some((
                &raw const osmos_vdso_clock_gettime_frame,
                &raw const osmos_vdso_clock_gettime_unframe,
            )),
            syscall: Some(&raw const osmos_vdso_clock_gettime_syscall),
        },
        Labels {
            function: Function::Gettimeofday,
            begin: &raw const osmos_vdso_gettimeofday,
            frame: Some((
                &raw const osmos_vdso_gettimeofday_frame,
                &raw const osmos_vdso_gettimeofday_unframe,
            )),
            syscall: Some(&raw const osmos_vdso_gettimeofday_syscall),
        },
        Labels {
            function: Function::Time,
            begin: &raw const osmos_vdso_time,
            frame: Some((&raw const osmos_vdso_time_frame, &raw const osmos_vdso_time_unframe)),
            syscall: None,
        },
        Labels {
            function: Function::Getcpu,
            begin: &raw const osmos_vdso_getcpu,
            frame: Some((&raw const osmos_vdso_getcpu_frame, &raw const osmos_vdso_getcpu_unframe)),
            syscall: None,
        },
        Labels {
            function: Function::ClockGetres,
            begin: &raw const osmos_vdso_clock_getres,
            frame: None,
            syscall: Some(&raw const osmos_vdso_clock_getres_syscall),
        },
        Labels {
            function: Function::Getrandom,
            begin: &raw const osmos_vdso_getrandom,
            frame: None,
            syscall: Some(&raw const osmos_vdso_getrandom_syscall),
        },
    ]
}

impl Function {
    pub const ALL: [Function; 6] = [
        Function::ClockGettime,
        Function::Gettimeofday,
        Function::Time,
        Function::Getcpu,
        Function::ClockGetres,
        Function::Getrandom,
    ];

    /// Its symbol in the vDSO (vdso(7)).
    pub fn symbol(self) -> &'static str {
        match self {
            Function::ClockGettime => "__vdso_clock_gettime",
            Function::Gettimeofday => "__vdso_gettimeofday",
            Function::Time => "__vdso_time",
            Function::Getcpu => "__vdso_getcpu",
            Function::ClockGetres => "__vdso_clock_getres",
            Function::Getrandom => "__vdso_getrandom",
        }
    }

    /// Where it begins in the stub.
    pub fn offset(self) -> u64 {
        let found = labels().into_iter().find(|labels| labels.function == self);
        found.map_or(0, |labels| offset_of(labels.begin))
    }
}

fn offset_of(symbol: *const u8) -> u64 {
    (symbol as usize - (&raw const osmos_vdso_begin) as usize) as u64
}

fn code() -> &'static [u8] {
    let (begin, end) = (&raw const osmos_vdso_begin, &raw const osmos_vdso_end);
    // SAFETY: both symbols delimit one run of read-only bytes, laid down by the assembly above.
    unsafe { std::slice::from_raw_parts(begin, end as usize - begin as usize) }
}

/// Where in the stub the node's own vDSO returns to: as many places as there are breakpoints.
pub fn returns() -> [u64; BREAKPOINTS] {
    [
        &raw const osmos_vdso_clock_gettime_called,
        &raw const osmos_vdso_gettimeofday_called,
        &raw const osmos_vdso_time_called,
        &raw const osmos_vdso_getcpu_called,
    ]
    .map(offset_of)
}

/// Where in the stub an instruction lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub function: Function,
    /// `FRAME_BYTES` lie on the stack above what the caller left there.
    pub is_framed: bool,
    /// It is the function's `syscall` instruction.
    pub is_syscall: bool,
}

/// What lies at this offset of the stub's code; None behind its end.
pub fn place(offset: u64) -> Option<Place> {
    if offset >= code().len() as u64 {
        return None;
    }
    let labels = labels().into_iter().rev().find(|labels| offset_of(labels.begin) <= offset)?;
    let is_inside =
        |(from, to): (*const u8, *const u8)| (offset_of(from)..offset_of(to)).contains(&offset);
    Some(Place {
        function: labels.function,
        is_framed: labels.frame.is_some_and(is_inside),
        is_syscall: labels.syscall.is_some_and(|syscall| offset_of(syscall) == offset),
    })
}

/// The two pages of a stub as its supervisor has them.
pub struct Stub(SharedMemory);

impl Stub {
    /// # Errors
    /// The kernel gives no memory.
    pub fn create() -> crate::Result<Stub> {
        let memory = SharedMemory::create_for_code(STUB_BYTES)?;
        memory.write(0, code());
        Ok(Stub(memory))
    }

    /// `gettime` and `getcpu` are these functions of the node's own vDSO, as the body sees them.
    pub fn set_functions(&self, gettime: u64, getcpu: u64) {
        self.0.write(GETTIME_OFFSET, &gettime.to_le_bytes());
        self.0.write(GETCPU_OFFSET, &getcpu.to_le_bytes());
    }

    pub fn file(&self) -> &std::os::fd::OwnedFd {
        self.0.file()
    }

    /// From now on `clock` (an id below [`CLOCKS`]) shows `offset_ns` more than the node's.
    pub fn set_offset(&self, clock: usize, offset_ns: i64) {
        assert!(clock < CLOCKS);
        // One word, so that no reader sees half of it: seconds above 30 bits of nanoseconds.
        let seconds = offset_ns.div_euclid(NANOSECONDS);
        let packed = seconds << 30 | offset_ns.rem_euclid(NANOSECONDS);
        self.0.word64(OFFSETS_OFFSET + clock * 8).store(packed as u64, Ordering::Relaxed);
    }
}

const NANOSECONDS: i64 = 1_000_000_000;
const _: () = assert!(OFFSETS_OFFSET + CLOCKS * 8 <= STUB_BYTES);

#[cfg(test)]
mod test {
    use super::*;
    use std::os::fd::AsRawFd;

    /// The stub mapped into this very process, in front of the C library's functions (which are
    /// those of the vDSO, or do the same).
    struct Mapped {
        base: *mut u8,
        stub: Stub,
    }

    impl Mapped {
        fn new() -> Mapped {
            let gettime = libc::clock_gettime as *const () as u64;
            let getcpu = own_getcpu as *const () as u64;
            let stub = Stub::create().unwrap();
            stub.set_functions(gettime, getcpu);
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            let file = stub.file().as_raw_fd();
            // SAFETY: a fresh mapping at an address that the kernel chooses.
            let base = unsafe {
                libc::mmap(std::ptr::null_mut(), STUB_BYTES, protection, libc::MAP_SHARED, file, 0)
            };
            assert_ne!(base, libc::MAP_FAILED);
            Mapped { base: base.cast(), stub }
        }

        fn address(&self, function: Function) -> *const () {
            // SAFETY: the offset lies inside the mapping.
            unsafe { self.base.add(function.offset() as usize) }.cast::<()>()
        }

        fn gettime(&self, clock: i32) -> Result<i64, i32> {
            type Gettime = extern "C" fn(i32, *mut libc::timespec) -> i32;
            // SAFETY: the stub's function has this signature.
            let call: Gettime =
                unsafe { std::mem::transmute(self.address(Function::ClockGettime)) };
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            match call(clock, &raw mut time) {
                0 => Ok(time.tv_sec * NANOSECONDS + time.tv_nsec),
                error => Err(error),
            }
        }
    }

    extern "C" fn own_getcpu(cpu: *mut u32, node: *mut u32) -> i32 {
        // SAFETY: the stub passes two words of its frame.
        unsafe { libc::syscall(libc::SYS_getcpu, cpu, node, 0) as i32 }
    }

    fn here_ns(clock: i32) -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is a live local.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec * NANOSECONDS + time.tv_nsec
    }

    #[test]
    fn each_clock_shows_the_nodes_time_and_its_own_offset() {
        let mapped = Mapped::new();
        for clock in [0, 1, 4, 5, 6, 7, 11] {
            for offset in [0, 1, -1, 999_999_999, -1_000_000_001, 1_000 * NANOSECONDS] {
                mapped.stub.set_offset(clock as usize, offset);
                let before = here_ns(clock);
                let told = mapped.gettime(clock).unwrap();
                let after = here_ns(clock);
                assert!((before + offset..=after + offset).contains(&told), "clock {clock}");
            }
        }
    }

    #[test]
    fn clocks_without_an_offset_and_unknown_ones_are_the_kernels() {
        let mapped = Mapped::new();
        assert!(mapped.gettime(libc::CLOCK_THREAD_CPUTIME_ID).is_ok());
        assert_eq!(mapped.gettime(12), Err(-libc::EINVAL));
        assert_eq!(mapped.gettime(10), Err(-libc::EINVAL));
    }

    #[test]
    fn seconds_and_microseconds_are_those_of_the_clock() {
        let mapped = Mapped::new();
        let offset = 1_000 * NANOSECONDS + 7;
        mapped.stub.set_offset(0, offset);
        mapped.stub.set_offset(5, offset);
        // SAFETY: the stub's functions have these signatures.
        let (time, day) = unsafe {
            (
                std::mem::transmute::<*const (), extern "C" fn(*mut i64) -> i64>(
                    mapped.address(Function::Time),
                ),
                std::mem::transmute::<*const (), extern "C" fn(*mut libc::timeval, u64) -> i32>(
                    mapped.address(Function::Gettimeofday),
                ),
            )
        };
        let before = (here_ns(5) + offset) / NANOSECONDS;
        let mut stored = 0;
        let told = time(&raw mut stored);
        assert_eq!(told, stored);
        assert!((before..=before + 1).contains(&time(std::ptr::null_mut())));
        let before = (here_ns(0) + offset) / 1000;
        let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
        assert_eq!(day(&raw mut value, 0), 0);
        let after = (here_ns(0) + offset) / 1000;
        assert!((before..=after).contains(&(value.tv_sec * 1_000_000 + value.tv_usec)));
        assert_eq!(day(std::ptr::null_mut(), 0), 0);
    }

    #[test]
    fn processors_resolutions_and_random_bytes_come_from_the_kernel() {
        let mapped = Mapped::new();
        // SAFETY: the stub's functions have these signatures.
        let (getcpu, getres, random) = unsafe {
            (
                std::mem::transmute::<*const (), extern "C" fn(*mut u32, *mut u32) -> i32>(
                    mapped.address(Function::Getcpu),
                ),
                std::mem::transmute::<*const (), extern "C" fn(i32, *mut libc::timespec) -> i32>(
                    mapped.address(Function::ClockGetres),
                ),
                std::mem::transmute::<
                    *const (),
                    extern "C" fn(*mut u8, usize, u32, *mut u8, usize) -> isize,
                >(mapped.address(Function::Getrandom)),
            )
        };
        let (mut cpu, mut node) = (u32::MAX, u32::MAX);
        assert_eq!(getcpu(&raw mut cpu, &raw mut node), 0);
        assert!(cpu < 4096 && node < 4096);
        assert_eq!(getcpu(std::ptr::null_mut(), std::ptr::null_mut()), 0);
        let mut resolution = libc::timespec { tv_sec: 9, tv_nsec: 9 };
        assert_eq!(getres(0, &raw mut resolution), 0);
        assert_eq!(resolution.tv_sec, 0);
        let mut bytes = [0u8; 32];
        assert_eq!(random(bytes.as_mut_ptr(), 32, 0, std::ptr::null_mut(), 144), 32);
        assert_ne!(bytes, [0; 32]);
        let asks = random(std::ptr::null_mut(), 0, 0, bytes.as_mut_ptr(), usize::MAX);
        assert_eq!(asks, -38);
    }

    #[test]
    fn every_place_is_told_from_its_offset() {
        for labels in labels() {
            let begin = place(offset_of(labels.begin)).unwrap();
            assert_eq!((begin.function, begin.is_framed), (labels.function, false));
            if let Some((from, to)) = labels.frame {
                assert!(place(offset_of(from)).unwrap().is_framed);
                let end = place(offset_of(to)).unwrap();
                assert_eq!((end.function, end.is_framed), (labels.function, false));
            }
            if let Some(syscall) = labels.syscall {
                let at = offset_of(syscall);
                assert_eq!(&code()[at as usize..at as usize + 3], &[0x0f, 0x05, 0xc3]);
                assert!(place(at).unwrap().is_syscall);
                assert!(!place(at + 2).unwrap().is_syscall);
            }
        }
        assert_eq!(place(code().len() as u64), None);
    }
}
