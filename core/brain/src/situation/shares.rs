//! What users have: what all processes of each get, in reference cores. Their home knows it, tells
//! the nodes where they run, and these tell others to whom they offer one. Nodes that are told of
//! no users keep nothing.

use super::Situation;
use crate::here::sane;
use crate::input::{ProcessSample, UserId, UserShare};
use crate::messages::{Holder, Offer};
use crate::time::{Span, Time};
use std::collections::BTreeMap;
use wire::ids::GlobalPid;

/// Shares are told and believed up to that.
const CORES_MAX: f64 = 1e6;
/// What is known of a user is forgotten after that.
const TOLD_MEMORY: Span = Span::from_secs(30);
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
    pub made_room_at: Option<Time>,
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
            let cores = sane(of.cores, 0.0, CORES_MAX);
            self.users.insert(of.user, Told { cores, at: now });
        }
    }

    fn of(&self, user: UserId) -> f64 {
        self.users.get(&user).map_or(0.0, |told| told.cores)
    }
}

impl Situation {
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

    pub(crate) fn user_of(&self, process: GlobalPid) -> Option<UserId> {
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
    pub(crate) fn richest_known(&self) -> (f64, UserId) {
        let users = self.shares.iter().flat_map(|shares| shares.users.keys());
        self.with_shares(users.copied().collect()).last().copied().unwrap_or((0.0, UserId(0)))
    }

    /// The users whose processes want to run here, with what each has, the poorest first.
    pub(crate) fn users_here(&self) -> Vec<(f64, UserId)> {
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
}
