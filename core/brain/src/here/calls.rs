//! How much processes talk to their homes when they are away.

use super::memory::{Memories, NEVER};
use super::own::sane;
use super::resident::Resident;
use super::residents::Residents;
use crate::config::Config;
use crate::input::ProcessSample;
use crate::time::Time;
use wire::ids::GlobalPid;

/// Used CPU below which the rate of forwarded calls per CPU second means nothing.
const USED_MIN: f64 = 0.02;
const CALLS_PER_CPU_S_MAX: f64 = 1e6;

impl Residents {
    /// How much guests talk to their homes.
    pub(crate) fn remember_all_calls(
        &mut self,
        now: Time,
        samples: &[ProcessSample],
        config: &Config,
    ) {
        let me = self.me;
        let mut places = self.running.iter_mut();
        for sample in samples.iter().filter(|sample| sample.process.home != me) {
            if let Some((_, known)) = places.find(|(process, _)| **process == sample.process) {
                remember_calls(&mut self.memories, known, now, sample, config);
            }
        }
    }

    /// Another node measured how much the process talks to this one, its home.
    pub fn told_calls(&mut self, now: Time, process: GlobalPid, calls: u32, config: &Config) {
        self.memories.touch(now, process, config).calls_per_cpu_s = Some(calls as f32);
        if let Some(known) = self.running.get_mut(&process) {
            known.is_silent = false;
        }
    }
}

/// How much a guest talks to its home. Most never do, and nothing has to be remembered then.
pub(crate) fn remember_calls(
    memories: &mut Memories,
    guest: &mut Resident,
    now: Time,
    sample: &ProcessSample,
    config: &Config,
) {
    let forwarded = sane(sample.forwarded_per_s, 0.0, 1e9);
    guest.is_silent &= forwarded == 0.0;
    if guest.is_silent || sane(sample.used, 0.0, 1e6) < USED_MIN {
        return;
    }
    let measured = (forwarded / sample.used).min(CALLS_PER_CPU_S_MAX) as f32;
    let memory = memories.touch(now, sample.process, config);
    let calls = match memory.calls_per_cpu_s {
        Some(before) => (3.0 * before + measured) / 4.0,
        None => measured,
    };
    memory.calls_per_cpu_s = Some(calls);
    guest.is_silent = calls == 0.0 && memory.arrived_at != NEVER;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Arrival;
    use crate::time::Span;
    use std::slice;
    use wire::ids::{HomePid, NodeId};

    const ME: NodeId = NodeId(1);
    const GUEST: GlobalPid = GlobalPid { home: NodeId(2), pid: HomePid(7) };

    fn sample(forwarded_per_s: f64, used: f64) -> ProcessSample {
        ProcessSample {
            stands_for: 1,
            process: GUEST,
            demand: 1.0,
            used,
            here: Span::from_secs(1),
            cpu: Span::from_secs(1),
            rss_bytes: 1 << 20,
            forwarded_per_s,
            freeze_estimate: Span::from_millis(10),
            copy_estimate: Span::from_millis(50),
            left: None,
            stays: None,
            group: None,
            user: None,
        }
    }

    /// What is remembered of the guest after looks at it, one each second.
    fn remembered(looks: &[ProcessSample], config: &Config) -> Residents {
        let mut residents = Residents::new(ME);
        let start = Time::from_micros(1_000_000);
        residents.arrived(start, GUEST, Arrival::Balanced { from: GUEST.home }, config);
        residents.told_calls(start, GUEST, 0, config);
        for (nth, look) in (1..).zip(looks) {
            residents.sampled(
                start + Span::from_secs(nth),
                slice::from_ref(look),
                |_| false,
                config,
            );
        }
        residents
    }

    #[test]
    fn a_guest_that_was_silent_for_long_is_heard_when_it_begins_to_talk() {
        let config = Config::default();
        let silent = vec![sample(0.0, 1.0); 9];
        let calls =
            |looks: &[ProcessSample]| remembered(looks, &config).memories.of(GUEST).calls_per_cpu_s;
        assert_eq!(calls(&silent), Some(0.0));
        let talking = [silent.as_slice(), &[sample(100.0, 1.0)]].concat();
        assert_eq!(calls(&talking), Some(25.0));
        // It hardly runs, so that what it says for each second of it means nothing yet.
        let whispering = [silent.as_slice(), &[sample(100.0, 0.01)]].concat();
        assert_eq!(calls(&whispering), Some(0.0));
        let residents = remembered(&whispering, &config);
        let known = residents.known(GUEST).expect("runs here");
        assert!(!known.is_silent && known.waits_for_home(&config) > 0.0);
    }

    #[test]
    fn what_is_remembered_of_a_silent_guest_does_not_give_way_to_others() {
        let config = Config { processes_max: 2, ..Config::default() };
        let mut residents = remembered(&vec![sample(0.0, 1.0); 9], &config);
        for pid in 100..110 {
            let other = GlobalPid { home: ME, pid: HomePid(pid) };
            residents.told_calls(Time::from_micros(20_000_000), other, 3, &config);
        }
        assert_eq!(residents.memories.of(GUEST).calls_per_cpu_s, Some(0.0));
    }
}
