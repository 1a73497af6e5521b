//! Screens as text.

use super::*;
use crate::model::{Input, Pace};
use crate::test::{WORDING, migrated, node, picture, process};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use wire::control::{Node, Process};

const PACE: Pace = Pace { delay_s: 1.0, epoch_s: 1000.0 };
const PLAIN: Look = Look { has_colours: false, is_unicode: false };

fn model(size: (u16, u16), nodes: &[Node], processes: &[Process]) -> Model {
    let mut model = Model::new(size, PACE, WORDING);
    model.handle(Input::Picture(Box::new(picture(nodes, processes))), 0.0);
    model
}

fn drawn(model: &Model, look: Look, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, look, 1.0, frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(line).map(|line| line.trim_end().to_owned()).collect()
}

fn press(model: &mut Model, text: &str) {
    for c in text.chars() {
        model.handle(Input::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)), 1.0);
    }
}

#[test]
fn a_usual_terminal_shows_nodes_processes_and_events() {
    let mut busy = node(2, "two");
    (busy.load, busy.takes_guests) = (1.5, false);
    let mut make = process(1, 4711, 2);
    (make.command_line, make.user) = (Some("make -j8 all".into()), Some("anna".into()));
    let mut model = model((80, 24), &[node(1, "one"), busy], &[make, process(2, 9, 2)]);
    model.handle(Input::Happened(Box::new(migrated(1, 4711, 1, 1000.5))), 1.0);
    let shown = lines(&drawn(&model, PLAIN, (80, 24)));
    let expected = [
        "osmos: 2 nodes, 2 alive; 2 processes, 0 away",
        "NODE NAME       STATE   LOAD/CORE        CORES SPEED MEMORY               GUESTS",
        "   1 one        alive   ###.......  0.50   4.0  1.00 ##......   1.0G/4.0G      0",
        "   2 two        alive   ########..  1.50   4.0  1.00 ##......   1.0G/4.0G   1 no",
        "    PID USER     HOME NODE STATE     CPU   TIME MEMORY MOVES COMMAND",
        "   4711 anna        1    1*running     -   0.0s   1.0M     0 make -j8 all",
        "      9 -           2    2 running     -   0.0s   1.0M     0 sleep",
    ];
    assert_eq!(shown[..expected.len()], expected);
    assert_eq!(shown[21], "00:16:40.500  1:4711  4711 moved to node 1");
    assert_eq!(shown[22], "4711: born here | make -j8 all");
    assert_eq!(shown[23], PROCESS_KEYS);
}

#[test]
fn the_selected_row_is_reversed_and_nothing_has_a_colour_where_none_is_wanted() {
    let mut gone = node(2, "two");
    gone.status = "gone".into();
    let model = model((80, 24), &[node(1, "one"), gone], &[process(1, 10, 2)]);
    let buffer = drawn(&model, PLAIN, (80, 24));
    for cell in buffer.content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
    }
    let row = model.areas().unwrap().processes.y;
    assert!(buffer[(0, row)].modifier.contains(Modifier::REVERSED));
    assert!(!buffer[(0, row + 1)].modifier.contains(Modifier::REVERSED));
    let coloured = drawn(&model, Look { has_colours: true, is_unicode: true }, (80, 24));
    assert!(coloured.content().iter().any(|cell| cell.fg == Color::Red), "a node is gone");
}

#[test]
fn a_larger_terminal_shows_reasons_and_more_nodes() {
    let nodes: Vec<Node> = (1..=40).map(|id| node(id, "some")).collect();
    let model = model((160, 50), &nodes, &[process(1, 10, 2)]);
    let shown = lines(&drawn(&model, Look { is_unicode: true, ..PLAIN }, (160, 50)));
    assert!(shown.iter().any(|line| line.contains("born here") && line.contains("sleep")));
    let bars = shown.iter().filter(|line| line.contains('█')).count();
    assert_eq!(bars, usize::from(model.areas().unwrap().nodes.height));
}

#[test]
fn a_thousand_nodes_scroll() {
    let nodes: Vec<Node> = (1..=1000).map(|id| node(id, "some")).collect();
    let mut model = model((80, 24), &nodes, &[]);
    for code in [KeyCode::Tab, KeyCode::End] {
        model.handle(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)), 1.0);
    }
    let shown = lines(&drawn(&model, PLAIN, (80, 24)));
    let areas = model.areas().unwrap();
    assert!(shown[usize::from(areas.nodes.bottom()) - 1].starts_with("1000 some"), "{shown:#?}");
    assert_eq!(shown[22], "node 1000 some at 10.0.0.1000:7780");
}

#[test]
fn what_is_typed_and_asked_is_in_the_lowest_line() {
    let mut model = model((80, 24), &[node(1, "one")], &[process(1, 10, 1)]);
    press(&mut model, "m7");
    assert_eq!(
        lines(&drawn(&model, PLAIN, (80, 24)))[23],
        "move 10 to (number, name, home, best): 7"
    );
    model.handle(Input::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)), 1.0);
    let shown = lines(&drawn(&model, PLAIN, (80, 24)));
    assert_eq!(shown[22], "there is no node 7; the list above has all nodes");
    model.handle(Input::Key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), 1.0);
    press(&mut model, "\t");
    model.handle(Input::Key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE)), 1.0);
    press(&mut model, "e");
    let shown = lines(&drawn(&model, PLAIN, (80, 24)));
    assert_eq!(shown[23], "expel the 0 guests of node 1 (one)? (y/n)");
}

#[test]
fn the_help_fits_a_usual_terminal() {
    let mut model = model((80, 24), &[node(1, "one")], &[]);
    press(&mut model, "?");
    let shown = lines(&drawn(&model, PLAIN, (80, 24)));
    assert!(shown[1].starts_with("help"), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("why is it there?")), "{shown:#?}");
    assert_eq!(model.panel_lines(80), model.panel_lines(u16::MAX), "no line is folded");
    assert!(shown.iter().any(|line| line.contains("marks a process")), "the last line is seen");
}

/// What a hostile node or process may be called.
const HOSTILE: [&str; 6] =
    ["\x1b[2J\x1b]0;x\x07", "\u{202e}\u{200b}\n\r\t", "宽字符宽字符", "e\u{301}\u{301}", "👩‍👩‍👧", ""];

fn hostile(seed: u16) -> String {
    HOSTILE[usize::from(seed) % HOSTILE.len()].repeat(usize::from(seed % 50))
}

/// Any input, by three numbers.
fn input((kind, a, b): (u8, u16, u16)) -> Input {
    const CODES: [KeyCode; 14] = [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Left,
        KeyCode::F(1),
        KeyCode::Delete,
    ];
    let typed = b"wmhpkedu?q/<>rtv:yn0129 :homebestusr";
    match kind % 9 {
        0 => Input::Resized(a % 200, b % 70),
        1 => Input::Picture(Box::new(any_picture(a, b))),
        2 => Input::Happened(Box::new(migrated(1, i32::from(a % 9), u32::from(b % 5), 1001.0))),
        3 => Input::Lost(hostile(a)),
        4 => {
            let kind = match a % 3 {
                0 => MouseEventKind::Down(MouseButton::Left),
                1 => MouseEventKind::ScrollDown,
                _ => MouseEventKind::ScrollUp,
            };
            let (column, row, modifiers) = (b % 210, a % 80, KeyModifiers::NONE);
            Input::Mouse(MouseEvent { kind, column, row, modifiers })
        }
        5 => {
            let code = CODES[usize::from(a) % CODES.len()];
            Input::Key(KeyEvent::new(code, KeyModifiers::NONE))
        }
        6 => Input::Tick,
        _ => {
            let typed = char::from(typed[usize::from(a) % typed.len()]);
            Input::Key(KeyEvent::new(KeyCode::Char(typed), KeyModifiers::NONE))
        }
    }
}

fn any_picture(a: u16, b: u16) -> client::picture::Picture {
    let mut processes = Vec::new();
    for pid in 0..i32::from(a % 40) {
        let mut process = process(u32::from(b % 3), pid, u32::from(a % 5));
        process.cpu_s = [0.0, -1.0, f64::MAX, 1e300][usize::from(b % 4)];
        process.rss_bytes = u64::MAX - u64::from(b);
        process.command_line = Some(hostile(a));
        process.user = Some(hostile(b));
        process.parent = Some(i32::from(a) % 40 - pid);
        processes.push(process);
    }
    let nodes: Vec<Node> = (0..u32::from(b % 30))
        .map(|id| {
            let mut node = node(id.wrapping_mul(u32::from(a)), &hostile(b));
            node.load = [0.0, -1.0, f64::MAX, 3.0][usize::from(a % 4)];
            node.mem_total_bytes = u64::from(b % 2) * u64::MAX;
            node
        })
        .collect();
    picture(&nodes, &processes)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_comes_in_any_order_panics_or_steers_the_terminal(
        inputs in prop::collection::vec(any::<(u8, u16, u16)>(), 0..60),
        size in (0u16..200, 0u16..70),
        has_colours: bool,
        is_unicode: bool,
    ) {
        let mut model = Model::new(size, PACE, WORDING);
        let look = Look { has_colours, is_unicode };
        for (at, seed) in inputs.into_iter().enumerate() {
            model.handle(input(seed), at as f64 / 3.0);
            // The terminal may be of another size than the model has been told yet.
            let (width, height) = (size.0.max(1), size.1.max(1));
            let buffer = drawn(&model, look, (width, height));
            for line in lines(&buffer) {
                prop_assert!(!line.contains(char::is_control), "{line:?}");
            }
            prop_assert!(model.next_tick_s(at as f64 / 3.0).is_none_or(|tick| tick > 0.0));
        }
    }
}
