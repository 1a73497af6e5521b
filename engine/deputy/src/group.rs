//! Processes that share memory and leave together ([decision 0034](../../../docs/decisions/)), as
//! the supervisor of one of them sees it.
//!
//! Each supervisor does what it does for a process that leaves alone. But it waits for the others
//! before it stops its process, before it reads it, before its body runs, and before it serves that
//! body: the last is the word. Up to then no body has had an effect on the world but by memory that
//! is given up with it, so whoever fails says that all stay, and all go on at home. Which of the
//! two words came first decides one atomic exchange in memory that the supervisors share.

use kernel::shared::{SharedMemory, futex_wait, futex_wake};
use migrate::{MigrateError, Result};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use wire::ids::HomePid;
use wire::memory_group::{self, BOUND, Companion, GROUP_PAGE_BYTES};

/// What a supervisor has done when it waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What can be copied while the process runs is copied.
    Ready,
    /// It stands still.
    Frozen,
    /// All of it is where it goes.
    Restored,
    /// Its body runs.
    Running,
}

impl Stage {
    /// So long one waits for the others, the process running at first, and standing still then.
    fn patience(self) -> Duration {
        match self {
            Stage::Ready => Duration::from_secs(120),
            Stage::Frozen => Duration::from_secs(5),
            Stage::Restored => Duration::from_secs(30),
            Stage::Running => Duration::from_secs(10),
        }
    }
}

/// Offsets in the memory that all have: what was decided, how often anything has changed, whether
/// the target expects companions, and how many have come to each stage.
const WORD: usize = 0;
const NEWS: usize = 4;
const IS_WELCOME: usize = 8;
/// Whose word it was.
const WHO: usize = 12;
const COUNTS: usize = 16;

/// What is decided; nothing at first.
const OPEN: u32 = 0;
const GOES: u32 = 1;
const STAYS: u32 = 2;

/// How long the target may take to expect companions.
const WELCOME_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether the move is wanted still.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Those who leave with a process, or the process alone.
#[derive(Default)]
pub struct Group {
    pid: i32,
    /// All of them; nobody if it is alone.
    pub members: BTreeSet<i32>,
    /// Who comes by the berth of this one.
    companions: Vec<Companion>,
    page: Option<SharedMemory>,
}

impl Group {
    /// # Errors
    /// The memory cannot be mapped.
    pub fn of(
        pid: i32,
        page: OwnedFd,
        members: &[HomePid],
        companions: Vec<Companion>,
    ) -> kernel::Result<Group> {
        let page = Some(SharedMemory::of_file(page, GROUP_PAGE_BYTES)?);
        let members = members.iter().map(|pid| pid.0).collect();
        Ok(Group { pid, members, companions, page })
    }

    pub fn is_any(&self) -> bool {
        self.page.is_some()
    }

    /// What the target has to be told by the one to whose berth the others come.
    ///
    /// # Errors
    /// As [`migrate::group::memory`].
    pub fn announcement(&self) -> Result<Option<Box<memory_group::Group>>> {
        if self.companions.is_empty() {
            return Ok(None);
        }
        let segments = migrate::group::memory(&self.members)?;
        Ok(Some(Box::new(memory_group::Group { companions: self.companions.clone(), segments })))
    }

    /// The target has taken the one to whose berth the others come.
    pub fn let_call(&self) {
        let Some(page) = &self.page else { return };
        page.word(IS_WELCOME).store(1, Ordering::SeqCst);
        tell(page.word(NEWS));
    }

    /// Waits until this one may call the target.
    ///
    /// # Errors
    /// As [`Group::reach`].
    pub fn await_welcome(&self, goes_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(page) = self.page.as_ref().filter(|_| self.companions.is_empty()) else {
            return Ok(());
        };
        let is_welcome = || page.word(IS_WELCOME).load(Ordering::SeqCst) == 1;
        self.wait(page, WELCOME_PATIENCE, (&is_welcome, goes_on))
    }

    /// Waits until all have come so far.
    ///
    /// # Errors
    /// One of them stays, so all do; or what `goes_on` says.
    pub fn reach(&self, stage: Stage, goes_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(page) = &self.page else { return Ok(()) };
        let count = page.word(COUNTS + 4 * stage as usize);
        count.fetch_add(1, Ordering::SeqCst);
        tell(page.word(NEWS));
        let are_all = || count.load(Ordering::SeqCst) as usize >= self.members.len();
        self.wait(page, stage.patience(), (&are_all, goes_on))?;
        if stage == Stage::Running {
            self.decide(GOES);
        }
        self.check()
    }

    fn wait(
        &self,
        page: &SharedMemory,
        patience: Duration,
        (is_over, goes_on): (&dyn Fn() -> bool, &dyn Fn() -> Result<()>),
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = page.word(NEWS).load(Ordering::SeqCst);
            if is_over() {
                return Ok(());
            }
            self.check()?;
            if Instant::now() >= deadline {
                self.decide(STAYS);
            }
            goes_on()?;
            futex_wait(page.word(NEWS), seen, Some(LOOK_INTERVAL));
        }
    }

    /// All stay, unless all have left already.
    pub fn stay(&self) {
        self.decide(STAYS);
    }

    fn decide(&self, what: u32) {
        let Some(page) = &self.page else { return };
        let order = Ordering::SeqCst;
        // Another word may have come first.
        if page.word(WORD).compare_exchange(OPEN, what, order, order).is_ok() {
            page.word(WHO).store(self.pid as u32, order);
        }
        tell(page.word(NEWS));
    }

    fn check(&self) -> Result<()> {
        let Some(page) = &self.page else { return Ok(()) };
        match page.word(WORD).load(Ordering::SeqCst) {
            STAYS => {
                let who = match page.word(WHO).load(Ordering::SeqCst) {
                    // Who said it is just about to say so.
                    0 => "a process".to_owned(),
                    pid => format!("process {pid}"),
                };
                let text = format!("{who}, which it shares memory with, could not leave");
                Err(MigrateError::refused(BOUND, text))
            }
            _ => Ok(()),
        }
    }
}

fn tell(news: &AtomicU32) {
    news.fetch_add(1, Ordering::SeqCst);
    futex_wake(news, i32::MAX as u32);
}

#[cfg(test)]
mod test {
    use super::*;

    fn groups(count: i32) -> Vec<Group> {
        let page = SharedMemory::create(GROUP_PAGE_BYTES).unwrap();
        let members: Vec<HomePid> = (0..count).map(HomePid).collect();
        let of = |_| Group::of(1, page.file().try_clone().unwrap(), &members, vec![]).unwrap();
        (0..count).map(of).collect()
    }

    fn leave(group: &Group) -> Result<()> {
        [Stage::Ready, Stage::Frozen, Stage::Restored, Stage::Running]
            .into_iter()
            .try_for_each(|stage| group.reach(stage, &|| Ok(())))
    }

    #[test]
    fn all_leave_or_none_does_whoever_fails_and_whenever() {
        let all_stages = [Stage::Ready, Stage::Frozen, Stage::Restored, Stage::Running];
        for fails_at in [None, Some(0), Some(1), Some(2), Some(3)] {
            let groups = groups(3);
            let outcomes: Vec<bool> = std::thread::scope(|scope| {
                let run = |(at, group): (usize, &'_ Group)| match fails_at.filter(|_| at == 1) {
                    None => leave(group).inspect_err(|_| group.stay()).is_ok(),
                    Some(stage) => {
                        let before = &all_stages[..stage];
                        let _ = before.iter().try_for_each(|s| group.reach(*s, &|| Ok(())));
                        group.stay();
                        false
                    }
                };
                let threads: Vec<_> =
                    groups.iter().enumerate().map(|it| scope.spawn(move || run(it))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(outcomes, [fails_at.is_none(); 3], "{fails_at:?}");
        }
    }

    #[test]
    fn the_first_word_counts() {
        let groups = groups(2);
        groups[0].decide(GOES);
        groups[1].stay();
        assert!(groups.iter().all(|group| group.check().is_ok()));
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        leave(&Group::default()).unwrap();
    }
}
