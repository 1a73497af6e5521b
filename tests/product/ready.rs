//! Supervisors that are kept ready.

use crate::stage::{Seen, Stage, until, until_true};

const WAITING: &str = "print('ready', flush=True); input()";

/// One of each half, of the node that the process leaves and of the one that it comes to.
fn await_ready(stage: &Stage) -> Vec<Seen> {
    until("supervisors are kept ready", || {
        let ready: Vec<Seen> =
            [1, 2].into_iter().flat_map(|n| stage.ready_supervisors(n)).collect();
        let has = |half: &str| ready.iter().any(|one| one.words.get(1).is_some_and(|w| w == half));
        (has("deputy") && has("body")).then_some(ready)
    })
}

fn await_none(stage: &Stage) {
    until_true("none is kept ready any more", || {
        [1, 2].into_iter().all(|node| stage.ready_supervisors(node).is_empty())
    });
}

#[test]
fn who_moves_again_finds_supervisors_ready_and_they_go_when_nobody_needs_them() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ready", 2);
    assert!(stage.ready_supervisors(1).is_empty(), "nobody has needed one yet");
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", WAITING];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    stage.migrate(program.pid, "home");
    let ready = await_ready(&stage);
    stage.migrate(program.pid, "2");
    let deputy = stage.deputy_supervisor(program.pid).expect("it has one");
    let (_, body) = stage.await_body(2, program.pid);
    for (half, taken) in [("deputy", deputy.pid), ("body", body.pid)] {
        assert!(ready.iter().any(|one| one.pid == taken), "the {half} is one that was ready");
    }
    await_none(&stage);
    program.write("\n");
    assert_eq!(program.end(), 0);
}

#[test]
fn a_ready_supervisor_that_was_killed_costs_no_process_its_move() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ready-killed", 2);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", WAITING];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    for _ in 0..3 {
        stage.migrate(program.pid, "2");
        stage.migrate(program.pid, "home");
        await_ready(&stage).iter().for_each(Seen::try_kill);
        await_none(&stage);
    }
    program.write("\n");
    assert_eq!(program.end(), 0);
}
