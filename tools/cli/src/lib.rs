//! The command line: definitions, classic names, and what each command prints.
//!
//! A tool like any other: it knows nodes only through `client`. The few things it needs from below
//! come in through [`Platform`].

mod arguments;
mod classic;
mod cluster;
mod commands;
mod config_file;
mod cpu_baseline;
mod daemon_options;
mod exit_code;
mod interrupts;
mod jobs;
mod mpi;
mod naming;
mod output;
mod ownership;
mod platform;
mod processes;
mod progress;
mod running;
mod values;
mod what_if;

pub use arguments::DemoOptions;
pub use commands::daemon::DaemonFiles;
pub use daemon_options::DaemonOptions;
pub use ownership::Switch;
pub use platform::{Inherited, Platform};

use anyhow::Result;
use arguments::{Arguments, Command, ConfigCommand, Question, ServiceCommand};
use clap::Parser;
use client::Client;
use cluster::{ClusterCommand, Ground, UpOptions};
use commands::{
    config, daemon, doctor, foresight, install, job, listings, membership, metrics, mount, moves,
    owner, ping, ps, pvm, report, run, service, time, top, web,
};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use what_if::NodeShape;

/// Carries out one command line, its first word being the name the program was called by.
pub fn main(words: Vec<OsString>, platform: &dyn Platform) -> ExitCode {
    match parse(words) {
        Ok(arguments) => execute(arguments, platform),
        Err(code) => ExitCode::from(code),
    }
}

/// Classic names become `osmos` words first. What cannot be parsed has been told to the user when
/// this fails, with the exit status to use.
fn parse(mut words: Vec<OsString>) -> Result<Arguments, u8> {
    let mut starts_a_command = is_run(words.get(1..).unwrap_or_default());
    if let Some(name) = words.first().and_then(|program| classic::name(program)) {
        starts_a_command = classic::starts_a_command(name);
        match classic::translate(name, &words[1..]) {
            Ok(translated) => {
                words = [OsString::from("osmos")].into_iter().chain(translated).collect();
            }
            Err(refusal) => {
                eprintln!("{refusal}");
                return Err(usage_status(starts_a_command));
            }
        }
    }
    Arguments::try_parse_from(words).map_err(|error| {
        // Help and version are no errors, and printing them to a closed pipe is none of ours.
        let _ = error.print();
        if error.use_stderr() { usage_status(starts_a_command) } else { exit_code::DONE }
    })
}

/// Whether the words behind `osmos` begin with `run`, `time` or `job run`, or with the one option
/// that may stand before any subcommand.
fn is_run(words: &[OsString]) -> bool {
    let words = match words {
        [option, _, words @ ..] if option == "--socket" => words,
        [option, words @ ..] if option.to_string_lossy().starts_with("--socket=") => words,
        words => words,
    };
    match words {
        [job, run, ..] if job == "job" => run == "run",
        [word, ..] => ["run", "r", "time", "rsh"].iter().any(|name| word == name),
        [] => false,
    }
}

/// A wrong `osmos run` must not look like a command that ended with status 2.
fn usage_status(starts_a_command: bool) -> u8 {
    if starts_a_command { exit_code::NOT_STARTED } else { exit_code::USAGE }
}

fn execute(arguments: Arguments, platform: &dyn Platform) -> ExitCode {
    let uid = nix::unistd::geteuid().as_raw();
    let starts_a_daemon = matches!(arguments.command, Command::Up(_) | Command::Daemon(_));
    if let Some(socket) = arguments.daemon.socket.as_ref().filter(|_| starts_a_daemon) {
        eprintln!(
            "osmos: `--socket {}` says where a running daemon is; the socket of a new one is \
             `control.sock` in its `--runtime-dir`",
            socket.display()
        );
        return ExitCode::from(exit_code::USAGE);
    }
    let socket = arguments.daemon.socket.unwrap_or_else(|| client::socket_default(uid));
    match arguments.command {
        Command::Up(options) => daemon::up(&options, platform),
        Command::Daemon(options) => daemon::daemon(&options, platform),
        Command::Run(options) => run::run(&options, &socket, platform),
        Command::Time(options) => time::time(options, &socket, platform),
        Command::Cluster(command) => ended(on_cluster(command, &socket, platform)),
        Command::Demo(options) => platform.demo(&options),
        Command::Lab { words } => platform.lab(words),
        Command::Sim { words } => platform.sim(words),
        Command::Bench { words } => platform.bench(words),
        Command::Doctor(options) => match doctor::doctor(&options, &socket, platform) {
            Ok(true) => ExitCode::from(exit_code::DONE),
            Ok(false) => ExitCode::from(exit_code::FAILED),
            Err(error) => failed(error),
        },
        Command::Links { directory, listing } => ended(install::links(&directory, listing.json)),
        Command::Completions { shell } => ended(install::completions(shell, platform.handed_on())),
        Command::Man { directory, listing } => {
            ended(install::manual(&directory, platform.handed_on(), listing.json))
        }
        Command::Config(ConfigCommand::Check { file, listing }) => {
            ended(config::check(file, listing.json))
        }
        Command::Config(ConfigCommand::Example) => ended(config::example()),
        Command::Service(command) => ended(on_service(command)),
        Command::Top(options) => ended(top::top(&options, &socket)),
        Command::Report(options) => ended(report::report(&options, &socket, platform)),
        Command::Metrics(options) => ended(metrics::metrics(&options, &socket)),
        Command::Web(options) => ended(web::web(&options, &socket)),
        Command::Pvm(command) => ended(pvm::pvm(command, &socket)),
        Command::Rsh(options) => job::rsh(&options, &socket),
        Command::Job(command) => job::job(command, &socket),
        Command::Mount(options) => ended(mount::mount(&options, &socket)),
        Command::Unmount(options) => ended(mount::unmount(&options)),
        Command::Ask(question) => ended(
            ask(question, &socket).map_err(|error| naming::Called::spelled_error(&socket, error)),
        ),
    }
}

fn on_service(command: ServiceCommand) -> Result<()> {
    match command {
        ServiceCommand::Install(listing) => service::install(listing.json),
        ServiceCommand::Uninstall(listing) => service::uninstall(listing.json),
        ServiceCommand::Print { program, user } => service::print(program, user),
    }
}

fn on_cluster(command: ClusterCommand, socket: &Path, platform: &dyn Platform) -> Result<()> {
    let ground = Ground { socket, platform };
    match command {
        ClusterCommand::Up { hosts, address, sudo, listing } => {
            ground.up(&hosts, UpOptions { address, sudo }, listing.json)
        }
        ClusterCommand::Status(listing) => ground.status(listing.json),
        ClusterCommand::Upgrade { hosts, sudo } => ground.upgrade(&hosts, sudo),
        ClusterCommand::Down { hosts, sudo } => ground.down(&hosts, sudo),
    }
}

fn ask(question: Question, socket: &Path) -> Result<()> {
    let mut client = Client::connect(socket)?;
    match question {
        Question::Down(listing) => membership::down(&mut client, listing.json),
        Question::Token(listing) => membership::token(&mut client, listing.json),
        Question::Join { address, token, listing } => {
            membership::join(&mut client, address, token, listing.json)
        }
        Question::Leave(listing) => membership::leave(&mut client, listing.json),
        Question::Forget { node, force, listing } => {
            let node = node.find(&mut client)?;
            membership::forget(&mut client, node, force, listing.json)
        }
        Question::RenewSecret(listing) => membership::renew_secret(&mut client, listing.json),
        Question::Status(listing) => membership::status(&mut client, listing.json),
        Question::Migrate { process, to, freeze_budget, method, listing } => {
            let process = process.find(&mut client)?;
            let to = to.find(&mut client)?;
            moves::migrate(&mut client, process, (to, (freeze_budget, method)), listing.json)
        }
        Question::Adopt { pid, listing } => moves::adopt(&mut client, pid, listing.json),
        Question::Kill { process, signal } => {
            let process = process.find(&mut client)?;
            moves::kill(&mut client, process, signal)
        }
        Question::Ps(options) => ps::ps(&mut client, &options),
        Question::Ping { node, count, listing } => {
            let node = node.find(&mut client)?;
            ping::ping(&mut client, node, count, listing.json)
        }
        Question::Nodes(options) => listings::nodes(&mut client, &options),
        Question::Why { process, listing } => {
            let process = process.find(&mut client)?;
            foresight::why(&mut client, process, listing.json)
        }
        Question::WhatIf(options) => match (options.node, options.process, options.to) {
            (Some(NodeShape { cores, speed, memory_bytes }), ..) => {
                let json = options.listing.json;
                foresight::what_if_node(&mut client, cores, speed, memory_bytes, json)
            }
            (None, Some(process), Some(to)) => {
                let process = process.find(&mut client)?;
                let to = to.find(&mut client)?;
                foresight::what_if(&mut client, process, to, options.listing.json)
            }
            _ => anyhow::bail!("say a process and a node, or `--node` and its shape"),
        },
        Question::Own(order) => {
            let (orders, json) = order.into_parts(&mut client)?;
            owner::order(&mut client, orders, json)
        }
        Question::Events { all: true, follow, json } => {
            listings::events_everywhere(&mut client, follow, json)
        }
        Question::Events { all: false, follow, json } => listings::events(client, follow, json),
    }
}

fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(exit_code::DONE),
        Err(error) => failed(error),
    }
}

/// A reader that has seen enough (`osmos ps | head`) is no failure.
fn failed(error: anyhow::Error) -> ExitCode {
    let pipe_closed = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
    if pipe_closed {
        return ExitCode::from(exit_code::DONE);
    }
    exit_code::report(&error, exit_code::FAILED)
}
