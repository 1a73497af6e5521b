//! `cargo xtask machines`: Osmos between machines with kernels, clocks and processors of their own.

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use conformance::Flavour;
use conformance::machines::ground::{Ground, LAB};
use conformance::machines::machine::Plan;
use conformance::machines::trials::{Choice, Pair};
use conformance::machines::whole;
use std::process::ExitCode;
use std::time::Duration;
use wire::ids::NodeId;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Two machines and few programs: a quarter of an hour
    #[arg(long)]
    short: bool,
    /// Only these pairs of home and away, such as 2:3
    #[arg(long, value_name = "HOME:AWAY", value_delimiter = ',')]
    pair: Vec<Pair>,
    /// Only programs whose name contains this
    #[arg(long, value_name = "PART")]
    filter: Option<String>,
    /// What to do with machines by hand, instead of trying all pairs
    #[command(subcommand)]
    order: Option<Order>,
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Boot machines and leave them up, each with a daemon
    Up {
        /// Kernel, processor and seconds by which the clock is ahead, of each
        #[arg(value_name = "KERNEL[,CPU[,S]]", default_values = ["6.1,max,1000", "6.12,max,-500"])]
        machines: Vec<String>,
        /// Processors of each
        #[arg(long, value_name = "N", default_value_t = 1)]
        processors: u32,
        /// Memory of each
        #[arg(long, value_name = "MIB", default_value_t = 1024)]
        memory: u32,
    },
    /// Run a command in a machine: node 1 is a node of a lab (`osmos lab exec`), machines follow
    Exec {
        node: u32,
        /// As this user, by number
        #[arg(long, value_name = "UID", default_value_t = 0)]
        uid: u32,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Programs of one node in a storm to another, on machines that are up
    Trial {
        /// Home and away, such as 2:3
        pair: Pair,
        /// Only programs whose name contains this
        #[arg(long, value_name = "PART")]
        filter: Option<String>,
        /// Only these flavours: native, home, once, ping-pong, storm
        #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["storm"])]
        flavour: Vec<Flavour>,
        /// Programs at a time
        #[arg(long, value_name = "N", default_value_t = 2)]
        jobs: usize,
        /// How long one program may take in one flavour
        #[arg(long, value_name = "S", default_value_t = 180)]
        limit: u64,
    },
    /// Clocks, or faults, between two nodes that are up
    Check {
        /// Home and away, such as 2:3
        pair: Pair,
        /// Kill daemons for so long, cut links, suspend a machine, instead of looking at clocks
        #[arg(long, value_name = "S")]
        faults: Option<u64>,
        /// How long to look at clocks
        #[arg(long, value_name = "S", default_value_t = 30)]
        seconds: u64,
        /// Moves that there must be meanwhile
        #[arg(long, value_name = "N", default_value_t = 10)]
        moves: u32,
    },
    /// Let no time pass in a machine
    Suspend { node: u32 },
    /// Let a suspended machine go on
    Resume { node: u32 },
    /// Draw the cable between a machine and the cluster
    Cut { node: u32 },
    /// Put the cable back
    Mend { node: u32 },
    /// End all of them
    Down,
}

/// Its exit status may be that of a command in a machine.
pub fn main(arguments: &Arguments) -> ExitCode {
    run(arguments).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let name = LAB.parse()?;
    let machine = |node: &u32| -> Result<conformance::machines::machine::Machine> {
        let found = Ground::open(&name)?.machines.into_iter().find(|own| own.plan.node.0 == *node);
        found.with_context(|| format!("there is no machine {node}"))
    };
    let Some(order) = &arguments.order else {
        let options = whole::Options {
            short: arguments.short,
            pairs: arguments.pair.clone(),
            filter: arguments.filter.clone(),
        };
        let table = whole::run(&options)?;
        print!("{}", table.text());
        return Ok(if table.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    };
    whole::check_programs()?;
    match order {
        Order::Up { machines, processors, memory } => {
            let plans = machines
                .iter()
                .enumerate()
                .map(|(index, words)| plan(index, words, *processors, *memory))
                .collect::<Result<Vec<_>>>()?;
            let ground = Ground::up(&name, &plans, &|what| eprintln!("{what} ..."))?;
            for machine in &ground.machines {
                ground.start_daemon(machine)?;
            }
            ground.keep()?;
        }
        Order::Exec { node, uid, command } => {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            return Ok(ExitCode::from(machine(node)?.remote().exec(*uid, &words)?));
        }
        Order::Trial { pair, filter, flavour, jobs, limit } => {
            let choice = Choice {
                filter: filter.clone(),
                only: None,
                flavours: flavour.clone(),
                jobs: *jobs,
                limit: Duration::from_secs(*limit),
                budget: Duration::MAX,
            };
            let ground = Ground::open(&name)?;
            ground.pair_up(*pair)?;
            let report = ground.try_programs(*pair, &choice, ground.needs_baseline(*pair)?)?;
            print!("{}", report.text());
            return Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Order::Check { pair, faults, seconds, moves } => {
            let ground = Ground::open(&name)?;
            ground.pair_up(*pair)?;
            let checks = match faults {
                Some(storm) => ground.check_faults(*pair, Duration::from_secs(*storm)),
                None => ground.check_clocks(*pair, *seconds, *moves)?,
            };
            print!("{}", conformance::machines::table::checks(&checks));
            let is_success = checks.iter().all(|check| check.outcome.is_ok());
            return Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Order::Suspend { node } => machine(node)?.suspend()?,
        Order::Resume { node } => machine(node)?.resume()?,
        Order::Cut { node } => machine(node)?.set_link(false)?,
        Order::Mend { node } => machine(node)?.set_link(true)?,
        Order::Down => {
            conformance::machines::ground::down(&name)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(index: usize, words: &str, processors: u32, memory_mib: u32) -> Result<Plan> {
    let mut fields = words.split(',');
    let kernel = fields.next().unwrap_or_default().to_string();
    let cpu = fields.next().unwrap_or("max").to_string();
    let ahead = fields.next().unwrap_or("0");
    let clock_ahead_s = ahead.parse().with_context(|| format!("`{ahead}` are no seconds"))?;
    ensure!(fields.next().is_none(), "`{words}` is more than KERNEL,CPU,S");
    let node = NodeId(index as u32 + 2);
    let uid = 1000 * (index as u32 + 1) + 1;
    let user = format!("user{}", node.0);
    Ok(Plan { node, kernel, cpu, processors, memory_mib, clock_ahead_s, user, uid })
}
