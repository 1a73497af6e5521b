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
        vdso_hash: vdso_hash(&memory, &maps::read(own)?)?,
    })
}

fn line(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| KernelError { what: format!("read {path}"), source })?;
    Ok(text.trim().to_owned())
}

fn vdso_hash(memory: &Memory, maps: &[maps::Mapping]) -> Result<[u8; 32]> {
    let Some(vdso) = maps.iter().find(|m| m.name == b"[vdso]") else { return Ok([0; 32]) };
    let mut bytes = vec![0; vdso.length() as usize];
    memory.read(vdso.start, &mut bytes)?;
    Ok(blake3::hash(&bytes).into())
}

/// Why a process of `source` cannot run on `here`, if it cannot.
///
/// Programs hold addresses inside the vDSO: it must stay what it was. What they know of the
/// processor is compared for itself ([`crate::processor`]).
pub fn mismatch(source: &Machine, here: &Machine) -> Option<Reason> {
    if source.boot_id == here.boot_id {
        return None;
    }
    if source.vdso_hash != here.vdso_hash {
        let text = format!("its kernel {} has another vDSO than {}", here.kernel, source.kernel);
        return Some(reason("vdso", text));
    }
    None
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn another_machine_must_have_the_same_vdso() {
        let here = probe().unwrap();
        assert_eq!(mismatch(&here, &here), None);
        let other = Machine { boot_id: "another".into(), ..here.clone() };
        assert_eq!(mismatch(&here, &other), None);
        let newer = Machine { vdso_hash: [9; 32], boot_id: "x".into(), ..here.clone() };
        assert_eq!(mismatch(&here, &newer).unwrap().code, "vdso");
    }
}
