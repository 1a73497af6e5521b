//! Calls, links and members: how this node comes to know the others, and what they tell it.

use super::{Daemon, Event, foresight};
use crate::control::Answer;
use crate::keys::ClusterSecret;
use crate::keys::token::Token;
use crate::members::{Members, Merge};
use crate::net::call::{Call, CallError, call_member, call_to_join};
use crate::net::link::{Link, LinkId, OpenLink};
use crate::net::listener::{Accepted, Calling, Rejection};
use crate::state::{Membership, StateError};
use brain::Input;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::sync::oneshot;
use wire::control::{Failure, Happening, Reply};
use wire::ids::{NodeId, Ticket};
use wire::peer::{MEMBERS_PER_MESSAGE, Member, PeerMessage, Selected, select};

impl Daemon {
    /// Calls the members to whom there is no link, the lower numbers first of all.
    pub(super) fn call_members(&mut self, now: Instant) {
        let me = self.me();
        for (member, failures) in self.links.due_calls(self.members.others(), me, now) {
            self.dial(member, failures);
        }
    }

    fn dial(&self, member: Member, failures: u32) {
        let credentials = self.keyring.credentials().clone();
        // It may have been away when the secret was renewed, and know an old one.
        let known = 1 + credentials.old_link_keys().len();
        let call = Call {
            secret: failures as usize % known,
            stamp: self.keyring.stamp(),
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
        let Some(unanswered) = self.links.dial_failed(node, Instant::now()) else { return };
        if unanswered.is_first {
            tracing::info!("node {node}: {error}");
        }
        if unanswered.is_last {
            tracing::info!("node {node} is not called any more until it is heard of");
        }
    }

    /// Decides about a call whose keys are right.
    pub(super) fn take_call(&mut self, calling: Calling) {
        let Some(calling) = self.ask_for_number(calling) else { return };
        self.answer_call(calling, None);
    }

    /// `given`: the number for a node that joins, if another node was asked for one.
    pub(super) fn answer_call(&mut self, calling: Calling, given: Option<NodeId>) {
        let accepted = self.judge_call(&calling, given);
        if calling.accept.send(accepted).is_err() {
            tracing::debug!("a caller from {} has left", calling.from);
        }
    }

    fn judge_call(
        &mut self,
        calling: &Calling,
        given: Option<NodeId>,
    ) -> Result<Accepted, Rejection> {
        if self.passage.is_going_down() {
            return Err(Rejection::GoingDown);
        }
        let kept = self.keyring.take_call(calling.key, calling.hello.sent_ns);
        let kept = kept.ok_or(Rejection::PlayedAgain)?;
        let mut address = calling.hello.listen;
        if address.ip().is_unspecified() {
            address.set_ip(calling.from.ip());
        }
        let node = if calling.ticket == Ticket([0; 16]) {
            calling.hello.node.ok_or(Rejection::NoMember)?
        } else {
            self.admit(calling, given)?
        };
        if self.members.is_forgotten(node, calling.key) {
            return Err(Rejection::Forgotten);
        }
        if calling.is_with_old_secret && self.members.by_key(calling.key).is_none() {
            return Err(Rejection::OldSecret);
        }
        let member = Member { node, address, key: calling.key };
        match self.members.introduce(member) {
            Merge::Conflict | Merge::Full => return Err(Rejection::OtherNode),
            Merge::Forgotten => return Err(Rejection::Forgotten),
            Merge::Known => (),
            Merge::New => self.member_joined(member),
            Merge::Relocated => self.keep_membership_or_complain(),
        }
        let selected = Selected { version: select(&calling.hello.offers) };
        Ok(Accepted { node, selected, kept })
    }

    /// A node with a good token gets a number: its old one, if it was here before.
    fn admit(&mut self, calling: &Calling, given: Option<NodeId>) -> Result<NodeId, Rejection> {
        if !self.admissions.take(Instant::now(), calling.ticket) {
            return Err(Rejection::NoMember);
        }
        let known = self.members.by_key(calling.key).map(|member| member.node);
        let node = known.or(given).or_else(|| self.members.give_number());
        let node = node.ok_or(Rejection::NoNumber)?;
        self.admissions.let_in(node);
        Ok(node)
    }

    pub(super) fn linked(&mut self, node: NodeId, open: OpenLink, is_dialed: bool) {
        self.links.answered(node, is_dialed);
        // It may have been forgotten since it was let in: it gets no word more, the secret least.
        let is_forgotten = self.members.forgotten().any(|gone| gone.node == node);
        if is_forgotten && self.members.get(node).is_none() {
            tracing::info!("node {node} was forgotten while it called");
            return;
        }
        // Two nodes that called each other at the same time must keep the same one of the links.
        if self.links.keeps_old(self.me(), node, is_dialed) {
            return;
        }
        let link = self.links.start(node, open, is_dialed, self.events.clone());
        if self.admissions.has_come(node) {
            self.welcome(node, &link);
        }
        link.send(PeerMessage::Processor(Box::new(self.others.own_processor().clone())));
        link.send(self.own_move_limits());
        self.tell_name(&link);
        self.tell_forgotten(&link);
        self.tell_members(&link);
        self.tell_secret_and_stamp(node, &link);
        if self.links.insert(node, link).is_some() {
            // What was on its way through the old one may not have arrived.
            self.wishes_lost(node);
            self.inquiries_lost(node);
        }
        // It may have left before.
        self.tell_brain(Input::MemberJoined { node });
        tracing::info!("linked to node {node}");
        self.ask_after_linking(node);
        self.be_followed_at(node);
    }

    fn welcome(&self, node: NodeId, link: &Link) {
        let Some(member) = self.members.get(node) else { return };
        link.send(PeerMessage::Welcome {
            node,
            secret: self.keyring.secret().1,
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
        if self.links.lost(node, link) {
            tracing::info!("lost the link to node {node}: {error}");
            self.berths_lost(node);
            self.wishes_lost(node);
            self.inquiries_lost(node);
        }
    }

    pub(super) fn hear(&mut self, node: NodeId, link: LinkId, message: PeerMessage) {
        if !self.links.is_current(node, link) {
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
            PeerMessage::BirthOff { pid } => self.birth_is_off(node, pid),
            PeerMessage::CallsCounted { pid, per_s, user_milli } => {
                self.calls_counted(node, pid, per_s, user_milli);
            }
            PeerMessage::Processor(processor) => self.hear_processor(node, *processor),
            PeerMessage::MoveLimits(limits) => self.hear_move_limits(node, limits),
            PeerMessage::Inquired { inquiry, uid, request } => {
                self.inquired(node, inquiry, uid, &request);
            }
            PeerMessage::AnswerPart { inquiry, bytes, is_last } => {
                self.inquiries.hear_part(node, inquiry, (bytes, is_last));
            }
            PeerMessage::AnswerTaken { inquiry } => self.inquiries.part_taken(node, inquiry),
            PeerMessage::InquiryEnded { inquiry, is_heard } => {
                self.inquiry_ended(node, inquiry, is_heard);
            }
            PeerMessage::Name(name) => self.hear_name(node, &name),
            PeerMessage::Leaving => self.tell_brain(Input::MemberLeft { node }),
            PeerMessage::Left => self.member_left(node),
            PeerMessage::Forgotten(gone) => self.hear_forgotten(node, &gone),
            PeerMessage::Secret { generation, secret } => {
                self.hear_secret(node, generation, secret)
            }
            PeerMessage::Stamped { newest_ns } => self.keyring.stamp_heard(newest_ns),
            PeerMessage::NumberAsked { request } => self.number_asked(node, request),
            PeerMessage::NumberGiven { request, node: number } => {
                self.number_given(node, request, number);
            }
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
                // Who says so will hear that it was forgotten.
                Merge::Known | Merge::Relocated | Merge::Forgotten => (),
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
            self.links.say_to_all_but(Some(but), &PeerMessage::Members(part.to_vec()));
        }
    }

    fn member_joined(&mut self, member: Member) {
        self.keep_membership_or_complain();
        self.spread(member.node, &[member]);
        let address = member.address.to_string();
        self.journal.record(None, Happening::NodeJoined { node: member.node, address });
        self.tell_brain(Input::MemberJoined { node: member.node });
    }

    pub(super) fn keep_membership(&self) -> Result<(), StateError> {
        // With a map, the file is the truth.
        if self.config.map.is_some() {
            return Ok(());
        }
        let membership = Membership {
            node: self.me(),
            secrets: self.keyring.secrets().clone(),
            members: self.members.all().copied().collect(),
            forgotten: self.members.forgotten().copied().collect(),
            given: self.members.given(),
        };
        self.state.keep_membership(&membership)
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
        self.passage.begin_joining(answer);
        let (listen, stamp) = (self.listens, self.keyring.stamp());
        let credentials = self.keyring.credentials().clone();
        let (events, address) = (self.events.clone(), address.to_owned());
        tokio::spawn(async move {
            let result = async {
                let address = find_address(&address, token.address.port()).await?;
                let call = Call { address, key: token.key, node: None, listen, stamp, secret: 0 };
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
            return Some("this node is in a cluster already: `osmos leave` first");
        }
        if self.passage.is_joining() {
            return Some("this node is just joining another cluster");
        }
        if self.passage.is_closing() {
            return Some("this node is going down, or leaves its cluster");
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
        let Some(answer) = self.passage.end_joining() else { return };
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
        self.keyring.join(secret);
        self.members = Members::new(me, []);
        self.others.forget_all();
        self.new_brain();
        self.members.merge(by);
        self.member_joined(by);
        tracing::info!("this is node {} now, reached at {}", me.node, me.address);
    }

    /// This node goes in an orderly way: nobody need find out by its silence.
    pub(super) fn farewell(&self) {
        self.links.say_to_all(&PeerMessage::Leaving);
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
