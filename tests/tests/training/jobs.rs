//! A job of one worker is the loop that one would write by hand, to the bit, however it is cut into rounds.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use weft::dataset::batches::{Batches, Options, Source, Subset};
use weft::dataset::shard::Plan;
use weft::host::data::StepInfo;
use weft::job::JobSpec;
use weft::job::channel::{Channel, ChannelError, ChannelTraffic, Content, MemoryChannel, Message};
use weft::model::Model;
use weft::train::declared::Role;
use weft::train::files::LocalDataSet;
use weft_core::spec::{SyncWords, Workers};
use weft_core::sync::Slot;
use weft_core::usage::Replicas;
use weft_tests::training::{Trained, Training, synthetic};

const BATCH: NonZeroU32 = NonZeroU32::new(16).unwrap();
const EPOCHS: u64 = 3;
const RATE: f32 = 0.05;
/// Has random numbers of its own in every step, and an optimizer that remembers.
const PARAMS: [(&str, &str); 3] = [("layers", "1"), ("width", "16"), ("dropout", "0.5")];

type Tensors = BTreeMap<String, Vec<u8>>;

fn samples() -> Result<LocalDataSet> {
    // Its last batch of an epoch is smaller than the others.
    synthetic("binary20", 100, 32)
}

fn spec(training: &Training) -> JobSpec {
    let params = PARAMS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    JobSpec { epochs: EPOCHS, batch: BATCH.get(), lr: RATE, params, ..training.spec() }
}

fn tensors(file: Vec<u8>) -> Result<Tensors> {
    let mut model = Model::open(Cursor::new(file))?;
    let names: Vec<String> = model.tensors().map(|tensor| tensor.name.clone()).collect();
    names.into_iter().map(|name| Ok((name.clone(), model.tensor(&name)?))).collect()
}

/// Trains without a job: the weights that it comes to.
async fn by_hand(training: &Training, samples: &LocalDataSet) -> Result<Tensors> {
    let mut worker = training.worker(&PARAMS).await?;
    let mut step = 0;
    for epoch in 0..EPOCHS {
        let plan = Plan { seed: training.seed, epoch, ..Plan::default() };
        let source = Source {
            name: "samples",
            manifest: &samples.manifest,
            part: Subset::Train,
            blocks: samples.blocks.clone(),
        };
        for batch in Batches::start(source, Options::new(plan, BATCH), worker.context())? {
            let place = StepInfo { step, epoch, rate: RATE, worker: 0, workers: 1 };
            worker.step(place, Some(batch?)).await?;
            worker.descend(RATE)?;
            step += 1;
        }
    }
    let declared = worker.declared().context("nothing was declared")?;
    let kept = declared.named().filter(|(tensor, _)| matches!(tensor.role, Role::Weight | Role::Buffer));
    kept.map(|(tensor, memory)| {
        Ok((tensor.name.clone(), memory.to_vec::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect()))
    })
    .collect()
}

#[tokio::test]
async fn a_job_of_one_worker_gives_the_bits_of_a_loop_by_hand() -> Result<()> {
    let mut training = Training::of("functions/mlp").await?;
    training.seed = 7;
    let samples = samples()?;
    let trained = training.train(spec(&training), Some(&samples), None).await?;
    ensure!(trained.epochs.len() == EPOCHS as usize, "{:?}", trained.epochs);
    ensure!(tensors(trained.model)? == by_hand(&training, &samples).await?, "the job gives other bits");
    Ok(())
}

#[tokio::test]
async fn checkpoints_within_an_epoch_change_no_bit_and_training_goes_on_from_any() -> Result<()> {
    let training = Training::of("functions/mlp").await?;
    let samples = samples()?;
    let whole = training.train(spec(&training), Some(&samples), None).await?;
    let often = JobSpec { checkpoint_every: 3, ..spec(&training) };
    let cut = training.train(often.clone(), Some(&samples), None).await?;
    let model = tensors(whole.model)?;
    ensure!(tensors(cut.model)? == model, "checkpoints change bits");
    // Seven steps an epoch: after three, six, and at the end.
    ensure!(cut.checkpoints.len() == 3 * EPOCHS as usize, "{} checkpoints", cut.checkpoints.len());
    for checkpoint in cut.checkpoints {
        let (epoch, done) = (checkpoint.progress.epoch, checkpoint.progress.done);
        let resumed = training.train(often.clone(), Some(&samples), Some(checkpoint)).await?;
        ensure!(tensors(resumed.model)? == model, "from step {done} of epoch {epoch} on, bits differ");
    }
    Ok(())
}

/// Gives the coordinator what was merged, and afterwards others something else: once, in one round.
struct Skewed {
    inner: MemoryChannel,
    round: u64,
    gets: AtomicU64,
}

#[async_trait]
impl Channel for Skewed {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        self.inner.put(slot, message).await
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        let found = self.inner.get(slot).await?;
        // The first worker merges the first shard, and takes the other after the coordinator has.
        let is_it = slot.round == self.round && slot.layer == 1 && slot.shard == 1;
        if !is_it || self.gets.fetch_add(1, Relaxed) == 0 {
            return Ok(found);
        }
        Ok(found.map(|message| match &message.payload {
            Content::Plain(numbers) => {
                Message::plain(message.samples, numbers.iter().map(|number| number + 0.5).collect::<Vec<f32>>())
            }
            Content::Encoded(_) => message,
        }))
    }

    async fn forget(&self, up_to_round: u64) -> Result<(), ChannelError> {
        self.inner.forget(up_to_round).await
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        self.inner.clear().await
    }

    fn traffic(&self) -> ChannelTraffic {
        self.inner.traffic()
    }
}

#[tokio::test]
async fn a_worker_whose_model_went_astray_is_told_the_jobs_own() -> Result<()> {
    let training = Training::of("functions/mlp").await?;
    let samples = samples()?;
    // Two shards of 50 samples: four rounds of training and one of validation in each epoch.
    let sync = SyncWords { topology: Some("scatter".to_owned()), ..SyncWords::default() };
    let spec = JobSpec { epochs: 4, workers: Workers::exactly(2), sync, ..spec(&training) };
    let calm = training.train(spec.clone(), Some(&samples), None).await?;
    let skewed = Arc::new(Skewed { inner: MemoryChannel::default(), round: 7, gets: AtomicU64::new(0) });
    let astray = training.train_through(skewed.clone(), spec, Some(&samples), None).await?;
    ensure!(skewed.gets.load(Relaxed) == 2, "the second epoch was to go wrong");
    let replicas = |trained: &Trained| trained.epochs.iter().map(|epoch| epoch.replicas).collect::<Vec<_>>();
    let [none, same, other] = [(0, 0), (1, 0), (1, 1)].map(|(compared, differed)| Replicas { compared, differed });
    // What went wrong in the second epoch is found after its checkpoint, and mended.
    ensure!(replicas(&calm) == [none, same, same, same], "{:?}", replicas(&calm));
    ensure!(replicas(&astray) == [none, same, other, same], "{:?}", replicas(&astray));
    training.is_left_clean().await
}

#[tokio::test]
async fn workers_that_share_a_batch_learn_what_one_learns() -> Result<()> {
    let training = Training::of("functions/logistic-regression").await?;
    let samples = synthetic("binary20", 128, 64)?;
    let params: BTreeMap<_, _> = [("features".to_owned(), "20".to_owned())].into();
    let spec = JobSpec { epochs: 3, global_batch: Some(32), params, ..training.spec() };
    let one = training.train(spec.clone(), Some(&samples), None).await?;
    let two = training.train(JobSpec { workers: Workers::exactly(2), ..spec }, Some(&samples), None).await?;
    let loss =
        |epochs: &[weft::job::EpochRecord]| epochs.last().and_then(|epoch| epoch.validation.get("loss").copied());
    let (one, two) = (loss(&one.epochs).context("no loss")?, loss(&two.epochs).context("no loss")?);
    // The order of samples differs, the number of them in a step does not.
    ensure!((one - two).abs() < 0.05, "{one} and {two}");
    training.is_left_clean().await
}
