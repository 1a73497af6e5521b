//! The processes that do something on this node for users of others, as those they are here: they
//! show files ([decision 0048](../../docs/decisions/0048-files-of-all-nodes.md)) or begin ranks of
//! jobs ([decision 0053](../../docs/decisions/0053-parallel-jobs.md)). Who is expected, and who is
//! served.
//!
//! Each is the end of a socket here. One for whom nobody has come in time ends, because that is
//! closed then; all of a kind end when they are told to. They outlive a daemon that is killed.

use crate::spawning::Program;
use crate::supervisor::packet_pair;
use kernel::packet;
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::process::{Child, Command};
use wire::ids::Ticket;
use wire::supervisor::Role;
use wire::{files, jobs};

/// Servers of one kind, in all ...
const SERVERS_MAX: usize = 1_024;
/// ... and of one user.
const MOUNTS_OF_USER_MAX: usize = 64;
const JOBS_OF_USER_MAX: usize = 256;

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Files,
    Jobs,
}

impl Kind {
    /// Those that are connected to in this role.
    pub fn of(role: Role) -> Option<Kind> {
        match role {
            Role::Files => Some(Kind::Files),
            Role::Job => Some(Kind::Jobs),
            Role::Peer | Role::Deputy | Role::Image | Role::Stream | Role::Late => None,
        }
    }

    /// Servers of one user.
    fn of_user_max(self) -> usize {
        match self {
            Kind::Files => MOUNTS_OF_USER_MAX,
            Kind::Jobs => JOBS_OF_USER_MAX,
        }
    }

    /// The words by which this program is one.
    fn words(self) -> &'static [&'static str] {
        match self {
            Kind::Files => &["file-server"],
            // Its launcher starts one as well.
            Kind::Jobs => &["job-server", "--of-daemon"],
        }
    }

    fn connection(self) -> postcard::Result<Vec<u8>> {
        match self {
            Kind::Files => postcard::to_stdvec(&files::ToServer::Connection),
            Kind::Jobs => postcard::to_stdvec(&jobs::ToServer::Connection),
        }
    }

    fn end(self) -> postcard::Result<Vec<u8>> {
        match self {
            Kind::Files => postcard::to_stdvec(&files::ToServer::End),
            Kind::Jobs => postcard::to_stdvec(&jobs::ToServer::End),
        }
    }
}

/// A server that was started, and is told what it is for.
pub struct Started {
    pub socket: OwnedFd,
    pub child: Option<Child>,
}

/// The way to a server.
#[derive(Clone)]
pub struct Hold {
    kind: Kind,
    socket: Arc<OwnedFd>,
}

impl Hold {
    /// Gives it the connection that it waits for. False if it is gone.
    pub fn hand_over(&self, stream: &OwnedFd) -> bool {
        let bytes = self.kind.connection();
        bytes.is_ok_and(|bytes| packet::send_with(&self.socket, &bytes, stream).unwrap_or(false))
    }

    /// One that is gone needs to hear nothing.
    fn end(&self) {
        if let Ok(bytes) = self.kind.end() {
            let _ = packet::send_now(&self.socket, &bytes);
        }
    }
}

struct Server {
    uid: u32,
    hold: Hold,
    /// Gone when its process is.
    life: Weak<()>,
    /// For whom it waits, and until when; none: he has come.
    expects: Option<(Ticket, Instant)>,
}

#[derive(Default)]
pub struct UserServers(Vec<Server>);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum NoServer {
    #[error("user {0} has {MOUNTS_OF_USER_MAX} mounts of this node's files already")]
    MountsOfUser(u32),
    #[error("user {0} has {JOBS_OF_USER_MAX} jobs on this node already")]
    JobsOfUser(u32),
    #[error("this node's files are mounted {SERVERS_MAX} times already")]
    Mounts,
    #[error("there are {SERVERS_MAX} jobs on this node already")]
    Jobs,
    #[error("cannot start it: {0}")]
    Failed(#[from] io::Error),
}

impl UserServers {
    /// One more, for whoever comes with this ticket until then.
    pub fn add<T: Serialize>(
        &mut self,
        (kind, uid): (Kind, u32),
        expects: (Ticket, Instant),
        start: impl FnOnce() -> io::Result<Started>,
        told: &T,
    ) -> Result<(), NoServer> {
        self.expire(Instant::now());
        let of_kind = || self.0.iter().filter(|server| server.hold.kind == kind);
        if of_kind().count() >= SERVERS_MAX {
            return Err(match kind {
                Kind::Files => NoServer::Mounts,
                Kind::Jobs => NoServer::Jobs,
            });
        }
        if of_kind().filter(|server| server.uid == uid).count() >= kind.of_user_max() {
            return Err(match kind {
                Kind::Files => NoServer::MountsOfUser(uid),
                Kind::Jobs => NoServer::JobsOfUser(uid),
            });
        }
        let Started { socket, child } = start()?;
        let bytes = postcard::to_stdvec(told).map_err(io::Error::other)?;
        if !packet::send_now(&socket, &bytes).map_err(|error| error.source)? {
            return Err(NoServer::Failed(io::ErrorKind::WouldBlock.into()));
        }
        let alive = Arc::new(());
        let life = Arc::downgrade(&alive);
        tokio::spawn(async move {
            match child {
                Some(mut child) => {
                    let ended = child.wait().await;
                    tracing::debug!("osmos {} has ended: {ended:?}", kind.words()[0]);
                }
                // A test plays it, and ends with all the rest.
                None => std::future::pending().await,
            }
            drop(alive);
        });
        let hold = Hold { kind, socket: Arc::new(socket) };
        self.0.push(Server { uid, hold, life, expects: Some(expects) });
        Ok(())
    }

    /// Somebody has come with this ticket: the server of that kind which waits for him, once.
    pub fn visited(&mut self, kind: Kind, ticket: Ticket, now: Instant) -> Option<Hold> {
        let is_it = |server: &&mut Server| {
            let is_expected = |(expected, until)| expected == ticket && now < until;
            server.hold.kind == kind && server.expects.is_some_and(is_expected)
        };
        let server = self.0.iter_mut().find(is_it)?;
        server.expects = None;
        Some(server.hold.clone())
    }

    /// Drops those for whom nobody has come, which ends them, and those that have ended.
    pub fn expire(&mut self, now: Instant) {
        self.0.retain(|server| {
            let is_late = server.expects.is_some_and(|(_, until)| until <= now);
            !is_late && server.life.strong_count() > 0
        });
    }

    /// Nobody is served so any more.
    pub fn end_all(&mut self, kind: Kind) {
        for server in self.0.extract_if(.., |server| server.hold.kind == kind) {
            server.hold.end();
        }
    }
}

impl Program {
    /// Starts one. It makes itself whom it serves.
    pub fn start_user_server(&self, kind: Kind, door: &Path) -> io::Result<Started> {
        let (socket, theirs) = packet_pair()?;
        let mut command = Command::new(&self.path);
        command.args(kind.words()).arg("--door").arg(door).current_dir("/");
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(Started { socket, child: Some(command.spawn()?) })
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(1);

    /// The servers, and their ends of the sockets.
    #[derive(Default)]
    struct Played(UserServers, Vec<OwnedFd>);

    impl Played {
        fn add(&mut self, kind: Kind, uid: u32, ticket: u8, until: Instant) -> Option<String> {
            let Played(servers, sockets) = self;
            let start = || {
                let (socket, theirs) = packet_pair()?;
                sockets.push(theirs);
                Ok(Started { socket, child: None })
            };
            let expects = (Ticket([ticket; 16]), until);
            let added = servers.add((kind, uid), expects, start, &files::ToServer::Connection);
            added.err().map(|error| error.to_string())
        }

        fn has_come(&mut self, kind: Kind, ticket: u8, now: Instant) -> bool {
            self.0.visited(kind, Ticket([ticket; 16]), now).is_some()
        }
    }

    #[tokio::test]
    async fn whoever_comes_is_served_once_in_time_and_by_the_kind_that_he_named() {
        let (mut played, now) = (Played::default(), Instant::now());
        for (kind, ticket) in [(Kind::Jobs, 1), (Kind::Files, 2), (Kind::Jobs, 3)] {
            assert_eq!(played.add(kind, 1000, ticket, now + SOON), None);
        }
        assert!(!played.has_come(Kind::Files, 1, now) && !played.has_come(Kind::Jobs, 9, now));
        assert!(played.has_come(Kind::Jobs, 1, now) && played.has_come(Kind::Files, 2, now));
        assert!(!played.has_come(Kind::Jobs, 1, now), "once");
        assert!(!played.has_come(Kind::Jobs, 3, now + SOON), "too late");
        played.0.expire(now + SOON);
        assert_eq!(played.0.0.len(), 2, "who serves somebody stays");
        // The other end of the third is closed.
        let socket = &played.1[2];
        let mut words = [0; 64];
        let receive = |words: &mut [u8]| {
            rustix::net::recv(socket, words, rustix::net::RecvFlags::empty()).unwrap().0
        };
        assert!(receive(&mut words) > 0, "what it was told");
        assert_eq!(receive(&mut words), 0);
    }

    #[tokio::test]
    async fn a_user_has_so_many_of_each_kind_and_all_have_so_many() {
        let (mut played, until) = (Played::default(), Instant::now() + SOON * 1_000);
        let alive = Arc::new(());
        let hold = |kind, socket: &OwnedFd| Hold {
            kind,
            socket: Arc::new(socket.try_clone().expect("a descriptor")),
        };
        assert_eq!(played.add(Kind::Files, 1, 1, until), None);
        let [files, jobs] = [Kind::Files, Kind::Jobs].map(|kind| hold(kind, &played.1[0]));
        let fill = |played: &mut Played, hold: &Hold, uid, count| {
            let life = Arc::downgrade(&alive);
            let server = || Server { uid, hold: hold.clone(), life: life.clone(), expects: None };
            played.0.0.extend(std::iter::repeat_with(server).take(count));
        };
        fill(&mut played, &files, 1000, MOUNTS_OF_USER_MAX);
        fill(&mut played, &jobs, 1000, JOBS_OF_USER_MAX);
        for (kind, refused) in [
            (Kind::Files, "user 1000 has 64 mounts of this node's files already"),
            (Kind::Jobs, "user 1000 has 256 jobs on this node already"),
        ] {
            assert_eq!(played.add(kind, 1000, 1, until).as_deref(), Some(refused));
            assert_eq!(played.add(kind, 1001, 1, until), None);
        }
        fill(&mut played, &jobs, 1002, SERVERS_MAX - JOBS_OF_USER_MAX - 1);
        let refused = played.add(Kind::Jobs, 1003, 1, until);
        assert_eq!(refused.as_deref(), Some("there are 1024 jobs on this node already"));
        assert_eq!(played.add(Kind::Files, 1003, 1, until), None);
        played.0.end_all(Kind::Jobs);
        assert_eq!(played.add(Kind::Jobs, 1000, 1, until), None);
        drop(alive);
        played.0.expire(Instant::now());
        assert_eq!(played.0.0.len(), 4, "those whose processes have ended are forgotten");
    }
}
