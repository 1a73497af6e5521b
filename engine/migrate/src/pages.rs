//! Memory contents: which pages travel, and reading them out.

use crate::{MigrateError, Result, mapping_flags};
use kernel::memory::Memory;
use kernel::proc::pagemap::{PAGE_BYTES, Pagemap, Run, Select};
use wire::ids::GuestAddr;
use wire::image::{Image, Mapping, MappingKind, Pages};
use wire::limits::{GROWTH_BYTES_MAX, PAGE_RUN_BYTES_MAX};

/// Bytes of memory in one message: large enough to amortise it, small enough to stay in cache.
const RUN_BYTES: u64 = 256 << 10;

/// What was sent, in pages and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub page_count: u64,
    pub zero_page_count: u64,
}

/// Reads out every page that the target cannot make itself and hands it to `send`, in runs.
///
/// Untouched pages and pages of a file that were not written to are not sent. Pages full of zeros
/// are not sent where the target starts from zero pages: in private anonymous memory.
pub fn send_all(
    memory: &Memory,
    pagemap: &Pagemap,
    (mappings, guards): (&[Mapping], &[(GuestAddr, GuestAddr)]),
    send: &mut dyn FnMut(Pages) -> Result<()>,
) -> Result<Sent> {
    let mut sent = Sent::default();
    for mapping in mappings {
        let (start, end) = (mapping.start.0, mapping.end.0);
        let skip_zero = matches!(mapping.kind, MappingKind::Anonymous { .. });
        for run in mapping_flags::unguarded(runs(pagemap, mapping)?, guards) {
            let mut at = run.start;
            while at < run.end {
                let length = (run.end - at).min(RUN_BYTES);
                let mut content = vec![0; length as usize];
                memory.read(at, &mut content).map_err(|error| unreadable(at, error))?;
                send_run(at, content, skip_zero, &mut sent, send)?;
                at += length;
            }
        }
        debug_assert!(start < end);
    }
    Ok(sent)
}

fn runs(pagemap: &Pagemap, mapping: &Mapping) -> Result<Vec<Run>> {
    let (start, end) = (mapping.start.0, mapping.end.0);
    Ok(match mapping.kind {
        MappingKind::Kernel { .. } => vec![],
        MappingKind::Anonymous { .. } => pagemap.scan(start, end, Select::Populated)?,
        // Its pages may be in memory without being in this process's page table.
        MappingKind::SharedAnonymous => vec![Run { start, end }],
        MappingKind::File { is_shared: true, .. } => vec![],
        MappingKind::File { is_shared: false, .. } => pagemap.scan(start, end, Select::Private)?,
    })
}

/// Guard regions that the kernel has and does not tell (Linux 6.13 and 6.14), or broken memory.
fn unreadable(at: u64, error: kernel::KernelError) -> MigrateError {
    match error.source.raw_os_error() {
        Some(libc::EIO | libc::EFAULT) => {
            let text = format!("its memory at {at:#x} cannot be read: {}", error.source);
            MigrateError::refused("unreadable-memory", text)
        }
        _ => error.into(),
    }
}

/// Sends the parts of `content` between zero pages, or all of it.
fn send_run(
    address: u64,
    content: Vec<u8>,
    skip_zero: bool,
    sent: &mut Sent,
    send: &mut dyn FnMut(Pages) -> Result<()>,
) -> Result<()> {
    let page = PAGE_BYTES as usize;
    let is_zero = |p: &[u8]| skip_zero && p.iter().all(|byte| *byte == 0);
    let zero: Vec<bool> = content.chunks(page).map(is_zero).collect();
    sent.zero_page_count += zero.iter().filter(|z| **z).count() as u64;
    if !zero.contains(&true) {
        sent.page_count += zero.len() as u64;
        return send(Pages { address: GuestAddr(address), content });
    }
    let mut index = 0;
    for group in zero.chunk_by(|a, b| a == b) {
        let bytes = index * page..(index + group.len()) * page;
        if !group[0] {
            sent.page_count += group.len() as u64;
            let address = GuestAddr(address + bytes.start as u64);
            send(Pages { address, content: content[bytes].to_vec() })?;
        }
        index += group.len();
    }
    Ok(())
}

/// How much memory may still come, and from where on: contents come once, in ascending order.
#[derive(Clone, Copy, Debug)]
pub struct Intake {
    next: u64,
    left: u64,
}

impl Default for Intake {
    /// As much as the mappings hold.
    fn default() -> Intake {
        Intake { next: 0, left: u64::MAX }
    }
}

impl Intake {
    /// For a process that was announced with so much memory. Shared memory travels whole, even
    /// where it was never touched.
    pub fn promised(memory_bytes: u64, image: &Image) -> Intake {
        let is_shared = |m: &&Mapping| m.kind == MappingKind::SharedAnonymous;
        let shared = image.mappings.iter().filter(is_shared);
        let shared_bytes =
            shared.fold(0u64, |sum, m| sum.saturating_add(m.end.0.saturating_sub(m.start.0)));
        let grown = memory_bytes.saturating_mul(2).saturating_add(GROWTH_BYTES_MAX);
        Intake { next: 0, left: grown.saturating_add(shared_bytes) }
    }

    /// Checks received memory contents: whole pages, inside the image's mappings, not more than
    /// was announced.
    ///
    /// # Errors
    /// Nothing must be written then.
    pub fn check(&mut self, pages: &Pages, mappings: &[Mapping]) -> Result<()> {
        check(pages, mappings)?;
        let length = pages.content.len() as u64;
        if pages.address.0 < self.next {
            let text = format!("memory at {:#x} out of order", pages.address.0);
            return Err(MigrateError::Protocol(text));
        }
        let Some(left) = self.left.checked_sub(length) else {
            let text = "it has far more memory than was announced; try again";
            return Err(MigrateError::refused("grown", text));
        };
        *self = Intake { next: pages.address.0 + length, left };
        Ok(())
    }
}

fn check(pages: &Pages, mappings: &[Mapping]) -> Result<()> {
    let (start, length) = (pages.address.0, pages.content.len() as u64);
    let is_whole = (1..=PAGE_RUN_BYTES_MAX as u64).contains(&length)
        && start % PAGE_BYTES == 0
        && length % PAGE_BYTES == 0;
    let end = start.checked_add(length).filter(|end| is_whole && is_covered(mappings, start, *end));
    match end {
        Some(_) => Ok(()),
        None => Err(MigrateError::Protocol(format!(
            "{length} bytes of memory at {start:#x}, outside its mappings"
        ))),
    }
}

/// True if the mappings, which are in order, cover the whole range.
fn is_covered(mappings: &[Mapping], start: u64, end: u64) -> bool {
    let mut at = start;
    let first = mappings.partition_point(|m| m.end.0 <= at);
    for mapping in &mappings[first..] {
        if mapping.start.0 > at || matches!(mapping.kind, MappingKind::Kernel { .. }) {
            return false;
        }
        at = mapping.end.0;
        if at >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn zero_pages_are_left_out_and_the_rest_keeps_its_place() {
        let mut content = vec![0u8; 5 * 4096];
        content[4096] = 1;
        content[3 * 4096 + 7] = 2;
        content[4 * 4096] = 3;
        let mut got = vec![];
        let mut sent = Sent::default();
        let mut send = |p: Pages| {
            got.push((p.address.0, p.content.len()));
            Ok(())
        };
        send_run(0x10000, content.clone(), true, &mut sent, &mut send).unwrap();
        assert_eq!(got, [(0x11000, 4096), (0x13000, 8192)]);
        assert_eq!(sent, Sent { page_count: 3, zero_page_count: 2 });
        let mut whole = 0;
        let mut send = |p: Pages| {
            whole += p.content.len();
            Ok(())
        };
        send_run(0, content, false, &mut sent, &mut send).unwrap();
        assert_eq!(whole, 5 * 4096);
    }

    #[test]
    fn memory_outside_the_mappings_is_refused() {
        let mapping = |start, end, kind| Mapping {
            start: GuestAddr(start),
            end: GuestAddr(end),
            protection: 3,
            kind,
            flags: Default::default(),
        };
        let plain = MappingKind::Anonymous { grows_down: false };
        let mappings = [
            mapping(0x1000, 0x3000, plain.clone()),
            mapping(0x3000, 0x4000, plain),
            mapping(0x4000, 0x5000, MappingKind::Kernel { name: "[vdso]".into() }),
        ];
        let verdict = |address, length| {
            check(&Pages { address: GuestAddr(address), content: vec![0; length] }, &mappings)
        };
        assert!(verdict(0x1000, 0x3000).is_ok());
        assert!(verdict(0x1000, 0x4000).is_err());
        assert!(verdict(0x5000, 0x1000).is_err());
        assert!(verdict(0x1800, 0x1000).is_err());
        assert!(verdict(0x1000, 0).is_err());
        assert!(verdict(u64::MAX - 0xfff, 0x1000).is_err());
    }

    #[test]
    fn memory_comes_once_and_not_without_end() {
        let kind = MappingKind::Anonymous { grows_down: false };
        let end = GuestAddr(1 << 40);
        let flags = Default::default();
        let mappings = [Mapping { start: GuestAddr(0x1000), end, protection: 3, kind, flags }];
        let pages = |address| Pages { address: GuestAddr(address), content: vec![0; 0x1000] };
        let mut intake = Intake { next: 0, left: 0x2000 };
        intake.check(&pages(0x3000), &mappings).unwrap();
        assert!(intake.check(&pages(0x3000), &mappings).is_err(), "twice");
        assert!(intake.check(&pages(0x2000), &mappings).is_err(), "backwards");
        intake.check(&pages(0x9000), &mappings).unwrap();
        let error = intake.check(&pages(0xa000), &mappings).unwrap_err();
        assert_eq!(error.reason().code, "grown");
    }
}
