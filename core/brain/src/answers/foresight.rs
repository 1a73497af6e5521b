//! What would become of a move, or of another node: `osmos what-if`, and the places that `osmos
//! why` shows.
//!
//! Nothing is decided here and nothing changes. The questions are put to the same rule that decides
//! ([`crate::rule`]), with the same knowledge, and every number that it used is in the answer.

use crate::facts::{Candidate, Condition};
use crate::others::Status;
use crate::reasons::StayCause;
use crate::rule::{GainKind, fits, is_beyond_doubt, judge, pays, rates};
use crate::situation::{Situation, Target};
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};

/// Places shown for one process.
const GUESSES_MAX: usize = 4;
/// Processes that a hypothetical node is given at most.
const HANDED_OVER_MAX: usize = 64;
/// Nobody has this number.
const NOBODY: NodeId = NodeId(0);

/// What a place would be for a process, as far as is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    pub node: NodeId,
    /// What one of its threads would get, in reference seconds per second.
    pub rate: f64,
    /// Without it.
    pub runnable: f64,
    pub cores: u32,
    pub speed: f64,
    /// How old that knowledge is.
    pub age: Span,
    /// Why it would not be moved there by itself; None: it would.
    pub but: Option<String>,
}

/// What a move would come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Foresight {
    pub process: GlobalPid,
    pub from: NodeId,
    pub to: Guess,
    pub rate_before: f64,
    /// What the move would cost: for so long it stands still, after it was copied for so long.
    pub freeze: Span,
    pub copy: Span,
    /// What it has computed so far: what is left of it is taken to be as long.
    pub cpu: Span,
    /// After how long its greater speed has made up for the freeze; None: never.
    pub payback: Option<Span>,
}

/// What another node would change.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeForesight {
    /// In the order in which they would go.
    pub handed_over: Vec<Foresight>,
    /// Runnable threads here.
    pub runnable_before: f64,
    pub runnable_after: f64,
    /// What a thread gets here.
    pub rate_before: f64,
    pub rate_after: f64,
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unforeseen {
    #[error("it does not run on this node, or has not been measured yet")]
    NotHere,
    #[error("it is on node {0} already")]
    There(NodeId),
    #[error("nothing is known of node {0}")]
    Unknown(NodeId),
    #[error("this node has not measured itself yet")]
    Unmeasured,
}

impl Situation {
    /// What would become of a process that runs here if it went there.
    pub fn foresee(
        &self,
        now: Time,
        process: GlobalPid,
        to: NodeId,
    ) -> Result<Foresight, Unforeseen> {
        if to == self.me {
            return Err(Unforeseen::There(to));
        }
        let own = self.condition_for_leaving(now, Some(process)).ok_or(Unforeseen::Unmeasured)?;
        let (candidate, cause) = self.subject(now, process)?;
        let known = self.members.get(to).and_then(|member| member.known(now));
        let (condition, age) = known.ok_or(Unforeseen::Unknown(to))?;
        let target = Target { node: to, condition, age };
        Ok(self.foresight(now, own, &candidate, cause, &target))
    }

    /// The places that promise a process of this node the most, with what it gets here.
    pub fn weigh_up(&self, now: Time, process: GlobalPid) -> Option<(f64, Vec<Guess>)> {
        let own = self.condition_for_leaving(now, Some(process))?;
        let (candidate, cause) = self.subject(now, process).ok()?;
        let targets = self.members.useful(now, &self.config);
        // The place that is kept for it counts there already.
        let going = self.departures.iter().find(|d| d.offer.process == process && d.is_leaving());
        let kept = |node| going.filter(|d| d.to == node).map_or(0.0, |d| d.offer.demand);
        let mut seen: Vec<Foresight> = targets
            .map(|(node, condition, age)| {
                let condition = condition.with_runnable(condition.runnable - kept(node));
                let target = Target { node, condition, age };
                self.foresight(now, own, &candidate, cause, &target)
            })
            .collect();
        seen.sort_by(|a, b| b.to.rate.total_cmp(&a.to.rate).then(a.to.node.cmp(&b.to.node)));
        seen.truncate(GUESSES_MAX);
        let here = own.share_among(own.runnable.max(candidate.demand));
        let before = seen.first().map_or(here, |foresight| foresight.rate_before);
        Some((before, seen.into_iter().map(|foresight| foresight.to).collect()))
    }

    /// What this node would hand over to an idle one like that.
    pub fn foresee_node(
        &self,
        now: Time,
        cores: u32,
        speed: f64,
        memory_bytes: u64,
    ) -> Result<NodeForesight, Unforeseen> {
        let before = self.condition_for_leaving(now, None).ok_or(Unforeseen::Unmeasured)?;
        let mut there = Condition {
            cores: cores.clamp(1, u32::from(u16::MAX)),
            speed: crate::here::sane(speed, 0.001, 10_000.0),
            runnable: 0.0,
            memory_total_bytes: memory_bytes,
            memory_free_bytes: memory_bytes,
            is_closed: false,
        };
        let mut here = before;
        let free = |process: &GlobalPid| !self.departures.contains(*process);
        let movable = self.residents.processes().filter(free);
        let mut movable: Vec<Candidate> =
            movable.filter_map(|process| self.may_leave(now, process).ok()).collect();
        // As balancing does: the cheapest move first.
        let price = |c: &Candidate| c.freeze.as_secs_f64() / c.cpu.as_secs_f64().max(0.001);
        movable.sort_by(|a, b| price(a).total_cmp(&price(b)).then(a.process.cmp(&b.process)));
        let mut handed_over = Vec::new();
        for candidate in movable {
            let target = Target { node: NOBODY, condition: there, age: Span::ZERO };
            let foresight = self.foresight(now, here, &candidate, None, &target);
            if foresight.to.but.is_some() || handed_over.len() == HANDED_OVER_MAX {
                continue;
            }
            here = here.with_runnable(here.runnable - candidate.demand);
            there = there.with_runnable(there.runnable + candidate.demand);
            there.memory_free_bytes = there.memory_free_bytes.saturating_sub(candidate.rss_bytes);
            handed_over.push(foresight);
        }
        Ok(NodeForesight {
            handed_over,
            runnable_before: before.runnable,
            runnable_after: here.runnable,
            rate_before: before.share(),
            rate_after: here.share(),
        })
    }

    /// The process as a candidate, and why it would stay whatever the place.
    fn subject(
        &self,
        now: Time,
        process: GlobalPid,
    ) -> Result<(Candidate, Option<StayCause>), Unforeseen> {
        match self.may_leave(now, process) {
            Ok(candidate) => Ok((candidate, None)),
            Err(cause) => {
                let described = self.residents.described(now, process, &self.config);
                described.map(|candidate| (candidate, Some(cause))).ok_or(Unforeseen::NotHere)
            }
        }
    }

    fn foresight(
        &self,
        now: Time,
        own: Condition,
        candidate: &Candidate,
        cause: Option<StayCause>,
        target: &Target,
    ) -> Foresight {
        let Target { node, condition, age } = *target;
        let burden = self.burden(candidate, node);
        let (rate_before, rate) = rates(&own, &condition, burden, &self.config);
        let freeze_s = candidate.freeze.as_secs_f64();
        let payback = (rate > rate_before)
            .then(|| Span::from_secs_f64(freeze_s * rate_before / (rate - rate_before)));
        let but = match cause {
            Some(cause) => {
                Some(self.residents.explain(candidate.process, cause, &self.config).to_string())
            }
            None => self.objection(now, own, candidate, target),
        };
        let Condition { runnable, cores, speed, .. } = condition;
        Foresight {
            process: candidate.process,
            from: self.me,
            to: Guess { node, rate, runnable, cores, speed, age, but },
            rate_before,
            freeze: candidate.freeze,
            copy: candidate.copy,
            cpu: candidate.cpu,
            payback,
        }
    }

    /// Why a process that may leave does not go there.
    fn objection(
        &self,
        now: Time,
        own: Condition,
        candidate: &Candidate,
        target: &Target,
    ) -> Option<String> {
        let Target { node, condition, age } = *target;
        let is_home = node == candidate.process.home;
        if self.members.get(node).is_some_and(|member| member.status != Status::Alive) {
            return Some(format!("node {node} has not been heard of for {age}"));
        }
        if condition.is_closed && !is_home {
            return Some(format!("the owner of node {node} takes no guests now"));
        }
        if self.members.exclusions.holds(now, node) {
            return Some(format!("node {node} refused or failed a moment ago"));
        }
        if !fits(&condition, 0, candidate.rss_bytes, self.config.memory_margin) {
            return Some(format!("it does not fit into the free memory of node {node}"));
        }
        let burden = self.burden(candidate, node);
        let cause = match judge(&own, &condition, burden, self.noise(), &self.config) {
            None => StayCause::NoGain,
            Some(gain) if !pays(&gain, candidate, own.speed) => StayCause::Unpaid,
            Some(gain) => {
                let is_back = candidate.came_from == Some(node);
                let is_doubtful = is_back
                    && gain.kind == GainKind::LargerShare
                    && !is_beyond_doubt(&gain, &condition, burden, &self.config);
                return is_doubtful.then(|| "it has just come from there".to_owned());
            }
        };
        match cause {
            StayCause::NoGain => Some("the gain is none beyond noise, or others would lose".into()),
            _ => Some(self.residents.explain(candidate.process, cause, &self.config).to_string()),
        }
    }
}
