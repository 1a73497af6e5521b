//! Fair shares of users: whoever runs many processes must not starve one who runs few.
//!
//! What a user has is what all his processes get, in reference cores. Their home knows it, tells
//! the nodes where they run, and these tell others to whom they offer one. Three rules bring the
//! shares together (max-min fairness), and none of them keeps a core idle:
//!
//! * of several processes that gain by leaving, one of the user who has least goes first;
//! * as long as no core is idle there, a node does not take in a process that would take from a
//!   user who has less than its own, nor one of a poor user that would only crowd his others;
//! * a node on which a user with less has to share hands over a process of one who has more; and
//!   one on which the processes of such a user crowd each other sends one to where those who have
//!   more will do that.
//!
//! Each makes the smaller of two shares larger, so they cannot undo each other. Nodes that are told
//! of no users keep nothing and do nothing of this.

use crate::brain::Brain;
use crate::input::{ProcessSample, UserId, UserShare};
use crate::messages::{Holder, Offer};
use crate::output::Outbox;
use crate::time::{Span, Time};
use std::collections::BTreeMap;
use wire::ids::GlobalPid;
use wire::motive::Motive;

/// Shares are told and believed up to that.
const CORES_MAX: f64 = 1e6;
/// What is known of a user is forgotten after that.
const TOLD_MEMORY: Span = Span::from_secs(30);
/// Between two processes of one who has more that make room for one who has less. Shares are told
/// once a second: who acts faster by what he was told takes too much, and has to give it back.
/// Simulated, 9 of 3840 clusters did not come to rest within a minute without a pause, and all did
/// with half a second; with more than a second those with less wait too long.
const ROOM_PAUSE: Span = Span::from_millis(500);
/// Users known at one time.
const USERS_MAX: usize = 256;

/// What a user has, and when that was told.
#[derive(Clone, Copy, Debug)]
struct Told {
    cores: f64,
    at: Time,
}

/// Whose each process is, and what each user has.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    owners: BTreeMap<GlobalPid, UserId>,
    users: BTreeMap<UserId, Told>,
    /// When a process was last offered here because its user has more than another.
    made_room_at: Option<Time>,
}

impl Shares {
    fn note(&mut self, now: Time, process: GlobalPid, of: UserShare, processes_max: usize) {
        if self.owners.len() < processes_max || self.owners.contains_key(&process) {
            self.owners.insert(process, of.user);
        }
        self.hear(now, of);
    }

    fn hear(&mut self, now: Time, of: UserShare) {
        if self.users.len() < USERS_MAX || self.users.contains_key(&of.user) {
            let cores = crate::here::sane(of.cores, 0.0, CORES_MAX);
            self.users.insert(of.user, Told { cores, at: now });
        }
    }

    fn of(&self, user: UserId) -> f64 {
        self.users.get(&user).map_or(0.0, |told| told.cores)
    }
}

impl Brain {
    /// Learns from a measurement whose the processes are.
    pub(crate) fn note_users(&mut self, now: Time, samples: &[ProcessSample]) {
        for sample in samples {
            if let Some(user) = sample.user {
                let shares = self.shares.get_or_insert_default();
                shares.note(now, sample.process, user, self.config.processes_max);
            }
        }
    }

    /// What another node says of a user, whether his process comes or not.
    pub(crate) fn hear_holder(&mut self, now: Time, offer: &Offer) {
        if let Some(share) = offer.holder.map(Holder::share) {
            self.shares.get_or_insert_default().hear(now, share);
        }
    }

    /// A place is kept for a process of that user.
    pub(crate) fn note_holder(&mut self, now: Time, offer: &Offer) {
        if let Some(share) = offer.holder.map(Holder::share) {
            let shares = self.shares.get_or_insert_default();
            shares.note(now, offer.process, share, self.config.processes_max);
        }
    }

    /// Those that are gone, and what is old.
    pub(crate) fn forget_holders(&mut self, now: Time) {
        let (residents, reservations) = (&self.residents, &self.reservations);
        if let Some(shares) = &mut self.shares {
            shares.owners.retain(|process, _| {
                residents.is_present(*process) || reservations.contains(*process)
            });
            shares.users.retain(|_, told| now.since(told.at) < TOLD_MEMORY);
        }
    }

    fn user_of(&self, process: GlobalPid) -> Option<UserId> {
        self.shares.as_ref()?.owners.get(&process).copied()
    }

    /// What the processes of a user get together, in reference cores.
    fn share_of(&self, user: UserId) -> f64 {
        self.shares.as_ref().map_or(0.0, |shares| shares.of(user))
    }

    /// What the user of this process has; the same for all if nothing is known of users.
    pub(crate) fn share_of_owner(&self, process: GlobalPid) -> f64 {
        self.user_of(process).map_or(0.0, |user| self.share_of(user))
    }

    /// For the offer of this process.
    pub(crate) fn holder_of(&self, process: GlobalPid) -> Option<Holder> {
        let user = self.user_of(process)?;
        let share = self.share_of(user);
        let (richest, _) = self.richest_known();
        Some(Holder {
            user,
            // `as` saturates.
            share_milli: (share * 1e3) as u32,
            is_poorer: richest > share * (1.0 + self.config.dead_band),
        })
    }

    /// Wherever he is.
    fn richest_known(&self) -> (f64, UserId) {
        let users = self.shares.iter().flat_map(|shares| shares.users.keys());
        self.with_shares(users.copied().collect()).last().copied().unwrap_or((0.0, UserId(0)))
    }

    /// The users whose processes want to run here, with what each has, the poorest first.
    fn users_here(&self) -> Vec<(f64, UserId)> {
        let running = self.residents.processes();
        let busy = running.filter(|p| self.residents.demand_of(*p) >= self.config.demand_min);
        let users = busy.filter_map(|process| self.user_of(process)).collect();
        self.with_shares(users)
    }

    fn with_shares(&self, mut users: Vec<UserId>) -> Vec<(f64, UserId)> {
        users.sort_unstable();
        users.dedup();
        let mut users: Vec<(f64, UserId)> =
            users.into_iter().map(|user| (self.share_of(user), user)).collect();
        users.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        users
    }

    /// Whether somebody here has less than the user of what is offered, and would lose by it.
    pub(crate) fn takes_from_poorer(&self, offer: &Offer) -> bool {
        let Some(holder) = offer.holder.filter(|_| self.shares.is_some()) else { return false };
        let has = holder.share().cores;
        let band = 1.0 + self.config.dead_band;
        let others = self.users_here().into_iter().filter(|(_, user)| *user != holder.user);
        let mut poorer = others.filter(|(share, _)| share * band < has);
        poorer.next().is_some()
    }

    /// Whether one who has less than others where it is would only crowd his own processes here: it
    /// is those others who should make room.
    pub(crate) fn crowds_its_own(&self, now: Time, offer: &Offer, rate_before: f64) -> bool {
        let (Some(own), Some(holder)) = (self.condition(now), offer.holder) else { return false };
        let of_user = |process: &GlobalPid| self.user_of(*process) == Some(holder.user);
        let his = self.residents.processes().filter(of_user);
        let demand: f64 = his.map(|process| self.residents.demand_of(process)).sum();
        let before = own.share() * demand;
        let after = own.share_after(offer.demand) * (demand + offer.demand);
        holder.is_poorer && after - before <= rate_before * (1.0 + self.config.dead_band)
    }

    /// Whether a process may come for the sake of shares alone.
    pub(crate) fn evens_shares(&self, offer: &Offer) -> bool {
        let Some(holder) = offer.holder else { return false };
        if !holder.is_poorer {
            return !self.takes_from_poorer(offer);
        }
        // Those here make room for it, one after another.
        let needed = holder.share().cores * (1.0 + self.config.dead_band);
        let users = self.users_here();
        users.iter().all(|(share, user)| *user != holder.user && *share > needed)
    }

    /// Where one who has less must share with one who has more, a process of the latter goes; and
    /// where his own crowd each other, one of his goes to where those with more will make room.
    pub(crate) fn favour_the_poor(&mut self, now: Time, outbox: &mut Outbox) {
        if self.shares.is_none() || !self.departures.is_empty() {
            return;
        }
        let Some(own) = self.condition(now).filter(|own| own.waiting() >= 0.5) else { return };
        let users = self.users_here();
        let Some((least, poor)) = users.first().copied() else { return };
        let is_alone = users.len() == 1;
        let (most, rich) = if is_alone { self.richest_known() } else { users[users.len() - 1] };
        // What is taken from one must not make him the poorer.
        if most - own.share() <= (least + own.share()) * (1.0 + self.config.dead_band) {
            return;
        }
        let room_made = self.shares.as_ref().and_then(|shares| shares.made_room_at);
        if !is_alone && room_made.is_some_and(|at| now.since(at) < ROOM_PAUSE) {
            return;
        }
        let leaves = if is_alone { poor } else { rich };
        let his = self.residents.processes().filter(|p| self.user_of(*p) == Some(leaves));
        let lightest = his
            .filter_map(|process| self.may_leave(now, process).ok())
            .min_by_key(|candidate| (candidate.freeze, candidate.process));
        let Some(candidate) = lightest else { return };
        let Some(target) = self.refuge(now, &candidate) else { return };
        let why = match is_alone {
            true => format!("its user has {least:.1} cores here, another {most:.1} elsewhere"),
            false => format!("its user has {most:.1} cores, and another here only {least:.1}"),
        };
        if let Some(shares) = self.shares.as_mut().filter(|_| !is_alone) {
            shares.made_room_at = Some(now);
        }
        self.make_offer(now, candidate, target.node, Motive::Share, None, why, outbox);
    }
}
