//! The pictures of the README, of a real lab in which real programs move: `cargo xtask screenshots`
//! makes them anew. No test: it writes into the sources.

use crate::browser::Browser;
use crate::stage::{Program, Stage, until_true};
use crate::terminal::Terminal;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use vt100::{Cell, Color, Screen};

const NAMES: [&str; 4] = ["alder", "birch", "cedar", "larch"];
const ROWS: u16 = 26;
const COLUMNS: u16 = 112;
/// Of one character, in pixels.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 14.0;
/// Of the page.
const PAGE: (u32, u32) = (1500, 1240);
const SCALE: f64 = 0.75;
/// As terminals have them, on a dark ground: the usual eight, and the bright ones.
const PALETTE: [&str; 16] = [
    "#3b4252", "#e06c75", "#8fc379", "#e5c07b", "#61a0ef", "#c678dd", "#56b6c2", "#d0d4dc",
    "#7f8694", "#ff8a92", "#a6dd8e", "#ffd992", "#86bbff", "#dd9af0", "#7ad4df", "#ffffff",
];
const GROUND: &str = "#1d2129";
const TEXT: &str = "#d0d4dc";

/// Computes for as long as anybody looks, with some memory of its own.
const SIMULATE: &str = "\
import random, sys
random.seed(sys.argv[-1])
cells = [random.random() for _ in range(1 << 18)]
while True:
    for i in range(1, len(cells) - 1):
        cells[i] = (cells[i - 1] + cells[i] + cells[i + 1]) / 3";

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures")
}

/// Four nodes, and programs on the first that move to the others by themselves.
fn cluster() -> (Stage, Vec<Program>) {
    let stage = Stage::of_nodes_without_daemons("pictures", NAMES.len() as u32);
    for (node, name) in (1..).zip(NAMES) {
        let root = ["--lend-root", "on", "--guest-users", "*=same", "--name", name];
        stage.text(node, &[&["osmos", "up"][..], &root].concat());
        if node > 1 {
            stage.join(node, 1);
        }
    }
    stage.put(1, "/tmp/simulate.py", SIMULATE);
    let commands = [
        "python3 simulate.py --seed 1",
        "python3 simulate.py --seed 2",
        "python3 simulate.py --seed 3",
        "python3 simulate.py --seed 4",
        "python3 simulate.py --seed 5",
        "xz --keep --stdout /dev/zero",
    ];
    let start = |command: &&str| {
        // The system's own programs, whatever else this machine has: their paths are shown.
        let script = format!(
            "cd /tmp && osmos=$(command -v osmos) && \
             PATH=/usr/bin:/bin exec \"$osmos\" run -- {command} >/dev/null"
        );
        stage.start(1, &["sh", "-c", &script])
    };
    let programs: Vec<Program> = commands.iter().map(start).collect();
    (stage, programs)
}

fn await_moves(stage: &Stage) {
    until_true("programs have moved to each of the others", || {
        let listed = stage.listed(1);
        (2..=NAMES.len() as u64)
            .all(|node| listed.iter().any(|process: &Value| process["node"].as_u64() == Some(node)))
    });
}

#[test]
#[ignore = "writes the pictures of the README: `cargo xtask screenshots`"]
fn the_readme_shows_osmos_as_it_is() {
    assert!(needs::can_run(&["chromium", "python3", "stty", "xz"]), "the pictures need these");
    let (stage, _programs) = cluster();
    await_moves(&stage);
    std::fs::create_dir_all(pictures()).expect("a directory for pictures");
    picture_of_top(&stage);
    pictures_of_web(&stage);
}

fn picture_of_top(stage: &Stage) {
    let script = format!(
        "stty rows {ROWS} columns {COLUMNS}; TERM=xterm-256color exec osmos top --delay 0.5"
    );
    let terminal = Terminal::open(stage, &["sh", "-c", &script]);
    let shown = || {
        let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
        parser.process(terminal.shown().as_bytes());
        parser
    };
    until_true("nodes, processes and what happens are shown", || {
        let text = shown().screen().contents();
        text.contains("4 nodes, 4 alive") && text.contains("%") && text.contains("simulate.py")
    });
    // Loads are means of some seconds, and a picture of the first moment has none.
    until_true("all nodes have work", || {
        let nodes = stage.text(1, &["osmos", "nodes", "--json"]);
        let nodes: Vec<Value> = serde_json::from_str(&nodes).expect("a list of nodes");
        nodes.iter().all(|node| node["load"].as_f64().is_some_and(|load| load > 0.2))
    });
    std::fs::write(pictures().join("top.svg"), svg(shown().screen())).expect("a picture");
}

fn pictures_of_web(stage: &Stage) {
    let words = ["osmos", "web", "--json", "--listen", "127.0.0.1:0", "--delay", "0.5"];
    let server = stage.start(1, &words);
    let line: Value = serde_json::from_str(&server.line()).expect("a line of JSON");
    let mut browser = Browser::open(stage);
    browser.visit(line["link"].as_str().expect("a link"));
    let (width, height) = PAGE;
    let metrics = json!({
        "width": width, "height": height, "deviceScaleFactor": SCALE, "mobile": false
    });
    browser.ask("Emulation.setDeviceMetricsOverride", metrics).expect("a window of that size");
    let hidden = json!({ "hidden": true });
    browser.ask("Emulation.setScrollbarsHidden", hidden).expect("no scrollbars");
    browser.await_true("document.getElementById('summary').innerText.includes('4 alive')");
    browser.await_true("document.getElementById('log').innerText.includes('moved')");
    browser.await_true("document.querySelector('#processes tbody').innerText.includes('%')");
    // The history has a value every few seconds: some of them make a line.
    browser.await_true("document.getElementById('since').innerText.includes('move')");
    for scheme in ["light", "dark"] {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.ask("Emulation.setEmulatedMedia", json!({ "features": feature })).expect("colours");
        browser.await_true(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
        let taken = browser.ask("Page.captureScreenshot", json!({ "format": "png" }));
        let taken = taken.expect("a picture");
        let bytes = BASE64_STANDARD.decode(taken["data"].as_str().expect("base64"));
        let path = pictures().join(format!("web-{scheme}.png"));
        std::fs::write(path, bytes.expect("base64")).expect("a picture");
    }
}

/// How a run of characters looks.
#[derive(Clone, PartialEq)]
struct Look {
    text: String,
    ground: Option<String>,
    is_bold: bool,
}

impl Look {
    fn of(cell: &Cell) -> Look {
        let (mut text, mut ground) = (colour(cell.fgcolor()), colour(cell.bgcolor()));
        if cell.inverse() {
            let behind = ground.or_else(|| Some(GROUND.to_owned()));
            ground = text.or_else(|| Some(TEXT.to_owned()));
            text = behind;
        }
        let text = text.unwrap_or_else(|| TEXT.to_owned());
        let text = if cell.dim() { PALETTE[8].to_owned() } else { text };
        Look { text, ground, is_bold: cell.bold() }
    }
}

fn colour(of: Color) -> Option<String> {
    match of {
        Color::Default => None,
        Color::Idx(nth @ 0..16) => Some(PALETTE[usize::from(nth)].to_owned()),
        Color::Idx(nth @ 232..) => {
            let grey = 8 + 10 * (nth - 232);
            Some(format!("#{grey:02x}{grey:02x}{grey:02x}"))
        }
        Color::Idx(nth) => {
            let part = |of: u8| if of == 0 { 0 } else { 55 + 40 * of };
            let (red, green, blue) = ((nth - 16) / 36, (nth - 16) / 6 % 6, (nth - 16) % 6);
            Some(format!("#{:02x}{:02x}{:02x}", part(red), part(green), part(blue)))
        }
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

/// The screen as a picture whose text is text.
fn svg(screen: &Screen) -> String {
    let width = f64::from(COLUMNS) * WIDTH + 2.0 * MARGIN;
    let height = f64::from(ROWS) * HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    for row in 0..ROWS {
        let mut column = 0;
        while column < COLUMNS {
            let (look, text) = run(screen, row, column);
            let columns = text.chars().count() as u16;
            write_run(&mut svg, (row, column), &look, &text);
            column += columns.max(1);
        }
    }
    svg + "</svg>\n"
}

/// The characters from there on that look alike.
fn run(screen: &Screen, row: u16, from: u16) -> (Look, String) {
    let at = |column| screen.cell(row, column).expect("it is on the screen");
    let look = Look::of(at(from));
    let mut text = String::new();
    for column in (from..COLUMNS).take_while(|column| Look::of(at(*column)) == look) {
        text.push(at(column).contents().chars().next().unwrap_or(' '));
    }
    (look, text)
}

fn write_run(svg: &mut String, (row, column): (u16, u16), look: &Look, text: &str) {
    let x = MARGIN + f64::from(column) * WIDTH;
    let y = MARGIN + f64::from(row) * HEIGHT;
    let width = text.chars().count() as f64 * WIDTH;
    if let Some(ground) = &look.ground {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" \
             fill=\"{ground}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if look.is_bold { " font-weight=\"bold\"" } else { "" };
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" fill=\"{}\"{weight} \
         xml:space=\"preserve\">{escaped}</text>",
        y + 13.5,
        look.text
    );
}
