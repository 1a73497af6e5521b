//! The results as tables, with the paper's figures beside them.

use super::{Results, Timed};
use std::fmt::Write;

/// What the paper says in words; what it shows only as plots has no numbers.
const PAPER: &str = "\
The paper (Pentium III of 500 MHz, 2001): to suspend one process and resume another takes about 2 us
in Linux, 3 us in Windows NT and 3.5 us in QNX. There a step is over when the two calls have come
back; here, when both processes are known to have changed. Linux and Windows NT make a process with
its memory left where it is, QNX copies all of it: faster up to 100 KB, slower from 1 MB on. QNX
starts and ends fastest, and is smallest in memory.
";

pub fn text(results: &Results) -> String {
    let mut text = String::from(
        "Native: without Osmos. At home: under Osmos, on the node where it was started. Remote: \
         started on\nanother node. Migrated: started at home, then moved. Medians, with the 10th \
         and 90th percentile.\n",
    );
    table(&mut text, "A child is forked, ends and is waited for, us", &results.creation);
    table(&mut text, "One process stops and another goes on, us", &results.suspension);
    streams(&mut text, results);
    text.push_str(
        "\n## A node starts and ends, ms\n\n| what | median | p10 | p90 |\n|---|---:|---:|---:|\n",
    );
    for row in &results.node {
        let [median, p10, p90] = [row.us.median, row.us.p10, row.us.p90].map(|us| us / 1e3);
        let _ = writeln!(text, "| {} | {median:.0} | {p10:.0} | {p90:.0} |", row.what);
    }
    text.push_str("\n## Memory, KiB\n\n| what | Pss |\n|---|---:|\n");
    for row in &results.footprint {
        let _ = writeln!(text, "| {} | {} |", row.what, row.kib);
    }
    let _ = write!(text, "\n{PAPER}");
    text
}

/// In the order in which they come.
fn unlike<'a, T: PartialEq + 'a>(of: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut all = Vec::new();
    for one in of {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

fn table(text: &mut String, title: &str, rows: &[Timed]) {
    let places = unlike(rows.iter().map(|row| &row.place));
    let _ = write!(text, "\n## {title}\n\n| what |");
    for place in &places {
        let _ = write!(text, " {place} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(places.len()));
    for what in unlike(rows.iter().map(|row| &row.what)) {
        let _ = write!(text, "| {what} |");
        for place in &places {
            match rows.iter().find(|row| row.what == *what && row.place == **place) {
                Some(Timed { us, .. }) => {
                    let _ = write!(text, " {:.0} ({:.0} to {:.0}) |", us.median, us.p10, us.p90);
                }
                None => text.push_str(" – |"),
            }
        }
        text.push('\n');
    }
}

fn streams(text: &mut String, results: &Results) {
    let places = unlike(results.streams.iter().map(|stream| &stream.place));
    text.push_str(
        "\n## A stream over TCP to a native program on node 1, MB/s\n\n| bytes a message |",
    );
    for place in &places {
        let _ = write!(text, " {place} |");
    }
    let _ = writeln!(text, "\n|---:|{}", "---:|".repeat(places.len()));
    for bytes in unlike(results.streams.iter().map(|stream| &stream.message_bytes)) {
        let _ = write!(text, "| {bytes} |");
        for place in &places {
            let mut all = results.streams.iter();
            let found = all.find(|s| s.message_bytes == *bytes && s.place == **place);
            match found {
                Some(stream) => {
                    let _ = write!(text, " {:.2} |", stream.megabytes_per_s);
                }
                None => text.push_str(" – |"),
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Footprint, Stream, Took};
    use super::*;
    use crate::provenance::Provenance;

    #[test]
    fn each_place_has_a_column_and_each_size_a_row() {
        let us = Took { median: 50.0, p10: 40.0, p90: 60.0, mean: 51.0 };
        let timed = |what: &str, place| Timed { what: what.into(), place, us };
        let results = Results {
            made: Provenance::now(),
            creation: vec![timed("2048 bytes", "native"), timed("2048 bytes", "remote")],
            suspension: vec![timed("both", "native")],
            streams: vec![Stream { message_bytes: 64, place: "local", megabytes_per_s: 9.5 }],
            node: vec![timed("osmos up", "native")],
            footprint: vec![Footprint { what: "daemon", kib: 4096 }],
        };
        let text = text(&results);
        for line in [
            "| what | native | remote |",
            "| 2048 bytes | 50 (40 to 60) | 50 (40 to 60) |",
            "| 64 | 9.50 |",
            "| daemon | 4096 |",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
