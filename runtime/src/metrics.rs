//! What Prometheus sees. No label holds anything that a tenant chooses, so that neither their number nor their names leak.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use weft_core::sync::ChannelKind;
use weft_core::usage::Traffic;

use crate::sandbox::InvokeError;
use crate::tenant::Spent;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabel {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChannelLabel {
    channel: &'static str,
}

impl From<ChannelKind> for ChannelLabel {
    fn from(channel: ChannelKind) -> Self {
        Self { channel: channel.word() }
    }
}

/// What the workers of all jobs have exchanged, by channel. Clones count for the same.
#[derive(Clone)]
pub struct ExchangeCounters {
    items: Family<ChannelLabel, Counter>,
    bytes: Family<ChannelLabel, Counter>,
    seconds: Family<ChannelLabel, Counter<f64, AtomicU64>>,
}

impl Default for ExchangeCounters {
    fn default() -> Self {
        let counters = Self { items: Family::default(), bytes: Family::default(), seconds: Family::default() };
        // All of them are there from the first scrape on: a rate needs a beginning.
        for channel in ChannelKind::ALL {
            counters.add(*channel, &Traffic::default());
        }
        counters
    }
}

impl ExchangeCounters {
    pub fn add(&self, channel: ChannelKind, traffic: &Traffic) {
        let label = ChannelLabel::from(channel);
        self.items.get_or_create(&label).inc_by(traffic.items);
        self.bytes.get_or_create(&label).inc_by(traffic.bytes);
        self.seconds.get_or_create(&label).inc_by(traffic.seconds);
    }
}

/// The node as it is when it is scraped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    pub instances: u32,
    pub max_instances: u32,
    pub waiting: u32,
    pub waiting_for_cpu: usize,
    pub memory: u64,
    pub max_memory: u64,
    pub tenants: usize,
    pub functions: usize,
    pub loaded: usize,
    pub loaded_bytes: u64,
    /// What is known of jobs.
    pub job_bytes: u64,
    pub draining: bool,
}

#[derive(Default)]
struct Gauges {
    instances: Gauge,
    max_instances: Gauge,
    waiting: Gauge,
    waiting_for_cpu: Gauge,
    memory: Gauge,
    max_memory: Gauge,
    tenants: Gauge,
    functions: Gauge,
    loaded: Gauge,
    loaded_bytes: Gauge,
    job_bytes: Gauge,
    draining: Gauge,
}

pub struct Metrics {
    registry: Registry,
    invocations: Family<OutcomeLabel, Counter>,
    problems: Family<ProblemLabel, Counter>,
    deploys: Counter,
    cold_start: Histogram,
    invoke: Histogram,
    pub exchange: ExchangeCounters,
    gauges: Gauges,
}

/// From 10 microseconds to 84 seconds, each bucket twice the one before.
fn buckets() -> impl Iterator<Item = f64> {
    (0..24).map(|power| 10e-6 * f64::from(1u32 << power))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weft");
        let (cold_start, invoke) = (Histogram::new(buckets()), Histogram::new(buckets()));
        let invocations = Family::<OutcomeLabel, Counter>::default();
        let problems = Family::<ProblemLabel, Counter>::default();
        let (deploys, gauges, exchange) = (Counter::default(), Gauges::default(), ExchangeCounters::default());
        registry.register("invocations", "Invocations that got an instance, by how they ended", invocations.clone());
        registry.register("problems", "Requests that were answered with an error, by its type", problems.clone());
        registry.register("deploys", "Components uploaded and accepted", deploys.clone());
        registry.register_with_unit(
            "cold_start",
            "From the wish for an instance until it can be called",
            Unit::Seconds,
            cold_start.clone(),
        );
        registry.register_with_unit("invoke", "A whole invocation, with its cold start", Unit::Seconds, invoke.clone());
        let ExchangeCounters { items, bytes, seconds } = exchange.clone();
        registry.register(
            "exchange_items",
            "Messages that the workers of jobs put into a channel or took from it",
            items,
        );
        let help = "Numbers that the workers of jobs put into a channel or took from it";
        registry.register_with_unit("exchange", help, Unit::Bytes, bytes);
        let help = "Time that the workers of jobs and the jobs themselves spent on that, all added up";
        registry.register_with_unit("exchange", help, Unit::Seconds, seconds);
        for (name, help, gauge) in [
            ("instances", "Instances that exist now", &gauges.instances),
            ("instances_max", "Instances that may exist at once", &gauges.max_instances),
            ("invocations_waiting", "Invocations that wait for an instance", &gauges.waiting),
            ("guests_waiting_for_cpu", "Guests that wait for their turn to compute", &gauges.waiting_for_cpu),
            ("memory_bytes", "Memory that is handed out, whatever for", &gauges.memory),
            ("memory_max_bytes", "What memory_bytes may reach", &gauges.max_memory),
            ("tenants", "Tenants", &gauges.tenants),
            ("functions", "Deployed functions of all tenants", &gauges.functions),
            ("components_loaded", "Compiled components in memory", &gauges.loaded),
            ("components_loaded_bytes", "Bytes of compiled components in memory", &gauges.loaded_bytes),
            ("job_records_bytes", "Memory of what is known of jobs", &gauges.job_bytes),
            ("draining", "1 while the node is stopping", &gauges.draining),
        ] {
            registry.register(name, help, gauge.clone());
        }
        Self { registry, invocations, problems, deploys, cold_start, invoke, exchange, gauges }
    }
}

impl Metrics {
    pub fn count_invocation(&self, error: Option<&InvokeError>, spent: &Spent) {
        let outcome = match error {
            None => "ok",
            Some(InvokeError::Function { .. }) => "function_error",
            Some(InvokeError::Limit(_)) => "limit",
            Some(InvokeError::Trap { .. }) => "trap",
            Some(InvokeError::Host(_)) => "host",
        };
        self.invocations.get_or_create(&OutcomeLabel { outcome }).inc();
        if spent.cold_start > Duration::ZERO {
            self.cold_start.observe(spent.cold_start.as_secs_f64());
        }
        self.invoke.observe(spent.wall.as_secs_f64());
    }

    pub fn count_problem(&self, kind: &'static str) {
        self.problems.get_or_create(&ProblemLabel { r#type: kind }).inc();
    }

    pub fn count_deploy(&self) {
        self.deploys.inc();
    }

    /// The text that Prometheus reads.
    pub fn render(&self, now: Occupancy) -> Result<String, std::fmt::Error> {
        let count = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let bytes = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let gauges = &self.gauges;
        bytes(&gauges.instances, now.instances.into());
        bytes(&gauges.max_instances, now.max_instances.into());
        bytes(&gauges.waiting, now.waiting.into());
        count(&gauges.waiting_for_cpu, now.waiting_for_cpu);
        bytes(&gauges.memory, now.memory);
        bytes(&gauges.max_memory, now.max_memory);
        count(&gauges.tenants, now.tenants);
        count(&gauges.functions, now.functions);
        count(&gauges.loaded, now.loaded);
        bytes(&gauges.loaded_bytes, now.loaded_bytes);
        bytes(&gauges.job_bytes, now.job_bytes);
        bytes(&gauges.draining, now.draining.into());
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// The same figures in Prometheus' older text format, which whoever does not ask for OpenMetrics expects. Only the names of
/// counters differ: there, the family has the ending of its samples.
pub fn as_classic_text(openmetrics: &str) -> String {
    let counter = |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
    let counters: Vec<String> = openmetrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, keyword, family, rest) = (words.next(), words.next(), words.next(), words.next());
        match (mark, keyword, family, rest) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => continue,
            (Some("#"), Some(keyword), Some(family), Some(rest))
                if counters.iter().any(|counter| counter == family) =>
            {
                text.push_str(&format!("# {keyword} {family}_total {rest}"));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_in_full() {
        let metrics = Metrics::default();
        metrics.count_deploy();
        let text = as_classic_text(&metrics.render(Occupancy::default()).unwrap());
        assert!(text.contains("# TYPE weft_deploys_total counter\nweft_deploys_total 1\n"), "{text}");
        assert!(text.contains("# TYPE weft_cold_start_seconds histogram\n"), "{text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    }

    #[test]
    fn buckets_begin_at_ten_microseconds() {
        let metrics = Metrics::default();
        let spent = Spent { cold_start: Duration::from_micros(15), ..Spent::default() };
        metrics.count_invocation(None, &spent);
        let text = metrics.render(Occupancy::default()).unwrap();
        assert!(text.contains("weft_cold_start_seconds_bucket{le=\"0.00001\"} 0"), "{text}");
        assert!(text.contains("weft_cold_start_seconds_bucket{le=\"0.00002\"} 1"), "{text}");
        assert!(text.contains("weft_invocations_total{outcome=\"ok\"} 1"), "{text}");
    }
}
