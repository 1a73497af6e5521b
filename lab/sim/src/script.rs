//! What the scenario makes happen: work that starts, background that comes and goes, nodes that
//! join, leave, crash and starve, links that break.

use crate::node::Power;
use crate::process::{Kind, SimProcess, Whereabouts};
use crate::scenario::What;
use crate::world::{Event, World};
use brain::{Arrival, GroupId, Input, Ownership, Span, Time, UserId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Processes of a job that have not started yet.
pub(crate) struct Queue {
    kind: Arc<Kind>,
    next: VecDeque<(u32, f64)>,
    /// Between their starts, if they do not start when others end.
    pauses: Option<VecDeque<Span>>,
}

/// Pids are of the whole world, so that one number names a process.
pub(crate) const PID_FIRST: i32 = 100;
/// Between two bursts in which a starved daemon gets no processor.
const AWAKE: Span = Span::from_secs(1);

impl World {
    fn moment(&self, s: f64) -> Time {
        Time::from_micros(1_000_000) + Span::from_secs_f64(s)
    }

    pub(crate) fn schedule_script(&mut self) {
        for job in 0..self.scenario.jobs.len() {
            let at = self.moment(self.scenario.jobs[job].start_s);
            self.agenda.schedule(at, Event::JobStarts { job: job as u32 });
        }
        for nth in 0..self.scenario.events.len() {
            let at = self.moment(self.scenario.events[nth].at_s);
            self.agenda.schedule(at, Event::Happens { nth: nth as u32 });
        }
        let threads: usize = self.scenario.background.iter().map(|b| b.count).sum();
        let nodes = self.nodes.len();
        for nth in 0..threads {
            self.background.push(((nodes - 1 - nth % nodes) as u32, false));
            let delay = self.background_pause(nth);
            let event = Event::Background { nth: nth as u32, is_on: true };
            self.agenda.schedule(self.now + delay, event);
        }
    }

    /// How long the background thread pauses, or computes if it computes.
    fn background_pause(&mut self, nth: usize) -> Span {
        let mut group = &self.scenario.background[0];
        let mut first = 0;
        for candidate in &self.scenario.background {
            group = candidate;
            first += candidate.count;
            if nth < first {
                break;
            }
        }
        let is_on = self.background[nth].1;
        let max = if is_on { group.on_s_max } else { group.off_s_max };
        Span::from_secs_f64(self.dice.between(0.0, max))
    }

    pub(crate) fn switch_background(&mut self, nth: u32, is_on: bool) {
        let (node, was_on) = self.background[nth as usize];
        self.background[nth as usize].1 = is_on;
        let loaded = &mut self.nodes[node as usize];
        match (was_on, is_on) {
            (false, true) => loaded.background += 1,
            (true, false) => loaded.background -= 1,
            _ => {}
        }
        let (background, s) = (loaded.background, self.now.since(Time(1_000_000)).as_secs_f64());
        self.tally.background.push((s, node, background));
        self.share_anew(node);
        let span = self.background_pause(nth as usize);
        if !(is_on && span == Span::ZERO) {
            let at = self.now + span.max(Span(1));
            self.agenda.schedule(at, Event::Background { nth, is_on: !is_on });
        }
    }

    pub(crate) fn start_job(&mut self, number: u32) {
        let job = self.scenario.jobs[number as usize].clone();
        self.jobs_open -= 1;
        let nodes = self.nodes.len();
        let mib = f64::from(1 << 20);
        let kind = Arc::new(Kind {
            threads: f64::from(job.threads),
            demand: job.demand,
            calls_per_cpu_s: job.calls_per_cpu_s,
            rss_bytes: job.rss_mib * mib,
            growth_bytes_per_s: job.growth_mib_per_s * mib,
            rss_bytes_max: job.rss_mib_max.max(job.rss_mib) * mib,
            group: GroupId::new(u64::from(self.scenario.first_of_group(number)) + 1)
                .filter(|_| job.is_group),
            user: job.user.map(UserId),
            job: number,
        });
        self.user_shares.is_told |= kind.user.is_some();
        let drawn = job.draw(number, nodes, self.seed());
        self.processes.reserve_exact(drawn.len());
        let pauses = job.pauses_s(number, self.seed()).take(drawn.len()).map(Span::from_secs_f64);
        let pauses = (job.apart_s > 0.0).then(|| pauses.collect());
        let mut queue = Queue { kind, next: drawn.into(), pauses };
        let first = match job.apart_s > 0.0 {
            true => 0,
            false => job.at_once.unwrap_or(usize::MAX).min(queue.next.len()),
        };
        for (node, work_s) in queue.next.drain(..first) {
            self.start_process(node, work_s, &queue.kind);
        }
        if !queue.next.is_empty() {
            self.queues.insert(number, queue);
            self.jobs_open += 1;
        }
        if job.apart_s > 0.0 {
            self.start_next(number);
        }
    }

    /// The next process of this job whose node is there, if there is one.
    pub(crate) fn start_next(&mut self, job: u32) {
        let Some(mut queue) = self.queues.remove(&job) else { return };
        while let Some((node, work_s)) = queue.next.pop_front() {
            if self.start_process(node, work_s, &queue.kind) {
                break;
            }
        }
        if queue.next.is_empty() {
            self.jobs_open -= 1;
            return;
        }
        if let Some(pause) = queue.pauses.as_mut().and_then(|pauses| pauses.pop_front()) {
            self.agenda.schedule(self.now + pause, Event::NextStarts { job });
        }
        self.queues.insert(job, queue);
    }

    /// A process of a job has ended, or was lost.
    pub(crate) fn ended_of(&mut self, job: u32) {
        if self.scenario.jobs[job as usize].at_once.is_some() {
            self.start_next(job);
        }
    }

    /// False if its node is not there any more.
    fn start_process(&mut self, home: u32, work_s: f64, kind: &Arc<Kind>) -> bool {
        let index = self.processes.len() as u32;
        let pid = PID_FIRST + index as i32;
        self.processes.push(SimProcess::new(home, pid, work_s, Arc::clone(kind)));
        self.open += 1;
        self.tally.started_s.push(self.now.since(Time(1_000_000)).as_secs_f64());
        if !self.nodes[home as usize].is_on() {
            self.processes[index as usize].at = Whereabouts::Lost;
            self.open -= 1;
            self.tally.lost += 1;
            return false;
        }
        self.settle_on(index, home);
        let process = self.processes[index as usize].global();
        self.tell(home, Input::ProcessArrived { process, how: Arrival::Born });
        self.expect_newborn(home, kind.job);
        true
    }

    pub(crate) fn script_event(&mut self, nth: u32) {
        match self.scenario.events[nth as usize].what.clone() {
            What::Join(group) => {
                let first = self.nodes.len();
                self.add_nodes(&group);
                self.introduce(first);
            }
            What::Leave { node } => {
                self.nodes[node as usize - 1].is_closed = true;
                self.note_stand(node - 1);
                let ownership = Ownership { is_closed: true, expels: true, ..Ownership::default() };
                self.tell(node - 1, Input::OwnerDecided { ownership });
            }
            What::Crash { node } => self.crash(node - 1),
            What::Decide { node, ownership } => {
                self.nodes[node as usize - 1].is_closed = ownership.is_closed || ownership.drains;
                self.note_stand(node - 1);
                self.tell(node - 1, Input::OwnerDecided { ownership });
            }
            What::OwnLoad { node, threads } => {
                let loaded = &mut self.nodes[node as usize - 1];
                loaded.background = loaded.background.saturating_add_signed(threads);
                self.share_anew(node - 1);
            }
            What::Partition { nodes } => self.cut = Some(nodes),
            What::Heal => self.cut = None,
            What::Loss { permille } => self.loss_permille = permille,
            What::Starve { nodes, s_max } => {
                let count = self.nodes.len() as u32;
                for node in count.saturating_sub(nodes)..count {
                    self.starve(node, (s_max * 1e3) as u32);
                }
            }
        }
    }

    /// A daemon gets no processor for a while; then it runs for a second, and so on.
    pub(crate) fn starve(&mut self, node: u32, ms_max: u32) {
        if !self.nodes[node as usize].is_on() {
            return;
        }
        let until = self.now + Span::from_secs_f64(self.dice.between(0.0, f64::from(ms_max) / 1e3));
        self.nodes[node as usize].power = Power::Starved(until);
        self.agenda.schedule(until + AWAKE, Event::Starves { node, ms_max });
    }

    fn crash(&mut self, node: u32) {
        self.nodes[node as usize].power = Power::Off;
        self.note_stand(node);
        for index in 0..self.processes.len() as u32 {
            let process = &self.processes[index as usize];
            let is_there = match process.at {
                Whereabouts::On(at) | Whereabouts::Leaving { from: at, .. } => at == node,
                Whereabouts::Frozen { from, .. } => from == node,
                _ => continue,
            };
            if is_there || process.home == node {
                self.lose(index);
            }
        }
    }
}
