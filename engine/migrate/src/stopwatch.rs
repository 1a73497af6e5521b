//! What a move spends its time on, for the report.

use std::time::{Duration, Instant};
use wire::limits::PHASES_MAX;
use wire::supervisor::Phase;

/// Phases in order of life, without a gap.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    started: Instant,
    last: Instant,
    phases_us: Vec<Phase>,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        let now = Instant::now();
        Stopwatch { started: now, last: now, phases_us: Vec::new() }
    }

    /// What was done since the last phase is called that.
    pub fn phase(&mut self, name: &str) {
        let now = Instant::now();
        self.phases_us.push(Phase { name: name.into(), us: micros(now - self.last) });
        self.last = now;
    }

    /// What was done since the last phase another side has timed, who was told to begin and has
    /// told the end. Both words were on their way as long, and are `asked` and `told`; returns how
    /// long.
    pub fn insert(&mut self, asked: &str, phases_us: Vec<Phase>, told: &str) -> u64 {
        let now = Instant::now();
        let timed_us = phases_us.iter().fold(0, |sum: u64, phase| sum.saturating_add(phase.us));
        let way_us = micros(now - self.last).saturating_sub(timed_us) / 2;
        let way = |name: &str| Phase { name: name.into(), us: way_us };
        self.phases_us.push(way(asked));
        // Somebody else's: no more than leaves room for ours.
        self.phases_us.extend(phases_us.into_iter().take(PHASES_MAX / 2));
        self.phases_us.push(way(told));
        self.last = now;
        way_us
    }

    pub fn total_us(&self) -> u64 {
        micros(self.started.elapsed())
    }

    pub fn into_phases(self) -> Vec<Phase> {
        self.phases_us
    }
}

pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_another_side_has_timed_lies_between_the_two_words_for_it() {
        let mut watch = Stopwatch::start();
        watch.phase("connect");
        // Of a side that counts longer than we waited, and more phases than there are.
        let theirs = vec![Phase { name: "copy".into(), us: u64::MAX }; PHASES_MAX];
        assert_eq!(watch.insert("ask", theirs, "tell"), 0);
        watch.phase("run");
        let phases = watch.into_phases();
        assert!(phases.len() < PHASES_MAX, "{}", phases.len());
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(
            (names[..3].to_vec(), names[names.len() - 2..].to_vec()),
            (vec!["connect", "ask", "copy"], vec!["tell", "run"],)
        );
        let mut watch = Stopwatch::start();
        watch.last -= Duration::from_millis(10);
        let us = watch.insert("ask", vec![Phase { name: "copy".into(), us: 4_000 }], "tell");
        assert!(us >= 3_000, "half of the other six: {us}");
    }
}
