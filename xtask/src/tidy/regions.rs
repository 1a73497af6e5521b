//! The rule of the brain's regions: which folder of `core/brain/src` may know which, and the files
//! beside them that folders know. That each folder has one door the compiler sees to, because what
//! is in it is private.

use super::Violation;

const REGIONS: &str = "regions-point-down";
const BRAIN: &str = "core/brain/src/";

/// What every region may know: files of the crate's root that know nothing but each other.
const WORDS: &[&str] = &["config", "input", "looks", "random", "time"];

/// Every region, and what of the others it may know: those above it in this table.
const EDGES: &[(&str, &[&str])] = &[
    ("facts", &[]),
    ("messages", &["facts"]),
    ("rule", &["facts"]),
    ("others", &["facts", "messages"]),
    ("reasons", &["messages", "rule"]),
    ("here", &["facts", "reasons", "rule"]),
    ("handshake", &["messages", "reasons"]),
    ("situation", &["facts", "handshake", "here", "messages", "others", "reasons", "rule"]),
    ("policies", &["facts", "messages", "others", "reasons", "rule", "situation"]),
    ("answers", &["facts", "here", "others", "reasons", "rule", "situation"]),
];

/// They connect the regions, or are for who uses the crate, and know all.
const TOP: &[&str] = &["brain", "invariants", "lib", "output", "recording"];

/// Imports of a source file that run upwards.
pub fn check(path: &str, text: &str) -> Vec<Violation> {
    let Some(inside) = path.strip_prefix(BRAIN) else { return vec![] };
    let region = inside.split(['/', '.']).next().unwrap_or(inside);
    if TOP.contains(&region) {
        return vec![];
    }
    let known = match EDGES.iter().find(|(name, _)| *name == region) {
        Some((_, known)) => Some(*known),
        None => WORDS.contains(&region).then_some(&[][..]),
    };
    let violation =
        |line: usize, text: String| Violation { path: path.to_string(), line, rule: REGIONS, text };
    let Some(known) = known else {
        let text = "is in no region; add it to the table in xtask/src/tidy/regions.rs";
        return vec![violation(0, text.to_string())];
    };
    let mut violations = Vec::new();
    let is_code = |line: &str| !line.trim_start().starts_with("//");
    for (nth, line) in text.lines().enumerate().filter(|(_, line)| is_code(line)) {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            let is_known = name == region || WORDS.contains(&name) || known.contains(&name);
            if !is_known {
                violations.push(violation(nth + 1, format!("{region} may not know {name}")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_runs_upwards_is_found_and_what_runs_down_is_not() {
        let text = "use crate::facts::Entry;\nuse crate::time::Time;\nuse crate::brain::Brain;\n";
        let found = check("core/brain/src/others/members.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].line, &*found[0].text), (3, "others may not know brain"));
        assert_eq!(check("core/brain/src/policies/fairness.rs", text).len(), 1);
        assert_eq!(check("core/brain/src/rule.rs", text).len(), 1);
        assert_eq!(check("core/brain/src/config.rs", text).len(), 2);
        assert!(check("core/brain/src/input.rs", "/// See [`crate::Brain`].\n").is_empty());
        assert!(check("core/brain/src/brain/gossip.rs", text).is_empty());
        assert_eq!(check("core/brain/src/newest/a.rs", "").len(), 1);
    }

    #[test]
    fn every_edge_leads_down() {
        for (nth, (region, known)) in EDGES.iter().enumerate() {
            let is_below = |name: &str| EDGES[..nth].iter().any(|(below, _)| *below == name);
            let upwards = known.iter().find(|name| !is_below(name));
            assert_eq!(upwards, None, "of {region}");
        }
    }
}
