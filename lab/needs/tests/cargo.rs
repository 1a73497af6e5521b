//! Programs that a test has built are built as a user does it.

use std::ffi::OsStr;

#[test]
fn a_build_is_not_told_of_the_package_that_has_it_done() {
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "cargo runs this test");
    let command = needs::cargo();
    let is_taken = |name: &str| {
        command.get_envs().any(|(known, value)| known == OsStr::new(name) && value.is_none())
    };
    for name in ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_MANIFEST_DIR"] {
        assert!(is_taken(name), "{name}");
    }
    assert!(!is_taken("PATH") && !is_taken("CARGO_TARGET_DIR") && !is_taken("CARGO_HOME"));
}
