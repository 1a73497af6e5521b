//! The brain of one node: it takes in facts, asks the policies, and alone changes the situation and
//! gives orders.
//!
//! Here is what comes in, and the round of each second; `gossip` is what is said to other brains
//! and heard of them, `deciding` whom it asks what to do, `source` and `target` are the two halves
//! of a move, and `asked` is what it answers.

mod asked;
mod deciding;
mod gossip;
mod source;
mod target;

use crate::config::{Config, Decision, VIEW_MAX, WINDOW_MAX};
use crate::here::NEVER;
use crate::input::{Input, LoadSample};
use crate::messages::OfferId;
use crate::output::{Outbox, Output};
use crate::policies::Estimate;
use crate::random::Random;
use crate::situation::Situation;
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

/// One node's share in running the cluster. See the crate's head for how it is driven.
pub struct Brain {
    situation: Situation,
    incarnation: u32,
    /// Only where MOSIX decides.
    estimate: Option<Box<Estimate>>,
    random: Random,
    round_at: Time,
    announced_wake: Time,
    /// When the processes were last weighed against the places elsewhere, at that load.
    weighed: (Time, f64),
    /// Some were only too young for it then.
    is_unripe: bool,
    /// Whether this node had room.
    had_room: bool,
    /// A change of whether there is room is urgent news until then.
    urgent_until: Time,
    messages_sent: u32,
    offers_left: u32,
    offers_made: u32,
    greetings_left: u32,
    rejected_datagrams: u32,
    /// When work was last asked for; long ago at the start.
    sought_at: Time,
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
        let (offers_left, greetings_left) = (config.offers_per_round, config.greetings_per_round);
        Brain {
            situation: Situation::of(identity.node, config),
            incarnation: identity.incarnation,
            estimate: None,
            random: Random::seeded(identity.seed),
            round_at: Time::ZERO,
            announced_wake: NEVER,
            weighed: (Time::ZERO, 0.0),
            is_unripe: false,
            had_room: true,
            urgent_until: Time::ZERO,
            messages_sent: 0,
            offers_left,
            offers_made: 0,
            greetings_left,
            rejected_datagrams: 0,
            sought_at: Time::ZERO,
            self_doubt_until: Time::ZERO,
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
                self.situation.forget_bars_of(process);
                self.process_ended(now, process, outbox);
            }
            Input::MoveEnded { process, from, to, outcome, freeze } => {
                if from == self.situation.me {
                    self.move_ended(now, process, to, outcome, freeze, outbox);
                }
            }
            Input::ProcessPlaced { process, placement } => {
                self.situation.residents.placed(now, process, placement, &self.situation.config);
            }
            Input::OwnerDecided { ref ownership } => {
                self.situation.owner_decided(ownership.clone());
                self.clear_out(now, outbox);
            }
            Input::NodesBarred { ref nodes } => self.situation.nodes_barred(nodes),
            Input::ProcessExempted { process } => self.situation.process_exempted(process),
        }
    }

    /// Datagrams that were no messages of a brain of this version.
    pub fn rejected_datagrams(&self) -> u64 {
        u64::from(self.rejected_datagrams)
    }

    /// Does what is due, whatever the input was, and says when the next thing will be.
    fn pass_time(&mut self, now: Time, outbox: &mut Outbox) {
        self.situation.reservations.expire(now);
        self.situation.promises.retain(|(_, until)| *until > now);
        self.repeat_offers(now, outbox);
        if now >= self.round_at {
            self.round(now, outbox);
        }
        let wake = match self.situation.departures.next_due() {
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
        if now.since(self.round_at) > self.situation.config.tick * 2 {
            self.self_doubt_until = now + self.situation.members.patience(&self.situation.config);
        }
        let tenth = self.situation.config.tick.0 / 10;
        let jitter = Span(self.random.below(2 * tenth + 1));
        self.round_at = now + Span(self.situation.config.tick.0 - tenth) + jitter;
        self.offers_left = self.situation.config.offers_per_round;
        self.greetings_left = self.situation.config.greetings_per_round;
        self.doubt_the_silent(now, outbox);
        self.note_edge(now);
        self.gossip(now, outbox);
        match self.situation.config.decision {
            Decision::Off => {}
            Decision::Mosix => self.decide_as_mosix(now, outbox),
            Decision::Osmos => {
                self.seek(now, outbox);
                self.consider_all(now, outbox);
                self.tell_of_laggard(now, outbox);
            }
        }
        self.situation.residents.forget(now);
        self.situation.members.exclusions.forget(now);
        self.situation.forget_holders(now);
    }

    /// That this node has room now, or no longer, is news that others wait for.
    fn note_edge(&mut self, now: Time) {
        let Some(runnable) = self.situation.runnable(now) else { return };
        let has_room = self.situation.has_room(runnable);
        if has_room != self.had_room {
            self.had_room = has_room;
            self.urgent_until = now + self.situation.config.tick * 2;
        }
    }

    fn load_sampled(&mut self, now: Time, sample: &LoadSample, outbox: &mut Outbox) {
        self.situation.own.sampled(now, sample, &self.situation.config);
        self.situation.note_users(now, &sample.processes);
        self.situation.note_own_load(now, &sample.processes);
        let processes = &sample.processes;
        if self.situation.residents.awaits_first_look() {
            let share = self.situation.condition(now).map_or(0.0, |own| own.share());
            self.situation.residents.count_work(processes, share);
        }
        let departures = &self.situation.departures;
        let is_moving = |process| departures.is_moving(process);
        let changed =
            self.situation.residents.sampled(now, processes, is_moving, &self.situation.config);
        self.withdraw_vanished(now, outbox);
        if self.situation.config.decision != Decision::Osmos {
            return;
        }
        // The same load and the same processes as at the last look need no second thought, unless
        // something else has happened, which is then its own occasion.
        let (weighed_at, weighed) = self.weighed;
        let own = self.situation.runnable(now);
        let runnable = own.unwrap_or(0.0);
        if own.is_some_and(|runnable| self.situation.has_room(runnable)) {
            self.seek_known_work(now, outbox);
        }
        let is_steady = !changed
            && !self.is_unripe
            && !self.situation.is_owner_pressed()
            && (runnable - weighed).abs() < 0.01;
        if !is_steady || now.since(weighed_at) > self.situation.config.tick * 2 {
            self.consider_all(now, outbox);
        }
    }

    /// Unique among all lives of this node.
    pub(super) fn next_offer_id(&mut self) -> OfferId {
        self.offers_made = self.offers_made.wrapping_add(1);
        OfferId(u64::from(self.incarnation) << 32 | u64::from(self.offers_made))
    }

    fn process_ended(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        self.situation.residents.ended(process);
        self.situation.reservations.take(process);
        self.withdraw(now, process, outbox);
        self.note_edge(now);
        self.seek_at_once(now, outbox);
    }
}
