//! Calls, links and members: how this node comes to know the others, and what they tell it.

use super::{Daemon, Dial, Event, foresight};
use crate::control::Answer;
use crate::keys::ClusterSecret;
use crate::keys::seal::Seal;
use crate::keys::token::Token;
use crate::members::{Members, Merge};
use crate::net::Credentials;
use crate::net::call::{Call, CallError, call_member, call_to_join};
use crate::net::link::{Link, LinkId, OpenLink};
use crate::net::listener::{Accepted, Calling};
use crate::state::Membership;
use cluster::Input;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wire::control::{Failure, Happening, Reply};
use wire::ids::{NodeId, Ticket};
use wire::peer::{MEMBERS_PER_MESSAGE, Member, PeerMessage, Selected, select};

/// The node with the higher number calls; the other one only if nobody called for so long.
const PATIENCE_OF_LOWER: Duration = Duration::from_secs(3);
/// After a failed call, wait; doubles up to the second.
const REDIAL_FIRST: Duration = Duration::from_millis(250);
const REDIAL_MAX: Duration = Duration::from_secs(8);

impl Daemon {
    /// Calls the members to whom there is no link, the lower numbers first of all.
    pub(super) fn call_members(&mut self, now: Instant) {
        let me = self.me();
        let due: Vec<Member> = self
            .members
            .others()
            .filter(|member| !self.links.contains_key(&member.node))
            .filter(|member| match self.dials.get(&member.node) {
                Some(dial) => !dial.is_calling && dial.next <= now,
                None => true,
            })
            .copied()
            .collect();
        for member in due {
            let known = self.dials.contains_key(&member.node);
            let next = if known || me > member.node { now } else { now + PATIENCE_OF_LOWER };
            let first = Dial { is_calling: false, next, failures: 0 };
            let dial = self.dials.entry(member.node).or_insert(first);
            if dial.next <= now {
                dial.is_calling = true;
                self.dial(member);
            }
        }
    }

    fn dial(&self, member: Member) {
        let credentials = self.credentials.borrow().clone();
        let call = Call {
            address: member.address,
            key: member.key,
            node: Some(self.me()),
            listen: self.listens,
        };
        let (events, node) = (self.events.clone(), member.node);
        tokio::spawn(async move {
            let event = match call_member(call, credentials).await {
                Ok(open) => Event::Linked { node, open, is_dialed: true },
                Err(error) => Event::DialFailed { node, error },
            };
            // Nobody is left to be told once the daemon has ended.
            let _ = events.send(event).await;
        });
    }

    pub(super) fn dial_failed(&mut self, node: NodeId, error: CallError) {
        if self.links.contains_key(&node) {
            // It has called meanwhile.
            self.dials.remove(&node);
            return;
        }
        let Some(dial) = self.dials.get_mut(&node) else { return };
        let wait = (REDIAL_FIRST * 2u32.saturating_pow(dial.failures.min(10))).min(REDIAL_MAX);
        if dial.failures == 0 {
            tracing::info!("node {node}: {error}");
        }
        dial.failures += 1;
        dial.is_calling = false;
        dial.next = Instant::now() + wait;
    }

    /// Decides about a call whose keys are right.
    pub(super) fn take_call(&mut self, calling: Calling) {
        let accepted = self.judge_call(&calling);
        if calling.accept.send(accepted).is_err() {
            tracing::debug!("a caller from {} has left", calling.from);
        }
    }

    fn judge_call(&mut self, calling: &Calling) -> Option<Accepted> {
        if self.drain.is_some() || !self.replay.is_new(calling.key, calling.hello.sent_ns) {
            return None;
        }
        let kept = self.call_record.keep(&self.replay);
        let mut address = calling.hello.listen;
        if address.ip().is_unspecified() {
            address.set_ip(calling.from.ip());
        }
        let node = if calling.ticket == Ticket([0; 16]) {
            calling.hello.node?
        } else {
            self.admit(calling)?
        };
        let member = Member { node, address, key: calling.key };
        match self.members.introduce(member) {
            Merge::Conflict | Merge::Full => return None,
            Merge::Known => (),
            Merge::New => self.member_joined(member),
            Merge::Relocated => self.keep_membership(),
        }
        let selected = Selected { version: select(&calling.hello.offers) };
        Some(Accepted { node, selected, kept })
    }

    /// A node with a good token gets a number: its old one, if it was here before.
    fn admit(&mut self, calling: &Calling) -> Option<NodeId> {
        if !self.tokens.take(Instant::now(), calling.ticket) {
            return None;
        }
        let known = self.members.by_key(calling.key).map(|member| member.node);
        let node = known.unwrap_or_else(|| self.members.next_free());
        self.joining_callers.insert(node);
        Some(node)
    }

    pub(super) fn linked(&mut self, node: NodeId, open: OpenLink, is_dialed: bool) {
        // While a call of ours is on its way there must be no second one: if the link that came in
        // meanwhile is lost to it, each new call would end the link that the last one has made.
        if is_dialed || self.dials.get(&node).is_some_and(|dial| !dial.is_calling) {
            self.dials.remove(&node);
        }
        // Two nodes that called each other at the same time must keep the same one of the links.
        if let Some(link) = self.links.get(&node) {
            let higher_called = |dialed: bool| dialed == (self.me() > node);
            if link.is_dialed != is_dialed && higher_called(link.is_dialed) {
                return;
            }
        }
        self.link_count += 1;
        let id = LinkId(self.link_count);
        let link = Link::start(id, node, is_dialed, open, self.events.clone());
        if self.joining_callers.remove(&node) {
            self.welcome(node, &link);
        }
        self.tell_members(&link);
        if self.links.insert(node, link).is_some() {
            // What was on its way through the old one may not have arrived.
            self.wishes_lost(node);
        }
        // It may have left before.
        self.tell_brain(Input::MemberJoined { node });
        tracing::info!("linked to node {node}");
        self.ask_after_linking(node);
    }

    fn welcome(&self, node: NodeId, link: &Link) {
        let Some(member) = self.members.get(node) else { return };
        link.send(PeerMessage::Welcome {
            node,
            secret: self.secret.0,
            address: member.address,
            by: self.members.me(),
        });
    }

    fn tell_members(&self, link: &Link) {
        let all: Vec<Member> = self.members.all().copied().collect();
        for part in all.chunks(MEMBERS_PER_MESSAGE) {
            link.send(PeerMessage::Members(part.to_vec()));
        }
    }

    pub(super) fn link_lost(&mut self, node: NodeId, link: LinkId, error: io::Error) {
        if self.links.get(&node).is_some_and(|current| current.id == link) {
            tracing::info!("lost the link to node {node}: {error}");
            self.links.remove(&node);
            self.berths_lost(node);
            self.wishes_lost(node);
        }
    }

    /// False if there is no link to that node, or it takes nothing.
    pub(super) fn say(&self, node: NodeId, message: PeerMessage) -> bool {
        self.links.get(&node).is_some_and(|link| link.send(message))
    }

    pub(super) fn hear(&mut self, node: NodeId, link: LinkId, message: PeerMessage) {
        if self.links.get(&node).is_none_or(|current| current.id != link) {
            return;
        }
        match message {
            PeerMessage::Ping => (),
            PeerMessage::Members(members) => self.hear_members(node, members),
            PeerMessage::Welcome { .. } => tracing::warn!("node {node} welcomes a member"),
            PeerMessage::BerthAsked { request, berth } => self.berth_asked(node, request, berth),
            PeerMessage::BerthAnswered { request, answer } => {
                self.berth_answered(node, request, answer);
            }
            PeerMessage::MoveWanted { pid, to, motive, reason } => {
                self.move_wanted(node, pid, to, (motive, reason));
            }
            PeerMessage::MoveEnded { pid, to, end, freeze_us } => {
                self.guest_move_ended(node, pid, to, end, freeze_us);
            }
            PeerMessage::CallsCounted { pid, per_s, user_milli } => {
                self.calls_counted(node, pid, per_s, user_milli);
            }
            PeerMessage::Leaving => self.tell_brain(Input::MemberLeft { node }),
            PeerMessage::Decided { pid, verdict, reason, rate_milli, places } => {
                let weighed = foresight::heard(rate_milli, places);
                self.hear_decision(node, pid, &verdict, &reason, weighed);
            }
        }
    }

    fn hear_members(&mut self, from: NodeId, members: Vec<Member>) {
        let mut news = Vec::new();
        for member in members {
            match self.members.merge(member) {
                Merge::New => {
                    self.member_joined(member);
                    news.push(member);
                }
                Merge::Known | Merge::Relocated => (),
                Merge::Conflict | Merge::Full => {
                    tracing::warn!("node {from} says that node {} is another", member.node);
                }
            }
        }
        self.spread(from, &news);
    }

    /// Tells all but one node of new members.
    fn spread(&self, but: NodeId, news: &[Member]) {
        for part in news.chunks(MEMBERS_PER_MESSAGE) {
            for (node, link) in &self.links {
                if *node != but {
                    link.send(PeerMessage::Members(part.to_vec()));
                }
            }
        }
    }

    fn member_joined(&mut self, member: Member) {
        self.keep_membership();
        self.spread(member.node, &[member]);
        let address = member.address.to_string();
        self.journal.record(None, Happening::NodeJoined { node: member.node, address });
        self.tell_brain(Input::MemberJoined { node: member.node });
    }

    pub(super) fn keep_membership(&self) {
        // With a map, the file is the truth.
        if self.config.map.is_some() {
            return;
        }
        let membership = Membership {
            node: self.me(),
            secret: self.secret.clone(),
            members: self.members.all().copied().collect(),
        };
        if let Err(error) = self.state.keep_membership(&membership) {
            tracing::error!("{error}");
        }
    }

    pub(super) fn rejected(&mut self, from: SocketAddr, reason: String) {
        let Some(untold) = self.rejections.tell(Instant::now(), from.ip()) else { return };
        let reason = match untold {
            0 => reason,
            _ => format!("{reason} (and {untold} more before)"),
        };
        tracing::warn!("rejected {from}: {reason}");
        self.journal.record(None, Happening::Rejected { address: from.to_string(), reason });
    }

    /// Calls the member that made the token. Answered when it has answered.
    pub(super) fn join(&mut self, address: &str, token: &str, answer: oneshot::Sender<Answer>) {
        let refuse = |answer: oneshot::Sender<Answer>, code: &str, text: String| {
            let failure = Failure { code: code.to_owned(), text };
            let _ = answer.send(Answer::One(Reply::Error(failure)));
        };
        let token: Token = match token.parse() {
            Ok(token) => token,
            Err(error) => return refuse(answer, "bad-token", error.to_string()),
        };
        if let Some(why) = self.why_not_join() {
            return refuse(answer, "cannot-join", format!("cannot join: {why}"));
        }
        self.joining = Some(answer);
        let listen = self.listens;
        let credentials = self.credentials.borrow().clone();
        let (events, address) = (self.events.clone(), address.to_owned());
        tokio::spawn(async move {
            let result = async {
                let address = find_address(&address, token.address.port()).await?;
                let call = Call { address, key: token.key, node: None, listen };
                let (open, message) = call_to_join(call, credentials, &token).await?;
                Ok((open, message, address))
            };
            // Nobody is left to be told once the daemon has ended.
            let _ = events.send(Event::Joined(Box::new(result.await))).await;
        });
    }

    fn why_not_join(&self) -> Option<&'static str> {
        if self.config.map.is_some() {
            return Some("this node's cluster is the one in its map file");
        }
        if self.members.count() > 1 {
            return Some("this node is in a cluster already; `osmos down`, remove its state first");
        }
        if self.joining.is_some() {
            return Some("this node is just joining another cluster");
        }
        if !self.processes.is_empty() {
            return Some("this node has processes under osmos; let them end first");
        }
        None
    }

    pub(super) fn join_ended(
        &mut self,
        result: Result<(OpenLink, PeerMessage, SocketAddr), CallError>,
    ) {
        let Some(answer) = self.joining.take() else { return };
        let reply = match result {
            Ok((open, PeerMessage::Welcome { node, secret, address, by }, dialed)) => {
                let me = Member { node, address, key: self.members.me().key };
                // That address has just been seen to work.
                let by = Member { address: dialed, ..by };
                self.become_member(me, ClusterSecret(secret), by);
                self.linked(by.node, open, true);
                Reply::Done
            }
            Ok((_, _, dialed)) => Reply::Error(Failure {
                code: "cannot-join".to_owned(),
                text: format!("cannot join: {dialed} answers something else"),
            }),
            Err(error) => {
                Reply::Error(Failure { code: "cannot-join".to_owned(), text: join_text(&error) })
            }
        };
        let _ = answer.send(Answer::One(reply));
    }

    fn become_member(&mut self, me: Member, secret: ClusterSecret, by: Member) {
        let own = self.credentials.borrow().own.clone();
        let link_key = secret.link_key();
        self.credentials.send_replace(Credentials { own, link_key, seal: Seal::of(&secret) });
        self.secret = secret;
        self.members = Members::new(me, []);
        self.new_brain();
        self.members.merge(by);
        self.member_joined(by);
        tracing::info!("this is node {} now, reached at {}", me.node, me.address);
    }

    /// This node goes in an orderly way: nobody need find out by its silence.
    pub(super) fn farewell(&self) {
        for link in self.links.values() {
            link.send(PeerMessage::Leaving);
        }
    }
}

fn join_text(error: &CallError) -> String {
    match error {
        CallError::Silence(address) => format!(
            "cannot join: {address} gives no answer: the token was used, is too old, or is from \
             another node; make a new one there with `osmos token`"
        ),
        other => format!("cannot join: {other}"),
    }
}

/// The address that the user gave, with or without a port.
async fn find_address(given: &str, port: u16) -> Result<SocketAddr, CallError> {
    let given = given.trim();
    let host = || CallError::Host(given.chars().take(100).collect());
    if let Ok(address) = given.parse() {
        return Ok(address);
    }
    let found = match given.contains(':') {
        true => tokio::net::lookup_host(given).await.map(|mut all| all.next()),
        false => tokio::net::lookup_host((given, port)).await.map(|mut all| all.next()),
    };
    found.ok().flatten().ok_or_else(host)
}
