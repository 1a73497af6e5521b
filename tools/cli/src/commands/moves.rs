//! `migrate`, `adopt` and `kill`: what one process is told to do.

use crate::exit_code;
use crate::interrupts::{Interrupts, News};
use crate::naming::Called;
use crate::output;
use crate::processes::ProcessName;
use crate::progress::{self, Shown};
use anyhow::Result;
use client::Client;
use wire::control::{Destination, Migration, Reply, Request};
use wire::freeze_budget::FreezeBudget;
use wire::limits::PAGE_BYTES;
use wire::supervisor::{Filled, Way};

use super::unexpected;

/// Moves a process, shows how far that is, and calls it off at the first ^C.
pub fn migrate(
    client: &mut Client,
    process: ProcessName,
    (to, how): (Destination, (Option<FreezeBudget>, Option<Way>)),
    json: bool,
) -> Result<()> {
    let interrupts = Interrupts::taken()?;
    let mut shown = Shown::for_move(process.pid, json);
    client.begin_move((process.node, process.pid), to, how)?;
    let mut is_off = false;
    let reply = loop {
        let news = match client.has_more() {
            true => News::Readable,
            false => interrupts.next(Some(client), shown.tick())?,
        };
        match news {
            News::Nothing => shown.draw(),
            News::Readable => match client.receive() {
                Ok(Reply::Progress(progress)) => shown.show(progress),
                reply => break reply,
            },
            News::Interrupt => {
                if is_off {
                    interrupts.obey()?;
                }
                progress::aside(|| eprintln!("osmos: calling the move of {process} off"));
                client.call_off()?;
                is_off = true;
            }
        }
    };
    drop(shown);
    let told = match reply {
        Ok(Reply::Migrated(migration)) => tell(client, &migration, json),
        Ok(other) => Err(unexpected(&other)),
        Err(error) => Err(error.into()),
    };
    if is_off {
        if let Err(error) = told {
            exit_code::report(&error, exit_code::FAILED);
        }
        // Whoever waits for this command learns that it was interrupted.
        return interrupts.obey();
    }
    told
}

fn tell(client: &mut Client, migration: &Migration, json: bool) -> Result<()> {
    match json {
        true => output::print_json(migration)?,
        false => {
            // One that called the move off asks for nothing more by this connection.
            let called = client
                .another()
                .map_or_else(|_| Called::nobody(), |mut client| Called::asked(&mut client));
            output::print_line(&called.spelled(&sentence(migration)))?;
        }
    }
    Ok(())
}

pub fn adopt(client: &mut Client, pid: i32, json: bool) -> Result<()> {
    match client.request(&Request::Adopt { pid, options: None, job: None })? {
        Reply::Done | Reply::Managed { .. } => {
            output::confirm(json, || serde_json::json!({ "done": true, "pid": pid }))
        }
        other => Err(unexpected(&other)),
    }
}

pub fn kill(client: &mut Client, process: ProcessName, signal: i32) -> Result<()> {
    match client.request(&process.ask(|pid| Request::Signal { pid, signal }))? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// `4711 moved from node 1 to node 3 (turn) in 12.3 ms, frozen for 4.0 ms, 1.5M bytes sent in 2
/// rounds`
pub fn sentence(migration: &Migration) -> String {
    if migration.cause == "made-away" {
        let Migration { pid, to, total_ms, .. } = migration;
        return format!(
            "{pid} began on node {to}, where its parent was; ready in {total_ms:.1} ms"
        );
    }
    let cause = match migration.cause.as_str() {
        "user" => String::new(),
        cause => format!(" ({})", output::printable(cause)),
    };
    let over = match migration.is_over_budget() {
        true => format!(" (over its budget of {})", migration.budget_ms),
        false => String::new(),
    };
    let rounds = match migration.rounds {
        0 => String::new(),
        1 => " in 1 round and the rest".to_owned(),
        count => format!(" in {count} rounds and the rest"),
    };
    let late = match migration.pages_late {
        0 => String::new(),
        pages => format!("; {} come behind it", output::bytes(pages * PAGE_BYTES)),
    };
    format!(
        "{} moved from node {} to node {}{cause} in {:.1} ms, frozen for {:.1} ms{over}, {} bytes \
         sent{rounds}{late}",
        migration.pid,
        migration.from,
        migration.to,
        migration.total_ms,
        migration.freeze_ms,
        output::bytes(migration.bytes_sent)
    )
}

/// `all its pages are there after 8.1 s: it waited 120 times, for 1920 of 16384`
pub fn filled(filled: &Filled) -> String {
    let Filled { pages_faulted, pages_filled, faults, took_us } = *filled;
    let times = output::counted(faults, "time", "times");
    format!(
        "all its pages are there after {:.1} s: it waited {times}, for {pages_faulted} of \
         {}",
        took_us as f64 / 1e6,
        pages_faulted.saturating_add(pages_filled)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ids::NodeId;

    #[test]
    fn a_move_is_told_in_one_line() {
        let migration = Migration {
            pid: 4711,
            from: NodeId(1),
            to: NodeId(3),
            cause: "user".into(),
            phases_ms: vec![],
            freeze_ms: 4.04,
            total_ms: 12.25,
            bytes_sent: 1536,
            method: "stop-and-copy".into(),
            rounds: 0,
            pages_sent: 1,
            pages_frozen: 1,
            expected_freeze_ms: None,
            expected_total_ms: None,
            predicted_freeze_ms: None,
            budget_ms: FreezeBudget::DEFAULT,
            pages_late: 0,
        };
        assert_eq!(
            sentence(&migration),
            "4711 moved from node 1 to node 3 in 12.2 ms, frozen for 4.0 ms, 1.5K bytes sent"
        );
        let late = sentence(&Migration { pages_late: 512, ..migration.clone() });
        assert!(late.ends_with("1.5K bytes sent; 2.0M come behind it"), "{late}");
        let turn = sentence(&Migration { cause: "turn".into(), ..migration.clone() });
        assert!(turn.starts_with("4711 moved from node 1 to node 3 (turn) in "), "{turn}");
        let made = sentence(&Migration { cause: "made-away".into(), ..migration.clone() });
        assert_eq!(made, "4711 began on node 3, where its parent was; ready in 12.2 ms");
        let hard = sentence(&Migration { rounds: 3, freeze_ms: 80.0, ..migration.clone() });
        assert!(
            hard.ends_with(
                "frozen for 80.0 ms (over its budget of 20 ms), 1.5K bytes sent in 3 \
                            rounds and the rest"
            ),
            "{hard}"
        );
    }
}
