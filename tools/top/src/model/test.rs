//! What keys, clicks, pictures and answers do to the model.

use super::*;
use crate::test::{WORDING, joined, key, migrated, node, picture, process};
use ratatui::crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEventKind};
use wire::control::Destination;
use wire::owner::OwnerOrder;

const PACE: Pace = Pace { delay_s: 1.0, epoch_s: 1000.0 };

/// Three nodes; processes 10, 11 and 12 of node 1, of which 11 is on node 2.
fn model() -> Model {
    let mut model = Model::new((80, 24), PACE, WORDING);
    look(&mut model, &[process(1, 10, 1), process(1, 11, 2), process(1, 12, 1)], 0.0);
    model
}

fn look(model: &mut Model, processes: &[wire::control::Process], now_s: f64) {
    let nodes = [node(1, "one"), node(2, "two"), node(3, "three")];
    let picture = Box::new(picture(&nodes, processes));
    model.handle(Input::Picture(picture), now_s);
}

fn press(model: &mut Model, code: KeyCode) -> Vec<Action> {
    model.handle(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)), 1.0)
}

/// Presses the keys of a text, `\n` being Enter; returns what came of the last.
fn type_in(model: &mut Model, text: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    for c in text.chars() {
        actions = press(model, if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) });
    }
    actions
}

fn shown(model: &Model) -> Vec<i32> {
    model.rows.iter().map(|row| model.picture.processes[row.index].key.pid.0).collect()
}

fn selected(model: &Model) -> i32 {
    model.selected_process().expect("a process").key.pid.0
}

#[test]
fn one_key_is_one_order_about_the_selected_process() {
    let mut model = model();
    press(&mut model, KeyCode::Down);
    assert_eq!(selected(&model), 11);
    let orders = [
        ('w', Order::Why(key(1, 11))),
        ('h', Order::Migrate(key(1, 11), Destination::Home)),
        ('p', Order::Pin(key(1, 11), NodeId(2))),
    ];
    for (c, order) in orders {
        assert_eq!(press(&mut model, KeyCode::Char(c)), [Action::Ask(order)], "{c}");
    }
    let order = Order::Migrate(key(1, 11), Destination::Node(NodeId(3)));
    assert_eq!(type_in(&mut model, "mthree\n"), [Action::Ask(order)]);
    assert_eq!(type_in(&mut model, "k\n"), [Action::Ask(Order::Signal(key(1, 11), 15))]);
    assert_eq!(type_in(&mut model, "kusr1\n"), [Action::Ask(Order::Signal(key(1, 11), 10))]);
    let order = Order::Migrate(key(1, 11), Destination::Best);
    assert_eq!(type_in(&mut model, ":migrate best\n"), [Action::Ask(order)]);
}

#[test]
fn what_cannot_be_done_is_said_and_stays_typed() {
    let mut model = model();
    assert_eq!(type_in(&mut model, "m9\n"), []);
    assert!(model.message.as_ref().unwrap().text.contains("no node 9"));
    assert_eq!(model.prompt.as_ref().unwrap().text, "9");
    press(&mut model, KeyCode::Backspace);
    let order = Order::Migrate(key(1, 10), Destination::Node(NodeId(2)));
    assert_eq!(type_in(&mut model, "2\n"), [Action::Ask(order)]);
    type_in(&mut model, ":fly\n");
    assert!(model.message.as_ref().unwrap().text.contains("`fly` is no command"));
    assert!(model.log.lines().any(|line| line.text.contains("`fly` is no command")));
    press(&mut model, KeyCode::Esc);
    look(&mut model, &[], 2.0);
    assert_eq!(type_in(&mut model, "h"), []);
    assert!(model.message.as_ref().unwrap().text.contains("no process is selected"));
}

#[test]
fn a_refusal_is_shown_in_the_daemons_words_and_kept() {
    let mut model = model();
    let [Action::Ask(order)] = &type_in(&mut model, "h")[..] else { panic!("no order") };
    assert_eq!(model.message.as_ref().unwrap().text, "moving 10 home ...");
    let result = Err("cannot move 10: it has an io_uring\x1b[2J open".to_owned());
    let answer = Answer { order: order.clone(), result };
    assert_eq!(model.handle(Input::Answered(answer), 2.0), [Action::Look]);
    let text = "cannot move 10: it has an io_uring?[2J open";
    let message = Message { text: text.to_owned(), is_refusal: true };
    assert_eq!(model.message, Some(message));
    let line = model.log.lines().next_back().unwrap();
    assert_eq!(line.text, format!("00:16:42.000  {text}"));
}

#[test]
fn orders_are_bounded_and_leaving_asks_while_one_is_under_way() {
    let mut model = model();
    assert_eq!(type_in(&mut model, "q"), [Action::Leave]);
    for _ in 0..ORDERS_MAX {
        assert_eq!(type_in(&mut model, "h").len(), 1);
    }
    assert_eq!(type_in(&mut model, "h"), []);
    assert!(model.message.as_ref().unwrap().text.starts_with("8 orders are under way"));
    assert_eq!(type_in(&mut model, "q"), []);
    assert_eq!(type_in(&mut model, "xn"), []);
    assert!(model.question.is_none());
    assert_eq!(type_in(&mut model, "qy"), [Action::Leave]);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.handle(Input::Key(interrupt), 1.0), [Action::Leave], "^C asks nothing");
}

#[test]
fn a_node_is_emptied_only_after_a_question() {
    let mut model = model();
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Down);
    assert_eq!(type_in(&mut model, "e"), []);
    assert_eq!(model.question.as_ref().unwrap().text, "expel the 1 guests of node 2 (two)?");
    assert_eq!(type_in(&mut model, "n"), []);
    let drained = Order::Owner(NodeId(2), OwnerOrder::Drain { on: true });
    assert_eq!(type_in(&mut model, "dy"), [Action::Ask(drained)]);
    assert_eq!(type_in(&mut model, "u").len(), 2);
    assert_eq!(type_in(&mut model, "h"), [], "which is for processes");
}

#[test]
fn a_filter_hides_as_it_is_typed_and_escape_takes_it_back() {
    let mut model = model();
    type_in(&mut model, "/node:2");
    assert_eq!(shown(&model), [11]);
    press(&mut model, KeyCode::Enter);
    assert_eq!((shown(&model), selected(&model)), (vec![11], 11));
    type_in(&mut model, "/ nothing");
    assert_eq!(shown(&model), [0; 0]);
    press(&mut model, KeyCode::Esc);
    assert_eq!(shown(&model), [11], "as before it was typed");
    press(&mut model, KeyCode::Esc);
    assert_eq!(shown(&model), [10, 11, 12]);
}

#[test]
fn keys_and_clicks_sort() {
    let mut model = model();
    type_in(&mut model, ":sort pid\n");
    assert_eq!(shown(&model), [10, 11, 12]);
    type_in(&mut model, "r");
    assert_eq!(shown(&model), [12, 11, 10]);
    let head = model.areas().unwrap().process_head;
    let click = |model: &mut Model, x, y, kind| {
        let modifiers = KeyModifiers::NONE;
        model.handle(Input::Mouse(MouseEvent { kind, column: x, row: y, modifiers }), 1.0);
    };
    let left = MouseEventKind::Down(MouseButton::Left);
    click(&mut model, 20, head.y, left);
    assert_eq!(model.sorting.by, crate::table::Column::Home);
    let list = model.areas().unwrap().processes;
    click(&mut model, 5, list.y + 2, left);
    assert_eq!(selected(&model), 12);
    click(&mut model, 5, list.y, MouseEventKind::ScrollUp);
    assert_eq!(selected(&model), 10);
    let nodes = model.areas().unwrap().nodes;
    click(&mut model, 5, nodes.y + 1, left);
    assert_eq!((model.focus, model.selected_node().unwrap().id), (Focus::Nodes, NodeId(2)));
}

#[test]
fn what_is_chosen_stays_selected_when_rows_change_places() {
    let mut model = model();
    press(&mut model, KeyCode::Down);
    let mut busy = process(1, 12, 1);
    busy.cpu_s = 9.0;
    look(&mut model, &[process(1, 10, 1), process(1, 11, 2), busy], 1.0);
    assert_eq!((shown(&model), selected(&model)), (vec![12, 10, 11], 11));
}

#[test]
fn a_move_is_seen_by_its_event_and_marked_for_some_seconds() {
    let mut model = model();
    let node_of = |model: &Model, at: usize| model.picture.processes[at].node.0;
    model.handle(Input::Happened(Box::new(migrated(1, 10, 3, 900.0))), 1.0);
    assert!(!model.is_marked(key(1, 10)), "that was long ago");
    model.handle(Input::Happened(Box::new(migrated(1, 10, 3, 1001.0))), 1.0);
    assert!(model.is_marked(key(1, 10)) && node_of(&model, 0) == 3);
    look(&mut model, &[process(1, 10, 3), process(1, 11, 1), process(1, 12, 1)], 2.0);
    assert!(model.is_marked(key(1, 11)), "it has moved since the last picture");
    assert_eq!(model.next_tick_s(2.0), Some(4.0));
    assert!(model.has_changed() && !model.has_changed());
    model.handle(Input::Tick, 6.5);
    assert!(!model.is_marked(key(1, 10)) && model.is_marked(key(1, 11)));
    assert!(model.has_changed());
    model.handle(Input::Tick, 6.6);
    assert!(!model.has_changed(), "nothing is drawn for nothing");
}

#[test]
fn a_daemon_that_is_gone_is_said_until_there_is_a_picture_again() {
    let mut model = model();
    model.handle(Input::Lost("no osmos daemon\x07 here".into()), 1.0);
    assert_eq!(model.lost.as_deref(), Some("no osmos daemon? here"));
    assert_eq!(shown(&model), [10, 11, 12], "the last picture stays");
    look(&mut model, &[], 2.0);
    assert_eq!((model.lost.as_deref(), model.stale_for(6.9)), (None, None));
    assert_eq!(model.stale_for(9.0), Some(7.0));
}

#[test]
fn a_text_is_opened_scrolled_and_closed() {
    let mut model = model();
    let order = Order::Why(key(1, 10));
    let text: String = (0..100).map(|line| format!("{line}\n")).collect();
    model.handle(Input::Answered(Answer { order, result: Ok(text) }), 1.0);
    press(&mut model, KeyCode::End);
    assert_eq!(model.panel_top, 100 - 21, "the last lines are seen");
    press(&mut model, KeyCode::Up);
    assert_eq!(model.panel_top, 78);
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.panel, None);
    type_in(&mut model, "?");
    assert_eq!(model.panel, Some(Panel::Help));
    assert_eq!(type_in(&mut model, "h").len(), 1, "other keys do what they do");
    assert_eq!(model.panel, None);
}

#[test]
fn pictures_that_are_the_same_change_nothing() {
    let mut model = model();
    let processes = [process(1, 10, 1), process(1, 11, 2), process(1, 12, 1)];
    look(&mut model, &processes, 3.5);
    assert!(model.has_changed(), "they are known to be idle now");
    look(&mut model, &processes, 4.5);
    assert!(!model.has_changed());
    model.handle(Input::Happened(Box::new(joined(4, 1004.0))), 4.5);
    assert!(model.has_changed());
}
