//! Where pictures and events come from: threads that ask the daemon, as `osmos top` does, and end
//! with the program.
//!
//! One look serves all browsers. While nobody looks, only the nodes are asked, and only as often as
//! the history needs.

use crate::Shared;
use crate::history::STEP_S;
use crate::hub::Hub;
use client::events::Told;
use client::picture::{Looked, Picture, look};
use client::{Client, Gathered, told};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Reply, Request};

/// Between two tries to follow the events of a daemon that is gone.
const EVENTS_AGAIN: Duration = Duration::from_secs(1);
/// What happens within this time is told together.
const TOLD_TOGETHER: Duration = Duration::from_millis(100);
/// Events that wait to be told. Of more, the oldest are left out.
const EVENTS_MAX: usize = 4_096;

pub fn begin(shared: &Arc<Shared>) -> std::io::Result<()> {
    let pending = Arc::new(Pending::default());
    let of = shared.clone();
    named("pictures").spawn(move || pictures(&of.options.socket, of.options.delay, &of.hub))?;
    let (of, to) = (shared.clone(), pending.clone());
    named("events").spawn(move || events(&of.options.socket, &to))?;
    let of = shared.clone();
    named("telling").spawn(move || {
        loop {
            let (events, left_out) = pending.take();
            of.hub.tell(|board| board.take_events(&events, left_out));
            // A flood of events is no flood of messages.
            thread::sleep(TOLD_TOGETHER);
        }
    })?;
    Ok(())
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn pictures(socket: &Path, delay: Duration, hub: &Hub) {
    let mut connection: Option<Client> = None;
    loop {
        let begun = Instant::now();
        let client = connection.take().map_or_else(|| Client::connect(socket), Ok);
        let looked = client.and_then(|mut client| {
            let looked = if hub.is_watched() { Some(look(&mut client)?) } else { None };
            let nodes = if looked.is_none() { Some(nodes(&mut client)?) } else { None };
            connection = Some(client);
            Ok((looked, nodes))
        });
        match looked {
            Ok((Some(looked), _)) => {
                let picture = Picture::from(looked);
                hub.tell(|board| board.take_picture(picture, now_s()));
            }
            Ok((None, nodes)) => {
                let picture = Picture::from(nodes.unwrap_or_default());
                hub.tell(|board| board.take_nodes(picture.nodes, now_s()));
            }
            Err(error) => hub.tell(|board| board.take_loss(&told(&error))),
        }
        hub.rest(begun, delay, Duration::from_secs_f64(STEP_S));
    }
}

fn nodes(client: &mut Client) -> client::Result<Looked> {
    Ok(Looked { nodes: client.nodes()?, gathered: Gathered::default() })
}

/// Follows the events of all nodes, and begins again when their daemon is gone.
fn events(socket: &Path, pending: &Pending) {
    // What was told before is told again to whoever begins to follow.
    let mut known = Told::default();
    loop {
        // Of a node that tells nothing, and of a daemon that is gone, pictures say why.
        let _ = Client::connect(socket).and_then(|mut client| {
            client.everywhere(Request::Events { follow: true }, |node, said| {
                if let Ok(Reply::Event(event)) = said
                    && known.is_news(node, &event)
                {
                    pending.put(event);
                }
                true
            })
        });
        thread::sleep(EVENTS_AGAIN);
    }
}

/// Events that were not told yet. Who puts them in never waits, so that a daemon never does.
#[derive(Default)]
struct Pending {
    events: Mutex<(VecDeque<Event>, u64)>,
    has_some: Condvar,
}

impl Pending {
    fn put(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if events.0.len() >= EVENTS_MAX {
            events.0.pop_front();
            events.1 += 1;
        }
        events.0.push_back(event);
        self.has_some.notify_one();
    }

    /// Waits until there are some. Takes them, and how many were left out before them.
    fn take(&self) -> (Vec<Event>, u64) {
        let mut events = self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while events.0.is_empty() {
            events = self.has_some.wait(events).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        let left_out = std::mem::take(&mut events.1);
        (events.0.drain(..).collect(), left_out)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::migrated;

    #[test]
    fn a_million_events_take_no_more_room_than_some_thousand() {
        let pending = Pending::default();
        for number in 0..1_000_000 {
            pending.put(migrated_at(number));
        }
        let (events, left_out) = pending.take();
        assert_eq!((events.len(), left_out), (EVENTS_MAX, 1_000_000 - EVENTS_MAX as u64));
        assert_eq!(events.last().map(|event| event.time), Some(999_999.0), "the newest stay");
    }

    fn migrated_at(number: u32) -> Event {
        let mut event = migrated(1, 10, 2, f64::from(number));
        event.what = wire::control::Happening::Ended { wait_status: None };
        event
    }
}
