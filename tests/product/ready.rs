//! Supervisors that are kept ready. They are for three seconds only, which a busy machine may need
//! for a move: then it is tried again.

use crate::stage::{Program, Seen, Stage, until, until_true};

fn start(stage: &Stage) -> Program {
    let waits = "print('ready', flush=True); input()";
    let program = stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", waits]);
    assert_eq!(program.line(), "ready");
    program
}

fn end(mut program: Program) {
    program.write("\n");
    assert_eq!(program.end(), 0);
}

/// What the process finds ready that has just been away and is home again: at least one of each
/// half, at home and on the node that it comes to.
fn ready(stage: &Stage) -> Option<Vec<Seen>> {
    let ready: Vec<Seen> = [1, 2].into_iter().flat_map(|n| stage.ready_supervisors(n)).collect();
    let has = |half: &str| ready.iter().any(|one| one.words.get(1).is_some_and(|w| w == half));
    (has("deputy") && has("body")).then_some(ready)
}

fn leave_and_return(stage: &Stage, program: &Program) {
    stage.migrate(program.pid, "2");
    stage.migrate(program.pid, "home");
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
    let program = start(&stage);
    until("a move takes the two that were ready", || {
        leave_and_return(&stage, &program);
        let ready = ready(&stage)?;
        stage.migrate(program.pid, "2");
        let deputy = stage.deputy_supervisor(program.pid).expect("it has one");
        let (_, body) = stage.await_body(2, program.pid);
        let is_ready = |taken: &Seen| ready.iter().any(|one| one.pid == taken.pid);
        let are_ready = is_ready(&deputy) && is_ready(&body);
        stage.migrate(program.pid, "home");
        are_ready.then_some(())
    });
    await_none(&stage);
    end(program);
}

#[test]
fn a_ready_supervisor_that_was_killed_costs_no_process_its_move() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ready-killed", 2);
    let program = start(&stage);
    for _ in 0..3 {
        let ready = until("supervisors are kept ready", || {
            leave_and_return(&stage, &program);
            ready(&stage)
        });
        ready.iter().for_each(Seen::try_kill);
        await_none(&stage);
    }
    leave_and_return(&stage, &program);
    end(program);
}
