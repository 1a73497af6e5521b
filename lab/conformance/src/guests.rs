//! The guests: small C programs in `lab/guests`, found by looking there, so that a new file is all
//! that a new guest needs. The comments at the head of each say what it proves and how it ends.

use crate::subject::{Ending, Kind, Subject};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the sources are.
pub fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests")
}

/// All guests, by name.
pub fn subjects() -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for path in sources(&source_dir())? {
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        subjects.push(subject(&stem(&path)?, &source)?);
    }
    ensure!(!subjects.is_empty(), "there are no guests in {}", source_dir().display());
    Ok(subjects)
}

fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> Result<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    Ok(stem.with_context(|| format!("{} is no name for a guest", path.display()))?.to_string())
}

/// Reads the comments at the head of a guest.
fn subject(name: &str, source: &str) -> Result<Subject> {
    let mut subject = Subject {
        name: name.to_string(),
        kind: Kind::Guest,
        purpose: String::new(),
        again: None,
        command: vec![format!("../../guests/{name}")],
        locate: None,
        runs: Vec::new(),
        files: Vec::new(),
        stdin: None,
        ends: Ending::Exit(0),
        may_stay: Vec::new(),
        not_stopped: None,
    };
    for line in source.lines() {
        let Some(comment) = line.strip_prefix("/* ").and_then(|line| line.strip_suffix(" */"))
        else {
            break;
        };
        match comment.split_once(": ") {
            Some(("ends", words)) => {
                subject.ends = Ending::parse(words)
                    .with_context(|| format!("{name}.c: `{words}` is no way to end"))?;
            }
            Some(("may stay", code)) => subject.may_stay.push(code.to_string()),
            Some(("not stopped", reason)) => subject.not_stopped = Some(reason.to_string()),
            Some(("stdin", input)) => {
                let known = crate::inputs::find(input);
                subject.stdin =
                    Some(known.with_context(|| format!("{name}.c: no input is called {input}"))?);
            }
            _ if subject.purpose.is_empty() => subject.purpose = comment.to_string(),
            _ => bail!("{name}.c: `{comment}` is not `ends:`, `may stay:` or `not stopped:`"),
        }
    }
    ensure!(!subject.purpose.is_empty(), "{name}.c does not begin with what it proves");
    Ok(subject)
}

/// Compiles the guests of these names, and the witness, into `into`.
///
/// Always anew, which takes a few seconds: what is tested is then what the sources say.
pub fn compile(names: &[&str], into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| into.display().to_string())?;
    let witness = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/witness.c");
    let mut todo = vec![(witness, into.join("witness"))];
    for name in names {
        todo.push((source_dir().join(format!("{name}.c")), into.join(name)));
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |cores| cores.get()) {
            scope.spawn(|| {
                while let Some((source, program)) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = compile_one(source, program) {
                        *failed.lock().expect("no thread panics with it") = Some(error);
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("no thread panics with it") {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn compile_one(source: &Path, program: &Path) -> Result<()> {
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .args(["-lm", "-lutil", "-ldl"])
        .output()
        .context("cannot run `cc`; a C compiler is needed to build the guests")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not compile:\n{messages}", source.display());
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_head_of_a_guest_says_what_it_proves_and_how_it_ends() {
        let head = ["It dies.", "ends: signal 11", "may stay: io-uring", "not stopped: so"];
        let comments = head.map(|line| format!("/* {line} */\n"));
        let source = comments.concat() + "#include <a.h>\n";
        let subject = subject("dies", &source).unwrap();
        assert_eq!(subject.purpose, "It dies.");
        assert_eq!(subject.ends, Ending::Signal(11));
        assert_eq!(subject.may_stay, ["io-uring"]);
        assert_eq!(subject.not_stopped.as_deref(), Some("so"));
    }

    #[test]
    fn a_guest_without_purpose_or_with_unknown_words_is_refused() {
        assert!(subject("silent", "#include <a.h>\n").is_err());
        assert!(subject("odd", "/* It is. */\n/* ends: badly */\n").is_err());
        assert!(subject("odd", "/* It is. */\n/* something else */\n").is_err());
        assert!(subject("odd", "/* It is. */\n/* stdin: nothing-like-it */\n").is_err());
    }

    #[test]
    fn there_are_at_least_forty_guests_each_with_its_purpose() {
        let subjects = subjects().unwrap();
        assert!(subjects.len() >= 40, "only {}", subjects.len());
        for subject in &subjects {
            assert!(subject.purpose.len() > 20, "{}: {}", subject.name, subject.purpose);
        }
    }

    #[test]
    fn a_source_that_does_not_compile_is_told_with_the_compilers_words() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("wrong.c");
        fs::write(&source, "int main(void) { return missing; }\n").unwrap();
        let error = compile_one(&source, &directory.path().join("wrong")).unwrap_err();
        assert!(format!("{error:#}").contains("missing"), "{error:#}");
    }
}
