//! A text over the lists: help, the reasons of a process, all events.

use super::{HEAD, put, put_right};
use crate::model::{Model, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

pub fn draw(model: &Model, open: &Panel, area: Rect, buffer: &mut Buffer) {
    let head = Rect { height: 1, ..area };
    let title = match open {
        Panel::Help => "help",
        Panel::Why(_) => "why",
        Panel::Events => "events and refusals",
    };
    buffer.set_style(head, HEAD);
    put(buffer, head, title, HEAD);
    let lines = model.panel_lines(area.width);
    let room = usize::from(area.height.saturating_sub(1));
    let last = (model.panel_top + room).min(lines.len());
    let place = format!("{last}/{}  Esc closes", lines.len());
    put_right(buffer, head, &place, HEAD);
    let rows = area.top() + 1..area.bottom();
    for (line, y) in lines.iter().skip(model.panel_top).zip(rows) {
        put(buffer, Rect { y, height: 1, ..area }, line, Style::new());
    }
}
