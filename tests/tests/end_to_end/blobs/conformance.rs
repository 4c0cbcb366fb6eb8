//! What every place for blobs must do; a place is one line.

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use weft::blob::{BlobError, Blobs, Referrer};
use weft::digest::Digest;
use weft_tests::s3::Server;

/// Larger than any request that a store is sent or asked for.
const LARGE: usize = (17 << 20) + 5;

/// Blobs somewhere, and a folder to stage files in.
struct Place {
    blobs: Arc<Blobs>,
    folder: TempDir,
    server: Option<Server>,
}

impl Place {
    fn folder() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let staging = folder.path().join("staging");
        std::fs::create_dir(&staging)?;
        let blobs = Blobs::folder(folder.path().join("blobs"), staging)?;
        Ok(Self { blobs, folder, server: None })
    }

    fn memory() -> Result<Self> {
        Ok(Self { blobs: Blobs::memory(), folder: tempfile::tempdir()?, server: None })
    }

    fn s3() -> Result<Self> {
        let server = Server::start()?;
        let mut place = server.place("team/blobs");
        place.grace = std::time::Duration::ZERO;
        let blobs = Blobs::s3(&place)?;
        Ok(Self { blobs, folder: tempfile::tempdir()?, server: Some(server) })
    }

    fn stage(&self, content: &[u8]) -> Result<PathBuf> {
        let path = self.folder.path().join("staged");
        std::fs::write(&path, content)?;
        Ok(path)
    }

    async fn whole(&self, digest: &Digest) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.blobs.open(digest).await?.read_to_end(&mut bytes).await?;
        Ok(bytes)
    }

    /// On a thread that may block.
    async fn read_blocking(&self, digest: Digest, range: std::ops::Range<u64>) -> Result<std::io::Result<Bytes>> {
        let blobs = self.blobs.clone();
        Ok(tokio::task::spawn_blocking(move || blobs.read_blocking(&digest, range)).await?)
    }

    fn refer(&self) -> Arc<References> {
        let references = Arc::<References>::default();
        self.blobs.set_referrers(vec![references.clone()]);
        references
    }
}

/// Records of somebody who refers to blobs.
#[derive(Default)]
struct References(Mutex<HashMap<Digest, usize>>);

impl References {
    fn held(&self) -> MutexGuard<'_, HashMap<Digest, usize>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, digest: Digest) {
        *self.held().entry(digest).or_default() += 1;
    }

    fn remove(&self, digest: &Digest) {
        let mut references = self.held();
        let left = references.get(digest).map_or(0, |count| count - 1);
        if left == 0 {
            references.remove(digest);
        } else {
            references.insert(*digest, left);
        }
    }
}

impl Referrer for References {
    fn keep(&self, candidates: &mut HashSet<Digest>) {
        let references = self.held();
        candidates.retain(|digest| !references.contains_key(digest));
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| ((at / 7) ^ at) as u8).collect()
}

macro_rules! conformance {
    ($($test:ident,)+) => {
        conformance! { folder: $($test,)+ }
        conformance! { memory: $($test,)+ }
        conformance! { s3: $($test,)+ }
    };
    ($place:ident: $($test:ident,)+) => {
        mod $place {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() -> anyhow::Result<()> {
                    super::$test(super::Place::$place()?).await
                }
            )+
        }
    };
}

conformance! {
    a_published_file_is_read_back,
    published_bytes_are_read_back,
    a_large_file_is_read_back,
    large_bytes_are_read_back,
    what_is_written_in_pieces_is_read_back,
    nothing_is_a_blob_too,
    publishing_twice_is_publishing_once,
    a_file_under_a_false_name_is_refused,
    a_large_file_under_a_false_name_is_refused,
    a_blob_of_another_length_is_replaced,
    a_part_is_read,
    a_part_beyond_the_end_is_refused,
    a_part_that_ends_before_it_begins_is_refused,
    what_is_missing_is_said_to_be,
    what_is_missing_cannot_be_pinned,
    what_was_deleted_is_gone,
    every_blob_is_listed,
    nothing_is_collected_before_the_referrers_are_known,
    what_nobody_needs_is_collected,
    what_is_referred_to_is_kept,
    what_is_pinned_is_kept,
    a_sweep_removes_only_what_nobody_needs,
    a_blob_is_there_however_often_the_same_is_published_and_collected,
}

async fn a_published_file_is_read_back(place: Place) -> Result<()> {
    let digest = Digest::of(b"weft");
    let pinned = place.blobs.publish(&place.stage(b"weft")?, &digest).await?;
    ensure!(pinned.digest() == digest && place.whole(&digest).await? == b"weft");
    ensure!(place.blobs.size(&digest).await? == 4);
    Ok(())
}

async fn published_bytes_are_read_back(place: Place) -> Result<()> {
    let pinned = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?;
    ensure!(pinned.digest() == Digest::of(b"weft") && place.whole(&pinned.digest()).await? == b"weft");
    Ok(())
}

async fn a_large_file_is_read_back(place: Place) -> Result<()> {
    let content = content(LARGE);
    let digest = Digest::of(&content);
    let _pinned = place.blobs.publish(&place.stage(&content)?, &digest).await?;
    ensure!(place.whole(&digest).await? == content);
    Ok(())
}

async fn large_bytes_are_read_back(place: Place) -> Result<()> {
    let content = content(LARGE);
    let pinned = place.blobs.publish_bytes(content.clone().into()).await?;
    ensure!(place.whole(&pinned.digest()).await? == content);
    Ok(())
}

async fn what_is_written_in_pieces_is_read_back(place: Place) -> Result<()> {
    for size in [0, 5, LARGE] {
        let content = content(size);
        let write = |to: &mut dyn Write| content.chunks(1_000_003).try_for_each(|piece| to.write_all(piece));
        let (least, most) = place.blobs.room_to_write(size as u64);
        ensure!(least <= most && most <= size as u64, "room for {size} bytes: {least} to {most}");
        for room in [least, most] {
            let (pinned, written) = place.blobs.publish_written(write, room).await?;
            ensure!(written == size as u64 && pinned.digest() == Digest::of(&content), "{size} bytes");
            ensure!(place.whole(&pinned.digest()).await? == content, "{size} bytes");
            place.blobs.delete(&pinned.digest()).await?;
        }
    }
    Ok(())
}

async fn nothing_is_a_blob_too(place: Place) -> Result<()> {
    let pinned = place.blobs.publish_bytes(Bytes::new()).await?;
    ensure!(place.whole(&pinned.digest()).await?.is_empty());
    ensure!(place.blobs.read(&pinned.digest(), 0..0).await?.is_empty());
    Ok(())
}

async fn publishing_twice_is_publishing_once(place: Place) -> Result<()> {
    let digest = Digest::of(b"weft");
    for _ in 0..2 {
        let _pinned = place.blobs.publish(&place.stage(b"weft")?, &digest).await?;
    }
    ensure!(place.blobs.list().await? == [digest]);
    Ok(())
}

async fn a_file_under_a_false_name_is_refused(place: Place) -> Result<()> {
    let refused = place.blobs.publish(&place.stage(b"weft")?, &Digest::of(b"warp")).await;
    ensure!(matches!(refused, Err(BlobError::Mismatch { .. })), "{refused:?}");
    ensure!(place.blobs.list().await?.is_empty());
    Ok(())
}

async fn a_large_file_under_a_false_name_is_refused(place: Place) -> Result<()> {
    let refused = place.blobs.publish(&place.stage(&content(LARGE))?, &Digest::of(b"warp")).await;
    ensure!(matches!(refused, Err(BlobError::Mismatch { .. })), "{refused:?}");
    ensure!(place.blobs.list().await?.is_empty());
    Ok(())
}

async fn a_blob_of_another_length_is_replaced(place: Place) -> Result<()> {
    let pinned = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?;
    place.damage(&pinned.digest(), b"we").await?;
    let pinned = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?;
    ensure!(place.whole(&pinned.digest()).await? == b"weft");
    Ok(())
}

async fn a_part_is_read(place: Place) -> Result<()> {
    let content = content(100_000);
    let digest = place.blobs.publish_bytes(content.clone().into()).await?.digest();
    for range in [0..1, 0..100_000, 99_999..100_000, 5_000..70_000, 100_000..100_000] {
        let expected = &content[range.start as usize..range.end as usize];
        ensure!(place.blobs.read(&digest, range.clone()).await? == expected, "{range:?}");
        ensure!(place.read_blocking(digest, range.clone()).await?? == expected, "{range:?}");
    }
    Ok(())
}

async fn a_part_beyond_the_end_is_refused(place: Place) -> Result<()> {
    let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
    for range in [0..5, 3..u64::MAX, 4..5, 5..6, u64::MAX - 1..u64::MAX, 5..5] {
        let refused = place.blobs.read(&digest, range.clone()).await;
        ensure!(matches!(refused, Err(BlobError::OutOfRange { size: 4, .. })), "{range:?}: {refused:?}");
        let refused = place.read_blocking(digest, range.clone()).await?;
        ensure!(refused.is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof), "{range:?}");
    }
    Ok(())
}

#[expect(clippy::reversed_empty_ranges, reason = "that is what must be refused")]
async fn a_part_that_ends_before_it_begins_is_refused(place: Place) -> Result<()> {
    let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
    ensure!(matches!(place.blobs.read(&digest, 3..2).await, Err(BlobError::OutOfRange { .. })));
    ensure!(place.read_blocking(digest, 3..2).await?.is_err());
    Ok(())
}

async fn what_is_missing_is_said_to_be(place: Place) -> Result<()> {
    let digest = Digest::of(b"never");
    ensure!(matches!(place.blobs.open(&digest).await.err(), Some(BlobError::NotFound(_))));
    ensure!(matches!(place.blobs.size(&digest).await, Err(BlobError::NotFound(_))));
    ensure!(matches!(place.blobs.read(&digest, 0..1).await, Err(BlobError::NotFound(_))));
    ensure!(matches!(place.blobs.read(&digest, 0..0).await, Err(BlobError::NotFound(_))));
    let read = place.read_blocking(digest, 0..1).await?;
    ensure!(read.is_err_and(|error| error.kind() == ErrorKind::NotFound));
    Ok(())
}

async fn what_is_missing_cannot_be_pinned(place: Place) -> Result<()> {
    ensure!(matches!(place.blobs.pin(&Digest::of(b"never")).await, Err(BlobError::NotFound(_))));
    Ok(())
}

async fn what_was_deleted_is_gone(place: Place) -> Result<()> {
    let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
    place.blobs.delete(&digest).await?;
    place.blobs.delete(&digest).await?;
    ensure!(place.blobs.size(&digest).await.is_err() && place.blobs.list().await?.is_empty());
    Ok(())
}

async fn every_blob_is_listed(place: Place) -> Result<()> {
    let mut published = Vec::new();
    for number in 0..20 {
        published.push(place.blobs.publish_bytes(vec![number].into()).await?.digest());
    }
    let mut listed = place.blobs.list().await?;
    published.sort();
    listed.sort();
    ensure!(listed == published);
    Ok(())
}

async fn nothing_is_collected_before_the_referrers_are_known(place: Place) -> Result<()> {
    let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
    ensure!(place.blobs.collect(&[digest]).await? == 0 && place.blobs.sweep().await? == 0);
    ensure!(place.blobs.list().await? == [digest]);
    Ok(())
}

async fn what_nobody_needs_is_collected(place: Place) -> Result<()> {
    place.refer();
    let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
    ensure!(place.blobs.collect(&[digest, digest]).await? == 1);
    ensure!(place.blobs.list().await?.is_empty());
    Ok(())
}

async fn what_is_referred_to_is_kept(place: Place) -> Result<()> {
    let references = place.refer();
    let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
    references.add(digest);
    ensure!(place.blobs.collect(&[digest]).await? == 0 && place.blobs.sweep().await? == 0);
    ensure!(place.whole(&digest).await? == b"weft");
    Ok(())
}

async fn what_is_pinned_is_kept(place: Place) -> Result<()> {
    place.refer();
    let published = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?;
    let digest = published.digest();
    let pinned = place.blobs.pin(&digest).await?;
    drop(published);
    ensure!(place.blobs.collect(&[digest]).await? == 0 && place.blobs.sweep().await? == 0);
    drop(pinned);
    ensure!(place.blobs.collect(&[digest]).await? == 1);
    Ok(())
}

async fn a_sweep_removes_only_what_nobody_needs(place: Place) -> Result<()> {
    let references = place.refer();
    let kept = place.blobs.publish_bytes(Bytes::from_static(b"kept")).await?.digest();
    references.add(kept);
    for number in 0..5 {
        let _pinned = place.blobs.publish_bytes(vec![number].into()).await?;
    }
    ensure!(place.blobs.sweep().await? == 5);
    ensure!(place.blobs.list().await? == [kept]);
    Ok(())
}

/// Eight that publish, refer to, read, forget and collect the same three blobs, and one that sweeps all the time.
async fn a_blob_is_there_however_often_the_same_is_published_and_collected(place: Place) -> Result<()> {
    const ROUNDS: usize = 25;
    let references = place.refer();
    let sweeping = tokio::spawn({
        let blobs = place.blobs.clone();
        async move {
            loop {
                blobs.sweep().await?;
                tokio::task::yield_now().await;
            }
            #[expect(unreachable_code, reason = "it says what the task returns")]
            anyhow::Ok(())
        }
    });
    let worker = |number: usize| {
        let (blobs, references) = (place.blobs.clone(), references.clone());
        async move {
            for round in 0..ROUNDS {
                let content = vec![(number + round) as u8 % 3; 1_000];
                let pinned = blobs.publish_bytes(content.clone().into()).await?;
                let digest = pinned.digest();
                references.add(digest);
                drop(pinned);
                let read = blobs.read(&digest, 0..1_000).await.with_context(|| format!("round {round}"))?;
                ensure!(read == content);
                references.remove(&digest);
                blobs.collect(&[digest]).await?;
            }
            anyhow::Ok(())
        }
    };
    let workers: Vec<_> = (0..8).map(|number| tokio::spawn(worker(number))).collect();
    for worker in workers {
        worker.await??;
    }
    ensure!(!sweeping.is_finished(), "a sweep failed");
    sweeping.abort();
    sweeping.await.ok();
    place.blobs.sweep().await?;
    ensure!(place.blobs.list().await?.is_empty());
    Ok(())
}

impl Place {
    /// Puts other bytes where a blob is, as a bad disk might.
    async fn damage(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        let hex = digest.hex();
        let name = format!("{}/{}", &hex[..2], &hex[2..]);
        match &self.server {
            Some(server) => std::fs::write(server.object(&format!("team/blobs/{name}")), bytes)?,
            // Nothing goes bad in memory; it is as if it were not there.
            None if !self.folder.path().join("blobs").exists() => self.blobs.delete(digest).await?,
            None => std::fs::write(self.folder.path().join("blobs").join(name), bytes)?,
        }
        Ok(())
    }
}

macro_rules! damage {
    ($($place:ident $test:ident,)+) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() -> Result<()> {
            let place = Place::$place()?;
            let digest = place.blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
            place.damage(&digest, b"wept").await?;
            let Err(error) = place.whole(&digest).await else { anyhow::bail!("it was not noticed") };
            let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            ensure!(kind == Some(ErrorKind::InvalidData) && error.to_string().contains("damaged"), "{error:?}");
            Ok(())
        }
    )+ };
}

damage! {
    folder a_damaged_file_is_noticed_at_its_end,
    s3 a_damaged_object_is_noticed_at_its_end,
}

#[tokio::test]
async fn a_file_that_is_not_named_like_a_blob_is_left_alone() -> Result<()> {
    let place = Place::folder()?;
    place.refer();
    let root = place.folder.path().join("blobs");
    let strays = [root.join("ab").join("readme"), root.join("AB").join("CD".repeat(31)), root.join("note")];
    for stray in &strays {
        std::fs::create_dir_all(stray.parent().context("no folder")?)?;
        std::fs::write(stray, "mine")?;
    }
    ensure!(place.blobs.sweep().await? == 0);
    ensure!(strays.iter().all(|stray| stray.exists()));
    Ok(())
}
