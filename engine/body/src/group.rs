//! Bodies of one sandbox that share memory ([decision 0034](../../../docs/decisions/)): forked from
//! each other here, or arrived together. What each writes the others see, so they are in one place,
//! all of them, and go home together.
//!
//! Whoever has to leave begins a round: all that are bound to it are frozen and sent home, each by
//! its own thread over its own link. A home waits twice: when it has the memory (`HasMemory`) until
//! all have theirs (`MemoryIsIn`), so that what it writes to it then stays; and when it is ready
//! (`Prepared`) until all are (`GoesHome`). If one cannot go, all go on here. So the memory is in
//! one of the two places at any time.

use crate::family::Family;
use crate::state::{Order, Shared};
use crate::tracing_loop::{End, Tracing};
use kernel::proc::maps::{self, Mapping};
use migrate::backing::Library;
use migrate::held::Held;
use migrate::layout::{self, Backings};
use migrate::{MigrateError, Result, mapping_flags, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::ids::{GuestAddr, GuestTid};
use wire::image::{self, MappingKind, SharedMemory, SharedPlace};
use wire::limits::SHARED_MEMORY_MAX;
use wire::memory_group::{BOUND, GROUP, GROUP_ASKED};
use wire::supervisor::Reason;

/// A process that was made is known here a few milliseconds later.
const BIRTH_PATIENCE: Duration = Duration::from_secs(2);
/// So long after the first one all of a group stand still, or none stays so.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks whether that is over, and whether another needs something of this thread.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
const GLANCE_PAUSE: Duration = Duration::from_millis(2);

/// Bodies that leave for home together.
pub struct Round {
    begun: Instant,
    members: Mutex<Members>,
    changed: Condvar,
    /// Members that have begun to leave and are not done with it.
    joined: AtomicUsize,
}

#[derive(Default)]
struct Members {
    at: BTreeMap<GuestTid, (Arc<Shared>, Stage)>,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Runs,
    /// It is frozen and sends itself.
    StandsStill,
    /// Home has its memory.
    IsIn,
    /// Home has everything.
    IsReady,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Goes,
    Stays(Reason),
}

impl Round {
    fn of(members: Vec<Arc<Shared>>) -> Arc<Round> {
        let at = members.into_iter().map(|body| (body.guest_pid, (body, Stage::Runs))).collect();
        let members = Mutex::new(Members { at, outcome: None });
        Arc::new(Round {
            begun: Instant::now(),
            members,
            changed: Condvar::new(),
            joined: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().expect("no thread of the supervisor panicked")
    }

    fn has(&self, guest: GuestTid) -> bool {
        self.lock().at.contains_key(&guest)
    }

    fn is_over(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// It is over, and whoever stood still for it is done with that: others may begin one.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over() && self.joined.load(Ordering::SeqCst) == 0
    }

    fn outcome(&self) -> Option<Outcome> {
        self.lock().outcome.clone()
    }

    fn reaches(&self, guest: GuestTid, stage: Stage) {
        self.change(|members| {
            if let Some((_, at)) = members.at.get_mut(&guest) {
                *at = stage;
            }
        });
    }

    /// It has ended, or is at home: the others go without it.
    pub(crate) fn departs(&self, guest: GuestTid) {
        self.change(|members| drop(members.at.remove(&guest)));
    }

    /// Whether it is this that keeps them.
    fn stays(&self, why: Reason) -> bool {
        let mut is_it = false;
        self.change(|members| {
            is_it = members.outcome.is_none();
            members.outcome.get_or_insert(Outcome::Stays(why));
        });
        is_it
    }

    fn all_have_come(&self, stage: Stage) -> bool {
        self.lock().at.values().all(|(_, at)| *at >= stage)
    }

    fn change(&self, how: impl FnOnce(&mut Members)) {
        let mut members = self.lock();
        let was_over = members.outcome.is_some();
        how(&mut members);
        if members.outcome.is_none() && members.at.values().all(|(_, at)| *at == Stage::IsReady) {
            members.outcome = Some(Outcome::Goes);
        }
        let has_news = members.outcome.is_some() && !was_over
            || members.at.values().all(|(_, at)| *at == Stage::IsIn);
        if has_news {
            members.at.values().for_each(|(body, _)| body.order(Order::RoundChanged));
        }
        self.changed.notify_all();
    }

    /// Waits until all stand still, or not for long; whether they do.
    ///
    /// # Errors
    /// They do not go any more.
    fn all_stand_still(&self, patience: Duration) -> Result<bool> {
        let are_awaited = |members: &mut Members| {
            members.outcome.is_none() && members.at.values().any(|(_, at)| *at == Stage::Runs)
        };
        let waited = self.changed.wait_timeout_while(self.lock(), patience, are_awaited);
        let (members, timeout) = waited.expect("no thread of the supervisor panicked");
        match &members.outcome {
            Some(Outcome::Stays(why)) => Err(MigrateError::Refused(why.clone())),
            _ => Ok(!timeout.timed_out()),
        }
    }

    /// One that does not stand still after so long a time.
    fn straggler(&self) -> Option<GuestTid> {
        let members = self.lock();
        let mut late = members.at.iter().filter(|_| self.begun.elapsed() >= STOP_TIMEOUT);
        late.find(|(_, (_, at))| *at == Stage::Runs).map(|(guest, _)| *guest)
    }
}

/// One body in a round; it is out of it when this is dropped.
pub(crate) struct Membership {
    round: Arc<Round>,
    family: Arc<Family>,
    guest: GuestTid,
}

impl Membership {
    fn of(round: Arc<Round>, family: Arc<Family>, guest: GuestTid) -> Membership {
        round.joined.fetch_add(1, Ordering::SeqCst);
        Membership { round, family, guest }
    }

    /// Which of the shared memory of this one's body others bring home. All stand still.
    ///
    /// # Errors
    /// As [`migrate::group::brought_by`].
    pub(crate) fn brought_by_others(&self, body: &Shared) -> Result<Held> {
        let maps = maps::read(body.pid)?;
        let library = body.own_files.fixed.library();
        let members = self.round.lock();
        let before = members.at.range(..self.guest).map(|(_, (other, _))| other.pid);
        let is_shared = |m: &Mapping| is_shared_memory(body, &library, m);
        migrate::group::brought_by(before, &maps, &is_shared)
    }

    /// It does not leave, and so nobody does. Whether it is for this one that they do not.
    pub(crate) fn stay(&self) -> bool {
        let text =
            format!("process {}, which it shares memory with, could not go home", self.guest);
        self.round.stays(reason(GROUP, text))
    }
}

impl Drop for Membership {
    /// One that does not leave in the end is about to be ended, by which its memory may change
    /// (robust mutexes) that the others have sent home already: they do not leave either.
    fn drop(&mut self) {
        let text = format!("process {}, which it shares memory with, ends", self.guest);
        self.round.stays(reason(GROUP, text));
        self.round.departs(self.guest);
        self.round.joined.fetch_sub(1, Ordering::SeqCst);
        self.family.end_round(&self.round);
    }
}

/// What a body does that wants to leave.
pub(crate) enum Gathered {
    Alone,
    With(Membership),
    /// It was to go with others, which do not go any more.
    Over,
}

impl Tracing<'_> {
    /// Begins to go home with all that it shares memory with, or joins those who do.
    ///
    /// # Errors
    /// Refused for the moment: others of its sandbox go home, or are just being made.
    pub(crate) fn gather(&self, announcement: &ToHome) -> Result<Gathered> {
        let (family, guest) = (self.shared.family.clone(), self.shared.guest_pid);
        let is_alone = family.count() == 1 || self.shared.maker.is_some();
        if is_alone || segments(&self.shared).is_empty() {
            return Ok(Gathered::Alone);
        }
        let mut current = family.round();
        if let Some(round) = current.clone() {
            drop(current);
            if round.has(guest) && !round.is_over() {
                return Ok(Gathered::With(Membership::of(round, family, guest)));
            }
            if round.has(guest) && is_called(announcement) {
                return Ok(Gathered::Over);
            }
            let text = "processes beside it are just going home; try again";
            return Err(MigrateError::refused(GROUP, text));
        }
        if is_called(announcement) {
            return Ok(Gathered::Over);
        }
        if !family.hold_births(BIRTH_PATIENCE) {
            let text = "a process beside it is just being made, or has just come; try again";
            return Err(MigrateError::refused("new-process", text));
        }
        let members = bound_to(&self.shared);
        if members.len() == 1 {
            family.release_births();
            return Ok(Gathered::Alone);
        }
        let round = Round::of(members.clone());
        *current = Some(round.clone());
        drop(current);
        let membership = Membership::of(round, family, guest);
        for other in members.iter().filter(|other| other.guest_pid != guest) {
            other.order(Order::Gather { is_asked: matches!(announcement, ToHome::Frozen) });
        }
        Ok(Gathered::With(membership))
    }

    /// Another body that this one shares memory with goes home.
    pub(crate) fn follow_group(&mut self, is_asked: bool) -> Result<End> {
        self.next_homecoming = Instant::now();
        let code = if is_asked { GROUP_ASKED } else { GROUP };
        let called = reason(code, "a process that it shares memory with goes home");
        // A reason of its own stays: that does not end with the round.
        let own = self.homesick.take().filter(|why| !is_for_others(why));
        self.need_home(own.unwrap_or(called))
    }

    /// This one stands still: waits until all do.
    ///
    /// # Errors
    /// One does not, or the link to home is lost.
    pub(crate) fn await_standstill(&mut self, membership: &Membership) -> Result<()> {
        let round = &membership.round;
        round.reaches(membership.guest, Stage::StandsStill);
        loop {
            // Another may need an id for what it is just making.
            self.grant_wishes();
            if round.all_stand_still(GLANCE_PAUSE)? {
                return Ok(());
            }
            if let Some(late) = round.straggler() {
                let text = format!("process {late}, which it shares memory with, does not stop");
                round.stays(reason(GROUP, text));
            }
        }
    }

    /// Waits until all have come home that left with this one, which home has been sent; what has
    /// become of it otherwise.
    pub(crate) fn await_group(&mut self, membership: &Membership) -> Result<Option<End>> {
        let round = &membership.round;
        let deadline = Instant::now() + crate::leaving::VERDICT_TIMEOUT;
        let mut at = Stage::StandsStill;
        let mut is_told = false;
        loop {
            let _ = self.shared.wake.read();
            while let Some(order) = self.shared.next_order() {
                at = match order {
                    Order::Home(ToAway::HasMemory) => Stage::IsIn,
                    Order::Home(ToAway::Prepared) => Stage::IsReady,
                    order => match self.obey_frozen(order)? {
                        Some(end) => return Ok(Some(end)),
                        None => continue,
                    },
                };
                round.reaches(membership.guest, at);
            }
            // Home hears nothing before it has said how far it is: its word would come later.
            let outcome = round.outcome().filter(|_| at != Stage::StandsStill);
            let awaits_word = at == Stage::IsReady || !is_told;
            match outcome.filter(|_| awaits_word) {
                Some(Outcome::Goes) => {
                    self.shared.send(ToHome::GoesHome);
                    return Ok(None);
                }
                Some(Outcome::Stays(why)) => return self.stay(why).map(Some),
                None => {}
            }
            if at == Stage::IsIn && !is_told && round.all_have_come(Stage::IsIn) {
                is_told = true;
                self.shared.send(ToHome::MemoryIsIn);
            }
            self.grant_wishes();
            if Instant::now() >= deadline && at == Stage::StandsStill {
                return Ok(Some(End::Goes(reason("link", "home did not answer"))));
            }
            let wake = PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN);
            let ms = PollTimeout::try_from(LOOK_PAUSE).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [wake], ms);
        }
    }

    /// Whether it can move on to another node.
    ///
    /// # Errors
    /// Refused if it is bound to somebody here.
    pub(crate) fn check_is_alone(&self) -> Result<()> {
        if self.shared.family.count() == 1 || segments(&self.shared).is_empty() {
            return Ok(());
        }
        if self.shared.family.awaits_births() {
            let text = "a process that shares its memory is just being made, or has just come; try \
                        again";
            return Err(MigrateError::refused("new-process", text));
        }
        let members = bound_to(&self.shared);
        match members.iter().find(|other| other.guest_pid != self.shared.guest_pid) {
            None => Ok(()),
            Some(other) => {
                let text = format!(
                    "it shares memory with process {}, which is on this node, too; they go home \
                     together, and no further",
                    other.guest_pid
                );
                Err(MigrateError::refused(BOUND, text))
            }
        }
    }
}

/// Whether a body leaves only because another does.
pub(crate) fn is_called(announcement: &ToHome) -> bool {
    matches!(announcement, ToHome::NeedsHome(why) if is_for_others(why))
}

fn is_for_others(why: &Reason) -> bool {
    [GROUP, GROUP_ASKED].contains(&&*why.code)
}

/// The body and all of its sandbox that share memory with it, in any number of steps. Whoever has
/// its maker's memory whole goes its own way, with a copy ([`crate::vfork`]).
fn bound_to(body: &Arc<Shared>) -> Vec<Arc<Shared>> {
    let mut others = body.family.bodies();
    others.retain(|other| other.guest_pid != body.guest_pid && other.maker.is_none());
    let mut known: Vec<(Arc<Shared>, HashSet<Segment>)> =
        others.into_iter().map(|other| (other.clone(), segments(&other))).collect();
    let (mut members, mut seen) = (vec![body.clone()], segments(body));
    while let Some(at) = known.iter().position(|(_, its)| !its.is_disjoint(&seen)) {
        let (member, its) = known.swap_remove(at);
        members.push(member);
        seen.extend(its);
    }
    members
}

/// Shared memory as the kernel here knows it: device and inode.
type Segment = (u64, u64);

fn segments(body: &Shared) -> HashSet<Segment> {
    let mut maps = maps::read(body.pid).unwrap_or_default();
    let library = body.own_files.fixed.library();
    maps.retain(|m| is_shared_memory(body, &library, m));
    maps.into_iter().map(|m| (m.device, m.inode)).collect()
}

/// Whether it is memory that can be shared with others: what has come with them is that of a file
/// of ours here.
pub(crate) fn is_shared_memory(body: &Shared, library: &Library, mapping: &Mapping) -> bool {
    let is_known = || library.shared_memory(mapping).is_some();
    let is_ours = body.kept.contains(&(mapping.start..mapping.end));
    !is_ours && (layout::is_shared_anonymous(mapping) || is_known())
}

/// The shared memory that a child of the body would have in common with it; None if there is other
/// memory, or too much, which both could write to.
pub(crate) fn commons(body: &Shared) -> Option<Vec<SharedMemory>> {
    let maps = maps::read(body.pid).ok()?;
    let library = body.own_files.fixed.library();
    let is_other = |m: &Mapping| {
        let is_writable = m.is_shared && m.is_writable && !body.kept.contains(&(m.start..m.end));
        is_writable && !is_shared_memory(body, &library, m)
    };
    if maps.iter().any(is_other) {
        return None;
    }
    let describe = |m: &Mapping| SharedMemory {
        mapping: image::Mapping {
            start: GuestAddr(m.start),
            end: GuestAddr(m.end),
            protection: m.protection(),
            kind: MappingKind::SharedAnonymous { home: library.shared_memory(m) },
            flags: mapping_flags::flags_of(m),
        },
        away: SharedPlace { device: m.device, inode: m.inode, offset: m.offset },
    };
    let is_it = |m: &Mapping| is_shared_memory(body, &library, m);
    let shared = maps.iter().filter(|m| is_it(m));
    let all: Vec<SharedMemory> = shared.map(describe).collect();
    (all.len() <= SHARED_MEMORY_MAX && layout::check_aliases(&maps, &is_it).is_ok()).then_some(all)
}

/// Notes what home calls the shared memory of a body that makes a process; whether it has any.
///
/// # Errors
/// There is some that home does not know: it was mapped meanwhile.
pub(crate) fn learn_names(body: &Shared, told: &[SharedMemory]) -> Result<bool> {
    let mut maps = maps::read(body.pid)?;
    let mut library = body.own_files.fixed.library_to_change();
    maps.retain(|m| is_shared_memory(body, &library, m));
    for mapping in &maps {
        if library.shared_memory(mapping).is_some() {
            continue;
        }
        let is_it = |told: &&SharedMemory| {
            (told.away.device, told.away.inode) == (mapping.device, mapping.inode)
        };
        let home = told.iter().find(is_it).and_then(|told| {
            let ahead = mapping.offset.wrapping_sub(told.away.offset);
            let offset = |home: SharedPlace| home.offset.wrapping_add(ahead);
            told.home().map(|home| SharedPlace { offset: offset(home), ..home })
        });
        let Some(home) = home else {
            return Err(MigrateError::refused("memory", "it has mapped shared memory meanwhile"));
        };
        library.learn_name(mapping, home);
    }
    Ok(!maps.is_empty())
}
