//! The allocator, and memory that is free going back to the system.
//!
//! An invocation allocates some hundred blocks on one thread and frees some of them on another. mimalloc does both with a
//! few instructions and no lock, for blocks of several kilobytes too: the C library's allocator took a tenth of an
//! invocation's time.
//!
//! mimalloc gives free pages back when it is next used for a while after they became free, each thread those of its own. A
//! node that is idle after a burst does not use it, so every thread of HTTP is told to look once nothing computes, and
//! again, ever more seldom, for as long as there is more than there was.
//!
//! The compiler's process keeps the C library's allocator. Its address space is limited, and mimalloc reserves a gigabyte of
//! that before it is needed: a limit below would leave nothing to compile with, and one above would be counted twice.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use mimalloc::MiMalloc;

use crate::node::Node;

/// The variable that is set in the environment of the compiler's process.
pub const IS_COMPILER: &CStr = c"WEFT_IS_COMPILER";

/// One of two, for as long as the process lives. The `weft` program has it; tests of the library have their own.
pub struct Allocator;

impl Allocator {
    /// Known from the first allocation on, which is long before `main`.
    fn is_compilers(&self) -> bool {
        static KNOWN: OnceLock<bool> = OnceLock::new();
        // SAFETY: the name ends with a zero, and nobody else changes the environment while the first allocation is made.
        *KNOWN.get_or_init(|| unsafe { !libc::getenv(IS_COMPILER.as_ptr()).is_null() })
    }
}

// SAFETY: every block is given back to the allocator that it came from, because the choice is made once. Both keep the
// promises of this trait, and the caller's are passed on.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.is_compilers() {
            // SAFETY: the caller's promise.
            true => unsafe { System.alloc(layout) },
            // SAFETY: the caller's promise.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.is_compilers() {
            // SAFETY: the caller's promise.
            true => unsafe { System.alloc_zeroed(layout) },
            // SAFETY: the caller's promise.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.is_compilers() {
            // SAFETY: the caller's promise.
            true => unsafe { System.dealloc(block, layout) },
            // SAFETY: the caller's promise.
            false => unsafe { MiMalloc.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match self.is_compilers() {
            // SAFETY: the caller's promise.
            true => unsafe { System.realloc(block, layout, size) },
            // SAFETY: the caller's promise.
            false => unsafe { MiMalloc.realloc(block, layout, size) },
        }
    }
}

/// How often it is looked whether there is something to give back.
const EVERY: Duration = Duration::from_secs(2);

/// Growth that is worth the trouble, in bytes.
const WORTHWHILE: u64 = 8 << 20;

/// How many looks are left out at most after one that brought nothing.
const MOST_LEFT_OUT: u32 = 64;

/// How long a thread that has looked is kept, so that another one takes the next look.
const KEPT: Duration = Duration::from_millis(1);

fn give_back_free_memory() {
    // SAFETY: it has no preconditions, and changes nothing that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

/// Bytes of this process that are in memory.
fn resident() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Has every thread of this runtime give back what it has free, and one beside them what ended threads have left.
async fn give_back_everywhere() {
    tokio::task::spawn_blocking(give_back_free_memory).await.ok();
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    let looks: Vec<_> = (0..threads)
        .map(|_| {
            tokio::spawn(async {
                give_back_free_memory();
                std::thread::sleep(KEPT);
            })
        })
        .collect();
    for look in looks {
        look.await.ok();
    }
}

/// Gives memory back after each burst of work, for as long as there is a node.
pub async fn give_back_when_idle(node: Weak<Node>) {
    let (mut least, mut left_out, mut leave_out) = (u64::MAX, 0, 0);
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(node) = node.upgrade() else { return };
        let Some(now) = resident() else { return };
        let is_as_before = least != u64::MAX && now <= least.saturating_add(WORTHWHILE);
        if is_as_before || node.computes() {
            (left_out, leave_out) = (0, 0);
            continue;
        }
        if left_out < leave_out {
            left_out += 1;
            continue;
        }
        give_back_everywhere().await;
        let after = resident().unwrap_or(now);
        // What is in use is not given back, however often it is tried.
        let brought_nothing = after.saturating_add(WORTHWHILE) > now;
        leave_out = if brought_nothing { (leave_out * 2).clamp(1, MOST_LEFT_OUT) } else { 0 };
        (least, left_out) = (least.min(after), 0);
    }
}
