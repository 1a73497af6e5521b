//! The table of processes: its columns, and which process stands in which row.

use crate::filter::Filter;
use client::picture::{Picture, ProcessRow};
use client::rates::Rates;
use std::cmp::Ordering;
use std::collections::HashMap;
use wire::ids::GlobalPid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Pid,
    User,
    Home,
    Node,
    State,
    Cpu,
    Time,
    Memory,
    Moves,
    Reason,
    Command,
}

impl Column {
    pub const ALL: [Column; 11] = [
        Column::Pid,
        Column::User,
        Column::Home,
        Column::Node,
        Column::State,
        Column::Cpu,
        Column::Time,
        Column::Memory,
        Column::Moves,
        Column::Reason,
        Column::Command,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Column::Pid => "PID",
            Column::User => "USER",
            Column::Home => "HOME",
            Column::Node => "NODE",
            Column::State => "STATE",
            Column::Cpu => "CPU",
            Column::Time => "TIME",
            Column::Memory => "MEMORY",
            Column::Moves => "MOVES",
            Column::Reason => "REASON",
            Column::Command => "COMMAND",
        }
    }

    pub fn by_title(word: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.title().eq_ignore_ascii_case(word))
    }

    pub fn is_right(self) -> bool {
        !matches!(self, Column::User | Column::State | Column::Reason | Column::Command)
    }

    /// Characters; none for those that share what is left.
    fn width(self) -> Option<u16> {
        match self {
            Column::Pid => Some(7),
            Column::User => Some(8),
            Column::Home | Column::Node => Some(4),
            Column::State => Some(7),
            Column::Cpu | Column::Moves => Some(5),
            Column::Time | Column::Memory => Some(6),
            Column::Reason | Column::Command => None,
        }
    }

    /// What is looked for is at the upper end of these.
    fn is_largest_first(self) -> bool {
        matches!(self, Column::Cpu | Column::Time | Column::Memory | Column::Moves)
    }

    /// The column beside it, round the ends.
    pub fn beside(self, is_right: bool) -> Column {
        let at = Column::ALL.iter().position(|column| *column == self).unwrap_or(0);
        let count = Column::ALL.len();
        Column::ALL[if is_right { (at + 1) % count } else { (at + count - 1) % count }]
    }
}

/// A column on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub column: Column,
    pub x: u16,
    pub width: u16,
}

/// Reasons have a column of their own from this width on.
const REASON_FROM_WIDTH: u16 = 110;

/// Which columns stand where on a screen of that width.
pub fn columns(width: u16) -> Vec<Placed> {
    let is_shown = |column: &Column| *column != Column::Reason || width >= REASON_FROM_WIDTH;
    let shown: Vec<Column> = Column::ALL.into_iter().filter(is_shown).collect();
    let taken: u16 = shown.iter().filter_map(|column| column.width()).map(|width| width + 1).sum();
    let left = width.saturating_sub(taken);
    let reason = if shown.contains(&Column::Reason) { left * 2 / 5 } else { 0 };
    let mut x = 0u16;
    let placed = shown.into_iter().map(|column| {
        let own = match column {
            Column::Reason => reason,
            Column::Command => left.saturating_sub(if reason > 0 { reason + 1 } else { 0 }),
            _ => column.width().unwrap_or(0),
        };
        let placed = Placed { column, x, width: own };
        x = x.saturating_add(own + 1);
        placed
    });
    placed
        .filter(|placed| placed.x.saturating_add(placed.width) <= width && placed.width > 0)
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    pub by: Column,
    pub is_reversed: bool,
}

impl Default for Sorting {
    fn default() -> Sorting {
        Sorting { by: Column::Cpu, is_reversed: false }
    }
}

/// One row: which process of the picture, and how deep in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub index: usize,
    pub depth: usize,
}

/// All rows, in their order.
pub fn rows(
    picture: &Picture,
    filter: &Filter,
    sorting: Sorting,
    is_tree: bool,
    rates: &Rates,
) -> Vec<Row> {
    let processes = &picture.processes;
    let is_shown = |index: &usize| {
        filter.is_empty() || filter.lets_through(&processes[*index], &picture.nodes)
    };
    let mut sorted: Vec<usize> = (0..processes.len()).filter(is_shown).collect();
    sorted.sort_by(|a, b| compare(&processes[*a], &processes[*b], sorting, rates));
    if is_tree {
        return tree(processes, &sorted);
    }
    sorted.into_iter().map(|index| Row { index, depth: 0 }).collect()
}

fn compare(a: &ProcessRow, b: &ProcessRow, sorting: Sorting, rates: &Rates) -> Ordering {
    let by = match sorting.by {
        Column::Pid => a.key.pid.cmp(&b.key.pid),
        Column::User => a.user.cmp(&b.user),
        Column::Home => a.key.home.cmp(&b.key.home),
        Column::Node => a.node.cmp(&b.node),
        Column::State => a.state.cmp(&b.state),
        Column::Cpu => {
            let rate = |of: &ProcessRow| rates.of(of.key).unwrap_or(0.0);
            rate(a).total_cmp(&rate(b)).then(a.cpu_s.total_cmp(&b.cpu_s))
        }
        Column::Time => a.cpu_s.total_cmp(&b.cpu_s),
        Column::Memory => a.memory_bytes.cmp(&b.memory_bytes),
        Column::Moves => a.moves.cmp(&b.moves),
        Column::Reason => a.reason.cmp(&b.reason),
        Column::Command => a.command.cmp(&b.command),
    };
    let is_down = sorting.by.is_largest_first() != sorting.is_reversed;
    let by = if is_down { by.reverse() } else { by };
    // Rows that are alike stay where they are from picture to picture.
    by.then(a.key.cmp(&b.key))
}

/// Children behind their parents. Who has no parent among the rows is a root; parents are what
/// nodes say, so who is reached from no root, in a circle, becomes one.
fn tree(processes: &[ProcessRow], sorted: &[usize]) -> Vec<Row> {
    let by_key: HashMap<GlobalPid, usize> =
        sorted.iter().map(|index| (processes[*index].key, *index)).collect();
    let parent = |index: usize| {
        let process = &processes[index];
        process.parent.filter(|parent| *parent != process.key && by_key.contains_key(parent))
    };
    let mut children: HashMap<GlobalPid, Vec<usize>> = HashMap::new();
    for index in sorted {
        if let Some(parent) = parent(*index) {
            children.entry(parent).or_default().push(*index);
        }
    }
    let roots = sorted.iter().copied().filter(|index| parent(*index).is_none());
    let mut rows = Vec::with_capacity(sorted.len());
    let mut is_placed = vec![false; processes.len()];
    for root in roots.chain(sorted.iter().copied()) {
        let mut todo = vec![Row { index: root, depth: 0 }];
        while let Some(row) = todo.pop() {
            if std::mem::replace(&mut is_placed[row.index], true) {
                continue;
            }
            rows.push(row);
            let below = children.get(&processes[row.index].key).into_iter().flatten();
            todo.extend(below.rev().map(|index| Row { index: *index, depth: row.depth + 1 }));
        }
    }
    rows
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{picture, process};

    fn pids(picture: &Picture, rows: &[Row]) -> Vec<(i32, usize)> {
        rows.iter().map(|row| (picture.processes[row.index].key.pid.0, row.depth)).collect()
    }

    #[test]
    fn eighty_columns_hold_all_but_the_reason_and_more_hold_that_too() {
        let shown = columns(80);
        assert_eq!(shown.len(), Column::ALL.len() - 1);
        assert_eq!(
            shown.last().map(|last| (last.column, last.x + last.width)),
            Some((Column::Command, 80))
        );
        assert_eq!(columns(160).len(), Column::ALL.len());
        for width in 0..300 {
            let shown = columns(width);
            assert!(shown.iter().all(|placed| placed.x + placed.width <= width), "{width}");
        }
    }

    #[test]
    fn rows_are_sorted_by_any_column_both_ways() {
        let mut processes = [process(1, 10, 1), process(1, 11, 2), process(2, 9, 2)];
        for (process, cpu_s) in processes.iter_mut().zip([1.0, 3.0, 2.0]) {
            process.cpu_s = cpu_s;
        }
        let picture = picture(&[], &processes);
        let sorted = |by, is_reversed| {
            let sorting = Sorting { by, is_reversed };
            let rows = rows(&picture, &Filter::default(), sorting, false, &Rates::default());
            pids(&picture, &rows).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>()
        };
        assert_eq!(sorted(Column::Time, false), [11, 9, 10]);
        assert_eq!(sorted(Column::Time, true), [10, 9, 11]);
        assert_eq!(sorted(Column::Cpu, false), [11, 9, 10], "no rates yet: by time");
        assert_eq!(sorted(Column::Pid, false), [9, 10, 11]);
        assert_eq!(sorted(Column::Node, false), [10, 11, 9]);
    }

    #[test]
    fn a_tree_has_children_behind_parents_and_stands_circles() {
        let mut processes: Vec<_> = [10, 11, 12, 13, 14].map(|pid| process(1, pid, 1)).into();
        for (process, parent) in processes.iter_mut().zip([99, 12, 10, 14, 13]) {
            process.parent = Some(parent);
        }
        // The same pid at another home is another process.
        processes.push(process(2, 10, 2));
        let picture = picture(&[], &processes);
        let sorting = Sorting { by: Column::Pid, is_reversed: false };
        let rows = rows(&picture, &Filter::default(), sorting, true, &Rates::default());
        let expected = [(10, 0), (12, 1), (11, 2), (10, 0), (13, 0), (14, 1)];
        assert_eq!(pids(&picture, &rows), expected);
    }
}
