//! As whom the guests of a node run: a table from users of home to users of this node.
//!
//! The number of a guest's user is what a member of the cluster claims, and its supervisor parses
//! what that member sends. So a node says itself which of its accounts it gives away for that: by
//! default none that are privileged. `0-999=nobody,*=same`: what root and the system's accounts own
//! runs as `nobody`, all else under its own number.

use crate::ids::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Linux's overflow user and group: who has no rights anywhere (`/proc/sys/kernel/overflowuid`).
pub const NOBODY: u32 = 65_534;
/// Below it are the accounts of the system (`SYS_UID_MAX` of login.defs).
const ORDINARY_MIN: u32 = 1_000;
/// The highest user: the number above means none to the kernel.
const USER_MAX: u32 = u32::MAX - 1;
/// Rules of one table.
pub const RULES_MAX: usize = 64;
/// Nodes that a home may name to lend to.
pub const LEND_TO_MAX: usize = 1_024;

/// The first rule that names a user decides; whom no rule names is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserTable(Vec<Rule>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    first: u32,
    last: u32,
    becomes: Becomes,
}

/// What becomes of the users of a rule here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    /// The user with the same number.
    Same,
    /// One user for all of them.
    One(u32),
    /// The users from this number on, in their order.
    From(u32),
    Refused,
}

/// Why a text is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no rule for users: USERS=WHOM, where USERS is a number, a range `N-M` or `*`, and \
     WHOM is `same`, `refuse`, a user, or a range of the same length"
)]
pub struct NoTable(String);

impl Default for UserTable {
    fn default() -> UserTable {
        let squashed = Rule { first: 0, last: ORDINARY_MIN - 1, becomes: Becomes::One(NOBODY) };
        UserTable(vec![squashed, Rule { first: 0, last: USER_MAX, becomes: Becomes::Same }])
    }
}

impl UserTable {
    /// Everybody under his own number, root included: for machines of one administrator.
    pub fn same() -> UserTable {
        UserTable(vec![Rule { first: 0, last: USER_MAX, becomes: Becomes::Same }])
    }

    /// Parses rules with commas between them; `user_of` finds the number of a user's name.
    pub fn parse(text: &str, user_of: impl Fn(&str) -> Option<u32>) -> Result<UserTable, NoTable> {
        let rules = text.split(',').take(RULES_MAX + 1);
        let rules: Vec<Rule> =
            rules.map(|word| rule(word.trim(), &user_of)).collect::<Result<_, _>>()?;
        match rules.len() {
            1..=RULES_MAX => Ok(UserTable(rules)),
            _ => Err(NoTable(format!("more than {RULES_MAX} rules"))),
        }
    }

    /// As whom the processes of this user of another node run here. None if they do not.
    pub fn user_here(&self, user: u32) -> Option<u32> {
        let rule = self.0.iter().find(|rule| (rule.first..=rule.last).contains(&user))?;
        match rule.becomes {
            Becomes::Same => Some(user),
            Becomes::One(here) => Some(here),
            Becomes::From(first) => first.checked_add(user - rule.first),
            Becomes::Refused => None,
        }
        .filter(|here| *here <= USER_MAX)
    }

    /// True if some user of another node would be root here.
    pub fn gives_root(&self) -> bool {
        self.0.iter().any(|rule| match rule.becomes {
            Becomes::Same => rule.first == 0 && self.user_here(0) == Some(0),
            Becomes::One(here) | Becomes::From(here) => here == 0,
            Becomes::Refused => false,
        })
    }
}

fn rule(word: &str, user_of: &impl Fn(&str) -> Option<u32>) -> Result<Rule, NoTable> {
    let complaint = || NoTable(word.chars().take(60).collect());
    let (users, whom) = word.split_once('=').ok_or_else(complaint)?;
    let (first, last) = match users {
        "*" => (0, USER_MAX),
        _ => {
            range(users).or_else(|| number(users).map(|user| (user, user))).ok_or_else(complaint)?
        }
    };
    let becomes = match whom {
        "same" => Becomes::Same,
        "refuse" => Becomes::Refused,
        _ => match (number(whom), range(whom)) {
            (Some(user), _) => Becomes::One(user),
            (None, Some((from, to))) if to - from == last - first => Becomes::From(from),
            (None, Some(_)) => return Err(complaint()),
            (None, None) => Becomes::One(user_of(whom).ok_or_else(complaint)?),
        },
    };
    Ok(Rule { first, last, becomes })
}

fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|user| *user <= USER_MAX)
}

fn range(word: &str) -> Option<(u32, u32)> {
    let (first, last) = word.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

impl fmt::Display for UserTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match (rule.first, rule.last) {
                (0, USER_MAX) => f.write_str("*=")?,
                (first, last) if first == last => write!(f, "{first}=")?,
                (first, last) => write!(f, "{first}-{last}=")?,
            }
            match rule.becomes {
                Becomes::Same => f.write_str("same")?,
                Becomes::One(NOBODY) => f.write_str("nobody")?,
                Becomes::One(user) => write!(f, "{user}")?,
                Becomes::From(first) => write!(f, "{first}-{}", first + (rule.last - rule.first))?,
                Becomes::Refused => f.write_str("refuse")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for UserTable {
    type Error = NoTable;

    fn try_from(text: String) -> Result<UserTable, NoTable> {
        UserTable::parse(&text, |name| (name == "nobody").then_some(NOBODY))
    }
}

impl From<UserTable> for String {
    fn from(table: UserTable) -> String {
        table.to_string()
    }
}

/// Which nodes a home lends processes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Borrowers {
    #[default]
    All,
    /// In the order of their numbers.
    Only(Vec<NodeId>),
}

/// Why a text names no nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither `all` nor numbers of nodes and ranges `N-M`, {LEND_TO_MAX} nodes at most"
)]
pub struct NoBorrowers(String);

impl Borrowers {
    /// `all`, or `2,5-7`.
    pub fn parse(text: &str) -> Result<Borrowers, NoBorrowers> {
        if text == "all" {
            return Ok(Borrowers::All);
        }
        let complaint = || NoBorrowers(text.chars().take(60).collect());
        let mut nodes = BTreeSet::new();
        for word in text.split(',') {
            let (first, last) = range(word)
                .or_else(|| number(word).map(|node| (node, node)))
                .filter(|(first, last)| *first > 0 && (last - first) < LEND_TO_MAX as u32)
                .ok_or_else(complaint)?;
            nodes.extend((first..=last).map(NodeId));
            if nodes.len() > LEND_TO_MAX {
                return Err(complaint());
            }
        }
        Ok(Borrowers::Only(nodes.into_iter().collect()))
    }

    pub fn has(&self, node: NodeId) -> bool {
        match self {
            Borrowers::All => true,
            Borrowers::Only(nodes) => nodes.contains(&node),
        }
    }
}

impl fmt::Display for Borrowers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Borrowers::All => f.write_str("all"),
            Borrowers::Only(nodes) => {
                let words: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn parse(text: &str) -> Result<UserTable, NoTable> {
        UserTable::parse(text, |name| (name == "guest").then_some(777))
    }

    fn become_of(text: &str, users: &[u32]) -> Vec<Option<u32>> {
        let table = parse(text).unwrap();
        users.iter().map(|user| table.user_here(*user)).collect()
    }

    #[test]
    fn by_default_root_and_the_accounts_of_the_system_are_nobody_and_others_who_they_are() {
        let table = UserTable::default();
        let here = [0, 1, 999, 1000, NOBODY, u32::MAX - 1].map(|user| table.user_here(user));
        let last = Some(u32::MAX - 1);
        let nobody = Some(NOBODY);
        assert_eq!(here, [nobody, nobody, nobody, Some(1000), nobody, last]);
        assert_eq!(table.user_here(u32::MAX), None, "that is no user");
        assert!(!table.gives_root() && UserTable::same().gives_root());
        assert_eq!(table.to_string(), "0-999=nobody,*=same");
    }

    #[test]
    fn the_first_rule_that_names_a_user_decides_and_whom_none_names_is_refused() {
        let users = [0, 5, 1000, 1999, 2000, u32::MAX];
        assert_eq!(
            become_of("0=guest,1000-1999=5000-5999,5=refuse", &users),
            [Some(777), None, Some(5000), Some(5999), None, None]
        );
        assert_eq!(become_of("*=1234", &users)[..5], [Some(1234); 5]);
        assert_eq!(become_of("0=refuse,*=same", &[0, 1]), [None, Some(1)]);
    }

    #[test]
    fn what_gives_root_away_is_known_for_it() {
        for text in ["*=same", "0=same", "5=0", "1000-1001=0-1", "0-9=same"] {
            assert!(parse(text).unwrap().gives_root(), "{text}");
        }
        for text in ["0=1,*=same", "*=nobody,0=same", "1-9=same", "0=refuse,*=same"] {
            let table = UserTable::try_from(text.to_owned()).unwrap();
            assert!(!table.gives_root(), "{text}");
        }
    }

    #[test]
    fn borrowers_are_read_as_they_are_written() {
        let only =
            |nodes: &[u32]| Borrowers::Only(nodes.iter().map(|node| NodeId(*node)).collect());
        assert_eq!(Borrowers::parse("7,2-4,3"), Ok(only(&[2, 3, 4, 7])));
        for borrowers in [Borrowers::All, only(&[2, 3, 7])] {
            assert_eq!(Borrowers::parse(&borrowers.to_string()), Ok(borrowers));
        }
        for text in ["", "0", "x", "1-4294967294", "4-2", "1-1024,2000"] {
            assert!(Borrowers::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_table_is_read_as_it_is_written_and_nonsense_is_none() {
        for text in ["0-999=nobody,*=same", "0=refuse", "1000-1009=2000-2009,7=9"] {
            let table = UserTable::try_from(text.to_owned()).unwrap();
            assert_eq!(table.to_string(), text);
            let json = serde_json::to_string(&table).unwrap();
            assert_eq!(serde_json::from_str::<UserTable>(&json).unwrap(), table);
        }
        let many = vec!["0=same"; RULES_MAX + 1].join(",");
        for text in [
            "",
            "0",
            "0=",
            "=same",
            "9-1=same",
            "0-9=1-2",
            "4294967295=same",
            "0=4294967295",
            &many,
        ] {
            assert!(parse(text).is_err(), "{text:.20}");
        }
    }
}
