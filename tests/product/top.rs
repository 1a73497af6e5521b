//! `osmos top` as somebody at a terminal has it: what is on the screen, what keys do, and the
//! terminal afterwards.

use crate::stage::{Program, Seen, Stage, until, until_true};
use crate::terminal::Terminal;
use serde_json::Value;

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;
/// What a terminal of a usual size is told before a command runs on it, and shown behind it.
const ON_TERMINAL: &str = "\
stty rows 24 columns 80; before=$(stty -g)
TERM=xterm-256color \"$@\"; echo \"<left $?>\"
if [ \"$before\" = \"$(stty -g)\" ]; then echo '<as before>'; else echo '<changed>'; fi";

/// `osmos top` on a terminal of 80x24 on node 1.
fn open_top(stage: &Stage, options: &[&str]) -> Terminal {
    let words = ["sh", "-c", ON_TERMINAL, "sh", "osmos", "top"];
    Terminal::open(stage, &[&words, options].concat())
}

/// A process of node 1 that stays where it is put.
fn start_sleeper(stage: &Stage) -> Program {
    let program = stage.start(1, &["osmos", "run", "--home", "--", "sleep", "300"]);
    stage.await_managed(program.pid);
    program
}

/// The one that runs on node 1.
fn the_top(stage: &Stage) -> Seen {
    let is_one = |p: &Seen| p.name == "osmos" && p.words.get(1).is_some_and(|word| word == "top");
    stage.processes(1).into_iter().find(is_one).expect("it runs")
}

fn screen(terminal: &Terminal) -> vt100::Parser {
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    parser.process(terminal.shown().as_bytes());
    parser
}

fn lines(terminal: &Terminal) -> Vec<String> {
    screen(terminal).screen().rows(0, COLUMNS).collect()
}

/// Waits until one line of the screen has all these words, in this order.
fn await_line(terminal: &Terminal, words: &[&str]) {
    let has_all = |line: &String| {
        let mut rest = line.as_str();
        words.iter().all(|word| {
            let found = rest.find(word).map(|at| &rest[at + word.len()..]);
            rest = found.unwrap_or_default();
            found.is_some()
        })
    };
    let what = format!("a line of the screen has {words:?}");
    until(&what, || lines(terminal).iter().any(has_all).then_some(()));
}

/// Gives up what is typed. With another key right behind it this would be that key with Alt.
fn escape(terminal: &mut Terminal) {
    terminal.type_text("\x1b");
    await_line(terminal, &["? help"]);
}

/// That the terminal is as it was before: neither its screen nor its mouse is the program's.
fn await_left(terminal: &Terminal, status: &str) {
    until_true("the terminal is as before", || {
        let text = terminal.shown();
        assert!(!text.contains("<changed>"), "the terminal's mode was not given back");
        text.contains("<as before>")
    });
    let parser = screen(terminal);
    let screen = parser.screen();
    assert!(screen.contents().contains(status), "{}", screen.contents());
    assert!(!screen.alternate_screen() && !screen.hide_cursor());
    assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
}

#[test]
fn a_node_that_joins_later_is_shown_and_what_happens_there() {
    if !needs::can_run(&["stty"]) {
        return;
    }
    let stage = Stage::of_nodes_without_daemons("top-later", 2);
    let up = |node| stage.text(node, &["osmos", "up", "--lend-root", "on"]);
    up(1);
    let terminal = open_top(&stage, &["--delay", "0.3"]);
    await_line(&terminal, &["1 node, 1 alive"]);
    up(2);
    stage.join(2, 1);
    await_line(&terminal, &["2 nodes, 2 alive"]);
    let program = stage.start(2, &["osmos", "run", "--home", "--", "sleep", "300"]);
    let line = format!("2:{}  managed: sleep", program.pid);
    until_true("it is told what happens there", || {
        lines(&terminal).iter().any(|shown| shown.contains(&line))
    });
    let once = stage.text(1, &["osmos", "top", "--once"]);
    assert!(once.contains(&stage.node(2).host_name()), "{once}");
}

#[test]
fn a_move_is_seen_a_filter_hides_it_and_a_key_brings_it_home() {
    if !needs::can_run(&["stty"]) {
        return;
    }
    let stage = Stage::new("top", 2);
    let program = start_sleeper(&stage);
    let pid = program.pid.to_string();
    let mut terminal = open_top(&stage, &["--delay", "0.3"]);
    await_line(&terminal, &["2 nodes, 2 alive", "1 process, 0 away"]);
    await_line(&terminal, &["1", "alive"]);
    await_line(&terminal, &[&pid, "1", "1", "sleep 300"]);
    stage.migrate(program.pid, "2");
    await_line(&terminal, &[&pid, "1", "2", "sleep 300"]);
    await_line(&terminal, &["moved from node 1 to node 2"]);
    await_line(&terminal, &["1 process, 1 away"]);
    terminal.type_text("/nothing\r");
    await_line(&terminal, &["no process fits the filter"]);
    terminal.type_text("\x1b");
    await_line(&terminal, &[&pid, "1", "2", "sleep 300"]);
    terminal.type_text("h");
    stage.await_place(program.pid, 1);
    await_line(&terminal, &[&pid, "moved from node 2 to node 1"]);
    await_line(&terminal, &[&pid, "1", "1", "sleep 300"]);
    terminal.type_text("w");
    await_line(&terminal, &["why", "Esc closes"]);
    await_line(&terminal, &["decisions"]);
    terminal.type_text("qq");
    await_left(&terminal, "<left 0>");
}

#[test]
fn any_node_sends_signals_and_a_refusal_is_shown() {
    if !needs::can_run(&["stty"]) {
        return;
    }
    let stage = Stage::new("top-kill", 2);
    // At home on the other node.
    let mut program = stage.start(2, &["osmos", "run", "--home", "--", "sleep", "300"]);
    let pid = program.pid.to_string();
    let mut terminal = open_top(&stage, &["--delay", "0.3"]);
    await_line(&terminal, &[&pid, "2", "2", "sleep 300"]);
    terminal.type_text("m9\r");
    await_line(&terminal, &["there is no node 9"]);
    escape(&mut terminal);
    terminal.type_text(":signal 65\r");
    await_line(&terminal, &["signal 65 cannot be sent"]);
    escape(&mut terminal);
    terminal.type_text("k\r");
    assert_eq!(program.end(), 128 + 15);
    await_line(&terminal, &["sent SIGTERM to", &pid]);
    await_line(&terminal, &["no processes under osmos"]);
    terminal.type_text("\x03");
    await_left(&terminal, "<left 0>");
}

#[test]
fn the_terminal_is_given_back_before_a_signal_ends_it() {
    if !needs::can_run(&["stty"]) {
        return;
    }
    let stage = Stage::new("top-term", 1);
    let terminal = open_top(&stage, &["--delay", "0.3"]);
    await_line(&terminal, &["1 node, 1 alive"]);
    the_top(&stage).signal(nix::sys::signal::Signal::SIGTERM);
    await_left(&terminal, "<left 143>");
}

#[test]
fn it_stops_goes_on_and_follows_its_terminals_size() {
    if !needs::can_run(&["bash", "stty"]) {
        return;
    }
    let stage = Stage::new("top-stop", 1);
    let mut terminal = Terminal::open(&stage, &["bash", "--norc", "-i"]);
    terminal.type_text("stty rows 24 columns 80; export TERM=xterm-256color; PS1='ready> '\n");
    terminal.expect("ready> ");
    terminal.type_text("osmos top\n");
    await_line(&terminal, &["1 node, 1 alive"]);
    terminal.type_text("\x1a");
    terminal.expect("Stopped");
    until_true("the shell's screen is back", || !screen(&terminal).screen().alternate_screen());
    terminal.type_text("fg\n");
    until_true("its screen is back", || screen(&terminal).screen().alternate_screen());
    await_line(&terminal, &["1 node, 1 alive"]);
    terminal.resize(60);
    // The last of the keys that a line of 60 columns has no room for.
    until_true("it is narrower", || {
        let shown = lines(&terminal);
        shown.iter().any(|line| line.starts_with("? help")) && !shown[23].contains("leave")
    });
    let prompts = |terminal: &Terminal| terminal.shown().matches("ready> ").count();
    let before = prompts(&terminal);
    terminal.type_text("q");
    // What is typed before the shell asks for it might be read by who leaves.
    until_true("the shell is ready", || prompts(&terminal) > before);
    terminal.type_text("echo \"<left $?>\"\n");
    terminal.expect("<left 0>");
}

#[test]
fn a_daemon_that_is_gone_is_said_and_the_next_one_is_found() {
    if !needs::can_run(&["stty"]) {
        return;
    }
    let stage = Stage::new("top-lost", 1);
    let mut terminal = open_top(&stage, &["--delay", "0.3"]);
    await_line(&terminal, &["1 node, 1 alive"]);
    stage.kill_daemon(1);
    await_line(&terminal, &["no picture, trying again"]);
    stage.start_daemon(1);
    await_line(&terminal, &["osmos: 1 node, 1 alive"]);
    terminal.type_text("q");
    await_left(&terminal, "<left 0>");
}

#[test]
#[ignore = "sixteen nodes, for a figure in SPECIFICATION.md"]
fn sixteen_nodes_cost_less_than_two_percent_of_a_core() {
    let stage = Stage::new("top-cost", 16);
    let _sleepers: Vec<Program> = (0..8).map(|_| start_sleeper(&stage)).collect();
    let terminal = open_top(&stage, &[]);
    await_line(&terminal, &["16 nodes, 16 alive", "8 processes"]);
    let seen = the_top(&stage);
    let before = seen.cpu_ticks();
    // What is measured is what it takes in that time.
    stage.text(1, &["sleep", "20"]);
    let ticks = seen.cpu_ticks() - before;
    println!("{ticks} hundredths of a second in 20 s");
    assert!(ticks <= 40, "{ticks} hundredths of a second in 20 s");
}

#[test]
fn one_picture_is_printed_for_scripts() {
    let stage = Stage::new("top-once", 2);
    let program = start_sleeper(&stage);
    stage.migrate(program.pid, "2");
    let text = stage.text(2, &["osmos", "top", "--once", "--json"]);
    let picture: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(picture["nodes"].as_array().map(Vec::len), Some(2), "{text}");
    let processes = picture["processes"].as_array().expect("a list");
    let [process] = &processes[..] else { panic!("it is listed once: {text}") };
    let place = ["pid", "home", "node"].map(|field| process[field].as_i64());
    assert_eq!(place, [i64::from(program.pid), 1, 2].map(Some), "{text}");
    let text = stage.text(1, &["osmos", "top", "--once"]);
    let line = text.lines().find(|line| line.contains("sleep 300")).expect("a line for it");
    assert!(line.trim_start().starts_with(&program.pid.to_string()), "{text}");
    let complaint = stage.complaint(1, &["osmos", "top"]);
    assert!(complaint.contains("no terminal") && complaint.contains("--once"), "{complaint}");
}
