//! The constants of a place: measured by whoever calibrates it, or those of LambdaML, table 6.

use serde::{Deserialize, Serialize};

use super::Rate;

/// Something that was measured, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub value: f64,
    #[serde(default)]
    pub spread: f64,
}

impl Measured {
    pub const fn exactly(value: f64) -> Self {
        Self { value, spread: 0.0 }
    }

    /// The value, moved by a part of its spread, and never below a hundredth of itself.
    pub fn at(&self, side: f64) -> f64 {
        (self.value + side * self.spread).max(self.value / 100.0)
    }
}

/// What data or messages go through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// MB/s.
    pub bandwidth: Measured,
    /// Seconds before a message's first byte.
    pub latency: Measured,
}

impl Link {
    /// The link at its better (-1), middle (0) or worse (1) end.
    pub fn rate(&self, side: f64) -> Rate {
        Rate { bandwidth: self.bandwidth.at(-side), latency: self.latency.at(side) }
    }
}

/// Values by numbers of workers, in straight lines between them and beyond the last two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(pub Vec<(u32, f64)>);

impl Curve {
    /// The value for so many workers, unless the curve has no point. Below the first point it is that of the first.
    pub fn at(&self, workers: u32) -> Option<f64> {
        let points = &self.0;
        let after = points.iter().position(|(at, _)| *at >= workers).unwrap_or(points.len().saturating_sub(1));
        let (to, high) = *points.get(after)?;
        let Some((from, low)) = after.checked_sub(1).map(|before| points[before]) else { return Some(high) };
        let slope = (high - low) / (f64::from(to) - f64::from(from));
        Some((low + slope * (f64::from(workers) - f64::from(from))).max(0.0))
    }
}

/// What a prediction is calculated from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// Where they are from.
    #[serde(default)]
    pub note: String,
    /// Seconds until so many workers have started.
    pub start: Curve,
    /// How far off that may be, as a part of it.
    #[serde(default)]
    pub start_spread: f64,
    /// Where data are loaded from.
    pub storage: Link,
    /// What workers exchange through.
    pub channel: Link,
    /// What a worker costs for a second.
    #[serde(default)]
    pub worker_second: f64,
    /// What the channel costs for a second.
    #[serde(default)]
    pub channel_second: f64,
}

/// Why constants are none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadConstants {
    #[error("`{name}` is {value}: it is to be a number above 0")]
    NotPositive { name: &'static str, value: f64 },
    #[error("`{name}` is {value}: it is to be a number that is not negative")]
    Negative { name: &'static str, value: f64 },
    #[error("`{name}` has {at} workers twice, or after a larger number: write each once, the least first")]
    Order { name: &'static str, at: u32 },
    #[error("there are no constants called `{name}`: use {known}", known = PRESETS.map(|it| format!("`{it}`")).join(", "))]
    Unknown { name: String },
}

impl Constants {
    /// Refuses what nothing can be calculated from.
    pub fn check(&self) -> Result<(), BadConstants> {
        let links = [
            ("storage bandwidth", self.storage.bandwidth, true),
            ("storage latency", self.storage.latency, false),
            ("channel bandwidth", self.channel.bandwidth, true),
            ("channel latency", self.channel.latency, false),
        ];
        for (name, Measured { value, spread }, is_positive) in links {
            if is_positive && !(value.is_finite() && value > 0.0) {
                return Err(BadConstants::NotPositive { name, value });
            }
            not_negative(name, value)?;
            not_negative(name, spread)?;
        }
        not_negative("worker_second", self.worker_second)?;
        not_negative("channel_second", self.channel_second)?;
        not_negative("start_spread", self.start_spread)?;
        for pair in self.start.0.windows(2) {
            if pair[0].0 >= pair[1].0 {
                return Err(BadConstants::Order { name: "start", at: pair[1].0 });
            }
        }
        self.start.0.iter().try_for_each(|(_, seconds)| not_negative("start", *seconds))
    }
}

fn not_negative(name: &'static str, value: f64) -> Result<(), BadConstants> {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(BadConstants::Negative { name, value }) }
}

/// The names of the constants that come with Weft, all of LambdaML, table 6.
pub const PRESETS: [&str; 4] = ["faas-s3", "faas-elasticache", "iaas-t2", "iaas-c5"];

/// Constants by their name.
pub fn preset(name: &str) -> Result<Constants, BadConstants> {
    let measured = |value: f64, spread: f64| Measured { value, spread };
    let link = |bandwidth, latency| Link { bandwidth, latency };
    let s3 = link(measured(65.0, 7.0), measured(8e-2, 2e-2));
    let functions = Curve(vec![(10, 1.2), (50, 11.0), (100, 18.0), (200, 35.0)]);
    let machines = Curve(vec![(10, 132.0), (50, 160.0), (100, 292.0), (200, 606.0)]);
    let (function_second, t2_second) = (3.0 * 1.666_67e-5, 0.0464 / 3600.0);
    let faas = Constants {
        note: "LambdaML, table 6: functions of 3 GB that exchange through S3".to_owned(),
        start: functions,
        start_spread: 0.09,
        storage: s3,
        channel: s3,
        worker_second: function_second,
        channel_second: 0.0,
    };
    let iaas = Constants {
        note: "LambdaML, table 6: t2.medium machines that talk to each other".to_owned(),
        start: machines,
        start_spread: 0.05,
        channel: link(measured(120.0, 6.0), measured(5e-4, 1e-4)),
        worker_second: t2_second,
        ..faas.clone()
    };
    match name {
        "faas-s3" => Ok(faas),
        "faas-elasticache" => Ok(Constants {
            note:
                "LambdaML, table 6: functions of 3 GB that exchange through a cache.t3.medium, at the price that the \
                   paper gives for a cache.t3.small"
                    .to_owned(),
            channel: link(measured(630.0, 25.0), measured(1e-2, 2e-3)),
            channel_second: 0.034 / 3600.0,
            ..faas
        }),
        "iaas-t2" => Ok(iaas),
        "iaas-c5" => Ok(Constants {
            note: "LambdaML, table 6: c5.large machines that talk to each other; the paper has no price for them"
                .to_owned(),
            channel: link(measured(225.0, 8.0), measured(1.5e-4, 2e-5)),
            worker_second: 0.0,
            ..iaas
        }),
        other => Err(BadConstants::Unknown { name: other.chars().take(40).collect() }),
    }
}
