//! What a run has reached, and what it has compared: the other end of LLVM's SanitizerCoverage.
//!
//! The compiler gives each branch of an instrumented crate a byte that counts how often it was taken, and calls a function
//! at every comparison. An input that takes a branch for the first time, or much more often than before, is worth keeping;
//! and a number that was compared with another one is worth replacing by it.

use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The counters' bytes: where they start, and how many there are. Told once, before `main`, by every object file, all of
/// which name the same range: the linker puts them together.
static START: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Comparisons that are remembered: the latest of a run.
const COMPARISONS: usize = 512;

static COMPARED: [[AtomicU64; 2]; COMPARISONS] = [const { [const { AtomicU64::new(0) }; 2] }; COMPARISONS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Whether a run is under way; before and after it, nothing is remembered.
static RUNNING: AtomicBool = AtomicBool::new(false);

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    START.store(start as usize, Ordering::Relaxed);
    COUNT.store(stop as usize - start as usize, Ordering::Relaxed);
}

/// A call through a pointer. Where it leads to is counted there.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_indir(_callee: usize) {}

fn compared(one: u64, other: u64) {
    // What is equal, or counts up from zero, tells nothing.
    if one != other && (one > 1 || other > 1) && RUNNING.load(Ordering::Relaxed) {
        let place = &COMPARED[NEXT.fetch_add(1, Ordering::Relaxed) % COMPARISONS];
        place[0].store(one, Ordering::Relaxed);
        place[1].store(other, Ordering::Relaxed);
    }
}

macro_rules! comparisons {
    ($($name:ident $type:ty;)+) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name(one: $type, other: $type) {
            compared(one.into(), other.into());
        })+
    };
}

comparisons! {
    __sanitizer_cov_trace_cmp1 u8;
    __sanitizer_cov_trace_cmp2 u16;
    __sanitizer_cov_trace_cmp4 u32;
    __sanitizer_cov_trace_cmp8 u64;
    __sanitizer_cov_trace_const_cmp1 u8;
    __sanitizer_cov_trace_const_cmp2 u16;
    __sanitizer_cov_trace_const_cmp4 u32;
    __sanitizer_cov_trace_const_cmp8 u64;
}

/// The cases of a `match` on numbers: how many there are, how wide they are, and they themselves.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_switch(value: u64, cases: *const u64) {
    // SAFETY: LLVM passes an array that starts with its own length and has two words more than that.
    let cases = unsafe { slice::from_raw_parts(cases.add(2), usize::try_from(*cases).unwrap_or(0)) };
    cases.iter().take(8).for_each(|case| compared(value, *case));
}

/// What all runs have reached so far: for each counter, which magnitudes it has had.
pub struct Coverage {
    reached: Vec<u8>,
}

/// One at a time: the counters are the process's.
static LOCK: Mutex<()> = Mutex::new(());

impl Coverage {
    /// `None` if nothing was compiled with counters.
    pub fn new() -> Option<Self> {
        let count = COUNT.load(Ordering::Relaxed);
        (count > 0).then(|| Self { reached: vec![0; count] })
    }

    fn counters<'a>() -> &'a mut [u8] {
        // SAFETY: the range lives as long as the process. Instrumented code counts in it without any lock, which it may,
        // as bytes have no invalid values; only the one run that holds `LOCK` is looked at.
        unsafe { slice::from_raw_parts_mut(START.load(Ordering::Relaxed) as *mut u8, COUNT.load(Ordering::Relaxed)) }
    }

    /// Runs something. Whether it reached anything new.
    pub fn run<R>(&mut self, run: impl FnOnce() -> R) -> (R, bool) {
        let _alone = LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let counters = Self::counters();
        counters.fill(0);
        NEXT.store(0, Ordering::Relaxed);
        RUNNING.store(true, Ordering::Relaxed);
        let result = run();
        RUNNING.store(false, Ordering::Relaxed);
        let mut is_new = false;
        for (eight, reached) in counters.chunks(8).zip(self.reached.chunks_mut(8)) {
            if eight == [0; 8] {
                continue;
            }
            for (count, reached) in eight.iter().zip(reached) {
                let magnitude = magnitude(*count);
                is_new |= magnitude & !*reached != 0;
                *reached |= magnitude;
            }
        }
        (result, is_new)
    }

    /// How many branches have been taken, of how many.
    pub fn reached(&self) -> (usize, usize) {
        (self.reached.iter().filter(|magnitudes| **magnitudes != 0).count(), self.reached.len())
    }

    /// A pair of numbers that the latest run has compared.
    pub fn comparison(&self, choice: u64) -> Option<[u64; 2]> {
        let count = NEXT.load(Ordering::Relaxed).min(COMPARISONS);
        let index = usize::try_from(choice).unwrap_or(0).checked_rem(count)?;
        Some([0, 1].map(|side| COMPARED[index][side].load(Ordering::Relaxed)))
    }
}

/// One bit for each magnitude that makes a difference: a loop that runs nine times instead of eight does not.
fn magnitude(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}
