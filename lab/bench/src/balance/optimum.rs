//! Exact optima: what no schedule can beat, to measure the policies against.
//!
//! Works and makespans are in seconds of a reference core. A node of several cores is as many
//! machines.

/// Any number of processes may be interrupted and go on elsewhere at no cost, on equal machines
/// (McNaughton 1959): no machine can do more than all the time, no process can be in two places.
pub fn preemptive(works_s: &[f64], machines: usize) -> f64 {
    let longest = works_s.iter().copied().fold(0.0, f64::max);
    longest.max(works_s.iter().sum::<f64>() / machines as f64)
}

/// The same on machines of different speeds (Horvath, Lam and Sethi 1977; Gonzalez and Sahni 1978):
/// the k longest processes can use at most the k fastest machines.
pub fn preemptive_mixed(works_s: &[f64], speeds: &[f64]) -> f64 {
    let mut works: Vec<f64> = works_s.to_vec();
    let mut speeds: Vec<f64> = speeds.to_vec();
    works.sort_by(|a, b| b.total_cmp(a));
    speeds.sort_by(|a, b| b.total_cmp(a));
    let (mut work, mut speed, mut least): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for (work_s, core) in works.iter().zip(&speeds) {
        work += work_s;
        speed += core;
        least = least.max(work / speed);
    }
    least.max(works.iter().sum::<f64>() / speed)
}

/// Equal processes that share the processor of their node fairly and may go elsewhere when one
/// ends: what the paper of 1996 calls optimal. The processes that are furthest behind get the
/// nodes with fewer.
pub fn whole_process(count: usize, work_s: f64, machines: usize) -> f64 {
    let mut left = vec![work_s; count];
    let mut time_s = 0.0;
    while !left.is_empty() {
        let (each, crowded) = (left.len() / machines, left.len() % machines);
        if each == 0 {
            return time_s + left.iter().copied().fold(0.0, f64::max);
        }
        left.sort_by(f64::total_cmp);
        let on_crowded = crowded * (each + 1);
        let rate = |nth: usize| 1.0 / if nth < on_crowded { each + 1 } else { each } as f64;
        let step_s = left
            .iter()
            .enumerate()
            .map(|(nth, left_s)| left_s / rate(nth))
            .fold(f64::MAX, f64::min);
        for (nth, left_s) in left.iter_mut().enumerate() {
            *left_s -= step_s * rate(nth);
        }
        left.retain(|left_s| *left_s > 1e-9);
        time_s += step_s;
    }
    time_s
}

/// All processes get on equally at all times: the best that can be expected by somebody who does
/// not know how long each will take, where those that have run longer are the more likely to end
/// (Weber 1982).
pub fn equal_progress(works_s: &[f64], machines: usize) -> f64 {
    let mut works: Vec<f64> = works_s.to_vec();
    works.sort_by(f64::total_cmp);
    let (mut time_s, mut done_s) = (0.0, 0.0);
    for (ended, work_s) in works.iter().enumerate() {
        let crowd = (works.len() - ended) as f64 / machines as f64;
        time_s += (work_s - done_s) * crowd.max(1.0);
        done_s = *work_s;
    }
    time_s
}

/// The most that `count` processes can get at a time on single-core nodes where so many threads of
/// others compete: the sum of s k / (k + b), k of them on a node. The gain of each further process
/// falls, so that giving each to the node with the largest gain is exact.
pub fn rate_beside(count: usize, nodes: &[(f64, u16)]) -> f64 {
    let share = |speed: f64, others: u16, own: usize| match own {
        0 => 0.0,
        own => speed * own as f64 / (own as f64 + f64::from(others)),
    };
    let mut own = vec![0usize; nodes.len()];
    let mut total = 0.0;
    for _ in 0..count {
        let gain = |node: usize| {
            let (speed, others) = nodes[node];
            share(speed, others, own[node] + 1) - share(speed, others, own[node])
        };
        let best = (0..nodes.len()).max_by(|a, b| gain(*a).total_cmp(&gain(*b)));
        let Some(best) = best else { return 0.0 };
        total += gain(best);
        own[best] += 1;
    }
    total
}

/// A bound for `count` equal processes beside load of others that comes and goes: `changes` says
/// when (in seconds), on which node, how many threads of others compute from then on. They can
/// never get more at a time than [`rate_beside`], and none can run faster than a whole core.
pub fn beside_background(
    count: usize,
    work_s: f64,
    speeds: &[f64],
    changes: &[(f64, u32, u16)],
    start_s: f64,
) -> f64 {
    let mut nodes: Vec<(f64, u16)> = speeds.iter().map(|speed| (*speed, 0)).collect();
    let mut left = count as f64 * work_s;
    let mut at_s = start_s;
    for (change_s, node, threads) in changes {
        if *change_s > at_s {
            let rate = rate_beside(count, &nodes);
            if left <= rate * (change_s - at_s) {
                break;
            }
            left -= rate * (change_s - at_s);
            at_s = *change_s;
        }
        nodes[*node as usize].1 = *threads;
    }
    let done_s = at_s + left / rate_beside(count, &nodes) - start_s;
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    done_s.max(work_s / fastest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::paper::TABLE_1;
    use proptest::prelude::*;

    #[test]
    fn the_whole_process_optimum_is_the_papers_but_for_its_misprint() {
        for row in TABLE_1 {
            let ours = whole_process(row.processes, 300.0, 16);
            if row.processes == 31 {
                assert_eq!(row.optimal_s, 563.0);
                assert_eq!(ours, 581.25);
                assert_eq!(preemptive(&[300.0; 31], 16), 581.25, "nobody can do better");
            } else {
                let difference = ours - row.optimal_s;
                assert!((0.0..1.0).contains(&difference), "{}: {ours}", row.processes);
            }
        }
    }

    #[test]
    fn the_preemptive_optimum_of_seventeen_is_far_below_the_papers() {
        assert_eq!(preemptive(&[300.0; 17], 16), 318.75);
        assert_eq!(preemptive(&[300.0; 8], 16), 300.0);
        assert_eq!(preemptive(&[900.0, 10.0], 16), 900.0);
    }

    #[test]
    fn equal_progress_is_the_optimum_of_equal_processes_and_no_other() {
        assert_eq!(equal_progress(&[300.0; 17], 16), 318.75);
        assert_eq!(equal_progress(&[300.0; 3], 16), 300.0);
        // Three share two machines until the short ones are done; then the long one has one.
        assert_eq!(equal_progress(&[10.0, 10.0, 30.0], 2), 35.0);
        assert_eq!(preemptive(&[10.0, 10.0, 30.0], 2), 30.0);
    }

    #[test]
    fn slow_machines_count_by_their_speed_and_only_as_many_as_there_are_processes() {
        let speeds = [vec![1.0; 11], vec![1.0 / 3.0; 5]].concat();
        assert!(
            (preemptive_mixed(&[300.0; 16], &speeds) - 4_800.0 / (11.0 + 5.0 / 3.0)).abs() < 1e-9
        );
        assert_eq!(preemptive_mixed(&[300.0; 11], &speeds), 300.0);
        assert_eq!(preemptive_mixed(&[300.0], &[0.5, 0.5]), 600.0);
    }

    #[test]
    fn others_take_their_fair_share() {
        assert_eq!(rate_beside(1, &[(1.0, 1)]), 0.5);
        assert_eq!(rate_beside(2, &[(1.0, 1), (1.0, 0)]), 1.5);
        // A second process on the free node gains nothing, beside the other it gains a sixth.
        assert!((rate_beside(3, &[(1.0, 1), (1.0, 0)]) - (1.0 + 2.0 / 3.0)).abs() < 1e-9);
    }

    #[test]
    fn background_that_comes_and_goes_is_taken_into_account_while_it_is_there() {
        let changes = [(15.0, 0, 1), (35.0, 0, 0)];
        // Ten seconds alone, twenty at half speed, ten alone.
        assert_eq!(beside_background(1, 30.0, &[1.0], &changes, 5.0), 40.0);
        assert_eq!(beside_background(1, 30.0, &[1.0, 1.0], &changes, 5.0), 30.0);
    }

    proptest! {
        #[test]
        fn equal_speeds_are_a_case_of_mixed_ones(
            works in prop::collection::vec(1.0f64..600.0, 1..40),
            machines in 1usize..20,
        ) {
            let mixed = preemptive_mixed(&works, &vec![1.0; machines]);
            prop_assert!((mixed - preemptive(&works, machines)).abs() < 1e-6);
        }

        #[test]
        fn whole_processes_take_at_least_as_long_as_divided_ones(
            count in 1usize..80,
            machines in 1usize..20,
        ) {
            let whole = whole_process(count, 300.0, machines);
            prop_assert!(whole >= preemptive(&vec![300.0; count], machines) - 1e-6);
        }
    }
}
