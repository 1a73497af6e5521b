//! What this machine can do, asked once.

/// Size of the XSAVE area with the features that the kernel has enabled, bytes (CPUID leaf 13).
pub fn xstate_bytes() -> u32 {
    std::arch::x86_64::__cpuid_count(13, 0).ebx
}

/// The monotonic and boot-time clocks of this process, nanoseconds.
pub fn clocks_ns() -> (i64, i64) {
    let read = |clock| {
        nix::time::clock_gettime(clock).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
    };
    (read(nix::time::ClockId::CLOCK_MONOTONIC), read(nix::time::ClockId::CLOCK_BOOTTIME))
}
