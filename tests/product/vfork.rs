//! Processes that have their maker's memory until they begin a program (vfork, posix_spawn), made
//! by one that is away.

use crate::stage::{Program, Seen, Stage, text, until, until_true};

/// Does what each line says, and prints what comes of it.
const OBEDIENT: &str = "\
import os, signal, subprocess, sys
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

/// Begins a program once somebody writes to a pipe with a name.
const GATED: &str = "os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], {}, \
                     file_actions=[(os.POSIX_SPAWN_OPEN, 9, '/tmp/gate', os.O_RDONLY, 0)])";

fn start(name: &str, nodes: u32) -> Option<(Stage, Program)> {
    let can = needs::can_run(&["python3"]);
    let stage = can.then(|| Stage::new(name, nodes))?;
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT];
    let mut program = stage.start(1, &words);
    assert_eq!(program.ask("os.mkfifo('/tmp/gate')"), "None");
    stage.migrate(program.pid, "2");
    Some((stage, program))
}

/// Has it begin the program, and returns the child.
fn begin_gated(stage: &Stage, program: &mut Program) -> i32 {
    program.write(&format!("{GATED}\n"));
    until("the child is there", || {
        let listed = format!("/proc/{0}/task/{0}/children", program.pid);
        stage.text(1, &["cat", &listed]).split_whitespace().next()?.parse().ok()
    })
}

/// The same, when it waits for its gate.
fn gated(stage: &Stage, program: &mut Program) -> i32 {
    let child = begin_gated(stage, program);
    stage.await_place(child, 2);
    child
}

fn kill(stage: &Stage, child: i32) {
    assert!(stage.output(1, &["kill", "-KILL", &child.to_string()]).status.success());
}

/// The program has begun, or not: it is told, and its child ends so.
fn assert_goes_on(program: &mut Program, child: i32, wait_status: i32) {
    assert_eq!(program.line(), child.to_string());
    assert_eq!(program.ask(&format!("os.waitpid({child}, 0)[1]")), wait_status.to_string());
}

fn open_gate(stage: &Stage) {
    assert!(stage.output(1, &["sh", "-c", ": > /tmp/gate"]).status.success());
}

fn end(stage: &Stage, program: &mut Program) {
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn programs_are_begun_by_one_that_stays_away() {
    let Some((stage, mut program)) = start("vfork-programs", 2) else { return };
    for round in 0..5 {
        let run = "subprocess.run(['sh', '-c', 'echo $((6 * 7)); exit 3'], capture_output=True)";
        let told = program.ask(run);
        assert!(told.contains("returncode=3") && told.contains("b'42\\n'"), "{round}: {told}");
        let spawn = "os.waitpid(os.posix_spawnp('true', ['true'], os.environ), 0)[1]";
        assert_eq!(program.ask(spawn), "0");
        let none = "os.posix_spawn('/no/such/program', ['it'], {})";
        assert_eq!(
            program.ask(none),
            "FileNotFoundError [Errno 2] No such file or directory: '/no/such/program'"
        );
        let none = "subprocess.run(['/no/such/program'], cwd='/')";
        assert!(program.ask(none).starts_with("FileNotFoundError"));
    }
    assert_eq!(stage.place(program.pid), Some(2));
    assert!(stage.events(1, "came-home", program.pid).is_empty(), "it has not come home");
    end(&stage, &mut program);
}

#[test]
fn who_shares_memory_with_what_it_has_made_does_not_move_until_that_begins_its_program() {
    let Some((stage, mut program)) = start("vfork-waits", 3) else { return };
    let child = gated(&stage, &mut program);
    let both = [program.pid, child];
    for (pid, to) in both.into_iter().flat_map(|pid| [(pid, "3"), (pid, "home")]) {
        let complaint = stage.complaint(1, &["osmos", "migrate", &pid.to_string(), to]);
        assert!(complaint.contains("vfork"), "{pid} to {to}: {complaint}");
    }
    open_gate(&stage);
    assert_goes_on(&mut program, child, 7 << 8);
    stage.migrate(program.pid, "3");
    assert_eq!(program.ask("6 * 7"), "42");
    end(&stage, &mut program);
}

#[test]
fn one_that_is_killed_before_it_begins_its_program_lets_its_maker_go_on() {
    let Some((stage, mut program)) = start("vfork-killed", 2) else { return };
    let child = gated(&stage, &mut program);
    kill(&stage, child);
    assert_goes_on(&mut program, child, nix::libc::SIGKILL);
    assert_eq!(stage.place(program.pid), Some(2));
    end(&stage, &mut program);
}

/// The owner of the node waits for neither: the maker has what its child has done so far, and goes
/// on as after fork.
#[test]
fn both_leave_a_node_whose_owner_wants_that() {
    let Some((stage, mut program)) = start("vfork-expelled", 2) else { return };
    let child = gated(&stage, &mut program);
    assert!(stage.output(2, &["osmos", "expel"]).status.success());
    stage.await_place(child, 1);
    stage.await_place(program.pid, 1);
    assert_eq!(program.line(), child.to_string());
    open_gate(&stage);
    assert_eq!(program.ask(&format!("os.waitpid({child}, 0)[1] >> 8")), "7");
    end(&stage, &mut program);
}

#[test]
fn shells_and_their_commands_cannot_tell_that_they_are_moved() {
    if !needs::can_run(&["dash"]) {
        return;
    }
    // dash begins all its commands by vfork.
    let script = "i=0; while [ $i -lt 40 ]; do x=$(expr $i + 1); i=$x; /bin/echo $i; \
                  /no/such/$i; false || echo $?; done 2>&1 | sha256sum; exit 4";
    let stage = Stage::new("vfork-storm", 3);
    let native = stage.output(1, &["dash", "-c", script]);
    let words = ["osmos", "run", "--storm", "50", "--", "dash", "-c", script];
    let away = stage.output(1, &words);
    assert_eq!(text(&away.stdout), text(&native.stdout));
    assert_eq!(away.status.code(), native.status.code());
    stage.await_no_supervisors();
}

/// Its supervisor at home is started when it has ended already.
#[test]
fn one_that_is_killed_before_it_runs_lets_its_maker_go_on() {
    let Some((stage, mut program)) = start("vfork-unborn", 2) else { return };
    stage.node(1).starve_daemon(true).expect("it is ours");
    let child = begin_gated(&stage, &mut program);
    until("it is asleep", || {
        let seen = stage.processes(1).into_iter().find(|seen| seen.inner_pid == child)?;
        seen.waits_in(34).then_some(())
    });
    kill(&stage, child);
    stage.node(1).starve_daemon(false).expect("it is ours");
    assert_goes_on(&mut program, child, nix::libc::SIGKILL);
    assert_eq!(stage.place(program.pid), Some(2));
    end(&stage, &mut program);
}

#[test]
fn what_cannot_come_home_just_now_comes_when_it_can() {
    let Some((stage, mut program)) = start("vfork-brought", 2) else { return };
    let child = gated(&stage, &mut program);
    let brought = stage.begin(1, &["osmos", "bring"]);
    until_true("both have been asked", || {
        [program.pid, child].iter().all(|pid| !stage.events(1, "stayed", *pid).is_empty())
    });
    open_gate(&stage);
    assert!(brought.wait_with_output().expect("it ends").status.success());
    assert_eq!(stage.place(program.pid), Some(1));
    assert_goes_on(&mut program, child, 7 << 8);
    end(&stage, &mut program);
}

/// The move waits for half a second at most, and is called off within that.
#[test]
fn a_move_that_is_called_off_while_a_process_is_made_leaves_others_to_be_made() {
    let Some((stage, mut program)) = start("vfork-off", 3) else { return };
    let child = gated(&stage, &mut program);
    let mover = stage.begin(1, &["osmos", "migrate", &program.pid.to_string(), "3"]);
    stage.await_body(3, program.pid);
    let asks = |process: &Seen| process.words.get(1).is_some_and(|word| word == "migrate");
    let asking = until("somebody asks", || stage.processes(1).into_iter().find(asks));
    asking.signal(nix::sys::signal::Signal::SIGINT);
    assert!(!mover.wait_with_output().expect("it ends").status.success());
    open_gate(&stage);
    assert_goes_on(&mut program, child, 7 << 8);
    let spawn = "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]";
    assert_eq!(program.ask(spawn), "0");
    assert_eq!(stage.place(program.pid), Some(2));
    end(&stage, &mut program);
}

/// A shell hardly does anything but begin programs.
#[test]
fn who_begins_one_program_after_the_other_moves_in_between() {
    if !needs::can_run(&["dash"]) {
        return;
    }
    let stage = Stage::new("vfork-between", 3);
    let script = "i=0; echo ready; while read -r line; do n=0; while [ $n -lt $line ]; do \
                  n=$(($n + 1)); i=$(($i + 1)); /bin/true; done; echo $i; done";
    let words = ["osmos", "run", "--home", "--", "dash", "-c", script];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    program.write("300\n");
    for place in ["3", "2", "home", "3", "2", "3"] {
        let output = stage.output(1, &["osmos", "migrate", &program.pid.to_string(), place]);
        let complaint = text(&output.stderr);
        assert!(output.status.success(), "to {place}: {complaint}");
    }
    assert_eq!(program.line(), "300");
    end(&stage, &mut program);
}
