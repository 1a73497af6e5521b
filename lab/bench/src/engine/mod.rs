//! `cargo xtask bench`: what Osmos costs, measured like a user would meet it: by its commands, in a
//! lab of its own.
//!
//! Every figure comes with its spread, and with a *floor* that was measured in the same run on the
//! same machine: native Linux, or the plain exchange over TCP. Promises are made of the ratio,
//! since machines differ and so does one machine from minute to minute. Measured and floor take
//! turns.
//!
//! * [`statistics`]: medians, spreads, intervals; [`figure`]: one result with its target;
//!   [`report`]: the table
//! * [`stage`], [`programs`], [`driven`]: where and what is measured, and how it is driven
//! * [`at_home`], [`away`], [`forward`], [`freeze`], [`migrate`], [`behind`], [`homesick`],
//!   [`throughput`], [`spread`], [`owner`], [`clock`], [`builds`]: the benchmarks; [`parts`]: what
//!   a forwarded call is made of

pub mod at_home;
pub mod away;
pub mod behind;
pub mod builds;
pub mod clock;
pub mod driven;
pub mod effort;
pub mod figure;
pub mod forward;
pub mod freeze;
pub mod homesick;
pub mod migrate;
pub mod owner;
pub mod pairs;
pub mod parts;
pub mod programs;
pub mod report;
pub mod spread;
pub mod stage;
pub mod statistics;
pub mod throughput;

pub use effort::Effort;
pub use report::Report;

use self::programs::Programs;
use anyhow::{Context, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    AtHome,
    Away,
    Forward,
    Freeze,
    Migrate,
    Behind,
    Homesick,
    Throughput,
    Spread,
    Owner,
    Clock,
    Builds,
}

impl Bench {
    pub const ALL: [Bench; 12] = [
        Bench::AtHome,
        Bench::Away,
        Bench::Forward,
        Bench::Freeze,
        Bench::Migrate,
        Bench::Behind,
        Bench::Homesick,
        Bench::Throughput,
        Bench::Spread,
        Bench::Owner,
        Bench::Clock,
        Bench::Builds,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Bench::AtHome => "at-home",
            Bench::Away => "away",
            Bench::Forward => "forward",
            Bench::Freeze => "freeze",
            Bench::Migrate => "migrate",
            Bench::Behind => "behind",
            Bench::Homesick => "homesick",
            Bench::Throughput => "throughput",
            Bench::Spread => "spread",
            Bench::Owner => "owner",
            Bench::Clock => "clock",
            Bench::Builds => "builds",
        }
    }
}

impl FromStr for Bench {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Bench> {
        let names = Bench::ALL.map(Bench::name).join(", ");
        let found = Bench::ALL.into_iter().find(|bench| bench.name() == text);
        found.with_context(|| format!("no benchmark is called {text}; there are {names}"))
    }
}

/// What every benchmark is given.
pub struct Setting {
    pub osmos: PathBuf,
    pub programs: Programs,
    pub effort: Effort,
}

/// What this machine cannot do, and one benchmark is about: the others are done all the same.
#[derive(Debug)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// Runs benchmarks one after another, of this `osmos` or else of the workspace's own, which is
/// built if it is not up to date; `tell` hears what is being done.
pub fn run(
    benches: &[Bench],
    effort: Effort,
    osmos: Option<&Path>,
    tell: &dyn Fn(&str),
) -> Result<Report> {
    let osmos = match osmos {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => {
            let [osmos] = needs::build(["osmos"])?;
            osmos
        }
    };
    let setting = Setting { osmos, programs: Programs::compile()?, effort };
    if benches.contains(&Bench::Throughput) {
        let copy = setting.programs.path("copy");
        let [built] = needs::build(["copy"])?;
        std::fs::copy(built, &copy).with_context(|| copy.clone())?;
    }
    let mut report = Report::begin();
    for bench in benches {
        tell(bench.name());
        let figures = match bench {
            Bench::AtHome => at_home::run(&setting),
            Bench::Away => away::run(&setting),
            Bench::Forward => forward::run(&setting),
            Bench::Freeze => freeze::run(&setting),
            Bench::Migrate => migrate::run(&setting),
            Bench::Behind => behind::run(&setting),
            Bench::Homesick => homesick::run(&setting),
            Bench::Throughput => throughput::run(&setting),
            Bench::Spread => spread::run(&setting),
            Bench::Owner => owner::run(&setting),
            Bench::Clock => clock::run(&setting),
            Bench::Builds => builds::run(&setting),
        };
        match figures {
            Err(error) if error.is::<Skipped>() => report.skip(bench.name(), format!("{error:#}")),
            figures => {
                let figures = figures.with_context(|| format!("benchmark {}", bench.name()))?;
                report.add(bench.name(), figures);
            }
        }
    }
    Ok(report)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn benchmarks_are_found_by_their_names() {
        for bench in Bench::ALL {
            assert_eq!(bench.name().parse::<Bench>().unwrap(), bench);
        }
        let error = "fast".parse::<Bench>().unwrap_err().to_string();
        assert!(error.contains("fast") && error.contains("at-home"), "{error}");
    }
}
