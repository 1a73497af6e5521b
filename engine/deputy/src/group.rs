//! Processes that share memory and leave together ([decision 0034](../../../docs/decisions/)), as
//! the supervisor of one of them sees it.
//!
//! Each supervisor does what it does for a process that leaves alone. But it waits for the others
//! before it stops its process, before it reads it, before its body runs, and before it serves that
//! body: the last is the word. Up to then no body has had an effect on the world but by memory that
//! is given up with it, so whoever fails says that all stay, and all go on at home. Which of the
//! two words came first decides one atomic exchange in memory that the supervisors share. When all
//! have left, none is served before all have given up what they share at home.

use kernel::agreement::{Agreement, Verdict};
use kernel::proc::maps::Mapping;
use migrate::group::Bonds;
use migrate::held::Held;
use migrate::shared_holes::MemoryFiles;
use migrate::{MigrateError, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wire::ids::HomePid;
use wire::memory_group::{self, COMPANION_STAYS, Companion, MemoryId};

/// What a supervisor has done when it, or another, waits for that.
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
    /// The memory that it shares is given up at home.
    Emptied,
    /// The target expects the companions of the one whose berth it is.
    Welcome,
}

impl Stage {
    /// So long one waits for the others, the process running at first, and standing still then.
    fn patience(self) -> Duration {
        match self {
            Stage::Ready => Duration::from_secs(100),
            Stage::Frozen => Duration::from_secs(5),
            Stage::Restored => Duration::from_secs(30),
            Stage::Running | Stage::Emptied => Duration::from_secs(10),
            Stage::Welcome => Duration::from_secs(20),
        }
    }
}

/// Between two looks whether the move is wanted still.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Those who leave with a process, or the process alone.
#[derive(Default)]
pub struct Group {
    pid: i32,
    /// All of them; nobody if it is alone.
    members: BTreeSet<i32>,
    /// What they share that has a name or a descriptor.
    named: Vec<MemoryId>,
    /// Who comes by the berth of this one.
    companions: Vec<Companion>,
    agreement: Option<Agreement>,
    /// Of what they share.
    memory: MemoryFiles,
}

impl Group {
    /// # Errors
    /// The memory cannot be mapped.
    pub fn of(
        pid: i32,
        page: OwnedFd,
        (members, named): (&[HomePid], Vec<MemoryId>),
        companions: Vec<Companion>,
    ) -> kernel::Result<Group> {
        let agreement = Some(Agreement::of(page)?);
        let members = members.iter().map(|pid| pid.0).collect();
        Ok(Group { pid, members, named, companions, agreement, memory: MemoryFiles::default() })
    }

    /// Memory that some of them share, which is open here.
    pub fn know_memory(&mut self, files: impl IntoIterator<Item = File>) {
        self.memory = MemoryFiles::of(files);
    }

    pub fn memory(&self) -> MemoryFiles {
        self.memory.clone()
    }

    pub fn is_any(&self) -> bool {
        self.agreement.is_some()
    }

    /// What binds this one, which has these mappings.
    pub fn bonds(&self, maps: &[Mapping]) -> Bonds {
        Bonds::of(maps, self.members.clone(), &self.named)
    }

    /// What the target has to be told by the one to whose berth the others come.
    ///
    /// # Errors
    /// As [`migrate::group::memory`].
    pub fn announcement(&self, bonds: &Bonds) -> Result<Option<Box<memory_group::Group>>> {
        if self.companions.is_empty() {
            return Ok(None);
        }
        let segments = migrate::group::memory(bonds)?;
        Ok(Some(Box::new(memory_group::Group { companions: self.companions.clone(), segments })))
    }

    /// Which of its shared memory others of them bring. All stand still.
    ///
    /// # Errors
    /// As [`migrate::group::brought_by`].
    pub fn brought_by_others(&self, maps: &[Mapping], bonds: &Bonds) -> Result<Held> {
        let before = self.members.range(..self.pid).copied();
        migrate::group::brought_by(before, maps, &|mapping| bonds.has(mapping))
    }

    /// The target has taken the one to whose berth the others come.
    pub fn let_call(&self) {
        self.agreement.iter().for_each(|agreement| agreement.arrive(Stage::Welcome as usize));
    }

    /// Waits until this one may call the target.
    ///
    /// # Errors
    /// As [`Group::reach`].
    pub fn await_welcome(&self, goes_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(agreement) = self.agreement.as_ref().filter(|_| self.companions.is_empty()) else {
            return Ok(());
        };
        self.wait(agreement, (Stage::Welcome, 1), goes_on)
    }

    /// Waits until all have come so far.
    ///
    /// # Errors
    /// One of them stays, so all do; or what `goes_on` says.
    pub fn reach(&self, stage: Stage, goes_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(agreement) = &self.agreement else { return Ok(()) };
        agreement.arrive(stage as usize);
        let all = self.members.len() as u32;
        self.wait(agreement, (stage, all), goes_on)?;
        if stage == Stage::Running {
            agreement.agree();
        }
        check(agreement)
    }

    /// This one will not touch any more what it shares here.
    pub fn has_emptied(&self) {
        self.agreement.iter().for_each(|agreement| agreement.arrive(Stage::Emptied as usize));
    }

    /// Waits until nobody will touch what they share here: before that none of them is served, and
    /// so none can bring that memory home again. A supervisor that was ended touches nothing, and
    /// is not waited for for long.
    pub fn await_emptied(&self) {
        let Some(agreement) = &self.agreement else { return };
        let deadline = Instant::now() + Stage::Emptied.patience();
        loop {
            let seen = agreement.seen();
            let have_all = agreement.arrived(Stage::Emptied as usize) >= self.members.len() as u32;
            if have_all || Instant::now() >= deadline {
                return;
            }
            agreement.wait(seen, LOOK_INTERVAL);
        }
    }

    fn wait(
        &self,
        agreement: &Agreement,
        (stage, count): (Stage, u32),
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let deadline = Instant::now() + stage.patience();
        loop {
            let seen = agreement.seen();
            if agreement.arrived(stage as usize) >= count {
                return Ok(());
            }
            check(agreement)?;
            if Instant::now() >= deadline {
                self.stay();
            }
            goes_on()?;
            agreement.wait(seen, LOOK_INTERVAL);
        }
    }

    /// Why this one has not left: if another could not, what is seen of that here is no reason.
    pub fn explain(&self, error: MigrateError) -> MigrateError {
        let verdict = self.agreement.as_ref().map(|agreement| (agreement, agreement.verdict()));
        match verdict {
            Some((agreement, Verdict::No(who))) if who != self.pid as u32 => {
                check(agreement).err().unwrap_or(error)
            }
            _ => error,
        }
    }

    /// All stay, unless all have left already.
    pub fn stay(&self) {
        self.agreement.iter().for_each(|agreement| agreement.refuse(self.pid as u32));
    }
}

fn check(agreement: &Agreement) -> Result<()> {
    let Verdict::No(who) = agreement.verdict() else { return Ok(()) };
    let who = match who {
        0 => "a process".to_owned(),
        pid => format!("process {pid}"),
    };
    let text = format!("{who}, which it shares memory with, could not leave");
    Err(MigrateError::refused(COMPANION_STAYS, text))
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn groups(count: i32) -> Vec<Group> {
        let page = Agreement::create().unwrap();
        let members: Vec<HomePid> = (0..count).map(HomePid).collect();
        let of = |_| {
            let page = page.file().try_clone().unwrap();
            Group::of(1, page, (&members, vec![]), vec![]).unwrap()
        };
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
        groups[0].agreement.as_ref().unwrap().agree();
        groups[1].stay();
        let verdicts = groups.iter().map(|group| group.agreement.as_ref().unwrap().verdict());
        assert!(verdicts.into_iter().all(|verdict| verdict == Verdict::Yes));
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let alone = Group::default();
        leave(&alone).unwrap();
        alone.has_emptied();
        alone.await_emptied();
    }

    #[test]
    fn nobody_is_served_before_all_have_given_up_what_they_share() {
        let groups = groups(3);
        let emptied = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for group in &groups {
                scope.spawn(|| {
                    leave(group).unwrap();
                    emptied.fetch_add(1, Ordering::SeqCst);
                    group.has_emptied();
                    group.await_emptied();
                    assert_eq!(emptied.load(Ordering::SeqCst), 3);
                });
            }
        });
    }
}
