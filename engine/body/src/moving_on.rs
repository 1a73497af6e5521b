//! Sending the body on to another node: the offer, the move, and what the next node says until home
//! has decided which of the two lives.

use crate::arrival::Link;
use crate::capture;
use crate::leaving::is_broken;
use crate::state::Order;
use crate::tracing_loop::{End, Tracing};
use migrate::backing::Library;
use migrate::offer::Offerer;
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::image::Prospect;
use wire::supervisor::{Berth, Role};

/// How long it waits before the node that it was sent to is asked to give it back, if that is not
/// its home: that node can always say whether home has had it run there, and home may be out of
/// reach of both.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

impl Tracing<'_> {
    /// Offers the body to another node. It runs on until that has answered, with all its signals
    /// and stops: so somebody else waits for the answer.
    pub(crate) fn offer_to(&mut self, berth: Berth) {
        self.offers += 1;
        let number = self.offers;
        let (shared, library) = (self.shared.clone(), self.library.clone());
        let prospect = self.prospect.clone();
        let offer = move || {
            let outcome = offer(&berth, prospect, &library);
            shared.order(Order::Offered { number, outcome });
        };
        if let Err(error) = std::thread::Builder::new().name("offer".into()).spawn(offer) {
            let text = format!("cannot offer it to another node: {error}");
            self.shared.send(ToHome::Stayed(reason("no-offer", text)));
        }
    }

    /// Sends the body to the node that takes it; home decides when that may run it.
    pub(crate) fn move_on(&mut self, offered: Result<Link>) -> Result<End> {
        let mut link = match offered {
            Ok(link) => link,
            Err(error) => {
                self.shared.send(ToHome::Stayed(error.reason()));
                return Ok(End::Continues);
            }
        };
        let drafted = capture::draft(&self.shared, &self.fixed())
            .and_then(|draft| migrate::offer::draft(&mut link, draft));
        if let Err(error) = drafted {
            self.shared.send(ToHome::Stayed(error.reason()));
            return Ok(End::Continues);
        }
        let frozen_at = Instant::now();
        match self.freeze() {
            Ok(()) => {}
            Err(error) if is_broken(&error) => return Err(error),
            Err(error) => return self.stay(error.reason()),
        }
        match self.send_image(&mut link) {
            Err(error) if is_broken(&error) => Err(error),
            Ok(bytes_sent) => {
                let freeze_began_us_ago = frozen_at.elapsed().as_micros() as u64;
                self.shared.send(ToHome::MovedOn { bytes_sent, freeze_began_us_ago });
                self.await_verdict(Some(Successor::new(link)))
            }
            Err(error) => self.stay(error.reason()),
        }
    }

    fn send_image(&self, (reader, writer): &mut Link) -> Result<u64> {
        let image = self.capture()?;
        let (head, parts) = image.clone().into_parts();
        writer.send(&ToAway::Image(Box::new(head)))?;
        parts.into_iter().try_for_each(|part| writer.send(&ToAway::Threads(part)))?;
        capture::memory(&self.shared, &image, &mut |part| Ok(writer.send(&ToAway::from(part))?))?;
        writer.send(&ToAway::ImageSent)?;
        match reader.receive_answer(writer)? {
            ToHome::Restored => Ok(writer.bytes_sent()),
            ToHome::Refused(why) => Err(MigrateError::Refused(why)),
            _ => Err(MigrateError::Protocol("no answer to the image".into())),
        }
    }
}

/// Everything that can be done before the body is stopped.
fn offer(berth: &Berth, prospect: Prospect, library: &Library) -> Result<Link> {
    let mut link = link::connect(berth, Role::Image)?;
    let prospect = Prospect { backings: library.descriptions(), ..prospect };
    migrate::offer::offer(&mut link, Offerer::Away, prospect, library)?;
    link.1.set_hurried(true)?;
    Ok(link)
}

/// The node that a frozen body was sent to, until it is known which of the two lives.
pub(crate) struct Successor {
    pub(crate) link: Link,
    /// When it is to be asked to give the body back, once.
    pub(crate) call_back_at: Option<Instant>,
}

pub(crate) enum Word {
    Silent,
    /// It will not run the body, whatever home says to it.
    GivesBack,
    /// What it does only home can tell.
    Gone,
}

impl Successor {
    fn new(link: Link) -> Successor {
        Successor { link, call_back_at: Some(Instant::now() + HOME_PATIENCE) }
    }

    pub(crate) fn poll(&mut self) -> Word {
        let (reader, writer) = &mut self.link;
        if self.call_back_at.take_if(|at| *at <= Instant::now()).is_some()
            && writer.send(&ToAway::Release).is_err()
        {
            return Word::Gone;
        }
        let mut watched = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        if poll(&mut watched, PollTimeout::ZERO) == Ok(0) {
            return Word::Silent;
        }
        match reader.receive() {
            Ok(ToHome::Refused(_)) => Word::GivesBack,
            _ => Word::Gone,
        }
    }
}
