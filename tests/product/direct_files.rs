//! Files in the directory of all nodes that a process reads and writes on the node where it is
//! (decision 0051): the same as at home, and as where they lie.

use crate::mount::{MOUNT, as_user, can_mount, stage, user};
use crate::stage::{Program, Stage, until_true};

const STEPS: &str = include_str!("direct_files.py");
/// Evaluates what it is told to, with the file `f`.
const ASKED: &str = "
import os, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600) if sys.argv[1:] else None
print('ready', flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)";
/// More than is read and written at home before the file is asked for.
const MUCH: &str = "os.pwrite(f, b'-' * 300_000, 0)";

fn asked(stage: &Stage, words: &[&str]) -> Program {
    let all = [words, &["python3", "-IS", "-c", ASKED]].concat();
    let program = stage.start(1, &all);
    assert_eq!(program.line(), "ready");
    program
}

/// It runs on node 2, and opens the file there.
fn asked_away(stage: &Stage, path: &str) -> Program {
    let mut program = asked(stage, &["osmos", "run", "--home", "--"]);
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(&format!("globals().update(f=os.open('{path}', 66, 0o600))")), "None");
    program
}

/// Whether the supervisor of its body on node 2 has a file of that name.
fn is_direct(stage: &Stage, program: &Program, name: &str) -> bool {
    let (_, supervisor) = stage.await_body(2, program.pid);
    supervisor.descriptors().iter().any(|link| link.ends_with(name))
}

#[test]
fn whatever_is_done_to_files_comes_out_as_where_they_lie_and_in_a_storm() {
    if !can_mount(&["python3", "cmp"]) {
        return;
    }
    let stage = stage("direct-same", 2);
    stage.text(2, &["mkdir", "/tmp/there", "/tmp/away"]);
    let (steps, away) = ("250", format!("{MOUNT}/2/tmp/away"));
    for (seed, is_storm) in [("1", false), ("2", true), ("3", true), ("4", false)] {
        let words = |directory| ["python3", "-IS", "-c", STEPS, directory, seed, steps];
        let mut native = stage.start(2, &words("/tmp/there"));
        let run = ["osmos", "run", "--home", "--"];
        let mut program = stage.start(1, &[&run[..], &words(&away)].concat());
        assert_eq!([native.line(), program.line()], ["ready", "ready"]);
        stage.migrate(program.pid, "2");
        [&mut native, &mut program].into_iter().for_each(|it| it.write("go\n"));
        let mut told = Vec::new();
        let mut turns = ["home", "2"].iter().cycle();
        while let Some(line) = native.line_or_end() {
            told.push(line.clone());
            let here = program.line_or_end();
            assert_eq!(here.as_deref(), Some(&*line), "seed {seed} after {told:#?}");
            if is_storm && told.len().is_multiple_of(5) {
                // A process that is just being made does not move: the next time, then.
                stage.try_migrate(program.pid, turns.next().expect("they have no end"));
            }
        }
        assert!(told.len() > 250, "{told:#?}");
        assert_eq!((native.end(), program.end()), (0, 0));
    }
}

#[test]
fn what_is_written_on_its_node_is_seen_by_all_who_are_told_of_it() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("direct-seen", 2);
    let path = format!("{MOUNT}/2/tmp/it");
    let mut away = asked_away(&stage, &path);
    assert!(!is_direct(&stage, &away, "/tmp/it"), "nothing was read or written yet");
    assert_eq!(away.ask(MUCH), "300000");
    assert!(is_direct(&stage, &away, "/tmp/it"));
    let mut here = asked(&stage, &[]);
    assert_eq!(here.ask(&format!("globals().update(f=os.open('{path}', 2))")), "None");
    for turn in 0..30 {
        let place = turn * 11_000;
        let size = 300_000.max(place + 9000);
        let write = |what: &str| format!("os.pwrite(f, b'{what}{turn:08}' * 1000, {place})");
        let read = format!("os.pread(f, 9, {place}), os.fstat(f).st_size");
        let seen = |what: &str| format!("(b'{what}{turn:08}', {size})");
        assert_eq!(away.ask(&write("a")), "9000");
        assert_eq!(here.ask(&read), seen("a"), "here");
        assert_eq!(here.ask(&write("h")), "9000");
        assert_eq!(away.ask(&read), seen("h"), "away");
    }
    assert!(is_direct(&stage, &away, "/tmp/it"));
    assert_eq!(
        away.ask("os.lseek(f, 0, 4), os.lseek(f, 0, 3), os.lseek(f, -1, 2)"),
        "(328000, 0, 327999)"
    );
    assert_eq!(away.ask("os.lseek(f, -1, 0)"), "Invalid argument");
    // Where it has come to is known to whoever goes on with it.
    assert_eq!(away.ask("os.lseek(f, 7, 0), os.read(f, 3)"), "(7, b'00h')");
    let child = "(lambda pid: os._exit(os.lseek(f, 0, 1)) if pid == 0 else \
                 os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))(os.fork())";
    assert_eq!(away.ask(child), "10");
    assert!(!is_direct(&stage, &away, "/tmp/it"), "a child had the descriptor as well");
    assert_eq!(away.ask("os.read(f, 2), os.lseek(f, 0, 1)"), "(b'00', 12)");
    stage.migrate(away.pid, "home");
    assert_eq!(away.ask("os.lseek(f, 0, 1)"), "12");
}

#[test]
fn who_is_killed_or_comes_home_has_written_what_he_has_written() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("direct-end", 2);
    let path = format!("{MOUNT}/2/tmp/it");
    let mut here = asked(&stage, &[]);
    let size = format!("os.stat('{path}').st_size");
    for turn in 1..10 {
        let mut away = asked_away(&stage, &path);
        assert_eq!(away.ask(MUCH), "300000");
        assert!(is_direct(&stage, &away, "/tmp/it"));
        assert_eq!(
            away.ask(&format!("os.lseek(f, 0, 2), os.write(f, b'x' * {turn})")).split(", ").nth(1),
            Some(&*format!("{turn})"))
        );
        let length = 300_000 + (1..=turn).sum::<i32>();
        assert_eq!(here.ask(&size), length.to_string(), "it was told of");
        if turn % 2 == 0 {
            stage.migrate(away.pid, "home");
            assert_eq!(
                away.ask("os.lseek(f, 0, 1), os.fstat(f).st_size"),
                format!("({length}, {length})")
            );
        }
        // Its last words come with the news that it is dead.
        away.write(&format!("os.pwrite(f, b'y' * 9, {length} - 9), os.kill(os.getpid(), 9)\n"));
        assert_eq!(away.end(), 128 + 9);
        assert_eq!(here.ask(&format!("open('{path}', 'rb').read()[-9:]")), "b'yyyyyyyyy'");
    }
}

#[test]
fn the_rights_are_those_of_the_user_and_end_with_the_owners_consent() {
    if !can_mount(&["python3", "setpriv"]) {
        return;
    }
    let stage = stage("direct-rights", 2);
    let path = format!("{MOUNT}/2/tmp/it");
    let anna = user(61_001);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", ASKED];
    let mut program = stage.start(1, &as_user(&anna, &words));
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(&format!("globals().update(f=os.open('{path}', 66, 0o600))")), "None");
    assert_eq!(program.ask(MUCH), "300000");
    assert!(is_direct(&stage, &program, "/tmp/it"));
    // Root, who writes for her, would leave the bit where it is.
    assert_eq!(program.ask("os.fchmod(f, 0o4755), os.pwrite(f, b'new', 0)"), "(None, 3)");
    assert_eq!(stage.text(2, &["stat", "-c", "%u %a", "/tmp/it"]), "61001 755\n");
    assert!(is_direct(&stage, &program, "/tmp/it"));
    stage.text(2, &["osmos", "share", "off"]);
    until_true("it is an error", || program.ask("os.pread(f, 1, 0)") == "Permission denied");
    assert_eq!(program.ask("os.pwrite(f, b'x', 0)"), "Permission denied");
}
