//! Limits on memory hold away as at home, and what they leave is what can come home.

use crate::stage::{Program, Stage, until};

/// Does what each line says, and prints what comes of it.
const OBEDIENT: &str = "\
import mmap, os, resource, sys
kept = []
def mapped(name):
    with open('/proc/self/status') as status:
        return int(next(l for l in status if l.startswith(name)).split()[1]) << 10
def limit(what, name, more):
    resource.setrlimit(what, (mapped(name) + (more << 20),) * 2)
def take(mib):
    memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(b'kept')
    kept.append(memory)
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

fn start(stage: &Stage, limit: &str) -> Program {
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT];
    let mut program = stage.start(1, &words);
    assert_eq!(program.ask(limit), "None");
    stage.migrate(program.pid, "2");
    program
}

/// Takes memory up to a limit that leaves 200 MiB.
fn runs_into_it_away_and_comes_home(stage: &Stage, mut program: Program) {
    assert_eq!(program.ask("take(100)"), "None");
    assert_eq!(stage.place(program.pid), Some(2), "that it may have is given to it there");
    let refused = program.ask("take(150)");
    assert!(refused.contains("Cannot allocate memory"), "{refused}");
    for (place, node) in [("3", 3), ("home", 1)] {
        // It may have come home for it, or be on its way back.
        until("it moves", || {
            stage.try_migrate(program.pid, place);
            (stage.place(program.pid) == Some(node)).then_some(())
        });
        assert_eq!(program.ask("[memory[:4] for memory in kept]"), "[b'kept']");
    }
    stage.await_plain(program.pid);
    assert!(program.ask("take(150)").contains("Cannot allocate memory"), "as at home");
    assert_eq!(program.ask("take(50)"), "None");
}

#[test]
fn a_process_does_not_outgrow_the_limit_of_its_address_space_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("limit-as", 3);
    let program = start(&stage, "limit(resource.RLIMIT_AS, 'VmSize', 200)");
    runs_into_it_away_and_comes_home(&stage, program);
}

#[test]
fn a_process_does_not_outgrow_the_limit_of_its_data_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("limit-data", 3);
    let program = start(&stage, "limit(resource.RLIMIT_DATA, 'VmData', 200)");
    runs_into_it_away_and_comes_home(&stage, program);
}
