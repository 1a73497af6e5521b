//! `ping`: how another node answers, and what stands between it and this one.

use super::{membership, unexpected};
use crate::output;
use crate::progress::Waiting;
use anyhow::{Result, ensure};
use client::Client;
use serde::Serialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{CpuFit, Node, Reply, Request, Status};
use wire::ids::NodeId;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// One question and its answer.
struct Echo {
    took: Duration,
    /// By how much the clock there is ahead of the one here, s, give or take half of `took`.
    ahead_s: Option<f64>,
    status: Status,
}

/// What was found out.
#[derive(Debug, PartialEq, Serialize)]
struct Found {
    node: NodeId,
    address: String,
    version: String,
    is_same_cluster: bool,
    asked: usize,
    /// A question of a tool here to the daemon there and back.
    round_trip_ms_min: f64,
    round_trip_ms_median: f64,
    round_trip_ms_max: f64,
    /// Of the clock there; none: it does not tell the time.
    clock_ahead_s: Option<f64>,
    /// The most that this may be wrong by.
    clock_error_s: f64,
    /// That moves there have gone at.
    bytes_per_s: Option<f64>,
    cpu: CpuFit,
    cpu_reason: Option<String>,
    takes_guests: bool,
}

pub fn ping(client: &mut Client, node: NodeId, count: u32, json: bool) -> Result<()> {
    let listed = client.nodes()?.into_iter().find(|listed| listed.id == node);
    let here = membership::ask_status(client)?;
    let words = (format!("asking node {node}"), "nothing has changed anywhere");
    let mut waiting = Waiting::begin(words.0, words.1, json)?;
    let mut echoes = Vec::new();
    for nth in 0..count {
        if nth > 0 {
            waiting.goes_on(format!("asking node {node}: {nth} of {count} answers"));
            waiting.pause(PAUSE)?;
        }
        echoes.push(ask(client, node, &mut waiting)?);
    }
    drop(waiting);
    let listed = listed.ok_or_else(|| anyhow::anyhow!("there is no node {node}"))?;
    let found = Found::of(&listed, &here, &mut echoes);
    match json {
        true => output::print_json(&found)?,
        false => found.lines().iter().try_for_each(|line| output::print_line(line))?,
    }
    ensure!(
        found.is_same_cluster,
        "node {node} has another secret than this one: it is in another cluster; `osmos leave` \
         there, then `osmos join` with a token of this one"
    );
    Ok(())
}

fn ask(client: &mut Client, node: NodeId, waiting: &mut Waiting) -> Result<Echo> {
    let request = Request::At { node, request: Box::new(Request::Status) };
    let (asked_at, began) = (wall_clock_s(), Instant::now());
    client.send(&request)?;
    waiting.until(client, || None)?;
    let reply = client.receive()?;
    let took = began.elapsed();
    let Reply::Status(status) = reply else { return Err(unexpected(&reply)) };
    // It was there half-way, as far as both ways take as long.
    let ahead_s = status.time.map(|time| time - (asked_at + took.as_secs_f64() / 2.0));
    Ok(Echo { took, ahead_s, status: *status })
}

fn wall_clock_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Found {
    /// Of at least one echo. The quickest one says most of the clock.
    fn of(listed: &Node, here: &Status, echoes: &mut [Echo]) -> Found {
        echoes.sort_by_key(|echo| echo.took);
        let ms = |nth: usize| echoes[nth].took.as_secs_f64() * 1e3;
        let quickest = &echoes[0];
        Found {
            node: listed.id,
            address: quickest.status.address.clone(),
            version: quickest.status.version.clone(),
            is_same_cluster: quickest.status.cluster == here.cluster,
            asked: echoes.len(),
            round_trip_ms_min: ms(0),
            round_trip_ms_median: ms(echoes.len() / 2),
            round_trip_ms_max: ms(echoes.len() - 1),
            clock_ahead_s: quickest.ahead_s,
            clock_error_s: quickest.took.as_secs_f64() / 2.0,
            bytes_per_s: listed.bytes_per_s,
            cpu: listed.cpu,
            cpu_reason: listed.cpu_reason.clone(),
            takes_guests: listed.takes_guests,
        }
    }

    fn lines(&self) -> Vec<String> {
        let Found { node, address, version, .. } = self;
        let mut lines = vec![
            format!("node {node} at {address}, version {version}"),
            format!(
                "round trip      {:.2} ms, {:.2} to {:.2} in {}",
                self.round_trip_ms_median,
                self.round_trip_ms_min,
                self.round_trip_ms_max,
                output::counted(self.asked as u64, "question", "questions")
            ),
            format!("clock           {}", self.clock()),
            format!("moves           {}", self.moves()),
            format!("processor       {}", self.processor()),
        ];
        if !self.takes_guests {
            lines.push("guests          its owner takes none now".to_owned());
        }
        lines.iter().map(|line| output::printable(line)).collect()
    }

    fn clock(&self) -> String {
        let error_ms = self.clock_error_s * 1e3;
        match self.clock_ahead_s {
            None => "it does not tell the time".to_owned(),
            Some(ahead) if ahead.abs() <= self.clock_error_s => {
                format!("the same, within {error_ms:.2} ms")
            }
            Some(ahead) => {
                let side = if ahead > 0.0 { "ahead" } else { "behind" };
                format!("{:.2} ms {side}, within {error_ms:.2} ms", ahead.abs() * 1e3)
            }
        }
    }

    fn moves(&self) -> String {
        match self.bytes_per_s {
            Some(rate) => format!("{}/s was measured", output::bytes(rate as u64)),
            None => "none has been measured yet".to_owned(),
        }
    }

    fn processor(&self) -> String {
        let fits = match self.cpu {
            CpuFit::Fits => "will do for all programs of this node",
            CpuFit::Baseline => "will do for programs of `osmos run --cpu-baseline`",
            CpuFit::Unknown => "is not known yet",
        };
        match &self.cpu_reason {
            Some(reason) => format!("{fits}: {reason}"),
            None => fits.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(time: Option<f64>) -> Status {
        let text = r#"{"node":3,"address":"10.0.0.3:7780","daemon_pid":1,"version":"0.1.0",
            "cluster":"ab","nodes":3,"uptime_s":1.0}"#;
        Status { time, ..serde_json::from_str(text).expect("a status") }
    }

    fn node() -> Node {
        let text = r#"{"id":3,"address":"10.0.0.3:7780","status":"alive","cores":1.0,"speed":1.0,
            "load":0.0,"mem_total_bytes":1,"mem_free_bytes":1,"info_age_s":0.1,"cpu":"fits",
            "bytes_per_s":118000000.0}"#;
        serde_json::from_str(text).expect("a node")
    }

    fn echo(us: u64, ahead_s: f64) -> Echo {
        let took = Duration::from_micros(us);
        Echo { took, ahead_s: Some(ahead_s), status: status(Some(1.0)) }
    }

    #[test]
    fn the_quickest_answer_tells_the_clock_and_the_middle_one_the_round_trip() {
        let mut echoes = [echo(900, 0.5), echo(300, 0.002), echo(400, 0.1)];
        let found = Found::of(&node(), &status(None), &mut echoes);
        let lines = found.lines();
        assert_eq!(lines[0], "node 3 at 10.0.0.3:7780, version 0.1.0");
        assert_eq!(lines[1], "round trip      0.40 ms, 0.30 to 0.90 in 3 questions");
        assert_eq!(lines[2], "clock           2.00 ms ahead, within 0.15 ms");
        assert_eq!(lines[3], "moves           113M/s was measured");
        assert_eq!(lines.len(), 5);
        assert!(found.is_same_cluster);
    }

    #[test]
    fn a_clock_that_may_be_the_same_is_not_said_to_be_another() {
        let found = Found::of(&node(), &status(None), &mut [echo(300, -0.0001)]);
        assert_eq!(found.clock(), "the same, within 0.15 ms");
        let found = Found::of(&node(), &status(None), &mut [echo(300, -0.001)]);
        assert_eq!(found.clock(), "1.00 ms behind, within 0.15 ms");
    }
}
