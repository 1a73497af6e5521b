//! What this machine lacks, said before the first test: the first target of all, in the order of
//! cargo. Where nothing may be skipped it fails, so that nobody waits for the tests to find out.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut lacking: Vec<String> = needs::missing()
        .iter()
        .map(|(program, package)| {
            format!("the program `{program}` (package {package}): tests that run it are skipped")
        })
        .collect();
    match lab::try_smallest(Path::new(env!("CARGO_BIN_EXE_osmos"))) {
        Ok(missing) => lacking.extend(missing.iter().map(|note| format!("in a lab: {note}"))),
        Err(error) => lacking.push(format!(
            "a lab (separate nodes on one machine): {error:#}; tests of whole nodes are skipped"
        )),
    }
    if lacking.is_empty() {
        println!("this machine has all that the tests need");
        return ExitCode::SUCCESS;
    }
    println!("this machine lacks, and each test says so that is skipped for it:");
    for line in &lacking {
        println!("  {line}");
    }
    if needs::is_ci() {
        println!("CI is set, so nothing may be skipped");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
