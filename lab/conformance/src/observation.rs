//! What can be seen of a run from outside, and how two runs differ.

use crate::stage::Console;
use crate::subject::Ending;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// What of a difference is shown.
const SHOWN_CHARS_MAX: usize = 160;

/// Everything that must be the same in all flavours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    pub ending: Ending,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Type, mode, target and content hash of everything in the program's directory, by path.
    pub files: BTreeMap<String, String>,
    /// Processes that were still there a moment after the end.
    pub left_count: u32,
}

impl Observation {
    /// Collects what a run in `directory` left.
    pub fn collect(
        console: &mut Console,
        directory: &str,
        ending: Ending,
        left_count: u32,
    ) -> Result<Observation> {
        let stdout = console.must(&format!("cat {directory}/stdout"))?;
        let stderr = console.must(&format!("cat {directory}/stderr"))?;
        let listing = console.must(&format!(
            "cd {directory}/work && find . -mindepth 1 -printf '%P\\t%y %m %n %l\\n' && echo && \
             find . -type f -exec sha256sum {{}} +"
        ))?;
        let files = parse_listing(&String::from_utf8_lossy(&listing))?;
        Ok(Observation { ending, stdout, stderr, files, left_count })
    }

    /// The first difference of each kind to what was seen natively: a line that is missing is
    /// explained by what went wrong before, which may be told elsewhere.
    pub fn difference(&self, native: &Observation) -> Option<String> {
        let all = [
            self.difference_of_end(native),
            difference_of_lines("stdout", &self.stdout, &native.stdout),
            difference_of_lines("stderr", &self.stderr, &native.stderr),
            self.difference_of_files(native),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Likewise in how it ended and what it left running.
    pub fn difference_of_end(&self, native: &Observation) -> Option<String> {
        if self.ending != native.ending {
            let seen = telling_line(&self.stdout)
                .or_else(|| last_line(&self.stderr))
                .or_else(|| last_line(&self.stdout));
            let seen = seen.map(|line| format!("; it said: {line}")).unwrap_or_default();
            return Some(format!("{} instead of {}{seen}", self.ending, native.ending));
        }
        (self.left_count > native.left_count)
            .then(|| format!("{} processes were left behind", self.left_count))
    }

    fn difference_of_files(&self, native: &Observation) -> Option<String> {
        for (path, is) in &self.files {
            match native.files.get(path) {
                None => return Some(format!("file {path} exists only here ({is})")),
                Some(was) if was != is => {
                    return Some(format!("file {path} is {is} instead of {was}"));
                }
                Some(_) => {}
            }
        }
        let missing = native.files.keys().find(|path| !self.files.contains_key(*path))?;
        Some(format!("file {missing} is missing"))
    }
}

/// Lines of `PATH\tTYPE MODE LINKS TARGET`, an empty one, and lines of sha256sum.
fn parse_listing(text: &str) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut lines = text.lines();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let (path, what) = line.split_once('\t').with_context(|| format!("odd entry `{line}`"))?;
        files.insert(path.to_string(), what.trim_end().to_string());
    }
    for line in lines {
        let (hash, path) = line.split_once("  ./").with_context(|| format!("odd hash `{line}`"))?;
        let entry = files.get_mut(path).with_context(|| format!("{path} is new"))?;
        entry.push_str(&format!(" {}", &hash[..hash.len().min(12)]));
    }
    Ok(files)
}

/// The first check that a guest found failed.
fn telling_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().find(|line| line.starts_with("FAIL ")).map(shortened)
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    // Compressed output says nothing to people.
    let is_text = !last.contains(|char: char| char.is_control() || char == '\u{fffd}');
    is_text.then(|| shortened(last))
}

fn difference_of_lines(name: &str, is: &[u8], was: &[u8]) -> Option<String> {
    if is == was {
        return None;
    }
    let (is, was) = (String::from_utf8_lossy(is), String::from_utf8_lossy(was));
    let mut number = 0;
    let (mut is_lines, mut was_lines) = (is.lines(), was.lines());
    loop {
        number += 1;
        match (is_lines.next(), was_lines.next()) {
            (Some(is), Some(was)) if is == was => {}
            (Some(is), Some(was)) => {
                let (is, was) = (shortened(is), shortened(was));
                return Some(format!("{name} line {number} is `{is}` instead of `{was}`"));
            }
            (Some(is), None) => {
                return Some(format!("{name} goes on in line {number}: `{}`", shortened(is)));
            }
            (None, Some(was)) => {
                let was = shortened(was);
                return Some(format!("{name} ends before line {number}, `{was}`"));
            }
            (None, None) => return Some(format!("{name} differs in bytes that are no text")),
        }
    }
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn seen(stdout: &str) -> Observation {
        Observation {
            ending: Ending::Exit(0),
            stdout: stdout.as_bytes().to_vec(),
            stderr: Vec::new(),
            files: BTreeMap::from([("a".into(), "f 644 1  0123".into())]),
            left_count: 0,
        }
    }

    #[test]
    fn equal_runs_do_not_differ() {
        assert_eq!(seen("one\ntwo\n").difference(&seen("one\ntwo\n")), None);
    }

    #[test]
    fn the_first_line_that_differs_is_told() {
        let difference = seen("one\ntwo\n").difference(&seen("one\n2\n")).unwrap();
        assert_eq!(difference, "stdout line 2 is `two` instead of `2`");
        let difference = seen("one\n").difference(&seen("one\ntwo\n")).unwrap();
        assert_eq!(difference, "stdout ends before line 2, `two`");
        assert!(seen("one").difference(&seen("one\n")).is_some(), "a missing line end counts");
    }

    #[test]
    fn a_difference_of_one_kind_does_not_hide_those_of_others() {
        let mut changed = seen("two\n");
        changed.stderr = b"cannot open\n".to_vec();
        changed.files.clear();
        let difference = changed.difference(&seen("one\n")).unwrap();
        assert_eq!(
            difference,
            "stdout line 1 is `two` instead of `one`; stderr goes on in line 1: `cannot open`; \
             file a is missing"
        );
    }

    #[test]
    fn status_files_and_left_processes_count() {
        let native = seen("");
        let died = Observation { ending: Ending::Signal(11), ..native.clone() };
        assert!(died.difference(&native).unwrap().contains("death by signal 11"));
        let mut changed = native.clone();
        changed.files.insert("a".into(), "f 600 1  0123".into());
        assert!(changed.difference(&native).unwrap().contains("file a is f 600"));
        let fewer = Observation { files: BTreeMap::new(), ..native.clone() };
        assert_eq!(fewer.difference(&native).unwrap(), "file a is missing");
        assert!(native.difference(&fewer).unwrap().contains("exists only here"));
        let left = Observation { left_count: 2, ..native.clone() };
        assert!(left.difference(&native).unwrap().contains("2 processes"));
    }

    #[test]
    fn a_listing_gives_mode_target_and_hash_of_each_file() {
        let text = "d\td 755 2 \nl\tl 777 1 d/f\nd/f\tf 640 1 \n\nabcdef0123456789  ./d/f\n";
        let files = parse_listing(text).unwrap();
        assert_eq!(files["l"], "l 777 1 d/f");
        assert_eq!(files["d/f"], "f 640 1 abcdef012345");
        assert!(parse_listing("no tab\n").is_err());
    }
}
