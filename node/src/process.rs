//! A managed process: born here, and perhaps elsewhere now.
//!
//! ```text
//!            order            Leave / ComeHome          Moved, CameHome, Stayed
//!   resting ───────► asking ───────────────────► moving ───────────────────────► resting
//!                (a berth; not for home)              one at a time; further orders wait
//! ```

use crate::control::Answer;
use crate::journal::wall_clock_s;
use crate::progress::{self, Progress};
use crate::sample::window::Window;
use crate::supervisor::{Identity, Supervisor};
use kernel::agreement::Agreement;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use wire::control::{Decision, ManageOptions, Placement};
use wire::forecast::{PastMove, Weighed};
use wire::freeze_budget::FreezeBudget;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::memory_group::MemoryId;
use wire::motive::Motive;
use wire::move_cost::Price;
use wire::peer::Owner;
use wire::processor::Processor;
use wire::processor_time::{PastClock, ProcessorTime};
use wire::supervisor::{Birth, Progress as MoveProgress, Wait, Way};

/// Decisions kept for `osmos why`.
const DECISIONS_MAX: usize = 32;
/// Orders of users that wait for a move to end.
pub const ORDERS_MAX: usize = 16;
/// The first rest before a placement that failed is tried again; doubles up to the second.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(64);

/// Who wants a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Somebody typed `osmos migrate`.
    User,
    /// `osmos run --node` or `--best`.
    Placed,
    /// It was made there, by one that was away.
    MadeAway,
    /// A process goes there that it shares memory with.
    Companion,
    Storm,
    /// This node's brain.
    Brain(Motive),
    /// The brain of the node where it is a guest.
    Wanted {
        by: NodeId,
        motive: Motive,
    },
    /// This node goes down.
    Drain,
    /// This node's owner wants what was born here back.
    Owner,
}

impl Cause {
    /// The stable word that `osmos why --json` shows.
    pub fn word(self) -> &'static str {
        match self {
            Cause::User => "user",
            Cause::Placed => "placed",
            Cause::MadeAway => "made-away",
            Cause::Companion => "companion",
            Cause::Storm => "storm",
            Cause::Brain(motive) | Cause::Wanted { motive, .. } => motive.word(),
            Cause::Drain => "down",
            Cause::Owner => "owner",
        }
    }
}

/// One move that somebody wants.
pub struct Order {
    pub to: NodeId,
    pub cause: Cause,
    /// Why, in a line.
    pub why: String,
    pub answer: Option<oneshot::Sender<Answer>>,
    /// Who watches it is told how far it is.
    pub progress: Option<watch::Sender<MoveProgress>>,
    /// Whoever gave it does not want it any more.
    pub is_off: Arc<AtomicBool>,
    /// How often it was begun: a homecoming can get in its way.
    pub tries: u32,
    /// How its memory is to go along, if not as in all moves of the process.
    pub way: Option<Way>,
}

impl Order {
    pub fn new(to: NodeId, cause: Cause, why: impl Into<String>) -> Order {
        let (why, is_off) = (why.into(), Arc::default());
        Order { to, cause, why, answer: None, progress: None, is_off, tries: 0, way: None }
    }
}

/// All that share memory with a process, as its supervisor says, itself included.
#[derive(Default)]
pub struct Bound {
    pub members: Vec<HomePid>,
    /// What they share that has a name or a descriptor.
    pub named: Vec<MemoryId>,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The target is alive and not linked to this node yet, or not any more.
    Linking { until: Instant },
    /// The target was asked for a berth.
    Asking { request: u64, until: Instant },
    /// Some of those that it shares memory with, and that are to leave with it, are not ready.
    Gathering { until: Instant },
    /// The supervisors are at work.
    Moving,
    /// They were when the last daemon died; its supervisor knows whether they still are.
    Inherited,
}

/// The move under way.
pub struct Move {
    pub order: Order,
    pub from: NodeId,
    pub stage: Stage,
    /// Of the node that it goes to, as that says.
    pub core_speed: f64,
    /// What it is expected to cost.
    pub expected: Option<Price>,
    /// All that it shares memory with were weighed with it.
    pub is_of_group: bool,
    /// Those without whom it cannot leave.
    pub bound_to: Bound,
    /// Those of them that leave with it.
    pub companions: Vec<HomePid>,
    /// Why one of those stays, if it has said so.
    pub hindrance: Option<String>,
    /// By which the supervisors of all agree.
    pub agreement: Option<Arc<Agreement>>,
}

impl Move {
    /// One for which the supervisors are set to work.
    pub fn new(order: Order, from: NodeId, core_speed: f64) -> Move {
        let (stage, expected, is_of_group) = (Stage::Moving, None, false);
        let (bound_to, companions, hindrance, agreement) = Default::default();
        Move {
            order,
            from,
            stage,
            core_speed,
            expected,
            is_of_group,
            bound_to,
            companions,
            hindrance,
            agreement,
        }
    }
}

/// Moves at random for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    pub every: Duration,
    pub next: Instant,
}

/// Whether the process runs its command yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// It is still the program that asked to be managed; `left` is when it closed its connection.
    Pending {
        program: Option<PathBuf>,
        left: Option<Instant>,
    },
    /// A child that was found: left alone until it has been seen once more.
    Found,
    /// Made by one that is away, and without a body yet.
    Unborn {
        maker: HomePid,
    },
    Running,
}

/// When to try a placement again.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub at: Instant,
    delay: Duration,
}

impl Retry {
    /// When it has gone on for so long. What comes next is the first failure.
    pub fn after(now: Instant, pause: Duration) -> Retry {
        Retry { at: now + pause, delay: RETRY_FIRST / 2 }
    }

    pub fn first(now: Instant) -> Retry {
        Retry { at: now + RETRY_FIRST, delay: RETRY_FIRST }
    }

    pub fn next(self, now: Instant) -> Retry {
        let delay = (self.delay * 2).min(RETRY_MAX);
        Retry { at: now + delay, delay }
    }
}

/// CPU time and memory of a process, from both its halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumption {
    /// By the process at home, its deputy's work included.
    pub home_cpu_us: u64,
    /// In all its stays away.
    pub away: ProcessorTime,
    /// The same when it came home last.
    pub past_cpu_us: u64,
    pub rss_bytes: u64,
}

impl Consumption {
    pub fn cpu_us(&self) -> u64 {
        self.home_cpu_us.saturating_add(self.away_cpu_us())
    }

    /// What it is known to have used away by now. It never becomes less.
    pub fn used_away(&mut self, time: ProcessorTime) {
        if time.total_ns() > self.away.total_ns() {
            self.away = time;
        }
    }

    pub fn away_cpu_us(&self) -> u64 {
        self.away.total_ns() / 1000
    }

    /// It is home; what it used away since it left.
    pub fn journey_ended(&mut self) -> u64 {
        let now_us = self.away_cpu_us();
        now_us - std::mem::replace(&mut self.past_cpu_us, now_us)
    }
}

/// Calls that were forwarded from abroad, as last counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forwarded(Option<(Instant, u64)>);

impl Forwarded {
    /// Calls a second since the last count; None for the first count of a journey.
    pub fn per_s(&mut self, now: Instant, total: u64) -> Option<u32> {
        let (counted, before) = self.0.replace((now, total))?;
        let over_s = now.saturating_duration_since(counted).as_secs_f64();
        let calls = total.checked_sub(before)?;
        (over_s > 0.0).then(|| (calls as f64 / over_s) as u32)
    }
}

/// A rank of a job, or what descends from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOf {
    pub job: GlobalPid,
    /// With which it ends.
    pub server: Identity,
}

pub struct Process {
    pub pid: HomePid,
    pub owner: Owner,
    /// With the pid, names the process even if the number is used again.
    pub started_ticks: u64,
    pub command: String,
    /// Its command line when it left home last: what stays there may not have it any more.
    pub left_as: Option<String>,
    /// Of its options, once they were read ([`crate::programs::shape`]).
    pub shape: Option<u64>,
    pub placement: Placement,
    /// What its program was told to use of a processor, if it was told that.
    pub baseline: Option<Box<Processor>>,
    /// It runs under a filter of ours (`osmos run --mobile`).
    pub is_mobile: bool,
    pub storm: Option<Storm>,
    /// How long its user lets it stand still for a move; None: as the owner of its home has said.
    pub freeze_budget: Option<FreezeBudget>,
    /// How its memory goes along when it leaves home, where an order does not say otherwise.
    pub way: Way,
    pub at: NodeId,
    pub here_since: Instant,
    /// As [`crate::registry`] says, and nobody else.
    pub deputy: Option<Supervisor>,
    pub moving: Option<Move>,
    pub waiting: VecDeque<Order>,
    /// It was made away, and what its supervisor is to be told of that.
    pub birth: Option<Box<Birth>>,
    pub launch: Launch,
    pub retry: Option<Retry>,
    pub consumption: Consumption,
    pub forwarded: Forwarded,
    /// Of what runs at home: the process, or what serves its body.
    pub activity: Activity,
    /// What its last supervisor wants the next one to know.
    pub waits: Vec<Wait>,
    /// Likewise: its clocks, as its stays away left them.
    pub clocks: Vec<PastClock>,
    /// Whose time it is a part of: the command that `osmos time` has started.
    pub tally: Option<Identity>,
    pub job: Option<RankOf>,
    pub migrations: u64,
    pub last_move_s: Option<f64>,
    pub last_freeze: LastFreeze,
    pub reason: String,
    pub decisions: VecDeque<Decision>,
    pub progress: Progress,
    /// Its end was seen, but its deputy has not told how it ended yet.
    pub has_ended: bool,
    /// The task that waits for its end.
    pub watch: AbortHandle,
}

/// The last move of a process to another node: how long it stood still, and how much of its memory
/// was sent meanwhile; zero if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastFreeze {
    pub us: u64,
    pub bytes: u64,
}

/// What the next move depends on, of a process or of those that move as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    pub last: LastFreeze,
    pub rss_bytes: u64,
    /// What of that is memory that several have: it is not copied ahead.
    pub shared_bytes: u64,
}

impl Weight {
    pub fn of(last: LastFreeze, rss_bytes: u64) -> Weight {
        Weight { last, rss_bytes, shared_bytes: 0 }
    }
}

/// What was seen of a process where it runs, lately.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    runnable: Window,
    cpu_us: Window,
    /// The process group that it was seen in, at home.
    pub group: Option<i32>,
}

impl Activity {
    pub fn look(&mut self, at: Instant, runnable: u32, cpu_us: u64) {
        self.runnable.look(at, f64::from(runnable));
        self.cpu_us.look(at, cpu_us as f64);
    }

    /// When it was looked at last.
    pub fn looked_at(&self) -> Option<Instant> {
        self.runnable.latest_at()
    }

    /// Mean runnable threads; before the first look, one that computes.
    pub fn demand(&self) -> f64 {
        if self.runnable.is_empty() { 1.0 } else { self.runnable.mean() }
    }

    /// CPU seconds used per second.
    pub fn used(&self) -> f64 {
        self.cpu_us.growth_per_s() / 1e6
    }
}

impl Process {
    /// What its descendants are managed with.
    pub fn options(&self) -> ManageOptions {
        ManageOptions {
            placement: self.placement.clone(),
            storm_ms: self.storm.map(|storm| storm.every.as_millis() as u64),
            cpu_baseline: false,
            freeze_budget_ms: self.freeze_budget,
            way: self.way,
            is_timed: false,
            is_mobile: self.is_mobile,
        }
    }

    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid.0, started_ticks: self.started_ticks }
    }

    /// The brain leaves it where it is.
    pub fn is_pinned(&self) -> bool {
        self.storm.is_some() || !matches!(self.placement, Placement::Balanced)
    }

    /// Whether it can be moved at all. One that is not its command yet has helpers that are not to
    /// be managed: away it would make processes of which its daemon wants to know nothing.
    pub fn has_begun(&self) -> bool {
        !matches!(self.launch, Launch::Unborn { .. } | Launch::Pending { .. })
    }

    /// It runs its command and rests: a move of it may begin.
    pub fn is_ready(&self) -> bool {
        self.moving.is_none() && self.launch == Launch::Running && !self.has_ended
    }

    /// What its next move depends on.
    pub fn weight(&self) -> Weight {
        Weight::of(self.last_freeze, self.consumption.rss_bytes)
    }

    pub fn state(&self) -> &'static str {
        match (&self.moving, self.is_pinned()) {
            (Some(_), _) => "moving",
            (None, true) => "pinned",
            (None, false) => "running",
        }
    }

    /// It runs on `node` now, whose cores have that speed. `cause` is whose wish it was.
    pub fn arrived(
        &mut self,
        node: NodeId,
        freeze_us: u64,
        cause: &str,
        why: &str,
        core_speed: f64,
    ) {
        let made = progress::made(wall_clock_s(), self.at, node, cause, freeze_us);
        let rate_expected = self.rate_expected(node);
        self.progress.moved(PastMove { rate_expected, ..made }, core_speed);
        self.at = node;
        self.here_since = Instant::now();
        // Its group is that of home, wherever it is.
        self.activity = Activity { group: self.activity.group, ..Activity::default() };
        self.migrations += 1;
        self.last_move_s = Some(wall_clock_s());
        why.clone_into(&mut self.reason);
        self.decide(wall_clock_s(), "moved", why);
    }

    /// What the brain expected of that node when it decided to send the process there.
    fn rate_expected(&self, node: NodeId) -> Option<f64> {
        let decided = self.decisions.iter().rev().find(|decision| decision.verdict == "move")?;
        let mut places = decided.weighed.iter().flat_map(|weighed| &weighed.places);
        places.find(|place| place.node == Some(node)).map(|place| place.rate)
    }

    /// Its user has moved it: where he had said that it must run, he says something else now. Only
    /// a move that was carried out counts, or one that is refused would be tried for ever; and one
    /// to where it is.
    pub fn moved_by_user(&mut self, to: NodeId, home: NodeId) {
        self.placement = match self.placement {
            Placement::Node(_) | Placement::Home if to == home => Placement::Home,
            Placement::Node(_) | Placement::Home => Placement::Node(to),
            Placement::Balanced | Placement::Best => return,
        };
    }

    /// Keeps a decision for `osmos why`; the same one twice in a row is kept once.
    pub fn decide(&mut self, time: f64, verdict: &str, reason: &str) {
        self.decide_among(time, verdict, reason, None);
    }

    /// The same, with the places that were weighed.
    pub fn decide_among(
        &mut self,
        time: f64,
        verdict: &str,
        reason: &str,
        weighed: Option<Weighed>,
    ) {
        let last = self.decisions.back();
        if last.is_some_and(|last| last.verdict == verdict && last.reason == reason) {
            return;
        }
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.pop_front();
        }
        let (verdict, reason) = (verdict.to_owned(), reason.to_owned());
        self.decisions.push_back(Decision { time, verdict, reason, weighed });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[cfg(test)]
pub mod test {
    use super::*;

    #[test]
    fn demand_is_a_mean_and_use_is_per_second() {
        let mut activity = Activity::default();
        let now = Instant::now();
        activity.look(now, 1, 1_000_000);
        activity.look(now + Duration::from_millis(500), 2, 1_600_000);
        assert_eq!((activity.demand(), activity.used()), (1.5, 1.2));
    }

    /// A resting process, as it is just after its start.
    pub fn starting(launch: Launch) -> Process {
        let now = Instant::now();
        Process {
            pid: HomePid(4711),
            owner: Owner { uid: 1000, gid: 1000 },
            started_ticks: 1,
            command: "sleep".to_owned(),
            left_as: None,
            shape: None,
            placement: Placement::Balanced,
            baseline: None,
            is_mobile: false,
            storm: Some(Storm { every: Duration::from_millis(1), next: now }),
            freeze_budget: None,
            way: Way::PreCopy,
            at: NodeId(1),
            here_since: now,
            deputy: None,
            moving: None,
            waiting: VecDeque::new(),
            birth: None,
            launch,
            retry: None,
            consumption: Consumption::default(),
            forwarded: Forwarded::default(),
            activity: Activity::default(),
            waits: Vec::new(),
            clocks: Vec::new(),
            tally: None,
            job: None,
            migrations: 0,
            last_move_s: None,
            last_freeze: LastFreeze::default(),
            reason: String::new(),
            decisions: VecDeque::new(),
            progress: Progress::starting(1.0),
            has_ended: false,
            watch: tokio::spawn(async {}).abort_handle(),
        }
    }

    #[tokio::test]
    async fn only_a_resting_process_that_runs_its_command_wakes_the_daemon_for_a_move() {
        assert!(starting(Launch::Running).is_ready());
        assert!(!starting(Launch::Pending { program: None, left: None }).is_ready());
        assert!(!starting(Launch::Found).is_ready());
        let mut ended = starting(Launch::Running);
        ended.has_ended = true;
        assert!(!ended.is_ready());
        let mut moving = starting(Launch::Running);
        let order = Order::new(NodeId(2), Cause::Storm, "storm");
        moving.moving = Some(Move::new(order, NodeId(1), 1.0));
        assert!(!moving.is_ready());
    }

    #[test]
    fn forwarded_calls_are_counted_from_one_report_to_the_next() {
        let now = Instant::now();
        let mut forwarded = Forwarded::default();
        assert_eq!(forwarded.per_s(now, 100), None);
        assert_eq!(forwarded.per_s(now + Duration::from_secs(2), 300), Some(100));
        assert_eq!(forwarded.per_s(now + Duration::from_secs(3), 5), None, "a new journey");
    }

    #[test]
    fn cpu_time_is_kept_over_journeys() {
        let mut used = Consumption { home_cpu_us: 1, ..Consumption::default() };
        let time = |us: u64| ProcessorTime { user_ns: us * 1000, system_ns: 0 };
        used.used_away(time(10));
        assert_eq!(used.journey_ended(), 10);
        used.used_away(time(110));
        used.used_away(time(9));
        assert_eq!(used.cpu_us(), 111);
        assert_eq!(used.journey_ended(), 100);
        assert_eq!(used.journey_ended(), 0);
    }

    #[test]
    fn placements_that_fail_are_tried_less_and_less_often() {
        let now = Instant::now();
        let mut retry = Retry::first(now);
        assert_eq!(retry.at, now + RETRY_FIRST);
        let begun = Retry::after(now, Duration::from_millis(10));
        assert_eq!(begun.next(now).at, retry.at, "that it was left alone is no failure");
        for _ in 0..20 {
            retry = retry.next(now);
        }
        assert_eq!(retry.at, now + RETRY_MAX);
    }
}
