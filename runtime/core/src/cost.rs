//! What was used becomes money, by the node's price table.

use std::sync::Arc;

use crate::usage::{Spending, Used};

mod breakdown;

pub use breakdown::{Breakdown, MOST_WORKERS_TOLD, StageCosts, WorkerCost};

/// Classes of GPUs. The price of a class is for GPUs whose name has none.
const CLASSES: [&str; 4] = ["discrete", "integrated", "virtual", "software"];

/// What things cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    pub cpu_second: f64,
    /// Of a GPU whose kind has no price of its own.
    pub gpu_second: f64,
    /// Of GPUs by their kind, in small letters.
    pub gpus: Arc<[(String, f64)]>,
    pub gib_second: f64,
    pub start: f64,
    pub gib_moved: f64,
}

/// What a worker used costs, by what it is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charges {
    pub device: f64,
    pub memory: f64,
    pub starts: f64,
    pub traffic: f64,
}

impl Charges {
    pub fn total(&self) -> f64 {
        self.device + self.memory + self.starts + self.traffic
    }
}

impl Prices {
    /// What a second of a GPU of this kind costs, which is its name and its class: the price with the longest name that is a
    /// word, or words, of the kind. So `t4` is the price of a `Tesla T4`, and `discrete` that of every other GPU with memory
    /// of its own.
    pub fn gpu(&self, kind: &str) -> f64 {
        let kind = kind.to_lowercase();
        let named = self.gpus.iter().filter(|(name, _)| is_among(&kind, name));
        let best = named.max_by_key(|(name, _)| (!CLASSES.contains(&name.as_str()), name.len()));
        best.map_or(self.gpu_second, |(_, price)| *price)
    }

    /// What a second of any GPU costs at most.
    pub fn dearest_gpu(&self) -> f64 {
        self.gpus.iter().map(|(_, price)| *price).fold(self.gpu_second, f64::max)
    }

    /// What a worker with so much memory is charged for what it used.
    pub fn charges(&self, used: &Used, memory: u64) -> Charges {
        let device_second = if used.is_gpu { self.gpu(&used.gpu) } else { self.cpu_second };
        Charges {
            device: device_second * used.device.as_secs_f64(),
            memory: self.gib_second * gib(memory) * used.wall.as_secs_f64(),
            starts: self.start * used.cold_starts as f64,
            traffic: self.gib_moved * gib(used.bytes),
        }
    }

    /// What a worker with so much memory used, and what that costs.
    pub fn spending(&self, used: &Used, memory: u64) -> Spending {
        let device_seconds = used.device.as_secs_f64();
        Spending {
            cpu_seconds: used.cpu.as_secs_f64(),
            device_seconds,
            gpu_seconds: if used.is_gpu { device_seconds } else { 0.0 },
            memory_gib_seconds: gib(memory) * used.wall.as_secs_f64(),
            cold_starts: used.cold_starts,
            invocations: used.invocations,
            bytes: used.bytes,
            cost: self.charges(used, memory).total(),
        }
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

/// Whether a text has these words in a row.
fn is_among(text: &str, words: &str) -> bool {
    let ends = |it: Option<char>| it.is_none_or(|it| !it.is_alphanumeric());
    text.match_indices(words)
        .any(|(at, _)| ends(text[..at].chars().next_back()) && ends(text[at + words.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_thing_has_its_price() {
        let prices = Prices {
            cpu_second: 1.0,
            gpu_second: 10.0,
            gib_second: 100.0,
            start: 1_000.0,
            gib_moved: 10_000.0,
            ..Prices::default()
        };
        let used = Used {
            device: Duration::from_secs(2),
            wall: Duration::from_secs(3),
            cold_starts: 1,
            bytes: 1 << 30,
            ..Used::default()
        };
        assert_eq!(prices.spending(&used, 1 << 29).cost, 2.0 + 150.0 + 1_000.0 + 10_000.0);
        let on_gpu = Used { is_gpu: true, ..used };
        assert_eq!(prices.spending(&on_gpu, 1 << 29).cost, 20.0 + 150.0 + 1_000.0 + 10_000.0);
    }

    #[test]
    fn a_gpu_costs_what_its_kind_does() {
        let named = |name: &str, price| (name.to_owned(), price);
        let gpus = [named("t4", 1.0), named("discrete", 2.0), named("a100", 3.0), named("rtx 4090", 4.0)];
        let prices = Prices { gpu_second: 9.0, gpus: gpus.into(), ..Prices::default() };
        for (kind, price) in [
            ("Tesla T4, virtual", 1.0),
            ("NVIDIA A100-SXM4-40GB, discrete", 3.0),
            ("NVIDIA GeForce RTX 4090, discrete", 4.0),
            ("Radeon, discrete", 2.0),
            ("GT42, integrated", 9.0),
            ("", 9.0),
        ] {
            assert_eq!(prices.gpu(kind), price, "{kind}");
        }
        let used = Used { device: Duration::from_secs(2), is_gpu: true, gpu: "Tesla T4".into(), ..Used::default() };
        assert_eq!(prices.spending(&used, 0).cost, 2.0);
    }
}
