//! What a body is made of before there is anything of the process itself: checks, and files.

use crate::arrival::{Link, unexpected};
use kernel::features::Feature;
use kernel::vdso::Stub;
use migrate::backing::{self, Commons, Library};
use migrate::hashes::Effort;
use migrate::{MigrateError, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::clocks::Offset;
use wire::forward::{ToAway, ToHome};
use wire::image::{Backing, IMAGE_VERSION, Prospect};

/// What a process is made of that comes with another.
pub(crate) fn prepare_companion(
    link: &mut Link,
    offset: Option<Offset>,
    commons: Arc<Commons>,
) -> Result<Prepared> {
    let prospect = prospect(link.0.receive()?)?;
    let mut prepared = prepare(link, prospect, (offset, false))?;
    prepared.library.share(commons);
    Ok(prepared)
}

/// # Errors
/// It is none that this node can take.
pub(crate) fn prospect(first: ToAway) -> Result<Prospect> {
    let ToAway::Prospect(prospect) = first else {
        return Err(unexpected("a prospect", &first));
    };
    check_prospect(&prospect)?;
    migrate::processor::check(&prospect)?;
    Ok(*prospect)
}

/// Gets hold of every file that it maps, and of what a body inherits besides.
pub(crate) fn prepare(
    link: &mut Link,
    mut prospect: Prospect,
    (offset, remembers): (Option<Offset>, bool),
) -> Result<Prepared> {
    let library = collect_files(link, std::mem::take(&mut prospect.backings), remembers)?;
    let shared = memfd_create(c"osmos", MFdFlags::MFD_CLOEXEC).map_err(|errno| {
        kernel::KernelError { what: "make shared memory".into(), source: errno.into() }
    })?;
    let stub = offset.map(|_| Stub::create()).transpose()?;
    Ok(Prepared { prospect, library, offset, shared, stub })
}

/// What there is before anything of the process itself has come.
pub(crate) struct Prepared {
    pub(crate) prospect: Prospect,
    pub(crate) library: Library,
    /// How far home's clocks are ahead of ours; None if they are the same clocks.
    pub(crate) offset: Option<Offset>,
    /// The agent's memory.
    pub(crate) shared: OwnedFd,
    /// For a process whose home is another machine.
    pub(crate) stub: Option<Stub>,
}

fn check_prospect(prospect: &Prospect) -> Result<()> {
    if prospect.version != IMAGE_VERSION {
        let text = format!(
            "image version {} is not {IMAGE_VERSION}: the nodes run different versions of osmos",
            prospect.version
        );
        return Err(MigrateError::refused("version", text));
    }
    prospect.check()?;
    if prospect.pid.0 <= 1 {
        return Err(MigrateError::Protocol(format!("a guest with pid {}", prospect.pid)));
    }
    Ok(())
}

fn collect_files(link: &mut Link, backings: Vec<Backing>, remembers: bool) -> Result<Library> {
    let mut effort = Effort::default();
    let mut found: Vec<Option<File>> =
        backings.iter().map(|backing| backing::find_here(backing, &mut effort)).collect();
    let missing: Vec<u32> =
        (0..found.len() as u32).filter(|index| found[*index as usize].is_none()).collect();
    backing::check_total(missing.iter().map(|index| &backings[*index as usize]))?;
    for index in &missing {
        found[*index as usize] = Some(backing::stand_in(&backings[*index as usize])?);
    }
    let has = |feature| kernel::features::settled().has(feature);
    let serves_faults = has(Feature::KernelFaults) && has(Feature::WriteTracking);
    link.1.send(&ToHome::Welcome { missing: missing.clone(), remembers, serves_faults })?;
    loop {
        match link.0.receive()? {
            ToAway::BackingPart { backing: index, offset, content } if missing.contains(&index) => {
                let position = index as usize;
                if let Some(file) = &found[position] {
                    backing::fill(file, &backings[position], offset, &content)?;
                }
            }
            ToAway::BackingsSent => break,
            other => return Err(unexpected("a part of a mapped file", &other)),
        }
    }
    let mut library = Library::default();
    for (backing, file) in backings.into_iter().zip(found) {
        if let Some(file) = file {
            library.add(backing, file)?;
        }
    }
    Ok(library)
}
