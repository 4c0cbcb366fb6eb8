//! A job that follows its data set: the beginning of a version, and what its epochs tell of it.

use super::super::record::TrainedOn;
use super::super::team::Halt;
use super::super::work_order::Task;
use super::{Engine, Keeper};

impl<K: Keeper> Engine<K> {
    /// Begins with a version of the data set, unless some of it is done already: what was the best before says nothing of
    /// it, and what the model makes of the new samples is measured before it is trained on any.
    pub(super) async fn begin_version(&mut self) -> Result<(), Halt> {
        let (progress, begins) = (&mut self.training.progress, self.workshop.brief.epochs.start);
        let is_begun = (progress.epoch, progress.earlier, progress.done) != (begins, 0, 0);
        if begins == 0 || is_begun {
            return Ok(());
        }
        progress.learning.begin_version();
        self.training.best = None;
        self.training.progress.sums.loss_before = self.loss_on_new().await?;
        Ok(())
    }

    /// What an epoch that is done was trained on. What the loss on new samples has become is told by the last of a version.
    pub(super) async fn trained_on(&mut self, is_last: bool) -> Result<Option<TrainedOn>, Halt> {
        let workshop = self.workshop.clone();
        let (Some(data), Some(of), true) =
            (&workshop.data, &workshop.brief.data, workshop.spec().words.follow.is_some())
        else {
            return Ok(None);
        };
        let (new, replayed) = match &data.growth {
            Some(growth) => (growth.new, growth.replayed),
            None => (data.manifest.train.count, 0),
        };
        let loss_before = self.training.progress.sums.loss_before;
        let loss_after = if is_last { self.loss_on_new().await? } else { None };
        Ok(Some(TrainedOn { version: of.version, new, replayed, loss_before, loss_after }))
    }

    async fn loss_on_new(&mut self) -> Result<Option<f64>, Halt> {
        if self.workshop.data.as_ref().is_none_or(|data| data.growth.is_none()) {
            return Ok(None);
        }
        Ok(self.evaluate(Task::EvaluateNew).await?.get("loss").copied())
    }
}
