//! The source's side of what goes to a target over its link and over streams: contents take the
//! streams, if there are any, and the link says in between what has gone over them.

use crate::Result;
use crate::pacing::Pacing;
use crate::parts::Part;
use crate::streams::Streams;
use link::LinkWriter;
use std::sync::Arc;
use std::time::Instant;
use wire::forward::ToAway;
use wire::move_limits::MoveLimits;
use wire::supervisor::Berth;

/// Memory that goes to one target. It has to stay until the target says that it has everything.
pub struct Outflow {
    streams: Option<Streams>,
    /// Until the image: from then on somebody waits.
    pacing: Arc<Pacing>,
    /// Drafts that the target was told, and the image.
    epoch: u32,
    /// What is left goes over the link.
    is_over: bool,
}

impl Outflow {
    /// To a berth that was told a draft and no other, over more connections if they are worth it
    /// for so much memory, and within what the owners of both nodes allow.
    ///
    /// # Errors
    /// Of the link.
    pub fn open(
        berth: &Berth,
        link: &mut LinkWriter,
        (memory_bytes, limits): (u64, MoveLimits),
    ) -> Result<Outflow> {
        let pacing = Arc::new(Pacing::of(limits.bandwidth));
        let streams = Streams::open(berth, link, (memory_bytes, limits), &pacing)?;
        Ok(Outflow { streams, pacing, epoch: 1, is_over: false })
    }

    /// # Errors
    /// Of the link or of a stream, of which what it had to send is lost.
    pub fn send(&mut self, part: Part, link: &mut LinkWriter) -> Result<()> {
        match (self.streams.as_mut().filter(|_| !self.is_over), part) {
            (Some(streams), Part::Pages(pages)) => {
                // A link that is silent for long means that no more comes.
                if streams.is_due() {
                    tell(streams, link)?;
                }
                streams.send(self.epoch, pages)
            }
            (_, part) => {
                let (began, bytes) = (Instant::now(), part.bytes() as usize);
                link.send(&ToAway::from(part))?;
                self.pacing.sent(bytes, began);
                Ok(())
            }
        }
    }

    /// What is said on the link after this comes after all that was sent.
    ///
    /// # Errors
    /// Of the link.
    pub fn tell(&self, link: &mut LinkWriter) -> Result<()> {
        self.streams.iter().filter(|_| !self.is_over).try_for_each(|streams| tell(streams, link))
    }

    /// The target has been told one more draft.
    pub fn begin_epoch(&mut self) {
        self.epoch += 1;
    }

    /// The target has been told the image, and so many bytes are left.
    pub fn begin_last(&mut self, left: u64) {
        self.begin_epoch();
        self.pacing.lift();
        self.is_over = self.streams.as_ref().is_some_and(|it| !it.are_for_last(left));
    }

    /// The threads of the streams.
    pub fn senders(&self) -> &[i32] {
        self.streams.as_ref().map_or(&[], Streams::tids)
    }

    /// Bytes that went over streams.
    pub fn bytes_streamed(&self) -> u64 {
        self.streams.as_ref().map_or(0, Streams::bytes_sent)
    }
}

fn tell(streams: &Streams, link: &mut LinkWriter) -> Result<()> {
    Ok(link.send(&ToAway::Streamed { parts: streams.parts() })?)
}
