//! Fair shares of users: whoever runs many processes must not starve one who runs few.
//!
//! Three rules bring the shares of users together (max-min fairness), and none of them keeps a core
//! idle:
//!
//! * of several processes that gain by leaving, one of the user who has least goes first;
//! * as long as no core is idle there, a node does not take in a process that would take from a
//!   user who has less than its own, nor one of a poor user that would only crowd his others;
//! * a node on which a user with less has to share hands over a process of one who has more; and
//!   one on which the processes of such a user crowd each other sends one to where those who have
//!   more will do that.
//!
//! Each makes the smaller of two shares larger, so they cannot undo each other. The first is in
//! [`super::balancing`], the second in [`super::taking`], the third here.

use super::Proposal;
use crate::situation::Situation;
use crate::time::Time;
use wire::motive::Motive;

/// A move for the sake of shares.
pub(crate) struct Favour {
    pub proposal: Proposal,
    /// One who has more makes room for one who has less.
    pub makes_room: bool,
}

impl Situation {
    /// Where one who has less must share with one who has more, a process of the latter goes; and
    /// where his own crowd each other, one of his goes to where those with more will make room.
    pub(crate) fn favour_the_poor(&self, now: Time) -> Option<Favour> {
        if self.shares.is_none() || !self.departures.is_empty() {
            return None;
        }
        let own = self.condition(now).filter(|own| own.waiting() >= 0.5)?;
        let users = self.users_here();
        let (least, poor) = users.first().copied()?;
        let is_alone = users.len() == 1;
        let (most, rich) = if is_alone { self.richest_known() } else { users[users.len() - 1] };
        // What is taken from one must not make him the poorer.
        if most - own.share() <= (least + own.share()) * (1.0 + self.config.dead_band) {
            return None;
        }
        let room_made = self.shares.as_ref().and_then(|shares| shares.made_room_at);
        if !is_alone && room_made.is_some_and(|at| now.since(at) < self.config.fairness_pause) {
            return None;
        }
        let leaves = if is_alone { poor } else { rich };
        let his = self.residents.processes().filter(|p| self.user_of(*p) == Some(leaves));
        let lightest = his
            .filter_map(|process| self.may_leave(now, process).ok())
            .min_by_key(|candidate| (candidate.freeze, candidate.process));
        let candidate = lightest?;
        let to = self.refuge(now, &candidate)?.node;
        let why = match is_alone {
            true => format!("its user has {least:.1} cores here, another {most:.1} elsewhere"),
            false => format!("its user has {most:.1} cores, and another here only {least:.1}"),
        };
        let proposal = Proposal::new(candidate, to, Motive::Share, why);
        Some(Favour { proposal, makes_room: !is_alone })
    }
}
