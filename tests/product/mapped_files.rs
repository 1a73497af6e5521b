//! Mapped files that have no name any more, and /dev/zero, which is none.

use crate::stage::{Program, Stage};

/// Does what each line says, and prints what comes of it.
const OBEDIENT: &str = "\
import ctypes, mmap, os, sys
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

/// A program of an ordinary user, whose supervisor may not follow the links of `map_files`.
fn start(stage: &Stage) -> Program {
    let user = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"];
    let run = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT];
    stage.start(1, &[&user[..], &run].concat())
}

fn sees_the_same_everywhere(stage: &Stage, program: &mut Program, expression: &str) {
    let expected = program.ask(expression);
    assert!(!expected.contains("Error"), "{expected}");
    for place in ["2", "3", "home", "2", "home"] {
        stage.migrate(program.pid, place);
        assert_eq!(program.ask(expression), expected, "at {place}");
    }
}

#[test]
fn a_mapped_file_that_was_deleted_moves_with_its_process() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("deleted", 3);
    let mut program = start(&stage);
    let make = "[open('/tmp/gone', 'wb').write(b'a' * 5000 + b'b' * 5000), \
                fd := os.open('/tmp/gone', 0), globals().update(m=mmap.mmap(fd, 10000, 2)), \
                os.unlink('/tmp/gone'), os.close(fd)][0]";
    assert_eq!(program.ask(make), "10000");
    sees_the_same_everywhere(&stage, &mut program, "m[4990:5010] + m[9990:] + m[:2]");
    // Written to, it is the process's own.
    assert_eq!(program.ask("m.__setitem__(slice(0, 2), b'xy')"), "None");
    sees_the_same_everywhere(&stage, &mut program, "m[:4] + m[9990:]");
}

#[test]
fn a_deleted_file_that_is_still_open_moves_whole() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("unlinked", 3);
    let mut program = start(&stage);
    let make = "[open('/tmp/held', 'wb').write(b'a' * 10000), \
                globals().update(fd=os.open('/tmp/held', 0)), \
                globals().update(m=mmap.mmap(fd, 10000, 1, 1)), os.unlink('/tmp/held')][0]";
    assert_eq!(program.ask(make), "10000");
    sees_the_same_everywhere(&stage, &mut program, "m[:2] + m[9990:] + os.pread(fd, 5, 9998)");
}

#[test]
fn memory_of_dev_zero_moves() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("dev-zero", 3);
    let mut program = start(&stage);
    for (name, way) in [("private", 2), ("shared", 1)] {
        let make = format!(
            "[fd := os.open('/dev/zero', 2), globals().update({name}=mmap.mmap(fd, 8192, {way})), \
             {name}.write(b'{name}')][2]"
        );
        assert_eq!(program.ask(&make), name.len().to_string());
        let look = format!("{name}[:7] + {name}[4096:4100]");
        sees_the_same_everywhere(&stage, &mut program, &look);
    }
}
