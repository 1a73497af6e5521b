//! Calls that a signal or a freeze has met before the supervisor was told of them.
//!
//! Such a call has not begun. The kernel takes it for one that was interrupted (seccomp's wait is,
//! until a notification is received), and a handler without SA_RESTART would have it end with
//! EINTR, which most calls never do.

use kernel::regs::{ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS, Registers};
use migrate::threads;
use wire::calls::{self, Met};

/// What waits in this node's own kernel, and is interrupted there as it would be at home.
const WAIT_HERE: [i64; 3] = [libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_getrandom];

/// The result that the call of a stopped thread has to be left with, if the supervisor was not told
/// of it. None for what cannot be such a call.
pub fn result_of(registers: &Registers) -> Option<i64> {
    let number = registers.interrupted_call()?;
    let is_unheard = registers.result() == ERESTARTSYS && !WAIT_HERE.contains(&i64::from(number));
    is_unheard.then(|| match calls::met_by_handler(number, &registers.arguments()) {
        Met::MadeAgain => ERESTARTNOINTR,
        Met::AsHandlerSays => ERESTARTSYS,
        Met::Interrupted => ERESTARTNOHAND,
    })
}

/// The result with which a frozen thread was interrupted in a call that home does not know of: one
/// that the supervisor has ended with ERESTARTSYS (`is_cut_short`), or was not told of. `settled`
/// are its registers in front of the call.
pub fn interruption(before: &Registers, settled: &Registers, is_cut_short: bool) -> Option<i64> {
    let result = threads::interruption_of(before, settled)?;
    let unheard = result_of(before).filter(|_| !is_cut_short);
    Some(unheard.unwrap_or(result))
}

#[cfg(test)]
mod test {
    use super::*;

    fn frozen_in(call: i64, is_cut_short: bool) -> Option<i64> {
        let (orig_rax, rax) = (call as u64, ERESTARTSYS as u64);
        let before = Registers { rip: 0x1002, orig_rax, rax, ..Default::default() };
        let settled = Registers { rip: 0x1000, rax: orig_rax, ..before };
        interruption(&before, &settled, is_cut_short)
    }

    #[test]
    fn a_call_that_never_waits_and_was_not_heard_of_is_made_again_whatever_comes() {
        assert_eq!(frozen_in(libc::SYS_getppid, false), Some(ERESTARTNOINTR));
        assert_eq!(frozen_in(libc::SYS_read, false), Some(ERESTARTNOINTR));
    }

    #[test]
    fn a_wait_that_was_not_heard_of_ends_with_a_handler_as_at_home() {
        assert_eq!(frozen_in(libc::SYS_pause, false), Some(ERESTARTNOHAND));
        assert_eq!(frozen_in(libc::SYS_wait4, false), Some(ERESTARTSYS));
    }

    #[test]
    fn a_call_that_home_has_ended_for_a_signal_ends_with_it() {
        assert_eq!(frozen_in(libc::SYS_read, true), Some(ERESTARTSYS));
    }

    #[test]
    fn a_wait_on_a_futex_is_interrupted_here() {
        assert_eq!(
            result_of(&Registers {
                orig_rax: libc::SYS_futex as u64,
                rax: ERESTARTSYS as u64,
                ..Default::default()
            }),
            None
        );
    }
}
