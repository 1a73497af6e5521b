//! `what-if` and `why`: what a move would bring, and what moves have brought.

use super::unexpected;
use crate::naming::Called;
use crate::output::{self, Align, Cell, Table};
use crate::processes::ProcessName;
use anyhow::Result;
use client::Client;
use wire::control::{Decision, Process, Reply, Request};
use wire::forecast::{Forecast, NodeForecast, PastMove, Place, Weighed};
use wire::ids::NodeId;

/// Of a command line, in a sentence.
const COMMAND_CHARS_MAX: usize = 60;

pub fn what_if(client: &mut Client, process: ProcessName, to: NodeId, json: bool) -> Result<()> {
    let forecast = match client.request(&process.ask(|pid| Request::WhatIf { pid, to }))? {
        Reply::Forecast(forecast) => forecast,
        other => return Err(unexpected(&other)),
    };
    if json {
        output::print_json(&forecast)?;
    } else {
        let (numbers, verdict) = forecast_sentences(&forecast);
        let called = Called::asked(client);
        output::print_line(&output::printable(&called.spelled(&numbers)))?;
        output::print_line(&output::printable(&called.spelled(&verdict)))?;
    }
    Ok(())
}

pub fn what_if_node(
    client: &mut Client,
    cores: u32,
    speed: f64,
    memory_bytes: u64,
    json: bool,
) -> Result<()> {
    let request = Request::WhatIfNode { cores, speed, memory_bytes };
    let forecast = match client.request(&request)? {
        Reply::NodeForecast(forecast) => forecast,
        other => return Err(unexpected(&other)),
    };
    if json {
        output::print_json(&forecast)?;
        return Ok(());
    }
    output::print_line(&node_sentence(&forecast))?;
    for handed_over in &forecast.handed_over {
        output::print_line(&format!("  {}", rates_sentence(handed_over)))?;
    }
    Ok(())
}

pub fn why(client: &mut Client, process: ProcessName, json: bool) -> Result<()> {
    let reply = client.request(&process.ask(|pid| Request::Why { pid }))?;
    let Reply::Why { process, decisions, now, moves } = &reply else {
        return Err(unexpected(&reply));
    };
    if json {
        let shown = serde_json::json!({
            "process": process, "decisions": decisions, "now": now, "moves": moves,
        });
        output::print_json(&shown)?;
    } else if let Some(text) = why_text(&reply, &Called::asked(client), output::colours_wanted()) {
        output::print_text(&text)?;
    }
    Ok(())
}

/// Where a process is and why; none of another reply.
pub fn why_text(reply: &Reply, called: &Called, with_colours: bool) -> Option<String> {
    let Reply::Why { process, decisions, now, moves } = reply else { return None };
    let mut text = place_sentence(process, called) + "\n";
    let last = decisions.iter().rev().find_map(|decision| decision.weighed.as_ref());
    if let Some(weighed) = now.as_ref().or(last) {
        let when = if now.is_some() { "now" } else { "at the last decision" };
        let rate = weighed.rate_here;
        text += &format!("\nplaces {when}; each of its threads gets {rate:.2} here\n");
        text += &place_table(weighed, called).render(with_colours);
    }
    if !moves.is_empty() {
        text += "\nmoves, with the progress measured before and after\n";
        text += &move_table(moves, called).render(with_colours);
    }
    text += "\ndecisions\n";
    text += &decision_table(decisions, called).render(with_colours);
    Some(text)
}

/// `4711 (awk) of node 1 (alpha) is on node 3 (delta): node 3 is faster`
fn place_sentence(process: &Process, called: &Called) -> String {
    output::printable(&format!(
        "{} ({}) of {} is on {}: {}",
        process.pid,
        shortened(process.shown_command()),
        called.node(process.home),
        called.node(process.node),
        called.spelled(&process.reason)
    ))
}

/// A command line may be a whole script.
fn shortened(command: &str) -> String {
    match command.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

fn payback(forecast: &Forecast) -> String {
    match forecast.payback_ms {
        Some(ms) => format!("paid back after {:.0} ms", ms),
        None => "never paid back".to_owned(),
    }
}

/// `4711: 0.50 here, 1.00 there; moved in 1.2s, frozen for 25 ms, paid back after 25 ms`
fn rates_sentence(forecast: &Forecast) -> String {
    format!(
        "{}: {:.2} here, {:.2} there; moved in {}, frozen for {:.0} ms, {}",
        forecast.pid,
        forecast.rate_before,
        forecast.to.rate,
        output::seconds(forecast.total_ms / 1e3),
        forecast.freeze_ms,
        payback(forecast)
    )
}

/// The numbers of a hypothetical move, and the verdict.
pub fn forecast_sentences(forecast: &Forecast) -> (String, String) {
    let Place { node, runnable, cores, speed, info_age_s, but, .. } = &forecast.to;
    let to = node.map_or_else(|| "a new node".to_owned(), |node| format!("node {node}"));
    let numbers = format!(
        "from node {} to {to} ({runnable:.1} runnable on {cores} cores of speed {speed:.2}, known \
         {} ago), {}",
        forecast.from,
        output::seconds(*info_age_s),
        rates_sentence(forecast),
    );
    let verdict = match but {
        None => "it would be moved there".to_owned(),
        Some(but) => format!("it is not moved there by itself: {but}"),
    };
    (numbers, verdict)
}

fn node_sentence(forecast: &NodeForecast) -> String {
    let NodeForecast { cores, speed, handed_over, .. } = forecast;
    let processes = output::counted(handed_over.len() as u64, "process", "processes");
    format!(
        "a node with {cores} cores of speed {speed:.2} would be given {processes}; here {:.1} \
         runnable threads become {:.1}, and each gets {:.2} instead of {:.2}",
        forecast.runnable_before,
        forecast.runnable_after,
        forecast.rate_after,
        forecast.rate_before
    )
}

fn place_table(weighed: &Weighed, called: &Called) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("RATE", Align::Right),
        ("RUNNABLE", Align::Right),
        ("CORES", Align::Right),
        ("SPEED", Align::Right),
        ("AGE", Align::Right),
        ("VERDICT", Align::Left),
    ]);
    for place in &weighed.places {
        table.row(vec![
            Cell::new(place.node.map_or_else(|| "-".to_owned(), |node| called.short(node))),
            Cell::new(format!("{:.2}", place.rate)),
            Cell::new(format!("{:.1}", place.runnable)),
            Cell::new(place.cores.to_string()),
            Cell::new(format!("{:.2}", place.speed)),
            Cell::new(output::seconds(place.info_age_s)),
            Cell::new(called.spelled(place.but.as_deref().unwrap_or("it goes"))),
        ]);
    }
    table
}

fn move_table(moves: &[PastMove], called: &Called) -> Table {
    let mut table = Table::new(&[
        ("TIME", Align::Left),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("BY", Align::Left),
        ("FREEZE", Align::Right),
        ("EXPECTED", Align::Right),
        ("BEFORE", Align::Right),
        ("AFTER", Align::Right),
        ("GAIN", Align::Right),
    ]);
    let shown =
        |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}"));
    for made in moves {
        table.row(vec![
            Cell::new(output::clock(made.time)),
            Cell::new(called.short(made.from)),
            Cell::new(called.short(made.to)),
            Cell::new(&made.cause),
            Cell::new(format!("{:.1}ms", made.freeze_ms)),
            Cell::new(shown(made.rate_expected)),
            Cell::new(shown(made.rate_before)),
            Cell::new(shown(made.rate_after)),
            Cell::new(made.gain.map_or_else(|| "-".to_owned(), |gain| format!("{gain:.2}x"))),
        ]);
    }
    table
}

fn decision_table(decisions: &[Decision], called: &Called) -> Table {
    let mut table =
        Table::new(&[("TIME", Align::Left), ("VERDICT", Align::Left), ("REASON", Align::Left)]);
    for decision in decisions {
        table.row(vec![
            Cell::new(output::clock(decision.time)),
            Cell::new(&decision.verdict),
            Cell::new(called.spelled(&decision.reason)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::ps::tests::process;
    use crate::naming::tests::{Told, listed_node};

    fn forecast(but: Option<&str>, payback_ms: Option<f64>) -> Forecast {
        Forecast {
            pid: 4711,
            home: NodeId(1),
            from: NodeId(1),
            to: Place {
                node: Some(NodeId(3)),
                rate: 1.0,
                runnable: 0.0,
                cores: 2,
                speed: 1.0,
                info_age_s: 0.2,
                but: but.map(str::to_owned),
            },
            rate_before: 0.5,
            freeze_ms: 25.0,
            total_ms: 1_200.0,
            freeze_error_ms: None,
            cpu_s: 3.0,
            payback_ms,
        }
    }

    #[test]
    fn a_hypothetical_move_is_told_with_its_numbers_and_the_verdict() {
        let (numbers, verdict) = forecast_sentences(&forecast(None, Some(25.0)));
        assert_eq!(
            numbers,
            "from node 1 to node 3 (0.0 runnable on 2 cores of speed 1.00, known 0.2s ago), 4711: \
             0.50 here, 1.00 there; moved in 1.2s, frozen for 25 ms, paid back after 25 ms"
        );
        assert_eq!(verdict, "it would be moved there");
        let refused = forecast(Some("its user placed it here"), None);
        let (numbers, verdict) = forecast_sentences(&refused);
        assert!(numbers.ends_with("never paid back"), "{numbers}");
        assert!(verdict.ends_with("by itself: its user placed it here"), "{verdict}");
    }

    #[test]
    fn a_place_is_told_with_the_names_of_its_nodes() {
        let command = "a\nwk".into();
        let process = Process { command, command_line: None, ..process() };
        let nodes = vec![listed_node(1, None), listed_node(3, Some("delta"))];
        let called = Called::asked(&mut Told { nodes, questions: 1 });
        let text = place_sentence(&process, &called);
        assert_eq!(text, "4711 (a?wk) of node 1 is on node 3 (delta): node 3 (delta) is faster");
        let long = Process { command_line: Some("ä".repeat(61)), ..process };
        let text = place_sentence(&long, &called);
        assert!(text.starts_with(&format!("4711 ({}…) of node 1", "ä".repeat(60))), "{text}");
    }

    #[test]
    fn a_move_shows_what_was_expected_and_what_was_measured() {
        let made = PastMove {
            time: 50_607.12,
            from: NodeId(1),
            to: NodeId(2),
            cause: "balance".into(),
            freeze_ms: 4.2,
            rate_expected: Some(1.0),
            rate_before: Some(0.5),
            rate_after: None,
            measured_s: 0.0,
            gain: None,
        };
        let gained = PastMove { rate_after: Some(0.98), gain: Some(1.96), ..made.clone() };
        let text = move_table(&[made, gained], &Called::nobody()).render(false);
        let words = |nth| -> Vec<&str> {
            text.lines().nth(nth).expect("a row").split_whitespace().collect()
        };
        assert_eq!(words(1)[3..], ["balance", "4.2ms", "1.00", "0.50", "-", "-"]);
        assert_eq!(words(2)[3..], ["balance", "4.2ms", "1.00", "0.50", "0.98", "1.96x"]);
    }
}
