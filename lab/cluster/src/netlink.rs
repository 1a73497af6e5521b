//! Orders to the kernel's network (rtnetlink), one after another, each with its answer.
//!
//! What iproute2 does for people; a program needs no program for it. Messages are those of a crate;
//! where it has no type for the options of a queue or a filter, their bytes are made by who orders.

use anyhow::{Context, Result, ensure};
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::net::if_::if_nametoindex;
use std::io;

/// An answer is an error number and the head of what was asked.
const ANSWER_BYTES_MAX: usize = 4096;

/// A link's queue or filter, by its name in the kernel.
pub struct Traffic {
    pub kind: &'static str,
    pub handle: TcHandle,
    pub parent: TcHandle,
    /// Priority and protocol of a filter.
    pub info: u32,
    pub options: Vec<DefaultNla>,
}

impl Traffic {
    /// For the link of this name in this network namespace.
    pub fn on(self, link: &str) -> io::Result<TcMessage> {
        let header = TcHeader {
            index: index_of(link)? as i32,
            handle: self.handle,
            parent: self.parent,
            info: self.info,
            ..TcHeader::default()
        };
        let mut attributes = vec![TcAttribute::Kind(self.kind.to_owned())];
        if !self.options.is_empty() {
            let options = self.options.into_iter().map(TcOption::Other).collect();
            attributes.push(TcAttribute::Options(options));
        }
        Ok(TcMessage::from_parts(header, attributes))
    }
}

/// The number of the link of this name.
pub fn index_of(link: &str) -> io::Result<u32> {
    Ok(if_nametoindex(link)?)
}

/// A description of the link of this name, to be completed.
pub fn link(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

/// Asks for the link to be up.
pub fn up(mut message: LinkMessage) -> LinkMessage {
    message.header.flags |= LinkFlags::Up;
    message.header.change_mask |= LinkFlags::Up;
    message
}

/// Asks for the link to be down.
pub fn down(mut message: LinkMessage) -> LinkMessage {
    message.header.change_mask |= LinkFlags::Up;
    message
}

/// Whether a link is not there, or no more.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENODEV | nix::libc::ENXIO))
}

/// The network of the namespace in which the socket was made.
pub struct Netlink {
    socket: Socket,
    sequence_number: u32,
}

impl Netlink {
    pub fn open() -> Result<Netlink> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Else an answer repeats all that was asked.
            socket.set_cap_ack(true)?;
            Ok(socket)
        };
        let socket = open().context("cannot speak to the kernel's network (rtnetlink)")?;
        Ok(Netlink { socket, sequence_number: 0 })
    }

    /// Makes something that is not there yet.
    pub fn make(&mut self, message: Message) -> io::Result<()> {
        self.ask(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Changes or removes something.
    pub fn change(&mut self, message: Message) -> io::Result<()> {
        self.ask(message, 0)
    }

    fn ask(&mut self, message: Message, flags: u16) -> io::Result<()> {
        self.sequence_number += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence_number;
        let mut asked = NetlinkMessage::new(header, NetlinkPayload::from(message));
        asked.finalize();
        let mut bytes = vec![0; asked.buffer_len()];
        asked.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        // The kernel has acted and answered before `send` returns: this waits for nothing.
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let size = self.socket.recv(&mut &mut answer[..], 0)?;
        outcome(&answer[..size], self.sequence_number).map_err(io::Error::other)?
    }
}

/// What the kernel answered; an error outside if it is no answer.
fn outcome(answer: &[u8], sequence_number: u32) -> Result<io::Result<()>> {
    let answer = NetlinkMessage::<Message>::deserialize(answer)
        .map_err(|error| anyhow::anyhow!("the kernel's network answers oddly: {error}"))?;
    ensure!(
        answer.header.sequence_number == sequence_number,
        "the kernel's network answers out of turn"
    );
    match answer.payload {
        NetlinkPayload::Error(error) => Ok(match error.code {
            None => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.get().abs())),
        }),
        other => anyhow::bail!("the kernel's network answers {other:?}"),
    }
}
