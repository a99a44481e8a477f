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

/// A value of the scratch, read from where it was written. There is no room on the stack to keep it, and of one reading that is
/// kept, the verifier would follow each outcome to the end.
#[inline(always)]
pub(crate) fn read<T: Copy>(value: &T) -> T {
    // SAFETY: the value is borrowed.
    unsafe { (&raw const *value).read_volatile() }
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

/// The same number, which the verifier no longer takes for equal to the register that it was copied from. Linux before 6.12
/// may forget for which of the two it needs the value, when it knows one by a comparison of the other (6.5 forgets it more rarely).
/// It then takes a way through the program for one that it has seen, and removes instructions that only that way reaches.
#[inline(always)]
pub(crate) fn unlink(mut number: u64) -> u64 {
    // SAFETY: no bit of a register is set.
    unsafe {
        asm!("{0} |= 0", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}
