//! What is on the screen, and what becomes of it: pictures, events, answers and keys come in,
//! orders go out. No clock and no terminal; time is an argument, seconds on any clock.

mod keys;
mod log;
mod orders;
mod prompt;
mod selection;

pub use orders::{Action, Answer, ORDERS_MAX, Order};
pub use prompt::{Prompt, Question};

use crate::areas::{Areas, areas};
use crate::filter::Filter;
use crate::table::{Row, Sorting, rows};
use crate::wording::Wording;
use client::picture::{NodeRow, Picture, ProcessRow};
use client::rates::Rates;
use client::words::printable;
use log::Log;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Rect;
use selection::Selection;
use std::collections::{HashMap, HashSet};
use wire::control::Event;
use wire::ids::{GlobalPid, NodeId};

/// For how long a process that has moved is marked.
pub const MARKED_S: f64 = 5.0;
/// A picture that is older than this, and than so many times the usual, is an old one.
const STALE_S: f64 = 5.0;
const STALE_TIMES: f64 = 3.0;

/// What a model is told.
#[derive(Clone, Debug)]
pub enum Input {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Resized(u16, u16),
    Picture(Box<Picture>),
    /// No daemon answers.
    Lost(String),
    Happened(Box<Event>),
    Answered(Answer),
    /// Time has passed.
    Tick,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    #[default]
    Processes,
    Nodes,
}

/// A text over the lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Panel {
    Help,
    Why(String),
    Events,
}

/// The last word on what the user has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub is_refusal: bool,
}

pub struct Model {
    pub picture: Picture,
    pub rates: Rates,
    pub rows: Vec<Row>,
    pub filter: Filter,
    pub sorting: Sorting,
    pub is_tree: bool,
    pub focus: Focus,
    pub panel: Option<Panel>,
    /// First line of the panel that is shown.
    pub panel_top: usize,
    pub prompt: Option<Prompt>,
    pub question: Option<Question>,
    pub message: Option<Message>,
    pub processes: Selection<GlobalPid>,
    pub nodes: Selection<NodeId>,
    pub log: Log,
    /// Why there are no new pictures.
    pub lost: Option<String>,
    screen: Rect,
    /// Orders that have no answer yet.
    under_way: usize,
    marked_until: HashMap<GlobalPid, f64>,
    pictured_s: Option<f64>,
    pace: Pace,
    now_s: f64,
    has_changed: bool,
}

/// How fast time goes by.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two pictures.
    pub delay_s: f64,
    /// What the time since the epoch is when the model's clock shows 0.
    pub epoch_s: f64,
}

impl Model {
    pub fn new((width, height): (u16, u16), pace: Pace, wording: Wording) -> Model {
        Model {
            picture: Picture::default(),
            rates: Rates::default(),
            rows: Vec::new(),
            filter: Filter::default(),
            sorting: Sorting::default(),
            is_tree: false,
            focus: Focus::default(),
            panel: None,
            panel_top: 0,
            prompt: None,
            question: None,
            message: None,
            processes: Selection::default(),
            nodes: Selection::default(),
            log: Log::new(wording),
            lost: None,
            screen: Rect::new(0, 0, width, height),
            under_way: 0,
            marked_until: HashMap::new(),
            pictured_s: None,
            pace,
            now_s: 0.0,
            has_changed: true,
        }
    }

    pub fn handle(&mut self, input: Input, now_s: f64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.now_s = now_s;
        match input {
            Input::Key(key) => actions = self.on_key(key),
            Input::Mouse(mouse) => self.on_mouse(mouse),
            Input::Resized(width, height) => self.screen = Rect::new(0, 0, width, height),
            Input::Picture(picture) => return self.take_picture(*picture, now_s),
            Input::Lost(why) => self.lost = Some(printable(&why)),
            Input::Happened(event) => self.take_event(&event, now_s),
            Input::Answered(answer) => actions = self.take_answer(answer),
            Input::Tick => {
                let before = self.marked_until.len();
                self.marked_until.retain(|_, until| *until > now_s);
                let has_faded = self.marked_until.len() != before;
                self.has_changed |= has_faded || self.stale_for(now_s).is_some();
                return actions;
            }
        }
        self.scroll();
        self.has_changed = true;
        actions
    }

    /// Whether there is something to draw, asked once.
    pub fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// In how many seconds a tick changes something, if nothing else comes.
    pub fn next_tick_s(&self, now_s: f64) -> Option<f64> {
        let fades = self.marked_until.values().copied().reduce(f64::min);
        let stale = self.pictured_s.map(|pictured| {
            let since = now_s - pictured;
            // Once it is old, its age is shown by the second.
            if since < self.stale_after_s() { pictured + self.stale_after_s() } else { now_s + 1.0 }
        });
        let next = [fades, stale].into_iter().flatten().reduce(f64::min)?;
        Some((next - now_s).max(0.05))
    }

    fn stale_after_s(&self) -> f64 {
        STALE_S.max(self.pace.delay_s * STALE_TIMES)
    }

    /// For how many seconds there has been no picture, if that is too long.
    pub fn stale_for(&self, now_s: f64) -> Option<f64> {
        let since = now_s - self.pictured_s?;
        (since >= self.stale_after_s()).then_some(since)
    }

    pub fn has_picture(&self) -> bool {
        self.pictured_s.is_some()
    }

    fn take_picture(&mut self, picture: Picture, now_s: f64) -> Vec<Action> {
        self.mark_moved(&picture, now_s);
        let have_rates_changed = self.rates.take_in(&picture, now_s);
        let is_same = self.picture == picture && self.pictured_s.is_some() && self.lost.is_none();
        self.pictured_s = Some(now_s);
        self.lost = None;
        self.picture = picture;
        self.sort();
        self.has_changed |= !is_same || have_rates_changed;
        Vec::new()
    }

    /// Marks what is elsewhere than on the last picture.
    fn mark_moved(&mut self, picture: &Picture, now_s: f64) {
        let before: HashMap<GlobalPid, NodeId> =
            self.picture.processes.iter().map(|process| (process.key, process.node)).collect();
        for process in &picture.processes {
            if before.get(&process.key).is_some_and(|node| *node != process.node) {
                self.marked_until.insert(process.key, now_s + MARKED_S);
            }
        }
        let there: HashSet<GlobalPid> = picture.processes.iter().map(|p| p.key).collect();
        self.marked_until.retain(|key, until| *until > now_s && there.contains(key));
    }

    fn take_event(&mut self, event: &Event, now_s: f64) {
        self.log.take_in(event);
        let Some((process, to)) = log::moved_to(event) else { return };
        // What was recorded before is told first.
        if event.time + MARKED_S < self.pace.epoch_s + now_s {
            return;
        }
        // The next picture says it, too, but later.
        if let Some(row) = self.picture.processes.iter_mut().find(|row| row.key == process) {
            row.node = to;
            self.marked_until.insert(process, now_s + MARKED_S);
            self.sort();
        }
    }

    pub fn is_marked(&self, process: GlobalPid) -> bool {
        self.marked_until.contains_key(&process)
    }

    fn take_answer(&mut self, answer: Answer) -> Vec<Action> {
        self.under_way = self.under_way.saturating_sub(1);
        match answer.result {
            Ok(text) if matches!(answer.order, Order::Why(_)) => {
                self.message = None;
                self.open(Panel::Why(text));
            }
            Ok(text) => self.say(text, false),
            Err(text) => self.say(text, true),
        }
        vec![Action::Look]
    }

    /// The lowest line. What was refused is a line among the events, too: the next message does not
    /// take it away.
    fn say(&mut self, text: String, is_refusal: bool) {
        let text = printable(text.trim_end());
        if is_refusal {
            self.log.note(self.pace.epoch_s + self.now_s, &text);
        }
        self.message = Some(Message { text, is_refusal });
    }

    fn open(&mut self, panel: Panel) {
        self.panel_top = if panel == Panel::Events { usize::MAX } else { 0 };
        self.panel = Some(panel);
    }

    /// Sends an order off, unless too many are under way.
    fn order(&mut self, order: Order) -> Vec<Action> {
        if self.under_way >= ORDERS_MAX {
            let text =
                format!("{ORDERS_MAX} orders are under way: wait until one of them is answered");
            self.say(text, true);
            return Vec::new();
        }
        self.under_way += 1;
        self.message =
            Some(Message { text: format!("{} ...", order.sentence()), is_refusal: false });
        vec![Action::Ask(order)]
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Rows anew, with the same process selected if it is still there.
    fn sort(&mut self) {
        let Model { picture, filter, sorting, is_tree, rates, .. } = self;
        self.rows = rows(picture, filter, *sorting, *is_tree, rates);
        self.scroll();
    }

    /// Has what is selected be among what is shown.
    fn scroll(&mut self) {
        let Some(Areas { nodes, processes, panel, .. }) = self.areas() else { return };
        let (rows, all) = (&self.rows, &self.picture.processes);
        self.processes.settle(rows.len(), processes.height.into(), |at| all[rows[at].index].key);
        let all = &self.picture.nodes;
        self.nodes.settle(all.len(), nodes.height.into(), |at| all[at].id);
        let lines = self.panel_lines(panel.width).len();
        let most = (lines + 1).saturating_sub(panel.height.into());
        self.panel_top = self.panel_top.min(most);
    }

    pub fn areas(&self) -> Option<Areas> {
        areas(self.screen, self.picture.nodes.len(), self.focus == Focus::Nodes)
    }

    /// The process that orders are about.
    pub fn selected_process(&self) -> Option<&ProcessRow> {
        let row = self.rows.get(self.processes.at())?;
        self.picture.processes.get(row.index)
    }

    pub fn selected_node(&self) -> Option<&NodeRow> {
        self.picture.nodes.get(self.nodes.at())
    }

    /// What the panel says, in lines of that width at most.
    pub fn panel_lines(&self, width: u16) -> Vec<String> {
        let width = usize::from(width.max(1));
        let fold = |text: &str| -> Vec<String> {
            text.lines().flat_map(|line| folded(&printable(line), width)).collect()
        };
        match &self.panel {
            None => Vec::new(),
            Some(Panel::Help) => fold(keys::HELP),
            Some(Panel::Why(text)) => fold(text),
            Some(Panel::Events) => {
                self.log.lines().flat_map(|line| folded(&line.text, width)).collect()
            }
        }
    }
}

/// A line in parts of at most so many characters.
fn folded(line: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars.chunks(width).map(|part| part.iter().collect()).collect()
}

#[cfg(test)]
mod test;
