//! Children, pipelines and threads of managed programs are those of programs at home.

use crate::stage::{Stage, text};

/// Runs the same script natively and in a storm, and returns what both printed.
fn natively_and_in_a_storm(stage: &Stage, words: &[&str], storm_ms: &str) -> (String, String) {
    let native = stage.text(1, words);
    let storm = [&["osmos", "run", "--storm", storm_ms, "--"], words].concat();
    (native, stage.text(1, &storm))
}

#[test]
fn a_pipeline_whose_reader_ends_first_ends_as_a_whole() {
    if !needs::can_run(&["bash", "sha256sum"]) {
        return;
    }
    let stage = Stage::new("pipeline", 3);
    let script = "yes | head -c 3000000 | sha256sum; echo ${PIPESTATUS[@]}";
    let (native, storm) = natively_and_in_a_storm(&stage, &["bash", "-c", script], "30");
    assert_eq!(storm, native);
    assert!(native.contains("141 0 0"), "yes dies of SIGPIPE: {native}");
    stage.await_no_supervisors();
}

#[test]
fn a_shell_that_forks_all_the_time_gives_the_same_output_in_a_storm() {
    if !needs::can_run(&["bash"]) {
        return;
    }
    let stage = Stage::new("forks", 3);
    let script = "\
total=0
for i in $(seq 60); do
    word=$(echo $i | rev)
    total=$((total + $(expr $word \\* 2)))
    (exit $((i % 7))) || echo \"$i $? $word\"
    x=$(cat <<< \"$total\" | tr 0-9 a-j)
    echo \"$x\"
done
wait; echo \"$total\"; exit 3";
    let native = stage.output(1, &["bash", "-c", script]);
    let storm = stage.output(1, &["osmos", "run", "--storm", "100", "--", "bash", "-c", script]);
    assert_eq!(native.status.code(), Some(3));
    assert_eq!(storm.status.code(), Some(3), "{}", text(&storm.stderr));
    assert_eq!(text(&storm.stdout), text(&native.stdout));
    assert_eq!(text(&storm.stderr), text(&native.stderr));
    stage.await_no_supervisors();
}

#[test]
fn a_program_of_several_threads_gives_the_same_output_in_a_storm() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("threads", 3);
    let script = "\
import hashlib, queue, threading
work, done, lock, log = queue.Queue(8), {}, threading.Lock(), []
def serve(number):
    while True:
        item = work.get()
        if item is None: break
        value = hashlib.sha256(bytes([item % 251]) * 200_000).hexdigest()
        with lock:
            done[item] = value
threads = [threading.Thread(target=serve, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for item in range(600): work.put(item)
for thread in threads: work.put(None)
for thread in threads: thread.join()
print(hashlib.sha256(repr(sorted(done.items())).encode()).hexdigest(), len(done))";
    let words = ["python3", "-IS", "-c", script];
    let (native, storm) = natively_and_in_a_storm(&stage, &words, "50");
    assert_eq!(storm, native);
    stage.await_no_supervisors();
}

#[test]
fn calls_made_while_the_process_is_being_stopped_end_as_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("calls", 2);
    // Threads that do little but make calls: some always are on their way into one.
    let script = "\
import os, select, sys, threading
parent, wrong, read, write = os.getppid(), [], *os.pipe()
def ask():
    while not wrong:
        try: select.select([read], [], [], 0)
        except OSError as error: wrong.append(error)
        if os.getppid() != parent: wrong.append('another parent')
for _ in range(3): threading.Thread(target=ask, daemon=True).start()
for line in sys.stdin: print(wrong or 'right', flush=True)";
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", script];
    let mut program = stage.start(1, &words);
    assert_eq!(program.ask("so far?"), "right");
    for _ in 0..80 {
        stage.migrate(program.pid, "2");
        stage.migrate(program.pid, "home");
        assert_eq!(program.ask("and now?"), "right");
    }
    stage.signal(1, program.pid, "KILL");
    assert_eq!(program.end(), 128 + 9);
}

#[test]
fn parent_group_and_session_of_a_program_that_is_away_are_those_of_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ids", 2);
    let script = "\
import os, sys
for line in sys.stdin: print(eval(line), flush=True)";
    let mut program = stage.start_away(&["python3", "-IS", "-c", script]);
    let pid = program.pid;
    let mut number = |question: &str| program.ask(question).parse::<i32>().expect("a number");
    assert_eq!(number("os.getpid()"), pid);
    let ids = stage.text(1, &["cut", "-d ", "-f4-6", &format!("/proc/{pid}/stat")]);
    let asked = ["os.getppid()", "os.getpgrp()", "os.getsid(0)"].map(&mut number);
    let shown: Vec<i32> = ids.split_whitespace().map(|id| id.parse().expect("an id")).collect();
    assert_eq!(asked[..], shown[..]);
}

/// Starts threads until one has a number below that of the process: numbers begin anew.
const LOW_THREAD: &str = "\
import os, sys, threading
pid, stay = os.getpid(), threading.Event()
for attempt in range(200):
    with open('/proc/sys/kernel/ns_last_pid', 'w') as last: last.write(str(max(pid - 100, 300)))
    low = threading.Thread(target=stay.wait, daemon=True)
    low.start()
    if low.native_id < pid: break
print(low.native_id, flush=True)
for line in sys.stdin: print(low.native_id, low.is_alive(), flush=True)";

#[test]
fn a_process_moves_whose_thread_has_a_lower_number_than_itself() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("low-thread", 3);
    // Numbers of a young namespace are too low to have any below them.
    stage.text(1, &["sh", "-c", "echo 5000 > /proc/sys/kernel/ns_last_pid"]);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", LOW_THREAD];
    let mut program = stage.start(1, &words);
    let low: i32 = program.line().parse().expect("a number");
    assert!(low < program.pid, "{low} is not below {}", program.pid);
    for place in ["2", "3", "home", "3", "home"] {
        stage.migrate(program.pid, place);
        assert_eq!(program.ask(""), format!("{low} True"), "at {place}");
    }
    stage.await_plain(program.pid);
}
