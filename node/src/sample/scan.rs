//! Looks over `/proc`: which processes are runnable, what the watched ones use, and which new
//! children they have. Reads many small files, so it runs on a thread for blocking work.
//!
//! A look over all processes (a *sweep*) is cheap on most nodes and comes four times a second.
//! Where it is not, the looks between two sweeps are at those that are watched, those that have
//! computed lately, and those that were born since; [`super::unseen`] knows of load that these
//! miss. A process of many threads is as busy as all of them, whatever its first one does, so all
//! threads are looked at, of processes that compute.

use super::effort::{Effort, thread_time};
use super::ledger::{Ledger, Part};
use crate::procfs::{self, Stat};
use nix::unistd::{SysconfVar, sysconf};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Of one core, for sweeps; and as much again for looks in between and at threads.
const SHARE: f64 = 0.004;
/// Numbers given to new processes and threads between two looks that are looked at one by one.
const NEW_MAX: i32 = 1024;
/// `/proc/stat` is long on large machines.
const MACHINE_EVERY: Duration = Duration::from_millis(400);

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Managed processes of this home: their children are managed too.
    pub managed: BTreeSet<i32>,
    /// Job servers, which are not: what comes to them, as reapers of what ranks have started, is.
    pub job_servers: BTreeSet<i32>,
    /// Those of them that are away: what runs here of them serves their bodies.
    pub away: BTreeSet<i32>,
    /// Bodies of guests that run here.
    pub bodies: BTreeSet<i32>,
    /// Supervisors that an earlier daemon has started: parts of Osmos, and nobody's children.
    pub inherited: BTreeSet<i32>,
}

impl Watched {
    pub fn is_watched(&self, pid: i32) -> bool {
        self.managed.contains(&pid) || self.bodies.contains(&pid)
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Scan {
    pub at: Instant,
    /// Runnable threads of the node, Osmos itself and what serves bodies elsewhere excluded: these
    /// work in bursts, all at once when a body elsewhere has its turn, and ask for little.
    pub runnable: u32,
    /// Those of them that are of no watched process.
    pub others: u32,
    /// Watched processes that were found.
    pub usage: BTreeMap<i32, Usage>,
    /// New descendants: (process, the managed process it descends from).
    pub born: Vec<(Stat, i32)>,
    /// Processor time that all have used whose threads count as runnable, seconds since some
    /// moment; None if this look does not know.
    pub used_s: Option<f64>,
}

/// One watched process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub started_ticks: u64,
    pub command: String,
    pub cpu_us: u64,
    pub rss_bytes: u64,
    pub runnable: u32,
    /// Its process group.
    pub group: i32,
}

/// The units in which this kernel counts.
#[derive(Clone, Copy, Debug)]
struct Units {
    tick_us: u64,
    page_bytes: u64,
}

/// The memory of one process at this moment, in bytes; None if it has ended.
pub fn memory_of(pid: i32, started_ticks: u64) -> Option<u64> {
    procfs::read_stat(pid).filter(|stat| stat.started_ticks == started_ticks)?;
    Some(procfs::read_resident_pages(pid)? * units().page_bytes)
}

/// Looks again and again, and remembers what it takes to look at little.
pub struct Scanner {
    ledger: Ledger,
    sweeps: Effort,
    looks: Effort,
    /// The last number given to a process or thread, at the last look.
    last_number: Option<i32>,
    shows_whole_machine: bool,
    machine_at: Option<Instant>,
    /// What counting threads has taken in this look: looks have paid for it.
    counting: Duration,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner {
            ledger: Ledger::default(),
            sweeps: Effort::of(SHARE),
            looks: Effort::of(SHARE),
            last_number: None,
            shows_whole_machine: procfs::shows_whole_machine(),
            machine_at: None,
            counting: Duration::ZERO,
        }
    }
}

impl Scanner {
    pub fn scan(&mut self, watched: &Watched) -> std::io::Result<Scan> {
        let (now, began) = (Instant::now(), thread_time());
        self.counting = Duration::ZERO;
        let is_sweep = self.sweeps.is_due(now);
        self.looks.is_due(now);
        let last_number = procfs::read_last_number();
        let daemon = std::process::id() as i32;
        let stats: Vec<Stat> = if is_sweep {
            procfs::collect_stats()?
        } else {
            self.numbers(now, watched, last_number).iter().filter_map(Number::read).collect()
        };
        self.ledger.take_in(now, &stats, is_sweep, watched, daemon);
        self.last_number = last_number;
        let look = Look {
            count_threads: procfs::count_runnable_threads,
            read_cpu_us: procfs::read_cpu_us,
            read_resident_pages: procfs::read_resident_pages,
        };
        let mut scan = self.evaluate(now, &stats, watched, daemon, look);
        scan.used_s = self.used_s(now, is_sweep);
        let took = thread_time().saturating_sub(began + self.counting);
        let effort = if is_sweep { &mut self.sweeps } else { &mut self.looks };
        effort.took(took);
        Ok(scan)
    }

    /// Whom to look at if not at all.
    fn numbers(&self, now: Instant, watched: &Watched, last: Option<i32>) -> Vec<Number> {
        let mut known = &watched.managed | &watched.bodies;
        if self.looks.is_left() {
            known.append(&mut self.ledger.warm(now));
        }
        // Where these have begun again a sweep will find who was born.
        let new = procfs::numbers_since(self.last_number, last, NEW_MAX);
        let born = new.filter(|number| !known.contains(number)).map(Number::New);
        let born: Vec<Number> = born.collect();
        known.into_iter().map(Number::Known).chain(born).collect()
    }

    fn used_s(&mut self, now: Instant, is_sweep: bool) -> Option<f64> {
        let ticks_per_s = ticks_per_s() as f64;
        if !self.shows_whole_machine {
            let ticks = self.ledger.used_ticks().filter(|_| is_sweep)?;
            return Some(ticks as f64 / ticks_per_s);
        }
        let is_due = |at: Instant| now.saturating_duration_since(at) >= MACHINE_EVERY;
        if !self.machine_at.is_none_or(is_due) {
            return None;
        }
        self.machine_at = Some(now);
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let busy_s = super::steal::parse_busy(&text, ticks_per_s)?;
        Some(busy_s - self.ledger.served_ticks() as f64 / ticks_per_s)
    }
}

/// A number to look at.
enum Number {
    /// Of a process.
    Known(i32),
    /// Of a process, a thread, or nobody any more.
    New(i32),
}

impl Number {
    fn read(&self) -> Option<Stat> {
        match self {
            Number::Known(pid) => procfs::read_stat(*pid),
            Number::New(number) => procfs::read_stat_of_first_thread(*number),
        }
    }
}

/// What is looked at of some processes only.
#[derive(Clone, Copy)]
struct Look {
    count_threads: fn(i32) -> u32,
    /// To the microsecond. Ticks of ten milliseconds are a long time for who gets the twentieth
    /// part of a slow node.
    read_cpu_us: fn(i32) -> Option<u64>,
    read_resident_pages: fn(i32) -> Option<u64>,
}

impl Scanner {
    fn evaluate(
        &mut self,
        now: Instant,
        stats: &[Stat],
        watched: &Watched,
        daemon: i32,
        look: Look,
    ) -> Scan {
        let units = units();
        self.count_threads(now, stats, watched, daemon, look);
        let (usage, born) = (BTreeMap::new(), Vec::new());
        let mut scan = Scan { at: now, runnable: 0, others: 0, usage, born, used_s: None };
        for stat in stats.iter().filter(|stat| !stat.has_ended()) {
            let part = self.ledger.part(stat.pid, watched, daemon);
            if part == Part::Osmos {
                continue;
            }
            let runnable = self.runnable(now, stat);
            if part != Part::Deputy {
                scan.runnable += runnable;
            }
            if watched.is_watched(stat.pid) {
                let ticks_us = stat.cpu_ticks * units.tick_us;
                let usage = Usage {
                    started_ticks: stat.started_ticks,
                    command: stat.command.clone(),
                    cpu_us: (look.read_cpu_us)(stat.pid).unwrap_or(ticks_us),
                    // A process that ended since has none left.
                    rss_bytes: (look.read_resident_pages)(stat.pid).unwrap_or(0) * units.page_bytes,
                    runnable,
                    group: stat.group,
                };
                scan.usage.insert(stat.pid, usage);
            } else {
                scan.others += runnable;
            }
        }
        scan.born = procfs::born_of(stats, &(&watched.managed | &watched.job_servers));
        scan
    }

    /// Looks at the threads of those who compute; if that takes too much, at those first who were
    /// looked at longest ago, and the rest next time.
    fn count_threads(
        &mut self,
        now: Instant,
        stats: &[Stat],
        watched: &Watched,
        daemon: i32,
        look: Look,
    ) {
        let is_worth = |stat: &&Stat| {
            stat.threads > 1
                && !stat.has_ended()
                && self.ledger.is_warm(now, stat.pid)
                && self.ledger.part(stat.pid, watched, daemon) != Part::Osmos
        };
        let mut pids: Vec<i32> = stats.iter().filter(is_worth).map(|stat| stat.pid).collect();
        pids.sort_by_key(|pid| self.ledger.counted(*pid).map(|(at, _)| at));
        for pid in pids {
            if !self.looks.is_left() {
                return;
            }
            let began = thread_time();
            let runnable = (look.count_threads)(pid);
            let took = thread_time().saturating_sub(began);
            self.looks.took(took);
            self.counting += took;
            self.ledger.count(now, pid, runnable);
        }
    }

    /// Of the threads of a process, as last counted while it computes.
    fn runnable(&self, now: Instant, stat: &Stat) -> u32 {
        let first = u32::from(stat.is_runnable());
        match self.ledger.counted(stat.pid) {
            Some((_, runnable)) if stat.threads > 1 && self.ledger.is_warm(now, stat.pid) => {
                runnable.min(stat.threads)
            }
            _ => first,
        }
    }
}

fn units() -> Units {
    let page_bytes = system_value(SysconfVar::PAGE_SIZE).unwrap_or(4096);
    Units { tick_us: 1_000_000 / ticks_per_s(), page_bytes }
}

/// In which the kernel counts processor time.
pub fn ticks_per_s() -> u64 {
    system_value(SysconfVar::CLK_TCK).filter(|ticks| *ticks > 0).unwrap_or(100)
}

fn system_value(name: SysconfVar) -> Option<u64> {
    sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok())
}

#[cfg(test)]
mod test {
    use super::*;

    fn stat(pid: i32, parent: i32, state: char, threads: u32) -> Stat {
        let command = format!("command-{pid}");
        Stat {
            pid,
            command,
            state,
            parent,
            group: pid,
            is_exiting: false,
            cpu_ticks: 7,
            children_ticks: 0,
            threads,
            started_ticks: 1,
        }
    }

    fn looking(count_threads: fn(i32) -> u32) -> Look {
        Look { count_threads, read_cpu_us: |_| None, read_resident_pages: |_| Some(2) }
    }

    fn take(scanner: &mut Scanner, stats: &[Stat], watched: &Watched, look: Look) -> Scan {
        let now = Instant::now();
        scanner.ledger.take_in(now, stats, true, watched, 100);
        scanner.evaluate(now, stats, watched, 100, look)
    }

    fn evaluate(stats: &[Stat], watched: &Watched, look: Look) -> Scan {
        take(&mut Scanner::default(), stats, watched, look)
    }

    #[test]
    fn osmos_itself_is_no_load_but_bodies_and_other_programs_are() {
        let stats = [
            stat(100, 1, 'R', 1),
            stat(101, 100, 'R', 1),
            stat(102, 101, 'R', 1),
            stat(200, 1, 'R', 1),
            stat(201, 1, 'S', 1),
            stat(202, 1, 'R', 1),
        ];
        let (bodies, inherited) = (BTreeSet::from([102]), BTreeSet::from([202]));
        let watched = Watched { bodies, inherited, ..Watched::default() };
        let scan = evaluate(&stats, &watched, looking(|_| 0));
        assert_eq!(scan.runnable, 2, "the body 102 and the stranger 200");
        assert_eq!(scan.others, 1, "the stranger 200");
        assert_eq!(scan.usage.keys().copied().collect::<Vec<i32>>(), [102]);
    }

    #[test]
    fn all_runnable_threads_count_whoever_they_are_and_whatever_the_first_one_does() {
        let mut stats = [stat(50, 1, 'S', 4), stat(51, 1, 'S', 9), stat(52, 1, 'S', 9)];
        let watched = Watched { managed: BTreeSet::from([50]), ..Watched::default() };
        let look = looking(|pid| pid as u32 - 47);
        let mut scanner = Scanner::default();
        let first = take(&mut scanner, &stats, &watched, look);
        assert_eq!((first.runnable, first.others), (0, 0), "nobody is known to compute");
        // Only who computes is worth a look at each thread.
        stats[0].cpu_ticks += 1;
        stats[1].cpu_ticks += 1;
        let scan = take(&mut scanner, &stats, &watched, look);
        assert_eq!((scan.runnable, scan.others, scan.usage[&50].runnable), (3 + 4, 4, 3));
        assert!(scan.usage[&50].rss_bytes >= 2 * 4096);
    }

    #[test]
    fn a_scanner_sees_processes_that_are_born_between_two_sweeps_and_tells_no_thread_for_one() {
        let mut scanner = Scanner::default();
        let watched = Watched::default();
        scanner.scan(&watched).unwrap();
        scanner.sweeps = Effort::of(0.0);
        // Nothing is left for another sweep.
        scanner.sweeps.took(Duration::from_secs(1));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let managed = BTreeSet::from([std::process::id() as i32]);
        let scan = scanner.scan(&Watched { managed, ..watched });
        let born: Vec<i32> = scan.unwrap().born.iter().map(|(stat, _)| stat.pid).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(born, [pid]);
    }

    #[test]
    fn what_serves_a_body_elsewhere_is_no_load() {
        let stats = [stat(50, 1, 'R', 1), stat(51, 1, 'R', 1)];
        let (managed, away) = (BTreeSet::from([50, 51]), BTreeSet::from([50]));
        let watched = Watched { managed, away, ..Watched::default() };
        let scan = evaluate(&stats, &watched, looking(|_| 0));
        assert_eq!(scan.runnable, 1);
        assert_eq!(scan.usage[&50].runnable, 1, "what it uses is known nevertheless");
    }

    #[test]
    fn children_of_managed_processes_are_found_with_their_root() {
        let stats = [stat(50, 1, 'S', 1), stat(60, 50, 'R', 1), stat(61, 1, 'R', 1)];
        let watched = Watched { managed: BTreeSet::from([50]), ..Watched::default() };
        let born = evaluate(&stats, &watched, looking(|_| 0)).born;
        assert_eq!(born, [(stats[1].clone(), 50)]);
    }
}
