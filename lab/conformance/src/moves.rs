//! Who moved how often, as the daemon's events tell.
//!
//! A flavour in which nothing moved has proved nothing, so moves are counted and not assumed.

use crate::stage::Stage;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::control::{Event, Happening};
use wire::ids::HomePid;
use wire::supervisor::Reason;

/// What events told of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    pub move_count: u32,
    /// Why it stayed where it was, each time that it did.
    pub stayed: Vec<Reason>,
    pub has_ended: bool,
}

/// Ends when its input does: only what is inside the lab can end what is inside the lab.
const FOLLOW: &str = "osmos events --follow --json & cat > /dev/null; kill $!";

#[derive(Default)]
struct Stories {
    of: Mutex<BTreeMap<HomePid, Story>>,
    changed: Condvar,
    /// Processes that were lost with a node or a supervisor, and why.
    lost: Mutex<Vec<String>>,
}

impl Stories {
    fn tell(&self, event: &Event) {
        let Some(global) = event.pid else { return };
        if let Happening::Lost { node, reason } = &event.what {
            let mut lost = self.lost.lock().expect("no thread panics with it");
            let (pid, Reason { code, text }) = (global.pid, reason);
            lost.push(format!("process {pid} on node {node} was lost: {code}: {text}"));
        }
        let mut stories = self.of.lock().expect("no thread panics with it");
        let story = stories.entry(global.pid).or_default();
        match &event.what {
            // A pid may be given anew; its story begins again.
            Happening::Managed { .. } => *story = Story::default(),
            Happening::Migrated(migration) => {
                story.move_count += u32::from(migration.from != migration.to)
            }
            Happening::Stayed { reason } => {
                story.stayed.push(reason.clone());
            }
            Happening::Ended { .. } => story.has_ended = true,
            _ => return,
        }
        self.changed.notify_all();
    }
}

/// Follows `osmos events` of the home node for as long as it lives.
pub struct Moves {
    stories: Arc<Stories>,
    events: Child,
    reader: Option<JoinHandle<()>>,
}

impl Moves {
    pub fn follow(stage: &Stage) -> Result<Moves> {
        let mut events = stage
            .command(&["sh", "-c", FOLLOW])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot follow `osmos events`")?;
        let lines = BufReader::new(events.stdout.take().expect("it is piped"));
        let stories = Arc::new(Stories::default());
        let told = Arc::clone(&stories);
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(event) => told.tell(&event),
                    Err(error) => eprintln!("`osmos events --json` gave `{line}`: {error}"),
                }
            }
        });
        Ok(Moves { stories, events, reader: Some(reader) })
    }

    /// How many processes have been lost so far, whoever's they were.
    pub fn lost_count(&self) -> usize {
        self.stories.lost.lock().expect("no thread panics with it").len()
    }

    /// What was told of those lost since there were so many: of programs that run beside each other
    /// nobody knows here whose they were.
    pub fn lost_since(&self, count: usize) -> String {
        self.stories.lost.lock().expect("no thread panics with it")[count..].join("; ")
    }

    /// The story of all these processes together, once the end of `root` has been told.
    pub fn story_of(&self, root: HomePid, all: &BTreeSet<HomePid>, patience: Duration) -> Story {
        let deadline = Instant::now() + patience;
        let mut stories = self.stories.of.lock().expect("no thread panics with it");
        while !stories.get(&root).is_some_and(|story| story.has_ended) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stories = self.stories.changed.wait_timeout(stories, left).expect("no panic").0;
        }
        let mut together = stories.get(&root).cloned().unwrap_or_default();
        for pid in all.iter().filter(|pid| **pid != root) {
            together.move_count += stories.get(pid).map_or(0, |story| story.move_count);
        }
        together
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        drop(self.events.stdin.take());
        let _ = self.events.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::control::Migration;
    use wire::ids::{GlobalPid, NodeId};
    use wire::supervisor::MoveReport;

    fn event(pid: i32, what: Happening) -> Event {
        let pid = Some(GlobalPid { home: NodeId(1), pid: HomePid(pid) });
        Event { time: 1.0, pid, what }
    }

    fn moved(pid: i32, from: u32, to: u32) -> Event {
        let report = MoveReport::default();
        let migration = Migration::from_report(pid, NodeId(from), NodeId(to), "storm", &report);
        event(pid, Happening::Migrated(migration))
    }

    #[test]
    fn processes_that_are_lost_are_told_with_the_reason() {
        let stories = Stories::default();
        let reason = Reason { code: "link".into(), text: "cut".into() };
        stories.tell(&event(7, Happening::Lost { node: NodeId(2), reason }));
        let lost = stories.lost.lock().unwrap();
        assert_eq!(*lost, ["process 7 on node 2 was lost: link: cut"]);
    }

    #[test]
    fn moves_of_a_process_are_counted_from_its_start() {
        let stories = Stories::default();
        stories.tell(&moved(7, 1, 2));
        stories.tell(&event(7, Happening::Managed { command: "again".into() }));
        stories.tell(&moved(7, 1, 2));
        stories.tell(&moved(7, 2, 1));
        stories.tell(&moved(8, 1, 3));
        let of = stories.of.lock().unwrap();
        assert_eq!(of[&HomePid(7)].move_count, 2);
        assert_eq!(of[&HomePid(8)].move_count, 1);
    }
}
