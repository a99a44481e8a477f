//! Keeping the compiler from rearranging what the verifier must see.

use core::arch::asm;

/// Has the compiler write all that it was to write, in case what is called next reads it by a pointer of
/// its own.
#[inline(always)]
pub(crate) fn escape<T>(what: *mut T) {
    // SAFETY: a register is moved to itself.
    unsafe {
        asm!("{0} = {0}", inout(reg) what => _, options(nostack, preserves_flags));
    }
}

/// The same value, of which the compiler knows nothing. It costs one register move;
/// without any instruction, the kernel refuses the line information of two statements at one place.
#[inline(always)]
pub(crate) fn black_box(mut value: usize) -> usize {
    // SAFETY: a register is moved to itself.
    unsafe {
        asm!("{0} = {0}", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}
