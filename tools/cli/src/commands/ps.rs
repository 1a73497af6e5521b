//! `ps`: the processes of this node or of all nodes, for people or (`--json`) for programs.

use super::unexpected;

use crate::naming::Called;
use crate::output::{self, Align, Cell, Colour, Table};
use crate::processes::{PsKey, PsOptions};
use crate::progress;
use anyhow::{Result, bail};
use client::{Client, Gathered};
use std::cmp::Ordering;
use wire::control::{Process, Reply, Request};
use wire::ids::{GlobalPid, NodeId};

/// Clears the terminal, and what has scrolled out of it is left alone.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn ps(client: &mut Client, options: &PsOptions) -> Result<()> {
    let node = options.node.as_ref().map(|node| node.find(client)).transpose()?;
    let job = match &options.job {
        Some(job) => {
            let here = super::membership::ask_status(client)?.node;
            Some(job.find(client)?.global(here))
        }
        None => None,
    };
    let wanted = Wanted { options, node, job };
    let Some(pause) = options.watch else { return show(client, &wanted, "") };
    let clear = if output::is_terminal() && !options.listing.json { CLEAR } else { "" };
    loop {
        show(client, &wanted, clear)?;
        std::thread::sleep(pause);
    }
}

/// What was asked for, by numbers.
struct Wanted<'a> {
    options: &'a PsOptions,
    node: Option<NodeId>,
    job: Option<GlobalPid>,
}

fn show(client: &mut Client, wanted: &Wanted, before: &str) -> Result<()> {
    let options = wanted.options;
    let gathered = match options.all {
        true => {
            let words = ("asking all nodes", "it was only asked");
            progress::during(words, options.listing.json, || client.processes_everywhere())??
        }
        false => match client.request(&Request::Processes)? {
            Reply::Processes { processes } => Gathered { processes, silent: Vec::new() },
            other => return Err(unexpected(&other)),
        },
    };
    let mut processes = gathered.processes;
    processes.retain(|process| wanted.has(process));
    processes.sort_by(|one, other| order(options.sort, one, other));
    if options.reverse {
        processes.reverse();
    }
    match options.listing.json {
        true => output::print_json(&processes)?,
        false => {
            let table = table(&processes, &Called::asked(client));
            output::print_text(&(before.to_owned() + &table))?;
        }
    }
    if !gathered.silent.is_empty() {
        let why: Vec<&str> =
            gathered.silent.iter().map(|(_, failure)| failure.text.as_str()).collect();
        let text = format!("not all processes are known: {}", why.join("; "));
        let text = if options.listing.json { text } else { Called::asked(client).spelled(&text) };
        if options.watch.is_none() {
            bail!(text);
        }
        eprintln!("osmos: {}", output::printable(&text));
    }
    Ok(())
}

impl Wanted<'_> {
    fn has(&self, process: &Process) -> bool {
        let Wanted { options, node, job } = self;
        let is_users = |user: &String| {
            process.user.as_ref() == Some(user)
                || process.uid.is_some_and(|uid| *user == uid.to_string())
        };
        options.user.as_ref().is_none_or(is_users)
            && node.is_none_or(|node| process.node == node)
            && job.is_none_or(|job| process.job == Some(job))
            && options.state.as_ref().is_none_or(|state| process.state == *state)
            && options.command.as_ref().is_none_or(|text| process.shown_command().contains(text))
    }
}

/// Who uses most comes first, else the lowest.
fn order(key: PsKey, one: &Process, other: &Process) -> Ordering {
    let by = match key {
        PsKey::Pid => Ordering::Equal,
        PsKey::Home => one.home.cmp(&other.home),
        PsKey::Node => one.node.cmp(&other.node),
        PsKey::User => user_of(one).cmp(&user_of(other)),
        PsKey::Cpu => other.cpu_s.total_cmp(&one.cpu_s),
        PsKey::Memory => other.rss_bytes.cmp(&one.rss_bytes),
        PsKey::Moves => other.migrations.cmp(&one.migrations),
        PsKey::Command => one.shown_command().cmp(other.shown_command()),
    };
    by.then((one.home, one.pid).cmp(&(other.home, other.pid)))
}

/// By name where it has one at its home.
fn user_of(process: &Process) -> String {
    let number = || process.uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
    process.user.clone().unwrap_or_else(number)
}

fn table(processes: &[Process], called: &Called) -> String {
    let mut table = Table::new(&[
        ("PID", Align::Right),
        ("HOME", Align::Left),
        ("NODE", Align::Left),
        ("USER", Align::Left),
        ("STATE", Align::Left),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("MOVES", Align::Right),
        ("REASON", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for process in processes {
        let node = called.short(process.node);
        let away = process.node != process.home;
        table.row(vec![
            Cell::new(process.pid.to_string()),
            Cell::new(called.short(process.home)),
            Cell::coloured(node, if away { Colour::Green } else { Colour::Plain }),
            Cell::new(user_of(process)),
            Cell::new(&process.state),
            Cell::new(output::seconds(process.cpu_s)),
            Cell::new(output::bytes(process.rss_bytes)),
            Cell::new(process.migrations.to_string()),
            Cell::new(called.spelled(&process.reason)),
            Cell::new(process.shown_command()),
        ]);
    }
    table.render(output::colours_wanted())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command, Question};
    use crate::naming::NodeChoice;
    use crate::naming::tests::unasked;
    use clap::Parser;
    use std::time::Duration;
    use wire::ids::HomePid;

    pub fn process() -> Process {
        Process {
            pid: 4711,
            home: NodeId(1),
            node: NodeId(3),
            state: "running".into(),
            command: "python3".into(),
            cpu_s: 3.25,
            rss_bytes: 1 << 20,
            migrations: 2,
            last_move: None,
            reason: "node 3 is faster".into(),
            uid: Some(1000),
            user: Some("anna".into()),
            command_line: Some("python3 evil\x1b[31m.py".into()),
            parent: Some(1),
            threads: Some(1),
            job: Some(GlobalPid { home: NodeId(1), pid: HomePid(12) }),
        }
    }

    fn options(words: &str) -> PsOptions {
        let words = ["osmos", "ps"].into_iter().chain(words.split_whitespace());
        match Arguments::try_parse_from(words).expect("good words").command {
            Command::Ask(Question::Ps(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_shows_whose_it_is_where_it_is_and_why() {
        let text = table(&[process()], &Called::nobody());
        let row = text.lines().nth(1).expect("a row");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..8], ["4711", "1", "3", "anna", "running", "3.2s", "1.0M", "2"]);
        assert!(row.ends_with("node 3 is faster  python3 evil?[31m.py"), "{row}");
    }

    #[test]
    fn only_what_is_asked_for_is_shown() {
        let is_shown = |words| {
            let options = options(words);
            let node = options.node.clone().map(|node| match node {
                NodeChoice::Number(node) => node,
                NodeChoice::Name(name) => panic!("{name}"),
            });
            let job = options.job.clone().map(|job| {
                let job = job.find(&mut unasked()).expect("a number");
                job.global(NodeId(1))
            });
            Wanted { options: &options, node, job }.has(&process())
        };
        for words in [
            "",
            "--user anna",
            "--user 1000",
            "--node 3",
            "--state running",
            "--command evil --user anna",
            "--job 12",
            "--job 1:12",
        ] {
            assert!(is_shown(words), "{words}");
        }
        for words in [
            "--user ann",
            "--user 100",
            "--node 1",
            "--state pinned",
            "--command awk",
            "--command evil --user bert",
            "--job 13",
            "--job 2:12",
        ] {
            assert!(!is_shown(words), "{words}");
        }
    }

    #[test]
    fn who_uses_most_comes_first_and_equals_have_one_order() {
        let other = Process { pid: 7, cpu_s: 9.0, rss_bytes: 1, migrations: 2, ..process() };
        let first = |key| match order(key, &process(), &other) {
            Ordering::Less => 4711,
            _ => 7,
        };
        assert_eq!([PsKey::Pid, PsKey::Cpu, PsKey::Memory].map(first), [7, 7, 4711]);
        assert_eq!([PsKey::Moves, PsKey::User, PsKey::Command].map(first), [7, 7, 7]);
    }

    #[test]
    fn a_pause_is_a_number_of_seconds() {
        let seconds = |count| Some(Duration::from_secs_f64(count));
        assert_eq!(options("").watch, None);
        assert_eq!(
            (options("--watch").watch, options("-w=0.5").watch),
            (seconds(1.0), seconds(0.5))
        );
        for word in ["--watch=0", "--watch=-1", "--watch=x", "--watch=inf", "--watch=1e9"] {
            assert!(Arguments::try_parse_from(["osmos", "ps", word]).is_err(), "{word}");
        }
    }
}
