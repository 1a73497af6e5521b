//! What the command line is given of the layers below it.

use cli::{DaemonFiles, DaemonOptions, DemoOptions, Inherited, Platform};
use kernel::features::{Features, Without};
use std::ffi::OsString;
use std::process::ExitCode;
use wire::control::Finding;

const BENCH_HELP: &str = "\
Measure Osmos on this machine, in labs of its own

Usage: osmos bench <WHAT> [OPTIONS]

What:
  balance  how well work is spread, against exact optima and the policies of the past
  ssi      speed-up, efficiency, traffic and balancing of a key generator, as Ahmed, Samsudin and
           Ramli measured openMosix in 2009
  os       creation of processes, suspension, streams, start and footprint, as Windows NT, Linux and
           QNX were compared in 2001
  files    files of another node through `osmos mount`, against sshfs
  jobs     files at home that are read away, and how fast jobs begin
  report   one page of what these have written, beside what was published

`osmos bench WHAT --help` says more. What each call and each move costs against native Linux is
measured from the sources: `cargo xtask bench --help`.
";

/// This machine, with everything that Osmos has for it.
pub struct Machine;

/// The commands that only this program itself starts: they come before all parsing, because their
/// arguments are nobody's interface.
pub fn hidden(words: &[OsString]) -> Option<ExitCode> {
    let rest = || words.iter().skip(2).map(|w| w.to_string_lossy().into_owned()).collect();
    match words.get(1).and_then(|word| word.to_str()) {
        Some("deputy") => Some(supervise(deputy::main, rest())),
        Some("body") => Some(supervise(body::main, rest())),
        Some("job-server") => Some(supervise(jobs::main, rest())),
        Some("file-server") => Some(supervise(files::main, rest())),
        _ => lab::hidden_main(words).or_else(|| bench::hidden_main(words)),
    }
}

/// Runs a supervisor. Its standard error goes to the log of the daemon that started it.
fn supervise(main: fn(Vec<String>) -> ExitCode, arguments: Vec<String>) -> ExitCode {
    node::log_to_standard_error();
    main(arguments)
}

impl Platform for Machine {
    fn inherited(&self) -> Inherited {
        Inherited {
            sigpipe_ignored: kernel::inherited::sigpipe_ignored(),
            closed_standard: kernel::inherited::closed_standard(),
        }
    }

    fn refuse_io_uring(&self) -> std::io::Result<()> {
        kernel::seccomp::refuse_io_uring().map_err(|error| error.source)
    }

    fn keep_descriptors(&self) {
        kernel::inherited::keep_descriptors();
    }

    fn findings(&self) -> Vec<Finding> {
        node::findings(&Features::probe(&[]))
    }

    fn daemon_files(&self, options: &DaemonOptions) -> DaemonFiles {
        let config = config(options);
        DaemonFiles {
            socket: config.control_socket(),
            log: config.state_dir.join("daemon.log"),
            state_dir: config.state_dir,
        }
    }

    fn daemon(&self, options: &DaemonOptions) -> ExitCode {
        match tried(options, config(options)) {
            Ok(config) => node::run(config),
            Err(error) => {
                eprintln!("osmos: {error}");
                ExitCode::from(2)
            }
        }
    }

    fn handed_on(&self) -> Vec<clap::Command> {
        vec![lab::definition(), sim::command::definition(), bench::definition()]
    }

    fn demo(&self, options: &DemoOptions) -> ExitCode {
        bench::demo::main(bench::demo::Options { json: options.json, quick: options.quick })
    }

    fn lab(&self, words: Vec<OsString>) -> ExitCode {
        // A lab outlives the command that makes it.
        if words.first().is_some_and(|word| word == "up") {
            kernel::inherited::keep_descriptors();
        }
        lab::main(words)
    }

    fn sim(&self, words: Vec<OsString>) -> ExitCode {
        sim::command::main(named("osmos sim", words))
    }

    fn bench(&self, words: Vec<OsString>) -> ExitCode {
        match words.first().and_then(|word| word.to_str()) {
            Some("balance") => bench::balance::command::main(words),
            Some("os") => bench_command("osmos bench os", words, bench::os::run),
            Some("files") => bench_command("osmos bench files", words, bench::files::run),
            Some("jobs") => bench_command("osmos bench jobs", words, bench::jobs::run),
            Some("report") => bench::sources::main(words),
            Some("ssi") => bench::ssi::main(words),
            Some("--help" | "-h") => match sim::command::print(BENCH_HELP) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            },
            _ => {
                eprint!("osmos bench: say what to measure\n\n{BENCH_HELP}");
                ExitCode::from(2)
            }
        }
    }
}

/// What a daemon is told only to see how it does with it.
fn tried(
    options: &DaemonOptions,
    config: node::Config,
) -> Result<node::Config, Box<dyn std::error::Error>> {
    let without: Vec<Without> =
        options.without.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let policy = options.policy.as_deref().map(bench::balance::policy::Policy::config_of_word);
    let brain = policy.transpose()?.unwrap_or(config.brain);
    Ok(node::Config { without, brain, ..config })
}

/// The words of a command line, its name first.
fn named(name: &str, words: Vec<OsString>) -> Vec<OsString> {
    std::iter::once(OsString::from(name)).chain(words).collect()
}

/// The user's defaults, where an option does not say otherwise.
fn config(options: &DaemonOptions) -> node::Config {
    let defaults = node::Config::for_user();
    let patience = options.succession_patience.map(std::time::Duration::from_secs);
    node::Config {
        runtime_dir: options.runtime_dir.clone().unwrap_or(defaults.runtime_dir),
        state_dir: options.state_dir.clone().unwrap_or(defaults.state_dir),
        listen: options.listen.unwrap_or(defaults.listen),
        advertise: options.advertise,
        map: options.map.clone(),
        node: options.node_id,
        cluster_key: options.cluster_key.clone(),
        name: options.name.clone(),
        speed: options.speed,
        guests_max: options.guests_max,
        guests_per_user_max: options.guests_per_user,
        storms_per_user_max: options.storms_per_user,
        guest_memory_max_bytes: options.guest_memory_max,
        freeze_budget: options.freeze_budget,
        move_bandwidth: options.move_bandwidth,
        move_processors: options.move_processors,
        guest_cgroup: options.guest_cgroup.clone(),
        makes_guest_cgroup: options.guest_cgroup.is_empty(),
        guest_users: options.guest_users.clone(),
        lends_root: options.lend_root.map(|switch| switch == cli::Switch::On),
        lends_to: options.lend_to.clone(),
        files: options.share_files.map(Into::into),
        jobs: options.share_jobs.map(|switch| switch == cli::Switch::On),
        record: options.record.clone(),
        succession_patience: patience.unwrap_or(defaults.succession_patience),
        cpu_baseline: options.cpu_baseline,
        ..defaults
    }
}

/// A benchmark that returns what is to be printed.
fn bench_command<O: clap::Parser>(
    name: &str,
    words: Vec<OsString>,
    run: fn(&O) -> anyhow::Result<String>,
) -> ExitCode {
    sim::command::execute(name, words, |options| Ok(sim::command::print(&run(options)?)?))
}
