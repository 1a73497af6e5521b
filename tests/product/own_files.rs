//! What a program reads in the files about itself while it is away.

use crate::stage::{Program, Stage};
use serde_json::Value;
use std::collections::BTreeMap;

const LOOKS: &str = include_str!("looks.py");

fn start(stage: &Stage) -> Program {
    stage.put(1, "/tmp/looks.py", LOOKS);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "/tmp/looks.py"];
    let program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    program
}

fn answer(program: &mut Program, question: &str) -> Value {
    serde_json::from_str(&program.ask(question)).expect("an answer of the looker")
}

fn text<'a>(found: &'a Value, name: &str) -> &'a str {
    found[name].as_str().unwrap_or_else(|| panic!("{name} is not in {found}"))
}

/// The fields of `stat`, by their numbers in proc(5).
fn fields(found: &Value) -> BTreeMap<usize, String> {
    let text = text(found, "stat");
    assert!(text.ends_with('\n'), "{text:?}");
    let (head, rest) = text.trim_end().rsplit_once(") ").expect("a command in parentheses");
    let mut fields = BTreeMap::from([(1, head.to_owned())]);
    fields.extend(rest.split(' ').enumerate().map(|(at, word)| (at + 3, word.to_owned())));
    fields
}

fn lines(found: &Value) -> Vec<(String, String)> {
    let line = |line: &str| line.split_once(":\t").map(|(k, v)| (k.to_owned(), v.to_owned()));
    let lines = text(found, "status").lines().map(|l| line(l).unwrap_or_default());
    lines.collect()
}

fn number(text: &str) -> i64 {
    text.trim_end_matches("kB").trim().parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// The lines of `maps`, neighbours as one that could be one: kernels differ in which they merge.
fn mappings(found: &Value) -> Vec<String> {
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("a number");
    let mut merged: Vec<(u64, u64, u64, String)> = vec![];
    for line in text(found, "maps").lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let (start, end) = words[0].split_once('-').expect("a range");
        let (start, end, offset) = (hex(start), hex(end), hex(words[2]));
        let what = format!("{} {}", words[1], words[3]);
        let is_file = !words[3].starts_with("00:00 ");
        match merged.last_mut() {
            Some(last)
                if last.1 == start
                    && last.3 == what
                    && (!is_file || last.2 + (last.1 - last.0) == offset) =>
            {
                last.1 = end;
            }
            _ => merged.push((start, end, offset, what)),
        }
    }
    merged.retain(|(.., what)| !what.ends_with("00:00 0 "));
    let line = |(start, end, offset, what): (u64, u64, u64, String)| match what.ends_with("[heap]")
    {
        // It grows by what is read, as does what has no name.
        true => format!("{start:x}- {what}"),
        false => format!("{start:x}-{end:x} {offset:x} {what}"),
    };
    merged.into_iter().map(line).collect()
}

/// Numbers of `stat` that go on by themselves: faults, processor time, and where it ran.
const MOVING: &[usize] = &[10, 11, 12, 13, 14, 15, 16, 17, 23, 24, 39, 40, 42, 43, 44];
/// Lines of `status` likewise.
const COUNTED: &[&str] = &["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "SigQ"];
/// What a look itself may take.
const SLACK_KIB: i64 = 600;

fn assert_alike(away: &Value, home: &Value) {
    for name in ["cmdline", "environ", "cgroup"] {
        assert_eq!(text(away, name), text(home, name), "{name}");
    }
    assert_eq!(mappings(away), mappings(home));
    let (at_home, there) = (fields(home), fields(away));
    assert_eq!(there.len(), at_home.len());
    for (number, word) in &at_home {
        let is_moving = MOVING.contains(number);
        assert!(is_moving || there[number] == *word, "field {number}: {} {word}", there[number]);
    }
    let ticks = |fields: &BTreeMap<usize, String>| number(&fields[&14]) + number(&fields[&15]);
    assert!(ticks(&there) >= ticks(&at_home), "{there:?} after {at_home:?}");
    let (at_home, there) = (lines(home), lines(away));
    let keys = |lines: &[(String, String)]| lines.iter().map(|l| l.0.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&there), keys(&at_home));
    for ((key, value), (_, before)) in there.iter().zip(&at_home) {
        if value.ends_with("kB") {
            let more = number(value) - number(before);
            let is_likely = match key.as_str() {
                // The peak of what stays at home has seen what is put in there.
                "VmPeak" => more >= 0,
                // Pages of files are there once they are touched, on each node.
                "VmRSS" | "RssFile" => more <= SLACK_KIB,
                _ => more.abs() <= SLACK_KIB,
            };
            assert!(is_likely, "{key}: {value} and {before}");
            assert_eq!(value.len(), before.len(), "{key}: {value:?} and {before:?}");
        } else if !COUNTED.contains(&key.as_str()) {
            assert_eq!(value, before, "{key}");
        }
    }
    assert_sizes_agree(away);
}

/// The three files that tell the size of a process agree with each other, and with its mappings.
fn assert_sizes_agree(found: &Value) {
    let lines: BTreeMap<String, String> = lines(found).into_iter().collect();
    let kib = |key: &str| number(&lines[key]);
    let pages: Vec<i64> = text(found, "statm").split_whitespace().map(number).collect();
    assert_eq!(pages.len(), 7);
    let at = |line: &str, place| {
        let range = line.split(' ').next().unwrap().split('-').nth(place).unwrap().to_owned();
        i64::try_from(u64::from_str_radix(&range, 16).unwrap() >> 10).unwrap()
    };
    let maps = text(found, "maps").lines().filter(|line| !line.ends_with("[vsyscall]"));
    let mapped: i64 = maps.map(|line| at(line, 1) - at(line, 0)).sum();
    assert_eq!(kib("VmSize"), mapped);
    assert_eq!(kib("VmRSS"), kib("RssAnon") + kib("RssFile") + kib("RssShmem"));
    for (page, key) in [(0, "VmSize"), (3, "VmExe")] {
        assert_eq!(pages[page] * 4, kib(key), "{key}");
    }
    assert!((pages[1] * 4 - kib("VmRSS")).abs() <= SLACK_KIB);
    assert_eq!(pages[5] * 4, kib("VmData") + kib("VmStk"));
}

#[test]
fn a_file_that_stays_open_is_read_afresh_from_its_start_and_at_home_when_it_has_two_names() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("own-files-kept", 3);
    let mut program = start(&stage);
    let pid = program.pid;
    stage.migrate(pid, "2");
    for name in ["statm", "stat", "cmdline", "status"] {
        let found = answer(&mut program, &format!("again('{name}')"));
        let [whole, end, place, first, piece] = found.as_array().expect("five answers").as_slice()
        else {
            panic!("{found}")
        };
        let (whole, first, piece) = (whole.as_str(), first.as_str(), piece.as_str());
        let whole = whole.expect("a text");
        assert_eq!((end.as_str(), place.as_u64()), (Some(""), Some(whole.len() as u64)), "{name}");
        // Sizes may have changed meanwhile, but not by so much.
        assert_eq!(first.map(str::len), Some(5), "{name}");
        assert_eq!(piece.map(str::len), Some(5), "{name}");
        if name != "statm" {
            assert_eq!((first, piece), (Some(&whole[..5]), Some(&whole[2..7])), "{name}");
        }
    }
    let before = answer(&mut program, "int(read('/proc/self/statm').split()[0])");
    assert_eq!(answer(&mut program, "kept.update(big=bytearray(64 << 20))"), Value::Null);
    let after = answer(&mut program, "int(again('statm')[0].split()[0])");
    let grown = after.as_i64().unwrap() - before.as_i64().unwrap();
    assert!((16_384..17_000).contains(&grown), "{grown} pages, of 16384");
    assert_eq!(stage.place(pid), Some(2));
    let kept = "os.lseek(kept['cmdline'], 7, 0)";
    assert_eq!(answer(&mut program, kept), 7);
    let rest = "os.read(kept['cmdline'], 100).decode()";
    let (one, other) = (stage.events(1, "came-home", pid).len(), "os.dup(kept['cmdline'])");
    let duplicate = answer(&mut program, other);
    assert_eq!(stage.place(pid), Some(2));
    // From where the other has come to: they are one file.
    let question = format!("os.read({duplicate}, 4).decode()");
    let here = answer(&mut program, &question);
    stage.await_place(pid, 1);
    assert_eq!(stage.events(1, "came-home", pid).len(), one + 1);
    let behind = answer(&mut program, rest);
    let line = answer(&mut program, "read('/proc/self/cmdline')");
    let expected = &line.as_str().unwrap()[7..];
    assert_eq!(format!("{}{}", here.as_str().unwrap(), behind.as_str().unwrap()), expected);
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_file_that_was_opened_on_another_node_is_read_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("own-files-on", 3);
    let mut program = start(&stage);
    let pid = program.pid;
    stage.migrate(pid, "2");
    let first = answer(&mut program, "again('stat')[0].split()[0]");
    stage.migrate(pid, "3");
    assert_eq!(answer(&mut program, "read('/proc/self/stat').split()[0]"), first);
    assert_eq!(stage.place(pid), Some(3), "one that is opened there is read there");
    let found = answer(&mut program, "again('stat')[0]");
    assert_eq!(found.as_str().unwrap().split(' ').next(), first.as_str());
    stage.await_place(pid, 1);
    let why = stage.events(1, "came-home", pid).pop().expect("it came home").to_string();
    assert!(why.contains("proc-self"), "{why}");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_program_that_looks_at_itself_while_it_is_away_stays_there_and_sees_what_is_true() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("own-files", 2);
    let mut program = start(&stage);
    let pid = program.pid;
    let by_number = format!("look({pid})");
    let looks = ["look('self')", by_number.as_str(), "look('thread-self')", "look_by_thread()"];
    let mut home = vec![];
    for look in looks.iter().cycle().take(2 * looks.len()) {
        home.push(answer(&mut program, look));
    }
    stage.migrate(pid, "2");
    let came_home = stage.events(1, "came-home", pid).len();
    for (look, home) in looks.iter().zip(&home[looks.len()..]) {
        let away = answer(&mut program, look);
        assert_eq!(stage.place(pid), Some(2), "{look}");
        assert_alike(&away, home);
    }
    assert_eq!(stage.events(1, "came-home", pid).len(), came_home, "it did not have to come home");
    stage.migrate(pid, "home");
    assert_eq!(mappings(&answer(&mut program, "look('self')")), mappings(&home[4]));
    program.close_input();
    assert_eq!(program.end(), 0);
}
