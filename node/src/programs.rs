//! What programs have computed before they ended, by their names: how long one of the same name is
//! likely to go on ([`brain::Life`]).

use brain::{Life, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Programs remembered; who ended longest ago is forgotten first.
const PROGRAMS_MAX: usize = 1_024;
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

#[derive(Clone, Copy, Debug)]
struct Remembered {
    life: Life,
    /// Of all ends that were seen, the how manieth the last one was. A file has them in that order.
    last: u64,
}

#[derive(Debug, Default)]
pub struct Programs {
    lives: BTreeMap<Program, Remembered>,
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
        let ends = lives.len() as u64;
        let remembered =
            (1..).zip(lives).map(|(last, (program, life))| (program, Remembered { life, last }));
        Some(Programs { lives: remembered.collect(), ends, kept: (ends, None) })
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
        let mut remembered: Vec<(&Program, &Remembered)> = self.lives.iter().collect();
        remembered.sort_unstable_by_key(|(_, remembered)| remembered.last);
        let lives: Vec<(&Program, &Life)> = remembered
            .into_iter()
            .map(|(program, remembered)| (program, &remembered.life))
            .collect();
        serde_json::to_vec(&lives).expect("plain fields always encode")
    }

    /// A process that ran this program has ended, after so much processor time.
    pub fn ended(&mut self, program: Program, cpu: Duration) {
        self.ends += 1;
        let (last, took) = (self.ends, span(cpu));
        match self.lives.entry(program) {
            Entry::Vacant(entry) => {
                entry.insert(Remembered { life: Life::first(took), last });
            }
            Entry::Occupied(mut entry) => {
                let remembered = entry.get_mut();
                remembered.life.ended(took);
                remembered.last = last;
            }
        }
        if self.lives.len() > PROGRAMS_MAX {
            let oldest = self.lives.iter().min_by_key(|(_, remembered)| remembered.last);
            if let Some(oldest) = oldest.map(|(program, _)| program.clone()) {
                self.lives.remove(&oldest);
            }
        }
    }

    /// How much a process that has computed for so long in this program is likely to compute yet;
    /// None if those before it do not tell.
    pub fn left(&self, program: &Program, cpu: Duration) -> Option<Duration> {
        let left = self.lives.get(program)?.life.left(span(cpu))?;
        Some(Duration::from_micros(left.0))
    }
}

fn span(time: Duration) -> Span {
    Span(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Whether a file may say so.
fn is_sound(program: &Program, life: &Life) -> bool {
    program.command.len() <= COMMAND_BYTES_MAX && life.is_sound()
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
    fn each_program_has_its_own_life() {
        let programs = after(&[1_000, 1_200, 900, 1_100].repeat(3));
        let left = programs.left(&program("cc1"), ms(100)).unwrap();
        assert!((ms(850)..ms(1_000)).contains(&left), "{left:?}");
        assert_eq!(programs.left(&program("ld"), ms(100)), None);
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
