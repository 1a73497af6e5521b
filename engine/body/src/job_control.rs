//! Bodies that stand still because their processes are stopped at home, and letting them go on.

use crate::notices::raise;
use crate::tracing_loop::Tracing;
use kernel::haste::Haste;
use kernel::tracee;
use migrate::Result;

impl Tracing<'_> {
    /// Job control: the body stands still while the process is stopped at home.
    pub(crate) fn hold(&mut self) -> Result<()> {
        self.is_held = true;
        let computing: Vec<i32> = {
            let state = self.shared.lock();
            state.threads.values().map(|t| t.local).collect()
        };
        for tid in computing {
            match tracee::interrupt(tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn release_hold(&mut self) -> Result<()> {
        self.is_held = false;
        self.thaw()
    }

    /// Lets all stopped threads run; signals that were due are raised again.
    pub(crate) fn thaw(&mut self) -> Result<()> {
        if self.sandbox.is_some() {
            self.shared.family.first_stays();
        }
        self.deferred.clear();
        self.haste = Haste::default();
        for tid in std::mem::take(&mut self.stopped) {
            let numbers: Vec<i32> = {
                let state = self.shared.lock();
                let thread = state.threads.get(&tid).filter(|t| !t.is_between_calls());
                thread.map_or(vec![], |t| t.signals.iter().map(|s| s.number).collect())
            };
            numbers.into_iter().for_each(|number| raise(&self.shared, tid, number));
            // A capture has made the thread execute calls, and left it behind the place where the
            // kernel makes an interrupted call again: another stop leads it there once more.
            match tracee::interrupt(tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {}
            }
            self.resume(tid, 0)?;
        }
        Ok(())
    }
}
