//! The life of a body, from when it may run until it is gone from here: of the first of a sandbox,
//! and of those that it makes ([`crate::family`]).

use crate::arrival::{Arrived, Link};
use crate::capture::Fixed;
use crate::company::Company;
use crate::daemon::Daemon;
use crate::family::Family;
use crate::filter::Kept;
use crate::keeper::{keep, keep_for_births};
use crate::own_files::OwnFiles;
use crate::serving;
use crate::state::{Parts, Shared, State};
use crate::tracing_loop::Tracing;
use kernel::child_signal::ChildSignal;
use kernel::proc::maps::MapQuery;
use kernel::sandbox::Sandbox;
use migrate::Result;
use std::sync::Arc;
use wire::supervisor::{ELSEWHERE, FromBody};

/// Runs the first body of a sandbox until it is gone from here, and tells the daemon why it is;
/// then keeps the sandbox for those that it has made.
pub fn run(daemon: &Daemon, home: Link, mut arrived: Arrived, company: Option<Company>) {
    let family = company.map(|company| {
        arrived.body.sandbox.init = company.init;
        company.family
    });
    let company = family.clone();
    let started = start(daemon, home, arrived, family);
    company.iter().for_each(|company| company.end_arrival());
    match started {
        Ok(tracing) => {
            let family = tracing.shared.family.clone();
            let signals = tracing.signals.for_another_thread().ok();
            if let Some(sandbox) = live(daemon, tracing, signals.as_ref()) {
                keep(&family, sandbox, signals.as_ref());
            }
        }
        Err(error) => daemon.send(&FromBody::Gone { reason: error.reason() }),
    }
}

/// Runs a body that has come with the first one.
pub fn run_companion(daemon: &Daemon, home: Link, arrived: Arrived, family: &Arc<Family>) {
    let started = start(daemon, home, arrived, Some(family.clone()));
    family.end_arrival();
    match started {
        Ok(tracing) => drop(live(daemon, tracing, None)),
        Err(error) => daemon.send(&FromBody::Gone { reason: error.reason() }),
    }
}

/// Runs a body until it is gone from here, and tells the daemon why it is. The sandbox, if this
/// thread has it and others live in it still; then `signals` tells what becomes of its init.
pub fn live(
    daemon: &Daemon,
    mut tracing: Tracing<'_>,
    signals: Option<&ChildSignal>,
) -> Option<Sandbox> {
    let reason = tracing.serve();
    if reason.code == ELSEWHERE && tracing.leaves_imprint() {
        daemon.send(&FromBody::Gone { reason });
        tracing.leave_imprint();
        tracing.end()
    } else {
        let family = tracing.shared.family.clone();
        let is_unwanted = tracing.unwanted_since.is_some();
        // Whoever hears that it is gone finds nothing of it any more.
        let sandbox = tracing.end();
        if let Some(sandbox) = sandbox.as_ref().filter(|_| !is_unwanted) {
            keep_for_births(daemon, &family, sandbox, signals);
        }
        daemon.send(&FromBody::Gone { reason });
        sandbox
    }
}

/// Of a family that there is already, or is to begin with it.
fn start<'a>(
    daemon: &'a Daemon,
    home: Link,
    arrived: Arrived,
    family: Option<Arc<Family>>,
) -> Result<Tracing<'a>> {
    let Arrived { body, listener, library, prospect, signals, abroad, watch, files, origin, late } =
        arrived;
    let state = State::of(&body);
    let kept = Kept::new(body.kept());
    let missing = body.missing;
    let mut body = body;
    let registers = body.registers.take();
    let tracking = body.tracking.take();
    let (mut sandbox, memory, agent, image) = body.into_parts();
    let is_companion = sandbox.init.is_none();
    let wake = match &family {
        // Whoever keeps the sandbox is woken as one.
        Some(family) if !is_companion => family.wake().clone(),
        _ => Arc::new(kernel::wake_up::make()?),
    };
    let family = family.unwrap_or_else(|| Family::of_one(wake.clone()));
    let fixed = Arc::new(Fixed::of(agent.base()..agent.end(), library, image, missing));
    let (late, late_link) = late.map(|(late, link)| (Arc::new(late), link)).unzip();
    if let Some(late) = late.clone() {
        memory.fetch_by(late);
    }
    let shared = Arc::new(Shared::new(Parts {
        pid: sandbox.body_pid,
        guest_pid: fixed.origin.pid,
        listener: Arc::new(listener),
        memory,
        family: family.clone(),
        maker: None,
        maps: MapQuery::open(sandbox.body_pid)?,
        kept,
        watch,
        files,
        own_files: OwnFiles::new(fixed.clone()),
        has_no_io_uring: prospect.has_no_io_uring,
        late,
        state,
        writer: home.1,
        wake,
        abroad: abroad.map(Arc::new),
        registers: registers.map(Arc::new),
    }));
    family.lasting.add(&prospect.lasting);
    family.add(&shared);
    match is_companion {
        true => serving::begin_for_filter(&shared),
        false => serving::begin_for_all(&shared),
    }
    serving::begin(&shared, home.0, late_link);
    let common = (Arc::new(agent), fixed);
    let mut tracing = Tracing::of(daemon, shared, common, prospect, signals);
    (tracing.tracking, tracing.origin) = (tracking, origin);
    if is_companion {
        tracing.begin()?;
        sandbox.let_companion_live();
    } else {
        tracing.sandbox = Some(sandbox);
        tracing.begin()?;
    }
    Ok(tracing)
}
