//! The two acts of the demo: eight awk programs that spread by themselves, and the tutorial's
//! encoding job in its five ways.

use crate::picture::Screen;
use crate::report::{self, Row};
use crate::stage::{HOME, STRONGEST_OTHER, Stage};
use crate::watch::{Outcome, Run};
use crate::work::{self, AWKS, Encoder, TRACKS};
use anyhow::{Result, ensure};
use wire::ids::NodeId;

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

    /// One program alone and natively, then eight under Osmos.
    pub fn awk(&mut self, rounds: u64) -> Result<Row> {
        let program = format!("awk {}", work::quoted(&work::awk_program(rounds)));
        let alone = self.watch(&Run {
            title: "one awk program alone at home, without osmos",
            node: HOME,
            script: &program,
            programs: 1,
            managed: false,
        })?;
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
        let ideal_s = self.if_limited(report::ideal_s(alone.wall_s, AWKS, self.stage.speeds()));
        Ok(Row {
            processes: AWKS,
            identical_output: outcome.output == alone.output.repeat(AWKS),
            ..Row::new(title, outcome.wall_s, &outcome.freezes_ms).with_ideal(ideal_s)
        })
    }

    /// The tutorial's five runs over tracks that are already in the home node's directory.
    pub fn encoding(&mut self, encoder: Encoder, track_bytes: u64) -> Result<Vec<Row>> {
        let encode = format!("{} \"$x\"", encoder.words().join(" "));
        let one_by_one = work::script_one_after_another("track*.wav", &encode);
        let all =
            |prefix: &str| work::script_all_at_once("track*.wav", &format!("{prefix}{encode}"));
        let stage = self.stage;
        let first = self.encode(report::ONE_AFTER_ANOTHER, HOME, &one_by_one, false, encoder)?;
        let alone_s = first.outcome.wall_s / f64::from(TRACKS);
        let at = |node: NodeId| {
            let speed = stage.speeds()[node.0 as usize - 1];
            alone_s * f64::from(TRACKS) * stage.speeds()[0] / speed
        };
        let spread_s = report::ideal_s(alone_s, TRACKS as usize, stage.speeds());
        let mut rows = vec![first.row(&first.checksums, None)];

        let title = report::BALANCED;
        let balanced = self.encode(title, HOME, &all("osmos run -- "), true, encoder)?;
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

    fn encode(
        &mut self,
        title: &'static str,
        node: NodeId,
        script: &str,
        managed: bool,
        encoder: Encoder,
    ) -> Result<Encoded> {
        let script = self.stage.in_tracks(&format!("{{ {script}; }}"));
        let run = Run { title, node, script: &script, programs: TRACKS as usize, managed };
        let outcome = self.watch(&run)?;
        let checksums = self.stage.take_checksums(node, &encoder.outputs())?;
        let count = checksums.lines().count();
        ensure!(count == TRACKS as usize, "`{title}` made {count} of {TRACKS} encoded tracks");
        Ok(Encoded { title, outcome, checksums })
    }

    /// Without CPU limits the nodes share the machine, and there is no telling what is ideal.
    fn if_limited(&self, ideal_s: f64) -> Option<f64> {
        self.stage.cores(HOME).map(|_| ideal_s)
    }
}

struct Encoded {
    title: &'static str,
    outcome: Outcome,
    checksums: String,
}

impl Encoded {
    fn row(&self, expected_checksums: &str, ideal_s: Option<f64>) -> Row {
        Row {
            processes: TRACKS as usize,
            identical_output: self.checksums == expected_checksums,
            ..Row::new(self.title, self.outcome.wall_s, &self.outcome.freezes_ms)
                .with_ideal(ideal_s)
        }
    }
}
