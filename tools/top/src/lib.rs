//! `osmos top`: the whole cluster in a terminal, as it is now.
//!
//! [`model`] is what is shown and what keys do to it, pure; [`view`] draws it; [`source`] asks the
//! daemon, in threads; [`listening`] hears keys and signals. This file is the loop between them.
//! It draws when something has changed, and otherwise waits.

mod areas;
mod filter;
mod listening;
mod model;
mod once;
mod screen;
mod source;
mod table;
#[cfg(test)]
mod test;
mod view;
mod wording;

pub use once::once;
pub use wording::Wording;

use anyhow::{Context, Result, bail};
use client::Client;
use model::{Action, Input, Model, Pace};
use nix::sys::signal::Signal;
use screen::Screen;
use source::Source;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use view::Look;

/// Messages that wait to be taken in; who has more waits, too.
const MESSAGES_MAX: usize = 256;
/// What comes within this time is drawn together, but for keys: a flood of events is no flood of
/// pictures.
const DRAWN_TOGETHER: Duration = Duration::from_millis(50);

pub struct Options {
    /// Control socket of the daemon.
    pub socket: PathBuf,
    /// Between two pictures.
    pub delay: Duration,
    /// Whether colours are wanted.
    pub has_colours: bool,
    pub wording: Wording,
}

/// What the loop is told.
enum Message {
    Input(Input),
    Signal(Signal),
    /// Keys cannot be read any more.
    Deaf(std::io::Error),
}

impl Message {
    fn is_news(&self) -> bool {
        matches!(
            self,
            Message::Input(Input::Picture(_) | Input::Happened(_) | Input::Lost(_) | Input::Tick)
        )
    }
}

/// Shows the cluster until the user leaves.
pub fn run(options: &Options) -> Result<()> {
    screen::check()?;
    // Without a daemon at the start this ends as any other command does.
    drop(Client::connect(&options.socket)?);
    let (sender, messages) = sync_channel(MESSAGES_MAX);
    listening::hear_signals(&sender)?;
    let screen = Screen::open()?;
    listening::hear_keys(&sender)?;
    let source = Source::begin(&options.socket, options.delay, options.wording, sender)
        .context("cannot start a thread that asks the daemon")?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let pace = Pace { delay_s: options.delay.as_secs_f64(), epoch_s: since_epoch.as_secs_f64() };
    let model = Model::new(screen.size()?, pace, options.wording);
    let look = Look { has_colours: options.has_colours, is_unicode: is_unicode() };
    Loop { screen, model, source, look, begun: Instant::now() }.run(&messages)
}

/// What the locale says of characters, by the rules of setlocale(3).
fn is_unicode() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"].map(std::env::var_os);
    let set = variables.into_iter().flatten().find(|value| !value.is_empty());
    let locale = set.map_or_else(String::new, |value| value.to_string_lossy().to_lowercase());
    locale.contains("utf-8") || locale.contains("utf8")
}

struct Loop {
    screen: Screen,
    model: Model,
    source: Source,
    look: Look,
    begun: Instant,
}

/// Whether the loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    On,
    Ends,
}

impl Loop {
    fn now_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn run(mut self, messages: &Receiver<Message>) -> Result<()> {
        let mut goes = Goes::On;
        while goes == Goes::On {
            if self.model.has_changed() {
                let (model, look, now_s) = (&self.model, self.look, self.now_s());
                self.screen.draw(|frame| view::draw(model, look, now_s, frame))?;
            }
            for message in self.next(messages)? {
                goes = self.take(message)?;
                if goes == Goes::Ends {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for a message, and for those that come shortly behind it.
    fn next(&self, messages: &Receiver<Message>) -> Result<Vec<Message>> {
        let tick_s = self.model.next_tick_s(self.now_s());
        let first = match tick_s.map(Duration::from_secs_f64) {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(tick) => messages.recv_timeout(tick),
        };
        let first = match first {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => Message::Input(Input::Tick),
            Err(RecvTimeoutError::Disconnected) => bail!("the threads of this program have ended"),
        };
        let mut all = vec![first];
        let until = Instant::now() + DRAWN_TOGETHER;
        while all.len() < MESSAGES_MAX && all.last().is_some_and(Message::is_news) {
            let rest = until.saturating_duration_since(Instant::now());
            match messages.recv_timeout(rest) {
                Ok(message) => all.push(message),
                Err(_) => break,
            }
        }
        Ok(all)
    }

    fn take(&mut self, message: Message) -> Result<Goes> {
        match message {
            Message::Input(input) => self.handle(input),
            Message::Signal(signal) => self.obey(signal),
            Message::Deaf(error) => Err(error).context("cannot read the terminal"),
        }
    }

    fn handle(&mut self, input: Input) -> Result<Goes> {
        let mut actions = self.model.handle(input, self.now_s());
        // An order that could not be sent is answered at once, which asks for nothing but a look.
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Leave => return Ok(Goes::Ends),
                    Action::Look => self.source.look(),
                    Action::Suspend => listening::stop_job()?,
                    Action::Redraw => self.screen.forget()?,
                    Action::Ask(order) => {
                        if let Some(answer) = self.source.ask(order) {
                            let answered = Input::Answered(answer);
                            actions.extend(self.model.handle(answered, self.now_s()));
                        }
                    }
                }
            }
        }
        Ok(Goes::On)
    }

    /// The terminal is as before while a signal does what it does.
    fn obey(&mut self, signal: Signal) -> Result<Goes> {
        self.screen.leave();
        if signal != Signal::SIGCONT {
            listening::obey(signal)?;
        }
        match signal {
            Signal::SIGTSTP | Signal::SIGCONT => {
                self.screen.enter()?;
                let (width, height) = self.screen.size()?;
                self.handle(Input::Resized(width, height))
            }
            // Whoever started this has the signal ignored.
            _ => Ok(Goes::Ends),
        }
    }
}
