//! Where the body goes: on to another node, or home.

use crate::commons::Commons;
use crate::homecoming::{self, Ending, Home};
use crate::notice::Notice;
use crate::priorities;
use crate::service::{End, Service};
use link::{LinkReader, LinkWriter};
use migrate::stopwatch::{Stopwatch, micros};
use migrate::{MigrateError, Result, machine, reason};
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::supervisor::{Berth, CLOCKS_PER_PACKET, FromDeputy, MoveReport, Reason, Role, Way};

/// A link as its two halves.
pub type Link = (LinkReader, LinkWriter);

/// What the body was asked to do.
pub enum Pending {
    ComeHome,
    /// Nothing yet: the node that it is to go to is being asked, in this connection of ours.
    Connecting {
        number: u64,
        berth: Berth,
        watch: Stopwatch,
    },
    /// With the link to the node that it goes to.
    MoveOn {
        berth: Berth,
        link: Box<Link>,
        watch: Stopwatch,
    },
}

/// A node that does not ask for the time for so long will not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Why a process comes home that needs nothing there.
const ASKED: &str = "asked";
/// After a homecoming that failed, before the next that nobody asked for.
const RECALL_PAUSE: Duration = Duration::from_secs(5);

/// Calls the next node and tells it the time.
fn connect(target: &Berth) -> Result<Link> {
    let mut link = link::connect(target, Role::Deputy)?;
    link.0.set_timeout(Some(ANSWER_TIMEOUT))?;
    link.1.send(&ToAway::AwaitImage { boot_id: machine::boot_id()? })?;
    migrate::time::tell(&mut link)?;
    link.0.set_timeout(None)?;
    Ok(link)
}

/// Has the next node, which has the image, run it.
fn run_there(reader: &mut LinkReader, writer: &mut LinkWriter) -> Result<()> {
    match reader.receive_answer(writer)? {
        ToHome::Restored => {}
        ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
        _ => return Err(MigrateError::Protocol("the next node has no body".into())),
    }
    writer.send(&ToAway::Run)?;
    match reader.receive_answer(writer)? {
        ToHome::Running => Ok(()),
        // The node that has the body has called it back: it could not wait for us.
        ToHome::Refused(reason) => Err(MigrateError::Refused(reason)),
        _ => Err(MigrateError::Protocol("the next node does not run it".into())),
    }
}

impl Service<'_> {
    /// Calls the node that the body is to move on to.
    pub fn send_on(&mut self, berth: Berth, way: Way) {
        if way == Way::PostCopy {
            let text = "pages come behind a process only when it leaves its home";
            let reason = reason("no-late-pages", text);
            return self.daemon.send(&FromDeputy::Stayed { reason });
        }
        if self.pending.is_some() {
            let reason = reason("moving", "it is on the move already");
            return self.daemon.send(&FromDeputy::Stayed { reason });
        }
        self.connections += 1;
        let (shared, number, target) = (self.shared.clone(), self.connections, berth.clone());
        let connect = move || {
            let outcome = connect(&target).map(Box::new);
            shared.notify(Notice::Connected { number, outcome });
        };
        // Signals of the process do not wait for a node that does not answer.
        match std::thread::Builder::new().name("connect".into()).spawn(connect) {
            Ok(_) => {
                let watch = Stopwatch::start();
                self.pending = Some(Pending::Connecting { number, berth, watch });
            }
            Err(error) => {
                let reason = reason("no-connection", format!("cannot call the next node: {error}"));
                self.daemon.send(&FromDeputy::Stayed { reason });
            }
        }
    }

    /// The move to another node is not wanted any more. Once the body stands frozen for it, it is
    /// carried out; a homecoming always is.
    pub fn call_off(&mut self, reason: Reason) {
        match &self.pending {
            Some(Pending::Connecting { .. }) => {
                self.pending = None;
                self.daemon.send(&FromDeputy::Stayed { reason });
            }
            Some(Pending::MoveOn { .. }) => self.shared.send(&ToAway::CallOff(reason)),
            Some(Pending::ComeHome) | None => {}
        }
    }

    /// The next node has answered, or does not. If the body has come home meanwhile, or wants to,
    /// nobody is interested any more.
    pub fn on_connected(&mut self, number: u64, outcome: Result<Box<Link>>) {
        let is_awaited =
            |p: &mut Pending| matches!(p, Pending::Connecting { number: n, .. } if *n == number);
        let Some(Pending::Connecting { berth, mut watch, .. }) = self.pending.take_if(is_awaited)
        else {
            return;
        };
        match outcome {
            Ok(link) => {
                watch.phase("connect");
                let (freeze_budget, limits) = (self.freeze_budget, self.limits);
                let next = berth.clone();
                self.shared.send(&ToAway::MoveOn { berth: next, freeze_budget, limits });
                self.pending = Some(Pending::MoveOn { berth, link, watch });
            }
            Err(error) => {
                let reason = error.reason();
                self.daemon.send(&FromDeputy::Stayed { reason });
            }
        }
    }

    pub fn on_leaving(&mut self, message: ToHome, reader: LinkReader) -> Result<End> {
        match (message, self.pending.take()) {
            (ToHome::MovedOn(report), Some(moving)) => {
                self.finish_move(moving, reader, *report)?;
                Ok(End::Continues)
            }
            (ToHome::NeedsHome(reason), _) => self.come_home(reader, reason),
            (ToHome::Frozen, Some(_)) => {
                let asked = || reason(ASKED, "it was asked to");
                let why = self.onlookers.why().unwrap_or_else(asked);
                self.come_home(reader, why)
            }
            _ => Err(MigrateError::Protocol("the body froze unasked".into())),
        }
    }

    /// The next node has the image: it becomes the place, and the last one lets go.
    fn finish_move(
        &mut self,
        moving: Pending,
        former_reader: LinkReader,
        report: MoveReport,
    ) -> Result<()> {
        let Pending::MoveOn { berth, link, mut watch } = moving else {
            return Err(MigrateError::Protocol("the body moved on unasked".into()));
        };
        let taken_over = Instant::now();
        let told_us = watch.insert("ask", report.phases_us, "tell");
        let (mut reader, mut writer) = *link;
        if let Err(error) = run_there(&mut reader, &mut writer) {
            // The last node has the whole process still. Should the next one run it for a moment,
            // nobody hears of that: its link is closed.
            writer.close();
            self.shared.send(&ToAway::Resume);
            self.listen(former_reader);
            self.daemon.send(&FromDeputy::Stayed { reason: error.reason() });
            return Ok(());
        }
        watch.phase("run");
        let frozen_us = report.freeze_us.saturating_add(told_us);
        let report = MoveReport {
            freeze_us: frozen_us.saturating_add(micros(taken_over.elapsed())),
            total_us: watch.total_us(),
            phases_us: watch.into_phases(),
            freeze_budget: self.freeze_budget,
            ..report
        };
        reader.set_timeout(None)?;
        if self.is_held {
            writer.send(&ToAway::Stop)?;
        }
        let mut former = std::mem::replace(&mut *self.shared.writer(), writer);
        // The last node may be gone; then it has let go already.
        let _ = former.send(&ToAway::Release);
        former.close();
        self.repeat_signals();
        // What the last body was told too late did not come along.
        (0..self.shared.lanes.count())
            .for_each(|slot| self.shared.lanes.lock(slot).priority = None);
        priorities::tell(&self.shared);
        self.shared.direct_files.follow(berth.node);
        self.listen(reader);
        self.berth = berth;
        // The next kernel gives its memory other names.
        self.commons = Commons::default();
        self.daemon.send(&FromDeputy::Moved { to: self.berth.node, report });
        Ok(())
    }

    /// Signals that the last body may have got too late to take them along.
    fn repeat_signals(&self) {
        for slot in 0..self.shared.lanes.count() {
            let unseen: Vec<_> =
                self.shared.lanes.lock(slot).signals_unseen.iter().cloned().collect();
            unseen.into_iter().for_each(|signal| self.shared.send(&ToAway::Signal(signal)));
        }
    }

    fn come_home(&mut self, reader: LinkReader, reason: Reason) -> Result<End> {
        self.stop_waiter();
        let is_deadly = !self.death.signals.is_empty();
        // The body asks for them again if it lives on where it is.
        self.shared.held_replies.forget();
        match homecoming::run(self, reader)? {
            Ending::Home(Home { report, waits, clocks }) => {
                self.send_usage(true);
                if !waits.is_empty() {
                    self.daemon.send(&FromDeputy::Waits(waits));
                }
                for part in clocks.chunks(CLOCKS_PER_PACKET) {
                    self.daemon.send(&FromDeputy::Clocks(part.to_vec()));
                }
                self.daemon.send(&FromDeputy::CameHome { reason, report });
                Ok(End::Goes)
            }
            Ending::Away { error, reader, goes_on } => {
                let mut failure = error.reason();
                if is_deadly {
                    self.death.cannot_be_at_home(&failure);
                }
                self.next_recall = Instant::now() + RECALL_PAUSE;
                self.start_waiter();
                if !goes_on {
                    self.shared.send(&ToAway::Resume);
                }
                self.listen(reader);
                if reason.code != ASKED {
                    failure.text =
                        format!("{}, for which it needs its home: {}", reason.text, failure.text);
                }
                self.daemon.send(&FromDeputy::Stayed { reason: failure });
                Ok(End::Continues)
            }
        }
    }
}
