//! The source's side of the streams: connections beside the link that carry memory contents, each
//! with a key and a thread of its own, so that reading, compressing, sealing and sending overlap.
//!
//! ```text
//! reads memory ──► queue of a few parts ──► compress, seal, send   (a thread for each stream)
//!              └──────────────────────────► the link: drafts, what is gone, the image
//! ```
//!
//! Between two drafts every page travels once at most, so parts of one epoch may arrive in any
//! order; the link says how many there are before it says more ([`crate::inflow`]).

use crate::pacing::Pacing;
use crate::packing::Packer;
use crate::{MigrateError, Result};
use link::{Closer, LinkWriter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::forward::ToAway;
use wire::image::Pages;
use wire::limits::STREAMS_MAX;
use wire::move_limits::{Bandwidth, MoveLimits};
use wire::stream::PartHead;
use wire::supervisor::{Berth, Role};

/// What less memory takes is over before streams are there.
const BYTES_MIN: u64 = 16 << 20;
/// What less of it, once they are there, takes in a freeze is over as soon without them.
const LAST_BYTES_MIN: u64 = 4 << 20;
/// Parts that wait for a stream, besides the one that each has.
const QUEUE_MAX: usize = 4;
/// What the kernel may hold back of a stream: enough for the link to be busy while the next part is
/// prepared.
const UNSENT_MAX: u32 = 512 << 10;

/// What one stream can bring on any computer, bytes a second.
const STREAM_BYTES_PER_S: f64 = 250e6;

/// How many streams are worth it for so much memory: the thread that reads takes one processor.
fn worthwhile(memory_bytes: u64, limits: MoveLimits) -> usize {
    if memory_bytes < BYTES_MIN {
        return 0;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let count = (processors - 1).clamp(1, STREAMS_MAX / 2);
    let allowed = limits.processors.map_or(usize::MAX, |it| it.get() as usize - 1);
    let needed = |limit: Bandwidth| (limit.bytes_per_s() / STREAM_BYTES_PER_S).ceil() as usize;
    count.min(allowed).min(limits.bandwidth.map_or(usize::MAX, needed))
}

/// What is said on the link meanwhile.
const TELL_PAUSE: Duration = Duration::from_secs(1);

struct Job {
    epoch: u32,
    pages: Pages,
}

/// What the streams of one move have in common.
struct Shared {
    pacing: Arc<Pacing>,
    bytes_sent: AtomicU64,
    /// Whichever sent the last does.
    is_compressing: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<MigrateError>>,
}

impl Shared {
    fn at(pacing: Arc<Pacing>) -> Shared {
        let (bytes_sent, is_compressing, has_failed, failure) = Default::default();
        Shared { pacing, bytes_sent, is_compressing, has_failed, failure }
    }

    /// The first counts.
    fn fail(&self, error: MigrateError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.has_failed.store(true, Ordering::SeqCst);
    }

    fn failure(&self) -> MigrateError {
        let known = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        known.unwrap_or_else(|| MigrateError::refused("link", "a stream of its memory has ended"))
    }
}

/// Streams to one berth. They have to stay until the target says that it has everything.
pub struct Streams {
    shared: Arc<Shared>,
    queue: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
    tids: Vec<i32>,
    closers: Vec<Closer>,
    parts: u64,
    told: Instant,
}

impl Streams {
    /// Connects as many as are worth it to a berth that has a draft. None if that is none, or if
    /// none can be had: then everything goes over the link.
    ///
    /// # Errors
    /// Of the link.
    pub fn open(
        berth: &Berth,
        link: &mut LinkWriter,
        (memory_bytes, limits): (u64, MoveLimits),
        pacing: &Arc<Pacing>,
    ) -> Result<Option<Streams>> {
        match worthwhile(memory_bytes, limits) {
            0 => Ok(None),
            count => Streams::open_some(berth, link, count, pacing),
        }
    }

    fn open_some(
        berth: &Berth,
        link: &mut LinkWriter,
        count: usize,
        pacing: &Arc<Pacing>,
    ) -> Result<Option<Streams>> {
        link.send(&ToAway::Streams { count: count as u32 })?;
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let (shared, jobs) = (Arc::new(Shared::at(pacing.clone())), Arc::new(Mutex::new(jobs)));
        let (threads, tids, closers) = (vec![], vec![], vec![]);
        let (queue, told) = (Some(queue), Instant::now());
        let mut streams = Streams { shared, queue, threads, tids, closers, parts: 0, told };
        for _ in 0..count {
            if let Err(error) = streams.add(berth, &jobs) {
                // The others do, or the link.
                tracing::debug!("a stream to {}: {error}", berth.address);
                break;
            }
        }
        Ok((!streams.threads.is_empty()).then_some(streams))
    }

    fn add(&mut self, berth: &Berth, jobs: &Arc<Mutex<Receiver<Job>>>) -> Result<()> {
        let (_, writer) = link::connect(berth, Role::Stream)?;
        // As the link: a move that hangs is given up soon.
        writer.set_hurried(true)?;
        writer.set_unsent_max(UNSENT_MAX)?;
        let closer = writer.closer()?;
        let (shared, jobs) = (self.shared.clone(), jobs.clone());
        let (thread, tid) = spawn(move || serve(writer, &jobs, &shared))?;
        self.threads.push(thread);
        self.tids.extend(tid);
        self.closers.push(closer);
        Ok(())
    }

    /// The threads that send.
    pub fn tids(&self) -> &[i32] {
        &self.tids
    }

    /// Has one of them send this, which belongs to the mappings of that epoch. Waits while all are
    /// busy.
    ///
    /// # Errors
    /// One of them has failed; what it had to send is lost.
    pub fn send(&mut self, epoch: u32, pages: Pages) -> Result<()> {
        let is_sent = !self.shared.has_failed.load(Ordering::SeqCst)
            && self.queue.as_ref().is_some_and(|queue| queue.send(Job { epoch, pages }).is_ok());
        if !is_sent {
            return Err(self.shared.failure());
        }
        self.parts += 1;
        Ok(())
    }

    /// True once in a while: then the link is to say how many parts there were so far.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.told.elapsed() >= TELL_PAUSE;
        if is_due {
            self.told = Instant::now();
        }
        is_due
    }

    /// How many parts they were given.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// Whether they are to be preferred to the link for the last of the memory, of which so much is
    /// left: little is there as soon, and in order, on the link alone, but for one that is so slow
    /// that contents are compressed. What the rounds before have shown of its speed is to hold.
    pub fn are_for_last(&self, bytes: u64) -> bool {
        bytes >= LAST_BYTES_MIN || self.shared.is_compressing.load(Ordering::SeqCst)
    }

    pub fn bytes_sent(&self) -> u64 {
        self.shared.bytes_sent.load(Ordering::SeqCst)
    }
}

impl Drop for Streams {
    /// Whatever has still to be sent is of no use any more.
    fn drop(&mut self) {
        self.queue = None;
        self.closers.iter().for_each(Closer::close);
        for thread in self.threads.drain(..) {
            // It has said why it ended.
            let _ = thread.join();
        }
    }
}

/// Starts the thread of a stream, on either side; with its id, unless it has failed at once.
///
/// # Errors
/// There is no thread to be had for it.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(JoinHandle<()>, Option<i32>)> {
    let (tell, tid) = sync_channel(1);
    let work = move || {
        // Who starts this waits for it.
        let _ = tell.send(nix::unistd::gettid().as_raw());
        work();
    };
    let thread =
        std::thread::Builder::new().name("stream".into()).spawn(work).map_err(|error| {
            MigrateError::refused("no-thread", format!("cannot serve a stream: {error}"))
        })?;
    Ok((thread, tid.recv().ok()))
}

/// Sends what comes, until nothing more does.
fn serve(mut writer: LinkWriter, jobs: &Mutex<Receiver<Job>>, shared: &Shared) {
    let mut packer = Packer::default();
    loop {
        let began = Instant::now();
        // Who waits for a job holds the lock, and the others wait for that.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let before = writer.bytes_sent();
        let outcome = send(&mut writer, &mut packer, job, (began.elapsed(), &shared.pacing));
        shared.bytes_sent.fetch_add(writer.bytes_sent() - before, Ordering::SeqCst);
        shared.is_compressing.store(packer.is_compressing(), Ordering::SeqCst);
        if let Err(error) = outcome {
            shared.fail(error);
            return writer.close();
        }
    }
}

fn send(
    writer: &mut LinkWriter,
    packer: &mut Packer,
    job: Job,
    (waited, pacing): (Duration, &Pacing),
) -> Result<()> {
    let Job { epoch, pages: Pages { spans, content } } = job;
    let (packing, packed) = packer.pack(&content);
    let head = PartHead { epoch, packing, spans }.encode();
    let length = packed.len();
    let began = Instant::now();
    writer.send_bytes(&[&head, packed])?;
    // As on a link that is no faster: whether to compress follows from that.
    pacing.sent(length, began);
    packer.sent(length, began, waited);
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::inflow::Inflow;
    use crate::intake::Intake;
    use kernel::memory::Memory;
    use link::LinkReader;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::num::NonZeroU32;
    use wire::ids::{GuestAddr, NodeId, Ticket};
    use wire::image::{Mapping, MappingKind};
    use wire::supervisor::PREFACE_BYTES;

    const PART: u64 = 256 << 10;
    const PARTS: u64 = 128;

    /// A source and a target in this process.
    struct Pair {
        listener: TcpListener,
        berth: Berth,
        link: (LinkReader, LinkWriter),
        /// The link's other end.
        other: (LinkReader, LinkWriter),
        inflow: Inflow,
        pacing: Arc<Pacing>,
        /// What the target writes to.
        memory: Vec<u8>,
        mappings: Vec<Mapping>,
    }

    fn accept(listener: &TcpListener, key: &[u8; 32]) -> (LinkReader, LinkWriter) {
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; PREFACE_BYTES]).unwrap();
        link::accept(stream, key).unwrap()
    }

    impl Pair {
        fn new() -> Pair {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (node, ticket, key) = (NodeId(1), Ticket([1; 16]), [2; 32]);
            let berth = Berth { node, address, ticket, key };
            let calling = std::thread::spawn({
                let berth = berth.clone();
                move || link::connect(&berth, Role::Deputy).unwrap()
            });
            let other = accept(&listener, &key);
            let link = calling.join().unwrap();
            let memory = vec![0; ((PARTS + 1) * PART) as usize];
            let start = (memory.as_ptr() as u64).next_multiple_of(4096);
            let mappings = vec![Mapping {
                start: GuestAddr(start),
                end: GuestAddr(start + PARTS * PART),
                protection: 3,
                kind: MappingKind::Anonymous { grows_down: false },
                flags: Default::default(),
            }];
            let own = Memory::open(std::process::id() as i32).unwrap();
            let inflow = Inflow::new(own, Intake::default());
            let pacing = Arc::new(Pacing::of(None));
            Pair { listener, berth, link, other, inflow, pacing, memory, mappings }
        }

        /// That many streams, and their ends.
        fn open(&mut self, count: usize) -> (Streams, Vec<(LinkReader, LinkWriter)>) {
            std::thread::scope(|scope| {
                let accepting = scope.spawn(|| {
                    (0..count).map(|_| accept(&self.listener, &self.berth.key)).collect()
                });
                let (link, pacing) = (&mut self.link.1, &self.pacing);
                let streams = Streams::open_some(&self.berth, link, count, pacing).unwrap();
                (streams.unwrap(), accepting.join().unwrap())
            })
        }

        fn part(&self, index: u64) -> Pages {
            Pages::at(GuestAddr(self.mappings[0].start.0 + index * PART), content(index))
        }

        fn seen(&self, index: u64) -> &[u8] {
            let start = self.mappings[0].start.0 - self.memory.as_ptr() as u64 + index * PART;
            &std::hint::black_box(&self.memory)[start as usize..(start + PART) as usize]
        }
    }

    /// Of which some can be compressed.
    fn content(index: u64) -> Vec<u8> {
        let noise = |at: u64| (at ^ index << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let byte = |at| if index.is_multiple_of(3) { (at / 500) as u8 } else { noise(at) as u8 };
        (0..PART).map(byte).collect()
    }

    #[test]
    fn memory_arrives_whole_over_several_streams_of_which_one_stands_still() {
        let mut pair = Pair::new();
        let (mut streams, mut ends) = pair.open(3);
        let slow = ends.pop().unwrap();
        ends.into_iter().for_each(|end| pair.inflow.add(end).unwrap());
        pair.inflow.begin_epoch(&pair.mappings);
        for index in 0..PARTS {
            streams.send(1, pair.part(index)).unwrap();
        }
        assert_eq!(streams.parts(), PARTS);
        pair.inflow.add(slow).unwrap();
        pair.inflow.await_parts(PARTS).unwrap();
        pair.inflow.finish().unwrap();
        for index in 0..PARTS {
            assert!(pair.seen(index) == content(index), "part {index}");
        }
        assert!(streams.bytes_sent() > 0);
        let told = pair.other.0.receive::<ToAway>().unwrap();
        assert_eq!(told, ToAway::Streams { count: 3 });
    }

    #[test]
    fn a_part_is_written_in_its_epoch_and_in_no_other() {
        let mut pair = Pair::new();
        let (mut streams, mut ends) = pair.open(1);
        pair.inflow.add(ends.remove(0)).unwrap();
        pair.inflow.begin_epoch(&pair.mappings);
        streams.send(2, pair.part(0)).unwrap();
        streams.send(2, pair.part(1)).unwrap();
        pair.inflow.shut().unwrap();
        assert!(pair.seen(0).iter().all(|byte| *byte == 0), "it is too early");
        pair.inflow.begin_epoch(&pair.mappings);
        pair.inflow.await_parts(2).unwrap();
        assert!(pair.seen(1) == content(1));
        streams.send(1, pair.part(2)).unwrap();
        let error = pair.inflow.await_parts(3).unwrap_err();
        assert_eq!(error.reason().code, "protocol", "it is too late: {error}");
        assert!(pair.seen(2).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn memory_outside_of_the_mappings_is_not_written() {
        let mut pair = Pair::new();
        let (mut streams, mut ends) = pair.open(1);
        pair.inflow.add(ends.remove(0)).unwrap();
        pair.inflow.begin_epoch(&pair.mappings);
        streams.send(1, pair.part(PARTS)).unwrap();
        let error = pair.inflow.await_parts(1).unwrap_err();
        assert_eq!(error.reason().code, "protocol", "{error}");
    }

    #[test]
    fn a_stream_that_breaks_is_noticed_by_both_sides() {
        let mut pair = Pair::new();
        let (mut streams, ends) = pair.open(2);
        let (mut readers, mut writers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        // Its other end goes, and with it what was on the way.
        writers.remove(0).close();
        drop(readers.remove(0));
        pair.inflow.add((readers.remove(0), writers.remove(0))).unwrap();
        pair.inflow.begin_epoch(&pair.mappings);
        let error = (0..PARTS).find_map(|index| streams.send(1, pair.part(index)).err());
        assert_eq!(error.expect("a stream is broken").reason().code, "link");
        drop(streams);
        let error = pair.inflow.await_parts(PARTS).unwrap_err();
        assert_eq!(error.reason().code, "link", "{error}");
    }

    /// Whoever listens to it gives up a link on which nothing comes.
    #[test]
    fn a_link_is_not_silent_while_all_goes_over_streams() {
        let mut pair = Pair::new();
        let (mut streams, _ends) = pair.open(1);
        assert!(!streams.is_due());
        streams.told -= TELL_PAUSE;
        assert!(streams.is_due());
        assert!(!streams.is_due(), "it has been said");
    }

    #[test]
    fn little_of_the_last_goes_over_streams_only_if_they_compress() {
        let mut pair = Pair::new();
        let (streams, _ends) = pair.open(1);
        assert!(!streams.are_for_last(LAST_BYTES_MIN - 1) && streams.are_for_last(LAST_BYTES_MIN));
        streams.shared.is_compressing.store(true, Ordering::SeqCst);
        assert!(streams.are_for_last(1));
    }

    #[test]
    fn streams_are_for_large_processes() {
        let free = MoveLimits::default();
        assert_eq!(worthwhile(BYTES_MIN - 1, free), 0);
        assert!((1..=STREAMS_MAX).contains(&worthwhile(u64::MAX, free)));
    }

    #[test]
    fn streams_are_no_more_than_owners_let_processors_be_busy() {
        let within = |processors: u32, bandwidth: Option<&str>| {
            let bandwidth = bandwidth.and_then(|word| word.parse().ok());
            worthwhile(u64::MAX, MoveLimits { processors: NonZeroU32::new(processors), bandwidth })
        };
        assert_eq!((within(1, None), within(2, None)), (0, 1), "the thread that reads is one");
        assert!(within(3, None) <= 2);
        assert_eq!(within(64, Some("500Mbit")), 1, "which brings that alone");
        assert_eq!(within(1, Some("500Mbit")), 0);
    }

    #[test]
    fn all_streams_of_a_move_keep_to_one_limit() {
        let mut pair = Pair::new();
        // Noise does not become less by being compressed.
        let limit: Bandwidth = "800Mbit".parse().unwrap();
        pair.pacing = Arc::new(Pacing::of(Some(limit)));
        let (mut streams, ends) = pair.open(2);
        ends.into_iter().for_each(|end| pair.inflow.add(end).unwrap());
        pair.inflow.begin_epoch(&pair.mappings);
        let began = Instant::now();
        for index in 0..PARTS {
            streams.send(1, pair.part(index)).unwrap();
        }
        pair.inflow.await_parts(PARTS).unwrap();
        let took = began.elapsed();
        // Whoever was late may have made up for a moment, and the last part is there before it may.
        let slack = Duration::from_millis(10).as_secs_f64() * limit.bytes_per_s();
        let least = streams.bytes_sent() as f64 - slack - 3.0 * PART as f64;
        assert!(took.as_secs_f64() >= least / limit.bytes_per_s(), "{took:?}");
    }
}
