//! What is simulated: nodes, network, work and what goes wrong. A scenario is a JSON file or one of
//! those built in; all of it but the names has a default.

use crate::dice::Dice;
use brain::Ownership;
use serde::{Deserialize, Serialize};

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// It ends when all work is done, or after this long.
    pub limit_s: f64,
    pub nodes: Vec<NodeGroup>,
    pub network: Network,
    pub moves: MoveCost,
    pub jobs: Vec<Job>,
    pub background: Vec<Background>,
    pub events: Vec<Happening>,
    /// How many members each node is told of at the start; all if there is no number.
    pub members_told: Option<usize>,
    /// Places in each brain's view of the others; the brain's own default if there is no number.
    pub view: Option<usize>,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            name: "unnamed".into(),
            limit_s: 7_200.0,
            nodes: vec![NodeGroup::default()],
            network: Network::default(),
            moves: MoveCost::default(),
            jobs: Vec::new(),
            background: Vec::new(),
            events: Vec::new(),
            members_told: None,
            view: None,
        }
    }
}

/// Equal nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeGroup {
    pub count: usize,
    pub cores: u32,
    /// Of one core; 1.0 is the reference.
    pub speed: f64,
    pub memory_mib: u64,
}

impl Default for NodeGroup {
    fn default() -> NodeGroup {
        NodeGroup { count: 16, cores: 1, speed: 1.0, memory_mib: 4_096 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// One way, equally likely between these.
    pub latency_us_min: u64,
    pub latency_us_max: u64,
    /// Datagrams lost, in a thousand.
    pub loss_permille: u32,
    /// Of the link of one node, shared by the moves on it.
    pub mbit_per_s: f64,
}

impl Network {
    /// Of the link of one node.
    pub fn bytes_per_s(&self) -> f64 {
        self.mbit_per_s * 1e6 / 8.0
    }
}

impl Default for Network {
    fn default() -> Network {
        Network {
            latency_us_min: 100,
            latency_us_max: 1_000,
            loss_permille: 0,
            mbit_per_s: 1_000.0,
        }
    }
}

/// What a move takes besides the transfer of the memory, which is done while the process runs. The
/// defaults are what was measured (`cargo xtask bench migrate`, and `freeze` for threads: 4.9 ms
/// for one, 38 ms for 64).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MoveCost {
    /// From the order to the transfer: the process still runs.
    pub setup_ms: f64,
    /// Frozen, after the transfer.
    pub freeze_ms: f64,
    /// And so much longer for each thread.
    pub freeze_ms_per_thread: f64,
    /// Moves in a thousand that break while the process is frozen; it runs on at the source.
    pub failing_permille: u32,
    /// Moves in a thousand of which it turns out that the process cannot be moved now.
    pub staying_permille: u32,
}

impl Default for MoveCost {
    fn default() -> MoveCost {
        MoveCost {
            setup_ms: 10.0,
            freeze_ms: 4.5,
            freeze_ms_per_thread: 0.5,
            failing_permille: 0,
            staying_permille: 0,
        }
    }
}

/// Where processes are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// All on this node, counted from 1.
    Node(u32),
    /// One after another on all nodes, as PVM does.
    RoundRobin,
    /// On nodes drawn at random.
    Random,
    /// The whole number on each node.
    Each,
}

/// How much a process computes, in seconds of a reference core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Fixed(f64),
    /// Equally likely between these.
    Uniform(f64, f64),
    Endless,
}

/// Processes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Job {
    pub count: usize,
    pub start_s: f64,
    pub place: Place,
    /// Of all its threads together.
    pub work: Work,
    /// Of each process; all are of equal work, and it needs as many cores to get on as fast as it
    /// can.
    pub threads: u32,
    /// Of a core by each thread, when nothing holds it up.
    pub demand: f64,
    pub rss_mib: f64,
    /// It grows by this much for each second of work, up to `rss_mib_max`.
    pub growth_mib_per_s: f64,
    pub rss_mib_max: f64,
    /// Calls of its home for each second of work; each costs a tenth of a millisecond when away.
    pub calls_per_cpu_s: f64,
    /// It is one process group: its members may take turns.
    pub is_group: bool,
    /// It is of the process group of the job before it.
    pub goes_with_last: bool,
    /// Whose it is; without a number nobody is told.
    pub user: Option<u32>,
    /// No more of them at a time: the next starts where it is to when one ends, as under `make -j`.
    /// All start together if there is no number.
    pub at_once: Option<usize>,
    /// Each starts so long after the one before, on average (exponentially distributed).
    pub apart_s: f64,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            count: 1,
            start_s: 5.0,
            place: Place::Node(1),
            work: Work::Fixed(300.0),
            threads: 1,
            demand: 1.0,
            rss_mib: 8.0,
            growth_mib_per_s: 0.0,
            rss_mib_max: 0.0,
            calls_per_cpu_s: 0.0,
            is_group: true,
            goes_with_last: false,
            user: None,
            at_once: None,
            apart_s: 0.0,
        }
    }
}

/// Whoever compares policies lets all of them have the same durations and places.
impl Job {
    /// Where each of its processes starts, nodes counted from 0, and how much it computes
    /// (infinity for endless). `number` is the job's place in its scenario.
    pub fn draw(&self, number: u32, nodes: usize, seed: u64) -> Vec<(u32, f64)> {
        let mut dice = Dice::seeded(u64::from(number) ^ seed.rotate_left(17));
        let count = if self.place == Place::Each { self.count * nodes } else { self.count };
        let draw = |nth: usize| {
            let node = match self.place {
                Place::Node(node) => node - 1,
                Place::RoundRobin | Place::Each => (nth % nodes) as u32,
                Place::Random => dice.below(nodes as u64) as u32,
            };
            let work_s = match self.work {
                Work::Fixed(s) => s,
                Work::Uniform(low, high) => dice.between(low, high),
                Work::Endless => f64::INFINITY,
            };
            (node, work_s)
        };
        (0..count).map(draw).collect()
    }

    /// Pauses between the starts of its processes, s, if they do not start together.
    pub fn pauses_s(&self, number: u32, seed: u64) -> impl Iterator<Item = f64> {
        let mut dice = Dice::seeded(u64::from(number) ^ seed.rotate_left(31));
        let apart_s = self.apart_s;
        std::iter::repeat_with(move || -apart_s * (1.0 - dice.fraction()).ln())
    }
}

/// Processes that no brain can move: computing and pausing in turn, each for a time equally likely
/// between 0 and `on_s_max` or `off_s_max`. With `off_s_max` 0 they never pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Background {
    /// Each on a node of its own as long as there are some, beginning with the last.
    pub count: usize,
    pub on_s_max: f64,
    pub off_s_max: f64,
}

impl Default for Background {
    fn default() -> Background {
        Background { count: 8, on_s_max: 30.0, off_s_max: 30.0 }
    }
}

/// Something that happens to the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Happening {
    pub at_s: f64,
    pub what: What,
}

/// Nodes are counted from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Further nodes join.
    Join(NodeGroup),
    /// The node sends its guests on, brings its own processes home and goes.
    Leave {
        node: u32,
    },
    /// The node is gone at once, with all that ran there.
    Crash {
        node: u32,
    },
    /// The node's owner decides what others may have of it.
    Decide {
        node: u32,
        ownership: Ownership,
    },
    /// So many threads more that no brain can move compute on the node from now on; with a negative
    /// number fewer.
    OwnLoad {
        node: u32,
        threads: i16,
    },
    /// The first `nodes` nodes and the others do not hear each other.
    Partition {
        nodes: u32,
    },
    /// All hear each other again.
    Heal,
    Loss {
        permille: u32,
    },
    /// The daemons of the last `nodes` nodes get no processor for up to `s_max` seconds, time and
    /// again, and run for one second in between.
    Starve {
        nodes: u32,
        s_max: f64,
    },
}

impl Scenario {
    pub fn nodes_count(&self) -> usize {
        self.nodes.iter().map(|group| group.count).sum()
    }

    /// Whether any node ever computes what no brain can move.
    pub fn has_background(&self) -> bool {
        let is_load = |event: &Happening| matches!(event.what, What::OwnLoad { .. });
        !self.background.is_empty() || self.events.iter().any(is_load)
    }

    /// The job, by its number, whose process group this one's processes are in.
    pub fn first_of_group(&self, number: u32) -> u32 {
        let before = self.jobs[..=number as usize].iter().rposition(|job| !job.goes_with_last);
        before.unwrap_or_default() as u32
    }

    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), String> {
        let nodes = self.nodes_count();
        let processes: usize = self
            .jobs
            .iter()
            .map(|job| if job.place == Place::Each { job.count * nodes } else { job.count })
            .sum();
        let complaint = if nodes == 0 {
            "there are no nodes"
        } else if nodes > NODES_MAX || processes > PROCESSES_MAX {
            "there are more nodes or processes than can be simulated"
        } else if !(0.0..=YEAR_S).contains(&self.limit_s) {
            "limit_s is no sensible number of seconds"
        } else if self.nodes.iter().any(|group| group.cores == 0 || group.speed <= 0.0) {
            "a node without cores or speed"
        } else if self.jobs.iter().any(|job| job.demand <= 0.0) {
            "a process that wants no processor"
        } else if self.jobs.iter().any(|job| !(1..=THREADS_MAX).contains(&job.threads)) {
            "a process has no threads, or more than can be"
        } else if self.jobs.first().is_some_and(|job| job.goes_with_last) {
            "there is no job before the first"
        } else if self.jobs.iter().any(|job| job.at_once == Some(0)) {
            "a job of which no process may run"
        } else if self.jobs.iter().any(|job| !(0.0..=YEAR_S).contains(&job.apart_s)) {
            "apart_s is no sensible number of seconds"
        } else if self.network.mbit_per_s <= 0.0 {
            "a link that carries nothing"
        } else if self
            .jobs
            .iter()
            .any(|job| matches!(job.place, Place::Node(n) if n as usize > nodes || n == 0))
        {
            "a job starts on a node that does not exist"
        } else {
            return Ok(());
        };
        Err(format!("scenario {}: {complaint}", self.name))
    }
}

pub(crate) const NODES_MAX: usize = 2_000_000;
const PROCESSES_MAX: usize = 8_000_000;
const THREADS_MAX: u32 = 10_000;
const YEAR_S: f64 = 365.0 * 86_400.0;
