//! What ties a process to its home is found before anything is touched, named, and told to whoever
//! wanted to move it; the process does not notice.

use crate::stage::{Program, Stage, text, until_true};

/// Does what each line says, and prints what comes of it.
const OBEDIENT: &str = "\
import ctypes, mmap, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

fn start_obedient(stage: &Stage) -> Program {
    stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT])
}

/// Asks for a move that must be refused with these words, and sees that nothing was touched.
fn assert_refused(stage: &Stage, program: &mut Program, words: &[&str]) {
    let complaint = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "2"]);
    let named = format!("cannot move {}: ", program.pid);
    for word in [&named, "stays home"].iter().copied().chain(words.iter().copied()) {
        assert!(complaint.contains(word), "{word:?} is missing: {complaint}");
    }
    assert_eq!(complaint.matches("stays home").count(), 1, "{complaint}");
    stage.await_plain(program.pid);
    assert_eq!(program.ask("6 * 7"), "42");
    assert_eq!(stage.place(program.pid), Some(1));
}

/// A process in which this expression was evaluated does not move; it does before.
fn refused_after(name: &str, expression: &str, words: &[&str]) {
    let stage = Stage::new(name, 2);
    let mut program = start_obedient(&stage);
    assert_eq!(program.ask("1"), "1");
    stage.migrate(program.pid, "2");
    stage.migrate(program.pid, "home");
    let answer = program.ask(expression);
    assert!(!answer.starts_with('-') && !answer.contains("Error"), "{expression}: {answer}");
    assert_refused(&stage, &mut program, words);
    stage.await_no_supervisors();
}

#[test]
fn a_process_with_an_io_uring_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("io-uring", 2);
    let mut program = start_obedient(&stage);
    let descriptor = program.ask("libc.syscall(425, 4, ctypes.create_string_buffer(120))");
    if descriptor == "-1" {
        return needs::skip("this kernel has no io_uring for us (io_uring_setup(2) failed)");
    }
    assert_refused(&stage, &mut program, &["io_uring", &format!("fd {descriptor}")]);
}

#[test]
fn a_process_with_shared_memory_that_it_may_only_read_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // SHM_RDONLY
    let expression = "libc.shmat(libc.shmget(0, 4096, 0o1600), None, 0o10000) > 0";
    refused_after("sysv", expression, &["shared memory (/SYSV", "that it may only read"]);
}

#[test]
fn a_process_that_has_all_of_its_memory_locked_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    refused_after("mlockall", "libc.mlockall(1)", &["locked all of its memory (mlockall)"]);
    // MCL_FUTURE alone: nothing of it is locked yet.
    refused_after("mlockfuture", "libc.mlockall(2)", &["all memory locked that it maps"]);
}

#[test]
fn a_process_that_has_locked_more_than_the_other_node_lets_it_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let lock = |flags: &str, bytes: &str| {
        format!(
            "globals().update(m=mmap.mmap(-1, {bytes}, {flags})) or \
             libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), \
             ctypes.c_size_t({bytes}))"
        )
    };
    // The administrator's programs are held to no limit at home.
    refused_after("mlock", &lock("mmap.MAP_PRIVATE", "1 << 30"), &["a program may lock", "KiB"]);
    refused_after("mlockshared", &lock("mmap.MAP_SHARED", "8192"), &["locked shared memory"]);
}

#[test]
fn a_process_with_a_running_processor_time_timer_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    refused_after("itimer", "signal.setitimer(signal.ITIMER_PROF, 1000)", &["setitimer"]);
    refused_after("timer", &posix_timer(), &["timer on CPU-time clock"]);
}

/// timer_create(CLOCK_PROCESS_CPUTIME_ID) with a deadline far away.
fn posix_timer() -> String {
    "[t := ctypes.c_void_p(), libc.timer_create(2, None, ctypes.byref(t)), \
     libc.timer_settime(t, 0, (ctypes.c_long * 4)(0, 0, 1000, 0), None)][2]"
        .to_owned()
}

#[test]
fn a_process_with_a_memory_policy_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // MPOL_INTERLEAVE over node 0.
    let expression = "libc.syscall(238, 3, ctypes.byref(ctypes.c_ulong(1)), 8)";
    refused_after("mempolicy", expression, &["memory policy", "interleave"]);
}

#[test]
fn a_process_with_sealed_memory_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("mseal", 2);
    let mut program = start_obedient(&stage);
    let expression = "globals().update(m=mmap.mmap(-1, 8192, mmap.MAP_PRIVATE)) or \
                      libc.syscall(462, ctypes.c_void_p(ctypes.addressof(\
                      ctypes.c_char.from_buffer(m))), 8192, 0)";
    if program.ask(expression) == "-1" {
        eprintln!("skipped: this kernel has no mseal(2) (Linux 6.10)");
        return;
    }
    assert_refused(&stage, &mut program, &["sealed memory", "at 0x"]);
}

#[test]
fn a_process_that_maps_one_shared_memory_twice_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // mremap(2) with an old size of 0 maps the same memory once more.
    let expression = "globals().update(m=mmap.mmap(-1, 4096)) or \
                      [at := ctypes.addressof(ctypes.c_char.from_buffer(m)), \
                      libc.mremap(ctypes.c_void_p(at), ctypes.c_size_t(0), \
                      ctypes.c_size_t(4096), 1) != -1][1]";
    refused_after("alias", expression, &["the same shared memory mapped at 0x"]);
}

#[test]
fn a_process_with_a_seccomp_filter_of_its_own_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // One instruction: allow everything.
    let expression = "[code := ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127])), \
                      program := (ctypes.c_long * 2)(1, ctypes.addressof(code)), \
                      libc.prctl(38, 1, 0, 0, 0), libc.prctl(22, 2, program)][3]";
    refused_after("seccomp", expression, &["seccomp filter"]);
}

#[test]
fn a_process_with_segments_of_its_own_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // modify_ldt(1, ...): entry 0, base 0, limit 1, 32 bits.
    let ldt = "libc.syscall(154, 1, ctypes.byref((ctypes.c_uint * 4)(0, 0, 1, 1)), 16)";
    refused_after("ldt", ldt, &["modify_ldt"]);
}

#[test]
fn a_process_that_gets_its_system_calls_as_signals_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // PR_SET_SYSCALL_USER_DISPATCH, with a selector that lets all pass.
    let expression = "globals().update(s=ctypes.create_string_buffer(1)) or \
                      libc.prctl(59, 1, 0, 0, ctypes.c_void_p(ctypes.addressof(s)))";
    refused_after("dispatch", expression, &["syscall user dispatch"]);
}

#[test]
fn a_process_whose_memory_may_not_become_executable_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    refused_after("mdwe", "libc.prctl(65, 1, 0, 0, 0)", &["PR_SET_MDWE"]);
}

#[test]
fn a_process_that_may_use_ports_of_devices_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ports", 2);
    let mut program = start_obedient(&stage);
    if program.ask("libc.ioperm(0x80, 1, 1)") != "0" {
        eprintln!(
            "skipped: ioperm(2) needs CAP_SYS_RAWIO on the machine itself, and it forbids it"
        );
        return;
    }
    assert_refused(&stage, &mut program, &["ioperm"]);
}

#[test]
fn a_process_with_breakpoints_that_a_debugger_left_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("breakpoints", 2);
    let mut program = start_obedient(&stage);
    assert_eq!(program.ask("1"), "1");
    // PTRACE_ATTACH, POKEUSER of debug registers 0 and 7: a byte that nobody executes; DETACH.
    let script = format!(
        "import ctypes, os\n\
         libc, pid = ctypes.CDLL(None), {}\n\
         libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]\n\
         print(libc.ptrace(16, pid, None, None)); os.waitpid(pid, 0)\n\
         print(libc.ptrace(6, pid, 848, 0x1000), libc.ptrace(6, pid, 848 + 56, 1))\n\
         print(libc.ptrace(17, pid, None, None))",
        program.pid
    );
    let left = stage.text(1, &["python3", "-IS", "-c", &script]);
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["0", "0", "0", "0"]);
    assert_refused(&stage, &mut program, &["breakpoints"]);
}

#[test]
fn a_process_that_somebody_traces_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("traced", 2);
    let mut program = start_obedient(&stage);
    assert_eq!(program.ask("1"), "1");
    // PTRACE_SEIZE: the process runs on.
    let script = format!(
        "import ctypes, sys\n\
         print(ctypes.CDLL(None).ptrace(0x4206, {}, None, None), flush=True)\n\
         sys.stdin.read()",
        program.pid
    );
    let mut tracer = stage.start(1, &["python3", "-IS", "-c", &script]);
    assert_eq!(tracer.line(), "0");
    let pid = program.pid.to_string();
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    let tracer_named = format!("process {} traces", tracer.pid);
    for word in [&format!("cannot move {pid}: "), &tracer_named, "stays home"] {
        assert!(complaint.contains(word), "{word:?} is missing: {complaint}");
    }
    let traced = stage.process(1, program.pid).expect("it lives");
    assert_ne!(traced.field("TracerPid").as_deref(), Some("0"), "its tracer keeps it");
    assert_eq!(program.ask("6 * 7"), "42");
    tracer.close_input();
    assert_eq!(tracer.end(), 0);
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("6 * 7"), "42");
}

#[test]
fn a_stopped_process_stays_home_and_stays_stopped() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("stopped-home", 2);
    let mut program = start_obedient(&stage);
    assert_eq!(program.ask("1"), "1");
    stage.signal(1, program.pid, "STOP");
    let complaint = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "2"]);
    assert!(complaint.contains("it is stopped"), "{complaint}");
    let process = stage.process(1, program.pid).expect("it lives");
    assert_eq!((process.state, process.field("TracerPid").as_deref()), ('T', Some("0")));
    stage.signal(1, program.pid, "CONT");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("6 * 7"), "42");
}

#[test]
fn a_32_bit_process_stays_home() {
    let stage = Stage::new("bits", 2);
    std::fs::write(stage.path(1, "/tmp/small"), small_elf()).expect("a file");
    stage.text(1, &["chmod", "755", "/tmp/small"]);
    if stage.output(1, &["/tmp/small", "end"]).status.code() != Some(3) {
        return needs::skip("this kernel runs no 32-bit programs");
    }
    let mut program = stage.start(1, &["osmos", "run", "--home", "--", "/tmp/small"]);
    until_true("it is no longer `osmos run`", || {
        let name = stage.process(1, program.pid).and_then(|process| process.field("Name"));
        name.as_deref() == Some("small")
    });
    let complaint = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "2"]);
    assert!(complaint.contains("32-bit"), "{complaint}");
    assert!(complaint.contains("stays home"), "{complaint}");
    stage.await_plain(program.pid);
    stage.signal(1, program.pid, "TERM");
    assert_eq!(program.end(), 128 + 15);
}

/// An i386 program: `exit(3)` if it has an argument, else `pause()` for ever.
fn small_elf() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let code = [
        0x83, 0x3c, 0x24, 0x01, // cmp dword [esp], 1
        0x75, 0x09, // jne exit
        0xb8, 29, 0, 0, 0, // mov eax, pause
        0xcd, 0x80, // int 0x80
        0xeb, 0xf7, // jmp back
        0xb8, 1, 0, 0, 0, // exit: mov eax, exit
        0xbb, 3, 0, 0, 0, // mov ebx, 3
        0xcd, 0x80, // int 0x80
    ];
    let size = HEADERS + code.len() as u32;
    let mut elf = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0];
    let header = [1, BASE + HEADERS, 52, 0, 0];
    elf.extend(header.iter().flat_map(|word: &u32| word.to_le_bytes()));
    elf.extend([52u16, 32, 1, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
    let segment = [1, 0, BASE, BASE, size, size, 5, 4096];
    elf.extend(segment.iter().flat_map(|word: &u32| word.to_le_bytes()));
    elf.extend(code);
    elf
}

#[test]
fn an_unknown_process_or_node_is_named_in_the_refusal() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("unknown", 2);
    let program = start_obedient(&stage);
    let complaint = stage.complaint(1, &["osmos", "migrate", "999999", "2"]);
    assert!(complaint.contains("999999"), "{complaint}");
    let complaint = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "9"]);
    assert!(complaint.contains("node 9"), "{complaint}");
    let unmanaged = stage.start(1, &["sleep", "1000"]);
    let output = stage.output(1, &["osmos", "migrate", &unmanaged.pid.to_string(), "2"]);
    let complaint = text(&output.stderr);
    assert!(output.status.success() || complaint.contains("adopt"), "{complaint}");
}

#[test]
fn a_process_that_has_a_file_about_itself_open_stays_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("proc-self", 2);
    let mut program = start_obedient(&stage);
    for file in ["maps", "mem", "stat", "task/self/status"] {
        let path = file.replace("self", &program.pid.to_string());
        let descriptor = program.ask(&format!("os.open('/proc/self/{path}', os.O_RDONLY)"));
        let open = format!("open (fd {descriptor})");
        assert_refused(&stage, &mut program, &[&path, &open]);
        assert_eq!(program.ask(&format!("os.close({descriptor})")), "None");
    }
    assert_eq!(program.ask("os.chdir('/proc/self')"), "None");
    assert_refused(&stage, &mut program, &["as its working directory"]);
    assert_eq!(program.ask("os.chdir('/')"), "None");
    assert_eq!(program.ask("os.open('/proc/1/stat', os.O_RDONLY) > 0"), "True", "of another");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("os.chdir('/proc/self')"), "None");
    assert_eq!(program.ask("'VmSize' in open('status').read()"), "True");
    stage.await_place(program.pid, 1);
}
