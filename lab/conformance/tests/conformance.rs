//! Every guest and every real program, in every flavour, compared with native Linux.

use conformance::Options;
use conformance::stage::NoLab;
use conformance::suite::is_ci;

#[test]
fn programs_cannot_tell_that_they_are_moved() {
    let report = match conformance::run(&Options::default(), &|_| {}) {
        Err(error) if error.is::<NoLab>() && !is_ci() => {
            println!("skipped, nothing is proved: {error:#}");
            return;
        }
        report => report.expect("the harness works"),
    };
    println!("{}", report.text());
    assert!(report.is_success(), "{}", report.text());
}
