//! What is known of the cluster, and what of it browsers have to be told. Pure; time is an
//! argument, seconds since the epoch.
//!
//! A browser is told everything when it comes, and then what has changed: most of a thousand
//! processes are what they were a second ago.

use crate::history::History;
use crate::log::Log;
use crate::wording::Wording;
use client::picture::{NodeRow, Picture, ProcessRow};
use client::rates::Rates;
use client::words::printable;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use wire::control::Event;
use wire::ids::{GlobalPid, NodeId};

/// Lines of the log that go to a browser at once.
const LINES_AT_ONCE: usize = 1_000;
/// Lines of a flood of events that browsers are told: who wants all of them asks `osmos events`.
const LINES_OF_FLOOD: usize = 200;

/// Something for all browsers, written once.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub kind: &'static str,
    pub text: Arc<str>,
    /// The last line of the log that who has this has seen.
    pub number: u64,
}

pub struct Board {
    wording: Wording,
    picture: Picture,
    rates: Rates,
    /// When the picture was made; none before there is one.
    time: Option<f64>,
    /// Why there are no new ones.
    lost: Option<String>,
    log: Log,
    history: History,
}

impl Board {
    pub fn new(wording: Wording) -> Board {
        Board {
            wording,
            picture: Picture::default(),
            rates: Rates::default(),
            time: None,
            lost: None,
            log: Log::default(),
            history: History::default(),
        }
    }

    /// A picture of all.
    pub fn take_picture(&mut self, picture: Picture, time: f64) -> Vec<Frame> {
        let before: HashMap<GlobalPid, Option<f64>> =
            self.picture.processes.iter().map(|row| (row.key, self.rates.of(row.key))).collect();
        // A clock that was set back begins anew.
        if self.time.is_some_and(|before| time < before) {
            self.rates = Rates::default();
        }
        self.rates.take_in(&picture, time);
        let change = self.change(&picture, &before, time);
        self.picture = picture;
        let mut frames = vec![self.frame("change", &change)];
        frames.extend(self.looked(time));
        frames
    }

    /// What nodes say of themselves, while nobody looks: for the history.
    pub fn take_nodes(&mut self, nodes: Vec<NodeRow>, time: f64) -> Vec<Frame> {
        self.picture.nodes = nodes;
        self.looked(time).into_iter().collect()
    }

    fn looked(&mut self, time: f64) -> Option<Frame> {
        (self.time, self.lost) = (Some(time), None);
        let sample = self.history.take_in(&self.picture.nodes, time)?;
        Some(self.frame("sample", &sample))
    }

    /// No daemon answers.
    pub fn take_loss(&mut self, why: &str) -> Vec<Frame> {
        let why = printable(why);
        let frame = self.frame("lost", &json!({ "why": why }));
        self.lost = Some(why);
        vec![frame]
    }

    /// What has happened; `left_out` events before these were too many.
    pub fn take_events(&mut self, events: &[Event], left_out: u64) -> Vec<Frame> {
        let number = self.log.number();
        let made = events.iter().filter(|event| self.log.take_in(event, self.wording)).count();
        if made == 0 {
            return Vec::new();
        }
        let lines = self.log.after(number, LINES_OF_FLOOD);
        let left_out = left_out + (made - lines.len()) as u64;
        let told = json!({ "lines": lines, "left_out": left_out });
        vec![self.frame("log", &told)]
    }

    /// What a browser is told that has seen the log up to `number`.
    pub fn whole(&self, number: u64) -> Frame {
        let Picture { nodes, processes, silent, left_out } = &self.picture;
        let rows: Vec<Value> =
            processes.iter().map(|row| process_value(row, self.rates.of(row.key))).collect();
        let whole = json!({
            "time": self.time,
            "lost": self.lost,
            "nodes": nodes.iter().map(node_value).collect::<Vec<Value>>(),
            "processes": rows,
            "silent": silent_value(silent),
            "left_out": left_out,
            "lines": self.log.after(number, LINES_AT_ONCE),
        });
        self.frame("whole", &whole)
    }

    pub fn history(&self) -> Value {
        self.history.whole()
    }

    fn frame(&self, kind: &'static str, value: &Value) -> Frame {
        Frame { kind, text: value.to_string().into(), number: self.log.number() }
    }

    /// What is new in a picture. What is not in it is as it was.
    fn change(
        &self,
        picture: &Picture,
        rates_before: &HashMap<GlobalPid, Option<f64>>,
        time: f64,
    ) -> Value {
        let mut change = Map::from_iter([("time".to_owned(), json!(time))]);
        let mut tell = |name: &str, value: Value| {
            change.insert(name.to_owned(), value);
        };
        let old = &self.picture;
        if old.nodes != picture.nodes {
            tell("nodes", picture.nodes.iter().map(node_value).collect());
        }
        if old.silent != picture.silent {
            tell("silent", silent_value(&picture.silent));
        }
        if old.left_out != picture.left_out {
            tell("left_out", picture.left_out.into());
        }
        let rows: HashMap<GlobalPid, &ProcessRow> =
            old.processes.iter().map(|row| (row.key, row)).collect();
        let changed = picture.processes.iter().filter_map(|row| {
            let rate = self.rates.of(row.key);
            let is_same =
                rows.get(&row.key) == Some(&row) && rates_before.get(&row.key) == Some(&rate);
            (!is_same).then(|| process_value(row, rate))
        });
        let changed: Vec<Value> = changed.collect();
        if !changed.is_empty() {
            tell("processes", changed.into());
        }
        let there: HashSet<GlobalPid> = picture.processes.iter().map(|row| row.key).collect();
        let gone = old.processes.iter().filter(|row| !there.contains(&row.key));
        let gone: Vec<Value> = gone.map(|row| row.key.to_string().into()).collect();
        if !gone.is_empty() {
            tell("gone", gone.into());
        }
        Value::Object(change)
    }
}

fn node_value(node: &NodeRow) -> Value {
    json!({
        "id": node.id,
        "name": node.name,
        "address": node.address,
        "state": node.state,
        "cores": node.cores,
        "speed": node.speed,
        "load": node.load,
        "memory_total_bytes": node.memory_total_bytes,
        "memory_used_bytes": node.memory_used_bytes(),
        "guests": node.guests,
        "takes_guests": node.takes_guests,
        "is_asked": node.is_asked,
    })
}

fn process_value(row: &ProcessRow, rate: Option<f64>) -> Value {
    json!({
        "key": row.key.to_string(),
        "home": row.key.home,
        "pid": row.key.pid,
        "user": row.user,
        "node": row.node,
        "state": row.state,
        "cpu": rate,
        "cpu_s": row.cpu_s,
        "memory_bytes": row.memory_bytes,
        "moves": row.moves,
        "reason": row.reason,
        "command": row.command,
        "parent": row.parent.map(|parent| parent.to_string()),
    })
}

fn silent_value(silent: &BTreeMap<NodeId, String>) -> Value {
    silent.iter().map(|(node, why)| json!({ "node": node, "why": why })).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{WORDING, migrated, node, picture, process};

    fn told(frames: &[Frame], kind: &str) -> Value {
        let frame = frames.iter().find(|frame| frame.kind == kind).expect("a frame of that kind");
        serde_json::from_str(&frame.text).expect("JSON")
    }

    #[test]
    fn only_what_has_changed_is_told() {
        let mut board = Board::new(WORDING);
        let nodes = [node(1, "one"), node(2, "two")];
        let first = picture(&nodes, &[process(1, 10, 1), process(1, 11, 1)]);
        let change = told(&board.take_picture(first.clone(), 1.0), "change");
        assert_eq!(change["processes"].as_array().map(Vec::len), Some(2));
        let change = told(&board.take_picture(first, 2.0), "change");
        assert_eq!(change, json!({ "time": 2.0 }));
        let next = picture(&nodes, &[process(1, 11, 2)]);
        let change = told(&board.take_picture(next, 2.3), "change");
        assert_eq!(change["gone"], json!(["1:10"]));
        assert_eq!(change["processes"][0]["node"], 2);
        assert_eq!(change["nodes"][1]["guests"], 1);
        let whole = told(&[board.whole(0)], "whole");
        assert_eq!(whole["processes"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_rate_that_is_new_is_a_change() {
        let mut board = Board::new(WORDING);
        let mut busy = process(1, 10, 1);
        board.take_picture(picture(&[], &[busy.clone()]), 1.0);
        busy.cpu_s = 0.5;
        let change = told(&board.take_picture(picture(&[], &[busy.clone()]), 2.0), "change");
        assert_eq!(change["processes"][0]["cpu"], 0.5);
        let change = told(&board.take_picture(picture(&[], &[busy.clone()]), 9.0), "change");
        assert_eq!(change["processes"][0]["cpu"], 0.0, "it is idle, and nothing else is new");
        let change = told(&board.take_picture(picture(&[], &[busy]), 5.0), "change");
        let rate = &change["processes"][0]["cpu"];
        assert_eq!(rate, &Value::Null, "a clock that was set back");
    }

    #[test]
    fn a_flood_of_events_is_a_short_message_that_says_so() {
        let mut board = Board::new(WORDING);
        let events: Vec<Event> = (0..1_000).map(|n| migrated(1, n + 1, 2, 1.0)).collect();
        let frames = board.take_events(&events, 7);
        let log = told(&frames, "log");
        assert_eq!(log["lines"].as_array().map(Vec::len), Some(LINES_OF_FLOOD));
        assert_eq!(log["left_out"], 7 + 1_000 - LINES_OF_FLOOD);
        assert_eq!(log["lines"][0]["to"], 2);
        let seen = frames[0].number;
        let whole = told(&[board.whole(seen - 2)], "whole");
        assert_eq!(whole["lines"].as_array().map(Vec::len), Some(2), "what came since");
    }

    #[test]
    fn a_daemon_that_is_gone_is_said_until_there_is_a_picture() {
        let mut board = Board::new(WORDING);
        board.take_loss("no daemon\x1b[2J");
        assert_eq!(told(&[board.whole(0)], "whole")["lost"], "no daemon?[2J");
        board.take_picture(Picture::default(), 1.0);
        assert_eq!(told(&[board.whole(0)], "whole")["lost"], Value::Null);
    }
}
