//! Feeding the brain and doing what it says ([`crate::thought`]).

use super::{Daemon, Event, foresight};
use crate::guest::{Arrival, Guest};
use crate::journal::wall_clock_s;
use crate::keys::seal::Gossip;
use crate::memory_groups::Sampled;
use crate::process::{Cause, Launch, Order};
use crate::sample::calibrate::{RUNS_AGAIN, measure_core_speed};
use crate::sample::scan::Scan;
use brain::{
    GroupId, Input, LoadSample, Output, Placement, ProcessSample, Span, Status, Time, UserId,
    UserShare, Verdict, Why,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::control::Happening;
use wire::forecast::Weighed;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::motive::Motive;
use wire::move_cost::Price;
use wire::owner::OwnerState;
use wire::peer::PeerMessage;

impl Daemon {
    /// The first facts.
    pub(super) fn begin(&mut self) {
        self.tell_brain(Input::Started);
        let others: Vec<NodeId> = self.members.others().map(|member| member.node).collect();
        for node in others {
            self.tell_brain(Input::MemberJoined { node });
        }
        if self.wishes.state != OwnerState::default() {
            self.owner_has_decided();
        }
        self.take_over();
    }

    /// This node has another number now: whatever was thought before was somebody else's.
    pub(super) fn new_brain(&mut self) {
        let (me, stamp) = (self.me(), self.keyring.stamp());
        self.thought.begin_anew(me, &self.config, stamp);
        self.tell_brain(Input::Started);
        self.owner_has_decided();
    }

    pub(super) fn brain_time(&self) -> Time {
        let since = self.started.elapsed().as_micros();
        Time::from_micros(u64::try_from(since).unwrap_or(u64::MAX))
    }

    pub(super) fn tell_brain(&mut self, input: Input) {
        if !self.thought.tell(input) {
            return;
        }
        while let Some(outputs) = self.think() {
            for output in outputs {
                self.carry_out(output);
            }
        }
    }

    fn think(&mut self) -> Option<Vec<Output>> {
        let now = self.brain_time();
        self.thought.think(now)
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::SendDatagram { to, bytes } => {
                if let Some(member) = self.members.get(to) {
                    let address = member.address;
                    let credentials = self.keyring.credentials();
                    self.thought.speak(self.members.me().node, address, bytes, &credentials);
                }
            }
            Output::Move { process, to, motive, why } => {
                self.move_as_thought(process, to, motive, why.to_string());
            }
            Output::WakeAt(time) => {
                self.thought.wake_at(self.started + Duration::from_micros(time.0));
            }
            Output::RecordDecision { process, verdict, why } => {
                self.record_decision(process, verdict, &why);
            }
            Output::MemberStatus { node, status } => {
                let status = status.to_string();
                self.journal.record(None, Happening::NodeStatus { node, status });
            }
        }
    }

    /// A process that runs here shall run elsewhere. Only its home can do that.
    fn move_as_thought(&mut self, process: GlobalPid, to: NodeId, motive: Motive, why: String) {
        let me = self.me();
        if process.home == me {
            let is_here = self.processes.get(&process.pid).is_some_and(|process| {
                process.at == me && !process.is_pinned() && process.launch == Launch::Running
            });
            if is_here {
                return self.order_move(process.pid, Order::new(to, Cause::Brain(motive), why));
            }
        } else {
            let wanted = PeerMessage::MoveWanted { pid: process.pid, to, motive, reason: why };
            if self.links.say(process.home, wanted) {
                for guest in self.hosting.of_mut(process) {
                    guest.wanted_on = Some(to);
                }
                return;
            }
        }
        let outcome = brain::MoveOutcome::Failed;
        let freeze = Span::ZERO;
        self.tell_brain(Input::MoveEnded { process, from: me, to, outcome, freeze });
    }

    /// For `osmos why`, which is asked at the process's home.
    fn record_decision(&mut self, process: GlobalPid, verdict: Verdict, why: &Why) {
        // How a move ended is known to the daemon first, and with the reason.
        if let Verdict::Moved { .. } | Verdict::NotMoved { .. } | Verdict::CameHome { .. } = verdict
        {
            return;
        }
        let (verdict, why) = (verdict.word(), why.to_string());
        let weighed = self.weigh_up(process);
        if process.home != self.me() {
            let (rate_milli, places) = foresight::told(weighed.as_ref());
            let (pid, verdict) = (process.pid, verdict.to_owned());
            let decided = PeerMessage::Decided { pid, verdict, reason: why, rate_milli, places };
            self.links.say(process.home, decided);
        } else if let Some(process) = self.processes.get_mut(&process.pid) {
            process.decide_among(wall_clock_s(), verdict, &why, weighed);
        }
    }

    pub(super) fn hear_decision(
        &mut self,
        by: NodeId,
        pid: HomePid,
        verdict: &str,
        why: &str,
        weighed: Option<Weighed>,
    ) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        // What another node decided about a process that it does not have is of no interest.
        if process.at == by {
            process.decide_among(wall_clock_s(), verdict, why, weighed);
        }
    }

    pub(super) fn time_passed_for_brain(&mut self, now: Instant) {
        if self.thought.wakes(now) {
            self.tell_brain(Input::TimePassed);
        }
    }

    pub(super) fn gossiped(&mut self, gossip: Gossip) {
        if self.members.get(gossip.from).is_some() && gossip.from != self.me() {
            self.links.heard_of(gossip.from, Instant::now());
            self.tell_brain(Input::DatagramReceived { from: gossip.from, bytes: gossip.bytes });
        }
    }

    pub(super) fn tell_brain_placement(&mut self, pid: HomePid) {
        let Some(process) = self.processes.get(&pid) else { return };
        let placement = match process.is_pinned() || self.stays_home(process.owner.uid) {
            true => Placement::Pinned,
            false => Placement::Balanced,
        };
        let process = self.global(pid);
        self.tell_brain(Input::ProcessPlaced { process, placement });
    }

    /// The best node for a process of this home, other than where it is.
    pub(super) fn best_node_for(&mut self, pid: HomePid) -> Option<NodeId> {
        let at = self.processes.get(&pid)?.at;
        let (now, process) = (self.brain_time(), self.memory_groups.first_of(self.global(pid)));
        let unfit = self.unfit_nodes(pid);
        let best = self.thought.best_node(now, Some(process), &unfit)?;
        (best != at).then_some(best)
    }

    /// No move goes to a node that the brain has given up.
    pub(super) fn is_usable(&self, node: NodeId) -> bool {
        let members = self.thought.brain().members(self.brain_time());
        members
            .iter()
            .find(|view| view.node == node)
            .is_none_or(|view| view.status == Status::Alive)
    }

    /// Feeds the brain with each look: what has just begun to wait shall not wait for a round.
    pub(super) fn sample_load(&mut self, scan: &Scan) {
        if self.load.look(scan) {
            self.measure_speed();
        }
        self.tell_brain_load();
    }

    /// What is known of this node and of all that runs here.
    pub(super) fn tell_brain_load(&mut self) {
        let (processes, capacity) = (self.sample_processes(), self.load.capacity());
        let sample = LoadSample {
            cores: capacity.cores,
            speed: capacity.speed,
            pace: capacity.core_speed,
            others: self.load.threads_of_others() + self.served(),
            memory_total_bytes: self.load.memory().total_bytes,
            memory_free_bytes: self.memory_free_bytes(),
            memory_pressure: self.load.memory_pressure(),
            processes,
        };
        self.tell_brain(Input::LoadSampled(sample));
    }

    /// With what guests have left: that is given back for whatever needs it.
    fn memory_free_bytes(&self) -> u64 {
        self.load.memory().free_bytes.saturating_add(self.hosting.imprints().bytes())
    }

    fn measure_speed(&self) {
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            if let Ok(speed) = measure_core_speed(RUNS_AGAIN) {
                // Nobody is left to be told once the daemon has ended.
                let _ = events.blocking_send(Event::SpeedMeasured(speed));
            }
        });
    }

    pub(super) fn speed_measured(&mut self, speed: f64) {
        if let Some(speed) = self.load.speed_measured(Instant::now(), speed) {
            tracing::info!("a core of this node has a speed of {speed:.2} now");
            if let Err(error) = self.state.keep_speed(speed) {
                tracing::warn!("{error}");
            }
        }
    }

    /// What the processes that are away use of this node, in threads that compute without a pause.
    fn served(&self) -> f64 {
        let me = self.me();
        let away = self.processes.values().filter(|process| process.at != me);
        let used: f64 = away.map(|process| process.activity.used()).sum();
        used / self.load.share_of_thread()
    }

    /// Every process that runs here: those at home, and the guests.
    fn sample_processes(&mut self) -> Vec<ProcessSample> {
        let me = self.me();
        let now = Instant::now();
        let mut users: BTreeMap<u32, UserShare> = BTreeMap::new();
        for process in self.processes.values().filter(|process| process.at == me) {
            let uid = process.owner.uid;
            users.entry(uid).or_insert_with(|| user_share(uid, self.user_cores(uid)));
        }
        let home = self.processes.values().filter(|process| process.at == me);
        let home = home.map(|process| Sampled {
            sample: ProcessSample {
                process: GlobalPid { home: me, pid: process.pid },
                stands_for: 1,
                demand: process.activity.demand(),
                used: process.activity.used(),
                here: span(now.saturating_duration_since(process.here_since)),
                cpu: Span::from_micros(process.consumption.cpu_us()),
                rss_bytes: process.consumption.rss_bytes,
                forwarded_per_s: 0.0,
                freeze_estimate: Span::ZERO,
                copy_estimate: Span::ZERO,
                left: process.left(&self.programs).map(span),
                stays: why_it_stays(process),
                group: process.activity.group.and_then(|group| group_id(me, group)),
                user: users.get(&process.owner.uid).copied(),
            },
            weight: process.weight(),
        });
        let guests = self.hosting.guests().filter_map(|guest| sample_of_guest(guest, now));
        let mut all: Vec<Sampled> = home.chain(guests).collect();
        let is_managed =
            |process: GlobalPid| process.home != me || self.processes.contains_key(&process.pid);
        self.memory_groups.weigh_as_one(&mut all, is_managed);
        all.into_iter().map(|weighed| self.priced(weighed)).collect()
    }

    /// With what a move would cost it. Guests that share memory go by way of their home.
    fn priced(&self, Sampled { sample, weight }: Sampled) -> ProcessSample {
        let is_at_home = sample.process.home == self.me();
        let is_alone = is_at_home || self.memory_groups.of(sample.process).is_none();
        let ways = if is_alone { 1.0 } else { 2.0 };
        at_price(sample, self.price(weight, None), ways)
    }
}

/// With the estimates of a move that costs so much, so many times over.
fn at_price(sample: ProcessSample, price: Price, times: f64) -> ProcessSample {
    ProcessSample {
        freeze_estimate: Span::from_secs_f64(price.freeze_s * times),
        copy_estimate: Span::from_secs_f64((price.total_s - price.freeze_s) * times),
        ..sample
    }
}

/// None before it runs.
fn sample_of_guest(guest: &Guest, now: Instant) -> Option<Sampled> {
    let Arrival::Running { since, .. } = guest.arrival else { return None };
    let stays = guest.is_sent_home.then(|| "it is on its way home".to_owned());
    let pinned = guest.asked.is_pinned.then(|| "its user put it here".to_owned());
    let sample = ProcessSample {
        process: guest.process,
        stands_for: 1,
        demand: guest.activity.demand(),
        used: guest.activity.used(),
        here: span(now.saturating_duration_since(since)),
        cpu: Span::from_micros(guest.asked.cpu_us + guest.cpu_us),
        rss_bytes: guest.rss_bytes,
        forwarded_per_s: f64::from(guest.forwarded_per_s),
        freeze_estimate: Span::ZERO,
        copy_estimate: Span::ZERO,
        left: guest.left().map(span),
        stays: stays.or(pinned),
        group: guest.asked.group.map(GroupId::from),
        user: Some(user_share(guest.asked.owner.uid, guest.user_cores)),
    };
    Some(Sampled { sample, weight: guest.weight() })
}

fn user_share(uid: u32, cores: f64) -> UserShare {
    UserShare { user: UserId(uid), cores }
}

/// The process group of a home, named so that every node has the same name for it.
pub(super) fn group_id(home: NodeId, group: i32) -> Option<GroupId> {
    GroupId::new(u64::from(home.0) << 32 | u64::from(group.unsigned_abs()))
}

fn why_it_stays(process: &crate::process::Process) -> Option<String> {
    if process.is_pinned() {
        return Some("its user said where it runs".to_owned());
    }
    match (&process.moving, &process.launch) {
        (Some(moving), _) => Some(format!("it is moving to node {}", moving.order.to)),
        (None, Launch::Running) => None,
        (None, Launch::Pending { .. } | Launch::Found | Launch::Unborn { .. }) => {
            Some("it is just starting".to_owned())
        }
    }
}

fn span(duration: Duration) -> Span {
    Span::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::guest::test::expected;
    use crate::supervisor::{Identity, SupervisorId};
    use wire::ids::Ticket;

    /// However it came: a brain that had announced it may have been forgotten meanwhile.
    #[test]
    fn a_guest_is_of_the_group_that_its_home_sees() {
        let home = NodeId(3);
        let group = group_id(home, 44);
        let (process, now) = (GlobalPid { home, pid: HomePid(45) }, Instant::now());
        let mut guest = expected(process, Ticket([1; 16]), SupervisorId(1), now);
        guest.asked.group = group.map(Into::into);
        assert_eq!(sample_of_guest(&guest, now), None, "it does not run yet");
        let body = Identity { pid: 7, started_ticks: 1 };
        guest.arrival = Arrival::Running { body, since: now };
        let Sampled { sample, weight } = sample_of_guest(&guest, now).expect("it runs");
        assert_eq!((sample.rss_bytes, weight.rss_bytes), (1 << 20, 1 << 20));
        let price = Price { freeze_s: 0.01, total_s: 0.25 };
        let twice = at_price(sample.clone(), price, 2.0);
        assert_eq!(twice.freeze_estimate, Span::from_millis(20), "by way of its home");
        assert_eq!(twice.copy_estimate, Span::from_millis(480));
        let sample = at_price(sample, price, 1.0);
        assert_eq!(sample.freeze_estimate, Span::from_millis(10));
        assert_eq!(sample.copy_estimate, Span::from_millis(240));
        assert!(group.is_some());
        assert_eq!((sample.group, sample.cpu), (group, Span::from_micros(2_500_000)));
    }
}
