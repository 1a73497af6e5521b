//! Leaving home: from a plain process to a deputy whose body runs elsewhere.

use crate::announcing::{draft, prospect};
use crate::departed::Remembered;
use crate::frozen::{Frozen, Seen};
use crate::group::{Group, Stage};
use crate::keeping::{self, Keeping};
use crate::lanes::Lane;
use crate::late::{self, Behind, LateMemory, with_late};
use crate::meanwhile::Meanwhile;
use crate::own_memory::{Afterwards, Reading};
use kernel::agent::Agent;
use kernel::child_signal::ChildSignal;
use kernel::memory::Memory;
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::proc::{flags, maps};
use kernel::quota::Relief;
use kernel::signal::Action;
use kernel::tracking::{self, Tracking};
use link::{LinkReader, LinkWriter};
use migrate::ahead::{self, Ahead, Target};
use migrate::backing::Library;
use migrate::copying::Copying;
use migrate::files::Files;
use migrate::group::Bonds;
use migrate::injection::Borrowed;
use migrate::offer::{Abilities, Offerer};
use migrate::outflow::Outflow;
use migrate::rounds::Rounds;
use migrate::stopwatch::{Stopwatch, micros};
use migrate::{MigrateError, Result, kept, layout, processor_ids, refusal, sharing};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::freeze_budget::FreezeBudget;
use wire::image::{Draft, Mapping, Prospect};
use wire::memory_group::MemoryId;
use wire::move_limits::MoveLimits;
use wire::processor_time::ProcessorTime;
use wire::supervisor::{Berth, MoveReport, Progress, Reason, Role, Way};

/// A process that has just left home.
pub struct Away {
    pub pid: i32,
    pub berth: Berth,
    pub link: (LinkReader, LinkWriter),
    pub agent: Agent,
    pub memory: Memory,
    pub library: Library,
    pub borrowed: Borrowed,
    pub lanes: Vec<Lane>,
    pub actions: Vec<Action>,
    /// What of it was in memory when it left.
    pub memory_bytes: u64,
    pub report: MoveReport,
    /// Processor time of earlier stays away.
    pub used: ProcessorTime,
    pub relief: Option<Relief>,
    pub left: Left,
    /// Stopped by job control while it left.
    pub is_held: bool,
}

/// What of its memory is to be known to its deputy.
pub struct Left {
    /// It has stayed here.
    pub keeping: Option<Keeping>,
    /// Mappings as they were when it left, with flags that may have been changed just before.
    pub maps: Vec<maps::Mapping>,
    pub reading: Reading,
    /// Those that it has mapped shared and writable.
    pub files: Option<Files>,
    /// What moves may take, as it was ordered.
    pub limits: MoveLimits,
    /// What comes behind it.
    pub late: Option<LateMemory>,
    /// Why it has to be home, if that is known already.
    pub called_home: Option<Reason>,
}

/// Moves the process `pid` to the berth, frozen for no longer than `budget` if that can be, and
/// copied ahead within `limits`.
///
/// # Errors
/// The process is at home and runs on as if nothing had been; unless it is `Ended`, or `Lost`
/// because it runs elsewhere and its deputy could not be made to serve it.
pub fn leave(
    pid: i32,
    (berth, (budget, limits, way)): (&Berth, (FreezeBudget, MoveLimits, Way)),
    remembered: &mut Remembered,
    signals: &ChildSignal,
    (meanwhile, group): (&Meanwhile<'_>, &Group),
) -> Result<Away> {
    let mut watch = Stopwatch::start();
    let maps = flags::read_maps_aside(pid)?;
    let bonds = group.bonds(&maps);
    refusal::check(pid, &maps, (remembered.is_mobile, &bonds))?;
    let library = Library::of_process(pid, &maps, &bonds)?;
    let (mut files, lasting) = watched_files(pid, &maps, &bonds, meanwhile)?;
    let asks_processor = processor_ids::is_asked_by(&library);
    watch.phase("inspect");
    group.await_welcome(&|| meanwhile.goes_on())?;
    let mut link = link::connect(berth, Role::Deputy)?;
    watch.phase("connect");
    let mut prospect = prospect(pid, &library, remembered)?;
    (prospect.group, prospect.lasting) = (group.announcement(&bonds)?, lasting);
    let (is_tracked, is_copied) = look_ahead(&mut prospect, pid, way);
    let (parts, let_call) = ((&prospect, &library, &maps[..]), || group.let_call());
    let (draft, agent_place, can) = announce(pid, &mut link, parts, &mut watch, let_call)?;
    let (memory, place) = (refusal::open_memory(pid)?, (asks_processor, agent_place));
    let mut ahead = Ahead::new(draft, Copying::of(pid, None)?, can.remembers);
    let mut outflow = Outflow::open(berth, &mut link.1, (prospect.memory_bytes, limits))?;
    meanwhile.goes_on()?;
    let (mut known, mut rounds) = (vec![], Rounds::within(budget));
    // Others would have to wait for pages as it does.
    let may_be_late = can.serves_faults && prospect.is_kept && !group.is_any();
    let mut behind = Behind::of(way, may_be_late, &mut rounds)?;
    let process = (pid, &memory, (&library, &maps[..]));
    let mut target = Target { link: &mut link, outflow: &mut outflow };
    if is_copied {
        let stops = is_tracked.then_some((&mut *remembered, signals, place.clone()));
        let parts = (&mut ahead, (&mut rounds, meanwhile), (berth, &mut behind));
        known = copy_ahead(process, stops, &mut target, parts, &mut watch)?;
    }
    behind.check()?;
    let company = (meanwhile, (group, &bonds));
    share_ahead(process, &mut target, (&mut ahead, company), &mut watch)?;
    group.reach(Stage::Ready, &|| meanwhile.goes_on())?;
    let (mut frozen, frozen_at) =
        stop((pid, place), (remembered, signals), &mut target.link.1, &mut watch)?;
    let known = (&library, (&mut ahead, behind.room(&rounds)), &known[..], files.as_mut());
    let sent = send(&mut frozen, &memory, known, (&mut target, company), &mut watch);
    let Sent { actions, running_at, mappings, maps, bytes } = match sent {
        Ok(sent) => sent,
        Err(error) => {
            // Before anything of it goes on: the others have its memory, too.
            group.stay();
            remembered.waits = frozen.put_back();
            return Err(give_up(link, error));
        }
    };
    let bytes_sent = link.1.bytes_sent() + outflow.bytes_streamed();
    let late = behind.give(pid, &ahead)?;
    let given_up: Vec<_> = mappings.into_iter().filter(|m| !bonds.names(m)).collect();
    let keeping = frozen.keep_memory(prospect.is_kept, &given_up, group)?;
    let freeze_us = micros(running_at - frozen_at);
    let is_held = frozen.settle_away(&memory).map_err(MigrateError::lost)?;
    // All of that takes time, for which nobody has to wait.
    let reading = read_afterwards(&frozen, (ahead, outflow));
    group.await_emptied();
    watch.phase("settle");
    let report = with_late(rounds.tell(bytes, report(watch, freeze_us, bytes_sent)), late.as_ref());
    let left = Left { keeping, maps, reading, files, limits, late, called_home: None };
    let parts = (link, memory, library, actions, prospect.memory_bytes, report, left);
    frozen.into_away(berth.clone(), parts, is_held).map_err(MigrateError::lost)
}

/// Stops it for the last time, and says since when it stands.
fn stop(
    (pid, place): (i32, Place),
    (remembered, signals): (&mut Remembered, &ChildSignal),
    link: &mut LinkWriter,
    watch: &mut Stopwatch,
) -> Result<(Frozen, Instant)> {
    let seen = Seen::of(pid, remembered)?;
    watch.phase("look");
    link.set_hurried(true)?;
    let frozen_at = Instant::now();
    let frozen = Frozen::freeze(pid, seen, signals, place)?;
    watch.phase("freeze");
    Ok((frozen, frozen_at))
}

/// Reads on another thread what is known of the process only now, and gives up there what the move
/// has taken.
fn read_afterwards(frozen: &Frozen, used: (Ahead, Outflow)) -> Reading {
    let (pid, tids) = (frozen.pid, frozen.tids.clone());
    std::thread::spawn(move || {
        drop(used);
        Afterwards::read(pid, &tids)
    })
}

/// Those that it has mapped shared and writable, which nobody else writes to; and what of its
/// group's memory is lasting.
fn watched_files(
    pid: i32,
    maps: &[maps::Mapping],
    bonds: &Bonds,
    meanwhile: &Meanwhile<'_>,
) -> Result<(Option<Files>, Vec<MemoryId>)> {
    let lasting = bonds.lasting(pid, maps)?;
    let files = Files::watch(pid, maps, (bonds, &lasting))?;
    if let Some(files) = &files {
        meanwhile.guard(files)?;
        files.check_patiently(pid)?;
    }
    Ok((files, lasting))
}

/// Why the move has failed.
fn give_up(mut link: (LinkReader, LinkWriter), error: MigrateError) -> MigrateError {
    let error = why_it_broke(&mut link.0, error);
    link.1.close();
    error
}

/// Whether it is tracked, and whether it is copied ahead, with that or because it is small; says
/// whether its memory is kept.
fn look_ahead(prospect: &mut Prospect, pid: i32, way: Way) -> (bool, bool) {
    let is_small = prospect.memory_bytes < ahead::BYTES_MIN;
    let is_worth_it = !is_small || way == Way::PostCopy;
    prospect.is_kept = is_worth_it && keeping::has_room(pid);
    let is_stopped_first = way == Way::StopAndCopy;
    let is_tracked = is_worth_it && !is_stopped_first && tracking::is_possible();
    (is_tracked, is_tracked || is_small && !is_stopped_first)
}

fn report(watch: Stopwatch, freeze_us: u64, bytes_sent: u64) -> MoveReport {
    let (total_us, phases_us) = (watch.total_us(), watch.into_phases());
    MoveReport { freeze_us, total_us, phases_us, bytes_sent, ..MoveReport::default() }
}

/// Makes sure that the target takes it, and has it prepare; returns the draft, where the agent is
/// to lie and for how many threads, and what the target can.
fn announce(
    pid: i32,
    link: &mut (LinkReader, LinkWriter),
    (prospect, library, known): (&Prospect, &Library, &[maps::Mapping]),
    watch: &mut Stopwatch,
    welcome: impl FnOnce(),
) -> Result<(Draft, (Range<u64>, usize), Abilities)> {
    let can = migrate::offer::offer(link, Offerer::Home, prospect.clone(), library, welcome)?;
    watch.phase("offer");
    let (draft, place, slots) = draft(pid, library, known)?;
    migrate::offer::draft(link, draft.clone())?;
    watch.phase("draft");
    // A move that hangs is given up soon, also while the process runs: it can be tried again.
    link.1.set_copying()?;
    Ok((draft, (place, slots), can))
}

/// A target that gives up closes its link while there is still something on the way to it, and that
/// breaks the link before its reason was looked for.
fn why_it_broke(reader: &mut LinkReader, error: MigrateError) -> MigrateError {
    if !matches!(error, MigrateError::Link(_)) || reader.set_timeout(Some(LAST_WORDS)).is_err() {
        return error;
    }
    match reader.receive() {
        Ok(ToHome::Refused(reason)) => MigrateError::Refused(reason),
        _ => error,
    }
}

/// What a target said before its link broke has arrived before that was noticed.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A process that runs, and its mappings as they were a while ago.
type Running<'a> = (i32, &'a Memory, (&'a Library, &'a [maps::Mapping]));

/// What a process is stopped with, to have its writes told.
type Stops<'a> = (&'a mut Remembered, &'a ChildSignal, Place);

/// Sends memory while the process runs, which is stopped to have its writes told, or has little of
/// it; returns its mappings, with their flags.
fn copy_ahead(
    process @ (pid, memory, (library, maps)): Running<'_>,
    stops: Option<Stops<'_>>,
    target: &mut Target<'_>,
    (ahead, (rounds, meanwhile), (berth, behind)): (
        &mut Ahead,
        (&mut Rounds, &Meanwhile<'_>),
        (&Berth, &mut Behind),
    ),
    watch: &mut Stopwatch,
) -> Result<Vec<maps::Mapping>> {
    let Some((remembered, signals, place)) = stops else {
        let known = copy_little(process, target, ahead, (rounds, meanwhile));
        watch.phase("copy");
        return known;
    };
    let tracking = track(pid, memory, remembered, signals, place.clone())?;
    watch.phase("track");
    if let Some(tracking) = tracking.map(Arc::new) {
        ahead.copying = Copying::of(pid, Some(tracking.claim()))?;
        // A flag that has changed is found in the end.
        let again = || flags::read_maps_again(pid, maps);
        let mappings = || layout::of_guest(&again()?, &[], library);
        let goes_on = |progress: &Progress| meanwhile.goes_on_at(progress);
        let mut left = RENEWALS_MAX;
        let mut renew = || {
            if left == 0 {
                return Ok(None);
            }
            left -= 1;
            renew(pid, &tracking, remembered, signals, place.clone()).map(Some)
        };
        if behind.way != Way::PostCopy {
            ahead.copy_by(memory, target, &mappings, (rounds, &goes_on), &mut renew)?;
        }
        watch.phase("copy");
        behind.begin(berth, (memory, ahead), (target, rounds), &mappings)?;
        watch.phase("set-aside");
    }
    // Read once more when it is away: what changes from here on is found then.
    Ok(flags::read_maps_aside(pid)?)
}

/// Sends the memory of a process that has little of it while it runs; what was written to meanwhile
/// is found in the freeze. Returns its mappings, with their flags.
fn copy_little(
    (pid, memory, (library, maps)): Running<'_>,
    target: &mut Target<'_>,
    ahead: &mut Ahead,
    (rounds, meanwhile): (&mut Rounds, &Meanwhile<'_>),
) -> Result<Vec<maps::Mapping>> {
    ahead.copying = Copying::comparing(pid)?;
    let again = || flags::read_maps_again(pid, maps);
    let mappings = || layout::of_guest(&again()?, &[], library);
    let goes_on = |progress: &Progress| meanwhile.goes_on_at(progress);
    ahead.copy(memory, target, &mappings, (rounds, &goes_on))?;
    Ok(flags::read_maps(pid)?)
}

/// Sends what this one brings of the memory of its group, if it has one, while all run.
fn share_ahead(
    (pid, memory, (library, maps)): Running<'_>,
    target: &mut Target<'_>,
    (ahead, (meanwhile, (group, bonds))): (&mut Ahead, (&Meanwhile<'_>, (&Group, &Bonds))),
    watch: &mut Stopwatch,
) -> Result<()> {
    if !group.is_any() {
        return Ok(());
    }
    let by_others = group.brought_by_others(maps, bonds)?;
    ahead.copying.know_memory(group.memory());
    let again = || flags::read_maps_again(pid, maps);
    let mappings = || layout::of_guest(&again()?, &[], library);
    let goes_on = |progress: &Progress| meanwhile.goes_on_at(progress);
    ahead.share(memory, target, (&mappings, &by_others), &goes_on)?;
    watch.phase("share");
    Ok(())
}

/// Whether it asks for its processor, where the agent is to lie, and for how many threads.
type Place = (bool, (Range<u64>, usize));

/// Stops the process for a moment, to have its writes told.
fn track(
    pid: i32,
    memory: &Memory,
    remembered: &mut Remembered,
    signals: &ChildSignal,
    place: Place,
) -> Result<Option<Tracking>> {
    let mut frozen = Frozen::freeze(pid, Seen::of(pid, remembered)?, signals, place)?;
    let tracking = frozen.track(memory);
    remembered.waits = frozen.put_back();
    tracking
}

/// Stops the process for a moment, to have its writes told anew; returns those so far. What it
/// takes is much like what the last freeze takes for memory that was not written to.
fn renew(
    pid: i32,
    tracking: &Tracking,
    remembered: &mut Remembered,
    signals: &ChildSignal,
    place: Place,
) -> Result<Vec<Run>> {
    let frozen = Frozen::freeze(pid, Seen::of(pid, remembered)?, signals, place)?;
    let maps = maps::read(pid).map_err(MigrateError::from);
    let seen = maps.and_then(|maps| kept::begin_anew(tracking, &Pagemap::open(pid)?, &maps));
    remembered.waits = frozen.put_back();
    seen
}

/// Of these in one move, because the process stops for each.
const RENEWALS_MAX: usize = 4;

/// What is known once the body runs.
struct Sent {
    actions: Vec<Action>,
    running_at: Instant,
    mappings: Vec<Mapping>,
    maps: Vec<maps::Mapping>,
    /// Of memory.
    bytes: u64,
}

/// What is copied ahead, and for how many bytes that could come behind there is time in the freeze.
type Going<'a> = (&'a mut Ahead, Option<u64>);

/// Captures and sends the image and sees it running.
fn send(
    frozen: &mut Frozen,
    memory: &Memory,
    (library, (ahead, room), known, files): (
        &Library,
        Going<'_>,
        &[maps::Mapping],
        Option<&mut Files>,
    ),
    (target, (meanwhile, (group, bonds))): (&mut Target<'_>, (&Meanwhile<'_>, (&Group, &Bonds))),
    watch: &mut Stopwatch,
) -> Result<Sent> {
    frozen.settle()?;
    group.reach(Stage::Frozen, &|| meanwhile.goes_on())?;
    let maps = flags::read_maps_again(frozen.pid, known)?;
    check_program(memory, &maps)?;
    refusal::check_frozen(frozen.pid, &maps, frozen.statuses(), (frozen.is_mobile(), bonds))?;
    if let Some(files) = files {
        files.renew(frozen.pid, &maps)?;
        files.check_others(frozen.pid)?;
    }
    if !known.is_empty() && frozen.may_write_unseen()? {
        ahead.doubt_all();
    }
    let (mut image, actions, sight) = sharing::check_meanwhile(frozen.pid, &maps, bonds, || {
        frozen.read_places(memory, &maps)?;
        frozen.enter_agent(memory, &maps)?;
        let (image, actions) = frozen.image(&maps, library)?;
        // After what the threads have told: that alters memory.
        let sight = ahead.copying.see(memory, &image.mappings)?;
        Ok((image, actions, sight))
    })?;
    image.guards = sight.guards()?;
    ahead.copying.leave_to_others(group.brought_by_others(&maps, bonds)?);
    watch.phase("capture");
    let (mappings, guards) = (image.mappings.clone(), image.guards.clone());
    let needed = room.map(|room| (late::needed_at_once(&image, frozen, memory), room));
    let (head, parts) = image.into_parts();
    let (_, writer) = &mut *target.link;
    writer.send(&ToAway::Image(Box::new(head)))?;
    parts.into_iter().try_for_each(|part| writer.send(&ToAway::Threads(part)))?;
    let goes_on = |progress: &Progress| meanwhile.goes_on_at(progress);
    let whole = (&mappings[..], &guards[..]);
    let bytes = match needed {
        Some((must, room)) => ahead.finish_late(memory, whole, sight, (&must, room), target)?,
        None => ahead.finish(memory, whole, sight, target, &goes_on)?,
    };
    target.link.1.send(&ToAway::ImageSent)?;
    watch.phase("send");
    let running_at = have_it_run(frozen, target, (meanwhile, group), watch)?;
    Ok(Sent { actions, running_at, mappings, maps, bytes })
}

/// The target has everything of a frozen process: sees it restored there, and running.
fn have_it_run(
    frozen: &mut Frozen,
    target: &mut Target<'_>,
    (meanwhile, group): (&Meanwhile<'_>, &Group),
    watch: &mut Stopwatch,
) -> Result<Instant> {
    let (reader, writer) = &mut *target.link;
    // The target has still to do with it, and the threads here have told all.
    frozen.halt_others()?;
    match reader.receive_answer(writer)? {
        ToHome::Restored => {}
        ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
        _ => return Err(MigrateError::Protocol("no answer to the image".into())),
    }
    watch.phase("restore");
    group.reach(Stage::Restored, &|| meanwhile.goes_on())?;
    meanwhile.goes_on()?;
    writer.send(&ToAway::Run)?;
    // Should the answer get lost, the body may have run for a moment; but it has no effect on the
    // world except through us, so to go on here is still to go on from where it stood.
    match reader.receive_answer(writer)? {
        ToHome::Running => {}
        _ => return Err(MigrateError::Protocol("no answer to the order to run".into())),
    }
    reader.set_timeout(None)?;
    writer.set_hurried(false)?;
    watch.phase("run");
    // From here on it is away: nothing may fail that would have it go on here.
    group.reach(Stage::Running, &|| Ok(()))?;
    let running_at = Instant::now();
    Ok(running_at)
}

/// A process that has begun another program has other memory than what was opened before.
fn check_program(memory: &Memory, maps: &[maps::Mapping]) -> Result<()> {
    let readable = maps.iter().find(|m| m.is_readable && m.name != b"[vvar]");
    match readable.is_some_and(|m| memory.read_some(m.start, &mut [0]) == 1) {
        true => Ok(()),
        false => {
            let text = "it has begun another program while it was being moved; try again";
            Err(MigrateError::refused("changed", text))
        }
    }
}
