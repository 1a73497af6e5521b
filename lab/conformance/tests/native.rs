//! The guests judged by themselves, before Osmos is judged by them: natively, and natively while
//! they are stopped and continued at random moments.

use conformance::subject::Kind;
use conformance::{Flavour, Options};

#[test]
fn guests_pass_natively_and_do_not_notice_being_stopped() {
    // What a program leaves in files is compared by its hash.
    if !needs::can_run(&["sha256sum"]) {
        return;
    }
    let options = Options {
        flavours: vec![Flavour::Native, Flavour::Stopped],
        kind: Some(Kind::Guest),
        ..Options::default()
    };
    let report = conformance::run(&options, &|_| {}).expect("the harness works");
    assert!(report.is_success(), "{}", report.text());
}
