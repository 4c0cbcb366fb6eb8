//! Trainers that do harm: each ends with an error that names the mistake or the limit, in bounded time, and leaves nothing
//! behind: the same component then trains as if nothing had been, and the ledger is at zero.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use weft::host::data::StepInfo;
use weft::job::JobSpec;
use weft::tenant::{Quota, QuotaPatch};
use weft::train::files::LocalDataSet;
use weft::train::run;
use weft::train::worker::Worker;
use weft_tests::training::{Training, data, synthetic, waves};

/// However slow the machine is and whatever else it does, far above any limit and far below for ever.
const BOUND: Duration = Duration::from_secs(60);

/// However much a trainer says, no error is longer.
const SHORT: usize = 8 << 10;

/// Small, so that each limit is soon reached.
async fn training(limits: QuotaPatch) -> Result<Training> {
    let mut training = Training::of("tests/guests/hostile-trainer").await?;
    training.quota = Quota { wall_ms: 30_000, instance_memory: 64 << 20, ..training.quota };
    training.quota.apply(&limits);
    training.device_memory = 192 << 20;
    Ok(training)
}

fn samples() -> Result<LocalDataSet> {
    synthetic("binary20", 64, 32)
}

/// Every call that a trainer has, as a job and an inference make them.
async fn every_call(training: &Training, harm: &str, when: &str) -> Result<()> {
    let samples = samples()?;
    let params = [("harm", harm), ("when", when)];
    let words = params.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let batch = NonZeroU32::new(16).context("no batch")?;
    let spec = JobSpec { epochs: 1, batch: batch.get(), params: words.into(), ..training.spec() };
    training.train(spec, Some(&samples), None).await?;
    let mut worker = training.worker(&params).await?;
    let rows = run::infer(&mut worker, &data(&samples), batch).await?;
    ensure!(rows.len() == 32 && rows.iter().all(|row| row.len() == 2), "{rows:?}");
    Ok(())
}

/// Does the harm, and looks at what came of it.
async fn ends_with(training: &Training, harm: &str, when: &str, expected: &[&str]) -> Result<()> {
    let start = Instant::now();
    let Err(error) = every_call(training, harm, when).await else { bail!("`{harm}` went unnoticed") };
    let text = format!("{error:#}");
    ensure!(start.elapsed() < BOUND, "`{harm}` went on for {:?}", start.elapsed());
    ensure!(expected.iter().all(|part| text.contains(part)), "`{harm}`: {text}, which lacks one of {expected:?}");
    training.is_left_clean().await.with_context(|| format!("after `{harm}`"))?;
    every_call(training, "none", when).await.with_context(|| format!("after `{harm}`"))?;
    training.is_left_clean().await
}

macro_rules! harms {
    ($($name:ident: $harm:literal in $when:literal $(with $limit:ident = $value:expr)? => $($expected:literal),+;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn $name() -> Result<()> {
                let training = training(QuotaPatch { $($limit: Some($value),)? ..QuotaPatch::default() }).await?;
                ends_with(&training, $harm, $when, &[$($expected),+]).await
            }
        )+
    };
}

harms! {
    // What is declared.
    a_name_declared_twice: "twice" in "init" => "`scale` is declared twice";
    too_many_declarations: "many" in "init" => "8192 tensors", "`max_declared`";
    a_tensor_without_a_name: "no-name" in "init" => "no name for a tensor";
    a_name_that_is_too_long: "long-name" in "init" => "no name for a tensor", "1 to 200";
    a_name_of_odd_letters: "odd-name" in "init" => "no name for a tensor", r"\u{202e}";
    a_first_value_that_is_no_number: "no-number" in "init" => "`other` is not finite";
    a_weight_of_a_terabyte: "vast" in "init" => "out of device memory", "`device_memory`";
    a_weight_used_before_it_has_a_value: "early" in "init" => "no value before `init` has returned";
    gradients_clipped_to_less_than_nothing: "no-norm" in "init" => "must be above 0";
    a_schedule_of_no_steps: "no-steps" in "init" => "`schedule`", "at least one step";
    a_tensor_declared_in_a_step: "declare" in "step" => "only `init` declares";
    an_optimizer_declared_in_an_evaluation: "optimize" in "evaluate" => "only `init` declares";

    // Shapes, types and indices.
    matrices_that_do_not_fit: "shapes" in "step" => "`matmul`", "[2, 3]";
    sums_that_do_not_fit: "broadcast" in "infer" => "`add`", "[2] and [3]";
    a_million_axes: "axes" in "step" => "1000000 axes";
    a_row_that_there_is_not: "index" in "step" => "row 7 is out of range";
    bytes_behind_the_end: "write" in "step" => "do not fit [4]";

    // Gradients.
    backward_from_the_same_loss_twice: "backward-twice" in "step" => "freed by an earlier backward";
    no_backward_at_all: "no-backward" in "step" => "called no `backward`";
    backward_from_no_weight: "backward-of-nothing" in "step" => "descends from a parameter";
    a_weight_changed_before_backward: "overwrite" in "step" => "written after it was used";
    a_tape_that_grows_for_ever: "tape" in "step" => "out of device memory", "`device_memory`";
    a_tape_of_views_without_memory: "tape-of-views" in "step" => "out of device memory", "`device_memory`";
    a_tensor_of_too_many_others: "operands" in "step" => "`concat`", "`max_concat`";

    // What is given back.
    a_loss_that_is_no_number: "nan" in "step" => "the loss of step 0", "NaN";
    a_weight_that_is_no_number: "weight-nan" in "step" => "step 0", "not finite", "`scale`";
    a_loss_of_several_numbers: "vector-loss" in "step" => "loss", "one number", "[3]";
    a_loss_of_a_whole_number: "whole-loss" in "step" => "loss", "f32", "i32";
    a_weight_given_back_as_loss: "declared-loss" in "step" => "loss", "one number", "[2]";
    samples_that_nobody_gave: "samples" in "step" => "saw 17 samples", "given 16";
    a_metric_measured_twice: "metric-twice" in "evaluate" => "`loss`", "twice";
    a_metric_with_a_name_of_a_mebibyte: "metric-name" in "evaluate" => "1 to 64 bytes", "`max_metric_name`", "1048576";
    a_metric_with_a_line_break_in_its_name: "metric-control" in "evaluate" => "no control characters", r"a\nb";
    too_many_metrics: "metrics" in "evaluate" => "65 metrics", "`max_metrics`";
    other_metrics_for_each_batch: "new-metrics" in "evaluate" => "more than 64 metrics", "`max_metrics`";
    a_metric_of_several_numbers: "vector-metric" in "evaluate" => "`outputs`", "one number", "[16, 2]";
    a_sample_left_out: "rows" in "infer" => "16 samples", "[15, 2]";
    rows_of_nothing: "empty-rows" in "infer" => "16 samples", "[16, 0]";

    // Memory.
    leaked_tensors: "leak" in "step" => "`max_tensors`";
    tensors_leaked_before_training: "leak" in "init" => "`max_tensors`";
    tensors_leaked_step_by_step: "slow-leak" in "step" => "`max_tensors`";
    all_of_the_device: "allocate" in "step" => "out of device memory", "`device_memory`";
    all_of_the_device_in_an_evaluation: "allocate" in "evaluate" => "out of device memory", "`device_memory`";
    more_than_the_device_at_once: "allocate-at-once" in "infer" => "out of device memory", "`device_memory`";
    more_than_an_address_reaches: "allocate-beyond" in "step" => "too large";
    a_gigabyte_read_at_once: "read" in "step" => "1073741824 bytes", "`max_payload`";
    all_linear_memory: "memory" in "step" => "`instance_memory`";

    // Time.
    a_step_that_never_returns: "loop" in "step" with wall_ms = 500 => "`wall_ms` = 500";
    a_step_that_uses_up_its_cpu_time: "loop" in "step" with cpu_ms = 500 => "`cpu_ms` = 500";
    an_init_that_never_returns: "loop" in "init" with wall_ms = 500 => "`wall_ms` = 500";
    an_init_that_sleeps: "sleep" in "init" with wall_ms = 500 => "`wall_ms` = 500";
    a_step_that_sleeps: "sleep" in "step" with wall_ms = 500 => "`wall_ms` = 500";
    an_update_that_sleeps: "sleep" in "update" with wall_ms = 500 => "`wall_ms` = 500";
    an_evaluation_that_sleeps: "sleep" in "evaluate" with wall_ms = 500 => "`wall_ms` = 500";
    an_inference_that_sleeps: "sleep" in "infer" with wall_ms = 500 => "`wall_ms` = 500";
    matrices_multiplied_for_ever: "matmuls" in "step" with wall_ms = 500 => "`wall_ms` = 500";
    matrices_multiplied_whatever_the_host_says: "stubborn" in "step" with wall_ms = 500 => "`wall_ms` = 500";
    an_inference_that_never_returns: "matmuls" in "infer" with wall_ms = 500 => "`wall_ms` = 500";
    one_product_that_takes_hours: "one-matmul" in "evaluate" with wall_ms = 500 => "`wall_ms` = 500";
    random_tensors_for_ever: "draws" in "step" => "random tensors", "`max_draws`";

    // Ends.
    a_trap: "trap" in "step" => "unreachable";
    a_trap_in_init: "trap" in "init" => "unreachable";
    a_panic: "panic" in "evaluate" => "told to panic";
}

/// What the trainer says of itself, which the seed makes harmful, is refused for this.
async fn description_is_refused(seed: u64, expected: &[&str]) -> Result<()> {
    let mut training = training(QuotaPatch::default()).await?;
    training.seed = seed;
    let Err(error) = every_call(&training, "none", "step").await else { bail!("it went unnoticed") };
    let text = format!("{error:#}");
    ensure!(expected.iter().all(|part| text.contains(part)), "{text}, which lacks one of {expected:?}");
    ensure!(text.len() < SHORT, "an error of {} bytes", text.len());
    training.is_left_clean().await?;
    training.seed = 0;
    every_call(&training, "none", "step").await?;
    training.is_left_clean().await
}

macro_rules! descriptions {
    ($($name:ident: $seed:literal => $($expected:literal),+;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn $name() -> Result<()> {
                description_is_refused($seed, &[$($expected),+]).await
            }
        )+
    };
}

descriptions! {
    too_many_parameters: 90_001 => "257 hyper-parameters", "`max_parameters`";
    a_parameter_with_a_name_of_a_mebibyte: 90_002 => "1 to 64 bytes", "`max_parameter_name`", "1048576";
    a_parameter_with_a_line_break_in_its_name: 90_003 => "no control characters", r"a\nb";
    a_parameter_with_a_default_of_a_mebibyte: 90_004 => "1048576 bytes", "`max_parameter_text`", "`extra`";
    a_parameter_of_too_many_choices: 90_005 => "65 choices", "`max_choices`", "`extra`";
    a_parameter_with_a_summary_of_a_mebibyte: 90_006 => "1048576 bytes", "`max_parameter_text`", "`extra`";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_lists_only_some_of_many_long_choices() -> Result<()> {
    let mut training = training(QuotaPatch::default()).await?;
    training.seed = 90_007;
    every_call(&training, "none", "step").await?;
    let Err(error) = training.worker(&[("extra", "another")]).await else { bail!("it was taken") };
    let text = format!("{error:#}");
    ensure!(text.contains("`another` is not one of: mmm") && text.contains("more bytes"), "{text}");
    ensure!(text.len() < SHORT, "an error of {} bytes", text.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_weight_whose_size_changes_is_refused_by_the_next_instance() -> Result<()> {
    let mut training = training(QuotaPatch::default()).await?;
    training.fresh = true;
    ends_with(&training, "changing", "step", &["`other`", "the same every time"]).await
}

/// Its size is what the job's leases are for.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_model_that_is_larger_than_the_one_that_was_tried_out_is_refused_before_it_is_copied() -> Result<()> {
    let training = training(QuotaPatch::default()).await?;
    ends_with(&training, "growing", "step", &["`init` now declares", "when the trainer was tried out"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_tape_is_no_harm() -> Result<()> {
    let training = training(QuotaPatch::default()).await?;
    let mut worker = training.worker(&[("harm", "deep")]).await?;
    let batch = waves(worker.context(), 16, &[20], 2)?;
    worker.step(StepInfo::default(), Some(batch)).await?;
    drop(worker);
    training.is_left_clean().await
}

/// What one call did is over with it, so that whoever runs the worker may give it another.
async fn goes_on_after(harm: &str) -> Result<()> {
    let training = training(QuotaPatch { wall_ms: Some(2_000), ..QuotaPatch::default() }).await?;
    let mut worker = training.worker(&[("harm", harm), ("when", "step")]).await?;
    let batch = waves(worker.context(), 16, &[20], 2)?;
    let weights = numbers(&worker)?;
    for _ in 0..2 {
        ensure!(worker.step(StepInfo::default(), Some(batch.clone())).await.is_err(), "`{harm}` went unnoticed");
        let metrics = worker.evaluate(StepInfo::default(), Some(batch.clone())).await?;
        ensure!(metrics.len() == 1 && metrics[0].value.item()?.is_finite(), "{metrics:?}");
    }
    ensure!(numbers(&worker)? == weights, "`{harm}` changed the model");
    Ok(())
}

fn numbers(worker: &Worker) -> Result<Vec<Vec<f32>>> {
    let declared = worker.declared().context("nothing was declared")?;
    Ok(declared.named().map(|(_, tensor)| tensor.to_vec()).collect::<Result<_, _>>()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_goes_on_after_a_step_that_trapped() -> Result<()> {
    goes_on_after("trap").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_goes_on_after_a_step_that_leaked() -> Result<()> {
    goes_on_after("allocate").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_goes_on_after_a_step_that_was_out_of_time() -> Result<()> {
    goes_on_after("matmuls").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_goes_on_after_a_step_that_slept() -> Result<()> {
    goes_on_after("sleep").await
}

/// As when a job is stopped: whatever a guest waits for, it is over at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_sleeps_is_stopped_when_its_work_is_cancelled() -> Result<()> {
    let training = training(QuotaPatch { wall_ms: Some(600_000), ..QuotaPatch::default() }).await?;
    let mut worker = training.worker(&[("harm", "sleep"), ("when", "step")]).await?;
    let batch = waves(worker.context(), 16, &[20], 2)?;
    let cancel = worker.context().cancel().clone();
    let stop = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    let start = Instant::now();
    let Err(error) = worker.step(StepInfo::default(), Some(batch)).await else { bail!("it went unnoticed") };
    stop.await?;
    ensure!(start.elapsed() < BOUND, "{error} only after {:?}", start.elapsed());
    Ok(())
}
