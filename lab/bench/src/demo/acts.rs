//! The two acts of the demo: eight awk programs that spread by themselves, and the tutorial's
//! encoding job in its five ways.

use crate::demo::picture::Screen;
use crate::demo::report::{self, Row};
use crate::demo::stage::{HOME, STRONGEST_OTHER, Stage};
use crate::demo::watch::{Outcome, Run};
use crate::demo::work::{self, AWKS, Encoder, TRACKS};
use anyhow::{Result, ensure};
use wire::ids::NodeId;

/// The tracks in two parts, as the shell names them.
const FIRST_HALF: &str = "track0[1-7].wav";
const SECOND_HALF: &str = "track0[89].wav track1*.wav";

/// How long things are to take on the home node, seconds.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// One awk program alone.
    pub awk_s: f64,
    /// All tracks, one after another.
    pub tracks_s: f64,
}

pub struct Acts<'a> {
    pub stage: &'a Stage,
    pub screen: &'a mut Screen,
}

impl Acts<'_> {
    fn watch(&mut self, run: &Run) -> Result<Outcome> {
        let outcome = run.watch(self.stage, self.screen)?;
        ensure!(outcome.status.success(), "`{}` failed: {}", run.title, outcome.status);
        self.screen.say(&format!("{:7.1} s  {}", outcome.wall_s, run.title))?;
        Ok(outcome)
    }

    /// One program alone and natively, then eight under Osmos, then one alone again: machines
    /// change their pace within a minute, so what a run is compared with is on both sides of it.
    pub fn awk(&mut self, rounds: u64) -> Result<Row> {
        let program = format!("awk {}", work::quoted(&work::awk_program(rounds)));
        let alone = Run {
            title: "one awk program alone at home, without osmos",
            node: HOME,
            script: &program,
            programs: 1,
            managed: false,
        };
        let before = self.watch(&alone)?;
        let managed = format!("osmos run -- {program}");
        let numbers = (1..=AWKS).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let title = "eight awk programs, balanced";
        let outcome = self.watch(&Run {
            title,
            node: HOME,
            script: &work::script_all_at_once(&numbers, &managed),
            programs: AWKS,
            managed: true,
        })?;
        let after = self.watch(&alone)?;
        let alone_s = (before.wall_s + after.wall_s) / 2.0;
        let ideal_s = self.if_limited(report::ideal_s(alone_s, AWKS, self.stage.speeds()));
        Ok(Row {
            processes: AWKS,
            identical_output: outcome.output == before.output.repeat(AWKS),
            ..Row::new(title, outcome.wall_s, &outcome.freezes_ms).with_ideal(ideal_s)
        })
    }

    /// The tutorial's five runs over tracks that are already in the home node's directory. Half of
    /// the first is made before the second and half after it, for the reason given at `awk`.
    pub fn encoding(&mut self, encoder: Encoder, track_bytes: u64) -> Result<Vec<Row>> {
        let encode = format!("{} \"$x\"", encoder.words().join(" "));
        let all =
            |prefix: &str| work::script_all_at_once("track*.wav", &format!("{prefix}{encode}"));
        let stage = self.stage;
        let half = self.encode_half("first", FIRST_HALF, encoder)?;
        let title = report::BALANCED;
        let balanced = self.encode(title, HOME, &all("osmos run -- "), true, encoder)?;
        let rest = self.encode_half("second", SECOND_HALF, encoder)?;
        let first = half.and(rest, report::ONE_AFTER_ANOTHER);
        let count = first.checksums.lines().count();
        ensure!(count == TRACKS as usize, "{count} of {TRACKS} tracks were encoded");
        let alone_s = first.outcome.wall_s / f64::from(TRACKS);
        let at = |node: NodeId| {
            let speed = stage.speeds()[node.0 as usize - 1];
            alone_s * f64::from(TRACKS) * stage.speeds()[0] / speed
        };
        let spread_s = report::ideal_s(alone_s, TRACKS as usize, stage.speeds());
        let mut rows = vec![first.row(&first.checksums, None)];
        rows.push(balanced.row(&first.checksums, self.if_limited(spread_s)));

        let title = report::PINNED_AT_HOME;
        let pinned = self.encode(title, HOME, &all("osmos run --home -- "), true, encoder)?;
        rows.push(pinned.row(&first.checksums, self.if_limited(at(HOME))));

        let title = report::ON_STRONGEST;
        let prefix = format!("osmos run --node {STRONGEST_OTHER} -- ");
        let away = self.encode(title, HOME, &all(&prefix), true, encoder)?;
        rows.push(away.row(&first.checksums, self.if_limited(at(STRONGEST_OTHER))));

        // The tutorial copied the tracks over for this one, and so do we.
        stage.write_tracks(STRONGEST_OTHER, TRACKS, track_bytes)?;
        let title = report::DIRECTLY_THERE;
        let there = self.encode(title, STRONGEST_OTHER, &all(""), false, encoder)?;
        rows.push(there.row(&first.checksums, self.if_limited(at(STRONGEST_OTHER))));
        Ok(rows)
    }

    /// Some of the tracks at home, one after another and without Osmos.
    fn encode_half(&mut self, which: &str, tracks: &str, encoder: Encoder) -> Result<Encoded> {
        let encode = format!("{} \"$x\"", encoder.words().join(" "));
        let script = work::script_one_after_another(tracks, &encode);
        let title = format!("{}, {which} half", report::ONE_AFTER_ANOTHER);
        self.encode(&title, HOME, &script, false, encoder)
    }

    fn encode(
        &mut self,
        title: &str,
        node: NodeId,
        script: &str,
        managed: bool,
        encoder: Encoder,
    ) -> Result<Encoded> {
        let script = self.stage.in_tracks(node, &format!("{{ {script}; }}"));
        let run = Run { title, node, script: &script, programs: TRACKS as usize, managed };
        let outcome = self.watch(&run)?;
        let checksums = self.stage.take_checksums(node, encoder.suffix())?;
        Ok(Encoded { title: title.to_owned(), outcome, checksums })
    }

    /// Without CPU limits the nodes share the machine, and there is no telling what is ideal.
    fn if_limited(&self, ideal_s: f64) -> Option<f64> {
        self.stage.cores(HOME).map(|_| ideal_s)
    }
}

struct Encoded {
    title: String,
    outcome: Outcome,
    checksums: String,
}

impl Encoded {
    /// This and `other` as one run.
    fn and(mut self, other: Encoded, title: &str) -> Encoded {
        self.title = title.to_owned();
        self.outcome.wall_s += other.outcome.wall_s;
        self.checksums += &other.checksums;
        self
    }

    fn row(&self, expected_checksums: &str, ideal_s: Option<f64>) -> Row {
        Row {
            processes: TRACKS as usize,
            identical_output: self.checksums == expected_checksums,
            ..Row::new(&self.title, self.outcome.wall_s, &self.outcome.freezes_ms)
                .with_ideal(ideal_s)
        }
    }
}
