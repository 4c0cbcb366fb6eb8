//! Workers of one process over a channel in memory, ordered by the real machine, one thing after the other.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use futures_util::FutureExt;
use weft_core::sync::topology::{Topology, plan};
use weft_core::sync::{Action, Barrier, Event, OnLoss, merge};

use super::super::channel::{ChannelTraffic, MemoryChannel};
use super::*;
use crate::locks::Lock;

const TOPOLOGIES: [&str; 9] =
    ["leader", "scatter", "scatter:1", "scatter:3", "scatter:16", "peers", "tree", "tree:paper", "tree:1,2,7"];
const WORKERS: u32 = 7;
const LENGTH: usize = 101;

/// A channel in memory that never waits, and loses or damages what it is told to.
#[derive(Default)]
struct Lossy {
    inner: MemoryChannel,
    /// Puts that are lost, by the text of their slot; each once.
    lost: Mutex<Vec<String>>,
    /// The same for gets that find damage.
    damaged: Mutex<Vec<String>>,
}

fn take_out(names: &Mutex<Vec<String>>, slot: Slot) -> bool {
    let mut names = names.locked();
    let at = names.iter().position(|name| *name == slot.to_string());
    at.map(|at| names.swap_remove(at)).is_some()
}

#[async_trait]
impl Channel for Lossy {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        if take_out(&self.lost, slot) { Ok(()) } else { self.inner.put(slot, message).await }
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        match take_out(&self.damaged, slot) {
            true => Err(ChannelError::Damaged { slot, why: "it was told to be".to_owned() }),
            false => self.inner.get(slot).await,
        }
    }

    async fn forget(&self, up_to_round: u64) -> Result<(), ChannelError> {
        self.inner.forget(up_to_round).await
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        self.inner.clear().await
    }

    fn traffic(&self) -> ChannelTraffic {
        self.inner.traffic()
    }
}

fn now<T>(future: impl Future<Output = Result<T, ChannelError>>) -> T {
    future.now_or_never().expect("memory does not wait").expect("memory does not fail")
}

fn contribution(worker: u32, samples: u64) -> Offer {
    let numbers: Vec<f32> = (0..LENGTH).map(|at| ((at as f32 + 1.0) * (worker as f32 + 0.7)).sin()).collect();
    Offer { samples, numbers: numbers.into(), encoded: None }
}

/// Ragged, and one worker has none.
fn samples(worker: u32) -> u64 {
    [5, 1, 0, 7, 3, 3, 11][worker as usize % 7]
}

fn scheme(topology: &str, workers: u32, arithmetic: Arithmetic) -> Scheme {
    let topology: Topology = topology.parse().unwrap();
    let plan = Arc::new(plan(&topology, workers).unwrap());
    Scheme { plan, layout: Layout::plain(LENGTH), arithmetic, decode: None }
}

fn arithmetic(topology: &str) -> Arithmetic {
    if topology.starts_with("tree") { Arithmetic::WeightedSum } else { Arithmetic::Mean }
}

/// The workers, and the machine that orders them about.
struct Field {
    scheme: Scheme,
    channel: Arc<Lossy>,
    barrier: Barrier,
    workers: Vec<Option<Exchange>>,
    hand_in: fn(u32) -> Offer,
    /// Workers that die when they are told to merge, each once.
    dying: Vec<u32>,
}

impl Field {
    fn new(scheme: Scheme, hand_in: fn(u32) -> Offer) -> Self {
        let (barrier, _) = Barrier::new(scheme.plan.workers, OnLoss::Wait, 3);
        let workers = (0..scheme.plan.workers).map(|_| None).collect();
        Self { scheme, channel: Arc::default(), barrier, workers, hand_in, dying: Vec::new() }
    }

    fn worker(&mut self, who: Who) -> &mut Exchange {
        let place = &mut self.workers[who.worker as usize];
        if place.as_ref().is_none_or(|exchange| exchange.who != who) {
            *place = Some(Exchange::new(who, self.scheme.clone(), self.channel.clone()));
        }
        place.as_mut().unwrap()
    }

    /// One round, and what each worker and the coordinator take from it.
    fn round(&mut self) -> Vec<Results> {
        let mut events: VecDeque<Event> =
            (0..self.scheme.plan.workers).filter_map(|worker| self.barrier.claim(worker)).map(Event::Ready).collect();
        let mut actions = self.barrier.begin(|_| true, Some(self.scheme.plan.clone()));
        loop {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Start(who) => events.push_back(Event::Ready(who)),
                    Action::Assign { who, round, generation } => {
                        let handed_in = (self.hand_in)(who.worker);
                        let samples = handed_in.samples;
                        let worker = self.worker(who);
                        if generation == 0 || !now(worker.resend()) {
                            now(worker.send(round, handed_in));
                        }
                        events.push_back(Event::Trained { who, round, generation, samples });
                    }
                    Action::Merge { who, .. } if self.dying.contains(&who.worker) => {
                        self.dying.retain(|worker| *worker != who.worker);
                        events.push_back(Event::Lost(who));
                    }
                    Action::Merge { who, round, merge, generation, parts, total } => {
                        events.push_back(match now(self.worker(who).merge(merge, &parts, total)) {
                            MergeOutcome::Done => Event::Merged { who, round, merge, generation },
                            MergeOutcome::Missing(sources) => Event::Missing { who, round, merge, generation, sources },
                        });
                    }
                    Action::Complete { round, results, .. } => match self.take(round, &results) {
                        Ok(taken) => return taken,
                        Err(merge) => events.push_back(Event::ResultMissing { round, merge }),
                    },
                    Action::Abandon(_) => {}
                    Action::GiveUp { worker, .. } => panic!("worker {worker} was given up"),
                }
            }
            let event = events.pop_front().expect("the round is stuck");
            actions = self.barrier.handle(event);
        }
    }

    fn take(&mut self, round: u64, results: &[MergeResult]) -> Result<Vec<Results>, usize> {
        let channel = self.channel.clone();
        let mut all = vec![match now(take_results(&*channel, &self.scheme, round, results)) {
            Taken::Done(results) => results,
            Taken::Missing(merges) => return Err(merges[0]),
        }];
        for exchange in self.workers.iter_mut().flatten().filter(|exchange| exchange.round == round) {
            match now(exchange.take(results)) {
                Taken::Done(results) => all.push(results),
                Taken::Missing(merges) => return Err(merges[0]),
            }
        }
        Ok(all)
    }
}

fn bits(results: &Results) -> Vec<u32> {
    results.clone().into_numbers().iter().map(|number| number.to_bits()).collect()
}

/// The mean of all contributions, merged at once.
fn mean(workers: u32) -> Vec<u32> {
    let all: Vec<Offer> = (0..workers).map(|worker| contribution(worker, samples(worker))).collect();
    let parts: Vec<(&[f32], u64)> = all.iter().map(|part| (&part.numbers[..], part.samples)).collect();
    let mut into = vec![0.0; LENGTH];
    merge::mean(&mut into, &parts);
    into.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn every_topology_but_trees_has_the_bits_of_one_merge() {
    for topology in TOPOLOGIES.iter().filter(|topology| !topology.starts_with("tree")) {
        let mut field =
            Field::new(scheme(topology, WORKERS, Arithmetic::Mean), |worker| contribution(worker, samples(worker)));
        for _ in 0..3 {
            for results in field.round() {
                assert_eq!(bits(&results), mean(WORKERS), "{topology}");
                assert_eq!(results.samples, (0..WORKERS).map(samples).sum::<u64>());
            }
        }
    }
}

#[test]
fn a_tree_is_close_to_the_mean_and_always_has_the_same_bits() {
    for topology in TOPOLOGIES.iter().filter(|topology| topology.starts_with("tree")) {
        let scheme = scheme(topology, WORKERS, Arithmetic::WeightedSum);
        let mut field = Field::new(scheme, |worker| contribution(worker, samples(worker)));
        let first = bits(&field.round()[0]);
        for (ours, mean) in first.iter().zip(mean(WORKERS)) {
            assert!((f32::from_bits(*ours) - f32::from_bits(mean)).abs() < 1e-6, "{topology}");
        }
        assert!(field.round().iter().all(|results| bits(results) == first), "{topology}");
    }
}

#[test]
fn statistics_are_added_up() {
    let hand_in = |worker| Offer { samples: 1, numbers: vec![worker as f32 + 0.5; LENGTH].into(), encoded: None };
    for topology in TOPOLOGIES {
        let mut field = Field::new(scheme(topology, WORKERS, Arithmetic::Sum), hand_in);
        for results in field.round() {
            assert!(results.into_numbers().iter().all(|sum| *sum == 24.5), "{topology}");
        }
    }
}

/// Every message of an undisturbed round, lost or damaged once, alone.
#[test]
fn whatever_is_lost_or_damaged_on_the_way_is_made_again() {
    for topology in TOPOLOGIES {
        let field = || {
            let scheme = scheme(topology, WORKERS, arithmetic(topology));
            Field::new(scheme, |worker| contribution(worker, samples(worker)))
        };
        let mut undisturbed = field();
        let expected = bits(&undisturbed.round()[0]);
        let plan = undisturbed.scheme.plan.clone();
        let own = (0..WORKERS).flat_map(|worker| (0..plan.shards).map(move |shard| (0, shard, worker)));
        let merged = plan.merges.iter().map(|merge| (merge.layer, merge.shard, merge.by));
        let mut disturbed = 0;
        for (layer, shard, worker) in own.chain(merged) {
            let name = Slot { round: 1, layer, shard, worker, claim: 1 }.to_string();
            for is_lost in [true, false] {
                let mut field = field();
                let names = if is_lost { &field.channel.lost } else { &field.channel.damaged };
                names.locked().push(name.clone());
                let taken = field.round();
                assert!(taken.iter().all(|results| bits(results) == expected), "{topology} {name}");
                let names = if is_lost { &field.channel.lost } else { &field.channel.damaged };
                disturbed += usize::from(names.locked().is_empty());
            }
        }
        assert!(disturbed > 0, "{topology}");
    }
}

#[test]
fn a_merger_that_dies_is_replaced_and_the_bits_stay() {
    for topology in TOPOLOGIES {
        let field = || {
            let scheme = scheme(topology, WORKERS, arithmetic(topology));
            Field::new(scheme, |worker| contribution(worker, samples(worker)))
        };
        let mut undisturbed = field();
        let expected = bits(&undisturbed.round()[0]);
        for merge in &undisturbed.scheme.plan.merges {
            let mut field = field();
            field.dying.push(merge.by);
            let taken = field.round();
            assert!(taken.iter().all(|results| bits(results) == expected), "{topology}: {}", merge.by);
        }
    }
}

/// A codec that keeps whole numbers, in one byte each.
fn encode(numbers: &[f32]) -> Bytes {
    numbers.iter().map(|number| number.round() as i8 as u8).collect::<Vec<u8>>().into()
}

#[test]
fn what_a_codec_has_made_is_merged_as_it_comes_out() {
    const PAYLOAD: usize = 90;
    fn hand_in(worker: u32) -> Offer {
        let layout = Layout { elements: LENGTH, payload: PAYLOAD, align: 8 };
        let exact: Vec<f32> = (0..LENGTH).map(|at| at as f32 / 3.0 - worker as f32).collect();
        let decoded: Vec<f32> =
            exact.iter().enumerate().map(|(at, number)| if at < PAYLOAD { number.round() } else { *number }).collect();
        let shards = 5;
        let encoded = (0..shards).map(|shard| {
            let range = layout.range(shard, shards);
            encode(&exact[range.start.min(PAYLOAD)..range.end.min(PAYLOAD)])
        });
        Offer { samples: 2, encoded: Some(encoded.collect()), numbers: decoded.into() }
    }
    let decode: Decode = Arc::new(|bytes, count| match bytes.len() == count {
        true => Ok(bytes.iter().map(|byte| f32::from(*byte as i8)).collect()),
        false => Err("another length".to_owned()),
    });
    let plain = scheme("scatter", 5, Arithmetic::Mean);
    let scheme =
        Scheme { layout: Layout { elements: LENGTH, payload: PAYLOAD, align: 8 }, decode: Some(decode), ..plain };
    let parts: Vec<Offer> = (0..5).map(hand_in).collect();
    let parts: Vec<(&[f32], u64)> = parts.iter().map(|part| (&part.numbers[..], part.samples)).collect();
    let mut expected = vec![0.0; LENGTH];
    merge::mean(&mut expected, &parts);
    let mut field = Field::new(scheme, hand_in);
    for results in field.round() {
        assert_eq!(&results.into_numbers()[..], expected);
    }
    // Each worker sends four parts of about 20 bytes; plain ones would have 80.
    assert!(field.channel.traffic().bytes_out < 5 * 4 * LENGTH as u64);
}

#[test]
fn in_memory_nothing_is_copied() {
    let scheme = scheme("scatter", 2, Arithmetic::Mean);
    let channel = Arc::new(MemoryChannel::new());
    let who = Who { worker: 1, claim: 1 };
    let mut exchange = Exchange::new(who, scheme, channel.clone());
    let handed_in = contribution(1, 3);
    now(exchange.send(1, handed_in.clone()));
    let put = now(channel.get(slot(1, 0, 0, who))).unwrap();
    let Content::Plain(numbers) = put.payload else { panic!("it was encoded") };
    assert_eq!(numbers.as_ptr(), handed_in.numbers.as_ptr());
    // It merges the other shard itself, and has not put it.
    assert_eq!(now(channel.get(slot(1, 0, 1, who))), None);
    assert_eq!(channel.traffic().puts, 1);
}

#[test]
fn a_part_with_other_samples_or_of_another_length_is_missing() {
    let channel = Arc::new(MemoryChannel::new());
    let mut leader = Exchange::new(Who { worker: 0, claim: 1 }, scheme("leader", 2, Arithmetic::Mean), channel.clone());
    now(leader.send(1, contribution(0, 2)));
    let other = Who { worker: 1, claim: 1 };
    let part = |worker, samples| {
        let (source, who) = (Source::Worker(worker), Who { worker, claim: 1 });
        MergePart { source, who, layer: 0, samples }
    };
    let parts = [part(0, 2), part(1, 3)];
    let missing = MergeOutcome::Missing(vec![Source::Worker(1)]);
    assert_eq!(now(leader.merge(0, &parts, 5)), missing);
    for wrong in [Message::plain(4, vec![1.0; LENGTH]), Message::plain(3, vec![1.0; LENGTH - 1])] {
        now(channel.put(slot(1, 0, 0, other), wrong));
        assert_eq!(now(leader.merge(0, &parts, 5)), missing);
    }
    now(channel.put(slot(1, 0, 0, other), Message::plain(3, vec![1.0; LENGTH])));
    assert_eq!(now(leader.merge(0, &parts, 5)), MergeOutcome::Done);
}
