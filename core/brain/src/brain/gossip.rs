//! What is said to other brains, and heard of them: gossip, and the datagrams that all else travels
//! in.

use super::Brain;
use crate::config::Decision;
use crate::facts::{Condition, Entry};
use crate::messages::{Body, Message, WindowRoom};
use crate::others::{Status, Strangers};
use crate::output::{Outbox, Output};
use crate::time::Time;
use wire::ids::NodeId;

impl Brain {
    pub(super) fn doubt_the_silent(&mut self, now: Time, outbox: &mut Outbox) {
        if now < self.self_doubt_until {
            return;
        }
        for (node, status) in self.situation.members.doubt(now, &self.situation.config) {
            outbox.push(Output::MemberStatus { node, status });
            if status == Status::Gone {
                self.forget_promises_of(now, node, outbox);
            }
        }
    }

    /// Two nodes are told, the silent are asked.
    pub(super) fn gossip(&mut self, now: Time, outbox: &mut Outbox) {
        let is_urgent = now < self.urgent_until;
        let listeners = self.situation.members.listeners(
            now,
            is_urgent,
            &mut self.random,
            &self.situation.config,
        );
        for node in listeners.into_iter().flatten() {
            self.send_gossip(now, node, false, outbox);
        }
        self.situation.members.passed_on();
        for node in self.situation.members.probe(now, &self.situation.config) {
            self.send_gossip(now, node, true, outbox);
        }
    }

    fn send_gossip(&mut self, now: Time, to: NodeId, reply_wanted: bool, outbox: &mut Outbox) {
        let mut room = WindowRoom::new();
        self.situation.members.window(now, to, &mut room, &self.situation.config);
        self.send(now, to, Body::Gossip { reply_wanted, window: room.window() }, outbox);
    }

    pub(super) fn member_joined(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        if node == self.situation.me
            || !self.situation.members.join(now, node, &self.situation.config)
        {
            return;
        }
        outbox.push(Output::MemberStatus { node, status: Status::Alive });
        // Whoever is told of a whole cluster at once hears of the rest by gossip.
        if self.greetings_left > 0 {
            self.greetings_left -= 1;
            self.send_gossip(now, node, true, outbox);
        }
    }

    pub(super) fn member_left(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        if self.situation.members.leave(node) {
            outbox.push(Output::MemberStatus { node, status: Status::Gone });
            self.forget_promises_of(now, node, outbox);
        }
    }

    pub(super) fn datagram_received(
        &mut self,
        now: Time,
        from: NodeId,
        bytes: &[u8],
        outbox: &mut Outbox,
    ) {
        let place = self.situation.members.place_of(from);
        let admits =
            from != self.situation.me && (place.is_some() || self.situation.members.is_partial());
        let message = match Message::decode(bytes, now) {
            Ok(message) if message.sender.node == from && admits => message,
            _ => {
                self.rejected_datagrams = self.rejected_datagrams.saturating_add(1);
                return;
            }
        };
        if place
            .is_some_and(|place| self.situation.members.is_of_earlier_life(place, &message.sender))
        {
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
            Body::Release(id) => self.situation.reservations.release(from, id),
        }
    }

    /// A node that started again with a smaller number (its clock was set back) would be ignored
    /// for ever: it is told what is known of it, and outlives that.
    fn refute_an_earlier_life(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        let Some(known) = self.situation.members.get(node) else { return };
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
        let (sequence, own) =
            (Some(message.sequence), (self.estimated_load(), &*self.situation.config));
        if self.situation.members.learn_at(now, place, &sender, sequence, &mut strangers, own) {
            outbox.push(Output::MemberStatus { node: sender.node, status: Status::Alive });
        }
        if let Body::Gossip { window, .. } = message.body {
            window.entries(now).for_each(|entry| {
                self.learn(now, entry, &mut strangers, outbox);
            });
        }
        self.situation.members.admit(now, strangers, &self.situation.config);
    }

    fn learn(
        &mut self,
        now: Time,
        mut entry: Entry,
        strangers: &mut Strangers,
        outbox: &mut Outbox,
    ) {
        if entry.node == self.situation.me {
            // News of an earlier life of this node that passes for a later one: outlive it.
            if entry.incarnation > self.incarnation {
                self.incarnation = entry.incarnation.saturating_add(1);
            }
            return;
        }
        entry.count_hop();
        let own = (self.estimated_load(), &*self.situation.config);
        if self.situation.members.learn(now, &entry, None, strangers, own) {
            outbox.push(Output::MemberStatus { node: entry.node, status: Status::Alive });
        }
    }

    /// Of MOSIX; 0 where another policy decides.
    fn estimated_load(&self) -> f64 {
        self.estimate.as_ref().map_or(0.0, |estimate| estimate.load())
    }

    pub(super) fn send(&mut self, now: Time, to: NodeId, body: Body<'_>, outbox: &mut Outbox) {
        let condition = self.situation.condition_for_guests(now);
        self.send_as(now, to, condition, body, outbox);
    }

    pub(super) fn send_as(
        &mut self,
        now: Time,
        to: NodeId,
        condition: Option<Condition>,
        body: Body<'_>,
        outbox: &mut Outbox,
    ) {
        let condition = match self.situation.config.decision {
            Decision::Mosix => {
                let exported = self.estimate.as_ref().map_or(0.0, |estimate| estimate.exported);
                condition.map(|own| own.with_runnable(exported))
            }
            _ => condition,
        };
        let mut sender = Entry::new(self.situation.me, self.incarnation, now, condition.as_ref());
        if now < self.urgent_until {
            sender.urgency = self.situation.members.urgency();
        }
        self.messages_sent = self.messages_sent.wrapping_add(1);
        let sequence = self.messages_sent;
        let message = Message { sender, sequence, body };
        let bytes = message.encode(now, self.situation.config.window);
        outbox.push(Output::SendDatagram { to, bytes });
    }
}
