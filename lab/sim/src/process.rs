//! One simulated process: how much it computes, how much it has had, where it is.

use crate::node::{Looks, SimNode};
use brain::{GroupId, Span, Time, UserId};
use std::sync::Arc;
use wire::ids::{GlobalPid, HomePid, NodeId};

/// What a forwarded call costs the process when it is away.
const FORWARD_S: f64 = 100e-6;

/// Nodes are counted from 0 here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// It waits to be started.
    Unborn,
    On(u32),
    /// It runs at `from` and is about to be frozen for `to`.
    Leaving {
        from: u32,
        to: u32,
    },
    /// It runs nowhere; the source keeps it until the target has it.
    Frozen {
        from: u32,
        to: u32,
    },
    Ended,
    /// With its home, or with the node where it was.
    Lost,
}

/// What all processes of a job have in common.
#[derive(Debug)]
pub(crate) struct Kind {
    pub threads: f64,
    /// What a thread does not wait for.
    pub demand: f64,
    pub calls_per_cpu_s: f64,
    pub rss_bytes: f64,
    pub growth_bytes_per_s: f64,
    pub rss_bytes_max: f64,
    pub group: Option<GroupId>,
    pub user: Option<UserId>,
    /// Its number in the scenario.
    pub job: u32,
}

/// A process as it is, and what a daemon sees of it.
pub(crate) struct SimProcess {
    pub kind: Arc<Kind>,
    /// Up to when it entered the node where it is: reference seconds, and processor seconds.
    done_s: f64,
    cpu_s: f64,
    /// What a thread of that node had had then.
    entered_had_s: f64,
    pub arrived_at: Time,
    pub home: u32,
    pub pid: i32,
    pub at: Whereabouts,
    /// In microseconds; 0 before the first.
    freeze_last_us: u32,
    /// Its memory is on its way from the one node to the other.
    pub transfer: Option<(u32, u32)>,
    /// At whether it was runnable, and at its processor time.
    pub looks: Looks<2>,
    /// Of a reference core; infinite if it never ends.
    pub work_s: f64,
    /// When it was last frozen, or ended.
    pub halted_at: Time,
    pub frozen: Span,
    /// Which node, and when in milliseconds: for the check of those that fly back and forth.
    last_left: (u32, u32),
    /// The number of the move under way.
    pub move_count: u32,
    pub is_rotating: bool,
}

/// The things that a daemon looks at.
pub(crate) const RUNNABLE: usize = 0;
pub(crate) const CPU: usize = 1;

fn whole_ms(time: Time) -> u32 {
    u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX)
}

impl SimProcess {
    pub fn new(home: u32, pid: i32, work_s: f64, kind: Arc<Kind>) -> SimProcess {
        SimProcess {
            home,
            pid,
            kind,
            work_s,
            at: Whereabouts::Unborn,
            done_s: 0.0,
            cpu_s: 0.0,
            entered_had_s: 0.0,
            arrived_at: Time::ZERO,
            halted_at: Time::ZERO,
            move_count: 0,
            is_rotating: false,
            freeze_last_us: 0,
            transfer: None,
            frozen: Span::ZERO,
            last_left: (u32::MAX, 0),
            looks: Looks::default(),
        }
    }

    pub fn global(&self) -> GlobalPid {
        GlobalPid { home: NodeId(self.home + 1), pid: HomePid(self.pid) }
    }

    /// Where it uses a processor, or would if there were one free.
    pub fn runs_on(&self) -> Option<u32> {
        match self.at {
            Whereabouts::On(node) | Whereabouts::Leaving { from: node, .. } => Some(node),
            _ => None,
        }
    }

    /// How many of its threads are runnable on average at `node`.
    pub fn demand_on(&self, node: u32) -> f64 {
        self.kind.threads * self.thread_demand_on(node)
    }

    /// The part of its time in which a thread is runnable: away, it waits for its calls too.
    pub fn thread_demand_on(&self, node: u32) -> f64 {
        let Kind { demand, calls_per_cpu_s, .. } = *self.kind;
        if node == self.home {
            demand
        } else {
            demand / (1.0 + demand * calls_per_cpu_s * FORWARD_S)
        }
    }

    pub fn enter(&mut self, index: u32, node: &SimNode, now: Time) {
        self.at = Whereabouts::On(index);
        self.entered_had_s = node.had_s;
        self.arrived_at = now;
        self.looks = Looks::default();
    }

    /// A freeze has ended.
    pub fn thawed(&mut self, freeze: Span) {
        self.frozen += freeze;
        self.freeze_last_us = u32::try_from(freeze.0).unwrap_or(u32::MAX);
    }

    pub fn freeze_last(&self) -> Option<Span> {
        (self.freeze_last_us > 0).then(|| Span(u64::from(self.freeze_last_us)))
    }

    pub fn has_left(&mut self, node: u32, now: Time) {
        self.last_left = (node, whole_ms(now));
    }

    /// How long ago it left that node, if that is the one it left last.
    pub fn left(&self, node: u32, now: Time) -> Option<Span> {
        let (left, at_ms) = self.last_left;
        (left == node).then(|| Span::from_millis(u64::from(whole_ms(now).saturating_sub(at_ms))))
    }

    /// It stops using the node; what it has had is settled. `node` must have passed the time.
    pub fn settle(&mut self, index: u32, node: &SimNode) {
        (self.cpu_s, self.done_s) = self.had_and_done_s(self.demand_on(index), node);
        self.entered_had_s = node.had_s;
    }

    /// Processor seconds that it has had, and reference seconds of work that it has done with them.
    pub fn had_and_done_s(&self, demand: f64, node: &SimNode) -> (f64, f64) {
        let had_s = (node.had_s - self.entered_had_s) * demand;
        (self.cpu_s + had_s, self.done_s + had_s * node.speed)
    }

    /// Processor seconds that it has had, settled.
    pub fn cpu_s(&self) -> f64 {
        self.cpu_s
    }

    pub fn done_s(&self, index: u32, node: &SimNode) -> f64 {
        self.had_and_done_s(self.demand_on(index), node).1
    }

    /// What it has done, settled; for a process that runs nowhere.
    pub fn done_settled_s(&self) -> f64 {
        self.done_s
    }

    /// What a thread that always wants to run must have had until this one is done.
    pub fn ends_at_had_s(&self, index: u32, node: &SimNode) -> f64 {
        let left_s = (self.work_s - self.done_s).max(0.0);
        self.entered_had_s + left_s / (node.speed * self.demand_on(index))
    }

    pub fn rss_bytes(&self, done_s: f64) -> f64 {
        let Kind { rss_bytes, growth_bytes_per_s, rss_bytes_max, .. } = *self.kind;
        let grown = rss_bytes + growth_bytes_per_s * done_s;
        if growth_bytes_per_s > 0.0 { grown.min(rss_bytes_max) } else { grown }
    }
}
