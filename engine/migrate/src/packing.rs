//! Whether memory contents are compressed on their way: where that makes them arrive sooner, by
//! what a stream has measured of its link, of the compressor and of the contents.
//!
//! Compressing and sending overlap: the kernel sends what was written while the next part is
//! compressed. So a stream is as fast as the slower of the two, and compressing pays if both the
//! compressor, and the link with what is left, are faster than the link with all of it.

use crate::parts::Part;
use crate::{MigrateError, Result};
use lz4_flex::block;
use std::time::{Duration, Instant};
use wire::forward::ToHome;
use wire::image::{PackedPages, Pages, bytes_at};
use wire::limits::PAGE_RUN_BYTES_MAX;
use wire::stream::Packing;

/// It has to be worth it: the other side unpacks.
const GAIN_MIN: f64 = 0.1;
/// Between two contents that are compressed to see how that goes: at first, and at most, where it
/// does not pay again and again.
const PROBE_PAUSE: u32 = 8;
const PROBE_PAUSE_MAX: u32 = 256;
/// A link that is never busy does not tell how fast it is. So after this many compressed contents
/// some go as they are, to see; if the link is as slow as before, that is done more rarely.
const CHECK_PAUSE: u32 = 64;
const CHECK_PAUSE_MAX: u32 = 2048;
/// More than the kernel takes before a slow link shows.
const CHECK_LENGTH: u32 = 6;
/// How much the newest counts in a mean.
const WEIGHT: f64 = 0.25;
/// A write that took more than this part of the time since the one before has waited for the link.
const BUSY_MIN: f64 = 0.3;

/// Mean of what was measured lately.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, value: f64) {
        self.0 = Some(self.0.map_or(value, |mean| mean + (value - mean) * WEIGHT));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// As they are; the next to be compressed comes after so many.
    Plain { probe_in: u32 },
    /// As they are, the next so many, to see how fast the link is.
    Check { left: u32 },
    /// Compressed; so many until the next check.
    Packed { check_in: u32 },
}

/// What one stream has measured.
#[derive(Debug)]
pub struct Choice {
    mode: Mode,
    probe_pause: u32,
    check_pause: u32,
    /// Nanoseconds that the link takes for a byte, and the compressor for one of content.
    link_ns: Mean,
    compressor_ns: Mean,
    /// What compressing leaves of a byte.
    left: Mean,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice {
            mode: Mode::Plain { probe_in: PROBE_PAUSE },
            probe_pause: PROBE_PAUSE,
            check_pause: CHECK_PAUSE,
            link_ns: Mean::default(),
            compressor_ns: Mean::default(),
            left: Mean::default(),
        }
    }
}

impl Choice {
    /// Whether the next content is to be compressed.
    pub fn compresses(&mut self) -> bool {
        match &mut self.mode {
            Mode::Plain { probe_in } => {
                *probe_in = probe_in.saturating_sub(1);
                // A link that was never busy is not what anything waits for.
                *probe_in == 0 && self.link_ns.0.is_some()
            }
            Mode::Check { .. } => false,
            Mode::Packed { .. } => true,
        }
    }

    /// That content has been compressed, to so many bytes, in that time.
    pub fn compressed(&mut self, bytes: usize, to: usize, took: Duration) {
        self.compressor_ns.add(per_byte(took, bytes));
        self.left.add(to as f64 / bytes as f64);
        self.decide();
    }

    /// So many bytes have been written, which took that long; the last time was so long ago.
    pub fn sent(&mut self, bytes: usize, took: Duration, since_last: Duration) {
        let took_of_it = took.as_secs_f64() / since_last.as_secs_f64().max(1e-9);
        let ns = per_byte(since_last, bytes);
        match self.link_ns.0 {
            _ if took_of_it > BUSY_MIN => self.link_ns.add(ns),
            // At least as fast as this.
            Some(before) if ns < before => self.link_ns = Mean(Some(ns)),
            _ => {}
        }
        if let Mode::Check { left } = &mut self.mode {
            *left -= 1;
            if *left == 0 {
                self.check_pause = (self.check_pause * 2).min(CHECK_PAUSE_MAX);
                self.mode = Mode::Packed { check_in: self.check_pause };
                self.decide();
            }
        }
    }

    /// After a content was compressed, or some were sent as they are to see how fast the link is.
    fn decide(&mut self) {
        let pays = self.pays();
        self.mode = match self.mode {
            Mode::Packed { check_in: 0 } if pays => {
                self.link_ns = Mean::default();
                Mode::Check { left: CHECK_LENGTH }
            }
            Mode::Packed { check_in } if pays => Mode::Packed { check_in: check_in - 1 },
            Mode::Packed { .. } => {
                self.probe_pause = PROBE_PAUSE;
                Mode::Plain { probe_in: PROBE_PAUSE }
            }
            _ if pays => {
                self.check_pause = CHECK_PAUSE;
                Mode::Packed { check_in: CHECK_PAUSE }
            }
            _ => {
                self.probe_pause = (self.probe_pause * 2).min(PROBE_PAUSE_MAX);
                Mode::Plain { probe_in: self.probe_pause }
            }
        };
    }

    /// True while contents are compressed, but for those that tell how fast the link is.
    fn is_compressing(&self) -> bool {
        !matches!(self.mode, Mode::Plain { .. })
    }

    fn pays(&self) -> bool {
        let (Some(link), Some(compressor), Some(left)) =
            (self.link_ns.0, self.compressor_ns.0, self.left.0)
        else {
            return false;
        };
        compressor.max(link * left) < link * (1.0 - GAIN_MIN)
    }
}

fn per_byte(took: Duration, bytes: usize) -> f64 {
    took.as_secs_f64() * 1e9 / bytes.max(1) as f64
}

/// Compresses what pays to be.
#[derive(Default)]
pub struct Packer {
    choice: Choice,
    packed: Vec<u8>,
    last_sent: Option<Instant>,
}

impl Packer {
    /// Whether it pays for what travels just now.
    pub fn is_compressing(&self) -> bool {
        self.choice.is_compressing()
    }

    /// How the content travels, and what of it.
    pub fn pack<'a>(&'a mut self, content: &'a [u8]) -> (Packing, &'a [u8]) {
        if !self.choice.compresses() {
            return (Packing::Plain, content);
        }
        let began = Instant::now();
        self.packed.resize(block::get_maximum_output_size(content.len()), 0);
        // It has room for what grows, too.
        let Ok(length) = block::compress_into(content, &mut self.packed) else {
            return (Packing::Plain, content);
        };
        self.choice.compressed(content.len(), length, began.elapsed());
        match (length as f64) < content.len() as f64 * (1.0 - GAIN_MIN) {
            true => (Packing::Lz4, &self.packed[..length]),
            false => (Packing::Plain, content),
        }
    }

    /// So many bytes are being written from now on, since the stream has them.
    pub fn sent(&mut self, bytes: usize, began: Instant, waited_for_content: Duration) {
        let now = Instant::now();
        if let Some(last) = self.last_sent {
            let since_last = (now - last).saturating_sub(waited_for_content);
            self.choice.sent(bytes, now - began, since_last);
        }
        self.last_sent = Some(now);
    }
}

/// Compresses what pays to be of what goes home, which it does over the link of its process.
#[derive(Default)]
pub struct HomePacker(Packer);

impl HomePacker {
    /// Sends a part of memory in the form in which it arrives the soonest: in so many bytes.
    pub fn send(&mut self, part: Part, send: impl FnOnce(ToHome, usize)) {
        let Part::Pages(Pages { spans, content }) = part else { return send(part.into(), 0) };
        let (packing, packed) = self.0.pack(&content);
        let length = packed.len();
        let message = match packing {
            Packing::Plain => ToHome::Pages(Pages { spans, content }),
            Packing::Lz4 => ToHome::PackedPages(PackedPages { spans, block: packed.to_vec() }),
        };
        let began = Instant::now();
        send(message, length);
        self.0.sent(length, began, Duration::ZERO);
    }
}

/// What came home of memory, as it was before it was compressed, and in how many bytes it came.
///
/// # Errors
/// It is something else, or cannot be unpacked: it comes from another machine.
pub fn unpack_pages(message: ToHome) -> Result<(Pages, u64)> {
    match message {
        ToHome::Pages(pages) => {
            let sent = pages.content.len() as u64;
            Ok((pages, sent))
        }
        ToHome::PackedPages(PackedPages { spans, block }) => {
            let is_one_message = |bytes: &u64| (1..=PAGE_RUN_BYTES_MAX as u64).contains(bytes);
            let bytes = bytes_at(&spans).filter(is_one_message).ok_or_else(not_packed)?;
            let content = unpack(&block, bytes as usize)?;
            Ok((Pages { spans, content }, block.len() as u64))
        }
        _ => Err(MigrateError::Protocol("expected memory contents".into())),
    }
}

fn not_packed() -> MigrateError {
    MigrateError::Protocol("memory contents that cannot be unpacked".into())
}

/// Unpacks a block that stands for so many bytes, no more and no less.
///
/// # Errors
/// It comes from another machine.
pub fn unpack(block: &[u8], bytes: usize) -> Result<Vec<u8>> {
    let mut content = vec![0; bytes];
    match block::decompress_into(block, &mut content) {
        Ok(length) if length == bytes => Ok(content),
        _ => Err(not_packed()),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::GuestAddr;
    use wire::image::Span;

    const BYTES: usize = 256 << 10;

    /// A link and a compressor, nanoseconds a byte, and what is left of a compressed one.
    struct World {
        link_ns: f64,
        compressor_ns: f64,
        left: f64,
    }

    /// How many of so many contents are compressed, in the order of time.
    fn play(choice: &mut Choice, world: &World, count: usize) -> Vec<bool> {
        // What the kernel has of the last write to send still, nanoseconds.
        let mut pending = 0.0;
        let ns = |value: f64| Duration::from_nanos(value as u64);
        let step = |_| {
            let is_packed = choice.compresses();
            let (mut bytes, mut passed) = (BYTES as f64, 20_000.0);
            if is_packed {
                bytes *= world.left;
                passed += world.compressor_ns * BYTES as f64;
                choice.compressed(BYTES, bytes as usize, ns(world.compressor_ns * BYTES as f64));
            }
            pending = f64::max(pending - passed, 0.0);
            // Copying takes a moment, waiting as long as what is before it.
            let write = pending + 0.1 * bytes;
            pending = world.link_ns * bytes;
            choice.sent(bytes as usize, ns(write), ns(passed + write));
            is_packed
        };
        (0..count).map(step).collect()
    }

    fn part(packed: &[bool]) -> f64 {
        packed.iter().filter(|is_packed| **is_packed).count() as f64 / packed.len() as f64
    }

    #[test]
    fn a_slow_link_gets_what_can_be_compressed() {
        for left in [0.0, 0.1, 0.5, 0.8] {
            let world = World { link_ns: 8.0, compressor_ns: 1.5, left };
            let packed = play(&mut Choice::default(), &world, 2000);
            assert!(part(&packed) > 0.9, "{left}: {}", part(&packed));
        }
    }

    #[test]
    fn what_cannot_be_compressed_is_hardly_tried() {
        let world = World { link_ns: 8.0, compressor_ns: 0.5, left: 1.0 };
        let packed = play(&mut Choice::default(), &world, 2000);
        assert!(part(&packed) < 0.01, "{}", part(&packed));
    }

    #[test]
    fn a_link_that_is_faster_than_the_compressor_gets_all_as_it_is() {
        for link_ns in [0.05, 0.8, 1.5] {
            let world = World { link_ns, compressor_ns: 1.5, left: 0.1 };
            let packed = play(&mut Choice::default(), &world, 2000);
            assert!(part(&packed) < 0.01, "{link_ns}: {}", part(&packed));
        }
    }

    #[test]
    fn contents_and_links_may_change_on_the_way() {
        let mut choice = Choice::default();
        let slow = World { link_ns: 8.0, compressor_ns: 1.5, left: 0.3 };
        assert!(part(&play(&mut choice, &slow, 1000)) > 0.9);
        let noise = World { left: 1.0, ..slow };
        assert!(part(&play(&mut choice, &noise, 1000)[100..]) < 0.05);
        assert!(part(&play(&mut choice, &slow, 1500)[500..]) > 0.9);
        let fast = World { link_ns: 0.5, ..slow };
        play(&mut choice, &fast, CHECK_PAUSE_MAX as usize + 100);
        assert!(part(&play(&mut choice, &fast, 1000)) < 0.05, "the link is faster now");
    }

    #[test]
    fn what_is_packed_is_unpacked_to_as_much_as_was_said() {
        let content: Vec<u8> = (0..BYTES).map(|at| (at / 100) as u8).collect();
        let block = block::compress(&content);
        assert_eq!(unpack(&block, BYTES).unwrap(), content);
        // A bomb, or too little.
        assert!(unpack(&block, BYTES - 4096).is_err());
        assert!(unpack(&block, BYTES + 4096).is_err());
        assert!(unpack(&block[..block.len() / 2], BYTES).is_err());
        assert!(unpack(&[], BYTES).is_err());
    }

    #[test]
    fn what_went_home_compressed_is_what_it_was() {
        let content = b"and so on ".repeat(820)[..8192].to_vec();
        let spans = vec![(GuestAddr(0), GuestAddr(4096)), (GuestAddr(8192), GuestAddr(12288))];
        let block = block::compress(&content);
        let (length, pages) = (block.len() as u64, Pages { spans: spans.clone(), content });
        let packed = |spans: &[Span]| {
            ToHome::PackedPages(PackedPages { spans: spans.to_vec(), block: block.clone() })
        };
        assert_eq!(unpack_pages(ToHome::Pages(pages.clone())).unwrap(), (pages.clone(), 8192));
        assert_eq!(unpack_pages(packed(&spans)).unwrap(), (pages, length));
        let too_much = [(GuestAddr(0), GuestAddr(PAGE_RUN_BYTES_MAX as u64 + 1))];
        let backwards = [(GuestAddr(8192), GuestAddr(0))];
        let endless = [(GuestAddr(0), GuestAddr(u64::MAX)); 2];
        for spans in [&spans[..1], &too_much, &backwards, &endless, &[]] {
            assert!(unpack_pages(packed(spans)).is_err(), "{spans:?}");
        }
        assert!(unpack_pages(ToHome::GoesHome).is_err());
    }
}
