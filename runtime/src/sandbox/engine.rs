//! How wasmtime is set up.
//!
//! The compiler child and the server make their engines from the same [`tunables`], so that what one compiles the other
//! loads; only the server reserves the pool that instances live in.

use std::hash::{DefaultHasher, Hash, Hasher};

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result};

use super::limits::{
    ASYNC_STACK, MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLE_ELEMENTS, MAX_TABLES, MAX_WASM_STACK, SandboxLimits,
};

/// Linear memory that a freed slot keeps resident: clearing it is cheaper than faulting it in again.
const KEEP_RESIDENT: usize = 1 << 20;
/// Freed slots that stay warm for the next instance.
const WARM_SLOTS: u32 = 64;

fn tunables() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(MAX_WASM_STACK)
        .async_stack_size(ASYNC_STACK)
        // Spelled out although some are defaults: what is off must stay off when a default changes.
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false);
    config
}

/// The engine of the compiler child: no pool, one thread.
pub fn compiling() -> Result<Engine> {
    Engine::new(&tunables())
}

/// The engine that runs guests.
pub fn running(limits: &SandboxLimits) -> Result<Engine> {
    let mut pool = PoolingAllocationConfig::default();
    let instances = limits.instances.saturating_add(limits.trainers);
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(MAX_CORE_INSTANCES))
        .total_memories(instances.saturating_mul(MAX_MEMORIES))
        .total_tables(instances.saturating_mul(MAX_TABLES))
        .total_stacks(instances)
        .max_core_instances_per_component(MAX_CORE_INSTANCES)
        .max_memories_per_component(MAX_MEMORIES)
        .max_tables_per_component(MAX_TABLES)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_memory_size(usize::try_from(limits.memory).unwrap_or(usize::MAX))
        .max_unused_warm_slots(WARM_SLOTS)
        .linear_memory_keep_resident(KEEP_RESIDENT)
        .table_keep_resident(KEEP_RESIDENT)
        .async_stack_keep_resident(KEEP_RESIDENT)
        .pagemap_scan(if swap_is_off() { Enabled::Auto } else { Enabled::No });
    Engine::new(tunables().allocation_strategy(InstanceAllocationStrategy::Pooling(pool)))
}

/// Names everything that decides whether an artifact of one engine runs in another.
pub fn compatibility(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Scanning for dirty pages misses those that were swapped out, and those would then reach the next tenant. So the scan
/// is only used where there is no swap at all; elsewhere a slot is cleared in full.
pub fn swap_is_off() -> bool {
    rustix::system::sysinfo().totalswap == 0
}
