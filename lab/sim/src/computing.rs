//! What the processes of a node get of its cores, and when the next of them is done.

use crate::process::Whereabouts;
use crate::world::{Event, World};
use brain::{Input, Life, Span};

impl World {
    /// The processes on the node have changed, or what they want.
    pub(crate) fn share_anew(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let mut demand = f64::from(node.background);
        for process in &node.processes {
            let process = &self.processes[*process as usize];
            if process.runs_on() == Some(index) {
                demand += process.demand_on(index);
            }
        }
        node.set_demand(self.now, demand);
        node.completion = node.completion.wrapping_add(1);
        self.note_stand(index);
        let node = &self.nodes[index as usize];
        if !node.is_on() {
            return;
        }
        let first = node
            .processes
            .iter()
            .map(|process| &self.processes[*process as usize])
            .filter(|process| process.runs_on() == Some(index))
            .map(|process| process.ends_at_had_s(index, node))
            .min_by(f64::total_cmp);
        if let Some(had_s) = first.filter(|had_s| had_s.is_finite()) {
            let at = node.reaches(self.now, had_s);
            let number = node.completion;
            self.agenda.schedule(at, Event::Completion { node: index, number });
        }
    }

    pub(crate) fn complete(&mut self, index: u32, number: u32) {
        let node = &mut self.nodes[index as usize];
        if node.completion != number {
            return;
        }
        node.pass(self.now);
        // Rounding to microseconds: what is left of it would take less than one.
        let reached = node.had_s + 1e-6;
        let node = &self.nodes[index as usize];
        let done: Vec<u32> = node
            .processes
            .iter()
            .copied()
            .filter(|process| {
                let process = &self.processes[*process as usize];
                process.runs_on() == Some(index) && process.ends_at_had_s(index, node) <= reached
            })
            .collect();
        for process in done {
            self.finish(process, index);
        }
        self.share_anew(index);
    }

    fn finish(&mut self, process: u32, index: u32) {
        self.end_transfer(process);
        let node = &mut self.nodes[index as usize];
        node.processes.retain(|other| *other != process);
        let ended = &mut self.processes[process as usize];
        ended.settle(index, node);
        (ended.at, ended.halted_at) = (Whereabouts::Ended, self.now);
        let (global, home, job) = (ended.global(), ended.home, ended.kind.job);
        self.open -= 1;
        let took = Span::from_secs_f64(ended.cpu_s());
        let lived = self.lives.entry((home, job));
        lived.and_modify(|life| life.ended(took)).or_insert_with(|| Life::first(took));
        self.tell(index, Input::ProcessEnded { process: global });
        if home != index {
            self.tell(home, Input::ProcessEnded { process: global });
        }
        self.ended_of(job);
    }
}
