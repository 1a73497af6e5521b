//! The body's seccomp filter, made from the one table of system calls: what the table calls local
//! passes, everything else stops and is reported.

use kernel::seccomp::{Allow, Condition};
use wire::calls::{LocalRule, Test};

/// The rules of the filter.
pub fn rules() -> Vec<Allow> {
    let mut rules: Vec<Allow> = wire::calls::local_rules().flat_map(|rule| expand(&rule)).collect();
    // Reading a thread's clear-on-exit address is how its state is captured (`migrate::threads`).
    rules.push(Allow {
        number: libc::SYS_prctl as u32,
        conditions: vec![equals(0, u32::MAX, libc::PR_GET_TID_ADDRESS as u32, false)],
    });
    rules
}

/// One rule for each combination of the values that the tests allow.
fn expand(rule: &LocalRule) -> Vec<Allow> {
    let mut combinations: Vec<Vec<Condition>> = vec![vec![]];
    for test in rule.tests {
        combinations = combinations
            .iter()
            .flat_map(|so_far| {
                test.values.iter().map(|value| {
                    let mut conditions = so_far.clone();
                    conditions.push(condition(test, *value));
                    conditions
                })
            })
            .collect();
    }
    combinations.into_iter().map(|conditions| Allow { number: rule.number, conditions }).collect()
}

fn condition(test: &Test, value: u64) -> Condition {
    let high_mask = (test.mask >> 32) as u32;
    assert!(high_mask == 0 || (high_mask == u32::MAX && value >> 32 == 0));
    equals(test.argument, test.mask as u32, value as u32, high_mask != 0)
}

fn equals(argument: u8, mask: u32, value: u32, and_high_zero: bool) -> Condition {
    Condition { argument, mask, value, and_high_zero }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_rule_of_the_table_can_be_expressed_and_fits_the_kernel() {
        let rules = rules();
        assert!(rules.iter().any(|rule| rule.number == libc::SYS_munmap as u32));
        kernel::seccomp::program(&rules).unwrap();
    }
}
