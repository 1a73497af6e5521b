//! Processor time that the machine underneath did not give: a virtual machine whose host has too
//! much to do is slower than its cores are.
//!
//! The kernel counts it as `steal` (`proc_stat(5)`): time in which something here was ready to run
//! on a virtual processor that did not run. Who asks for nothing is denied nothing, so only time
//! that was asked for says anything: the part is a mean over the last ten such seconds.

use super::scan;
use std::time::{Duration, Instant};

/// `/proc/stat` is long on large machines.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Seconds of processor time asked for, over which the part is averaged.
const MEMORY_S: f64 = 10.0;

/// Processor seconds of the whole machine since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    asked_s: f64,
    stolen_s: f64,
}

/// The part of the processor time asked for that others had.
#[derive(Clone, Debug, Default)]
pub struct Steal {
    part: f64,
    last: Option<(Instant, Count)>,
}

impl Steal {
    #[cfg(test)]
    pub fn of(part: f64) -> Steal {
        Steal { part, last: None }
    }

    pub fn part(&self) -> f64 {
        self.part
    }

    pub fn look(&mut self, now: Instant) {
        if self.last.is_some_and(|(at, _)| now.saturating_duration_since(at) < LOOK_EVERY) {
            return;
        }
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some(count) = parse(&text, scan::ticks_per_s() as f64) {
            self.counted(now, count);
        }
    }

    fn counted(&mut self, now: Instant, count: Count) {
        if let Some((_, before)) = self.last.replace((now, count)) {
            let asked_s = count.asked_s - before.asked_s;
            // Counters of a processor that was taken away are missing from the sum.
            let stolen_s = (count.stolen_s - before.stolen_s).clamp(0.0, asked_s.max(0.0));
            if asked_s > 0.0 {
                self.part += (stolen_s / asked_s - self.part) * (asked_s / MEMORY_S).min(1.0);
            }
        }
    }
}

/// Processor seconds that programs and the kernel on their behalf have used on the whole machine.
pub fn parse_busy(text: &str, ticks_per_s: f64) -> Option<f64> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = all.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, ..] = ticks[..] else { return None };
    Some((user + nice + system) / ticks_per_s)
}

/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; guests of this
/// machine are in `user` already.
fn parse(text: &str, ticks_per_s: f64) -> Option<Count> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = all.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = ticks[..] else {
        return None;
    };
    let asked = user + nice + system + irq + softirq + stolen;
    Some(Count { asked_s: asked / ticks_per_s, stolen_s: stolen / ticks_per_s })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_was_asked_for_and_not_given_is_read_from_the_sum_of_all_processors() {
        let text = "cpu  100 10 50 9000 70 5 5 30 20 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse(text, 100.0), Some(Count { asked_s: 2.0, stolen_s: 0.3 }));
        assert_eq!(parse("cpu  1 2 3\n", 100.0), None, "a kernel that does not count it");
        assert_eq!(parse_busy(text, 100.0), Some(1.6), "of programs, not of interrupts");
    }

    #[test]
    fn the_part_is_that_of_what_was_asked_for_and_idleness_says_nothing() {
        let start = Instant::now();
        let mut steal = Steal::default();
        let (mut asked_s, mut stolen_s) = (1_000.0, 500.0);
        for second in 0..200 {
            let (asks, loses) = if second < 100 { (2.0, 0.5) } else { (0.0, 0.0) };
            (asked_s, stolen_s) = (asked_s + asks, stolen_s + loses);
            steal.counted(start + Duration::from_secs(second), Count { asked_s, stolen_s });
        }
        assert!((steal.part() - 0.25).abs() < 1e-6, "{}", steal.part());
        steal.counted(start + Duration::from_secs(300), Count { asked_s: 1.0, stolen_s: 0.0 });
        assert!((steal.part() - 0.25).abs() < 1e-6, "counters that went back say nothing");
    }
}
