//! `mosix.map`: the nodes of a cluster in one file that is the same on every node.
//!
//! Each line is `NUMBER ADDRESS-OR-HOST SPAN`: `1 192.168.1.1 3` names nodes 1, 2 and 3 at three
//! consecutive addresses. `#` starts a comment. Classic maps also say `ALIAS` for a further address
//! of a node; that has no meaning here and is refused rather than guessed at.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::ids::NodeId;

/// Nodes that one map may name.
pub const NODES_MAX: u32 = 65_535;
/// A map file larger than this is not a map file.
pub const MAP_BYTES_MAX: u64 = 4 << 20;

/// Why a map cannot be used. Line numbers start at 1.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("line {line}: `{text}` is not NUMBER ADDRESS SPAN, e.g. `1 192.168.1.1 3`")]
    Form { line: usize, text: String },
    #[error("line {line}: `{text}` is not a node number from 1 to {NODES_MAX}")]
    Number { line: usize, text: String },
    #[error("line {line}: `{text}` is not a span of 1 or more nodes")]
    Span { line: usize, text: String },
    #[error("line {line}: node {node} is named on line {first} already")]
    Twice { line: usize, node: NodeId, first: usize },
    #[error("line {line}: a span of {span} does not fit after {text}")]
    Overflow { line: usize, text: String, span: u32 },
    #[error("line {line}: cannot find the address of host `{host}`")]
    Host { line: usize, host: String, source: io::Error },
    #[error("line {line}: `{text}` is the address of node {other} too")]
    SameAddress { line: usize, text: IpAddr, other: NodeId },
    #[error("it names no node")]
    Empty,
}

/// One line: `span` nodes, numbered from `first`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    line: usize,
    first: u32,
    place: String,
    span: u32,
}

/// Parses a map. `resolve` finds the address of a host name.
pub fn parse(
    text: &str,
    resolve: impl Fn(&str) -> io::Result<IpAddr>,
) -> Result<BTreeMap<NodeId, IpAddr>, MapError> {
    let mut nodes: BTreeMap<NodeId, (usize, IpAddr)> = BTreeMap::new();
    let mut places: BTreeMap<IpAddr, NodeId> = BTreeMap::new();
    for entry in entries(text)? {
        let line = entry.line;
        let base = match entry.place.parse() {
            Ok(address) => address,
            Err(_) => resolve(&entry.place).map_err(|source| MapError::Host {
                line,
                host: entry.place.clone(),
                source,
            })?,
        };
        for step in 0..entry.span {
            let node = NodeId(entry.first + step);
            let address = plus(base, step).ok_or_else(|| MapError::Overflow {
                line,
                text: entry.place.clone(),
                span: entry.span,
            })?;
            if let Some((first, _)) = nodes.insert(node, (line, address)) {
                return Err(MapError::Twice { line, node, first });
            }
            if let Some(other) = places.insert(address, node) {
                return Err(MapError::SameAddress { line, text: address, other });
            }
        }
    }
    if nodes.is_empty() {
        return Err(MapError::Empty);
    }
    Ok(nodes.into_iter().map(|(node, (_, address))| (node, address)).collect())
}

fn entries(text: &str) -> Result<Vec<Entry>, MapError> {
    let mut entries = Vec::new();
    for (index, full) in text.lines().enumerate() {
        let line = index + 1;
        let content = full.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let form = || MapError::Form { line, text: shortened(content) };
        let mut words = content.split_ascii_whitespace();
        let (Some(number), Some(place), Some(span), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(form());
        };
        let first = number.parse().ok().filter(|n| (1..=NODES_MAX).contains(n));
        let first = first.ok_or_else(|| MapError::Number { line, text: shortened(number) })?;
        let span_number = span.parse().ok().filter(|n: &u32| *n >= 1);
        let span = span_number.ok_or_else(|| MapError::Span { line, text: shortened(span) })?;
        if span > NODES_MAX - first + 1 {
            return Err(MapError::Overflow { line, text: number.to_owned(), span });
        }
        entries.push(Entry { line, first, place: place.to_owned(), span });
    }
    Ok(entries)
}

fn plus(address: IpAddr, step: u32) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => u32::from(v4).checked_add(step).map(|n| Ipv4Addr::from(n).into()),
        IpAddr::V6(v6) => u128::from(v6).checked_add(step.into()).map(|n| Ipv6Addr::from(n).into()),
    }
}

/// A hostile or binary file must not flood an error text.
fn shortened(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    fn without_names(text: &str) -> Result<BTreeMap<NodeId, IpAddr>, MapError> {
        parse(text, |_| Err(io::Error::other("no names here")))
    }

    fn ids_and_addresses(text: &str) -> Vec<(u32, String)> {
        let map = without_names(text).unwrap();
        map.into_iter().map(|(node, address)| (node.0, address.to_string())).collect()
    }

    #[test]
    fn the_two_maps_of_the_tutorial_are_the_same_cluster() {
        let long = ids_and_addresses("1 192.168.1.1 1\n2 192.168.1.2 1\n3 192.168.1.3 1\n");
        assert_eq!(long, ids_and_addresses("1 192.168.1.1 3\n"));
        assert_eq!(long[2], (3, "192.168.1.3".to_owned()));
    }

    #[test]
    fn comments_blank_lines_and_tabs_are_nothing() {
        let text = "# our cluster\n\n  4\t10.0.0.255 2 # two of them\r\n";
        let expected = [(4, "10.0.0.255".to_owned()), (5, "10.0.1.0".to_owned())];
        assert_eq!(ids_and_addresses(text), expected);
    }

    #[test]
    fn a_host_name_is_resolved_and_spans_on_from_its_address() {
        let map = parse("1 alpha 2", |name| {
            assert_eq!(name, "alpha");
            Ok("10.1.1.1".parse().unwrap())
        });
        assert_eq!(map.unwrap()[&NodeId(2)], "10.1.1.2".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn errors_name_the_line_and_what_is_wrong_with_it() {
        let cases = [
            ("1 10.0.0.1", "line 1: `1 10.0.0.1` is not NUMBER ADDRESS SPAN"),
            ("\n1 10.0.0.1 1 ALIAS", "line 2: `1 10.0.0.1 1 ALIAS` is not NUMBER"),
            ("0 10.0.0.1 1", "line 1: `0` is not a node number"),
            ("70000 10.0.0.1 1", "line 1: `70000` is not a node number"),
            ("1 10.0.0.1 0", "line 1: `0` is not a span"),
            ("1 10.0.0.1 4000000000", "line 1: a span of 4000000000 does not fit after 1"),
            ("1 255.255.255.255 2", "line 1: a span of 2 does not fit after 255.255.255.255"),
            ("1 10.0.0.1 2\n2 10.0.1.1 1", "line 2: node 2 is named on line 1 already"),
            ("1 10.0.0.1 2\n3 10.0.0.2 1", "line 2: `10.0.0.2` is the address of node 2 too"),
            ("1 beta 1", "line 1: cannot find the address of host `beta`"),
            ("# nothing\n", "it names no node"),
        ];
        for (text, expected) in cases {
            let error = without_names(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
