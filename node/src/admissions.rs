//! Who is about to join the cluster here: the tokens that let him, the callers that wait for a
//! number, and those that have one and no link yet.
//!
//! The nodes that were there first have the lowest numbers and give the next ones, so that two
//! nodes that join at the same time in different places do not get the same. Whoever joins
//! elsewhere has that node ask here; whoever joins here waits, for a moment, for the answer of
//! another one. Nothing of this outlives the daemon: a token is void then, and whoever waits gets
//! no answer.

use crate::keys::token::{OpenTokens, Token};
use crate::net::listener::Calling;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::ids::{NodeId, Ticket};

/// How long another node has to give a number. Who joins waits meanwhile.
const NUMBER_PATIENCE: Duration = Duration::from_millis(500);
/// Nodes that wait for their number; more get one of this node's own.
const WAITING_MAX: usize = 64;
/// Numbers given for other nodes in a minute: more are for none that join.
const NUMBERS_A_MINUTE_MAX: usize = 32;
const MINUTE: Duration = Duration::from_secs(60);

/// A node that joins here, while another one is asked for its number.
struct Admission {
    request: u64,
    asked: NodeId,
    until: Instant,
    calling: Calling,
}

#[derive(Default)]
pub struct Admissions {
    tokens: OpenTokens,
    waiting: Vec<Admission>,
    /// Numbers that were asked for.
    count: u64,
    /// Numbers given to callers with a token whose links are not open yet.
    unlinked: BTreeSet<NodeId>,
    /// Within the last minute, for nodes that join elsewhere.
    given: Vec<Instant>,
}

impl Admissions {
    /// Somebody may join with it.
    pub fn open(&mut self, now: Instant, token: Token) {
        self.tokens.add(now, token);
    }

    /// The secret that a caller with this ticket has to know, if there is such a token.
    pub fn psk(&self, now: Instant, ticket: Ticket) -> Option<[u8; 32]> {
        self.tokens.psk(now, ticket)
    }

    /// Uses a token up; false if there is none.
    pub fn take(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.tokens.take(now, ticket)
    }

    /// Whether one more caller may wait for another node's answer.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Names the next question for a number.
    pub fn next_request(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// A node was asked for the number of a caller, who waits.
    pub fn wait(&mut self, now: Instant, request: u64, asked: NodeId, calling: Calling) {
        let until = now + NUMBER_PATIENCE;
        self.waiting.push(Admission { request, asked, until, calling });
    }

    /// The caller for whom that node was asked for a number.
    pub fn answered(&mut self, by: NodeId, request: u64) -> Option<Calling> {
        let is_it = |waiting: &Admission| waiting.request == request && waiting.asked == by;
        self.take_waiting(is_it)
    }

    /// A caller that has waited long enough.
    pub fn overdue(&mut self, now: Instant) -> Option<Calling> {
        self.take_waiting(|waiting| waiting.until <= now)
    }

    fn take_waiting(&mut self, is_it: impl Fn(&Admission) -> bool) -> Option<Calling> {
        let place = self.waiting.iter().position(is_it)?;
        Some(self.waiting.swap_remove(place).calling)
    }

    /// A caller has a number, and is told all else when its link is open.
    pub fn let_in(&mut self, node: NodeId) {
        self.unlinked.insert(node);
    }

    /// Whether the node that is linked now has just been let in. True once.
    pub fn has_come(&mut self, node: NodeId) -> bool {
        self.unlinked.remove(&node)
    }

    /// Whether a number may be given for a node that joins elsewhere.
    pub fn may_give(&mut self, now: Instant) -> bool {
        self.given.retain(|at| now.saturating_duration_since(*at) < MINUTE);
        self.given.len() < NUMBERS_A_MINUTE_MAX
    }

    pub fn has_given(&mut self, now: Instant) {
        self.given.push(now);
    }

    /// This node has left the cluster into which it had let them.
    pub fn clear(&mut self) {
        self.tokens = OpenTokens::default();
        self.unlinked.clear();
        self.waiting.clear();
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use tokio::sync::oneshot;
    use wire::peer::{Hello, NodeKey};

    const LOWER: NodeId = NodeId(2);

    fn calling(from: &str) -> Calling {
        let from = from.parse().unwrap();
        Calling {
            key: NodeKey([1; 32]),
            hello: Hello { offers: Vec::new(), sent_ns: 1, node: None, listen: from },
            ticket: Ticket([1; 16]),
            from,
            is_with_old_secret: false,
            accept: oneshot::channel().0,
        }
    }

    impl Admissions {
        fn ask(&mut self, now: Instant, from: &str) -> u64 {
            let request = self.next_request();
            self.wait(now, request, LOWER, calling(from));
            request
        }
    }

    #[test]
    fn only_the_node_that_was_asked_answers_and_once() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        let first = admissions.ask(now, "10.0.0.1:1");
        let second = admissions.ask(now, "10.0.0.2:2");
        assert!(admissions.answered(NodeId(3), first).is_none(), "another one was asked");
        let answered = admissions.answered(LOWER, second).unwrap();
        assert_eq!(answered.from, "10.0.0.2:2".parse().unwrap());
        assert!(admissions.answered(LOWER, second).is_none());
        assert!(admissions.answered(LOWER, first).is_some());
    }

    #[test]
    fn whoever_waits_is_let_in_without_an_answer_after_a_moment() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        let request = admissions.ask(now, "10.0.0.1:1");
        assert!(admissions.overdue(now).is_none());
        assert!(admissions.overdue(now + NUMBER_PATIENCE).is_some());
        assert!(admissions.overdue(now + NUMBER_PATIENCE).is_none());
        assert!(admissions.answered(LOWER, request).is_none(), "too late");
    }

    #[test]
    fn few_wait_and_few_numbers_are_given_in_a_minute() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        for _ in 0..WAITING_MAX {
            assert!(admissions.has_room());
            admissions.ask(now, "10.0.0.1:1");
        }
        assert!(!admissions.has_room());
        for _ in 0..NUMBERS_A_MINUTE_MAX {
            assert!(admissions.may_give(now));
            admissions.has_given(now);
        }
        assert!(!admissions.may_give(now) && admissions.may_give(now + MINUTE));
    }

    #[test]
    fn a_new_node_is_welcomed_once_and_in_another_cluster_nobody_is() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        admissions.let_in(NodeId(8));
        assert!(admissions.has_come(NodeId(8)) && !admissions.has_come(NodeId(8)));
        admissions.let_in(NodeId(9));
        let token = Token::generate("10.0.0.1:1".parse().unwrap(), NodeKey([3; 32])).unwrap();
        admissions.open(now, token.clone());
        assert_eq!(admissions.psk(now, token.ticket()), Some(token.psk()));
        let before = admissions.ask(now, "10.0.0.1:1");
        admissions.clear();
        assert!(!admissions.has_come(NodeId(9)) && !admissions.take(now, token.ticket()));
        assert!(admissions.overdue(now + MINUTE).is_none());
        assert!(admissions.next_request() > before, "an answer from there counts for nobody");
    }
}
