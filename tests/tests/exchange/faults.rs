//! What is refused, damaged or away: an error that says what it is, never other numbers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weft::blob::Blobs;
use weft::job::channel::{BlobsChannel, Channel, ChannelError, Message, StoreChannel};
use weft::params::bucket::Keeping;
use weft::params::embedded::Embedded;
use weft::params::{Bucket, Key, ParamStore, Space, Value};
use weft::tenant::{Account, Storage};
use weft_core::sync::Slot;
use weft_tests::redis::RedisServer;
use weft_tests::s3::{self, Mood};

use super::backends::{LIMIT, MOST, Place, Way, connect, run};

const SLOT: Slot = Slot { round: 1, layer: 0, shard: 0, worker: 0, claim: 1 };

fn large() -> Message {
    Message::plain(7, (0..2_300_000).map(|at| at as f32).collect::<Vec<f32>>())
}

fn bucket(store: Arc<dyn ParamStore>, account: Arc<Account>) -> Result<Bucket> {
    Ok(Bucket::new(store, Space::of_job("tenant".parse()?, "job".parse()?), account))
}

fn account(limit: u64) -> Arc<Account> {
    Account::new("params_bytes", limit, None)
}

/// The error of something that must fail.
async fn error<T>(work: impl Future<Output = Result<T, ChannelError>>) -> Result<ChannelError> {
    work.await.err().context("it worked")
}

#[test]
fn what_a_tenant_may_not_store_is_refused_by_name() -> Result<()> {
    run(async {
        let channel = StoreChannel::new(bucket(Embedded::in_memory(), account(1 << 20))?, 1);
        let refused = error(channel.put(SLOT, large())).await?;
        ensure!(refused.to_string().contains("`params_bytes`") && !refused.passes(), "{refused}");
        let storage = Storage::new(1 << 20);
        let channel = BlobsChannel::new(Blobs::memory().scratch("tenant/job"), storage.clone(), 1, MOST);
        let refused = error(channel.put(SLOT, large())).await?;
        ensure!(refused.to_string().contains("`stored_bytes`") && !refused.passes(), "{refused}");
        ensure!(storage.used() == 0 && channel.get(SLOT).await?.is_none());
        Ok(())
    })
}

#[test]
fn a_node_without_room_is_waited_for() -> Result<()> {
    run(async {
        let node = Account::new("max_memory", 1 << 20, None);
        let tenant = Account::new("params_bytes", LIMIT, Some(node));
        let channel = StoreChannel::new(bucket(Embedded::in_memory(), tenant)?, 1);
        let refused = error(channel.put(SLOT, large())).await?;
        ensure!(refused.passes(), "{refused}");
        Ok(())
    })
}

#[test]
fn the_embedded_store_shares_the_memory_of_a_message() -> Result<()> {
    run(async {
        let account = account(LIMIT);
        let channel = StoreChannel::new(bucket(Embedded::in_memory(), account.clone())?, 1);
        let numbers = Arc::new(vec![1.5_f32; 1_000_000]);
        channel.put(SLOT, Message::plain(1, numbers.clone())).await?;
        let got = channel.get(SLOT).await?.context("it was put")?;
        let weft::job::channel::Content::Plain(shared) = &got.payload else { anyhow::bail!("it was encoded") };
        ensure!(shared.as_ptr() == numbers.as_ptr(), "it was copied");
        // It counts until the last one who holds it lets go.
        channel.clear().await?;
        ensure!(account.used() > 4_000_000);
        drop(got);
        ensure!(account.used() == 0, "{}", account.used());
        Ok(())
    })
}

#[test]
fn a_tenant_neither_sees_nor_changes_what_its_job_exchanges() -> Result<()> {
    run(async {
        let store = Embedded::in_memory();
        let bucket = bucket(store, account(LIMIT))?;
        let channel = StoreChannel::new(bucket.clone(), 1);
        let message = Message::plain(1, vec![1.0_f32]);
        channel.put(SLOT, message.clone()).await?;
        bucket.set("of-the-tenant".parse()?, Value::counter(1), Keeping::default()).await?;
        let page = bucket.list("", None, 100).await?;
        ensure!(page.items.len() == 1 && page.next.is_none(), "{page:?}");
        for name in ["~x/00000000000000000001/00000000000000000001/0.0.0.1", "~x/", "~"] {
            ensure!(name.parse::<Key>().is_err(), "{name}");
            ensure!(bucket.list(name, None, 100).await?.items.is_empty(), "{name}");
        }
        // Its own names stay when the job's go, and deleting all of them is the same as losing them.
        channel.clear().await?;
        ensure!(channel.get(SLOT).await?.is_none() && bucket.list("", None, 100).await?.items.len() == 1);
        channel.put(SLOT, message).await?;
        bucket.clear().await?;
        ensure!(channel.get(SLOT).await?.is_none());
        Ok(())
    })
}

#[test]
fn snapshots_leave_out_what_is_exchanged() -> Result<()> {
    run(async {
        let folder = tempfile::tempdir()?;
        let open = || Embedded::open(folder.path(), |_| Some(account(LIMIT)));
        let store = open()?;
        let channel = StoreChannel::new(bucket(store.clone(), account(LIMIT))?, 1);
        channel.put(SLOT, large()).await?;
        bucket(store.clone(), account(LIMIT))?.set("kept".parse()?, Value::counter(1), Keeping::default()).await?;
        store.save().await?;
        ensure!(channel.get(SLOT).await?.is_some());
        drop((channel, store));
        let store = open()?;
        let bucket = bucket(store, account(LIMIT))?;
        ensure!(bucket.get(&"kept".parse()?).await?.is_some());
        ensure!(StoreChannel::new(bucket, 1).get(SLOT).await?.is_none());
        Ok(())
    })
}

#[test]
fn a_damaged_file_is_an_error() -> Result<()> {
    run(async {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("blobs");
        let blobs = Blobs::folder(root.clone(), folder.path().join("staging"))?;
        let channel = BlobsChannel::new(blobs.scratch("tenant/job"), Storage::new(LIMIT), 1, MOST);
        channel.put(SLOT, large()).await?;
        let file = root.join("scratch/tenant/job/1.1.0.0.0.1");
        let whole = std::fs::read(&file)?;
        for (at, what) in [(0, "magic"), (20, "header"), (5_000_000, "numbers")] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, damaged)?;
            let found = error(channel.get(SLOT)).await?;
            ensure!(found.is_damage() && !found.passes(), "{what}: {found}");
        }
        std::fs::write(&file, &whole[..whole.len() / 2])?;
        ensure!(error(channel.get(SLOT)).await?.is_damage());
        // So large that it is not even read.
        std::fs::File::options().write(true).open(&file)?.set_len(1 << 40)?;
        let found = error(channel.get(SLOT)).await?;
        ensure!(found.is_damage(), "{found}");
        std::fs::write(&file, &whole)?;
        ensure!(channel.get(SLOT).await? == Some(large()));
        Ok(())
    })
}

#[test]
fn a_start_deletes_what_an_earlier_one_has_left() -> Result<()> {
    run(async {
        for place in [Place::files().await?, Place::blob_memory().await?, Place::bucket().await?] {
            let Way::Blobs { blobs, .. } = &place.way else { continue };
            let kept = blobs.publish_bytes(b"a blob".to_vec().into()).await?;
            place.channel(1).put(SLOT, large()).await?;
            ensure!(blobs.list().await? == [kept.digest()], "what is exchanged is taken for a blob");
            ensure!(blobs.sweep_scratch().await? == 1);
            ensure!(blobs.scratch("tenant/job").list().await?.is_empty());
            ensure!(blobs.sweep_scratch().await? == 0);
            ensure!(blobs.list().await? == [kept.digest()], "a blob is gone");
        }
        Ok(())
    })
}

#[test]
fn a_bucket_that_is_away_passes() -> Result<()> {
    run(async {
        let mut server = s3::Server::start()?;
        let storage = Storage::new(LIMIT);
        let blobs = Blobs::s3(&server.place("node"))?;
        let channel = BlobsChannel::new(blobs.scratch("tenant/job"), storage.clone(), 1, MOST);
        server.set_mood(Mood::Busy(1));
        channel.put(SLOT, large()).await?;
        server.set_mood(Mood::Mute(1));
        ensure!(channel.get(SLOT).await? == Some(large()));
        server.stop();
        for away in [error(channel.put(SLOT, large())).await?, error(channel.get(SLOT)).await?] {
            ensure!(away.passes() && !away.is_damage(), "{away}");
        }
        ensure!(error(channel.forget(1)).await?.passes() && storage.used() > 0, "what may be there is not counted");
        Ok(())
    })
}

#[test]
fn a_redis_that_is_away_passes() -> Result<()> {
    run(async {
        let mut server = RedisServer::start()?;
        let store = connect(&server.address(), Duration::from_secs(1)).await?;
        let channel = StoreChannel::new(bucket(store, account(LIMIT))?, 1);
        channel.put(SLOT, large()).await?;
        server.kill()?;
        for away in [error(channel.put(SLOT, large())).await?, error(channel.get(SLOT)).await?] {
            ensure!(away.passes() && !away.is_damage(), "{away}");
        }
        Ok(())
    })
}

#[test]
fn what_a_redis_has_lost_is_made_again() -> Result<()> {
    run(async {
        let server = RedisServer::start()?;
        let store = connect(&server.address(), Duration::from_secs(5)).await?;
        let channel = StoreChannel::new(bucket(store.clone(), account(LIMIT))?, 1);
        channel.put(SLOT, large()).await?;
        // One chunk, as a server would that evicts.
        let keys = server.ask(&["--scan", "--pattern", "weft:chunk:*"])?;
        let chunk = keys.lines().next().context("no chunks")?;
        server.ask(&["DEL", chunk])?;
        ensure!(error(channel.get(SLOT)).await?.is_damage());
        channel.put(SLOT, large()).await?;
        // Other bytes of the same length.
        let keys = server.ask(&["--scan", "--pattern", "weft:chunk:*"])?;
        for chunk in keys.lines() {
            server.ask(&["SETRANGE", chunk, "100", "other"])?;
        }
        ensure!(error(channel.get(SLOT)).await?.is_damage());
        // Everything: until the tenant has said that it knows, it is told.
        server.ask(&["FLUSHALL"])?;
        ensure!(error(channel.get(SLOT)).await?.is_damage());
        ensure!(error(channel.put(SLOT, large())).await?.passes());
        store.accept_loss(&"tenant".parse()?).await?;
        channel.put(SLOT, large()).await?;
        ensure!(channel.get(SLOT).await? == Some(large()));
        Ok(())
    })
}
