//! `weft plan --calibrate`: what this machine's channels carry, and how long workers take to start, measured and kept.
//!
//! Channels are those that jobs use, opened in this process: memory, the embedded store, files as blobs, and a Redis if one
//! is named. Starts are those of real jobs on the node, for which a function is needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use weft_core::plan::analytic::{Constants, Curve, Link, Measured};
use weft_core::plan::words::spoken;
use weft_core::spec::{Memory, Workers};
use weft_core::sync::Slot;

use super::probing::{ProbeJob, doubling};
use super::{Question, Variant};
use crate::blob::Blobs;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::profile;
use crate::clock::{rfc3339, unix_ms};
use crate::job::JobSpec;
use crate::job::channel::{BlobsChannel, Channel, MemoryChannel, Message, StoreChannel};
use crate::params::embedded::Embedded;
use crate::params::redis::{Incarnations, Link as RedisLink, PATIENCE, Redis};
use crate::params::space::Space;
use crate::params::{Bucket, ParamStore, StoreAddress};
use crate::tenant::{Account, Storage};

/// Messages that are nothing but latency, and those that are nothing but bandwidth: how many, and how many numbers each.
const SMALL: (u64, usize) = (200, 16);
const LARGE: (u64, usize) = (10, 4 << 20);
const MEGABYTE: f64 = 1e6;
/// No link is given more than this: where nothing is copied, there is no bandwidth to measure.
const MOST_BANDWIDTH: f64 = 1e6;

/// What was measured of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// RFC 3339.
    pub taken_at: String,
    /// What a message takes on its way, there or back, by channel.
    pub channels: BTreeMap<String, Link>,
    /// Seconds until so many workers have started; empty if that was not measured.
    #[serde(default)]
    pub start: Curve,
    #[serde(default)]
    pub start_spread: f64,
}

impl Calibration {
    /// Where it is kept: beside the profiles.
    pub fn path() -> anyhow::Result<PathBuf> {
        let profiles = profile::default_path().context("there is no folder for settings: set HOME")?;
        Ok(profiles.with_file_name("calibration.json"))
    }

    /// What was kept, if anything was.
    pub fn load() -> anyhow::Result<Option<Self>> {
        let path = Self::path()?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        let read = serde_json::from_str(&text);
        let kept: Self = read.with_context(|| {
            format!("`{}` is no calibration: delete it, or run `weft plan --calibrate`", path.display())
        })?;
        for channel in kept.channels.keys() {
            kept.constants(channel, 0.0)?.check().with_context(|| format!("`{}`: {channel}", path.display()))?;
        }
        Ok(Some(kept))
    }

    fn save(&self) -> anyhow::Result<PathBuf> {
        let path = Self::path()?;
        let write = || -> anyhow::Result<()> {
            let folder = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.persist(&path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(path)
    }

    /// What predictions for jobs with this channel are made of.
    pub fn constants(&self, channel: &str, worker_second: f64) -> anyhow::Result<Constants> {
        let link = |name: &str| {
            let known = self.channels.get(name).copied();
            known.with_context(|| format!("channel `{name}` was not measured: run `weft plan --calibrate`"))
        };
        Ok(Constants {
            note: format!("this machine, {}", self.taken_at),
            start: self.start.clone(),
            start_spread: self.start_spread,
            storage: link("blobs")?,
            channel: link(channel)?,
            worker_second,
            channel_second: 0.0,
        })
    }
}

/// Measures, keeps and shows.
pub fn run(
    question: Option<&Question>,
    store: Option<&StoreAddress>,
    client: Option<&Client>,
    out: &Output,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let channels = runtime.block_on(channels(store, out))?;
    let (start, start_spread) = match (question, client) {
        (Some(question), Some(client)) => starts(question, client, out)?,
        _ => Default::default(),
    };
    let calibration = Calibration { taken_at: rfc3339(unix_ms()), channels, start, start_spread };
    let path = calibration.save()?;
    out.show(&calibration, || {
        let row = |(name, link): (&String, &Link)| {
            let bandwidth = match link.bandwidth.value {
                it if it >= MOST_BANDWIDTH => "not copied".to_owned(),
                it => format!("{it:.0} ± {:.0} MB/s", link.bandwidth.spread),
            };
            let Measured { value, spread } = link.latency;
            vec![name.clone(), bandwidth, format!("{:.1} ± {:.1} µs", value * 1e6, spread * 1e6)]
        };
        let rows: Vec<Vec<String>> = calibration.channels.iter().map(row).collect();
        let mut text = out.table(&["CHANNEL", "BANDWIDTH", "LATENCY"], &rows);
        for (workers, seconds) in &calibration.start.0 {
            let noun = if *workers == 1 { "worker has" } else { "workers have" };
            text += &format!("{workers} {noun} started after {}\n", spoken(*seconds));
        }
        text + &format!("\nkept in `{}`\n", path.display())
    })
}

async fn channels(store: Option<&StoreAddress>, out: &Output) -> anyhow::Result<BTreeMap<String, Link>> {
    let folder = tempfile::tempdir()?;
    let bucket = |store: Arc<dyn ParamStore>| -> anyhow::Result<Bucket> {
        let space = Space::of_job("calibration".parse()?, "job".parse()?);
        Ok(Bucket::new(store, space, Account::new("params_bytes", u64::MAX, None)))
    };
    let blobs = Blobs::folder(folder.path().join("blobs"), folder.path().join("staging"))?;
    let scratch = blobs.scratch("calibration/job");
    let most = (LARGE.1 * size_of::<f32>()) as u64;
    let mut channels: Vec<(&str, Arc<dyn Channel>)> = vec![
        ("memory", Arc::new(MemoryChannel::new())),
        ("store", Arc::new(StoreChannel::new(bucket(Embedded::in_memory())?, 0))),
        ("blobs", Arc::new(BlobsChannel::new(scratch, Storage::new(u64::MAX), 0, most))),
    ];
    if let Some(address) = store.and_then(StoreAddress::remote) {
        let link = RedisLink::open(address, None, PATIENCE).await.context("`--params-store`")?;
        let redis = Redis::connect(link, Incarnations::in_memory()).await.context("`--params-store`")?;
        channels.push(("redis", Arc::new(StoreChannel::new(bucket(redis)?, 0))));
    }
    let mut links = BTreeMap::new();
    for (name, channel) in channels {
        out.note(format_args!("measuring channel `{name}` …"));
        channel.clear().await?;
        let measured = measure(&*channel).await.with_context(|| format!("channel `{name}`"))?;
        channel.clear().await?;
        links.insert(name.to_owned(), measured);
    }
    Ok(links)
}

/// A link as what a small and a large message take.
async fn measure(channel: &dyn Channel) -> anyhow::Result<Link> {
    let small = times(channel, SMALL, 0).await?;
    let large = times(channel, LARGE, SMALL.0).await?;
    let megabytes = (LARGE.1 * size_of::<f32>()) as f64 / MEGABYTE;
    let transfer = (large.value - small.value).max(megabytes / MOST_BANDWIDTH);
    let bandwidth = megabytes / transfer;
    let spread = bandwidth * (large.spread / large.value).min(1.0);
    Ok(Link { bandwidth: Measured { value: bandwidth, spread }, latency: small })
}

/// What a message of so many numbers takes one way: the median, and half of what the middle half of them differs by.
async fn times(channel: &dyn Channel, (count, numbers): (u64, usize), first: u64) -> anyhow::Result<Measured> {
    let values: Vec<f32> = (0..numbers).map(|at| at as f32).collect();
    let mut seconds = Vec::new();
    for round in first..first + count {
        let slot = Slot { round, layer: 0, shard: 0, worker: 0, claim: 1 };
        let message = Message::plain(1, values.clone());
        let began = Instant::now();
        channel.put(slot, message).await?;
        let found = channel.get(slot).await?;
        seconds.push(began.elapsed().as_secs_f64() / 2.0);
        anyhow::ensure!(found.is_some(), "a message that was put is not there");
        channel.forget(round).await?;
    }
    Ok(middle(&mut seconds))
}

fn middle(values: &mut [f64]) -> Measured {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values.get(values.len() * part / 4).copied().unwrap_or(0.0);
    Measured { value: at(2), spread: (at(3) - at(1)) / 2.0 }
}

/// Seconds until so many workers have started, each number three times.
fn starts(question: &Question, client: &Client, out: &Output) -> anyhow::Result<(Curve, f64)> {
    const TIMES: usize = 3;
    let Workers { least, most } = question.spec.workers;
    let (mut points, mut spread) = (Vec::new(), 0.0_f64);
    for workers in doubling(u64::from(least), u64::from(most)) {
        let workers = u32::try_from(workers)?;
        out.note(format_args!("measuring the start of {workers} …"));
        let mut seconds = Vec::new();
        for _ in 0..TIMES {
            let spec = Variant::default().over(&question.spec);
            let spec = JobSpec {
                workers: Workers::exactly(workers),
                memory: Memory::Bytes(question.sizes.least),
                epochs: 1,
                validate_every: 0,
                ..spec
            };
            let (_job, detail) = ProbeJob::run(spec, client, out)?;
            seconds.push(detail.ready_ms.unwrap_or(0.0) / 1e3);
        }
        let Measured { value, spread: around } = middle(&mut seconds);
        spread = spread.max(if value > 0.0 { around / value } else { 0.0 });
        points.push((workers, value));
    }
    Ok((Curve(points), spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_middle_is_not_moved_by_what_is_far_off() {
        let Measured { value, spread } = middle(&mut [1.0, 2.0, 3.0, 4.0, 1_000.0]);
        assert_eq!((value, spread), (3.0, 1.0));
        assert_eq!(middle(&mut []), Measured::exactly(0.0));
    }

    #[tokio::test]
    async fn channels_are_measured_as_links_that_predictions_take() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::folder(folder.path().join("blobs"), folder.path().join("staging")).unwrap();
        let most = (LARGE.1 * size_of::<f32>()) as u64;
        let files = BlobsChannel::new(blobs.scratch("a/b"), Storage::new(u64::MAX), 0, most);
        let channels = [("memory", measure(&MemoryChannel::new()).await), ("blobs", measure(&files).await)];
        let channels = channels.into_iter().map(|(name, link)| (name.to_owned(), link.unwrap())).collect();
        let start = Curve(vec![(1, 0.1)]);
        let calibration = Calibration { taken_at: String::new(), channels, start, start_spread: 0.0 };
        for channel in ["memory", "blobs"] {
            calibration.constants(channel, 1.0).unwrap().check().unwrap();
        }
        let links = &calibration.channels;
        assert!(links["blobs"].bandwidth.value < links["memory"].bandwidth.value, "{links:?}");
        assert!(calibration.constants("redis", 1.0).unwrap_err().to_string().contains("--calibrate"));
    }
}
