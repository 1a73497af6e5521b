//! The registers that kernels keep for programs beyond the general ones: which (XCR0), and where
//! XSAVE puts them, which differs between makes.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Parts of the extended state beyond x87 and SSE that are described: bits 2 to 19 of XCR0.
pub const COMPONENTS: usize = 18;

/// The registers that a kernel keeps for programs, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Which: XCR0.
    pub xcr0: u64,
    /// Where those from bit 2 on lie in what XSAVE writes, and how many bytes each has.
    pub components: [(u16, u16); COMPONENTS],
}

/// Bit of XCR0 of the rights to memory by key (PKRU).
pub const KEY_RIGHTS: u8 = 9;
/// x87 and SSE: there is no processor without, and they lie in the same place on all.
pub const LEGACY_REGISTERS: u64 = 0b11;

impl Registers {
    /// Where the registers of a bit lie, from the third on. None if they are not kept.
    pub fn place(&self, bit: u8) -> Option<Range<usize>> {
        let (offset, bytes) = *self.components.get(usize::from(bit).checked_sub(2)?)?;
        let is_kept = self.xcr0 & 1u64.checked_shl(u32::from(bit))? != 0;
        is_kept.then(|| usize::from(offset)..usize::from(offset) + usize::from(bytes))
    }

    /// The bits of those that both keep in the same place.
    pub fn shared_with(&self, other: &Registers) -> u64 {
        let is_shared = |bit: &u8| self.place(*bit).is_some_and(|p| other.place(*bit) == Some(p));
        let shared = (2..64).filter(is_shared).fold(LEGACY_REGISTERS, |bits, bit| bits | 1 << bit);
        shared & self.xcr0 & other.xcr0
    }

    /// Those that both keep in the same place.
    pub(super) fn common(&self, other: &Registers) -> Registers {
        let xcr0 = self.shared_with(other);
        let mut components = self.components;
        for (index, place) in components.iter_mut().enumerate() {
            if xcr0 & 4 << index == 0 {
                *place = (0, 0);
            }
        }
        Registers { xcr0, components }
    }

    /// In which of these registers the two differ, or keep them elsewhere; None if in none.
    ///
    /// For a program that keeps to no baseline all must be the same, not only enough. Programs ask
    /// how much XSAVE writes and reserve that, the loader's lazy binding first of all: a processor
    /// with more would write beyond it, and XRSTOR faults on what is not there.
    pub(super) fn difference(&self, other: &Registers, bits: u64) -> Option<String> {
        let differs = |bit: u8| {
            (self.xcr0 ^ other.xcr0) & 1 << bit != 0 || self.place(bit) != other.place(bit)
        };
        let bit = (0..64).find(|bit| bits & 1 << bit != 0 && differs(*bit))?;
        let name = register_name(bit);
        Some(match (self.xcr0 >> bit & 1, other.xcr0 >> bit & 1) {
            (1, 0) => format!("keeps no {name} registers for programs, and home's does"),
            (0, 1) => format!("keeps {name} registers for programs, and home's does not"),
            _ => format!("saves the {name} registers in another place or size than home's"),
        })
    }
}

/// What people call the registers of a bit of XCR0.
pub fn register_name(bit: u8) -> String {
    let known = STATES.iter().find(|(known, _)| *known == bit);
    known.map_or(format!("number {bit}"), |(_, name)| (*name).to_owned())
}

/// The registers of XCR0 by their names.
const STATES: [(u8, &str); 12] = [
    (2, "avx"),
    (3, "mpx bounds"),
    (4, "mpx status"),
    (5, "avx512 mask"),
    (6, "avx512 upper half"),
    (7, "avx512 upper sixteen"),
    (9, "protection key"),
    (17, "amx tile configuration"),
    (18, "amx tile"),
    (19, "apx"),
    (0, "x87"),
    (1, "sse"),
];

/// Registers that a kernel can be told not to keep, and so a node here (`--without`).
pub(super) const REGISTER_SETS: [(&str, u64); 3] = [
    ("avx_registers", 1 << 2),
    ("avx512_registers", 1 << 5 | 1 << 6 | 1 << 7),
    ("key_registers", 1 << KEY_RIGHTS),
];

/// The registers (bits of XCR0) that instructions of this name work on, beyond x87 and SSE.
pub(super) fn registers_of(name: &str) -> u64 {
    const AVX: u64 = 1 << 2;
    const AVX512: u64 = AVX | 1 << 5 | 1 << 6 | 1 << 7;
    match name {
        "avx" | "f16c" | "fma" | "avx2" | "xop" | "fma4" | "vaes" | "vpclmulqdq" | "sha512"
        | "sm3" | "sm4" => AVX,
        "ospke" => 1 << KEY_RIGHTS,
        "apx_f" => 1 << 19,
        _ if name.starts_with("avx512") || name == "avx10" => AVX512,
        _ if name.starts_with("avx_") => AVX,
        _ if name.starts_with("amx_") => 1 << 17 | 1 << 18,
        _ => 0,
    }
}
