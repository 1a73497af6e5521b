//! Where a kept result comes from: which program, from which commit, on which machine, when.
//! Without that a figure cannot be measured again, nor compared with another.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 86_400;
/// Digits that tell commits and programs apart.
const SHORT: usize = 12;

/// What figures are true of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    pub kernel: String,
    /// Runnable processes, averaged over the minute before the run: what else there was.
    pub load_before: f64,
}

impl Machine {
    pub fn probe() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let load = read("/proc/loadavg");
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.unwrap_or_default().trim_start_matches([' ', '\t', ':']).to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
        }
    }

    /// In words.
    pub fn name(&self) -> String {
        format!("{} cores, {}, Linux {}", self.cores, self.processor, self.kernel)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Of the sources that the program lies in, if it does: what `git describe` would say is more
    /// than a program knows of itself.
    pub commit: Option<String>,
    /// BLAKE3 of the program's file.
    pub program: String,
    pub machine: Machine,
    /// The day, UTC.
    pub day: String,
}

impl Provenance {
    /// Of what this program measures now.
    pub fn now() -> Provenance {
        let program = std::env::current_exe().unwrap_or_default();
        let hash = fs::read(&program).map(|bytes| blake3::hash(&bytes).to_string());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Provenance {
            commit: program.ancestors().find_map(commit_of),
            program: hash.map_or("unknown".to_owned(), |hash| short(&hash)),
            machine: Machine::probe(),
            day: day_of(since.as_secs()),
        }
    }

    /// All that figures depend on that are computed and not measured.
    pub fn program_and_commit(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("unknown");
        format!("Commit: {commit}. Program (BLAKE3): {}.", self.program)
    }

    /// A sentence for a report about all runs that were made.
    pub fn of_runs<'a>(runs: impl IntoIterator<Item = Option<&'a Provenance>>) -> String {
        let all: Vec<Option<&Provenance>> = runs.into_iter().collect();
        let known: Vec<&Provenance> = all.iter().copied().flatten().collect();
        let listed = |of: &dyn Fn(&Provenance) -> String| {
            let different: BTreeSet<String> = known.iter().map(|it| of(it)).collect();
            different.into_iter().collect::<Vec<_>>().join(", ")
        };
        let commit = |it: &Provenance| it.commit.clone().unwrap_or_else(|| "unknown".to_owned());
        let mut text = format!("All {} runs that were made count.", all.len());
        if !known.is_empty() {
            text.push_str(&format!(
                " Day: {}. Commit: {}. Program (BLAKE3): {}. Machine: {}.",
                listed(&|it| it.day.clone()),
                listed(&commit),
                listed(&|it| it.program.clone()),
                listed(&|it| it.machine.name()),
            ));
        }
        if known.len() < all.len() {
            let older = all.len() - known.len();
            text.push_str(&format!(" Of {older} older ones nothing of that was kept."));
        }
        text
    }
}

fn short(text: &str) -> String {
    text.chars().take(SHORT).collect()
}

/// The commit that is checked out in this directory, if it is the root of a checkout.
fn commit_of(directory: &Path) -> Option<String> {
    let git = directory.join(".git");
    // Of a second work tree it is a file that names the place.
    let git = match fs::read_to_string(&git) {
        Ok(text) => PathBuf::from(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return Some(short(head.trim())) };
    let common = match fs::read_to_string(git.join("commondir")) {
        Ok(path) => git.join(path.trim()),
        Err(_) => git,
    };
    if let Ok(commit) = fs::read_to_string(common.join(name)) {
        return Some(short(commit.trim()));
    }
    let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
    let commit = packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '));
    commit.map(short)
}

/// A day of the Gregorian calendar, by the seconds since 1970 (Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms", civil_from_days).
fn day_of(seconds: u64) -> String {
    let days = seconds / SECONDS_A_DAY + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_824_000, "2026-11-28"),
        ] {
            assert_eq!(day_of(seconds), day);
        }
    }

    #[test]
    fn commits_are_found_by_branch_in_packed_references_and_detached() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(commit_of(root.path()), None);
        write(".git/HEAD", "ref: refs/heads/main\n");
        write(".git/packed-refs", "# pack-refs\n0123456789abcdef refs/heads/main\n");
        assert_eq!(commit_of(root.path()).as_deref(), Some("0123456789ab"));
        write(".git/refs/heads/main", "fedcba9876543210\n");
        assert_eq!(commit_of(root.path()).as_deref(), Some("fedcba987654"));
        write(".git/HEAD", "00112233445566\n");
        assert_eq!(commit_of(root.path()).as_deref(), Some("001122334455"));
    }

    #[test]
    fn a_report_names_all_that_its_runs_come_from_and_how_many_there_were() {
        let machine = Machine { cores: 2, kernel: "6.1".into(), ..Machine::probe() };
        let made = |commit: Option<&str>| Provenance {
            commit: commit.map(str::to_owned),
            program: "abc".into(),
            machine: machine.clone(),
            day: "2026-11-28".into(),
        };
        let (one, two) = (made(Some("aa")), made(None));
        let text = Provenance::of_runs([Some(&one), Some(&two), None]);
        assert!(text.starts_with("All 3 runs that were made count."), "{text}");
        assert!(text.contains("Commit: aa, unknown.") && text.contains("Of 1 older"), "{text}");
    }
}
