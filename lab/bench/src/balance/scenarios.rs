//! The experiments: which runs each consists of. Sixteen single-core nodes unless something else is
//! said; all processes of a run start at the same moment on one node, as those of a user do.

use crate::balance::paper::TABLE_1;
use crate::balance::trial::{Measure, Trial};
use brain::Ownership;
use sim::scenario::{Background, Happening, Job, Network, NodeGroup, Place, Scenario, What, Work};

/// A scenario: its name, what it is and against what it is measured, and its trials.
type Made = (&'static str, &'static str, fn() -> Vec<Trial>);

const ALL: [Made; 19] = [
    (
        "table1",
        "Table 1 of 1996: N equal processes of 300 s on 16 nodes, against the best \
         schedule of whole processes (row 31 by formula, not by the misprint). The mean \
         is over N > 16.",
        table_1,
    ),
    (
        "table1_preemptive",
        "The same runs against the best preemptive schedule.",
        table_1_preemptive,
    ),
    (
        "random",
        "Durations between 0 and 600 s, the same for all policies; against the best \
         preemptive schedule of somebody who knows them all in advance. What can be \
         expected of somebody who does not is equal progress; the last table shows how \
         far above the optimum that is in the worst case drawn.",
        random,
    ),
    (
        "background",
        "Eight threads of others compute and pause for 0 to 30 s each; against a bound \
         for fair sharing beside them.",
        background,
    ),
    (
        "mixed",
        "Five of sixteen nodes are three times slower; against the best preemptive \
         schedule for these speeds.",
        mixed,
    ),
    ("large", "1536 processes of 300 s started at random on 1024 nodes.", large),
    (
        "flood",
        "The most processes that one idle node has at a time after it has joined 256 full \
         ones; against its fair share.",
        flood,
    ),
    ("steady", "An hour in which nothing changes: core time lost by freezes and idleness.", steady),
    (
        "loss",
        "Lost datagrams, a cluster cut in two for a minute, daemons that get no processor \
         for up to 4 s at a time.",
        loss,
    ),
    ("memory", "Guests that grow until not all fit where they are.", memory),
    (
        "churn",
        "Nodes come and go under 24 processes; against all cores of the time working \
         without a pause.",
        churn,
    ),
    (
        "cores",
        "Many processes of one thread, begun on the smallest of four machines of 2, 8, 64 \
         and 128 cores with links of 10 Gbit/s.",
        cores,
    ),
    (
        "wide",
        "Processes of several threads on the same machines; against a bound for their \
         threads, as if each could be on a node of its own.",
        wide,
    ),
    (
        "unlike",
        "Processes of 1, 4, 16 and 64 threads together on the same machines, with equal \
         cores and with cores of 1.0, 1.5, 0.7 and 0.5; the same bound.",
        unlike,
    ),
    (
        "interactive",
        "How long short processes of 1 to 4 s take on average that are begun beside long \
         ones, all on one of 16 nodes of 2 cores; against one machine of 32 cores.",
        interactive,
    ),
    (
        "builds",
        "600 short processes, so many at a time, begun on one of several nodes of 2 \
         cores; against the best preemptive schedule of somebody who knows them all.",
        builds,
    ),
    (
        "sizes",
        "Processes of one group, of which a quarter each have 1, 16, 128 and 1024 MiB, on \
         16 nodes with links of 1 Gbit/s; against the best preemptive schedule.",
        sizes,
    ),
    (
        "calls",
        "Processes of which some make many calls of their home, each of which costs them \
         a tenth of a millisecond where they are away; against the best preemptive \
         schedule, as if it cost nothing.",
        calls,
    ),
    (
        "owners",
        "Five of 16 nodes yield to their owners, who come one after another and compute \
         there for 90 s each; against all cores that are left working without a pause.",
        owners,
    ),
];

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, ..)| *name).collect()
}

/// What it is, and against what it is measured; nothing of one that does not exist.
pub fn about(name: &str) -> &'static str {
    ALL.iter().find(|(own, ..)| *own == name).map_or("", |(_, about, _)| *about)
}

/// # Errors
/// One of these is no scenario: said before others are run, which takes minutes.
pub fn check(names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| !self::names().contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let known = self::names().join(", ");
            Err(format!("there is no scenario {name}; there are {known}"))
        }
    }
}

/// The trials of a scenario, each with every seed.
pub fn trials(name: &str, seeds: &[u64]) -> Option<Vec<Trial>> {
    let (.., make) = ALL.iter().find(|(own, ..)| *own == name)?;
    let mut trials = Vec::new();
    for seed in seeds {
        for mut trial in make() {
            trial.seed = *seed;
            trial.scenario.name = name.into();
            trials.push(trial);
        }
    }
    Some(trials)
}

fn trial(label: impl Into<String>, scenario: Scenario, measure: Measure) -> Trial {
    Trial { label: label.into(), scenario, seed: 0, measure, is_counted: true, shortened: 1.0 }
}

fn of(count: usize, nodes: usize) -> Scenario {
    Scenario {
        nodes: vec![NodeGroup { count: nodes, ..NodeGroup::default() }],
        jobs: vec![Job { count, ..Job::default() }],
        ..Scenario::default()
    }
}

fn table_1() -> Vec<Trial> {
    let rows = TABLE_1.iter().map(|row| {
        let count = row.processes;
        let trial = trial(format!("N={count}"), of(count, 16), Measure::WholeProcess);
        // The paper's point begins where processes have to share.
        Trial { is_counted: count > 16, ..trial }
    });
    rows.collect()
}

fn table_1_preemptive() -> Vec<Trial> {
    let rows = table_1().into_iter();
    rows.map(|trial| Trial { measure: Measure::Preemptive, ..trial }).collect()
}

fn random() -> Vec<Trial> {
    let rows = [24, 32, 48, 64].map(|count| {
        let mut scenario = of(count, 16);
        scenario.jobs[0].work = Work::Uniform(0.0, 600.0);
        trial(format!("N={count}"), scenario, Measure::Preemptive)
    });
    rows.into()
}

fn background() -> Vec<Trial> {
    let rows = [16, 20, 24, 32].map(|count| {
        let background = vec![Background::default()];
        let scenario = Scenario { background, ..of(count, 16) };
        trial(format!("N={count}"), scenario, Measure::Background)
    });
    rows.into()
}

/// A third of the nodes three times slower, as in the paper.
fn mixed() -> Vec<Trial> {
    let fast = NodeGroup { count: 11, ..NodeGroup::default() };
    let slow = NodeGroup { count: 5, speed: 1.0 / 3.0, ..NodeGroup::default() };
    let rows = [16, 20, 24, 32, 48, 64].map(|count| {
        let nodes = vec![fast.clone(), slow.clone()];
        let scenario = Scenario { nodes, ..of(count, 16) };
        trial(format!("N={count}"), scenario, Measure::Preemptive)
    });
    rows.into()
}

fn large() -> Vec<Trial> {
    let mut scenario = of(1_536, 1_024);
    scenario.jobs[0].place = Place::Random;
    scenario.members_told = Some(LARGE_TOLD);
    scenario.view = Some(LARGE_VIEW);
    vec![trial("1024 nodes, 1536 processes", scenario, Measure::Preemptive)]
}

/// Others that each brain of a large cluster knows at one time, and is told of at first.
const LARGE_VIEW: usize = 48;
const LARGE_TOLD: usize = LARGE_VIEW + 4;

fn flood() -> Vec<Trial> {
    let mut scenario = of(4, 256);
    scenario.jobs[0] = Job {
        place: Place::Each,
        work: Work::Endless,
        is_group: false,
        ..scenario.jobs[0].clone()
    };
    scenario.limit_s = 150.0;
    let newcomer = NodeGroup { count: 1, ..NodeGroup::default() };
    scenario.events = vec![Happening { at_s: 60.0, what: What::Join(newcomer) }];
    vec![trial("one idle node joins 256 with 4 each", scenario, Measure::NewcomerPeak)]
}

fn steady() -> Vec<Trial> {
    let endless = |count: usize, is_group: bool| {
        let mut scenario = of(count, 16);
        scenario.limit_s = 3_600.0;
        scenario.jobs[0].work = Work::Endless;
        scenario.jobs[0].is_group = is_group;
        scenario
    };
    let mut waiting = endless(40, false);
    // They wait for something for three tenths of the time: loads are never the same twice.
    waiting.jobs[0].demand = 0.7;
    vec![
        trial("24 for an hour", endless(24, false), Measure::Lost),
        trial("33 for an hour", endless(33, false), Measure::Lost),
        trial("40 that wait for 0.3 of their time", waiting, Measure::Lost),
    ]
}

fn loss() -> Vec<Trial> {
    let mut trials = Vec::new();
    for count in [17, 24, 33, 40] {
        let mut lossy = of(count, 16);
        lossy.network.loss_permille = 300;
        let mut cut = of(count, 16);
        cut.events = vec![
            Happening { at_s: 100.0, what: What::Partition { nodes: 6 } },
            Happening { at_s: 160.0, what: What::Heal },
        ];
        let mut starved = of(count, 16);
        starved.events = vec![Happening { at_s: 3.0, what: What::Starve { nodes: 2, s_max: 4.0 } }];
        trials.push(trial(format!("N={count}, as usual"), of(count, 16), Measure::Preemptive));
        trials.push(trial(format!("N={count}, 30 % lost"), lossy, Measure::Preemptive));
        trials.push(trial(format!("N={count}, cut for 60 s"), cut, Measure::Preemptive));
        trials.push(trial(format!("N={count}, 2 starved"), starved, Measure::Preemptive));
    }
    trials
}

/// Guests that grow until the node where they started would need twice its memory.
fn memory() -> Vec<Trial> {
    let nodes = vec![NodeGroup { count: 8, memory_mib: 1_024, ..NodeGroup::default() }];
    let job = Job {
        count: 16,
        place: Place::Random,
        rss_mib: 32.0,
        growth_mib_per_s: 4.0,
        rss_mib_max: 400.0,
        work: Work::Fixed(200.0),
        is_group: false,
        ..Job::default()
    };
    let mut uneven =
        Scenario { nodes: nodes.clone(), jobs: vec![job.clone()], ..Scenario::default() };
    uneven.nodes.push(NodeGroup { count: 2, memory_mib: 4_096, ..NodeGroup::default() });
    let even = Scenario { nodes, jobs: vec![Job { count: 14, ..job }], ..Scenario::default() };
    vec![
        trial("14 growing to 400 MiB on 8 of 1 GiB", even, Measure::Preemptive),
        trial("16 on 8 of 1 GiB and 2 of 4 GiB", uneven, Measure::Preemptive),
    ]
}

/// Six processes have their home on each of the first four nodes, which stay.
fn churn() -> Vec<Trial> {
    let mut scenario = of(24, 16);
    let homes =
        (1..=4).map(|node| Job { count: 6, place: Place::Node(node), ..scenario.jobs[0].clone() });
    scenario.jobs = homes.collect();
    let at = |at_s, what| Happening { at_s, what };
    let one = NodeGroup { count: 1, ..NodeGroup::default() };
    scenario.events = vec![
        at(60.0, What::Leave { node: 16 }),
        at(120.0, What::Join(one.clone())),
        at(180.0, What::Leave { node: 15 }),
        at(240.0, What::Join(one)),
        at(300.0, What::Leave { node: 14 }),
    ];
    let mut crashing = scenario.clone();
    crashing.events.push(at(200.0, What::Crash { node: 13 }));
    vec![
        trial("two join, three leave", scenario, Measure::Churn),
        trial("and one crashes", crashing, Measure::Churn),
    ]
}

/// One of each: what people own.
fn machines(speeds: [f64; 4]) -> Vec<NodeGroup> {
    let machine = |(cores, speed)| NodeGroup { count: 1, cores, speed, memory_mib: 256 << 10 };
    [2, 8, 64, 128].into_iter().zip(speeds).map(machine).collect()
}

/// These machines in a network of 10 Gbit/s, as such have.
fn on_machines(speeds: [f64; 4], jobs: Vec<Job>) -> Scenario {
    let network = Network { mbit_per_s: 10_000.0, ..Network::default() };
    // Where each stays on the smallest machine that takes hours.
    let limit_s = 40_000.0;
    let nodes = machines(speeds);
    Scenario { limit_s, nodes, network, jobs, ..Scenario::default() }
}

/// Processes of so many threads, each of which computes for 300 s.
fn of_threads(count: usize, threads: u32) -> Job {
    let work = Work::Fixed(300.0 * f64::from(threads));
    Job { count, threads, work, ..Job::default() }
}

/// Many processes of one thread, begun on the smallest machine.
fn cores() -> Vec<Trial> {
    let rows = [101, 202, 250, 404, 808].map(|count| {
        let scenario = on_machines([1.0; 4], vec![of_threads(count, 1)]);
        trial(format!("N={count}"), scenario, Measure::Preemptive)
    });
    let waiting = [144, 250, 400].map(|count| {
        let job = Job { demand: 0.7, ..of_threads(count, 1) };
        let scenario = on_machines([1.0; 4], vec![job]);
        trial(format!("{count} that wait for 0.3 of their time"), scenario, Measure::Preemptive)
    });
    rows.into_iter().chain(waiting).collect()
}

/// Few processes of many threads, begun on the smallest machine.
fn wide() -> Vec<Trial> {
    let rows = [(50, 4), (76, 4), (12, 16), (19, 16), (3, 64), (5, 64)].map(|(count, threads)| {
        let scenario = on_machines([1.0; 4], vec![of_threads(count, threads)]);
        trial(format!("{count} of {threads} threads"), scenario, Measure::Preemptive)
    });
    rows.into()
}

/// Processes of 1 to 64 threads together, on equal and on unlike cores.
fn unlike() -> Vec<Trial> {
    let jobs = |times: usize| {
        [(40, 1), (10, 4), (5, 16), (1, 64)]
            .map(|(count, threads)| of_threads(count * times, threads))
    };
    let mut trials = Vec::new();
    for (label, speeds) in [("equal cores", [1.0; 4]), ("unlike cores", [1.0, 1.5, 0.7, 0.5])] {
        for times in [1, 2] {
            let scenario = on_machines(speeds, jobs(times).into());
            let label = format!("{} threads on {label}", 224 * times);
            trials.push(trial(label, scenario, Measure::Preemptive));
        }
    }
    trials
}

/// Short work that is begun all the time beside long work, all of it on one node of 16 with 2
/// cores: how long the short takes.
fn interactive() -> Vec<Trial> {
    let rows = [(8, 0.5), (16, 0.5), (24, 0.5), (16, 0.25)].map(|(long, apart_s)| {
        let nodes = vec![NodeGroup { cores: 2, ..NodeGroup::default() }];
        let work = Work::Uniform(1.0, 4.0);
        let short =
            Job { count: 200, start_s: 20.0, work, apart_s, is_group: false, ..Job::default() };
        let jobs = vec![Job { count: long, ..Job::default() }, short];
        let scenario = Scenario { nodes, jobs, ..Scenario::default() };
        let busy = long as f64 + 2.5 / apart_s;
        trial(format!("{long} long, {busy} of 32 cores wanted"), scenario, Measure::Response)
    });
    rows.into()
}

/// A build: short processes, so many at a time, all begun on one node.
fn builds() -> Vec<Trial> {
    let rows = [(4, 12, 3.0), (8, 24, 3.0), (8, 24, 1.0)].map(|(nodes, at_once, longest_s)| {
        let nodes = vec![NodeGroup { count: nodes, cores: 2, ..NodeGroup::default() }];
        let work = Work::Uniform(0.1, longest_s);
        // At their beginning they have little memory of their own.
        let rss_mib = 2.0;
        let job = Job { count: 600, at_once: Some(at_once), work, rss_mib, ..Job::default() };
        let label = format!("-j{at_once} of up to {longest_s} s on {} nodes", nodes[0].count);
        let scenario = Scenario { nodes, jobs: vec![job], ..Scenario::default() };
        trial(label, scenario, Measure::Preemptive)
    });
    rows.into()
}

/// A quarter each of processes of 1, 16, 128 and 1024 MiB, all of one group: to copy one of the
/// last takes nine seconds of a link.
fn sizes() -> Vec<Trial> {
    let rows = [20, 24, 36, 48].map(|count| {
        let of_size = |rss_mib| Job { count: count / 4, rss_mib, ..Job::default() };
        let mut scenario = together([1.0, 16.0, 128.0, 1024.0].map(of_size).into());
        scenario.nodes[0].memory_mib = 64 << 10;
        trial(format!("N={count} of 1 MiB to 1 GiB"), scenario, Measure::Preemptive)
    });
    rows.into()
}

/// Processes that call their home, which costs them time where they are away. What nobody can beat
/// is what they would take if it cost nothing.
fn calls() -> Vec<Trial> {
    let rows = [(20, 4, 2_000.0), (24, 12, 500.0), (24, 12, 2_000.0), (40, 8, 2_000.0)];
    let rows = rows.map(|(count, calling, calls_per_cpu_s)| {
        let callers = Job { count: calling, calls_per_cpu_s, ..Job::default() };
        let others = Job { count: count - calling, ..Job::default() };
        let label = format!("N={count}, {calling} of which make {calls_per_cpu_s} calls a second");
        trial(label, together(vec![callers, others]), Measure::Preemptive)
    });
    rows.into()
}

/// These on 16 nodes, all of one process group.
fn together(mut jobs: Vec<Job>) -> Scenario {
    jobs.iter_mut().skip(1).for_each(|job| job.goes_with_last = true);
    Scenario { jobs, ..of(0, 16) }
}

/// Five of the nodes have owners who come first, and who compute on them for a minute and a half
/// each.
fn owners() -> Vec<Trial> {
    let rows = [17, 24, 33, 48].map(|count| {
        let mut scenario = of(count, 16);
        let first = Ownership { yields: true, ..Ownership::default() };
        let mut at = |at_s, what| scenario.events.push(Happening { at_s, what });
        for (nth, node) in (12..=16).enumerate() {
            let comes_s = 60.0 + 15.0 * nth as f64;
            at(0.0, What::Decide { node, ownership: first.clone() });
            at(comes_s, What::OwnLoad { node, threads: 1 });
            at(comes_s + 90.0, What::OwnLoad { node, threads: -1 });
        }
        trial(format!("N={count}, five owners"), scenario, Measure::Churn)
    });
    rows.into()
}
