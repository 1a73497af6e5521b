//! The job servers of a job: one is started here, as a child of the launcher; the others by the
//! daemons of their nodes. All are called the same way, and each has a thread that hears it and one
//! that speaks to it, so that a node that does not answer holds up nobody else.

use crate::launching::Event;
use anyhow::{Context, Result, anyhow, bail};
use client::Client;
use link::{Closer, LinkReader, LinkWriter};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, send, sendmsg,
    socketpair,
};
use std::io::{IoSlice, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::Duration;
use wire::control::{Node, Reply, Request};
use wire::files::{decode, encode};
use wire::ids::{GlobalPid, NodeId, Ticket};
use wire::jobs::{FromRanks, STREAM_BYTES_MAX, ToRanks, ToServer};
use wire::supervisor::{Berth, PREFACE_BYTES, Preface, Role};

/// For the daemons to start a server.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);
const FLUSH_PATIENCE: Duration = Duration::from_millis(500);

/// What of its log a server shows.
const LOG: &str = "OSMOS_LOG";

/// What is to be sent, in order.
enum Outgoing {
    Message(ToRanks, Vec<u8>),
    /// Whoever waits is told when all before it was sent.
    Mark(Sender<()>),
}

/// Speaks to one job server.
pub struct Server {
    messages: Option<Sender<Outgoing>>,
    closer: Closer,
    /// The one that was started here.
    child: Option<Child>,
}

impl Server {
    pub fn say(&self, message: ToRanks) {
        self.send(message, Vec::new());
    }

    pub fn send(&self, message: ToRanks, content: Vec<u8>) {
        if let Some(messages) = &self.messages {
            // Whoever hears it says that it is gone.
            let _ = messages.send(Outgoing::Message(message, content));
        }
    }

    /// Returns when all that was said is on its way, or it takes nothing for [`FLUSH_PATIENCE`].
    pub fn flush(&self) {
        let (mark, sent) = channel();
        if self.messages.as_ref().is_some_and(|to| to.send(Outgoing::Mark(mark)).is_ok()) {
            let _ = sent.recv_timeout(FLUSH_PATIENCE);
        }
    }

    /// It is spoken to no more.
    pub fn close(&mut self) {
        self.messages = None;
        self.closer.close();
    }

    /// One that has nothing left. If it was started here it has ended when this returns.
    pub fn end(&mut self) {
        self.close();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

/// Whom a job has its servers from.
pub struct Ground<'a> {
    pub socket: &'a Path,
    pub me: NodeId,
    pub job: GlobalPid,
    pub nodes: &'a [Node],
}

type Link = (LinkReader, LinkWriter);

impl Ground<'_> {
    /// Has a job server on each of these nodes; what they say is heard by `events`, with the place
    /// of the node.
    ///
    /// # Errors
    /// One of them does not do it: none has begun anything.
    pub fn call_all(&self, nodes: &[NodeId], events: &SyncSender<Event>) -> Result<Vec<Server>> {
        let called: Vec<Result<(Link, Option<Child>)>> = std::thread::scope(|scope| {
            let calls: Vec<_> = nodes.iter().map(|node| scope.spawn(|| self.call(*node))).collect();
            let panicked = |_| Err(anyhow!("a thread of the launcher panicked"));
            calls.into_iter().map(|call| call.join().unwrap_or_else(panicked)).collect()
        });
        let mut servers = Vec::new();
        for (place, (node, called)) in nodes.iter().zip(called).enumerate() {
            let (link, child) = called.with_context(|| format!("node {node}"))?;
            servers.push(begin(place, link, child, events)?);
        }
        Ok(servers)
    }

    fn call(&self, node: NodeId) -> Result<(Link, Option<Child>)> {
        if node == self.me {
            let (link, child) = self.call_here()?;
            return Ok((link, Some(child)));
        }
        let mut client = Client::connect(self.socket)?;
        client.set_patience(DAEMON_PATIENCE)?;
        let request = Box::new(Request::ServeJob { job: self.job, user: None });
        let reply = client.request(&Request::At { node, request })?;
        let Reply::JobServer(mut berth) = reply else { bail!("the daemon answered {reply:?}") };
        // It may not know where it is seen from here.
        let listed = self.nodes.iter().find(|listed| listed.id == node);
        berth.address = listed.and_then(|of| of.address.parse().ok()).unwrap_or(berth.address);
        Ok((link::connect(&berth, Role::Job)?, None))
    }

    /// Starts one on this node. It is the launcher's child, so its ranks have of the launcher what
    /// a command of a shell has of the shell.
    fn call_here(&self) -> Result<(Link, Child)> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("job-server").arg("--door").arg(self.socket).process_group(0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        if std::env::var_os(LOG).is_none() {
            // Its standard error is the user's.
            command.env(LOG, "warn");
        }
        let mut child = command.spawn().context("cannot start a job server")?;
        match self.call_child(&ours) {
            Ok(link) => Ok((link, child)),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    fn call_child(&self, socket: &OwnedFd) -> Result<Link> {
        let (mut key, mut ticket) = ([0; 32], [0; 16]);
        for place in [&mut key[..], &mut ticket[..]] {
            getrandom::fill(place).map_err(|error| anyhow!("no random numbers: {error}"))?;
        }
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        let (job, node) = (self.job, self.me);
        let serve = ToServer::Serve { key, job, node, uid, gid, groups: None };
        send(socket.as_raw_fd(), &postcard::to_stdvec(&serve)?, MsgFlags::MSG_NOSIGNAL)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .context("cannot listen on this machine's loopback")?;
        let (address, ticket) = (listener.local_addr()?, Ticket(ticket));
        let berth = Berth { node, address, ticket, key };
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| link::connect(&berth, Role::Job));
            pass_on(&listener, socket, ticket)?;
            calling
                .join()
                .map_err(|_| anyhow!("a thread of the launcher panicked"))?
                .map_err(Into::into)
        })
    }
}

/// Hands the connection that says this ticket to the server.
fn pass_on(listener: &TcpListener, server: &OwnedFd, ticket: Ticket) -> Result<()> {
    let expected = Preface { role: Role::Job, ticket }.encode();
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut head = [0; PREFACE_BYTES];
        // Others of this machine may call this port, too.
        if stream.read_exact(&mut head).is_err() || head != expected {
            continue;
        }
        stream.set_read_timeout(None)?;
        let bytes = postcard::to_stdvec(&ToServer::Connection)?;
        let descriptors = [stream.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let slices = [IoSlice::new(&bytes)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(server.as_raw_fd(), &slices, &rights, flags, None)?;
        return Ok(());
    }
}

/// Starts the threads that speak to a server and hear it.
fn begin(
    place: usize,
    (reader, writer): Link,
    child: Option<Child>,
    events: &SyncSender<Event>,
) -> Result<Server> {
    let (messages, queue) = channel();
    let closer = writer.closer()?;
    let heard = events.clone();
    std::thread::Builder::new()
        .name(format!("from-{place}"))
        .spawn(move || hear_all(place, reader, &heard))?;
    std::thread::Builder::new()
        .name(format!("to-{place}"))
        .spawn(move || say_all(writer, &queue))?;
    Ok(Server { messages: Some(messages), closer, child })
}

fn hear_all(place: usize, mut reader: LinkReader, events: &SyncSender<Event>) {
    loop {
        let event = match hear(&mut reader) {
            Ok((said, content)) => Event::Said { place, said, content },
            Err(why) => Event::Lost { place, why },
        };
        let is_last = matches!(event, Event::Lost { .. });
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

fn hear(reader: &mut LinkReader) -> Result<(FromRanks, Vec<u8>), String> {
    let message = reader.receive_bytes().map_err(|error| error.to_string())?;
    let (said, content) = decode(message).map_err(|error| error.to_string())?;
    if content.len() > STREAM_BYTES_MAX {
        return Err(format!("it sent {} bytes of a stream at once", content.len()));
    }
    Ok((said, content.to_vec()))
}

fn say_all(mut writer: LinkWriter, queue: &Receiver<Outgoing>) {
    for outgoing in queue {
        let sent = match outgoing {
            Outgoing::Message(message, content) => {
                writer.send_bytes(&[&encode(&message), &content])
            }
            Outgoing::Mark(mark) => {
                // Nobody waits any more for what took too long.
                let _ = mark.send(());
                Ok(())
            }
        };
        if sent.is_err() {
            // So that whoever hears it learns of it, too.
            writer.close();
            return;
        }
    }
}
