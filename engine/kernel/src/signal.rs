//! Signal numbers, dispositions and siginfo as the kernel lays them out.

/// Number of the last signal.
pub const SIGNAL_MAX: i32 = 64;
pub const SA_RESETHAND: u64 = 0x8000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;

/// `struct sigaction` as rt_sigaction(2) takes it on x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// 0 default, 1 ignore, otherwise the handler's address.
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// Size of an encoded [`Action`], bytes.
pub const ACTION_BYTES: usize = 32;

impl Action {
    /// As an image has it.
    pub fn from_words([handler, flags, restorer, mask]: [u64; 4]) -> Action {
        Action { handler, flags, restorer, mask }
    }

    pub fn words(&self) -> [u64; 4] {
        [self.handler, self.flags, self.restorer, self.mask]
    }

    pub fn decode(bytes: &[u8]) -> Option<Action> {
        let word = |i: usize| Some(u64::from_le_bytes(bytes.get(i..i + 8)?.try_into().ok()?));
        Some(Action { handler: word(0)?, flags: word(8)?, restorer: word(16)?, mask: word(24)? })
    }

    pub fn encode(&self) -> [u8; ACTION_BYTES] {
        let mut bytes = [0; ACTION_BYTES];
        for (i, word) in self.words().iter().enumerate() {
            bytes[i * 8..i * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn is_handler(&self) -> bool {
        self.handler > 1
    }

    /// The blocked signals while this handler of `signal` runs, if `mask` was blocked before.
    pub fn mask_in_handler(&self, signal: i32, mask: u64) -> u64 {
        let own = if self.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
        (mask | self.mask | own) & !UNBLOCKABLE
    }
}

/// What happens to a process that gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Handler,
    Ignored,
    Stops,
    Ends,
    EndsWithCore,
}

/// The effect of `signal` under this disposition (signal(7)).
pub fn effect(signal: i32, action: &Action) -> Effect {
    if signal == libc::SIGKILL {
        return Effect::Ends;
    }
    if signal == libc::SIGSTOP {
        return Effect::Stops;
    }
    match action.handler {
        0 => {}
        1 => return Effect::Ignored,
        _ => return Effect::Handler,
    }
    match signal {
        libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH => Effect::Ignored,
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Effect::Stops,
        libc::SIGQUIT
        | libc::SIGILL
        | libc::SIGTRAP
        | libc::SIGABRT
        | libc::SIGBUS
        | libc::SIGFPE
        | libc::SIGSEGV
        | libc::SIGSYS
        | libc::SIGXCPU
        | libc::SIGXFSZ => Effect::EndsWithCore,
        _ => Effect::Ends,
    }
}

/// Whether this is the default of a signal that a program may set and that is not ignored by
/// default: setting another such has no effect but on what rt_sigaction(2) tells. (What is ignored
/// drops what is pending, and SIGCHLD has flags that count.)
pub fn is_plain_default(signal: i32, action: &Action) -> bool {
    let is_settable = (1..=SIGNAL_MAX).contains(&signal) && bit(signal) & UNBLOCKABLE == 0;
    is_settable && action.handler == 0 && effect(signal, action) != Effect::Ignored
}

/// The bit of a signal in a mask.
pub fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A mask after rt_sigprocmask(2).
pub fn masked(now: u64, how: u64, set: u64) -> u64 {
    maskable(match how as i32 {
        libc::SIG_BLOCK => now | set,
        libc::SIG_UNBLOCK => now & !set,
        _ => set,
    })
}

/// What of a mask can be blocked.
pub fn maskable(mask: u64) -> u64 {
    mask & !UNBLOCKABLE
}

/// Nobody can block them, or set what they do.
const UNBLOCKABLE: u64 = (1 << (libc::SIGKILL - 1)) | (1 << (libc::SIGSTOP - 1));

/// The signal that a siginfo is about.
pub fn number(siginfo: &[u8; crate::tracee::SIGINFO_BYTES]) -> i32 {
    i32::from_le_bytes([siginfo[0], siginfo[1], siginfo[2], siginfo[3]])
}

/// True for a siginfo that the processor caused in the thread itself (a fault), by its si_code.
pub fn is_fault(signal: i32, siginfo: &[u8]) -> bool {
    let code = siginfo.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, i32::from_le_bytes);
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP)
        && code > 0
}

/// Offset of the saved signal mask in a signal frame, from the stack pointer at the handler's first
/// instruction: return address (8) + `ucontext_t` up to `uc_sigmask` (x86-64 ABI: flags 8, link 8,
/// stack_t 24, sigcontext 256).
pub const FRAME_MASK_OFFSET: u64 = 8 + 296;
/// The same from the stack pointer at the rt_sigreturn call, when the return address is popped.
pub const RETURN_MASK_OFFSET: u64 = FRAME_MASK_OFFSET - 8;
/// Offset of the pointer to the floating-point and vector registers in a signal frame, from the
/// stack pointer at the handler's first instruction: `fpstate` in sigcontext.
pub const FRAME_STATE_OFFSET: u64 = 8 + 40 + 184;
/// The same from the stack pointer at the rt_sigreturn call.
pub const RETURN_STATE_OFFSET: u64 = FRAME_STATE_OFFSET - 8;

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn actions_round_trip() {
        let action = Action { handler: 5, flags: SA_NODEFER, restorer: 7, mask: 1 };
        assert_eq!(Action::decode(&action.encode()), Some(action));
        assert_eq!(Action::decode(&[0; 31]), None);
    }

    #[test]
    fn effects_follow_signal_7() {
        let default = Action::default();
        let handler = Action { handler: 0x1000, ..default };
        assert_eq!(effect(libc::SIGTERM, &default), Effect::Ends);
        assert_eq!(effect(libc::SIGSEGV, &default), Effect::EndsWithCore);
        assert_eq!(effect(libc::SIGCHLD, &default), Effect::Ignored);
        assert_eq!(effect(libc::SIGTSTP, &default), Effect::Stops);
        assert_eq!(effect(libc::SIGTERM, &handler), Effect::Handler);
        assert_eq!(effect(libc::SIGKILL, &handler), Effect::Ends);
    }

    #[test]
    fn handler_blocks_its_own_signal_unless_told_not_to() {
        let action = Action { handler: 2, mask: bit(3) | bit(libc::SIGKILL), ..Default::default() };
        assert_eq!(action.mask_in_handler(10, bit(5)), bit(3) | bit(5) | bit(10));
        let nodefer = Action { flags: SA_NODEFER, ..action };
        assert_eq!(nodefer.mask_in_handler(10, 0), bit(3));
    }
}
