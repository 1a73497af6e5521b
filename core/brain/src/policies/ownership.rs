//! The owner of a node comes first: what he closes stays closed, and guests that he wants gone go
//! elsewhere, not necessarily home.

use super::Proposal;
use crate::situation::Situation;
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// Why a guest shall go.
pub(crate) enum Unwanted {
    Expelled,
    Drained,
    OneTooMany { max: u32 },
    TooLarge { max_bytes: u64 },
    CrowdedOut { own_load: f64 },
}

impl Unwanted {
    fn text(&self, node: NodeId) -> String {
        match self {
            Unwanted::Expelled => format!("the owner of node {node} wants it for himself"),
            Unwanted::Drained => format!("node {node} is drained"),
            Unwanted::OneTooMany { max } => {
                format!("the owner of node {node} takes no more guests than {max}")
            }
            Unwanted::TooLarge { max_bytes } => format!(
                "the owner of node {node} has at most {} MiB for all guests",
                max_bytes >> 20
            ),
            Unwanted::CrowdedOut { own_load } => format!(
                "node {node} has {own_load:.1} runnable threads of its own, which come first there"
            ),
        }
    }
}

impl Situation {
    fn own_residents(&self) -> impl Iterator<Item = GlobalPid> {
        self.residents.processes().filter(|process| process.home == self.me)
    }

    /// Those who shall go, the least wanted first.
    pub(crate) fn unwanted(&self) -> Vec<(GlobalPid, Unwanted)> {
        let Some(owner) = &self.owner else { return Vec::new() };
        let wants = &owner.wants;
        let mut ranked = self.guests_ranked();
        let mut unwanted = Vec::new();
        if wants.drains {
            let guests_first = self.residents.guests().chain(self.own_residents());
            return guests_first.map(|process| (process, Unwanted::Drained)).collect();
        }
        if wants.expels {
            return self.residents.guests().map(|guest| (guest, Unwanted::Expelled)).collect();
        }
        while let (Some(max), Some(last)) = (wants.guests_max, ranked.last())
            && ranked.len() > max as usize
        {
            unwanted.push((*last, Unwanted::OneTooMany { max }));
            ranked.pop();
        }
        if let Some(max_bytes) = wants.guest_memory_max_bytes {
            let mut used: u64 =
                ranked.iter().fold(0, |sum, g| sum.saturating_add(self.rss_bytes_of(*g)));
            while let Some(last) = ranked.last()
                && used > max_bytes
            {
                used -= self.rss_bytes_of(*last).min(used);
                unwanted.push((*last, Unwanted::TooLarge { max_bytes }));
                ranked.pop();
            }
        }
        let own_load = owner.load();
        let crowded_out = self.crowded_out(owner, &ranked).into_iter();
        unwanted.extend(crowded_out.map(|guest| (guest, Unwanted::CrowdedOut { own_load })));
        unwanted
    }

    /// One that is not wanted goes: to where it is best off, and if nobody takes it, home.
    pub(crate) fn clear_out(
        &self,
        now: Time,
        process: GlobalPid,
        why: &Unwanted,
    ) -> Option<Proposal> {
        if self.departures.count() >= self.config.outbound_max {
            return None;
        }
        let candidate = self.must_go(now, process)?;
        let to = self.refuge(now, &candidate)?.node;
        Some(Proposal::new(candidate, to, Motive::Owner, why.text(self.me)))
    }
}
