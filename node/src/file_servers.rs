//! The processes that show this node's files to users of other nodes, as those they are here
//! ([decision 0048](../../docs/decisions/0048-files-of-all-nodes.md)): who is expected, and who is
//! served.

use crate::spawning::Program;
use crate::supervisor::packet_pair;
use kernel::packet;
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::process::{Child, Command};
use wire::files::ToServer;
use wire::ids::Ticket;

/// Servers of one user, and of all.
const OF_USER_MAX: usize = 64;
const SERVERS_MAX: usize = 1_024;

/// A server that was started, and is told what it is for.
pub struct Started {
    pub socket: OwnedFd,
    pub child: Option<Child>,
}

struct Server {
    uid: u32,
    socket: Arc<OwnedFd>,
    /// Gone when its process is.
    life: Weak<()>,
    /// For whom it waits, and until when; none: he has come.
    expects: Option<(Ticket, Instant)>,
}

#[derive(Default)]
pub struct FileServers(Vec<Server>);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum NoServer {
    #[error("user {0} has {OF_USER_MAX} mounts of this node's files already")]
    OfUser(u32),
    #[error("this node's files are mounted {SERVERS_MAX} times already")]
    Full,
    #[error("cannot start it: {0}")]
    Failed(#[from] io::Error),
}

impl FileServers {
    /// One more, for whoever comes with this ticket until then.
    pub fn add(
        &mut self,
        uid: u32,
        expects: (Ticket, Instant),
        start: impl FnOnce() -> io::Result<Started>,
        told: &ToServer,
    ) -> Result<(), NoServer> {
        self.expire(Instant::now());
        if self.0.len() >= SERVERS_MAX {
            return Err(NoServer::Full);
        }
        if self.0.iter().filter(|server| server.uid == uid).count() >= OF_USER_MAX {
            return Err(NoServer::OfUser(uid));
        }
        let Started { socket, child } = start()?;
        let bytes = postcard::to_stdvec(told).map_err(io::Error::other)?;
        if !packet::send_now(&socket, &bytes).map_err(|error| error.source)? {
            return Err(NoServer::Failed(io::ErrorKind::WouldBlock.into()));
        }
        let alive = Arc::new(());
        let life = Arc::downgrade(&alive);
        if let Some(mut child) = child {
            tokio::spawn(async move {
                let ended = child.wait().await;
                tracing::debug!("a file server has ended: {ended:?}");
                drop(alive);
            });
        }
        self.0.push(Server { uid, socket: Arc::new(socket), life, expects: Some(expects) });
        Ok(())
    }

    /// Somebody has come with this ticket: the server that waits for him, once.
    pub fn visited(&mut self, ticket: Ticket, now: Instant) -> Option<Arc<OwnedFd>> {
        let is_it = |server: &&mut Server| {
            server.expects.is_some_and(|(expected, until)| expected == ticket && now < until)
        };
        let server = self.0.iter_mut().find(is_it)?;
        server.expects = None;
        Some(server.socket.clone())
    }

    /// Drops those for whom nobody has come, which ends them, and those that have ended.
    pub fn expire(&mut self, now: Instant) {
        self.0.retain(|server| {
            let is_late = server.expects.is_some_and(|(_, until)| until <= now);
            !is_late && server.life.strong_count() > 0
        });
    }

    /// Nobody is shown anything any more.
    pub fn end_all(&mut self) {
        for server in self.0.drain(..) {
            say(&server.socket, &ToServer::End);
        }
    }
}

/// False if it is gone.
fn say<T: Serialize>(server: &OwnedFd, message: &T) -> bool {
    postcard::to_stdvec(message)
        .is_ok_and(|bytes| packet::send_now(server, &bytes).unwrap_or(false))
}

/// The same, with a descriptor.
pub fn say_with<T: Serialize>(server: &OwnedFd, message: &T, descriptor: &OwnedFd) -> bool {
    let bytes = postcard::to_stdvec(message);
    bytes.is_ok_and(|bytes| packet::send_with(server, &bytes, descriptor).unwrap_or(false))
}

impl Program {
    /// Starts one. It makes itself whom it serves.
    pub fn start_file_server(&self, door: &std::path::Path) -> io::Result<Started> {
        let (socket, theirs) = packet_pair()?;
        let mut command = Command::new(&self.path);
        command.arg("file-server").arg("--door").arg(door).current_dir("/");
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(Started { socket, child: Some(command.spawn()?) })
    }
}
