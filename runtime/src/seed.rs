//! Seeds for whoever was given none.

use std::cell::RefCell;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A seed from a generator that the operating system has seeded, one per thread: to ask the system each time costs as much
/// as a tenth of a cold start.
pub fn random() -> Result<u64, getrandom::Error> {
    thread_local! {
        static GENERATOR: RefCell<Option<ChaCha12Rng>> = const { RefCell::new(None) };
    }
    GENERATOR.with_borrow_mut(|generator| {
        if generator.is_none() {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed)?;
            *generator = Some(ChaCha12Rng::from_seed(seed));
        }
        Ok(generator.as_mut().map_or(0, Rng::next_u64))
    })
}
