//! How much of the host's memory a job takes beside that of its functions, for copies of what is trained.
//!
//! It is leased before the job starts and is not asked for again when its workers change, so it depends on everything that
//! a job exchanges and how, but not on how many workers do. What grows with their number is counted for each of them.

use serde::{Deserialize, Serialize};
use weft_core::sync::{ChannelKind, Pace, Sync, Topology};
use weft_gpu::Codec;

use super::exchange::PARTS_HELD;
use crate::train::declared::{Declared, TensorRow};

/// The host's memory that a job takes beside that of its functions, for copies of what is trained, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// For each worker.
    pub each: u64,
    /// For all of them together.
    pub once: u64,
}

impl HostMemory {
    /// What each of so many workers pays for.
    pub fn per_worker(&self, workers: u32) -> u64 {
        self.each.saturating_add(self.once.div_ceil(u64::from(workers.max(1))))
    }

    /// Whether what has so much has enough for a model that takes `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.each <= self.each && other.once <= self.once
    }
}

/// The host's memory that a job takes whose workers work together like this, and have their steps fanned out to so many
/// functions each.
pub fn host_memory(declared: &Declared, sync: &Sync, codec: Codec, fan_out: u32) -> HostMemory {
    let bytes = |part: TensorRow| declared.length(part) as u64 * size_of::<f32>() as u64;
    let sizes = Sizes {
        weights: bytes(TensorRow::Weights),
        buffers: bytes(TensorRow::Buffers),
        statistics: bytes(TensorRow::Statistics),
        moments: bytes(TensorRow::Moments),
        locals: bytes(TensorRow::Locals),
    };
    sizes.host_memory(sync, codec, fan_out)
}

/// Bytes of each row of numbers that a trainer declares.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    weights: u64,
    buffers: u64,
    statistics: u64,
    moments: u64,
    locals: u64,
}

impl Sizes {
    fn host_memory(&self, sync: &Sync, codec: Codec, fan_out: u32) -> HostMemory {
        let Self { weights, buffers, statistics, .. } = *self;
        let model = weights + buffers + statistics;
        // What each worker hands over, and its own state as the round began and as it ends; and what the job has once: the
        // model before and after the round, the best so far, and the file of a model that is written. Checkpoints are
        // streamed.
        let mut memory = HostMemory { each: model + 2 * self.worker_state(sync, codec), once: 4 * model };
        if fan_out > 1 {
            // The model that the functions of a fanned-out step begin with, what each of them has computed, and the mean.
            let lanes = (weights + buffers).saturating_mul(u64::from(fan_out) + 2);
            memory.each = memory.each.saturating_add(lanes);
        }
        match sync.pace {
            Pace::Barrier => self.add_exchange(&mut memory, sync, codec),
            // What a peer has published while it computes the next, and the mean that it takes a step with. Rows that a codec
            // has written are decoded for one mean at a time: one of every peer.
            Pace::Quorum(_) => memory.each += model + weights + if codec == Codec::Plain { 0 } else { weights },
            // The model changes with each contribution, and each worker holds the one that it began with.
            Pace::Staleness(_) | Pace::OnArrival | Pace::Overwrite => memory.each += weights + buffers,
        }
        memory
    }

    /// What a worker keeps from round to round.
    fn worker_state(&self, sync: &Sync, codec: Codec) -> u64 {
        let is_peer = matches!(sync.pace, Pace::Quorum(_));
        let rows = [codec.takes_residual(), sync.rule.keeps_duals(), sync.rule.keeps_weights() || is_peer];
        self.moments + self.locals + rows.into_iter().filter(|row| *row).count() as u64 * self.weights
    }

    /// What is held beside that where workers meet.
    fn add_exchange(&self, memory: &mut HostMemory, sync: &Sync, codec: Codec) {
        // One worker alone exchanges nothing, but it may get company.
        let exchanged = sync.rule.exchange(2);
        let workers_merge = sync.topology != Topology::Memory;
        let (is_remote, is_encoded) = (sync.channel != ChannelKind::Memory, codec != Codec::Plain);
        // The weights that a round began with. Where the coordinator makes them and has them here, they are shared.
        let sends_differences = exchanged.is_model() && is_encoded;
        let needs_base = sends_differences && (workers_merge || is_remote) || sync.rule.pull().is_some() && is_remote;
        if needs_base {
            memory.each += self.weights;
        }
        if !workers_merge {
            return;
        }
        let row = if exchanged.is_sum() { self.statistics } else { self.weights + self.buffers };
        // Its parts of the round before stay in the channel until this round is done. Results from a channel elsewhere are
        // there in pieces before they are one row.
        memory.each += if is_remote { 2 * row } else { row };
        if sync.rule.keeps_duals() {
            // The latest state is kept, should it have to be handed in once more, and another is made of it meanwhile.
            memory.each += self.worker_state(sync, codec);
        }
        // Results of this round and of the one before. Sums are made in 64 bits.
        let results = row * if exchanged.is_sum() { 4 } else { 2 };
        // What is merged together, where it does not lie in memory that its workers share.
        let held = if is_remote || is_encoded { row * PARTS_HELD } else { 0 };
        match sync.topology {
            Topology::Memory => {}
            // One merges all, or all merge a shard each.
            Topology::Leader | Topology::Scatter { .. } => memory.once += results + held,
            // Fewer merges than workers, which together hold no more parts than there are workers and merges.
            Topology::Tree(_) => memory.each += results + held.min(2 * row),
            Topology::Peers => memory.each = memory.each.saturating_add(results + held),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use weft_core::sync::{Admm, Every, Penalty, Quorum, Rule};

    use super::*;

    const SIZES: Sizes = Sizes { weights: 1_000, buffers: 100, statistics: 0, moments: 2_000, locals: 10 };
    const MODEL: u64 = 1_100;
    const STATE: u64 = 2_010;
    const K_AVERAGE: Rule = Rule::KAverage(Every::Epochs(NonZeroU32::MIN));

    fn sync(rule: Rule) -> Sync {
        Sync {
            rule,
            topology: Topology::Memory,
            pace: Pace::Barrier,
            codec: "plain".to_owned(),
            channel: ChannelKind::Memory,
            tolerance: None,
            unpenalised: Vec::new(),
        }
    }

    fn through(rule: Rule, topology: Topology, channel: ChannelKind) -> Sync {
        Sync { topology, channel, ..sync(rule) }
    }

    fn admm() -> Rule {
        Rule::Admm(Admm { rho: 1.0, lambda: 0.0, penalty: Penalty::L2, epochs: NonZeroU32::MIN })
    }

    fn plain(sync: &Sync) -> HostMemory {
        SIZES.host_memory(sync, Codec::Plain, 1)
    }

    /// What it takes beside a job of gradient averaging through memory.
    fn beside(more: HostMemory, sync: &Sync, codec: Codec) {
        let all = SIZES.host_memory(sync, codec, 1);
        let expected = HostMemory { each: MODEL + 2 * STATE + more.each, once: 4 * MODEL + more.once };
        assert_eq!(all, expected, "{sync:?} {codec:?}");
    }

    #[test]
    fn a_job_whose_coordinator_merges_has_one_contribution_and_two_states_of_each_worker() {
        beside(HostMemory::default(), &sync(Rule::GradientAverage), Codec::Plain);
        // What the codec has not sent yet.
        beside(HostMemory { each: 2 * 1_000, once: 0 }, &sync(Rule::GradientAverage), Codec::TopK { fraction: 0.1 });
    }

    #[test]
    fn functions_that_a_step_is_fanned_out_to_have_their_copies_counted() {
        let of = |fan_out| SIZES.host_memory(&sync(Rule::GradientAverage), Codec::Plain, fan_out);
        // The model that they begin with, four rows of gradients and buffers, and the mean of these.
        assert_eq!(of(4), HostMemory { each: of(1).each + 6 * MODEL, ..of(1) });
        assert!(of(4).covers(&of(1)) && !of(1).covers(&of(4)));
    }

    #[test]
    fn what_stays_with_each_worker_is_counted_as_it_was_and_as_it_is() {
        beside(HostMemory { each: 2 * 1_000, once: 0 }, &sync(K_AVERAGE), Codec::Plain);
        beside(HostMemory { each: 4 * 1_000, once: 0 }, &sync(admm()), Codec::Plain);
    }

    #[test]
    fn peers_of_a_quorum_have_weights_a_message_and_a_mean_of_their_own() {
        let quorum = Pace::Quorum(Quorum { peers: NonZeroU32::MIN, max_age: None });
        let peers = Sync { topology: Topology::Peers, pace: quorum, ..sync(Rule::GradientAverage) };
        let more = HostMemory { each: 2 * 1_000 + MODEL + 1_000, once: 0 };
        beside(more, &peers, Codec::Plain);
        beside(HostMemory { each: more.each + 1_000, ..more }, &peers, Codec::F16);
    }

    #[test]
    fn workers_that_do_not_wait_hold_the_model_that_each_began_with() {
        let arrival = Sync { pace: Pace::OnArrival, ..sync(Rule::GradientAverage) };
        beside(HostMemory { each: MODEL, once: 0 }, &arrival, Codec::Plain);
    }

    #[test]
    fn workers_that_merge_have_the_round_before_and_the_results_of_two() {
        let gradients = |topology, channel| through(Rule::GradientAverage, topology, channel);
        let scatter = Topology::Scatter { shards: None };
        let tree = Topology::Tree(weft_core::sync::topology::TreeShape::Auto);
        for topology in [Topology::Leader, scatter] {
            let more = HostMemory { each: MODEL, once: 2 * MODEL };
            beside(more, &gradients(topology.clone(), ChannelKind::Memory), Codec::Plain);
            let more = HostMemory { each: 2 * MODEL, once: (2 + PARTS_HELD) * MODEL };
            beside(more, &gradients(topology, ChannelKind::Store), Codec::Plain);
        }
        for (topology, held) in [(Topology::Peers, PARTS_HELD), (tree, 2)] {
            beside(
                HostMemory { each: 3 * MODEL, once: 0 },
                &gradients(topology.clone(), ChannelKind::Memory),
                Codec::Plain,
            );
            let more = HostMemory { each: (4 + held) * MODEL, once: 0 };
            beside(more, &gradients(topology, ChannelKind::Blobs), Codec::Plain);
        }
    }

    #[test]
    fn the_weights_that_a_difference_is_sent_of_are_counted_where_they_are_not_shared() {
        let k = Rule::KAverage(Every::Steps(std::num::NonZeroU64::MIN));
        beside(HostMemory::default(), &sync(k), Codec::F16);
        beside(HostMemory { each: 1_000, once: 0 }, &through(k, Topology::Memory, ChannelKind::Store), Codec::F16);
        let more = HostMemory { each: 1_000 + MODEL, once: (2 + PARTS_HELD) * MODEL };
        beside(more, &through(k, Topology::Leader, ChannelKind::Memory), Codec::F16);
        let stored = through(admm(), Topology::Memory, ChannelKind::Store);
        assert_eq!(plain(&stored).each, plain(&sync(admm())).each + 1_000);
    }

    #[test]
    fn sums_are_made_in_64_bits() {
        let sizes = Sizes { statistics: 500, ..SIZES };
        let of =
            |topology| sizes.host_memory(&through(Rule::StatisticSum, topology, ChannelKind::Memory), Codec::Plain, 1);
        let (alone, leader) = (of(Topology::Memory), of(Topology::Leader));
        assert_eq!(leader, HostMemory { each: alone.each + 500, once: alone.once + 4 * 500 });
    }
}
