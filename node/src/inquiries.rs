//! Requests of user tools that another node answers: those of this node's tools, and those that
//! this node answers.
//!
//! What is answered is what a tool there would be told: lines of JSON, each a reply. They travel in
//! parts beside all else that nodes say to each other, and no more parts are on their way than the
//! asking node has taken: a tool that does not read costs neither node more than that. Whoever does
//! not listen any more says so, and a link that is lost ends what went through it.

use crate::control::{self, Answer, Caller};
use crate::net::link::Speaker;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, SimplexStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use wire::control::{Failure, Reply, Request};
use wire::ids::NodeId;
use wire::jobs::JobAsk;
use wire::limits::CONTROL_BYTES_MAX;
use wire::peer::{ANSWER_PART_BYTES_MAX, ANSWER_PARTS_AHEAD, PeerMessage};

/// Requests of this node's tools under way at the same time, each to one node.
const ASKED_MAX: usize = 8_192;
/// Requests of one other node that are answered at the same time.
const ANSWERED_PER_NODE_MAX: usize = 64;
/// Tools that follow what all nodes say.
const FOLLOWERS_MAX: usize = 256;
/// Nodes that were linked to and that a follower has not taken yet.
const LATER_MAX: usize = 1_024;
/// How long a node may say nothing that only has to look.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);
/// The same of one that has to ask a launcher there, for as long as that may say nothing.
const ASK_PATIENCE: Duration = Duration::from_secs(15);

/// Some bytes of an answer, and whether they are its last.
type Part = (Vec<u8>, bool);

/// A request of one of this node's tools.
struct Asked {
    node: NodeId,
    parts: mpsc::Sender<Part>,
    /// Set when the tool does not want it any more.
    is_off: Arc<AtomicBool>,
    /// The other node has heard that.
    is_told_off: bool,
}

/// A request of another node's tool.
struct Answering {
    /// Parts that may be sent.
    ahead: Arc<Semaphore>,
    /// Those that were sent and not taken yet.
    untaken: Arc<AtomicUsize>,
    is_off: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A tool that follows what all nodes say, those that come later, too.
#[derive(Clone)]
pub struct Follower {
    pub caller: Caller,
    pub request: Request,
    pub is_off: Arc<AtomicBool>,
    later: mpsc::Sender<Inquiry>,
}

impl Follower {
    /// Has one more node be heard.
    pub fn hear(&self, inquiry: Inquiry) {
        if self.later.try_send(inquiry).is_err() {
            tracing::debug!("{} follows no more nodes", self.caller);
        }
    }
}

#[derive(Default)]
pub struct Inquiries {
    followers: Vec<Follower>,
    count: u64,
    asked: BTreeMap<u64, Asked>,
    answering: BTreeMap<(NodeId, u64), Answering>,
}

impl Inquiries {
    /// Begins one to another node. `is_off` is set if it is not wanted any more.
    ///
    /// # Errors
    /// If too many are under way.
    pub fn begin(
        &mut self,
        node: NodeId,
        link: Speaker,
        patience: Option<Duration>,
        is_off: Arc<AtomicBool>,
    ) -> Result<Inquiry, Failure> {
        self.asked.retain(|_, asked| !asked.parts.is_closed());
        if self.asked.len() >= ASKED_MAX {
            return Err(Failure {
                code: "too-many-requests".to_owned(),
                text: format!("{ASKED_MAX} requests to other nodes are under way: try again later"),
            });
        }
        self.count += 1;
        let (parts, taken) = mpsc::channel(ANSWER_PARTS_AHEAD);
        self.asked.insert(self.count, Asked { node, parts, is_off, is_told_off: false });
        let back = Some(Back { inquiry: self.count, link });
        Ok(Inquiry::of_parts(node, taken, patience, back))
    }

    /// Whoever asks for what goes on is given what nodes say that are linked to later. None: it
    /// ends by itself, or too many follow.
    pub fn follow(
        &mut self,
        caller: Caller,
        request: &Request,
        is_off: &Arc<AtomicBool>,
    ) -> Option<mpsc::Receiver<Inquiry>> {
        self.followers.retain(|follower| !follower.later.is_closed());
        let goes_on = matches!(request, Request::Events { follow: true });
        if !goes_on || self.followers.len() >= FOLLOWERS_MAX {
            return None;
        }
        let (later, taken) = mpsc::channel(LATER_MAX);
        let (request, is_off) = (request.clone(), is_off.clone());
        self.followers.push(Follower { caller, request, is_off, later });
        Some(taken)
    }

    pub fn followers(&mut self) -> Vec<Follower> {
        self.followers.retain(|follower| !follower.later.is_closed());
        self.followers.clone()
    }

    /// A node answers. What nobody has asked it, or what comes before it may, ends the inquiry.
    pub fn hear_part(&mut self, from: NodeId, inquiry: u64, part: Part) {
        let Some(asked) = self.asked.get(&inquiry).filter(|asked| asked.node == from) else {
            return;
        };
        let is_last = part.1;
        if asked.parts.try_send(part).is_err() || is_last {
            self.asked.remove(&inquiry);
        }
    }

    /// Requests of this node's tools that are not wanted any more, and whose nodes have not heard
    /// that; from here on they have.
    pub fn called_off(&mut self) -> Vec<(NodeId, u64)> {
        let is_news = |asked: &Asked| asked.is_off.load(Ordering::SeqCst) && !asked.is_told_off;
        let news = self.asked.iter_mut().filter(|(_, asked)| is_news(asked));
        news.map(|(inquiry, asked)| {
            asked.is_told_off = true;
            (asked.node, *inquiry)
        })
        .collect()
    }

    /// Whether a node may ask one thing more.
    pub fn may_answer(&self, node: NodeId) -> bool {
        self.count_of(node) < ANSWERED_PER_NODE_MAX
    }

    /// Answers to that node which it has not taken.
    fn count_of(&self, node: NodeId) -> usize {
        let of_node = self.answering.range((node, 0)..=(node, u64::MAX));
        of_node.filter(|(_, answering)| !answering.task.is_finished()).count()
    }

    /// Sends the answer to a request of another node's tool. `is_off` is set if that does not want
    /// it any more.
    pub fn answer(
        &mut self,
        (node, inquiry): (NodeId, u64),
        link: Speaker,
        answer: oneshot::Receiver<Answer>,
        is_off: Arc<AtomicBool>,
    ) {
        self.answering.retain(|_, answering| !answering.task.is_finished());
        // Not even refusals, to one that does not take them.
        if self.count_of(node) >= 2 * ANSWERED_PER_NODE_MAX {
            return;
        }
        let ahead = Arc::new(Semaphore::new(ANSWER_PARTS_AHEAD));
        let untaken = Arc::new(AtomicUsize::new(0));
        let (may_send, sent) = (ahead.clone(), untaken.clone());
        let send = async move |(bytes, is_last): Part| {
            let Ok(permit) = may_send.acquire().await else { return false };
            permit.forget();
            sent.fetch_add(1, Ordering::SeqCst);
            link.say(PeerMessage::AnswerPart { inquiry, bytes, is_last }).await
        };
        let task = tokio::spawn(tell(answer, send)).abort_handle();
        self.answering.insert((node, inquiry), Answering { ahead, untaken, is_off, task });
    }

    /// The other node has taken a part.
    pub fn part_taken(&self, by: NodeId, inquiry: u64) {
        let Some(answering) = self.answering.get(&(by, inquiry)) else { return };
        let one_less = |untaken: usize| untaken.checked_sub(1);
        if answering.untaken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            answering.ahead.add_permits(1);
        }
    }

    /// The other node does not want what it asked for any more. True if somebody here has to hear
    /// of that.
    pub fn ended(&mut self, by: NodeId, inquiry: u64, is_heard: bool) -> bool {
        let Some(answering) = self.answering.get(&(by, inquiry)) else { return false };
        answering.is_off.store(true, Ordering::SeqCst);
        if !is_heard {
            self.answering.remove(&(by, inquiry));
        }
        true
    }

    /// The link to a node is lost, and with it all that went through it. True if that ends what
    /// somebody here has begun for it.
    pub fn lost(&mut self, node: NodeId) -> bool {
        self.asked.retain(|_, asked| asked.node != node);
        let of_node = self.answering.extract_if((node, 0)..=(node, u64::MAX), |_, _| true);
        let ended =
            of_node.inspect(|(_, answering)| answering.is_off.store(true, Ordering::SeqCst));
        ended.count() > 0
    }
}

/// How long a node may take for its next reply to this: what waits for something to happen takes as
/// long as that does.
pub fn patience(request: &Request) -> Option<Duration> {
    match request {
        Request::Events { follow: true } | Request::Migrate { .. } | Request::Owner(_) => None,
        Request::AskJob { ask: JobAsk::Wait, .. } => None,
        Request::AskJob { .. } => Some(ASK_PATIENCE),
        _ => Some(LOOK_PATIENCE),
    }
}

/// The way back to the node that answers.
struct Back {
    inquiry: u64,
    link: Speaker,
}

/// What a node answers to one request, reply by reply. Dropping it ends the request.
pub struct Inquiry {
    pub node: NodeId,
    parts: mpsc::Receiver<Part>,
    patience: Option<Duration>,
    /// None: this node answers itself.
    back: Option<Back>,
    /// What has come and was not read yet.
    unread: Vec<u8>,
    /// Of that: so much is known to have no end of a line.
    searched: usize,
    /// Nothing more is said.
    has_ended: bool,
    /// The other node knows that.
    is_complete: bool,
}

impl Inquiry {
    fn of_parts(
        node: NodeId,
        parts: mpsc::Receiver<Part>,
        patience: Option<Duration>,
        back: Option<Back>,
    ) -> Inquiry {
        let unread = Vec::new();
        let (searched, has_ended, is_complete) = (0, false, false);
        Inquiry { node, parts, patience, back, unread, searched, has_ended, is_complete }
    }

    /// By which the other node knows it; 0 if this one answers itself.
    pub fn number(&self) -> u64 {
        self.back.as_ref().map_or(0, |back| back.inquiry)
    }

    /// To this node itself.
    pub fn here(node: NodeId, answer: oneshot::Receiver<Answer>) -> Inquiry {
        let (parts, taken) = mpsc::channel(ANSWER_PARTS_AHEAD);
        let send = async move |part: Part| parts.send(part).await.is_ok();
        // It ends when nobody takes its parts.
        tokio::spawn(tell(answer, send));
        Inquiry::of_parts(node, taken, None, None)
    }

    /// The next reply; None when there is no more. What cannot be had is a failure, the last thing
    /// to be said.
    pub async fn next(&mut self) -> Option<Result<Reply, Failure>> {
        loop {
            if let Some(line) = self.line() {
                let reply = serde_json::from_slice(&line).map_err(|_| self.nonsense());
                self.has_ended |= reply.is_err();
                return Some(reply);
            }
            if self.has_ended {
                return None;
            }
            if let Err(failure) = self.read_part().await {
                self.has_ended = true;
                return Some(Err(failure));
            }
        }
    }

    /// One whole line of what has come.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.unread[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| self.searched + end) else {
            self.searched = self.unread.len();
            return None;
        };
        let rest = self.unread.split_off(end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.unread, rest))
    }

    async fn read_part(&mut self) -> Result<(), Failure> {
        let next = self.parts.recv();
        let part = match self.patience {
            Some(patience) => timeout(patience, next).await.map_err(|_| self.late(patience))?,
            None => next.await,
        };
        let Some((bytes, is_last)) = part else {
            self.is_complete = true;
            return Err(self.unreachable());
        };
        self.is_complete = is_last;
        if self.unread.len() + bytes.len() > CONTROL_BYTES_MAX {
            return Err(self.nonsense());
        }
        self.unread.extend(bytes);
        self.has_ended = is_last;
        if let Some(Back { inquiry, link }) = self.back.as_ref().filter(|_| !is_last) {
            link.say(PeerMessage::AnswerTaken { inquiry: *inquiry }).await;
        }
        Ok(())
    }

    fn failure(&self, code: &str, text: String) -> Failure {
        Failure { code: code.to_owned(), text }
    }

    fn late(&self, patience: Duration) -> Failure {
        let text = format!("node {} has not answered for {} s", self.node, patience.as_secs());
        self.failure("no-answer", text)
    }

    fn unreachable(&self) -> Failure {
        self.failure("unreachable", format!("the link to node {} broke", self.node))
    }

    fn nonsense(&self) -> Failure {
        let text = format!(
            "node {} answers what this node does not understand: is it of another version? \
             `osmos status` there says which",
            self.node
        );
        self.failure("bad-answer", text)
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        if let Some(Back { inquiry, link }) = self.back.as_ref().filter(|_| !self.is_complete) {
            link.try_say(PeerMessage::InquiryEnded { inquiry: *inquiry, is_heard: false });
        }
    }
}

/// Writes an answer as a tool is given it, and hands its bytes over in parts until nobody takes
/// them.
async fn tell(answer: oneshot::Receiver<Answer>, take: impl AsyncFnMut(Part) -> bool) {
    let (reader, mut writer) = tokio::io::simplex(ANSWER_PART_BYTES_MAX);
    let write = async move {
        let written = match answer.await {
            Ok(answer) => control::reply(&mut writer, answer).await,
            Err(_) => Err(io::Error::other("the daemon ends")),
        };
        let ended = writer.shutdown().await;
        if let Err(error) = written.and(ended) {
            tracing::debug!("a request of another node: {error}");
        }
        // The other half goes on with what is there.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = write => (),
        () = hand_over(reader, take) => (),
    }
}

async fn hand_over(
    mut reader: tokio::io::ReadHalf<SimplexStream>,
    mut take: impl AsyncFnMut(Part) -> bool,
) {
    loop {
        let mut bytes = Vec::with_capacity(ANSWER_PART_BYTES_MAX);
        let mut room = (&mut reader).take(ANSWER_PART_BYTES_MAX as u64);
        let is_last = !matches!(room.read_buf(&mut bytes).await, Ok(1..));
        if !take((bytes, is_last)).await || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const NODE: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);

    /// A link to a node, and what is said over it.
    fn link() -> (mpsc::Sender<PeerMessage>, Speaker, mpsc::Receiver<PeerMessage>) {
        let (messages, said) = mpsc::channel(64);
        let speaker = Speaker::of(&messages);
        (messages, speaker, said)
    }

    fn begin(inquiries: &mut Inquiries, link: &Speaker) -> Inquiry {
        inquiries.begin(NODE, link.clone(), None, Arc::default()).unwrap()
    }

    fn line(reply: &Reply) -> Vec<u8> {
        [&serde_json::to_vec(reply).unwrap()[..], b"\n"].concat()
    }

    #[tokio::test]
    async fn replies_are_put_together_of_parts_and_each_part_is_acknowledged() {
        let (mut inquiries, (_open, link, mut said)) = (Inquiries::default(), link());
        let mut inquiry = begin(&mut inquiries, &link);
        let number = inquiry.number();
        let bytes = [line(&Reply::Done), line(&Reply::EventsEnd)].concat();
        let (first, second) = bytes.split_at(5);
        inquiries.hear_part(NODE, number, (first.to_vec(), false));
        inquiries.hear_part(NODE, number, (second.to_vec(), false));
        inquiries.hear_part(NODE, number, (Vec::new(), true));
        assert_eq!(inquiry.next().await, Some(Ok(Reply::Done)));
        assert_eq!(inquiry.next().await, Some(Ok(Reply::EventsEnd)));
        assert_eq!(inquiry.next().await, None);
        drop(inquiry);
        for _ in 0..2 {
            assert_eq!(said.try_recv(), Ok(PeerMessage::AnswerTaken { inquiry: number }));
        }
        assert!(said.try_recv().is_err(), "what has ended is not ended again");
    }

    #[tokio::test]
    async fn nobody_answers_for_another_node_or_sends_more_than_was_taken() {
        let (mut inquiries, (_open, link, _said)) = (Inquiries::default(), link());
        let mut inquiry = begin(&mut inquiries, &link);
        let number = inquiry.number();
        inquiries.hear_part(OTHER, number, (line(&Reply::Done), true));
        inquiries.hear_part(NODE, number + 1, (line(&Reply::Done), true));
        for _ in 0..=ANSWER_PARTS_AHEAD {
            inquiries.hear_part(NODE, number, (line(&Reply::EventsEnd), false));
        }
        for _ in 0..ANSWER_PARTS_AHEAD {
            assert_eq!(inquiry.next().await, Some(Ok(Reply::EventsEnd)));
        }
        let failure = inquiry.next().await.unwrap().unwrap_err();
        assert_eq!(failure.code, "unreachable", "what it sent too much was not kept");
        assert_eq!(inquiry.next().await, None);
    }

    #[tokio::test]
    async fn nonsense_and_lines_without_end_are_no_replies() {
        let (mut inquiries, (_open, link, mut said)) = (Inquiries::default(), link());
        let mut inquiry = begin(&mut inquiries, &link);
        inquiries.hear_part(NODE, inquiry.number(), (b"{\"reply\":7}\n".to_vec(), false));
        assert_eq!(inquiry.next().await.unwrap().unwrap_err().code, "bad-answer");
        assert_eq!(inquiry.next().await, None);
        let mut endless = begin(&mut inquiries, &link);
        let number = endless.number();
        let failure = loop {
            inquiries.hear_part(NODE, number, (vec![b'x'; ANSWER_PART_BYTES_MAX], false));
            let next = timeout(Duration::from_millis(1), endless.next()).await;
            if let Ok(Some(ended)) = next {
                break ended.unwrap_err();
            }
            while said.try_recv().is_ok() {}
        };
        assert_eq!(failure.code, "bad-answer");
        assert!(endless.unread.len() <= CONTROL_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_lost_link_ends_what_went_through_it_and_nothing_else() {
        let (mut inquiries, (_open, link, _said)) = (Inquiries::default(), link());
        let mut lost = begin(&mut inquiries, &link);
        let mut other = inquiries.begin(OTHER, link.clone(), None, Arc::default()).unwrap();
        let is_off = Arc::<AtomicBool>::default();
        let (_answer, answered) = oneshot::channel();
        inquiries.answer((NODE, 1), link.clone(), answered, is_off.clone());
        assert!(inquiries.lost(NODE) && !inquiries.lost(NODE));
        assert!(is_off.load(Ordering::SeqCst), "nobody waits for what was asked from there");
        assert_eq!(lost.next().await.unwrap().unwrap_err().code, "unreachable");
        inquiries.hear_part(OTHER, other.number(), (line(&Reply::Done), true));
        assert_eq!(other.next().await, Some(Ok(Reply::Done)));
    }

    #[tokio::test]
    async fn who_only_has_to_look_is_not_waited_for_for_ever() {
        let (mut inquiries, (_open, link, mut said)) = (Inquiries::default(), link());
        let patience = Some(Duration::from_millis(10));
        let mut inquiry = inquiries.begin(NODE, link, patience, Arc::default()).unwrap();
        let number = inquiry.number();
        assert_eq!(inquiry.next().await.unwrap().unwrap_err().code, "no-answer");
        assert_eq!(super::patience(&Request::Processes), Some(LOOK_PATIENCE));
        assert!(super::patience(&Request::Events { follow: true }).is_none());
        drop(inquiry);
        let ended = PeerMessage::InquiryEnded { inquiry: number, is_heard: false };
        assert_eq!(said.try_recv(), Ok(ended), "the other node is not left with it");
    }

    #[tokio::test]
    async fn no_more_parts_are_sent_than_were_taken() {
        let (mut inquiries, (_open, link, mut said)) = (Inquiries::default(), link());
        let (answer, answered) = oneshot::channel();
        let text = "x".repeat(3 * ANSWER_PARTS_AHEAD * ANSWER_PART_BYTES_MAX);
        let token = Reply::Token { token: text };
        assert!(answer.send(Answer::One(token.clone())).is_ok());
        inquiries.answer((NODE, 7), link, answered, Arc::default());
        let (mut bytes, mut parts, mut is_over) = (Vec::new(), 0, false);
        while !is_over {
            let Some(PeerMessage::AnswerPart { inquiry: 7, bytes: part, is_last }) =
                said.recv().await
            else {
                panic!("no part")
            };
            assert!(part.len() <= ANSWER_PART_BYTES_MAX);
            bytes.extend(part);
            (parts, is_over) = (parts + 1, is_last);
            if parts % ANSWER_PARTS_AHEAD == 0 && !is_over {
                // All that may be on its way is.
                tokio::task::yield_now().await;
                assert!(said.try_recv().is_err());
                for _ in 0..2 * ANSWER_PARTS_AHEAD {
                    inquiries.part_taken(NODE, 7);
                }
            }
        }
        assert_eq!(bytes, line(&token));
    }

    #[tokio::test]
    async fn who_takes_no_answers_is_given_no_more_of_them() {
        let (mut inquiries, (_open, link, _said)) = (Inquiries::default(), link());
        let mut askers = Vec::new();
        for inquiry in 0..500 {
            assert_eq!(inquiries.may_answer(NODE), inquiry < ANSWERED_PER_NODE_MAX as u64);
            let (answer, answered) = oneshot::channel();
            askers.push(answer);
            inquiries.answer((NODE, inquiry), link.clone(), answered, Arc::default());
        }
        assert_eq!(inquiries.answering.len(), 2 * ANSWERED_PER_NODE_MAX);
        assert!(inquiries.may_answer(OTHER));
        assert!(inquiries.ended(NODE, 7, false) && !inquiries.ended(NODE, 7, false));
    }

    #[test]
    fn what_is_called_off_is_told_once() {
        let (mut inquiries, (_open, link, _said)) = (Inquiries::default(), link());
        let is_off = Arc::<AtomicBool>::default();
        let inquiry = inquiries.begin(NODE, link, None, is_off.clone()).unwrap();
        assert_eq!(inquiries.called_off(), []);
        is_off.store(true, Ordering::SeqCst);
        assert_eq!(inquiries.called_off(), [(NODE, inquiry.number())]);
        assert_eq!(inquiries.called_off(), []);
    }
}
