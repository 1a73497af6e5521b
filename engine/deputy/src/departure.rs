//! Leaving home: from a plain process to a deputy whose body runs elsewhere.

use crate::announcing::{draft, prospect};
use crate::departed::{DepartedThread, Remembered, Waiting};
use crate::frozen::Frozen;
use crate::keeping::{self, Keeping};
use crate::own_memory::Reading;
use kernel::agent::Agent;
use kernel::child_signal::ChildSignal;
use kernel::features::{self, Feature};
use kernel::memory::Memory;
use kernel::proc::{flags, maps};
use kernel::quota::Relief;
use kernel::signal::Action;
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use migrate::ahead::{self, Ahead};
use migrate::backing::Library;
use migrate::copying::Copying;
use migrate::injection::Borrowed;
use migrate::offer::Offerer;
use migrate::{MigrateError, Result, freeze, layout, processor_ids, refusal};
use std::ops::Range;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::image::{Draft, Mapping, Prospect};
use wire::supervisor::{Berth, MoveReport, Role};

/// A process that has just left home.
pub struct Away {
    pub pid: i32,
    pub berth: Berth,
    pub link: (LinkReader, LinkWriter),
    pub agent: Agent,
    pub memory: Memory,
    pub library: Library,
    pub borrowed: Borrowed,
    pub threads: Vec<DepartedThread>,
    pub actions: Vec<Action>,
    pub prospect: Prospect,
    pub report: MoveReport,
    /// Processor time of earlier stays away.
    pub away_ns: u64,
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
}

/// Phases in order of life, for the report.
struct Stopwatch {
    started: Instant,
    last: Instant,
    phases_us: Vec<(String, u64)>,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        let now = Instant::now();
        Stopwatch { started: now, last: now, phases_us: Vec::new() }
    }

    fn phase(&mut self, name: &str) {
        let now = Instant::now();
        self.phases_us.push((name.into(), (now - self.last).as_micros() as u64));
        self.last = now;
    }
}

/// Moves the process `pid` to the berth.
///
/// # Errors
/// The process is at home and runs on as if nothing had been; unless it is `Ended`, or `Lost`
/// because it runs elsewhere and its deputy could not be made to serve it.
pub fn leave(
    pid: i32,
    berth: &Berth,
    remembered: &mut Remembered,
    signals: &ChildSignal,
) -> Result<Away> {
    let mut watch = Stopwatch::start();
    let maps = flags::read_maps(pid)?;
    refusal::check(pid, &maps)?;
    let library = Library::of_process(pid, &maps)?;
    let asks_processor = processor_ids::is_asked_by(&library);
    watch.phase("inspect");
    let mut link = link::connect(berth, Role::Deputy)?;
    watch.phase("connect");
    let mut prospect = prospect(pid, &library, remembered.baseline.as_ref())?;
    let is_tracked = prospect.memory_bytes >= ahead::BYTES_MIN
        && features::settled().has(Feature::WriteTracking);
    prospect.is_kept = prospect.memory_bytes >= ahead::BYTES_MIN && keeping::has_room(pid);
    let (draft, agent_place) = announce(pid, &mut link, &prospect, &library, &mut watch)?;
    // A move that hangs is given up soon, also while the process runs: it can be tried again.
    link.1.set_hurried(true)?;
    let (memory, place) = (Memory::open(pid)?, (asks_processor, agent_place));
    let mut ahead = Ahead::new(draft, Copying::of(pid, None)?);
    ahead.open_streams(berth, &mut link.1, prospect.memory_bytes)?;
    let mut known = vec![];
    if is_tracked {
        let tracking = track(pid, &memory, remembered, signals, place.clone())?;
        watch.phase("track");
        known = copy_ahead(pid, tracking, (&memory, &library), &mut link, &mut ahead, &mut watch)?;
    }
    let frozen_at = Instant::now();
    let (mut frozen, waiting) = Frozen::freeze(pid, remembered, signals, place)?;
    watch.phase("freeze");
    match send(
        &mut frozen,
        &memory,
        (&library, &mut ahead, &known),
        &waiting,
        &mut link,
        &mut watch,
    ) {
        Ok(Sent { actions, running_at, mappings, maps, bytes_sent }) => {
            // Both take time, for which nobody has to wait.
            let reading = std::thread::spawn(move || {
                drop(ahead);
                flags::read_maps(pid)
            });
            let kept = frozen.keep_memory(prospect.is_kept, &mappings);
            let keeping = kept.map_err(MigrateError::lost)?;
            let freeze_us = (running_at - frozen_at).as_micros() as u64;
            let is_held = frozen.settle_away(&memory).map_err(MigrateError::lost)?;
            watch.phase("settle");
            let report = MoveReport {
                freeze_us,
                total_us: watch.started.elapsed().as_micros() as u64,
                phases_us: watch.phases_us,
                bytes_sent,
            };
            let left = Left { keeping, maps, reading };
            let parts = (link, memory, library, actions, prospect, report, left);
            frozen.into_away(berth.clone(), parts, is_held).map_err(MigrateError::lost)
        }
        Err(error) => {
            remembered.waits = frozen.put_back(waiting);
            let error = why_it_broke(&mut link.0, error);
            link.1.close();
            Err(error)
        }
    }
}

/// Makes sure that the target takes it, and has it prepare; returns the draft, where the agent is
/// to lie, and for how many threads.
fn announce(
    pid: i32,
    link: &mut (LinkReader, LinkWriter),
    prospect: &Prospect,
    library: &Library,
    watch: &mut Stopwatch,
) -> Result<(Draft, (Range<u64>, usize))> {
    migrate::offer::offer(link, Offerer::Home, prospect.clone(), library)?;
    watch.phase("offer");
    let (draft, place, slots) = draft(pid, library)?;
    migrate::offer::draft(link, draft.clone())?;
    watch.phase("draft");
    Ok((draft, (place, slots)))
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

/// Sends memory while the process runs; returns its mappings, with their flags.
fn copy_ahead(
    pid: i32,
    tracking: Option<Tracking>,
    (memory, library): (&Memory, &Library),
    link: &mut (LinkReader, LinkWriter),
    ahead: &mut Ahead,
    watch: &mut Stopwatch,
) -> Result<Vec<maps::Mapping>> {
    if let Some(tracking) = tracking {
        ahead.track(pid, tracking)?;
        let mappings = || layout::of_guest(&flags::read_maps(pid)?, &[], library);
        ahead.copy(memory, link, &mappings, &|| Ok(()))?;
        watch.phase("copy");
    }
    // Read once more when it is away: what changes from here on is found then.
    let known = flags::read_maps(pid)?;
    watch.phase("look");
    Ok(known)
}

/// Stops the process for a moment, to have its writes told.
fn track(
    pid: i32,
    memory: &Memory,
    remembered: &mut Remembered,
    signals: &ChildSignal,
    place: (bool, (Range<u64>, usize)),
) -> Result<Option<Tracking>> {
    let (mut frozen, waiting) = Frozen::freeze(pid, remembered, signals, place)?;
    let tracking = frozen.track(memory, &waiting);
    remembered.waits = frozen.put_back(waiting);
    tracking
}

/// What is known once the body runs.
struct Sent {
    actions: Vec<Action>,
    running_at: Instant,
    mappings: Vec<Mapping>,
    maps: Vec<maps::Mapping>,
    bytes_sent: u64,
}

/// Captures and sends the image and sees it running.
fn send(
    frozen: &mut Frozen,
    memory: &Memory,
    (library, ahead, known): (&Library, &mut Ahead, &[maps::Mapping]),
    waiting: &Waiting,
    (reader, writer): &mut (LinkReader, LinkWriter),
    watch: &mut Stopwatch,
) -> Result<Sent> {
    let maps = flags::read_maps_again(frozen.pid, known)?;
    check_program(memory, &maps)?;
    refusal::check_frozen(frozen.pid, &maps)?;
    freeze::hold(&frozen.tids)?;
    frozen.read_threads(memory, &maps, waiting)?;
    frozen.enter_agent(memory, &maps)?;
    let (image, actions) = frozen.image(&maps, library)?;
    watch.phase("capture");
    let (mappings, guards) = (image.mappings.clone(), image.guards.clone());
    let (head, parts) = image.into_parts();
    writer.send(&ToAway::Image(Box::new(head)))?;
    parts.into_iter().try_for_each(|part| writer.send(&ToAway::Threads(part)))?;
    ahead.finish(memory, (&mappings, &guards), writer)?;
    writer.send(&ToAway::ImageSent)?;
    watch.phase("send");
    match reader.receive_answer(writer)? {
        ToHome::Restored => {}
        ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
        _ => return Err(MigrateError::Protocol("no answer to the image".into())),
    }
    watch.phase("restore");
    writer.send(&ToAway::Run)?;
    // Should the answer get lost, the body may have run for a moment; but it has no effect on the
    // world except through us, so to go on here is still to go on from where it stood.
    match reader.receive_answer(writer)? {
        ToHome::Running => {}
        _ => return Err(MigrateError::Protocol("no answer to the order to run".into())),
    }
    let running_at = Instant::now();
    reader.set_timeout(None)?;
    writer.set_hurried(false)?;
    watch.phase("run");
    let bytes_sent = writer.bytes_sent() + ahead.bytes_streamed();
    Ok(Sent { actions, running_at, mappings, maps, bytes_sent })
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
