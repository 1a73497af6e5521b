//! `osmos doctor`: what machines offer, what is lost where they do not, and what mends it.
//!
//! Of this machine the checks are made here, without a daemon. With `--all` each daemon answers for
//! its own, as it goes by what it found when it started.

use crate::naming::called;
use crate::output::{self, Align, Cell, Colour, Table};
use crate::platform::Platform;
use crate::progress;
use anyhow::Result;
use clap::Args;
use client::Client;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use wire::control::{Failure, Finding, Reply, Request};
use wire::ids::NodeId;

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DoctorOptions {
    /// Of all nodes of the cluster, not only of this machine
    #[arg(long, short)]
    pub all: bool,
    /// Print JSON: stable shapes for programs
    #[arg(long)]
    pub json: bool,
}

/// Print the findings; true if nothing required is missing, and all have answered who were asked.
pub fn doctor(options: &DoctorOptions, socket: &Path, platform: &dyn Platform) -> Result<bool> {
    if options.all {
        let examined = ask_everywhere(&mut Client::connect(socket)?, options.json)?;
        tell_all(&examined, options.json)?;
        return Ok(examined.iter().all(Examined::is_fit));
    }
    let findings = platform.findings();
    if options.json {
        output::print_json(&findings)?;
    } else {
        table(&findings).print()?;
        output::print_text(&mends(&findings))?;
    }
    Ok(is_fit(&findings))
}

fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.present || !finding.required)
}

/// What one node says of its machine.
#[derive(Clone, Debug, Serialize)]
struct Examined {
    node: NodeId,
    name: Option<String>,
    /// Of its daemon; none: it has not answered.
    version: Option<String>,
    findings: Vec<Finding>,
    /// Why it has not answered.
    failure: Option<Failure>,
}

impl Examined {
    fn is_fit(&self) -> bool {
        self.failure.is_none() && is_fit(&self.findings)
    }

    fn called(&self) -> String {
        called(self.node, self.name.as_deref())
    }
}

fn ask_everywhere(client: &mut Client, json: bool) -> Result<Vec<Examined>> {
    let names: BTreeMap<NodeId, Option<String>> =
        client.nodes()?.into_iter().map(|node| (node.id, node.name)).collect();
    let mut all = Vec::new();
    let words = ("asking all nodes", "nothing has changed anywhere");
    progress::everywhere(client, Request::Doctor, words, json, |node, said| {
        let name = names.get(&node).cloned().flatten();
        let failed = |failure| Examined {
            node,
            name: name.clone(),
            version: None,
            findings: Vec::new(),
            failure: Some(failure),
        };
        all.push(match said {
            Ok(Reply::Findings { version, findings }) => {
                let version = Some(version);
                Examined { node, name, version, findings, failure: None }
            }
            Ok(_) => failed(Failure {
                code: "bad-answer".to_owned(),
                text: format!("node {node} answers something else than what it lacks"),
            }),
            Err(failure) => failed(failure),
        });
    })?;
    all.sort_by_key(|examined| examined.node);
    Ok(all)
}

fn tell_all(all: &[Examined], json: bool) -> Result<()> {
    if json {
        output::print_json(&all)?;
    } else {
        output::print_text(&all_text(all, output::colours_wanted()))?;
    }
    for failure in all.iter().filter_map(|examined| examined.failure.as_ref()) {
        eprintln!("osmos: {}", output::printable(&failure.text));
    }
    Ok(())
}

/// Only what is missing, node by node: of many nodes nobody reads what is well.
fn all_text(all: &[Examined], with_colours: bool) -> String {
    let mut text = String::new();
    for examined in all.iter().filter(|examined| examined.failure.is_none()) {
        let missing = examined.findings.iter().filter(|finding| !finding.present);
        let missing: Vec<Finding> = missing.cloned().collect();
        let version = examined.version.as_deref().unwrap_or_default();
        let verdict = match (missing.is_empty(), examined.is_fit()) {
            (true, _) => "nothing is missing",
            (false, true) => "can be a node; missing:",
            (false, false) => "cannot be a node; missing:",
        };
        let line = format!("{} (version {version}): {verdict}", examined.called());
        text.push_str(&(output::printable(&line) + "\n"));
        if !missing.is_empty() {
            text.push_str(&table(&missing).render(with_colours));
            text.push_str(&mends(&missing));
        }
    }
    text + &other_versions(all)
}

/// Nodes of one cluster are to run the same version.
fn other_versions(all: &[Examined]) -> String {
    let mut versions: Vec<&str> = all.iter().filter_map(|of| of.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() < 2 {
        return String::new();
    }
    let versions = output::printable(&versions.join(", "));
    format!("versions differ: {versions}; mend with: osmos cluster upgrade\n")
}

/// A line for each command that mends something.
fn mends(findings: &[Finding]) -> String {
    let missing = findings.iter().filter(|finding| !finding.present);
    let lines = missing.filter_map(|finding| {
        let command = finding.mend.as_ref()?;
        let line = format!("to mend {}, as root: {command}", finding.name);
        Some(output::printable(&line) + "\n")
    });
    lines.collect()
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&[
        ("CHECK", Align::Left),
        ("", Align::Left),
        ("SEEN", Align::Left),
        ("CONSEQUENCE", Align::Left),
    ]);
    for finding in findings {
        let verdict = match (finding.present, finding.required) {
            (true, _) => Cell::coloured("ok", Colour::Green),
            (false, true) => Cell::coloured("MISSING", Colour::Red),
            (false, false) => Cell::coloured("missing", Colour::Yellow),
        };
        let consequence = if finding.present { "" } else { &finding.consequence };
        table.row(vec![
            Cell::new(&finding.name),
            verdict,
            Cell::new(&finding.seen),
            Cell::new(consequence),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &str, present: bool, required: bool) -> Finding {
        Finding {
            name: name.to_owned(),
            present,
            required,
            seen: "seen".to_owned(),
            consequence: format!("lost {name}"),
            mend: (name == "b").then(|| "sysctl -w b=1\x1b".to_owned()),
        }
    }

    fn examined(node: u32, findings: Vec<Finding>) -> Examined {
        let version = Some(format!("0.{node}"));
        Examined { node: NodeId(node), name: None, version, findings, failure: None }
    }

    #[test]
    fn only_missing_things_have_consequences_in_the_table() {
        let findings = [finding("a", true, true), finding("b", false, false)];
        let text = table(&findings).render(false);
        assert!(text.contains("lost b") && !text.contains("lost a"));
        assert_eq!(mends(&findings), "to mend b, as root: sysctl -w b=1?\n");
    }

    #[test]
    fn of_many_nodes_what_is_missing_is_told_and_the_worst_counts() {
        let well = examined(1, vec![finding("a", true, true)]);
        let less = examined(2, vec![finding("a", true, true), finding("b", false, false)]);
        let unfit = examined(3, vec![finding("a", false, true)]);
        let failure = Failure { code: "c".into(), text: "t".into() };
        let silent = Examined { version: None, failure: Some(failure), ..examined(4, Vec::new()) };
        let fit: Vec<bool> = [&well, &less, &unfit, &silent].map(Examined::is_fit).into();
        assert_eq!(fit, [true, true, false, false]);
        let text = all_text(&[well.clone(), less, unfit, silent], false);
        for line in [
            "node 1 (version 0.1): nothing is missing",
            "node 2 (version 0.2): can be a node; missing:",
            "to mend b, as root: sysctl -w b=1?",
            "node 3 (version 0.3): cannot be a node; missing:",
            "versions differ: 0.1, 0.2, 0.3; mend with: osmos cluster upgrade",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains("node 4"), "that is said beside it: {text}");
        assert_eq!(all_text(&[well], false), "node 1 (version 0.1): nothing is missing\n");
    }
}
