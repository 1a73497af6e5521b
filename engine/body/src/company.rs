//! Processes that share memory arrive together ([decision 0034](../../../docs/decisions/)): one for
//! which the berth was asked for, and its companions. They get one sandbox, with a body, a thread
//! of this supervisor, a filter and an agent for each, and memory files for what they share.
//!
//! ```text
//!  main thread          prospect, files ─┐                ┌─ memory, threads, filter ... Restored
//!                                        ├─ the sandbox ──┤
//!  a thread for each    prospect, files ─┘                └─ memory, threads, filter ... Restored
//! ```
//!
//! What bodies map they inherit as descriptors, so the sandbox waits for the files of all. When who
//! runs is for their home to say, which lets none run before all are here.

use crate::arrival::{self, ARRIVAL_TIMEOUT, Arrived, Link};
use crate::daemon::Daemon;
use crate::door::Door;
use crate::family::Family;
use crate::life;
use crate::new_processes::{is_guest, sockets};
use crate::preparing::prepare_companion;
use attachment::Attachment;
use kernel::child_signal::ChildSignal;
use kernel::sandbox::{Init, Sandbox};
use migrate::backing::Commons;
use migrate::{MigrateError, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use wire::clocks::Offset;
use wire::forward::ToHome;
use wire::ids::GuestTid;
use wire::memory_group::{Group, Segment};
use wire::supervisor::{FromBody, Role};

/// Who arrives with the first body of a sandbox.
pub(crate) struct Company {
    pub(crate) family: Arc<Family>,
    pub(crate) commons: Arc<Commons>,
    members: Vec<Member>,
    /// How many are to say what they are, and where they do.
    expected: usize,
    are_ready: Receiver<Result<Member>>,
    /// The sandbox's, until the first body has arrived: should it not, its home is told before
    /// everything here is ended.
    pub(crate) init: Option<Init>,
}

/// A companion that has said what it is, and waits to be told of its body.
struct Member {
    pid: GuestTid,
    body: Sender<i32>,
}

/// What a companion's thread begins with.
struct Joining {
    key: [u8; 32],
    commons: Arc<Commons>,
    offset: Option<Offset>,
    family: Arc<Family>,
    signals: ChildSignal,
    ready: Sender<Result<Member>>,
}

impl Company {
    /// Expects the companions of a process, each by a thread of its own.
    ///
    /// # Errors
    /// Refused if the daemon takes none, or there is no memory for what they share.
    pub(crate) fn expect(
        daemon: &Daemon,
        group: &Group,
        (offset, signals): (Option<Offset>, &ChildSignal),
    ) -> Result<Company> {
        let family = Family::of_one(Arc::new(kernel::wake_up::make()?));
        family.begin_arrival();
        let commons: Commons = group.segments.iter().map(memory_of).collect::<Result<_>>()?;
        let commons = Arc::new(commons);
        let (ready, are_ready) = channel();
        for companion in &group.companions {
            let (socket, theirs) = sockets()?;
            let word = FromBody::Joins { child: companion.pid, ticket: companion.ticket };
            let is_told = daemon.hand_over(&word, &theirs);
            drop(theirs);
            if !is_told || !is_guest(&socket) {
                return Err(MigrateError::refused("no-daemon", "the daemon takes no companion"));
            }
            let (commons, family) = (commons.clone(), family.clone());
            let (key, ready) = (companion.key, ready.clone());
            let signals = signals.for_another_thread()?;
            let joining = Joining { key, commons, offset, family, signals, ready };
            joining.family.grow();
            joining.family.begin_arrival();
            let thread = std::thread::Builder::new().name("body".into());
            let spawned = thread.spawn(move || live(socket, joining));
            spawned.map_err(|error| MigrateError::refused("no-thread", error.to_string()))?;
        }
        let expected = group.companions.len();
        Ok(Company { family, commons, members: vec![], expected, are_ready, init: None })
    }

    /// Waits until all have said what they are.
    ///
    /// # Errors
    /// Refused, for what one of them is refused for.
    pub(crate) fn gather(&mut self, first: GuestTid) -> Result<()> {
        let mut seen = HashSet::from([first]);
        while self.members.len() < self.expected {
            let late = |_| MigrateError::refused("no-companion", "a companion of it did not come");
            let member = self.are_ready.recv_timeout(ARRIVAL_TIMEOUT).map_err(late)??;
            if !seen.insert(member.pid) {
                return Err(MigrateError::Protocol(format!("two processes {}", member.pid)));
            }
            self.members.push(member);
        }
        Ok(())
    }

    /// What they are inside.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.members.iter().map(|member| member.pid.0).collect()
    }

    /// Gives each of them its body, in that order.
    pub(crate) fn begin(&mut self, bodies: &[i32]) {
        for (member, body) in self.members.drain(..).zip(bodies) {
            // One that has failed meanwhile has told its home.
            let _ = member.body.send(*body);
        }
    }
}

/// Memory that is as large as the most that anybody has mapped, and takes none yet.
fn memory_of(segment: &Segment) -> Result<((u64, u64), File)> {
    let failed = |errno: nix::errno::Errno| kernel::KernelError {
        what: format!("make {} bytes of shared memory", segment.bytes),
        source: errno.into(),
    };
    let file = memfd_create(c"osmos-shared", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
    nix::unistd::ftruncate(&file, segment.bytes as i64).map_err(failed)?;
    Ok(((segment.device, segment.inode), File::from(file)))
}

/// The life of a thread that has a companion.
fn live(socket: OwnedFd, joining: Joining) {
    let (family, ready) = (joining.family.clone(), joining.ready.clone());
    match Attachment::new(socket, &[]) {
        Ok(attached) => {
            let daemon = Daemon::new(attached);
            match arrive(joining, &daemon) {
                Ok((home, arrived)) => life::run_companion(&daemon, home, arrived, &family),
                Err(error) => {
                    family.end_arrival();
                    let reason = error.reason();
                    // Nobody listens any more if all had come.
                    let _ = ready.send(Err(error));
                    daemon.send(&FromBody::Gone { reason });
                }
            }
            daemon.deliver();
        }
        Err(error) => {
            family.end_arrival();
            drop(ready.send(Err(error.into())));
        }
    }
    family.shrink();
}

fn arrive(joining: Joining, daemon: &Daemon) -> Result<(Link, Arrived)> {
    let Joining { key, commons, offset, signals, ready, .. } = joining;
    let mut door = Door::of(daemon, key, None);
    let mut home = door.accept(Role::Deputy)?;
    home.0.set_timeout(Some(ARRIVAL_TIMEOUT))?;
    let arrived = prepare_companion(&mut home, offset, commons).and_then(|prepared| {
        let (body, is_there) = channel();
        let pid = prepared.prospect.pid;
        let _ = ready.send(Ok(Member { pid, body }));
        let gone = |_| MigrateError::refused("no-companion", "whom it came with did not come");
        let body = is_there.recv_timeout(ARRIVAL_TIMEOUT).map_err(gone)?;
        // They wait for each other before they stop, in which nothing is said.
        home.0.set_timeout(Some(link::LOSS_TIMEOUT))?;
        let sandbox = (Sandbox::of_companion(body)?, signals);
        arrival::take_in(sandbox, prepared, (&mut home, &mut door), Default::default(), true)
    });
    let arrived = arrived.and_then(|arrived| arrival::await_run(&mut home, arrived));
    let arrived = arrived.inspect_err(|error| {
        // Home may know already; then there is nobody to tell.
        let _ = home.1.send(&ToHome::Refused(error.reason()));
    })?;
    home.0.set_timeout(None)?;
    Ok((home, arrived))
}
