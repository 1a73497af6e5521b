//! What each key and each click does, where nothing is typed and nothing asked.

use super::prompt::{PromptKind, Question, Typed};
use super::{Action, Focus, Model, Order, Panel};
use crate::table::{Sorting, columns};
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;
use wire::control::Destination;
use wire::ids::GlobalPid;
use wire::owner::OwnerOrder;

/// Rows that the wheel goes on at once.
const WHEEL_ROWS: isize = 3;

pub(super) const HELP: &str = "\
Up Down PgUp PgDn Home End   select a process or, after Tab, a node
Tab                          from processes to nodes and back
/                            filter: words, user:NAME node:N home:N state:S
                             (Esc: all)
< > r                        sort by another column, reverse; or click on a head
t                            tree: processes below their parents
w Enter                      why is it there? places, decisions, moves
m                            migrate it: to a node, `home` or `best`
h                            bring it home
p                            pin it where it is
k                            send it a signal
v                            all events, and what was refused here
e d u                        node: expel guests, drain it, take guests again
:                            migrate 3, home, pin, signal TERM, why, expel,
                             drain, undrain, sort CPU, filter WORDS, quit
^L                           draw the screen anew
^Z                           stop; `fg` goes on
q ^C                         leave

`*` marks a process that has just moved. CPU is of one core. Times are UTC.";

impl Model {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return vec![Action::Leave],
                KeyCode::Char('z') => return vec![Action::Suspend],
                KeyCode::Char('l') => return vec![Action::Redraw],
                _ => {}
            }
        }
        if let Some(question) = self.question.take() {
            return self.on_answer_to(question, key.code);
        }
        if let Some(mut prompt) = self.prompt.take() {
            let typed = prompt.on_key(key);
            return self.on_typed(prompt, typed);
        }
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return Vec::new();
        }
        // It has been read, and is among the events.
        self.message = None;
        match self.panel {
            Some(_) => self.on_panel_key(key.code),
            None => self.on_list_key(key.code),
        }
        .unwrap_or_else(|| self.on_common_key(key.code))
    }

    fn on_typed(&mut self, prompt: super::Prompt, typed: Typed) -> Vec<Action> {
        match typed {
            Typed::More => {
                if let PromptKind::Filter { .. } = prompt.kind {
                    self.set_filter(&prompt.text);
                }
                self.prompt = Some(prompt);
                Vec::new()
            }
            Typed::GivenUp => {
                self.message = None;
                if let PromptKind::Filter { before } = &prompt.kind {
                    self.set_filter(before);
                }
                Vec::new()
            }
            Typed::Done => match self.obey(&prompt) {
                Ok(actions) => actions,
                // What was typed stays there to be mended.
                Err(complaint) => {
                    self.say(complaint, true);
                    self.prompt = Some(prompt);
                    Vec::new()
                }
            },
        }
    }

    fn on_answer_to(&mut self, question: Question, key: KeyCode) -> Vec<Action> {
        match key {
            KeyCode::Char('y' | 'Y') => match question.order {
                Some(order) => self.order(order),
                None => vec![Action::Leave],
            },
            KeyCode::Char('n' | 'N') | KeyCode::Esc => Vec::new(),
            _ => {
                self.question = Some(question);
                Vec::new()
            }
        }
    }

    /// None for a key that means here what it means elsewhere.
    fn on_panel_key(&mut self, key: KeyCode) -> Option<Vec<Action>> {
        let page = self.areas().map_or(1, |areas| usize::from(areas.panel.height.max(3) - 2));
        let top = self.panel_top;
        self.panel_top = match key {
            KeyCode::Up => top.saturating_sub(1),
            KeyCode::Down => top.saturating_add(1),
            KeyCode::PageUp => top.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => top.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
                self.panel = None;
                0
            }
            // Any other key is for the lists, which are seen again.
            _ => {
                self.panel = None;
                return self.on_list_key(key);
            }
        };
        Some(Vec::new())
    }

    fn on_list_key(&mut self, key: KeyCode) -> Option<Vec<Action>> {
        if self.go(key) {
            return Some(Vec::new());
        }
        match self.focus {
            Focus::Processes => self.on_process_key(key),
            Focus::Nodes => self.on_node_key(key),
        }
    }

    /// Moves the selection, if that is what the key is for.
    fn go(&mut self, key: KeyCode) -> bool {
        let Some(areas) = self.areas() else { return false };
        let area = if self.focus == Focus::Nodes { areas.nodes } else { areas.processes };
        let page = isize::try_from(area.height).unwrap_or(1).max(2) - 1;
        let rows = match key {
            KeyCode::Up => -1,
            KeyCode::Down => 1,
            KeyCode::PageUp => -page,
            KeyCode::PageDown => page,
            KeyCode::Home => isize::MIN,
            KeyCode::End => isize::MAX,
            _ => return false,
        };
        match self.focus {
            Focus::Processes => self.processes.step(rows),
            Focus::Nodes => self.nodes.step(rows),
        }
        true
    }

    fn on_process_key(&mut self, key: KeyCode) -> Option<Vec<Action>> {
        if !matches!(key, KeyCode::Enter | KeyCode::Char('w' | 'm' | 'h' | 'p' | 'k')) {
            return None;
        }
        let Some((process, node)) = self.selected_process().map(|row| (row.key, row.node)) else {
            self.say("no process is selected: the list is empty".to_owned(), true);
            return Some(Vec::new());
        };
        self.processes.keep();
        Some(match key {
            KeyCode::Char('m') => self.prompt_for(PromptKind::Migrate(process)),
            KeyCode::Char('k') => self.prompt_for(PromptKind::Signal(process)),
            KeyCode::Char('h') => self.order(Order::Migrate(process, Destination::Home)),
            KeyCode::Char('p') => self.order(Order::Pin(process, node)),
            _ => self.order(Order::Why(process)),
        })
    }

    fn on_node_key(&mut self, key: KeyCode) -> Option<Vec<Action>> {
        match key {
            KeyCode::Char('e') => self.ask_node(OwnerOrder::Expel),
            KeyCode::Char('d') => self.ask_node(OwnerOrder::Drain { on: true }),
            KeyCode::Char('u') => return Some(self.reopen_node()),
            _ => return None,
        }
        Some(Vec::new())
    }

    /// Asks whether the selected node is really to be emptied.
    pub(super) fn ask_node(&mut self, order: OwnerOrder) {
        self.nodes.keep();
        let Some(node) = self.selected_node() else { return };
        self.question = Some(Question::about_node(node, order));
    }

    /// Takes back what was ordered to empty the selected node.
    pub(super) fn reopen_node(&mut self) -> Vec<Action> {
        self.nodes.keep();
        let Some(node) = self.selected_node().map(|node| node.id) else { return Vec::new() };
        let mut actions = self.order(Order::Owner(node, OwnerOrder::Drain { on: false }));
        actions.extend(self.order(Order::Owner(node, OwnerOrder::Block { on: false })));
        actions
    }

    fn on_common_key(&mut self, key: KeyCode) -> Vec<Action> {
        match key {
            KeyCode::Char('q') => return self.leave(),
            KeyCode::Char('?') => self.open(Panel::Help),
            KeyCode::Char('v') => self.open(Panel::Events),
            KeyCode::Char('/') => {
                let before = self.filter.text().to_owned();
                return self.prompt_for(PromptKind::Filter { before });
            }
            KeyCode::Char(':') => return self.prompt_for(PromptKind::Command),
            KeyCode::Char('<') => self.sort_by(self.sorting.by.beside(false)),
            KeyCode::Char('>') => self.sort_by(self.sorting.by.beside(true)),
            KeyCode::Char('r') => {
                self.sorting.is_reversed = !self.sorting.is_reversed;
                self.sort();
            }
            KeyCode::Char('t') => {
                self.is_tree = !self.is_tree;
                self.sort();
            }
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = match self.focus {
                    Focus::Processes => Focus::Nodes,
                    Focus::Nodes => Focus::Processes,
                };
            }
            KeyCode::Esc => {
                self.message = None;
                self.set_filter("");
            }
            _ => {}
        }
        Vec::new()
    }

    /// Moves are called off when who ordered them is gone.
    fn leave(&mut self) -> Vec<Action> {
        if self.under_way() == 0 {
            return vec![Action::Leave];
        }
        self.question = Some(Question::about_leaving(self.under_way()));
        Vec::new()
    }

    pub(super) fn sort_by(&mut self, by: crate::table::Column) {
        let is_same = self.sorting.by == by;
        let is_reversed = is_same && !self.sorting.is_reversed;
        self.sorting = Sorting { by, is_reversed };
        self.sort();
    }

    pub(super) fn on_mouse(&mut self, mouse: MouseEvent) {
        let Some(areas) = self.areas() else { return };
        let at = Position { x: mouse.column, y: mouse.row };
        let wheel = match mouse.kind {
            MouseEventKind::ScrollUp => -WHEEL_ROWS,
            MouseEventKind::ScrollDown => WHEEL_ROWS,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return,
        };
        if self.panel.is_some() {
            self.panel_top = self.panel_top.saturating_add_signed(wheel);
            return;
        }
        let row = |top: u16| usize::from(at.y.saturating_sub(top));
        if areas.nodes.contains(at) {
            match wheel {
                0 => {
                    self.focus = Focus::Nodes;
                    self.nodes.choose(self.nodes.top() + row(areas.nodes.y));
                }
                rows => self.nodes.step(rows),
            }
        } else if areas.processes.contains(at) {
            match wheel {
                0 => {
                    self.focus = Focus::Processes;
                    self.processes.choose(self.processes.top() + row(areas.processes.y));
                }
                rows => self.processes.step(rows),
            }
        } else if areas.process_head.contains(at) && wheel == 0 {
            let under = |placed: &crate::table::Placed| at.x < placed.x + placed.width + 1;
            if let Some(placed) = columns(areas.process_head.width).into_iter().find(under) {
                self.sort_by(placed.column);
            }
        }
    }

    pub(super) fn selected_key(&mut self) -> Result<GlobalPid, String> {
        self.processes.keep();
        let key = self.selected_process().map(|process| process.key);
        key.ok_or_else(|| "no process is selected: the list is empty".to_owned())
    }
}
