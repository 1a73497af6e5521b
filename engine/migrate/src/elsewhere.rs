//! A body on a machine that is not its home's: the stub and this kernel's own vDSO beside it, in
//! one range of addresses that the guest knows nothing of and that never travels.

use crate::stepping::{self, Stepped};
use crate::vdso::{self, Symbol};
use crate::{MigrateError, Result, layout};
use kernel::agent::BatchCall;
use kernel::memory::Memory;
use kernel::proc::maps::Mapping;
use kernel::regs::Registers;
use kernel::signal::is_fault;
use kernel::tracee;
use kernel::vdso::{CODE_BYTES, FRAME_BYTES, Function, STUB_BYTES, Stub};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsRawFd;
use wire::image::{self, Home, MappingKind};

/// Where everything is, in the body's memory.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The stub, and behind it this kernel's mappings.
    range: Range<u64>,
    /// The code of this kernel's vDSO, in `range`.
    pub own_vdso: Range<u64>,
    /// Home's vDSO, as changed.
    home_vdso: Range<u64>,
    /// Where its functions are.
    entries: BTreeMap<Function, u64>,
    /// What the kernel provides at home, as it is to travel.
    mappings: Vec<image::Mapping>,
}

/// What the body's first thread has to do for it: calls in this order.
pub struct Plan {
    pub elsewhere: Elsewhere,
    /// Before anything of the guest is mapped.
    pub own: Vec<BatchCall>,
    /// With it.
    pub home: Vec<BatchCall>,
    /// Home's vDSO, as changed, to be written to `vdso_address` then.
    pub vdso: Vec<u8>,
    /// Once that is written.
    pub protect: Vec<BatchCall>,
}

const PRIVATE_NEW: u64 =
    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE) as u64;
const SHARED_NEW: u64 = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const NO_FILE: u64 = u64::MAX;
/// What a kernel provides lies together; more than this is none.
const OWN_BYTES_MAX: u64 = 1 << 20;

/// Plans where all goes. `own` are the sandbox's mappings as it was born, `taken` what else must
/// not be touched; the sandbox has the stub's descriptor.
///
/// # Errors
/// Refused if either vDSO is not as it has to be, or there is no room.
pub fn plan(
    own: &[Mapping],
    memory: &Memory,
    home: &Home,
    wanted: &[image::Mapping],
    taken: impl Iterator<Item = Range<u64>>,
    stub: &Stub,
) -> Result<Plan> {
    let mine: Vec<&Mapping> =
        own.iter().filter(|m| m.is_kernel_provided() && m.name != b"[vsyscall]").collect();
    let (own_vdso, own_symbols) = own_functions(&mine, memory)?;
    let lowest = mine.iter().map(|m| m.start).min().unwrap_or(0);
    let span = mine.iter().map(|m| m.end).max().unwrap_or(0) - lowest;
    let size = STUB_BYTES as u64 + span;
    let base = layout::room(taken, size).filter(|_| span <= OWN_BYTES_MAX);
    let Some(base) = base else {
        return Err(MigrateError::refused("no-room", "its address space is full"));
    };
    // They address each other relatively: all go equally far.
    let moved = |address: u64| address - lowest + base + STUB_BYTES as u64;
    let mut calls: Vec<BatchCall> = stub_calls(base, stub).to_vec();
    calls.extend(mine.iter().map(|m| {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let arguments = [m.start, m.length(), m.length(), flags, moved(m.start), 0];
        BatchCall::new(libc::SYS_mremap, arguments)
    }));
    let address = |function| own_symbols.get(&function).copied().map(moved);
    let (Some(gettime), Some(getcpu)) =
        (address(Function::ClockGettime), address(Function::Getcpu))
    else {
        return Err(MigrateError::refused("vdso", "this node's vDSO tells no time"));
    };
    stub.set_functions(gettime, getcpu);
    let HomeSide { map, protect, vdso, place, entries, mappings } = home_side(home, wanted, base)?;
    let elsewhere = Elsewhere {
        range: base..base + size,
        own_vdso: moved(own_vdso.start)..moved(own_vdso.end),
        home_vdso: place,
        entries,
        mappings,
    };
    Ok(Plan { elsewhere, own: calls, home: map, vdso, protect })
}

/// This kernel's vDSO, and the addresses of its functions.
fn own_functions(
    mine: &[&Mapping],
    memory: &Memory,
) -> Result<(Range<u64>, BTreeMap<Function, u64>)> {
    let Some(vdso) = mine.iter().find(|m| m.name == b"[vdso]") else {
        return Err(MigrateError::refused("vdso", "this node's kernel provides no vDSO"));
    };
    let mut bytes = vec![0; vdso.length().min(OWN_BYTES_MAX) as usize];
    memory.read(vdso.start, &mut bytes)?;
    let symbols = vdso::symbols(&bytes)?;
    let addresses =
        symbols.into_iter().map(|s| (s.function, vdso.start + s.range.start as u64)).collect();
    Ok((vdso.start..vdso.end, addresses))
}

fn stub_calls(base: u64, stub: &Stub) -> [BatchCall; 2] {
    let (code, file) = (CODE_BYTES as u64, stub.file().as_raw_fd() as u64);
    let read = libc::PROT_READ as u64;
    let data = [base + code, STUB_BYTES as u64 - code, read, SHARED_NEW, file, code];
    [
        BatchCall::new(libc::SYS_mmap, [base, code, READ_EXECUTE, SHARED_NEW, file, 0]),
        BatchCall::new(libc::SYS_mmap, data),
    ]
}

/// What is to lie where the guest knows its home's vDSO and the data of it.
#[derive(Default)]
struct HomeSide {
    map: Vec<BatchCall>,
    protect: Vec<BatchCall>,
    vdso: Vec<u8>,
    place: Range<u64>,
    entries: BTreeMap<Function, u64>,
    mappings: Vec<image::Mapping>,
}

fn home_side(home: &Home, wanted: &[image::Mapping], stub: u64) -> Result<HomeSide> {
    let mut side = HomeSide::default();
    for mapping in wanted {
        let MappingKind::Kernel { name } = &mapping.kind else { continue };
        let (start, length) = (mapping.start.0, mapping.end.0 - mapping.start.0);
        side.mappings.push(mapping.clone());
        let is_vdso = name == "[vdso]";
        // The data's place is kept free, and faults.
        let protection = if is_vdso { READ_WRITE } else { 0 };
        let arguments = [start, length, protection, PRIVATE_NEW, NO_FILE, 0];
        side.map.push(BatchCall::new(libc::SYS_mmap, arguments));
        if !is_vdso {
            continue;
        }
        if home.vdso.len() as u64 != length || !side.place.is_empty() {
            return Err(MigrateError::Protocol("the vDSO is not the one that is mapped".into()));
        }
        side.vdso = home.vdso.clone();
        let symbols = vdso::symbols(&side.vdso)?;
        vdso::redirect(&mut side.vdso, &symbols, stub)?;
        let entry = |s: Symbol| (s.function, start + s.range.start as u64);
        side.entries = symbols.into_iter().map(entry).collect();
        side.place = start..mapping.end.0;
        let arguments = [start, length, READ_EXECUTE, 0, 0, 0];
        side.protect.push(BatchCall::new(libc::SYS_mprotect, arguments));
    }
    Ok(side)
}

impl Plan {
    /// Where [`Plan::vdso`] is to be written; None if home has none.
    pub fn vdso_address(&self) -> Option<u64> {
        let place = &self.elsewhere.home_vdso;
        (!place.is_empty()).then_some(place.start)
    }
}

impl Elsewhere {
    /// What the guest knows nothing of: the stub and this kernel's vDSO.
    pub fn hidden(&self) -> Range<u64> {
        self.range.clone()
    }

    /// All that a capture must leave out: ours, and what stands for what home's kernel provides.
    pub fn ours(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let provided = self.mappings.iter().map(|m| m.start.0..m.end.0);
        std::iter::once(self.range.clone()).chain(provided)
    }

    /// What a capture must add instead.
    pub fn provided(&self) -> &[image::Mapping] {
        &self.mappings
    }

    /// Whether the address is in what the guest knows nothing of.
    pub fn is_inside(&self, address: u64) -> bool {
        self.range.contains(&address)
    }

    /// Whether it is in home's vDSO, whose data is not here.
    pub fn is_in_home_vdso(&self, address: u64) -> bool {
        self.home_vdso.contains(&address)
    }

    /// Leads a stopped thread out of the stub and of this kernel's vDSO: to the end of the function
    /// that it is in, or back to its beginning where that would take a system call, or a fault.
    ///
    /// # Errors
    /// Refused if it does not get out, and goes on from where it stands. A signal may have been
    /// taken from it then, which has to be raised again.
    pub fn lead_out(&self, tid: i32) -> Result<()> {
        if self.own_vdso.contains(&tracee::registers(tid)?.rip) {
            // Not in steps: on a slow machine a clock cannot be read in steps.
            let returns = kernel::vdso::returns().map(|offset| self.range.start + offset);
            if let Stepped::Signal(signal) = stepping::run_to(tid, &returns)? {
                return self.blame(tid, signal);
            }
        }
        if !self.is_inside(tracee::registers(tid)?.rip) {
            return Ok(());
        }
        let stepped = stepping::step_while(tid, |registers| match self.back_at_entry(registers) {
            Some(entry) => {
                *registers = entry;
                false
            }
            None => self.is_inside(registers.rip),
        });
        match stepped? {
            Stepped::There => Ok(()),
            Stepped::Signal(signal) => self.blame(tid, signal),
            Stepped::Underway => Err(stepping::vdso_refusal()),
        }
    }

    /// A thread that is to be led out is about to get a signal instead.
    fn blame(&self, tid: i32, signal: i32) -> Result<()> {
        let info = tracee::signal_info(tid)?;
        if is_fault(signal, &info) && self.blame_caller(tid)? {
            return Ok(());
        }
        Err(stepping::vdso_refusal())
    }

    /// The registers of a thread that stands at a system call of the stub, at home's entry of the
    /// same function.
    fn back_at_entry(&self, registers: &Registers) -> Option<Registers> {
        let mut at = *registers;
        let is_interrupted = registers.interrupted_call().is_some()
            && (kernel::regs::ERESTART_RESTARTBLOCK..=kernel::regs::ERESTARTSYS)
                .contains(&registers.result());
        if is_interrupted {
            at.rewind();
        }
        let place = kernel::vdso::place(at.rip.checked_sub(self.range.start)?)?;
        if !place.is_syscall {
            return None;
        }
        let entry = *self.entries.get(&place.function)?;
        let rcx = if is_interrupted { at.r9 } else { at.rcx };
        Some(Registers { rip: entry, rcx, orig_rax: u64::MAX, ..at })
    }

    /// A fault in the stub is one of the function that was called: the thread stands at its entry
    /// at home, with its arguments. False if it is not in the stub.
    pub fn blame_caller(&self, tid: i32) -> Result<bool> {
        let registers = tracee::registers(tid)?;
        let offset = registers.rip.checked_sub(self.range.start);
        let Some(place) = offset.and_then(kernel::vdso::place) else { return Ok(false) };
        let Some(entry) = self.entries.get(&place.function) else { return Ok(false) };
        let frame = if place.is_framed { FRAME_BYTES } else { 0 };
        let rsp = registers.rsp.wrapping_add(frame);
        tracee::set_registers(tid, &Registers { rip: *entry, rsp, ..registers })?;
        Ok(true)
    }
}
