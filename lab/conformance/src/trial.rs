//! One program in one flavour: prepare a directory, start, move, wait, look.

use crate::flavour::{Flavour, PING_PONG_MS};
use crate::inputs::Numbers;
use crate::moves::{Moves, Story};
use crate::observation::Observation;
use crate::report::Verdict;
use crate::stage::{Console, Stage};
use crate::subject::{Ending, Kind, Subject};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::ids::HomePid;

/// Beyond a program's own limit: what the witness may take to clean up and to say so.
const WITNESS_PATIENCE: Duration = Duration::from_secs(20);
/// How long the daemon may take to tell that a process has ended.
const EVENT_PATIENCE: Duration = Duration::from_secs(3);

/// Who has no rights: what a suite may do to the machine is what an ordinary user may.
const ORDINARY: u32 = 65_534;

/// What does not change from trial to trial of one worker.
pub struct Bench<'a> {
    pub stage: &'a Stage,
    pub console: Console,
    /// Only where there are flavours with Osmos.
    pub moves: Option<&'a Moves>,
    /// What `osmos run` is told in all flavours.
    pub run_options: Vec<&'static str>,
    pub travel_ms: u64,
    /// How often a program does its work that can do it more than once.
    pub laps: u32,
    pub limit: Duration,
}

/// What became of a trial.
pub struct Outcome {
    pub verdict: Verdict,
    pub move_count: u32,
    pub used_ms: u64,
    /// What was seen, if the program ended.
    pub seen: Option<Observation>,
}

impl Bench<'_> {
    /// Runs a trial; what goes wrong with the harness itself is an outcome too.
    pub fn run(
        &mut self,
        subject: &Subject,
        flavour: Flavour,
        native: Option<&Observation>,
    ) -> Outcome {
        match self.try_run(subject, flavour, native) {
            Ok(outcome) => outcome,
            Err(error) => {
                let verdict = Verdict::Broken(format!("{error:#}"));
                Outcome { verdict, move_count: 0, used_ms: 0, seen: None }
            }
        }
    }

    fn try_run(
        &mut self,
        subject: &Subject,
        flavour: Flavour,
        native: Option<&Observation>,
    ) -> Result<Outcome> {
        let directory = format!("{}/{}.{flavour}", self.stage.directory(), subject.name);
        self.prepare(subject, &directory)?;
        let lost_before = self.moves.map_or(0, Moves::lost_count);
        let mut run = Run::start(self, subject, flavour, &directory)?;
        let end = run.accompany(
            &mut self.console,
            self.stage.away(),
            flavour,
            self.limit + WITNESS_PATIENCE,
        )?;
        let story = match self.moves {
            Some(moves) if flavour.is_osmos() => {
                moves.story_of(run.root, &run.processes, EVENT_PATIENCE)
            }
            _ => Default::default(),
        };
        let move_count = story.move_count;
        if end.is_late {
            let verdict = Verdict::Late;
            return Ok(Outcome { verdict, move_count, used_ms: end.used_ms, seen: None });
        }
        let console = &mut self.console;
        let seen = Observation::collect(console, &directory, end.ending, end.left_count)?;
        let verdict = match native {
            None => judge_native(subject, &seen),
            Some(native) => match difference(subject, &seen, native) {
                Some(difference) => Verdict::Differs(match self.moves {
                    Some(moves) if moves.lost_count() > lost_before => {
                        format!("{difference}; {}", moves.lost_since(lost_before))
                    }
                    _ => difference,
                }),
                None => judge_moves(subject, flavour, &story, run.refusal.take()),
            },
        };
        if verdict == Verdict::Same {
            self.console.must(&format!("rm -rf {directory}"))?;
        }
        Ok(Outcome { verdict, move_count, used_ms: end.used_ms, seen: Some(seen) })
    }

    fn prepare(&mut self, subject: &Subject, directory: &str) -> Result<()> {
        let inputs = format!("{}/inputs", self.stage.directory());
        let mut script = format!("rm -rf {directory} && umask 022 && mkdir -p {directory}/work");
        for file in &subject.files {
            script += &format!(" && cp {inputs}/{file} {directory}/work/");
        }
        if subject.kind == Kind::Outside {
            script += &format!(" && chown -R {ORDINARY}:{ORDINARY} {directory}/work");
        }
        if let Some(file) = subject.stdin {
            script += &format!(" && cp {inputs}/{file} {directory}/stdin");
        }
        self.console.must(&script).map(drop)
    }
}

/// Programs that judge themselves print times and numbers of processes.
fn difference(subject: &Subject, seen: &Observation, native: &Observation) -> Option<String> {
    match subject.kind {
        Kind::Outside => seen.difference_of_end(native),
        _ => seen.difference(native),
    }
}

/// What the oracle itself must show: the end that was announced, and no failed check.
fn judge_native(subject: &Subject, seen: &Observation) -> Verdict {
    let text = String::from_utf8_lossy(&seen.stdout);
    let skipped = text.lines().find_map(|line| line.strip_prefix("SKIP "));
    if subject.kind == Kind::Outside {
        return skipped.map_or(Verdict::Same, |reason| Verdict::Skipped(reason.to_string()));
    }
    if let Some(line) = text.lines().find(|line| line.starts_with("FAIL ")) {
        return Verdict::Differs(line.to_string());
    }
    if let Some(reason) = skipped {
        return Verdict::Skipped(reason.to_string());
    }
    let expected = Observation { ending: subject.ends, left_count: 0, ..seen.clone() };
    if let Some(difference) = seen.difference(&expected) {
        return Verdict::Differs(difference);
    }
    match subject.kind {
        Kind::Guest if seen.stdout.is_empty() => Verdict::Differs("it checked nothing".into()),
        _ => Verdict::Same,
    }
}

/// What keeps a program for what it is, and not for a moment. One that moves at first is kept by
/// what its moves have made of it.
const LASTING: [&str; 13] = [
    "aliased-memory",
    "cpu-state",
    "device-memory",
    "growing-memory",
    "guard-regions",
    "hugetlb",
    "kernel-memory",
    "locked-memory",
    "mapped-file",
    "protection-keys",
    "seccomp",
    "shared-memory",
    "unreadable-memory",
];

/// Whether it moved as the flavour asks. Only a reason that the program announces excuses it if it
/// did not: else an engine that refuses everything would pass.
fn judge_moves(
    subject: &Subject,
    flavour: Flavour,
    story: &Story,
    answer: Option<String>,
) -> Verdict {
    if !flavour.moves() {
        return Verdict::Same;
    }
    if subject.kind == Kind::Outside {
        // What programs do for which nobody knows whether they can move is not announced.
        return match (story.move_count, story.stayed.last()) {
            (1.., _) => Verdict::Same,
            (0, Some(why)) => Verdict::Refused(format!("{}: {}", why.code, why.text)),
            (0, None) => Verdict::Refused("it was over before it could be moved".into()),
        };
    }
    if story.move_count > 0 {
        let lasting = |why: &&wire::supervisor::Reason| {
            LASTING.contains(&why.code.as_str()) && !subject.may_stay.contains(&why.code)
        };
        return match story.stayed.iter().find(lasting) {
            Some(why) => Verdict::DidNotMove(format!("any more: {}: {}", why.code, why.text)),
            None => Verdict::Same,
        };
    }
    let shown = |reason: &wire::supervisor::Reason| format!("{}: {}", reason.code, reason.text);
    // Its end may have been the last thing that kept it.
    if let Some(reason) = story.stayed.iter().find(|why| subject.may_stay.contains(&why.code)) {
        return Verdict::Refused(shown(reason));
    }
    match story.stayed.last() {
        Some(reason) => Verdict::DidNotMove(shown(reason)),
        None => Verdict::DidNotMove(answer.unwrap_or_else(|| "for no reason told".into())),
    }
}

/// A program under the eyes of its witness.
struct Run {
    witness: Child,
    lines: Receiver<String>,
    root: HomePid,
    /// The root and every descendant that was seen.
    processes: BTreeSet<HomePid>,
    /// Why the root was last not moved.
    refusal: Option<String>,
    draw: Numbers,
    /// Whether the witness has said its last word.
    has_spoken: bool,
}

/// The witness's last line.
#[derive(Debug, PartialEq, Eq)]
struct End {
    is_late: bool,
    ending: Ending,
    left_count: u32,
    used_ms: u64,
}

impl Run {
    fn start(
        bench: &Bench<'_>,
        subject: &Subject,
        flavour: Flavour,
        directory: &str,
    ) -> Result<Run> {
        let mut words = vec!["env".to_string(), format!("TRAVEL_MS={}", bench.travel_ms)];
        words.push(format!("{}/guests/witness", bench.stage.directory()));
        words.push(directory.to_string());
        words.push(bench.limit.as_millis().to_string());
        if subject.kind == Kind::Outside {
            let user = [format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")];
            words.extend(["setpriv".to_string(), "--clear-groups".to_string()]);
            words.extend(user);
        }
        words.extend(flavour.command(bench.stage.away(), &bench.run_options));
        words.extend(subject.words(bench.laps).map(String::from));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut witness = bench.stage.command(&words).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(witness.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut run = Run {
            witness,
            lines,
            root: HomePid(0),
            processes: BTreeSet::new(),
            refusal: None,
            draw: Numbers::from_seed(subject.name.len() as u64),
            has_spoken: false,
        };
        let first = run.lines.recv_timeout(WITNESS_PATIENCE).context("the witness is silent")?;
        let pid = first.strip_prefix("pid ").with_context(|| format!("the witness: {first}"))?;
        run.root = HomePid(pid.parse()?);
        run.processes.insert(run.root);
        Ok(run)
    }

    /// Does with the program what the flavour asks for, until it has ended.
    fn accompany(
        &mut self,
        console: &mut Console,
        nodes: &[u32],
        flavour: Flavour,
        patience: Duration,
    ) -> Result<End> {
        let deadline = Instant::now() + patience;
        let mut is_away = false;
        let mut has_begun = false;
        loop {
            let pause = match flavour {
                // Some programs are over soon: the first move is not late for them.
                Flavour::PingPong if !has_begun => Duration::from_millis(PING_PONG_MS / 10),
                Flavour::PingPong => Duration::from_millis(PING_PONG_MS),
                Flavour::Stopped => Duration::from_millis(5 + self.draw.below(70)),
                _ => patience,
            };
            match self.lines.recv_timeout(pause) {
                Ok(line) => {
                    self.has_spoken = true;
                    return parse_end(&line);
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the witness has ended silently"),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    bail!("the witness has said nothing for {} s", patience.as_secs())
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            match flavour {
                Flavour::PingPong => {
                    let away = nodes[self.draw.below(nodes.len() as u64) as usize];
                    let to = if is_away { "home".to_string() } else { away.to_string() };
                    self.migrate_all(console, &to)?;
                    is_away = !is_away;
                    has_begun = true;
                }
                Flavour::Stopped => self.stop_and_continue(console)?,
                _ => {}
            }
        }
    }

    /// Moves the program and all that it has started.
    fn migrate_all(&mut self, console: &mut Console, to: &str) -> Result<()> {
        let root = self.root;
        let script = format!(
            "tree() {{ echo $1; for c in $(cat /proc/$1/task/*/children); do tree $c; done; }}
             for pid in $(tree {root} 2> /dev/null); do
                 if answer=$(osmos migrate $pid {to} 2>&1); then echo moved $pid
                 else echo stays $pid $answer; fi
             done"
        );
        let (_, answer) = console.run(&script)?;
        for line in String::from_utf8_lossy(&answer).lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(how), Some(pid)) = (words.next(), words.next()) else { continue };
            let Ok(pid) = pid.parse().map(HomePid) else { continue };
            self.processes.insert(pid);
            if how == "stays" && pid == root {
                self.refusal = Some(words.next().unwrap_or("without a reason").to_string());
            }
        }
        Ok(())
    }

    /// It may have ended meanwhile, so failing is no fault.
    fn stop_and_continue(&mut self, console: &mut Console) -> Result<()> {
        let pause_s = self.draw.below(30) as f64 / 1000.0;
        let root = self.root;
        console.run(&format!("kill -STOP {root} && sleep {pause_s} && kill -CONT {root}"))?;
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // After its last word it ends by itself; before that it has to be ended.
        if !self.has_spoken {
            let _ = self.witness.kill();
        }
        let _ = self.witness.wait();
    }
}

/// Parses `ended STATUS LEFT MS` or `late STATUS LEFT MS`.
fn parse_end(line: &str) -> Result<End> {
    let words: Vec<&str> = line.split(' ').collect();
    let [how @ ("ended" | "late"), status, left, used] = words[..] else {
        bail!("the witness: {line}");
    };
    Ok(End {
        is_late: how == "late",
        ending: Ending::from_wait_status(status.parse()?),
        left_count: left.parse()?,
        used_ms: used.parse()?,
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::supervisor::Reason;

    #[test]
    fn the_last_line_of_the_witness_is_understood() {
        let end = parse_end("late 9 2 30001").unwrap();
        let ending = Ending::Signal(9);
        assert_eq!(end, End { is_late: true, ending, left_count: 2, used_ms: 30001 });
        assert!(parse_end("broken cannot fork: no memory").is_err());
        assert!(parse_end("ended 0 0").is_err());
    }

    fn seen(stdout: &str) -> Observation {
        Observation {
            ending: Ending::Exit(0),
            stdout: stdout.into(),
            stderr: Vec::new(),
            files: Default::default(),
            left_count: 0,
        }
    }

    fn guest(may_stay: &[&str]) -> Subject {
        let guest = crate::guests::subjects().unwrap().remove(0);
        let may_stay = may_stay.iter().map(|code| code.to_string()).collect();
        Subject { ends: Ending::Exit(0), may_stay, ..guest }
    }

    #[test]
    fn a_flavour_in_which_nothing_moved_proves_nothing() {
        let verdict = |flavour, move_count| {
            let story = Story { move_count, ..Story::default() };
            judge_moves(&guest(&[]), flavour, &story, Some("no such process".into()))
        };
        let did_not = Verdict::DidNotMove("no such process".into());
        assert_eq!(verdict(Flavour::Once, 0), did_not);
        assert_eq!(verdict(Flavour::PingPong, 0), did_not);
        assert_eq!(verdict(Flavour::Storm, 1), Verdict::Same);
        assert_eq!(verdict(Flavour::Home, 0), Verdict::Same);
    }

    #[test]
    fn only_an_announced_reason_excuses_staying() {
        let reason = Reason { code: "io-uring".into(), text: "fd 7".into() };
        let end = Reason { code: "ended".into(), text: "it has ended".into() };
        let story = Story { stayed: vec![reason, end], ..Story::default() };
        let verdict = |guest: &Subject| judge_moves(guest, Flavour::Storm, &story, None);
        assert_eq!(verdict(&guest(&["io-uring"])), Verdict::Refused("io-uring: fd 7".into()));
        assert_eq!(verdict(&guest(&["aio"])), Verdict::DidNotMove("ended: it has ended".into()));
    }

    #[test]
    fn who_cannot_move_any_more_for_what_its_moves_have_made_of_it_has_failed() {
        let reason = Reason { code: "growing-memory".into(), text: "at 0x1000".into() };
        let story = Story { move_count: 2, stayed: vec![reason], ..Story::default() };
        let verdict = |guest: &Subject| judge_moves(guest, Flavour::Storm, &story, None);
        let text = "any more: growing-memory: at 0x1000";
        assert_eq!(verdict(&guest(&[])), Verdict::DidNotMove(text.into()));
        assert_eq!(verdict(&guest(&["growing-memory"])), Verdict::Same);
    }

    #[test]
    fn the_oracle_itself_is_checked() {
        let guest = guest(&[]);
        assert_eq!(judge_native(&guest, &seen("PASS a\n")), Verdict::Same);
        assert!(matches!(judge_native(&guest, &seen("FAIL a\n")), Verdict::Differs(_)));
        assert!(matches!(judge_native(&guest, &seen("")), Verdict::Differs(_)));
        assert_eq!(judge_native(&guest, &seen("SKIP no AVX\n")), Verdict::Skipped("no AVX".into()));
        let died = Observation { ending: Ending::Signal(6), ..seen("PASS a\n") };
        assert!(matches!(judge_native(&guest, &died), Verdict::Differs(_)));
    }
}
