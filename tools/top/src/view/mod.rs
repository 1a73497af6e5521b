//! The model as characters on a screen. Only what is seen is made, so that a thousand nodes cost
//! what three do.
//!
//! Nothing is told by colour alone: what is selected is reversed, what has moved has a mark.

mod lists;
mod panel;

use crate::areas::{Areas, HEIGHT_MIN, WIDTH_MIN};
use crate::model::{Focus, Model};
use client::words::counted;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub has_colours: bool,
    /// Otherwise bars are of `#`.
    pub is_unicode: bool,
}

impl Look {
    fn colour(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }
}

const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws all of the model.
pub fn draw(model: &Model, look: Look, now_s: f64, frame: &mut Frame<'_>) {
    let screen = frame.area();
    let areas = model.areas().filter(|areas| screen.intersection(areas.bottom) == areas.bottom);
    let Some(areas) = areas else {
        let text = format!("too small: {WIDTH_MIN}x{HEIGHT_MIN} at least");
        put(frame.buffer_mut(), screen, &text, Style::new());
        return;
    };
    let buffer = frame.buffer_mut();
    title(model, look, now_s, areas.title, buffer);
    match &model.panel {
        Some(open) => panel::draw(model, open, areas.panel, buffer),
        None => {
            lists::nodes(model, look, &areas, buffer);
            lists::processes(model, look, &areas, buffer);
            events(model, areas.events, buffer);
            detail(model, look, areas.detail, buffer);
        }
    }
    if let Some(cursor) = bottom(model, look, &areas, buffer) {
        frame.set_cursor_position(cursor);
    }
}

/// Text in the first line of an area, cut where the area ends.
fn put(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    let area = area.intersection(buffer.area);
    if !area.is_empty() {
        buffer.set_stringn(area.x, area.y, text, area.width.into(), style);
    }
}

/// The same, with its end where the area ends. A number that is too long is seen to be cut: half of
/// it would be another number.
fn put_right(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    let count = text.chars().count();
    if count > area.width.into() {
        let begin = text.chars().take(usize::from(area.width).saturating_sub(1));
        return put(buffer, area, &begin.chain(['+']).collect::<String>(), style);
    }
    let width = u16::try_from(count).unwrap_or(area.width);
    put(buffer, Rect { x: area.x + area.width - width, width, ..area }, text, style);
}

fn title(model: &Model, look: Look, now_s: f64, area: Rect, buffer: &mut Buffer) {
    let trouble = trouble(model, now_s);
    let mut text = summary(model);
    if !model.filter.is_empty() {
        text = format!("{text}; {} shown by /{}", model.rows.len(), model.filter.text());
    }
    let text = match &trouble {
        None => text,
        // What is wrong comes first where there is no room for both.
        Some(trouble) => format!("{trouble}; {text}"),
    };
    let style = if trouble.is_some() { STRONG.patch(look.colour(Color::Red)) } else { STRONG };
    put(buffer, area, &format!("osmos: {text}"), style);
}

fn summary(model: &Model) -> String {
    let picture = &model.picture;
    let counted_of = |count: usize, one, many| counted(count as u64, one, many);
    let nodes = counted_of(picture.nodes.len(), "node", "nodes");
    let alive = picture.nodes.iter().filter(|node| node.state == "alive").count();
    let processes = counted_of(picture.processes.len(), "process", "processes");
    let away = picture.processes.iter().filter(|process| process.is_away()).count();
    let left_out = match picture.left_out {
        0 => String::new(),
        count => format!(", {count} more left out"),
    };
    format!("{nodes}, {alive} alive; {processes}, {away} away{left_out}")
}

/// Why the picture is not what it should be.
fn trouble(model: &Model, now_s: f64) -> Option<String> {
    if let Some(lost) = &model.lost {
        return Some(format!("no picture, trying again: {lost}"));
    }
    if !model.has_picture() {
        return Some("waiting for the first picture".to_owned());
    }
    if let Some(old_s) = model.stale_for(now_s) {
        return Some(format!("this picture is {old_s:.0} s old"));
    }
    let silent = &model.picture.silent;
    let (node, why) = silent.first_key_value()?;
    Some(match silent.len() {
        1 => format!("no processes of node {node}: {why}"),
        count => format!("no processes of {count} nodes; node {node}: {why}"),
    })
}

fn events(model: &Model, area: Rect, buffer: &mut Buffer) {
    let last = model.log.lines().rev().take(area.height.into());
    for (line, y) in last.zip((area.top()..area.bottom()).rev()) {
        let style = Style::new().add_modifier(Modifier::DIM);
        put(buffer, Rect { y, height: 1, ..area }, &line.text, style);
    }
}

fn detail(model: &Model, look: Look, area: Rect, buffer: &mut Buffer) {
    let is_typing = model.prompt.is_some();
    let text = match (&model.message, model.focus) {
        // The lowest line is taken.
        (Some(message), _) if is_typing => message.text.clone(),
        (_, Focus::Processes) => model.selected_process().map_or_else(String::new, |process| {
            format!("{}: {} | {}", process.key.pid, process.reason, process.command)
        }),
        (_, Focus::Nodes) => model.selected_node().map_or_else(String::new, |node| {
            let silent = model.picture.silent.get(&node.id);
            let silent = silent.map_or_else(String::new, |why| format!(": {why}"));
            let name = if node.name.is_empty() { "" } else { " " };
            format!("node {}{name}{} at {}{silent}", node.id, node.name, node.address)
        }),
    };
    put(buffer, area, &text, STRONG.patch(look.colour(Color::Cyan)));
}

const PROCESS_KEYS: &str =
    "? help / filter w why m migrate h home p pin k signal t tree Tab nodes q leave";
const NODE_KEYS: &str = "? help e expel d drain u take guests again Tab processes v events q leave";

/// The lowest line; returns where the cursor is, if something is typed.
fn bottom(model: &Model, look: Look, areas: &Areas, buffer: &mut Buffer) -> Option<Position> {
    let area = areas.bottom;
    if let Some(question) = &model.question {
        put(buffer, area, &format!("{} (y/n)", question.text), STRONG);
        return None;
    }
    if let Some(prompt) = &model.prompt {
        let label = prompt.label();
        let room = usize::from(area.width).saturating_sub(label.chars().count() + 1);
        let hidden = prompt.text.chars().count().saturating_sub(room);
        let shown: String = prompt.text.chars().skip(hidden).collect();
        let line = format!("{label}{shown}");
        let (end, _) = buffer.set_stringn(area.x, area.y, line, area.width.into(), STRONG);
        return Some(Position { x: end.min(area.right().saturating_sub(1)), y: area.y });
    }
    match (&model.message, model.focus) {
        (Some(message), _) => {
            let colour = if message.is_refusal { Color::Red } else { Color::Green };
            put(buffer, area, &message.text, STRONG.patch(look.colour(colour)));
        }
        (None, Focus::Processes) => put(buffer, area, PROCESS_KEYS, Style::new()),
        (None, Focus::Nodes) => put(buffer, area, NODE_KEYS, Style::new()),
    }
    None
}

#[cfg(test)]
mod test;
