//! Home's vDSO on a machine with another kernel, or other clocks ([decision
//! 0015](../../../docs/decisions/0015-vdso-and-clocks.md)).
//!
//! A program has the addresses of its vDSO's functions, and may stand behind a `syscall`
//! instruction there: so home's bytes stay at their place, but for a jump at the beginning of each
//! function that is redirected to our stub (`kernel::vdso`). The data that these bytes would read
//! is not there. A function that we do not know faults when it looks for it, and the process goes
//! home for that.

use crate::{MigrateError, Result};
use kernel::vdso::Function;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};
use std::ops::Range;

/// A function of a vDSO, by its place in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub function: Function,
    pub range: Range<usize>,
}

/// `jmp [rip + 0]`, with the target behind it.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const JUMP_BYTES: usize = JUMP.len() + 8;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The functions that an image exports and the stub stands in for. The image may be any bytes.
///
/// # Errors
/// Refused if it is no ELF image, or a symbol leads out of it.
pub fn symbols(image: &[u8]) -> Result<Vec<Symbol>> {
    let unreadable = || MigrateError::refused("vdso", "home's vDSO is not one that we can read");
    let elf: ElfFile64<'_> = ElfFile64::parse(image).map_err(|_| unreadable())?;
    let mut found = Vec::new();
    for symbol in elf.dynamic_symbols() {
        let name = symbol.name_bytes().unwrap_or_default();
        let Some(function) = Function::ALL.into_iter().find(|f| f.symbol().as_bytes() == name)
        else {
            continue;
        };
        let start = usize::try_from(symbol.address()).map_err(|_| unreadable())?;
        let size = usize::try_from(symbol.size()).map_err(|_| unreadable())?;
        let end = start.checked_add(size).filter(|end| *end <= image.len());
        found.push(Symbol { function, range: start..end.ok_or_else(unreadable)? });
    }
    Ok(found)
}

/// Makes every function in `image` begin with a jump to its counterpart in the stub at `stub`.
///
/// # Errors
/// Refused if a function is too short for a jump, or makes a system call where the jump would be:
/// a thread may stand behind it.
pub fn redirect(image: &mut [u8], symbols: &[Symbol], stub: u64) -> Result<()> {
    for Symbol { function, range } in symbols {
        // One byte more: an instruction may begin with the jump's last.
        let end = (range.start + JUMP_BYTES + 1).min(image.len());
        let head = &image[range.start..end];
        if range.len() < JUMP_BYTES || head.windows(2).any(|pair| pair == SYSCALL) {
            let text = format!("{} in its home's vDSO has no room for a jump", function.symbol());
            return Err(MigrateError::refused("vdso", text));
        }
        let target = stub + function.offset();
        image[range.start..range.start + JUMP.len()].copy_from_slice(&JUMP);
        image[range.start + JUMP.len()..range.start + JUMP_BYTES]
            .copy_from_slice(&target.to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::machine;

    #[test]
    fn this_kernels_functions_are_found_and_each_gets_its_jump() {
        let mut image = machine::own_vdso().unwrap();
        if image.is_empty() {
            return; // booted with vdso=0
        }
        let symbols = symbols(&image).unwrap();
        assert!(symbols.iter().any(|s| s.function == Function::ClockGettime), "{symbols:?}");
        let stub = 0x1234_5678_9000;
        redirect(&mut image, &symbols, stub).unwrap();
        for Symbol { function, range } in &symbols {
            let jump = &image[range.start..range.start + JUMP_BYTES];
            assert_eq!(jump[..6], JUMP);
            assert_eq!(jump[6..], (stub + function.offset()).to_le_bytes());
        }
    }

    #[test]
    fn an_image_that_is_cut_or_spoiled_is_refused_or_read_but_never_trusted() {
        let image = machine::own_vdso().unwrap();
        for length in (0..image.len()).step_by(37) {
            let _ = symbols(&image[..length]);
        }
        for at in 0..image.len() {
            let mut spoiled = image.clone();
            spoiled[at] ^= 0xff;
            if let Ok(found) = symbols(&spoiled) {
                let _ = redirect(&mut spoiled, &found, 0x1000);
            }
        }
    }

    #[test]
    fn a_function_without_room_for_a_jump_is_refused() {
        let symbol = |range| [Symbol { function: Function::Time, range }];
        let mut image = vec![0x90; 64];
        assert!(redirect(&mut image, &symbol(0..13), 0).is_err());
        assert!(redirect(&mut image, &symbol(50..64), 0).is_ok());
        let mut image = vec![0x90; 64];
        image[14..16].copy_from_slice(&SYSCALL);
        assert!(redirect(&mut image, &symbol(0..40), 0).is_ok());
        image[13..15].copy_from_slice(&SYSCALL);
        assert!(redirect(&mut image, &symbol(0..40), 0).is_err());
    }
}
