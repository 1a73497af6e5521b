//! The brain of this node, what is on its way in, and what leaves it at once: its datagrams.
//!
//! What the brain orders can lead to new facts at once (a move that cannot even begin), so facts
//! wait in a queue and are taken in one after another: the brain is never called from within
//! itself. A node that gets another number gets another brain, since whatever was thought before
//! was somebody else's.

use crate::config::Config;
use crate::net::Credentials;
use crate::net::gossip::Mouth;
use crate::recorder::Recorder;
use brain::{Brain, Identity, Input, Outbox, Output, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;
use wire::ids::{GlobalPid, NodeId};

pub struct Thought {
    brain: Brain,
    waiting: VecDeque<Input>,
    is_thinking: bool,
    /// When it asked to be called.
    wake: Option<Instant>,
    recorder: Option<Recorder>,
    mouth: Mouth,
}

/// A fresh brain's name and dice. `stamp` is later than that of any brain of this node before, even
/// if the clock was set back: of two lives of a node, others believe the later one.
fn identity(node: NodeId, stamp: u64) -> Identity {
    let incarnation = u32::try_from(stamp / 1_000_000_000).unwrap_or(u32::MAX);
    let seed = crate::keys::random().map_or(stamp, u64::from_le_bytes);
    Identity { node, incarnation, seed }
}

impl Thought {
    /// Where a recording is wanted, all that the brain is told from now on is appended to it.
    pub fn new(node: NodeId, config: &Config, stamp: u64, mouth: Mouth) -> Thought {
        let identity = identity(node, stamp);
        let mut recorder = config.record.as_deref().and_then(Recorder::append_to);
        if let Some(recorder) = &mut recorder {
            recorder.write(&brain::began(identity, &config.brain));
        }
        Thought {
            brain: Brain::new(identity, config.brain.clone()),
            waiting: VecDeque::new(),
            is_thinking: false,
            wake: None,
            recorder,
            mouth,
        }
    }

    /// A brain that knows nothing yet.
    pub fn begin_anew(&mut self, node: NodeId, config: &Config, stamp: u64) {
        *self = Thought::new(node, config, stamp, self.mouth.clone());
    }

    /// To be asked; what it is told goes through [`Thought::tell`].
    pub fn brain(&self) -> &Brain {
        &self.brain
    }

    /// A fact for the brain. False if it is thinking: it will get to that.
    #[must_use]
    pub fn tell(&mut self, input: Input) -> bool {
        self.waiting.push_back(input);
        !std::mem::replace(&mut self.is_thinking, true)
    }

    /// Takes in the next fact; returns what is to be done about it. None: it has thought of all.
    pub fn think(&mut self, now: Time) -> Option<Vec<Output>> {
        let Some(input) = self.waiting.pop_front() else {
            self.is_thinking = false;
            return None;
        };
        let mut outbox = Outbox::new();
        self.brain.handle(now, &input, &mut outbox);
        if let Some(recorder) = &mut self.recorder {
            recorder.write(&brain::told(now, &input, outbox.outputs()));
        }
        Some(outbox.drain().collect())
    }

    /// The best node for a process, if there is one. The answer counts as load for a while, so it
    /// is recorded as facts are.
    pub fn best_node(
        &mut self,
        now: Time,
        process: Option<GlobalPid>,
        unfit: &[NodeId],
    ) -> Option<NodeId> {
        let best = self.brain.best_node(now, process, unfit);
        if let Some(recorder) = &mut self.recorder {
            recorder.write(&brain::asked(now, process, unfit, best));
        }
        best
    }

    /// It wants to be called then, whatever it has said before.
    pub fn wake_at(&mut self, at: Instant) {
        self.wake = Some(at);
    }

    pub fn wake(&self) -> Option<Instant> {
        self.wake
    }

    /// True once when it is time to call it.
    pub fn wakes(&mut self, now: Instant) -> bool {
        self.wake.take_if(|wake| *wake <= now).is_some()
    }

    /// Sends a datagram of its own, as best it can.
    pub fn speak(&self, me: NodeId, to: SocketAddr, bytes: Vec<u8>, with: &Credentials) {
        self.mouth.send(me, to, bytes, with);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::keys::stamps::Stamps;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::net::UdpSocket;

    async fn thought(config: &Config) -> Thought {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mouth = Mouth::new(Arc::new(socket), Stamps::start(None, |_| Ok(())).unwrap());
        Thought::new(NodeId(1), config, 5_000_000_000, mouth)
    }

    #[tokio::test]
    async fn the_brain_is_told_one_fact_after_another_and_never_from_within_itself() {
        let (config, _dir) = crate::test::harness::config();
        let mut thought = thought(&config).await;
        assert!(thought.tell(Input::Started));
        assert!(!thought.tell(Input::TimePassed), "it has not thought of the first");
        assert!(thought.think(Time::from_micros(1)).is_some());
        assert!(!thought.tell(Input::TimePassed));
        assert!(thought.think(Time::from_micros(2)).is_some());
        assert!(thought.think(Time::from_micros(3)).is_some());
        assert!(thought.think(Time::from_micros(4)).is_none());
        assert!(thought.tell(Input::TimePassed));
        thought.begin_anew(NodeId(2), &config, 6_000_000_000);
        assert!(thought.think(Time::from_micros(5)).is_none(), "that was for the last brain");
        assert!(thought.tell(Input::Started));
    }

    #[tokio::test]
    async fn it_is_called_when_it_has_asked_for_it_and_once() {
        let (config, _dir) = crate::test::harness::config();
        let mut thought = thought(&config).await;
        let now = Instant::now();
        assert!(!thought.wakes(now));
        thought.wake_at(now + Duration::from_secs(9));
        thought.wake_at(now + Duration::from_secs(1));
        assert!(!thought.wakes(now));
        assert!(thought.wakes(now + Duration::from_secs(1)) && thought.wake().is_none());
    }

    #[test]
    fn a_later_life_of_a_node_has_a_later_incarnation() {
        let [first, second] = [5, 6].map(|second| identity(NodeId(1), second * 1_000_000_000));
        assert!(second.incarnation > first.incarnation);
    }
}
