//! What the command line needs and may not reach itself.
//!
//! Tools see only `wire` and `client`. The root package sees everything and hands in the rest
//! through this trait, so that the layer rule holds and the commands can be tested without a
//! kernel's help.

use crate::arguments::DemoOptions;
use crate::commands::daemon::DaemonFiles;
use crate::daemon_options::DaemonOptions;
use std::ffi::OsString;
use std::process::ExitCode;
use wire::control::Finding;

/// What this process was given by its parent and the language runtime has changed since: a program
/// that replaces this one must find it as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// SIGPIPE was ignored.
    pub sigpipe_ignored: bool,
    /// Which of descriptors 0, 1 and 2 were closed.
    pub closed_standard: [bool; 3],
}

pub trait Platform {
    fn inherited(&self) -> Inherited;

    /// From here on io_uring_setup answers ENOSYS, here and in whatever this process becomes or
    /// starts.
    fn refuse_io_uring(&self) -> std::io::Result<()>;

    /// From here on programs that are started inherit the standard descriptors only.
    fn keep_descriptors(&self);

    /// What this machine has for Osmos, and what it lacks.
    fn findings(&self) -> Vec<Finding>;

    fn daemon_files(&self, options: &DaemonOptions) -> DaemonFiles;

    /// Be the node daemon, until it is told to end.
    fn daemon(&self, options: &DaemonOptions) -> ExitCode;

    /// The commands whose words this program hands on, each by its name, as they are for people.
    fn handed_on(&self) -> Vec<clap::Command>;

    fn demo(&self, options: &DemoOptions) -> ExitCode;

    fn lab(&self, words: Vec<OsString>) -> ExitCode;

    fn sim(&self, words: Vec<OsString>) -> ExitCode;

    fn bench(&self, words: Vec<OsString>) -> ExitCode;
}
