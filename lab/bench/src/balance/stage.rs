//! A lab for one real run: its nodes as the scenario wants them, daemons with the policy that is
//! measured, and what one second of a node is worth.

use crate::balance::crew::{self, Ended, GO, READY};
use crate::balance::guest;
use crate::balance::happenings::{self, Happenings};
use crate::balance::policy::Policy;
use anyhow::{Context, Result, anyhow, bail, ensure};
use lab::{Awake, Expedited, Lab, Mark, MemorySize, Pacemaker, Spec};
use sim::scenario::Scenario;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::control::{Event, Node};

/// Nodes together have half of the machine. Each of them is slower for it, and that is all: what
/// takes seconds there takes as many of them. But the other half is there at once for whatever a
/// real cluster has processors of its own for: sixteen daemons, moves, and each other's nodes. What
/// these take is measured and charged ([`Used`]).
const MACHINE_SHARE: f64 = 0.5;
/// Rounds a second of a core, for a first guess.
const ROUNDS_PER_S: f64 = 9e8;
/// What the machine's pace is measured by.
const PIECE_ROUNDS: u64 = 200_000;
/// How long the nodes are measured, s.
const CALIBRATION_S: f64 = 8.0;
/// The load that MOSIX tells others decays by an eighth a second: after a calibration it takes
/// twenty until all nodes pass for idle.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(60);
/// Runnable processes, on average over a second, of which a node that has nothing to do has less.
const IDLE: f64 = 0.1;
const KNOWN_POLL: Duration = Duration::from_millis(50);

pub struct Stage {
    lab: Lab,
    pacemaker: Pacemaker,
    /// None where they cannot be had; then times are less sure.
    awake: Option<Awake>,
    expedited: Option<Expedited>,
    speeds: Vec<f64>,
    /// So many of the last of them are not there at first.
    newcomers: usize,
}

/// What a second of a node is worth when so many nodes compute as will in the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// On a node of speed 1.
    pub rounds_per_s: f64,
    /// The part of their quotas that the nodes had then: less than nearly all of it means that the
    /// machine was busy with something else.
    pub had: f64,
    /// How fast the machine was then, in pieces in a second of a processor.
    pub pace: f64,
}

impl Unit {
    /// The same when the machine has this pace.
    pub fn at(&self, pace: f64) -> f64 {
        self.rounds_per_s * pace / self.pace
    }
}

/// Processor time, in seconds of a node of speed 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// By what users run, and guests.
    pub work_s: f64,
    /// By the daemon, supervisors, copies and encryption, and whoever starts guests. A quota of
    /// theirs would not show what it costs: with a sixteenth of a processor, a millisecond in each
    /// sixteen, whoever wakes up waits for the next millisecond, and a move that takes 30 ms took
    /// ten seconds.
    pub system_s: f64,
}

impl Used {
    pub fn since(self, before: Used) -> Used {
        Used { work_s: self.work_s - before.work_s, system_s: self.system_s - before.system_s }
    }

    pub fn of_all(nodes: &[Used]) -> Used {
        let sum = |of: fn(&Used) -> f64| nodes.iter().map(of).sum();
        Used { work_s: sum(|used| used.work_s), system_s: sum(|used| used.system_s) }
    }
}

/// Guests for one node.
pub struct Crew {
    pub node: u32,
    pub plan: crew::Plan,
}

impl Stage {
    /// The nodes of a scenario, together with the half of the machine.
    ///
    /// `shortened`: see [`Policy::word`].
    pub fn up(scenario: &Scenario, policy: Policy, shortened: f64) -> Result<Stage> {
        let mut speeds: Vec<f64> =
            scenario.nodes.iter().flat_map(|group| vec![group.speed; group.count]).collect();
        let newcomers = happenings::newcomers(scenario);
        speeds.extend(&newcomers);
        let newcomers = newcomers.len();
        let limits = (MACHINE_SHARE, memory(scenario));
        Stage::of(speeds, newcomers, policy.word(shortened), limits)
    }

    /// So many equal nodes. Each has what it would have if `of_nodes` of them shared the half of
    /// the machine, so that experiments with more and with fewer can be compared.
    pub fn up_equal(nodes: u32, of_nodes: u32, policy: Policy) -> Result<Stage> {
        let share = MACHINE_SHARE * f64::from(nodes) / f64::from(of_nodes);
        Stage::of(vec![1.0; nodes as usize], 0, policy.word(1.0), (share, None))
    }

    fn of(
        speeds: Vec<f64>,
        newcomers: usize,
        policy: String,
        (machine_share, memory): (f64, Option<MemorySize>),
    ) -> Result<Stage> {
        // Two may be at it on one machine, though not with figures that mean much.
        let name = format!("balance-{}", std::process::id());
        let mut spec = Spec::new(name.parse()?, speeds.len() as u32)?;
        spec.speeds = speeds;
        spec.machine_share = machine_share;
        spec.has_one_core_each = true;
        spec.policy = Some(policy);
        spec.memory = memory;
        let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        // A node of speed 1 is the reference: brains think in the seconds of this lab.
        spec.core_speed = 1.0 / spec.cpu_scale(cores);
        let lab = Lab::up(&spec)?;
        lab.down_when_interrupted()?;
        if let [first, ..] = lab.missing() {
            bail!("no lab with slow nodes on this machine: {first}");
        }
        let pacemaker = Pacemaker::start(|value| guest::steps(value, PIECE_ROUNDS))?;
        let awake = Awake::hold()
            .inspect_err(|error| {
                eprintln!("processors may sleep, and times are less sure: {error}")
            })
            .ok();
        let expedited = Expedited::hold()
            .inspect_err(|error| {
                eprintln!("who arrives runs without a quota at first, times are less sure: {error}")
            })
            .ok();
        Ok(Stage { lab, pacemaker, awake, expedited, speeds: spec.speeds, newcomers })
    }

    pub fn down(self) -> Result<()> {
        self.lab.down().context("cannot take the lab down")
    }

    /// Each of the first `busy` nodes computes alone, and all at the same time, natively: what as
    /// many machines would do that do not know of each other. On a machine with little to do the
    /// same work takes another time than on a busy one: few processes have to be told in the
    /// seconds of few. It is told by the processor time that the work took, of which a quota gives
    /// the same in each second: in seconds of a clock the first quota, which is there at once, and
    /// what is used beyond the last and not paid for, made nodes half a per cent faster than they
    /// are.
    pub fn measure_unit(&self, busy: usize) -> Result<Unit> {
        let speeds = &self.speeds[..busy.clamp(1, self.speeds.len())];
        let share = self.lab.node(1).cpu_share().context("nodes have no speed")? / speeds[0];
        let rounds = |speed: f64| (ROUNDS_PER_S * share * speed * CALIBRATION_S) as u64;
        let crews = (1..).zip(speeds).map(|(node, speed)| Crew {
            node,
            plan: crew::Plan {
                guests: vec![guest::Plan::Compute { rounds: rounds(*speed), memory: None }],
                is_managed: false,
                is_group: false,
            },
        });
        let patience = Duration::from_secs_f64(CALIBRATION_S * 20.0);
        let (before, began) = (self.used(), self.mark());
        let ended = self.run(&crews.collect::<Vec<_>>(), patience)?;
        let pace = self.pace_since(&began)?;
        let used: Vec<Used> =
            self.used().into_iter().zip(before).map(|(b, a)| b.since(a)).collect();
        let took_s =
            |(ended, speed): (&Vec<Ended>, &f64)| (ended[0].ended_s - ended[0].started_s) * speed;
        let could_s: f64 = ended.iter().zip(speeds).map(took_s).sum();
        let had = used.iter().take(speeds.len()).map(|used| used.work_s).sum::<f64>() / could_s;
        let rates =
            used.iter().zip(speeds).map(|(used, speed)| rounds(*speed) as f64 / used.work_s);
        Ok(Unit { rounds_per_s: rates.sum::<f64>() / speeds.len() as f64, had, pace })
    }

    /// Whether the machine's processors do not sleep meanwhile.
    pub fn is_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Whether moved processes enter the cgroups of their nodes at once.
    pub fn is_expedited(&self) -> bool {
        self.expedited.is_some()
    }

    pub fn mark(&self) -> Mark {
        self.pacemaker.mark()
    }

    /// The pace of the machine from then on, as in [`Unit::pace`].
    pub fn pace_since(&self, began: &Mark) -> Result<f64> {
        let pace = self.pacemaker.mark().pace_since(began);
        pace.context("cannot tell how fast the machine is: its processors cannot be chosen")
    }

    /// Those who join later belong to the cluster, and are not there.
    pub fn part_with_newcomers(&self) -> Result<()> {
        let last = self.speeds.len() as u32;
        (last - self.newcomers as u32 + 1..=last)
            .try_for_each(|node| happenings::osmos(&self.lab, node, &["down"]))
    }

    /// A node that has not heard of another yet can send nothing there: what is measured begins
    /// when every node knows every node, and that it is idle.
    pub fn wait_until_known(&self) -> Result<()> {
        let count = self.speeds.len() - self.newcomers;
        let deadline = Instant::now() + KNOWN_TIMEOUT;
        for node in self.lab.nodes().map(|node| node.id()).take(count) {
            loop {
                let known = self.lab.node(node.0).known_nodes()?;
                let is_known =
                    |node: &&Node| node.status == "alive" && node.speed > 0.0 && node.load < IDLE;
                if known.iter().filter(is_known).count() == count {
                    break;
                }
                ensure!(Instant::now() < deadline, "node {node} does not hear of all others");
                // A daemon tells of what it hears only when asked.
                std::thread::sleep(KNOWN_POLL);
            }
        }
        Ok(())
    }

    /// All that these nodes recorded, in the order of time.
    pub fn events(&self, nodes: impl IntoIterator<Item = u32>) -> Result<Vec<Event>> {
        let mut all = Vec::new();
        for node in nodes {
            let events: client::Result<Vec<Event>> =
                self.lab.node(node).client()?.events(false)?.collect();
            all.extend(events?);
        }
        all.sort_by(|a, b| a.time.total_cmp(&b.time));
        Ok(all)
    }

    /// Processor time that each node has used so far.
    pub fn used(&self) -> Vec<Used> {
        let used = self.lab.nodes().filter_map(|node| {
            let scale = node.cpu_share()? / self.lab.record().spec.speed(node.id());
            let usage = node.usage();
            let seconds = |ns: u64| ns as f64 / 1e9 / scale;
            Some(Used {
                work_s: seconds(usage.work_cpu_ns?),
                system_s: seconds(usage.system_cpu_ns?),
            })
        });
        used.collect()
    }

    /// Bytes that the network has carried to a node and from it so far.
    pub fn network_bytes(&self, node: u32) -> Result<u64> {
        let keeper = self.lab.node(node).keeper()?.pid;
        let path = format!("/proc/{keeper}/net/dev");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        carried(&text).with_context(|| format!("{path} shows no network"))
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Runs the crews from one moment on until the last guest has ended.
    pub fn run(&self, crews: &[Crew], patience: Duration) -> Result<Vec<Vec<Ended>>> {
        self.accompany(crews)?.ends(patience)
    }

    /// The same while something happens to the nodes.
    pub fn run_amid(
        &self,
        happenings: &Happenings,
        crews: &[Crew],
        patience: Duration,
    ) -> Result<Vec<Vec<Ended>>> {
        if happenings.is_empty() {
            return self.run(crews, patience);
        }
        let running = self.accompany(crews)?;
        let (is_going_on, over) = mpsc::channel();
        std::thread::scope(|scope| {
            let played = scope.spawn(move || happenings.play(&self.lab, &over));
            let ended = running.ends(patience);
            drop(is_going_on);
            played.join().map_err(|_| anyhow!("the happenings panicked"))??;
            ended
        })
    }

    /// Starts what goes on until it is dropped.
    pub fn accompany(&self, crews: &[Crew]) -> Result<Running> {
        let mut running = Running::default();
        for crew in crews {
            running.begin(self.lab.node(crew.node), &crew.plan)?;
        }
        running.go()?;
        Ok(running)
    }
}

/// What all interfaces but the loopback have received and sent, by `/proc/net/dev` (proc(5)).
fn carried(text: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let bytes = lines.filter(|(name, _)| name.trim() != "lo").map(|(_, counts)| {
        let counts: Vec<u64> = counts.split_whitespace().flat_map(str::parse).collect();
        // Sent are the ninth.
        Some(counts.first()? + counts.get(8)?)
    });
    bytes.reduce(|all, one| Some(all? + one?)).flatten()
}

/// The memory of each node, which is that of all, if it matters in this scenario.
fn memory(scenario: &Scenario) -> Option<MemorySize> {
    let matters = scenario.jobs.iter().any(|job| job.growth_mib_per_s > 0.0);
    let first = scenario.nodes.first().filter(|_| matters)?;
    Some(MemorySize { bytes: first.memory_mib << 20 })
}

/// Crews that were started; those that still run end with this.
#[derive(Default)]
pub struct Running(Vec<(Child, BufReader<ChildStdout>)>);

impl Running {
    fn begin(&mut self, node: lab::Node<'_>, plan: &crew::Plan) -> Result<()> {
        let mut command = node.command_beside("osmos");
        command.arg("bench-crew").arg(serde_json::to_string(plan)?).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a crew")?;
        let output = BufReader::new(child.stdout.take().context("a crew has no output")?);
        self.0.push((child, output));
        Ok(())
    }

    /// To all, once all are ready.
    fn go(&mut self) -> Result<()> {
        for (_, output) in &mut self.0 {
            let mut line = String::new();
            output.read_line(&mut line).context("lost a crew")?;
            ensure!(line.trim() == READY, "a crew says `{}`", line.trim());
        }
        for (child, _) in &mut self.0 {
            let input = child.stdin.as_mut().context("a crew has no input")?;
            writeln!(input, "{GO}").context("lost a crew")?;
        }
        Ok(())
    }

    /// What became of their guests, crew by crew.
    pub fn ends(mut self, patience: Duration) -> Result<Vec<Vec<Ended>>> {
        let (told, heard) = mpsc::channel();
        let mut children = Vec::new();
        for (nth, (child, mut output)) in std::mem::take(&mut self.0).into_iter().enumerate() {
            children.push(child);
            let told = told.clone();
            std::thread::spawn(move || {
                let mut text = String::new();
                let read = output.read_to_string(&mut text).map(|_| text);
                // Nobody listens any more if time is up.
                let _ = told.send((nth, read));
            });
        }
        let ended = hear(&heard, children.len(), patience);
        for mut child in children {
            // After that they have ended; and if not, the lab ends what is inside.
            let _ = child.kill();
            child.wait().context("lost a crew")?;
        }
        ended
    }
}

fn hear(
    heard: &mpsc::Receiver<(usize, std::io::Result<String>)>,
    count: usize,
    patience: Duration,
) -> Result<Vec<Vec<Ended>>> {
    let deadline = Instant::now() + patience;
    let mut ended = vec![Vec::new(); count];
    for _ in 0..count {
        let left = deadline.saturating_duration_since(Instant::now());
        let (nth, text) = match heard.recv_timeout(left) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guests have not ended within {:.0} s", patience.as_secs_f64())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("lost the crews"),
        };
        let text = text.context("lost a crew")?;
        ended[nth] = serde_json::from_str(text.trim())
            .with_context(|| format!("a crew says `{}`", text.trim()))?;
    }
    Ok(ended)
}

impl Drop for Running {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // What is inside the lab ends with the lab.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_network_are_those_received_and_sent_of_all_but_the_loopback() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets\n    \
                    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  \
                    eth0: 700 5 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n";
        assert_eq!(carried(text), Some(1_000));
        assert_eq!(carried("    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"), None);
    }
}
