//! How long a fresh instance takes: made, called, dropped.
//!
//! Ours goes through everything that an invocation goes through after HTTP: admission, turns, limits, metering, log. The
//! baseline is wasmtime alone, with the pooling allocator's default settings, no limits and a synchronous call.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Result, anyhow};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, Store};
use weft::sandbox::{Loaded, Sandbox};
use weft::tenant::Tenant;
use weft_tests::components::echo;
use weft_tests::sandbox::{self, call};

use crate::{Measurement, percentile};

const BENCH: &str = "cold_start";
const ROUNDS: usize = 40;
const PER_ROUND: usize = 250;
const WARM_UP: usize = 500;

pub fn run() -> Result<()> {
    let component = echo()?;
    let ours = Ours::new(&component)?;
    let bare = Bare::new(&component)?;
    let (mut quiet, mut quiet_bare) = in_turns(&ours, &bare)?;
    let (mut busy, mut busy_bare) = beside_a_busy_thread(|| in_turns(&ours, &bare))?;
    let beside = |metric, ours: &mut [f64], bare: &mut [f64], share| {
        Measurement::beside(BENCH, metric, "us", percentile(ours, share), percentile(bare, share)).print()
    };
    beside("cold_start.p50", &mut quiet, &mut quiet_bare, 0.5)?;
    beside("cold_start.p99", &mut quiet, &mut quiet_bare, 0.99)?;
    beside("cold_start.busy_p50", &mut busy, &mut busy_bare, 0.5)?;
    beside("cold_start.busy_p99", &mut busy, &mut busy_bare, 0.99)
}

/// Rounds of one and the other by turns, so that what disturbs the machine disturbs both.
fn in_turns(ours: &Ours, bare: &Bare) -> Result<(Vec<f64>, Vec<f64>)> {
    ours.round(WARM_UP)?;
    bare.round(WARM_UP)?;
    let (mut our_samples, mut bare_samples) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        our_samples.extend(ours.round(PER_ROUND)?);
        bare_samples.extend(bare.round(PER_ROUND)?);
    }
    Ok((our_samples, bare_samples))
}

fn beside_a_busy_thread<T>(work: impl FnOnce() -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let busy = std::thread::spawn(move || {
        let mut memory = vec![0u64; 1 << 16];
        while !flag.load(Relaxed) {
            memory.iter_mut().for_each(|word| *word = black_box(*word + 1));
        }
    });
    let result = work();
    stop.store(true, Relaxed);
    // It cannot panic, and nothing depends on how it ended.
    busy.join().ok();
    result
}

struct Ours {
    runtime: tokio::runtime::Runtime,
    sandbox: Arc<Sandbox>,
    loaded: Arc<Loaded>,
    tenant: Arc<Tenant>,
}

impl Ours {
    fn new(component: &[u8]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let sandbox = sandbox::new()?;
        let loaded = runtime.block_on(sandbox::load(&sandbox, component))?;
        Ok(Self { runtime, sandbox, loaded, tenant: sandbox::tenant()? })
    }

    fn round(&self, times: usize) -> Result<Vec<f64>> {
        self.runtime.block_on(async {
            let mut samples = Vec::with_capacity(times);
            for number in 0..times {
                let start = Instant::now();
                let permit = self.sandbox.gate().enter(self.tenant.id, 64).await?;
                let call = call(&self.tenant, number as u64, b"hello");
                let finished = self.sandbox.invoke(&self.loaded, call, permit).await;
                black_box(finished.result.map_err(|error| anyhow!(error))?);
                samples.push(start.elapsed().as_secs_f64() * 1e6);
            }
            Ok(samples)
        })
    }
}

mod bindings {
    // What an echo imports, and no more.
    wasmtime::component::bindgen!({
        inline: "
            package weft:bare;
            world task {
                use weft:train/types@0.1.0.{request, response, error};
                import weft:train/job@0.1.0;
                export handle: func(request: request) -> result<response, error>;
            }
        ",
        path: "../wit",
        world: "weft:bare/task",
    });
}

use bindings::weft::train::{job, types};

/// A host that does nothing.
struct Nothing;

impl types::Host for Nothing {}

impl job::Host for Nothing {
    fn log(&mut self, _: job::Level, _: String) {}

    fn id(&mut self) -> String {
        String::new()
    }

    fn function_name(&mut self) -> String {
        String::new()
    }

    fn function_version(&mut self) -> String {
        String::new()
    }

    fn seed(&mut self) -> u64 {
        0
    }

    fn random_u64(&mut self) -> u64 {
        0
    }

    fn random_bytes(&mut self, _: u32) -> Result<Vec<u8>, types::Error> {
        Ok(Vec::new())
    }

    fn time_left(&mut self) -> u64 {
        0
    }

    fn should_stop(&mut self) -> bool {
        false
    }

    fn step(&mut self) -> u64 {
        0
    }

    fn epoch(&mut self) -> u64 {
        0
    }

    fn learning_rate(&mut self) -> f32 {
        0.0
    }

    fn worker(&mut self) -> u32 {
        0
    }

    fn workers(&mut self) -> u32 {
        1
    }
}

struct Bare {
    engine: Engine,
    task: bindings::TaskPre<Nothing>,
}

impl Bare {
    fn new(component: &[u8]) -> Result<Self> {
        let mut config = Config::new();
        config.allocation_strategy(InstanceAllocationStrategy::pooling());
        let plain = |error: wasmtime::Error| anyhow!("{error:#}");
        let engine = Engine::new(&config).map_err(plain)?;
        let component = Component::new(&engine, component).map_err(plain)?;
        let mut linker = Linker::new(&engine);
        bindings::Task::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state).map_err(plain)?;
        let pre = linker.instantiate_pre(&component).map_err(plain)?;
        Ok(Self { engine, task: bindings::TaskPre::new(pre).map_err(plain)? })
    }

    fn round(&self, times: usize) -> Result<Vec<f64>> {
        let plain = |error: wasmtime::Error| anyhow!("{error:#}");
        let mut samples = Vec::with_capacity(times);
        for _ in 0..times {
            let start = Instant::now();
            let request = types::Request { content_type: "text/plain".to_owned(), body: b"hello".to_vec() };
            let mut store = Store::new(&self.engine, Nothing);
            let task = self.task.instantiate(&mut store).map_err(plain)?;
            black_box(task.call_handle(&mut store, &request).map_err(plain)?.is_ok());
            drop(store);
            samples.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(samples)
    }
}
