//! What programs can see of the processor that they run on, and what another must have for them.
//!
//! Programs ask the processor itself (CPUID), not the kernel: loaders and libraries choose code by
//! it when they start, and some much later. `/proc/cpuinfo` leaves out what the kernel was told not
//! to use, and programs use that nevertheless; so CPUID is what counts, and of the kernel only what
//! it has to enable: the registers that it keeps (XCR0) and the second word of AT_HWCAP.
//!
//! A bit that this file does not know counts like any other: better a process that stays than one
//! that ends elsewhere by an instruction that is not there.

mod registers;

pub use registers::{COMPONENTS, KEY_RIGHTS, LEGACY_REGISTERS, Registers, register_name};

use registers::{REGISTER_SETS, registers_of};
use serde::{Deserialize, Serialize};

/// Words of CPUID that are compared, and AT_HWCAP2 at the end.
pub const WORDS: usize = 16;
/// Names in one line for people; the others are counted.
const NAMES_SHOWN: usize = 4;

/// A processor as the programs on it see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// In the order of [`LAYOUT`]; bits that do not matter to programs are 0.
    pub words: [u32; WORDS],
    pub registers: Registers,
}

/// Where a word comes from, what is in it, and what of it does not matter.
struct Word {
    leaf: u32,
    subleaf: u32,
    register: usize,
    /// What programs use, by its common name.
    names: &'static [(u8, &'static str)],
    /// Bits that programs cannot use, or that only tell what is fast.
    ignored: u32,
}

const EAX: usize = 0;
const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;
const REGISTERS: [&str; 4] = ["eax", "ebx", "ecx", "edx"];
/// Of words whose other bits are all of no interest to programs.
const ALL: u32 = u32::MAX;
/// No leaf of CPUID: what the kernel tells by AT_HWCAP2.
const HWCAP2: u32 = u32::MAX;

const fn bits(list: &[u8]) -> u32 {
    let (mut word, mut at) = (0, 0);
    while at < list.len() {
        word |= 1 << list[at];
        at += 1;
    }
    word
}

/// Intel's and AMD's manuals; names as compilers and `/proc/cpuinfo` have them.
const LAYOUT: [Word; WORDS] = [
    Word {
        leaf: 1,
        subleaf: 0,
        register: ECX,
        names: &[
            (0, "sse3"),
            (1, "pclmulqdq"),
            (9, "ssse3"),
            (12, "fma"),
            (13, "cx16"),
            (19, "sse4_1"),
            (20, "sse4_2"),
            (22, "movbe"),
            (23, "popcnt"),
            (25, "aes"),
            (26, "xsave"),
            (27, "osxsave"),
            (28, "avx"),
            (29, "f16c"),
            (30, "rdrand"),
        ],
        // 64-bit debug store, monitor, virtualisation, speed steps, PCID, x2APIC, hypervisor.
        ignored: bits(&[2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 17, 18, 21, 24, 31]),
    },
    Word {
        leaf: 1,
        subleaf: 0,
        register: EDX,
        names: &[
            (0, "fpu"),
            (4, "tsc"),
            (8, "cx8"),
            (15, "cmov"),
            (19, "clflush"),
            (23, "mmx"),
            (24, "fxsr"),
            (25, "sse"),
            (26, "sse2"),
        ],
        ignored: ALL,
    },
    Word {
        leaf: 7,
        subleaf: 0,
        register: EBX,
        names: &[
            (0, "fsgsbase"),
            (3, "bmi1"),
            (5, "avx2"),
            (8, "bmi2"),
            (11, "rtm"),
            (16, "avx512f"),
            (17, "avx512dq"),
            (18, "rdseed"),
            (19, "adx"),
            (21, "avx512ifma"),
            (23, "clflushopt"),
            (24, "clwb"),
            (26, "avx512pf"),
            (27, "avx512er"),
            (28, "avx512cd"),
            (29, "sha_ni"),
            (30, "avx512bw"),
            (31, "avx512vl"),
        ],
        // HLE is a hint; ERMS is speed; MPX has gone from kernels; the rest is the system's.
        ignored: bits(&[1, 2, 4, 6, 7, 9, 10, 12, 13, 14, 15, 20, 25]),
    },
    Word {
        leaf: 7,
        subleaf: 0,
        register: ECX,
        names: &[
            (0, "prefetchwt1"),
            (1, "avx512vbmi"),
            (4, "ospke"),
            (5, "waitpkg"),
            (6, "avx512_vbmi2"),
            (8, "gfni"),
            (9, "vaes"),
            (10, "vpclmulqdq"),
            (11, "avx512_vnni"),
            (12, "avx512_bitalg"),
            (14, "avx512_vpopcntdq"),
            (22, "rdpid"),
            (23, "keylocker"),
            (27, "movdiri"),
            (28, "movdir64b"),
            (29, "enqcmd"),
        ],
        // PKU without the kernel's is none; shadow stacks are state (`migrate::attributes`).
        ignored: bits(&[2, 3, 7, 13, 16, 17, 18, 19, 20, 21, 24, 25, 30, 31]),
    },
    Word {
        leaf: 7,
        subleaf: 0,
        register: EDX,
        names: &[
            (2, "avx512_4vnniw"),
            (3, "avx512_4fmaps"),
            (8, "avx512_vp2intersect"),
            (14, "serialize"),
            (16, "tsxldtrk"),
            (22, "amx_bf16"),
            (23, "avx512_fp16"),
            (24, "amx_tile"),
            (25, "amx_int8"),
        ],
        // Fast copies, user interrupts (in no kernel), mitigations, indirect branch tracking.
        ignored: bits(&[1, 4, 5, 9, 10, 11, 13, 15, 18, 19, 20, 26, 27, 28, 29, 30, 31]),
    },
    Word {
        leaf: 7,
        subleaf: 1,
        register: EAX,
        names: &[
            (0, "sha512"),
            (1, "sm3"),
            (2, "sm4"),
            (3, "rao_int"),
            (4, "avx_vnni"),
            (5, "avx512_bf16"),
            (7, "cmpccxadd"),
            (21, "amx_fp16"),
            (23, "avx_ifma"),
            (31, "movrs"),
        ],
        // Fast copies, the system's registers; address masking is state.
        ignored: bits(&[6, 8, 10, 11, 12, 17, 18, 19, 20, 22, 26, 27, 30]),
    },
    Word {
        leaf: 7,
        subleaf: 1,
        register: EDX,
        names: &[
            (4, "avx_vnni_int8"),
            (5, "avx_ne_convert"),
            (8, "amx_complex"),
            (10, "avx_vnni_int16"),
            (15, "user_msr"),
            (19, "avx10"),
            (21, "apx_f"),
        ],
        ignored: bits(&[13, 14, 17, 18, 23]),
    },
    Word {
        leaf: 0xd,
        subleaf: 1,
        register: EAX,
        names: &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1")],
        ignored: ALL,
    },
    Word { leaf: 0x14, subleaf: 0, register: EBX, names: &[(4, "ptwrite")], ignored: ALL },
    Word {
        leaf: 0x19,
        subleaf: 0,
        register: EBX,
        names: &[(0, "aeskle"), (2, "wide_keylocker")],
        ignored: ALL,
    },
    Word {
        leaf: 0x1e,
        subleaf: 1,
        register: EAX,
        names: &[
            (4, "amx_fp8"),
            (5, "amx_transpose"),
            (6, "amx_tf32"),
            (7, "amx_avx512"),
            (8, "amx_movrs"),
        ],
        // Those of leaf 7 once more.
        ignored: bits(&[0, 1, 2, 3]),
    },
    // The version of AVX10, and its vector lengths: another number is another processor.
    Word { leaf: 0x24, subleaf: 0, register: EBX, names: &[], ignored: 0 },
    Word {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: ECX,
        names: &[
            (0, "lahf_lm"),
            (5, "lzcnt"),
            (6, "sse4a"),
            (7, "misalignsse"),
            (8, "prefetchw"),
            (11, "xop"),
            (15, "lwp"),
            (16, "fma4"),
            (21, "tbm"),
            (29, "mwaitx"),
        ],
        ignored: ALL,
    },
    Word {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: EDX,
        names: &[(22, "mmxext"), (27, "rdtscp"), (29, "lm"), (30, "3dnowext"), (31, "3dnow")],
        ignored: ALL,
    },
    Word {
        leaf: 0x8000_0008,
        subleaf: 0,
        register: EBX,
        names: &[(0, "clzero"), (4, "rdpru"), (8, "mcommit")],
        ignored: ALL,
    },
    Word {
        leaf: HWCAP2,
        subleaf: 0,
        register: EAX,
        names: &[(0, "ring3mwait"), (1, "fsgsbase_enabled")],
        ignored: 0,
    },
];

impl Word {
    fn named(&self) -> u32 {
        self.names.iter().fold(0, |word, (bit, _)| word | 1 << bit)
    }

    /// The bits that matter to programs.
    fn mask(&self) -> u32 {
        self.named() | !self.ignored
    }

    fn name(&self, bit: u8) -> String {
        let known = self.names.iter().find(|(known, _)| *known == bit);
        known.map_or_else(
            || {
                let register = REGISTERS[self.register];
                format!("bit {bit} of CPUID {:#x}.{} {register}", self.leaf, self.subleaf)
            },
            |(_, name)| (*name).to_owned(),
        )
    }
}

impl Processor {
    /// Asks by `cpuid`, which answers for a leaf and a subleaf with eax, ebx, ecx and edx.
    pub fn read(mut cpuid: impl FnMut(u32, u32) -> [u32; 4], xcr0: u64, hwcap2: u32) -> Processor {
        let (basic, extended) = (cpuid(0, 0)[EAX], cpuid(0x8000_0000, 0)[EAX]);
        let mut processor = Processor::default();
        processor.registers.xcr0 = xcr0;
        for (word, layout) in processor.words.iter_mut().zip(&LAYOUT) {
            let last = if layout.leaf < 0x8000_0000 { basic } else { extended };
            *word = layout.mask()
                & match layout.leaf {
                    HWCAP2 => hwcap2,
                    // What is behind the last one is the last one again.
                    leaf if leaf > last => 0,
                    leaf if layout.subleaf > 0 && leaf == 7 && cpuid(7, 0)[EAX] == 0 => 0,
                    leaf => cpuid(leaf, layout.subleaf)[layout.register],
                };
        }
        if basic >= 0xd {
            for (index, place) in processor.registers.components.iter_mut().enumerate() {
                if xcr0 & (4 << index) != 0 {
                    let [size, offset, ..] = cpuid(0xd, index as u32 + 2);
                    *place = (narrow(offset), narrow(size));
                }
            }
        }
        processor
    }

    /// The same, less what has one of these names ([`is_feature`]).
    pub fn without<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Processor {
        for name in names {
            if let Some((_, bits)) = REGISTER_SETS.iter().find(|(known, _)| *known == name) {
                let kept = Registers { xcr0: !bits, components: self.registers.components };
                self.registers = self.registers.common(&kept);
            }
            self.leave_out(name);
        }
        self.settled()
    }

    fn leave_out(&mut self, name: &str) {
        for (word, layout) in self.words.iter_mut().zip(&LAYOUT) {
            let named = layout.names.iter().filter(|(_, known)| *known == name);
            *word &= !named.fold(0, |bits, (bit, _)| bits | 1 << bit);
        }
    }

    /// What both have.
    pub fn common(&self, other: &Processor) -> Processor {
        let registers = self.registers.common(&other.registers);
        let mut common = Processor { registers, ..self.clone() };
        common.words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= other);
        common.settled()
    }

    /// Bits that no processor of this build's making has are gone: for what came from another node.
    #[must_use]
    pub fn checked(mut self) -> Processor {
        self.words.iter_mut().zip(&LAYOUT).for_each(|(word, layout)| *word &= layout.mask());
        self
    }

    /// What of this `other` has not, by name.
    pub fn lacking(&self, other: &Processor) -> Vec<String> {
        let mut names = Vec::new();
        for ((own, others), layout) in self.words.iter().zip(other.words).zip(&LAYOUT) {
            let missing = own & !others;
            let bits = (0..32u8).filter(|bit| missing & 1 << bit != 0);
            names.extend(bits.map(|bit| layout.name(bit)));
        }
        names
    }

    /// Less what needs registers that are not kept.
    fn settled(mut self) -> Processor {
        let xcr0 = self.registers.xcr0;
        let names = LAYOUT.iter().flat_map(|word| word.names).map(|(_, name)| *name);
        let absent = names.filter(|name| registers_of(name) & !xcr0 != 0);
        absent.for_each(|name| self.leave_out(name));
        self
    }
}

fn narrow(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Whether programs know something by this name, or it is a set of registers.
pub fn is_feature(name: &str) -> bool {
    let mut sets = REGISTER_SETS.iter().map(|(known, _)| *known);
    let mut known = LAYOUT.iter().flat_map(|word| word.names).map(|(_, known)| *known);
    sets.any(|set| set == name) || known.any(|known| known == name)
}

/// Leaf, register and bit of CPUID by which programs find something of this name.
pub fn place_of(name: &str) -> Option<(u32, &'static str, u8)> {
    LAYOUT.iter().filter(|word| word.leaf != HWCAP2 && word.subleaf == 0).find_map(|word| {
        let (bit, _) = word.names.iter().find(|(_, known)| *known == name)?;
        Some((word.leaf, REGISTERS[word.register], *bit))
    })
}

/// The first few of many names, and how many more there are.
pub fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What a process asks of the processors that it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Home's; less what it was told not to use, if it keeps to a baseline.
    pub processor: Processor,
    /// It was started so that it uses no more than that, wherever it runs.
    pub is_baseline: bool,
    /// How threads' registers are written down at home, and in every image.
    pub kept_at_home: Registers,
}

/// Why a processor will not do for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has not all that the program was shown.
    Lacks(Vec<String>),
    /// It keeps other registers.
    State(String),
    /// It has more: a program that asks there uses what home has not.
    Exceeds(Vec<String>),
}

impl Unfit {
    /// A stable kebab-case word.
    pub fn code(&self) -> &'static str {
        match self {
            Unfit::Lacks(_) => "cpu-features",
            Unfit::State(_) => "cpu-state",
            Unfit::Exceeds(_) => "cpu-exceeds",
        }
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Lacks(names) => {
                let names = list(names);
                write!(
                    f,
                    "its processor lacks {names}, which the program may be using (`osmos run \
                     --cpu-baseline` starts one that does not)"
                )
            }
            Unfit::State(text) => write!(
                f,
                "its processor {text} (`osmos run --cpu-baseline` starts a program that does \
                 without)"
            ),
            Unfit::Exceeds(names) => write!(
                f,
                "its processor has {}, which home's lacks: a program that finds that there would \
                 fail at home (`osmos run --cpu-baseline` starts one that does not look)",
                list(names)
            ),
        }
    }
}

impl Demand {
    /// Why a process that asks for this cannot run on `here`, if it cannot.
    ///
    /// # Errors
    /// With what is missing, other, or too much.
    pub fn check(&self, here: &Processor) -> Result<(), Unfit> {
        let lacks = self.processor.lacking(here);
        if !lacks.is_empty() {
            return Err(Unfit::Lacks(lacks));
        }
        let bits = if self.is_baseline { self.processor.registers.xcr0 } else { u64::MAX };
        if let Some(text) = self.processor.registers.difference(&here.registers, bits) {
            return Err(Unfit::State(text));
        }
        let exceeds = here.lacking(&self.processor);
        if !self.is_baseline && !exceeds.is_empty() {
            return Err(Unfit::Exceeds(exceeds));
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// A processor with AVX2 and what belongs to it, and 256-bit registers kept at 576.
    fn haswell() -> Processor {
        Processor::read(
            |leaf, subleaf| match (leaf, subleaf) {
                (0, _) => [0xd, 0, 0, 0],
                (1, _) => [0, 0, 0x7ffa_fbff, 0xbfeb_fbff],
                (7, 0) => [0, 0x27ab, 0, 0],
                (7, 1) => [u32::MAX; 4],
                (0xd, 1) => [1, 0, 0, 0],
                (0xd, 2) => [256, 576, 0, 0],
                (0x8000_0000, _) => [0x8000_0008, 0, 0, 0],
                (0x8000_0001, _) => [0, 0, 0x21, 0x2c10_0800],
                _ => [0; 4],
            },
            7,
            2,
        )
    }

    fn demand(processor: &Processor) -> Demand {
        let kept_at_home = processor.registers.clone();
        Demand { processor: processor.clone(), is_baseline: false, kept_at_home }
    }

    fn baseline(processor: &Processor) -> Demand {
        Demand { is_baseline: true, ..demand(processor) }
    }

    /// It keeps 512-bit registers, and rights by key.
    fn skylake() -> Processor {
        let mut wider = haswell();
        wider.registers.xcr0 = 0x2e7;
        for (bit, offset, bytes) in [(5, 1088, 64), (6, 1152, 512), (7, 1664, 1024), (9, 2688, 8)] {
            wider.registers.components[bit - 2] = (offset, bytes);
        }
        wider.words[2] |= 1 << 16 | 1 << 31;
        wider
    }

    #[test]
    fn names_are_given_once_and_are_not_ignored() {
        let mut seen = std::collections::BTreeSet::new();
        for word in &LAYOUT {
            for (_, name) in word.names {
                assert!(seen.insert(name), "{name} twice");
            }
            assert!(word.ignored == ALL || word.ignored & word.named() == 0);
        }
        assert!(is_feature("avx512f") && is_feature("sse4_2") && !is_feature("smep"));
    }

    #[test]
    fn what_home_has_must_be_there_and_is_named() {
        let home = haswell();
        assert_eq!(demand(&home).check(&home), Ok(()));
        let older = home.clone().without(["avx2", "bmi2"]);
        let unfit = demand(&home).check(&older).unwrap_err();
        assert_eq!(unfit, Unfit::Lacks(vec!["avx2".into(), "bmi2".into()]));
        assert_eq!(
            unfit.to_string(),
            "its processor lacks avx2, bmi2, which the program may be using (`osmos run \
             --cpu-baseline` starts one that does not)"
        );
        assert_eq!(unfit.code(), "cpu-features");
    }

    #[test]
    fn a_program_may_ask_late_so_more_than_home_has_is_refused_unless_it_keeps_to_a_baseline() {
        let newer = haswell();
        let home = newer.clone().without(["avx2"]);
        let unfit = demand(&home).check(&newer).unwrap_err();
        assert_eq!(unfit, Unfit::Exceeds(vec!["avx2".into()]));
        assert_eq!(baseline(&home).check(&newer), Ok(()));
    }

    #[test]
    fn what_only_kernels_see_or_is_only_speed_does_not_matter() {
        let home = haswell();
        // SMEP, ERMS, INVPCID; hypervisor, x2APIC.
        let virtual_one = Processor::read(
            |leaf, subleaf| match (leaf, subleaf) {
                (0, _) => [0xd, 0, 0, 0],
                (1, _) => [0, 0, 0x7ffa_fbff & !(1 << 21) & !(1 << 5) | 1 << 31, 0xbfeb_fbff],
                (7, 0) => [0, 0x27ab & !(1 << 7) & !(1 << 9) & !(1 << 10), 0, 0],
                (0xd, 1) => [1 | 1 << 3, 0, 0, 0],
                (0xd, 2) => [256, 576, 0, 0],
                (0x8000_0000, _) => [0x8000_0008, 0, 0, 0],
                (0x8000_0001, _) => [0, 0, 0x21 | 1 << 2, 0x2c10_0800],
                _ => [0; 4],
            },
            7,
            2,
        );
        assert_eq!(demand(&home).check(&virtual_one), Ok(()));
    }

    #[test]
    fn a_bit_that_nobody_knows_counts() {
        let home = haswell();
        let mut later = home.clone();
        later.words[3] |= 1 << 26;
        let unfit = demand(&later).check(&home).unwrap_err();
        assert!(unfit.to_string().contains("bit 26 of CPUID 0x7.0 ecx"), "{unfit}");
    }

    #[test]
    fn registers_must_be_the_same_and_lie_at_the_same_place() {
        let home = haswell();
        let text = demand(&home).check(&skylake()).unwrap_err().to_string();
        assert!(text.contains("keeps avx512 mask registers"), "{text}");
        let text = demand(&skylake()).check(&home).unwrap_err().to_string();
        assert!(text.contains("lacks avx512f, avx512vl"), "{text}");
        let narrow = skylake().without(["avx512f", "avx512vl"]);
        let text = demand(&narrow).check(&home).unwrap_err().to_string();
        assert!(text.contains("keeps no avx512 mask registers"), "{text}");
        let mut elsewhere = home.clone();
        elsewhere.registers.components[0] = (640, 256);
        let unfit = demand(&home).check(&elsewhere).unwrap_err();
        assert!(unfit.to_string().contains("avx registers in another place"), "{unfit}");
        assert_eq!(unfit.code(), "cpu-state");
    }

    #[test]
    fn what_two_have_in_common_runs_on_both() {
        let (one, other) = (haswell().without(["fma"]), haswell().without(["movbe"]));
        let common = baseline(&one.common(&other));
        assert_eq!((common.check(&one), common.check(&other)), (Ok(()), Ok(())));
        assert_eq!(haswell().lacking(&common.processor), ["fma", "movbe"]);
    }

    #[test]
    fn who_keeps_to_a_baseline_goes_to_kernels_that_keep_other_registers() {
        let (one, mut other) = (skylake(), haswell());
        // As AMD's: less, and not where Intel has it.
        other.registers.xcr0 |= 1 << KEY_RIGHTS;
        other.registers.components[usize::from(KEY_RIGHTS) - 2] = (832, 8);
        let common = baseline(&one.common(&other));
        assert_eq!(common.processor.registers, haswell().registers);
        assert_eq!((common.check(&one), common.check(&other)), (Ok(()), Ok(())));
        assert_eq!(one.lacking(&common.processor), ["avx512f", "avx512vl"]);
        // But only where there is what the baseline has.
        let without = haswell().without(["avx_registers"]);
        assert_eq!(without.registers.xcr0, LEGACY_REGISTERS);
        assert_eq!(common.check(&without).unwrap_err().code(), "cpu-features");
        let least = one.common(&without);
        assert!(least.lacking(&without).is_empty());
        let lost = one.lacking(&least);
        assert!(["avx", "avx2", "fma"].iter().all(|name| lost.contains(&(*name).to_owned())));
    }

    #[test]
    fn leaves_that_a_processor_does_not_have_are_empty() {
        // An older one answers with its last leaf for those behind it.
        let old = Processor::read(|leaf, _| if leaf == 0 { [4, 0, 0, 0] } else { [!0; 4] }, 3, 0);
        assert_eq!(old.words[2], 0);
        // And for subleaves that it does not have.
        assert_eq!(haswell().words[5], 0);
    }

    #[test]
    fn many_names_are_counted() {
        let names: Vec<String> = (0..6).map(|n| n.to_string()).collect();
        assert_eq!(list(&names), "0, 1, 2, 3 and 2 more");
    }
}
