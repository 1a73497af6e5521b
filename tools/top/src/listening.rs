//! Keys and signals, each read by a thread that waits for nothing else.

use crate::Message;
use crate::model::Input;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use ratatui::crossterm::event::{Event, read};
use std::sync::mpsc::SyncSender;
use std::thread;

/// Those that end or stop a program, before which the terminal is to be given back, and the one
/// that has it go on.
const HEARD: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Has signals come as messages. To be called before any other thread is made: threads have the
/// mask of whoever made them.
pub fn hear_signals(messages: &SyncSender<Message>) -> Result<()> {
    let mask = SigSet::from_iter(HEARD);
    mask.thread_block().context("cannot block signals")?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC);
    let signals = signals.context("cannot wait for signals")?;
    let messages = messages.clone();
    spawn("signals", move || {
        loop {
            let number = match signals.read_signal() {
                Ok(Some(told)) => told.ssi_signo,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            let signal = i32::try_from(number).ok().and_then(|n| Signal::try_from(n).ok());
            let is_sent =
                signal.is_none_or(|signal| messages.send(Message::Signal(signal)).is_ok());
            if !is_sent {
                return;
            }
        }
    })
}

/// Has keys, clicks and new sizes come as messages, once the terminal is in raw mode.
pub fn hear_keys(messages: &SyncSender<Message>) -> Result<()> {
    let messages = messages.clone();
    spawn("keys", move || {
        loop {
            let input = match read() {
                Ok(Event::Key(key)) => Input::Key(key),
                Ok(Event::Mouse(mouse)) => Input::Mouse(mouse),
                Ok(Event::Resize(width, height)) => Input::Resized(width, height),
                Ok(_) => continue,
                Err(error) => {
                    let _ = messages.send(Message::Deaf(error));
                    return;
                }
            };
            if messages.send(Message::Input(input)).is_err() {
                return;
            }
        }
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(|_| ()).with_context(|| format!("cannot start the thread that hears {name}"))
}

/// Does what ^Z would do if the terminal did not hand it to this program as a key: the whole job
/// stops. Its signal comes back as a message.
pub fn stop_job() -> Result<()> {
    kill(Pid::from_raw(0), Signal::SIGTSTP).context("cannot stop the job")
}

/// Has a signal do to this program what it does to any other. Returns if that is nothing, or when
/// the program goes on after a stop.
pub fn obey(signal: Signal) -> Result<()> {
    let mask = SigSet::from_iter([signal]);
    raise(signal)?;
    mask.thread_unblock()?;
    mask.thread_block()?;
    Ok(())
}
