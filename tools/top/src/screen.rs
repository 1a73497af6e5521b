//! The terminal while it is ours, and given back whatever happens.

use anyhow::{Context, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{Command, execute};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// A screen is written at once: over ssh each part would be a packet.
const BUFFER_BYTES: usize = 1 << 16;

/// Whether the terminal is ours: it is given back once.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Clicks and the wheel, told in the form that has no limit to columns. Moves of the mouse are not
/// asked for: each would be a message.
struct Mouse {
    is_on: bool,
}

impl Command for Mouse {
    fn write_ansi(&self, out: &mut impl fmt::Write) -> fmt::Result {
        out.write_str(if self.is_on { "\x1b[?1000h\x1b[?1006h" } else { "\x1b[?1006l\x1b[?1000l" })
    }
}

pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// Takes the terminal. A panic of any thread gives it back, says so, and ends the program.
    pub fn open() -> Result<Screen> {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            told(panic);
            std::process::exit(101);
        }));
        let writer = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(writer));
        let mut screen = Screen { terminal: terminal.context("cannot use the terminal")? };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal, or takes it again, as it is now.
    pub fn enter(&mut self) -> Result<()> {
        IS_OURS.store(true, Ordering::SeqCst);
        enable_raw_mode().context("cannot set the terminal's mode")?;
        execute!(io::stdout(), EnterAlternateScreen, Mouse { is_on: true })?;
        self.forget()
    }

    /// Everything will be drawn, not only what has changed. (`Terminal::clear` asks the terminal
    /// where its cursor is, and waits for an answer among the keys.)
    pub fn forget(&mut self) -> Result<()> {
        let (width, height) = self.size()?;
        let cleared = self.terminal.resize(Rect::new(0, 0, width, height));
        cleared.context("cannot clear the terminal")
    }

    pub fn leave(&self) {
        give_back();
    }

    pub fn size(&self) -> Result<(u16, u16)> {
        let size = self.terminal.size().context("the terminal has no size")?;
        Ok((size.width, size.height))
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(draw).context("cannot write to the terminal")?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// A terminal that is gone needs nothing given back.
fn give_back() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), Mouse { is_on: false }, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// That there is a terminal which can show a picture that changes, or what to do without.
pub fn check() -> Result<()> {
    let (input, output) = (io::stdin().is_terminal(), io::stdout().is_terminal());
    for (is_terminal, name) in [(output, "output"), (input, "input")] {
        anyhow::ensure!(
            is_terminal,
            "standard {name} is no terminal: `osmos top --once` prints one picture without one"
        );
    }
    let term = std::env::var("TERM").unwrap_or_default();
    anyhow::ensure!(
        !matches!(term.as_str(), "" | "dumb"),
        "a terminal of kind `{}` (TERM) cannot show a picture that changes: `osmos top --once` \
         prints one",
        client::words::printable(&term)
    );
    Ok(())
}
