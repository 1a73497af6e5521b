//! The brain is a function of its inputs. What could make it anything else is not in its sources.

use std::path::Path;

const IMPURE: [&str; 9] = [
    "std::time",
    "std::net",
    "std::thread",
    "std::fs",
    "std::process",
    "std::env",
    // Their order differs from run to run.
    "HashMap",
    "HashSet",
    "RandomState",
];

#[test]
fn the_sources_know_no_clock_no_socket_no_thread_and_no_random_order() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files_read = 0;
    let mut paths = vec![sources];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the sources are there");
            paths.extend(entries.map(|entry| entry.expect("a directory entry").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        files_read += 1;
        for word in IMPURE {
            assert!(!text.contains(word), "{} uses {word}", path.display());
        }
    }
    assert!(files_read > 40, "only {files_read} files found");
}
