//! Every guest and every real program, in every flavour, compared with native Linux.

use conformance::Options;

#[test]
fn programs_cannot_tell_that_they_are_moved() {
    let report = conformance::run(&Options::default(), &|_| {}).expect("the harness works");
    println!("{}", report.text());
    assert!(report.is_success(), "{}", report.text());
}
