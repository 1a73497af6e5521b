//! The deputy's memory becomes that of its body again: mappings, then contents.

use crate::homecoming::{Sending, worker};
use crate::service::Service;
use kernel::agent::BatchCall;
use kernel::proc::pagemap::Pagemap;
use kernel::proc::{flags, maps};
use link::LinkReader;
use migrate::backing::Library;
use migrate::homeward::{self, Change};
use migrate::intake::Intake;
use migrate::kept::Kept;
use migrate::sight::Sight;
use migrate::worker::Worker;
use migrate::{MigrateError, Result, layout, mapping_flags};
use std::ops::Range;
use wire::forward::ToHome;
use wire::image::{self, Image, Span};

/// What is ours in the deputy is not the guest's to map.
///
/// # Errors
/// No honest body has such mappings.
pub fn check_place(service: &Service<'_>, mappings: &[image::Mapping]) -> Result<()> {
    let agent = &service.shared.lanes.agent;
    match mappings.iter().any(|m| m.start.0 < agent.end() && agent.base() < m.end.0) {
        true => Err(MigrateError::Protocol("a mapping in the place of the agent".into())),
        false => Ok(()),
    }
}

/// Sets the program break. Where it cannot be set, mappings make up for it.
///
/// # Errors
/// The process has ended.
pub fn set_break(worker: Worker<'_>, address: u64) -> Result<()> {
    worker.execute(&[BatchCall::new(libc::SYS_brk, [address, 0, 0, 0, 0, 0])])?;
    Ok(())
}

/// Makes of the mappings that the process has `here` those that are wanted. False, and nothing is
/// changed, if that would replace or unmap what is fixed.
///
/// # Errors
/// The process has ended, or cannot have such mappings: some may be changed.
pub fn restore_mappings(
    worker: Worker<'_>,
    ((pid, here), library): ((i32, &[maps::Mapping]), &Library),
    wanted: &[image::Mapping],
    is_fixed: &dyn Fn(&Range<u64>) -> bool,
    kept: &mut Kept,
) -> Result<bool> {
    let ours = worker.agent.base()..worker.agent.end();
    let here: Vec<maps::Mapping> = flags::read_maps_again(pid, here)?
        .into_iter()
        .filter(|m| !layout::is_ours(m, std::slice::from_ref(&ours)) && !m.is_kernel_provided())
        .collect();
    let is_same = |here: &_, index| library.is_same(here, index);
    let fits = |here: &_, wanted: &_, at| homeward::fits(here, wanted, at, &is_same);
    let changes = homeward::plan(&here, wanted, &fits);
    let replaces = |change: &Change| match change {
        Change::Unmap(range) | Change::Map(range, ..) => is_fixed(range),
        Change::Protect(..) | Change::Advise(_) => false,
    };
    if changes.iter().any(replaces) {
        return Ok(false);
    }
    kept.change(&changes);
    homeward::change(worker, &changes, library)?;
    Ok(true)
}

/// Makes the memory of the deputy that of the image, but for its contents; returns where those are
/// that were kept.
pub fn restore_memory(
    service: &Service<'_>,
    image: &Image,
    here: &[maps::Mapping],
    mut kept: Kept,
) -> Result<Vec<Span>> {
    let worker = worker(service)?;
    set_break(worker, image.layout[5])?;
    let here = (service.pid, here);
    let nothing = |_: &Range<u64>| false;
    let parts = (here, &service.library);
    restore_mappings(worker, parts, &image.mappings, &nothing, &mut kept)?;
    let pagemap = Pagemap::open(service.pid)?;
    let sight = Sight::of(&pagemap, &image.mappings)?;
    let stale = sight.guards()?;
    if stale != image.guards {
        worker.execute_all("remove guard regions", &mapping_flags::remove(&stale))?;
    }
    // Whatever was written here meanwhile (results of calls that slept through the move) is not the
    // guest's memory: what was not written away is zero, and is not sent.
    kept.empty_others(worker, (&image.mappings, &sight))
}

pub fn receive_pages(
    service: &Service<'_>,
    image: &Image,
    (reader, first): (&mut LinkReader, ToHome),
    sending: &mut Sending,
) -> Result<u64> {
    let mut bytes = 0;
    let mut intake = Intake::default();
    let mut next = first;
    loop {
        match next {
            ToHome::Pages(pages) => {
                for (address, content) in
                    intake.check(&pages.spans, &pages.content, &image.mappings)?
                {
                    service.shared.lanes.memory.write_pages(address, content)?;
                }
                bytes += pages.content.len() as u64;
            }
            ToHome::Discard(spans) => {
                intake.check_discarded(&spans, &image.mappings)?;
                let calls = homeward::discard_calls(&spans);
                worker(service)?.execute_all("discard memory", &calls)?;
            }
            ToHome::ImageSent => {
                *sending = Sending::Done;
                return Ok(bytes);
            }
            ToHome::Stayed(reason) => {
                *sending = Sending::GivenUp;
                return Err(MigrateError::Refused(reason));
            }
            _ => return Err(MigrateError::Protocol("expected memory contents".into())),
        }
        next = reader.receive()?;
    }
}
