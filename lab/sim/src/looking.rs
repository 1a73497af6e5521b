//! What a simulated daemon measures, as the real one does: four looks a second at what is runnable
//! at that moment, and means over the last second of them; and more of them while processes are
//! being born (`node/src/daemon/newborns.rs`, and `SCAN_NEWBORN` beside it). These are looks at all
//! processes here, where the daemon looks most often at the youngest alone.

use crate::dice::Dice;
use crate::node::Power;
use crate::process::{CPU, RUNNABLE, SimProcess, Whereabouts};
use crate::world::{Event, World};
use brain::{Input, LoadSample, ProcessSample, Span, UserShare, looks};
use wire::move_cost::Pace;

/// More than that of a node's memory in use, and the kernel kills.
const OVERUSE_MAX: f64 = 1.25;

/// How many of its threads a look finds runnable. One that waits for something is found asleep at
/// some looks. While it waits for a core it is found runnable more often; a daemon cannot tell
/// these apart.
fn threads_seen(process: &SimProcess, node: u32, dice: &mut Dice) -> f64 {
    let (threads, demand) = (process.kind.threads, process.thread_demand_on(node));
    if demand >= 1.0 {
        return threads;
    }
    (0..threads as u32).filter(|_| dice.fraction() < demand).count() as f64
}

impl World {
    /// A process has just been born there.
    pub(crate) fn expect_newborn(&mut self, index: u32, job: u32) {
        let node = &mut self.nodes[index as usize];
        node.born_at = self.now;
        let known = self.lives.get(&(index, job)).and_then(|life| life.left(Span::ZERO));
        if known.is_some_and(|left| left >= looks::WORTH_A_THOUGHT) {
            let at = self.now + looks::NEWBORN_PAUSE;
            self.agenda.schedule(at, Event::LooksAtNewborns { node: index });
        }
        if !std::mem::replace(&mut node.awaits_newborns, true) {
            self.agenda.schedule(self.now + looks::AFTER_BIRTH, Event::LooksAgain { node: index });
        }
    }

    /// A look at all, that long after the first birth, and again after the last.
    pub(crate) fn look_again(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let next = node.born_at + looks::AFTER_BIRTH;
        node.awaits_newborns = next > self.now;
        if node.awaits_newborns {
            self.agenda.schedule(next, Event::LooksAgain { node: index });
        }
        self.look(index);
    }

    pub(crate) fn look(&mut self, index: u32) {
        let now = self.now;
        match self.nodes[index as usize].power {
            Power::Off => return,
            Power::Starved(until) if until > now => return,
            _ => {}
        }
        self.nodes[index as usize].pass(now);
        self.user_shares.renew(now, &self.processes, &self.nodes);
        // One serves all nodes: its memory is kept, and it stays in its place.
        let blank = || Box::new(Input::LoadSampled(LoadSample::default()));
        let mut input = self.sampled.take().unwrap_or_else(blank);
        if let Input::LoadSampled(sample) = &mut *input {
            self.measure(index, sample);
        }
        self.tell_at_once(index, &input);
        self.sampled = Some(input);
    }

    fn measure(&mut self, index: u32, sample: &mut LoadSample) {
        let used_bytes = self.look_at_processes(index, &mut sample.processes);
        self.page(index, used_bytes);
        let node = &mut self.nodes[index as usize];
        sample.cores = u32::from(node.cores);
        sample.speed = node.speed;
        sample.pace = node.speed;
        sample.others = node.look_at_background(self.now);
        sample.memory_total_bytes = node.memory_bytes;
        sample.memory_free_bytes = node.memory_bytes.saturating_sub(used_bytes as u64);
        sample.memory_pressure = if node.is_paging { 0.5 } else { 0.0 };
    }

    /// Fills in samples of the processes here; returns the memory in use. A process that
    /// is frozen for a move is not listed, but its memory is still here.
    fn look_at_processes(&mut self, index: u32, samples: &mut Vec<ProcessSample>) -> f64 {
        let now = self.now;
        let node = &self.nodes[index as usize];
        let bytes_per_s = self.scenario.network.bytes_per_s();
        let pace = Pace::guessed(bytes_per_s);
        let mut used_bytes = 0.0;
        samples.clear();
        for nth in &node.processes {
            let process = &mut self.processes[*nth as usize];
            if process.runs_on() != Some(index) {
                used_bytes += process.rss_bytes(process.done_settled_s());
                continue;
            }
            let demand = process.demand_on(index);
            let seen = threads_seen(process, index, &mut self.dice);
            let (cpu_s, done_s) = process.had_and_done_s(demand, node);
            process.looks.look(now, [seen as f32, cpu_s as f32]);
            let rss_bytes = process.rss_bytes(done_s);
            used_bytes += rss_bytes;
            // A daemon knows its links by its moves, and guesses before the first of a process.
            let price = pace.price(rss_bytes as u64, 0);
            let guess = || Span::from_secs_f64(price.freeze_s);
            let freeze_estimate = process.freeze_last().unwrap_or_else(guess);
            let copy_estimate = Span::from_secs_f64(price.total_s - price.freeze_s);
            let used = process.looks.growth_per_s(CPU);
            let is_home = process.home == index;
            let calls_per_cpu_s = if is_home { 0.0 } else { process.kind.calls_per_cpu_s };
            let is_leaving = matches!(process.at, Whereabouts::Leaving { .. });
            samples.push(ProcessSample {
                stands_for: 1,
                process: process.global(),
                demand: process.looks.mean(RUNNABLE),
                used,
                here: now.since(process.arrived_at),
                cpu: Span::from_secs_f64(cpu_s),
                rss_bytes: rss_bytes as u64,
                forwarded_per_s: calls_per_cpu_s * used,
                freeze_estimate,
                copy_estimate,
                left: self
                    .lives
                    .get(&(process.home, process.kind.job))
                    .and_then(|life| life.left(Span::from_secs_f64(cpu_s))),
                group: process.kind.group,
                user: process
                    .kind
                    .user
                    .map(|user| UserShare { user, cores: self.user_shares.of(process.home, user) }),
                stays: is_leaving.then(|| "it is moving".to_owned()),
            });
        }
        used_bytes
    }

    /// A node that needs more memory than it has is slow, and in the end kills.
    fn page(&mut self, index: u32, used_bytes: f64) {
        let node = &mut self.nodes[index as usize];
        let total = node.memory_bytes as f64;
        let is_paging = used_bytes > total;
        if is_paging {
            let others_have_room = self.is_room_elsewhere(index);
            self.tally.paging_s += 0.25;
            if others_have_room {
                self.tally.paging_needlessly_s += 0.25;
            }
            if used_bytes > total * OVERUSE_MAX {
                self.kill_largest(index);
            }
        }
        if self.nodes[index as usize].is_paging != is_paging {
            self.nodes[index as usize].is_paging = is_paging;
            self.share_anew(index);
        }
    }

    /// Whether some other node could take the smallest process of this one.
    fn is_room_elsewhere(&self, index: u32) -> bool {
        let used = |node: usize| -> f64 {
            let processes = self.nodes[node].processes.iter();
            processes.map(|process| self.rss_now(*process)).sum()
        };
        let here = self.nodes[index as usize].processes.iter();
        let Some(smallest) = here.map(|process| self.rss_now(*process)).min_by(f64::total_cmp)
        else {
            return false;
        };
        (0..self.nodes.len()).any(|node| {
            let free = self.nodes[node].memory_bytes as f64 - used(node);
            node != index as usize && self.nodes[node].is_on() && free > 1.2 * smallest
        })
    }

    fn rss_now(&self, process: u32) -> f64 {
        let process = &self.processes[process as usize];
        let done_s = match process.runs_on() {
            Some(node) => process.done_s(node, &self.nodes[node as usize]),
            None => process.done_settled_s(),
        };
        process.rss_bytes(done_s)
    }

    fn kill_largest(&mut self, index: u32) {
        let running = self.nodes[index as usize].processes.iter().copied();
        let running = running.filter(|p| self.processes[*p as usize].runs_on() == Some(index));
        let largest = running.max_by(|a, b| self.rss_now(*a).total_cmp(&self.rss_now(*b)));
        if let Some(largest) = largest {
            self.tally.killed_for_memory += 1;
            self.lose(largest);
        }
    }
}
