//! Whose clocks a process has: those of its home, wherever it is. The side that takes a process
//! in asks home for the time, over the link that it will make its calls over.

use crate::{MigrateError, Result};
use kernel::clocks;
use link::{LinkReader, LinkWriter};
use nix::time::ClockId;
use std::time::{Duration, Instant};
use wire::clocks::{Offset, Readings};
use wire::forward::{ToAway, ToHome};

/// Questions before a process moves: the quickest answer is the one that counts.
const QUESTIONS: usize = 4;
/// The longest that a process stands still so that no clock goes back, as the clocks of two
/// machines can be compared to half a round trip only.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Between two looks at clocks that are waited for: a small part of a tick.
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// What this machine's clocks show. In this order: what is read last is a few hundred nanoseconds
/// younger.
pub fn now() -> Readings {
    Readings {
        coarse_ns: clocks::ns(ClockId::CLOCK_MONOTONIC_COARSE),
        real_coarse_ns: clocks::ns(ClockId::CLOCK_REALTIME_COARSE),
        raw_ns: clocks::ns(ClockId::CLOCK_MONOTONIC_RAW),
        tai_ns: clocks::ns(ClockId::CLOCK_TAI),
        real_ns: clocks::ns(ClockId::CLOCK_REALTIME),
        boot_ns: clocks::ns(ClockId::CLOCK_BOOTTIME),
        monotonic_ns: clocks::ns(ClockId::CLOCK_MONOTONIC),
    }
}

/// Asks home how far its clocks are ahead of ours. Nothing else is said on the link meanwhile.
pub fn ask_home((reader, writer): &mut (LinkReader, LinkWriter)) -> Result<Offset> {
    let mut best: Option<Offset> = None;
    for _ in 0..QUESTIONS {
        let asked = now();
        writer.send(&ToHome::AskTime)?;
        let ToAway::Time(told) = reader.receive()? else {
            return Err(MigrateError::Protocol("home does not tell the time".into()));
        };
        let offset = Offset::measured(asked, told, now());
        best = Some(best.map_or(offset, |best| best.or(offset)));
    }
    best.ok_or_else(|| MigrateError::Protocol("home was not asked for the time".into()))
}

/// Home's part of [`ask_home`], where nothing else can come.
pub fn tell((reader, writer): &mut (LinkReader, LinkWriter)) -> Result<()> {
    for _ in 0..QUESTIONS {
        match reader.receive()? {
            ToHome::AskTime => writer.send(&ToAway::Time(now()))?,
            ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
            _ => return Err(MigrateError::Protocol("it does not ask for the time".into())),
        }
    }
    Ok(())
}

/// Waits until none of a process's clocks, which `now` reads, shows less than it did. The coarse
/// ones go on at the next tick only, however little is missing, and no timer can be set on them:
/// they are looked at again.
pub fn await_no_less(floor: Readings, now: impl Fn() -> Readings) {
    let start = Instant::now();
    loop {
        let most = WAIT_MAX.saturating_sub(start.elapsed());
        let wait_ns = now().wait_for_ns(floor, most.as_nanos() as i64);
        if wait_ns == 0 {
            return;
        }
        ::tracing::debug!("its clocks are waited for: {wait_ns} ns");
        std::thread::sleep(Duration::from_nanos(wait_ns).max(LOOK_INTERVAL));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_coarse_clock_that_is_a_little_behind_is_waited_for_until_its_next_tick() {
        for _ in 0..20 {
            let floor = now();
            let coarse_ns = floor.coarse_ns + 55;
            let real_coarse_ns = floor.real_coarse_ns + 55;
            await_no_less(Readings { coarse_ns, real_coarse_ns, ..floor }, now);
            let after = now();
            assert!(after.coarse_ns >= coarse_ns && after.real_coarse_ns >= real_coarse_ns);
        }
    }
}
