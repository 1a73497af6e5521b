//! Why a process stays where it is.

use crate::brain::Brain;
use crate::output::{Outbox, Output, Verdict};
use crate::reasons::{StayCause, Why};
use crate::time::Time;
use wire::ids::GlobalPid;

impl Brain {
    /// Each process stays for a cause of its own, or else for that.
    pub(crate) fn all_stay(&mut self, now: Time, cause: StayCause, outbox: &mut Outbox) {
        self.is_unripe = false;
        let own = self.residents.running.iter().filter_map(|(process, resident)| {
            let is_at_rest = !self.departures.contains(*process);
            is_at_rest.then(|| (*process, self.stay_cause(now, *process, resident)))
        });
        let own: Vec<(GlobalPid, Option<StayCause>)> = own.collect();
        for (process, own) in own {
            let cause = own.unwrap_or(cause);
            self.is_unripe |= cause == StayCause::Young;
            self.record_stay(now, process, cause, outbox);
        }
    }

    pub(crate) fn record_stay(
        &mut self,
        now: Time,
        process: GlobalPid,
        cause: StayCause,
        outbox: &mut Outbox,
    ) {
        if self.residents.stays_for(process, cause, now, &self.config) {
            self.record_news(process, cause, outbox);
        }
    }

    fn record_news(&self, process: GlobalPid, cause: StayCause, outbox: &mut Outbox) {
        let why = Why::Stays(self.residents.explain(process, cause, &self.config));
        outbox.push(Output::RecordDecision { process, verdict: Verdict::Stay, why });
    }
}
