//! What is typed in the lowest line, and questions that are answered by one key.

use super::{Action, Model, Order};
use crate::filter::Filter;
use crate::table::Column;
use client::picture::NodeRow;
use client::signals::signal_of;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use wire::control::Destination;
use wire::ids::{GlobalPid, NodeId};
use wire::node_name::NodeName;
use wire::owner::OwnerOrder;

/// Characters that may be typed.
const CHARS_MAX: usize = 200;
/// What a process is sent if nothing is typed.
const SIGNAL_USUAL: &str = "TERM";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// Filters while it is typed; `before` is what to go back to.
    Filter {
        before: String,
    },
    Migrate(GlobalPid),
    Signal(GlobalPid),
    Command,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub kind: PromptKind,
    pub text: String,
}

/// What a key has made of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    More,
    Done,
    GivenUp,
}

/// Is that really meant?
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub text: String,
    /// None: to leave.
    pub order: Option<Order>,
}

impl Question {
    pub fn about_node(node: &NodeRow, order: OwnerOrder) -> Question {
        let name = match node.name.as_str() {
            "" => node.id.to_string(),
            name => format!("{} ({name})", node.id),
        };
        let text = match order {
            OwnerOrder::Expel => format!("expel the {} guests of node {name}?", node.guests),
            _ => format!("drain node {name}: guests leave, own processes go out?"),
        };
        Question { text, order: Some(Order::Owner(node.id, order)) }
    }

    pub fn about_leaving(under_way: usize) -> Question {
        let text = match under_way {
            1 => "an order is under way; a move is called off if you leave. Leave?".to_owned(),
            count => format!("{count} orders are under way; moves are called off. Leave?"),
        };
        Question { text, order: None }
    }
}

impl Prompt {
    /// What stands before the text.
    pub fn label(&self) -> String {
        match &self.kind {
            PromptKind::Filter { .. } => "/".to_owned(),
            PromptKind::Migrate(process) => {
                format!("move {} to (number, name, home, best): ", process.pid)
            }
            PromptKind::Signal(process) => format!("signal to {} [{SIGNAL_USUAL}]: ", process.pid),
            PromptKind::Command => ":".to_owned(),
        }
    }

    pub fn on_key(&mut self, key: KeyEvent) -> Typed {
        match key.code {
            KeyCode::Enter => return Typed::Done,
            KeyCode::Esc => return Typed::GivenUp,
            KeyCode::Backspace if self.text.is_empty() => return Typed::GivenUp,
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.text.clear();
            }
            KeyCode::Char(typed) => {
                let is_text = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
                if is_text && !typed.is_control() && self.text.chars().count() < CHARS_MAX {
                    self.text.push(typed);
                }
            }
            _ => {}
        }
        Typed::More
    }
}

impl Model {
    pub(super) fn prompt_for(&mut self, kind: PromptKind) -> Vec<Action> {
        let text = match &kind {
            PromptKind::Filter { before } => before.clone(),
            _ => String::new(),
        };
        self.message = None;
        self.prompt = Some(Prompt { kind, text });
        Vec::new()
    }

    pub(super) fn set_filter(&mut self, text: &str) {
        self.filter = Filter::new(text);
        self.sort();
    }

    /// Does what was typed, or says what is wrong with it.
    pub(super) fn obey(&mut self, prompt: &Prompt) -> Result<Vec<Action>, String> {
        let text = prompt.text.trim();
        match &prompt.kind {
            PromptKind::Filter { .. } => {
                self.set_filter(text);
                Ok(Vec::new())
            }
            PromptKind::Migrate(process) => {
                let to = destination(text, &self.picture.nodes)?;
                Ok(self.order(Order::Migrate(*process, to)))
            }
            PromptKind::Signal(process) => {
                let signal = signal_of(if text.is_empty() { SIGNAL_USUAL } else { text })?;
                Ok(self.order(Order::Signal(*process, signal)))
            }
            PromptKind::Command => self.command(text),
        }
    }

    fn command(&mut self, text: &str) -> Result<Vec<Action>, String> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let order = match verb {
            "migrate" => {
                let to = destination(rest, &self.picture.nodes)?;
                Order::Migrate(self.selected_key()?, to)
            }
            "home" => Order::Migrate(self.selected_key()?, Destination::Home),
            "why" => Order::Why(self.selected_key()?),
            "pin" => {
                let key = self.selected_key()?;
                let node = self.selected_process().map_or(key.home, |process| process.node);
                Order::Pin(key, node)
            }
            "signal" => {
                let signal = signal_of(if rest.is_empty() { SIGNAL_USUAL } else { rest })?;
                Order::Signal(self.selected_key()?, signal)
            }
            _ => return self.command_without_order(verb, rest),
        };
        Ok(self.order(order))
    }

    fn command_without_order(&mut self, verb: &str, rest: &str) -> Result<Vec<Action>, String> {
        match verb {
            "" => {}
            "q" | "quit" => return Ok(vec![Action::Leave]),
            "filter" => self.set_filter(rest),
            "sort" => {
                let column = Column::by_title(rest).ok_or_else(|| {
                    let titles = Column::ALL.map(Column::title).join(" ");
                    format!("`{rest}` is no column; there are {titles}")
                })?;
                self.sort_by(column);
            }
            "expel" => self.ask_node(OwnerOrder::Expel),
            "drain" => self.ask_node(OwnerOrder::Drain { on: true }),
            "undrain" => return Ok(self.reopen_node()),
            _ => return Err(format!("`{verb}` is no command; ? lists them")),
        }
        Ok(Vec::new())
    }
}

/// A node's number or name, `home` or `best`.
fn destination(word: &str, nodes: &[NodeRow]) -> Result<Destination, String> {
    match word {
        "" => return Err("say where to: a node's number or name, `home` or `best`".to_owned()),
        "home" => return Ok(Destination::Home),
        "best" => return Ok(Destination::Best),
        _ => {}
    }
    if let Ok(number) = word.parse::<u32>() {
        let id = NodeId(number);
        let is_known = nodes.iter().any(|node| node.id == id);
        let complaint = || format!("there is no node {number}; the list above has all nodes");
        return is_known.then_some(Destination::Node(id)).ok_or_else(complaint);
    }
    let wanted: Option<NodeName> = word.parse().ok();
    let is_meant = |node: &&NodeRow| {
        let known: Option<NodeName> = node.name.parse().ok();
        wanted.as_ref().zip(known).is_some_and(|(wanted, known)| known.is_meant_by(wanted))
    };
    let named: Vec<&NodeRow> = nodes.iter().filter(is_meant).collect();
    match named[..] {
        [node] => Ok(Destination::Node(node.id)),
        [] => Err(format!("`{word}` is neither a node's number or name nor `home` or `best`")),
        _ => {
            let numbers: Vec<String> = named.iter().map(|node| node.id.to_string()).collect();
            Err(format!("`{word}` may be any of nodes {}: say a number", numbers.join(" and ")))
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{node, picture};

    #[test]
    fn a_destination_is_a_number_a_name_home_or_best() {
        let nodes = [node(1, "one"), node(2, "twin"), node(3, "twin")];
        let nodes = picture(&nodes, &[]).nodes;
        assert_eq!(destination("3", &nodes), Ok(Destination::Node(NodeId(3))));
        assert_eq!(destination("ONE", &nodes), Ok(Destination::Node(NodeId(1))));
        assert_eq!(destination("home", &nodes), Ok(Destination::Home));
        assert_eq!(destination("best", &nodes), Ok(Destination::Best));
        assert!(destination("twin", &nodes).unwrap_err().contains("nodes 2 and 3"));
        // Whoever is called `delta` does not get what was meant for another.
        let nodes = [node(4, "delta"), node(5, "delta.example.org")];
        let nodes = picture(&nodes, &[]).nodes;
        assert!(destination("delta", &nodes).unwrap_err().contains("nodes 4 and 5"));
        assert_eq!(destination("delta.example", &nodes), Ok(Destination::Node(NodeId(5))));
        for (word, complaint) in [("9", "no node 9"), ("none", "`none`"), ("", "where to")] {
            let error = destination(word, &nodes).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
