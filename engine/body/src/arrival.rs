//! From an empty berth to a body that is ready to run. All of this happens in one thread, because
//! the sandbox is a copy of this process.

use crate::abroad::Abroad;
use crate::company::Company;
use crate::daemon::Daemon;
use crate::door::Door;
use crate::files::{self, Files};
use crate::filter::{self, Kept};
use crate::late::Late;
use crate::life;
use crate::preparing::{Prepared, prepare, prospect};
use crate::watch::Watch;
use attachment::Attachment;
use kernel::child_signal::ChildSignal;
use kernel::features::Feature;
use kernel::memory::Memory;
use kernel::proc::pagemap::Run;
use kernel::sandbox::{Blank, Sandbox};
use link::{LinkReader, LinkWriter};
use migrate::backing::Library;
use migrate::held::{Held, within};
use migrate::imprint::Imprints;
use migrate::inflow::Inflow;
use migrate::intake::Intake;
use migrate::kept::Origin;
use migrate::outward::Body;
use migrate::registers::Translator;
use migrate::shell::Shell;
use migrate::{MigrateError, Result, machine, time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::clocks::Offset;
use wire::forward::{ToAway, ToHome};
use wire::image::{Draft, Image, Prospect};
use wire::limits::HELD_MAX;
use wire::supervisor::{FromBody, Role, ToBody};

/// Silence for so long while an image is expected means that it will not come.
pub(crate) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// A link as its two halves.
pub type Link = (LinkReader, LinkWriter);

/// A body that has not run yet.
pub struct Arrived {
    pub body: Body,
    pub listener: kernel::seccomp::Listener,
    pub library: Library,
    pub prospect: Prospect,
    pub signals: ChildSignal,
    /// Where its home is another machine.
    pub abroad: Option<Abroad>,
    pub watch: Watch,
    pub files: Files,
    /// If home keeps its memory, and it is known what was written to since.
    pub origin: Option<Origin>,
    /// What comes behind the body, and over which link.
    pub late: Option<(Late, Link)>,
}

/// A sandbox that was begun before anybody was expected, in the cgroups of these directories: to
/// enter one takes ten milliseconds, in which a whole small process could have come.
pub struct Ready {
    place: Vec<String>,
    blank: kernel::Result<Blank>,
}

impl Ready {
    pub fn make(place: Vec<String>, entrance: Option<OwnedFd>) -> Ready {
        let blank = blank(&place, entrance);
        Ready { place, blank }
    }

    /// What is ready, if that is for the same place; else the same is done now.
    fn take(
        ready: Option<Ready>,
        place: &[String],
        entrance: Option<OwnedFd>,
    ) -> kernel::Result<Blank> {
        match ready {
            Some(Ready { place: known, blank: Ok(blank) }) if known == place => Ok(blank),
            _ => blank(place, entrance),
        }
    }
}

/// The life of an away supervisor.
pub fn run(attached: Attachment, ready: Option<Ready>) -> Result<()> {
    let daemon = Daemon::new(attached);
    let outcome = serve(&daemon, ready);
    // There is no body any more, whoever has still to be told.
    daemon.deliver();
    outcome
}

fn serve(daemon: &Daemon, ready: Option<Ready>) -> Result<()> {
    let (mut door, blank) = expect(daemon, ready)?;
    let mut home = door.accept(Role::Deputy)?;
    home.0.set_timeout(Some(ARRIVAL_TIMEOUT))?;
    // Ended last, when homes have been told why.
    let mut company = None;
    let outcome = arrive(&mut door, blank, (&mut home, &mut company));
    let arrived = match outcome {
        Ok(arrived) => arrived,
        Err(error) => {
            let reason = error.reason();
            // Home may know already; then there is nobody to tell.
            let _ = home.1.send(&ToHome::Refused(reason.clone()));
            daemon.send(&FromBody::Gone { reason });
            return Err(error);
        }
    };
    home.0.set_timeout(None)?;
    life::run(daemon, home, arrived, company);
    Ok(())
}

/// Begins a sandbox for the process that the daemon says to expect. That is on the way already, and
/// has to be told if this fails.
fn expect(daemon: &Daemon, ready: Option<Ready>) -> Result<(Door<'_>, kernel::Result<Blank>)> {
    let (mut word, mut attached) = daemon.receive()?;
    let mut device = None;
    if matches!(word, ToBody::Faults) {
        device = attached;
        (word, attached) = daemon.receive()?;
    }
    let (ToBody::Expect { key, guest_cgroup, .. }, entrance) = (word, attached) else {
        return Err(MigrateError::Protocol("the daemon did not say what to expect".into()));
    };
    let blank = Ready::take(ready, &guest_cgroup, entrance);
    Ok((Door::of(daemon, key, device), blank))
}

/// Begins a sandbox that is to be in the cgroups of these directories.
fn blank(place: &[String], entrance: Option<OwnedFd>) -> kernel::Result<Blank> {
    let mut cgroups: Vec<PathBuf> = place.iter().map(PathBuf::from).collect();
    // A body that is being built works for us, and a process stands still meanwhile. Where
    // processor time has a hierarchy of its own, the daemon puts the body there later.
    cgroups.retain(|directory| !directory.join("cpu.cfs_quota_us").exists());
    cgroups.iter_mut().for_each(|directory| directory.push("cgroup.procs"));
    // Only the sandbox's init has entries there, and they vanish with it: always empty enough, and
    // nothing to clean up.
    let root = c"/proc/self/fdinfo".to_owned();
    Blank::create(root, &cgroups, entrance)
}

fn arrive(
    door: &mut Door<'_>,
    blank: kernel::Result<Blank>,
    (home, company): (&mut Link, &mut Option<Company>),
) -> Result<Arrived> {
    let first = home.0.receive()?;
    let ToAway::AwaitImage { boot_id } = first else {
        let imprints = door.imprints(true);
        let arrived = receive((blank, imprints), (home, door, company), first, None)?;
        return await_run(home, arrived);
    };
    // Home tells the time, and no other: what two measurements are off by would add up.
    let offset = time::ask_home(home)?;
    let offset = if machine::is_this_boot(&boot_id)? { None } else { Some(offset) };
    door.await_call(home)?;
    let mut source = door.accept(Role::Image)?;
    source.0.set_timeout(Some(ARRIVAL_TIMEOUT))?;
    let first = source.0.receive()?;
    let imprints = door.imprints(false);
    let outcome = receive((blank, imprints), (&mut source, door, company), first, Some(offset));
    match outcome {
        Ok(arrived) => {
            home.1.send(&ToHome::Restored)?;
            let outcome = await_word(home, &mut source).and_then(|()| await_run(home, arrived));
            if let Err(error) = &outcome {
                // That the body can go on there. If nobody hears it, home decides.
                let _ = source.1.send(&ToHome::Refused(error.reason()));
            }
            outcome
        }
        Err(error) => {
            let _ = source.1.send(&ToHome::Refused(error.reason()));
            Err(error)
        }
    }
}

/// Waits until home has something to say, unless the node that the body comes from calls it back:
/// what it hears first decides, so that the body lives in one of the two places.
fn await_word(home: &Link, source: &mut Link) -> Result<()> {
    let deadline = Instant::now() + ARRIVAL_TIMEOUT;
    let mut hears_source = true;
    source.0.set_timeout(Some(link::STANDSTILL_MAX))?;
    loop {
        let mut watched = [
            PollFd::new(home.0.as_fd(), PollFlags::POLLIN),
            PollFd::new(source.0.as_fd(), PollFlags::POLLIN),
        ];
        let count = if hears_source { 2 } else { 1 };
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched[..count], patience) {
            Ok(0) => return Err(MigrateError::refused("no-home", "home does not say to run it")),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                let what = "wait for the word of home".into();
                return Err(kernel::KernelError { what, source: errno.into() }.into());
            }
        }
        let has_news = |at: usize| watched[at].any().unwrap_or(true);
        if has_news(0) {
            return Ok(());
        }
        if hears_source && has_news(1) {
            if let Ok(ToAway::Release) = source.0.receive() {
                return Err(MigrateError::refused("called-back", "its last node called it back"));
            }
            hears_source = false;
        }
    }
}

/// The dialogue with whoever sends the image: home, or the node that the body moves on from. `told`
/// is how far home's clocks are ahead of ours, if home has told already.
fn receive(
    (blank, imprints): (kernel::Result<Blank>, Imprints),
    (link, door, company): (&mut Link, &mut Door<'_>, &mut Option<Company>),
    first: ToAway,
    told: Option<Option<Offset>>,
) -> Result<Arrived> {
    let is_from_home = told.is_none();
    let mut prospect = prospect(first)?;
    let offset = match told {
        Some(offset) => offset,
        None if machine::is_this_boot(&prospect.home.boot_id)? => None,
        None => Some(time::ask_home(link)?),
    };
    let signals = ChildSignal::new()?;
    if let Some(group) = prospect.group.take() {
        // They may call as soon as this one is welcome.
        *company = Some(Company::expect(door.daemon(), &group, (offset, &signals))?);
    }
    let mut prepared = prepare(link, prospect, (offset, !imprints.is_empty()))?;
    if let Some(company) = company {
        // They wait for each other before they stop, in which nothing is said.
        link.0.set_timeout(Some(link::LOSS_TIMEOUT))?;
        company.gather(prepared.prospect.pid)?;
        prepared.library.share(company.commons.clone());
    }
    let sandbox = fill_sandbox(blank?, &prepared, company.as_mut())?;
    take_in((sandbox, signals), prepared, (link, door), imprints, is_from_home)
}

/// The dialogue from when there is a sandbox to when the body is there.
pub(crate) fn take_in(
    (sandbox, signals): (Sandbox, ChildSignal),
    prepared: Prepared,
    (link, door): (&mut Link, &mut Door<'_>),
    mut imprints: Imprints,
    is_from_home: bool,
) -> Result<Arrived> {
    let Prepared { prospect, mut library, offset, shared, stub } = prepared;
    let stub = stub.zip(offset);
    link.1.send(&ToHome::Stored)?;
    let draft = receive_draft(&mut link.0)?;
    files::check(&draft.mappings)?;
    let of_home = stub.as_ref().map(|(stub, _)| (stub, &prospect.home));
    let mut shell = Shell::lay_out(sandbox, shared, draft, &mut library, of_home)?;
    shell.serve_faults_by(door.device.take());
    link.1.send(&ToHome::Drafted)?;
    let intake = Intake::promised(prospect.memory_bytes);
    let mut inflow = Inflow::new(Memory::open(shell.pid())?, intake);
    inflow.begin_epoch(shell.mappings());
    let is_kept = prospect.is_kept;
    let known = (&prospect, &mut library, is_kept);
    let mut late_link = None;
    let doors = (&mut *link, door, &mut late_link);
    let mut image = receive_ahead(doors, &mut shell, (&mut inflow, &mut imprints), known)?;
    inflow.hurry();
    drop(imprints);
    receive_threads(&mut link.0, &mut image)?;
    inflow.shut()?;
    let before = shell.mappings().to_vec();
    shell.settle(&image, &mut library)?;
    inflow.take_in(|intake| {
        intake.remap(&before, shell.mappings());
        Ok(())
    })?;
    inflow.begin_epoch(shell.mappings());
    let same = receive_memory(link, &shell, &inflow)?;
    inflow.finish()?;
    let origin = if is_from_home { Origin::Home } else { Origin::Node(same) };
    let fresh = inflow.take_in(|intake| Ok(intake.take_fresh()))?;
    let mut body = shell.complete(image, is_kept, &fresh)?;
    let own = migrate::processor::own();
    body.registers = Translator::between(&prospect.processor.kept_at_home, &own.registers);
    let own_vdso = body.elsewhere.as_ref().map(|elsewhere| &elsewhere.own_vdso);
    let origin = Some(origin).filter(|_| is_kept && body.tracking.is_some());
    let late = inflow.take_in(|intake| Ok(intake.late().clone()))?;
    let late = begin_late(&body, late, late_link, origin.is_some())?;
    let watch = Watch::of(&body, origin.is_some());
    let files = Files::of(&body)?;
    let watched = match files.is_any() || !prospect.lasting.is_empty() {
        true => &filter::MAPPING_CALLS[..],
        false => watch.calls(),
    };
    let rules = filter::rules(&Kept::new(body.kept()), own_vdso, (watched, late.is_some()));
    let listener = body.finish(&rules)?;
    link.1.send(&ToHome::Restored)?;
    let elsewhere = body.elsewhere.clone();
    let abroad = stub.zip(elsewhere).map(|((stub, offset), it)| Abroad::new(stub, it, offset));
    Ok(Arrived { body, listener, library, prospect, signals, abroad, watch, files, origin, late })
}

/// The last of the memory contents; returns where the body has the same as its home.
fn receive_memory(link: &mut Link, shell: &Shell, inflow: &Inflow) -> Result<Held> {
    let (mut same, mut count) = (Held::default(), 0);
    loop {
        match link.0.receive()? {
            ToAway::Pages(pages) => inflow.take_in(|intake| shell.write(&pages, intake))?,
            ToAway::Discard(spans) => inflow.take_in(|intake| shell.discard(&spans, intake))?,
            ToAway::Streamed { parts } => inflow.await_parts(parts)?,
            ToAway::Late(spans) => inflow.take_in(|intake| shell.set_aside(&spans, intake))?,
            ToAway::LateBytes(bytes) => inflow.take_in(|intake| agree(intake, bytes))?,
            ToAway::Unchanged(spans) if count + spans.len() <= HELD_MAX => {
                count += spans.len();
                let runs = spans.iter().map(|(start, end)| Run { start: start.0, end: end.0 });
                runs.for_each(|run| same.add(run));
            }
            ToAway::ImageSent => return Ok(same),
            other => return Err(unexpected("memory contents", &other)),
        }
    }
}

/// That both sides mean the same memory by what comes behind the process.
fn agree(intake: &mut Intake, bytes: u64) -> Result<()> {
    match intake.late().bytes() {
        here if here == bytes => Ok(()),
        here => Err(MigrateError::Protocol(format!("{bytes} bytes come late, here it is {here}"))),
    }
}

/// Memory is served in such pieces, or whole mappings: each end makes two mappings of one.
const PLACE_BYTES: u64 = 2 << 20;

/// Has touches of memory that comes behind the body be waited for from here on. Of each mapping
/// that is all from the first page of such to the last: to take out what lies between would make
/// one mapping many.
fn begin_late(
    body: &Body,
    absent: Held,
    link: Option<Link>,
    is_kept: bool,
) -> Result<Option<(Late, Link)>> {
    let Some(link) = link.filter(|_| absent.bytes() > 0) else {
        return match absent.bytes() {
            0 => Ok(None),
            _ => Err(MigrateError::Protocol("late memory without a link for it".into())),
        };
    };
    // What home does not keep it could not give away.
    let tracking = body.tracking.as_ref().filter(|it| is_kept && it.begins_with_walks());
    let Some(tracking) = tracking else {
        let text = "the node cannot have pages come behind a process";
        return Err(MigrateError::refused("no-late-pages", text));
    };
    let mut places = Vec::new();
    for mapping in &body.image().mappings {
        let whole = Run { start: mapping.start.0, end: mapping.end.0 };
        let runs = within(&[whole], &absent);
        places.extend(runs.first().zip(runs.last()).map(|(first, last)| {
            let start = (first.start / PLACE_BYTES * PLACE_BYTES).max(whole.start);
            start..last.end.next_multiple_of(PLACE_BYTES).min(whole.end)
        }));
    }
    Ok(Some((Late::begin(tracking, absent, &places)?, link)))
}

/// With a body for each companion.
fn fill_sandbox(
    blank: Blank,
    Prepared { prospect, offset, .. }: &Prepared,
    company: Option<&mut Company>,
) -> Result<Sandbox> {
    let has_time_namespaces = kernel::features::settled().has(Feature::TimeNamespaces);
    if offset.is_some() && !has_time_namespaces {
        let text = format!(
            "the node cannot continue the clocks of another machine: its kernel has no time \
             namespaces ({})",
            Feature::TimeNamespaces.since()
        );
        return Err(MigrateError::refused("no-time-namespaces", text));
    }
    let ahead = offset.map(|offset| (offset.ahead.monotonic_ns, offset.ahead.boot_ns));
    let companions = company.as_ref().map_or(vec![], |company| company.pids());
    let (mut sandbox, bodies) = blank.start(prospect.pid.0, &companions, ahead)?;
    if let Some(company) = company {
        company.init = sandbox.init.take();
        company.begin(&bodies);
    }
    Ok(sandbox)
}

fn receive_draft(reader: &mut LinkReader) -> Result<Draft> {
    match reader.receive()? {
        ToAway::Draft(draft) => Ok(*draft),
        ToAway::Release => Err(MigrateError::refused("called-off", "home called the move off")),
        other => Err(unexpected("a draft", &other)),
    }
}

/// What comes while the process runs still, up to the image, of which threads may be missing.
fn receive_ahead(
    (link, door, late_link): (&mut Link, &mut Door<'_>, &mut Option<Link>),
    shell: &mut Shell,
    (inflow, imprints): (&mut Inflow, &mut Imprints),
    (prospect, library, is_kept): (&Prospect, &mut Library, bool),
) -> Result<Image> {
    loop {
        match link.0.receive()? {
            ToAway::Draft(draft) => {
                inflow.shut()?;
                let before = shell.mappings().to_vec();
                shell.redraft(*draft, library)?;
                inflow.take_in(|intake| {
                    intake.remap(&before, shell.mappings());
                    Ok(())
                })?;
                if is_kept {
                    // All of it, whatever has come last.
                    inflow.take_in(|intake| Ok(intake.take_fresh()))?;
                    shell.begin_kept()?;
                }
                // Last: what is asked for next may be asked of a process that stands still.
                link.1.send(&ToHome::Drafted)?;
                inflow.begin_epoch(shell.mappings());
            }
            ToAway::Streams { count } => door.let_in(count, link, inflow)?,
            ToAway::LateLink if late_link.is_none() => {
                *late_link = Some(door.accept(Role::Late)?);
            }
            ToAway::Late(spans) => inflow.take_in(|intake| shell.set_aside(&spans, intake))?,
            ToAway::Streamed { parts } => inflow.await_parts(parts)?,
            ToAway::Pages(pages) => inflow.take_in(|intake| shell.write(&pages, intake))?,
            ToAway::Discard(spans) => inflow.take_in(|intake| shell.discard(&spans, intake))?,
            ToAway::Hashes(hashes) => {
                let lacking = inflow.take_in(|intake| shell.recall(&hashes, imprints, intake))?;
                link.1.send(&ToHome::Lacks(lacking))?;
            }
            ToAway::Image(image) if image.pid == prospect.pid => return Ok(*image),
            ToAway::Image(image) => {
                let text = format!("the image of {} came for {}", image.pid, prospect.pid);
                return Err(MigrateError::Protocol(text));
            }
            ToAway::Release => {
                return Err(MigrateError::refused("called-off", "home called the move off"));
            }
            other => return Err(unexpected("an image", &other)),
        }
    }
}

fn receive_threads(reader: &mut LinkReader, image: &mut Image) -> Result<()> {
    while image.is_incomplete() {
        match reader.receive()? {
            ToAway::Threads(threads) => image.add_threads(threads)?,
            other => return Err(unexpected("threads", &other)),
        }
    }
    Ok(())
}

pub(crate) fn await_run(home: &mut Link, arrived: Arrived) -> Result<Arrived> {
    match home.0.receive()? {
        ToAway::Run => Ok(arrived),
        ToAway::Release => Err(MigrateError::refused("called-off", "home called the move off")),
        other => Err(unexpected("the order to run", &other)),
    }
}

pub(crate) fn unexpected(wanted: &str, got: &ToAway) -> MigrateError {
    MigrateError::Protocol(format!("expected {wanted}, got {}", migrate::head_of(got)))
}
