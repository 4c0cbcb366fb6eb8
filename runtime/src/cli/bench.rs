//! `weft bench devices`: how fast each device is, in figures that mean something to whoever chooses one.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::sync::Arc;
use weft_gpu::device::Kind;
use weft_gpu::models::{Model, ModelKind};
use weft_gpu::pool::{DeviceId, Request, Wish, machine};
use weft_gpu::{Context, Crew, Pool};

use super::devices::VISIBLE_DEVICES;
use super::output::Output;

/// How long each figure is measured.
const MEASURED: Duration = Duration::from_millis(700);

/// What a lease for measuring may hold, where the device has as much.
const BYTES: usize = 2 << 30;

#[derive(Subcommand)]
pub enum BenchVerb {
    /// Products of matrices, memory, and training steps, on each device
    Devices(DevicesArgs),
}

#[derive(Args)]
pub struct DevicesArgs {
    /// Only this device; may be given several times
    #[arg(long, value_name = "DEVICE")]
    device: Vec<DeviceId>,
    /// Models and batch sizes whose training steps are compared
    #[arg(long, value_delimiter = ',', value_name = "MODEL.BATCH", default_value = "mlp.32,lenet.16,resnet18.8")]
    models: Vec<String>,
    /// Rows and columns of the matrices; fewer on a device that is slow
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=16384))]
    size: u32,
}

#[derive(Serialize)]
struct Figures {
    device: String,
    name: String,
    kind: String,
    gflops: f64,
    gigabytes_per_second: f64,
    steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    model: String,
    samples_per_second: f64,
}

pub fn run(verb: BenchVerb, out: &Output) -> anyhow::Result<()> {
    let BenchVerb::Devices(args) = verb;
    let models = args.models.iter().map(|text| parse_model(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let visible = std::env::var(VISIBLE_DEVICES).unwrap_or_else(|_| "all".into());
    let pool = Pool::visible(machine(None), &visible).with_context(|| format!("{VISIBLE_DEVICES}={visible}"))?;
    if let Some(unknown) = args.device.iter().find(|id| pool.devices().all(|(other, _)| other != **id)) {
        let names: Vec<String> = pool.devices().map(|(id, _)| id.to_string()).collect();
        anyhow::bail!("there is no device `{unknown}`; there are: {}", names.join(", "));
    }
    let mut figures = Vec::new();
    for (id, info) in pool.devices().filter(|(id, _)| args.device.is_empty() || args.device.contains(id)) {
        out.note(format_args!("measuring {id} ({}) …", info.name));
        let request = Request { device: Wish::Exactly(id), ..Request::new("bench", BYTES.min(info.memory)) };
        let lease = pool.lease(request)?;
        let context = Context::leased(&lease, Arc::new(Crew::new(info.threads)), usize::MAX);
        // A figure worth having needs some runs, and cores in disguise take long for each.
        let size = if info.kind == Kind::Software { args.size.min(512) } else { args.size } as usize;
        figures.push(Figures {
            device: id.to_string(),
            name: info.name.clone(),
            kind: info.kind.to_string(),
            gflops: product(&context, size)?,
            gigabytes_per_second: memory(&context)?,
            steps: models.iter().map(|model| step(&context, model)).collect::<anyhow::Result<_>>()?,
        });
    }
    out.show(&figures, || {
        let mut header = vec!["DEVICE", "NAME", "GFLOP/S", "GB/S"];
        let titles: Vec<String> = args.models.iter().map(|model| format!("{model} SAMPLES/S")).collect();
        header.extend(titles.iter().map(String::as_str));
        let rows: Vec<Vec<String>> = figures.iter().map(Figures::row).collect();
        out.table(&header, &rows)
    })
}

impl Figures {
    fn row(&self) -> Vec<String> {
        let mut row = vec![
            self.device.clone(),
            self.name.clone(),
            format!("{:.1}", self.gflops),
            format!("{:.1}", self.gigabytes_per_second),
        ];
        row.extend(self.steps.iter().map(|step| format!("{:.0}", step.samples_per_second)));
        row
    }
}

/// `lenet.16`: a model and a batch size.
fn parse_model(text: &str) -> anyhow::Result<(String, ModelKind, usize)> {
    let wrong = || format!("`{text}` is not a model and a batch size such as `lenet.16`");
    let (name, batch) = text.rsplit_once('.').with_context(wrong)?;
    let batch = batch.parse::<usize>().ok().filter(|batch| (1..=4096).contains(batch)).with_context(wrong)?;
    Ok((text.to_owned(), name.parse::<ModelKind>().with_context(wrong)?, batch))
}

/// How often `work` is done in a second, once it is warm; `finish` waits for all of it.
fn rate(mut work: impl FnMut() -> anyhow::Result<()>, finish: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    work()?;
    finish()?;
    let (start, mut times) = (Instant::now(), 0_u32);
    while times == 0 || start.elapsed() < MEASURED {
        work()?;
        times += 1;
        // A GPU takes work faster than it does it: a long queue would be waited for at the end.
        if times.is_power_of_two() {
            finish()?;
        }
    }
    finish()?;
    Ok(f64::from(times) / start.elapsed().as_secs_f64())
}

/// Billions of floating-point operations in a second.
fn product(context: &Context, size: usize) -> anyhow::Result<f64> {
    let a = context.full(&[size, size], weft_gpu::DType::F32, 0.5)?;
    let result = std::cell::RefCell::new(a.clone());
    let work = || {
        *result.borrow_mut() = a.matmul(&a)?;
        Ok(())
    };
    let finish = || Ok(result.borrow().read(0, &mut [0; 4])?);
    Ok(rate(work, finish)? * 2.0 * (size as f64).powi(3) / 1e9)
}

/// Billions of bytes read and written in a second, by an addition.
fn memory(context: &Context) -> anyhow::Result<f64> {
    const ELEMENTS: usize = 8 << 20;
    let a = context.full(&[ELEMENTS], weft_gpu::DType::F32, 0.5)?;
    let b = context.full(&[ELEMENTS], weft_gpu::DType::F32, 0.25)?;
    let result = std::cell::RefCell::new(a.clone());
    let work = || {
        *result.borrow_mut() = a.add(&b)?;
        Ok(())
    };
    let finish = || Ok(result.borrow().read(0, &mut [0; 4])?);
    Ok(rate(work, finish)? * 12.0 * ELEMENTS as f64 / 1e9)
}

fn step(context: &Context, (name, kind, batch): &(String, ModelKind, usize)) -> anyhow::Result<Step> {
    let model = std::cell::RefCell::new(Model::new(context, *kind, 0)?);
    let data = kind.batch(context, *batch, 0)?;
    let loss = std::cell::RefCell::new(None);
    let work = || {
        *loss.borrow_mut() = Some(model.borrow_mut().step(&data, 0.01)?);
        Ok(())
    };
    let finish = || {
        if let Some(loss) = &*loss.borrow() {
            loss.item()?;
        }
        Ok(())
    };
    Ok(Step { model: name.clone(), samples_per_second: rate(work, finish)? * *batch as f64 })
}
