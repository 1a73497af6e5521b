//! How fast a process leaves its home, and comes back with memory that was written all anew, by the
//! whole of its move, beside copies of as many bytes over one connection through the same link in
//! the same run: plain, and sealed as the process is.

use crate::engine::Setting;
use crate::engine::driven::{Driven, Serving};
use crate::engine::figure::Figure;
use crate::engine::stage::Stage;
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};

/// A page of which so much is noise cannot be compressed, or to about a third.
const NOISE: u32 = 4096;
const SOME_NOISE: u32 = 1024;

/// A link, and what of it is promised.
struct Link {
    name: &'static str,
    /// As `osmos lab up --link` has it, and megabytes a second.
    rate: Option<(&'static str, f64)>,
    freight: &'static str,
    noise: u32,
    /// Of the rate.
    part_min: f64,
    is_slow: bool,
}

const GIGABIT: Option<(&str, f64)> = Some(("1gbit", 125.0));
const FULL: &str = "cannot be compressed";

const LINKS: [Link; 4] = [
    Link {
        name: "1 Gbit/s",
        rate: GIGABIT,
        freight: "compresses to a third",
        noise: SOME_NOISE,
        part_min: 1.0,
        is_slow: false,
    },
    Link {
        name: "1 Gbit/s",
        rate: GIGABIT,
        freight: FULL,
        noise: NOISE,
        part_min: 0.9,
        is_slow: true,
    },
    Link {
        name: "5 Gbit/s",
        rate: Some(("5gbit", 625.0)),
        freight: FULL,
        noise: NOISE,
        part_min: 0.9,
        is_slow: true,
    },
    Link {
        name: "no limit",
        rate: None,
        freight: FULL,
        noise: NOISE,
        part_min: 0.0,
        is_slow: true,
    },
];

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let links = LINKS.iter().filter(|link| setting.effort.is_whole || !link.is_slow);
    let figures: Result<Vec<_>> = links.map(|link| measure(setting, link)).collect();
    Ok(figures?.into_iter().flatten().collect())
}

/// What was measured one after the other, megabytes a second.
#[derive(Default)]
struct Rates {
    out: Vec<f64>,
    home: Vec<f64>,
    plain: Vec<f64>,
    sealed: Vec<f64>,
}

fn measure(setting: &Setting, link: &Link) -> Result<[Figure; 2]> {
    let stage = Stage::up_over(setting, link.rate.map(|(word, _)| word))?;
    let megabytes = setting.effort.freight_megabytes;
    let freight = setting.programs.path("freight");
    let numbers = [megabytes, link.noise].map(|number| number.to_string());
    let words = ["osmos", "run", "--home", "--", &freight, &numbers[0], &numbers[1]];
    let mut driven = Driven::start(&mut stage.command(1, &words))?;
    let mut plain = Copy::start(setting, &stage, "plain", megabytes)?;
    let mut sealed = Copy::start(setting, &stage, "sealed", megabytes)?;
    let mut rates = Rates::default();
    for _ in 0..setting.effort.freights {
        for (to, moves) in [("2", &mut rates.out), ("home", &mut rates.home)] {
            // What any of the two has seen before would not have to travel.
            let sum = driven.round::<1>(WRITES_ANEW)?;
            let moved = stage.migrate(driven.pid(), to)?;
            ensure!(driven.round::<1>(READS)? == sum, "its memory is not what it was");
            moves.push(f64::from(megabytes) * f64::from(1 << 20) / 1e3 / moved.total_ms);
        }
        rates.plain.push(plain.sending.round::<1>(1)?[0]);
        rates.sealed.push(sealed.sending.round::<1>(1)?[0]);
    }
    driven.end()?;
    Ok([
        figure(&rates, &rates.out, format!("leaving home, {megabytes} MB"), link, link.part_min)?,
        figure(
            &rates,
            &rates.home,
            format!("coming home, {megabytes} MB, all new"),
            link,
            link.part_min,
        )?,
    ])
}

const READS: u64 = 1;
const WRITES_ANEW: u64 = 2;

fn figure(
    rates: &Rates,
    moves: &[f64],
    what: String,
    link: &Link,
    part_min: f64,
) -> Result<Figure> {
    let samples = |values: &[f64]| Samples::new(values.to_vec()).context("no moves");
    let ratios: Vec<f64> =
        moves.iter().zip(&rates.plain).map(|(rate, floor)| rate / floor).collect();
    let what = format!("{what}, {}; link: {}", link.freight, link.name);
    let figure = Figure::new(what, "MB/s", &samples(moves)?)
        .with_paired_floor("plain copy over TCP", &samples(&rates.plain)?, &samples(&ratios)?)
        .with_note(format!("sealed copy {:.0} MB/s", samples(&rates.sealed)?.median()));
    let Some((_, rate)) = link.rate else { return Ok(figure) };
    let is_met = figure.summary.median >= rate * part_min;
    let text = format!("at least {:.0} MB/s, {} % of the link", rate * part_min, part_min * 100.0);
    Ok(figure.with_target(text, is_met))
}

/// As many bytes by one connection.
struct Copy {
    sending: Driven,
    _receiving: Serving,
}

impl Copy {
    fn start(setting: &Setting, stage: &Stage, how: &str, megabytes: u32) -> Result<Copy> {
        let copy = setting.programs.path("copy");
        let receiving = Serving::start(&mut stage.command(2, &[&copy, "listen", how]))?;
        let (address, megabytes) = (stage.address(2), megabytes.to_string());
        let words = [&copy, &address, &receiving.line, how, &megabytes];
        Ok(Copy { sending: Driven::start(&mut stage.command(1, &words))?, _receiving: receiving })
    }
}
