//! What Osmos itself takes of a node's memory for a process that is away.

use crate::stage::{Seen, Stage, until_true};

/// Has many threads read much each, and then wait for one another without any call to home.
const READERS: &str = "\
import os, sys, threading
count, size = 16, 4 << 20
with open('/tmp/much', 'wb') as much: much.write(os.urandom(size))
go, stay, met = threading.Event(), threading.Lock(), threading.Barrier(count + 1)
def read():
    file = os.open('/tmp/much', os.O_RDONLY)
    go.wait()
    os.pread(file, size, 0)
    met.wait()
    stay.acquire()
stay.acquire()
for _ in range(count): threading.Thread(target=read, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    go.set()
    met.wait()
    print('read', flush=True)";

fn kib(process: &Seen, name: &str) -> u64 {
    let value = process.field(name).expect("it lives");
    value.trim_end_matches(" kB").parse().expect("a size")
}

#[test]
fn what_large_calls_took_at_home_is_given_back_when_they_are_over() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("memory", 2);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", READERS];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(""), "read");
    let supervisor = stage.deputy_supervisor(program.pid).expect("it is away");
    let deputy = stage.process(1, program.pid).expect("it lives");
    until_true("staging areas are given back", || kib(&deputy, "RssShmem") < 8 << 10);
    until_true("replies are given back", || kib(&supervisor, "RssAnon") < 24 << 10);
    assert_eq!(stage.place(program.pid), Some(2));
}
