//! What every backend must do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weft::params::bucket::{Contributed, Keeping};
use weft::params::{Bucket, Change, Entry, Expect, Form, MAX_CLAIMS, ParamError, Value, Write, counted};
use weft_gpu::DType;

use super::backends::{Place, account, key, on_all_backends};

const SOON: Duration = Duration::from_secs(20);

on_all_backends! {
    values_come_back_as_they_were_set,
    what_is_not_there_is_nothing,
    versions_grow_also_over_a_deletion,
    only_what_is_newer_is_fetched,
    a_value_is_set_only_if_it_is_as_expected,
    counters_count,
    what_is_no_counter_does_not_count,
    many_names_change_together_or_not_at_all,
    parts_of_a_value_are_read_without_the_rest,
    names_are_listed_page_by_page,
    contributions_count_once_and_are_summed_in_order,
    parts_that_do_not_fit_together_are_refused,
    what_is_there_can_be_drained,
    parts_that_cannot_be_summed_are_not_drained,
    a_barrier_opens_when_all_are_there,
    a_wait_ends_with_the_change_or_the_time,
    what_is_taken_is_taken_once,
    peers_see_what_each_said_last,
    what_expires_is_gone,
    an_older_claim_writes_no_more,
    an_epoch_never_comes_again,
    claims_are_counted_and_limited,
    a_tenant_that_is_gone_reads_and_writes_nothing,
    a_long_list_is_read_and_cleared_whole,
    spaces_do_not_see_each_other,
    bytes_are_counted_and_limited,
    a_name_cannot_be_changed_twice_at_once,
}

fn plain() -> Keeping {
    Keeping::default()
}

fn floats(values: &[f32]) -> Value {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Value::tensor(DType::F32, vec![values.len() as u64], data).expect("as many bytes as elements")
}

/// So large that it comes in pieces.
fn large(seed: u8) -> Value {
    let data: Vec<u8> =
        (0..9_000_001_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect();
    Value::bytes(data)
}

async fn must_get(bucket: &Bucket, name: &str) -> Result<Entry> {
    bucket.get(&key(name)).await?.with_context(|| format!("no `{name}`"))
}

async fn values_come_back_as_they_were_set(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let matrix = Value::tensor(DType::F16, vec![2, 3], vec![7; 12])?;
    let empty = Value::tensor(DType::U8, vec![0, 5], vec![])?;
    let values = [
        Value::bytes(vec![]),
        Value::bytes(b"\0\n\xff".to_vec()),
        floats(&[1.5, -0.0]),
        matrix,
        empty,
        Value::counter(-7),
        large(1),
    ];
    for (index, value) in values.iter().enumerate() {
        let name = format!("layer.{index}/weight");
        let version = bucket.set(key(&name), value.clone(), plain()).await?;
        let entry = must_get(&bucket, &name).await?;
        ensure!(entry.value == *value && entry.version == version, "{name}");
        let head = bucket.head(&key(&name)).await?.context("no head")?;
        ensure!(head == entry.head(), "{head:?}");
    }
    bucket.set(key("layer.6/weight"), large(2), plain()).await?;
    ensure!(must_get(&bucket, "layer.6/weight").await?.value == large(2));
    Ok(())
}

async fn what_is_not_there_is_nothing(place: Place) -> Result<()> {
    let bucket = place.bucket();
    bucket.set(key("a"), floats(&[1.0]), plain()).await?;
    let found = bucket.get_many(&[key("b"), key("a"), key("a/b")]).await?;
    ensure!(found[0].is_none() && found[1].is_some() && found[2].is_none());
    ensure!(bucket.head(&key("b")).await?.is_none());
    ensure!(bucket.get_range(&key("b"), 0..1).await?.is_none());
    ensure!(bucket.delete(&[key("b")]).await? == 0);
    ensure!(bucket.get_many(&[]).await?.is_empty());
    Ok(())
}

async fn versions_grow_also_over_a_deletion(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let mut last = 0;
    for round in 0..5 {
        let version = bucket.set(key("a"), floats(&[round as f32]), plain()).await?;
        ensure!(version > last, "{version} after {last}");
        last = version;
        ensure!(bucket.delete(&[key("a")]).await? == 1);
        ensure!(bucket.get(&key("a")).await?.is_none());
    }
    Ok(())
}

async fn only_what_is_newer_is_fetched(place: Place) -> Result<()> {
    let bucket = place.bucket();
    ensure!(bucket.get_if_newer(&key("a"), 0).await?.is_none());
    let first = bucket.set(key("a"), floats(&[1.0]), plain()).await?;
    ensure!(bucket.get_if_newer(&key("a"), 0).await?.is_some());
    ensure!(bucket.get_if_newer(&key("a"), first).await?.is_none());
    let second = bucket.set(key("a"), floats(&[2.0]), plain()).await?;
    let entry = bucket.get_if_newer(&key("a"), first).await?.context("it is newer")?;
    ensure!(entry.version == second && entry.value == floats(&[2.0]));
    Ok(())
}

async fn a_value_is_set_only_if_it_is_as_expected(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let first = bucket.compare_and_set(key("a"), Expect::Absent, floats(&[1.0]), plain()).await?;
    let refused = bucket.compare_and_set(key("a"), Expect::Absent, floats(&[2.0]), plain()).await;
    let Err(ParamError::Conflict { found, .. }) = &refused else { anyhow::bail!("{refused:?}") };
    ensure!(*found == Some(first));
    let second = bucket.compare_and_set(key("a"), Expect::Version(first), large(3), plain()).await?;
    let refused = bucket.compare_and_set(key("a"), Expect::Version(first), floats(&[3.0]), plain()).await;
    ensure!(matches!(refused, Err(ParamError::Conflict { .. })), "{refused:?}");
    let entry = must_get(&bucket, "a").await?;
    ensure!(entry.version == second && entry.value == large(3));
    let refused = bucket.compare_and_set(key("b"), Expect::Version(1), floats(&[3.0]), plain()).await;
    ensure!(matches!(refused, Err(ParamError::Conflict { found: None, .. })), "{refused:?}");
    Ok(())
}

async fn counters_count(place: Place) -> Result<()> {
    let bucket = place.bucket();
    for (by, sum) in [(5, 5), (-7, -2), (i64::MAX, i64::MAX - 2), (2, i64::MAX)] {
        ensure!(bucket.increment(key("n"), by).await? == sum, "{by}");
    }
    let refused = bucket.increment(key("n"), 1).await;
    ensure!(matches!(refused, Err(ParamError::Overflow(_))), "{refused:?}");
    ensure!(must_get(&bucket, "n").await?.value.count() == Some(i64::MAX));
    bucket.set(key("n"), Value::counter(i64::MIN), plain()).await?;
    ensure!(bucket.increment(key("n"), i64::MAX).await? == -1);
    ensure!(bucket.take(&[key("n")]).await?[0].as_ref().and_then(|entry| entry.value.count()) == Some(-1));
    ensure!(bucket.increment(key("n"), 3).await? == 3, "it begins anew");
    Ok(())
}

async fn what_is_no_counter_does_not_count(place: Place) -> Result<()> {
    let bucket = place.bucket();
    bucket.set(key("w"), floats(&[1.0]), plain()).await?;
    let refused = bucket.increment(key("w"), 1).await;
    let Err(error @ ParamError::WrongForm { .. }) = &refused else { anyhow::bail!("{refused:?}") };
    ensure!(error.to_string().contains("f32 [1]"), "{error}");
    ensure!(must_get(&bucket, "w").await?.value == floats(&[1.0]));
    Ok(())
}

async fn many_names_change_together_or_not_at_all(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let versions = bucket.set_many(vec![(key("a"), floats(&[1.0])), (key("b"), large(4))], plain()).await?;
    ensure!(versions.len() == 2);
    let set = |value: Value| Change::Set { value, expires: None };
    let write = Write {
        checks: vec![(key("a"), Expect::Version(versions[0])), (key("b"), Expect::Version(versions[0]))],
        changes: vec![(key("a"), set(floats(&[9.0]))), (key("c"), set(floats(&[9.0])))],
        ..Write::default()
    };
    let refused = bucket.write(write).await;
    let Err(ParamError::Conflict { key: at, .. }) = &refused else { anyhow::bail!("{refused:?}") };
    ensure!(*at == key("b"));
    ensure!(must_get(&bucket, "a").await?.value == floats(&[1.0]) && bucket.get(&key("c")).await?.is_none());
    let found = bucket.get_many(&[key("b"), key("a")]).await?;
    ensure!(found[0].as_ref().is_some_and(|entry| entry.value == large(4)));
    ensure!(bucket.delete(&[key("a"), key("b"), key("x")]).await? == 2);
    Ok(())
}

async fn parts_of_a_value_are_read_without_the_rest(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let whole = large(5);
    bucket.set(key("large"), whole.clone(), plain()).await?;
    bucket.set(key("small"), Value::bytes(b"0123456789".to_vec()), plain()).await?;
    const PIECE: u64 = 4 << 20;
    let end = whole.data.len() as u64;
    for range in [
        0..0,
        0..10,
        PIECE - 1..PIECE,
        PIECE - 1..PIECE + 1,
        PIECE..2 * PIECE,
        5..end - 5,
        end - 1..end,
        end..end,
        0..end,
    ] {
        let part = bucket.get_range(&key("large"), range.clone()).await?.context("it is there")?;
        ensure!(
            part.value.form == Form::Bytes && part.value.data == whole.data[range.start as usize..range.end as usize],
            "{range:?}"
        );
    }
    ensure!(bucket.get_range(&key("small"), 3..5).await?.context("it is there")?.value.data == "34");
    for (name, range) in [("large", 0..end + 1), ("small", 9..11), ("small", u64::MAX - 1..u64::MAX)] {
        let refused = bucket.get_range(&key(name), range).await;
        ensure!(matches!(refused, Err(ParamError::BadRange { .. })), "{refused:?}");
    }
    Ok(())
}

async fn names_are_listed_page_by_page(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let names: Vec<String> = (0..25).map(|index| format!("layer/{index:02}")).collect();
    bucket.set_many(names.iter().map(|name| (key(name), floats(&[1.0, 2.0]))).collect(), plain()).await?;
    for other in ["layer", "layes", "a", "z"] {
        bucket.set(key(other), Value::bytes(vec![1]), plain()).await?;
    }
    bucket.contribute(&key("layer/round"), 0, floats(&[1.0]), plain()).await?;
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = bucket.list("layer/", after.as_ref(), 10).await?;
        pages += 1;
        found.extend(page.items);
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    ensure!(pages == 3 && found.iter().map(|(key, _)| key.to_string()).eq(names.iter().cloned()), "{found:?}");
    ensure!(found.iter().all(|(_, head)| head.bytes == 8 && head.form.to_string() == "f32 [2]"));
    let all = bucket.list("", None, 1_000).await?;
    ensure!(all.items.len() == 29 && all.next.is_none(), "{} names", all.items.len());
    ensure!(bucket.list("layer/x", None, 10).await?.items.is_empty());
    Ok(())
}

async fn contributions_count_once_and_are_summed_in_order(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let round = key("round/1");
    let part = |worker: u32| floats(&[(worker as f32 + 0.1).sin() * 1e8, (worker as f32).cos(), 1e-8]);
    // Not in the order of the workers, and some twice, with other values.
    for worker in [3, 0, 2] {
        ensure!(bucket.contribute(&round, worker, part(worker), plain()).await? == Contributed::Counted);
        let again = bucket.contribute(&round, worker, floats(&[9e9, 9e9, 9e9]), plain()).await?;
        ensure!(again == Contributed::Already);
    }
    let early = bucket.merged(&round, 4, Duration::from_millis(50)).await;
    let Err(error @ ParamError::TimedOut { .. }) = &early else { anyhow::bail!("{early:?}") };
    ensure!(error.to_string().contains("of whose 4 parts 3 are there"), "{error}");
    let waiting = {
        let (bucket, round) = (bucket.clone(), round.clone());
        tokio::spawn(async move { bucket.merged(&round, 4, SOON).await })
    };
    ensure!(bucket.contribute(&round, 1, part(1), plain()).await? == Contributed::Counted);
    let merged = waiting.await??;
    let expected: Vec<f32> = (0..3)
        .map(|index| {
            let element = |worker: u32| {
                f32::from_le_bytes(part(worker).data[index * 4..index * 4 + 4].try_into().expect("four bytes"))
            };
            (1..4).fold(element(0), |sum, worker| sum + element(worker))
        })
        .collect();
    ensure!(merged.value == floats(&expected), "in the order of the workers");
    ensure!(bucket.merged(&round, 4, SOON).await?.value == merged.value, "for everybody the same");
    ensure!(bucket.contribute(&round, 1, part(1), plain()).await? == Contributed::Closed);
    ensure!(bucket.delete(&[round]).await? == 1);
    ensure!(place.store.used(&place.tenant).await? == 0, "the parts are gone");
    Ok(())
}

async fn parts_that_do_not_fit_together_are_refused(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let round = key("round");
    bucket.contribute(&round, 0, floats(&[1.0]), plain()).await?;
    bucket.contribute(&round, 1, floats(&[1.0, 2.0]), plain()).await?;
    let refused = bucket.merged(&round, 2, SOON).await;
    ensure!(matches!(refused, Err(ParamError::WrongForm { .. })), "{refused:?}");
    Ok(())
}

async fn parts_that_cannot_be_summed_are_not_drained(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let round = key("round");
    bucket.contribute(&round, 0, floats(&[1.0]), plain()).await?;
    bucket.contribute(&round, 1, floats(&[1.0, 2.0]), plain()).await?;
    let refused = bucket.drain(&round, 2).await;
    ensure!(matches!(refused, Err(ParamError::WrongForm { .. })), "{refused:?}");
    ensure!(bucket.contribute(&round, 0, floats(&[1.0]), plain()).await? == Contributed::Already, "it is still there");
    Ok(())
}

async fn what_is_there_can_be_drained(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let round = key("round");
    ensure!(bucket.drain(&round, 3).await?.is_none());
    bucket.contribute(&round, 2, floats(&[2.0]), plain()).await?;
    bucket.contribute(&round, 0, floats(&[1.0]), plain()).await?;
    let (sum, count) = bucket.drain(&round, 3).await?.context("two were there")?;
    ensure!(sum == floats(&[3.0]) && count == 2);
    ensure!(bucket.drain(&round, 3).await?.is_none());
    ensure!(
        bucket.contribute(&round, 0, floats(&[4.0]), plain()).await? == Contributed::Counted,
        "the next one counts again"
    );
    Ok(())
}

async fn a_barrier_opens_when_all_are_there(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let early = bucket.barrier(&key("b"), 0, 3, Duration::from_millis(50)).await;
    let Err(error @ ParamError::TimedOut { .. }) = &early else { anyhow::bail!("{early:?}") };
    ensure!(error.to_string().contains("1 of 3"), "{error}");
    let waiting: Vec<_> = (0..3)
        .map(|worker| {
            let bucket = bucket.clone();
            tokio::spawn(async move { bucket.barrier(&key("b"), worker, 3, SOON).await })
        })
        .collect();
    for waiting in waiting {
        waiting.await??;
    }
    Ok(())
}

async fn a_wait_ends_with_the_change_or_the_time(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let early = bucket.wait_newer(&key("a"), 0, Duration::from_millis(50)).await;
    ensure!(matches!(early, Err(ParamError::TimedOut { .. })), "{early:?}");
    let mut known = 0;
    for round in 0..10 {
        let waiting = {
            let bucket = bucket.clone();
            tokio::spawn(async move { bucket.wait_newer(&key("a"), known, SOON).await })
        };
        bucket.set(key("other"), floats(&[0.0]), plain()).await?;
        known = bucket.set(key("a"), floats(&[round as f32]), plain()).await?;
        let entry = waiting.await??;
        ensure!(entry.version == known && entry.value == floats(&[round as f32]));
    }
    Ok(())
}

async fn what_is_taken_is_taken_once(place: Place) -> Result<()> {
    let bucket = place.bucket();
    for value in [floats(&[1.0]), large(6)] {
        bucket.set(key("a"), value.clone(), plain()).await?;
        let takers: Vec<_> = (0..8)
            .map(|_| {
                let bucket = bucket.clone();
                tokio::spawn(async move { bucket.take(&[key("a")]).await })
            })
            .collect();
        let mut taken = Vec::new();
        for taker in takers {
            taken.extend(taker.await??.into_iter().flatten());
        }
        ensure!(taken.len() == 1 && taken[0].value == value, "{} times", taken.len());
    }
    Ok(())
}

async fn peers_see_what_each_said_last(place: Place) -> Result<()> {
    let bucket = place.bucket();
    ensure!(bucket.latest(&key("gradient")).await?.is_empty());
    for (peer, value) in [(2, 1.0), (0, 2.0), (2, 3.0), (10, 4.0)] {
        bucket.publish(&key("gradient"), peer, floats(&[value]), plain()).await?;
    }
    bucket.publish(&key("gradient2"), 5, floats(&[5.0]), plain()).await?;
    let latest = bucket.latest(&key("gradient")).await?;
    let found: Vec<(u32, Value)> = latest.into_iter().map(|(peer, entry)| (peer, entry.value)).collect();
    ensure!(found == [(0, floats(&[2.0])), (2, floats(&[3.0])), (10, floats(&[4.0]))], "{found:?}");
    Ok(())
}

async fn what_expires_is_gone(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let brief = Keeping { expires: Some(Duration::from_millis(150)), ..plain() };
    bucket.set(key("brief"), large(7), brief).await?;
    bucket.set(key("later"), floats(&[1.0]), plain()).await?;
    bucket.set(key("never"), floats(&[1.0]), brief).await?;
    bucket.contribute(&key("round"), 0, floats(&[1.0]), brief).await?;
    let head = bucket.head(&key("later")).await?.context("it is there")?;
    ensure!(bucket.expire(&[key("later"), key("absent")], brief.expires).await? == 1);
    ensure!(bucket.expire(&[key("never")], None).await? == 1);
    ensure!(bucket.head(&key("later")).await?.is_some_and(|now| now.version == head.version && now.expires.is_some()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let found = bucket.get_many(&[key("brief"), key("later"), key("never")]).await?;
    ensure!(found[0].is_none() && found[1].is_none() && found[2].is_some(), "{found:?}");
    ensure!(bucket.list("", None, 10).await?.items.len() == 1);
    let refused = bucket.compare_and_set(key("later"), Expect::Version(head.version), floats(&[1.0]), plain()).await;
    ensure!(matches!(refused, Err(ParamError::Conflict { found: None, .. })), "{refused:?}");
    place.store.collect().await?;
    ensure!(
        place.store.used(&place.tenant).await? == counted(&key("never"), floats(&[1.0]).stored_bytes()),
        "{}",
        place.store.used(&place.tenant).await?
    );
    ensure!(bucket.increment(key("brief"), 2).await? == 2, "as if it had never been");
    Ok(())
}

async fn an_older_claim_writes_no_more(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let first = bucket.claimed(&key("worker/0")).await?;
    let other = bucket.claimed(&key("worker/1")).await?;
    first.set(key("a"), floats(&[1.0]), plain()).await?;
    let second = bucket.claimed(&key("worker/0")).await?;
    for refused in [
        first.set(key("a"), floats(&[2.0]), plain()).await.map(drop),
        first.set(key("a"), large(8), plain()).await.map(drop),
        first.delete(&[key("a")]).await.map(drop),
        first.increment(key("n"), 1).await.map(drop),
        first.contribute(&key("r"), 0, floats(&[1.0]), plain()).await.map(drop),
    ] {
        let Err(ParamError::Fenced { epoch, newest, .. }) = &refused else { anyhow::bail!("{refused:?}") };
        ensure!(epoch < newest);
    }
    ensure!(must_get(&bucket, "a").await?.value == floats(&[1.0]) && bucket.get(&key("n")).await?.is_none());
    second.set(key("a"), floats(&[3.0]), plain()).await?;
    other.set(key("a"), floats(&[4.0]), plain()).await?;
    ensure!(must_get(&first, "a").await?.value == floats(&[4.0]), "whoever was replaced can still read");
    Ok(())
}

async fn an_epoch_never_comes_again(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let first = bucket.claimed(&key("worker")).await?;
    bucket.clear().await?;
    let second = bucket.claimed(&key("worker")).await?;
    let epoch = |bucket: &Bucket| bucket.fence().map(|fence| fence.epoch);
    ensure!(epoch(&first) < epoch(&second), "{:?} and then {:?}", epoch(&first), epoch(&second));
    let zombie = first.set(key("a"), floats(&[1.0]), plain()).await;
    ensure!(matches!(zombie, Err(ParamError::Fenced { .. })), "{zombie:?}");
    second.set(key("a"), floats(&[2.0]), plain()).await?;
    Ok(())
}

async fn claims_are_counted_and_limited(place: Place) -> Result<()> {
    let account = account(2_000);
    let bucket = Bucket::new(place.store.clone(), place.space("poor"), account.clone());
    for claim in ["a", "b", "c", "a"] {
        bucket.claimed(&key(claim)).await?;
    }
    ensure!(place.store.used(&place.tenant).await? == 3 * counted(&key("a"), 0));
    let refused = bucket.claimed(&key("d")).await.map(drop);
    ensure!(matches!(refused, Err(ParamError::OverLimit(_))), "{refused:?}");
    bucket.clear().await?;
    ensure!(place.store.used(&place.tenant).await? == 0 && account.used() == 0);
    let bucket = place.bucket();
    for claim in 0..MAX_CLAIMS {
        bucket.claimed(&key(&format!("claim/{claim}"))).await?;
    }
    let refused = bucket.claimed(&key("another")).await.map(drop);
    ensure!(matches!(&refused, Err(ParamError::TooMany { what, .. }) if what.contains("max_claims")), "{refused:?}");
    bucket.claimed(&key("claim/7")).await?;
    bucket.clear().await?;
    ensure!(place.store.used(&place.tenant).await? == 0);
    Ok(())
}

async fn a_tenant_that_is_gone_reads_and_writes_nothing(place: Place) -> Result<()> {
    let (bucket, stranger) = (place.bucket(), weft::tenant::StoreId::random()?);
    let space = weft::params::Space::of_job(stranger, "job".parse()?);
    let other = Bucket::new(place.store.clone(), space, place.account.clone());
    for bucket in [&bucket, &other] {
        bucket.set(key("a"), floats(&[1.0]), plain()).await?;
        bucket.set(key("large"), large(1), plain()).await?;
        bucket.claimed(&key("worker")).await?;
    }
    let waiting = {
        let bucket = place.bucket();
        tokio::spawn(async move { bucket.wait_newer(&key("new"), 0, 3 * SOON).await })
    };
    let claimed_only = Bucket::new(place.store.clone(), place.space("claims"), place.account.clone());
    claimed_only.claimed(&key("worker")).await?;
    place.store.end(&place.tenant).await?;
    let waited = tokio::time::timeout(SOON, waiting).await.context("it still waits")??;
    ensure!(matches!(waited, Err(ParamError::Ended)), "{waited:?}");
    for refused in [
        bucket.set(key("a"), floats(&[2.0]), plain()).await.map(drop),
        bucket.set(key("large"), large(2), plain()).await.map(drop),
        bucket.get(&key("a")).await.map(drop),
        bucket.head(&key("a")).await.map(drop),
        bucket.list("", None, 10).await.map(drop),
        bucket.increment(key("n"), 1).await.map(drop),
        bucket.claimed(&key("worker")).await.map(drop),
    ] {
        ensure!(matches!(refused, Err(ParamError::Ended)), "{refused:?}");
    }
    ensure!(place.store.used(&place.tenant).await? == 0 && place.store.spaces(&place.tenant).await?.is_empty());
    // It is gone once and for all.
    place.store.end(&place.tenant).await?;
    ensure!(must_get(&other, "large").await?.value == large(1));
    Ok(())
}

async fn a_long_list_is_read_and_cleared_whole(place: Place) -> Result<()> {
    const NAMES: usize = 3_000;
    let bucket = place.bucket();
    let value = |number: usize| Value::bytes(vec![number as u8; 10_000]);
    let names: Vec<_> = (0..NAMES).map(|number| key(&format!("name/{number:05}"))).collect();
    for (index, names) in names.chunks(500).enumerate() {
        let values = names.iter().enumerate().map(|(at, name)| (name.clone(), value(index * 500 + at))).collect();
        bucket.set_many(values, plain()).await?;
    }
    let found = bucket.get_many(&names).await?;
    for (number, entry) in found.iter().enumerate() {
        ensure!(entry.as_ref().is_some_and(|entry| entry.value == value(number)), "{number}");
    }
    drop(found);
    let page = bucket.list("name/", None, 1_000).await?;
    ensure!(page.items.len() == 1_000 && page.next == Some(names[999].clone()), "{:?}", page.next);
    // What has expired is passed over, however much it is.
    bucket.expire(&names[..2_500], Some(Duration::from_millis(1))).await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let left = bucket.list("", None, 1_000).await?.items;
    ensure!(left.len() == 500 && left[0].0 == names[2_500], "{}", left.len());
    bucket.clear().await?;
    ensure!(place.store.used(&place.tenant).await? == 0 && bucket.list("", None, 10).await?.items.is_empty());
    Ok(())
}

async fn spaces_do_not_see_each_other(place: Place) -> Result<()> {
    let jobs = ["one", "two"].map(|job| Bucket::new(place.store.clone(), place.space(job), place.account.clone()));
    let shared = weft::params::Space::of_tenant(place.tenant.clone());
    let stranger = weft::params::Space::of_job(weft::tenant::StoreId::random()?, "one".parse()?);
    let others = [shared, stranger].map(|space| Bucket::new(place.store.clone(), space, place.account.clone()));
    let all: Vec<&Bucket> = jobs.iter().chain(&others).collect();
    for (index, bucket) in all.iter().enumerate() {
        bucket.set(key("a"), floats(&[index as f32]), plain()).await?;
    }
    for (index, bucket) in all.iter().enumerate() {
        ensure!(must_get(bucket, "a").await?.value == floats(&[index as f32]));
        ensure!(bucket.list("", None, 10).await?.items.len() == 1);
    }
    let spaces = place.store.spaces(&place.tenant).await?;
    ensure!(spaces.len() == 3, "{spaces:?}");
    ensure!(all[0].clear().await? == 1 && all[0].get(&key("a")).await?.is_none());
    ensure!(
        must_get(all[1], "a").await?.value == floats(&[1.0]) && must_get(all[3], "a").await?.value == floats(&[3.0])
    );
    ensure!(place.store.spaces(&place.tenant).await?.len() == 2);
    Ok(())
}

async fn bytes_are_counted_and_limited(place: Place) -> Result<()> {
    let account = account(10_000);
    let bucket = Bucket::new(place.store.clone(), place.space("job"), account.clone());
    bucket.set(key("a"), Value::bytes(vec![1; 5_000]), plain()).await?;
    let used = counted(&key("a"), 5_000);
    ensure!(place.store.used(&place.tenant).await? == used);
    for refused in [
        bucket.set(key("b"), Value::bytes(vec![2; 5_000]), plain()).await.map(drop),
        bucket.set(key("b"), large(9), plain()).await.map(drop),
        bucket
            .set_many(vec![(key("b"), Value::bytes(vec![2; 2_500])), (key("c"), Value::bytes(vec![2; 2_500]))], plain())
            .await
            .map(drop),
    ] {
        let Err(ParamError::OverLimit(over)) = &refused else { anyhow::bail!("{refused:?}") };
        ensure!(over.name == "params_bytes" && over.limit == 10_000);
    }
    ensure!(place.store.used(&place.tenant).await? == used && bucket.get(&key("b")).await?.is_none());
    bucket.delete(&[key("a")]).await?;
    bucket.set(key("b"), Value::bytes(vec![2; 9_000]), plain()).await?;
    bucket.delete(&[key("b")]).await?;
    for count in 1..=20 {
        bucket.increment(key("n"), count).await?;
    }
    ensure!(place.store.used(&place.tenant).await? == counted(&key("n"), 8));
    bucket.clear().await?;
    ensure!(place.store.used(&place.tenant).await? == 0 && account.used() == 0);
    Ok(())
}

async fn a_name_cannot_be_changed_twice_at_once(place: Place) -> Result<()> {
    let bucket = place.bucket();
    let refused = bucket.set_many(vec![(key("a"), floats(&[1.0])), (key("a"), floats(&[2.0]))], plain()).await;
    ensure!(matches!(refused, Err(ParamError::Repeated(_))), "{refused:?}");
    ensure!(bucket.get(&key("a")).await?.is_none());
    Ok(())
}
