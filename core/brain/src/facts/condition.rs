//! What one node knows of another: its condition, who it was, and when.

use crate::time::Time;
use wire::ids::NodeId;

const MIB: u64 = 1 << 20;
/// Runnable threads of one node, cores' speed relative to the reference: beyond is nonsense.
pub(crate) const RUNNABLE_MILLI_MAX: u32 = 1_000_000_000;
pub(crate) const SPEED_MILLI_MAX: u32 = 10_000_000;

/// What a node can offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Condition {
    pub cores: u32,
    /// Of one core; 1.0 is the reference.
    pub speed: f64,
    /// Runnable threads, pinned ones and those on their way to it included.
    pub runnable: f64,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    /// Its owner takes no guests.
    pub is_closed: bool,
}

impl Condition {
    /// A node with nothing to do and memory for whatever may come.
    #[cfg(test)]
    pub fn idle(cores: u32, speed: f64) -> Condition {
        let memory = 1 << 30;
        Condition {
            cores,
            speed,
            runnable: 0.0,
            memory_total_bytes: memory,
            memory_free_bytes: memory,
            is_closed: false,
        }
    }

    pub fn with_runnable(self, runnable: f64) -> Condition {
        Condition { runnable: runnable.max(0.0), ..self }
    }

    /// Cores in use by `runnable` threads.
    pub fn busy(&self, runnable: f64) -> f64 {
        runnable.clamp(0.0, f64::from(self.cores))
    }

    /// Cores that stand idle.
    pub fn room(&self) -> f64 {
        f64::from(self.cores) - self.busy(self.runnable)
    }

    /// Threads that wait for a core.
    pub fn waiting(&self) -> f64 {
        self.runnable - self.busy(self.runnable)
    }

    /// The rate, in reference seconds per second, of each of `runnable` threads.
    pub fn share_among(&self, runnable: f64) -> f64 {
        let cores = f64::from(self.cores);
        if runnable <= cores { self.speed } else { self.speed * cores / runnable }
    }

    /// What a thread that runs here gets.
    pub fn share(&self) -> f64 {
        self.share_among(self.runnable)
    }

    /// What a process of this demand would get if it came here.
    pub fn share_after(&self, demand: f64) -> f64 {
        self.share_among(self.runnable + demand)
    }
}

/// One entry of the window: a node at a moment, in the units in which it travels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    /// When it was true, on the clock of whoever holds the entry.
    pub at: Time,
    pub node: NodeId,
    pub incarnation: u32,
    pub runnable_milli: u32,
    pub speed_milli: u32,
    /// 0 if the node has not measured itself yet.
    pub cores: u16,
    /// How many times it is still passed on before other news.
    pub urgency: u8,
    pub is_closed: bool,
    pub memory_total_mib: u32,
    pub memory_free_mib: u32,
}

fn milli(value: f64, max: u32) -> u32 {
    // `as` saturates and maps NaN to zero.
    ((value * 1000.0 + 0.5) as u32).min(max)
}

fn mib(bytes: u64) -> u32 {
    u32::try_from(bytes / MIB).unwrap_or(u32::MAX)
}

impl Entry {
    pub fn new(node: NodeId, incarnation: u32, at: Time, condition: Option<&Condition>) -> Entry {
        let mut entry = Entry {
            at,
            node,
            incarnation,
            runnable_milli: 0,
            speed_milli: 0,
            memory_total_mib: 0,
            memory_free_mib: 0,
            cores: 0,
            urgency: 0,
            is_closed: false,
        };
        if let Some(condition) = condition {
            entry.cores = u16::try_from(condition.cores).unwrap_or(u16::MAX);
            entry.runnable_milli = milli(condition.runnable, RUNNABLE_MILLI_MAX);
            entry.speed_milli = milli(condition.speed, SPEED_MILLI_MAX).max(1);
            entry.memory_total_mib = mib(condition.memory_total_bytes);
            entry.memory_free_mib = mib(condition.memory_free_bytes);
            entry.is_closed = condition.is_closed;
        }
        entry
    }

    /// The same with another time.
    pub fn as_of(&self, at: Time) -> Entry {
        Entry { at, ..*self }
    }

    /// It was passed on.
    pub fn count_hop(&mut self) {
        self.urgency = self.urgency.saturating_sub(1);
    }

    /// Thousandths of cores that stand idle; less than none if threads wait.
    pub fn spare_milli(&self) -> i64 {
        i64::from(self.cores) * 1_000 - i64::from(self.runnable_milli)
    }

    pub fn condition(&self) -> Option<Condition> {
        (self.cores > 0).then(|| Condition {
            cores: u32::from(self.cores),
            speed: f64::from(self.speed_milli) / 1000.0,
            runnable: f64::from(self.runnable_milli) / 1000.0,
            memory_total_bytes: u64::from(self.memory_total_mib) * MIB,
            memory_free_bytes: u64::from(self.memory_free_mib) * MIB,
            is_closed: self.is_closed,
        })
    }

    /// A later life beats any earlier one; within a life, the later moment.
    pub fn is_newer_than(&self, other: &Entry) -> bool {
        (self.incarnation, self.at) > (other.incarnation, other.at)
    }
}
