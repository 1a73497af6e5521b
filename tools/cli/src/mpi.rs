//! How the ranks of an MPI job are told to have no memory in common: a process that shares memory
//! with another stays home. They have other ways to speak, and variables that choose these. What
//! the user has set himself stays, and so does what he says on the launcher's command line, which
//! comes before its environment.
//!
//! A job is recognised by the name of its launcher. A script that starts one is not, and neither is
//! a single rank, which has nobody to share with.

use clap::ValueEnum;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Whether a command gets these variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mpi {
    /// If it is an MPI launcher, and may leave home by itself
    #[default]
    Auto,
    On,
    Off,
}

impl Mpi {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Mpi::Auto => "auto",
            Mpi::On => "on",
            Mpi::Off => "off",
        }
    }

    /// Whether `command` gets them.
    pub fn applies(self, command: &OsStr, stays_home: bool) -> bool {
        match self {
            Mpi::Auto => is_launcher(command) && !stays_home,
            Mpi::On => true,
            Mpi::Off => false,
        }
    }
}

/// Launchers of Open MPI (4: orterun, 5: prterun and prun), of MPICH and what is made from it
/// (hydra), and the names that all of them share. Distributions append which one it is, as in
/// `mpirun.openmpi`.
const LAUNCHERS: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "prun", "hydra"];

fn is_launcher(command: &OsStr) -> bool {
    let name = Path::new(command).file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    LAUNCHERS.contains(&stem)
}

/// Open MPI: messages by TCP and not by UCX, libfabric or shared memory, and what the launcher
/// tells its ranks in messages and not in a shared file (PMIx); tried with 4.1.4 and 5.0. MPICH:
/// ranks of one machine are treated as those of several, and UCX, by which it may send, takes TCP;
/// tried with 4.0.2. Each ignores the variables of the others.
const VARIABLES: [(&str, &str); 5] = [
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_btl", "tcp,self"),
    ("PMIX_MCA_gds", "hash"),
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("UCX_TLS", "tcp,self"),
];

/// Their names: a launcher that has them has others begin ranks that need them, too.
pub fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.into_iter().map(|(name, _)| name)
}

/// The variables to set; `current` tells what the user has set.
pub fn variables(current: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
    let unset = VARIABLES.into_iter().filter(|(name, _)| current(name).is_none());
    unset.map(|(name, value)| (name, value.into())).collect()
}

/// What the user is told of them.
pub fn notice(variables: &[(&'static str, OsString)]) -> String {
    let words = variables.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
    let words: Vec<String> = words.collect();
    format!(
        "osmos: MPI ranks that share memory cannot move, so they get {} (`osmos run --mpi off` \
         leaves that out)",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_names() {
        for command in ["mpirun", "/usr/bin/mpiexec", "mpirun.openmpi", "./mpiexec.hydra", "prun"] {
            assert!(Mpi::Auto.applies(OsStr::new(command), false), "{command}");
            assert!(!Mpi::Auto.applies(OsStr::new(command), true), "{command} stays home");
            assert!(!Mpi::Off.applies(OsStr::new(command), false));
        }
        for command in ["make", "mpicc", "xmpirun", "/mpirun/true", ""] {
            assert!(!Mpi::Auto.applies(OsStr::new(command), false), "{command}");
            assert!(Mpi::On.applies(OsStr::new(command), true));
        }
    }

    #[test]
    fn what_the_user_has_set_stays_and_he_is_told_the_rest() {
        let own = |name: &str| (name == "OMPI_MCA_btl").then(|| OsString::from("^openib"));
        let set = variables(own);
        let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["OMPI_MCA_pml", "PMIX_MCA_gds", "MPIR_CVAR_NOLOCAL", "UCX_TLS"]);
        let notice = notice(&set);
        assert!(notice.contains("OMPI_MCA_pml=ob1 PMIX_MCA_gds=hash"), "{notice}");
        assert!(notice.contains("--mpi off") && !notice.contains("btl"), "{notice}");
        assert!(variables(|_| Some(OsString::new())).is_empty());
    }
}
