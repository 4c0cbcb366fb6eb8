//! What is read and held: each block once, a window at a time, within the context's bytes.

use std::collections::HashSet;

use super::*;
use crate::dataset::blocks::Cache;

/// Bytes of a block of ten samples.
const BLOCK: u64 = 10 * (4 + 8);

fn large() -> (Manifest, Arc<Written>) {
    let Counted { manifest, blocks } = Counted::new(&[10; 60]);
    (manifest, Arc::new(blocks))
}

#[test]
fn a_split_larger_than_the_window_is_read_once() {
    let (manifest, blocks) = large();
    let options = Options::new(Plan { window: 5 * BLOCK, ..Plan::default() }, size(7));
    let batches = Assembler::new(source(&manifest, &blocks), options, &context(usize::MAX)).unwrap();
    let mut seen: Vec<u64> = batches.flat_map(|batch| samples(&batch.unwrap())).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..600));
    assert_eq!(blocks.read.lock().unwrap().len(), 60);
}

#[test]
fn a_worker_reads_only_the_blocks_of_its_shard() {
    let (manifest, blocks) = large();
    let plan = Plan { window: 5 * BLOCK, shards: 4, ..Plan::default() };
    let options = Options { shard: 2, ..Options::new(plan.clone(), size(7)) };
    let shard = plan.shard(&manifest.train, 2, |_| Err(ShardError::NoClasses)).unwrap();
    let own: HashSet<Digest> =
        shard.positions().map(|position| manifest.train.blocks[position.block as usize].digest).collect();
    Assembler::new(source(&manifest, &blocks), options, &context(usize::MAX)).unwrap().for_each(drop);
    let read = blocks.read.lock().unwrap();
    assert_eq!(read.len(), own.len());
    assert_eq!(read.iter().copied().collect::<HashSet<Digest>>(), own);
}

#[test]
fn no_more_than_a_window_is_held() {
    let (manifest, blocks) = large();
    // Keeps nothing itself, so that what is alive is what is held.
    let cache = Arc::new(Cache::new(blocks, 0));
    let options = Options::new(Plan { window: 5 * BLOCK, ..Plan::default() }, size(7));
    for batch in Assembler::new(source(&manifest, &cache), options, &context(usize::MAX)).unwrap() {
        batch.unwrap();
        assert!(cache.stats().alive <= 5 * BLOCK, "{:?}", cache.stats());
    }
    assert_eq!(cache.stats().alive, 0);
}

#[test]
fn workers_that_share_a_cache_read_each_block_once() {
    let (manifest, blocks) = large();
    let cache = Arc::new(Cache::new(blocks, 60 * BLOCK));
    let plan = Plan { shards: 3, ..Plan::default() };
    let workers: Vec<Batches> = (0..3)
        .map(|shard| {
            let options = Options { shard, ..Options::new(plan.clone(), size(7)) };
            Batches::start(source(&manifest, &cache), options, &context(usize::MAX)).unwrap()
        })
        .collect();
    let seen: usize = workers.into_iter().flatten().map(|batch| batch.unwrap().count).sum();
    assert_eq!((seen, cache.stats().reads), (600, 60));
}

#[test]
fn a_batch_beyond_the_bytes_of_the_context_is_an_error() {
    let (manifest, blocks) = large();
    let options = Options::new(Plan::default(), size(600));
    let mut batches = Batches::start(source(&manifest, &blocks), options, &context(1000)).unwrap();
    let error = batches.next().unwrap().unwrap_err();
    assert!(matches!(error.cause, Cause::Device(weft_gpu::Error::OutOfMemory { limit: 1000, .. })), "{error}");
}

#[test]
fn batches_that_were_let_go_are_used_again() {
    let (manifest, blocks) = large();
    let context = context(usize::MAX);
    let options = Options::new(Plan::default(), size(8));
    let mut batches = Assembler::new(source(&manifest, &blocks), options, &context).unwrap();
    batches.next().unwrap().unwrap();
    let used = context.heap().used();
    batches.by_ref().for_each(drop);
    assert_eq!(context.heap().used(), used);
}
