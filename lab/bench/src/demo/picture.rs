//! The live picture: nodes as bars and processes where they are, redrawn in place; or, where there
//! is no terminal, a plain line whenever something changed.

use std::io::{self, IsTerminal, Write};
use wire::control::Process;

/// Characters of a node's bar, one for each half process.
const BAR_COLUMNS: usize = 28;
/// Lines stay within the smallest usual terminal, so that none is wrapped.
const LINE_COLUMNS: usize = 79;
const PROCESSES_SHOWN_MAX: usize = 13;

/// What is drawn: pure facts.
pub struct Scene<'a> {
    pub title: &'a str,
    pub elapsed_s: f64,
    /// Speed of each node, in order from node 1.
    pub speeds: &'a [f64],
    pub processes: &'a [Process],
    pub ended: usize,
    pub total: usize,
}

impl Scene<'_> {
    fn count_on(&self, node: usize) -> usize {
        self.processes.iter().filter(|process| process.node.0 as usize == node).count()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{}: {:.1} s, {} of {} ended",
            self.title, self.elapsed_s, self.ended, self.total
        )];
        for (index, speed) in self.speeds.iter().enumerate() {
            let count = self.count_on(index + 1);
            let home = if index == 0 { "home" } else { "" };
            lines.push(format!(
                "  node {} {home:<4} speed {speed:<4} {} {count}",
                index + 1,
                bar(count, BAR_COLUMNS)
            ));
        }
        for process in self.processes.iter().take(PROCESSES_SHOWN_MAX) {
            let indent = 12 * (process.node.0.clamp(1, 4) as usize - 1);
            lines.push(format!(
                "  {:>6} {:<10.10} {:<9.9} {:indent$}[node {}] {} moves",
                process.pid,
                program(&process.command),
                process.state,
                "",
                process.node,
                process.migrations
            ));
        }
        lines.iter().map(|line| line.chars().take(LINE_COLUMNS).collect()).collect()
    }

    /// The distribution in one line: what is worth a new one when it changes.
    fn summary(&self) -> String {
        let counts: Vec<String> = (1..=self.speeds.len())
            .map(|node| format!("node {node}: {}", self.count_on(node)))
            .collect();
        format!("{}, ended: {}", counts.join(", "), self.ended)
    }
}

/// The program's name, without its path and arguments, printable.
fn program(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or_default();
    let name = first.rsplit('/').next().unwrap_or_default();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn bar(count: usize, columns: usize) -> String {
    let filled = (count * 2).min(columns);
    "█".repeat(filled) + &"·".repeat(columns - filled)
}

/// Where the picture goes.
pub enum Screen {
    /// Redrawn in place; how many lines stand there now.
    Terminal {
        lines: usize,
    },
    /// One line at a time; the last one written.
    Plain {
        last: String,
    },
    Nowhere,
}

impl Screen {
    /// Standard output if it is a terminal that can move its cursor.
    pub fn of_standard_output(silent: bool) -> Screen {
        let capable = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        match (silent, io::stdout().is_terminal() && capable) {
            (true, _) => Screen::Nowhere,
            (false, true) => Screen::Terminal { lines: 0 },
            (false, false) => Screen::Plain { last: String::new() },
        }
    }

    pub fn draw(&mut self, scene: &Scene) -> io::Result<()> {
        self.draw_on(scene, &mut io::stdout())
    }

    fn draw_on(&mut self, scene: &Scene, out: &mut impl Write) -> io::Result<()> {
        match self {
            Screen::Nowhere => Ok(()),
            Screen::Plain { last } => {
                let summary = scene.summary();
                if summary == *last {
                    return Ok(());
                }
                writeln!(out, "{:6.1} s  {}: {summary}", scene.elapsed_s, scene.title)?;
                *last = summary;
                out.flush()
            }
            Screen::Terminal { lines } => {
                let new = scene.lines();
                let mut text = String::new();
                if *lines > 0 {
                    text.push_str(&format!("\x1b[{lines}A"));
                }
                text.push_str("\x1b[J");
                for line in &new {
                    text.push_str(line);
                    text.push('\n');
                }
                *lines = new.len();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }

    /// A line that stays above what is drawn later.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.say_on(text, &mut io::stdout())
    }

    fn say_on(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        match self {
            Screen::Nowhere => return Ok(()),
            Screen::Plain { last } => last.clear(),
            Screen::Terminal { lines } => {
                if *lines > 0 {
                    write!(out, "\x1b[{lines}A\x1b[J")?;
                }
                *lines = 0;
            }
        }
        writeln!(out, "{text}")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ids::NodeId;

    fn process(node: u32, command: &str) -> Process {
        Process {
            pid: 100 + node as i32,
            home: NodeId(1),
            node: NodeId(node),
            state: "running".into(),
            command: command.into(),
            cpu_s: 0.0,
            rss_bytes: 0,
            migrations: 1,
            last_move: None,
            reason: String::new(),
            uid: None,
            user: None,
            command_line: None,
            parent: None,
            threads: None,
            job: None,
        }
    }

    fn scene(processes: &[Process]) -> Scene<'_> {
        Scene {
            title: "test",
            elapsed_s: 1.0,
            speeds: &[1.0, 0.5],
            processes,
            ended: 0,
            total: processes.len(),
        }
    }

    #[test]
    fn a_node_with_more_processes_has_a_longer_bar() {
        let processes = [process(1, "awk"), process(2, "awk"), process(2, "/usr/bin/awk x")];
        let lines = scene(&processes).lines();
        let bars: Vec<usize> = lines[1..3].iter().map(|l| l.matches('█').count()).collect();
        assert_eq!(bars, [2, 4]);
    }

    #[test]
    fn no_line_is_wrapped_or_can_steer_the_terminal() {
        let processes: Vec<Process> =
            (1..=13).map(|node| process(node, "\x1b[2Jx/very-long-program-name\x07 a")).collect();
        for line in scene(&processes).lines() {
            assert!(line.chars().count() <= LINE_COLUMNS && !line.contains('\x1b'), "{line:?}");
        }
    }

    #[test]
    fn without_a_terminal_a_line_is_written_only_when_something_changed() {
        let mut screen = Screen::Plain { last: String::new() };
        let mut out = Vec::new();
        for processes in [vec![process(1, "a")], vec![process(1, "a")], vec![process(2, "a")]] {
            screen.draw_on(&scene(&processes), &mut out).expect("memory takes it");
        }
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn a_terminal_is_redrawn_over_the_lines_of_before() {
        let mut screen = Screen::Terminal { lines: 0 };
        let mut out = Vec::new();
        let two = [process(1, "a"), process(2, "a")];
        screen.draw_on(&scene(&two), &mut out).expect("memory takes it");
        out.clear();
        screen.draw_on(&scene(&two[..1]), &mut out).expect("memory takes it");
        assert!(out.starts_with(b"\x1b[5A\x1b[J"));
        out.clear();
        screen.say_on("done", &mut out).expect("memory takes it");
        assert_eq!(out, b"\x1b[4A\x1b[Jdone\n");
    }
}
