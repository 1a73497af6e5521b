//! One brain and its owner: who is offered to another node, and why, in the order in which it must
//! be. Whole clusters with owners are in `lab/sim/tests/owners.rs`.

use brain::{
    Brain, Config, Foresight, Identity, Input, LoadSample, Outbox, Output, Ownership, Priority,
    ProcessSample, Span, Time, Unforeseen,
};
use wire::ids::{GlobalPid, HomePid, NodeId};

const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const THIRD: NodeId = NodeId(3);
/// Of the message that offers a process, and of the motive in it.
const OFFER: u8 = 4;
const RELEASE: u8 = 7;
const FOR_THE_OWNER: u8 = 3;

fn process(home: NodeId, pid: i32) -> GlobalPid {
    GlobalPid { home, pid: HomePid(pid) }
}

fn running(process: GlobalPid) -> ProcessSample {
    ProcessSample {
        stands_for: 1,
        process,
        demand: 1.0,
        used: 1.0,
        here: Span::from_secs(20),
        cpu: Span::from_secs(20),
        rss_bytes: 100 << 20,
        forwarded_per_s: 0.0,
        freeze_estimate: Span::from_millis(10),
        copy_estimate: Span::from_millis(50),
        left: None,
        stays: None,
        group: None,
        user: None,
    }
}

/// A brain that hears of another node at each look, and what it says.
struct Node {
    /// Runnable on the one core of the other.
    there_milli: u32,
    brain: Brain,
    now: Time,
    looks: u32,
    said: Vec<Output>,
}

impl Node {
    /// The other is as busy as one node can be with one process: nothing is gained by going there.
    fn new() -> Node {
        Node::beside(1_000)
    }

    fn beside(there_milli: u32) -> Node {
        let identity = Identity { node: ME, incarnation: 1, seed: 3 };
        let now = Time::from_micros(9_000_000);
        let brain = Brain::new(identity, Config::default());
        let mut node = Node { there_milli, brain, now, looks: 0, said: Vec::new() };
        node.tell(Input::Started);
        node.tell(Input::MemberJoined { node: OTHER });
        node.tell(Input::MemberJoined { node: THIRD });
        node
    }

    fn tell(&mut self, input: Input) {
        let mut outbox = Outbox::new();
        self.brain.handle(self.now, input, &mut outbox);
        self.said.extend(outbox.drain());
    }

    fn decide(&mut self, ownership: Ownership) {
        self.tell(Input::OwnerDecided { ownership });
    }

    /// A quarter of a second later: so much is runnable on two cores.
    fn look(&mut self, runnable: f64, guests: &[GlobalPid]) {
        let others = (runnable - guests.len() as f64).max(0.0);
        self.look_at(others, guests.iter().map(|guest| running(*guest)).collect());
    }

    fn look_at(&mut self, others: f64, processes: Vec<ProcessSample>) {
        self.now = self.now + Span::from_millis(250);
        self.looks += 1;
        self.hear(OTHER, self.there_milli);
        self.tell(Input::LoadSampled(LoadSample {
            cores: 2,
            speed: 1.0,
            pace: 1.0,
            others,
            memory_total_bytes: 1 << 30,
            memory_free_bytes: 1 << 29,
            memory_pressure: 0.0,
            processes,
        }));
    }

    /// It asks for work: one core at full speed on which so much is runnable, and a gibibyte.
    fn hear(&mut self, from: NodeId, runnable_milli: u32) {
        let mut bytes = vec![b'O', b'B', 2, 3, 0, 0, 0, 0];
        bytes.extend(self.looks.to_le_bytes());
        for field in [from.0, 1, 0, runnable_milli, 1_000, 1, 1_024, 1_024] {
            bytes.extend(field.to_le_bytes());
        }
        self.tell(Input::DatagramReceived { from, bytes });
    }

    fn datagrams(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.said.iter().filter_map(|output| match output {
            Output::SendDatagram { bytes, .. } => Some(bytes),
            _ => None,
        })
    }

    /// How many places were given back that had been asked for.
    fn released(&self) -> usize {
        self.datagrams().filter(|bytes| bytes[3] == RELEASE).count()
    }

    /// Pids offered because the owner wants them gone.
    fn sent_away(&self) -> Vec<i32> {
        self.offered(|motive| motive == FOR_THE_OWNER)
    }

    /// Pids offered for some reason, in order.
    fn offered(&self, is_meant: impl Fn(u8) -> bool) -> Vec<i32> {
        let offers = self.datagrams().filter(|bytes| bytes[3] == OFFER && is_meant(bytes[4]));
        let mut pids: Vec<i32> = offers
            .map(|bytes| i32::from_le_bytes(bytes[56..60].try_into().expect("an offer")))
            .collect();
        pids.dedup();
        pids
    }
}

fn yields() -> Ownership {
    Ownership { yields: true, ..Ownership::default() }
}

#[test]
fn a_guest_goes_when_the_owners_own_load_has_taken_its_core_and_not_before() {
    let guests = [process(OTHER, 7)];
    let mut node = Node::new();
    node.decide(yields());
    for _ in 0..4 {
        node.look(2.0, &guests);
    }
    assert_eq!(node.sent_away(), [0; 0], "one core is the owner's, one is left");
    node.look(3.0, &guests);
    assert_eq!(node.sent_away(), [0; 0], "one look may be mistaken");
    node.look(3.0, &guests);
    assert_eq!(node.sent_away(), [7]);
}

#[test]
fn without_an_owner_who_wants_that_guests_share_with_all_others() {
    let guests = [process(OTHER, 7)];
    let mut node = Node::new();
    for _ in 0..4 {
        node.look(3.0, &guests);
    }
    assert_eq!(node.sent_away(), [0; 0]);
}

/// Two wait for each core here, and a core is idle there: what has just begun goes at once if
/// others of its name took long, and not at all if they were done soon.
#[test]
fn one_that_has_just_begun_goes_where_it_is_known_to_take_long() {
    let begun = |pid, left: Option<Span>| ProcessSample {
        here: Span::from_millis(12),
        cpu: Span::from_millis(2),
        left,
        ..running(process(ME, pid))
    };
    let offered = |left| {
        let mut node = Node::beside(0);
        node.look_at(4.0, vec![]);
        node.look_at(3.0, vec![begun(7, left)]);
        node.offered(|_| true)
    };
    assert_eq!(offered(Some(Span::from_millis(400))), [7]);
    assert_eq!(offered(Some(Span::from_millis(5))), [0; 0]);
    assert_eq!(offered(None), [0; 0], "nobody knows how long it takes");
}

#[test]
fn an_offer_is_taken_back_of_one_that_turns_out_to_go_with_another() {
    let (first, second) = (running(process(OTHER, 7)), running(process(OTHER, 8)));
    let alone = || vec![first.clone(), second.clone()];
    let mut node = Node::new();
    node.decide(yields());
    while node.sent_away().is_empty() {
        assert!(node.looks < 8, "the owner has both cores");
        node.look_at(2.0, alone());
    }
    assert_eq!(node.released(), 0);
    let all = ProcessSample { stands_for: 2, demand: 2.0, ..first.clone() };
    let stays = Some("it goes with another".to_owned());
    let goes_along = ProcessSample { stands_for: 0, demand: 0.0, stays, ..second.clone() };
    let offered = node.sent_away().len();
    node.look_at(2.0, vec![all.clone(), goes_along.clone()]);
    assert_eq!(node.released(), offered, "they were offered alone");
    node.look_at(2.0, vec![all, goes_along]);
    assert_eq!(node.released(), offered, "the same as before");
}

#[test]
fn guests_of_the_worse_priority_go_first() {
    let guests = [process(OTHER, 7), process(THIRD, 8)];
    for (worse, pid) in [(OTHER, 7), (THIRD, 8)] {
        let mut node = Node::new();
        let priorities = vec![(worse, Priority(90))];
        node.decide(Ownership { priorities, ..yields() });
        for _ in 0..3 {
            node.look(3.0, &guests);
        }
        assert_eq!(node.sent_away(), [pid], "those of node {worse}");
    }
}

#[test]
fn the_last_of_too_many_guests_goes_and_the_largest_memory_counts() {
    let guests = [process(OTHER, 7), process(OTHER, 8), process(OTHER, 9)];
    let mut node = Node::new();
    node.decide(Ownership { guests_max: Some(2), ..Ownership::default() });
    node.look(3.0, &guests);
    assert_eq!(node.sent_away(), [9]);
    let mut node = Node::new();
    let guest_memory_max_bytes = Some(150 << 20);
    node.decide(Ownership { guest_memory_max_bytes, ..Ownership::default() });
    node.look(3.0, &guests);
    assert_eq!(node.sent_away(), [9, 8], "two of 100 MiB are too many for 150");
}

#[test]
fn a_drained_node_sends_its_own_away_too() {
    let mut node = Node::new();
    let all = [process(ME, 5), process(OTHER, 7)];
    node.look(1.5, &all);
    node.decide(Ownership { drains: true, ..Ownership::default() });
    assert_eq!(node.sent_away(), [7, 5], "guests first");
}

#[test]
fn nothing_is_offered_to_a_node_that_is_barred_but_what_is_exempt() {
    let all = [5, 6, 7].map(|pid| process(ME, pid));
    let offered = |told: &[Input]| {
        let mut node = Node::beside(0);
        told.iter().for_each(|input| node.tell(input.clone()));
        (0..20).for_each(|_| node.look(3.0, &all));
        node.offered(|_| true)
    };
    assert!(!offered(&[]).is_empty());
    let barred = Input::NodesBarred { nodes: vec![OTHER] };
    assert_eq!(offered(std::slice::from_ref(&barred)), []);
    let exempted = Input::ProcessExempted { process: all[1] };
    let of_exempt = offered(&[barred.clone(), exempted.clone()]);
    assert!(!of_exempt.is_empty() && of_exempt.iter().all(|pid| *pid == 6), "{of_exempt:?}");
    let lifted = Input::NodesBarred { nodes: vec![] };
    assert!(!offered(&[barred, lifted]).is_empty());
}

/// The barred one would give more: that must not keep the process from the other.
#[test]
fn who_has_to_leave_goes_where_it_can_run() {
    let mut node = Node::beside(0);
    let own = [process(ME, 5)];
    node.tell(Input::NodesBarred { nodes: vec![OTHER] });
    node.look(1.0, &own);
    node.hear(THIRD, 1_000);
    node.decide(Ownership { drains: true, ..Ownership::default() });
    node.look(1.0, &own);
    let is_offer = |output: &&Output| match output {
        Output::SendDatagram { bytes, .. } => bytes[3] == OFFER,
        _ => false,
    };
    let to = |output: &Output| match output {
        Output::SendDatagram { to, .. } => *to,
        other => panic!("{other:?} is no datagram"),
    };
    let asked: Vec<NodeId> = node.said.iter().filter(is_offer).map(to).collect();
    assert!(!asked.is_empty() && asked.iter().all(|node| *node == THIRD), "{asked:?}");
}

#[test]
fn foresight_has_the_numbers_of_the_rule_and_changes_nothing() {
    let mut node = Node::beside(0);
    let (mine, guests) = (process(ME, 5), [process(OTHER, 7), process(OTHER, 8)]);
    node.decide(Ownership { stays: true, ..Ownership::default() });
    // One of the guests is offered to the idle node at once.
    node.look(5.0, &[mine, guests[0], guests[1]]);
    let said = node.said.len();
    let foreseen = node.brain.foresee(node.now, mine, THIRD);
    assert_eq!(foreseen, Err(Unforeseen::Unknown(THIRD)));
    assert_eq!(node.brain.foresee(node.now, mine, ME), Err(Unforeseen::There(ME)));
    let stranger = node.brain.foresee(node.now, process(ME, 99), OTHER);
    assert_eq!(stranger, Err(Unforeseen::NotHere));
    let foreseen = node.brain.foresee(node.now, mine, OTHER).expect("both are known");
    let Foresight { rate_before, payback, to, .. } = foreseen;
    assert_eq!((rate_before, to.rate), (0.5, 1.0), "two cores for four threads; one for itself");
    assert_eq!(payback, Some(Span::from_millis(10)), "it gains as fast as it had run before");
    assert!(to.but.expect("it stays").contains("keeps its own processes here"));
    let (here, places) = node.brain.weigh_up(node.now, mine).expect("it runs here");
    assert_eq!((here, places.len(), places[0].node), (0.5, 1, OTHER));
    let more = node.brain.foresee_node(node.now, 4, 2.0, 8 << 30).expect("it is measured");
    let given: Vec<GlobalPid> = more.handed_over.iter().map(|given| given.process).collect();
    assert_eq!(given.len(), 1, "one is on offer already, and its own stays");
    assert!(guests.contains(&given[0]));
    assert_eq!((more.runnable_before, more.runnable_after), (4.0, 3.0));
    assert_eq!(node.said.len(), said);
}
