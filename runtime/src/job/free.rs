//! Training at a pace without a barrier: what each worker is told, and what becomes of what it hands in.
//!
//! - on arrival, and with bounded staleness: the shared optimizer takes a step with each gradient, undivided;
//! - overwrite: whatever a worker hands in is the model from then on;
//! - quorum: each peer takes steps on weights of its own, with the mean of the latest gradients; the model is the mean of
//!   all peers' weights, made when the stretch is over, and all go on from there.

use std::num::NonZeroU64;
use std::sync::Arc;

use weft_core::sync::{Pace, Who, merge};

use super::checkpoint::Training;
use super::contribution::{Contribution, Payload};
use super::merging::{Merged, Merger};
use super::model::GlobalModel;
use super::numbers::Numbers;
use super::replica::Replica;
use super::team::{Contributions, FreeDirector, Halt};
use super::work_order::{Assignment, ModelRef, Task};
use super::workshop::Cursor;

/// One stretch.
pub struct FreeDirecting<'a> {
    pub pace: Pace,
    /// Where the stretch begins.
    pub at: Cursor,
    /// Steps of one round, and of the whole stretch.
    pub steps: NonZeroU64,
    pub stretch: u64,
    pub training: &'a mut Training,
    pub merger: &'a Merger,
    pub replica: Option<&'a mut Replica>,
    /// By worker: gradients that a peer has still to take a step with.
    pub averages: Vec<Option<Numbers>>,
    /// What was handed in, without its numbers.
    pub arrived: Contributions,
}

impl FreeDirecting<'_> {
    fn apply(&mut self, contribution: &mut Contribution) -> Result<(), Halt> {
        if contribution.samples == 0 {
            return Ok(());
        }
        let numbers = match contribution.payload.take() {
            None => return Ok(()),
            Some(payload) => decoded(payload, self.replica.as_deref())?.into_vec(),
        };
        let workers = self.training.worker_states.len().max(1) as f32;
        let buffers = match self.pace {
            Pace::Overwrite => std::mem::take(&mut contribution.buffers),
            // Each worker moves them a little.
            _ => {
                let pairs = self.training.model.buffers.iter().zip(&contribution.buffers);
                pairs.map(|(before, now)| before + (now - before) / workers).collect()
            }
        };
        let merged = Merged { numbers: Some(numbers), buffers: Some(buffers) };
        self.merger.apply(merged, self.training, self.replica.as_deref_mut()).map(drop)
    }
}

/// What of a contribution counts for the epoch. There may be many of them until it is over, so that nothing large is kept.
fn counted(contribution: &Contribution) -> Contribution {
    let Contribution { samples, loss, ref used, .. } = *contribution;
    Contribution { samples, loss, used: used.clone(), ..Contribution::default() }
}

/// Numbers as others see them.
fn decoded(payload: Payload, replica: Option<&Replica>) -> Result<Numbers, Halt> {
    match payload {
        Payload::Plain(numbers) => Ok(numbers),
        Payload::Encoded(bytes) => match replica {
            Some(replica) => replica.decode(&bytes).map(Numbers::from),
            None => Err(Halt::Failed("encoded numbers came, and nothing to decode them".to_owned())),
        },
        // Who does not wait for others hands its numbers in as they are.
        Payload::Stored(slot) => Err(Halt::Failed(format!("a contribution lies in slot `{slot}`, where nobody looks"))),
    }
}

impl FreeDirector for FreeDirecting<'_> {
    fn assignment(&mut self, who: Who, clock: u64) -> Result<Assignment, Halt> {
        let done = (clock * self.steps.get()).min(self.stretch);
        let steps = self.steps.get().min(self.stretch - done);
        let at = Cursor { done: self.at.done + done, step: self.at.step + done, ..self.at.clone() };
        let worker = who.worker as usize;
        Ok(Assignment {
            round: 0,
            task: Task::Train { steps, joins: true },
            at,
            model: ModelRef::whole(&self.training.model),
            take: None,
            optimizer: None,
            worker_state: self.training.worker_states.get(worker).cloned(),
            is_new_state: false,
            is_new_model: false,
            tells_checksum: false,
            average: self.averages.get(worker).cloned().flatten(),
            statistics: Numbers::default(),
        })
    }

    fn arrived(&mut self, worker: u32, mut contribution: Box<Contribution>, staleness: u64) -> Result<(), Halt> {
        self.apply(&mut contribution)?;
        self.training.progress.sums.staleness.add(staleness);
        if let (Some(place), Some(state)) =
            (self.training.worker_states.get_mut(worker as usize), contribution.worker_state.take())
        {
            *place = state;
        }
        self.arrived.push((worker, Box::new(counted(&contribution))));
        Ok(())
    }

    fn average(&mut self, who: Who, own: &Contribution, of: &[(&Contribution, u64)]) -> Result<(), Halt> {
        self.arrived.push((who.worker, Box::new(counted(own))));
        if let (Some(place), Some(state)) =
            (self.training.worker_states.get_mut(who.worker as usize), &own.worker_state)
        {
            *place = state.clone();
        }
        let mut gradients = Vec::new();
        for (contribution, age) in of.iter().filter(|(contribution, _)| contribution.samples > 0) {
            self.training.progress.sums.staleness.add(*age);
            // Plain numbers are shared with the message, not copied.
            if let Some(payload) = contribution.payload.clone() {
                gradients.push((decoded(payload, self.replica.as_deref())?, contribution.samples));
            }
        }
        let parts: Vec<(&[f32], u64)> = gradients.iter().map(|(part, samples)| (&part[..], *samples)).collect();
        let worker = who.worker as usize;
        if let (Some((first, _)), Some(place)) = (parts.first(), self.averages.get_mut(worker)) {
            let mut mean = vec![0.0; first.len()];
            merge::mean(&mut mean, &parts);
            *place = Some(mean.into());
        }
        Ok(())
    }
}

/// Has every worker do one thing, and keeps what they hand in, in the order of the workers.
pub struct Collecting<'a> {
    pub task: Task,
    pub at: Cursor,
    pub training: &'a Training,
    pub averages: &'a [Option<Numbers>],
    pub collected: Contributions,
}

impl FreeDirector for Collecting<'_> {
    fn assignment(&mut self, who: Who, _: u64) -> Result<Assignment, Halt> {
        let worker = who.worker as usize;
        Ok(Assignment {
            round: 0,
            task: self.task,
            at: self.at.clone(),
            model: ModelRef::whole(&self.training.model),
            take: None,
            optimizer: None,
            worker_state: self.training.worker_states.get(worker).cloned(),
            is_new_state: false,
            is_new_model: false,
            tells_checksum: false,
            average: self.averages.get(worker).cloned().flatten(),
            statistics: Numbers::default(),
        })
    }

    fn arrived(&mut self, worker: u32, contribution: Box<Contribution>, _: u64) -> Result<(), Halt> {
        self.collected.push((worker, contribution));
        self.collected.sort_by_key(|(worker, _)| *worker);
        Ok(())
    }

    fn average(&mut self, _: Who, _: &Contribution, _: &[(&Contribution, u64)]) -> Result<(), Halt> {
        Ok(())
    }
}

/// The mean of all peers' weights, each weighted by the samples that it has seen.
pub fn mean_of_peers(contributions: &mut Contributions, samples: &[u64], training: &mut Training) {
    let weights: Vec<(Vec<f32>, Vec<f32>, u64)> = contributions
        .iter_mut()
        .map(|(worker, contribution)| {
            let seen = samples.get(*worker as usize).copied().unwrap_or(0).max(1);
            (contribution.take_numbers(), std::mem::take(&mut contribution.buffers), seen)
        })
        .collect();
    let parts: Vec<(&[f32], u64)> = weights.iter().map(|(weights, _, samples)| (&weights[..], *samples)).collect();
    let buffers: Vec<(&[f32], u64)> = weights.iter().map(|(_, buffers, samples)| (&buffers[..], *samples)).collect();
    let before = &training.model;
    let (mut mean_weights, mut mean_buffers) = (before.weights.to_vec(), before.buffers.to_vec());
    merge::mean(&mut mean_weights, &parts);
    merge::mean(&mut mean_buffers, &buffers);
    let version = before.version + 1;
    let next = GlobalModel { weights: mean_weights.into(), buffers: mean_buffers.into(), of: None, version };
    training.model = Arc::new(next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_read_where_they_lie() {
        let numbers = Numbers::from(vec![1.0, 2.0]);
        let read = decoded(Payload::Plain(numbers.clone()), None).unwrap();
        assert_eq!(read.as_ptr(), numbers.as_ptr());
    }

    #[test]
    fn what_counts_of_a_contribution_holds_no_rows() {
        let contribution = Contribution {
            samples: 3,
            payload: Some(vec![1.0].into()),
            buffers: vec![2.0],
            worker_state: Some(Arc::default()),
            ..Contribution::default()
        };
        assert_eq!(counted(&contribution), Contribution { samples: 3, ..Contribution::default() });
    }
}
