//! SIMD chosen at run time.
//!
//! [`vectorized`] runs a closure compiled for the best instructions of this machine. What is called inside must be
//! `#[inline(always)]` to be compiled for them too; plain loops over slices are then vectorized by the compiler.

/// Runs `body` with the widest vectors that this machine has.
#[inline(always)]
pub fn vectorized<R>(body: impl FnOnce() -> R) -> R {
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
