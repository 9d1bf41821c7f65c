//! Descriptors that this process was started with are nobody else's business (failure scenario FS-90).

/// From here on no child inherits what this process was started with, but the first three. What it opens itself is
/// close-on-exec from the start.
pub fn keep() {
    // SAFETY: it changes flags of open descriptors and touches no memory.
    #[expect(unsafe_code, reason = "close_range has no safe form here")]
    // Kernels before 5.11 lack the flag: then children inherit what a careless parent left open, as everywhere.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}
