//! What happened on this node: the last events in memory for `osmos events`, all of them in a file.

use crate::counts;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;
use wire::control::{Counts, Event, Happening};
use wire::ids::GlobalPid;

/// Events kept in memory.
const RECENT_MAX: usize = 4_096;
/// Events that a slow follower may lag behind before it loses some.
const FOLLOW_MAX: usize = 4_096;
/// The file is put aside (as `.old`) when it is larger than this.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Of that, what the next daemon reads: far more than so many events take.
const RECENT_BYTES_MAX: u64 = 4 << 20;
/// Names of calls that are counted; there are fewer system calls than that.
const CALLS_MAX: usize = 1_024;

/// Seconds since the epoch.
pub fn wall_clock_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The events of one node.
pub struct Journal {
    recent: VecDeque<Event>,
    live: broadcast::Sender<Event>,
    path: PathBuf,
    file: File,
    file_bytes: u64,
    homecalls: BTreeMap<String, u64>,
    /// Of what this daemon has recorded, not those before it.
    counts: Counts,
    since_s: f64,
}

impl Journal {
    pub fn open(path: &Path) -> io::Result<Journal> {
        let recent = read_recent(path)?;
        let mut file = append(path)?;
        if !ends_with_line(path)? {
            // A daemon that was killed has left half of one.
            file.write_all(b"\n")?;
        }
        let file_bytes = file.metadata()?.len();
        let mut journal = Journal {
            recent: VecDeque::new(),
            live: broadcast::channel(FOLLOW_MAX).0,
            path: path.to_owned(),
            file,
            file_bytes,
            homecalls: BTreeMap::new(),
            counts: Counts::default(),
            since_s: wall_clock_s(),
        };
        for event in recent {
            journal.remember(event);
        }
        Ok(journal)
    }

    pub fn record(&mut self, pid: Option<GlobalPid>, what: Happening) {
        counts::count(&mut self.counts, &what);
        let event = Event { time: wall_clock_s(), pid, what };
        if let Err(error) = self.append(&event) {
            tracing::warn!("cannot write {}: {error}", self.path.display());
        }
        // Nobody listening is no error.
        let _ = self.live.send(event.clone());
        self.remember(event);
    }

    fn remember(&mut self, event: Event) {
        if let Happening::CameHome { reason } = &event.what {
            self.count_homecall(&reason.code, &reason.text);
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(event);
    }

    /// The recorded events, and at the end how often each call brought a process home.
    pub fn recorded(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.recent.iter().cloned().collect();
        if !self.homecalls.is_empty() {
            let counts = self.homecalls.iter().map(|(name, count)| (name.clone(), *count));
            let what = Happening::Homecalls { counts: counts.collect() };
            events.push(Event { time: wall_clock_s(), pid: None, what });
        }
        events
    }

    /// How often each thing has happened since this daemon has started.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Since when, seconds since the epoch: the same whenever it is asked.
    pub fn since_s(&self) -> f64 {
        self.since_s
    }

    pub fn follow(&self) -> broadcast::Receiver<Event> {
        self.live.subscribe()
    }

    /// A homecoming for a system call names it in the first word of its text.
    fn count_homecall(&mut self, code: &str, text: &str) {
        let name = match code {
            "call" | "unlisted-call" => {
                text.split(|c: char| !c.is_alphanumeric() && c != '_').next()
            }
            _ => None,
        };
        let Some(name) = name.filter(|name| !name.is_empty()) else { return };
        if self.homecalls.len() < CALLS_MAX || self.homecalls.contains_key(name) {
            *self.homecalls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        if self.file_bytes > FILE_BYTES_MAX {
            fs::rename(&self.path, old(&self.path))?;
            self.file = append(&self.path)?;
            self.file_bytes = 0;
        }
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file_bytes += line.len() as u64;
        Ok(())
    }
}

/// Where the events before those in the file are.
fn old(path: &Path) -> PathBuf {
    path.with_extension("jsonl.old")
}

/// What a daemon before this one has recorded, the newest of it: `events` goes on where it was.
fn read_recent(path: &Path) -> io::Result<Vec<Event>> {
    let mut events = read_end(path)?;
    if events.len() < RECENT_MAX {
        let mut before = read_end(&old(path))?;
        before.append(&mut events);
        events = before;
    }
    let surplus = events.len().saturating_sub(RECENT_MAX);
    Ok(events.split_off(surplus))
}

/// The events in the last part of a file. A line that is none, of another version or only half
/// there, is passed over.
fn read_end(path: &Path) -> io::Result<Vec<Event>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(RECENT_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(RECENT_BYTES_MAX).read_to_end(&mut bytes)?;
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn ends_with_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::NodeId;
    use wire::supervisor::Reason;

    fn came_home(code: &str, text: &str) -> Happening {
        Happening::CameHome { reason: Reason { code: code.into(), text: text.into() } }
    }

    #[test]
    fn calls_that_brought_processes_home_are_counted_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&dir.path().join("events.jsonl")).unwrap();
        journal.record(None, came_home("call", "fork"));
        journal.record(None, came_home("call", "fork (not described)"));
        journal.record(None, came_home("unlisted-call", "io_uring_setup"));
        journal.record(None, came_home("asked", "somebody asked"));
        let Some(Event { what: Happening::Homecalls { counts }, .. }) = journal.recorded().pop()
        else {
            panic!("no counts");
        };
        assert_eq!(counts, [("fork".to_owned(), 2), ("io_uring_setup".to_owned(), 1)]);
    }

    #[test]
    fn events_survive_a_restart_a_torn_line_and_a_file_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let status = |node| Happening::NodeStatus { node: NodeId(node), status: "alive".into() };
        let mut journal = Journal::open(&path).unwrap();
        journal.record(None, status(1));
        journal.record(None, came_home("call", "fork"));
        drop(journal);
        fs::rename(&path, old(&path)).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        journal.record(None, status(2));
        journal.file.write_all(b"{\"time\":1.0,\"proc").unwrap();
        drop(journal);
        let mut journal = Journal::open(&path).unwrap();
        journal.record(None, status(3));
        drop(journal);
        let journal = Journal::open(&path).unwrap();
        assert_eq!(*journal.counts(), Counts::default(), "a daemon counts what it has seen itself");
        let events = journal.recorded();
        let whats: Vec<&Happening> = events.iter().map(|event| &event.what).collect();
        let counts = Happening::Homecalls { counts: vec![("fork".to_owned(), 1)] };
        let expected = [status(1), came_home("call", "fork"), status(2), status(3), counts];
        assert_eq!(whats, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn memory_keeps_the_newest_events_and_the_file_keeps_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        for node in 0..RECENT_MAX as u32 + 10 {
            let what = Happening::NodeStatus { node: NodeId(node), status: "alive".into() };
            journal.record(None, what);
        }
        let events = journal.recorded();
        assert_eq!(events.len(), RECENT_MAX);
        assert!(matches!(events[0].what, Happening::NodeStatus { node: NodeId(10), .. }));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), RECENT_MAX + 10);
    }
}
