//! The results for people: tables, plots, and the paper's own figures beside them.

use crate::balance::plot::{self, Series};
use crate::provenance::Provenance;
use crate::ssi::managers;
use crate::ssi::results::{NATIVE, Point, Results};
use anyhow::Result;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// What the paper says in words; its other figures are plots without numbers.
const PAPER: &str = "\
The paper: eight nodes of one Pentium 4 of 1.6 GHz, openMosix on Linux 2.4.26, 100 Mbit/s. Speed-up
4.37 and efficiency 87.58 % at five nodes, falling from there; little gain with more. The improved
load vector takes 50 s less at eight nodes. Traffic of the home node grows by about a half with each
node. The time until the load is balanced grows with the nodes. A migration costs about the same on
any number of nodes.
";

/// Writes `ssi.md`, `ssi.json` and the plots.
pub fn write(directory: &Path, results: &Results) -> Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("ssi.json"), serde_json::to_string_pretty(results)? + "\n")?;
    let page = format!(
        "# A single system image, measured as in 2009\n\n\
         Written by `osmos bench ssi --report DIR`. {}\n\n{}{}",
        Provenance::of_runs(results.runs.iter().map(|run| run.made.as_ref())),
        text(results),
        pictures(results)
    );
    for (name, _, plot) in plots(results) {
        fs::write(directory.join(file_name(name)), plot)?;
    }
    fs::write(directory.join("ssi.md"), page)?;
    Ok(())
}

fn file_name(plot: &str) -> String {
    format!("ssi-{plot}.svg")
}

/// The plots that [`write`] has written, for a page beside them.
pub fn pictures(results: &Results) -> String {
    let plots = plots(results).into_iter();
    plots.map(|(name, title, _)| format!("\n![{title}]({})\n", file_name(name))).collect()
}

/// All tables.
pub fn text(results: &Results) -> String {
    let settings = &results.settings;
    let mut text = format!(
        "{} RSA key pairs of 1024 bits by {} forked children of one program, started on node 1; \
         seed {}.\nNodes have {:.1} % of a processor each. Efficiency is against one node without \
         Osmos; \"possible\" is\nwhat a schedule can reach that knows all, given the longest \
         child of the native run: a run whose\nchildren take less, each on a node of its own, can \
         pass it. \"Charged\": had the nodes paid for what daemons, supervisors\nand copies used, \
         which is measured beside their quotas.\n",
        settings.keys,
        settings.children,
        settings.seed,
        100.0 * processor_share(settings.of_nodes),
    );
    if let Some(alone_s) = results.alone_s() {
        let _ = writeln!(text, "One node without Osmos: {alone_s:.1} s.");
        let native = results.points(NATIVE);
        let work_s = native.first().map_or(0.0, |point| point.work_s);
        let _ = writeln!(
            text,
            "\"Work\" is the processor time that was used, in seconds of a node; natively \
             {work_s:.0}. Where it is\nmore, neighbours have slowed the processors down, or Osmos \
             has cost it: it is not taken out of\nthe figures."
        );
    }
    text.push_str(
        "\n| policy | nodes | runs | run time, s | work, s | speed-up | efficiency, % | \
         charged, % | possible, % | home traffic, KiB | migrations | balanced after, s |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for manager in managers(results).into_iter().filter(|manager| *manager != NATIVE) {
        for point in results.points(manager) {
            text.push_str(&line(manager, &point));
        }
    }
    text.push_str(&use_of_processors(results));
    text.push_str(&overheads(results));
    let _ = write!(text, "\n{PAPER}");
    text
}

/// Of one of so many nodes that share the half of this machine.
fn processor_share(of_nodes: u32) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    cores / 2.0 / f64::from(of_nodes.max(1))
}

fn line(manager: &str, point: &Point) -> String {
    let spread = match point.runs {
        0 | 1 => String::new(),
        _ => format!(" ± {:.1}", point.run_s_spread / 2.0),
    };
    let balanced = point.balanced_after_s.map_or("–".into(), |after_s| format!("{after_s:.1}"));
    format!(
        "| {manager} | {} | {} | {:.1}{spread} | {:.0} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} \
         | {:.1} | {balanced} |\n",
        point.nodes,
        point.runs,
        point.run_s,
        point.work_s,
        point.speed_up,
        point.efficiency_pct,
        point.efficiency_charged_pct,
        point.efficiency_pct_max,
        point.home_kib,
        point.migrations,
    )
}

/// The first run of each kind is enough to see who had nothing to do.
fn use_of_processors(results: &Results) -> String {
    let mut text = String::from("\nUse of each node's processor in the first run, %:\n\n");
    for manager in managers(results) {
        for point in results.points(manager) {
            let mut runs = results.runs.iter();
            let first = runs.find(|run| run.manager == manager && run.nodes == point.nodes);
            let used = first.map_or(&[][..], |run| &run.used_pct).iter();
            let used: Vec<String> = used.map(|pct| format!("{pct:.0}")).collect();
            let _ = writeln!(text, "- {manager}, {} nodes: {}", point.nodes, used.join(" "));
        }
    }
    text
}

fn overheads(results: &Results) -> String {
    if results.overheads.is_empty() {
        return String::new();
    }
    let settings = &results.settings;
    let mut text = format!(
        "\nA program that computes for {:.0} s, started at home and migrated once, against the \
         same at home;\nloaded: beside {} children of the workload.\n\n\
         | nodes | load | at home, s | migrated, s | cost, ms | move, ms | frozen, ms |\n\
         |---:|---|---:|---:|---:|---:|---:|\n",
        settings.cycle_s, settings.load_children
    );
    for overhead in &results.overheads {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {:.2} | {:.0} | {:.1} | {:.1} |",
            overhead.nodes,
            if overhead.is_loaded { "loaded" } else { "idle" },
            overhead.native_s,
            overhead.moved_s,
            overhead.cost_ms(),
            overhead.total_ms_mean,
            overhead.freeze_ms_mean,
        );
    }
    text
}

/// Name, title and picture.
fn plots(results: &Results) -> Vec<(&'static str, &'static str, String)> {
    let series = |of: fn(&Point) -> Option<f64>| -> Vec<Series> {
        let named = managers(results).into_iter().filter(|manager| *manager != NATIVE);
        named
            .map(|manager| {
                let points = results.points(manager);
                let points = points.iter().filter_map(|p| Some((f64::from(p.nodes), of(p)?)));
                Series { name: manager.to_owned(), points: points.collect() }
            })
            .filter(|series| !series.points.is_empty())
            .collect()
    };
    let lines = |title: &'static str, y: &str, of: fn(&Point) -> Option<f64>| {
        plot::lines(title, "nodes", y, &series(of))
    };
    type Value = fn(&Point) -> Option<f64>;
    let kinds: [(&str, &str, &str, Value); 5] = [
        ("run-time", "Run time", "s", |point| Some(point.run_s)),
        ("speed-up", "Speed-up", "", |point| Some(point.speed_up)),
        ("efficiency", "Efficiency", "%", |point| Some(point.efficiency_pct)),
        ("traffic", "Traffic of the home node", "KiB", |point| Some(point.home_kib)),
        ("balanced", "Time until the load is balanced", "s", |point| point.balanced_after_s),
    ];
    let mut plots: Vec<(&str, &str, String)> =
        kinds.map(|(name, title, y, of)| (name, title, lines(title, y, of))).into();
    if !results.overheads.is_empty() {
        let title = "What one migration costs";
        let of = |is_loaded: bool| {
            let matching = results.overheads.iter().filter(|made| made.is_loaded == is_loaded);
            matching.map(|made| (f64::from(made.nodes), made.cost_ms().max(0.0))).collect()
        };
        let series = [
            Series { name: "idle".into(), points: of(false) },
            Series { name: "loaded".into(), points: of(true) },
        ];
        plots.push(("migration", title, plot::lines(title, "nodes", "ms", &series)));
    }
    plots
}
