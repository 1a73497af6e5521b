//! What control groups, versions 1 and 2, leave a node: the tightest limit on the way up to the
//! root holds.

use kernel::proc::cgroup::{Mounts, Place};
use std::path::PathBuf;

/// The directories given, or else those that this process is in.
pub fn places(given: &[PathBuf]) -> Vec<Place> {
    let mounts = Mounts::read();
    match given {
        [] => mounts.places_of("self"),
        given => given.iter().map(|dir| mounts.place_at(dir)).collect(),
    }
}

/// The tightest CPU quota in whole or part CPUs; None if there is none.
pub fn read_cpu_quota(places: &[Place]) -> Option<f64> {
    let quotas = places.iter().filter(|place| place.has("cpu")).filter_map(Place::cpu_quota);
    quotas.reduce(f64::min)
}
