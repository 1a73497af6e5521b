//! Where pictures, events and answers come from: threads that ask the daemon, each over a
//! connection of its own, so that none waits for another.
//!
//! What they say goes through one bounded channel. A terminal that is slow makes them wait, not
//! the program grow.

use crate::Message;
use crate::model::{Answer, Input, Order};
use crate::wording::Wording;
use client::events::Told;
use client::picture::{Picture, look};
use client::signals::signal_name;
use client::{Client, Error, told};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use wire::control::{Destination, Event, Reply, Request};
use wire::ids::{GlobalPid, NodeId};

/// Between two tries to follow the events of a daemon that is gone.
const EVENTS_AGAIN: Duration = Duration::from_secs(1);
/// The daemon's word for a process that is where it is to go.
const ALREADY_THERE: &str = "already-there";

/// The threads that ask. They end when this is dropped.
pub struct Source {
    socket: PathBuf,
    wording: Wording,
    messages: SyncSender<Message>,
    wanted: SyncSender<()>,
    _is_used: SyncSender<()>,
}

impl Source {
    pub fn begin(
        socket: &Path,
        delay: Duration,
        wording: Wording,
        messages: SyncSender<Message>,
    ) -> std::io::Result<Source> {
        let (wanted, is_wanted) = sync_channel(1);
        let (in_use, is_used) = sync_channel(0);
        let (path, to) = (socket.to_owned(), messages.clone());
        named("pictures").spawn(move || pictures(&path, delay, &is_wanted, &to))?;
        let (path, to) = (socket.to_owned(), messages.clone());
        named("events").spawn(move || events(&path, &is_used, &to))?;
        let socket = socket.to_owned();
        Ok(Source { socket, wording, messages, wanted, _is_used: in_use })
    }

    /// Has the next picture made at once.
    pub fn look(&self) {
        // One that is wanted already will do.
        let _ = self.wanted.try_send(());
    }

    /// Has an order carried out. The answer comes as a message, or is returned if nobody can be
    /// sent.
    pub fn ask(&self, order: Order) -> Option<Answer> {
        let (socket, wording, messages) =
            (self.socket.clone(), self.wording, self.messages.clone());
        let failed = order.clone();
        let asking = named("order").spawn(move || {
            let result = Client::connect(&socket)
                .and_then(|mut client| carry_out(&mut client, &order, wording))
                .map_err(|error| told(&error));
            let answer = Input::Answered(Answer { order, result });
            // Who has left waits for no answer.
            let _ = messages.send(Message::Input(answer));
        });
        let error = asking.err()?;
        Some(Answer { order: failed, result: Err(format!("cannot start a thread: {error}")) })
    }
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

fn pictures(socket: &Path, delay: Duration, wanted: &Receiver<()>, messages: &SyncSender<Message>) {
    let mut connection: Option<Client> = None;
    loop {
        let begun = Instant::now();
        let looked = match connection.take() {
            Some(client) => Ok(client),
            None => Client::connect(socket),
        };
        let looked = looked.and_then(|mut client| {
            let looked = look(&mut client)?;
            connection = Some(client);
            Ok(Picture::from(looked))
        });
        let input = match looked {
            Ok(picture) => Input::Picture(Box::new(picture)),
            Err(error) => Input::Lost(told(&error)),
        };
        if messages.send(Message::Input(input)).is_err() {
            return;
        }
        let rest = delay.saturating_sub(begun.elapsed());
        if wanted.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

fn unexpected(wanted: &'static str, got: &Reply) -> Error {
    Error::Unexpected { wanted, got: format!("{got:?}") }
}

/// Follows the events of all nodes, and begins again when their daemon is gone.
fn events(socket: &Path, is_used: &Receiver<()>, messages: &SyncSender<Message>) {
    // What was told before is told again to whoever begins to follow.
    let mut known = Told::default();
    loop {
        let mut tell = |node: NodeId, event: Event| {
            !known.is_news(node, &event)
                || messages.send(Message::Input(Input::Happened(Box::new(event)))).is_ok()
        };
        // Of a node that tells nothing, and of a daemon that is gone, pictures say why.
        let _ = Client::connect(socket).and_then(|mut client| {
            client.everywhere(Request::Events { follow: true }, |node, said| match said {
                Ok(Reply::Event(event)) => tell(node, event),
                _ => true,
            })
        });
        if is_used.recv_timeout(EVENTS_AGAIN) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// What was done, in a sentence or, of a question, in a text.
fn carry_out(client: &mut Client, order: &Order, wording: Wording) -> client::Result<String> {
    let (node, request) = request_of(order);
    let request = Request::At { node, request: Box::new(request) };
    let reply = match (client.request(&request), order) {
        // Asking for it has pinned it.
        (Err(Error::Refused(failure)), Order::Pin(process, node))
            if failure.code == ALREADY_THERE =>
        {
            return Ok(format!("{} stays on node {node} from now on", process.pid));
        }
        (reply, _) => reply?,
    };
    match (&reply, order) {
        (Reply::Why { .. }, Order::Why(_)) => {
            (wording.why)(&reply).ok_or_else(|| unexpected("reasons", &reply))
        }
        (Reply::Migrated(migration), Order::Migrate(..) | Order::Pin(..)) => {
            Ok((wording.migration)(migration))
        }
        (Reply::Done, Order::Signal(process, signal)) => {
            Ok(format!("sent {} to {}", signal_name(*signal), process.pid))
        }
        (Reply::Owned(owned), Order::Owner(node, _)) => {
            Ok(format!("node {node}: {}", (wording.owned)(owned)))
        }
        _ => Err(unexpected("what became of an order", &reply)),
    }
}

/// Who is asked what: a process at its home, which knows all of it.
fn request_of(order: &Order) -> (NodeId, Request) {
    let migrate = |process: &GlobalPid, to| Request::Migrate {
        pid: process.pid.0,
        to,
        freeze_budget_ms: None,
        way: None,
        is_watched: false,
    };
    match order {
        Order::Why(process) => (process.home, Request::Why { pid: process.pid.0 }),
        Order::Migrate(process, to) => (process.home, migrate(process, to.clone())),
        Order::Pin(process, node) => (process.home, migrate(process, Destination::Node(*node))),
        Order::Signal(process, signal) => {
            (process.home, Request::Signal { pid: process.pid.0, signal: *signal })
        }
        Order::Owner(node, order) => (*node, Request::Owner(order.clone())),
    }
}

#[cfg(test)]
mod test;
