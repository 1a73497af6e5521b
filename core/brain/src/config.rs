//! The constants of the policy, in one place. The figures come from the published algorithms and
//! from measurement; `docs/decisions/0004-brain.md` says which from where.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// The largest window a datagram may carry.
pub const WINDOW_MAX: usize = 32;
/// The largest view of the others.
pub const VIEW_MAX: usize = 256;

/// Which entries a node holds to act on, and passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowPolicy {
    /// openMosix: the entries that arrived last.
    Fifo,
    /// The improved load vector: news of nodes that are not less loaded than this one is not
    /// taken in. What the vector held of them before stays, as in its paper.
    Lvm,
    /// The newest: what the published theory of ages is about.
    Newest,
    /// The newest, and the most useful to whoever looks for work or for a place.
    Osmos,
}

/// Who decides that a process moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Nobody: processes stay where they were started, as under PVM.
    Off,
    /// The published rule of MOSIX: see `mosix`.
    Mosix,
    Osmos,
}

/// How one brain behaves. All nodes of a cluster should run the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Between two rounds of gossip and of balancing; each round is put off or brought forward by
    /// up to a tenth at random, so that nodes do not march in step.
    pub tick: Span,
    /// Entries of other nodes in one gossip datagram; at most [`WINDOW_MAX`].
    pub window: usize,
    pub window_policy: WindowPolicy,
    /// Nodes told in one round: the first is one heard of recently, the second any.
    pub listeners: usize,
    pub decision: Decision,
    /// Seconds of MOSIX in a second: more than one where an experiment is so many times shorter
    /// than the one that MOSIX was measured by, and its loads decay as much faster, those too that
    /// it puts on nodes that it has chosen.
    pub mosix_pace: f64,
    /// Processes of one group take turns on crowded nodes.
    pub rotates: bool,
    /// The part of a process's time that it may stand still for taking turns.
    pub rotation_frozen_max: f64,
    /// Threads beyond those for all cores, as a part of these, with which nobody takes turns. With
    /// none a cluster that was cut, or of which daemons starve, ends up to a tenth later (scenarios
    /// `loss` and `churn`).
    pub rotation_spare: f64,
    /// Knowledge older than this is not used to choose a target or a source.
    pub useful_age_max: Span,
    /// Silence after which a node is suspect, in a small cluster; grows with the cluster, as the
    /// age of gossip does.
    pub suspect_after: Span,
    /// Further silence after which a suspect is gone.
    pub gone_after: Span,
    /// No move of a process that came here less than this ago, or less than four times its freeze.
    pub residency: Span,
    /// The same for a move that puts an idle core to work: it is worth more than what the news of
    /// others may err.
    pub residency_for_room: Span,
    /// The same for a process that was born here. It cannot fly back and forth yet; but most
    /// processes end before they are worth a look.
    pub infancy: Span,
    /// No return to the node it came from for this long, unless a core stands idle there, or it
    /// gains more by it than `doubt` could take.
    pub return_after: Span,
    /// A process that its user moved is left in peace for this long.
    pub ordered_hold: Span,
    /// Relative gain below which two places count as equal.
    pub dead_band: f64,
    /// Runnable threads (of one process's demand) that count as noise.
    pub noise: f64,
    /// How much of what other programs' load differs by from one second to the next is noise.
    pub noise_of_others: f64,
    /// The same of processes that wait now and then: a mean over a second of looks differs from
    /// what they want by less than half of what one look does.
    pub noise_of_waits: f64,
    /// Threads more than measured that a return must bear and still gain, and that may be missing
    /// to so many that all cores stay busy.
    pub doubt: f64,
    /// Of the latest measurement of what a process wants against those before, if all is different
    /// now, and if all is as ever.
    pub habit_weight_max: f64,
    pub habit_weight_min: f64,
    /// Of the latest error of these. Measurements come four times a second, each a mean over one:
    /// the default is eight seconds of them.
    pub habit_memory: f64,
    /// Others' load that differs by less from one second to the next is constant; at twice that it
    /// is averaged over `slow_load`, threads.
    pub spread_min: f64,
    /// No step counts for more: it must not pass for a lasting unrest, threads.
    pub spread_max: f64,
    /// Over which these differences are averaged.
    pub spread_memory: Span,
    pub slow_load: Span,
    /// A process that wants less CPU than this is not worth moving.
    pub demand_min: f64,
    /// Nor one that is known to need no more of it until it ends: about what a move takes of the
    /// processors of both nodes.
    pub left_min: Span,
    /// What one forwarded call costs the process.
    pub forward_cost: Span,
    /// Targets weighed in one go, and sources asked for work in one round, besides one at random:
    /// the best few, since the very best is everybody's best.
    pub best_few: usize,
    /// Between two questions for work outside the round, so that a burst of short processes is
    /// cheap.
    pub seek_pause: Span,
    /// Offers begun in one round: enough to find a taker, too few to be a storm.
    pub offers_per_round: u32,
    /// New members asked for their condition in one round.
    pub greetings_per_round: u32,
    /// Between two processes of one who has more that make room for one who has less. Shares are
    /// told once a second: who acts faster by what he was told takes too much, and has to give it
    /// back. Simulated, 9 of 3840 clusters did not come to rest within a minute without a pause,
    /// and all did with half a second; with more than a second those with less wait too long.
    pub fairness_pause: Span,
    /// How long a target keeps a place without hearing of it again; and how long an answer to the
    /// question for the best node counts as load there.
    pub reservation_ttl: Span,
    /// How long to wait for an answer to an offer before it is repeated.
    pub offer_patience: Span,
    /// How often an offer is sent before the target counts as deaf.
    pub offer_sends_max: u32,
    /// Offers and moves under way at one time from this node.
    pub outbound_max: usize,
    /// The first rest of a node that refused, or to which a move failed: it is asked for nothing;
    /// and of a process that could not be moved, or that came home by itself. Doubles up to
    /// `exclusion_max` and `setback_max`; not of a node that does not answer, nor of a process
    /// where the node or the way was at fault.
    pub rest: Span,
    pub exclusion_max: Span,
    pub setback_max: Span,
    /// A move that has not ended after this long no longer holds up others.
    pub move_patience: Span,
    /// Load of its owner's own keeps a core of a node that yields for so long after it was seen.
    pub owner_hold: Span,
    /// Of a core: a guest that is left with less by the owner's own load has no place there.
    pub core_left_min: f64,
    /// The part of the time in which something may wait for memory before one has to leave.
    pub memory_pressure_max: f64,
    /// Free memory that must remain on a target, as a part of its total.
    pub memory_margin: f64,
    /// Other nodes known at one time. While the cluster fits in, all are; in a larger one, a part
    /// that changes all the time. At most [`VIEW_MAX`].
    pub view_max: usize,
    /// Processes watched on this node; further ones are ignored.
    pub processes_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            tick: Span::from_secs(1),
            window: 12,
            window_policy: WindowPolicy::Osmos,
            listeners: 2,
            decision: Decision::Osmos,
            mosix_pace: 1.0,
            rotates: true,
            rotation_frozen_max: 0.03,
            rotation_spare: 0.05,
            useful_age_max: Span::from_secs(6),
            suspect_after: Span::from_secs(4),
            gone_after: Span::from_secs(10),
            residency: Span::from_secs(1),
            residency_for_room: Span::from_millis(250),
            infancy: Span::from_millis(100),
            return_after: Span::from_secs(30),
            ordered_hold: Span::from_secs(30),
            dead_band: 0.05,
            noise: 0.25,
            noise_of_others: 0.75,
            noise_of_waits: 0.4,
            doubt: 0.5,
            habit_weight_max: 0.25,
            habit_weight_min: 1.0 / 128.0,
            habit_memory: 1.0 / 32.0,
            spread_min: 0.1,
            spread_max: 2.0,
            spread_memory: Span::from_secs(16),
            slow_load: Span::from_secs(8),
            demand_min: 0.5,
            left_min: Span::from_millis(20),
            forward_cost: Span::from_micros(100),
            best_few: 3,
            seek_pause: Span::from_millis(100),
            offers_per_round: 8,
            greetings_per_round: 8,
            fairness_pause: Span::from_millis(500),
            reservation_ttl: Span::from_secs(3),
            offer_patience: Span::from_millis(125),
            offer_sends_max: 10,
            outbound_max: 4,
            rest: Span::from_secs(2),
            exclusion_max: Span::from_secs(16),
            setback_max: Span::from_secs(64),
            move_patience: Span::from_secs(600),
            owner_hold: Span::from_secs(10),
            core_left_min: 0.5,
            memory_pressure_max: 0.1,
            memory_margin: 0.05,
            view_max: VIEW_MAX,
            processes_max: 4_096,
        }
    }
}
