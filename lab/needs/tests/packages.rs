//! The programs that are named to users are those that CI installs.

use std::collections::BTreeSet;

#[test]
fn ci_installs_every_program_that_tests_need() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/run");
    let script = std::fs::read_to_string(path).expect(".ci/run");
    let (_, rest) = script.split_once("programs=(").expect("a list of programs");
    let (list, _) = rest.split_once(')').expect("the end of the list");
    let installed: BTreeSet<(&str, &str)> =
        list.split_whitespace().filter_map(|entry| entry.split_once(':')).collect();
    let needed: BTreeSet<(&str, &str)> = needs::PROGRAMS.into_iter().collect();
    assert_eq!(installed, needed);
}

#[test]
fn what_is_lacking_is_named_with_its_package() {
    assert_eq!(needs::lack("xz"), "it needs the program `xz`: install the package xz-utils");
    assert!(needs::has("sh") && !needs::has("no-such-program"));
}
