//! Classes of system calls, and how a call's class is found.

use super::Arguments;
use super::argument::Argument;
use super::entries::ENTRIES;

/// What becomes of a call that a guest makes while it is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Runs natively in the body: it touches nothing but memory, processor and clocks.
    Local,
    /// Runs in the deputy.
    Forward(&'static [Argument]),
    /// Needs both halves, each in its own way; the description is there for the parts that travel.
    Emulate(Emulation, &'static [Argument]),
    /// Brings the process home first and runs natively there. The word says why (kebab-case).
    Homecoming(&'static str),
}

/// The calls that need both halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulation {
    /// rt_sigaction: home decides on delivery by it, the body's kernel builds the frame.
    SignalAction,
    /// rt_sigprocmask: what is blocked has to stay pending at home.
    SignalMask,
    /// rt_sigreturn: native in the body, and the mask that it restores is home's as well.
    SignalReturn,
    /// restart_syscall: the block to restart from is not in the body's kernel.
    RestartCall,
    /// exit: this thread ends in both halves.
    ThreadExit,
    /// exit_group: the process ends in both halves.
    ProcessExit,
    /// clock_gettime of processor time: the body adds up what was used at home and away. Only of
    /// another process's clock does home tell.
    ProcessorClock,
    /// getrusage of the process or the calling thread: home's, to which the body adds.
    ResourceUsage,
    /// times: the same.
    Times,
    /// FUTEX_WAIT with a relative timeout: native in the body, which notes the deadline because
    /// the call may be interrupted and move on to a node where no kernel knows it.
    FutexWait,
    /// msync of a file that the process has mapped shared: what was written goes home first. Of
    /// anything else it comes home.
    MemorySync,
    /// clone, clone3 and fork of a thread or a process: home makes its own, and the body one of the
    /// same id. Whatever else they make comes home.
    NewTask,
    /// mmap of a file to which nothing is written by it: home says which file it is, and the body
    /// maps the same here, if this node has it. Else it comes home.
    FileMapping,
}

impl Emulation {
    /// True if the body has home make a part of such a call. The others would not do there what
    /// they do here: the agent has no signal frame to return to, no call to restart, and not the
    /// guest's futex.
    pub(super) fn is_sent(self) -> bool {
        match self {
            Emulation::SignalAction
            | Emulation::SignalMask
            | Emulation::ThreadExit
            | Emulation::ProcessExit
            | Emulation::ProcessorClock
            | Emulation::ResourceUsage
            | Emulation::Times
            | Emulation::MemorySync => true,
            Emulation::SignalReturn
            | Emulation::RestartCall
            | Emulation::FutexWait
            | Emulation::NewTask
            | Emulation::FileMapping => false,
        }
    }
}

/// One call of the table.
pub(super) struct Entry {
    pub number: u32,
    pub name: &'static str,
    pub rule: Rule,
}

/// How the class of a call is found.
pub(super) enum Rule {
    Always(Class),
    /// Local if all tests of one alternative hold, else as `otherwise` says.
    LocalIf {
        alternatives: &'static [&'static [Test]],
        otherwise: fn(&Arguments) -> Class,
        text: &'static str,
    },
    /// By argument values; `text` says how, for people.
    Chosen {
        by: fn(&Arguments) -> Class,
        text: &'static str,
    },
}

/// `(arguments[argument] & mask)` is one of `values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub argument: u8,
    pub mask: u64,
    pub values: &'static [u64],
}

impl Test {
    pub fn holds(&self, arguments: &Arguments) -> bool {
        self.values.contains(&(arguments[usize::from(self.argument)] & self.mask))
    }
}

/// A condition under which a call is local: all `tests` hold. Made for the body's filter, which
/// lets exactly these calls through: filter and table are one fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRule {
    pub number: u32,
    pub tests: &'static [Test],
}

/// Numbers up to Linux 6.18 lie below this.
const NUMBERS: usize = 470;
/// Calls that Linux 6.18 has: 0..=336 and 424..=469.
const CALLS: usize = 383;
const NONE: u16 = u16::MAX;

/// Position in [`ENTRIES`] by number.
static POSITIONS: [u16; NUMBERS] = positions();

const fn positions() -> [u16; NUMBERS] {
    assert!(ENTRIES.len() == CALLS);
    let mut positions = [NONE; NUMBERS];
    let mut index = 0;
    while index < ENTRIES.len() {
        let number = ENTRIES[index].number as usize;
        assert!(index == 0 || ENTRIES[index - 1].number < ENTRIES[index].number);
        positions[number] = index as u16;
        index += 1;
    }
    positions
}

fn entry(number: u32) -> Option<&'static Entry> {
    let position = *POSITIONS.get(usize::try_from(number).ok()?)?;
    ENTRIES.get(usize::from(position))
}

/// The name of a call, if Linux 6.18 has one of this number.
pub fn name(number: u32) -> Option<&'static str> {
    entry(number).map(|entry| entry.name)
}

/// What becomes of this call with these arguments.
pub fn classify(number: u32, arguments: &Arguments) -> Class {
    match entry(number).map(|entry| &entry.rule) {
        None => Class::Homecoming("unlisted-call"),
        Some(Rule::Always(class)) => *class,
        Some(Rule::Chosen { by, .. }) => by(arguments),
        Some(Rule::LocalIf { alternatives, otherwise, .. }) => {
            let holds = |tests: &&[Test]| tests.iter().all(|test| test.holds(arguments));
            if alternatives.iter().any(holds) { Class::Local } else { otherwise(arguments) }
        }
    }
}

/// All conditions under which a call is local, by number.
pub fn local_rules() -> impl Iterator<Item = LocalRule> {
    ENTRIES.iter().flat_map(|entry| {
        let alternatives: &'static [&'static [Test]] = match entry.rule {
            Rule::Always(Class::Local) => &[&[]],
            Rule::LocalIf { alternatives, .. } => alternatives,
            Rule::Always(_) | Rule::Chosen { .. } => &[],
        };
        alternatives.iter().map(|&tests| LocalRule { number: entry.number, tests })
    })
}
