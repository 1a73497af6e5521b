//! One open, encrypted link to another node's daemon: frames of `length (2 bytes, big-endian)` and
//! that many encrypted bytes, one [`PeerMessage`] each. A link that is silent for too long, or
//! whose other side takes nothing, is closed; the daemon dials again.

use crate::daemon::Event;
use crate::keys::handshake::{Opener, Sealer};
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::ids::NodeId;
use wire::peer::PeerMessage;

/// Messages waiting to be sent over one link.
const QUEUE_MAX: usize = 1_024;
/// An idle side says so this often ...
const PING_EVERY: Duration = Duration::from_secs(2);
/// ... and a side that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(7);
/// One look at a silent side counts for no more than this: while this machine stood still (a laptop
/// asleep, a virtual machine that is saved) its clock went on, and nobody could be heard.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long the last words may take.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);

/// A connection whose handshake has succeeded.
pub struct OpenLink {
    pub stream: TcpStream,
    pub sealer: Sealer,
    pub opener: Opener,
}

/// Which of the links to a node, over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(pub u64);

/// The daemon's end of a link. Dropping it closes the connection.
pub struct Link {
    pub id: LinkId,
    /// This node made the call.
    pub is_dialed: bool,
    messages: mpsc::Sender<PeerMessage>,
    hearing: Task,
    saying: Task,
}

/// Ends with the one who holds it.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Starts to serve `open`. What is said there arrives as [`Event::Said`].
    pub fn start(
        id: LinkId,
        node: NodeId,
        is_dialed: bool,
        open: OpenLink,
        events: mpsc::Sender<Event>,
    ) -> Link {
        let (messages, waiting) = mpsc::channel(QUEUE_MAX);
        let OpenLink { stream, sealer, opener } = open;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("node {node}: no TCP_NODELAY: {error}");
        }
        if let Err(error) = kernel::tcp::bound_resend_pause(&stream) {
            tracing::debug!("node {node}: {error}");
        }
        let (reader, writer) = stream.into_split();
        let heard = events.clone();
        let hear = tokio::spawn(async move {
            let error = hear(id, node, reader, opener, &heard).await;
            let _ = heard.send(Event::LinkLost { node, link: id, error }).await;
        });
        let say = tokio::spawn(async move {
            if let Err(error) = say(writer, sealer, waiting).await {
                let _ = events.send(Event::LinkLost { node, link: id, error }).await;
            }
        });
        Link { id, is_dialed, messages, hearing: Task(hear), saying: Task(say) }
    }

    /// False if the other side takes nothing any more.
    pub fn send(&self, message: PeerMessage) -> bool {
        self.messages.try_send(message).is_ok()
    }

    pub fn speaker(&self) -> Speaker {
        Speaker(self.messages.downgrade())
    }

    /// Closes the link when what waits has been sent, or does not get away in time.
    pub async fn finish(self) {
        let Link { messages, hearing, mut saying, .. } = self;
        drop((messages, hearing));
        let _ = timeout(FAREWELL_PATIENCE, &mut saying.0).await;
    }
}

/// Says something over a link from outside of the dispatcher, for as long as the link is there.
#[derive(Clone)]
pub struct Speaker(mpsc::WeakSender<PeerMessage>);

impl Speaker {
    #[cfg(test)]
    pub fn of(messages: &mpsc::Sender<PeerMessage>) -> Speaker {
        Speaker(messages.downgrade())
    }

    /// Waits for room. False if the link is lost.
    pub async fn say(&self, message: PeerMessage) -> bool {
        let Some(messages) = self.0.upgrade() else { return false };
        messages.send(message).await.is_ok()
    }

    /// False if the link is lost, or there is no room.
    pub fn try_say(&self, message: PeerMessage) -> bool {
        self.0.upgrade().is_some_and(|messages| messages.try_send(message).is_ok())
    }
}

/// Reads until the link breaks; says how it broke.
async fn hear(
    id: LinkId,
    node: NodeId,
    mut reader: OwnedReadHalf,
    mut opener: Opener,
    events: &mpsc::Sender<Event>,
) -> io::Error {
    loop {
        let frame = match within_silence(read_frame(&mut reader), "silent for too long").await {
            Ok(frame) => frame,
            Err(error) => return error,
        };
        let message = match open(&mut opener, &frame) {
            Ok(PeerMessage::Ping) => continue,
            Ok(message) => message,
            Err(error) => return error,
        };
        if events.send(Event::Said { node, link: id, message }).await.is_err() {
            return io::Error::other("the daemon ends");
        }
    }
}

/// Waits for what a side says or takes, as long as it may be silent; then it is `late`.
async fn within_silence<T>(
    said: impl Future<Output = io::Result<T>>,
    late: &'static str,
) -> io::Result<T> {
    let mut said = pin!(said);
    let mut silence = Silence::default();
    while !silence.is_too_long() {
        let began = Instant::now();
        if let Ok(outcome) = timeout(LOOK_MAX, &mut said).await {
            return outcome;
        }
        silence.looked_for(began.elapsed());
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, late))
}

/// How long a side has said nothing while it could have been heard.
#[derive(Default)]
struct Silence(Duration);

impl Silence {
    fn looked_for(&mut self, span: Duration) {
        self.0 += span.min(LOOK_MAX);
    }

    fn is_too_long(&self) -> bool {
        self.0 >= SILENCE_MAX
    }
}

async fn say(
    mut writer: OwnedWriteHalf,
    mut sealer: Sealer,
    mut waiting: mpsc::Receiver<PeerMessage>,
) -> io::Result<()> {
    loop {
        let message = match timeout(PING_EVERY, waiting.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(_) => PeerMessage::Ping,
        };
        let plain = wire::peer::encode(&message).map_err(io::Error::other)?;
        let sealed = sealer.seal(&plain).map_err(io::Error::other)?;
        within_silence(write_frame(&mut writer, &sealed), "takes nothing").await?;
    }
}

/// Reads one message of a link that is not served yet.
pub async fn hear_one(open_link: &mut OpenLink) -> io::Result<PeerMessage> {
    let frame = read_frame(&mut open_link.stream).await?;
    open(&mut open_link.opener, &frame)
}

fn open(opener: &mut Opener, frame: &[u8]) -> io::Result<PeerMessage> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let plain = opener.open(frame).map_err(|_| invalid("a frame that was altered".to_owned()))?;
    wire::peer::decode(&plain).map_err(|error| invalid(error.to_string()))
}

/// Reads a length and that many bytes; 16 bits cannot ask for much.
pub async fn read_frame(reader: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; usize::from(reader.read_u16().await?)];
    reader.read_exact(&mut frame).await?;
    Ok(frame)
}

pub async fn write_frame(
    writer: &mut (impl AsyncWriteExt + Unpin),
    frame: &[u8],
) -> io::Result<()> {
    let length = u16::try_from(frame.len()).map_err(io::Error::other)?;
    writer.write_all(&[&length.to_be_bytes(), frame].concat()).await
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_side_may_be_silent_for_so_long_and_no_longer() {
        let mut silence = Silence::default();
        let looks = (1..).find(|_| {
            silence.looked_for(LOOK_MAX);
            silence.is_too_long()
        });
        assert_eq!(looks.unwrap() * LOOK_MAX, SILENCE_MAX);
    }

    #[test]
    fn a_machine_that_stood_still_does_not_take_the_other_for_gone() {
        let mut silence = Silence::default();
        silence.looked_for(Duration::from_secs(3_600));
        assert!(!silence.is_too_long());
    }
}
