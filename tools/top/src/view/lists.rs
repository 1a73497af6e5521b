//! The two lists: nodes with their bars, processes in their table.

use super::{HEAD, Look, STRONG, put, put_right};
use crate::areas::Areas;
use crate::model::{Focus, Model};
use crate::table::{Column, Placed, columns};
use client::picture::{NodeRow, ProcessRow};
use client::words::{bar, bytes, seconds};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// A load that fills a bar, if no node has more: one process a core is not a full bar by itself.
const LOAD_FULL: f64 = 2.0;
/// How deep a tree is drawn.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Id,
    Name,
    State,
    LoadBar,
    Load,
    Cores,
    Speed,
    MemoryBar,
    Memory,
    Guests,
}

impl Part {
    const ALL: [(Part, &'static str, bool); 10] = [
        (Part::Id, "NODE", true),
        (Part::Name, "NAME", false),
        (Part::State, "STATE", false),
        (Part::LoadBar, "LOAD/CORE", false),
        (Part::Load, "", true),
        (Part::Cores, "CORES", true),
        (Part::Speed, "SPEED", true),
        (Part::MemoryBar, "MEMORY", false),
        (Part::Memory, "", true),
        (Part::Guests, "GUESTS", true),
    ];
}

/// Where the parts of a node's line are on a screen of that width.
fn parts(width: u16) -> impl Iterator<Item = (Part, &'static str, bool, u16, u16)> {
    // What all but the name and the bars take.
    const FIXED: u16 = 4 + 7 + 5 + 5 + 5 + 11 + 6 + 9;
    let rest = width.saturating_sub(FIXED);
    let name = (rest * 5 / 14).min(24);
    let load_bar = (rest * 5 / 14).min(30);
    let memory_bar = (rest - name - load_bar).min(30);
    let mut x = 0u16;
    Part::ALL.into_iter().map(move |(part, title, is_right)| {
        let own = match part {
            Part::Id => 4,
            Part::Name => name,
            Part::State => 7,
            Part::LoadBar => load_bar,
            Part::Load | Part::Cores | Part::Speed => 5,
            Part::MemoryBar => memory_bar,
            Part::Memory => 11,
            Part::Guests => 6,
        };
        let at = x;
        x = x.saturating_add(own + 1);
        (part, title, is_right, at, own)
    })
}

pub fn nodes(model: &Model, look: Look, areas: &Areas, buffer: &mut Buffer) {
    let (head, list) = (areas.node_head, areas.nodes);
    buffer.set_style(head, HEAD);
    for (_, title, is_right, x, width) in parts(head.width) {
        write(buffer, cut(head, x, width), title, HEAD, is_right);
    }
    let loads = model.picture.nodes.iter().map(|node| node.load);
    let full = loads.filter(|load| load.is_finite()).fold(LOAD_FULL, f64::max);
    let shown = model.picture.nodes.iter().enumerate().skip(model.nodes.top());
    for ((at, node), y) in shown.zip(list.top()..list.bottom()) {
        let line = Rect { y, height: 1, ..list };
        for (part, _, is_right, x, width) in parts(list.width) {
            let text = node_text(node, part, width, full, look);
            let style = node_style(node, part, look);
            write(buffer, cut(line, x, width), &text, style, is_right);
        }
        if at == model.nodes.at() && model.focus == Focus::Nodes {
            buffer.set_style(line, HEAD);
        }
    }
}

fn node_text(node: &NodeRow, part: Part, width: u16, load_full: f64, look: Look) -> String {
    let used = node.memory_used_bytes();
    match part {
        Part::Id => node.id.to_string(),
        Part::Name if node.name.is_empty() => node.address.clone(),
        Part::Name => node.name.clone(),
        Part::State => node.state.clone(),
        Part::LoadBar => bar_of(node.load / load_full, width, look),
        Part::Load => format!("{:.2}", node.load),
        Part::Cores => format!("{:.1}", node.cores),
        Part::Speed => format!("{:.2}", node.speed),
        Part::MemoryBar => {
            let share = used as f64 / node.memory_total_bytes.max(1) as f64;
            bar_of(share, width, look)
        }
        Part::Memory => format!("{}/{}", bytes(used), bytes(node.memory_total_bytes)),
        Part::Guests if node.takes_guests => node.guests.to_string(),
        Part::Guests => format!("{} no", node.guests),
    }
}

fn node_style(node: &NodeRow, part: Part, look: Look) -> Style {
    match part {
        Part::Id if node.is_asked => STRONG,
        Part::State => match node.state.as_str() {
            "alive" => look.colour(Color::Green),
            "suspect" => STRONG.patch(look.colour(Color::Yellow)),
            _ => STRONG.patch(look.colour(Color::Red)),
        },
        Part::LoadBar if node.load > 1.0 => look.colour(Color::Yellow),
        Part::LoadBar => look.colour(Color::Green),
        Part::MemoryBar => look.colour(Color::Cyan),
        _ => Style::new(),
    }
}

/// An empty bar is seen as well, where characters are plain.
fn bar_of(share: f64, width: u16, look: Look) -> String {
    let columns = usize::from(width);
    if look.is_unicode {
        return bar(share, columns);
    }
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * columns as f64).round() as usize;
    format!("{}{}", "#".repeat(filled), ".".repeat(columns - filled))
}

pub fn processes(model: &Model, look: Look, areas: &Areas, buffer: &mut Buffer) {
    let (head, list) = (areas.process_head, areas.processes);
    let placed = columns(list.width);
    buffer.set_style(head, HEAD);
    for Placed { column, x, width } in &placed {
        let style = match *column == model.sorting.by {
            true => HEAD.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => HEAD,
        };
        write(buffer, cut(head, *x, *width), column.title(), style, column.is_right());
    }
    if model.rows.is_empty() {
        let text = match (model.filter.is_empty(), model.has_picture()) {
            (false, _) => "no process fits the filter; Esc takes it away",
            (true, true) => "no processes under osmos; `osmos run -- COMMAND` starts one",
            (true, false) => "",
        };
        put(buffer, list, text, Style::new());
    }
    let shown = model.rows.iter().enumerate().skip(model.processes.top());
    for ((at, row), y) in shown.zip(list.top()..list.bottom()) {
        let process = &model.picture.processes[row.index];
        let line = Rect { y, height: 1, ..list };
        let is_marked = model.is_marked(process.key);
        for Placed { column, x, width } in &placed {
            let text = process_text(model, process, *column, row.depth);
            let style = process_style(process, *column, is_marked, look);
            write(buffer, cut(line, *x, *width), &text, style, column.is_right());
            if *column == Column::Node && is_marked {
                put(buffer, cut(line, x + width, 1), "*", STRONG.patch(look.colour(Color::Green)));
            }
        }
        if at == model.processes.at() && model.focus == Focus::Processes {
            buffer.set_style(line, HEAD);
        }
    }
}

fn process_text(model: &Model, process: &ProcessRow, column: Column, depth: usize) -> String {
    match column {
        Column::Pid => process.key.pid.to_string(),
        Column::User => process.user.clone(),
        Column::Home => process.key.home.to_string(),
        Column::Node => process.node.to_string(),
        Column::State => process.state.clone(),
        Column::Cpu => model
            .rates
            .of(process.key)
            .map_or_else(|| "-".to_owned(), |rate| format!("{:.0}%", rate.min(99.99) * 100.0)),
        Column::Time => seconds(process.cpu_s),
        Column::Memory => bytes(process.memory_bytes),
        Column::Moves => process.moves.to_string(),
        Column::Reason => process.reason.clone(),
        Column::Command => format!("{}{}", "  ".repeat(depth.min(DEPTH_MAX)), process.command),
    }
}

fn process_style(process: &ProcessRow, column: Column, is_marked: bool, look: Look) -> Style {
    let base = if is_marked { STRONG.patch(look.colour(Color::Green)) } else { Style::new() };
    match column {
        Column::Node if process.is_away() => base.patch(look.colour(Color::Green)),
        Column::State if process.state == "moving" => STRONG.patch(look.colour(Color::Yellow)),
        _ => base,
    }
}

fn cut(line: Rect, x: u16, width: u16) -> Rect {
    let whole = Rect { x: line.x.saturating_add(x), width, ..line };
    // What is half beyond the edge is not shown: half a number is another number.
    if whole.right() > line.right() { Rect { width: 0, ..line } } else { whole }
}

fn write(buffer: &mut Buffer, area: Rect, text: &str, style: Style, is_right: bool) {
    match is_right {
        true => put_right(buffer, area, text, style),
        false => put(buffer, area, text, style),
    }
}
