//! What is run: one program of each kind, all of which keep to the same contract.
//!
//! `PROGRAM TOKEN STATUS`, in a directory of its own home: it appends `TOKEN LAP DIGEST` to
//! `TOKEN.log` after each lap, ends after the lap in which it finds a file `stop`, prints
//! `TOKEN ended after LAPS`, removes its other files, and exits with that status.

use anyhow::{Context, Result, bail, ensure};

/// Guests of `lab/guests` that [`Program`] `guests` runs: several threads each.
pub const GUESTS: [&str; 5] = [
    "threads_mutex",
    "threads_condition_variable",
    "threads_barrier",
    "threads_semaphore",
    "thread_local_storage",
];

/// One kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    pub name: &'static str,
    /// Name and text of its source.
    pub file: &'static str,
    pub source: &'static str,
    interpreter: &'static [&'static str],
    /// Programs that it runs and that a machine may lack.
    needs: &'static [&'static str],
}

const PYTHON: &[&str] = &["python3", "-IS"];
const BASH: &[&str] = &["bash"];

macro_rules! program {
    ($name:literal, $interpreter:expr, $file:literal, $($need:literal),+) => {
        Program {
            name: $name,
            file: $file,
            source: include_str!(concat!("../../programs/soak/", $file)),
            interpreter: $interpreter,
            needs: &[$($need),+],
        }
    };
}

/// All kinds.
pub const PROGRAMS: [Program; 11] = [
    program!("threads", PYTHON, "threads.py", "python3"),
    program!("memory", PYTHON, "memory.py", "python3"),
    program!("forks", BASH, "forks.bash", "bash", "sha256sum"),
    program!("pipe", BASH, "pipe.bash", "bash", "python3"),
    program!("sleeper", PYTHON, "sleeper.py", "python3"),
    program!("terminal", PYTHON, "terminal.py", "python3"),
    program!("writer", PYTHON, "writer.py", "python3"),
    program!("compute", &["mawk", "-f"], "compute.awk", "mawk"),
    program!("sqlite", BASH, "sqlite.bash", "bash", "sqlite3", "sha256sum"),
    program!("guests", BASH, "guests.bash", "bash", "sha256sum"),
    program!("xz", BASH, "xz.bash", "bash", "xz", "sha256sum"),
];

/// The kinds that this machine can run.
pub fn runnable() -> Vec<Program> {
    PROGRAMS.into_iter().filter(|program| program.lack().is_none()).collect()
}

/// Those of them with these names; all if there are none.
///
/// # Errors
/// There is no such kind, or this machine cannot run it.
pub fn chosen(names: &[String]) -> Result<Vec<Program>> {
    let runnable = runnable();
    if names.is_empty() {
        ensure!(!runnable.is_empty(), "this machine has none of the programs of a soak");
        return Ok(runnable);
    }
    let find = |name: &String| {
        let known = PROGRAMS.map(|program| program.name).join(", ");
        let is_it = |program: &Program| program.name == *name;
        let program = PROGRAMS.into_iter().find(is_it);
        let program = program.with_context(|| format!("there is no program {name}; {known}"))?;
        match program.lack() {
            Some(lack) => bail!("the program {name} cannot run: {lack}"),
            None => Ok(program),
        }
    };
    names.iter().map(find).collect()
}

/// The others, and what they lack.
pub fn left_out() -> Vec<(&'static str, String)> {
    PROGRAMS.iter().filter_map(|program| Some((program.name, program.lack()?))).collect()
}

impl Program {
    fn lack(&self) -> Option<String> {
        self.needs.iter().find(|need| !needs::has(need)).map(|need| needs::lack(need))
    }

    /// The command, run in a directory beside that of the sources.
    pub fn words(&self, token: &str, status: i32) -> Vec<String> {
        let mut words: Vec<String> = self.interpreter.iter().map(|w| w.to_string()).collect();
        words.push(format!("../programs/{}", self.file));
        words.extend([token.to_owned(), status.to_string()]);
        words
    }
}

/// The digest of a log of one lap.
pub fn digest_of_lap(log: &str, token: &str) -> Result<String> {
    let words: Vec<&str> = log.split_whitespace().collect();
    match words[..] {
        [name, "1", digest] if name == token => Ok(digest.to_owned()),
        _ => bail!("a native lap of {token} logged `{}`", log.trim()),
    }
}

/// Checks a log against the digest of a native lap: every lap once and in order. Returns how many
/// there were.
pub fn check_log(log: &str, token: &str, digest: &str) -> Result<u64> {
    let mut laps = 0;
    for line in log.lines() {
        laps += 1;
        let wanted = format!("{token} {laps} {digest}");
        ensure!(line == wanted, "line {laps} of its log is `{line}`, not `{wanted}`");
    }
    ensure!(log.ends_with('\n'), "its log has no whole line at its end");
    Ok(laps)
}

/// Checks what it printed; returns the number of laps that it says it made.
pub fn check_output(output: &str, token: &str) -> Result<u64> {
    let laps = output.strip_prefix(token).and_then(|rest| rest.strip_prefix(" ended after "));
    let laps = laps.and_then(|laps| laps.strip_suffix('\n')).and_then(|laps| laps.parse().ok());
    laps.with_context(|| format!("it printed `{}`", output.trim_end()))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_log_with_every_lap_once_and_in_order_is_right() {
        assert_eq!(check_log("p1 1 ab\np1 2 ab\n", "p1", "ab").unwrap(), 2);
        assert_eq!(check_output("p1 ended after 2\n", "p1").unwrap(), 2);
    }

    #[test]
    fn laps_that_are_lost_doubled_mixed_up_or_different_are_found() {
        for log in [
            "",
            "p1 2 ab\n",
            "p1 1 ab\np1 1 ab\n",
            "p1 1 ab\np1 3 ab\n",
            "p1 1 ab\np2 2 ab\n",
            "p1 1 ab\np1 2 cd\n",
            "p1 1 ab\np1 2 ab",
        ] {
            assert!(check_log(log, "p1", "ab").is_err(), "{log:?}");
        }
        for output in ["", "p1 ended after \n", "p1 ended after 2\np1 ended after 2\n", "p2 1\n"] {
            assert!(check_output(output, "p1").is_err(), "{output:?}");
        }
    }

    #[test]
    fn an_oracle_is_one_lap() {
        assert_eq!(digest_of_lap("p1 1 ab\n", "p1").unwrap(), "ab");
        assert!(digest_of_lap("p1 1 ab\np1 2 ab\n", "p1").is_err());
    }
}
