//! The rule of the brain's regions: which folder of `core/brain/src` may know which. That each has
//! one door the compiler sees to, because what is in a folder is private to it.

use super::Violation;

const REGIONS: &str = "regions-point-down";
const BRAIN: &str = "core/brain/src/";

/// What every region may know: words of its crate's root that know nothing themselves.
const WORDS: &[&str] = &["config", "input", "random", "time"];

/// Every folder, and the regions and files of the root that it may know besides.
const EDGES: &[(&str, &[&str])] = &[
    ("facts", &[]),
    ("messages", &["facts"]),
    ("others", &["facts", "messages"]),
    ("reasons", &["messages", "rule"]),
    ("here", &["facts", "reasons", "rule"]),
    ("handshake", &["messages", "reasons"]),
    ("situation", &["facts", "handshake", "here", "messages", "others", "reasons", "rule"]),
    ("policies", &["facts", "messages", "others", "reasons", "rule", "situation"]),
    ("answers", &["facts", "here", "others", "reasons", "rule", "situation"]),
];

/// It connects them, and knows all.
const TOP: &str = "brain";

/// Imports of a source file that run upwards.
pub fn check(path: &str, text: &str) -> Vec<Violation> {
    let Some((region, _)) = path.strip_prefix(BRAIN).and_then(|rest| rest.split_once('/')) else {
        return vec![];
    };
    if region == TOP {
        return vec![];
    }
    let known = EDGES.iter().find(|(name, _)| *name == region).map(|(_, known)| *known);
    let violation =
        |line: usize, text: String| Violation { path: path.to_string(), line, rule: REGIONS, text };
    let Some(known) = known else {
        let text = "is in no region; add it to the table in xtask/src/tidy/regions.rs";
        return vec![violation(0, text.to_string())];
    };
    let mut violations = Vec::new();
    for (nth, line) in text.lines().enumerate() {
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
        assert!(check("core/brain/src/brain/gossip.rs", text).is_empty());
        assert_eq!(check("core/brain/src/newest/a.rs", "").len(), 1);
    }

    #[test]
    fn every_edge_leads_down() {
        for (nth, (region, known)) in EDGES.iter().enumerate() {
            let is_below = |name: &str| EDGES[..nth].iter().any(|(below, _)| *below == name);
            let is_folder = |name: &str| EDGES.iter().any(|(folder, _)| *folder == name);
            let upwards = known.iter().find(|name| is_folder(name) && !is_below(name));
            assert_eq!(upwards, None, "of {region}");
        }
    }
}
