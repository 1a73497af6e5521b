//! `osmos job-server`: begins the ranks of one parallel job on this node and watches them
//! ([decision 0053](../../../docs/decisions/0053-parallel-jobs.md)).
//!
//! A process for each job and node, which runs as whom the node's table of users makes of the job's
//! user. It has what it is for from whoever starts it, the daemon or, on the launcher's own node,
//! the launcher; then the connection to the launcher, and ends with that:
//!
//! ```text
//!   Prepare ──► prepared ──Start──► ranks run ──End, or the launcher is gone──► ending ──► Gone
//! ```
//!
//! * [`serving`]: the loop that everything goes through; [`listening`]: what it waits for
//! * [`program`]: what a rank runs; [`rank`]: one of them, and its streams
//! * [`descendants`]: all that ranks have started, so that none of it is left
//! * [`adoption`]: has the daemon move ranks
//!
//! **Invariant.** When this process has ended, nothing that came of its ranks is left: it is the
//! reaper of all of it. What it cannot do if it is killed itself its daemon does.

mod adoption;
mod descendants;
mod listening;
mod program;
mod rank;
mod serving;

use kernel::haste;
use kernel::packet;
use kernel::user::become_user;
use nix::sys::prctl;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::jobs::ToServer;
use wire::supervisor::PACKET_BYTES_MAX;

/// What `ps` shows.
const NAME: &str = "job-server";

/// Has the kernel take it, and its ranks, for programs like any other: the daemon that has started
/// it comes before others (`node::come_before_guests`).
fn be_ordinary() -> io::Result<()> {
    haste::stand_back();
    haste::take_usual_turns(0);
    // With more of it any of its programs could come first again.
    setrlimit(Resource::Nice, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}

/// `--door PATH`: the control socket of the daemon and of those after it. `--of-daemon`: that has
/// started it.
pub fn main(arguments: Vec<String>) -> ExitCode {
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::info!("job server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[String]) -> io::Result<()> {
    // For people only: whoever may not write there is shown the program's name.
    let _ = std::fs::write("/proc/self/comm", NAME);
    let socket = packet::inherited(0).map_err(|error| error.source)?;
    let (ToServer::Serve { key, job, node, uid, gid, groups }, _) = hear(&socket)? else {
        return Err(io::Error::other("not told what it is for"));
    };
    if arguments.iter().any(|word| word == "--of-daemon") {
        be_ordinary()?;
    }
    become_user(uid, gid, groups.as_deref())?;
    // Another process of this user has no business in it: it holds the key of its connection.
    prctl::set_dumpable(false)?;
    prctl::set_child_subreaper(true)?;
    let (ToServer::Connection, Some(connection)) = hear(&socket)? else {
        return Err(io::Error::other("nobody has come"));
    };
    let link = link::accept(TcpStream::from(connection), &key).map_err(io::Error::other)?;
    let mut words = arguments.iter();
    let door = words.find(|word| *word == "--door").and_then(|_| words.next());
    serving::serve(link, socket, serving::Place { job, node, door: door.map(PathBuf::from) })
}

fn hear(socket: &OwnedFd) -> io::Result<(ToServer, Option<OwnedFd>)> {
    let received = packet::receive(socket, PACKET_BYTES_MAX).map_err(|error| error.source)?;
    let (bytes, descriptor) = received.ok_or(io::ErrorKind::UnexpectedEof)?;
    let told = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    Ok((told, descriptor))
}
