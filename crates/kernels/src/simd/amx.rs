//! AMX: products of tiles in tile registers. A tile has 16 rows of 64 bytes. In the identifiers of this crate, an AMX
//! tile is called a square.
//!
//! The intrinsics for the tile registers are unstable in Rust. Each product of tiles is therefore one block of inline
//! assembly: it zeroes or loads the sums, multiplies, and writes the sums to memory.

use std::{arch::asm, sync::OnceLock};

use crate::simd::{SIDE, Squared, Squares};

/// Returns true if the processor has AMX for bf16 and bytes, and the operating system permits this process to use it.
pub(crate) fn granted() -> bool {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| {
        let [tiles, bf16, bytes] = [24, 22, 25].map(|bit| extended_features() >> bit & 1 == 1);
        tiles && bf16 && bytes && request_permission()
    })
}

/// Returns the `edx` register of leaf 7 of `cpuid`, or 0 if the processor has no such leaf.
fn extended_features() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).edx }
}

/// Asks Linux for permission to use AMX, and returns whether it is granted.
#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the system call takes two numbers and accesses no memory of the process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Returns false, because turnwise uses AMX only on Linux.
#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}

/// Tile configuration for `ldtilecfg`: all eight registers have the full size.
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

/// Configures the tile registers of the calling thread.
///
/// # Safety
///
/// [`granted`] must have returned true.
pub(super) unsafe fn begin() {
    // SAFETY: every processor with AMX supports this configuration.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const LAYOUT, options(nostack, readonly, preserves_flags)) }
}

/// Releases the tile registers of the calling thread, so that the operating system need not save them.
///
/// # Safety
///
/// [`granted`] must have returned true.
pub(super) unsafe fn end() {
    // SAFETY: no data stays in the registers between calls.
    unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
}

/// Multiplies one AMX tile of rows (two if `TWO` is true) by two tiles of columns. Registers 0 to 3 hold the sums,
/// registers 4 and 5 the rows, and registers 6 and 7 the columns.
///
/// # Safety
///
/// Must be called between [`begin`] and [`end`]. The pointers must be valid for all tiles.
pub(super) unsafe fn multiply<const TWO: bool>(numbers: Squared, squares: Squares) {
    let Squares { left, low_left, right, steps, to, first, ahead } = squares;
    if steps == 0 {
        return;
    }
    // Parts of one step: load the tiles of the rows into registers 4 and 5, load the tiles of the columns into
    // registers 6 and 7, and multiply.
    macro_rules! rows {
        (one $plane:literal) => {
            concat!("tileloaddt1 tmm4, [{a} + {a_row} + ", $plane, "]\n")
        };
        (two $plane:literal) => {
            concat!(rows!(one $plane), "tileloaddt1 tmm5, [{low_a} + {a_row} + ", $plane, "]\n")
        };
    }
    macro_rules! columns {
        ($plane:literal) => {
            concat!(
                "tileloadd tmm6, [{b} + {b_row} + ",
                $plane,
                "]\n",
                "tileloadd tmm7, [{b} + {b_row} + ",
                $plane,
                " + 64]\n",
            )
        };
    }
    macro_rules! products {
        (one $product:literal) => {
            concat!($product, " tmm0, tmm4, tmm6\n", $product, " tmm1, tmm4, tmm7\n")
        };
        (two $product:literal) => {
            concat!(products!(one $product), $product, " tmm2, tmm5, tmm6\n", $product, " tmm3, tmm5, tmm7\n")
        };
    }
    macro_rules! sums {
        (one) => {
            concat!("tilestored [{to} + {b_row}], tmm0\n", "tilestored [{to} + {b_row} + 64], tmm1\n")
        };
        (two) => {
            concat!(
                sums!(one),
                "tilestored [{to} + {b_row} + 2048], tmm2\n",
                "tilestored [{to} + {b_row} + 2112], tmm3\n",
            )
        };
    }
    macro_rules! load_sums {
        (one) => {
            concat!("tileloadd tmm0, [{to} + {b_row}]\n", "tileloadd tmm1, [{to} + {b_row} + 64]\n")
        };
        (two) => {
            concat!(
                load_sums!(one),
                "tileloadd tmm2, [{to} + {b_row} + 2048]\n",
                "tileloadd tmm3, [{to} + {b_row} + 2112]\n",
            )
        };
    }
    // The prefetches are spread over the step, so that they do not delay its loads.
    macro_rules! fetch {
        ($($line:literal)*) => {
            concat!($( "prefetcht1 [{ahead} + ", $line, "]\n", )*)
        };
    }
    macro_rules! block {
        ($many:ident, $length:literal, $fetched:literal: $($part:expr),*) => {
            asm!(
                "test {first:e}, {first:e}",
                "jz 3f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "jmp 2f",
                "3:",
                load_sums!($many),
                "2:",
                $( $part, )*
                concat!("add {ahead}, ", $fetched),
                concat!("add {a}, ", $length),
                concat!("add {low_a}, ", $length),
                concat!("add {b}, 2 * ", $length),
                "dec {steps}",
                "jnz 2b",
                sums!($many),
                a = inout(reg) left => _,
                low_a = inout(reg) low_left => _,
                a_row = in(reg) 64usize,
                b = inout(reg) right => _,
                b_row = in(reg) 128usize,
                steps = inout(reg) steps => _,
                to = in(reg) to,
                first = in(reg) u32::from(first),
                ahead = inout(reg) ahead => _,
                options(nostack),
            )
        };
    }
    macro_rules! plain {
        ($many:ident, $product:literal) => {
            block!($many, 1024, 256: rows!($many 0), columns!(0), fetch!(0 64 128 192), products!($many $product))
        };
    }
    macro_rules! thirds {
        ($many:ident) => {
            block!($many, 3072, 768:
                rows!($many 1024), columns!(2048), fetch!(0 64), products!($many "tdpbf16ps"),
                columns!(0), fetch!(128 192), products!($many "tdpbf16ps"),
                rows!($many 2048), fetch!(256 320), products!($many "tdpbf16ps"),
                rows!($many 0), fetch!(384 448), products!($many "tdpbf16ps"),
                columns!(2048), fetch!(512 576), products!($many "tdpbf16ps"),
                columns!(4096), fetch!(640 704), products!($many "tdpbf16ps"))
        };
    }
    // SAFETY: the caller guarantees the registers and the memory.
    unsafe {
        match (numbers, TWO) {
            (Squared::Bf16, false) => plain!(one, "tdpbf16ps"),
            (Squared::Bf16, true) => plain!(two, "tdpbf16ps"),
            (Squared::Bytes, false) => plain!(one, "tdpbusd"),
            (Squared::Bytes, true) => plain!(two, "tdpbusd"),
            (Squared::Thirds, false) => thirds!(one),
            (Squared::Thirds, true) => thirds!(two),
        }
    }
}
