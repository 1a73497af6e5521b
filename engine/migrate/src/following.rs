//! A body that is being built has its writes told from the moment at which its pages are those of
//! home, which keeps them ([`crate::kept`]).
//!
//! To mark a gigabyte of small pages as not written to takes 11 ms. So that is done to what has
//! come before the source is told that all of it has: it does not stand still then. What comes when
//! it does is marked alone.

use crate::Result;
use crate::kept;
use crate::shell::Shell;
use kernel::agent::BatchCall;
use kernel::faults;
use kernel::features::{self, Feature};
use kernel::proc::maps;
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::tracking::{self, Tracking};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

impl Shell {
    /// The sandbox has inherited what lets faults of the kernel be served.
    pub fn serve_faults_by(&mut self, device: Option<OwnedFd>) {
        self.device = device;
    }

    /// Has what comes from here on be told from what has come, so that little is left to be done
    /// for that when the image is there.
    pub fn begin_kept(&mut self) -> Result<()> {
        self.track()?;
        if let Some(tracking) = &self.tracking {
            kept::begin(tracking, &Pagemap::open(self.pid())?, &maps::read(self.pid())?)?;
            self.followed.clone_from(&self.laid);
        }
        Ok(())
    }

    /// Likewise, where only `fresh` has come since that began last.
    pub(crate) fn begin_kept_again(&mut self, fresh: &[Run]) -> Result<()> {
        let is_followed = self.followed == self.laid;
        match self.tracking.as_ref().filter(|it| is_followed && it.begins_with_walks()) {
            Some(tracking) => {
                kept::begin_again(tracking, &Pagemap::open(self.pid())?, &self.laid, fresh)
            }
            None => self.begin_kept(),
        }
    }

    /// Makes what will tell which pages the body writes to: it belongs to the address space that it
    /// was made in, and the body's own filter lets none be made.
    pub(crate) fn track(&mut self) -> Result<()> {
        if self.tracking.is_some() || !tracking::is_possible() {
            return Ok(());
        }
        let usual = [tracking::DESCRIPTOR_FLAGS, 0, 0, 0, 0, 0];
        let usual = BatchCall::new(libc::SYS_userfaultfd, usual);
        let serving = faults::make_call(self.device.as_ref().map(AsRawFd::as_raw_fd));
        let has_faults = features::settled().has(Feature::KernelFaults);
        let calls = if has_faults { &[serving, usual][..] } else { &[usual] };
        let mut made = None;
        for call in calls {
            if made.is_none() {
                made = self.worker().execute(&[*call])?.first().copied().filter(|n| *n >= 0);
            }
        }
        if let Some(number) = made {
            let process = kernel::pidfd::open(self.pid())?;
            let descriptor = kernel::pidfd::duplicate_from(&process, number as i32)?;
            let tracking = Tracking::of(self.pid(), descriptor);
            self.tracking = tracking.map(Arc::new).inspect_err(untracked).ok();
        }
        Ok(())
    }
}

/// Home then has all of it sent.
fn untracked(error: &kernel::KernelError) {
    ::tracing::debug!("what a body writes to is not known: {error}");
}
