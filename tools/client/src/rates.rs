//! How much of a core each process takes, from the growth of its processor time between pictures.
//!
//! Daemons look at processes about once a second, and pictures come at another pace. A process
//! whose time has not grown is not idle yet: it may not have been looked at.

use crate::picture::Picture;
use std::collections::HashMap;
use wire::ids::GlobalPid;

/// What has grown over less time is too coarse: clocks of processes tick in hundredths.
const SPAN_MIN_S: f64 = 0.5;
/// What has not grown for so long is idle.
const IDLE_AFTER_S: f64 = 3.0;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_s: f64,
    cpu_s: f64,
    /// Of one core; none before there is a second sample.
    rate: Option<f64>,
}

/// The last sample of each process.
#[derive(Debug, Default)]
pub struct Rates {
    samples: HashMap<GlobalPid, Sample>,
}

impl Rates {
    /// Takes in what a picture of this moment says; what is not on it any more is forgotten. True
    /// if a rate is another one now.
    pub fn take_in(&mut self, picture: &Picture, now_s: f64) -> bool {
        let mut samples = HashMap::with_capacity(picture.processes.len());
        let mut has_changed = false;
        for process in &picture.processes {
            let fresh = Sample { at_s: now_s, cpu_s: process.cpu_s, rate: None };
            let before = self.samples.get(&process.key);
            let sample = before.map_or(fresh, |before| before.followed_by(process.cpu_s, now_s));
            has_changed |= before.is_some_and(|before| before.rate != sample.rate);
            samples.insert(process.key, sample);
        }
        self.samples = samples;
        has_changed
    }

    pub fn of(&self, process: GlobalPid) -> Option<f64> {
        self.samples.get(&process)?.rate
    }
}

impl Sample {
    fn followed_by(self, cpu_s: f64, at_s: f64) -> Sample {
        let (span, grown) = (at_s - self.at_s, cpu_s - self.cpu_s);
        // Another process of that pid, or another way to count.
        if grown < 0.0 {
            return Sample { at_s, cpu_s, rate: None };
        }
        let is_told = grown > 0.0 && span >= SPAN_MIN_S;
        if is_told || span >= IDLE_AFTER_S {
            return Sample { at_s, cpu_s, rate: Some(grown / span) };
        }
        self
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::Gathered;
    use crate::picture::Looked;
    use fixtures::process;

    fn seen(rates: &mut Rates, cpu_s: f64, now_s: f64) -> Option<f64> {
        let mut process = process(1, 10, 1);
        process.cpu_s = cpu_s;
        let gathered = Gathered { processes: vec![process], silent: vec![] };
        let picture = Picture::from(Looked { nodes: vec![], gathered });
        rates.take_in(&picture, now_s);
        rates.of(picture.processes[0].key)
    }

    #[test]
    fn a_rate_is_growth_over_time_and_stays_until_it_is_told_anew() {
        let mut rates = Rates::default();
        assert_eq!(seen(&mut rates, 5.0, 0.0), None, "one picture says nothing");
        assert_eq!(seen(&mut rates, 5.5, 1.0), Some(0.5));
        assert_eq!(seen(&mut rates, 5.5, 2.0), Some(0.5), "nobody has looked meanwhile");
        assert_eq!(seen(&mut rates, 7.5, 3.0), Some(1.0), "two seconds in two");
        assert_eq!(seen(&mut rates, 7.5, 6.0), Some(0.0), "it is idle");
        assert_eq!(seen(&mut rates, 1.0, 7.0), None, "it is another one");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut rates = Rates::default();
        seen(&mut rates, 5.0, 0.0);
        rates.take_in(&Picture::default(), 1.0);
        assert_eq!(seen(&mut rates, 6.0, 2.0), None);
    }
}
