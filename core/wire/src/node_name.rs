//! What a node is called by people: its host name, or what its owner said. The protocols know nodes
//! by their numbers; a name stands for one where people type and read.
//!
//! A name comes from another node's daemon and is shown on terminals, so it is made of few
//! characters. It has a letter, so that it is never taken for a number, a range of numbers or an
//! address.

use crate::limits::NODE_NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Words that mean something else where a node is named, or every machine.
const TAKEN: [&str; 8] =
    ["all", "balance", "best", "here", "home", "localhost", "none", "selected"];
/// What is shown of a text that is no name.
const SHOWN_CHARS_MAX: usize = 80;

/// As it was given; two that differ in capital letters only are the same to
/// [`NodeName::is_meant_by`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// Why a text is no name of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeName {
    #[error(
        "`{0}` is no name of a node: letters, digits, `-`, `_` and `.`, {NODE_NAME_BYTES_MAX} at \
         most and one of them a letter; what stands between dots begins and ends with a letter or \
         digit"
    )]
    Form(String),
    #[error("no node can be called `{0}`: that word means something else")]
    Taken(String),
}

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `word` may stand for a node of this name: it is the name, or the name up to one of
    /// its dots.
    ///
    /// Neither comes before the other: a node that calls itself `delta` must not get what was meant
    /// for `delta.example.org`.
    pub fn is_meant_by(&self, word: &NodeName) -> bool {
        let (name, word) = (self.0.as_bytes(), word.0.as_bytes());
        let begins = name.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        begins && matches!(name.get(word.len()), None | Some(b'.'))
    }
}

impl FromStr for NodeName {
    type Err = BadNodeName;

    fn from_str(text: &str) -> Result<NodeName, BadNodeName> {
        let is_formed = text.len() <= NODE_NAME_BYTES_MAX
            && text.bytes().any(|byte| byte.is_ascii_alphabetic())
            && text.split('.').all(is_label);
        if !is_formed {
            // Whatever is in it, no terminal obeys it.
            let shown = text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug);
            return Err(BadNodeName::Form(shown.collect()));
        }
        if TAKEN.iter().any(|word| word.eq_ignore_ascii_case(text)) {
            return Err(BadNodeName::Taken(text.to_owned()));
        }
        Ok(NodeName(text.to_owned()))
    }
}

/// What may stand between two dots.
fn is_label(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let mut bytes = text.bytes();
    is_end(text.bytes().next())
        && is_end(text.bytes().next_back())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl TryFrom<String> for NodeName {
    type Error = BadNodeName;

    fn try_from(text: String) -> Result<NodeName, BadNodeName> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn name(text: &str) -> NodeName {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn host_names_are_names() {
        let long = "x".repeat(NODE_NAME_BYTES_MAX);
        for text in ["a", "delta", "Delta-7", "node_3", "7of9", "4f5a", "a.b.example.org", &long] {
            assert_eq!(name(text).as_str(), text);
            let json = serde_json::to_string(&name(text)).unwrap();
            assert_eq!(serde_json::from_str::<NodeName>(&json).unwrap(), name(text));
        }
    }

    #[test]
    fn numbers_ranges_addresses_and_what_a_terminal_obeys_are_no_names() {
        let long = "x".repeat(NODE_NAME_BYTES_MAX + 1);
        for text in [
            "",
            "7",
            "5-7",
            "10.0.0.1",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a.-b",
            "_a",
            "a b",
            "a\n",
            "a\u{1b}[2J",
            "größe",
            "a,b",
            "a/b",
            "::a",
            &long,
        ] {
            let error = text.parse::<NodeName>().expect_err(text);
            assert!(matches!(error, BadNodeName::Form(_)), "{text:?}: {error}");
            assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
            assert!(error.to_string().len() < 500, "{error}");
            assert!(serde_json::from_value::<NodeName>(text.into()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_that_mean_something_else_are_no_names() {
        for text in TAKEN {
            for text in [text.to_owned(), text.to_uppercase()] {
                assert_eq!(text.parse::<NodeName>(), Err(BadNodeName::Taken(text)));
            }
        }
        name("home.example.org");
    }

    #[test]
    fn a_name_is_meant_by_itself_and_by_its_beginning_up_to_a_dot() {
        let fits = |word| name("Delta.example.org").is_meant_by(&name(word));
        for word in ["delta.EXAMPLE.org", "delta.example", "DELTA"] {
            assert!(fits(word), "{word}");
        }
        for word in ["delt", "delta.ex", "example", "delta.example.org.uk", "deltas"] {
            assert!(!fits(word), "{word}");
        }
    }
}
