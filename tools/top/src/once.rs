//! One picture as text, or as JSON: for scripts, and for terminals that can show no more.

use anyhow::Result;
use client::Client;
use client::picture::{Looked, NodeRow, Picture, ProcessRow, look};
use client::words::{bytes, seconds};
use serde_json::json;
use std::path::Path;

/// The picture of this moment, ending in a line feed.
pub fn once(socket: &Path, is_json: bool) -> Result<String> {
    let looked = look(&mut Client::connect(socket)?)?;
    Ok(if is_json { as_json(looked) } else { as_text(&Picture::from(looked)) })
}

/// In the published shapes of nodes and processes.
fn as_json(Looked { mut nodes, gathered }: Looked) -> String {
    nodes.sort_by_key(|node| node.id);
    let silent = gathered.silent.iter();
    let silent: Vec<_> =
        silent.map(|(node, why)| json!({ "node": node, "text": why.text })).collect();
    let picture = json!({ "nodes": nodes, "processes": gathered.processes, "silent": silent });
    format!("{picture}\n")
}

fn as_text(picture: &Picture) -> String {
    let head = "NODE NAME STATE LOAD CORES SPEED USED MEMORY GUESTS TAKES";
    let nodes = picture.nodes.iter().map(node_words);
    let nodes = table(head, &[true, false, false, true, true, true, true, true, true], nodes);
    let head = "PID USER HOME NODE STATE TIME MEMORY MOVES REASON COMMAND";
    let processes = picture.processes.iter().map(process_words);
    let is_right = [true, false, true, true, false, true, true, true, false];
    let processes = table(head, &is_right, processes);
    let silent = picture.silent.iter();
    let silent: String = silent.map(|(node, why)| format!("\nnode {node}: {why}\n")).collect();
    let left_out = match picture.left_out {
        0 => String::new(),
        count => format!("\n{count} processes more\n"),
    };
    format!("{nodes}\n{processes}{silent}{left_out}")
}

fn node_words(node: &NodeRow) -> Vec<String> {
    vec![
        node.id.to_string(),
        if node.name.is_empty() { node.address.clone() } else { node.name.clone() },
        node.state.clone(),
        format!("{:.2}", node.load),
        format!("{:.1}", node.cores),
        format!("{:.2}", node.speed),
        bytes(node.memory_used_bytes()),
        bytes(node.memory_total_bytes),
        node.guests.to_string(),
        if node.takes_guests { "yes" } else { "no" }.to_owned(),
    ]
}

fn process_words(process: &ProcessRow) -> Vec<String> {
    vec![
        process.key.pid.to_string(),
        process.user.clone(),
        process.key.home.to_string(),
        process.node.to_string(),
        process.state.clone(),
        seconds(process.cpu_s),
        bytes(process.memory_bytes),
        process.moves.to_string(),
        process.reason.clone(),
        process.command.clone(),
    ]
}

/// Columns line up; the last one is as long as it is.
fn table(head: &str, is_right: &[bool], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.split(' ').map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..is_right.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let padded = row.iter().enumerate().map(|(column, word)| {
            match (is_right.get(column), widths.get(column)) {
                (Some(true), Some(width)) => format!("{word:>width$}"),
                (Some(false), Some(width)) => format!("{word:width$}"),
                _ => word.clone(),
            }
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{node, process};
    use client::Gathered;
    use serde_json::Value;
    use wire::control::Failure;
    use wire::ids::NodeId;

    fn looked() -> Looked {
        let mut hostile = process(1, 4711, 2);
        hostile.command_line = Some("evil\x1b]0;x\x07 all".into());
        let failure = Failure { code: "no-answer".into(), text: "no\nanswer".into() };
        Looked {
            nodes: vec![node(2, "b\x1b[2J"), node(1, "alpha")],
            gathered: Gathered { processes: vec![hostile], silent: vec![(NodeId(2), failure)] },
        }
    }

    #[test]
    fn the_text_has_a_line_for_each_node_and_process() {
        let text = as_text(&Picture::from(looked()));
        let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words[1][..4], ["1", "alpha", "alive", "0.50"]);
        assert_eq!(words[2][..2], ["2", "b?[2J"]);
        assert_eq!(words[5][..5], ["4711", "-", "1", "2", "running"]);
        assert!(text.contains("evil?]0;x? all\n\nnode 2: no?answer\n"), "{text:?}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn json_has_the_published_shapes() {
        let value: Value = serde_json::from_str(&as_json(looked())).unwrap();
        assert_eq!(value["nodes"][0]["id"], 1);
        assert_eq!(value["processes"][0]["pid"], 4711);
        assert_eq!(value["silent"][0]["node"], 2);
    }
}
