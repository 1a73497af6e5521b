//! What of the processes is shown: words that all have to be found, and fields by name.

use client::picture::{NodeRow, ProcessRow};
use wire::ids::NodeId;

/// `make user:anna node:3 state:moving`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Word(String),
    User(String),
    /// Where it runs, by number or name.
    Node(String),
    Home(String),
    State(String),
}

impl Filter {
    /// Every text is a filter. What has no known field before its colon is a word.
    pub fn new(text: &str) -> Filter {
        let terms = text.split_whitespace().map(|word| {
            let word = word.to_lowercase();
            match word.split_once(':') {
                Some(("user", name)) => Term::User(name.to_owned()),
                Some(("node", node)) => Term::Node(node.to_owned()),
                Some(("home", node)) => Term::Home(node.to_owned()),
                Some(("state", state)) => Term::State(state.to_owned()),
                _ => Term::Word(word),
            }
        });
        Filter { terms: terms.collect(), text: text.to_owned() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn lets_through(&self, process: &ProcessRow, nodes: &[NodeRow]) -> bool {
        self.terms.iter().all(|term| term.fits(process, nodes))
    }
}

impl Term {
    fn fits(&self, process: &ProcessRow, nodes: &[NodeRow]) -> bool {
        let is_node = |wanted: &str, id: NodeId| {
            let name = || nodes.iter().find(|node| node.id == id).map(|node| &node.name);
            wanted == id.to_string() || name().is_some_and(|name| name.to_lowercase() == wanted)
        };
        match self {
            Term::Word(word) => {
                process.key.pid.to_string() == *word
                    || [&process.command, &process.user, &process.reason]
                        .iter()
                        .any(|text| text.to_lowercase().contains(word))
            }
            Term::User(name) => process.user.to_lowercase() == *name,
            Term::Node(wanted) => is_node(wanted, process.node),
            Term::Home(wanted) => is_node(wanted, process.key.home),
            Term::State(state) if state == "away" => process.is_away(),
            Term::State(state) => process.state.to_lowercase() == *state,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{node, picture, process};

    #[test]
    fn all_terms_have_to_fit() {
        let mut make = process(1, 10, 2);
        (make.command_line, make.user) = (Some("make -j8 All".into()), Some("anna".into()));
        let picture = picture(&[node(1, "one"), node(2, "Two")], &[make, process(2, 11, 2)]);
        let shown = |text: &str| -> Vec<i32> {
            let filter = Filter::new(text);
            let fitting =
                picture.processes.iter().filter(|p| filter.lets_through(p, &picture.nodes));
            fitting.map(|process| process.key.pid.0).collect()
        };
        assert_eq!(shown(""), [10, 11]);
        assert_eq!(shown("MAKE all"), [10]);
        assert_eq!(shown("user:anna node:two"), [10]);
        assert_eq!(shown("node:2"), [10, 11]);
        assert_eq!(shown("home:1 state:away state:running"), [10]);
        assert_eq!(shown("user:ann"), [0; 0]);
        assert_eq!(shown("node:7"), [0; 0]);
        assert_eq!(shown("11"), [11]);
        assert_eq!(shown("what:ever"), [0; 0], "no field of that name: a word");
    }
}
