//! What a job server waits for: words of the launcher, of the daemon and of its own threads, which
//! come over a channel with a bell, and what the kernel tells of streams and children.

use kernel::packet;
use link::LinkReader;
use nix::sys::eventfd::EventFd;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use wire::files::decode;
use wire::jobs::{STREAM_BYTES_MAX, Stream, ToRanks};
use wire::supervisor::PACKET_BYTES_MAX;

/// What comes from other threads.
pub enum Event {
    Said(ToRanks, Vec<u8>),
    NotTaken(u32, String),
    /// The launcher is gone, or says what none of ours says.
    Lost(String),
    /// The node has no more jobs of others.
    NotWanted,
}

/// What an event of the kernel is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Woken,
    Child,
    Output(u32, Stream),
    Input(u32),
}

impl Source {
    pub fn number(self) -> u64 {
        match self {
            Source::Woken => 0,
            Source::Child => 1,
            Source::Output(rank, Stream::Output) => 4 + u64::from(rank) * 4,
            Source::Output(rank, Stream::Error) => 5 + u64::from(rank) * 4,
            Source::Input(rank) => 6 + u64::from(rank) * 4,
        }
    }

    pub fn of(number: u64) -> Source {
        let rank = (number / 4).saturating_sub(1) as u32;
        match (number, number % 4) {
            (0, _) => Source::Woken,
            (1, _) => Source::Child,
            (_, 0) => Source::Output(rank, Stream::Output),
            (_, 1) => Source::Output(rank, Stream::Error),
            _ => Source::Input(rank),
        }
    }
}

/// Starts the threads that hear the launcher and the daemon.
pub fn listen(
    mut reader: LinkReader,
    daemon: OwnedFd,
    events: &SyncSender<Event>,
    wake_up: &Arc<EventFd>,
) -> io::Result<()> {
    let (to, bell) = (events.clone(), wake_up.clone());
    std::thread::Builder::new().name("launcher".into()).spawn(move || {
        loop {
            let event = match hear(&mut reader) {
                Ok((said, content)) => Event::Said(said, content),
                Err(why) => Event::Lost(why),
            };
            let is_last = matches!(event, Event::Lost(_));
            if to.send(event).is_err() || bell.write(1).is_err() || is_last {
                return;
            }
        }
    })?;
    let (to, bell) = (events.clone(), wake_up.clone());
    std::thread::Builder::new().name("daemon".into()).spawn(move || {
        // Its end is nothing to us: the next one knows of the ranks.
        if let Ok(Some(_)) = packet::receive(&daemon, PACKET_BYTES_MAX)
            && to.send(Event::NotWanted).is_ok()
        {
            let _ = bell.write(1);
        }
    })?;
    Ok(())
}

fn hear(reader: &mut LinkReader) -> Result<(ToRanks, Vec<u8>), String> {
    let message = reader.receive_bytes().map_err(|error| error.to_string())?;
    let (said, content) = decode(message).map_err(|error| error.to_string())?;
    if content.len() > STREAM_BYTES_MAX {
        return Err(format!("a message with {} bytes of content", content.len()));
    }
    Ok((said, content.to_vec()))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_source_is_known_again_by_its_number() {
        let streams = [Stream::Output, Stream::Error];
        for rank in [0, 1, 4095, u32::MAX] {
            for source in streams.map(|stream| Source::Output(rank, stream)) {
                assert_eq!(Source::of(source.number()), source);
            }
            assert_eq!(Source::of(Source::Input(rank).number()), Source::Input(rank));
        }
        assert_eq!(Source::of(Source::Woken.number()), Source::Woken);
        assert_eq!(Source::of(Source::Child.number()), Source::Child);
    }
}
