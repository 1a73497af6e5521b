//! `stay`, `block`, `noblock`, `yield`, `drain`, `expel`, `bring`, `priority`, `limit`, `lend` and
//! `share`: what the owner of this node says, and what stands then.

use super::unexpected;
use crate::output;
use crate::progress;
use anyhow::Result;
use client::Client;
use wire::control::{Reply, Request};
use wire::owner::{FileAccess, Owned, OwnerOrder, OwnerState, PRIORITY_USUAL};
use wire::users::{Borrowers, UserTable};

/// Gives one order after the other, and tells what stands after the last.
pub fn order(client: &mut Client, orders: Vec<OwnerOrder>, json: bool) -> Result<()> {
    let mut stands = None;
    for order in orders {
        let words = waiting(&order);
        match progress::ask(client, &Request::Owner(order), words, json)? {
            Reply::Owned(owned) => stands = Some(owned),
            other => return Err(unexpected(&other)),
        }
    }
    match stands {
        Some(owned) if json => output::print_json(&owned)?,
        Some(owned) => output::print_line(&sentence(&owned))?,
        None => (),
    }
    Ok(())
}

/// What goes on, and what becomes of it without anybody who waits.
fn waiting(order: &OwnerOrder) -> (&'static str, &'static str) {
    match order {
        OwnerOrder::Drain { on: true } => (
            "draining this node",
            "it stays drained, and processes go on leaving: `osmos drain off` takes it back",
        ),
        OwnerOrder::Expel => (
            "expelling guests",
            "they go on leaving, and no more come: `osmos noblock` lets guests come again",
        ),
        OwnerOrder::Bring => (
            "bringing own processes home",
            "they go on coming home: `osmos ps` shows where they are",
        ),
        _ => ("telling the daemon", "the order stands: `osmos status` shows what does"),
    }
}

/// `no guests come; own processes stay; at most 4 guests; 2 guests, 1 of 3 own processes away`
pub fn sentence(owned: &Owned) -> String {
    let mut parts = settings(&owned.state);
    let guests = output::counted(owned.guests, "guest", "guests");
    let (own, away) = (owned.own_here + owned.own_away, owned.own_away);
    parts.push(format!("{guests} here, {away} of {own} own processes away"));
    if owned.imprint_bytes > 0 {
        let bytes = output::bytes(owned.imprint_bytes);
        parts.push(format!("{bytes} kept of guests that have left"));
    }
    parts.join("; ")
}

pub fn settings(state: &OwnerState) -> Vec<String> {
    let mut parts = Vec::new();
    let mut say = |is_so: bool, text: &str| {
        if is_so {
            parts.push(text.to_owned());
        }
    };
    say(state.drains, "drained: nothing runs here");
    say(state.blocks && !state.drains, "no guests come");
    say(!state.blocks && !state.drains, "guests may come");
    say(state.stays, "own processes stay");
    say(state.yields, "own load comes first");
    say(state.lends_root, "root's processes may leave");
    match state.files {
        FileAccess::Off => {}
        FileAccess::Read => parts.push("users of other nodes read files".to_owned()),
        FileAccess::Write => parts.push("users of other nodes read and write files".to_owned()),
    }
    if state.jobs {
        parts.push("users of other nodes begin jobs".to_owned());
    }
    if state.lends_to != Borrowers::All {
        parts.push(format!("own processes go to {} only", state.lends_to));
    }
    if state.guest_users != UserTable::default() {
        parts.push(format!("guests run as {}", state.guest_users));
    }
    if let Some(max) = state.guests_max {
        parts.push(format!("at most {}", output::counted(max, "guest", "guests")));
    }
    if let Some(max) = state.guest_memory_max_bytes {
        parts.push(format!("at most {} for all guests", output::bytes(max)));
    }
    if let Some(max) = state.guests_per_user_max {
        parts.push(format!("at most {} of one user", output::counted(max, "guest", "guests")));
    }
    if let Some(max) = state.storms_per_user_max {
        let processes = output::counted(max, "process", "processes");
        parts.push(format!("at most {processes} of one user in storms"));
    }
    if let Some(budget) = state.freeze_budget_ms {
        parts.push(format!("moves freeze for {budget} at most"));
    }
    if let Some(bandwidth) = state.move_limits.bandwidth {
        parts.push(format!("moves take {bandwidth} a second at most"));
    }
    if let Some(processors) = state.move_limits.processors {
        let processors = output::counted(processors.get(), "processor", "processors");
        parts.push(format!("moves keep {processors} busy at most"));
    }
    if !state.priorities.is_empty() {
        let of = state.priorities.iter().map(|of| format!("{}:{}", of.home, of.priority));
        let of: Vec<String> = of.collect();
        parts.push(format!("priorities {} (others {PRIORITY_USUAL})", of.join(" ")));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use wire::freeze_budget::FreezeBudget;
    use wire::ids::NodeId;
    use wire::move_limits::MoveLimits;
    use wire::owner::HomePriority;

    #[test]
    fn all_that_an_owner_has_decided_is_in_one_line() {
        let state = OwnerState {
            stays: true,
            blocks: true,
            yields: true,
            drains: false,
            files: FileAccess::Read,
            jobs: true,
            guests_max: Some(4),
            guest_memory_max_bytes: Some(2 << 30),
            guests_per_user_max: Some(1),
            storms_per_user_max: Some(2),
            freeze_budget_ms: Some(FreezeBudget::DEFAULT),
            move_limits: MoveLimits {
                bandwidth: "500Mbit".parse().ok(),
                processors: NonZeroU32::new(2),
            },
            priorities: vec![HomePriority { home: NodeId(2), priority: 10 }],
            lends_root: true,
            lends_to: Borrowers::Only(vec![NodeId(2), NodeId(3)]),
            guest_users: UserTable::same(),
        };
        let owned = Owned { state, guests: 1, own_here: 2, own_away: 1, imprint_bytes: 1 << 30 };
        assert_eq!(
            sentence(&owned),
            "no guests come; own processes stay; own load comes first; root's processes may \
             leave; users of other nodes read files; users of other nodes begin jobs; own \
             processes go to 2,3 only; guests run as *=same; at most 4 guests; at most \
             2.0G for all guests; at most 1 guest of one user; at most 2 processes of one user in \
             storms; moves freeze for 20 ms at most; moves take 500Mbit a second at most; moves \
             keep 2 processors busy at most; priorities 2:10 (others 50); 1 guest here, 1 of 3 \
             own processes away; 1.0G kept of guests that have left"
        );
    }

    #[test]
    fn what_there_is_one_of_is_no_plural() {
        let move_limits = MoveLimits { bandwidth: None, processors: NonZeroU32::new(1) };
        let state = OwnerState { guests_max: Some(1), move_limits, ..OwnerState::default() };
        let owned = Owned { state, guests: 1, own_here: 1, own_away: 0, imprint_bytes: 0 };
        assert_eq!(
            sentence(&owned),
            "guests may come; at most 1 guest; moves keep 1 processor busy at most; 1 guest here, \
             0 of 1 own processes away"
        );
    }

    #[test]
    fn a_node_whose_owner_said_nothing_says_so_shortly() {
        let text = sentence(&Owned::default());
        assert_eq!(text, "guests may come; 0 guests here, 0 of 0 own processes away");
    }
}
