//! What one machine must have in common with another for a process to move between them.

use crate::{Result, reason};
use kernel::KernelError;
use kernel::memory::Memory;
use kernel::proc::maps;
use wire::image::Machine;
use wire::supervisor::Reason;

/// Describes this machine.
pub fn probe() -> Result<Machine> {
    let own = std::process::id() as i32;
    let memory = Memory::open(own)?;
    Ok(Machine {
        boot_id: line("/proc/sys/kernel/random/boot_id")?,
        kernel: line("/proc/sys/kernel/osrelease")?,
        cpu_flags: cpu_flags()?,
        xstate_bytes: kernel::features::xstate_bytes(),
        vdso_hash: vdso_hash(&memory, &maps::read(own)?)?,
    })
}

fn line(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| KernelError { what: format!("read {path}"), source })?;
    Ok(text.trim().to_owned())
}

fn cpu_flags() -> Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/cpuinfo")
        .map_err(|source| KernelError { what: "read /proc/cpuinfo".into(), source })?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    Ok(flags.map_or(vec![], |(_, words)| words.split_whitespace().map(str::to_owned).collect()))
}

fn vdso_hash(memory: &Memory, maps: &[maps::Mapping]) -> Result<[u8; 32]> {
    let Some(vdso) = maps.iter().find(|m| m.name == b"[vdso]") else { return Ok([0; 32]) };
    let mut bytes = vec![0; vdso.length() as usize];
    memory.read(vdso.start, &mut bytes)?;
    Ok(blake3::hash(&bytes).into())
}

/// Why a process of `source` cannot run on `here`, if it cannot.
///
/// Programs choose code by CPU features when they start (ifuncs, just-in-time compilers), keep the
/// size of the extended state, and hold addresses inside the vDSO: all of that must stay true.
pub fn mismatch(source: &Machine, here: &Machine) -> Option<Reason> {
    if source.boot_id == here.boot_id {
        return None;
    }
    let lacks = source
        .cpu_flags
        .iter()
        .find(|flag| !here.cpu_flags.contains(flag) && !IRRELEVANT_FLAGS.contains(&flag.as_str()));
    if let Some(flag) = lacks {
        let text = format!("its processor lacks {flag}, which the program may be using");
        return Some(reason("cpu-features", text));
    }
    if source.xstate_bytes != here.xstate_bytes {
        let text = format!(
            "its processor state is {} bytes, at home it is {}",
            here.xstate_bytes, source.xstate_bytes
        );
        return Some(reason("cpu-state", text));
    }
    if source.vdso_hash != here.vdso_hash {
        let text = format!("its kernel {} has another vDSO than {}", here.kernel, source.kernel);
        return Some(reason("vdso", text));
    }
    None
}

/// Words of /proc/cpuinfo that programs cannot see or that only say how the kernel works.
const IRRELEVANT_FLAGS: &[&str] = &[
    "constant_tsc",
    "nonstop_tsc",
    "tsc_known_freq",
    "hypervisor",
    "rep_good",
    "nopl",
    "cpuid",
    "arat",
    "vmmcall",
    "topoext",
    "cmp_legacy",
    "cr8_legacy",
    "svm",
    "vmx",
    "extapic",
    "ibs",
    "umip",
    "smep",
    "smap",
    "mce",
    "mca",
    "mtrr",
    "pge",
    "pat",
    "apic",
    "x2apic",
    "tsc_deadline_timer",
    "tsc_adjust",
    "ht",
];

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn another_machine_must_have_every_feature_and_the_same_state_size() {
        let here = probe().unwrap();
        assert_eq!(mismatch(&here, &here), None);
        let mut other = Machine { boot_id: "another".into(), ..here.clone() };
        assert_eq!(mismatch(&here, &other), None);
        other.cpu_flags.retain(|flag| flag != "sse2");
        assert_eq!(mismatch(&here, &other).unwrap().code, "cpu-features");
        let wider =
            Machine { xstate_bytes: here.xstate_bytes + 64, boot_id: "x".into(), ..here.clone() };
        assert_eq!(mismatch(&here, &wider).unwrap().code, "cpu-state");
        let newer = Machine { vdso_hash: [9; 32], boot_id: "x".into(), ..here.clone() };
        assert_eq!(mismatch(&here, &newer).unwrap().code, "vdso");
    }
}
