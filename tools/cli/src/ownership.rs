//! The commands of a node's owner, as they are typed. Each is an order to the daemon, or two.

use crate::arguments::Listing;
use crate::naming::{self, BorrowersChoice, NodeChoice, Nodes, node};
use crate::values::{bandwidth, freeze_budget, processors, size};
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use std::num::NonZeroU32;
use wire::freeze_budget::FreezeBudget;
use wire::move_limits::Bandwidth;
use wire::owner::{FileAccess, LimitChange, OwnerOrder};
use wire::users::{Borrowers, UserTable};

/// On, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    #[default]
    On,
    Off,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Switched {
    /// `off` takes it back
    #[arg(value_enum, default_value_t)]
    pub switch: Switch,
    #[command(flatten)]
    pub listing: Listing,
}

impl Switch {
    pub fn word(self) -> &'static str {
        match self {
            Switch::On => "on",
            Switch::Off => "off",
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
pub enum Own {
    /// Own processes of this node do not leave by balancing any more (`osmos stay off`: they may)
    Stay(Switched),
    /// No guests come to this node any more
    Block(Switched),
    /// Guests may come to this node again
    Noblock(Listing),
    /// This node's own load comes first: guests for which it leaves no core go elsewhere
    #[command(after_help = "\
Guests stand back behind the node's own programs, and whoever is left with less than half of a core
moves to where it gets the most. A core that was used is kept free of guests for ten seconds.")]
    Yield(Switched),
    /// Empty this node for maintenance: guests leave, own processes go out, nothing comes
    #[command(after_help = "\
Returns when the guests have left and own processes that can move have found a place. Own processes
that are away still need this node: `osmos down` brings them home first.")]
    Drain(Switched),
    /// Guests leave now, to where they are best off or else home, and no more come
    #[command(after_help = "\
Returns when they have left. `osmos noblock` lets guests come again.")]
    Expel(Listing),
    /// Own processes of this node that are away come home
    #[command(after_help = "\
Returns when they are home. They may leave again after half a minute; `osmos stay` keeps them.")]
    Bring(Listing),
    /// Guests of one home come before those of others on this node
    #[command(after_help = "\
Lower comes first, as with MOSIX; guests of homes that nothing was said of have 50. It decides who
leaves first when guests have to, and, with `osmos yield`, who stands back further.")]
    Priority {
        /// Their home, by number or name
        #[arg(value_parser = node)]
        node: NodeChoice,
        /// 0 to 65535; 50 is the usual one
        priority: u16,
        #[command(flatten)]
        listing: Listing,
    },
    /// Limit the number of guests, the memory for all of them, how long moves may hold own
    /// processes up, and what moves may take of this node
    #[command(after_help = "\
Examples:
  osmos limit --guests 4 --guest-memory 2G
  osmos limit --guests none
  osmos limit --guests-per-user 8 --storms-per-user none
  osmos limit --freeze-budget 50
  osmos limit --move-bandwidth 500Mbit --move-processors 2

Guests beyond a new limit leave. A freeze budget is that of all processes that were born here and
of which `osmos run` or `osmos migrate` said nothing else; `none` is the usual one, 20 ms.

Bandwidth and processors are those of each move from this node or to it, while memory is copied and
the process runs; of both nodes' limits the lower one holds. What is sent while a process stands
still is as fast as can be. Without a limit a move takes what the network has, and up to five
processors, all of them where there are fewer.")]
    Limit {
        /// At most so many; `none` for no limit
        #[arg(long, value_name = "N", value_parser = count)]
        #[arg(required_unless_present_any =
            ["guest_memory", "freeze_budget", "move_bandwidth", "move_processors",
             "guests_per_user", "storms_per_user"])]
        guests: Option<LimitChange>,
        /// At most so much: 512M, 2G; `none` for no limit
        #[arg(long, value_name = "SIZE", value_parser = guest_memory)]
        guest_memory: Option<LimitChange>,
        /// So many milliseconds at most, if that can be; `none` for the usual 20
        #[arg(long, value_name = "MS", value_parser = freeze_budget_change)]
        freeze_budget: Option<LimitChange<FreezeBudget>>,
        /// So much of the network at most: 500Mbit, 2Gbit; `none` for no limit
        #[arg(long, value_name = "RATE", value_parser = bandwidth_change)]
        move_bandwidth: Option<LimitChange<Bandwidth>>,
        /// So many processors busy at most; `none` for no limit
        #[arg(long, value_name = "N", value_parser = processors_change)]
        move_processors: Option<LimitChange<NonZeroU32>>,
        /// So many guests of one user at most; `none` for no limit
        #[arg(long, value_name = "N", value_parser = count)]
        guests_per_user: Option<LimitChange>,
        /// So many processes of one user of this node in storms (`osmos run --storm`) at most;
        /// `none` for no limit
        #[arg(long, value_name = "N", value_parser = count)]
        storms_per_user: Option<LimitChange>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say which own processes may leave: root's, and to which nodes
    #[command(after_help = "\
Examples:
  osmos lend --root on         root's processes may leave, too
  osmos lend --to 2,5-7        own processes go to these nodes only
  osmos lend --to delta,echo   likewise, by name
  osmos lend --to all

Whoever administers a node that holds a process can do all that the process's user may do at home.
Processes that are away against it come home.")]
    Lend {
        /// Root's processes may leave (`on`) or stay home (`off`)
        #[arg(long, value_enum, value_name = "on|off", required_unless_present = "to")]
        root: Option<Switch>,
        /// Nodes that own processes may go to, by number or name: 2,5-7,delta, or `all`
        #[arg(long, value_name = "NODES", value_parser = naming::borrowers)]
        to: Option<BorrowersChoice>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say what users of other nodes may do with their files on this one, and whether their jobs
    /// may begin here
    #[command(after_help = "\
Examples:
  osmos share read       they may read them: `osmos mount` there shows them in DIR/NODE
  osmos share write      they may change them, too
  osmos share off        neither, which is how a node begins
  osmos share --jobs on  their jobs may begin here: `osmos job run --nodes` there
  osmos share read --jobs off

A user of another node is here whom the table of users makes of him (`osmos up --guest-users`), and
may do with files what that user may do. Jobs begin and run as him, too, and not in a sandbox as
guests do; `--jobs off`, which is how a node begins, ends those that are here. Whoever administers a
node of the cluster can claim to be any of its users, as with NFS.")]
    Share {
        /// Nothing, reading, or reading and writing
        #[arg(value_enum, required_unless_present = "jobs")]
        access: Option<Sharing>,
        /// Jobs of users of other nodes may begin here (`on`) or not (`off`)
        #[arg(long, value_enum, value_name = "on|off")]
        jobs: Option<Switch>,
        #[command(flatten)]
        listing: Listing,
    },
}

/// What others may do with the files of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sharing {
    Off,
    Read,
    Write,
}

impl Sharing {
    pub fn word(self) -> &'static str {
        match self {
            Sharing::Off => "off",
            Sharing::Read => "read",
            Sharing::Write => "write",
        }
    }
}

impl From<Sharing> for FileAccess {
    fn from(sharing: Sharing) -> FileAccess {
        match sharing {
            Sharing::Off => FileAccess::Off,
            Sharing::Read => FileAccess::Read,
            Sharing::Write => FileAccess::Write,
        }
    }
}

impl Own {
    /// What the daemon is told, one after the other, and whether JSON is wanted.
    pub fn into_parts(self, nodes: &mut impl Nodes) -> Result<(Vec<OwnerOrder>, bool)> {
        let on = |switched: Switched| switched.switch == Switch::On;
        let (order, json) = match self {
            Own::Stay(switched) => (OwnerOrder::Stay { on: on(switched) }, switched.listing.json),
            Own::Block(switched) => (OwnerOrder::Block { on: on(switched) }, switched.listing.json),
            Own::Noblock(listing) => (OwnerOrder::Block { on: false }, listing.json),
            Own::Yield(switched) => (OwnerOrder::Yield { on: on(switched) }, switched.listing.json),
            Own::Drain(switched) => (OwnerOrder::Drain { on: on(switched) }, switched.listing.json),
            Own::Expel(listing) => (OwnerOrder::Expel, listing.json),
            Own::Bring(listing) => (OwnerOrder::Bring, listing.json),
            Own::Priority { node, priority, listing } => {
                (OwnerOrder::Prioritise { home: node.find(nodes)?, priority }, listing.json)
            }
            Own::Limit {
                guests,
                guest_memory,
                freeze_budget,
                move_bandwidth,
                move_processors,
                guests_per_user,
                storms_per_user,
                listing,
            } => {
                let order = OwnerOrder::Limit {
                    guests,
                    guest_memory_bytes: guest_memory,
                    freeze_budget_ms: freeze_budget,
                    move_bandwidth_bits_per_s: move_bandwidth,
                    move_processors,
                    guests_per_user,
                    storms_per_user,
                };
                (order, listing.json)
            }
            Own::Lend { root, to, listing } => {
                let root = root.map(|switch| switch == Switch::On);
                let to = to.map(|to| to.find(nodes)).transpose()?;
                (OwnerOrder::Lend { root, to }, listing.json)
            }
            Own::Share { access, jobs, listing } => {
                let files = access.map(|access| OwnerOrder::ShareFiles { access: access.into() });
                let jobs = jobs.map(|switch| OwnerOrder::ShareJobs { on: switch == Switch::On });
                return Ok((files.into_iter().chain(jobs).collect(), listing.json));
            }
        };
        Ok((vec![order], json))
    }
}

fn count(word: &str) -> Result<LimitChange, String> {
    if word == "none" {
        return Ok(LimitChange::Lifted);
    }
    let number =
        word.parse::<u32>().map_err(|_| format!("`{word}` is neither a number nor none"))?;
    Ok(LimitChange::AtMost(u64::from(number)))
}

fn guest_memory(word: &str) -> Result<LimitChange, String> {
    change(word, size)
}

fn freeze_budget_change(word: &str) -> Result<LimitChange<FreezeBudget>, String> {
    change(word, freeze_budget)
}

fn bandwidth_change(word: &str) -> Result<LimitChange<Bandwidth>, String> {
    change(word, bandwidth)
}

fn processors_change(word: &str) -> Result<LimitChange<NonZeroU32>, String> {
    change(word, processors)
}

fn change<T>(word: &str, parse: fn(&str) -> Result<T, String>) -> Result<LimitChange<T>, String> {
    if word == "none" { Ok(LimitChange::Lifted) } else { parse(word).map(LimitChange::AtMost) }
}

/// `2,5-7` or `all`. A daemon that is just starting knows nobody's name, and whoever joins later
/// may say that he has it; a number is its node's for ever.
pub fn borrowers(words: &str) -> Result<Borrowers, String> {
    Borrowers::parse(words).map_err(|error| {
        format!("{error}; by name: `osmos lend --to NAME`, when the node that is meant is known")
    })
}

/// `0-999=nobody,*=same`; a user may be named.
pub fn guest_users(words: &str) -> Result<UserTable, String> {
    let user_of = |name: &str| Some(nix::unistd::User::from_name(name).ok()??.uid.as_raw());
    UserTable::parse(words, user_of).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::arguments::{Arguments, Command, Question};
    use crate::naming::tests::unasked;
    use clap::Parser;
    use std::num::NonZeroU32;
    use wire::freeze_budget::FreezeBudget;
    use wire::ids::NodeId;
    use wire::owner::{FileAccess, LimitChange, OwnerOrder};
    use wire::users::Borrowers;

    fn parse_all(line: &str) -> Option<Vec<OwnerOrder>> {
        let words = std::iter::once("osmos").chain(line.split_whitespace());
        match Arguments::try_parse_from(words).ok()?.command {
            Command::Ask(Question::Own(own)) => Some(own.into_parts(&mut unasked()).ok()?.0),
            other => panic!("parsed as {other:?}"),
        }
    }

    fn parse(line: &str) -> Option<OwnerOrder> {
        let [order] = <[OwnerOrder; 1]>::try_from(parse_all(line)?).expect("it is one order");
        Some(order)
    }

    #[test]
    fn files_and_jobs_are_shared_by_one_command_or_either_alone() {
        let files = |access| OwnerOrder::ShareFiles { access };
        let jobs = |on| OwnerOrder::ShareJobs { on };
        assert_eq!(parse("share off"), Some(files(FileAccess::Off)));
        assert_eq!(parse("share --jobs on"), Some(jobs(true)));
        let both = Some(vec![files(FileAccess::Read), jobs(false)]);
        assert_eq!(parse_all("share read --jobs off"), both);
        for line in ["share", "share on", "share --jobs", "share --jobs read"] {
            assert_eq!(parse_all(line), None, "{line}");
        }
    }

    fn lend_off_to(nodes: &[u32]) -> OwnerOrder {
        let to = Borrowers::Only(nodes.iter().map(|node| NodeId(*node)).collect());
        OwnerOrder::Lend { root: Some(false), to: Some(to) }
    }

    #[test]
    fn limits_of_one_user_are_changed_and_lifted() {
        let order = OwnerOrder::Limit {
            guests: None,
            guest_memory_bytes: None,
            freeze_budget_ms: None,
            move_bandwidth_bits_per_s: None,
            move_processors: None,
            guests_per_user: Some(LimitChange::AtMost(2)),
            storms_per_user: Some(LimitChange::Lifted),
        };
        assert_eq!(parse("limit --guests-per-user 2 --storms-per-user none"), Some(order));
        assert_eq!(parse("limit --guests-per-user -1"), None);
    }

    #[test]
    fn each_command_of_an_owner_is_one_order() {
        let limit = |guests, guest_memory_bytes| OwnerOrder::Limit {
            guests,
            guest_memory_bytes,
            freeze_budget_ms: None,
            move_bandwidth_bits_per_s: None,
            move_processors: None,
            guests_per_user: None,
            storms_per_user: None,
        };
        let of_moves = |freeze_budget_ms, bandwidth: Option<&str>, processors: Option<u32>| {
            let at_most = |word: &str| LimitChange::AtMost(word.parse().unwrap());
            let processors = processors.map(NonZeroU32::new);
            OwnerOrder::Limit {
                guests: None,
                guest_memory_bytes: None,
                freeze_budget_ms,
                move_bandwidth_bits_per_s: bandwidth.map(at_most),
                move_processors: processors
                    .map(|of| of.map_or(LimitChange::Lifted, LimitChange::AtMost)),
                guests_per_user: None,
                storms_per_user: None,
            }
        };
        let freeze = |change| of_moves(Some(change), None, None);
        for (line, order) in [
            ("stay", OwnerOrder::Stay { on: true }),
            ("stay off", OwnerOrder::Stay { on: false }),
            ("block", OwnerOrder::Block { on: true }),
            ("noblock", OwnerOrder::Block { on: false }),
            ("yield on", OwnerOrder::Yield { on: true }),
            ("drain off", OwnerOrder::Drain { on: false }),
            ("expel", OwnerOrder::Expel),
            ("bring --json", OwnerOrder::Bring),
            ("lend --root on", OwnerOrder::Lend { root: Some(true), to: None }),
            ("lend --to all", OwnerOrder::Lend { root: None, to: Some(Borrowers::All) }),
            ("lend --root off --to 2,5-6", lend_off_to(&[2, 5, 6])),
            ("priority 3 10", OwnerOrder::Prioritise { home: NodeId(3), priority: 10 }),
            ("limit --freeze-budget 20", freeze(LimitChange::AtMost(FreezeBudget::DEFAULT))),
            ("limit --freeze-budget none", freeze(LimitChange::Lifted)),
            ("limit --move-bandwidth 500mbit", of_moves(None, Some("500Mbit"), None)),
            (
                "limit --move-bandwidth 2Gbit --move-processors 3",
                of_moves(None, Some("2Gbit"), Some(3)),
            ),
            ("limit --move-processors none", of_moves(None, None, Some(0))),
            ("limit --guests 4", limit(Some(LimitChange::AtMost(4)), None)),
            (
                "limit --guests none --guest-memory 2G",
                limit(Some(LimitChange::Lifted), Some(LimitChange::AtMost(2 << 30))),
            ),
        ] {
            assert_eq!(parse(line), Some(order), "{line}");
        }
        for line in ["lend", "lend --root maybe", "lend --to 0", "lend --to 3-2"] {
            assert_eq!(parse(line), None, "{line}");
        }
        for line in ["--freeze-budget 0", "--move-processors 0", "--move-bandwidth 500"] {
            assert_eq!(parse(&format!("limit {line}")), None, "{line}");
        }
        for line in ["limit", "priority 3", "priority 0 1", "priority 3 65536", "stay maybe"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
