//! Dispositions of signals; and what the engine has to know of calls that wait: which change the
//! signal mask meanwhile, which Linux ends with `EINTR` for no better reason than a stop, and which
//! a handler ends.

use super::Arguments;
use super::argument::{V, input, output};
use super::table::{Class, Emulation, Rule, Test};
use crate::forward::{Place, Segment};

/// Of `struct sigaction`, as the kernel has it.
const SIGACTION: u32 = 32;

/// The body's kernel has the same dispositions, and tells them: posix_spawn(3) asks for all 64.
pub(super) const RT_SIGACTION: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 1, mask: u64::MAX, values: &[0] }]],
    otherwise: |_| {
        let form = const { &[V, input(SIGACTION), output(SIGACTION), V] };
        Class::Emulate(Emulation::SignalAction, form)
    },
    text: "home decides on delivery by it, the body builds the frame; what is asked without being \
           set, or the default over the default, is local",
};

/// The signal mask that holds only while this call waits. rt_sigtimedwait is not among them: it
/// names signals to take, and leaves the mask alone.
pub fn has_temporary_mask(number: u32, arguments: &Arguments, segments: &[Segment]) -> Option<u64> {
    let place = match number {
        130 => Place::Argument(0),       // rt_sigsuspend
        271 => Place::Argument(3),       // ppoll
        281 | 441 => Place::Argument(4), // epoll_pwait, epoll_pwait2
        270 => {
            // pselect6: a pointer inside what the sixth argument points to
            let pair = segments.iter().position(|s| s.place == Place::Argument(5))?;
            Place::Pointer { segment: u16::try_from(pair).ok()?, offset: 0 }
        }
        _ => return None,
    };
    if let Place::Argument(index) = place
        && arguments[usize::from(index)] == 0
    {
        return None;
    }
    let mask = segments.iter().find(|segment| segment.place == place)?;
    mask.data.get(..8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Calls that may answer `EINTR` after a mere stop, without any handler (signal(7)): when nothing
/// but the stop interrupted it, the call is made again. The socket calls do so when the socket has
/// a timeout, and so do read and write on one.
pub fn eintr_after_stop(number: u32) -> bool {
    matches!(
        number,
        // epoll_wait, epoll_wait_old, epoll_pwait, epoll_pwait2
        232 | 215 | 281 | 441
        // semop, semtimedop, msgsnd, msgrcv
        | 65 | 220 | 69 | 70
        // rt_sigtimedwait, io_getevents, io_pgetevents
        | 128 | 208 | 333
        // connect, accept, accept4, sendto, recvfrom, sendmsg, recvmsg, sendmmsg, recvmmsg
        | 42 | 43 | 288 | 44 | 45 | 46 | 47 | 307 | 299
        // read, write, readv, writev
        | 0 | 1 | 19 | 20
    )
}

/// What becomes of a call that a signal with a handler has met before it could begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It is made behind the handler: so is one that never waits, or may not.
    MadeAgain,
    /// It waits, and the handler says whether it is made again (SA_RESTART).
    AsHandlerSays,
    /// It waits, and ends with EINTR, whatever the handler says (signal(7)).
    Interrupted,
}

/// Whether a call would have been waiting by then, as far as its arguments tell. Of those that wait
/// for some files and sockets, and for others never, that is not known: they are made again, as if
/// the signal had come just before.
pub fn met_by_handler(number: u32, arguments: &Arguments) -> Met {
    let has_time = |at: usize| arguments[at] as i32 != 0;
    let [_, command, options, fourth, ..] = *arguments;
    match number {
        // pause, rt_sigtimedwait, semop, semtimedop, msgsnd, msgrcv
        34 | 128 | 65 | 220 | 69 | 70 => Met::Interrupted,
        // select, pselect6, ppoll, epoll_pwait2: for how long a pointer tells
        23 | 270 | 271 | 441 => Met::Interrupted,
        // poll, epoll_wait, epoll_pwait
        7 if has_time(2) => Met::Interrupted,
        232 | 281 if has_time(3) => Met::Interrupted,
        // wait4, waitid
        61 if options & WNOHANG == 0 => Met::AsHandlerSays,
        247 if fourth & WNOHANG == 0 => Met::AsHandlerSays,
        // flock; fcntl with F_SETLKW, F_OFD_SETLKW
        73 => Met::AsHandlerSays,
        72 if matches!(command as u32, 7 | 38) => Met::AsHandlerSays,
        _ => Met::MadeAgain,
    }
}

const WNOHANG: u64 = 1;
