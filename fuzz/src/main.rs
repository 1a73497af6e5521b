//! One program that feeds one decoder, chosen by `OSMOS_FUZZ_TARGET`, with what the fuzzer comes up
//! with. `cargo xtask fuzz` builds it, runs it for every target and tells what came of it.
//!
//! With `OSMOS_FUZZ_SEEDS` it writes real messages into that directory, to begin with, and ends;
//! with `OSMOS_FUZZ_LIST` it lists its targets.

#![no_main]

#[path = "../../core/wire/tests/samples/mod.rs"]
mod samples;
mod seeds;
mod targets;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use std::alloc::System;
use std::path::Path;
use std::sync::OnceLock;
use targets::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What a decoder may take whatever it was given: serde reserves that much for open lists.
const RESERVED_BYTES_MAX: usize = 4 << 20;
/// A byte may stand for so many in memory, all moves of growing lists included.
const GROWTH_MAX: usize = 256;

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fn choose() {
    let name = std::env::var("OSMOS_FUZZ_TARGET").unwrap_or_default();
    if std::env::var_os("OSMOS_FUZZ_LIST").is_some() {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        std::process::exit(0);
    }
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        eprintln!("OSMOS_FUZZ_TARGET is no target; OSMOS_FUZZ_LIST=1 lists them");
        std::process::exit(2);
    };
    if let Some(directory) = std::env::var_os("OSMOS_FUZZ_SEEDS") {
        seeds::write(Path::new(&directory), target).expect("seeds can be written");
        std::process::exit(0);
    }
    let _ = CHOSEN.set(target);
}

fuzz_target!(init: choose(), |data: &[u8]| {
    let target = CHOSEN.get().expect("chosen before the first run");
    let before = ALLOCATOR.total_allocated();
    (target.run)(data);
    let cost = ALLOCATOR.total_allocated() - before;
    let allowed = RESERVED_BYTES_MAX + GROWTH_MAX * data.len();
    assert!(
        target.costs_freely || cost <= allowed,
        "{cost} bytes allocated for {} given",
        data.len()
    );
});
