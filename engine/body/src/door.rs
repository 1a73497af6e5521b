//! Where connections to a berth come from: its daemon passes them on, and what earlier guests have
//! left with them.

use crate::arrival::{ARRIVAL_TIMEOUT, Link};
use crate::daemon::Daemon;
use migrate::imprint::Imprints;
use migrate::inflow::Inflow;
use migrate::{MigrateError, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use wire::limits::{IMPRINTS_PER_GUEST_MAX, STREAMS_MAX};
use wire::supervisor::{Role, ToBody};

/// Code of the reason for which nobody calls any more.
pub(crate) const NOT_COMING: &str = "not-coming";

/// To which whoever has the key may come.
pub(crate) struct Door<'a> {
    daemon: &'a Daemon,
    key: [u8; 32],
    /// What earlier guests of the same user have left here, and whether the process itself has.
    left: Vec<(bool, OwnedFd)>,
    /// What lets faults of the kernel be served.
    pub(crate) device: Option<OwnedFd>,
}

impl Door<'_> {
    pub(crate) fn of(daemon: &Daemon, key: [u8; 32], device: Option<OwnedFd>) -> Door<'_> {
        Door { daemon, key, left: vec![], device }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon
    }

    /// What may be looked through for one that its home sends: all of it. Who else sends a process
    /// was lent that one alone, and learns nothing of others.
    pub(crate) fn imprints(&mut self, is_from_home: bool) -> Imprints {
        let left = std::mem::take(&mut self.left).into_iter();
        Imprints::of(left.filter(|(is_own, _)| is_from_home || *is_own).map(|(_, file)| file))
    }

    /// Waits for the connection of this role that the daemon passes on.
    pub(crate) fn accept(&mut self, wanted: Role) -> Result<Link> {
        loop {
            match self.daemon.receive()? {
                (ToBody::Connection { role }, Some(stream)) if role == wanted => {
                    return Ok(link::accept(TcpStream::from(stream), &self.key)?);
                }
                (ToBody::Imprint { is_own }, Some(file))
                    if self.left.len() < IMPRINTS_PER_GUEST_MAX =>
                {
                    self.left.push((is_own, file));
                }
                (ToBody::NotComing, _) => {
                    return Err(MigrateError::refused(NOT_COMING, "its home does not send it"));
                }
                (ToBody::SendHome, _) => {
                    return Err(MigrateError::refused("drained", "the node takes no guests"));
                }
                (other, _) => {
                    let text = format!("expected a connection, not {other:?}");
                    return Err(MigrateError::Protocol(text));
                }
            }
        }
    }

    /// Waits until somebody has called, which the daemon tells, or who is on the link has something
    /// to say: that the call will not come.
    pub(crate) fn await_call(&self, link: &Link) -> Result<()> {
        let Some(socket) = self.daemon.socket() else {
            return Err(MigrateError::refused(
                "no-daemon",
                "the daemon of the next node has ended",
            ));
        };
        let mut watched = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(link.0.as_fd(), PollFlags::POLLIN),
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

    /// Lets in as many streams as the source makes, up to what it has announced.
    pub(crate) fn let_in(&mut self, count: u32, link: &Link, inflow: &mut Inflow) -> Result<()> {
        if inflow.streams() > 0 || count as usize > STREAMS_MAX {
            return Err(MigrateError::Protocol(format!("{count} streams of memory")));
        }
        for _ in 0..count {
            // A source that goes on has had no more of them, for which there may be reasons here,
            // too. Everything can come over those that there are, or over the link.
            if self.await_call(link).is_err() {
                break;
            }
            match self.accept(Role::Stream) {
                Ok(stream) => inflow.add(stream)?,
                // Anybody can call.
                Err(MigrateError::Link(error)) => tracing::debug!("a stream: {error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
