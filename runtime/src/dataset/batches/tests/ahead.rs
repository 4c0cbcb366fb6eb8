//! The thread that makes batches ahead: it ends when nobody wants more, and what goes wrong on it is told.

use super::*;

fn counted() -> (Manifest, Arc<Written>) {
    let Counted { manifest, blocks } = Counted::new(&[16; 40]);
    (manifest, Arc::new(blocks))
}

/// A batch is a block.
fn options() -> Options {
    Options::new(Plan { shuffle: false, ..Plan::default() }, size(16))
}

#[test]
fn batches_made_ahead_are_those_made_at_once() {
    let (manifest, blocks) = counted();
    let context = context(usize::MAX);
    let options = Options::new(Plan::default(), size(33));
    let ahead = Batches::start(source(&manifest, &blocks), options.clone(), &context).unwrap();
    assert_eq!(ahead.total(), 20);
    let ahead: Vec<Vec<u64>> = ahead.map(|batch| samples(&batch.unwrap())).collect();
    let at_once = Assembler::new(source(&manifest, &blocks), options, &context).unwrap();
    assert_eq!(ahead, at_once.map(|batch| samples(&batch.unwrap())).collect::<Vec<_>>());
}

#[test]
fn no_more_are_made_ahead_than_asked_for() {
    let (manifest, blocks) = counted();
    let mut batches = Batches::start(source(&manifest, &blocks), options(), &context(usize::MAX)).unwrap();
    for _ in 0..3 {
        batches.next().unwrap().unwrap();
    }
    drop(batches);
    eventually(|| Arc::strong_count(&blocks) == 1);
    assert!(blocks.read.lock().unwrap().len() <= 3 + DEPTH.get());
}

#[test]
fn the_thread_ends_when_the_batches_are_dropped() {
    let (manifest, blocks) = counted();
    drop(Batches::start(source(&manifest, &blocks), options(), &context(usize::MAX)).unwrap());
    eventually(|| Arc::strong_count(&blocks) == 1);
}

#[test]
fn the_thread_ends_when_the_context_is_cancelled() {
    let (manifest, blocks) = counted();
    let context = context(usize::MAX);
    let mut batches = Batches::start(source(&manifest, &blocks), options(), &context).unwrap();
    eventually(|| blocks.read.lock().unwrap().len() == DEPTH.get());
    context.cancel().cancel();
    eventually(|| Arc::strong_count(&blocks) == 1);
    let error = batches.next().unwrap().unwrap_err();
    assert!(matches!(error.cause, Cause::Device(weft_gpu::Error::Cancelled)), "{error}");
    assert!(batches.next().is_none());
}

#[test]
fn a_cancel_that_was_cleared_does_not_pass_for_the_end() {
    let (manifest, blocks) = counted();
    let context = context(usize::MAX);
    let batches = Batches::start(source(&manifest, &blocks), options(), &context).unwrap();
    context.cancel().cancel();
    eventually(|| Arc::strong_count(&blocks) == 1);
    context.cancel().clear();
    let error = batches.last().unwrap().unwrap_err();
    assert!(matches!(error.cause, Cause::Device(weft_gpu::Error::Cancelled)), "{error}");
}

#[test]
fn a_block_that_cannot_be_read_is_named() {
    let Counted { manifest, mut blocks } = Counted::new(&[16; 4]);
    blocks.fails = Some(manifest.train.blocks[2].digest);
    let mut batches = Batches::start(source(&manifest, &Arc::new(blocks)), options(), &context(usize::MAX)).unwrap();
    assert_eq!(batches.by_ref().take(2).filter(Result::is_ok).count(), 2);
    let error = batches.next().unwrap().unwrap_err().to_string();
    let digest = manifest.train.blocks[2].digest;
    assert_eq!(error, format!("data set `digits`: block 2 ({digest}) cannot be read: the disk is gone"));
    assert!(batches.next().is_none());
}

#[test]
fn a_panic_is_told_as_an_error() {
    let Counted { manifest, mut blocks } = Counted::new(&[16; 4]);
    blocks.panics = Some(manifest.train.blocks[1].digest);
    let batches = Batches::start(source(&manifest, &Arc::new(blocks)), options(), &context(usize::MAX)).unwrap();
    let error = batches.last().unwrap().unwrap_err();
    assert!(matches!(&error.cause, Cause::Panicked(reason) if reason.contains("on fire")), "{error}");
}

#[test]
fn a_missing_shard_is_told_at_once() {
    let (manifest, blocks) = counted();
    let refused = Batches::start(source(&manifest, &blocks), Options { shard: 1, ..options() }, &context(usize::MAX));
    let error = refused.err().unwrap();
    assert_eq!(error.to_string(), "data set `digits`: there is no shard 1, there are 1, counted from 0");
}
