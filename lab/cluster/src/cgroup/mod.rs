//! The cgroups of a lab: what makes a node slow or small.
//!
//! ```text
//! <mount>/osmos-lab/NAME/node3          memory limit of the node
//!                        ├─ work        CPU quota: what users run here, and guests; one processor
//!                        │              if the nodes of this lab are to have one core each
//!                        └─ system      no quota: the node daemon and its supervisors
//! ```
//! A node's own system part stays quick on a node that is slow for programs: otherwise a lab would
//! measure how long a throttled daemon sleeps. A lab lies at the root of each hierarchy because it
//! outlives the session that made it, and because version 2 allows controllers only below cgroups
//! without processes, which a session's never is. Versions 1 and 2 are used side by side, each
//! controller where the machine has it.

mod cpuset;
mod detect;
mod tree;
mod usage;

pub use detect::{Detected, detect};
pub use tree::{create, node_dir, procs_file, remove_lab};
pub use usage::{Usage, usage};

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Holds the cgroups of all labs, in every hierarchy.
const LABS_DIR: &str = "osmos-lab";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    V1,
    V2,
}

/// One mounted cgroup tree and what a lab uses it for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchy {
    pub version: Version,
    pub mount: PathBuf,
    /// Of `cpu`, `cpuacct`, `cpuset`, `memory` and `pids` those that this hierarchy controls.
    pub controllers: Vec<String>,
}

impl Hierarchy {
    pub fn controls(&self, controller: &str) -> bool {
        self.controllers.iter().any(|own| own == controller)
    }

    fn lab_dir(&self, lab: &str) -> PathBuf {
        self.mount.join(LABS_DIR).join(lab)
    }
}

/// The two halves of a node's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// User processes and guests: limited to the node's speed.
    Work,
    /// The daemon and its supervisors: never throttled.
    System,
}

impl Place {
    pub fn dir_name(self) -> &'static str {
        match self {
            Place::Work => "work",
            Place::System => "system",
        }
    }

    pub fn from_dir_name(name: &str) -> Option<Place> {
        [Place::Work, Place::System].into_iter().find(|place| place.dir_name() == name)
    }
}

/// Where inside a node the node's own cgroup of each hierarchy is seen, as if it were the root.
pub fn places_inside(hierarchies: &[Hierarchy]) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let is_v2_alone = matches!(hierarchies, [only] if only.version == Version::V2);
    let name = |hierarchy: &Hierarchy| match hierarchy.version {
        Version::V1 => hierarchy.controllers.join(","),
        Version::V2 if is_v2_alone => String::new(),
        Version::V2 => "unified".to_owned(),
    };
    hierarchies.iter().map(|hierarchy| root.join(name(hierarchy))).collect()
}
