//! The programs that the demo runs: the tutorial's, sized for this machine.
//!
//! Machines differ by an order of magnitude, and a demo has two minutes. So each program is
//! measured once, natively and small, and then given as much to do as takes the time wanted.

use crate::demo::audio;
use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};

/// Tracks of the tutorial's CD.
pub const TRACKS: u32 = 13;
/// Awk programs at once.
pub const AWKS: usize = 8;

const AWK_SAMPLE_ROUNDS: u64 = 3000;
const TRACK_SAMPLE_BYTES: u64 = 500_000;
/// A track is small enough to be written in no time and large enough to be one.
const TRACK_BYTES_MAX: u64 = 40_000_000;

/// The tutorial's awk program with `rounds` instead of its 10000 outer rounds.
pub fn awk_program(rounds: u64) -> String {
    format!("BEGIN {{for(i=0;i<{rounds};i++)for(j=0;j<10000;j++);}}")
}

/// Outer rounds that keep one core of this machine busy for `cpu_s`.
pub fn awk_rounds(cpu_s: f64) -> Result<u64> {
    let used_s = cpu_of(Command::new("awk").arg(awk_program(AWK_SAMPLE_ROUNDS)))?;
    Ok(scaled(AWK_SAMPLE_ROUNDS, cpu_s, used_s).max(1))
}

/// What encodes a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoder {
    words: &'static [&'static str],
    suffix: &'static str,
}

/// `-8ep` instead of the tutorial's `-8`: today's processors would be done before anyone looked,
/// and the tutorial's ratio of computing to reading was about this.
const FLAC: Encoder = Encoder { words: &["flac", "-8ep", "-s", "-f"], suffix: "flac" };
const GZIP: Encoder = Encoder { words: &["gzip", "-9", "-k", "-f", "-n"], suffix: "wav.gz" };
const XZ: Encoder = Encoder { words: &["xz", "-2e", "-k", "-f"], suffix: "wav.xz" };

impl Encoder {
    /// `flac` if it is installed, else `xz`, else `gzip`, which is nearly everywhere.
    pub fn of_this_machine() -> Option<Encoder> {
        [FLAC, XZ, GZIP].into_iter().find(|encoder| works(encoder.words[0], "--version"))
    }

    pub fn words(&self) -> &'static [&'static str] {
        self.words
    }

    /// How names of encoded tracks end, without the dot.
    pub fn suffix(&self) -> &'static str {
        self.suffix
    }

    /// Bytes of a track that keep one core of this machine busy for `cpu_s`; `scratch` is a
    /// directory to try it in.
    pub fn track_bytes(&self, cpu_s: f64, scratch: &Path) -> Result<u64> {
        let sample = scratch.join("track00.wav");
        let file =
            File::create(&sample).with_context(|| format!("cannot write {}", sample.display()))?;
        let samples = audio::samples_for(TRACK_SAMPLE_BYTES);
        audio::write_track(&mut BufWriter::new(file), 0, samples)?;
        let used_s = cpu_of(Command::new(self.words[0]).args(&self.words[1..]).arg(&sample))?;
        Ok(scaled(TRACK_SAMPLE_BYTES, cpu_s, used_s)
            .clamp(TRACK_SAMPLE_BYTES / 10, TRACK_BYTES_MAX))
    }
}

pub fn has_awk() -> bool {
    works("awk", "BEGIN {}")
}

/// Whether a program is here and ends well when it is given this word.
fn works(program: &str, word: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(word).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// How much of something takes `wanted_s`, if `amount` of it took `used_s`.
fn scaled(amount: u64, wanted_s: f64, used_s: f64) -> u64 {
    (amount as f64 * wanted_s / used_s.max(1e-3)) as u64
}

/// CPU seconds that a command uses, natively.
fn cpu_of(command: &mut Command) -> Result<f64> {
    let name = command.get_program().to_string_lossy().into_owned();
    let before_s = children_cpu_s()?;
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{name}`, which the demo needs"))?;
    ensure!(
        output.status.success(),
        "`{name}` failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(children_cpu_s()? - before_s)
}

fn children_cpu_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read CPU times")?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(us as f64 / 1e6)
}

/// The tutorial's script: one program for each word of `over`, after another. A program that fails
/// fails the script.
pub fn script_one_after_another(over: &str, program: &str) -> String {
    format!("for x in {over}; do {program} || exit 1; done")
}

/// The tutorial's script with its trailing `&`.
pub fn script_all_at_once(over: &str, program: &str) -> String {
    format!(
        "pids=; for x in {over}; do {program} & pids=\"$pids $!\"; done; \
         failed=0; for pid in $pids; do wait $pid || failed=1; done; exit $failed"
    )
}

/// A word as the shell reads it back unchanged.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> (String, bool) {
        let output = Command::new("sh").args(["-c", script]).output().expect("sh runs");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }

    #[test]
    fn the_tutorials_program_is_kept() {
        let program = awk_program(10_000);
        assert_eq!(program, "BEGIN {for(i=0;i<10000;i++)for(j=0;j<10000;j++);}");
    }

    #[test]
    fn twice_the_time_is_twice_the_work() {
        assert_eq!(scaled(100, 4.0, 2.0), 200);
        assert_eq!(scaled(100, 4.0, 0.0), 400_000);
    }

    #[test]
    fn cpu_time_of_a_busy_command_is_seen_and_its_failure_too() {
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        assert!(cpu_of(Command::new("sh").args(["-c", busy])).expect("sh runs") > 0.0);
        assert!(cpu_of(&mut Command::new("false")).is_err());
        assert!(cpu_of(&mut Command::new("no-such-program")).is_err());
    }

    #[test]
    fn scripts_run_every_program_and_report_any_failure() {
        for script in [script_one_after_another, script_all_at_once] {
            let (text, good) = sh(&script("a b c", "echo $x"));
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            assert_eq!((lines, good), (vec!["a", "b", "c"], true));
            assert!(!sh(&script("a b c", "test $x != b")).1);
        }
    }

    #[test]
    fn quoting_survives_the_shell() {
        for word in ["a b", "it's", "$x `y`", ""] {
            assert_eq!(sh(&format!("printf %s {}", quoted(word))).0, word);
        }
    }
}
