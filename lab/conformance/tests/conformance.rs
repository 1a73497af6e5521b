//! Every guest and every real program, in every flavour, compared with native Linux.

use conformance::Options;
use conformance::report::Verdict;
use lab::NoLab;

#[test]
fn programs_cannot_tell_that_they_are_moved() {
    // What a program leaves in files is compared by its hash.
    if !needs::can_run(&["sha256sum"]) {
        return;
    }
    let report = match conformance::run(&Options::default(), &|_| {}) {
        Err(error) if error.is::<NoLab>() => return needs::skip(&format!("{error:#}")),
        report => report.expect("the harness works"),
    };
    println!("{}", report.text());
    for row in &report.rows {
        let skipped = row.cells.iter().find_map(|cell| match &cell.verdict {
            Verdict::Skipped(reason) => Some(reason),
            _ => None,
        });
        if let Some(reason) = skipped {
            needs::skip_part(&format!("conformance of {}", row.name), reason);
        }
    }
    assert!(report.is_success(), "{}", report.text());
}
