//! What a call from a guest into the host takes: the rank of a tensor, and the sum of two tensors of one element, which is
//! then dropped. The baseline of the sum is the same sum without a guest.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow};
use weft::sandbox::Loaded;
use weft_gpu::device::cpu::SharedCpu;
use weft_gpu::{Context, Crew, Pool, Request};
use weft_tests::{components, sandbox};

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "hostcall";
const ROUNDS: usize = 9;
const CALLS: u64 = 200_000;

pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let host = sandbox::new()?;
        let function = sandbox::load(&host, &components::component("tests/guests/hostcall")?).await?;
        let pool = Pool::new(vec![Arc::new(SharedCpu::new())]);
        let lease = pool.lease(Request::new("bench", 64 << 20))?;
        let context = Context::leased(&lease, Arc::new(Crew::new(1)), 1 << 20);
        if is_wanted("hostcall") {
            let nanoseconds = guest(&host, &function, &context, "rank").await?;
            Measurement::alone(BENCH, "hostcall", "ns", nanoseconds).print()?;
        }
        if is_wanted("hostcall.add") {
            let ours = guest(&host, &function, &context, "add").await?;
            Measurement::beside(BENCH, "hostcall.add", "ns", ours, native(&context)?).print()?;
        }
        Ok(())
    })
}

/// Nanoseconds a call, with what starting an instance takes left out.
async fn guest(host: &weft::sandbox::Sandbox, function: &Arc<Loaded>, context: &Context, what: &str) -> Result<f64> {
    let tenant = sandbox::tenant()?;
    let mut rounds = Vec::new();
    for round in 0..2 * ROUNDS as u64 {
        let mut seconds = [0.0; 2];
        for (seconds, calls) in seconds.iter_mut().zip([0, CALLS]) {
            let permit = host.gate().enter(tenant.id, u32::MAX).await?;
            let mut call = sandbox::call(&tenant, round, format!("{what} {calls}").as_bytes());
            call.context = Some(context.clone());
            let start = Instant::now();
            host.invoke(function, call, permit).await.result.map_err(|error| anyhow!("{error}"))?;
            *seconds = start.elapsed().as_secs_f64();
        }
        // The first half warms up.
        if round >= ROUNDS as u64 {
            rounds.push((seconds[1] - seconds[0]) * 1e9 / CALLS as f64);
        }
    }
    Ok(percentile(&mut rounds, 0.5))
}

fn native(context: &Context) -> Result<f64> {
    let x = context.tensor(&[1], &[1.0_f32])?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(x.add(&x)?);
        }
        rounds.push(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
    }
    Ok(percentile(&mut rounds, 0.5))
}
