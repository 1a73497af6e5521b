//! The licences of what is linked into the program: most ask that their text and their notices of
//! copyright go where the program goes.

use super::output_of;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How files begin that hold a licence or a notice.
const FILES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// What no crate says, and what the C library's licence asks for.
const HEAD: &str = "\
What is linked into this program besides Osmos itself, each with its licence.

The GNU C Library, under the GNU Lesser General Public License, version 2.1 or later, and what
libgcc has for it, under the GNU General Public License, version 3, with the GCC Runtime Library
Exception. The program is linked with the C library as an archive. Whoever wants another version of
it in there links it anew: `cargo xtask package` in the source of this version of Osmos does that.

The standard library of Rust, under the Apache License, version 2.0, or the MIT licence, as you
prefer.
";

/// Of a .deb, in the form that Debian's tools read (copyright-format 1.0).
pub fn copyright() -> Result<String> {
    let path = needs::workspace_root().join("LICENSE-MIT");
    let mit = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // Its first two lines are its name and the notice, which stands below by itself.
    let text: String = mit
        .lines()
        .skip_while(|line| !line.starts_with("Permission"))
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: Osmos\n\
         Comment:\n \
         What is linked into the program besides has licences of its own: see third-party.gz\n \
         in this directory. The GNU C Library, which is part of the program, is under the GNU\n \
         Lesser General Public License: /usr/share/common-licenses/LGPL-2.1.\n\
         \n\
         Files: *\n\
         Copyright: The Osmos authors\n\
         License: Apache-2.0 or Expat\n\
         \n\
         License: Apache-2.0\n \
         On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.\n\
         \n\
         License: Expat\n{text}"
    ))
}

/// A crate that is part of the program.
#[derive(Debug, PartialEq)]
struct Crate {
    name: String,
    licence: String,
    directory: PathBuf,
}

/// All in one text: who is in there, and each licence once.
pub fn of_dependencies() -> Result<String> {
    let metadata = output_of(
        needs::cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(needs::workspace_root()),
    )?;
    let metadata = serde_json::from_str(&metadata).context("cargo metadata is no JSON")?;
    let crates = linked(&metadata, "osmos")?;
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut without = Vec::new();
    for of in &crates {
        let own = read_texts(&of.directory)?;
        if own.is_empty() {
            without.push(format!("{} ({})", of.name, of.licence));
        }
        for text in own {
            texts.entry(text).or_default().push(&of.name);
        }
    }
    let mut all = String::from(HEAD);
    all.push_str("\nCrates:\n\n");
    for of in &crates {
        all.push_str(&format!("  {}: {}\n", of.name, of.licence));
    }
    if !without.is_empty() {
        let names = without.join(", ");
        all.push_str(&format!("\nThese have no text of their own in their source: {names}\n"));
    }
    let rule = "-".repeat(78);
    for (text, names) in &texts {
        all.push_str(&format!("\n{rule}\n{}:\n\n{}\n", names.join(", "), text.trim_end()));
    }
    Ok(all)
}

/// Those that a package is linked with, from elsewhere: not what only builds or tests it.
fn linked(metadata: &Value, root: &str) -> Result<Vec<Crate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let by_id: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("nothing was resolved")?;
    let edges: BTreeMap<&str, Vec<&str>> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, needed(node)))).collect();
    let root = by_id.iter().find(|(_, package)| package["name"] == root && is_ours(package));
    let mut found = BTreeSet::new();
    let mut next = vec![*root.context("the package is not there")?.0];
    while let Some(id) = next.pop() {
        let package = by_id.get(id).with_context(|| format!("{id} is not described"))?;
        if !is_macro(package) && found.insert(id) {
            next.extend(edges.get(id).into_iter().flatten());
        }
    }
    let foreign = found.into_iter().map(|id| by_id[id]).filter(|package| !is_ours(package));
    let mut crates = foreign.map(describe).collect::<Result<Vec<Crate>>>()?;
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn needed(node: &Value) -> Vec<&str> {
    let is_linked = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let all = node["deps"].as_array().into_iter().flatten();
    all.filter(is_linked).filter_map(|dependency| dependency["pkg"].as_str()).collect()
}

fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

/// It runs in the compiler.
fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    let kinds = targets.filter_map(|target| target["kind"].as_array()).flatten();
    kinds.into_iter().any(|kind| kind == "proc-macro")
}

fn describe(package: &Value) -> Result<Crate> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    let licence = text("license").to_owned();
    ensure!(!licence.is_empty(), "{name} does not say its licence: it cannot be handed on");
    let manifest = Path::new(text("manifest_path"));
    let directory = manifest.parent().with_context(|| format!("{name} is nowhere"))?.to_owned();
    Ok(Crate { name, licence, directory })
}

fn read_texts(directory: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut texts = BTreeSet::new();
    for entry in entries {
        let path = entry.with_context(|| directory.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if FILES.iter().any(|start| name.starts_with(start)) && path.is_file() {
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            texts.insert(String::from_utf8_lossy(&bytes).replace('\r', ""));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod test {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_linked_is_named_with_its_text_and_what_only_builds_is_not() {
        let text = of_dependencies().unwrap();
        // Of the program, by another crate, under two licences that differ; with texts in a file.
        for named in ["\n  tokio 1.", "\n  libc 0.2.", "\n  ring 0.", "Copyright (c) Tokio"] {
            assert!(text.contains(named), "{named}");
        }
        // A macro, what builds ring, and what only tests use.
        for unnamed in ["\n  serde_derive ", "\n  cc ", "\n  proptest "] {
            assert!(!text.contains(unnamed), "{unnamed}");
        }
    }

    #[test]
    fn a_crate_without_a_licence_is_refused_by_its_name() {
        let package = json!({ "name": "odd", "version": "1.0.0", "manifest_path": "/odd/C" });
        let error = describe(&package).unwrap_err().to_string();
        assert!(error.contains("odd 1.0.0 does not say its licence"), "{error}");
    }

    #[test]
    fn the_notice_of_a_deb_is_in_the_form_that_debian_reads() {
        let text = copyright().unwrap();
        let mit = text.split("License: Expat\n").nth(1).unwrap();
        assert!(mit.starts_with(" Permission is hereby granted"), "{text}");
        let is_part = |line: &str| line.starts_with(' ') || line.contains(": ");
        let lines = text.lines().filter(|line| !line.is_empty() && *line != "Comment:");
        let odd: Vec<&str> =
            lines.filter(|line| !is_part(line) && *line != "License: Expat").collect();
        assert!(odd.is_empty(), "{odd:?}");
    }
}
