//! For callers that run more brains than the caches of a processor hold, as a simulator does: it
//! can have a brain fetched from memory before it needs it, and goes on in the meantime.

use crate::brain::Brain;
use safe_arch::prefetch_t0;

impl Brain {
    /// Fetches what any input needs of this brain: a field in about each of its cache lines.
    #[inline]
    pub fn fetch(&self) {
        prefetch_t0(&self.own);
        prefetch_t0(&self.own.pace);
        prefetch_t0(&self.residents);
        prefetch_t0(&self.departures);
        prefetch_t0(&self.shares);
        prefetch_t0(&self.me);
        prefetch_t0(&self.members);
    }

    /// The same of what gossip needs besides.
    #[inline]
    pub fn fetch_for_gossip(&self) {
        prefetch_t0(&self.incarnation);
        prefetch_t0(&self.sought_at);
    }

    /// Fetches what it knows of others; to be called when it has been fetched itself.
    #[inline]
    pub fn fetch_members(&self) {
        self.members.fetch();
    }

    /// Fetches what it knows of the processes here; to be called when it has been fetched itself.
    #[inline]
    pub fn fetch_residents(&self) {
        self.residents.fetch();
    }
}
