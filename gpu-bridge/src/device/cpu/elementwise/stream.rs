//! Stores that go around the caches.
//!
//! A result that no cache can hold is written without reading its lines first, which saves a quarter to a third of the
//! traffic of an operation that does nothing but move bytes.

use crate::dtype::Element;

/// Results of at least this many bytes are written around the caches. Where the last-level cache still holds the
/// operands, going around it takes twice as long.
pub(super) const BYTES: usize = 16 << 20;

/// Elements that are computed before they are written: few enough to stay in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Copies `from` to `into`, of the same length. [`fence`] must follow before another thread may read it.
#[inline(always)]
pub(super) fn store<T: Element>(into: &mut [T], from: &[T]) {
    #[cfg(target_arch = "x86_64")]
    if let (Ok(into), Ok(from)) = (bytemuck::try_cast_slice_mut(into), bytemuck::try_cast_slice(from)) {
        return store_vectors(into, from);
    }
    into.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn store_vectors(into: &mut [f32], from: &[f32]) {
    use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};

    let head = into.as_ptr().align_offset(16).min(into.len());
    let (into_head, into) = into.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    into_head.copy_from_slice(from_head);
    let (into_vectors, into_tail) = into.as_chunks_mut::<4>();
    let (from_vectors, from_tail) = from.as_chunks::<4>();
    for (into, from) in into_vectors.iter_mut().zip(from_vectors) {
        // SAFETY: both are four floats, and `into` is aligned, as the head was left out.
        unsafe { _mm_stream_ps(into.as_mut_ptr(), _mm_loadu_ps(from.as_ptr())) };
    }
    into_tail.copy_from_slice(from_tail);
}

/// Makes what was stored visible before whatever is stored next.
#[inline(always)]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
