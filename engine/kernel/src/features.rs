//! What this machine can do, found out by trying it, once, when a daemon starts.
//!
//! Versions of kernels say little: distributions switch features off and bring newer ones back. So
//! each is tried, in a way that changes nothing: with arguments that only a kernel without it
//! refuses for being unknown, or in a child that ends at once. Supervisors do not try again; they
//! are told by the daemon that starts them ([`inherit`]).
//!
//! Any feature can be switched off (`--without`), so that what happens on older kernels can be seen
//! on a newer one.

use crate::sandbox::NAMESPACES;
use crate::seccomp;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Something that not every kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    CheckpointRestore,
    ChosenPids,
    RseqConfiguration,
    WaitKillable,
    UserNamespaces,
    TimeNamespaces,
    CgroupV2,
    ExecutableMemfd,
    SyncWakeUp,
    PageMapScan,
    MapQuery,
    BootId,
    GuardRegions,
    WriteTracking,
    SoftDirty,
    KernelFaults,
    ThreadIds,
}

/// What needs a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing moves without it: the machine cannot be a node.
    Node,
    /// The machine can lend its processes, but takes none of others.
    Guests,
    /// There is another way, which is slower or does less.
    Nothing,
}

impl Feature {
    pub const ALL: [Feature; 17] = [
        Feature::CheckpointRestore,
        Feature::ChosenPids,
        Feature::RseqConfiguration,
        Feature::WaitKillable,
        Feature::UserNamespaces,
        Feature::TimeNamespaces,
        Feature::CgroupV2,
        Feature::ExecutableMemfd,
        Feature::SyncWakeUp,
        Feature::PageMapScan,
        Feature::MapQuery,
        Feature::BootId,
        Feature::GuardRegions,
        Feature::WriteTracking,
        Feature::SoftDirty,
        Feature::KernelFaults,
        Feature::ThreadIds,
    ];

    /// As `--without` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Feature::CheckpointRestore => "checkpoint-restore",
            Feature::ChosenPids => "chosen-pids",
            Feature::RseqConfiguration => "rseq-configuration",
            Feature::WaitKillable => "wait-killable",
            Feature::UserNamespaces => "user-namespaces",
            Feature::TimeNamespaces => "time-namespaces",
            Feature::CgroupV2 => "cgroup-v2",
            Feature::ExecutableMemfd => "executable-memfd",
            Feature::SyncWakeUp => "sync-wake-up",
            Feature::PageMapScan => "page-map-scan",
            Feature::MapQuery => "map-query",
            Feature::BootId => "boot-id",
            Feature::GuardRegions => "guard-regions",
            Feature::WriteTracking => "write-tracking",
            Feature::SoftDirty => "soft-dirty",
            Feature::KernelFaults => "kernel-faults",
            Feature::ThreadIds => "thread-ids",
        }
    }

    /// Which kernel has it.
    pub fn since(self) -> &'static str {
        match self {
            Feature::CheckpointRestore => "Linux 3.5 with CONFIG_CHECKPOINT_RESTORE",
            Feature::ChosenPids => "Linux 5.5",
            Feature::RseqConfiguration => "Linux 5.13 with CONFIG_RSEQ",
            Feature::WaitKillable => "Linux 5.19 with CONFIG_SECCOMP_FILTER",
            Feature::UserNamespaces => "Linux 3.8 with CONFIG_USER_NS",
            Feature::TimeNamespaces => "Linux 5.6 with CONFIG_TIME_NS",
            Feature::CgroupV2 => "Linux 4.5",
            Feature::ExecutableMemfd => "Linux 6.3",
            Feature::SyncWakeUp => "Linux 6.6",
            Feature::PageMapScan => "Linux 6.7",
            Feature::MapQuery => "Linux 6.11",
            Feature::BootId => "any Linux with /proc/sys",
            Feature::GuardRegions => "Linux 6.15",
            Feature::WriteTracking => "Linux 6.7 with CONFIG_USERFAULTFD",
            Feature::SoftDirty => "Linux 6.1 with CONFIG_MEM_SOFT_DIRTY and CONFIG_USERFAULTFD",
            Feature::KernelFaults => "Linux 6.7 with CONFIG_USERFAULTFD",
            Feature::ThreadIds => "Linux 5.9 with CONFIG_CHECKPOINT_RESTORE",
        }
    }

    /// What is lost while it is missing.
    pub fn loss(self) -> &'static str {
        match self {
            Feature::CheckpointRestore => "the state of a process cannot be read and set",
            Feature::ChosenPids => {
                "no guests: they could not have the pids of their home (a container's filter may \
                 forbid clone3)"
            }
            Feature::RseqConfiguration => "threads' restartable sequences cannot be found",
            Feature::WaitKillable => "signals would interrupt forwarded calls",
            Feature::UserNamespaces => {
                "no guests and no lab without root here; sysctls \
                 kernel.unprivileged_userns_clone=1, user.max_user_namespaces and \
                 kernel.apparmor_restrict_unprivileged_userns=0 allow them"
            }
            Feature::TimeNamespaces => {
                "no guests from other machines: their clocks could not go on"
            }
            Feature::CgroupV2 => "only controllers of cgroup version 1 limit nodes of a lab",
            Feature::ExecutableMemfd => "nothing, but the kernel may log that osmos maps code",
            Feature::SyncWakeUp => "calls of guests take longer",
            Feature::PageMapScan => "large processes take longer to capture",
            Feature::MapQuery => "large results of calls take longer to check",
            Feature::BootId => "nodes on one kernel translate their clocks as if they were on two",
            Feature::GuardRegions => {
                "guests with guard regions come home to change mappings beside these"
            }
            Feature::WriteTracking => {
                "processes stop for each round in which their memory is copied, or, without \
                 soft-dirty, for as long as it travels"
            }
            Feature::SoftDirty => {
                "nothing with write-tracking; without, processes stand still for as long as their \
                 memory travels"
            }
            Feature::KernelFaults => {
                "guests that write to their memory faster than it travels stand still for it; a \
                 daemon of root has it, for others sysctl vm.unprivileged_userfaultfd=1 or rights \
                 to /dev/userfaultfd"
            }
            Feature::ThreadIds => {
                "guests come home to start threads (in a container, /proc/sys is often read-only)"
            }
        }
    }

    pub fn need(self) -> Need {
        match self {
            Feature::CheckpointRestore | Feature::RseqConfiguration | Feature::WaitKillable => {
                Need::Node
            }
            Feature::ChosenPids | Feature::UserNamespaces => Need::Guests,
            Feature::TimeNamespaces
            | Feature::CgroupV2
            | Feature::ExecutableMemfd
            | Feature::SyncWakeUp
            | Feature::PageMapScan
            | Feature::MapQuery
            | Feature::BootId
            | Feature::GuardRegions
            | Feature::WriteTracking
            | Feature::SoftDirty
            | Feature::KernelFaults
            | Feature::ThreadIds => Need::Nothing,
        }
    }

    /// Tries it.
    fn is_there(self) -> bool {
        match self {
            Feature::CheckpointRestore => crate::tracee::has_tid_address(),
            Feature::ChosenPids => crate::sandbox::has_chosen_pids(),
            Feature::RseqConfiguration => crate::tracee::has_rseq_configuration(),
            Feature::WaitKillable => seccomp::has_wait_killable(),
            Feature::UserNamespaces => child::succeeds(|| child::unshare(NAMESPACES)),
            Feature::TimeNamespaces => child::succeeds(|| {
                child::unshare(libc::CLONE_NEWUSER | crate::sandbox::CLONE_NEWTIME)
            }),
            Feature::CgroupV2 => std::fs::read_to_string("/proc/self/mountinfo")
                .is_ok_and(|mounts| mounts.contains(" - cgroup2 ")),
            Feature::ExecutableMemfd => crate::shared::has_executable_memfd(),
            Feature::SyncWakeUp => child::succeeds(seccomp::has_sync_wake_up),
            Feature::PageMapScan => crate::proc::pagemap::has_scan(),
            Feature::MapQuery => crate::proc::maps::has_query(),
            Feature::BootId => std::fs::read("/proc/sys/kernel/random/boot_id").is_ok(),
            Feature::GuardRegions => crate::proc::pagemap::has_guards(),
            Feature::WriteTracking => {
                crate::proc::pagemap::has_scan() && crate::tracking::is_there()
            }
            Feature::SoftDirty => {
                crate::tracking::tells_moves() && child::succeeds(crate::soft_dirty::is_there)
            }
            Feature::KernelFaults => crate::proc::pagemap::has_scan() && crate::faults::is_there(),
            Feature::ThreadIds => crate::thread_ids::is_there(),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no feature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kernel feature is called `{word}`; there are {}", names(Feature::ALL))]
pub struct UnknownFeature {
    word: String,
}

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(word: &str) -> Result<Feature, UnknownFeature> {
        let mut all = Feature::ALL.into_iter();
        all.find(|feature| feature.name() == word)
            .ok_or_else(|| UnknownFeature { word: word.to_owned() })
    }
}

/// Names as `--without` takes them.
pub fn names(features: impl IntoIterator<Item = Feature>) -> String {
    features.into_iter().map(Feature::name).collect::<Vec<_>>().join(",")
}

/// Something to do without, to see what happens where it is missing: a feature of the kernel; one
/// of the processor, as `cpu-NAME`; or all processors from a number on, as `processors-from-N`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Without {
    Kernel(Feature),
    Processor(String),
    ProcessorsFrom(u32),
}

const PROCESSOR: &str = "cpu-";
const PROCESSORS_FROM: &str = "processors-from-";

impl FromStr for Without {
    type Err = UnknownFeature;

    fn from_str(word: &str) -> Result<Without, UnknownFeature> {
        let number = word.strip_prefix(PROCESSORS_FROM).and_then(|number| number.parse().ok());
        if let Some(first @ 1..) = number {
            return Ok(Without::ProcessorsFrom(first));
        }
        match word.strip_prefix(PROCESSOR) {
            Some(name) => Ok(Without::Processor(name.to_owned())),
            None => word.parse().map(Without::Kernel),
        }
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Without::Kernel(feature) => write!(f, "{feature}"),
            Without::Processor(name) => write!(f, "{PROCESSOR}{name}"),
            Without::ProcessorsFrom(first) => write!(f, "{PROCESSORS_FROM}{first}"),
        }
    }
}

/// What there is to be used, and what not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    missing: BTreeSet<Feature>,
    /// Of the processor, to be done without.
    processor: BTreeSet<String>,
    /// Number of the first processor that is to be done without.
    processors_end: Option<u32>,
}

impl Features {
    /// Tries all of them, except those that are to be done without.
    pub fn probe(without: &[Without]) -> Features {
        let mut features = Features::listed(without);
        features.missing.extend(Feature::ALL.into_iter().filter(|feature| {
            let is_known = without.contains(&Without::Kernel(*feature));
            !is_known && !feature.is_there()
        }));
        features
    }

    fn listed(without: &[Without]) -> Features {
        let mut features = Features::default();
        for word in without {
            match word {
                Without::Kernel(feature) => {
                    features.missing.insert(*feature);
                }
                Without::Processor(name) => {
                    features.processor.insert(name.clone());
                }
                Without::ProcessorsFrom(first) => features.processors_end = Some(*first),
            }
        }
        features
    }

    /// Features of the processor that are to be done without.
    pub fn without_of_processor(&self) -> impl Iterator<Item = &str> {
        self.processor.iter().map(String::as_str)
    }

    /// The number of the first processor that is to be done without.
    pub fn processors_end(&self) -> Option<u32> {
        self.processors_end
    }

    /// All that is done without, as [`inherit`] takes it.
    pub fn words(&self) -> String {
        let kernel = self.missing().map(Without::Kernel);
        let processor = self.processor.iter().cloned().map(Without::Processor);
        let end = self.processors_end.map(Without::ProcessorsFrom);
        let all: Vec<String> = kernel.chain(processor).chain(end).map(|w| w.to_string()).collect();
        all.join(",")
    }

    pub fn has(&self, feature: Feature) -> bool {
        !self.missing.contains(&feature)
    }

    pub fn missing(&self) -> impl Iterator<Item = Feature> + '_ {
        self.missing.iter().copied()
    }

    /// The first missing one that is needed for this.
    pub fn lacks(&self, need: Need) -> Option<Feature> {
        self.missing().find(|feature| feature.need() == need)
    }
}

/// What this process goes by, from its start to its end.
static SETTLED: OnceLock<Features> = OnceLock::new();

/// What this process may use; all that is there, where nobody has said otherwise.
pub fn settled() -> &'static Features {
    SETTLED.get_or_init(|| Features::probe(&[]))
}

/// Settles what this process goes by. Only the first time counts: before it, nothing may have been
/// used.
pub fn settle(features: Features) -> &'static Features {
    SETTLED.get_or_init(|| features)
}

/// Takes over what the starter of this process has found out: the word after `--without` lists what
/// is missing.
pub fn inherit(arguments: &[String]) -> Result<(), UnknownFeature> {
    let mut words = arguments.iter();
    let listed = words.find(|word| *word == "--without").and_then(|_| words.next());
    let listed = listed.map_or("", String::as_str).split(',').filter(|word| !word.is_empty());
    let without: Result<Vec<Without>, _> = listed.map(str::parse).collect();
    settle(Features::listed(&without?));
    Ok(())
}

mod child {
    //! Trying in a child what cannot be undone.

    use crate::sys;

    /// Whether `attempt` says yes in a copy of this process. It may make system calls only: the
    /// copy has one thread, and locks that others held stay locked in it.
    pub fn succeeds(attempt: fn() -> bool) -> bool {
        // SAFETY: without CLONE_VM the child gets a copy of everything, like fork; it makes the
        // calls of `attempt` and exits.
        let Ok(pid) = (unsafe { sys::fork() }) else { return false };
        if pid == 0 {
            // SAFETY: ends the copy at once, without running anything of the runtime.
            unsafe { libc::_exit(if attempt() { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the status is a live local; the pid is our child's.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        waited == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    pub fn unshare(flags: i32) -> bool {
        // SAFETY: a plain number; the calling process is a copy that ends at once.
        unsafe { libc::unshare(flags) == 0 }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn features_are_found_by_their_names() {
        for feature in Feature::ALL {
            assert_eq!(feature.name().parse::<Feature>(), Ok(feature));
        }
        let error = "warp".parse::<Feature>().unwrap_err().to_string();
        assert!(error.contains("`warp`") && error.contains("page-map-scan"), "{error}");
    }

    #[test]
    fn what_is_switched_off_is_missing_and_told_by_what_needs_it() {
        let all = Features::probe(&[]);
        let without = [Feature::WaitKillable, Feature::PageMapScan].map(Without::Kernel);
        let off = Features::probe(&without);
        assert!(!off.has(Feature::WaitKillable) && !off.has(Feature::PageMapScan));
        assert_eq!(off.lacks(Need::Node), Some(Feature::WaitKillable));
        for feature in Feature::ALL {
            let is_off = matches!(feature, Feature::WaitKillable | Feature::PageMapScan);
            assert_eq!(off.has(feature), all.has(feature) && !is_off, "{feature}");
        }
    }

    #[test]
    fn what_a_supervisor_inherits_is_what_its_daemon_does_without() {
        let words = "page-map-scan,cpu-avx2,processors-from-1";
        let without: Vec<Without> = words.split(',').map(|word| word.parse().unwrap()).collect();
        let features = Features::listed(&without);
        assert_eq!(features.words(), words);
        assert_eq!(features.without_of_processor().collect::<Vec<_>>(), ["avx2"]);
        assert_eq!(features.processors_end(), Some(1));
        assert!("processors-from-0".parse::<Without>().is_err());
    }

    #[test]
    fn this_machine_can_be_a_node() {
        let features = Features::probe(&[]);
        assert_eq!(features.lacks(Need::Node), None, "{features:?}");
    }
}
