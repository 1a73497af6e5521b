//! What the threads of this supervisor share about the body.

use crate::abroad::Abroad;
use crate::direct_files::DirectFiles;
use crate::family::Family;
use crate::files::Files;
use crate::filter::Kept;
use crate::homing::Homeward;
use crate::late::Late;
use crate::moving_on::{Offered, Onward};
use crate::own_files::OwnFiles;
use crate::processor_time::{Meter, Peak};
use crate::watch::Watch;
use kernel::memory::Memory;
use kernel::proc::maps::MapQuery;
use kernel::seccomp::Listener;
use kernel::signal::{self, Action};
use link::LinkWriter;
use migrate::making::Made;
use migrate::outward::Body;
use migrate::registers::Translator;
use nix::sys::eventfd::EventFd;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::calls::{Arguments, Emulation, GuestMemory};
use wire::clocks::Readings;
use wire::forward::{FileToMap, Signal, ToAway, ToHome};
use wire::ids::{GuestAddr, GuestTid, HomePid, Ticket};
use wire::image::{Attributes, InFlight, Priority, SharedMemory};
use wire::processor_time::Clock;
use wire::supervisor::{Filled, Progress, Reason};

/// A call that waits for home.
#[derive(Clone, Debug)]
pub struct Outstanding {
    /// The seccomp notification that is to be answered.
    pub id: u64,
    pub call: InFlight,
    /// What is to be done here when the reply comes, besides handing it over.
    pub emulation: Option<Emulation>,
    /// The thread was in this call before, and was interrupted with this result: a signal that
    /// overtakes the call has interrupted it.
    pub interrupted: Option<i64>,
    /// The signal mask that holds only during this call (rt_sigsuspend, ppoll, ...).
    pub temporary_mask: Option<u64>,
}

/// One thread of the body.
#[derive(Debug)]
pub struct Thread {
    pub guest: GuestTid,
    /// As this supervisor sees it.
    pub local: i32,
    /// Slot of the agent.
    pub slot: usize,
    /// As home has it; here it is never better than that of others.
    pub priority: Priority,
    /// How many bytes home's kernel keeps of its registers, beyond the general ones.
    pub extended_bytes: usize,
    /// Modes that it set once; what would change them comes home.
    pub attributes: Attributes,
    /// Number of the last call forwarded.
    pub sequence: u64,
    pub signals_seen: u64,
    /// Forwarded signals that no handler has got yet.
    pub signals: VecDeque<Signal>,
    pub outstanding: Option<Outstanding>,
    /// Its last call, if it is over and home keeps much that came of it.
    pub bulky_call: Option<u64>,
    /// The notification of a call that it has to make again: at home, or once it was stopped.
    pub parked: Option<u64>,
    /// The notification of a call that waits until it is known who is to make it.
    pub awaits_file: Option<u64>,
    /// The notification of a call that is made when pages that it takes are there, and the call.
    pub fetching: Option<(u64, u32, Arguments)>,
    /// It makes a call for us, about this place in the agent's memory.
    pub agrees_at: Option<u64>,
    /// It makes this call for us, with these arguments.
    pub makes: Option<(u32, Arguments)>,
    /// The file that home has found for its call.
    pub file_to_map: Option<FileToMap>,
    /// Home makes, or has made, a process for it: from when it asks until the body has its half, or
    /// will not.
    pub is_making_process: bool,
    /// It would make a process while the body is about to be stopped, and is parked for that.
    pub is_held_back: bool,
    /// It stands still for a process that has its memory ([`crate::vfork`]).
    pub waits_for: Option<GuestTid>,
    /// A call that it had in flight when it was stopped, and will come back to.
    pub in_flight: Option<InFlight>,
    /// It was interrupted in a call with this result, and has not come back to it yet.
    pub interrupted: Option<i64>,
    /// The same, while it is just making that call again.
    pub resumes: Option<i64>,
    /// Its last call was ended by us with ERESTARTSYS: the handler of the signal that ended it may
    /// have it end with EINTR.
    pub is_cut_short: bool,
    /// End of its last wait on a futex, on the guest's monotonic clock.
    pub wait_until_ns: Option<u64>,
    /// The same for a wait that began elsewhere and that it will make again here.
    pub continued_wait_ns: Option<u64>,
    pub meter: Meter,
}

/// Orders for the main thread, to which ptrace belongs.
pub enum Order {
    /// From home, as it came.
    Home(ToAway),
    /// The process cannot go on without its home.
    NeedsHome(Reason),
    /// A call with a temporary mask ended because of a signal: deliver it under that mask, then
    /// give the thread this result.
    DeliverMasked { tid: i32, id: u64, result: i64, mask: u64 },
    /// A call that home has made for a thread is over, and is to have the same effect here.
    Agree { tid: i32, id: u64, agreement: Agreement },
    /// A file that home lets a thread map is here, for this notification of it.
    MapFile { tid: i32, id: u64, file: File, how: Arguments },
    /// This notification of a thread ended at home for a signal that the thread blocks here: it
    /// makes the call again.
    MakeAgain { tid: i32, id: u64 },
    /// What this notification of a thread waits for is there.
    Fetched { tid: i32, id: u64 },
    /// No page is absent any more.
    Filled(Filled),
    /// How many are.
    Filling(Progress),
    /// A held-back signal may now be looked at again.
    ActionSettled,
    /// The node that the body is to move on to takes it in, or does not.
    Offered { number: u64, outcome: migrate::Result<Box<Offered>> },
    /// It has what could be sent of its memory while it ran.
    Copied { number: u64, outcome: migrate::Result<Box<Onward>> },
    /// Home has what could be sent of its memory while it ran.
    SentAhead { homeward: Option<Box<Homeward>> },
    /// Goes home as it is.
    Leave { announcement: ToHome, homeward: Box<Homeward> },
    /// A process that had this one's memory is done with it.
    ChildDone(GuestTid),
    /// Another body that this one shares memory with goes home.
    Gather { is_asked: bool },
    /// There is news of those with whom it leaves.
    RoundChanged,
    /// The link to home broke.
    LinkLost(String),
}

/// What a call is to have set here: what home was told of it, whatever another thread of the guest
/// has put in the place of it since. The kernel would read it a second time.
#[derive(Clone, Copy, Debug)]
pub enum Agreement {
    /// rt_sigaction: signal and disposition.
    Action(i32, [u8; signal::ACTION_BYTES]),
    /// rt_sigprocmask: how, and the set.
    Mask(u64, u64),
    /// rt_sigreturn, which the kernel has to make: the mask after it.
    Return(u64),
    /// clone: the thread or process that home has made, and the arguments.
    Task(GuestTid, Arguments),
    /// mmap of a file, which the body has under this number.
    Map(i32, Arguments),
}

/// A process that home has made, and how its deputy will come to its body.
pub struct Child {
    pub guest: GuestTid,
    pub pid: HomePid,
    pub ticket: Ticket,
    pub key: [u8; 32],
    /// Shared memory that it has in common with its maker, of which home has just heard.
    pub shared: Vec<SharedMemory>,
}

/// What is shared under one lock: short critical sections, no waiting inside but for the link.
pub struct State {
    /// By local thread id.
    pub threads: HashMap<i32, Thread>,
    /// Dispositions of signals 1..=64, as home has them.
    pub actions: Vec<Action>,
    /// Processor time of all threads, those that have ended included.
    pub meter: Meter,
    pub peak: Peak,
    /// Processes that home has made, until the body has made its half.
    pub children: Vec<Child>,
    /// No thread begins to make a process.
    pub holds_processes: bool,
    /// Nice values that this node adds to those of home.
    pub stands_back: i32,
    /// Threads are being stopped, or are: nothing is forwarded, replies are dropped (home keeps
    /// them).
    pub is_frozen: bool,
    /// With it: every thread that runs has been told to stop. From here on a call that it makes
    /// can end with a restart code, which the kernel then takes on the way to the stop.
    pub is_interrupted: bool,
}

impl State {
    /// Of a body that has not run yet.
    pub fn of(body: &Body) -> State {
        let threads: HashMap<i32, Thread> = (0..body.threads.len())
            .map(|index| (body.threads[index].local, thread_of(body, index)))
            .collect();
        let actions = body.image().actions.iter().map(|words| Action::from_words(*words));
        let pid = body.sandbox.body_pid;
        State {
            threads,
            actions: actions.collect(),
            meter: Meter::of_process(pid, body.image().clock),
            peak: Peak::new(pid, body.image().peak_rss_kib),
            children: vec![],
            holds_processes: false,
            stands_back: 0,
            is_frozen: false,
            is_interrupted: false,
        }
    }
}

fn thread_of(body: &Body, index: usize) -> Thread {
    let image = body.thread_image(index);
    let traits = (image.priority, image.attributes, image.extended_state.len());
    let begun = Thread::begun(body.sandbox.body_pid, body.threads[index], traits, image.clock);
    Thread {
        sequence: image.sequence,
        signals_seen: image.signals_seen,
        signals: image.signals.iter().cloned().collect(),
        in_flight: image.in_flight.clone(),
        interrupted: image.interrupted,
        continued_wait_ns: image.wait_until_ns,
        ..begun
    }
}

pub struct Shared {
    /// Of the body's first thread.
    pub pid: i32,
    pub guest_pid: GuestTid,
    pub listener: Arc<Listener>,
    pub memory: Memory,
    pub maps: MapQuery,
    /// Advice was given that may have changed the flags of its mappings.
    pub was_advised: AtomicBool,
    /// Threads and processes are made at home from now on: here one could not be made.
    pub makes_no_tasks: AtomicBool,
    /// All bodies of its sandbox.
    pub family: Arc<Family>,
    /// Whose memory it has, and which stands still for as long as it lives here ([`crate::vfork`]).
    pub maker: Option<Arc<Shared>>,
    /// What of its address space the guest must leave as it is.
    pub kept: Kept,
    pub watch: Watch,
    pub files: Files,
    pub own_files: OwnFiles,
    pub direct_files: DirectFiles,
    /// io_uring_setup answers ENOSYS.
    pub has_no_io_uring: bool,
    /// Pages that come behind the body.
    pub late: Option<Arc<Late>>,
    state: Mutex<State>,
    /// What is to go home, in order; whoever has the writer sends it.
    outbox: Mutex<VecDeque<ToHome>>,
    writer: Mutex<LinkWriter>,
    orders: Mutex<VecDeque<Order>>,
    pub wake: Arc<EventFd>,
    /// Where the guest's home is another machine.
    pub abroad: Option<Arc<Abroad>>,
    /// Where home's kernel keeps other registers.
    pub registers: Option<Arc<Translator>>,
}

/// What a body's threads are given to share.
pub struct Parts {
    pub pid: i32,
    pub guest_pid: GuestTid,
    pub listener: Arc<Listener>,
    pub memory: Memory,
    pub maps: MapQuery,
    pub family: Arc<Family>,
    pub maker: Option<Arc<Shared>>,
    pub kept: Kept,
    pub watch: Watch,
    pub files: Files,
    pub own_files: OwnFiles,
    pub has_no_io_uring: bool,
    pub late: Option<Arc<Late>>,
    pub state: State,
    pub writer: LinkWriter,
    pub wake: Arc<EventFd>,
    pub abroad: Option<Arc<Abroad>>,
    pub registers: Option<Arc<Translator>>,
}

impl Shared {
    pub fn new(parts: Parts) -> Shared {
        Shared {
            pid: parts.pid,
            guest_pid: parts.guest_pid,
            listener: parts.listener,
            memory: parts.memory,
            maps: parts.maps,
            was_advised: AtomicBool::new(false),
            makes_no_tasks: AtomicBool::new(false),
            family: parts.family,
            maker: parts.maker,
            kept: parts.kept,
            watch: parts.watch,
            files: parts.files,
            own_files: parts.own_files,
            direct_files: DirectFiles::default(),
            has_no_io_uring: parts.has_no_io_uring,
            late: parts.late,
            state: Mutex::new(parts.state),
            outbox: Mutex::default(),
            writer: Mutex::new(parts.writer),
            orders: Mutex::default(),
            wake: parts.wake,
            abroad: parts.abroad,
            registers: parts.registers,
        }
    }

    /// The state; a poisoned lock means that a thread of ours failed, and so must all.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of the supervisor panicked")
    }

    /// Sends to home.
    pub fn send(&self, message: ToHome) {
        self.outbox().push_back(message);
        self.flush();
    }

    /// Has a message go along before the next that is sent: for who holds the state.
    pub fn queue(&self, message: ToHome) {
        self.outbox().push_back(message);
    }

    /// Sends what follows from the state, and lets the state go meanwhile: a link that is full must
    /// not keep replies from being taken in, or both sides would wait for each other; and the
    /// sender is often preempted by the reader that it wakes. Messages still leave in the order of
    /// what they follow from: a signal is either in a call's `signals_seen` or comes after the
    /// call, and no call comes after the announcement that all are frozen.
    pub fn send_after(&self, state: MutexGuard<'_, State>, message: ToHome) {
        self.queue(message);
        drop(state);
        self.flush();
    }

    /// Sends what was queued by who held the state, if anything was.
    pub fn flush_queued(&self) {
        if !self.outbox().is_empty() {
            self.flush();
        }
    }

    /// Sends all that waits. A broken link is found by the reading half, which orders the end.
    fn flush(&self) {
        let mut writer = self.writer();
        while let Some(message) = self.next_message() {
            if let Err(error) = writer.send(&message) {
                ::tracing::debug!("link to home: {error}");
            }
        }
    }

    fn next_message(&self) -> Option<ToHome> {
        self.outbox().pop_front()
    }

    fn outbox(&self) -> MutexGuard<'_, VecDeque<ToHome>> {
        self.outbox.lock().expect("no thread of the supervisor panicked")
    }

    fn writer(&self) -> MutexGuard<'_, LinkWriter> {
        self.writer.lock().expect("no thread of the supervisor panicked")
    }

    /// Ends the link.
    pub fn close(&self) {
        let _ = self.writer.lock().map(|writer| writer.close());
    }

    pub fn order(&self, order: Order) {
        self.orders.lock().expect("no thread of the supervisor panicked").push_back(order);
        // The counter cannot overflow: it is read whenever it is not zero.
        let _ = self.wake.write(1);
    }

    /// Before whatever else is ordered.
    pub fn order_first(&self, orders: Vec<Order>) {
        let mut all = self.orders.lock().expect("no thread of the supervisor panicked");
        orders.into_iter().rev().for_each(|order| all.push_front(order));
        drop(all);
        let _ = self.wake.write(1);
    }

    pub fn next_order(&self) -> Option<Order> {
        self.orders.lock().expect("no thread of the supervisor panicked").pop_front()
    }

    /// The guest's monotonic clock, nanoseconds.
    pub fn guest_clock_ns(&self) -> u64 {
        self.guest_time().monotonic_ns as u64
    }

    /// What the guest's clocks show.
    pub fn guest_time(&self) -> Readings {
        self.abroad.as_ref().map_or_else(migrate::time::now, |abroad| abroad.guest_time())
    }
}

impl Thread {
    /// A thread of the body `pid` that has made no call yet: its priority, its modes, the bytes of
    /// its registers at home, and what it has used before.
    pub fn begun(
        pid: i32,
        Made { guest, local, slot }: Made,
        (priority, attributes, extended_bytes): (Priority, Attributes, usize),
        before: Clock,
    ) -> Thread {
        Thread {
            guest,
            local,
            slot,
            priority,
            extended_bytes,
            attributes,
            sequence: 0,
            signals_seen: 0,
            signals: VecDeque::new(),
            outstanding: None,
            bulky_call: None,
            parked: None,
            awaits_file: None,
            fetching: None,
            agrees_at: None,
            makes: None,
            file_to_map: None,
            is_making_process: false,
            is_held_back: false,
            waits_for: None,
            in_flight: None,
            interrupted: None,
            resumes: None,
            is_cut_short: false,
            wait_until_ns: None,
            continued_wait_ns: None,
            meter: Meter::of_thread(pid, local, before),
        }
    }

    /// True while it is on its way back into a call that it was stopped in: a signal has to wait
    /// until it is there.
    pub fn is_between_calls(&self) -> bool {
        self.in_flight.is_some() || self.interrupted.is_some()
    }

    /// Whether a handler is due as soon as the thread, which waits in a call, may run. The handler
    /// of a fault blocks here at once what home lets through for a moment yet.
    pub fn has_deliverable_signal(&self) -> bool {
        !self.signals.is_empty() && self.has_signal_beyond(blocked_signals(self.local))
    }

    /// Whether it has a signal that is not in this mask.
    pub fn has_signal_beyond(&self, mask: u64) -> bool {
        self.signals.iter().any(|s| mask & signal::bit(s.number) == 0)
    }
}

/// What a thread blocks that waits in a call; nothing if it is gone.
fn blocked_signals(tid: i32) -> u64 {
    let Ok(status) = kernel::proc::process::status(tid) else { return 0 };
    kernel::proc::process::status_signals(&status, "SigBlk").unwrap_or(0)
}

impl State {
    pub fn by_guest(&mut self, tid: GuestTid) -> Option<&mut Thread> {
        self.threads.values_mut().find(|thread| thread.guest == tid)
    }
}

/// The body's memory for the marshaller.
pub struct BodyMemory<'a>(pub &'a Shared);

impl GuestMemory for BodyMemory<'_> {
    fn read(&self, addr: GuestAddr, buf: &mut [u8]) -> usize {
        self.0.memory.read_as_guest(addr.0, buf)
    }

    fn process(&self) -> i32 {
        self.0.guest_pid.0
    }

    fn is_writable(&self, addr: GuestAddr, len: usize) -> bool {
        let end = addr.0.checked_add(len as u64);
        end.is_some_and(|end| self.0.maps.is_writable(addr.0, end))
    }
}
