//! Threads' registers between kernels that keep other ones for programs, or keep them elsewhere.
//!
//! Images hold what ptrace shows of a thread as home's kernel lays it out (the standard format of
//! XSAVE, Intel's manual volume 1, 13.4). A body of a program that keeps to a baseline
//! (`wire::processor`) may run where the kernel has another layout: its registers are translated
//! when it comes and when it leaves, and so are the frames of signal handlers, in which the kernel
//! saves them with their size. A frame that is larger than the kernel's own, or has registers that
//! it does not keep, is restored without the wide registers, silently
//! (`check_xstate_in_sigframe`, arch/x86/kernel/fpu/signal.c); a smaller one is restored right.
//! So frames are cut down to what both kernels keep: when they are made away, because home watches
//! no handler return, and when a handler returns away, because home made them without us.
//!
//! What is in use and has no place in the other layout is refused, never left out.

use crate::attributes::{NO_KEYS, are_without_keys, place_of_rights};
use crate::{MigrateError, Result};
use std::ops::Range;
use wire::processor::{KEY_RIGHTS, LEGACY_REGISTERS, Registers, register_name};

/// What FXSAVE writes: x87 and SSE.
const LEGACY_BYTES: usize = 512;
/// With the header behind it, of which the first word tells what is in use.
const LEAST_BYTES: usize = LEGACY_BYTES + 64;
/// Far more than any processor writes.
const STATE_BYTES_MAX: usize = 16 << 10;
/// `struct _fpx_sw_bytes` of a signal frame, in the last 48 bytes of what FXSAVE leaves free.
const FRAME_WORDS: usize = 464;
const FRAME_MAGIC: u32 = 0x4650_5853;
/// Behind the registers.
const FRAME_END_MAGIC: u32 = 0x4650_5845;

/// Translates between home and here.
#[derive(Debug)]
pub struct Translator {
    home: Registers,
    here: Registers,
    shared: u64,
}

impl Translator {
    /// None where there is nothing to translate.
    pub fn between(home: &Registers, here: &Registers) -> Option<Translator> {
        let shared = home.shared_with(here);
        (home != here).then(|| Translator { home: home.clone(), here: here.clone(), shared })
    }

    /// The registers of an image for a thread of this kernel, which has `own` now.
    ///
    /// # Errors
    /// Refused if something is in use that is not kept here.
    pub fn to_here(&self, state: &[u8], own: &[u8]) -> Result<Vec<u8>> {
        let mut here = convert(state, &self.home, &self.here, own.len())?;
        // What the kernel says there about its own layout.
        here[FRAME_WORDS..LEGACY_BYTES].copy_from_slice(&own[FRAME_WORDS..LEGACY_BYTES]);
        Ok(here)
    }

    /// The registers of a thread of this kernel for an image, in which each has `bytes`.
    ///
    /// # Errors
    /// Refused if something is in use that home does not keep.
    pub fn to_home(&self, state: &[u8], bytes: usize) -> Result<Vec<u8>> {
        convert(state, &self.here, &self.home, bytes)
    }

    /// The registers in a signal frame that was just made here, so that home can restore them. None
    /// if it can as they are.
    ///
    /// # Errors
    /// Refused if something is in use that home does not keep.
    pub fn frame_for_home(&self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        cut_down(frame, &self.here, self.shared)
    }

    /// The registers in a signal frame that may have been made at home, so that they can be
    /// restored here. None if they can as they are.
    ///
    /// # Errors
    /// Refused if something is in use that is not kept here.
    pub fn frame_for_here(&self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        cut_down(frame, &self.home, self.shared)
    }
}

/// How many bytes of registers a signal frame has that begins with `head`; None if the kernel would
/// take x87 and SSE only.
pub fn frame_bytes(head: &[u8; LEGACY_BYTES]) -> Option<usize> {
    let bytes = word32(head, FRAME_WORDS + 16)? as usize;
    let is_extended = word32(head, FRAME_WORDS)? == FRAME_MAGIC;
    (is_extended && (LEAST_BYTES..=STATE_BYTES_MAX).contains(&bytes)).then_some(bytes)
}

fn convert(state: &[u8], from: &Registers, to: &Registers, bytes: usize) -> Result<Vec<u8>> {
    let in_use = word64(state, LEGACY_BYTES).filter(|_| bytes >= LEAST_BYTES);
    let Some(in_use) = in_use else {
        let text = format!("{} bytes of registers, or {bytes} for them", state.len());
        return Err(MigrateError::Protocol(text));
    };
    let mut out = vec![0; bytes];
    out[..LEGACY_BYTES].copy_from_slice(&state[..LEGACY_BYTES]);
    let mut kept = in_use & LEGACY_REGISTERS;
    for bit in (2..64).filter(|bit| in_use & 1 << bit != 0) {
        let Some(value) = place_in(from, bit).and_then(|place| state.get(place)) else {
            return Err(MigrateError::Protocol(format!("{} registers", register_name(bit))));
        };
        let place = to.place(bit).filter(|place| place.len() == value.len());
        match place.and_then(|place| out.get_mut(place)) {
            Some(place) => {
                place.copy_from_slice(value);
                kept |= 1 << bit;
            }
            None if is_initial(bit, value) => {}
            None => return Err(in_use_error(bit)),
        }
    }
    // Whoever has keys does not move.
    if from.place(KEY_RIGHTS) != to.place(KEY_RIGHTS)
        && let Some(place) = to.place(KEY_RIGHTS).and_then(|place| out.get_mut(place))
        && place.len() >= 4
    {
        place[..4].copy_from_slice(&NO_KEYS.to_le_bytes());
        kept |= 1 << KEY_RIGHTS;
    }
    out[LEGACY_BYTES..LEGACY_BYTES + 8].copy_from_slice(&kept.to_le_bytes());
    Ok(out)
}

/// The beginning of a frame's registers, up to and with the word behind the last of those that are
/// kept. It is no longer than what the frame has.
fn cut_down(frame: &[u8], made_by: &Registers, shared: u64) -> Result<Option<Vec<u8>>> {
    let features = word64(frame, FRAME_WORDS + 8);
    let in_use = word64(frame, LEGACY_BYTES);
    let (Some(features), Some(in_use)) = (features, in_use) else { return Ok(None) };
    if features & !shared == 0 {
        return Ok(None);
    }
    for bit in (2..64).filter(|bit| in_use & features & !shared & 1 << bit != 0) {
        let value = place_in(made_by, bit).and_then(|place| frame.get(place));
        if !value.is_some_and(|value| is_initial(bit, value)) {
            return Err(in_use_error(bit));
        }
    }
    let kept = features & shared;
    let ends = (2..64).filter(|bit| kept & 1 << bit != 0).filter_map(|bit| made_by.place(bit));
    let bytes = ends.map(|place| place.end).fold(LEAST_BYTES, usize::max);
    let Some(begin) = frame.get(..bytes) else { return Ok(None) };
    let mut cut = begin.to_vec();
    let end = bytes as u32 + size_of_val(&FRAME_END_MAGIC) as u32;
    cut[FRAME_WORDS + 4..FRAME_WORDS + 8].copy_from_slice(&end.to_le_bytes());
    cut[FRAME_WORDS + 8..FRAME_WORDS + 16].copy_from_slice(&kept.to_le_bytes());
    cut[FRAME_WORDS + 16..FRAME_WORDS + 20].copy_from_slice(&(bytes as u32).to_le_bytes());
    cut[LEGACY_BYTES..LEGACY_BYTES + 8].copy_from_slice(&(in_use & kept).to_le_bytes());
    cut.extend(FRAME_END_MAGIC.to_le_bytes());
    Ok(Some(cut))
}

/// Whether registers have what they have where they are not in use.
/// Where a kernel that keeps these registers has one of them. Rights by key are in use in every
/// thread of a kernel that has them, and so in those of a node that is to do without.
fn place_in(registers: &Registers, bit: u8) -> Option<Range<usize>> {
    let own = || place_of_rights().map(|place| place..place + size_of::<u32>());
    registers.place(bit).or_else(|| if bit == KEY_RIGHTS { own() } else { None })
}

fn is_initial(bit: u8, value: &[u8]) -> bool {
    let has_no_keys = bit == KEY_RIGHTS && word32(value, 0).is_some_and(are_without_keys);
    has_no_keys || value.iter().all(|byte| *byte == 0)
}

fn in_use_error(bit: u8) -> MigrateError {
    let name = register_name(bit);
    let text = format!("a thread uses the {name} registers, which the other node does not keep");
    MigrateError::refused("cpu-state", text)
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::processor::COMPONENTS;

    const AVX: u8 = 2;
    const MASKS: u8 = 5;

    fn registers(places: &[(u8, u16, u16)]) -> Registers {
        let mut registers = Registers { xcr0: 3, components: [(0, 0); COMPONENTS] };
        for (bit, offset, bytes) in places {
            registers.xcr0 |= 1 << bit;
            registers.components[usize::from(*bit) - 2] = (*offset, *bytes);
        }
        registers
    }

    fn narrow() -> Registers {
        registers(&[(AVX, 576, 256)])
    }

    fn wide() -> Registers {
        registers(&[(AVX, 576, 256), (MASKS, 1088, 64), (KEY_RIGHTS, 2688, 8)])
    }

    /// Of a kernel with these registers, in which these bits are in use.
    fn state(registers: &Registers, bytes: usize, in_use: u64) -> Vec<u8> {
        let mut state = vec![0; bytes];
        state[..LEGACY_BYTES].fill(7);
        state[LEGACY_BYTES..LEGACY_BYTES + 8].copy_from_slice(&in_use.to_le_bytes());
        for bit in (2..20).filter(|bit| in_use & 1 << bit != 0) {
            state[registers.place(bit).unwrap()].fill(bit);
        }
        state
    }

    fn with_no_keys(mut state: Vec<u8>) -> Vec<u8> {
        state[2688..2696].copy_from_slice(&u64::from(NO_KEYS).to_le_bytes());
        state
    }

    #[test]
    fn kernels_that_keep_the_same_need_no_translation() {
        assert!(Translator::between(&wide(), &wide()).is_none());
        assert!(Translator::between(&wide(), &narrow()).is_some());
    }

    #[test]
    fn registers_go_to_a_kernel_that_keeps_fewer_and_back() {
        let translator = Translator::between(&wide(), &narrow()).unwrap();
        let home = with_no_keys(state(&wide(), 2696, 0b111 | 1 << KEY_RIGHTS));
        let own = vec![9; 832];
        let here = translator.to_here(&home, &own).unwrap();
        assert_eq!(here.len(), 832);
        assert_eq!((word64(&here, LEGACY_BYTES), &here[576..832]), (Some(7), &[2; 256][..]));
        assert_eq!((here[..464].to_vec(), here[464..512].to_vec()), (vec![7; 464], vec![9; 48]));
        let back = translator.to_home(&here, 2696).unwrap();
        assert_eq!(back[512..], home[512..], "the rights by key are those of a program without");
    }

    #[test]
    fn what_is_in_use_and_is_not_kept_there_is_refused() {
        let translator = Translator::between(&wide(), &narrow()).unwrap();
        for bit in [MASKS, KEY_RIGHTS] {
            let home = state(&wide(), 2696, 0b11 | 1 << bit);
            let error = translator.to_here(&home, &[0; 832]).unwrap_err();
            assert_eq!(error.reason().code, "cpu-state", "{bit}");
        }
        // In use, the processor says, but with what it has when it is not.
        let mut home = state(&wide(), 2696, 0b11 | 1 << MASKS);
        home[1088..1152].fill(0);
        let here = translator.to_here(&home, &[0; 832]).unwrap();
        assert_eq!(word64(&here, LEGACY_BYTES), Some(3));
    }

    #[test]
    fn registers_that_do_not_come_from_a_kernel_are_errors() {
        let translator = Translator::between(&narrow(), &wide()).unwrap();
        for (state, own) in [
            (vec![0; 519], 832),
            (vec![0; 832], 500),
            (state(&wide(), 2696, 1 << MASKS), 832),
            (state(&narrow(), 832, 7)[..700].to_vec(), 832),
            (vec![0xff; 832], 832),
        ] {
            assert!(translator.to_here(&state, &vec![0; own]).is_err(), "{own}");
        }
    }

    fn frame(registers: &Registers, bytes: usize, in_use: u64) -> Vec<u8> {
        let mut frame = state(registers, bytes, in_use);
        frame[FRAME_WORDS..FRAME_WORDS + 4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        frame[FRAME_WORDS + 4..FRAME_WORDS + 8].copy_from_slice(&(bytes as u32 + 4).to_le_bytes());
        frame[FRAME_WORDS + 8..FRAME_WORDS + 16].copy_from_slice(&registers.xcr0.to_le_bytes());
        frame[FRAME_WORDS + 16..FRAME_WORDS + 20].copy_from_slice(&(bytes as u32).to_le_bytes());
        frame
    }

    #[test]
    fn a_frame_has_as_many_bytes_as_it_says_within_limits() {
        let bytes = |frame: &[u8]| frame_bytes(frame[..512].try_into().unwrap());
        assert_eq!(bytes(&frame(&narrow(), 832, 7)), Some(832));
        assert_eq!(bytes(&[0; 512]), None);
        assert_eq!(bytes(&[0xff; 512]), None);
    }

    #[test]
    fn a_frame_that_is_made_away_can_be_restored_at_home() {
        let translator = Translator::between(&narrow(), &wide()).unwrap();
        let made = with_no_keys(frame(&wide(), 2696, 0b111 | 1 << KEY_RIGHTS));
        let cut = translator.frame_for_home(&made).unwrap().unwrap();
        assert_eq!(cut.len(), 836);
        assert_eq!(frame_bytes(cut[..512].try_into().unwrap()), Some(832));
        assert_eq!(word32(&cut, FRAME_WORDS + 4), Some(836));
        assert_eq!(word64(&cut, FRAME_WORDS + 8), Some(7));
        assert_eq!(word64(&cut, LEGACY_BYTES), Some(7));
        assert_eq!((&cut[576..832], word32(&cut, 832)), (&[2; 256][..], Some(FRAME_END_MAGIC)));
        assert_eq!(translator.frame_for_home(&cut).unwrap(), None, "once is enough");
        assert_eq!(translator.frame_for_here(&cut).unwrap(), None);
        let in_use = frame(&wide(), 2696, 0b111 | 1 << MASKS);
        assert_eq!(translator.frame_for_home(&in_use).unwrap_err().reason().code, "cpu-state");
    }

    #[test]
    fn a_frame_that_was_made_at_home_can_be_restored_away() {
        let translator = Translator::between(&wide(), &narrow()).unwrap();
        let made = with_no_keys(frame(&wide(), 2696, 0b011 | 1 << KEY_RIGHTS));
        let cut = translator.frame_for_here(&made).unwrap().unwrap();
        assert_eq!((cut.len(), word64(&cut, LEGACY_BYTES)), (836, Some(3)));
        // Cut off by the end of its memory: what is in use cannot be told.
        assert!(translator.frame_for_here(&made[..700]).is_err());
        assert_eq!(translator.frame_for_here(&[]).unwrap(), None);
    }
}
