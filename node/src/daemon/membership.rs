//! Who belongs to the cluster, as it changes: nodes that leave or are forgotten, another secret,
//! and numbers for those that join. Reasons: `docs/decisions/0014-membership.md`.

use super::Daemon;
use super::acts::Whom;
use super::requests::failure;
use crate::control::{Answer, Caller};
use crate::keyring::Told;
use crate::keys::{ClusterSecret, NodeSecret};
use crate::members::Members;
use crate::net::link::Link;
use crate::net::listener::Calling;
use crate::net::wall_clock_s;
use crate::passage::LEAVE_PATIENCE;
use crate::process::{Cause, Order};
use crate::state::{Membership, StateError};
use brain::{Arrival, Input};
use std::time::Instant;
use tokio::sync::oneshot;
use wire::control::{Failure, Happening, Placement, Reply};
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::peer::{Forgotten, MEMBERS_PER_MESSAGE, Member, PeerMessage};
use wire::supervisor::ToBody;

/// Where a member is written down that is in no list of this node's.
const IN_MAP: &str = "this node's cluster is the one in its map file";

impl Daemon {
    /// The lowest numbers belong to the nodes that were there first: who reaches one lets it give
    /// the number. Returns the call if there is nothing to wait for.
    pub(super) fn ask_for_number(&mut self, calling: Calling) -> Option<Calling> {
        let me = self.me();
        let lowest = self.links.nodes().find(|node| *node < me);
        let is_new = calling.ticket != Ticket([0; 16])
            && self.admissions.psk(Instant::now(), calling.ticket).is_some()
            && self.members.by_key(calling.key).is_none();
        let Some(asked) = lowest.filter(|_| is_new && self.admissions.has_room()) else {
            return Some(calling);
        };
        let request = self.admissions.next_request();
        if !self.links.say(asked, PeerMessage::NumberAsked { request }) {
            return Some(calling);
        }
        self.admissions.wait(Instant::now(), request, asked, calling);
        None
    }

    pub(super) fn number_asked(&mut self, by: NodeId, request: u64) {
        // Without an answer it gives one of its own.
        let now = Instant::now();
        if !self.admissions.may_give(now) {
            return;
        }
        let Some(node) = self.members.give_number() else { return };
        self.admissions.has_given(now);
        // On the disk before anybody has it, or it would be given again after a crash.
        if self.keep_membership().is_ok() {
            self.links.say(by, PeerMessage::NumberGiven { request, node });
        }
    }

    pub(super) fn number_given(&mut self, by: NodeId, request: u64, number: NodeId) {
        let Some(calling) = self.admissions.answered(by, request) else { return };
        let is_free = number != NodeId(0) && self.members.get(number).is_none();
        self.answer_call(calling, is_free.then_some(number));
    }

    /// Nobody has given a number in time.
    pub(super) fn admit_without_answer(&mut self, now: Instant) {
        while let Some(calling) = self.admissions.overdue(now) {
            self.answer_call(calling, None);
        }
    }

    /// Those who belong no more, before those who do and before the secret: whoever has the secret
    /// knows who must not hear it.
    pub(super) fn tell_forgotten(&self, link: &Link) {
        let all: Vec<Forgotten> = self.members.forgotten().copied().collect();
        for part in all.chunks(MEMBERS_PER_MESSAGE) {
            link.send(PeerMessage::Forgotten(part.to_vec()));
        }
    }

    pub(super) fn tell_secret_and_stamp(&self, node: NodeId, link: &Link) {
        if self.config.map.is_none() {
            let (generation, secret) = self.keyring.secret();
            link.send(PeerMessage::Secret { generation, secret });
        }
        let Some(member) = self.members.get(node) else { return };
        let newest_ns = self.keyring.newest_of(node, member.key);
        link.send(PeerMessage::Stamped { newest_ns });
    }

    /// A member says that it goes for good.
    pub(super) fn member_left(&mut self, node: NodeId) {
        if self.config.map.is_none() {
            self.forget_member(node, "it has left");
        }
    }

    pub(super) fn hear_forgotten(&mut self, from: NodeId, gone: &[Forgotten]) {
        if self.config.map.is_some() {
            tracing::warn!("node {from} speaks of nodes that were forgotten: {IN_MAP}");
            return;
        }
        let mut news = Vec::new();
        for gone in gone {
            let me = self.members.me();
            let is_member = self.members.get(gone.node).is_some_and(|it| it.key == gone.key);
            if gone.node == me.node || gone.key == me.key {
                tracing::warn!("node {from} says that this node was forgotten");
            } else if is_member {
                self.forget_member(gone.node, &format!("node {from} says so"));
            } else if self.members.forget(*gone) {
                news.push(*gone);
            }
        }
        if !news.is_empty() {
            self.keep_membership_or_complain();
            self.spread_forgotten(&news, from);
        }
    }

    /// Removes a member for good, and tells the others. What it has of this node's comes home if it
    /// still can, and what this node has of its goes.
    fn forget_member(&mut self, node: NodeId, reason: &str) {
        let Some(member) = self.members.get(node).copied() else { return };
        let gone = Forgotten { node, key: member.key };
        self.part_from(node);
        if !self.members.forget(gone) {
            return;
        }
        self.keep_membership_or_complain();
        if let Some(link) = self.links.remove(node) {
            // What it was told before it is cut off arrives.
            tokio::spawn(link.finish());
            self.berths_lost(node);
            self.wishes_lost(node);
            self.inquiries_lost(node);
        }
        self.others.forget(node);
        self.spread_forgotten(&[gone], node);
        self.tell_brain(Input::MemberLeft { node });
        let reason = reason.to_owned();
        self.journal.record(None, Happening::NodeForgotten { node, reason });
    }

    fn part_from(&mut self, node: NodeId) {
        let me = self.me();
        let mut unplaced = Vec::new();
        for process in self.processes.values_mut() {
            if process.placement == Placement::Node(node) {
                process.placement = Placement::Balanced;
                unplaced.push(process.pid);
            }
        }
        for pid in unplaced {
            self.tell_brain_placement(pid);
            self.keep_process(pid);
        }
        let there = self.processes.values().filter(|process| process.at == node);
        let there: Vec<HomePid> = there.map(|process| process.pid).collect();
        for pid in there {
            let why = format!("node {node} is forgotten");
            self.order_move(pid, Order::new(me, Cause::Owner, why));
        }
        for guest in self.hosting.of_home_mut(node) {
            guest.is_sent_home |= guest.supervisor.send(&ToBody::SendHome, None);
        }
    }

    fn spread_forgotten(&self, gone: &[Forgotten], but: NodeId) {
        for part in gone.chunks(MEMBERS_PER_MESSAGE) {
            self.links.say_to_all_but(Some(but), &PeerMessage::Forgotten(part.to_vec()));
        }
    }

    /// `osmos forget`.
    pub(super) fn forget(&mut self, node: NodeId, force: bool) -> Result<Reply, Failure> {
        let refuse =
            |why: String| Err(failure("cannot-forget", format!("cannot forget it: {why}")));
        if self.config.map.is_some() {
            return refuse(format!(
                "{IN_MAP}; remove it there, on every node, and start them again"
            ));
        }
        if node == self.me() {
            return refuse("it is this node; `osmos leave` is for that".to_owned());
        }
        if self.members.get(node).is_none() {
            return Err(self.no_such_node(node));
        }
        if self.links.contains(node) && !force {
            let why = "it is there and answers; `osmos leave` on it, or give --force";
            return refuse(format!("node {node}: {why}"));
        }
        self.forget_member(node, "its owner said so");
        Ok(Reply::Done)
    }

    /// `osmos renew-secret`.
    pub(super) fn renew_secret(&mut self) -> Result<Reply, Failure> {
        let refuse = |why: String| Err(failure("cannot-renew", format!("no new secret: {why}")));
        if self.config.map.is_some() {
            let how = "put another cluster.key on every node and start them again";
            return refuse(format!("{IN_MAP}; {how}"));
        }
        let before = match self.keyring.renew(wall_clock_s()) {
            Ok(before) => before,
            Err(error) => return refuse(error.to_string()),
        };
        // Whoever is told a secret that is lost in a crash here could not be followed.
        if let Err(error) = self.keep_membership() {
            self.keyring.put_back(before);
            return refuse(error.to_string());
        }
        self.secret_changed(None);
        Ok(Reply::Done)
    }

    pub(super) fn hear_secret(&mut self, from: NodeId, generation: u64, secret: [u8; 32]) {
        if self.config.map.is_some() {
            return;
        }
        match self.keyring.hear(wall_clock_s(), generation, ClusterSecret(secret)) {
            Told::Known => (),
            Told::Old => {
                self.keep_membership_or_complain();
                self.keyring.show();
            }
            Told::New => {
                self.keep_membership_or_complain();
                self.secret_changed(Some(from));
            }
        }
    }

    fn secret_changed(&mut self, heard_from: Option<NodeId>) {
        self.keyring.show();
        let (generation, secret) = self.keyring.secret();
        self.links.say_to_all_but(heard_from, &PeerMessage::Secret { generation, secret });
        self.journal.record(None, Happening::SecretRenewed { generation });
    }

    pub(super) fn keep_membership_or_complain(&self) {
        if let Err(error) = self.keep_membership() {
            tracing::error!("{error}");
        }
    }

    /// `osmos leave`: answered when this node is in a cluster of its own.
    pub(super) fn leave_cluster(&mut self, caller: Caller, answer: oneshot::Sender<Answer>) {
        let why_not = if self.config.map.is_some() {
            Some(format!("{IN_MAP}; remove it there, on every node, and start them again"))
        } else {
            self.passage.why_not_leave().map(str::to_owned)
        };
        if let Some(why) = why_not {
            let failure = failure("cannot-leave", format!("cannot leave: {why}"));
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(Reply::Error(failure)));
            return;
        }
        let now = Instant::now();
        self.passage.begin_leaving(now, answer);
        self.acted_on_all(caller, "leave the cluster", Whom::GuestsAndAway);
        self.send_guests_home(|_| true);
        self.bring_home(|_| true);
        self.go_on_leaving(now);
    }

    pub(super) fn go_on_leaving(&mut self, now: Instant) {
        if !self.passage.is_leaving() {
            return;
        }
        let left = self.guests_left().into_iter().chain(self.own_left());
        let left: Vec<String> = left.collect();
        let Some(asker) = self.passage.end_leaving(now, left.is_empty()) else { return };
        let reply = if left.is_empty() {
            self.be_alone().map_err(|error| failure("cannot-leave", error.to_string()))
        } else {
            let seconds = LEAVE_PATIENCE.as_secs();
            let text =
                format!("cannot leave: after {seconds} s there are still {}", left.join(", "));
            Err(failure("still-there", text))
        };
        let reply = reply.map_or_else(Reply::Error, |()| Reply::Done);
        let _ = asker.send(Answer::One(reply));
    }

    /// Node 1 of a cluster of its own, with another key, as if it had never been in one.
    fn be_alone(&mut self) -> Result<(), StateError> {
        let before = self.me();
        let (own, secret) = (NodeSecret::generate()?, ClusterSecret::generate()?);
        let me = Member { node: NodeId(1), key: own.public(), ..self.members.me() };
        self.state.keep_membership(&Membership::new(me.node, secret.clone(), vec![me]))?;
        // After a crash before this it has left as well, with its old key.
        self.state.keep_node_secret(&own)?;
        self.members = Members::new(me, []);
        for link in self.links.take_all() {
            link.send(PeerMessage::Left);
            tokio::spawn(link.finish());
        }
        self.keyring.begin_anew(own, secret);
        self.admissions.clear();
        self.others.forget_all();
        self.journal.record(
            None,
            Happening::NodeForgotten {
                node: before,
                reason: "this node has left its cluster".to_owned(),
            },
        );
        self.new_brain();
        self.tell_of_own_processes();
        Ok(())
    }

    /// To a brain that knows nothing yet.
    fn tell_of_own_processes(&mut self) {
        let me = self.me();
        let pids: Vec<HomePid> = self.processes.keys().copied().collect();
        for pid in pids {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.at = me;
                if matches!(process.placement, Placement::Node(_)) {
                    process.placement = Placement::Balanced;
                }
            }
            // The next daemon must not take it for one that is away.
            self.keep_process(pid);
            let process = GlobalPid { home: me, pid };
            self.tell_brain(Input::ProcessArrived { process, how: Arrival::Born });
            self.tell_brain_placement(pid);
        }
    }
}
