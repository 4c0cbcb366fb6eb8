//! Memory that is free goes back to the system.
//!
//! The C library's allocator keeps what a burst of work has freed: its heaps only shrink from the top, and each large block
//! that is freed makes it keep larger ones from then on. Here the size from which blocks are the system's own stays as it
//! is, and after each burst, once nothing computes, the holes in all heaps are given back. Not while something computes: a
//! heap is locked meanwhile.
//!
//! Other C libraries are left to themselves.

use std::sync::Weak;
use std::time::Duration;

use crate::node::Node;

/// Blocks from this size on are the system's own, and go back as soon as they are freed.
const SYSTEM_BLOCK: usize = 4 << 20;

/// How often it is looked whether there is something to give back.
const EVERY: Duration = Duration::from_secs(2);

/// Growth that is worth the trouble, in bytes.
const WORTHWHILE: u64 = 8 << 20;

/// Has the allocator keep to [`SYSTEM_BLOCK`]. To be called once, at start.
pub fn fix_system_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it only sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, SYSTEM_BLOCK as libc::c_int);
    }
}

fn give_back_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it has no preconditions, and changes nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of this process that are in memory.
fn resident() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Gives memory back after each burst of work, for as long as there is a node.
pub async fn give_back_when_idle(node: Weak<Node>) {
    let mut least = 0;
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(node) = node.upgrade() else { return };
        let Some(now) = resident() else { return };
        least = now.min(least);
        if now > least + WORTHWHILE && !node.computes() {
            // The heaps are walked through: not on a thread of HTTP.
            tokio::task::spawn_blocking(give_back_free_memory).await.ok();
            least = resident().unwrap_or(now);
        }
    }
}
