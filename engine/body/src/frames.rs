//! The registers in frames of signal handlers, where home's kernel keeps other ones
//! (`migrate::registers`).

use crate::state::Shared;
use migrate::Result;
use migrate::registers::frame_bytes;

/// Has `cut` make the registers shorter that a frame points to at `pointer`. A frame that cannot be
/// read or written is for the kernel to judge, which reads it next.
pub fn cut(
    shared: &Shared,
    pointer: u64,
    cut: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>>,
) -> Result<()> {
    let mut address = [0; 8];
    let mut head = [0; 512];
    if shared.memory.read_as_guest(pointer, &mut address) < address.len() {
        return Ok(());
    }
    let address = u64::from_le_bytes(address);
    if shared.memory.read_as_guest(address, &mut head) < head.len() {
        return Ok(());
    }
    let Some(bytes) = frame_bytes(&head) else { return Ok(()) };
    let mut frame = vec![0; bytes];
    let length = shared.memory.read_as_guest(address, &mut frame);
    if let Some(shorter) = cut(&frame[..length])? {
        shared.memory.write_as_guest(address, &shorter);
    }
    Ok(())
}
