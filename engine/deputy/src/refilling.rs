//! The deputy's memory becomes that of its body again: mappings, then contents.

use crate::homecoming::{Sending, worker};
use crate::service::Service;
use kernel::agent::BatchCall;
use kernel::proc::pagemap::Pagemap;
use kernel::proc::{flags, maps, process};
use link::LinkReader;
use migrate::backing::Library;
use migrate::emptying;
use migrate::homeward::{self, Change};
use migrate::intake::Intake;
use migrate::kept::Kept;
use migrate::packing::unpack_pages;
use migrate::sight::Sight;
use migrate::worker::Worker;
use migrate::{MigrateError, Result, adoption, layout, mapping_flags};
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

/// Sets the program break, and says whether it is there. It is not if something is mapped in
/// between, as it may be after a layout that came ahead: that was read while the program moved its
/// break. Mappings make up for it then.
///
/// # Errors
/// The process has ended.
pub fn set_break(worker: Worker<'_>, address: u64) -> Result<bool> {
    let set = worker.execute(&[BatchCall::new(libc::SYS_brk, [address, 0, 0, 0, 0, 0])])?;
    Ok(set == [address as i64])
}

/// Has the kernel know the program break where it could not be set: the heap is mapped.
fn declare_break(worker: Worker<'_>, pid: i32, address: u64) -> Result<()> {
    let mut layout = process::stat(&pid.to_string())?.layout;
    layout[process::BREAK] = address;
    adoption::set_layout(worker, &layout)
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
    let fits = |here: &_, wanted: &_, at| homeward::fits(here, wanted, at, library);
    let changes = homeward::plan(&here, wanted, &fits);
    let replaces = |change: &Change| change.replaced().is_some_and(is_fixed);
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
    let program_break = image.layout[process::BREAK];
    let is_set = set_break(worker, program_break)?;
    let here = (service.pid, here);
    let nothing = |_: &Range<u64>| false;
    let parts = (here, &service.library);
    restore_mappings(worker, parts, &image.mappings, &nothing, &mut kept)?;
    if !is_set {
        declare_break(worker, service.pid, program_break)?;
    }
    let pagemap = Pagemap::open(service.pid)?;
    let sight = Sight::of(&pagemap, &image.mappings)?;
    let stale = sight.guards()?;
    if stale != image.guards {
        worker.execute_all("remove guard regions", &mapping_flags::remove(&stale))?;
    }
    // Whatever was written here meanwhile (results of calls that slept through the move) is not the
    // guest's memory: what was not written away is zero, and is not sent. Shared memory comes
    // whole.
    kept.empty_others(worker, (&image.mappings, &sight))
}

/// Returns how many bytes came, and whether others come home with it.
pub fn receive_pages(
    service: &Service<'_>,
    image: &Image,
    (reader, first): (&mut LinkReader, ToHome),
    sending: &mut Sending,
) -> Result<(u64, bool)> {
    let mut bytes = 0;
    let mut intake = Intake::default();
    let mut next = first;
    loop {
        match next {
            ToHome::Pages(_) | ToHome::PackedPages(_) => {
                let (pages, sent) = unpack_pages(next)?;
                for (address, content) in
                    intake.check(&pages.spans, &pages.content, &image.mappings)?
                {
                    service.shared.lanes.memory.write_pages(address, content)?;
                }
                bytes += sent;
            }
            ToHome::Discard(spans) => {
                intake.check_discarded(&spans, &image.mappings)?;
                let calls = emptying::discard_calls_in(&spans, &image.mappings);
                worker(service)?.execute_all("discard memory", &calls)?;
            }
            ToHome::ImageSent { awaits_others } => {
                *sending = Sending::Done;
                return Ok((bytes, awaits_others));
            }
            ToHome::Stayed(reason) => {
                *sending = Sending::GivenUp;
                return Err(MigrateError::Refused(reason));
            }
            other => {
                let text = format!("expected memory contents, not {}", migrate::head_of(&other));
                return Err(MigrateError::Protocol(text));
            }
        }
        next = reader.receive()?;
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::exec::test::deputy;

    const PAGE: u64 = 4096;

    #[test]
    fn the_break_gets_past_what_is_mapped_behind_it_and_moves_on_from_there() {
        let (mut child, lanes) = deputy();
        let pid = child.id() as i32;
        let worker = Worker { agent: &lanes.agent, slot: 0, tid: pid };
        let set = |address: u64| {
            let call = BatchCall::new(libc::SYS_brk, [address, 0, 0, 0, 0, 0]);
            worker.execute(&[call]).unwrap()[0] as u64
        };
        let start = set(0).next_multiple_of(PAGE);
        let map = |pages: Range<u64>| {
            let (at, length) = (start + pages.start * PAGE, (pages.end - pages.start) * PAGE);
            let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
            let call = [at, length, protection, flags, u64::MAX, 0];
            worker.execute_all("map", &[BatchCall::new(libc::SYS_mmap, call)]).unwrap();
        };
        map(3..4);
        let wanted = start + 8 * PAGE + 100;
        assert!(!set_break(worker, wanted).unwrap(), "something is mapped in between");
        map(0..9);
        declare_break(worker, pid, wanted).unwrap();
        assert_eq!(set(0), wanted);
        assert_eq!(set(wanted + PAGE), wanted + PAGE);
        assert_eq!(set(start + PAGE), start + PAGE);
        assert!(set_break(worker, wanted).unwrap(), "nothing is left in between");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
