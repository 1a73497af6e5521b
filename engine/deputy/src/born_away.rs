//! A process that was made by one that is away: how it gets a supervisor of its own ([decision
//! 0031](../../../docs/decisions/)).
//!
//! It sleeps in the agent of its maker, which it has a mapping of. That goes, and one of its own
//! comes in the same place; memory that it has in common with its maker is dropped, because its
//! contents are where its body is. Then the body is called, which has waited, and runs.

use crate::daemon::Daemon;
use crate::departure::{Away, Left};
use crate::ending::{end_behind, kill, see_it_end};
use crate::lanes::Lane;
use crate::own_memory::Afterwards;
use crate::service;
use crate::settling::shown_memory;
use kernel::child_signal::ChildSignal;
use kernel::memory::Memory;
use kernel::patience::Patience;
use kernel::proc::maps::Mapping;
use kernel::proc::{flags, process};
use kernel::remote_call::RemoteCalls;
use kernel::signal::Action;
use kernel::tracee::{self, Stop};
use link::{LinkReader, LinkWriter};
use migrate::backing::Library;
use migrate::files::{Files, USED_AT_HOME};
use migrate::freeze::HELD;
use migrate::group::Bonds;
use migrate::injection::{self, Borrowed};
use migrate::stopwatch::Stopwatch;
use migrate::worker::Worker;
use migrate::{MigrateError, Result, emptying, layout};
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::supervisor::{Berth, Birth, FromDeputy, MoveReport, Reason, Role};

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// A body that does not answer for so long will not. Its daemon may end meanwhile, and the next one
/// keeps whoever it does not expect waiting for some seconds; a node that is out of reach is lost
/// no sooner for a process that has just been made there than for any other.
const CALL_TIMEOUT: Duration = link::LOSS_TIMEOUT;
/// Between two tries, first and at most.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Serves a process that was made away, from its first moment to its return or end.
pub fn serve(pid: i32, birth: Birth, daemon: &Daemon, signals: ChildSignal) -> Result<()> {
    let node = birth.berth.node;
    // Whoever made it has let go of it before anybody was told.
    let seized = tracee::seize(pid, HELD);
    // The kernel lets nobody seize one that has ended and is not waited for yet.
    let has_ended = || process::stat(&pid.to_string()).is_ok_and(|stat| stat.has_ended());
    if let Err(error) = &seized
        && (error.is_gone() || has_ended())
    {
        // The daemon sees its end.
        let reason = migrate::reason("ended", error.to_string());
        daemon.send(&FromDeputy::Stayed { reason });
        return Ok(());
    }
    match seized.map_err(MigrateError::from).and_then(|()| take_over(pid, birth)) {
        Ok(mut away) => {
            // As it was for its maker; if it is not for this one, that comes home.
            let mut guarded = away.left.files.iter().flat_map(Files::guarded);
            let is_asked = guarded.all(|(_, file)| daemon.ask_to_guard(file));
            drop(guarded);
            if !is_asked {
                let text = "nobody keeps others from opening what it shares";
                away.left.called_home = Some(migrate::reason(USED_AT_HOME, text));
            }
            service::run(away, daemon, signals)
        }
        Err(error) => {
            let ended = match &error {
                MigrateError::Ended(status) => Some(*status),
                other => end_behind(pid, other),
            };
            if let Some(wait_status) = ended {
                daemon.send(&FromDeputy::Ended { wait_status });
                return Ok(());
            }
            kill(pid);
            see_it_end(pid, &signals);
            daemon.send(&FromDeputy::Lost { node, reason: error.reason() });
            Err(error)
        }
    }
}

fn take_over(pid: i32, birth: Birth) -> Result<Away> {
    let mut watch = Stopwatch::start();
    let is_held = stop(pid)?;
    let memory = Memory::open(pid)?;
    let (agent, borrowed) = change_agent(pid, &memory, &birth)?;
    watch.phase("agent");
    let mut registers = tracee::registers(pid)?;
    agent.enter(&mut registers, 0);
    tracee::set_registers(pid, &registers)?;
    tracee::resume(pid, 0)?;
    let mut maps = flags::read_maps(pid)?;
    maps.retain(|m| m.end <= agent.base() || agent.end() <= m.start);
    let bonds = Bonds::of_child(&maps);
    let mut library = Library::of_process(pid, &maps, &bonds)?;
    library.arrange(&birth.files)?;
    let (files, called_home) = match birth.is_vfork {
        true => (None, None),
        false => watched_files(pid, &maps, &bonds),
    };
    let worker = Worker { agent: &agent, slot: 0, tid: pid };
    let emptied = layout::of_guest(&maps, &[], &library)?;
    emptying::empty_private(worker, &emptied, &shown_memory(pid)?)?;
    watch.phase("settle");
    let link = call(&birth.berth)?;
    watch.phase("connect");
    if is_held {
        // It stops again, if it should be stopped still, and the service is told.
        tracee::interrupt(pid)?;
    }
    let reading = std::thread::spawn(move || Afterwards::read(pid, &[pid]));
    let (total_us, phases_us) = (watch.total_us(), watch.into_phases());
    let actions = birth.actions.iter().map(|words| Action::from_words(*words));
    Ok(Away {
        pid,
        link,
        library,
        borrowed,
        lanes: vec![Lane::unborn(pid, birth.guest, pid)],
        actions: actions.collect(),
        memory_bytes: process::resident_bytes(pid).unwrap_or(0),
        report: MoveReport {
            phases_us,
            total_us,
            freeze_budget: birth.freeze_budget,
            ..MoveReport::default()
        },
        used: Default::default(),
        relief: None,
        left: Left {
            keeping: None,
            maps,
            reading,
            files,
            limits: birth.limits,
            late: None,
            called_home,
        },
        is_held: false,
        berth: birth.berth,
        agent,
        memory,
    })
}

/// What it shares with its maker; or why it has to be home, if that cannot be watched: here it is
/// already.
fn watched_files(pid: i32, maps: &[Mapping], bonds: &Bonds) -> (Option<Files>, Option<Reason>) {
    let lasting = bonds.lasting(pid, maps);
    match lasting.and_then(|lasting| Files::watch(pid, maps, (bonds, &lasting))) {
        Ok(files) => (files, None),
        Err(error) => (None, Some(error.reason())),
    }
}

/// Stops it; whether job control has.
fn stop(pid: i32) -> Result<bool> {
    let _limit = Patience::of(STOP_TIMEOUT);
    tracee::interrupt(pid)?;
    loop {
        match tracee::wait(pid)? {
            Stop::Interrupted => return Ok(false),
            Stop::Group(_) => return Ok(true),
            Stop::Ended(status) => return Err(MigrateError::Ended(status)),
            // The one signal that it does not block is SIGSTOP.
            Stop::Signal(number) => tracee::resume_interrupted(pid, number)?,
            Stop::Syscall | Stop::Event(_) => tracee::resume_interrupted(pid, 0)?,
        }
    }
}

/// Takes the agent of its maker out of a stopped process and puts one of its own there.
fn change_agent(
    pid: i32,
    memory: &Memory,
    birth: &Birth,
) -> Result<(kernel::agent::Agent, Borrowed)> {
    let (start, end) = (birth.agent.0.0, birth.agent.1.0);
    let is_ours = |m: &Mapping| start < m.end && m.start < end;
    let slots = birth.slots as usize;
    if end.checked_sub(start) != Some(kernel::agent::size_for(slots) as u64) {
        return Err(MigrateError::Protocol("an agent of another size".into()));
    }
    let mut maps = kernel::proc::maps::read(pid)?;
    let mut is_agent_shared = maps.iter().filter(|m| is_ours(m)).map(|m| m.is_shared);
    if !is_agent_shared.next().is_some_and(|first| first && is_agent_shared.all(|it| it)) {
        return Err(MigrateError::Protocol("there is no agent where it was said to be".into()));
    }
    maps.retain(|m| !is_ours(m));
    let borrowed = injection::borrow(memory, &maps)?;
    let mut calls = RemoteCalls::begin(pid, borrowed.syscall)?;
    let range = [start, end - start, 0, 0, 0, 0];
    calls.call("remove the agent of its maker", libc::SYS_munmap, range)?;
    drop(calls);
    let agent = injection::inject(pid, pid, borrowed, &maps, (&(start..end), slots))?;
    Ok((agent, borrowed))
}

/// Calls the body and has it run. There is no going back from here, so a network that fails for a
/// moment does not count.
fn call(berth: &Berth) -> Result<(LinkReader, LinkWriter)> {
    let deadline = Instant::now() + CALL_TIMEOUT;
    let mut pause = PAUSE;
    loop {
        match have_it_run(berth) {
            Err(MigrateError::Link(error)) if Instant::now() < deadline => {
                ::tracing::debug!("{error}");
            }
            called => return called,
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// A body that has heard the order and has lost its link is gone, and no other comes in its place:
/// so it can be tried again.
fn have_it_run(berth: &Berth) -> Result<(LinkReader, LinkWriter)> {
    let (mut reader, mut writer) = link::connect(berth, Role::Deputy)?;
    reader.set_timeout(Some(CALL_TIMEOUT))?;
    writer.send(&ToAway::Run)?;
    match reader.receive_answer(&writer)? {
        ToHome::Running => {}
        ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
        _ => return Err(MigrateError::Protocol("no answer to the order to run".into())),
    }
    reader.set_timeout(None)?;
    Ok((reader, writer))
}
