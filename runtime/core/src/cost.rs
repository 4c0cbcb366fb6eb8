//! What was used becomes money, by the node's price table.

use crate::usage::{Spending, Used};

/// What things cost.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    pub cpu_second: f64,
    pub gpu_second: f64,
    pub gib_second: f64,
    pub start: f64,
    pub gib_moved: f64,
}

impl Prices {
    /// What a worker with so much memory used, and what that costs.
    pub fn spending(&self, used: &Used, memory: u64) -> Spending {
        const GIB: f64 = (1_u64 << 30) as f64;
        let device_seconds = used.device.as_secs_f64();
        let gpu_seconds = if used.is_gpu { device_seconds } else { 0.0 };
        let memory_gib_seconds = memory as f64 / GIB * used.wall.as_secs_f64();
        let cost = self.cpu_second * (device_seconds - gpu_seconds)
            + self.gpu_second * gpu_seconds
            + self.gib_second * memory_gib_seconds
            + self.start * used.cold_starts as f64
            + self.gib_moved * (used.bytes as f64 / GIB);
        Spending {
            cpu_seconds: used.cpu.as_secs_f64(),
            device_seconds,
            gpu_seconds,
            memory_gib_seconds,
            cold_starts: used.cold_starts,
            invocations: used.invocations,
            bytes: used.bytes,
            cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_thing_has_its_price() {
        let prices =
            Prices { cpu_second: 1.0, gpu_second: 10.0, gib_second: 100.0, start: 1_000.0, gib_moved: 10_000.0 };
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
}
