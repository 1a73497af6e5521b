//! A lab for one test, and what the test can see and do in it.
//!
//! Programs are driven from outside as their users would; processes are looked at through this
//! machine's `/proc`, which shows every node, so that nothing is believed that Osmos says of
//! itself.

use lab::{Disturbance, Lab, Node, Spec};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

const OSMOS: &str = env!("CARGO_BIN_EXE_osmos");
/// What takes longer than this will not happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const STEP: Duration = Duration::from_millis(10);
/// What one look counts for at most: while the whole machine is stopped (a virtual one that is
/// saved, say) its clock goes on, and nothing that is waited for can happen.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Of the shell that prints its pid before it becomes the program.
const TELL_PID: &str = "echo $$; exec \"$@\"";

/// Builds `tests/product/NAME.c` into this directory.
pub fn build(name: &str, options: &[&str], into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/product/{name}.c"));
    let built = into.join(name);
    let status = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .args([&built, &source])
        .args(options)
        .status()
        .expect("the C compiler that linking needs as well");
    assert!(status.success(), "{}: {status}", source.display());
    built
}

/// Waits until `look` finds something.
///
/// # Panics
/// If it finds nothing for too long.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let (mut waited, mut last) = (Duration::ZERO, Instant::now());
    loop {
        if let Some(found) = look() {
            return found;
        }
        // Unwinding ends programs: what hangs is to be seen before.
        assert!(waited < PATIENCE, "waited in vain until {what}\n{}", Seen::threads_below());
        std::thread::sleep(STEP);
        waited += last.elapsed().min(LOOK_MAX);
        last = Instant::now();
    }
}

/// Waits until `holds`.
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Where no lab can be made, not even the smallest, none of these tests can be done: all have a
/// stage. Then they end here, as skipped; else this one has failed.
fn end_without_lab(error: &impl std::fmt::Debug) -> ! {
    if let Err(reason) = lab::try_smallest(Path::new(OSMOS)) {
        needs::skip_part("every test of whole nodes", &format!("{reason:#}"));
        std::process::exit(0);
    }
    panic!("{error:?}");
}

/// Writes to 48 MiB all the time, and says for each line whether all of that is as it was left.
pub const REWRITING: &str = include_str!("rewriting.py");

/// A Python script that computes, and answers whoever asks how far it is.
pub const COUNTING: &str = "\
import select, sys
n = 0
while True:
    n += 1
    if n % 1000 == 0 and select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline(): break
        print(n, flush=True)";

/// A lab that is taken down when it is dropped; a failed test shows its daemons' logs.
pub struct Stage {
    lab: Lab,
}

impl Stage {
    /// Node 1 is home, the others are away.
    pub fn new(name: &str, nodes: u32) -> Stage {
        Stage::of(Stage::spec(name, nodes))
    }

    fn spec(name: &str, nodes: u32) -> Spec {
        // Tests of several checkouts may run at once.
        let name = format!("{name}-{}", std::process::id()).parse().expect("a name for a lab");
        Spec::new(name, nodes).expect("a lab")
    }

    /// One node in which the test starts daemons itself.
    pub fn without_daemons(name: &str) -> Stage {
        Stage::of_nodes_without_daemons(name, 1)
    }

    pub fn of_nodes_without_daemons(name: &str, nodes: u32) -> Stage {
        let mut spec = Stage::spec(name, nodes);
        spec.has_daemons = false;
        Stage::of(spec)
    }

    /// Nodes that have come together by tokens, as on machines of their own: no map names them.
    pub fn joined(name: &str, nodes: u32) -> Stage {
        Stage::joined_with(name, nodes, &[])
    }

    /// Likewise, their daemons with these options as well.
    pub fn joined_with(name: &str, nodes: u32, options: &[&str]) -> Stage {
        let stage = Stage::of_nodes_without_daemons(name, nodes);
        for node in 1..=nodes {
            let root = ["--lend-root", "on", "--guest-users", "*=same"];
            stage.text(node, &[&["osmos", "up"][..], &root, options].concat());
            if node > 1 {
                stage.join(node, 1);
            }
        }
        stage
    }

    pub fn join(&self, node: u32, through: u32) {
        let token = self.text(through, &["osmos", "token"]);
        let address = self.node(through).address().to_string();
        self.text(node, &["osmos", "join", &address, token.trim()]);
    }

    /// Whose nodes have daemons as they are without any option about root.
    pub fn with_defaults_for_root(name: &str, nodes: u32) -> Stage {
        let mut spec = Stage::spec(name, nodes);
        spec.trusts_root = false;
        Stage::of(spec)
    }

    /// Whose nodes do without these kernel features.
    pub fn without(features: &[&str], name: &str, nodes: u32) -> Stage {
        let mut spec = Stage::spec(name, nodes);
        spec.without = features.iter().map(|feature| feature.to_string()).collect();
        Stage::of(spec)
    }

    /// Whose nodes' links carry no more than this.
    pub fn with_link(name: &str, nodes: u32, rate: &str) -> Stage {
        let mut spec = Stage::spec(name, nodes);
        spec.link = Some(rate.parse().expect("a rate"));
        Stage::of(spec)
    }

    /// Whose nodes have no more memory than this; None where memory cannot be limited.
    pub fn with_memory(name: &str, nodes: u32, size: &str) -> Option<Stage> {
        let mut spec = Stage::spec(name, nodes);
        spec.memory = Some(size.parse().expect("a size of memory"));
        let stage = Stage::of(spec);
        let is_limited = stage.lab.record().hierarchies.iter().any(|own| own.controls("memory"));
        if !is_limited {
            needs::skip("no control groups for memory can be made here");
        }
        is_limited.then_some(stage)
    }

    /// Whose supervisors wait so long for another daemon.
    pub fn with_patience(patience_s: u64, name: &str, nodes: u32) -> Stage {
        let mut spec = Stage::spec(name, nodes);
        spec.succession_patience_s = Some(patience_s);
        Stage::of(spec)
    }

    /// Kills the daemon of a node with all that is in it, and waits until it is gone.
    pub fn kill_daemon(&self, node: u32) {
        kill(self.node(node).daemon_pid().expect("a daemon"));
        until_true("the daemon is gone", || self.node(node).daemon_pid().is_none());
    }

    pub fn start_daemon(&self, node: u32) {
        self.node(node).start_daemon().unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn of(mut spec: Spec) -> Stage {
        spec.osmos = PathBuf::from(OSMOS);
        spec.is_cpu_limited = false;
        Stage { lab: Lab::up(&spec).unwrap_or_else(|error| end_without_lab(&error)) }
    }

    pub fn node(&self, number: u32) -> Node<'_> {
        self.lab.node(number)
    }

    pub fn disturb(&self, disturbance: &Disturbance) {
        self.lab.disturb(disturbance).unwrap_or_else(|error| panic!("{error:#}"));
    }

    pub fn command(&self, node: u32, words: &[&str]) -> Command {
        let mut command = self.node(node).command(words[0]);
        // A group of its own: if the program is stopped, its group here is stopped, too.
        command.args(&words[1..]).stdin(Stdio::null()).process_group(0);
        command
    }

    pub fn output(&self, node: u32, words: &[&str]) -> Output {
        self.command(node, words).output().expect("a command in the lab")
    }

    /// What a command prints that has to succeed.
    pub fn text(&self, node: u32, words: &[&str]) -> String {
        let output = self.output(node, words);
        let (out, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{words:?}: {}: {complaint}{out}", output.status);
        out
    }

    /// What a command complains of that has to fail.
    pub fn complaint(&self, node: u32, words: &[&str]) -> String {
        let output = self.output(node, words);
        let (out, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(!output.status.success(), "{words:?} succeeded: {out}");
        complaint
    }

    /// Starts a command that will end by itself.
    pub fn begin(&self, node: u32, words: &[&str]) -> Child {
        let mut command = self.command(node, words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a command in the lab")
    }

    /// Starts a program whose streams are pipes.
    pub fn start(&self, node: u32, words: &[&str]) -> Program {
        let mut command = self.command(node, &["sh", "-c", TELL_PID, "sh"]);
        Program::start(command.args(words))
    }

    /// Starts a program on node 1 that is sent to node 2, and sees it there.
    pub fn start_away(&self, words: &[&str]) -> Program {
        let all = [&["osmos", "run", "--node", "2", "--"], words].concat();
        let program = self.start(1, &all);
        self.await_place(program.pid, 2);
        program
    }

    /// Processes as the daemon of a node lists them.
    pub fn listed(&self, node: u32) -> Vec<Value> {
        let text = self.text(node, &["osmos", "ps", "--json"]);
        serde_json::from_str(&text).expect("a list of processes")
    }

    /// Where a process of node 1 runs, if it is managed.
    pub fn place(&self, pid: i32) -> Option<u64> {
        let listed = self.listed(1);
        let process = listed.iter().find(|p| p["home"] == 1 && p["pid"] == pid)?;
        process["node"].as_u64()
    }

    /// Waits until node 1 knows a process that was begun under it.
    pub fn await_managed(&self, pid: i32) {
        until_true(&format!("process {pid} is managed"), || self.place(pid).is_some());
    }

    pub fn await_place(&self, pid: i32, node: u64) {
        until(&format!("process {pid} runs on node {node}"), || {
            self.place(pid).filter(|place| *place == node)
        });
    }

    /// Moves a process of node 1, or finds it there: the balancing may have been sooner.
    pub fn migrate(&self, pid: i32, to: &str) {
        let output = self.output(1, &["osmos", "migrate", &pid.to_string(), to]);
        let complaint = text(&output.stderr);
        let is_there = output.status.success() || complaint.contains("already");
        assert!(is_there, "{pid} to {to}: {complaint}");
    }

    /// Tries to move a process of node 1. False if it does not move now.
    pub fn try_migrate(&self, pid: i32, to: &str) -> bool {
        self.output(1, &["osmos", "migrate", &pid.to_string(), to]).status.success()
    }

    /// What happened on a node, of this kind, to this process of its own.
    pub fn events(&self, node: u32, kind: &str, pid: i32) -> Vec<Value> {
        let text = self.text(node, &["osmos", "events", "--json"]);
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
        all.filter(|e| e["event"] == kind && e["process"]["pid"] == pid).collect()
    }

    /// Sends a signal inside a node.
    pub fn signal(&self, node: u32, pid: i32, name: &str) {
        // A command of the shell: not every machine has the program.
        self.text(node, &["sh", "-c", &format!("kill -s {name} {pid}")]);
    }

    /// Writes a file of a node.
    pub fn put(&self, node: u32, inside: &str, text: &str) {
        std::fs::write(self.path(node, inside), text).expect("a file in the node");
    }

    /// A file of a node as this machine can open it.
    pub fn path(&self, node: u32, inside: &str) -> PathBuf {
        self.node(node).path(inside).expect("the node is up")
    }

    /// Everything that runs in a node's own PID namespace.
    pub fn processes(&self, node: u32) -> Vec<Seen> {
        let node = self.node(node);
        let keeper = node.keeper().expect("the node is up");
        let is_here = |p: &Seen| p.namespace.as_ref() == Some(&keeper.pid_namespace);
        Seen::all().into_iter().filter(is_here).collect()
    }

    /// A process of a node by its pid there.
    pub fn process(&self, node: u32, pid: i32) -> Option<Seen> {
        self.processes(node).into_iter().find(|process| process.inner_pid == pid)
    }

    /// The supervisors of one half, `deputy` or `body`, on a node, but for those that are kept
    /// ready.
    pub fn supervisors(&self, node: u32, half: &str) -> Vec<Seen> {
        let is_half = |p: &Seen| p.words.get(1).is_some_and(|word| word == half);
        let is_one = |p: &Seen| is_half(p) && !p.is_zombie() && p.name.starts_with(half);
        let named_osmos = |p: &Seen| p.words.first().is_some_and(|word| word.ends_with("osmos"));
        self.processes(node).into_iter().filter(|p| is_one(p) && named_osmos(p)).collect()
    }

    /// The supervisors that a node keeps ready, of both halves.
    pub fn ready_supervisors(&self, node: u32) -> Vec<Seen> {
        let is_one = |p: &Seen| p.name == "osmos-ready" && !p.is_zombie();
        self.processes(node).into_iter().filter(is_one).collect()
    }

    /// The supervisor at home of one process.
    pub fn deputy_supervisor(&self, pid: i32) -> Option<Seen> {
        let name = format!("deputy-{pid}");
        self.supervisors(1, "deputy").into_iter().find(|p| p.name == name)
    }

    /// The first process of the body of `pid` on a node, and its supervisor.
    pub fn body(&self, node: u32, pid: i32) -> Option<(Seen, Seen)> {
        let all = Seen::all();
        self.supervisors(node, "body").into_iter().find_map(|supervisor| {
            let init = all.iter().find(|p| p.parent == supervisor.pid)?;
            let body = all.iter().find(|p| p.parent == init.pid && p.inner_pid == pid)?;
            Some((body.clone(), supervisor))
        })
    }

    pub fn await_body(&self, node: u32, pid: i32) -> (Seen, Seen) {
        until(&format!("there is a body of {pid} on node {node}"), || self.body(node, pid))
    }

    /// Waits until no supervisor is left on any node, and with them no body and no sandbox.
    pub fn await_no_supervisors(&self) {
        let mut left = Vec::new();
        until_true("no supervisor is left", || {
            let nodes = self.lab.nodes().map(|node| node.id().0);
            left = nodes
                .flat_map(|node| ["deputy", "body"].map(|half| self.supervisors(node, half)))
                .flatten()
                .collect();
            left.is_empty()
        });
        let mut inside = Vec::new();
        until_true("no sandbox is left", || {
            inside = self.sandboxed();
            inside.is_empty()
        });
    }

    /// Processes in namespaces below those of the nodes.
    fn sandboxed(&self) -> Vec<Seen> {
        let all = Seen::all();
        let nodes: Vec<Seen> =
            self.lab.nodes().flat_map(|node| self.processes(node.id().0)).collect();
        let is_below = |p: &Seen| {
            let outer = nodes.iter().any(|n| n.pid == p.pid);
            !outer && nodes.iter().any(|n| n.depth < p.depth && n.is_ancestor_of(p, &all))
        };
        all.iter().filter(|p| is_below(p)).cloned().collect()
    }

    /// What node 1 believes of another.
    pub fn status_of(&self, id: u32) -> Option<String> {
        let nodes: Vec<Value> =
            serde_json::from_str(&self.text(1, &["osmos", "nodes", "--json"])).expect("nodes");
        nodes.iter().find(|node| node["id"] == id)?["status"].as_str().map(str::to_owned)
    }

    /// That a process of node 1 is a plain one: alive, at home, with nothing attached.
    pub fn await_plain(&self, pid: i32) {
        until_true(&format!("process {pid} is a plain process"), || {
            self.process(1, pid).is_some_and(|process| {
                process.field("TracerPid").as_deref() == Some("0")
                    && !"tTZX".contains(process.state)
            })
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for node in self.lab.nodes() {
            let log = node.log().and_then(|path| Ok(std::fs::read_to_string(path)?));
            let log = log.unwrap_or_else(|error| format!("{error:#}"));
            let events = self.output(node.id().0, &["osmos", "events"]);
            eprintln!("--- log of node {}\n{log}--- events\n{}", node.id(), text(&events.stdout));
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A process as this machine's `/proc` shows it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Here.
    pub pid: i32,
    pub parent: i32,
    /// In its innermost namespace.
    pub inner_pid: i32,
    /// Number of PID namespaces that it is in.
    pub depth: usize,
    pub state: char,
    pub words: Vec<String>,
    /// Of its first thread.
    pub name: String,
    pub namespace: Option<String>,
}

impl Seen {
    pub fn all() -> Vec<Seen> {
        let entries = std::fs::read_dir("/proc").expect("/proc");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        names.filter_map(Seen::by_pid).collect()
    }

    fn by_pid(pid: i32) -> Option<Seen> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ids: Vec<i32> = field_of(&status, "NSpid")?
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        Some(Seen {
            pid,
            parent: field_of(&status, "PPid")?.parse().ok()?,
            inner_pid: *ids.last()?,
            depth: ids.len(),
            state: field_of(&status, "State")?.chars().next()?,
            name: field_of(&status, "Name")?.to_owned(),
            words: command.split(|byte| *byte == 0).map(text).collect(),
            namespace: link.map(|link| link.display().to_string()),
        })
    }

    /// All threads in namespaces below this one, and what each does, those of other tests included.
    fn threads_below() -> String {
        let here = Seen::by_pid(std::process::id() as i32).map_or(1, |me| me.depth);
        let below = Seen::all().into_iter().filter(|process| process.depth > here);
        below.flat_map(|process| process.threads()).collect()
    }

    fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        let line = |task: PathBuf| {
            let read = |name| std::fs::read_to_string(task.join(name)).unwrap_or_default();
            let (status, call) = (read("status"), read("syscall"));
            let field = |name| field_of(&status, name).unwrap_or_default().replace('\t', " ");
            format!(
                "{} (there {}) parent {} tracer {} {}: {} in {}, call {}\n",
                field("Pid"),
                self.inner_pid,
                self.parent,
                field("TracerPid"),
                self.words.join(" ").chars().take(60).collect::<String>(),
                field("State"),
                read("wchan"),
                call.split_whitespace().next().unwrap_or("unknown"),
            )
        };
        tasks.flatten().map(|task| line(task.path())).collect()
    }

    fn is_ancestor_of(&self, other: &Seen, all: &[Seen]) -> bool {
        let parent = |child: &Seen| all.iter().find(|p| p.pid == child.parent);
        std::iter::successors(parent(other), |p| parent(p)).any(|p| p.pid == self.pid)
    }

    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// A line of its status now.
    pub fn field(&self, name: &str) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        field_of(&status, name).map(str::to_owned)
    }

    /// Processor time so far, clock ticks.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let fields: Vec<&str> =
            stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|word| word.parse().ok());
        number(11).unwrap_or(0u64) + number(12).unwrap_or(0u64)
    }

    /// Its nice value.
    pub fn nice(&self) -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split_whitespace();
        fields.nth(16).and_then(|word| word.parse().ok()).expect("a process has one")
    }

    /// Its scheduling policy.
    pub fn policy(&self) -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split_whitespace();
        fields.nth(38).and_then(|word| word.parse().ok()).expect("a process has one")
    }

    /// Whether one of its threads waits in the system call of this number.
    pub fn waits_in(&self, call: i64) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).expect("it lives");
        // The first word there is the number of the call that a thread is in.
        threads.filter_map(Result::ok).any(|thread| {
            let line = std::fs::read_to_string(thread.path().join("syscall"));
            line.is_ok_and(|line| line.starts_with(&format!("{call} ")))
        })
    }

    /// Names of what `/proc/PID/fd` links to.
    pub fn descriptors(&self) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid));
        let links = entries.into_iter().flatten().filter_map(|entry| entry.ok());
        links
            .filter_map(|e| Some(std::fs::read_link(e.path()).ok()?.display().to_string()))
            .collect()
    }

    /// Does it still run? What came later under its pid is another process.
    pub fn is_there(&self) -> bool {
        let now = Seen::by_pid(self.pid);
        now.is_some_and(|now| now.namespace == self.namespace && !now.is_zombie())
    }

    /// Kills it, from outside of all namespaces.
    pub fn kill(&self) {
        kill(self.pid);
    }

    /// Sends it a signal, from outside of all namespaces.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.pid);
        nix::sys::signal::kill(pid, signal).expect("it is there");
    }

    /// Kills it if it has not ended meanwhile.
    pub fn try_kill(&self) {
        if self.is_there() {
            let pid = nix::unistd::Pid::from_raw(self.pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

pub fn kill(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is there");
}

fn field_of<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let lines = status.lines();
    lines
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .map(|(_, v)| v.trim())
}

/// A program that was started in a node. What it prints is read as it comes.
pub struct Program {
    child: Child,
    /// In its node.
    pub pid: i32,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program in the lab");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Ends when the program does, or when nobody listens any more.
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let input = child.stdin.take();
        let mut program = Program { child, pid: 0, input, lines };
        program.pid = program.line().parse().expect("the shell prints its pid");
        program
    }

    /// The next line that it prints.
    pub fn line(&self) -> String {
        until("the program prints a line", || match self.lines.try_recv() {
            Err(TryRecvError::Disconnected) => panic!("the program has ended"),
            line => line.ok(),
        })
    }

    /// True if it prints nothing for so long.
    pub fn is_silent_for(&self, length: Duration) -> bool {
        self.lines.recv_timeout(length).is_err()
    }

    pub fn write(&mut self, text: &str) {
        let input = self.input.as_mut().expect("its input is open");
        input.write_all(text.as_bytes()).expect("the program reads");
    }

    /// Writes a line and reads one.
    pub fn ask(&mut self, question: &str) -> String {
        self.write(&format!("{question}\n"));
        self.line()
    }

    /// As [`Program::ask`]; None if it ends instead.
    pub fn ask_or_end(&mut self, question: &str) -> Option<String> {
        let input = self.input.as_mut().expect("its input is open");
        // It may have ended already.
        let _ = input.write_all(format!("{question}\n").as_bytes());
        self.line_or_end()
    }

    /// The next line that it prints; None if it ends instead.
    pub fn line_or_end(&self) -> Option<String> {
        until("the program answers or ends", || match self.lines.try_recv() {
            Err(TryRecvError::Disconnected) => Some(None),
            line => line.ok().map(Some),
        })
    }

    pub fn close_input(&mut self) {
        self.input = None;
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Waits for its end: its exit status, or 128 and the signal that it died of.
    pub fn end(&mut self) -> i32 {
        let status = until("the program has ended", || self.child.try_wait().expect("our child"));
        status.code().expect("the outer process is not killed")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process inside ends with the lab at the latest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
