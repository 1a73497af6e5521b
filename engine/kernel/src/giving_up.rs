//! What the init of a sandbox gives up once it has made the body: descriptors, capabilities, and
//! what the C library has registered for it.

/// Closes all descriptors of the calling process, alone with them from then on, but one.
///
/// # Safety
///
/// For the init of a sandbox: called in a copied process, makes system calls only.
pub(crate) unsafe fn close_all_but(kept: i32) {
    let unshare = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: plain numbers; what is closed belongs to a process that uses nothing of it any more.
    unsafe {
        match u32::try_from(kept) {
            Ok(kept) if kept > 0 => {
                libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, unshare);
                libc::syscall(libc::SYS_close_range, 0u32, kept - 1, 0);
            }
            _ => {
                libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, unshare);
            }
        }
    }
}

/// Gives up all capabilities of the calling process for good, and the ways to get any; it may keep
/// the one to choose ids.
///
/// # Safety
///
/// For the init of a sandbox: called in a copied process, makes system calls only.
pub(crate) unsafe fn give_up_capabilities(chooses_ids: bool) {
    /// NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, and all four locked (capabilities(7)).
    const SECURE_BITS: u64 = 0xef;
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    const CAPABILITIES: u64 = 64;
    /// CAP_CHECKPOINT_RESTORE, in the second word of a set.
    const RESTORE: u32 = 1 << (40 - 32);
    // SAFETY: plain numbers, and constants of the sizes that the kernel reads. What there is
    // nothing of cannot be given up, which is as good.
    unsafe {
        libc::prctl(libc::PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0);
        for capability in 0..CAPABILITIES {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        // Effective, permitted and inheritable: the low words of each, then the high ones.
        let (myself, none) = ([VERSION, 0], [0u32; 6]);
        let one = [0, 0, 0, RESTORE, RESTORE, 0];
        let kept = if chooses_ids { one } else { none };
        if libc::syscall(libc::SYS_capset, myself.as_ptr(), kept.as_ptr()) != 0 {
            libc::syscall(libc::SYS_capset, myself.as_ptr(), none.as_ptr());
        }
    }
}

/// Takes back the rseq area that the C library has registered for the calling thread (rseq(2)): the
/// kernel writes to it whenever the thread has been preempted, and kills a process whose area is
/// gone. False if that cannot be done.
///
/// The C library does not tell all programs where the area is, and not how long; but it lies near
/// the thread pointer, and the kernel refuses every other address.
///
/// # Safety
///
/// For the init of a sandbox: called in a copied process, makes system calls only.
pub(crate) unsafe fn give_up_rseq() -> bool {
    /// RSEQ_FLAG_UNREGISTER, and the signature that x86-64 programs use.
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    const ALIGNMENT: usize = 32;
    const NEAR: usize = 8 << 10;
    const AT_RSEQ_FEATURE_SIZE: u64 = 27;
    const ARCH_GET_FS: i32 = 0x1003;
    #[repr(C, align(64))]
    struct Area([u8; 64]);
    let mut own = Area([0; 64]);
    // SAFETY: the area is a live local for as long as it is registered, and the kernel writes
    // nowhere else but to a local: an address that is taken back is compared, not used.
    unsafe {
        let rseq = |address: usize, length: usize, flags: i32| {
            libc::syscall(libc::SYS_rseq, address, length, flags, SIGNATURE) == 0
        };
        let mut is_free = || {
            let place = &raw mut own as usize;
            let error = libc::syscall(libc::SYS_rseq, place, ALIGNMENT, 0, SIGNATURE);
            let is_missing = error != 0 && *libc::__errno_location() == libc::ENOSYS;
            is_missing || error == 0 && rseq(place, ALIGNMENT, UNREGISTER)
        };
        if is_free() {
            return true;
        }
        let mut thread_pointer = 0usize;
        libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut thread_pointer);
        let middle = thread_pointer & !(ALIGNMENT - 1);
        let told = (libc::getauxval(AT_RSEQ_FEATURE_SIZE) as usize).max(ALIGNMENT);
        let lengths = [ALIGNMENT, told, told.next_multiple_of(ALIGNMENT)];
        let mut places = (0..NEAR)
            .step_by(ALIGNMENT)
            .flat_map(|distance| [middle.wrapping_add(distance), middle.wrapping_sub(distance)]);
        places.any(|place| lengths.iter().any(|length| rseq(place, *length, UNREGISTER)));
        is_free()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_area_that_the_c_library_has_registered_is_found_and_taken_back() {
        // In a copy, which has the area of this thread, and ends.
        // SAFETY: the copy makes system calls only, and exits.
        let pid = unsafe { crate::sys::fork() }.unwrap();
        if pid == 0 {
            // SAFETY: this process is a copy that runs nothing else.
            unsafe { libc::_exit(if give_up_rseq() { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: the status is a live local; the pid is our child's.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
}
