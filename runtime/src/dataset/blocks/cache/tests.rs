use std::sync::Barrier;
use std::sync::mpsc;

use super::*;

fn block(number: u8, bytes: usize) -> (BlockRef, Bytes) {
    let content = Bytes::from(vec![number; bytes]);
    (BlockRef { digest: Digest::of(&content), count: 1, bytes: bytes as u64 }, content)
}

fn source(blocks: &[(BlockRef, Bytes)]) -> Arc<HashMap<Digest, Bytes>> {
    Arc::new(blocks.iter().map(|(block, bytes)| (block.digest, bytes.clone())).collect())
}

fn whole(cache: &Cache, block: &BlockRef) -> Bytes {
    cache.read(block, 0..block.bytes).unwrap()
}

#[test]
fn a_block_is_read_once() {
    let blocks = [block(1, 10)];
    let cache = Cache::new(source(&blocks), 100);
    assert_eq!(whole(&cache, &blocks[0].0), blocks[0].1);
    assert_eq!(whole(&cache, &blocks[0].0), blocks[0].1);
    assert_eq!(cache.stats(), CacheStats { kept: 10, alive: 10, reads: 1, hits: 1 });
}

#[test]
fn what_was_not_used_for_longest_makes_room() {
    let blocks = [block(1, 40), block(2, 40), block(3, 40)];
    let cache = Cache::new(source(&blocks), 100);
    for index in [0, 1, 0, 2, 0] {
        whole(&cache, &blocks[index].0);
    }
    assert_eq!(cache.stats(), CacheStats { kept: 80, alive: 80, reads: 3, hits: 2 });
    whole(&cache, &blocks[1].0);
    assert_eq!(cache.stats().reads, 4);
}

#[test]
fn what_a_reader_holds_is_counted_after_it_was_let_go() {
    let blocks = [block(1, 60), block(2, 60)];
    let cache = Cache::new(source(&blocks), 100);
    let held = whole(&cache, &blocks[0].0);
    whole(&cache, &blocks[1].0);
    assert_eq!((cache.stats().kept, cache.stats().alive), (60, 120));
    drop(held);
    assert_eq!((cache.stats().kept, cache.stats().alive), (60, 60));
}

#[test]
fn a_block_beyond_the_limit_is_given_and_not_kept() {
    let blocks = [block(1, 101)];
    let cache = Cache::new(source(&blocks), 100);
    assert_eq!(whole(&cache, &blocks[0].0), blocks[0].1);
    assert_eq!(cache.stats(), CacheStats { kept: 0, alive: 0, reads: 1, hits: 0 });
}

#[test]
fn a_part_is_read_past_the_cache_and_taken_from_it_when_it_is_there() {
    let blocks = [block(1, 10)];
    let cache = Cache::new(source(&blocks), 100);
    assert_eq!(cache.read(&blocks[0].0, 2..5).unwrap().len(), 3);
    assert_eq!(cache.stats(), CacheStats::default());
    whole(&cache, &blocks[0].0);
    assert_eq!(cache.read(&blocks[0].0, 2..5).unwrap().len(), 3);
    assert_eq!(cache.stats().hits, 1);
}

#[test]
fn a_failed_read_gives_its_bytes_back() {
    let cache = Cache::new(source(&[]), 100);
    let missing = block(1, 10).0;
    assert_eq!(cache.read(&missing, 0..10).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(cache.stats(), CacheStats { reads: 1, ..CacheStats::default() });
}

#[test]
fn a_block_of_another_length_is_refused() {
    let (reference, bytes) = block(1, 10);
    let cache = Cache::new(source(&[(reference.clone(), bytes.slice(..9))]), 100);
    assert_eq!(cache.read(&reference, 0..10).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(cache.stats().kept, 0);
}

/// A source that says when it is asked, and answers when it is told to.
struct Slow {
    asked: mpsc::SyncSender<()>,
    answer: Mutex<mpsc::Receiver<()>>,
    bytes: Bytes,
}

impl Blocks for Slow {
    fn read(&self, _: &BlockRef, _: Range<u64>) -> io::Result<Bytes> {
        self.asked.send(()).map_err(io::Error::other)?;
        self.answer.locked().recv().map_err(io::Error::other)?;
        Ok(self.bytes.clone())
    }
}

#[test]
fn readers_of_a_missing_block_share_one_read() {
    let (reference, bytes) = block(1, 10);
    let ((asked, was_asked), (tell, answer)) = (mpsc::sync_channel(8), mpsc::sync_channel(8));
    let cache = Cache::new(Arc::new(Slow { asked, answer: Mutex::new(answer), bytes: bytes.clone() }), 100);
    let started = Barrier::new(5);
    std::thread::scope(|scope| {
        let read = || {
            started.wait();
            whole(&cache, &reference)
        };
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        started.wait();
        was_asked.recv().unwrap();
        tell.send(()).unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), bytes);
        }
    });
    assert_eq!(cache.stats(), CacheStats { kept: 10, alive: 10, reads: 1, hits: 3 });
}
