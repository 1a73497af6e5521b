//! One look over `/proc`: which processes are runnable, what the watched ones use, and which new
//! children they have. Reads many small files, so it runs on a thread for blocking work.

use crate::procfs::{self, Stat};
use nix::unistd::{SysconfVar, sysconf};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Managed processes of this home: their children are managed too.
    pub managed: BTreeSet<i32>,
    /// Those of them that are away: what runs here of them serves their bodies.
    pub away: BTreeSet<i32>,
    /// Bodies of guests that run here.
    pub bodies: BTreeSet<i32>,
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

pub fn scan(watched: &Watched) -> std::io::Result<Scan> {
    let stats = procfs::collect_stats()?;
    let look = Look {
        count_threads: procfs::count_runnable_threads,
        read_cpu_us: procfs::read_cpu_us,
        read_resident_pages: procfs::read_resident_pages,
    };
    Ok(evaluate(&stats, watched, std::process::id() as i32, look))
}

/// What is looked at only for watched processes.
#[derive(Clone, Copy)]
struct Look {
    count_threads: fn(i32) -> u32,
    /// To the microsecond. Ticks of ten milliseconds are a long time for who gets the twentieth
    /// part of a slow node.
    read_cpu_us: fn(i32) -> Option<u64>,
    read_resident_pages: fn(i32) -> Option<u64>,
}

fn evaluate(stats: &[Stat], watched: &Watched, daemon: i32, look: Look) -> Scan {
    let units = units();
    let mut scan =
        Scan { at: Instant::now(), runnable: 0, others: 0, usage: BTreeMap::new(), born: vec![] };
    for stat in stats {
        let is_watched = watched.managed.contains(&stat.pid) || watched.bodies.contains(&stat.pid);
        let is_osmos = stat.pid == daemon || (stat.parent == daemon && !is_watched);
        if is_osmos || stat.has_ended() {
            continue;
        }
        // The threads of others are not worth a look each: their first stands for all.
        let runnable = match is_watched && stat.threads > 1 {
            true => (look.count_threads)(stat.pid),
            false => u32::from(stat.is_runnable()),
        };
        if !watched.away.contains(&stat.pid) {
            scan.runnable += runnable;
        }
        if is_watched {
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
    let by_pid: BTreeMap<i32, &Stat> = stats.iter().map(|stat| (stat.pid, stat)).collect();
    let born = procfs::descendants(stats, &watched.managed);
    scan.born = born.into_iter().map(|(pid, root)| (by_pid[&pid].clone(), root)).collect();
    scan
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
            threads,
            started_ticks: 1,
        }
    }

    fn looking(count_threads: fn(i32) -> u32) -> Look {
        Look { count_threads, read_cpu_us: |_| None, read_resident_pages: |_| Some(2) }
    }

    #[test]
    fn osmos_itself_is_no_load_but_bodies_and_other_programs_are() {
        let stats = [
            stat(100, 1, 'R', 1),
            stat(101, 100, 'R', 1),
            stat(102, 101, 'R', 1),
            stat(200, 1, 'R', 1),
            stat(201, 1, 'S', 1),
        ];
        let watched = Watched { bodies: BTreeSet::from([102]), ..Watched::default() };
        let scan = evaluate(&stats, &watched, 100, looking(|_| 0));
        assert_eq!(scan.runnable, 2, "the body 102 and the stranger 200");
        assert_eq!(scan.others, 1, "the stranger 200");
        assert_eq!(scan.usage.keys().copied().collect::<Vec<i32>>(), [102]);
    }

    #[test]
    fn all_runnable_threads_of_a_watched_process_count() {
        let stats = [stat(50, 1, 'S', 4), stat(51, 1, 'S', 4)];
        let watched = Watched { managed: BTreeSet::from([50]), ..Watched::default() };
        let scan = evaluate(&stats, &watched, 100, looking(|pid| if pid == 50 { 3 } else { 9 }));
        assert_eq!(scan.runnable, 3);
        assert_eq!(scan.usage[&50].runnable, 3);
        assert!(scan.usage[&50].rss_bytes >= 2 * 4096);
    }

    #[test]
    fn what_serves_a_body_elsewhere_is_no_load() {
        let stats = [stat(50, 1, 'R', 1), stat(51, 1, 'R', 1)];
        let (managed, away) = (BTreeSet::from([50, 51]), BTreeSet::from([50]));
        let watched = Watched { managed, away, ..Watched::default() };
        let scan = evaluate(&stats, &watched, 100, looking(|_| 0));
        assert_eq!(scan.runnable, 1);
        assert_eq!(scan.usage[&50].runnable, 1, "what it uses is known nevertheless");
    }

    #[test]
    fn children_of_managed_processes_are_found_with_their_root() {
        let stats = [stat(50, 1, 'S', 1), stat(60, 50, 'R', 1), stat(61, 1, 'R', 1)];
        let watched = Watched { managed: BTreeSet::from([50]), ..Watched::default() };
        let born = evaluate(&stats, &watched, 100, looking(|_| 0)).born;
        assert_eq!(born, [(stats[1].clone(), 50)]);
    }
}
