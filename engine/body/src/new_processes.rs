//! Processes that the guest makes while it is away ([decision 0031](../../../docs/decisions/)).
//!
//! Home makes one first: the natural child of the process, whose id is the child's, here as there.
//! Then the thread that asked, stopped behind its call, makes one here: a copy in the same sandbox,
//! with the same filter, whose memory the kernel copies when it is written to. It sleeps in the
//! agent until it has been handed over to a thread of this supervisor of its own, and runs when its
//! own deputy has called.

use crate::arrival::{ARRIVAL_TIMEOUT, Link};
use crate::capture::Fixed;
use crate::daemon::Daemon;
use crate::door::{Door, NOT_COMING};
use crate::files::Files;
use crate::keeper::{end_process, kill};
use crate::new_threads::first_registers;
use crate::own_files::OwnFiles;
use crate::processor_time::{Meter, Peak};
use crate::state::{Agreement, Order, Parts, Shared, State, Thread};
use crate::tracing_loop::Tracing;
use crate::{group, life, priority, serving};
use attachment::Attachment;
use kernel::agent::Agent;
use kernel::child_signal::ChildSignal;
use kernel::memory::Memory;
use kernel::patience::Patience;
use kernel::proc::maps::MapQuery;
use kernel::regs::Registers;
use kernel::signal::Action;
use kernel::tracee::{self, SeizeOptions, Stop};
use migrate::making::Made;
use migrate::threads::STEP_TIMEOUT;
use migrate::{MigrateError, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::calls::{Arguments, thread};
use wire::forward::{ToAway, ToHome};
use wire::ids::{GuestTid, HomePid, Ticket};
use wire::image::{Prospect, SharedMemory};
use wire::processor_time::Clock;
use wire::supervisor::{FromBody, FromDaemon, PACKET_BYTES_MAX, Role, ToBody};

/// What the first body of a sandbox is traced by.
const TRACED: SeizeOptions =
    SeizeOptions { follow: true, exit_kill: true, calls: true, programs: false };

/// How long its deputy may take to call, daemons that end meanwhile included.
pub(crate) const DEPUTY_TIMEOUT: Duration = link::LOSS_TIMEOUT;
/// Between two looks for the next daemon.
const OFFER_PAUSE: Duration = Duration::from_millis(20);
/// A daemon answers within a millisecond; one that does not is overloaded.
const DAEMON_TIMEOUT_MS: u16 = 2000;

/// What shared memory a process made here by clone with these flags has in common with its maker,
/// of which home has to know some yet; None if none can be made here: something that both would
/// share could be in two places.
pub(crate) fn may_fork(shared: &Shared, flags: u64) -> Option<Vec<SharedMemory>> {
    let is_whole = shared.late.as_ref().is_none_or(|late| late.is_whole());
    let may_be_born = !shared.family.is_first_leaving();
    // One that has its maker's memory goes on without it at home.
    let has_own_memory = shared.maker.is_none();
    // Home's half of the child would not know which files those are.
    let is_known = !shared.own_files.fixed.library().has_grown();
    if !(is_known && has_own_memory && is_whole && may_be_born) {
        return None;
    }
    if thread::is_vfork(flags) {
        // Memory that is all one goes nowhere.
        return Some(vec![]);
    }
    let mut commons = group::commons(shared).filter(|_| !shared.files.is_any())?;
    if commons.iter().all(|memory| memory.home().is_some()) {
        commons.clear();
    }
    Some(commons)
}

/// What a child's own thread begins with.
struct Newborn {
    maker: Arc<Shared>,
    agent: Arc<Agent>,
    fixed: Arc<Fixed>,
    prospect: Prospect,
    signals: ChildSignal,
    /// As which guest the daemon is told of it, and the key of whoever may call.
    child: (HomePid, Ticket),
    key: [u8; 32],
    made: Made,
    /// As one made by vfork(2) has it.
    has_makers_memory: bool,
    /// It shares memory with others.
    is_bound: bool,
    /// As the kernel starts it.
    registers: Registers,
    mask: u64,
    state: State,
    /// It begins with the default in the place of each handler.
    clears_handlers: bool,
}

impl Tracing<'_> {
    /// Has a thread, which stands behind its call, make the process that home has made already.
    pub(crate) fn make_child(
        &mut self,
        tid: i32,
        guest: GuestTid,
        (how, before): (&Arguments, &Registers),
    ) -> Result<()> {
        let child = self.shared.lock().take_child(guest);
        let maps_file = |agreed: &Agreement| matches!(agreed, Agreement::Map(..));
        if self.fixed.library().has_grown() || self.agreeing.values().any(maps_file) {
            // While home made its half of the child.
            return Err(MigrateError::refused("file-mapping", "it has mapped a file meanwhile"));
        }
        let child = child.ok_or_else(|| MigrateError::Protocol("an unknown child".into()))?;
        let has_makers_memory = thread::is_vfork(how[0]);
        let is_bound = !has_makers_memory && group::learn_names(&self.shared, &child.shared)?;
        let slot = self.shared.family.free_slot(&self.shared, self.agent.slots())?;
        let (ours, theirs) = sockets()?;
        let signals = self.signals.for_another_thread()?;
        let mask = tracee::signal_mask(tid)?;
        // The sandbox's init is its parent: it is at home that its parent hears of its end.
        let mut of_init = *how;
        of_init[0] = thread::of_body(how[0]) | libc::CLONE_PARENT as u64;
        let of_init = thread::of_clone(of_init);
        let local = self.make_by_clone(tid, guest, &of_init)?;
        let made = Made { guest, local, slot };
        let newborn = Newborn {
            maker: self.shared.clone(),
            agent: self.agent.clone(),
            fixed: Arc::new(self.fixed.for_child()),
            prospect: Prospect { pid: guest, is_kept: false, ..self.prospect.clone() },
            signals,
            child: (child.pid, child.ticket),
            key: child.key,
            made,
            has_makers_memory,
            is_bound,
            registers: first_registers(how, before),
            mask,
            state: self.state_of_child(tid, made)?,
            clears_handlers: thread::clears_handlers(how[0]),
        };
        // Set before the child is there, which may be done at once.
        self.shared.lock().have_wait(tid, has_makers_memory.then_some(guest));
        self.hand_over_child(newborn, ours, theirs).inspect_err(|_| {
            self.shared.lock().have_wait(tid, None);
            end_process(local);
        })?;
        self.say_child_made(tid, guest, true);
        Ok(())
    }

    /// It begins as its maker is, but for what is counted.
    fn state_of_child(&self, maker: i32, made: Made) -> Result<State> {
        let state = self.shared.lock();
        let maker = state.threads.get(&maker);
        let maker = maker.ok_or_else(|| MigrateError::Protocol("a child of nobody".into()))?;
        let traits = (maker.priority, maker.attributes, maker.extended_bytes);
        let thread = Thread::begun(made.local, made, traits, Clock::default());
        Ok(State {
            threads: [(made.local, thread)].into(),
            actions: state.actions.clone(),
            meter: Meter::of_process(made.local, Clock::default()),
            peak: Peak::new(made.local, 0),
            children: vec![],
            holds_processes: false,
            stands_back: state.stands_back,
            is_frozen: false,
            is_interrupted: false,
        })
    }

    /// Gives a process to a thread of its own, and tells the daemon of it.
    fn hand_over_child(&self, newborn: Newborn, socket: OwnedFd, theirs: OwnedFd) -> Result<()> {
        let (family, is_bound) = (self.shared.family.clone(), newborn.is_bound);
        if !family.try_begin_birth(is_bound) {
            return Err(MigrateError::refused("leaving", "others of its sandbox just leave"));
        }
        let handed = self.hand_over_unborn(newborn, socket, theirs);
        handed.inspect_err(|_| family.end_birth(is_bound))
    }

    fn hand_over_unborn(&self, newborn: Newborn, socket: OwnedFd, theirs: OwnedFd) -> Result<()> {
        let (family, Made { local, slot, .. }) = (self.shared.family.clone(), newborn.made);
        let mut asleep = tracee::registers(local)?;
        self.agent.clear(slot);
        self.agent.enter(&mut asleep, slot);
        tracee::set_registers(local, &asleep)?;
        tracee::set_signal_mask(local, u64::MAX)?;
        let is_told = self.daemon.hand_over(&newborn.word(), &theirs);
        // One that does not want it closes the last other end.
        drop(theirs);
        if !is_told || !is_guest(&socket) {
            return Err(MigrateError::refused("no-daemon", "the daemon does not take it"));
        }
        family.take_slot(&self.shared, slot);
        family.grow();
        tracee::detach(local, 0)?;
        let thread = std::thread::Builder::new().name("body".into());
        if let Err(error) = thread.spawn(move || live(newborn, socket)) {
            kill(local);
            family.give_slot(&self.shared, slot);
            family.shrink();
            let text = format!("no thread for it: {error}");
            return Err(MigrateError::refused("no-thread", text));
        }
        Ok(())
    }

    /// Tells home whether the child has a body.
    pub(crate) fn say_child_made(&self, tid: i32, child: GuestTid, has_body: bool) {
        let maker = self.shared.lock().threads.get(&tid).map(|thread| thread.guest);
        if let Some(tid) = maker {
            self.shared.send(ToHome::ChildMade { tid, child, has_body });
        }
    }
}

/// Waits until the daemon has taken in a new guest, whose deputy may call then; false if it does
/// not.
pub(crate) fn is_guest(socket: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let has_answered = matches!(poll(&mut watched, PollTimeout::from(DAEMON_TIMEOUT_MS)), Ok(1..));
    let answer = has_answered.then(|| kernel::packet::receive(socket, PACKET_BYTES_MAX));
    let Some(Ok(Some((bytes, _)))) = answer else { return false };
    postcard::from_bytes(&bytes) == Ok(FromDaemon::Order(ToBody::IsGuest))
}

pub(crate) fn sockets() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).map_err(|errno| {
        kernel::KernelError { what: "make a socket".into(), source: errno.into() }.into()
    })
}

impl Newborn {
    fn word(&self) -> FromBody {
        let (child, ticket) = self.child;
        FromBody::Forked { child, ticket, is_bound: self.is_bound }
    }

    /// Takes hold of the process, which stands where it begins.
    fn take_over(&self) -> Result<()> {
        let local = self.made.local;
        seize(local)?;
        tracee::set_registers(local, &self.registers)?;
        Ok(tracee::set_signal_mask(local, self.mask)?)
    }

    /// Waits until its deputy calls and has it run, by the daemon at the other end of this socket
    /// or, if that ends, by the next. There is no going back, so a network that fails for a moment
    /// does not count, nor that the node takes no guests.
    fn await_deputy(&self, socket: OwnedFd) -> Result<Called> {
        let deadline = Instant::now() + DEPUTY_TIMEOUT;
        let mut daemon = Daemon::new(Attachment::new(socket, &[])?);
        let mut is_unwanted = false;
        loop {
            let called = Door::of(&daemon, self.key, None).accept(Role::Deputy);
            let error = match called.and_then(await_order) {
                Ok(home) => return Ok(Called { daemon, home, is_unwanted }),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(error) => error,
            };
            match error.reason().code.as_str() {
                NOT_COMING => return Err(error),
                "drained" => is_unwanted = true,
                // No other daemon knows of it.
                "no-daemon" => match self.offer_again(deadline)? {
                    Some(socket) => daemon = Daemon::new(Attachment::new(socket, &[])?),
                    None => return Err(error),
                },
                _ => ::tracing::debug!("process {} waits on: {error}", self.made.guest),
            }
        }
    }

    /// Has the next daemon take it in; None if none has done so in time.
    fn offer_again(&self, deadline: Instant) -> Result<Option<OwnedFd>> {
        while Instant::now() < deadline {
            let (ours, theirs) = sockets()?;
            if self.maker.family.offer(self.word(), theirs) && is_guest(&ours) {
                return Ok(Some(ours));
            }
            std::thread::sleep(OFFER_PAUSE);
        }
        Ok(None)
    }
}

/// What the deputy of a process has called for.
struct Called {
    daemon: Daemon,
    home: Link,
    /// The owner of this node wants it gone.
    is_unwanted: bool,
}

/// Waits for the order to run.
fn await_order(mut home: Link) -> Result<Link> {
    home.0.set_timeout(Some(ARRIVAL_TIMEOUT))?;
    match home.0.receive()? {
        ToAway::Run => {}
        _ => return Err(MigrateError::Protocol("its deputy does not have it run".into())),
    }
    home.0.set_timeout(None)?;
    Ok(home)
}

/// The life of a thread that has a process which was made here.
fn live(newborn: Newborn, socket: OwnedFd) {
    let (maker, made) = (newborn.maker.clone(), newborn.made);
    let is_bound = newborn.is_bound;
    let maker_waits = newborn.has_makers_memory;
    let family = maker.family.clone();
    // When it runs no more.
    let let_maker_go_on = || {
        if maker_waits {
            maker.order(Order::ChildDone(made.guest));
        }
    };
    let failed = |error: &MigrateError| {
        ::tracing::warn!("process {} that was made here: {error}", made.guest);
        kill(made.local);
    };
    let called = newborn.take_over().and_then(|()| newborn.await_deputy(socket));
    match called {
        Ok(Called { daemon, home, is_unwanted }) => {
            let begun = begin(newborn, home, &daemon);
            // Whoever waits for this finds it among the others.
            family.end_birth(is_bound);
            match begun {
                Ok(mut tracing) => {
                    if is_unwanted {
                        tracing.be_unwanted();
                    }
                    drop(life::live(&daemon, tracing, None));
                }
                Err(error) => {
                    failed(&error);
                    daemon.send(&FromBody::Gone { reason: error.reason() });
                }
            }
            let_maker_go_on();
            daemon.deliver();
        }
        Err(error) => {
            family.end_birth(is_bound);
            failed(&error);
            let_maker_go_on();
        }
    }
    family.give_slot(&maker, made.slot);
    family.shrink();
}

/// Has the process run when its deputy wants that.
fn begin(newborn: Newborn, home: Link, daemon: &Daemon) -> Result<Tracing<'_>> {
    let Made { guest, local, .. } = newborn.made;
    let maker = newborn.maker;
    let shared = Arc::new(Shared::new(Parts {
        pid: local,
        guest_pid: guest,
        listener: maker.listener.clone(),
        memory: Memory::open(local)?,
        maps: MapQuery::open(local)?,
        family: maker.family.clone(),
        maker: newborn.has_makers_memory.then_some(maker.clone()),
        kept: maker.kept.clone(),
        watch: maker.watch.untracked(),
        files: Files::none(local)?,
        own_files: OwnFiles::new(newborn.fixed.clone()),
        has_no_io_uring: maker.has_no_io_uring,
        late: None,
        state: newborn.state,
        writer: home.1,
        wake: Arc::new(kernel::wake_up::make()?),
        abroad: maker.abroad.clone(),
        registers: maker.registers.clone(),
    }));
    shared.family.add(&shared);
    serving::begin(&shared, home.0, None);
    let common = (newborn.agent, newborn.fixed);
    let tracing = Tracing::of(daemon, shared, common, newborn.prospect, newborn.signals);
    if newborn.clears_handlers {
        tracing.clear_handlers()?;
    }
    tracing.begin_child(newborn.mask)?;
    Ok(tracing)
}

impl Tracing<'_> {
    /// Gives it the default in the place of each handler; the one at home has it already.
    fn clear_handlers(&self) -> Result<()> {
        let handled: Vec<i32> = {
            let mut state = self.shared.lock();
            let mut numbers = vec![];
            for (number, action) in (1..).zip(&mut state.actions) {
                if action.is_handler() {
                    *action = Action::default();
                    numbers.push(number);
                }
            }
            numbers
        };
        let default = Action::default().encode();
        handled
            .into_iter()
            .try_for_each(|number| self.set_action(self.shared.pid, number, &default))
    }

    /// Has a process run that was made here.
    fn begin_child(&self, mask: u64) -> Result<()> {
        priority::adopt(&self.shared.lock());
        // Said first: no call of it may come before.
        self.shared.send(ToHome::Running);
        self.shared.send(ToHome::MaskChanged { tid: self.shared.guest_pid, mask });
        tracee::resume(self.shared.pid, 0)?;
        let command = self.prospect.command.clone();
        self.daemon.send(&FromBody::Running { local_pid: self.shared.pid, command });
        Ok(())
    }
}

/// Takes hold of a process that its maker's thread has let go of, and stops it.
fn seize(pid: i32) -> Result<()> {
    let _limit = Patience::of(STEP_TIMEOUT);
    tracee::seize(pid, TRACED)?;
    tracee::interrupt(pid)?;
    match tracee::wait(pid)? {
        Stop::Interrupted | Stop::Group(_) => Ok(()),
        other => Err(MigrateError::Protocol(format!("a child that was taken over: {other:?}"))),
    }
}
