//! Rules about one source file at a time.

use super::Violation;
use super::mask::{Masked, mask};

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// The only crate that may hold unsafe code.
const UNSAFE_HOME: &str = "engine/kernel/";

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 14] = [
    "utils", "util", "helpers", "helper", "common", "misc", "manager", "handler", "context",
    "data", "info", "imp", "types", "stuff",
];

/// Marks of work that is not done. Spelt in two halves, so that this file has none itself.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// All violations in the file at `path`, relative to the workspace.
pub fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut file = File { path, found: Vec::new() };
    file.check_columns(text);
    file.check_name();
    if path.ends_with(".rs") {
        let masked = mask(text);
        file.check_head(text);
        file.check_unfinished(&masked);
        file.check_silenced(&masked.code);
        file.check_type_names(&masked.code);
        file.check_unsafe(text, &masked.code);
        file.check_functions(&masked.code);
        if is_oversize(path, text) && !LONG_FILES.iter().any(|(long, _)| *long == path) {
            let text = format!("more than {FILE_LINES_MAX} lines without tests; split it");
            file.report(0, "small-pieces", text);
        }
    }
    file.found
}

/// Whether a file has too many lines that are not tests.
pub fn is_oversize(path: &str, text: &str) -> bool {
    let in_tests = path.split('/').any(|part| matches!(part, "tests" | "test" | "test.rs"));
    path.ends_with(".rs") && !in_tests && lines_without_tests(&mask(text).code) > FILE_LINES_MAX
}

/// Exceptions that are no longer needed have to go.
pub fn unused_exceptions(oversize: &[String]) -> Vec<Violation> {
    unused_of(LONG_FILES, oversize)
}

fn unused_of(exceptions: &[(&str, &str)], oversize: &[String]) -> Vec<Violation> {
    let unused = exceptions.iter().filter(|(path, _)| !oversize.iter().any(|long| long == path));
    let text = "is an exception in xtask/src/tidy/rules.rs that is no longer needed";
    unused
        .map(|(path, _)| Violation {
            path: path.to_string(),
            line: 0,
            rule: "small-pieces",
            text: text.to_string(),
        })
        .collect()
}

struct File<'a> {
    path: &'a str,
    found: Vec<Violation>,
}

impl File<'_> {
    fn report(&mut self, line: usize, rule: &'static str, text: String) {
        self.found.push(Violation { path: self.path.to_string(), line, rule, text });
    }

    fn check_columns(&mut self, text: &str) {
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                let text = format!("{columns} columns, {COLUMNS_MAX} are allowed");
                self.report(index + 1, "small-pieces", text);
            }
        }
    }

    fn check_name(&mut self) {
        let parts = self.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        if let Some(name) = parts.into_iter().find(|part| EMPTY_NAMES.contains(part)) {
            let text = format!("`{name}` says nothing about what is inside");
            self.report(0, "names-that-say-it", text);
        }
    }

    fn check_head(&mut self, text: &str) {
        let first = text.lines().next().unwrap_or("");
        // An empty `//!` is no head.
        if first.strip_prefix("//!").is_none_or(|words| words.trim().len() <= 10) {
            let text = "does not begin with `//!` and what the file is for".to_string();
            self.report(1, "heads-explain", text);
        }
    }

    fn check_unfinished(&mut self, masked: &Masked) {
        let both = masked.comments.lines().zip(masked.code.lines());
        for (index, (comment, code)) in both.enumerate() {
            let word = UNFINISHED.iter().find(|mark| {
                words(comment).any(|word| word == **mark) || words(code).any(|word| word == **mark)
            });
            if let Some(word) = word {
                let text = format!("`{word}`: finish it, or file an issue");
                self.report(index + 1, "no-dead-code", text);
            }
        }
    }

    /// Nothing is kept for later by silencing the compiler.
    fn check_silenced(&mut self, code: &str) {
        for (index, line) in code.lines().enumerate() {
            let silences = line.contains("allow(") || line.contains("expect(");
            if silences && words(line).any(|word| word == "dead_code" || word == "unused") {
                let text = "what is not used is not there".to_string();
                self.report(index + 1, "no-dead-code", text);
            }
        }
    }

    fn check_type_names(&mut self, code: &str) {
        for (index, line) in code.lines().enumerate() {
            let mut previous = "";
            for word in words(line) {
                let names = matches!(previous, "struct" | "enum" | "trait" | "type" | "mod");
                if names && has_empty_ending(word) {
                    let text = format!("`{word}` says nothing about what it is");
                    self.report(index + 1, "names-that-say-it", text);
                }
                previous = word;
            }
        }
    }

    fn check_unsafe(&mut self, text: &str, code: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let is_home = self.path.starts_with(UNSAFE_HOME);
        for (index, line) in code.lines().enumerate() {
            let mut followers = words(line).skip_while(|word| *word != "unsafe").skip(1);
            if !words(line).any(|word| word == "unsafe") {
                continue;
            }
            if !is_home {
                let text = format!("unsafe code belongs into {UNSAFE_HOME}");
                self.report(index + 1, "unsafe-in-one-place", text);
            } else if !matches!(followers.next(), Some("fn" | "extern"))
                && !line.contains("unsafe(")
                && !is_justified(&lines, index)
            {
                let text = "no `// SAFETY:` comment says why this is sound".to_string();
                self.report(index + 1, "unsafe-in-one-place", text);
            }
        }
    }

    fn check_functions(&mut self, code: &str) {
        for (name, line, length) in functions(code) {
            if length > FUNCTION_LINES_MAX {
                let text = format!("`{name}` has {length} lines, {FUNCTION_LINES_MAX} are allowed");
                self.report(line, "small-pieces", text);
            }
        }
    }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|char: char| !char.is_alphanumeric() && char != '_').filter(|word| !word.is_empty())
}

/// `PeerManager`, `utils`; but not `Database`, and not a bare `Context` trait of another crate.
fn has_empty_ending(name: &str) -> bool {
    EMPTY_NAMES.iter().any(|empty| {
        let mut capital = empty.to_string();
        capital[..1].make_ascii_uppercase();
        name == *empty || name.ends_with(&capital)
    })
}

/// Whether SAFETY is said in the line, or in the comment above the statement that it is part of.
fn is_justified(lines: &[&str], index: usize) -> bool {
    if lines[index].contains("SAFETY:") {
        return true;
    }
    let above = lines[..index].iter().rev().map(|line| line.trim());
    let mut in_comment = false;
    for line in above {
        if line.starts_with("//") {
            in_comment = true;
            if line.contains("SAFETY:") {
                return true;
            }
        } else if in_comment || line.is_empty() || line.ends_with([';', '{', '}']) {
            // The comment above has ended, or the statement before begins.
            return false;
        }
    }
    false
}

/// Lines outside of `#[cfg(test)]` items.
fn lines_without_tests(code: &str) -> usize {
    let mut count = code.lines().count();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        let item = &rest[at..];
        let end = match (item.find('{'), item.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|semicolon| open < semicolon) => {
                open + block_length(&item[open..])
            }
            (_, Some(semicolon)) => semicolon + 1,
            _ => item.len(),
        };
        count -= item[..end].lines().count();
        rest = &item[end..];
    }
    count
}

/// Bytes from an opening brace to behind its closing one.
fn block_length(code: &str) -> usize {
    let mut depth = 0usize;
    for (at, char) in code.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + char.len_utf8();
        }
    }
    code.len()
}

/// Name, first line and number of lines of every function with a body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(|char| char.is_alphanumeric() || char == '_')
        {
            continue;
        }
        let Some(open) = body_start(&code[at..]) else { continue };
        let item = &code[at..at + open + block_length(&code[at + open..])];
        let line = code[..at].matches('\n').count() + 1;
        let name = words(&item[3..]).next().unwrap_or("").to_string();
        found.push((name, line, item.lines().count()));
    }
    found
}

/// Where the body begins; none for a declaration or a function type.
fn body_start(item: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (at, char) in item.char_indices() {
        match char {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            ';' | ',' | '=' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod test {
    use super::*;

    const HEAD: &str = "//! A file for a test.\n";

    fn rules_broken(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        check(path, text).into_iter().map(|violation| (violation.line, violation.rule)).collect()
    }

    fn broken(body: &str) -> Vec<(usize, &'static str)> {
        rules_broken("core/wire/src/frame.rs", &format!("{HEAD}{body}"))
    }

    #[test]
    fn a_good_file_breaks_no_rule() {
        let body = "/// Does nothing.\nfn f<'a>(_: &'a str) -> char {\n    '{'\n}\n";
        assert_eq!(broken(body), []);
    }

    #[test]
    fn long_lines_are_found_in_c_too() {
        let line = format!("// {}\n", "x".repeat(98));
        assert_eq!(broken(&line), [(2, "small-pieces")]);
        assert_eq!(rules_broken("lab/guests/pipe.c", &line), [(1, "small-pieces")]);
        assert_eq!(broken(&format!("// {}\n", "ä".repeat(97))), [], "columns are not bytes");
    }

    #[test]
    fn a_file_without_a_head_is_found() {
        for text in ["fn f() {}\n", "//!\n", "", "// not a head of any kind\n"] {
            assert_eq!(rules_broken("core/wire/src/frame.rs", text), [(1, "heads-explain")]);
        }
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in ["node/src/utils.rs", "node/src/misc/net.rs", "node/src/manager/mod.rs"] {
            assert_eq!(rules_broken(path, HEAD), [(0, "names-that-say-it")], "{path}");
        }
        for line in
            ["struct PeerManager;", "mod helpers;", "pub enum NodeInfo {}", "trait Handler {}"]
        {
            assert_eq!(broken(line), [(2, "names-that-say-it")], "{line}");
        }
        assert_eq!(broken("struct Metadata; // a Manager\n"), []);
    }

    #[test]
    fn work_that_is_not_done_is_found() {
        let line = format!("// {} later\n", UNFINISHED[0]);
        assert_eq!(broken(&line), [(2, "no-dead-code")]);
        assert_eq!(broken(&format!("/* {} */\n", UNFINISHED[1])), [(2, "no-dead-code")]);
        assert_eq!(broken(&format!("const A: &str = \"{}\";\n", UNFINISHED[1])), []);
    }

    #[test]
    fn code_that_is_kept_for_later_is_found() {
        assert_eq!(broken("#[allow(dead_code)]\nfn f() {}\n"), [(2, "no-dead-code")]);
        assert_eq!(broken("#![expect(unused)]\n"), [(2, "no-dead-code")]);
        assert_eq!(broken("#[allow(clippy::too_many_arguments)]\nfn f() {}\n"), []);
    }

    #[test]
    fn unsafe_code_is_found_wherever_it_does_not_belong() {
        let body = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(broken(body), [(3, "unsafe-in-one-place")]);
        assert_eq!(broken("// unsafe code\nconst A: &str = \"unsafe\";\n"), []);
    }

    #[test]
    fn unsafe_code_needs_its_reason_where_it_belongs() {
        let path = "engine/kernel/src/memory.rs";
        let without = format!("{HEAD}fn f() {{\n    let a = unsafe {{ g() }};\n}}\n");
        assert_eq!(rules_broken(path, &without), [(3, "unsafe-in-one-place")]);
        for reason in [
            "    // SAFETY: g has no conditions.\n    let a = unsafe { g() };\n",
            "    // SAFETY: it\n    // is so.\n    let a =\n        unsafe { g() };\n",
            "    let a = unsafe { g() }; // SAFETY: g has no conditions.\n",
        ] {
            let with = format!("{HEAD}fn f() {{\n{reason}}}\n");
            assert_eq!(rules_broken(path, &with), [], "{with}");
        }
        let other =
            format!("{HEAD}fn f() {{\n    // SAFETY: so.\n    h();\n    unsafe {{ g() }}\n}}\n");
        assert_eq!(rules_broken(path, &other), [(5, "unsafe-in-one-place")]);
    }

    #[test]
    fn long_functions_are_found_by_name_and_line() {
        let body =
            |lines: usize| format!("\nfn long(a: [u8; 2]) {{\n{}}}\n", "    a();\n".repeat(lines));
        assert_eq!(broken(&body(68)), []);
        assert_eq!(broken(&body(69)), [(3, "small-pieces")]);
        let declared = format!("trait T {{\n    fn f(&self);\n{}}}\n", "    // so\n".repeat(90));
        assert_eq!(broken(&declared), []);
        let value =
            format!("type F = fn (u8);\nconst A: [u8; 90] = [\n{}];\n", "    0,\n".repeat(90));
        assert_eq!(broken(&value), []);
    }

    #[test]
    fn long_files_are_found_without_their_tests() {
        let code = "const A: u8 = 0;\n".repeat(499);
        assert_eq!(broken(&code), []);
        assert_eq!(broken(&format!("{code}const B: u8 = 0;\n")), [(0, "small-pieces")]);
        let tests = format!("#[cfg(test)]\nmod test {{\n{}}}\n", "const C: u8 = 0;\n".repeat(400));
        assert_eq!(broken(&format!("{code}{tests}")), [], "tests do not count");
        let long = format!("{HEAD}{}", "const A: u8 = 0;\n".repeat(600));
        assert_eq!(rules_broken("node/tests/story.rs", &long), []);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_found() {
        let exceptions = [("core/wire/src/table.rs", "it is one table")];
        assert_eq!(unused_of(&exceptions, &["core/wire/src/table.rs".to_string()]), []);
        assert_eq!(unused_of(&exceptions, &["node/src/net.rs".to_string()]).len(), 1);
        assert!(
            LONG_FILES.iter().all(|(_, reason)| reason.len() > 20),
            "an exception has a reason"
        );
    }
}
