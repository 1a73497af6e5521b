//! What tells one machine from another, and what a process keeps of its own.

use crate::Result;
use kernel::KernelError;
use kernel::features::Feature;
use kernel::memory::Memory;
use kernel::proc::{maps, process};
use std::ops::Range;
use wire::image::Home;

/// What a process whose home this machine is keeps of it.
pub fn home() -> Result<Home> {
    Ok(Home { boot_id: boot_id()?, vdso: own_vdso()? })
}

/// Names this boot and the time namespace that we are in; empty where that cannot be known.
pub fn boot_id() -> Result<String> {
    if !kernel::features::settled().has(Feature::BootId) {
        return Ok(String::new());
    }
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Ok(format!("{} {}", line("/proc/sys/kernel/random/boot_id")?, namespace.display()))
}

/// Whether a process of that boot finds its own clocks and vDSO here.
pub fn is_this_boot(boot: &str) -> Result<bool> {
    Ok(!boot.is_empty() && boot == boot_id()?)
}

/// The bytes of this machine's vDSO; none if it has none.
pub fn own_vdso() -> Result<Vec<u8>> {
    let own = std::process::id() as i32;
    let vdso = maps::vdso(&maps::read(own)?);
    let mut bytes = vec![0; (vdso.end - vdso.start) as usize];
    Memory::open(own)?.read(vdso.start, &mut bytes)?;
    Ok(bytes)
}

/// Where this machine's vDSO lies in a process, as its program was told.
pub fn vdso_of(pid: i32) -> Result<Range<u64>> {
    let own = maps::vdso(&maps::read(std::process::id() as i32)?);
    let place = |start: u64| start..start.saturating_add(own.end - own.start);
    Ok(process::vdso_address(pid)?.map_or(0..0, place))
}

fn line(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| KernelError { what: format!("read {path}"), source })?;
    Ok(text.trim().to_owned())
}
