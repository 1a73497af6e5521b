//! What programs have computed before they ended, by their names: how long one of the same name is
//! likely to go on.
//!
//! What is left of a process's life is, where nothing else is known, as long as its past. Of a
//! compiler that has just begun that says that it is not worth a move, and when it is, it is nearly
//! done. But the one before it took a second, and the one before that, too.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Programs remembered; who ended longest ago is forgotten first.
const PROGRAMS_MAX: usize = 1_024;
/// Ends that must have been seen before anything is said.
const ENDS_MIN: u32 = 3;
/// Of the latest end against those before: as for round trips (Jacobson, "Congestion avoidance and
/// control", 1988).
const MEAN_WEIGHT: f64 = 1.0 / 8.0;
const DEVIATION_WEIGHT: f64 = 1.0 / 4.0;
/// Who differs by no more than that part of the mean from one to the next is done when the mean is.
const ALIKE: f64 = 0.25;
/// Who has taken so many deviations more than the mean is another kind.
const DEVIATIONS: f64 = 3.0;
/// What the kernel calls a process (TASK_COMM_LEN), if each byte of that is none of UTF-8.
const COMMAND_BYTES_MAX: usize = 15 * '\u{fffd}'.len_utf8();
/// Between two writings of the file. A daemon that is killed has learned so much in vain.
const KEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A program as its user starts it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    pub uid: u32,
    pub command: String,
    /// Of its options ([`shape`]).
    pub shape: u64,
}

/// Seconds of processor time in a whole life.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Life {
    ends: u32,
    mean_s: f64,
    deviation_s: f64,
    /// Of all ends that were seen, the how manieth the last one was. A file has them in that order.
    #[serde(skip)]
    last: u64,
}

#[derive(Debug, Default)]
pub struct Programs {
    lives: BTreeMap<Program, Life>,
    ends: u64,
    /// Of those ends, the ones that a file tells of, and since when.
    kept: (u64, Option<Instant>),
}

impl Programs {
    /// From a file; None if it is none of ours. What makes no sense in it is left out.
    pub fn decode(bytes: &[u8]) -> Option<Programs> {
        let mut lives: Vec<(Program, Life)> = serde_json::from_slice(bytes).ok()?;
        lives.retain(|(program, life)| is_sound(program, life));
        lives.truncate(PROGRAMS_MAX);
        lives.iter_mut().zip(1..).for_each(|((_, life), nth)| life.last = nth);
        let ends = lives.len() as u64;
        Some(Programs { lives: lives.into_iter().collect(), ends, kept: (ends, None) })
    }

    /// What a file is to have, if that is something new and it is time: it is rewritten now and
    /// then only, and when the daemon ends.
    pub fn take_news(&mut self, now: Instant, is_end: bool) -> Option<Vec<u8>> {
        let (ends, at) = self.kept;
        let is_due = is_end || at.is_none_or(|at| now >= at + KEEP_INTERVAL);
        if ends == self.ends || !is_due {
            return None;
        }
        self.kept = (self.ends, Some(now));
        Some(self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let mut lives: Vec<(&Program, &Life)> = self.lives.iter().collect();
        lives.sort_unstable_by_key(|(_, life)| life.last);
        serde_json::to_vec(&lives).expect("plain fields always encode")
    }

    /// A process that ran this program has ended, after so much processor time.
    pub fn ended(&mut self, program: Program, cpu: Duration) {
        self.ends += 1;
        let (last, took_s) = (self.ends, cpu.as_secs_f64());
        match self.lives.entry(program) {
            Entry::Vacant(entry) => {
                let deviation_s = took_s / 2.0;
                entry.insert(Life { ends: 1, mean_s: took_s, deviation_s, last });
            }
            Entry::Occupied(mut entry) => {
                let life = entry.get_mut();
                let error_s = took_s - life.mean_s;
                life.mean_s += error_s * MEAN_WEIGHT;
                life.deviation_s += (error_s.abs() - life.deviation_s) * DEVIATION_WEIGHT;
                (life.ends, life.last) = (life.ends.saturating_add(1), last);
            }
        }
        if self.lives.len() > PROGRAMS_MAX {
            let oldest = self.lives.iter().min_by_key(|(_, life)| life.last);
            if let Some(oldest) = oldest.map(|(program, _)| program.clone()) {
                self.lives.remove(&oldest);
            }
        }
    }

    /// How much a process that has computed for so long in this program is likely to compute yet;
    /// None if those before it do not tell.
    pub fn left(&self, program: &Program, cpu: Duration) -> Option<Duration> {
        let life = self.lives.get(program).filter(|life| life.ends >= ENDS_MIN)?;
        let past_s = cpu.as_secs_f64();
        let left_s = life.mean_s - past_s;
        let is_alike = life.deviation_s <= life.mean_s * ALIKE;
        let is_of_them = past_s <= life.mean_s + life.deviation_s * DEVIATIONS;
        // Of those that differ it is known that they take long, and not when they are done.
        let is_long = life.deviation_s <= life.mean_s && left_s > past_s;
        let is_known = is_long || is_alike && is_of_them;
        // Who has outlived the mean goes on for as long as they differ.
        is_known.then(|| Duration::from_secs_f64(left_s.max(life.deviation_s)))
    }
}

/// Whether a file may say so.
fn is_sound(program: &Program, life: &Life) -> bool {
    let is_time = |seconds: f64| seconds.is_finite() && (0.0..=1e9).contains(&seconds);
    let is_short = program.command.len() <= COMMAND_BYTES_MAX;
    is_short && is_time(life.mean_s) && is_time(life.deviation_s)
}

/// The shape of a command line (`/proc/PID/cmdline`): its options without what is given to them. A
/// compiler that optimises is another than one that does not, whatever file it is given.
pub fn shape(command_line: &[u8]) -> u64 {
    let options =
        command_line.split(|byte| *byte == 0).skip(1).filter(|word| word.starts_with(b"-"));
    let mut hasher = DefaultHasher::new();
    for option in options {
        option.split(|byte| *byte == b'=').next().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod test {
    use super::*;

    fn program(command: &str) -> Program {
        Program { uid: 1000, command: command.into(), shape: 0 }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(lives_ms: &[u64]) -> Programs {
        let mut programs = Programs::default();
        lives_ms.iter().for_each(|life| programs.ended(program("cc1"), ms(*life)));
        programs
    }

    #[test]
    fn one_like_those_before_takes_as_long_as_they_did() {
        let programs = after(&[1_000, 1_200, 900, 1_100].repeat(3));
        let left = programs.left(&program("cc1"), ms(100)).unwrap();
        assert!((ms(850)..ms(1_000)).contains(&left), "{left:?}");
        let left = programs.left(&program("cc1"), ms(1_200)).unwrap();
        assert!((ms(50)..ms(200)).contains(&left), "{left:?}");
        assert_eq!(programs.left(&program("cc1"), ms(5_000)), None, "it is another kind");
        assert_eq!(programs.left(&program("ld"), ms(100)), None);
        // It is too early to say when they are done, but not that they take long.
        let programs = after(&[1_000, 1_200, 900]);
        assert!(programs.left(&program("cc1"), ms(100)).is_some());
        assert_eq!(programs.left(&program("cc1"), ms(900)), None);
    }

    #[test]
    fn those_that_differ_tell_nothing() {
        assert_eq!(after(&[1_000, 1_000]).left(&program("cc1"), ms(1)), None, "too few");
        let programs = after(&[10, 20_000, 30, 9_000, 15, 12_000]);
        assert_eq!(programs.left(&program("cc1"), ms(1)), None);
    }

    #[test]
    fn who_ended_longest_ago_is_forgotten_first() {
        let mut programs = Programs::default();
        (0..3).for_each(|_| programs.ended(program("old"), ms(500)));
        for nth in 0..PROGRAMS_MAX {
            (0..3).for_each(|_| programs.ended(program(&nth.to_string()), ms(500)));
        }
        assert_eq!(programs.lives.len(), PROGRAMS_MAX);
        assert_eq!(programs.left(&program("old"), ms(0)), None);
        assert!(programs.left(&program("0"), ms(0)).is_some());
    }

    #[test]
    fn what_a_daemon_knows_the_next_one_knows() {
        let mut before = after(&[1_000, 1_200, 900, 1_100].repeat(3));
        before.ended(program("ld"), ms(70));
        let mut kept = Programs::decode(&before.encode()).unwrap();
        let left = |programs: &Programs| programs.left(&program("cc1"), ms(100));
        assert_eq!(left(&kept), left(&before));
        assert!(left(&kept).is_some());
        (0..PROGRAMS_MAX - 1).for_each(|nth| kept.ended(program(&nth.to_string()), ms(500)));
        assert_eq!(left(&kept), None, "it ended before the others");
        assert!(kept.lives.contains_key(&program("ld")));
    }

    #[test]
    fn the_file_is_written_when_there_is_something_new_and_not_each_time() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        assert!(programs.take_news(now, false).is_none());
        programs.ended(program("ld"), ms(70));
        let mut next = Programs::decode(&programs.take_news(now, false).unwrap()).unwrap();
        assert!(next.take_news(now, false).is_none(), "it is what the file has");
        programs.ended(program("ld"), ms(70));
        assert!(programs.take_news(now, false).is_none());
        assert!(programs.take_news(now, true).is_some());
        programs.ended(program("ld"), ms(70));
        assert!(programs.take_news(now + KEEP_INTERVAL, false).is_some());
        assert!(programs.take_news(now + KEEP_INTERVAL * 2, false).is_none());
    }

    #[test]
    fn what_makes_no_sense_in_a_file_is_left_out() {
        let of = |name: &str, mean: &str| {
            let life = format!(r#""ends":3,"mean_s":{mean},"deviation_s":0.1"#);
            let program = format!(r#""uid":0,"command":"{name}","shape":{}"#, u64::MAX);
            format!("[{{{program}}},{{{life}}}]")
        };
        let count = |entries: &[String]| {
            let text = format!("[{}]", entries.join(","));
            Programs::decode(text.as_bytes()).map(|programs| programs.lives.len())
        };
        assert_eq!(count(&[of("cc1", "0.5"), of("ld", "0.1")]), Some(2));
        let strange = [of("a", "-0.5"), of("b", "1e300"), of(&"c".repeat(46), "0.5")];
        assert_eq!(count(&strange), Some(0));
        let many: Vec<String> = (0..2 * PROGRAMS_MAX).map(|n| of(&n.to_string(), "1")).collect();
        assert_eq!(count(&many), Some(PROGRAMS_MAX));
        assert_eq!(count(&["1".to_owned()]), None);
    }

    #[test]
    fn the_shape_is_of_options_and_not_of_files() {
        let of = |words: &[&str]| shape(words.join("\0").as_bytes());
        let small = of(&["cc1", "-O2", "-std=c99", "a.c", "-o", "a.s"]);
        assert_eq!(small, of(&["/usr/lib/cc1", "-O2", "-std=c11", "large.c", "-o", "b.s"]));
        assert_ne!(small, of(&["cc1", "-O0", "-std=c99", "a.c", "-o", "a.s"]));
        assert_ne!(of(&["a", "-x", "-y"]), of(&["a", "-xy"]));
    }
}
