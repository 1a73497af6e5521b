//! The target's side of the streams: each has a thread that receives, opens, unpacks and writes,
//! while the link is served by another.
//!
//! What a part may be written to only the newest draft, or the image, says. So each part names the
//! *epoch* that it belongs to, waits until that has begun, and is a fault if it is over; and the
//! mappings change only while nothing is being written. Before that the link says how many parts
//! there were, and all of them are waited for.

use crate::intake::Intake;
use crate::packing::unpack;
use crate::{MigrateError, Result, streams};
use kernel::haste::StandingBack;
use kernel::memory::Memory;
use link::{Closer, LinkReader, LinkWriter};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::image::Mapping;
use wire::stream::{self, Packing, PartHead};

/// Nothing that is waited for here takes longer, unless the source does not keep to the protocol.
const PATIENCE: Duration = Duration::from_secs(30);

/// Memory that comes over the link and over streams.
pub struct Inflow {
    shared: Arc<Shared>,
    closers: Vec<Closer>,
    threads: Vec<JoinHandle<()>>,
    /// Of the threads: while the process runs still nobody waits for them.
    standing_back: Vec<StandingBack>,
}

struct Shared {
    memory: Memory,
    gate: Mutex<Gate>,
    has_changed: Condvar,
}

struct Gate {
    intake: Intake,
    /// Drafts and images so far.
    epoch: u32,
    /// Those of the epoch; none while they change, and when all has come.
    mappings: Option<Arc<[Mapping]>>,
    /// Parts that are being written.
    writing: usize,
    /// Parts that were written.
    taken: u64,
    /// Why no more comes over a stream.
    end: Option<MigrateError>,
}

impl Inflow {
    /// Into that memory, nothing yet.
    pub fn new(memory: Memory, intake: Intake) -> Inflow {
        let gate = Gate { intake, epoch: 0, mappings: None, writing: 0, taken: 0, end: None };
        let shared = Shared { memory, gate: Mutex::new(gate), has_changed: Condvar::new() };
        Inflow { shared: Arc::new(shared), closers: vec![], threads: vec![], standing_back: vec![] }
    }

    pub fn streams(&self) -> usize {
        self.threads.len()
    }

    /// One more stream.
    ///
    /// # Errors
    /// There is no thread to be had for it.
    pub fn add(&mut self, (reader, writer): (LinkReader, LinkWriter)) -> Result<()> {
        self.closers.push(writer.closer()?);
        let shared = self.shared.clone();
        let work = move || {
            let error = shared.serve(reader);
            shared.lock().end.get_or_insert(error);
            shared.has_changed.notify_all();
            // So that the source hears of it.
            writer.close();
        };
        let (thread, tid) = streams::spawn(work)?;
        self.threads.push(thread);
        self.standing_back.extend(tid.map(|tid| StandingBack::of(&[tid])));
        Ok(())
    }

    /// From here on the process stands still, and waits for what comes.
    pub fn hurry(&mut self) {
        self.standing_back.clear();
    }

    /// Takes in what came over the link; `act` does with it what is to be done.
    pub fn take_in<T>(&self, act: impl FnOnce(&mut Intake) -> Result<T>) -> Result<T> {
        act(&mut self.shared.lock().intake)
    }

    /// Waits until so many parts have come over streams.
    ///
    /// # Errors
    /// They do not: a stream has ended, or brings what it must not, or none comes any more.
    pub fn await_parts(&self, parts: u64) -> Result<()> {
        let mut seen = self.shared.lock().taken;
        while seen < parts {
            let has_news = |gate: &Gate| gate.taken > seen || gate.end.is_some();
            let mut gate = self.shared.wait(has_news)?;
            if gate.taken < parts
                && let Some(error) = gate.end.take()
            {
                return Err(error);
            }
            seen = gate.taken;
        }
        Ok(())
    }

    /// Nothing is written from now on, until the next epoch.
    ///
    /// # Errors
    /// What is being written takes without end.
    pub fn shut(&self) -> Result<()> {
        self.shared.lock().mappings = None;
        self.shared.wait(|gate| gate.writing == 0).map(drop)
    }

    /// A draft, or the image, is laid out.
    pub fn begin_epoch(&self, mappings: &[Mapping]) {
        let mut gate = self.shared.lock();
        gate.epoch += 1;
        gate.mappings = Some(mappings.into());
        drop(gate);
        self.shared.has_changed.notify_all();
    }

    /// All has come: nothing is written any more.
    ///
    /// # Errors
    /// A stream has brought what it must not.
    pub fn finish(&self) -> Result<()> {
        self.shut()?;
        self.shared.lock().end.take().map_or(Ok(()), Err)
    }
}

fn lacking() -> MigrateError {
    MigrateError::refused("link", "some of its memory does not come")
}

impl Drop for Inflow {
    fn drop(&mut self) {
        // Whoever waits for an epoch need not any more.
        self.shared.lock().end.get_or_insert_with(lacking);
        self.shared.has_changed.notify_all();
        self.closers.iter().for_each(Closer::close);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, mut until: impl FnMut(&Gate) -> bool) -> Result<MutexGuard<'_, Gate>> {
        let deadline = Instant::now() + PATIENCE;
        let mut gate = self.lock();
        while !until(&gate) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(lacking());
            }
            let woken = self.has_changed.wait_timeout(gate, left);
            gate = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(gate)
    }

    /// Takes in what comes over a stream; returns why nothing more does.
    fn serve(&self, mut reader: LinkReader) -> MigrateError {
        loop {
            let outcome = reader.receive_bytes().map_err(MigrateError::from);
            if let Err(error) = outcome.and_then(|message| self.take_in(message)) {
                return error;
            }
        }
    }

    fn take_in(&self, message: &[u8]) -> Result<()> {
        let (head, content, bytes) =
            stream::decode(message).map_err(|error| MigrateError::Protocol(error.to_string()))?;
        let unpacked = match head.packing {
            Packing::Plain => None,
            Packing::Lz4 => Some(unpack(content, bytes)?),
        };
        let content = unpacked.as_deref().unwrap_or(content);
        let runs = self.enter(&head, content)?;
        let write = |(at, bytes): (u64, &[u8])| self.memory.write_pages(at, bytes);
        let outcome = runs.into_iter().try_for_each(write);
        let mut gate = self.lock();
        gate.writing -= 1;
        gate.taken += u64::from(outcome.is_ok());
        drop(gate);
        self.has_changed.notify_all();
        Ok(outcome?)
    }

    /// Waits for the part's epoch, and checks it against that. Returns what belongs where.
    fn enter<'a>(&self, head: &PartHead, content: &'a [u8]) -> Result<Vec<(u64, &'a [u8])>> {
        let is_over = |gate: &Gate| head.epoch < gate.epoch || gate.end.is_some();
        let is_on = |gate: &Gate| head.epoch == gate.epoch && gate.mappings.is_some();
        let mut gate = self.wait(|gate| is_on(gate) || is_over(gate))?;
        let Some(mappings) = gate.mappings.clone().filter(|_| !is_over(&gate)) else {
            return Err(MigrateError::Protocol("memory of mappings that are no more".into()));
        };
        let runs = gate.intake.check(&head.spans, content, &mappings)?;
        gate.writing += 1;
        Ok(runs)
    }
}
