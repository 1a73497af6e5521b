//! The pairwise rule: may this process go from this node to that one, and does the move pay?
//!
//! Pure functions of two conditions. Both ends evaluate them: the source on what it knows, the
//! target on the truth. They are built so that processes cannot fly back and forth: a move is
//! allowed only if it
//! * puts an idle core to work (the cluster's throughput rises), or
//! * takes the process to a faster place that is idle (throughput rises), or
//! * leaves the throughput as it is and gives the process a larger share.
//!
//! Each must be true beyond a dead band and beyond measurement noise, so every accepted move climbs
//! the same hill: first throughput, then the smallest share. The opposite move never qualifies
//! until something else has changed.

use crate::config::Config;
use crate::facts::{Candidate, Condition, Entry};
use crate::time::Span;
use serde::{Deserialize, Serialize};
use wire::ids::{GlobalPid, NodeId};

/// What one process asks of the place where it runs. `drag` is how many times longer its work takes
/// there because of the calls it forwards to its home; 1 at home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Burden {
    pub demand: f64,
    pub drag_source: f64,
    pub drag_target: f64,
}

/// Why a move is allowed, with the process's rate (reference seconds per second) before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gain {
    pub kind: GainKind,
    pub rate_before: f64,
    pub rate_after: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GainKind {
    /// A core that stood idle gets work that waited.
    IdleCore,
    /// An idle place that is faster for this process.
    FasterPlace,
    /// An equal use of the cluster, a larger share for this process.
    LargerShare,
}

/// How many times longer a process's work takes at `node`.
pub(crate) fn drag(
    process: GlobalPid,
    node: NodeId,
    calls_per_cpu_s: f64,
    forward_cost: Span,
) -> f64 {
    if process.home == node { 1.0 } else { 1.0 + calls_per_cpu_s * forward_cost.as_secs_f64() }
}

/// What one of the process's threads gets, in reference seconds per second, where it is and there.
pub(crate) fn rates(
    source: &Condition,
    target: &Condition,
    burden: Burden,
    config: &Config,
) -> (f64, f64) {
    let demand = burden.demand.max(config.noise);
    let crowd = source.runnable.max(demand);
    let before = source.share_among(crowd) / burden.drag_source;
    (before, target.share_after(demand) / burden.drag_target)
}

/// How many threads of such a demand must not be taken for load, if it is `noise` of one thread:
/// where each of several waits now and then, how many are runnable differs as the square root of
/// their number.
fn noise_of(noise: f64, demand: f64) -> f64 {
    noise * if demand <= 1.0 { demand } else { demand.sqrt() }
}

/// Whether the process may go. `source.runnable` includes it, `target.runnable` does not. `noise`:
/// the part of a thread's demand that is none.
pub(crate) fn judge(
    source: &Condition,
    target: &Condition,
    burden: Burden,
    noise: f64,
    config: &Config,
) -> Option<Gain> {
    let demand = burden.demand.max(config.noise);
    let crowd = source.runnable.max(demand);
    let (rate_before, rate_after) = rates(source, target, burden, config);
    let gain = |kind| Some(Gain { kind, rate_before, rate_after });

    let used_more = target.busy(target.runnable + demand) - target.busy(target.runnable);
    let used_less = source.busy(crowd) - source.busy(crowd - demand);
    let unit = (source.speed / burden.drag_source).min(target.speed / burden.drag_target) * demand;
    let throughput = used_more * target.speed / burden.drag_target
        - used_less * source.speed / burden.drag_source;

    let noise = noise_of(noise, demand);
    if throughput >= noise * (unit / demand) && used_less < demand - noise {
        return gain(GainKind::IdleCore);
    }
    // Bare speeds: what the process gains by leaving a crowd is judged by the other two.
    let faster = target.speed / burden.drag_target
        > source.speed / burden.drag_source * (1.0 + config.dead_band);
    if used_more >= demand - noise && faster && throughput >= unit * config.dead_band {
        return gain(GainKind::FasterPlace);
    }
    let cautious = target.share_among(target.runnable + demand + noise) / burden.drag_target;
    // Not of exactly that: the opposite move may be one for an idle core.
    let keeps_throughput = throughput > -noise * (unit / demand);
    if keeps_throughput && cautious > rate_before * (1.0 + config.dead_band) {
        return gain(GainKind::LargerShare);
    }
    None
}

/// Greater wishes count as that: fewer places are ruled out.
const WHOLE_MAX: u64 = 1 << 31;

/// The least that any of a node's processes could call a gain, in thousandths as entries are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wish {
    /// Room that would be an idle core for the smallest of them.
    room_milli: f64,
    /// A speed at which a place could be faster for one of them.
    faster_milli: f64,
    /// What the smallest of them adds to a crowd.
    added_milli: f64,
    /// A share larger than the smallest that any of them has.
    share_milli: f64,
    /// The last two, rounded down and bounded.
    added_whole: u64,
    share_whole: u64,
}

impl Wish {
    /// Of processes at `source` that want between so much of a core, and whose work takes at most
    /// `drag` times longer there because of their calls.
    pub fn of(
        source: &Condition,
        (demand_min, demand_max): (f64, f64),
        drag: f64,
        noise: f64,
        config: &Config,
    ) -> Wish {
        let least = demand_min.max(config.noise);
        let rate = source.share_among(source.runnable.max(demand_max.max(config.noise))) / drag;
        let least_noise = noise_of(noise, least);
        let added_milli = (least + least_noise) * 1e3;
        let share_milli = rate * (1.0 + config.dead_band) * 1e3;
        Wish {
            room_milli: least_noise * 1e3,
            faster_milli: source.speed / drag * 1e3,
            added_milli,
            share_milli,
            added_whole: (added_milli as u64).min(WHOLE_MAX),
            share_whole: (share_milli as u64).min(WHOLE_MAX),
        }
    }
}

/// False if [`judge`] lets none of those who wish that go there. Without a division: most places
/// are turned down here.
pub(crate) fn may_gain(target: &Entry, wish: &Wish) -> bool {
    if is_crowded_for(target, wish) {
        return false;
    }
    let (cores_milli, speed_milli) = (f64::from(target.cores) * 1e3, f64::from(target.speed_milli));
    let runnable_milli = f64::from(target.runnable_milli);
    let room_milli = cores_milli - runnable_milli;
    let is_faster = speed_milli > wish.faster_milli;
    if room_milli > 0.0 && (is_faster || room_milli >= wish.room_milli) {
        return true;
    }
    let crowd_milli = (runnable_milli + wish.added_milli).max(cores_milli);
    speed_milli * cores_milli > wish.share_milli * crowd_milli
}

/// Whether no core is idle there and a larger share plainly out of reach: in whole numbers, and in
/// favour of the place, as this is asked of almost all.
fn is_crowded_for(target: &Entry, wish: &Wish) -> bool {
    let (cores_milli, speed_milli) = (u64::from(target.cores) * 1_000, target.speed_milli);
    let runnable_milli = u64::from(target.runnable_milli);
    // No product is too large, as all are bounded.
    let crowd_milli = runnable_milli + wish.added_whole;
    runnable_milli >= cores_milli
        && u64::from(speed_milli) * cores_milli <= wish.share_whole * crowd_milli
}

/// Whether a move for a larger share would be that even if another half of a thread ran at the
/// target. Who came from there goes back for no less: noise alone cannot make it fly to and fro,
/// and a first guess that was wrong can still be corrected.
pub(crate) fn is_beyond_doubt(
    gain: &Gain,
    target: &Condition,
    burden: Burden,
    config: &Config,
) -> bool {
    let demand = burden.demand.max(config.noise);
    let crowd = target.runnable + demand + config.doubt;
    target.share_among(crowd) / burden.drag_target > gain.rate_before * (1.0 + config.dead_band)
}

/// Whether the move earns its freeze back by what is left to compute. What the process does while
/// it is copied gains nothing.
pub(crate) fn pays(gain: &Gain, candidate: &Candidate, pace: f64) -> bool {
    let stake = candidate.left_s();
    let freeze = candidate.freeze.as_secs_f64();
    let left = stake * pace - candidate.copy.as_secs_f64() * gain.rate_before;
    let saved = left / gain.rate_before - left / gain.rate_after;
    saved > freeze || (gain.kind == GainKind::IdleCore && left > 0.0 && freeze < stake / 4.0)
}

/// Whether a process of `rss_bytes` fits, besides what is promised already.
pub(crate) fn fits(target: &Condition, promised_bytes: u64, rss_bytes: u64, margin: f64) -> bool {
    let reserve = (target.memory_total_bytes as f64 * margin) as u64;
    let needed = promised_bytes.saturating_add(rss_bytes).saturating_add(reserve);
    needed <= target.memory_free_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(cores: u32, speed: f64, runnable: f64) -> Condition {
        Condition::idle(cores, speed).with_runnable(runnable)
    }

    fn cpu_bound() -> Burden {
        Burden { demand: 1.0, drag_source: 1.0, drag_target: 1.0 }
    }

    fn kind(source: Condition, target: Condition, burden: Burden) -> Option<GainKind> {
        {
            let config = Config::default();
            judge(&source, &target, burden, config.noise, &config)
        }
        .map(|gain| gain.kind)
    }

    #[test]
    fn waiting_work_goes_to_an_idle_core_even_a_slow_one() {
        let gain = kind(node(1, 1.0, 2.0), node(1, 0.5, 0.0), cpu_bound());
        assert_eq!(gain, Some(GainKind::IdleCore));
    }

    #[test]
    fn a_lone_process_goes_only_to_a_faster_idle_node() {
        let lone = node(1, 1.0, 1.0);
        assert_eq!(kind(lone, node(1, 2.0, 0.0), cpu_bound()), Some(GainKind::FasterPlace));
        assert_eq!(kind(lone, node(1, 1.04, 0.0), cpu_bound()), None);
        assert_eq!(kind(lone, node(1, 4.0, 1.0), cpu_bound()), None, "it would empty a node");
    }

    #[test]
    fn three_against_one_is_evened_out_and_three_against_two_is_not() {
        let crowded = node(1, 1.0, 3.0);
        assert_eq!(kind(crowded, node(1, 1.0, 1.0), cpu_bound()), Some(GainKind::LargerShare));
        assert_eq!(kind(crowded, node(1, 1.0, 2.0), cpu_bound()), None);
    }

    #[test]
    fn shares_follow_speeds() {
        // Shares of 0.25 against 0.33 after the move.
        let gain = kind(node(1, 0.5, 2.0), node(1, 1.0, 2.0), cpu_bound());
        assert_eq!(gain, Some(GainKind::LargerShare));
        assert_eq!(kind(node(1, 1.0, 3.0), node(1, 0.5, 1.0), cpu_bound()), None);
    }

    #[test]
    fn a_quarter_of_a_thread_of_noise_moves_nothing() {
        for (here, there) in [(2.2, 1.8), (1.2, 0.8), (1.2, 0.0), (3.2, 1.9)] {
            let source = node(1, 1.0, here);
            assert_eq!(kind(source, node(1, 1.0, there), cpu_bound()), None, "{here} {there}");
        }
    }

    #[test]
    fn a_process_that_talks_to_home_a_lot_is_drawn_there() {
        let away = Burden { demand: 1.0, drag_source: 1.5, drag_target: 1.0 };
        let gain = kind(node(1, 1.0, 1.0), node(1, 1.0, 0.0), away);
        assert_eq!(gain, Some(GainKind::FasterPlace));
        let leaving = Burden { demand: 1.0, drag_source: 1.0, drag_target: 1.5 };
        assert_eq!(kind(node(1, 1.0, 1.0), node(1, 1.0, 0.0), leaving), None);
    }

    #[test]
    fn a_young_process_with_a_long_freeze_stays() {
        let gain = Gain { kind: GainKind::LargerShare, rate_before: 0.25, rate_after: 0.5 };
        let is_paid = |cpu, freeze| pays(&gain, &candidate(cpu, freeze, Span::ZERO), 1.0);
        assert!(!is_paid(Span::from_millis(100), Span::from_secs(1)));
        assert!(is_paid(Span::from_secs(1), Span::from_secs(1)));
    }

    fn candidate(cpu: Span, freeze: Span, copy: Span) -> Candidate {
        Candidate {
            process: GlobalPid { home: NodeId(1), pid: wire::ids::HomePid(7) },
            demand: 1.0,
            calls_per_cpu_s: 0.0,
            waits_for_home: 0.0,
            cpu,
            came_with: None,
            rss_bytes: 0,
            freeze,
            copy,
            left: None,
            came_from: None,
            group: None,
            here: cpu,
            is_new: false,
        }
    }

    #[test]
    fn what_is_known_to_be_left_counts_instead_of_the_past() {
        let gain = Gain { kind: GainKind::LargerShare, rate_before: 0.25, rate_after: 0.5 };
        let young = candidate(Span::from_millis(5), Span::from_millis(20), Span::ZERO);
        assert!(!pays(&gain, &young, 1.0));
        assert!(pays(&gain, &Candidate { left: Some(Span::from_millis(300)), ..young }, 1.0));
        let old = candidate(Span::from_secs(10), Span::from_millis(20), Span::ZERO);
        assert!(pays(&gain, &old, 1.0));
        assert!(!pays(&gain, &Candidate { left: Some(Span::from_millis(1)), ..old }, 1.0));
    }

    #[test]
    fn a_process_that_would_hardly_outlive_its_copying_stays() {
        for kind in [GainKind::LargerShare, GainKind::IdleCore] {
            let gain = Gain { kind, rate_before: 0.5, rate_after: 1.0 };
            let is_paid = |cpu_s, copy_s| {
                let (cpu, copy) = (Span::from_secs(cpu_s), Span::from_secs(copy_s));
                pays(&gain, &candidate(cpu, Span::from_millis(10), copy), 1.0)
            };
            assert!(is_paid(10, 0) && is_paid(10, 10), "{kind:?}");
            // It computes five seconds' work meanwhile, of the five that it is taken to have left.
            assert!(!is_paid(5, 10), "{kind:?}");
        }
    }

    #[test]
    fn what_is_promised_to_others_is_not_free() {
        let target = node(1, 1.0, 0.0);
        assert!(fits(&target, 0, 900 << 20, 0.05));
        assert!(!fits(&target, 200 << 20, 900 << 20, 0.05));
        assert!(!fits(&target, u64::MAX, u64::MAX, 0.05));
    }

    proptest! {
        #[test]
        fn nobody_gains_where_that_was_ruled_out(
            cores in prop::array::uniform2(1u32..128),
            speeds_milli in prop::array::uniform2(1u32..8_000),
            runnable_milli in prop::array::uniform2(0u32..20_000),
            demand in 0.0f64..64.0,
            talk in prop::array::uniform2(0.0f64..2.0),
        ) {
            let config = Config::default();
            let condition = |nth: usize| {
                let speed = f64::from(speeds_milli[nth]) / 1000.0;
                node(cores[nth], speed, f64::from(runnable_milli[nth]) / 1000.0)
            };
            let (source, target) = (condition(0), condition(1));
            let burden =
                Burden { demand, drag_source: 1.0 + talk[0], drag_target: 1.0 + talk[1] };
            let drag = burden.drag_source;
            let wish = Wish::of(&source, (demand, demand), drag, config.noise, &config);
            let entry = Entry::new(wire::ids::NodeId(1), 1, crate::time::Time::ZERO, Some(&target));
            let gain = judge(&source, &target, burden, config.noise, &config);
            let is_ruled_out = !may_gain(&entry, &wish);
            prop_assert!(gain.is_none() || !is_ruled_out, "{source:?} {target:?} {gain:?}");
        }

        /// The rule that makes ping-pong impossible: after any allowed move of a process, moving
        /// the same process back is not allowed.
        #[test]
        fn no_allowed_move_can_be_undone_by_the_rule(
            cores in prop::array::uniform2(1u32..128),
            speeds in prop::array::uniform2(1u32..80),
            runnable in prop::array::uniform2(0.0f64..80.0),
            demand in 0.5f64..64.0,
            talk in 0.0f64..2.0,
            homeward in any::<bool>(),
        ) {
            let config = Config::default();
            let speed = |tenths: u32| f64::from(tenths) / 10.0;
            let source = node(cores[0], speed(speeds[0]), runnable[0] + demand);
            let target = node(cores[1], speed(speeds[1]), runnable[1]);
            let (drag_source, drag_target) =
                if homeward { (1.0 + talk, 1.0) } else { (1.0, 1.0 + talk) };
            let go = Burden { demand, drag_source, drag_target };
            if judge(&source, &target, go, config.noise, &config).is_some() {
                let left = source.with_runnable(source.runnable - demand);
                let joined = target.with_runnable(target.runnable + demand);
                let back =
                    Burden { demand, drag_source: drag_target, drag_target: drag_source };
                let gain = judge(&joined, &left, back, config.noise, &config);
                prop_assert!(gain.is_none(), "{source:?} {target:?} back by {gain:?}");
            }
        }
    }
}
