//! What every channel must do.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use weft::job::channel::{Content, EVERY_ROUND, Message};
use weft_core::sync::Slot;

use super::backends::{Place, on_all_channels};

on_all_channels! {
    messages_come_back_as_they_were_put,
    what_is_not_there_is_nothing,
    a_slot_holds_what_was_put_last,
    every_part_of_a_name_counts,
    forgotten_rounds_are_gone_and_later_ones_stay,
    a_round_of_many_slots_is_forgotten_whole,
    whoever_comes_too_late_puts_nothing,
    runs_do_not_meet_and_are_cleared_together,
    many_may_put_and_get_at_once,
    what_goes_through_is_counted,
}

fn slot(round: u64, worker: u32) -> Slot {
    Slot { round, layer: 0, shard: 0, worker, claim: 1 }
}

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count).map(|at| ((at as f32) * 0.37 + seed as f32).sin()).collect()
}

fn small(seed: u32) -> Message {
    Message::plain(u64::from(seed), numbers(10, seed))
}

/// More than one chunk of a Redis has.
fn large(seed: u32) -> Message {
    Message::plain(7, numbers(2_300_000, seed))
}

async fn messages_come_back_as_they_were_put(place: Place) -> Result<()> {
    let channel = place.channel(1);
    let encoded = |bytes: usize| Message {
        samples: u64::MAX,
        payload: Content::Encoded(Bytes::from(vec![0xa5; bytes])),
        buffers: vec![1.5, -0.0, f32::INFINITY].into(),
    };
    let messages = [
        Message::plain(0, Vec::new()),
        small(3),
        Message::plain(1, numbers(20_000, 1)),
        large(2),
        encoded(5),
        encoded(100_003),
    ];
    for (worker, message) in (0..).zip(&messages) {
        channel.put(slot(1, worker), message.clone()).await?;
    }
    for (worker, message) in (0..).zip(&messages) {
        // Twice: getting takes nothing away.
        for _ in 0..2 {
            ensure!(channel.get(slot(1, worker)).await?.as_ref() == Some(message), "message {worker}");
        }
    }
    channel.forget(EVERY_ROUND).await?;
    place.must_be_empty().await
}

async fn what_is_not_there_is_nothing(place: Place) -> Result<()> {
    let channel = place.channel(1);
    ensure!(channel.get(slot(1, 0)).await?.is_none());
    channel.forget(0).await?;
    channel.clear().await?;
    place.must_be_empty().await
}

async fn a_slot_holds_what_was_put_last(place: Place) -> Result<()> {
    let channel = place.channel(1);
    for message in [large(1), small(2), large(3)] {
        channel.put(slot(1, 0), message.clone()).await?;
        ensure!(channel.get(slot(1, 0)).await? == Some(message));
    }
    channel.clear().await?;
    ensure!(channel.get(slot(1, 0)).await?.is_none());
    place.must_be_empty().await
}

async fn every_part_of_a_name_counts(place: Place) -> Result<()> {
    let channel = place.channel(1);
    let first = Slot { round: 1, layer: 1, shard: 11, worker: 1, claim: 1 };
    let others = [
        first,
        Slot { round: 11, ..first },
        Slot { layer: 11, ..first },
        Slot { shard: 1, ..first },
        Slot { worker: 11, ..first },
        Slot { claim: 11, ..first },
    ];
    for (seed, slot) in (0..).zip(others) {
        channel.put(slot, small(seed)).await?;
    }
    for (seed, slot) in (0..).zip(others) {
        ensure!(channel.get(slot).await? == Some(small(seed)), "{slot}");
    }
    Ok(())
}

async fn forgotten_rounds_are_gone_and_later_ones_stay(place: Place) -> Result<()> {
    let channel = place.channel(1);
    // Ten is after two, whatever letters say; and a claim that is over has left something, too.
    for round in [1, 2, 3, 10] {
        for claim in [1, 2] {
            channel.put(Slot { claim, ..slot(round, 0) }, small(round as u32)).await?;
        }
        channel.put(slot(round, 1), large(round as u32)).await?;
    }
    channel.forget(2).await?;
    for round in [1, 2, 3, 10] {
        for found in [slot(round, 0), Slot { claim: 2, ..slot(round, 0) }, slot(round, 1)] {
            ensure!(channel.get(found).await?.is_some() == (round > 2), "{found}");
        }
    }
    channel.forget(EVERY_ROUND).await?;
    place.must_be_empty().await
}

async fn a_round_of_many_slots_is_forgotten_whole(place: Place) -> Result<()> {
    let channel = place.channel(1);
    for worker in 0..1_203 {
        channel.put(slot(1, worker), small(worker)).await?;
    }
    channel.put(slot(2, 0), small(9)).await?;
    channel.forget(1).await?;
    ensure!(channel.get(slot(1, 1_202)).await?.is_none());
    ensure!(channel.get(slot(2, 0)).await? == Some(small(9)));
    channel.forget(2).await?;
    place.must_be_empty().await
}

async fn whoever_comes_too_late_puts_nothing(place: Place) -> Result<()> {
    let channel = place.channel(1);
    channel.forget(3).await?;
    channel.put(slot(3, 0), large(1)).await?;
    ensure!(channel.get(slot(3, 0)).await?.is_none());
    channel.put(slot(4, 0), small(1)).await?;
    ensure!(channel.get(slot(4, 0)).await?.is_some());
    channel.forget(EVERY_ROUND).await?;
    channel.put(slot(5, 0), small(1)).await?;
    place.must_be_empty().await
}

async fn runs_do_not_meet_and_are_cleared_together(place: Place) -> Result<()> {
    if !place.has_runs() {
        return Ok(());
    }
    let (before, after) = (place.channel(1), place.channel(11));
    before.put(slot(1, 0), small(1)).await?;
    before.put(slot(1, 1), large(1)).await?;
    ensure!(after.get(slot(1, 0)).await?.is_none());
    after.put(slot(1, 0), small(2)).await?;
    ensure!(before.get(slot(1, 0)).await? == Some(small(1)));
    after.forget(EVERY_ROUND).await?;
    ensure!(before.get(slot(1, 0)).await? == Some(small(1)), "another run's is deleted");
    drop(before);
    // As a job that starts anew: whatever is left of it goes.
    let anew = place.channel(12);
    anew.clear().await?;
    place.must_be_empty().await?;
    anew.put(slot(1, 0), small(3)).await?;
    ensure!(anew.get(slot(1, 0)).await? == Some(small(3)));
    anew.clear().await?;
    place.must_be_empty().await
}

async fn many_may_put_and_get_at_once(place: Place) -> Result<()> {
    let channel = place.channel(1);
    let workers: Vec<_> = (0..16)
        .map(|worker| {
            let channel = channel.clone();
            tokio::spawn(async move {
                for round in 1..=4 {
                    let message = Message::plain(round, numbers(30_000 * (worker as usize % 3), worker));
                    channel.put(slot(round, worker), message.clone()).await?;
                    let got = channel.get(slot(round, worker)).await?.context("it was put")?;
                    ensure!(got == message);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    channel.forget(4).await?;
    place.must_be_empty().await
}

async fn what_goes_through_is_counted(place: Place) -> Result<()> {
    let channel = place.channel(1);
    channel.put(slot(1, 0), small(1)).await?;
    channel.get(slot(1, 0)).await?;
    channel.get(slot(1, 0)).await?;
    channel.get(slot(1, 7)).await?;
    let traffic = channel.traffic();
    ensure!((traffic.puts, traffic.gets) == (1, 2), "{traffic:?}");
    ensure!((traffic.bytes_out, traffic.bytes_in) == (40, 80), "{traffic:?}");
    ensure!(traffic.seconds > 0.0);
    channel.clear().await?;
    place.must_be_empty().await
}
