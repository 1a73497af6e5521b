//! The short form of the soak, part of every test run. The long one: `cargo xtask soak`.

use conformance::soak::{Options, programs, run};
use lab::NoLab;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// It ends with its last move: so long it takes beside much else only.
const LIMIT: Duration = Duration::from_secs(120);
/// So long daemons are killed: thirty of them.
const KILLING: Duration = Duration::from_secs(60);

#[test]
fn processes_of_every_kind_survive_random_moves_and_leave_nothing_behind() {
    survive(&Options { moves: 60, processes: 9, seed: 20, limit: LIMIT, ..Options::default() });
}

#[test]
fn processes_of_every_kind_survive_daemons_that_are_killed_and_replaced() {
    let kill_daemons = Some(Duration::from_secs(2));
    let (moves, limit) = (20, KILLING);
    survive(&Options { moves, processes: 9, seed: 21, limit, kill_daemons, ..Options::default() });
}

/// A soak has its lab for itself: two at once on a small machine are one that proves half as much.
static ALONE: Mutex<()> = Mutex::new(());

fn survive(options: &Options) {
    if programs::runnable().is_empty() {
        for (program, why) in programs::left_out() {
            needs::skip_part(&format!("the soak of {program}"), &why);
        }
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let report = match run(options, &|_| {}) {
        Err(error) if error.is::<NoLab>() => return needs::skip(&format!("{error:#}")),
        report => report.expect("the soak can be held"),
    };
    for (program, why) in &report.left_out {
        needs::skip_part(&format!("the soak of {program}"), why);
    }
    println!("{}", report.text());
    assert!(report.is_success(), "{}", report.text());
}
