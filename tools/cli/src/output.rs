//! How listings look: aligned tables for people, JSON for programs.
//!
//! Everything shown may come from another user's process or another node, so control characters
//! never reach the terminal. Colours only where somebody looks: on a terminal without `NO_COLOR`.

pub use client::words::{bar, bytes, clock, counted, printable, seconds};

use serde::Serialize;
use std::io::{self, IsTerminal, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Plain,
    Green,
    Yellow,
    Red,
    Bold,
}

impl Colour {
    fn code(self) -> Option<&'static str> {
        match self {
            Colour::Plain => None,
            Colour::Green => Some("32"),
            Colour::Yellow => Some("33"),
            Colour::Red => Some("31"),
            Colour::Bold => Some("1"),
        }
    }
}

/// One field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    pub fn new(text: impl AsRef<str>) -> Cell {
        Cell { text: printable(text.as_ref()), colour: Colour::Plain }
    }

    pub fn coloured(text: impl AsRef<str>, colour: Colour) -> Cell {
        Cell { colour, ..Cell::new(text) }
    }

    fn columns(&self) -> usize {
        self.text.chars().count()
    }
}

/// A table with a head; the last column is not padded.
pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(head: &[(&str, Align)]) -> Table {
        let names = head.iter().map(|(name, _)| Cell::coloured(name, Colour::Bold)).collect();
        Table { aligns: head.iter().map(|(_, align)| *align).collect(), rows: vec![names] }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.aligns.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }

    pub fn render(&self, with_colours: bool) -> String {
        let widths: Vec<usize> = (0..self.aligns.len())
            .map(|column| self.rows.iter().map(|row| row[column].columns()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let last = column + 1 == row.len();
                let padding = " ".repeat(widths[column] - cell.columns());
                if column > 0 {
                    line.push_str("  ");
                }
                if self.aligns[column] == Align::Right {
                    line.push_str(&padding);
                }
                line.push_str(&paint(&cell.text, cell.colour, with_colours));
                if self.aligns[column] == Align::Left && !last {
                    line.push_str(&padding);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    pub fn print(&self) -> io::Result<()> {
        print_text(&self.render(colours_wanted()))
    }
}

fn paint(text: &str, colour: Colour, with_colours: bool) -> String {
    match colour.code() {
        Some(code) if with_colours => format!("\x1b[{code}m{text}\x1b[0m"),
        _ => text.to_string(),
    }
}

/// Whether standard output is a terminal whose user has not asked for plain text (no-color.org).
pub fn colours_wanted() -> bool {
    io::stdout().is_terminal() && !is_plain_wanted()
}

/// The user, or his terminal, takes nothing but plain text.
pub fn is_plain_wanted() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let incapable = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    refused || incapable
}

/// A value as JSON on one line, as programs read it.
pub fn print_json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    io::stdout().write_all(line.as_bytes())
}

/// Text that ends where it ends.
pub fn print_text(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

/// Somebody looks at what is printed.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// What was done, for programs; people take silence for it.
pub fn confirm(json: bool, what: impl FnOnce() -> serde_json::Value) -> anyhow::Result<()> {
    if json {
        print_json(&what())?;
    }
    Ok(())
}

/// One line of text. Unlike `println!` it survives a reader that has gone.
pub fn print_line(text: &str) -> io::Result<()> {
    io::stdout().write_all(format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let mut table = Table::new(&[("PID", Align::Right), ("COMMAND", Align::Left)]);
        table.row(vec![Cell::new("7"), Cell::new("awk")]);
        table.row(vec![Cell::new("12345"), Cell::new("")]);
        assert_eq!(table.render(false), "  PID  COMMAND\n    7  awk\n12345\n");
    }

    #[test]
    fn colours_do_not_count_as_columns() {
        let mut table = Table::new(&[("A", Align::Left), ("B", Align::Left)]);
        table.row(vec![Cell::coloured("xx", Colour::Red), Cell::new("y")]);
        assert!(table.render(true).ends_with("\x1b[31mxx\x1b[0m  y\n"));
    }

    #[test]
    fn nothing_shown_can_steer_the_terminal() {
        assert_eq!(Cell::new("a\tb"), Cell::new("a?b"));
    }
}
