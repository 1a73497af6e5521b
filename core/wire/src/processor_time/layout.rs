//! The structures by which Linux tells processor time, as x86-64 has them.

use super::ProcessorTime;

/// A clock tick of times(2): USER_HZ is 100.
const TICK_NS: u64 = 10_000_000;

/// `struct timespec`.
pub fn timespec(ns: u64) -> [u8; 16] {
    pair(ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The time in a `struct timespec`, nanoseconds.
pub fn read_timespec(bytes: &[u8]) -> u64 {
    word(bytes, 0).saturating_mul(1_000_000_000).saturating_add(word(bytes, 1))
}

/// `struct timeval`.
fn timeval(ns: u64) -> [u8; 16] {
    pair(ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// The 64-bit word at this place of a structure; 0 if it is shorter or the word is negative.
fn word(bytes: &[u8], index: usize) -> u64 {
    let found = bytes.get(index * 8..index * 8 + 8).and_then(|word| word.try_into().ok());
    found.map_or(0, i64::from_le_bytes).max(0) as u64
}

/// User and system time of a `struct rusage`.
pub fn read_usage(bytes: &[u8]) -> ProcessorTime {
    let time = |index| {
        let us =
            word(bytes, index).saturating_mul(1_000_000).saturating_add(word(bytes, index + 1));
        us.saturating_mul(1000)
    };
    ProcessorTime { user_ns: time(0), system_ns: time(2) }
}

/// Replaces user and system time of a `struct rusage`, and the peak by the larger of the two.
pub fn write_usage(bytes: &mut [u8], told: ProcessorTime, peak_rss_kib: u64) {
    let peak_rss_kib = peak_rss_kib.max(word(bytes, 4));
    let times = [timeval(told.user_ns), timeval(told.system_ns)].concat();
    put(bytes, &[&times, peak_rss_kib.to_le_bytes().as_slice()].concat());
}

/// User and system time of a `struct tms`.
pub fn read_ticks(bytes: &[u8]) -> ProcessorTime {
    let time = |index| word(bytes, index).saturating_mul(TICK_NS);
    ProcessorTime { user_ns: time(0), system_ns: time(1) }
}

/// Replaces user and system time of a `struct tms`.
pub fn write_ticks(bytes: &mut [u8], told: ProcessorTime) {
    put(bytes, &pair(told.user_ns / TICK_NS, told.system_ns / TICK_NS));
}

/// Overwrites the head of a structure, if home has sent a whole one.
fn put(bytes: &mut [u8], head: &[u8]) {
    if let Some(place) = bytes.get_mut(..head.len()) {
        place.copy_from_slice(head);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn time(user_ns: u64, system_ns: u64) -> ProcessorTime {
        ProcessorTime { user_ns, system_ns }
    }

    #[test]
    fn usage_keeps_everything_but_times_and_peak() {
        let mut bytes: Vec<u8> = (0..18u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(read_usage(&bytes), time(1_000, 2_000_003_000));
        write_usage(&mut bytes, time(7_000_008_999, 9), 1000);
        assert_eq!(read_usage(&bytes), time(7_000_008_000, 0));
        assert_eq!(word(&bytes, 4), 1000);
        write_usage(&mut bytes, time(0, 0), 3);
        assert_eq!(word(&bytes, 4), 1000, "home had more");
        assert_eq!(bytes[40..], (5..18u64).flat_map(u64::to_le_bytes).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn ticks_of_children_stay_homes() {
        let mut bytes: Vec<u8> =
            [100u64, 50, 7, 8].into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(read_ticks(&bytes), time(1_000_000_000, 500_000_000));
        write_ticks(&mut bytes, time(1_239_999_999, 510_000_000));
        assert_eq!([0, 1, 2, 3].map(|index| word(&bytes, index)), [123, 51, 7, 8]);
    }

    #[test]
    fn a_structure_cut_short_is_left_alone() {
        let mut short = vec![1; 8];
        write_usage(&mut short, time(1, 1), 1);
        write_ticks(&mut short, time(1, 1));
        assert_eq!(short, [1; 8]);
        assert_eq!(read_usage(&[]), time(0, 0));
        assert_eq!(read_ticks(&[255; 32]), time(0, 0), "negative times are none");
    }
}
