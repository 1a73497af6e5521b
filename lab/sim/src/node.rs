//! One simulated node: its cores, shared fairly among what is runnable, and what its daemon sees of
//! that.
//!
//! Between two changes every thread gets the same share, so one number, the processor time that a
//! thread that always wants to run has had so far, tells what each process has had: nothing needs
//! to be updated while nothing changes.

use brain::{Brain, Span, Time};
use smallvec::SmallVec;

/// Looks of a daemon at `/proc`: as many as make a second, where no process is being born.
const LOOKS: usize = 5;
/// Looks further apart say nothing of the time between them, as in `node/src/sample/window.rs`.
const GAP_MAX: Span = Span::from_millis(600);
/// A node that pages is this much slower.
const PAGING_SPEED: f64 = 0.1;

/// What a daemon saw at its looks of the last second, of several things: their means as the daemon
/// computes them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks<const THINGS: usize>
where
    [f32; THINGS]: Default,
{
    /// When the newest was, and how much later than the one before each of them, in units of 64
    /// microseconds; 0 where there is none.
    newest: u32,
    later: [u16; LOOKS - 1],
    seen: [[f32; THINGS]; LOOKS],
    count: u8,
}

fn coarse(at: Time) -> u32 {
    (at.0 >> 6) as u32
}

impl<const THINGS: usize> Looks<THINGS>
where
    [f32; THINGS]: Default,
{
    pub fn look(&mut self, now: Time, seen: [f32; THINGS]) {
        let at = coarse(now);
        if self.count > 0 && u64::from(at - self.newest) > GAP_MAX.0 >> 6 {
            (self.count, self.later) = (0, [0; LOOKS - 1]);
        }
        let later = at - self.newest;
        // Without the oldest it still has its second.
        let second = 1_000_000 >> 6;
        let is_long = self.count > 1 && later + self.length_since(1) >= second;
        if is_long || usize::from(self.count) == LOOKS {
            self.later.copy_within(1.., 0);
            self.seen.copy_within(1.., 0);
            self.count -= 1;
        }
        let count = usize::from(self.count);
        if count > 0 {
            // No longer than the longest gap.
            self.later[count - 1] = later as u16;
        }
        self.newest = at;
        self.seen[count] = seen;
        self.count += 1;
    }

    /// From the look in that place to the newest.
    fn length_since(&self, nth: usize) -> u32 {
        self.later[nth..].iter().copied().map(u32::from).sum()
    }

    pub fn length(&self) -> Span {
        Span(u64::from(self.length_since(0)) << 6)
    }

    pub fn mean(&self, thing: usize) -> f64 {
        let count = usize::from(self.count);
        if count == 0 {
            return 0.0;
        }
        let newest = self.seen[count - 1][thing];
        // As of most that computes, and of most that sleeps: no rounding makes it another.
        if self.seen[..count].iter().all(|seen| seen[thing] == newest) {
            return f64::from(newest);
        }
        let length = f64::from(self.length_since(0));
        if length == 0.0 {
            return f64::from(newest);
        }
        let mut area = 0.0;
        for nth in 1..count {
            let wide = f64::from(self.later[nth - 1]);
            area += wide * f64::from(self.seen[nth][thing] + self.seen[nth - 1][thing]) / 2.0;
        }
        area / length
    }

    /// How fast it grew, per second.
    pub fn growth_per_s(&self, thing: usize) -> f64 {
        let length_s = self.length().as_secs_f64();
        if length_s == 0.0 {
            return 0.0;
        }
        f64::from(self.seen[usize::from(self.count) - 1][thing] - self.seen[0][thing]) / length_s
    }
}

/// Why events of a node do not reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    /// Its daemon gets no processor until then.
    Starved(Time),
    Off,
}

/// A node as it is, and its brain.
pub(crate) struct SimNode {
    pub power: Power,
    /// Counted from 0; of the processes that run or are set up for a move here.
    pub processes: SmallVec<[u32; 4]>,
    /// Processor seconds that a thread that always wants to run has had since the beginning.
    pub had_s: f64,
    had_at: Time,
    share: f64,
    pub speed: f64,
    pub memory_bytes: u64,
    pub cores: u16,
    /// Threads that no brain can move and that compute now.
    pub background: u16,
    /// Moves that use the link now.
    pub transfers: u16,
    pub is_paging: bool,
    /// Its owner has closed it.
    pub is_closed: bool,
    /// At the background, where there may be any.
    pub looks: Option<Box<Looks<1>>>,
    pub brain: Brain,
    pub wake_at: Time,
    /// The last birth of a process here, and whether a look is due for one.
    pub born_at: Time,
    pub awaits_newborns: bool,
    demand: f64,
    /// Only the latest completion that was scheduled counts.
    pub completion: u32,
}

impl SimNode {
    pub fn new(brain: Brain, cores: u32, speed: f64, memory_bytes: u64, now: Time) -> SimNode {
        SimNode {
            brain,
            cores: cores as u16,
            speed,
            memory_bytes,
            background: 0,
            power: Power::On,
            processes: SmallVec::new(),
            had_s: 0.0,
            had_at: now,
            share: 1.0,
            demand: 0.0,
            is_paging: false,
            is_closed: false,
            completion: 0,
            looks: None,
            wake_at: Time::ZERO,
            born_at: Time::ZERO,
            awaits_newborns: false,
            transfers: 0,
        }
    }

    pub fn is_on(&self) -> bool {
        self.power != Power::Off
    }

    /// What its daemon measures of the threads that no brain can move.
    pub fn look_at_background(&mut self, now: Time) -> f64 {
        let Some(looks) = &mut self.looks else { return 0.0 };
        looks.look(now, [f32::from(self.background)]);
        looks.mean(0)
    }

    /// Brings what threads have had up to `now`.
    pub fn pass(&mut self, now: Time) {
        self.had_s += self.share * now.since(self.had_at).as_secs_f64();
        self.had_at = now;
    }

    /// From now on threads of this demand in all want to run here.
    pub fn set_demand(&mut self, now: Time, demand: f64) {
        self.pass(now);
        self.demand = demand;
        let cores = f64::from(self.cores);
        self.share = if demand <= cores { 1.0 } else { cores / demand };
        if self.is_paging {
            self.share *= PAGING_SPEED;
        }
    }

    /// When a thread that always wants to run will have had that much.
    pub fn reaches(&self, now: Time, had_s: f64) -> Time {
        let left_us = ((had_s - self.had_s).max(0.0) / self.share * 1e6).ceil();
        now + Span(left_us as u64)
    }

    /// What a thread that always wants to run gets, in reference seconds per second.
    pub fn rate(&self) -> f64 {
        self.share * self.speed
    }

    /// Runnable threads on average while nothing changes.
    pub fn demand(&self) -> f64 {
        self.demand
    }

    pub fn idle_cores(&self) -> f64 {
        (f64::from(self.cores) - self.demand).max(0.0)
    }

    pub fn waiting(&self) -> f64 {
        (self.demand - f64::from(self.cores)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(values: &[f32]) -> Looks<1> {
        let mut looks = Looks::default();
        for (nth, value) in (1..).zip(values) {
            looks.look(Time::ZERO + Span::from_millis(250) * nth, [*value]);
        }
        looks
    }

    /// The figures of the daemon's own test of its window.
    #[test]
    fn the_mean_is_that_of_the_daemon() {
        let looks = looks(&[90.0, 90.0, 4.0, 4.0, 4.0, 8.0, 8.0]);
        assert!((looks.mean(0) - 5.5).abs() < 0.01, "{}", looks.mean(0));
        assert!(looks.length() >= Span::from_millis(999), "{}", looks.length());
    }

    #[test]
    fn one_look_is_a_count_at_one_moment_and_growth_is_per_second() {
        assert_eq!((looks(&[8.0]).mean(0), looks(&[8.0]).length()), (8.0, Span::ZERO));
        let growth = looks(&[0.0, 100.0, 200.0, 300.0, 400.0, 600.0]).growth_per_s(0);
        assert!((growth - 500.0).abs() < 1.0, "{growth}");
    }
}
