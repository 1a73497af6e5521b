//! The brain of one node: what comes in, and the round of each second. The two halves of a move are
//! in `source` and `target`; answers to questions in `view`.

use crate::config::{Config, Decision, VIEW_MAX, WINDOW_MAX};
use crate::facts::{Condition, Entry};
use crate::handshake::{Departures, Reservations};
use crate::here::{NEVER, Own, Residents};
use crate::input::{Input, LoadSample};
use crate::messages::{Body, Message, OfferId, WindowRoom};
use crate::others::{Members, Status, Strangers};
use crate::output::{Outbox, Output};
use crate::policies::{Bars, Estimate, Owner, Shares};
use crate::random::Random;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::sync::Arc;
use wire::ids::{GlobalPid, NodeId};

/// Who a brain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub node: NodeId,
    /// Higher at each start of the node: the seconds of the wall clock at start do.
    pub incarnation: u32,
    /// Of the brain's own random source. Equal seeds and inputs give equal outputs.
    pub seed: u64,
}

/// Offers begun in one round: enough to find a taker, too few to be a storm.
const OFFERS_PER_ROUND: u32 = 8;
/// New members asked for their condition in one round.
const GREETINGS_PER_ROUND: u32 = 8;

/// One node's share in running the cluster. See the crate's head for how it is driven.
pub struct Brain {
    pub(crate) own: Own,
    pub(crate) residents: Residents,
    pub(crate) config: Arc<Config>,
    pub(crate) departures: Departures,
    pub(crate) reservations: Reservations,
    /// Nodes that `best_node` has promised to a newcomer, until when.
    pub(crate) promises: Vec<(NodeId, Time)>,
    round_at: Time,
    announced_wake: Time,
    /// None while the owner has decided nothing, and while nothing is known of users.
    pub(crate) owner: Option<Box<Owner>>,
    pub(crate) shares: Option<Box<Shares>>,
    /// Where some cannot run; mostly nowhere.
    pub(crate) bars: Option<Box<Bars>>,
    /// Only where MOSIX decides.
    pub(crate) estimate: Option<Box<Estimate>>,
    /// When the processes were last weighed against the places elsewhere, at that load.
    weighed: (Time, f64),
    /// Some were only too young for it then.
    pub(crate) is_unripe: bool,
    /// Whether this node had room.
    had_room: bool,
    pub(crate) me: NodeId,
    pub(crate) members: Members,
    pub(crate) incarnation: u32,
    messages_sent: u32,
    /// A change of whether there is room is urgent news until then.
    pub(crate) urgent_until: Time,
    pub(crate) random: Random,
    pub(crate) offers_left: u32,
    offers_made: u32,
    greetings_left: u32,
    rejected_datagrams: u32,
    /// When work was last asked for; long ago at the start.
    pub(crate) sought_at: Time,
    /// This node was too slow to judge the silence of others, until then.
    self_doubt_until: Time,
}

impl Brain {
    /// Many brains can share one configuration.
    pub fn new(identity: Identity, config: impl Into<Arc<Config>>) -> Brain {
        let mut config: Arc<Config> = config.into();
        if !(1..=WINDOW_MAX).contains(&config.window) || config.view_max > VIEW_MAX {
            let config = Arc::make_mut(&mut config);
            config.window = config.window.clamp(1, WINDOW_MAX);
            config.view_max = config.view_max.min(VIEW_MAX);
        }
        Brain {
            config,
            me: identity.node,
            incarnation: identity.incarnation,
            random: Random::seeded(identity.seed),
            own: Own::default(),
            members: Members::default(),
            residents: Residents::new(identity.node),
            reservations: Reservations::default(),
            departures: Departures::default(),
            promises: Vec::new(),
            offers_left: OFFERS_PER_ROUND,
            offers_made: 0,
            greetings_left: GREETINGS_PER_ROUND,
            messages_sent: 0,
            round_at: Time::ZERO,
            sought_at: Time::ZERO,
            self_doubt_until: Time::ZERO,
            announced_wake: NEVER,
            rejected_datagrams: 0,
            owner: None,
            bars: None,
            shares: None,
            estimate: None,
            had_room: true,
            urgent_until: Time::ZERO,
            weighed: (Time::ZERO, 0.0),
            is_unripe: false,
        }
    }

    /// Takes in one fact; leaves orders in `outbox`.
    pub fn handle(&mut self, now: Time, input: impl Borrow<Input>, outbox: &mut Outbox) {
        self.take_in(now, input.borrow(), outbox);
        self.pass_time(now, outbox);
        debug_assert_eq!(self.check_invariants(), Ok(()));
    }

    fn take_in(&mut self, now: Time, input: &Input, outbox: &mut Outbox) {
        match *input {
            Input::Started => self.round_at = now,
            Input::TimePassed => {}
            Input::LoadSampled(ref sample) => self.load_sampled(now, sample, outbox),
            Input::MemberJoined { node } => self.member_joined(now, node, outbox),
            Input::MemberLeft { node } => self.member_left(now, node, outbox),
            Input::DatagramReceived { from, ref bytes } => {
                self.datagram_received(now, from, bytes, outbox);
            }
            Input::ProcessArrived { process, how } => {
                self.process_arrived(now, process, how, outbox);
            }
            Input::ProcessEnded { process } => {
                self.forget_bars_of(process);
                self.process_ended(now, process, outbox);
            }
            Input::MoveEnded { process, from, to, outcome, freeze } => {
                if from == self.me {
                    self.move_ended(now, process, to, outcome, freeze, outbox);
                }
            }
            Input::ProcessPlaced { process, placement } => {
                self.residents.placed(now, process, placement, &self.config);
            }
            Input::OwnerDecided { ref ownership } => {
                self.owner_decided(now, ownership.clone(), outbox);
            }
            Input::NodesBarred { ref nodes } => self.nodes_barred(nodes),
            Input::ProcessExempted { process } => self.process_exempted(process),
        }
    }

    /// Datagrams that were no messages of a brain of this version.
    pub fn rejected_datagrams(&self) -> u64 {
        u64::from(self.rejected_datagrams)
    }

    /// Does what is due, whatever the input was, and says when the next thing will be.
    fn pass_time(&mut self, now: Time, outbox: &mut Outbox) {
        self.reservations.expire(now);
        if !self.promises.is_empty() {
            self.promises.retain(|(_, until)| *until > now);
        }
        self.repeat_offers(now, outbox);
        if now >= self.round_at {
            self.round(now, outbox);
        }
        let wake = match self.departures.next_due() {
            Some(due) => due.min(self.round_at),
            None => self.round_at,
        };
        if self.announced_wake != wake {
            self.announced_wake = wake;
            outbox.push(Output::WakeAt(wake));
        }
    }

    fn round(&mut self, now: Time, outbox: &mut Outbox) {
        // Lifeguard's lesson: a node that is itself late must not take others for dead.
        if now.since(self.round_at) > self.config.tick * 2 {
            self.self_doubt_until = now + self.members.patience(&self.config);
        }
        let tenth = self.config.tick.0 / 10;
        let jitter = Span(self.random.below(2 * tenth + 1));
        self.round_at = now + Span(self.config.tick.0 - tenth) + jitter;
        self.offers_left = OFFERS_PER_ROUND;
        self.greetings_left = GREETINGS_PER_ROUND;
        self.doubt_the_silent(now, outbox);
        self.note_edge(now);
        self.gossip(now, outbox);
        match self.config.decision {
            Decision::Off => {}
            Decision::Mosix => self.mosix_round(now, outbox),
            Decision::Osmos => {
                self.seek(now, outbox);
                self.weigh_all(now, outbox);
                self.rotate(now, outbox);
            }
        }
        self.residents.forget(now);
        self.members.exclusions.forget(now);
        self.forget_holders(now);
    }

    /// Everything that could be a reason to hand a process over.
    fn weigh_all(&mut self, now: Time, outbox: &mut Outbox) {
        self.usher(now, outbox);
        self.clear_out(now, outbox);
        self.favour_the_poor(now, outbox);
        self.hand_over(now, None, outbox);
        self.weighed = (now, self.runnable(now).unwrap_or(0.0));
    }

    /// That this node has room now, or no longer, is news that others wait for.
    fn note_edge(&mut self, now: Time) {
        let Some(runnable) = self.runnable(now) else { return };
        let has_room = self.has_room(runnable);
        if has_room != self.had_room {
            self.had_room = has_room;
            self.urgent_until = now + self.config.tick * 2;
        }
    }

    fn doubt_the_silent(&mut self, now: Time, outbox: &mut Outbox) {
        if now < self.self_doubt_until {
            return;
        }
        for (node, status) in self.members.doubt(now, &self.config) {
            outbox.push(Output::MemberStatus { node, status });
            if status == Status::Gone {
                self.forget_promises_of(now, node, outbox);
            }
        }
    }

    /// Two nodes are told, the silent are asked.
    fn gossip(&mut self, now: Time, outbox: &mut Outbox) {
        let is_urgent = now < self.urgent_until;
        let listeners = self.members.listeners(now, is_urgent, &mut self.random, &self.config);
        for node in listeners.into_iter().flatten() {
            self.send_gossip(now, node, false, outbox);
        }
        self.members.passed_on();
        for node in self.members.probe(now, &self.config) {
            self.send_gossip(now, node, true, outbox);
        }
    }

    fn send_gossip(&mut self, now: Time, to: NodeId, reply_wanted: bool, outbox: &mut Outbox) {
        let mut room = WindowRoom::new();
        self.members.window(now, to, &mut room, &self.config);
        self.send(now, to, Body::Gossip { reply_wanted, window: room.window() }, outbox);
    }

    fn load_sampled(&mut self, now: Time, sample: &LoadSample, outbox: &mut Outbox) {
        self.own.sampled(now, sample);
        self.note_users(now, &sample.processes);
        self.note_own_load(now, &sample.processes);
        let processes = &sample.processes;
        if self.residents.awaits_first_look() {
            let share = self.condition(now).map_or(0.0, |own| own.share());
            self.residents.count_work(processes, share);
        }
        let departures = &self.departures;
        let is_moving = |process| departures.is_moving(process);
        let changed = self.residents.sampled(now, processes, is_moving, &self.config);
        self.withdraw_vanished(now, outbox);
        if self.config.decision != Decision::Osmos {
            return;
        }
        // The same load and the same processes as at the last look need no second thought, unless
        // something else has happened, which is then its own occasion.
        let (weighed_at, weighed) = self.weighed;
        let own = self.runnable(now);
        let runnable = own.unwrap_or(0.0);
        if own.is_some_and(|runnable| self.has_room(runnable)) {
            self.seek_known_work(now, outbox);
        }
        let is_steady = !changed
            && !self.is_unripe
            && !self.is_owner_pressed()
            && (runnable - weighed).abs() < 0.01;
        if !is_steady || now.since(weighed_at) > self.config.tick * 2 {
            self.weigh_all(now, outbox);
        }
    }

    fn member_joined(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        if node == self.me || !self.members.join(now, node, &self.config) {
            return;
        }
        outbox.push(Output::MemberStatus { node, status: Status::Alive });
        // Whoever is told of a whole cluster at once hears of the rest by gossip.
        if self.greetings_left > 0 {
            self.greetings_left -= 1;
            self.send_gossip(now, node, true, outbox);
        }
    }

    fn member_left(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        if self.members.leave(node) {
            outbox.push(Output::MemberStatus { node, status: Status::Gone });
            self.forget_promises_of(now, node, outbox);
        }
    }

    fn datagram_received(&mut self, now: Time, from: NodeId, bytes: &[u8], outbox: &mut Outbox) {
        let place = self.members.place_of(from);
        let admits = from != self.me && (place.is_some() || self.members.is_partial());
        let message = match Message::decode(bytes, now) {
            Ok(message) if message.sender.node == from && admits => message,
            _ => {
                self.rejected_datagrams = self.rejected_datagrams.saturating_add(1);
                return;
            }
        };
        if place.is_some_and(|place| self.members.is_of_earlier_life(place, &message.sender)) {
            self.refute_an_earlier_life(now, from, outbox);
        }
        self.learn_all(now, &message, place, outbox);
        match message.body {
            Body::Gossip { reply_wanted: true, .. } => {
                self.send_gossip(now, from, false, outbox);
            }
            Body::Gossip { .. } => {}
            Body::Seek => {
                self.offers_left = self.offers_left.max(1);
                self.hand_over(now, Some(from), outbox);
            }
            Body::Lag(laggard) => self.lag_heard(now, from, laggard, outbox),
            Body::Offer(offer) => self.offer_received(now, message.sender, offer, outbox),
            Body::Accept(id) => self.offer_accepted(now, from, id, outbox),
            Body::Refuse(id, refusal) => self.offer_refused(now, from, id, refusal, outbox),
            Body::Release(id) => self.reservations.release(from, id),
        }
    }

    /// A node that started again with a smaller number (its clock was set back) would be ignored
    /// for ever: it is told what is known of it, and outlives that.
    fn refute_an_earlier_life(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        let Some(known) = self.members.get(node) else { return };
        let mut room = WindowRoom::new();
        room.add(&known.entry, now);
        let body = Body::Gossip { reply_wanted: false, window: room.window() };
        self.send(now, node, body, outbox);
    }

    /// Takes in the news of a datagram, whose sender has that place among the members, or none.
    fn learn_all(
        &mut self,
        now: Time,
        message: &Message,
        place: Option<usize>,
        outbox: &mut Outbox,
    ) {
        let mut strangers = Strangers::default();
        let mut sender = message.sender;
        sender.count_hop();
        let (sequence, own) = (Some(message.sequence), (self.estimated_load(), &*self.config));
        if self.members.learn_at(now, place, &sender, sequence, &mut strangers, own) {
            outbox.push(Output::MemberStatus { node: sender.node, status: Status::Alive });
        }
        if let Body::Gossip { window, .. } = message.body {
            window.entries(now).for_each(|entry| {
                self.learn(now, entry, &mut strangers, outbox);
            });
        }
        self.members.admit(now, strangers, &self.config);
    }

    fn learn(
        &mut self,
        now: Time,
        mut entry: Entry,
        strangers: &mut Strangers,
        outbox: &mut Outbox,
    ) {
        if entry.node == self.me {
            // News of an earlier life of this node that passes for a later one: outlive it.
            if entry.incarnation > self.incarnation {
                self.incarnation = entry.incarnation.saturating_add(1);
            }
            return;
        }
        entry.count_hop();
        let own = (self.estimated_load(), &*self.config);
        if self.members.learn(now, &entry, None, strangers, own) {
            outbox.push(Output::MemberStatus { node: entry.node, status: Status::Alive });
        }
    }

    /// Of MOSIX; 0 where another policy decides.
    fn estimated_load(&self) -> f64 {
        self.estimate.as_ref().map_or(0.0, |estimate| estimate.load())
    }

    pub(crate) fn send(&mut self, now: Time, to: NodeId, body: Body<'_>, outbox: &mut Outbox) {
        let condition = self.condition_for_guests(now);
        self.send_as(now, to, condition, body, outbox);
    }

    pub(crate) fn send_as(
        &mut self,
        now: Time,
        to: NodeId,
        condition: Option<Condition>,
        body: Body<'_>,
        outbox: &mut Outbox,
    ) {
        let condition = match self.config.decision {
            Decision::Mosix => {
                let exported = self.estimate.as_ref().map_or(0.0, |estimate| estimate.exported);
                condition.map(|own| own.with_runnable(exported))
            }
            _ => condition,
        };
        let mut sender = Entry::new(self.me, self.incarnation, now, condition.as_ref());
        if now < self.urgent_until {
            sender.urgency = self.members.urgency();
        }
        self.messages_sent = self.messages_sent.wrapping_add(1);
        let sequence = self.messages_sent;
        let message = Message { sender, sequence, body };
        let bytes = message.encode(now, self.config.window, outbox.blank());
        outbox.push(Output::SendDatagram { to, bytes });
    }

    /// Unique among all lives of this node.
    pub(crate) fn next_offer_id(&mut self) -> OfferId {
        self.offers_made = self.offers_made.wrapping_add(1);
        OfferId(u64::from(self.incarnation) << 32 | u64::from(self.offers_made))
    }

    fn process_ended(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        self.residents.ended(process);
        self.reservations.take(process);
        self.withdraw(now, process, outbox);
        self.note_edge(now);
        self.seek_at_once(now, outbox);
    }
}
