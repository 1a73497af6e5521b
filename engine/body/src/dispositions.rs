//! Dispositions of signals that home need not hear of.

use crate::state::{Shared, State};
use kernel::seccomp::Notification;
use kernel::signal::{ACTION_BYTES, Action, is_plain_default};

/// Size of a mask of signals, bytes.
const MASK_BYTES: u64 = 8;

/// Lets rt_sigaction(2) pass that sets the default where the default is set: all that can change is
/// flags and a mask that nothing acts on, which home takes from the image when the process comes
/// home. posix_spawn(3) of glibc does so for each of some sixty signals in the child that it makes.
///
/// False if home has to hear of it: also of whatever another thread could change between our look
/// and the kernel's.
pub fn let_pass(shared: &Shared, state: &mut State, n: &Notification) -> bool {
    let [signal, address, _, size, ..] = n.arguments;
    let number = signal as i32;
    let known = usize::try_from(number - 1).ok().and_then(|slot| state.actions.get_mut(slot));
    let Some(known) = known.filter(|known| is_plain_default(number, known)) else { return false };
    if state.threads.len() > 1 || size != MASK_BYTES {
        return false;
    }
    let mut bytes = [0; ACTION_BYTES];
    if shared.memory.read_as_guest(address, &mut bytes) < bytes.len() {
        return false;
    }
    let action = Action::decode(&bytes).filter(|action| is_plain_default(number, action));
    let Some(action) = action else { return false };
    *known = action;
    shared.listener.let_pass(n.id);
    true
}
