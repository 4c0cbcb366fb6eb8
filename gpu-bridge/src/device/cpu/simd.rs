//! SIMD chosen at run time.
//!
//! [`vectorized`] runs a closure compiled for the best instructions of this machine. What is called inside must be
//! `#[inline(always)]` to be compiled for them too; plain loops over slices are then vectorized by the compiler.

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// Whether this machine has vectors of sixteen floats, and all that is used with them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn has_avx512() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl")
    });
    *HAS
}

/// Whether this machine has vectors of sixteen floats.
#[cfg(not(target_arch = "x86_64"))]
pub fn has_avx512() -> bool {
    false
}

/// Runs `body` with the widest vectors that this machine has.
#[inline(always)]
pub fn vectorized<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there.
        return unsafe { with_avx512(body) };
    }
    struct Body<F>(F);

    impl<R, F: FnOnce() -> R> pulp::WithSimd for Body<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) -> R {
            (self.0)()
        }
    }

    pulp::Arch::new().dispatch(Body(body))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn with_avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}
