//! The price table: what each thing that training uses costs, and since when that is known.
//!
//! A table is read from `prices.toml` or is one of the [`presets`](preset). It is checked when it is read, so whoever has
//! one need not check it again. [`cost::Prices`](crate::cost::Prices) is the part of it that a running job needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cost::Prices;

mod presets;
mod rented;

pub use presets::{PRESETS, preset};
pub use rented::{Comparison, Peer, compare};

/// Bytes of a GiB.
pub const GIB: f64 = (1_u64 << 30) as f64;

/// What is charged for a GPU whose own kind has no price.
const ANY_GPU: &str = "gpu";

/// What things cost, in dollars or whatever one counts in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "Raw")]
#[schema(as = PriceTable)]
pub struct PriceTable {
    /// The day, month or year in which these were the prices: `2026-11-18`, `2026-11` or `2026`.
    pub as_of: String,
    /// Where the prices are from, and what to know about them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// A second of one core.
    pub core_second: f64,
    /// A second of one GiB of a function's memory.
    pub gib_second: f64,
    /// A second of a device, by its kind; `gpu` is for all that are not named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub device_second: BTreeMap<String, f64>,
    /// A call of a function.
    pub request: f64,
    /// The start of a function's instance.
    pub start: f64,
    /// A GiB stored for a month.
    pub storage_gib_month: f64,
    /// A GiB that is moved.
    pub traffic_gib: f64,
    /// A second of a rented machine, by its type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_second: BTreeMap<String, f64>,
    /// Seconds that a function's time is rounded up to; 0 to charge for the time itself.
    pub billed_by: f64,
}

/// A table before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    as_of: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    core_second: f64,
    #[serde(default)]
    gib_second: f64,
    #[serde(default)]
    device_second: BTreeMap<String, f64>,
    #[serde(default)]
    request: f64,
    #[serde(default)]
    start: f64,
    #[serde(default)]
    storage_gib_month: f64,
    #[serde(default)]
    traffic_gib: f64,
    #[serde(default)]
    machine_second: BTreeMap<String, f64>,
    #[serde(default)]
    billed_by: f64,
}

/// Why something is no price table.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PriceError {
    #[error("`{name}` is {price}: a price is a number that is not negative")]
    NotAPrice { name: String, price: f64 },
    #[error("`as_of` is `{0}`: write the day, month or year of the prices, as in `2026-11-18`, `2026-11` or `2026`")]
    AsOf(String),
    #[error("there are no prices called `{name}`: use {known}", known = PRESETS.map(|it| format!("`{it}`")).join(", "))]
    Unknown { name: String },
}

impl TryFrom<Raw> for PriceTable {
    type Error = PriceError;

    fn try_from(raw: Raw) -> Result<Self, PriceError> {
        let Raw { as_of, note, core_second, gib_second, device_second, request, start, .. } = raw;
        let Raw { storage_gib_month, traffic_gib, machine_second, billed_by, .. } = raw;
        let table = Self {
            as_of,
            note,
            core_second,
            gib_second,
            device_second,
            request,
            start,
            storage_gib_month,
            traffic_gib,
            machine_second,
            billed_by,
        };
        table.check()?;
        Ok(table)
    }
}

impl PriceTable {
    /// A table in which everything is free.
    pub fn free(as_of: &str) -> Self {
        Self {
            as_of: as_of.to_owned(),
            note: String::new(),
            core_second: 0.0,
            gib_second: 0.0,
            device_second: BTreeMap::new(),
            request: 0.0,
            start: 0.0,
            storage_gib_month: 0.0,
            traffic_gib: 0.0,
            machine_second: BTreeMap::new(),
            billed_by: 0.0,
        }
    }

    /// Refuses what can be no price. A table that was made in code is to be checked with it.
    pub fn check(&self) -> Result<(), PriceError> {
        if !is_date(&self.as_of) {
            return Err(PriceError::AsOf(self.as_of.chars().take(40).collect()));
        }
        let wrong = self.rows().into_iter().find(|(_, price)| !(price.is_finite() && *price >= 0.0));
        match wrong {
            Some((name, price)) => Err(PriceError::NotAPrice { name, price }),
            None => Ok(()),
        }
    }

    /// Every number of the table with its name, for people.
    pub fn rows(&self) -> Vec<(String, f64)> {
        let single = [
            ("core_second", self.core_second),
            ("gib_second", self.gib_second),
            ("request", self.request),
            ("start", self.start),
            ("storage_gib_month", self.storage_gib_month),
            ("traffic_gib", self.traffic_gib),
            ("billed_by", self.billed_by),
        ];
        let by_kind = [("device_second", &self.device_second), ("machine_second", &self.machine_second)];
        let named = by_kind.into_iter().flat_map(|(name, prices)| {
            prices.iter().map(move |(kind, price)| (format!("{name}.{kind}"), *price)).collect::<Vec<_>>()
        });
        single.into_iter().map(|(name, price)| (name.to_owned(), price)).chain(named).collect()
    }

    /// A second of a device of this kind: `cpu` is a core; a GPU without a price of its own costs what `gpu` does.
    pub fn device(&self, kind: &str) -> Option<f64> {
        let named = self.device_second.get(kind).copied();
        match kind {
            "cpu" => Some(named.unwrap_or(self.core_second)),
            _ => named.or_else(|| self.device_second.get(ANY_GPU).copied()),
        }
    }

    /// What one function with so many bytes of memory and so many busy cores costs that runs for so long.
    pub fn function(&self, memory: u64, cores: f64, seconds: f64) -> f64 {
        self.function_second(memory, cores) * self.billed(seconds)
    }

    /// What a second of a function costs.
    pub fn function_second(&self, memory: u64, cores: f64) -> f64 {
        self.gib_second * (memory as f64 / GIB) + self.core_second * cores
    }

    /// The time that is charged for.
    pub fn billed(&self, seconds: f64) -> f64 {
        if self.billed_by > 0.0 { (seconds / self.billed_by).ceil() * self.billed_by } else { seconds }
    }
}

impl From<&PriceTable> for Prices {
    /// What a running job is charged by. A job does not pay for calls, storage and machines of its own.
    fn from(table: &PriceTable) -> Self {
        let by_kind = table.device_second.iter().filter(|(kind, _)| !["cpu", ANY_GPU].contains(&kind.as_str()));
        Self {
            cpu_second: table.device("cpu").unwrap_or_default(),
            gpu_second: table.device(ANY_GPU).unwrap_or_default(),
            gpus: by_kind.map(|(kind, price)| (kind.to_lowercase(), *price)).collect(),
            gib_second: table.gib_second,
            start: table.start,
            gib_moved: table.traffic_gib,
        }
    }
}

/// Whether this is a year, a month or a day.
fn is_date(text: &str) -> bool {
    let number = |text: &str, digits: usize, range: std::ops::RangeInclusive<u32>| {
        text.len() == digits
            && text.bytes().all(|it| it.is_ascii_digit())
            && text.parse().is_ok_and(|it| range.contains(&it))
    };
    let mut parts = text.splitn(3, '-');
    let year = parts.next().is_some_and(|it| number(it, 4, 1900..=9999));
    let month = parts.next().is_none_or(|it| number(it, 2, 1..=12));
    let day = parts.next().is_none_or(|it| number(it, 2, 1..=31));
    year && month && day
}

#[cfg(test)]
mod tests;
