//! Dispositions of signals that home need not hear of.

use crate::state::{Shared, State};
use kernel::seccomp::Notification;
use kernel::signal::{ACTION_BYTES, Action, Effect, UNBLOCKABLE, bit, effect};

/// Size of a mask of signals, bytes.
const MASK_BYTES: u64 = 8;

/// Lets rt_sigaction(2) pass that sets the default where the default is set: all that can change is
/// flags and a mask that nothing acts on, which home takes from the image when the process comes
/// home. posix_spawn(3) of glibc does so for each of some sixty signals in the child that it makes.
///
/// False if home has to hear of it. What is ignored by default counts among these, because what is
/// pending of it is dropped; so does whatever another thread could change between our look and the
/// kernel's.
pub fn let_pass(shared: &Shared, state: &mut State, n: &Notification) -> bool {
    let [signal, address, _, size, ..] = n.arguments;
    let Some(known) = usize::try_from(signal)
        .ok()
        .and_then(|number| number.checked_sub(1))
        .and_then(|slot| state.actions.get_mut(slot))
    else {
        return false;
    };
    let number = signal as i32;
    let is_default =
        |action: &Action| action.handler == 0 && !matches!(effect(number, action), Effect::Ignored);
    if state.threads.len() > 1
        || size != MASK_BYTES
        || bit(number) & UNBLOCKABLE != 0
        || !is_default(known)
    {
        return false;
    }
    let mut bytes = [0; ACTION_BYTES];
    if shared.memory.read_as_guest(address, &mut bytes) < bytes.len() {
        return false;
    }
    let Some(action) = Action::decode(&bytes).filter(is_default) else { return false };
    *known = action;
    shared.listener.let_pass(n.id);
    true
}
