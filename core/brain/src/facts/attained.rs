//! The work that a process has done, as its node counts it.
//!
//! It comes with what its last node said, and from its first look on this node adds what it adds to
//! the processor time that this node knows of it. That time itself is no measure: what other nodes
//! used of it is known as of its home's last news, up to a second old, and would be missing or
//! counted twice. Until the first look it has had its share.

use crate::time::Span;

/// A node looks at itself more often than that.
const FIRST_LOOK_S_MAX: f64 = 1.0;

/// Of a process that came from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attained {
    /// Reference seconds of work up to then.
    work_s: f64,
    /// The processor time at the first look.
    counted_from: Option<Span>,
}

impl Attained {
    pub fn elsewhere(work_s: f64) -> Attained {
        Attained { work_s, counted_from: None }
    }

    pub fn is_counted(&self) -> bool {
        self.counted_from.is_some()
    }

    /// At a look: it has been here for so long with such a share, and has used so much in all.
    pub fn looked_at(&mut self, here: Span, share: f64, cpu: Span) {
        if !self.is_counted() {
            self.work_s += here.as_secs_f64().min(FIRST_LOOK_S_MAX) * share;
            self.counted_from = Some(cpu);
        }
    }

    /// Where a second of processor time does `pace` seconds of work.
    pub fn work_s(&self, cpu: Span, pace: f64) -> f64 {
        let Some(from) = self.counted_from else { return self.work_s };
        self.work_s + (cpu.as_secs_f64() - from.as_secs_f64()).max(0.0) * pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_from_the_first_look_whatever_was_told_of_the_time_before() {
        let mut attained = Attained::elsewhere(10.0);
        assert_eq!(attained.work_s(Span::from_secs(3), 2.0), 10.0);
        attained.looked_at(Span::from_millis(200), 0.5, Span::from_secs(3));
        attained.looked_at(Span::from_millis(450), 0.5, Span::from_secs(4));
        let work_s = attained.work_s(Span::from_secs(4), 2.0);
        assert!((work_s - 12.1).abs() < 1e-9, "{work_s}");
        assert!((attained.work_s(Span::from_secs(1), 2.0) - 10.1).abs() < 1e-9, "never less");
    }
}
