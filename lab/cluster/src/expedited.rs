//! Has the kernel move processes into other cgroups at once.
//!
//! Whoever writes to `cgroup.procs` waits until every processor has passed through a quiet state,
//! ten milliseconds and more (`cgroup_attach_lock`, `rcu_sync_enter`). In a lab with CPU quotas
//! that is twice wrong: a process that leaves is taken out of its node's quota while it stands
//! still, and waits for that; and one that arrives runs until it is under the quota of its new node
//! with a whole processor, which among sixteen nodes is as much as a tenth of a second there.
//! Machines of their own have neither.
//!
//! `/sys/kernel/rcu_expedited` has all processors asked to pass through such a state now
//! (`synchronize_rcu`), for all of the machine: so it is put back, also if this program is killed.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SWITCH: &str = "/sys/kernel/rcu_expedited";
/// Waits for the end of its input, which comes when this program has ended in whatever way.
const RESTORER: &str = "read -r _; echo 0 > \"$1\"";

/// As long as it lives, nobody waits for quiet states.
#[derive(Debug)]
pub struct Expedited {
    /// None if it was so before.
    restorer: Option<Child>,
}

impl Expedited {
    /// # Errors
    /// If the kernel has no such switch, or it is not for us.
    pub fn hold() -> io::Result<Expedited> {
        Expedited::hold_by(Path::new(SWITCH))
    }

    fn hold_by(switch: &Path) -> io::Result<Expedited> {
        if fs::read_to_string(switch)?.trim() != "0" {
            return Ok(Expedited { restorer: None });
        }
        let mut command = Command::new("sh");
        command.args(["-c", RESTORER, "sh"]).arg(switch).stdin(Stdio::piped());
        // What interrupts this program must not end it.
        let restorer = Expedited { restorer: Some(command.process_group(0).spawn()?) };
        fs::write(switch, "1")?;
        Ok(restorer)
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        if let Some(mut restorer) = self.restorer.take() {
            drop(restorer.stdin.take());
            // It has nothing else to do, and nobody else to tell.
            let _ = restorer.wait();
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn said(switch: &Path) -> String {
        fs::read_to_string(switch).unwrap().trim().to_owned()
    }

    #[test]
    fn what_was_off_is_off_again_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let switch = directory.path().join("a switch");
        fs::write(&switch, "0\n").unwrap();
        let held = Expedited::hold_by(&switch).unwrap();
        assert_eq!(said(&switch), "1");
        drop(held);
        assert_eq!(said(&switch), "0");
    }

    #[test]
    fn what_was_on_stays_on() {
        let directory = tempfile::tempdir().unwrap();
        let switch = directory.path().join("switch");
        fs::write(&switch, "1\n").unwrap();
        drop(Expedited::hold_by(&switch).unwrap());
        assert_eq!(said(&switch), "1");
    }

    #[test]
    fn whoever_may_not_is_told() {
        Expedited::hold_by(Path::new("/proc/no-such-switch")).unwrap_err();
    }
}
