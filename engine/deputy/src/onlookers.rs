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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::forward::Reply;
use wire::image::Pages;
use wire::supervisor::Reason;

/// Whoever reads a file often has others looked through no more often than this.
const PAUSE: Duration = Duration::from_millis(100);

/// Between two questions who has attached System V shared memory.
const QUESTION_PAUSE: Duration = Duration::from_millis(500);

/// So long replies are held: what others at home write is a second old at most, or they would be.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// What is known of others who use the files.
#[derive(Default)]
pub struct Onlookers {
    /// Who has attached System V shared memory, and when that is asked again.
    attached: Vec<Option<Attachments>>,
    ask_at: Option<Instant>,
    /// Somebody has opened one: who has them is looked at then.
    look_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// Since when replies are held.
    held_since: Option<Instant>,
    /// Why the process has to be home.
    why: Option<Reason>,
}

impl Onlookers {
    /// Of files, if there are any: who uses them is looked at first of all, because a guard may
    /// have begun after somebody came.
    pub fn of(has_files: bool, why: Option<Reason>) -> Onlookers {
        let look_at = has_files.then(Instant::now);
        Onlookers { look_at, why, ..Onlookers::default() }
    }

    /// When something is to be done, if it is: nothing, once the process has to be home.
    pub fn next_look(&self) -> Option<Instant> {
        let next = self.look_at.into_iter().chain(self.ask_at).min();
        next.filter(|_| self.why.is_none())
    }

    /// It has to be home, for this reason: the first one is the cause. While a group comes home for
    /// it, what one brings is written where the others look.
    pub fn need_home(&mut self, why: Reason) {
        self.why.get_or_insert(why);
    }

    /// Why the process is to be home, if it is.
    pub fn why(&self) -> Option<Reason> {
        self.why.clone()
    }
}

/// Replies to calls that others' use of the files may have come before: the process could see that
/// it did (a child that has written to one, and ended), and would not see what they wrote.
#[derive(Default)]
pub(crate) struct HeldReplies {
    /// Somebody has used a file, and it is not known yet what that means; or the process is about
    /// to be home for it.
    are_held: AtomicBool,
    replies: Mutex<Vec<Reply>>,
}

impl HeldReplies {
    /// The process comes home, where they are known.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Reply>> {
        self.replies.lock().expect("no thread of the supervisor panicked")
    }
}

impl Shared {
    /// Replies to a call that is over, unless somebody has used a file since, or the process is to
    /// end: then home has the reply, and the body asks again should it live on.
    pub(crate) fn reply_unless_news(&self, reply: Reply) {
        if self.is_dying.load(Ordering::SeqCst) {
            return;
        }
        let Some(files) = &self.files else { return self.reply(reply) };
        let held = &self.held_replies;
        if held.are_held.load(Ordering::SeqCst) || files.has_news() {
            held.lock().push(reply);
            return self.wake();
        }
        self.reply(reply);
    }
}

impl Service<'_> {
    /// Whether others use the files so that the process has to be home.
    pub fn look_at_files(&mut self) -> bool {
        let shared = self.shared.clone();
        if shared.files.is_none() {
            return self.onlookers.why.is_some();
        }
        // Before the news are read, which are gone then.
        shared.held_replies.are_held.store(true, Ordering::SeqCst);
        let is_wanted = self.are_used_by_others();
        let (now, it) = (Instant::now(), &mut self.onlookers);
        let is_pending = is_wanted || it.look_at.is_some();
        let since = *it.held_since.get_or_insert(now);
        // While it cannot come home to stand still helps nobody, and it may have much to send
        // first.
        let is_too_long = now >= since + HOLD_MAX || is_wanted && now < self.next_recall;
        if is_pending && !is_too_long {
            return is_wanted;
        }
        if !is_pending {
            it.held_since = None;
        }
        shared.held_replies.are_held.store(false, Ordering::SeqCst);
        let replies = std::mem::take(&mut *shared.held_replies.lock());
        replies.into_iter().for_each(|reply| shared.reply(reply));
        is_wanted
    }

    fn are_used_by_others(&mut self) -> bool {
        let Some(files) = &self.shared.files else { return false };
        if self.daemon.has_lost_guard() && files.need_guard() {
            let text = "its node has no daemon that keeps others from opening what it shares";
            self.onlookers.need_home(reason(USED_AT_HOME, text));
        }
        let it = &mut self.onlookers;
        let now = Instant::now();
        let is_new = files.has_attached() && it.ask_at.is_none_or(|at| at <= now) && {
            it.ask_at = Some(now + QUESTION_PAUSE);
            let before = std::mem::replace(&mut it.attached, files.attachments());
            before != it.attached
        };
        match files.news().or(is_new.then_some(News::Opened)) {
            Some(News::Written) => {
                it.need_home(reason(USED_AT_HOME, "somebody writes to a file that it shares"));
            }
            Some(News::Opened) => {
                let next = match it.looked_at {
                    // Who waits for a reply waits for this.
                    Some(at) if self.shared.held_replies.lock().is_empty() => (at + PAUSE).max(now),
                    _ => now,
                };
                it.look_at = Some(it.look_at.map_or(next, |at| at.min(next)));
            }
            None => {}
        }
        let is_awaited = !self.shared.held_replies.lock().is_empty();
        if it.why.is_none() && it.look_at.take_if(|at| *at <= now || is_awaited).is_some() {
            it.looked_at = Some(now);
            if let Err(error) = files.check_others(self.pid) {
                it.why = Some(reason(USED_AT_HOME, error.reason().text));
            }
        }
        it.why.is_some()
    }
}

/// Why a process is to be home: another waits to open what it shares.
pub fn is_opened(by: i32) -> Reason {
    let text = format!(
        "process {by}, which does not move with it, opens memory that it shares with others"
    );
    reason(USED_AT_HOME, text)
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

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn nobody_is_woken_for_a_process_without_files() {
        assert_eq!(Onlookers::of(false, None).next_look(), None);
        assert!(Onlookers::of(true, None).next_look().is_some());
        let wanted = Onlookers::of(true, Some(is_opened(7)));
        assert_eq!(wanted.next_look(), None, "it has to be home, whoever else comes");
    }
}
