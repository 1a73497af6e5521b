//! The general registers of a stopped thread.

/// Registers in the kernel's order (`struct user_regs_struct` of x86-64, 27 words).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// Number of words in [`Registers`].
pub const REGISTER_WORDS: usize = 27;
/// The restart codes that the kernel leaves in rax of a thread interrupted in a system call
/// (include/linux/errno.h; never visible to programs).
pub const ERESTARTSYS: i64 = -512;
pub const ERESTARTNOINTR: i64 = -513;
pub const ERESTARTNOHAND: i64 = -514;
pub const ERESTART_RESTARTBLOCK: i64 = -516;

const SYSCALL_INSTRUCTION_BYTES: u64 = 2;
const CODE_SEGMENT_64BIT: u64 = 0x33;

impl Registers {
    pub fn to_words(self) -> [u64; REGISTER_WORDS] {
        [
            self.r15,
            self.r14,
            self.r13,
            self.r12,
            self.rbp,
            self.rbx,
            self.r11,
            self.r10,
            self.r9,
            self.r8,
            self.rax,
            self.rcx,
            self.rdx,
            self.rsi,
            self.rdi,
            self.orig_rax,
            self.rip,
            self.cs,
            self.eflags,
            self.rsp,
            self.ss,
            self.fs_base,
            self.gs_base,
            self.ds,
            self.es,
            self.fs,
            self.gs,
        ]
    }

    pub fn from_words(w: [u64; REGISTER_WORDS]) -> Registers {
        let [
            r15,
            r14,
            r13,
            r12,
            rbp,
            rbx,
            r11,
            r10,
            r9,
            r8,
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
            orig_rax,
            rip,
            cs,
            eflags,
            rsp,
            ss,
            fs_base,
            gs_base,
            ds,
            es,
            fs,
            gs,
        ] = w;
        Registers {
            r15,
            r14,
            r13,
            r12,
            rbp,
            rbx,
            r11,
            r10,
            r9,
            r8,
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
            orig_rax,
            rip,
            cs,
            eflags,
            rsp,
            ss,
            fs_base,
            gs_base,
            ds,
            es,
            fs,
            gs,
        }
    }

    /// The system call that the thread was interrupted in, if it was.
    pub fn interrupted_call(&self) -> Option<u32> {
        u32::try_from(self.orig_rax as i64).ok()
    }

    /// rax as the kernel's signed result.
    pub fn result(&self) -> i64 {
        self.rax as i64
    }

    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Puts the thread back in front of the system call that it was interrupted in.
    pub fn rewind(&mut self) {
        self.rax = self.orig_rax;
        self.rip = self.rip.wrapping_sub(SYSCALL_INSTRUCTION_BYTES);
        self.orig_rax = u64::MAX;
    }

    /// Makes a thread that stands in front of a system call look as if it had just returned.
    pub fn complete(&mut self, result: i64) {
        self.rip = self.rip.wrapping_add(SYSCALL_INSTRUCTION_BYTES);
        self.rax = result as u64;
        self.rcx = self.rip;
        self.r11 = self.eflags;
        self.orig_rax = u64::MAX;
    }

    /// Makes a thread that stands in front of a system call look interrupted in it, with `result`
    /// one of the restart codes: the kernel then decides, when the thread resumes.
    pub fn interrupt(&mut self, result: i64) {
        self.orig_rax = self.rax;
        self.rip = self.rip.wrapping_add(SYSCALL_INSTRUCTION_BYTES);
        self.rax = result as u64;
        self.rcx = self.rip;
        self.r11 = self.eflags;
    }

    /// Only 64-bit code can be moved.
    pub fn is_64bit(&self) -> bool {
        self.cs == CODE_SEGMENT_64BIT
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// They come over a network, and the kernel judges them.
    #[test]
    fn registers_that_no_thread_has_are_no_error() {
        let mut registers = Registers { rip: 1, ..Registers::default() };
        registers.rewind();
        assert_eq!(registers.rip, u64::MAX);
        registers.complete(0);
        assert_eq!(registers.rip, 1);
        registers.rip = u64::MAX;
        registers.interrupt(-512);
        assert_eq!(registers.rip, 1);
    }

    #[test]
    fn words_round_trip() {
        let mut words = [0; REGISTER_WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = i as u64 * 3;
        }
        assert_eq!(Registers::from_words(words).to_words(), words);
    }

    #[test]
    fn rewound_call_completes_where_it_was_interrupted() {
        let mut regs =
            Registers { rip: 0x1002, rax: -512i64 as u64, orig_rax: 0, ..Default::default() };
        regs.rewind();
        assert_eq!((regs.rip, regs.rax), (0x1000, 0));
        regs.complete(5);
        assert_eq!((regs.rip, regs.rax, regs.interrupted_call()), (0x1002, 5, None));
    }
}
