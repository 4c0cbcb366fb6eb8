//! A worker's side of an exchange: it cuts its contribution into parts and puts them into the channel, merges what it is
//! told to, and takes the results.
//!
//! It does what the coordinator's [`Barrier`](weft_core::sync::Barrier) orders and never waits for another worker: what
//! is asked for is there, or is told as missing. Numbers are shared, not copied, wherever the channel shares them: parts
//! are ranges of one vector, and results come as one piece for each shard.
//!
//! Merging computes on the thread that calls, which must be one that may.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt, stream};
use weft_core::sync::accumulate::{Accumulator, Arithmetic, Term};
use weft_core::sync::barrier::{MergePart, MergeResult};
use weft_core::sync::topology::{MergePlan, Source, shard_range};
use weft_core::sync::{Slot, Who};
use weft_core::usage::Stages;

use super::channel::{Channel, ChannelError, Content, Message, Numbers};

/// Transfers under way at once, in each direction.
const AT_ONCE: usize = 4;

/// Parts that are merged together, if as many are there. A merger that does not share memory with the others holds those
/// that it adds and those that have come meanwhile.
const TOGETHER: usize = 4;

/// Parts that a merger holds at once, at most, where they do not lie in memory that its workers share.
pub const PARTS_HELD: u64 = (AT_ONCE + TOGETHER) as u64;

/// Makes so many numbers of what a codec has written, or says why not.
pub type Decode = Arc<dyn Fn(&[u8], usize) -> Result<Vec<f32>, String> + Send + Sync>;

/// What a contribution looks like, the same for all workers and rounds of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Numbers of a contribution.
    pub elements: usize,
    /// How many of them, from the first, go through the codec. The others are buffers, which travel as they are.
    pub payload: usize,
    /// Shards begin at multiples of this: a codec's buckets are not cut.
    pub align: usize,
}

impl Layout {
    /// Numbers that no codec touches.
    pub fn plain(elements: usize) -> Self {
        Self { elements, payload: 0, align: 1 }
    }

    pub fn range(&self, shard: u32, shards: u32) -> Range<usize> {
        shard_range(shard, shards, self.elements, self.align)
    }

    /// How many numbers of a range go through the codec.
    fn coded(&self, range: &Range<usize>) -> usize {
        self.payload.clamp(range.start, range.end) - range.start
    }
}

/// What all workers of a job and its coordinator have in common, for one number of workers.
#[derive(Clone)]
pub struct Scheme {
    pub plan: Arc<MergePlan>,
    pub layout: Layout,
    pub arithmetic: Arithmetic,
    /// Where contributions are encoded.
    pub decode: Option<Decode>,
}

/// What a worker hands in.
#[derive(Clone, Debug)]
pub struct Offer {
    pub samples: u64,
    /// The whole vector, as others see it: if a codec encodes it, what comes out when it is decoded.
    pub numbers: Numbers,
    /// By shard, if a codec encodes it: what the codec made of the payload's part of the shard.
    pub encoded: Option<Vec<Bytes>>,
}

/// How long the steps of an exchange took one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// Putting parts of its contribution ("UL-shard").
    pub put_parts: Duration,
    /// Getting others' parts, and results of other merges ("DL-shard").
    pub get_parts: Duration,
    /// Merging them.
    pub merging: Duration,
    /// Putting what it has merged ("UL-aggr").
    pub put_results: Duration,
    /// Getting the results ("DL-grad").
    pub get_results: Duration,
}

impl ExchangeTimes {
    /// As stages of a worker that does nothing else.
    pub fn stages(&self) -> Stages {
        let Self { put_parts, get_parts, merging, put_results, get_results } = *self;
        Stages {
            put_parts: put_parts.as_secs_f64(),
            get_parts: get_parts.as_secs_f64(),
            merge: merging.as_secs_f64(),
            put_results: put_results.as_secs_f64(),
            get_results: get_results.as_secs_f64(),
            ..Stages::default()
        }
    }
}

/// What became of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The result is where others find it.
    Done,
    /// These were not there, or were damaged.
    Missing(Vec<Source>),
}

/// What became of taking the results of a round.
#[derive(Clone, Debug)]
pub enum Taken {
    Done(Results),
    /// The results of these merges were not there, or were damaged.
    Missing(Vec<usize>),
}

/// The results of a round: the merged vector, in pieces.
#[derive(Clone, Debug)]
pub struct Results {
    /// Of all contributions; with 0, the numbers mean nothing.
    pub samples: u64,
    /// One piece for each shard, in order.
    pub pieces: Vec<(Range<usize>, Numbers)>,
}

impl Results {
    /// Writes all of it over a vector of the same length.
    pub fn copy_into(&self, into: &mut [f32]) {
        for (range, numbers) in &self.pieces {
            if let Some(into) = into.get_mut(range.clone()).filter(|into| into.len() == numbers.len()) {
                into.copy_from_slice(numbers);
            }
        }
    }

    /// All of it as one vector, copied unless there is one piece.
    pub fn into_numbers(mut self) -> Numbers {
        if self.pieces.len() == 1
            && let Some((_, only)) = self.pieces.pop()
        {
            return only;
        }
        self.pieces.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect::<Vec<f32>>().into()
    }
}

/// What one worker has of the exchange.
pub struct Exchange {
    who: Who,
    scheme: Scheme,
    channel: Arc<dyn Channel>,
    round: u64,
    own: Option<Offer>,
    /// By merge: what it has merged in this round, with its samples.
    merged: BTreeMap<usize, (u64, Numbers)>,
    times: ExchangeTimes,
}

impl Exchange {
    pub fn new(who: Who, scheme: Scheme, channel: Arc<dyn Channel>) -> Self {
        let (own, merged, times) = (None, BTreeMap::new(), ExchangeTimes::default());
        Self { who, scheme, channel, round: 0, own, merged, times }
    }

    /// From the next round on.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        (self.scheme, self.own, self.merged) = (scheme, None, BTreeMap::new());
    }

    /// How long each step has taken since this was asked last.
    pub fn take_times(&mut self) -> ExchangeTimes {
        std::mem::take(&mut self.times)
    }

    /// Begins a round with this worker's contribution: puts every part of it that another worker merges into the channel.
    /// Results of the round before are let go of.
    pub async fn send(&mut self, round: u64, contribution: Offer) -> Result<(), ChannelError> {
        self.enter(round);
        self.own = Some(contribution);
        self.resend().await.map(drop)
    }

    /// Lets go of what belongs to an earlier round. A worker that hands nothing in may merge too.
    pub fn enter(&mut self, round: u64) {
        if round != self.round {
            self.merged.clear();
            (self.round, self.own) = (round, None);
        }
    }

    /// The latest round that it has to do with.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Numbers of a contribution.
    pub fn elements(&self) -> usize {
        self.scheme.layout.elements
    }

    /// Which numbers of the payload each shard has. Together they are all of it.
    pub fn payload_shards(&self) -> Vec<Range<usize>> {
        let Scheme { plan, layout, .. } = &self.scheme;
        let coded = |shard| {
            let range = layout.range(shard, plan.shards);
            range.start..range.start + layout.coded(&range)
        };
        (0..plan.shards).map(coded).collect()
    }

    /// What others see of a payload that is encoded, shard by shard.
    pub fn decode(&self, frames: &[Bytes]) -> Result<Vec<f32>, String> {
        let decode = self.scheme.decode.as_ref().ok_or("nothing decodes what was encoded")?;
        let mut numbers = Vec::with_capacity(self.scheme.layout.elements);
        for (frame, range) in frames.iter().zip(self.payload_shards()) {
            numbers.extend(decode(frame, range.len())?);
        }
        Ok(numbers)
    }

    /// Puts the parts of this round's contribution once more, because some of them were lost. `false` if there is none.
    pub async fn resend(&mut self) -> Result<bool, ChannelError> {
        let Some(own) = &self.own else { return Ok(false) };
        let began = Instant::now();
        let Scheme { plan, layout, .. } = &self.scheme;
        let worker = self.who.worker;
        let is_put = |shard: &u32| !plan.keeps(Source::Worker(worker), *shard, worker);
        // A part that counts nothing is not asked for.
        let shards = (0..plan.shards).filter(|shard| own.samples > 0 && is_put(shard));
        let part = |shard: u32| {
            let slot = slot(self.round, 0, shard, self.who);
            let why = || {
                format!("a contribution of {} numbers was handed in instead of {}", own.numbers.len(), layout.elements)
            };
            let message = part_of(own, layout, shard, plan.shards);
            Ok((slot, message.ok_or_else(|| ChannelError::Damaged { slot, why: why() })?))
        };
        let parts = shards.map(part).collect::<Result<Vec<(Slot, Message)>, ChannelError>>()?;
        let channel = &self.channel;
        let puts = parts.into_iter().map(|(slot, message)| channel.put(slot, message));
        let sent = stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await;
        self.times.put_parts += began.elapsed();
        sent.map(|_| true)
    }

    /// Merges the parts that the coordinator names, in their order, and puts the result where whoever takes it finds it.
    pub async fn merge(&mut self, merge: usize, parts: &[MergePart], total: u64) -> Result<MergeOutcome, ChannelError> {
        let plan = self.scheme.plan.clone();
        let Some(node) = plan.merges.get(merge) else { return Ok(MergeOutcome::Missing(Vec::new())) };
        let range = self.scheme.layout.range(node.shard, plan.shards);
        let mut accumulator = Accumulator::new(self.scheme.arithmetic, range.len(), total);
        let counted: Vec<&MergePart> = parts.iter().filter(|part| part.samples > 0).collect();
        let missing = self.add_parts(&counted, node.shard, &range, &mut accumulator).await?;
        if !missing.is_empty() {
            return Ok(MergeOutcome::Missing(missing));
        }
        let began = Instant::now();
        let is_last = plan.consumers(merge).is_empty();
        let result: Numbers = accumulator.finish(is_last).into();
        self.times.merging += began.elapsed();
        self.merged.insert(merge, (total, result.clone()));
        if !plan.keeps(Source::Merge(merge), node.shard, self.who.worker) {
            let began = Instant::now();
            let slot = slot(self.round, node.layer, node.shard, self.who);
            self.channel.put(slot, Message::plain(total, result)).await?;
            self.times.put_results += began.elapsed();
        }
        Ok(MergeOutcome::Done)
    }

    /// Adds parts in their order, each while the next ones are on their way. Returns those that are not to be had.
    async fn add_parts(
        &mut self,
        parts: &[&MergePart],
        shard: u32,
        range: &Range<usize>,
        accumulator: &mut Accumulator,
    ) -> Result<Vec<Source>, ChannelError> {
        let (mut missing, mut merging, began) = (Vec::new(), Duration::ZERO, Instant::now());
        let this = &*self;
        let gets: Vec<_> = parts.iter().map(|part| this.part(part, shard, range)).collect();
        let mut coming = stream::iter(gets).buffered(AT_ONCE).ready_chunks(TOGETHER);
        let mut parts = parts.iter();
        let mut found = coming.next().await;
        while let Some(numbers) = found {
            let numbers = numbers.into_iter().collect::<Result<Vec<Option<Numbers>>, ChannelError>>()?;
            let mut terms = Vec::with_capacity(numbers.len());
            for (numbers, part) in numbers.iter().zip(parts.by_ref()) {
                match numbers {
                    Some(numbers) => {
                        terms.push(Term { numbers, samples: part.samples, is_merged: part.layer > 0 });
                    }
                    None => missing.push(part.source),
                }
            }
            let add = async {
                let began = Instant::now();
                // All that is missing is told at once, so that it is made again at once.
                if missing.is_empty() {
                    accumulator.add(&terms);
                }
                merging += began.elapsed();
            };
            // The next transfers begin first.
            (found, ()) = join(coming.next(), add).await;
        }
        drop(coming);
        self.times.get_parts += began.elapsed().saturating_sub(merging);
        self.times.merging += merging;
        Ok(missing)
    }

    /// The numbers of a part; `None` if it is not to be had.
    async fn part(&self, part: &MergePart, shard: u32, range: &Range<usize>) -> Result<Option<Numbers>, ChannelError> {
        if let Some(kept) = self.kept(part, range) {
            return Ok(Some(kept));
        }
        let found = found(self.channel.get(slot(self.round, part.layer, shard, part.who)).await)?;
        let message = found.filter(|message| message.samples == part.samples);
        Ok(message.and_then(|message| self.scheme.numbers(message, range)))
    }

    /// A part that this worker has made itself, if it still has it.
    fn kept(&self, part: &MergePart, range: &Range<usize>) -> Option<Numbers> {
        if part.who != self.who {
            return None;
        }
        match part.source {
            Source::Worker(_) => {
                self.own.as_ref().filter(|own| own.samples == part.samples)?.numbers.slice(range.clone())
            }
            Source::Merge(merge) => {
                let (samples, numbers) = self.merged.get(&merge)?;
                (*samples == part.samples).then(|| numbers.clone())
            }
        }
    }

    /// Takes the results of the latest round that this worker has handed something in for.
    pub async fn take(&mut self, results: &[MergeResult]) -> Result<Taken, ChannelError> {
        let began = Instant::now();
        let taken = take(&*self.channel, &self.scheme, self.round, results, Some(self)).await;
        self.times.get_results += began.elapsed();
        taken
    }
}

/// Takes the results of a round for whoever is no worker: the coordinator.
pub async fn take_results(
    channel: &dyn Channel,
    scheme: &Scheme,
    round: u64,
    results: &[MergeResult],
) -> Result<Taken, ChannelError> {
    take(channel, scheme, round, results, None).await
}

async fn take(
    channel: &dyn Channel,
    scheme: &Scheme,
    round: u64,
    results: &[MergeResult],
    worker: Option<&Exchange>,
) -> Result<Taken, ChannelError> {
    let plan = &scheme.plan;
    let get = |shard: u32| async move {
        let range = scheme.layout.range(shard, plan.shards);
        let of_shard = || results.iter().filter(|result| result.shard == shard);
        // Peers have made one each, and every one has the same bits: their own is nearest.
        let own = worker.and_then(|worker| of_shard().find(|result| result.who == worker.who));
        let Some(result) = own.or_else(|| of_shard().next()) else { return Ok((range, None, None)) };
        let kept = worker.filter(|worker| result.who == worker.who).and_then(|worker| worker.merged.get(&result.merge));
        if let Some((samples, numbers)) = kept {
            return Ok((range, Some((*samples, numbers.clone())), Some(result.merge)));
        }
        let layer = plan.merges.get(result.merge).map_or(0, |merge| merge.layer);
        let message = found(channel.get(slot(round, layer, shard, result.who)).await)?;
        let piece = message.and_then(|message| Some((message.samples, scheme.numbers(message, &range)?)));
        Ok::<_, ChannelError>((range, piece, Some(result.merge)))
    };
    let shards: Vec<_> = (0..plan.shards).map(get).collect();
    let (mut pieces, mut missing, mut samples) = (Vec::with_capacity(shards.len()), Vec::new(), None);
    let mut taken = stream::iter(shards).buffered(AT_ONCE);
    while let Some((range, piece, merge)) = taken.try_next().await? {
        match piece {
            // All shards are merged of the same contributions.
            Some((of, numbers)) if samples.is_none_or(|samples| samples == of) => {
                samples = Some(of);
                pieces.push((range, numbers));
            }
            _ => missing.extend(merge),
        }
    }
    if pieces.len() < plan.shards as usize {
        return Ok(Taken::Missing(missing));
    }
    Ok(Taken::Done(Results { samples: samples.unwrap_or(0), pieces }))
}

impl Scheme {
    /// The numbers of a part, if they are as many as its range has.
    fn numbers(&self, message: Message, range: &Range<usize>) -> Option<Numbers> {
        let numbers = match message.payload {
            Content::Plain(numbers) if message.buffers.is_empty() => numbers,
            Content::Plain(_) => return None,
            Content::Encoded(bytes) => {
                let coded = self.layout.coded(range);
                let mut decoded = self.decode.as_ref()?(&bytes, coded).ok().filter(|decoded| decoded.len() == coded)?;
                decoded.extend_from_slice(&message.buffers);
                decoded.into()
            }
        };
        (numbers.len() == range.len()).then_some(numbers)
    }
}

fn slot(round: u64, layer: u32, shard: u32, who: Who) -> Slot {
    Slot { round, layer, shard, worker: who.worker, claim: who.claim }
}

/// The message of one shard of a contribution; `None` if the contribution is too short.
fn part_of(own: &Offer, layout: &Layout, shard: u32, shards: u32) -> Option<Message> {
    let range = layout.range(shard, shards);
    let coded = layout.coded(&range);
    match &own.encoded {
        Some(encoded) if coded > 0 => {
            let payload = Content::Encoded(encoded.get(shard as usize)?.clone());
            let buffers = own.numbers.slice(range.start + coded..range.end)?;
            Some(Message { samples: own.samples, payload, buffers })
        }
        _ => Some(Message::plain(own.samples, own.numbers.slice(range)?)),
    }
}

/// What was got. Damage is the same as nothing: it is made again.
pub(super) fn found(got: Result<Option<Message>, ChannelError>) -> Result<Option<Message>, ChannelError> {
    match got {
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "a part of an exchange is made again");
            Ok(None)
        }
        got => got,
    }
}

#[cfg(test)]
mod tests;
