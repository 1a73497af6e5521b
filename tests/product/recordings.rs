//! What a real daemon has recorded of its brain is decided again, bit for bit, by another program.

use crate::stage::{Stage, until_true};

const RECORDING: &str = "/tmp/brain";

#[test]
fn what_a_daemon_decided_is_decided_again_from_its_recording() {
    let stage = Stage::joined_with("recording", 2, &["--record", RECORDING, "--speed", "1"]);
    let spin = ["osmos", "run", "--", "python3", "-c", "while True: pass"];
    let programs = [(); 4].map(|()| stage.start(1, &spin));
    // By the brain's own decision, and then by their user's.
    until_true("the brain moves a process", || {
        programs.iter().any(|program| stage.place(program.pid) == Some(2))
    });
    for program in &programs {
        // The brain may be moving it just now.
        let _ = stage.try_migrate(program.pid, "2");
        let _ = stage.try_migrate(program.pid, "home");
    }
    drop(programs);
    for node in [1, 2] {
        stage.text(node, &["osmos", "down"]);
        let said = stage.text(node, &["osmos", "sim", "--replay", RECORDING]);
        assert!(said.contains("all as recorded"), "{said}");
        let frames: u64 = said.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!(frames > 20, "{said}");
    }
}
