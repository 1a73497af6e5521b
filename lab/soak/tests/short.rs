//! The short form of the soak, part of every test run. The long one: `cargo xtask soak`.

use soak::ground::NoLab;
use soak::{Options, run};
use std::time::Duration;

#[test]
fn processes_of_every_kind_survive_random_moves_and_leave_nothing_behind() {
    let limit = Duration::from_secs(30);
    let options = Options { moves: 60, processes: 8, seed: 20, limit, ..Options::default() };
    let report = match run(&options, &|_| {}) {
        Err(error) if error.is::<NoLab>() => return needs::skip(&format!("{error:#}")),
        report => report.expect("the soak can be held"),
    };
    for (program, why) in &report.left_out {
        needs::skip_part(&format!("the soak of {program}"), why);
    }
    println!("{}", report.text());
    assert!(report.is_success(), "{}", report.text());
}
