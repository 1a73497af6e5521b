//! From an empty berth to a body that is ready to run. All of this happens in one thread, because
//! the sandbox is a copy of this process.

use crate::daemon::Daemon;
use crate::{filter, tracing_loop};
use kernel::child_signal::ChildSignal;
use kernel::features::Feature;
use kernel::sandbox::{self, Sandbox};
use link::{LinkReader, LinkWriter};
use migrate::backing::{self, Library};
use migrate::outward::Body;
use migrate::{MigrateError, Result, machine};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use wire::forward::{ToAway, ToHome};
use wire::image::{Backing, IMAGE_VERSION, Image, Prospect};
use wire::supervisor::{FromBody, Role, ToBody};

/// Silence for so long while an image is expected means that it will not come.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// What the daemon said to expect.
struct Expected {
    key: [u8; 32],
    cgroups: Vec<PathBuf>,
}

/// A link as its two halves.
pub type Link = (LinkReader, LinkWriter);

/// A body that has not run yet.
pub struct Arrived {
    pub body: Body,
    pub listener: kernel::seccomp::Listener,
    pub library: Library,
    pub prospect: Prospect,
    pub signals: ChildSignal,
    /// The guest's monotonic clock minus ours, nanoseconds.
    pub clock_offset_ns: i64,
}

/// The life of an away supervisor.
pub fn run(control: OwnedFd) -> Result<()> {
    let daemon = Daemon::new(control);
    let expected = expect(&daemon)?;
    let mut home = accept(&daemon, &expected, Role::Deputy)?;
    home.0.set_timeout(Some(ARRIVAL_TIMEOUT))?;
    let outcome = arrive(&daemon, &expected, &mut home);
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
    let reason = tracing_loop::run(&daemon, home, arrived);
    daemon.send(&FromBody::Gone { reason });
    Ok(())
}

fn expect(daemon: &Daemon) -> Result<Expected> {
    match daemon.receive()? {
        (ToBody::Expect { key, guest_cgroup, .. }, _) => {
            let procs = |directory: String| PathBuf::from(directory).join("cgroup.procs");
            Ok(Expected { key, cgroups: guest_cgroup.into_iter().map(procs).collect() })
        }
        _ => Err(MigrateError::Protocol("the daemon did not say what to expect".into())),
    }
}

/// Waits for the connection of this role that the daemon passes on.
fn accept(daemon: &Daemon, expected: &Expected, wanted: Role) -> Result<Link> {
    match daemon.receive()? {
        (ToBody::Connection { role }, Some(stream)) if role == wanted => {
            Ok(link::accept(stream, &expected.key)?)
        }
        (ToBody::SendHome, _) => Err(MigrateError::refused("drained", "the node takes no guests")),
        (other, _) => Err(MigrateError::Protocol(format!("expected a connection, not {other:?}"))),
    }
}

fn arrive(daemon: &Daemon, expected: &Expected, home: &mut Link) -> Result<Arrived> {
    let first = home.0.receive()?;
    if !matches!(first, ToAway::AwaitImage) {
        let arrived = receive(expected, home, first)?;
        return await_run(home, arrived);
    }
    await_source(daemon, home)?;
    let mut source = accept(daemon, expected, Role::Image)?;
    source.0.set_timeout(Some(ARRIVAL_TIMEOUT))?;
    let first = source.0.receive()?;
    let outcome = receive(expected, &mut source, first);
    match outcome {
        Ok(arrived) => {
            home.1.send(&ToHome::Restored)?;
            await_run(home, arrived)
        }
        Err(error) => {
            let _ = source.1.send(&ToHome::Refused(error.reason()));
            Err(error)
        }
    }
}

/// Waits until the node that the body comes from has called, or home is not interested any more:
/// it has nothing to say before.
fn await_source(daemon: &Daemon, home: &Link) -> Result<()> {
    let mut watched = [
        PollFd::new(daemon.as_fd(), PollFlags::POLLIN),
        PollFd::new(home.0.as_fd(), PollFlags::POLLIN),
    ];
    let patience = PollTimeout::try_from(ARRIVAL_TIMEOUT).unwrap_or(PollTimeout::MAX);
    poll(&mut watched, patience).map_err(|errno| kernel::KernelError {
        what: "wait for the body's last node".into(),
        source: errno.into(),
    })?;
    let has_news = |at: usize| watched[at].any().unwrap_or(true);
    match (has_news(0), has_news(1)) {
        (_, true) => Err(MigrateError::refused("called-off", "home called the move off")),
        (true, false) => Ok(()),
        (false, false) => {
            let text = "the node that the body comes from does not call";
            Err(MigrateError::refused("no-source", text))
        }
    }
}

/// The dialogue with whoever sends the image: home, or the node that the body moves on from.
fn receive(expected: &Expected, link: &mut Link, first: ToAway) -> Result<Arrived> {
    let (prospect, library) = prepare(link, first)?;
    let shared = memfd_create(c"osmos", MFdFlags::MFD_CLOEXEC).map_err(|errno| {
        kernel::KernelError { what: "make shared memory".into(), source: errno.into() }
    })?;
    let clock_offset_ns = clock_offset_ns(&prospect)?;
    let sandbox = make_sandbox(expected, &prospect)?;
    let signals = ChildSignal::new()?;
    link.1.send(&ToHome::Stored)?;
    let image = receive_image(&mut link.0, &prospect)?;
    let mut body = Body::lay_out(sandbox, shared, image, &library)?;
    loop {
        match link.0.receive()? {
            ToAway::Pages(pages) => body.write(&pages)?,
            ToAway::ImageSent => break,
            other => return Err(unexpected("memory contents", &other)),
        }
    }
    let listener = body.finish(&filter::rules())?;
    link.1.send(&ToHome::Restored)?;
    Ok(Arrived { body, listener, library, prospect, signals, clock_offset_ns })
}

/// Checks the prospect and gets hold of every file that it maps.
fn prepare(link: &mut Link, first: ToAway) -> Result<(Prospect, Library)> {
    let mut message = first;
    let here = machine::probe()?;
    let (mut prospect, is_same_boot) = loop {
        let ToAway::Prospect(prospect) = message else {
            return Err(unexpected("a prospect", &message));
        };
        check_prospect(&prospect)?;
        if let Some(reason) = machine::mismatch(&prospect.machine, &here) {
            return Err(MigrateError::Refused(reason));
        }
        let is_same_boot = prospect.machine.boot_id == here.boot_id;
        let has_hashes = prospect.backings.iter().all(|b| b.hash != [0; 32]);
        if is_same_boot || has_hashes {
            break (prospect, is_same_boot);
        }
        link.1.send(&ToHome::WantsHashes)?;
        message = link.0.receive()?;
    };
    let backings = std::mem::take(&mut prospect.backings);
    let library = collect_files(link, backings, is_same_boot)?;
    Ok((*prospect, library))
}

fn check_prospect(prospect: &Prospect) -> Result<()> {
    if prospect.version != IMAGE_VERSION {
        let text = format!(
            "image version {} is not {IMAGE_VERSION}: the nodes run different versions of osmos",
            prospect.version
        );
        return Err(MigrateError::refused("version", text));
    }
    if prospect.pid.0 <= 1 {
        return Err(MigrateError::Protocol(format!("a guest with pid {}", prospect.pid)));
    }
    Ok(())
}

fn collect_files(link: &mut Link, backings: Vec<Backing>, is_same_boot: bool) -> Result<Library> {
    let mut found: Vec<Option<File>> =
        backings.iter().map(|b| backing::find_here(b, is_same_boot)).collect();
    let missing: Vec<u32> =
        (0..found.len() as u32).filter(|index| found[*index as usize].is_none()).collect();
    for index in &missing {
        found[*index as usize] = Some(backing::stand_in(&backings[*index as usize])?);
    }
    link.1.send(&ToHome::Welcome { missing: missing.clone() })?;
    loop {
        match link.0.receive()? {
            ToAway::BackingPart { backing: index, offset, content } if missing.contains(&index) => {
                let position = index as usize;
                if let Some(file) = &found[position] {
                    backing::fill(file, &backings[position], offset, &content)?;
                }
            }
            ToAway::BackingsSent => break,
            other => return Err(unexpected("a part of a mapped file", &other)),
        }
    }
    let mut library = Library::default();
    for (backing, file) in backings.into_iter().zip(found) {
        if let Some(file) = file {
            library.add(backing, file)?;
        }
    }
    Ok(library)
}

/// Between boots clocks differ; within one they are the same clock.
fn clock_offset_ns(prospect: &Prospect) -> Result<i64> {
    if machine::probe()?.boot_id == prospect.machine.boot_id {
        return Ok(0);
    }
    Ok(prospect.clocks_ns.0 - kernel::features::clocks_ns().0)
}

fn make_sandbox(expected: &Expected, prospect: &Prospect) -> Result<Sandbox> {
    let here = kernel::features::clocks_ns();
    let is_same_boot = machine::probe()?.boot_id == prospect.machine.boot_id;
    let (monotonic, boot) = prospect.clocks_ns;
    if !is_same_boot && !kernel::features::settled().has(Feature::TimeNamespaces) {
        let text = format!(
            "the node cannot continue the clocks of another machine: its kernel has no time \
             namespaces ({})",
            Feature::TimeNamespaces.since()
        );
        return Err(MigrateError::refused("no-time-namespaces", text));
    }
    let offset = (monotonic - here.0, boot - here.1);
    let spec = sandbox::Spec {
        pid: prospect.pid.0,
        // Only the sandbox's init has entries there, and they vanish with it: always empty enough,
        // and nothing to clean up.
        root: c"/proc/self/fdinfo".to_owned(),
        clock_offset_ns: (!is_same_boot).then_some(offset),
        cgroups: expected.cgroups.clone(),
    };
    Ok(sandbox::create(&spec)?)
}

fn receive_image(reader: &mut LinkReader, prospect: &Prospect) -> Result<Image> {
    match reader.receive()? {
        ToAway::Image(image) if image.pid == prospect.pid => Ok(*image),
        ToAway::Image(image) => {
            let text = format!("the image of {} came for {}", image.pid, prospect.pid);
            Err(MigrateError::Protocol(text))
        }
        ToAway::Release => Err(MigrateError::refused("called-off", "home called the move off")),
        other => Err(unexpected("an image", &other)),
    }
}

fn await_run(home: &mut Link, arrived: Arrived) -> Result<Arrived> {
    match home.0.receive()? {
        ToAway::Run => Ok(arrived),
        ToAway::Release => Err(MigrateError::refused("called-off", "home called the move off")),
        other => Err(unexpected("the order to run", &other)),
    }
}

fn unexpected(wanted: &str, got: &ToAway) -> MigrateError {
    let got = format!("{got:?}");
    let head: String = got.chars().take(40).collect();
    MigrateError::Protocol(format!("expected {wanted}, got {head}"))
}
