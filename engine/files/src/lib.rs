//! `osmos file-server`: shows the files of this node to one user of another node, who has mounted
//! them there (`osmos mount`, [decision 0048](../../../docs/decisions/0048-files-of-all-nodes.md)).
//!
//! A process for each user and connection, which runs as whom the node's table of users makes of
//! him: this node's kernel decides what he may do here, and nothing else does. It has what it is
//! for from the daemon that starts it, then the connection, and ends with that. When another daemon
//! has come, which knows nothing of it, it goes on until no file is open; without one for
//! [`PATIENCE`] the node is down, and its files are shown to nobody.
//!
//! What comes over the connection is another machine's, and hostile until checked: names are names
//! ([`place`]), numbers and handles are looked up, content is bounded by its message.

mod attributes;
mod handles;
mod identity;
mod inodes;
mod locks;
mod offers;
mod operations;
mod place;
mod serving;

use identity::become_user;
use kernel::packet;
use operations::Server;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::files::ToServer;
use wire::supervisor::PACKET_BYTES_MAX;

/// What `ps` shows.
const NAME: &str = "file-server";
/// So long a node may be without a daemon before its files are no longer shown.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether there is one.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// `--door PATH`: the control socket of the daemon and of those after it.
pub fn main(arguments: Vec<String>) -> ExitCode {
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::info!("files are shown no more: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[String]) -> io::Result<()> {
    // For people only: whoever may not write there is shown the program's name.
    let _ = std::fs::write("/proc/self/comm", NAME);
    let socket = packet::inherited(0).map_err(|error| error.source)?;
    let (ToServer::Serve { key, served, groups }, _) = hear(&socket)? else {
        return Err(io::Error::other("not told what it is for"));
    };
    become_user(&served, groups.as_deref())?;
    let (ToServer::Connection, Some(connection)) = hear(&socket)? else {
        return Err(io::Error::other("nobody has come"));
    };
    let link = link::accept(TcpStream::from(connection), &key).map_err(io::Error::other)?;
    let server = Arc::new(Server::new(served)?);
    let mut words = arguments.iter();
    let door = words.find(|word| *word == "--door").and_then(|_| words.next());
    let (door, closer) = (door.map(PathBuf::from), link.1.closer().map_err(io::Error::other)?);
    let served_by = server.clone();
    std::thread::Builder::new().name("daemon".into()).spawn(move || {
        await_end(&socket, door.as_deref(), || served_by.is_idle());
        closer.close();
    })?;
    serving::serve(&server, link, served)
}

fn hear(socket: &OwnedFd) -> io::Result<(ToServer, Option<OwnedFd>)> {
    let received = packet::receive(socket, PACKET_BYTES_MAX).map_err(|error| error.source)?;
    let (bytes, descriptor) = received.ok_or(io::ErrorKind::UnexpectedEof)?;
    let told = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    Ok((told, descriptor))
}

/// Returns when the daemon says that this is the end, or is gone and nobody needs this any more.
fn await_end(socket: &OwnedFd, door: Option<&Path>, is_idle: impl Fn() -> bool) {
    if let Ok(Some(_)) = packet::receive(socket, PACKET_BYTES_MAX) {
        return;
    }
    let mut alone_since = Instant::now();
    while !is_idle() && alone_since.elapsed() < PATIENCE {
        std::thread::sleep(LOOK_INTERVAL);
        if door.is_some_and(|door| UnixStream::connect(door).is_ok()) {
            alone_since = Instant::now();
        }
    }
}
