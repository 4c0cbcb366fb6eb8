//! What Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use weft_tests::components;
use weft_tests::node::{Node, Options};

use crate::end_to_end::jobs::{LONG, lenet, prepare};

/// One measured value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads OpenMetrics text, strictly.
fn parse(text: &str) -> Result<Vec<Sample>> {
    let mut families = BTreeSet::new();
    let mut samples = Vec::new();
    let lines = text.strip_suffix("# EOF\n").context("no end")?.lines();
    for line in lines {
        if let Some(comment) = line.strip_prefix("# ") {
            let (keyword, rest) = comment.split_once(' ').with_context(|| format!("`{line}`"))?;
            let (family, _) = rest.split_once(' ').with_context(|| format!("`{line}`"))?;
            ensure!(["HELP", "TYPE", "UNIT"].contains(&keyword), "`{line}`");
            families.insert(family.to_owned());
            continue;
        }
        let sample = sample(line).with_context(|| format!("`{line}`"))?;
        ensure!(families.iter().any(|family| sample.name.starts_with(family)), "`{line}` is of no family");
        samples.push(sample);
    }
    Ok(samples)
}

fn sample(line: &str) -> Result<Sample> {
    let (series, value) = line.rsplit_once(' ').context("no value")?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').context("no end of labels")?),
        None => (series, ""),
    };
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    ensure!(!name.is_empty() && name.chars().all(in_name), "a bad name");
    let pair = |label: &str| -> Result<(String, String)> {
        let (name, value) = label.split_once("=\"").context("no label")?;
        Ok((name.to_owned(), value.strip_suffix('"').context("no end of a label")?.to_owned()))
    };
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(pair).collect::<Result<_>>()?;
    Ok(Sample { name: name.to_owned(), labels, value: value.parse()? })
}

fn scrape(node: &Node) -> Result<Vec<Sample>> {
    let answer = node.operator()?.send("GET", "/metrics", &[("accept", "application/openmetrics-text")], b"")?;
    ensure!(answer.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    parse(&answer.text())
}

fn value(samples: &[Sample], name: &str, label: (&str, &str)) -> Result<f64> {
    let fits = |sample: &&Sample| sample.name == name && sample.labels.get(label.0).is_some_and(|it| it == label.1);
    Ok(samples.iter().find(fits).with_context(|| format!("no `{name}` with {label:?}"))?.value)
}

/// A node whose tenant has called a function in every way that a call can end.
fn used() -> Result<Node> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({ "cpu_ms": 50 }))?;
    tenant.must_deploy("it", &components::hostile()?)?;
    for body in ["state", "state", "state", "error:other", "trap", "loop"] {
        tenant.invoke("it", body.as_bytes())?;
    }
    tenant.invoke("absent", b"")?;
    Ok(node)
}

#[test]
fn metrics_are_for_the_operator() -> Result<()> {
    let node = Options::default().start()?;
    ensure!(node.anybody().get("/metrics")?.status == 401);
    Ok(())
}

#[test]
fn metrics_are_for_anybody_if_the_operator_says_so() -> Result<()> {
    let node = Options::default().set("open-metrics", "true").start()?;
    ensure!(node.anybody().get("/metrics")?.status == 200);
    Ok(())
}

#[test]
fn invocations_are_counted_by_how_they_ended() -> Result<()> {
    let samples = scrape(&used()?)?;
    for (outcome, count) in [("ok", 3.0), ("function_error", 1.0), ("trap", 1.0), ("limit", 1.0)] {
        ensure!(value(&samples, "weft_invocations_total", ("outcome", outcome))? == count, "{outcome}: {samples:?}");
    }
    Ok(())
}

#[test]
fn problems_are_counted_by_type() -> Result<()> {
    let samples = scrape(&used()?)?;
    for kind in ["function-error", "function-trapped", "deadline-exceeded", "not-found"] {
        ensure!(value(&samples, "weft_problems_total", ("type", kind))? == 1.0, "{kind}: {samples:?}");
    }
    Ok(())
}

#[test]
fn cold_starts_and_invocations_are_timed_from_10_microseconds_up() -> Result<()> {
    let samples = scrape(&used()?)?;
    for name in ["weft_cold_start_seconds", "weft_invoke_seconds"] {
        let bucket = format!("{name}_bucket");
        let buckets: Vec<&Sample> = samples.iter().filter(|sample| sample.name == bucket).collect();
        let bound = |sample: &&Sample| match sample.labels.get("le").map(String::as_str) {
            Some("+Inf") => Ok(f64::INFINITY),
            Some(bound) => Ok(bound.parse()?),
            None => bail!("no bound: {sample:?}"),
        };
        let bounds: Vec<f64> = buckets.iter().map(bound).collect::<Result<_>>()?;
        ensure!(
            (bounds[0] - 10e-6).abs() < 1e-9 && bounds.is_sorted() && bounds.ends_with(&[f64::INFINITY]),
            "{bounds:?}"
        );
        ensure!(buckets.is_sorted_by_key(|sample| sample.value), "{buckets:?}");
        let count = samples.iter().find(|sample| sample.name == format!("{name}_count")).context("no count")?;
        ensure!(count.value == 6.0 && buckets.last().is_some_and(|last| last.value == 6.0), "{name}: {samples:?}");
    }
    Ok(())
}

#[test]
fn the_number_of_series_does_not_follow_what_callers_send() -> Result<()> {
    let node = used()?;
    let tenant = node.tenant("two", json!({}))?;
    tenant.get("/nowhere")?;
    let series = scrape(&node)?.len();
    for number in 0..50 {
        tenant.get(&format!("/nowhere/{number}"))?;
        tenant.invoke(&format!("absent-{number}"), b"")?;
    }
    node.tenant("three", json!({}))?.must_deploy("another", &components::echo()?)?;
    let samples = scrape(&node)?;
    ensure!(samples.len() == series, "{series} became {}", samples.len());
    let known = ["channel", "le", "outcome", "type"];
    ensure!(samples.iter().flat_map(|sample| sample.labels.keys()).all(|label| known.contains(&label.as_str())));
    Ok(())
}

#[test]
fn what_jobs_exchange_is_counted_by_channel() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("ada", json!({}))?;
    prepare(&tenant)?;
    let names = ["items", "bytes", "seconds"].map(|what| format!("weft_exchange_{what}_total"));
    let exchanged = |channel: &str| -> Result<Vec<f64>> {
        let samples = scrape(&node)?;
        names.iter().map(|name| value(&samples, name, ("channel", channel))).collect()
    };
    ensure!(exchanged("store")? == [0.0; 3], "{:?}", exchanged("store")?);
    tenant.must_train(&lenet(json!({ "workers": 2, "epochs": 1, "sync": { "k": 4, "channel": "store" } })), LONG)?;
    let counted = exchanged("store")?;
    ensure!(counted.iter().all(|count| *count > 0.0), "{counted:?}");
    ensure!(exchanged("blobs")? == [0.0; 3] && exchanged("memory")? == [0.0; 3]);
    promtool_accepts(&node.operator()?.get("/metrics")?.text())
}

/// Prometheus' own opinion of names, types and help texts.
#[test]
fn promtool_finds_nothing_to_mend() -> Result<()> {
    promtool_accepts(&used()?.operator()?.get("/metrics")?.text())
}

fn promtool_accepts(text: &str) -> Result<()> {
    let promtool = components::repository().join("target/tools/promtool");
    let mut check = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{}`: `scripts/setup.sh test` fetches it", promtool.display()))?;
    check.stdin.take().context("no input")?.write_all(text.as_bytes())?;
    let said = check.wait_with_output()?;
    let complaints = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    ensure!(said.status.success() && complaints.trim().is_empty(), "{complaints}");
    Ok(())
}

#[test]
fn whoever_does_not_ask_for_openmetrics_gets_the_older_format() -> Result<()> {
    let answer = used()?.operator()?.get("/metrics")?;
    ensure!(
        answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")),
        "{answer:?}"
    );
    let text = answer.text();
    let (mut types, mut helps) = (BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').with_context(|| line.to_owned())?;
            ensure!(types.insert(family, kind).is_none(), "`{family}` has two types");
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (family, help) = rest.split_once(' ').with_context(|| line.to_owned())?;
            ensure!(!help.trim().is_empty() && helps.insert(family), "`{line}`");
        } else {
            let sample = sample(line).with_context(|| format!("`{line}`"))?;
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|ending| sample.name.strip_suffix(ending));
            let family = family.filter(|family| types.get(family) == Some(&"histogram")).unwrap_or(&sample.name);
            ensure!(types.contains_key(family) && helps.contains(family), "`{line}` is of no family");
        }
    }
    for (family, kind) in types {
        ensure!(family.ends_with("_total") == (kind == "counter"), "`{family}` is a {kind}");
        for unit in ["_ms", "_us", "_milliseconds", "_microseconds", "_kb", "_mib", "_kilobytes"] {
            ensure!(!family.contains(unit), "`{family}` is not in base units");
        }
    }
    Ok(())
}
