//! Work spread over forked children, as programs do that know nothing of threads: a workload for
//! those who move processes.

use crate::{KernelError, Result};
use std::fs;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exit status of a child that panicked, as of a program that does.
const PANICKED: u8 = 101;

/// Who has no other threads and may fork. It stays in the thread that it was made in.
///
/// That is looked at once, by `/proc/self`, and not at each fork: a process that is away comes home
/// to look there.
pub struct Parent(PhantomData<*const ()>);

impl Parent {
    /// # Errors
    /// In a process that has other threads, whose locks would stay locked in the copies.
    pub fn of_one_thread() -> Result<Parent> {
        let failed = |source| KernelError { what: "list own threads".into(), source };
        let tasks = fs::read_dir("/proc/self/task").map_err(failed)?.count();
        if tasks != 1 {
            let source = std::io::Error::other(format!("there are {tasks} threads"));
            return Err(KernelError { what: "fork".into(), source });
        }
        Ok(Parent(PhantomData))
    }

    /// Forks `count` children, of which each does `work` with its number and exits with what comes
    /// of it; waits for all, and returns their wait statuses in the order of the numbers.
    ///
    /// # Errors
    /// If no child can be made or waited for. Those that were made are waited for all the same.
    pub fn fork_each(&self, count: u32, mut work: impl FnMut(u32) -> u8) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        let mut failed = None;
        for nth in 0..count {
            // SAFETY: there was no other thread when `self` was made, so that the copy is whole: no
            // lock is held in it by somebody who is not there. Had one been started since, the copy
            // might wait for such a lock for ever; its memory would be sound all the same.
            match unsafe { libc::fork() } {
                -1 => {
                    failed = Some(KernelError::last("fork"));
                    break;
                }
                0 => {
                    // A panic must not unwind into what the parent goes on with.
                    let done = catch_unwind(AssertUnwindSafe(|| work(nth)));
                    let status = done.unwrap_or(PANICKED);
                    // SAFETY: nothing of the parent's is run in the copy: no destructors, no
                    // handlers.
                    unsafe { libc::_exit(i32::from(status)) }
                }
                pid => pids.push(pid),
            }
        }
        let waited: Result<Vec<i32>> = pids.into_iter().map(wait).collect();
        failed.map_or(waited, Err)
    }
}

fn wait(pid: i32) -> Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the status is a live local; the pid is that of our child.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return Ok(status);
        }
        let error = KernelError::last("waitpid");
        if error.source.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Tests run in threads of one process.
    #[test]
    fn who_has_other_threads_is_told_so_and_forks_nobody() {
        let beside = std::thread::spawn(std::thread::park);
        let refused = Parent::of_one_thread().map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("threads"), "{refused}");
        beside.thread().unpark();
        beside.join().unwrap();
    }
}
