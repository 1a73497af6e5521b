//! Every benchmark works, in as little time as shows it. What it measures then means little, so
//! only what noise cannot change is checked.

use bench::engine::figure::Figure;
use bench::engine::{Bench, Effort, Report};

/// Those that can be run here.
fn benches() -> Vec<Bench> {
    let of_awk = [Bench::Spread, Bench::Owner];
    if needs::has("awk") {
        return Bench::ALL.to_vec();
    }
    needs::skip_part("the benchmarks spread and owner", &needs::lack("awk"));
    Bench::ALL.into_iter().filter(|bench| !of_awk.contains(bench)).collect()
}

fn measured(benches: &[Bench]) -> Option<Report> {
    match bench::engine::run(benches, Effort::quick(), None, &|_| {}) {
        Ok(report) => Some(report),
        Err(error) if error.is::<lab::NoLab>() => {
            needs::skip(&format!("{error:#}"));
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn every_benchmark_has_figures_with_floors_and_targets() {
    let benches = benches();
    let Some(report) = measured(&benches) else { return };
    println!("{}", report.text());
    assert_eq!(report.benches.len(), benches.len());
    if !needs::has("valgrind") {
        needs::skip_part("instructions at home", &needs::lack("valgrind"));
    }
    for results in &report.benches {
        let (name, figures) = (results.bench, &results.figures);
        if let Some(why) = &results.skipped {
            needs::skip_part(name, why);
            continue;
        }
        assert!(figures.iter().any(|figure| figure.target.is_some()), "{name}");
        for figure in figures {
            // A program may get nothing at all in its worst moment.
            let is_share = figure.unit == "%";
            assert!(is_share || figure.summary.median > 0.0, "{name}: {figure:?}");
            assert!(figure.ratio.is_none_or(|ratio| ratio.median > 0.0), "{name}: {figure:?}");
        }
        if let Some(counted) = figures.iter().find(is_of_instructions) {
            let is_equal = counted.target.as_ref().is_some_and(|target| target.is_met);
            assert!(is_equal, "{counted:?}");
        }
    }
}

fn is_of_instructions(figure: &&Figure) -> bool {
    figure.what.starts_with("instructions")
}
