//! An encrypted stream of messages between two supervisors, over TCP.
//!
//! Blocking, because latency is what counts here: a forwarded call is one write and one wake-up on
//! each side. Reading and writing are separate halves, so that replies need not wait for calls.
//!
//! On the wire: frames of a 16-bit big-endian length and that many sealed bytes. The plain bytes of
//! the frames of one message, put together, are a 32-bit little-endian length and a postcard value,
//! or bytes that their receiver decodes in place.

use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use wire::limits::{FRAME_PLAIN_BYTES_MAX, MESSAGE_BYTES_MAX};
use wire::secure::{BerthHandshake, Opener, Sealer, SecureError, TAG_BYTES};
use wire::supervisor::{Berth, Preface, Role};

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("link: {0}")]
    Io(io::Error),
    #[error("link: the other node does not answer")]
    Silent,
    #[error(transparent)]
    Secure(#[from] SecureError),
    #[error("link: a message of {0} bytes (at most {MESSAGE_BYTES_MAX})")]
    TooLarge(usize),
    #[error("link: a message that does not decode: {0}")]
    Decode(#[from] postcard::Error),
    #[error("link: nothing has come or gone for {} s", STANDSTILL_MAX.as_secs())]
    Standstill,
}

impl From<io::Error> for LinkError {
    /// A read that ends with its timeout says that the socket would block.
    fn from(error: io::Error) -> LinkError {
        match error.kind() {
            io::ErrorKind::WouldBlock => LinkError::Silent,
            _ => LinkError::Io(error),
        }
    }
}

pub type Result<T> = std::result::Result<T, LinkError>;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence for so long, or data that is not acknowledged, means that the other node is lost, and
/// with it what ran there. Nobody can tell a network that is cut from a node that is dead: longer
/// than a switch takes to start again, shorter than anybody leaves a program that hangs alone.
pub const LOSS_TIMEOUT: Duration = Duration::from_secs(120);

/// A process that stands frozen waits so long for a network, or a node, that does nothing at all,
/// and so does a supervisor that has something else to do for it: long enough for some packets that
/// are lost, too short for anybody to miss the process.
pub const STANDSTILL_MAX: Duration = Duration::from_secs(2);

/// The same while memory is copied ahead of a process that runs: a node that is busy may take
/// nothing for some seconds, and nobody stands still for it.
const COPYING_STANDSTILL_MAX: Duration = Duration::from_secs(3);

/// Connects to a berth.
pub fn connect(berth: &Berth, role: Role) -> Result<(LinkReader, LinkWriter)> {
    let mut stream = TcpStream::connect_timeout(&berth.address, STANDSTILL_MAX)?;
    prepare(&stream)?;
    let mut handshake = BerthHandshake::initiator(&berth.key)?;
    let mut message = [0; 64];
    let length = handshake.write(&mut message)?;
    let mut first = Preface { role, ticket: berth.ticket }.encode().to_vec();
    first.push(length as u8);
    first.extend(&message[..length]);
    stream.write_all(&first)?;
    handshake.read(&read_short(&mut stream)?)?;
    establish(stream, handshake)
}

/// Answers a connection to our berth; its preface has been read.
pub fn accept(mut stream: TcpStream, key: &[u8; 32]) -> Result<(LinkReader, LinkWriter)> {
    stream.set_nonblocking(false)?;
    prepare(&stream)?;
    let mut handshake = BerthHandshake::responder(key)?;
    handshake.read(&read_short(&mut stream)?)?;
    let mut message = [0; 64];
    let length = handshake.write(&mut message)?;
    let mut answer = vec![length as u8];
    answer.extend(&message[..length]);
    stream.write_all(&answer)?;
    establish(stream, handshake)
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    set_loss_timeout(stream, LOSS_TIMEOUT)?;
    kernel::tcp::bound_resend_pause(stream).map_err(|error| error.source)?;
    setsockopt(stream, sockopt::KeepAlive, &true).map_err(io::Error::from)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &5).map_err(io::Error::from)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &2).map_err(io::Error::from)?;
    Ok(())
}

/// With this option it is also what bounds keep-alive (tcp(7)).
fn set_loss_timeout(stream: &TcpStream, timeout: Duration) -> Result<()> {
    let ms = timeout.as_millis() as u32;
    Ok(setsockopt(stream, sockopt::TcpUserTimeout, &ms).map_err(io::Error::from)?)
}

/// A handshake message: one byte of length, then that many (at most 64).
fn read_short(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(length[0]).min(64)];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn establish(stream: TcpStream, handshake: BerthHandshake) -> Result<(LinkReader, LinkWriter)> {
    stream.set_read_timeout(None)?;
    let (sealer, opener) = handshake.finish()?;
    let reader = LinkReader {
        stream: stream.try_clone()?,
        opener,
        buffer: vec![0; BUFFER_BYTES].into(),
        start: 0,
        end: 0,
        plain: vec![0; FRAME_ROOM],
    };
    Ok((
        reader,
        LinkWriter { stream, sealer, plain: Vec::new(), sealed: Vec::new(), bytes_sent: 0 },
    ))
}

/// The receiving half.
pub struct LinkReader {
    stream: TcpStream,
    opener: Opener,
    buffer: Box<[u8]>,
    /// The received bytes in `buffer` that are not yet consumed.
    start: usize,
    end: usize,
    /// Of the message that comes: its length, then its bytes, and room for a frame.
    plain: Vec<u8>,
}

/// What opening a frame takes.
const FRAME_ROOM: usize = FRAME_PLAIN_BYTES_MAX + TAG_BYTES;

/// Room for several of the largest frames.
const BUFFER_BYTES: usize = 256 << 10;
/// As much room as some part of memory takes is kept from message to message.
const PLAIN_KEPT_MAX: usize = 512 << 10;
const _: () = assert!(FRAME_ROOM < PLAIN_KEPT_MAX);

impl LinkReader {
    /// Waits for the next message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        Ok(postcard::from_bytes(self.receive_bytes()?)?)
    }

    /// Waits for the next message; its bytes as they are.
    pub fn receive_bytes(&mut self) -> Result<&[u8]> {
        // What a large message took is not kept for all the small ones.
        if self.plain.len() > PLAIN_KEPT_MAX {
            self.plain = vec![0; FRAME_ROOM];
        }
        let mut count = self.receive_frame(0)?;
        let length = message_length(&self.plain[..count])?;
        while count < 4 + length {
            // What has come bounds the room made for more: a length alone takes no memory.
            let room = (4 + length).min(2 * count) + FRAME_ROOM;
            if self.plain.len() < room {
                self.plain.resize(room, 0);
            }
            count += self.receive_frame(count)?;
        }
        Ok(&self.plain[4..4 + length])
    }

    /// Some of the next message is here already, and the descriptor may not tell.
    pub fn has_more(&self) -> bool {
        self.start < self.end
    }

    /// Limits how long a `receive` waits for bytes; None waits for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        Ok(self.stream.set_read_timeout(timeout)?)
    }

    /// Waits for the answer to what was sent: as long as that still moves, and [`STANDSTILL_MAX`]
    /// more. A message of several frames is not for this: it would not be waited for to its end.
    ///
    /// # Errors
    /// `Standstill`, after which the link is of no more use; else as [`Self::receive`].
    pub fn receive_answer<T: DeserializeOwned>(&mut self, to: &LinkWriter) -> Result<T> {
        self.set_timeout(Some(STANDSTILL_MAX))?;
        let unacknowledged = || kernel::tcp::unacknowledged(&to.stream).map_err(|e| e.source);
        let mut left = unacknowledged()?;
        loop {
            let outcome = self.receive();
            if !matches!(&outcome, Err(LinkError::Silent)) {
                return outcome;
            }
            let left_before = std::mem::replace(&mut left, unacknowledged()?);
            if left >= left_before {
                return Err(LinkError::Standstill);
            }
        }
    }

    /// Opens the next frame to this place in `plain`; returns its length.
    fn receive_frame(&mut self, place: usize) -> Result<usize> {
        self.fill(2)?;
        let at = self.start;
        let length = usize::from(u16::from_be_bytes([self.buffer[at], self.buffer[at + 1]]));
        self.fill(2 + length)?;
        let at = self.start + 2;
        let count = self.opener.open(&self.buffer[at..at + length], &mut self.plain[place..])?;
        self.start += 2 + length;
        Ok(count)
    }

    /// Makes sure that `count` unconsumed bytes are there; no frame is larger than the buffer.
    fn fill(&mut self, count: usize) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + count > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < count {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(received) => self.end += received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Readable when more has come, or the link has ended.
impl AsFd for LinkReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The length at the head of a message's first frame, checked.
fn message_length(frame: &[u8]) -> Result<usize> {
    let head = frame.first_chunk::<4>().ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
    let length = u32::from_le_bytes(*head) as usize;
    if length > MESSAGE_BYTES_MAX { Err(LinkError::TooLarge(length)) } else { Ok(length) }
}

/// The sending half.
pub struct LinkWriter {
    stream: TcpStream,
    sealer: Sealer,
    /// Both are kept from message to message: growing anew costs a forwarded call more than its
    /// encryption.
    plain: Vec<u8>,
    sealed: Vec<u8>,
    bytes_sent: u64,
}

impl LinkWriter {
    /// Sends one message, blocking while the other side is slow.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        plain.extend([0; 4]);
        plain = postcard::to_extend(message, plain)?;
        let length = plain.len() - 4;
        if length > MESSAGE_BYTES_MAX {
            return Err(LinkError::TooLarge(length));
        }
        plain[..4].copy_from_slice(&(length as u32).to_le_bytes());
        self.sealed.clear();
        self.seal(&plain)?;
        self.stream.write_all(&self.sealed)?;
        self.bytes_sent += self.sealed.len() as u64;
        self.plain = plain;
        Ok(())
    }

    /// Sends one message of bytes, which need not lie together and are not copied together:
    /// sealed each for itself.
    pub fn send_bytes(&mut self, parts: &[&[u8]]) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > MESSAGE_BYTES_MAX {
            return Err(LinkError::TooLarge(length));
        }
        self.sealed.clear();
        self.seal(&(length as u32).to_le_bytes())?;
        parts.iter().try_for_each(|part| self.seal(part))?;
        self.stream.write_all(&self.sealed)?;
        self.bytes_sent += self.sealed.len() as u64;
        Ok(())
    }

    /// Adds the frames of these bytes to what is to be written.
    fn seal(&mut self, plain: &[u8]) -> Result<()> {
        for chunk in plain.chunks(FRAME_PLAIN_BYTES_MAX) {
            let at = self.sealed.len();
            self.sealed.resize(at + 2 + chunk.len() + TAG_BYTES, 0);
            let count = self.sealer.seal(chunk, &mut self.sealed[at + 2..])?;
            self.sealed[at..at + 2].copy_from_slice(&(count as u16).to_be_bytes());
        }
        Ok(())
    }

    /// While a process is copied ahead the link bears with a network or node that does nothing for
    /// some seconds.
    pub fn set_copying(&self) -> Result<()> {
        set_loss_timeout(&self.stream, COPYING_STANDSTILL_MAX)
    }

    /// Has the kernel hold back no more than this that it has not sent yet: then a write takes as
    /// long as the network does.
    pub fn set_unsent_max(&self, bytes: u32) -> Result<()> {
        kernel::tcp::bound_unsent(&self.stream, bytes).map_err(|error| error.source)?;
        Ok(())
    }

    /// What can end the link while somebody else writes to it.
    pub fn closer(&self) -> Result<Closer> {
        Ok(Closer(self.stream.try_clone()?))
    }

    /// While a process stands frozen for what is sent, the link breaks if nothing moves for
    /// [`STANDSTILL_MAX`]; else it bears with its network for longer.
    pub fn set_hurried(&self, is_hurried: bool) -> Result<()> {
        set_loss_timeout(&self.stream, if is_hurried { STANDSTILL_MAX } else { LOSS_TIMEOUT })
    }

    /// Bytes that went over the network so far.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Ends both directions: the reading half of either side returns.
    pub fn close(&self) {
        // Failure means that the connection is gone already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Ends a link whose halves are in use.
pub struct Closer(TcpStream);

impl Closer {
    /// As [`LinkWriter::close`].
    pub fn close(&self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::net::TcpListener;
    use wire::ids::{NodeId, Ticket};

    type End = Result<(LinkReader, LinkWriter)>;

    fn pair(key: [u8; 32], other_key: [u8; 32]) -> (End, End) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let berth = Berth {
            node: NodeId(1),
            address: listener.local_addr().unwrap(),
            ticket: Ticket([7; 16]),
            key,
        };
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut preface = [0; wire::supervisor::PREFACE_BYTES];
            stream.read_exact(&mut preface).unwrap();
            assert_eq!(Preface::decode(&preface).unwrap().ticket, Ticket([7; 16]));
            accept(stream, &other_key)
        });
        let client = connect(&berth, Role::Deputy);
        (client, server.join().unwrap())
    }

    #[test]
    fn messages_of_every_size_arrive_in_order() {
        let (client, server) = pair([1; 32], [1; 32]);
        let (mut writer, mut reader) = (client.unwrap().1, server.unwrap().0);
        let sizes = [0usize, 1, 100, FRAME_PLAIN_BYTES_MAX - 5, FRAME_PLAIN_BYTES_MAX, 1_000_000];
        let sender = std::thread::spawn(move || {
            for size in sizes {
                writer.send(&vec![size as u8; size]).unwrap();
            }
        });
        for size in sizes {
            assert_eq!(reader.receive::<Vec<u8>>().unwrap(), vec![size as u8; size]);
        }
        sender.join().unwrap();
        assert!(reader.receive::<Vec<u8>>().is_err());
    }

    #[test]
    fn an_answer_is_waited_for_while_what_was_sent_still_moves() {
        let (client, server) = pair([1; 32], [1; 32]);
        let (mut reader, mut writer) = client.unwrap();
        let (mut other_reader, mut other_writer) = server.unwrap();
        // Nobody reads, so it cannot all be received; then it is, and answered.
        let size = 4 << 20;
        let sender = std::thread::spawn(move || {
            writer.set_hurried(true).unwrap();
            (0..4).for_each(|_| writer.send(&vec![7u8; size]).unwrap());
            (reader.receive_answer::<u32>(&writer), reader, writer)
        });
        for _ in 0..4 {
            assert_eq!(other_reader.receive::<Vec<u8>>().unwrap().len(), size);
        }
        other_writer.send(&9u32).unwrap();
        let (answer, mut reader, mut writer) = sender.join().unwrap();
        assert_eq!(answer.unwrap(), 9);
        writer.send(&1u32).unwrap();
        let silence = reader.receive_answer::<u32>(&writer);
        assert!(matches!(silence, Err(LinkError::Standstill)), "{silence:?}");
    }

    #[test]
    fn bytes_arrive_as_one_message_however_they_were_put_together() {
        let (client, server) = pair([1; 32], [1; 32]);
        let (mut writer, mut reader) = (client.unwrap().1, server.unwrap().0);
        let large: Vec<u8> = (0..700_000u32).map(|at| (at % 251) as u8).collect();
        let parts = [&b"head"[..], b"", &large];
        let sender = std::thread::spawn({
            let large = large.clone();
            move || {
                writer.send_bytes(&[]).unwrap();
                writer.send_bytes(&[b"head", b"", &large]).unwrap();
                writer.send(&7u32).unwrap();
                let too_large = vec![0; MESSAGE_BYTES_MAX];
                let refused = writer.send_bytes(&[&too_large, b"x"]);
                assert!(matches!(refused, Err(LinkError::TooLarge(_))));
            }
        });
        assert_eq!(reader.receive_bytes().unwrap(), b"");
        assert_eq!(reader.receive_bytes().unwrap(), parts.concat());
        assert_eq!(reader.receive::<u32>().unwrap(), 7);
        assert_eq!(reader.plain.len(), FRAME_ROOM, "room for a large message is given back");
        sender.join().unwrap();
    }

    /// Somebody with the key who says that much comes, and no more.
    #[test]
    fn a_length_alone_takes_no_memory() {
        let (client, server) = pair([1; 32], [1; 32]);
        let (mut writer, mut reader) = (client.unwrap().1, server.unwrap().0);
        writer.sealed.clear();
        writer.seal(&(MESSAGE_BYTES_MAX as u32).to_le_bytes()).unwrap();
        writer.stream.write_all(&writer.sealed).unwrap();
        writer.close();
        assert!(reader.receive_bytes().is_err());
        assert!(reader.plain.len() < 2 * FRAME_ROOM, "{}", reader.plain.len());
    }

    #[test]
    fn wrong_key_gets_no_link() {
        let (client, server) = pair([1; 32], [2; 32]);
        assert!(server.is_err());
        assert!(client.is_err());
    }
}
