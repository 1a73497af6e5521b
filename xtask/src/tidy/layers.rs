//! The layer rule: which crate may depend on which, and that none leaves the workspace's lints.

use super::Violation;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;

const LAYERS: &str = "layers-point-down";
const LINTS: &str = "lints-everywhere";

/// Every crate of ours, and those of ours that it may depend on. What is not listed is forbidden:
/// a new edge is a decision, and decisions are written down in docs/decisions.
const EDGES: &[(&str, &[&str])] = &[
    // core decides, engine acts
    ("wire", &[]),
    ("kernel", &[]),
    ("brain", &["wire"]),
    ("link", &["wire", "kernel"]),
    ("migrate", &["wire", "kernel", "link"]),
    ("attachment", &["wire", "kernel"]),
    ("body", &["wire", "kernel", "link", "migrate", "attachment"]),
    ("deputy", &["wire", "kernel", "link", "migrate", "attachment"]),
    ("files", &["wire", "kernel", "link"]),
    ("jobs", &["wire", "kernel", "link"]),
    // node connects
    ("node", &["wire", "brain", "kernel", "link", "migrate", "body", "deputy"]),
    // tools show
    ("fixtures", &["wire"]),
    ("client", &["wire"]),
    ("top", &["wire", "client"]),
    ("metrics", &["wire", "client"]),
    ("web", &["wire", "client"]),
    ("mount", &["wire", "client", "link"]),
    ("launcher", &["wire", "client", "link"]),
    ("cli", &["wire", "client", "top", "metrics", "web", "mount", "launcher"]),
    // lab proves
    ("needs", &[]),
    ("lab", &["kernel", "wire", "client"]),
    ("sim", &["wire", "brain"]),
    ("bench", &["wire", "brain", "kernel", "client", "lab", "sim", "needs"]),
    ("conformance", &["wire", "client", "lab", "needs"]),
    ("xtask", &["conformance", "bench", "needs", "wire"]),
];

/// Edges that only tests have: they let a test look from the other side.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("node", &["client", "needs"]),
    ("kernel", &["needs"]),
    ("lab", &["needs"]),
    ("client", &["fixtures"]),
    ("top", &["fixtures"]),
    ("web", &["fixtures"]),
];

/// It puts the one binary together and may see everything.
const ROOT: &str = "osmos";

/// The one crate with `unsafe`; its lints are the workspace's minus the ban.
const UNSAFE_CRATE: &str = "kernel";

/// What of a package matters here.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub manifest: PathBuf,
    pub dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    pub is_for_tests: bool,
    /// Lies in this workspace.
    pub is_ours: bool,
}

/// Reads what `cargo metadata --no-deps` prints.
pub fn parse(metadata: &[u8]) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_slice(metadata).context("cargo metadata is no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    packages.iter().map(parse_package).collect()
}

fn parse_package(package: &Value) -> Result<Package> {
    let text = |value: &Value| value.as_str().map(String::from).context("a field is no text");
    let dependencies = package["dependencies"].as_array().context("no dependencies")?;
    let dependencies: Result<Vec<Dependency>> = dependencies
        .iter()
        .map(|dependency| {
            Ok(Dependency {
                name: text(&dependency["name"])?,
                is_for_tests: dependency["kind"] == "dev",
                is_ours: dependency["path"].is_string(),
            })
        })
        .collect();
    Ok(Package {
        name: text(&package["name"])?,
        manifest: PathBuf::from(text(&package["manifest_path"])?),
        dependencies: dependencies?,
    })
}

/// Edges that the table does not permit, and crates that it does not know.
pub fn check(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages.iter().filter(|package| package.name != ROOT) {
        let Some(permitted) = edges_of(EDGES, &package.name) else {
            let text = "is in no layer; add it to the table in xtask/src/tidy/layers.rs";
            violations.push(violation(&package.name, LAYERS, text.to_string()));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.is_ours) {
            let in_tests = edges_of(TEST_EDGES, &package.name).unwrap_or(&[]);
            let name = dependency.name.as_str();
            let is_permitted =
                permitted.contains(&name) || (dependency.is_for_tests && in_tests.contains(&name));
            if !is_permitted {
                let text = format!("may not depend on {name}");
                violations.push(violation(&package.name, LAYERS, text));
            }
        }
    }
    violations
}

fn edges_of(
    table: &'static [(&'static str, &'static [&'static str])],
    name: &str,
) -> Option<&'static [&'static str]> {
    table.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

/// Whether a manifest takes the workspace's lints, or, in the one crate that cannot, still asks for
/// the reasons of each unsafe block.
pub fn check_lints(name: &str, path: &str, manifest: &str) -> Vec<Violation> {
    let (section, wanted) = match name {
        UNSAFE_CRATE => ("[lints.clippy]", "undocumented_unsafe_blocks = \"deny\""),
        _ => ("[lints]", "workspace = true"),
    };
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
    if lines.by_ref().take_while(|line| !line.starts_with('[')).any(|line| line == wanted) {
        return Vec::new();
    }
    vec![violation(path, LINTS, format!("there is no `{wanted}` under `{section}`"))]
}

fn violation(path: &str, rule: &'static str, text: String) -> Violation {
    Violation { path: path.to_string(), line: 0, rule, text }
}

#[cfg(test)]
mod test {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, is_for_tests)| Dependency {
            name: name.to_string(),
            is_for_tests: *is_for_tests,
            is_ours: true,
        });
        let dependencies = dependencies.collect();
        Package { name: name.into(), manifest: PathBuf::new(), dependencies }
    }

    #[test]
    fn edges_in_the_table_are_permitted() {
        let migrate = package("migrate", &[("wire", false), ("kernel", false), ("link", true)]);
        assert_eq!(
            check(&[migrate, package("wire", &[]), package("osmos", &[("body", false)])]),
            []
        );
    }

    #[test]
    fn an_edge_that_points_up_or_sideways_is_found() {
        for (from, to) in
            [("wire", "brain"), ("body", "deputy"), ("brain", "kernel"), ("client", "node")]
        {
            let found = check(&[package(from, &[(to, false)])]);
            assert_eq!(found.len(), 1, "{from} -> {to}");
            assert!(found[0].text.contains(to), "{found:?}");
        }
    }

    #[test]
    fn an_edge_for_tests_is_not_one_for_the_program() {
        assert_eq!(check(&[package("node", &[("client", true)])]), []);
        assert_eq!(check(&[package("node", &[("client", false)])]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_found_and_foreign_crates_do_not_matter() {
        assert_eq!(check(&[package("novelty", &[])]).len(), 1);
        let mut wire = package("wire", &[("serde", false)]);
        wire.dependencies[0].is_ours = false;
        assert_eq!(check(&[wire]), []);
    }

    #[test]
    fn a_manifest_that_leaves_the_lints_is_found() {
        let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        assert_eq!(check_lints("a", "a/Cargo.toml", good), []);
        assert_eq!(check_lints("a", "a/Cargo.toml", "[package]\nname = \"a\"\n").len(), 1);
        let elsewhere = "[lints]\n[other]\nworkspace = true\n";
        assert_eq!(check_lints("a", "a/Cargo.toml", elsewhere).len(), 1);
        assert_eq!(check_lints("kernel", "k/Cargo.toml", good).len(), 1);
        let kernel = "[lints.clippy]\nundocumented_unsafe_blocks = \"deny\"\n";
        assert_eq!(check_lints("kernel", "k/Cargo.toml", kernel), []);
    }
}
