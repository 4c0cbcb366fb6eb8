//! What becomes of a job's state when the number of its workers changes. Pure.
//!
//! All workers go on from the model, so whoever had weights of its own has them averaged once more. What workers keep is
//! divided so that nothing of it is lost:
//!
//! - Moments of an optimizer: whoever joins takes the mean, and whoever leaves is averaged into one who stays.
//! - What a codec has not sent yet weighs as much afterwards as before, although each worker's part of a mean is another.
//! - Where one worker is its own optimizer and several share one, the moments move from one to the other.
//! - The duals of ADMM belong to a worker's samples, which are others from now on: workers begin anew at the model.

use std::sync::Arc;

use weft_core::spec::Shape;
use weft_core::sync::{Rule, merge};

use super::checkpoint::{Progress, Training};
use super::model::{GlobalModel, WorkerState};
use super::record::Reshaped;
use super::workshop::Workshop;
use crate::dataset::shard::Cut;

/// Goes on with workers of another shape than those that have trained so far. `first` is what a new worker's trainer
/// declares.
/// Whether they are others.
pub fn go_on(workshop: &Workshop, training: &mut Training, shape: &Shape, first: &WorkerState) -> bool {
    let before = training.progress.shape.replace(*shape).unwrap_or(*shape);
    if before == *shape {
        return false;
    }
    let (spec, progress) = (workshop.spec(), &mut training.progress);
    let batch_of = |shape: &Shape| spec.batch_of(progress.epoch, shape).get();
    let (batch, next) = (batch_of(&before), batch_of(shape));
    // What is left of the epoch is divided anew, unless all divisions are as they were.
    if progress.done > 0 && (before.lanes(), batch) != (shape.lanes(), next) {
        let taken = progress.done.saturating_mul(batch.into());
        progress.cuts.push(Cut { shards: before.lanes().into(), taken });
        (progress.earlier, progress.done) = (progress.earlier + progress.done, 0);
    }
    let change = reshaped(workshop, progress, shape);
    progress.sums.reshaped.push(change);
    reshape(training, workshop.rule(), workshop.has_own_weights(), shape.workers, first);
    true
}

/// A change to this shape, as it is told.
pub fn reshaped(workshop: &Workshop, progress: &Progress, shape: &Shape) -> Reshaped {
    let batch = workshop.spec().batch_of(progress.epoch, shape).get();
    Reshaped { step: progress.step, workers: shape.workers, memory: shape.memory, batch }
}

/// Makes a training of so many workers of another. `first` is what a new worker's trainer declares.
pub fn reshape(training: &mut Training, rule: Rule, are_peers: bool, workers: u32, first: &WorkerState) {
    let before = training.worker_states.len();
    if before == workers as usize {
        return;
    }
    let mut states = regrouped(&training.worker_states, workers as usize, first);
    let shares = |workers: u32| rule.exchange(workers).shares_optimizer() && !are_peers;
    match (shares(before as u32), shares(workers)) {
        (true, false) => {
            let WorkerState { moments, steps, .. } = std::mem::take(&mut training.optimizer);
            for state in &mut states {
                (state.moments, state.steps) = (moments.clone(), steps);
            }
        }
        (false, true) => {
            // All have the mean by now, or there was one.
            if let Some(state) = states.first() {
                training.optimizer =
                    WorkerState { moments: state.moments.clone(), steps: state.steps, ..WorkerState::default() };
            }
            states.iter_mut().for_each(|state| (state.moments, state.steps) = (Vec::new(), 0));
        }
        (true, true) | (false, false) => {}
    }
    if rule.keeps_duals() {
        states.iter_mut().for_each(|state| {
            state.moments.fill(0.0);
            state.steps = 0;
        });
    }
    training.worker_states = states.into_iter().map(Arc::new).collect();
    let model = &training.model;
    let (weights, buffers) = (model.weights.clone(), model.buffers.clone());
    training.model = Arc::new(GlobalModel { weights, buffers, of: None, version: model.version + 1 });
}

/// The states of so many workers, none of which has weights of its own.
fn regrouped(states: &[Arc<WorkerState>], workers: usize, first: &WorkerState) -> Vec<WorkerState> {
    let before = states.len();
    let ratio = workers as f32 / before.max(1) as f32;
    let state = |worker: usize| {
        // Whoever leaves is averaged into one who stays; whoever joins takes the mean of all.
        let group: Vec<&WorkerState> = match worker < before {
            true => states.iter().skip(worker).step_by(workers.max(1)).map(|state| &**state).collect(),
            false => states.iter().map(|state| &**state).collect(),
        };
        let locals = states.get(worker).map_or(&first.locals, |state| &state.locals).clone();
        let residual = if worker < before { unsent(&group, ratio) } else { Vec::new() };
        let steps = group.iter().map(|state| state.steps).max().unwrap_or(0);
        let moments = mean(group.iter().map(|state| &state.moments[..]));
        WorkerState { moments, steps, locals, residual, weights: Vec::new(), duals: Vec::new() }
    };
    (0..workers).map(state).collect()
}

fn mean<'a>(rows: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
    let parts: Vec<(&[f32], u64)> = rows.filter(|row| !row.is_empty()).map(|row| (row, 1)).collect();
    let mut mean = vec![0.0; parts.first().map_or(0, |(row, _)| row.len())];
    merge::mean(&mut mean, &parts);
    mean
}

/// What these workers have not sent, for one of them to send.
fn unsent(group: &[&WorkerState], ratio: f32) -> Vec<f32> {
    let rows: Vec<&[f32]> = group.iter().map(|state| &state.residual[..]).filter(|row| !row.is_empty()).collect();
    let mut sum = vec![0.0; rows.first().map_or(0, |row| row.len())];
    merge::sum(&mut sum, &rows);
    sum.iter_mut().for_each(|value| *value *= ratio);
    sum
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use weft_core::learning::Learning;
    use weft_core::spec::JobSpec;
    use weft_core::sync::{Admm, Every, Penalty};

    use super::super::engine::ModelFacts;
    use super::*;

    const K_AVERAGE: Rule = Rule::KAverage(Every::Steps(NonZeroU64::MIN));

    fn state(number: f32) -> Arc<WorkerState> {
        Arc::new(WorkerState {
            moments: vec![number],
            steps: number as u64,
            locals: vec![number],
            residual: vec![number],
            weights: vec![number],
            duals: vec![number],
        })
    }

    fn training(states: &[f32]) -> Training {
        Training {
            model: Arc::new(GlobalModel { weights: vec![1.0].into(), ..GlobalModel::default() }),
            optimizer: WorkerState { moments: vec![9.0], steps: 9, ..WorkerState::default() },
            worker_states: states.iter().map(|number| state(*number)).collect(),
            best: None,
            progress: Progress {
                epoch: 0,
                cuts: Vec::new(),
                earlier: 0,
                done: 0,
                step: 0,
                learning: Learning::new(&JobSpec::new("f", None)),
                sums: Default::default(),
                best: ModelFacts::default(),
                shape: None,
            },
        }
    }

    fn row(training: &Training, of: fn(&WorkerState) -> &[f32]) -> Vec<f32> {
        training.worker_states.iter().flat_map(|state| of(state).to_vec()).collect()
    }

    /// What all workers together have still to send, as a mean over them.
    fn unsent_mean(training: &Training) -> f32 {
        row(training, |state| &state.residual).iter().sum::<f32>() / training.worker_states.len() as f32
    }

    #[test]
    fn whoever_joins_takes_the_mean_of_the_moments_and_nothing_unsent_is_lost() {
        let mut training = training(&[2.0, 4.0]);
        let first = WorkerState { locals: vec![7.0], ..WorkerState::default() };
        reshape(&mut training, K_AVERAGE, false, 4, &first);
        assert_eq!(row(&training, |state| &state.moments), [2.0, 4.0, 3.0, 3.0]);
        assert_eq!(row(&training, |state| &state.locals), [2.0, 4.0, 7.0, 7.0]);
        assert_eq!(unsent_mean(&training), 3.0);
        assert!(row(&training, |state| &state.weights).is_empty(), "all go on from the model");
    }

    #[test]
    fn whoever_leaves_is_averaged_into_one_who_stays() {
        let mut training = training(&[2.0, 4.0, 6.0]);
        reshape(&mut training, K_AVERAGE, false, 2, &WorkerState::default());
        assert_eq!(row(&training, |state| &state.moments), [4.0, 4.0]);
        assert_eq!(row(&training, |state| &state.locals), [2.0, 4.0]);
        assert!((unsent_mean(&training) - 4.0).abs() < 1e-6);
    }

    #[test]
    fn moments_follow_whoever_is_the_optimizer() {
        let mut alone = training(&[2.0]);
        alone.optimizer = WorkerState::default();
        reshape(&mut alone, Rule::GradientAverage, false, 3, &WorkerState::default());
        assert_eq!((&alone.optimizer.moments[..], alone.optimizer.steps), (&[2.0][..], 2));
        assert!(row(&alone, |state| &state.moments).is_empty());
        reshape(&mut alone, Rule::GradientAverage, false, 1, &WorkerState::default());
        assert_eq!((row(&alone, |state| &state.moments), alone.worker_states[0].steps), (vec![2.0], 2));
        assert!(alone.optimizer.moments.is_empty());
    }

    #[test]
    fn workers_of_admm_begin_anew_at_the_model() {
        let admm = Admm { rho: 1.0, lambda: 0.0, penalty: Penalty::L2, epochs: std::num::NonZeroU32::MIN };
        let mut training = training(&[2.0, 4.0]);
        reshape(&mut training, Rule::Admm(admm), false, 3, &WorkerState::default());
        assert!(row(&training, |state| &state.duals).is_empty() && row(&training, |state| &state.weights).is_empty());
        assert_eq!(row(&training, |state| &state.moments), [0.0; 3]);
    }

    #[test]
    fn as_many_workers_as_before_keep_what_they_have() {
        let mut same = training(&[2.0, 4.0]);
        reshape(&mut same, K_AVERAGE, false, 2, &WorkerState::default());
        assert_eq!(row(&same, |state| &state.weights), [2.0, 4.0]);
    }
}
