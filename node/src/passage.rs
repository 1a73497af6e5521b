//! The ways into and out of a cluster, and out of this node: which of them it is on, and who is to
//! be told when it has come to their end.
//!
//! * Joining: a node of another cluster was called, and has not answered yet.
//! * Leaving: guests and processes go home, then this node is alone. If they do not in time, it
//!   stays.
//! * Going down: the same, and whatever is not home by then is given up.
//! * Handing over: the daemon ends at once, and everything stays where it is for the next one.
//!
//! Going down is begun whatever else is under way; leaving is refused to a node that does any of
//! the first three.

use crate::control::Answer;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long processes and guests have to go home before the daemon ends without them.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long processes and guests have to go home before this node does not leave.
pub const LEAVE_PATIENCE: Duration = Duration::from_secs(30);

type Asker = oneshot::Sender<Answer>;

/// This node's way out of its cluster.
struct Leaving {
    until: Instant,
    asker: Asker,
}

/// The way down.
struct Drain {
    until: Instant,
    askers: Vec<Asker>,
}

#[derive(Default)]
pub struct Passage {
    joining: Option<Asker>,
    leaving: Option<Leaving>,
    drain: Option<Drain>,
    /// Who is told when this daemon has ended and left everything to the next.
    heirs: Vec<Asker>,
}

impl Passage {
    pub fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    pub fn begin_joining(&mut self, asker: Asker) {
        self.joining = Some(asker);
    }

    /// Whom to tell how it ended.
    pub fn end_joining(&mut self) -> Option<Asker> {
        self.joining.take()
    }

    pub fn why_not_leave(&self) -> Option<&'static str> {
        if self.is_going_down() {
            Some("this node is going down")
        } else if self.is_leaving() {
            Some("this node is just leaving")
        } else if self.is_joining() {
            Some("this node is just joining a cluster")
        } else {
            None
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    pub fn begin_leaving(&mut self, now: Instant, asker: Asker) {
        self.leaving = Some(Leaving { until: now + LEAVE_PATIENCE, asker });
    }

    /// Whom to tell that this node leaves, or does not; None as long as somebody may still go home.
    pub fn end_leaving(&mut self, now: Instant, are_all_home: bool) -> Option<Asker> {
        let leaving = self.leaving.take_if(|leaving| are_all_home || now >= leaving.until);
        leaving.map(|leaving| leaving.asker)
    }

    pub fn is_going_down(&self) -> bool {
        self.drain.is_some()
    }

    /// True if it was not begun before.
    pub fn begin_drain(&mut self, now: Instant, asker: Option<Asker>) -> bool {
        let is_first = self.drain.is_none();
        let until = now + DRAIN_PATIENCE;
        let drain = self.drain.get_or_insert(Drain { until, askers: Vec::new() });
        drain.askers.extend(asker);
        is_first
    }

    /// Whether this node goes down now.
    pub fn is_drained(&self, now: Instant, are_all_home: bool) -> bool {
        self.drain.as_ref().is_some_and(|drain| are_all_home || now >= drain.until)
    }

    /// Whether nobody comes and nothing goes away any more.
    pub fn is_closing(&self) -> bool {
        self.is_going_down() || self.is_leaving()
    }

    /// Another daemon is about to take everything over.
    pub fn hand_over(&mut self, heir: Asker) {
        self.heirs.push(heir);
    }

    pub fn is_handing_over(&self) -> bool {
        !self.heirs.is_empty()
    }

    /// All who are told that this daemon has ended.
    pub fn end(&mut self) -> impl Iterator<Item = Asker> + use<> {
        let askers = self.drain.take().map(|drain| drain.askers).unwrap_or_default();
        askers.into_iter().chain(std::mem::take(&mut self.heirs))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::control::Reply;

    fn asker() -> Asker {
        oneshot::channel().0
    }

    #[test]
    fn there_is_one_way_out_of_a_cluster_at_a_time() {
        let (mut passage, now) = (Passage::default(), Instant::now());
        assert_eq!(passage.why_not_leave(), None);
        passage.begin_joining(asker());
        assert!(passage.why_not_leave().unwrap().contains("joining"));
        assert!(!passage.is_closing(), "it is still what it was");
        assert!(passage.end_joining().is_some() && passage.end_joining().is_none());
        passage.begin_leaving(now, asker());
        assert!(passage.why_not_leave().unwrap().contains("leaving") && passage.is_closing());
        assert!(passage.begin_drain(now, None), "that comes before all else");
        assert!(passage.why_not_leave().unwrap().contains("down"));
    }

    #[test]
    fn a_node_leaves_when_all_are_home_and_stays_if_they_are_not_in_time() {
        let (mut passage, now) = (Passage::default(), Instant::now());
        assert!(passage.end_leaving(now, true).is_none(), "nobody wants it");
        passage.begin_leaving(now, asker());
        assert!(passage.end_leaving(now, false).is_none());
        assert!(passage.end_leaving(now, true).is_some() && !passage.is_closing());
        passage.begin_leaving(now, asker());
        assert!(passage.end_leaving(now + LEAVE_PATIENCE, false).is_some());
        assert!(!passage.is_leaving());
    }

    #[test]
    fn a_node_goes_down_once_and_all_who_asked_are_told() {
        let (mut passage, now) = (Passage::default(), Instant::now());
        assert!(!passage.is_drained(now, true), "nobody wants it");
        let (first, told) = oneshot::channel();
        assert!(passage.begin_drain(now, Some(first)));
        assert!(!passage.begin_drain(now + DRAIN_PATIENCE, Some(asker())));
        let mut told_by_signal = Passage::default();
        assert!(told_by_signal.begin_drain(now, None), "a signal waits for no answer");
        assert!(!told_by_signal.begin_drain(now, Some(asker())), "it is said farewell to once");
        assert!(!passage.is_drained(now, false) && passage.is_drained(now, true));
        assert!(passage.is_drained(now + DRAIN_PATIENCE, false), "no later for the second");
        passage.hand_over(asker());
        assert!(passage.is_handing_over());
        let askers: Vec<Asker> = passage.end().collect();
        assert_eq!(askers.len(), 3);
        for asker in askers {
            let _ = asker.send(Answer::One(Reply::Done));
        }
        assert!(matches!(told.blocking_recv(), Ok(Answer::One(Reply::Done))));
        assert_eq!(passage.end().count(), 0);
    }
}
