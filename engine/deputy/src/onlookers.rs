//! Files that the process has mapped shared and writable, and others at home who use them, too
//! ([decision 0027](../../../docs/decisions/)).
//!
//! Who reads such a file sees what was written to it a moment ago. Who writes to it, or has it open
//! for that, has the process come home.

use crate::service::{Service, Shared};
use kernel::proc::system_v::Attachments;
use migrate::files::{News, USED_AT_HOME};
use migrate::{Result, reason};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};
use wire::image::Pages;
use wire::supervisor::Reason;

/// Whoever reads a file often has others looked through no more often than this.
const PAUSE: Duration = Duration::from_millis(100);

/// Between two questions who has attached System V shared memory.
const QUESTION_PAUSE: Duration = Duration::from_millis(500);

/// What is known of others who use the files.
#[derive(Default)]
pub struct Onlookers {
    /// Who has attached System V shared memory, and when that is asked again.
    attached: Vec<Option<Attachments>>,
    ask_at: Option<Instant>,
    /// Somebody has opened one: who has them is looked at then.
    look_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// Why the process has to be home.
    why: Option<Reason>,
}

impl Onlookers {
    /// When something is to be done, if it is: nothing, once the process has to be home.
    pub fn next_look(&self) -> Option<Instant> {
        let next = self.look_at.into_iter().chain(self.ask_at).min();
        next.filter(|_| self.why.is_none())
    }

    /// Why the process is to be home, if it is.
    pub fn why(&self) -> Option<Reason> {
        self.why.clone()
    }
}

impl Service<'_> {
    /// Whether others use the files so that the process has to be home.
    pub fn look_at_files(&mut self) -> bool {
        let Some(files) = &self.shared.files else { return false };
        let it = &mut self.onlookers;
        let now = Instant::now();
        let is_new = files.has_attached() && it.ask_at.is_none_or(|at| at <= now) && {
            it.ask_at = Some(now + QUESTION_PAUSE);
            let before = std::mem::replace(&mut it.attached, files.attachments());
            before != it.attached
        };
        match files.news().or(is_new.then_some(News::Opened)) {
            Some(News::Written) => {
                it.why = Some(reason(USED_AT_HOME, "somebody writes to a file that it shares"));
            }
            Some(News::Opened) => {
                let next = it.looked_at.map_or(now, |at| (at + PAUSE).max(now));
                it.look_at = Some(it.look_at.map_or(next, |at| at.min(next)));
            }
            None => {}
        }
        if it.why.is_none() && it.look_at.take_if(|at| *at <= now).is_some() {
            it.looked_at = Some(now);
            if let Err(error) = files.check_others(self.pid) {
                it.why = Some(reason(USED_AT_HOME, error.reason().text));
            }
        }
        it.why.is_some()
    }
}

/// Takes in what the body has written to shared files. If there is no room for it any more the
/// process gets the signal that its own access would have given it.
///
/// # Errors
/// No honest body writes so.
pub fn take(shared: &Shared, pages: &Pages) -> Result<()> {
    let strange = || migrate::MigrateError::Protocol("files that it does not share".into());
    let files = shared.files.as_ref().ok_or_else(strange)?;
    if !files.write(&shared.lanes.memory, pages)? {
        ::tracing::warn!("process {}: a file that it shares cannot be written to", shared.pid);
        // One that has ended needs none.
        let _ = kill(Pid::from_raw(shared.pid), Signal::SIGBUS);
    }
    Ok(())
}
