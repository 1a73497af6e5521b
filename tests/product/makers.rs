//! Processes that programs of several threads make while they are away.

use crate::stage::{Program, Stage, until_true};

const MAKERS: &str = include_str!("makers.py");

fn start(name: &str, without: &[&str]) -> Option<(Stage, Program)> {
    let can = needs::can_run(&["python3"]);
    let stage = can.then(|| Stage::without(without, name, 2))?;
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", MAKERS];
    let mut program = stage.start(1, &words);
    assert_eq!(program.ask("make 1"), "10 20 True");
    stage.migrate(program.pid, "2");
    Some((stage, program))
}

fn end(stage: &Stage, program: &mut Program) {
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn threads_make_processes_at_the_same_time_and_stay_away() {
    let Some((stage, mut program)) = start("makers", &[]) else { return };
    for _ in 0..5 {
        assert_eq!(program.ask("make 4"), "10 11 12 13 20 21 22 23 True");
    }
    assert_eq!(stage.place(program.pid), Some(2));
    assert!(stage.events(1, "came-home", program.pid).is_empty(), "it has not come home");
    end(&stage, &mut program);
}

/// Home's half of a process is there, and ends, before it is known that there will be no other.
#[test]
fn a_process_that_could_not_be_made_away_never_was_for_a_thread_that_waits_for_any() {
    let Some((stage, mut program)) = start("makers-any", &["2:thread-ids"]) else { return };
    for _ in 0..5 {
        stage.migrate(program.pid, "home");
        assert_eq!(program.ask("await"), "None");
        stage.migrate(program.pid, "2");
        until_true("a thread waits at home", || {
            stage
                .process(1, program.pid)
                .is_some_and(|process| process.waits_in(nix::libc::SYS_wait4))
        });
        assert_eq!(program.ask("fork 1"), "None");
        assert_eq!(program.ask("fork 2"), "None");
        assert_eq!(program.ask("end"), "30 31 32");
    }
    end(&stage, &mut program);
}

/// It is told by its name whether `osmos run` has become its command, and this is the same.
#[test]
fn what_a_program_makes_that_was_moved_as_soon_as_it_began_is_managed() {
    let stage = Stage::new("makers-soon", 2);
    let create = ["osmos", "bench-os", "create", "4096", "untouched"];
    let words = [&["osmos", "run", "--home", "--"], &create[..]].concat();
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), format!("ready {}", program.pid));
    stage.migrate(program.pid, "2");
    for _ in 0..3 {
        let times = program.ask("5");
        assert_eq!(times.split(' ').count(), 4, "five children were made and ended: {times}");
    }
    assert_eq!(stage.place(program.pid), Some(2));
    end(&stage, &mut program);
}
