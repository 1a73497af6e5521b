//! Requests that another node answers: tools here ask there, and tools there ask here.
//!
//! A user of another node is here whom the table of users makes of him, as if one of his processes
//! had come. He may look at what anybody may look at. What he may do is done to processes under
//! Osmos only: what else runs on this node concerns no other.

use super::Daemon;
use super::requests::{failure, no_process};
use super::user_servers::{other_user, user_named};
use crate::control::{Answer, Asked, Caller};
use crate::inquiries::{Inquiry, patience};
use crate::policy;
use crate::process::Process;
use crate::procfs;
use crate::supervisor::Identity;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::oneshot;
use wire::control::{Failure, Reply, Request};
use wire::ids::{HomePid, NodeId};
use wire::peer::{INQUIRY_BYTES_MAX, PeerMessage};
use wire::users::NOBODY;

/// Whoever asks, and where the answer goes.
pub(super) struct Asker {
    pub caller: Caller,
    pub answer: oneshot::Sender<Answer>,
    pub is_off: Arc<AtomicBool>,
}

impl Daemon {
    /// Has one node answer.
    pub(super) fn ask_at(&mut self, asker: Asker, node: NodeId, request: Request) {
        let Asker { mut caller, answer, is_off } = asker;
        let mut request = request;
        // Nobody there could tell that it is root who names another.
        if caller.uid == 0
            && let Some(named) = user_named(&mut request).and_then(Option::take)
        {
            caller = Caller { uid: named, ..caller };
        }
        if node == self.me() {
            let connection = None;
            return self.answer_request(Asked { caller, connection, request, answer, is_off });
        }
        let inquiry = policy::may_pass_on(&request)
            .and_then(|()| self.begin_inquiry(caller, node, &request, is_off));
        // A caller that has gone away needs no answer.
        let _ = answer.send(match inquiry {
            Ok(inquiry) => Answer::Passed(Box::new(inquiry)),
            Err(failure) => Answer::One(Reply::Error(failure)),
        });
    }

    /// Has all nodes answer.
    pub(super) fn ask_everywhere(&mut self, asker: Asker, request: &Request) {
        let Asker { caller, answer, is_off } = asker;
        if let Err(failure) = policy::may_ask_everywhere(request) {
            let _ = answer.send(Answer::One(Reply::Error(failure)));
            return;
        }
        let (to_here, here) = oneshot::channel();
        let mut asked = vec![Inquiry::here(self.me(), here)];
        let mut not_asked = Vec::new();
        let others: Vec<NodeId> = self.members.others().map(|member| member.node).collect();
        for node in others {
            match self.begin_inquiry(caller, node, request, is_off.clone()) {
                Ok(inquiry) => asked.push(inquiry),
                Err(failure) => not_asked.push((node, failure)),
            }
        }
        let later = self.inquiries.follow(caller, request, &is_off);
        let _ = answer.send(Answer::Everywhere { asked, not_asked, later });
        let (request, answer, connection) = (request.clone(), to_here, None);
        self.answer_request(Asked { caller, connection, request, answer, is_off });
    }

    /// A node is there, or there again: whoever follows all nodes follows it, too.
    pub(super) fn be_followed_at(&mut self, node: NodeId) {
        for follower in self.inquiries.followers() {
            let is_off = follower.is_off.clone();
            match self.begin_inquiry(follower.caller, node, &follower.request, is_off) {
                Ok(inquiry) => follower.hear(inquiry),
                Err(failure) => tracing::debug!("node {node} is not followed: {}", failure.text),
            }
        }
    }

    fn begin_inquiry(
        &mut self,
        caller: Caller,
        node: NodeId,
        request: &Request,
        is_off: Arc<AtomicBool>,
    ) -> Result<Inquiry, Failure> {
        if self.members.get(node).is_none() {
            return Err(self.no_such_node(node));
        }
        let unreachable = || failure("unreachable", format!("node {node} cannot be reached"));
        let link = self.links.speaker(node).ok_or_else(unreachable)?;
        let text = serde_json::to_vec(request)
            .map_err(|error| failure("bad-request", error.to_string()))?;
        if text.len() > INQUIRY_BYTES_MAX {
            let text = format!("a request to another node has {INQUIRY_BYTES_MAX} bytes at most");
            return Err(failure("too-long", text));
        }
        let inquiry = self.inquiries.begin(node, link, patience(request), is_off)?;
        let asked =
            PeerMessage::Inquired { inquiry: inquiry.number(), uid: caller.uid, request: text };
        if !self.links.say(node, asked) {
            return Err(unreachable());
        }
        Ok(inquiry)
    }

    /// A user of another node asks something.
    pub(super) fn inquired(&mut self, by: NodeId, inquiry: u64, uid: u32, request: &[u8]) {
        let Some(link) = self.links.speaker(by) else { return };
        let (answer, answered) = oneshot::channel();
        let is_off = Arc::<AtomicBool>::default();
        match self.judge_inquiry(by, uid, request) {
            Ok((caller, request)) => {
                let (is_off, connection) = (is_off.clone(), None);
                self.answer_request(Asked { caller, connection, request, answer, is_off });
            }
            Err(failure) => {
                let _ = answer.send(Answer::One(Reply::Error(failure)));
            }
        }
        self.inquiries.answer((by, inquiry), link, answered, is_off);
    }

    /// What is asked, and by whom.
    fn judge_inquiry(
        &self,
        by: NodeId,
        uid: u32,
        request: &[u8],
    ) -> Result<(Caller, Request), Failure> {
        let me = self.me();
        if !self.inquiries.may_answer(by) {
            let text = format!("node {me} answers node {by} as much as it may: try again later");
            return Err(failure("busy", text));
        }
        let mut request: Request = serde_json::from_slice(request).map_err(|error| {
            failure("bad-request", format!("not a request that node {me} knows: {error}"))
        })?;
        policy::may_pass_on(&request)?;
        if policy::only_looks(&request) {
            return Ok((Caller { uid: NOBODY, pid: None, node: Some(by) }, request));
        }
        let uid_there = uid;
        let uid = match user_named(&mut request) {
            Some(Some(_)) => return Err(other_user()),
            Some(None) => self.user_for_server(by, uid_there, &request)?,
            None => self.user_of_other_node(by, uid_there)?,
        };
        let caller = Caller { uid, pid: None, node: Some(by) };
        if let Some(pid) = policy::process_acted_on(&request) {
            self.managed(HomePid(pid))?;
        }
        tracing::info!("{caller}, who is user {uid_there} there, asks for {request:?}");
        Ok((caller, request))
    }

    fn user_of_other_node(&self, by: NodeId, uid: u32) -> Result<u32, Failure> {
        let daemon_uid = nix::unistd::geteuid().as_raw();
        let me = self.me();
        policy::user_here(uid, daemon_uid, &self.wishes.state.guest_users).map_err(|refusal| {
            let text = format!("user {uid} of node {by} may do nothing on node {me}: {refusal}");
            failure("not-allowed", text)
        })
    }

    fn managed(&self, pid: HomePid) -> Result<&Process, Failure> {
        self.processes.get(&pid).ok_or_else(|| {
            let text = format!("node {} has no process {pid} under osmos", self.me());
            failure("not-managed", text)
        })
    }

    /// Sends a signal as kill(2) would.
    pub(super) fn signal(
        &mut self,
        caller: Caller,
        pid: HomePid,
        signal: i32,
    ) -> Result<(), Failure> {
        let named = named_signal(signal)?;
        let process = self.managed(pid)?;
        let ids = procfs::read_ids(pid.0).ok_or_else(|| no_process(pid))?;
        policy::may_signal(caller, pid.0, ids)?;
        send_signal(process.identity(), named).map_err(|error| match error {
            Errno::SRCH => no_process(pid),
            _ => failure("cannot-signal", format!("cannot send signal {signal} to {pid}: {error}")),
        })?;
        self.acted_on(caller, pid, format!("signal {signal}"));
        Ok(())
    }

    /// Tools here that have called something off: the nodes that are at it hear of that.
    pub(super) fn call_off_inquiries(&mut self) {
        for (node, inquiry) in self.inquiries.called_off() {
            self.links.say(node, PeerMessage::InquiryEnded { inquiry, is_heard: true });
        }
    }

    pub(super) fn inquiry_ended(&mut self, by: NodeId, inquiry: u64, is_heard: bool) {
        if self.inquiries.ended(by, inquiry, is_heard) {
            self.called_off();
        }
    }

    pub(super) fn inquiries_lost(&mut self, node: NodeId) {
        if self.inquiries.lost(node) {
            self.called_off();
        }
    }
}

pub(super) fn named_signal(signal: i32) -> Result<Signal, Failure> {
    Signal::from_named_raw(signal).ok_or_else(|| {
        let text = format!(
            "signal {signal} cannot be sent: only those with a name, 1 to 31; `kill -l` lists them"
        );
        failure("bad-signal", text)
    })
}

/// As kill(2), to this process and no other that has got its number.
pub(super) fn send_signal(process: Identity, signal: Signal) -> rustix::io::Result<()> {
    let raw = Pid::from_raw(process.pid).ok_or(Errno::SRCH)?;
    let descriptor = pidfd_open(raw, PidfdFlags::empty())?;
    // Opened by number: make sure that the number still names the same process.
    let stat = procfs::read_stat(process.pid);
    if stat.is_none_or(|stat| stat.started_ticks != process.started_ticks) {
        return Err(Errno::SRCH);
    }
    pidfd_send_signal(&descriptor, signal)
}
