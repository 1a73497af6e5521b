//! Handing the terminal's foreground to a command and taking it back.

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// The controlling terminal of this process, if it has one.
pub struct Terminal(File);

impl Terminal {
    pub fn open() -> Option<Terminal> {
        File::options().read(true).write(true).open("/dev/tty").ok().map(Terminal)
    }

    /// True if what is typed goes to this process's group.
    pub fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    /// What is typed goes to `group` from now on.
    pub fn give_to(&self, group: Pid) {
        // Fails only if the group or the terminal is gone; then there is nobody to give it to.
        let _ = tcsetpgrp(&self.0, group);
    }

    /// Back to this process's group, if `group` has it or left it to nobody.
    pub fn take_back_from(&self, group: Pid) {
        let is_free = |owner: Pid| {
            owner == group || nix::sys::signal::killpg(owner, None) == Err(nix::Error::ESRCH)
        };
        if self.foreground().is_some_and(is_free) {
            self.give_to(getpgrp());
        }
    }
}
