//! AMX: products of squares of 16 rows of 64 bytes, in registers of that size.
//!
//! The compiler does not know these registers yet (their intrinsics are unstable), so that whatever is done with them
//! is one block of instructions each, from zeros to the sums in memory.

use std::{arch::asm, sync::OnceLock};

use super::{InUnits, SIDE, Squares};

/// Whether the processor has AMX for bf16 and bytes, and the system lets this process use it.
pub(super) fn granted() -> bool {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| {
        let [tiles, bf16, bytes] = [24, 22, 25].map(|bit| extended_features() >> bit & 1 == 1);
        tiles && bf16 && bytes && ask()
    })
}

/// What `cpuid` tells in `edx` of its seventh leaf.
fn extended_features() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).edx }
}

/// Asks Linux for the registers: they are so large that a process has them only when it says so.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a call that takes two numbers and touches none of our memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Elsewhere it is not known how to ask.
#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// What `ldtilecfg` reads: all eight registers are whole squares.
#[repr(C, align(64))]
struct Layout {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static LAYOUT: Layout = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut register = 0;
    while register < 8 {
        row_bytes[register] = 64;
        rows[register] = SIDE as u8;
        register += 1;
    }
    Layout { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Readies the thread's registers.
///
/// # Safety
///
/// They are [`granted`].
pub(super) unsafe fn begin() {
    // SAFETY: the layout is one that every processor with AMX has.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const LAYOUT, options(nostack, readonly, preserves_flags)) }
}

/// Empties them, so that the system need not keep them for the thread.
///
/// # Safety
///
/// They are [`granted`].
pub(super) unsafe fn end() {
    // SAFETY: nothing is kept in them from one call to the next.
    unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
}

/// The sums of the products of `R` squares of rows and `C` of columns. Registers 0 to 3 hold the sums, 4 and 5 the rows,
/// 6 and 7 the columns.
///
/// # Safety
///
/// Between [`begin`] and [`end`]; the pointers are good for the squares.
pub(super) unsafe fn multiply<const R: usize, const C: usize>(numbers: InUnits, squares: Squares) {
    let Squares { left, right, steps, to } = squares;
    if steps == 0 {
        return;
    }
    // In bytes, as the instructions count.
    let (left_stride, right_stride, to_stride) = (left.1 * 4, right.1 * 4, to.1 * 4);
    let (low_left, low_to) = (left.0.wrapping_add(SIDE * left.1), to.0.wrapping_add(SIDE * to.1));
    macro_rules! block {
        ($product:literal: $($load:literal),*; $([$sum:literal, $rows:literal, $columns:literal]),*; $($store:literal),*) => {
            asm!(
                $( concat!("tilezero tmm", $sum), )*
                "2:",
                $( $load, )*
                $( concat!($product, " tmm", $sum, ", tmm", $rows, ", tmm", $columns), )*
                "add {a}, 64",
                "add {lower_a}, 64",
                "add {b}, {right_step}",
                "dec {steps}",
                "jnz 2b",
                $( $store, )*
                a = inout(reg) left.0 => _,
                lower_a = inout(reg) low_left => _,
                left_stride = in(reg) left_stride,
                b = inout(reg) right.0 => _,
                right_stride = in(reg) right_stride,
                right_step = in(reg) SIDE * right_stride,
                steps = inout(reg) steps => _,
                to = in(reg) to.0,
                lower_to = in(reg) low_to,
                to_stride = in(reg) to_stride,
                options(nostack),
            )
        };
    }
    macro_rules! sizes {
        ($product:literal) => {
            match (R, C) {
                (1, 1) => block!($product:
                    "tileloadd tmm6, [{b} + {right_stride}]", "tileloadd tmm4, [{a} + {left_stride}]";
                    [0, 4, 6];
                    "tilestored [{to} + {to_stride}], tmm0", "/* {lower_to} */"),
                (1, 2) => block!($product:
                    "tileloadd tmm6, [{b} + {right_stride}]", "tileloadd tmm4, [{a} + {left_stride}]",
                    "tileloadd tmm7, [{b} + {right_stride} + 64]";
                    [0, 4, 6], [1, 4, 7];
                    "tilestored [{to} + {to_stride}], tmm0", "tilestored [{to} + {to_stride} + 64], tmm1",
                    "/* {lower_to} */"),
                (2, 1) => block!($product:
                    "tileloadd tmm6, [{b} + {right_stride}]", "tileloadd tmm4, [{a} + {left_stride}]",
                    "tileloadd tmm5, [{lower_a} + {left_stride}]";
                    [0, 4, 6], [2, 5, 6];
                    "tilestored [{to} + {to_stride}], tmm0", "tilestored [{lower_to} + {to_stride}], tmm2"),
                (2, 2) => block!($product:
                    "tileloadd tmm6, [{b} + {right_stride}]", "tileloadd tmm4, [{a} + {left_stride}]",
                    "tileloadd tmm7, [{b} + {right_stride} + 64]",
                    "tileloadd tmm5, [{lower_a} + {left_stride}]";
                    [0, 4, 6], [1, 4, 7], [2, 5, 6], [3, 5, 7];
                    "tilestored [{to} + {to_stride}], tmm0", "tilestored [{to} + {to_stride} + 64], tmm1",
                    "tilestored [{lower_to} + {to_stride}], tmm2",
                    "tilestored [{lower_to} + {to_stride} + 64], tmm3"),
                _ => unreachable!("blocks are of one or two squares"),
            }
        };
    }
    // SAFETY: the caller vouches for the registers and the memory.
    unsafe {
        match numbers {
            InUnits::Bf16 => sizes!("tdpbf16ps"),
            InUnits::Bytes => sizes!("tdpbusd"),
        }
    }
}
