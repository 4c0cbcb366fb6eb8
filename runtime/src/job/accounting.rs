//! What a running job uses: added up for its epochs, and charged to its tenant from time to time.

use std::time::{Duration, Instant};

use weft_core::cost::{Breakdown, Prices};
use weft_core::spec::Shape;
use weft_core::sync::ChannelKind;
use weft_core::usage::{self, Spending, Stages, Used};

use super::channel::ChannelTraffic;
use super::checkpoint::Sums;
use super::record::EpochRecord;
use crate::metrics::ExchangeCounters;
use crate::tenant::TrainingUse;

/// How often what was used is written into the ledger.
const CHARGE_EVERY: Duration = Duration::from_millis(500);

pub struct Accounting {
    pub prices: Prices,
    /// What was paid since this began.
    pub paid: f64,
    /// Of the node, and the channel whose traffic is counted there.
    counters: ExchangeCounters,
    channel: ChannelKind,
    /// Whether any worker has computed on a GPU.
    pub uses_gpu: bool,
    /// Since when the epoch's seconds count.
    since: Instant,
    uncharged: TrainingUse,
    charged: Instant,
    losses_before: u64,
    traffic_before: ChannelTraffic,
}

impl Accounting {
    pub fn new(prices: Prices, counters: ExchangeCounters, channel: ChannelKind) -> Self {
        let now = Instant::now();
        Self {
            prices,
            paid: 0.0,
            counters,
            channel,
            uses_gpu: false,
            since: now,
            uncharged: TrainingUse::default(),
            charged: now,
            losses_before: 0,
            traffic_before: ChannelTraffic::default(),
        }
    }

    /// Seconds count from now on.
    pub fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Adds what one worker of a shape has used.
    pub fn spend(&mut self, worker: u32, used: &Used, shape: &Shape, sums: &mut Sums) {
        let memory = shape.memory * u64::from(shape.fan_out);
        let spending = self.prices.spending(used, memory);
        sums.stages.add(&used.stages);
        sums.spending.add(&spending);
        sums.costs.spend(worker, used, memory, &self.prices);
        self.paid += spending.cost;
        self.uses_gpu |= used.is_gpu;
        sums.memory = sums.memory.max(used.memory);
        self.uncharged.add(&TrainingUse {
            invocations: used.invocations,
            workers: used.cold_starts,
            device: used.device,
            memory_byte_ms: u128::from(memory) * used.wall.as_millis(),
            moved_bytes: used.bytes,
            cost: spending.cost,
        });
    }

    /// What is to be charged now, if it is time, or if it must be `now`.
    pub fn due(&mut self, now: bool) -> Option<TrainingUse> {
        if !now && self.charged.elapsed() < CHARGE_EVERY {
            return None;
        }
        self.charged = Instant::now();
        Some(std::mem::take(&mut self.uncharged))
    }

    /// Brings the epoch's seconds, losses and traffic up to now. `losses` and `traffic` are of the whole run.
    pub fn account(&mut self, losses: u64, traffic: ChannelTraffic, sums: &mut Sums) {
        sums.seconds += std::mem::replace(&mut self.since, Instant::now()).elapsed().as_secs_f64();
        sums.losses += losses - std::mem::replace(&mut self.losses_before, losses);
        let before = std::mem::replace(&mut self.traffic_before, traffic);
        let since = usage::Traffic {
            items: (traffic.puts + traffic.gets) - (before.puts + before.gets),
            bytes: (traffic.bytes_out + traffic.bytes_in) - (before.bytes_out + before.bytes_in),
            seconds: traffic.seconds - before.seconds,
        };
        sums.traffic.add(&since);
        self.counters.add(self.channel, &since);
    }
}

/// What epochs cost together, by stage and by worker.
pub fn costs<'a>(epochs: impl Iterator<Item = &'a EpochRecord>) -> Breakdown {
    let mut costs = Breakdown::default();
    epochs.for_each(|epoch| costs.add(&epoch.costs));
    costs
}

/// A job's total of what its epochs took.
pub fn total<'a>(epochs: impl Iterator<Item = &'a EpochRecord>) -> (Spending, Stages) {
    let mut total = (Spending::default(), Stages::default());
    for epoch in epochs {
        total.0.add(&epoch.spending);
        total.1.add(&epoch.stages);
    }
    total
}
