//! Pages that come behind the body, while it runs ([decision
//! 0026](../../../docs/decisions/0026-pages-behind-the-process.md)).
//!
//! One thread answers all faults and puts all pages in place, so that what is absent only it
//! changes. It takes no lock that somebody else holds while he touches the body's memory: whoever
//! of this supervisor waits for a page is served like a thread of the body.
//!
//! What a page becomes by a call that unmaps, moves or gives up memory the kernel decides, and a
//! page that comes later must not undo that. So before such a call all that is absent of the memory
//! that it is about is fetched ([`crate::waiting::needed_by`]); then it is made as if nothing had
//! been absent.

use crate::moving_on::PROGRESS_PAUSE;
use crate::state::Order;
use crate::waiting::pages;
use kernel::faults::Put;
use kernel::memory::Fetch;
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use migrate::held::{Held, within};
use migrate::{MigrateError, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::calls::Arguments;
use wire::ids::GuestAddr;
use wire::late::{self, Question};
use wire::limits::LATE_BYTES_MAX;
use wire::supervisor::{Filled, Progress};

/// Asked for when nobody waits: so many bytes at a time, and so often before the first answer. What
/// is on the way then takes 2 ms on a gigabit, and so long may who begins to wait do so besides.
const MORE_BYTES: u32 = 64 << 10;
const MORE_MAX: usize = 4;
/// Asked for while somebody waits, once: else a program that always waits for some page would never
/// have all of them.
const MORE_BYTES_MEANWHILE: u32 = 128 << 10;
/// With a page that somebody waits for come so many bytes: more and more while faults lie close
/// together, else few.
const AROUND_BYTES_MIN: u32 = 4 << 10;
const AROUND_BYTES_MAX: u32 = 256 << 10;
/// A fault that is not farther from the last is close.
const CLOSE_BYTES: u64 = 1 << 20;
/// Pages that nobody has are put in place so many at a time.
const ZERO_BYTES: u64 = 64 * PAGE_BYTES;

/// What of a body's memory is absent still.
#[derive(Debug)]
pub struct Late {
    tracking: Arc<Tracking>,
    state: Mutex<State>,
    has_changed: Condvar,
    /// When pages came last.
    came_at: Mutex<Instant>,
    wake: EventFd,
    /// Nothing is absent any more.
    is_whole: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    absent: Held,
    /// To be asked for.
    wanted: Vec<Run>,
    /// Calls of threads that are made when nothing of this is absent: thread and notification.
    deferred: Vec<(Vec<Run>, (i32, u64))>,
    /// No more comes.
    has_ended: bool,
}

impl Late {
    /// What is absent waits to be touched from here on.
    ///
    /// # Errors
    /// It cannot be served.
    pub fn begin(tracking: &Arc<Tracking>, absent: Held, places: &[Range<u64>]) -> Result<Late> {
        for place in places {
            tracking.serve(place)?;
        }
        let wake = kernel::wake_up::make()?;
        Ok(Late {
            tracking: tracking.clone(),
            is_whole: AtomicBool::new(absent.bytes() == 0),
            state: Mutex::new(State { absent, ..State::default() }),
            came_at: Mutex::new(Instant::now()),
            has_changed: Condvar::new(),
            wake,
        })
    }

    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::SeqCst)
    }

    /// For how long no page has come.
    pub fn silence(&self) -> Duration {
        self.came_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Whether a call of this thread has to wait until nothing is absent of these runs: then it is
    /// ordered to be made ([`Order::Fetched`]).
    pub fn defers(&self, runs: &[Run], call: (i32, u64)) -> bool {
        let mut state = self.lock();
        let missing: Vec<Run> =
            runs.iter().flat_map(|run| within(&[*run], &state.absent)).collect();
        if missing.is_empty() {
            return false;
        }
        state.wanted.extend(&missing);
        state.deferred.push((missing, call));
        drop(state);
        self.wake();
        true
    }

    /// What is done just before a call is made that nothing is absent for. mremap(2) of memory that
    /// is served would have the kernel (6.18) serve neither that nor what it is joined with.
    pub fn prepare(&self, number: u32, arguments: &Arguments) {
        if i64::from(number) == libc::SYS_mremap
            && !self.is_whole()
            && let Some(run) = pages(arguments[0], arguments[1])
        {
            // What is not mapped the call itself will tell.
            let _ = self.tracking.leave_alone(&(run.start..run.end));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // The counter cannot overflow: it is read whenever it is not zero.
        let _ = self.wake.write(1);
    }

    /// No more comes: whoever waits here need not any more.
    fn end(&self) {
        self.lock().has_ended = true;
        self.has_changed.notify_all();
    }
}

impl Fetch for Late {
    fn fetch(&self, range: &Range<u64>) {
        let Some(run) = pages(range.start, range.end - range.start).filter(|_| !self.is_whole())
        else {
            return;
        };
        let mut state = self.lock();
        let missing = within(&[run], &state.absent);
        if missing.is_empty() {
            return;
        }
        state.wanted.extend(missing);
        self.wake();
        while !state.has_ended && !within(&[run], &state.absent).is_empty() {
            state = self.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fetch_wholly(&self, range: &Range<u64>) {
        self.fetch(range);
        let Some(run) = pages(range.start, range.end - range.start) else { return };
        let mut at = run.start;
        while at < run.end {
            at += match self.tracking.fill_with_zeros(&(at..run.end)) {
                Ok(Put::Done(bytes)) if bytes > 0 => bytes,
                Ok(Put::Done(_)) => continue,
                Ok(Put::Present | Put::Gone) | Err(_) => PAGE_BYTES,
            };
        }
    }
}

/// What home was asked, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Page(u64),
    Range(Run),
    More,
}

/// Who is told what is there.
type OrderFn<'a> = &'a dyn Fn(Order);

/// The thread that brings pages.
struct Serving<'a> {
    late: Arc<Late>,
    order: OrderFn<'a>,
    /// None when all is there.
    home: Option<(LinkReader, LinkWriter)>,
    asked: VecDeque<Asked>,
    /// Pages that were asked for one by one and have not come.
    pages: Held,
    last_fault: u64,
    around_bytes: u32,
    since: Instant,
    told: Filled,
    /// When the body was last told how far it is.
    progress_at: Instant,
}

/// Serves faults until the supervisor ends; over this link comes what is absent.
pub fn serve(late: &Arc<Late>, home: (LinkReader, LinkWriter), order: OrderFn<'_>) {
    let mut serving = Serving {
        late: late.clone(),
        order,
        home: Some(home),
        asked: VecDeque::new(),
        pages: Held::default(),
        last_fault: 0,
        around_bytes: AROUND_BYTES_MIN,
        since: Instant::now(),
        told: Filled::default(),
        progress_at: Instant::now(),
    };
    loop {
        if let Err(error) = serving.turn() {
            late.end();
            ::tracing::warn!("pages that were to come: {error}");
            // The body's memory is not there: it is as if the link to home were lost.
            return order(Order::LinkLost(format!("pages that were to come: {error}")));
        }
    }
}

impl Serving<'_> {
    fn turn(&mut self) -> Result<()> {
        while let Some(page) = self.late.tracking.next_fault()? {
            self.on_fault(page)?;
        }
        self.ask_wanted()?;
        self.finish()?;
        self.ask_more()?;
        let has_answer = self.home.as_ref().is_some_and(|(reader, _)| reader.has_more());
        if has_answer || self.wait() {
            self.take_answer()?;
            self.tell_progress();
        }
        Ok(())
    }

    /// Says now and then how far it is, until all is there.
    fn tell_progress(&mut self) {
        let left = self.late.lock().absent.bytes();
        if left > 0 && self.progress_at.elapsed() >= PROGRESS_PAUSE {
            self.progress_at = Instant::now();
            let pages = self.told.pages_faulted + self.told.pages_filled;
            let (bytes_sent, is_filling) = (pages * PAGE_BYTES, true);
            let progress = Progress { round: 0, bytes_sent, bytes_left: left, is_filling };
            (self.order)(Order::Filling(progress));
        }
    }

    /// Until there is something to do; true if home has answered.
    fn wait(&self) -> bool {
        let mut watched = vec![
            PollFd::new(self.late.tracking.faults(), PollFlags::POLLIN),
            PollFd::new(self.late.wake.as_fd(), PollFlags::POLLIN),
        ];
        let home = self.home.as_ref();
        watched.extend(home.map(|(reader, _)| PollFd::new(reader.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut watched, PollTimeout::NONE);
        let _ = self.late.wake.read();
        watched.get(2).is_some_and(|home| home.any().unwrap_or(true))
    }

    /// Somebody waits for this page.
    fn on_fault(&mut self, page: u64) -> Result<()> {
        let run = Run { start: page, end: page + PAGE_BYTES };
        let next = {
            let state = self.late.lock();
            match within(&[run], &state.absent).is_empty() {
                true => Some(state.absent.first_from(page).map_or(u64::MAX, |run| run.start)),
                false => None,
            }
        };
        match next {
            Some(end) => self.fill_with_zeros(page, end),
            None if self.pages.lacks(&[run]).is_empty() => Ok(()),
            None => {
                let is_close = page.abs_diff(self.last_fault) <= CLOSE_BYTES;
                let bytes = if is_close { self.around_bytes * 2 } else { AROUND_BYTES_MIN };
                self.around_bytes = bytes.min(AROUND_BYTES_MAX);
                self.last_fault = page;
                self.pages.add(run);
                self.told.faults += 1;
                let (address, bytes) = (GuestAddr(page), self.around_bytes);
                self.ask(Question::Page { address, bytes }, Asked::Page(page))
            }
        }
    }

    /// A page that nobody has: untouched so far, or given up. Those behind it, too.
    fn fill_with_zeros(&self, page: u64, end: u64) -> Result<()> {
        let tracking = &self.late.tracking;
        let many = page..(page + ZERO_BYTES).min(end);
        let one = page..page + PAGE_BYTES;
        // Mappings may end before.
        for range in [many, one.clone()] {
            if matches!(tracking.fill_with_zeros(&range)?, Put::Done(bytes) if bytes > 0) {
                return Ok(());
            }
        }
        // One that is there looks like one that is but marked: that a copy takes the place of.
        match tracking.fill(page, &[0; PAGE_BYTES as usize])? {
            Put::Done(bytes) if bytes > 0 => Ok(()),
            // Whoever waits looks again, and finds what there is.
            _ => Ok(tracking.wake(&one)?),
        }
    }

    fn ask(&mut self, question: Question, asked: Asked) -> Result<()> {
        let Some((_, writer)) = &mut self.home else {
            return Err(MigrateError::Protocol("a page is absent after the last has come".into()));
        };
        writer.send(&question)?;
        self.asked.push_back(asked);
        Ok(())
    }

    fn ask_wanted(&mut self) -> Result<()> {
        let wanted = std::mem::take(&mut self.late.lock().wanted);
        for run in wanted {
            if within(&[run], &self.late.lock().absent).is_empty() {
                continue;
            }
            let range = (GuestAddr(run.start), GuestAddr(run.end));
            self.ask(Question::Range(range), Asked::Range(run))?;
        }
        Ok(())
    }

    fn ask_more(&mut self) -> Result<()> {
        if self.late.is_whole() {
            return Ok(());
        }
        let under_way = self.asked.iter().filter(|asked| **asked == Asked::More).count();
        let is_awaited = self.asked.len() > under_way;
        let (bytes, count) = match is_awaited {
            true => (MORE_BYTES_MEANWHILE, 1),
            false => (MORE_BYTES, MORE_MAX),
        };
        for _ in under_way..count {
            self.ask(Question::More { bytes }, Asked::More)?;
        }
        Ok(())
    }

    /// Puts in place what home has answered: whatever that is, only what is absent.
    fn take_answer(&mut self) -> Result<()> {
        let Some((reader, _)) = &mut self.home else { return Ok(()) };
        let message = reader.receive_bytes()?;
        let (spans, mut content) =
            late::decode(message).map_err(|error| MigrateError::Protocol(error.to_string()))?;
        let Some(asked) = self.asked.pop_front() else {
            return Err(MigrateError::Protocol("pages that were not asked for".into()));
        };
        let runs = migrate::held::runs(&spans);
        {
            let mut state = self.late.lock();
            for run in &runs {
                if within(&[*run], &state.absent) != [*run] {
                    return Err(MigrateError::Protocol("pages that are not absent".into()));
                }
                // None comes twice in one answer either; they are absent until they are in place.
                state.absent.remove(*run);
            }
            runs.iter().for_each(|run| state.absent.add(*run));
        }
        for run in &runs {
            let (some, rest) = content.split_at((run.end - run.start) as usize);
            put(&self.late.tracking, run.start, some)?;
            content = rest;
        }
        self.arrived(asked, &runs)
    }

    fn arrived(&mut self, asked: Asked, runs: &[Run]) -> Result<()> {
        let pages = runs.iter().map(|run| (run.end - run.start) / PAGE_BYTES).sum::<u64>();
        match asked {
            Asked::More => self.told.pages_filled += pages,
            Asked::Page(_) | Asked::Range(_) => self.told.pages_faulted += pages,
        }
        *self.late.came_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let mut state = self.late.lock();
        runs.iter().for_each(|run| state.absent.remove(*run));
        let lacking = match asked {
            Asked::Page(page) => {
                let run = Run { start: page, end: page + PAGE_BYTES };
                self.pages.remove(run);
                within(&[run], &state.absent)
            }
            Asked::Range(run) => within(&[run], &state.absent),
            Asked::More if runs.is_empty() => state.absent.beyond(&[]),
            Asked::More => vec![],
        };
        // Answers come in order, so what home has given away before is there.
        if runs.is_empty() && !lacking.is_empty() {
            return Err(MigrateError::Protocol("home does not have what is absent".into()));
        }
        if matches!(asked, Asked::Range(_)) {
            state.wanted.extend(lacking);
        }
        let absent = std::mem::take(&mut state.absent);
        let is_there = |runs: &[Run]| runs.iter().all(|run| within(&[*run], &absent).is_empty());
        let (ready, left) =
            std::mem::take(&mut state.deferred).into_iter().partition(|(runs, _)| is_there(runs));
        (state.absent, state.deferred) = (absent, left);
        self.late.is_whole.store(state.absent.bytes() == 0, Ordering::SeqCst);
        drop(state);
        self.late.has_changed.notify_all();
        let ready: Vec<(Vec<Run>, (i32, u64))> = ready;
        for (_, (tid, id)) in ready {
            (self.order)(Order::Fetched { tid, id });
        }
        Ok(())
    }

    /// Tells home, once, that all is there.
    fn finish(&mut self) -> Result<()> {
        // Not before home has answered all: else it would speak to nobody.
        if self.late.is_whole()
            && self.asked.is_empty()
            && let Some((_, mut writer)) = self.home.take()
        {
            let took_us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.told.took_us = took_us;
            writer.send(&Question::Done)?;
            (self.order)(Order::Filled(self.told));
        }
        Ok(())
    }
}

/// Whole pages that are absent; some of them may not be mapped any more. One that is there is no
/// page that may be put in another's place.
fn put(tracking: &Tracking, start: u64, content: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < content.len() {
        let at = start + done as u64;
        let rest = &content[done..];
        done += match fill(tracking, at, rest)? {
            Put::Done(bytes) => bytes as usize,
            Put::Present => return Err(present(at)),
            // Over the end of a mapping no page is put in place.
            Put::Gone => match fill(tracking, at, &rest[..PAGE_BYTES as usize])? {
                Put::Done(bytes) => bytes as usize,
                Put::Present => return Err(present(at)),
                Put::Gone => PAGE_BYTES as usize,
            },
        };
    }
    Ok(())
}

fn present(at: u64) -> MigrateError {
    MigrateError::Protocol(format!("the page at {at:#x} is there and was to come"))
}

/// As [`Tracking::fill`]. Memory that is short may be there again when others have given some back;
/// the body could not go on without.
fn fill(tracking: &Tracking, at: u64, content: &[u8]) -> Result<Put> {
    let mut tries = MEMORY_TRIES;
    loop {
        match tracking.fill(at, content) {
            Err(error) if error.source.raw_os_error() == Some(libc::ENOMEM) && tries > 0 => {
                tries -= 1;
                std::thread::sleep(MEMORY_PAUSE);
            }
            put => return Ok(put?),
        }
    }
}

/// Half a minute.
const MEMORY_TRIES: u32 = 300;
const MEMORY_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(AROUND_BYTES_MAX as usize <= LATE_BYTES_MAX);

#[cfg(test)]
mod test {
    use super::*;
    use crate::waiting::needed_by;
    use kernel::faults;
    use kernel::proc::pagemap::Pagemap;
    use migrate::late::Order as Giving;
    use std::net::TcpListener;
    use std::sync::mpsc;
    use wire::ids::{NodeId, Ticket};
    use wire::supervisor::{Berth, PREFACE_BYTES, Role};

    /// So much that it is mapped for this alone, and untouched.
    const PAGES: u64 = 9001;

    fn link() -> ((LinkReader, LinkWriter), (LinkReader, LinkWriter)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (node, ticket, key) = (NodeId(1), Ticket([1; 16]), [2; 32]);
        let calling = std::thread::spawn(move || {
            link::connect(&Berth { node, address, ticket, key }, Role::Late).unwrap()
        });
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Read::read_exact(&mut stream, &mut [0; PREFACE_BYTES]).unwrap();
        (link::accept(stream, &key).unwrap(), calling.join().unwrap())
    }

    /// What home has in the page there.
    fn content(address: u64) -> [u8; PAGE_BYTES as usize] {
        [(address / PAGE_BYTES % 250 + 1) as u8; PAGE_BYTES as usize]
    }

    /// A home that gives away `absent`.
    fn give((mut reader, mut writer): (LinkReader, LinkWriter), absent: Held) {
        let mut order = Giving::of(absent, &[]);
        loop {
            // Who has all hangs up, whatever is on the way.
            let Ok(question) = reader.receive() else { return };
            let runs = match question {
                Question::Page { address, bytes } => order.around(address.0, u64::from(bytes)),
                Question::Range((start, end)) => {
                    order.range(Run { start: start.0, end: end.0 }, LATE_BYTES_MAX as u64)
                }
                Question::More { bytes } => order.next(u64::from(bytes)),
                Question::Done => return,
            };
            let pages = runs.iter().flat_map(|run| (run.start..run.end).step_by(4096));
            let bytes: Vec<u8> = pages.flat_map(content).collect();
            let head = late::encode(migrate::held::spans(&runs));
            writer.send_bytes(&[&head, &bytes]).unwrap();
        }
    }

    /// Memory of this process of which most is absent, served.
    fn absent_memory() -> Option<(Vec<u8>, u64, Held, Arc<Late>)> {
        let tracking = Arc::new(faults::of_this_process().ok()?);
        let memory = vec![0; ((PAGES + 1) * PAGE_BYTES) as usize];
        let start = (memory.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let whole = start..start + PAGES * PAGE_BYTES;
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        assert!(tracking.watch(&pagemap, &whole).unwrap());
        let mut absent = Held::of(&[Run { start: whole.start, end: whole.end }]);
        for page in (0..PAGES).step_by(7) {
            let at = start + page * PAGE_BYTES;
            absent.remove(Run { start: at, end: at + PAGE_BYTES });
        }
        let places = std::slice::from_ref(&whole);
        let late = Arc::new(Late::begin(&tracking, absent.clone(), places).unwrap());
        Some((memory, start, absent, late))
    }

    #[test]
    fn all_memory_is_there_in_the_end_and_whoever_touches_it_before_sees_what_it_will_be() {
        let Some((memory, start, absent, late)) = absent_memory() else {
            return eprintln!("skipped: no userfaultfd that serves faults of the kernel");
        };
        let (here, there) = link();
        let bytes = absent.bytes();
        let home = std::thread::spawn({
            let absent = absent.clone();
            move || give(there, absent)
        });
        let (told, orders) = mpsc::channel();
        // It serves until the process ends.
        let served = late.clone();
        let tell = move |order: Order| {
            if let Order::LinkLost(why) = &order {
                eprintln!("{why}");
            }
            told.send(order).unwrap();
        };
        std::thread::spawn(move || serve(&served, here, &tell));
        let pid = std::process::id() as i32;
        let others = kernel::memory::Memory::open(pid).unwrap();
        others.fetch_by(late.clone());
        let expected = |page: u64| match page % 7 {
            0 => 0,
            _ => content(start + page * PAGE_BYTES)[0],
        };
        let deferred = Run { start: start + 3000 * PAGE_BYTES, end: start + 3300 * PAGE_BYTES };
        assert!(late.defers(&[deferred], (7, 8)));
        let from = (start - memory.as_ptr() as u64) as usize;
        for index in 0..PAGES {
            let page = index * 997 % PAGES;
            let at = from + (page * PAGE_BYTES) as usize;
            let seen = std::hint::black_box(&memory)[at + 5];
            assert_eq!(seen, expected(page), "page {page}");
            // By a way on which nothing is waited for.
            let other = (page + 1) % PAGES;
            let mut byte = [0];
            others.read(start + other * PAGE_BYTES + 9, &mut byte).unwrap();
            assert_eq!(byte[0], expected(other), "page {other}");
        }
        home.join().unwrap();
        assert!(late.is_whole() && !late.defers(&[deferred], (7, 8)));
        // How far it is is said on a slow machine only.
        let mut orders = orders.iter().filter(|order| !matches!(order, Order::Filling(_)));
        let orders: Vec<Order> = [orders.next().unwrap(), orders.next().unwrap()].into();
        let [Order::Fetched { tid: 7, id: 8 }, Order::Filled(told)] = orders[..] else {
            let told = orders.iter().map(|order| match order {
                Order::Fetched { tid, id } => format!("fetched {tid} {id}"),
                Order::LinkLost(why) => why.clone(),
                Order::Filled(_) => "filled".to_owned(),
                _ => "another".to_owned(),
            });
            panic!("a call is made, and then all is told: {:?}", told.collect::<Vec<_>>());
        };
        assert_eq!(told.pages_faulted + told.pages_filled, bytes / PAGE_BYTES);
    }

    #[test]
    fn a_home_that_gives_what_is_not_absent_or_too_little_ends_it() {
        for lie in [0, 1, 2] {
            let Some((memory, start, _, late)) = absent_memory() else { return };
            let (here, (mut reader, mut writer)) = link();
            let home = std::thread::spawn(move || {
                let _: Question = reader.receive().unwrap();
                let page = |index: u64| {
                    let at = start + index * PAGE_BYTES;
                    (GuestAddr(at), GuestAddr(at + PAGE_BYTES))
                };
                let spans = [vec![page(0)], vec![], vec![page(1), page(1)]][lie].clone();
                let bytes = vec![1; spans.len() * PAGE_BYTES as usize];
                writer.send_bytes(&[&late::encode(spans), &bytes]).unwrap();
                reader.receive::<Question>()
            });
            let told = std::cell::RefCell::new(vec![]);
            serve(&late, here, &|order| told.borrow_mut().push(order));
            assert!(matches!(told.borrow()[..], [Order::LinkLost(_)]), "{lie}");
            drop(home.join().unwrap());
            drop((late, memory));
        }
    }

    #[test]
    fn a_call_needs_what_it_unmaps_moves_or_gives_up_and_nothing_else() {
        let pid = std::process::id() as i32;
        let needed = |number: i64, arguments| {
            let runs = needed_by(pid, number as u32, &arguments).into_iter();
            runs.map(|run| (run.start, run.end)).collect::<Vec<_>>()
        };
        let fixed = libc::MAP_FIXED as u64;
        assert_eq!(needed(libc::SYS_munmap, [0x1000, 1, 0, 0, 0, 0]), [(0x1000, 0x2000)]);
        assert_eq!(needed(libc::SYS_munmap, [0x1000, u64::MAX, 0, 0, 0, 0]), []);
        assert_eq!(needed(libc::SYS_mmap, [0x1000, 0x1000, 3, fixed, 0, 0]), [(0x1000, 0x2000)]);
        assert_eq!(needed(libc::SYS_mmap, [0x1000, 0x1000, 3, 0, 0, 0]), []);
        let both = [0x1000, 0x1000, 0x2000, libc::MREMAP_FIXED as u64, 0x9000, 0];
        assert_eq!(needed(libc::SYS_mremap, both), [(0x1000, 0x2000), (0x9000, 0xb000)]);
        assert_eq!(
            needed(libc::SYS_futex, [0x1ffe, 0, 0, 0, 0, 0]),
            [(0x1000, 0x3000), (0, 0x1000)]
        );
        assert_eq!(needed(libc::SYS_mprotect, [0x1000, 0x1000, 0, 0, 0, 0]), []);
        assert_eq!(needed(libc::SYS_brk, [0, 0, 0, 0, 0, 0]).len(), 1, "none but of a heap");
    }
}
